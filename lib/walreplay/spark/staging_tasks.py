"""What tasks do with staged events in files: write them, find their share, and work on it.

This module imports little, because a new worker waits for its imports before its first task.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final

import pyarrow as pa

from walreplay.delta.staged_file import Sharing, StagedFileWriter, Wanted, read_rows
from walreplay.errors import TargetError
from walreplay.fold.events import batch_to_ipc
from walreplay.session.folders import Folder, MountedFolder, reason_of
from walreplay.spark.workers.process import spark_task
from walreplay.spark.workers.rows import Work, refusal_text, route_batch

WRITTEN: Final = pa.schema(
    [
        ("name", pa.string()),
        ("totals", pa.binary()),
    ]
)
"""The file that a task has written."""


@contextmanager
def _refusing(problem: str, folder: Folder) -> Iterator[None]:
    """Have the driver tell in one line what the file system has against staged rows."""
    try:
        yield
    except OSError as error:
        raise RuntimeError(refusal_text(refused(problem, error, folder))) from None


def refused(problem: str, error: OSError, folder: Folder) -> TargetError:
    """Turn an error of the file system about staged rows into an error for people."""
    mounted = isinstance(folder, MountedFolder)
    needs = (
        "have to have the target mounted at this place, with room, and" if mounted else "reach it by themselves, and"
    )
    return TargetError(
        f"staged rows {problem}: {reason_of(error)}",
        path=folder.path if isinstance(folder, MountedFolder) else folder.uri,
        remedy=f"The driver and all executors {needs} may write there; WALREPLAY_COMMITS=spark in the environment "
        "leaves all writing to Spark",
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
        (totals,) = _totals(index).combine_chunks().to_batches()
        row = {"name": name, "totals": batch_to_ipc(totals).to_pybytes()}
        yield pa.RecordBatch.from_pylist([row], schema=WRITTEN)


_KEYS: Final = ("table", "relation", "info")
_SUMS: Final = (
    ("rows", "sum"),
    ("size", "sum"),
    ("first", "min"),
    ("last", "max"),
)
"""How totals are added up: `Total`'s fields behind those that tell them apart."""


def _totals(index: pa.Table) -> pa.Table:
    """Sum up what the rows say of themselves (`Total`)."""
    sequence = index.column("sequence")
    return summed(index.append_column("first", sequence).append_column("last", sequence))


def summed(totals: pa.Table) -> pa.Table:
    """Add totals up that have the same table, relation version and ``info``."""
    found = totals.group_by(list(_KEYS), use_threads=False).aggregate(list(_SUMS))
    return found.select([*_KEYS, *(f"{name}_{how}" for name, how in _SUMS)]).rename_columns(
        [*_KEYS, *(name for name, _ in _SUMS)]
    )


@dataclass(frozen=True, slots=True)
class Shares:
    """Rows of staged files, divided among tasks that read them by themselves."""

    folder: Folder
    names: tuple[str, ...]
    wanted: Wanted
    count: int
    sharing: Sharing

    def of(self, number: int) -> Iterator[pa.RecordBatch]:
        """Read a share: bucket, sequence and data."""
        with _refusing("cannot be read", self.folder):
            for row in read_rows(self.folder, self.names, self.wanted, (number, self.count), self.sharing):
                yield route_batch(*row)


@spark_task
def over_shares(batches: Iterable[pa.RecordBatch], *, work: Work, shares: Shares) -> Iterator[pa.RecordBatch]:
    """Run a function on some shares.

    Args:
        batches: of the shares' numbers.
    """
    for batch in batches:
        for number in batch.column("id").to_pylist():
            yield from work(shares.of(number))


def as_they_are(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Yield a share's rows unchanged: the work for `over_shares` if Spark goes on with them."""
    yield from batches


@dataclass(frozen=True, slots=True)
class TableShare:
    """One table's share of the work."""

    slot: int
    work: Work
    shares: Shares
    number: int


@spark_task
def work_together(
    batches: Iterable[pa.RecordBatch], *, bins: Sequence[Sequence[TableShare]]
) -> Iterator[pa.RecordBatch]:
    """Do the work in each of some bins.

    Args:
        batches: of the bins' numbers.
    """
    for batch in batches:
        for number in batch.column("id").to_pylist():
            for part in bins[number]:
                for rows in part.work(part.shares.of(part.number)):
                    slots = pa.array([part.slot] * rows.num_rows, pa.int32())
                    yield pa.RecordBatch.from_arrays([slots, *rows.columns], names=["slot", *rows.schema.names])
