"""Write a table's Parquet files in Spark's Python workers, in a folder that they reach by themselves.

What tasks do with staged events in files: write them, find their share, and work on it.

This module imports little, because a new worker waits for its imports before its first task.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import chain
from typing import TYPE_CHECKING, Final

import pyarrow as pa

from walreplay.delta.data_files import DataFile, DataFileWriter, FileColumn
from walreplay.delta.small_table import MOST_BYTES, Before, rewrite
from walreplay.delta.staged_file import RowSelection, Sharing, StagedFileWriter, read_rows
from walreplay.errors import TargetError
from walreplay.fold.batches import batch_to_ipc
from walreplay.session.folders import Folder, MountedFolder, reason_of
from walreplay.spark.workers.fold import FoldTask, fold_batches
from walreplay.spark.workers.process import spark_task
from walreplay.spark.workers.rows import Work, refusal_text, route_batch

if TYPE_CHECKING:
    from pyspark.sql import Row


FILES: Final = pa.schema(
    [
        ("name", pa.string()),
        ("size", pa.int64()),
        ("rows", pa.int64()),
        ("stats", pa.string()),
        ("counts", pa.string()),
        ("replaced", pa.list_(pa.int64())),
    ]
)
"""The row that a task returns about what it has written."""


@dataclass(frozen=True, slots=True)
class FilesWritten:
    """The files that tasks have written.

    Attributes:
        counts: what the rows are counted for.
        replaced: the numbers of the table's files that the files replace; None if their rows are added to the table,
            or merged into it.
    """

    files: tuple[DataFile, ...]
    counts: Mapping[str, int]
    replaced: tuple[int, ...] | None = None

    @property
    def rows(self) -> int:
        """The files' rows."""
        return sum(file.rows for file in self.files)

    @classmethod
    def of(cls, rows: Iterable[Row]) -> FilesWritten:
        """Gather what the tasks return, rows of `FILES`."""
        files, counts, replaced = [], Counter[str](), None
        for row in rows:
            if row.replaced is not None:
                replaced = tuple(row.replaced)
            counts.update(json.loads(row.counts))
            if row.name is not None:  # None: the task had no rows for a file
                files.append(DataFile(row.name, row.size, row.rows, row.stats))
        return cls(tuple(files), counts, replaced)


@dataclass(frozen=True, slots=True)
class FileTask:
    """Where and how rows are written.

    Attributes:
        folder: the table's.
        columns: the table's; ``sources`` are the rows' columns that go there.
    """

    folder: Folder
    columns: tuple[FileColumn, ...]
    sources: tuple[str, ...]

    @classmethod
    def keeping(cls, folder: Folder, schema: pa.Schema) -> FileTask:
        """Return how rows with these columns are kept for a statement that reads them."""
        columns = tuple(FileColumn(field.name, field.name, field.type, indexed=False) for field in schema)
        return cls(folder, columns, tuple(schema.names))

    @property
    def schema(self) -> pa.Schema:
        """The files' columns."""
        return pa.schema([column.field for column in self.columns])


@spark_task
def write_folded(
    batches: Iterable[pa.RecordBatch], *, task: FoldTask, files: FileTask, is_new: bool = False
) -> Iterator[pa.RecordBatch]:
    """Fold staged events to rows (see `fold_batches`), and write these.

    One row comes out: the file, if there is one, and the counts of its rows (JSON).

    Args:
        is_new: they are the rows of a table that has none before them; otherwise all are kept for a later MERGE.
    """
    yield _folded_file(fold_batches(batches, task=task), task, files, is_new=is_new)


def _folded_file(
    folded: Iterable[pa.RecordBatch], task: FoldTask, files: FileTask, *, is_new: bool = False
) -> pa.RecordBatch:
    counts: Counter[str] = Counter()

    def counted() -> Iterator[pa.RecordBatch]:
        for batch in folded:
            counts.update(task.counts_of(batch, is_new=is_new))
            yield from task.final_rows(batch) if is_new else (batch,)

    file = _write(files, counted())
    return _written(file, counts)


@spark_task
def write_rewritten(
    batches: Iterable[pa.RecordBatch], *, task: FoldTask, before: Before, kept: FileTask
) -> Iterator[pa.RecordBatch]:
    """Fold all staged events of a small table to rows, and rewrite the table with them.

    One row comes out, as of `write_folded`, whose counts include those of `Rewritten`.

    Args:
        kept: where the rows are written to if the table is left to a MERGE.
    """
    rest, folded, size = fold_batches(batches, task=task), [], 0
    for batch in rest:
        folded.append(batch)
        size += batch.nbytes
        if size > MOST_BYTES:
            break
    rewritten = rewrite(before, folded) if folded and size <= MOST_BYTES else None
    if rewritten is None:
        yield _folded_file(chain(folded, rest), task, kept)  # what was read, and what was not
        return
    counts = Counter(rewritten.counts)
    for batch in folded:
        counts.update(task.counts_of(batch))
    # Without a change the table stays as it is.
    rows = (batch.rename_columns(before.sources) for batch in rewritten.batches()) if rewritten.changes else ()
    file = _write(FileTask(before.folder, before.columns, before.sources), rows)
    yield _written(file, counts, rewritten.replaced)


@spark_task
def write_batches(
    batches: Iterable[pa.RecordBatch], *, files: FileTask, work: Work | None = None
) -> Iterator[pa.RecordBatch]:
    """Write rows as they come, or what some work makes of them."""
    yield _written(_write(files, batches if work is None else work(batches)), {})


def _write(task: FileTask, batches: Iterable[pa.RecordBatch]) -> DataFile | None:
    """Write the wanted columns of batches into one file; None if they have no rows."""
    with DataFileWriter(task.folder, task.columns) as writer:
        for batch in batches:
            writer.write(batch.select(task.sources))  # without the fold's own columns
        return writer.close()


def _written(
    file: DataFile | None, counts: Mapping[str, int], replaced: tuple[int, ...] | None = None
) -> pa.RecordBatch:
    row = {"name": None, "size": 0, "rows": 0, "stats": None, "counts": json.dumps(counts), "replaced": replaced}
    if file is not None:
        row |= {"name": file.name, "size": file.size, "rows": file.rows, "stats": file.stats}
    return pa.RecordBatch.from_pylist([row], schema=FILES)


WRITTEN: Final = pa.schema([("name", pa.string()), ("totals", pa.binary())])  # The file that a task has written


@contextmanager
def _refusing(problem: str, folder: Folder) -> Iterator[None]:
    """Turn an error of the file system about staged rows into one that the driver reports in a line."""
    try:
        yield
    except OSError as error:
        raise RuntimeError(refusal_text(refused(problem, error, folder))) from None


def refused(problem: str, error: OSError, folder: Folder) -> TargetError:
    """Turn an error of the file system about staged rows into an error for people."""
    path, needs = folder.uri, "reach it by themselves, and"
    if isinstance(folder, MountedFolder):
        path, needs = folder.path, "have to have it mounted at this place, with room, and"
    return TargetError(
        f"staged rows {problem}: {reason_of(error)}",
        path=path,
        remedy=f"The driver and all executors {needs} may write there; or name another folder (staging in the "
        "configuration)",
    )


@spark_task
def stage_into_file(batches: Iterable[pa.RecordBatch], *, work: Work, folder: Folder) -> Iterator[pa.RecordBatch]:
    """Write the rows of some work to a file in the folder; return its name, and the totals."""
    with _refusing("cannot be written", folder), StagedFileWriter(folder) as file:
        for rows in work(batches):
            file.add(rows)
        closed = file.close()
    if closed is not None:
        name, index = closed
        (totals,) = totals_of(index).combine_chunks().to_batches()
        row = {"name": name, "totals": batch_to_ipc(totals).to_pybytes()}
        yield pa.RecordBatch.from_pylist([row], schema=WRITTEN)


@spark_task
def without_data(batches: Iterable[pa.RecordBatch], *, work: Work) -> Iterator[pa.RecordBatch]:
    """Return what the rows of some work say of themselves, without their data: what would be staged."""
    rows = [batch.drop_columns(["data"]) for batch in work(batches)]
    if rows:
        yield from pa.Table.from_batches(rows).combine_chunks().to_batches()


_KEYS: Final = ("table", "relation", "info")
_SUMS: Final = (("rows", "sum"), ("size", "sum"), ("first", "min"), ("last", "max"))
"""How totals are added up: `Total`'s fields behind its key."""


def totals_of(index: pa.Table) -> pa.Table:
    """Sum up what the rows say of themselves (`Total`)."""
    sequence = index.column("sequence")
    return summed(index.append_column("first", sequence).append_column("last", sequence))


def summed(totals: pa.Table) -> pa.Table:
    """Add totals up that have the same table, relation version and ``info``."""
    sums = totals.group_by(list(_KEYS), use_threads=False).aggregate(list(_SUMS))
    return sums.select([*_KEYS, *(f"{name}_{how}" for name, how in _SUMS)]).rename_columns(
        [*_KEYS, *(name for name, _ in _SUMS)]
    )


@dataclass(frozen=True, slots=True)
class Shares:
    """Rows of staged files, divided among tasks that read them by themselves."""

    folder: Folder
    names: tuple[str, ...]
    selection: RowSelection
    count: int
    sharing: Sharing

    def of(self, number: int) -> Iterator[pa.RecordBatch]:
        """Read a share: bucket, sequence and data."""
        with _refusing("cannot be read", self.folder):
            for row in read_rows(self.folder, self.names, self.selection, (number, self.count), self.sharing):
                yield route_batch(*row)


@spark_task
def over_shares(batches: Iterable[pa.RecordBatch], *, work: Work, shares: Shares) -> Iterator[pa.RecordBatch]:
    """Run a function on some shares."""
    for batch in batches:
        for number in batch.column("id").to_pylist():
            yield from work(shares.of(number))


@dataclass(frozen=True, slots=True)
class TableShare:
    """A table's share of the work."""

    table: int
    work: Work
    shares: Shares
    number: int


@spark_task
def work_together(
    batches: Iterable[pa.RecordBatch], *, bins: Sequence[Sequence[TableShare]]
) -> Iterator[pa.RecordBatch]:
    """Do the work in each of some bins."""
    for batch in batches:
        for number in batch.column("id").to_pylist():
            for part in bins[number]:
                for rows in part.work(part.shares.of(part.number)):
                    tables = pa.array([part.table] * rows.num_rows, pa.int32())
                    yield pa.RecordBatch.from_arrays([tables, *rows.columns], names=["table", *rows.schema.names])
