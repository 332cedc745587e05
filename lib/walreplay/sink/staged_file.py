"""Staged files: decoding tasks write folded events to them, and folding tasks read their share.

``<name>.staged`` has the rows' data one behind the other.  ``<name>.index``, an Arrow IPC file, has all other columns
of the rows and where their data lies: a record batch for each table, sorted by bucket and sequence.  To read some rows
of one table, a task reads only that table's part of the index, and then those rows' bytes.
"""

from __future__ import annotations

import json
import os
import uuid
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from enum import Enum, auto
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, BinaryIO, Final

import numpy as np
import pyarrow as pa

if TYPE_CHECKING:
    from numpy.typing import NDArray

DATA: Final = "data"
_OFFSET: Final = "offset"
_TABLES: Final = b"tables"
"""The index's schema tells here, in JSON, which table each of its batches is of."""

_ORDER: Final = [("table", "ascending"), ("bucket", "ascending"), ("sequence", "ascending")]

_BATCHES_AT_ONCE: Final = 256
"""So many rows' batches are put together: by itself each takes 7 kB of memory."""

_MOST_OPEN: Final = 256
"""So many files a task has open: systems allow a process a thousand or so."""


class StagedFileWriter:
    """Write one file, with a unique name; used as a context, it discards a file that is not closed."""

    def __init__(self, folder: str | os.PathLike[str]) -> None:
        self._name = str(uuid.uuid4())
        self._data, self._index = _paths(folder, self._name)
        self._file: BinaryIO | None = None
        self._rows: list[pa.Table] = []
        self._last: list[pa.RecordBatch] = []

    def __enter__(self) -> StagedFileWriter:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        if kind is not None:
            self._abandon()

    def add(self, rows: pa.RecordBatch) -> None:
        """Write rows: their column ``data`` goes to the file, the others to the index."""
        if self._file is None:
            self._data.parent.mkdir(parents=True, exist_ok=True)
            self._file = self._data.open("xb")
        offsets = []
        for value in rows.column(DATA):
            offsets.append(self._file.tell())
            self._file.write(value.as_buffer())
        self._last.append(rows.drop_columns([DATA]).append_column(_OFFSET, pa.array(offsets, pa.int64())))
        if len(self._last) >= _BATCHES_AT_ONCE:
            self._gather()

    def close(self) -> tuple[str, pa.Table] | None:
        """Finish the file, and give its name and its index; None if there were no rows."""
        if self._file is None:
            return None
        self._file.close()
        self._gather()
        index = pa.concat_tables(self._rows).combine_chunks().sort_by(_ORDER).combine_chunks()
        tables, starts = np.unique(index.column("table").to_numpy(), return_index=True)
        stops = [*starts[1:].tolist(), index.num_rows]
        schema = index.schema.with_metadata({_TABLES: json.dumps(tables.tolist()).encode()})
        with pa.OSFile(str(self._index), "wb") as sink, pa.ipc.new_file(sink, schema) as writer:
            for start, stop in zip(starts.tolist(), stops, strict=True):
                (batch,) = index.slice(start, stop - start).to_batches()
                writer.write_batch(batch.replace_schema_metadata(schema.metadata))
        return self._name, index

    def _gather(self) -> None:
        if self._last:
            self._rows.append(pa.Table.from_batches(self._last).combine_chunks())
            self._last = []

    def _abandon(self) -> None:
        """Discard the file; an error of this must not hide the error that was the reason."""
        with suppress(OSError):
            if self._file is not None:
                self._file.close()
            for path in (self._data, self._index):
                path.unlink(missing_ok=True)


def _paths(folder: str | os.PathLike[str], name: str) -> tuple[Path, Path]:
    return Path(folder, f"{name}.staged"), Path(folder, f"{name}.index")


@dataclass(frozen=True, slots=True)
class Wanted:
    """A selection of rows of staged files.

    Attributes:
        start, stop: sequence numbers; ``stop`` None for all that follow.
        least_bucket: rows of lower buckets are not selected.
        void: values of ``ahead`` that are not selected.
    """

    table: int
    start: int = 0
    stop: int | None = None
    least_bucket: int = 0
    void: tuple[int, ...] = ()

    def among(self, rows: pa.RecordBatch) -> NDArray[np.bool_]:
        """Say for each row of the table whether it is selected."""
        sequence = rows.column("sequence").to_numpy()
        found: NDArray[np.bool_] = sequence >= self.start
        found &= rows.column("bucket").to_numpy() >= self.least_bucket
        if self.stop is not None:
            found &= sequence < self.stop
        if self.void:
            found &= ~np.isin(rows.column("ahead").to_numpy(), self.void)
        return found


def read_columns(folder: str, name: str, wanted: Wanted, columns: Sequence[str]) -> list[tuple[Any, ...]]:
    """Give some columns of a file's selected rows, except their data."""
    for rows in _rows_of_table(folder, name, wanted.table):
        found = rows.filter(pa.array(wanted.among(rows)))
        return list(zip(*(found.column(column).to_pylist() for column in columns), strict=True))
    return []


def _rows_of_table(folder: str, name: str, table: int) -> Iterator[pa.RecordBatch]:
    """Give a table's part of an index, while it is mapped; nothing if the file has none of its rows."""
    with pa.memory_map(str(_paths(folder, name)[1])) as source, pa.ipc.open_file(source) as reader:
        tables = json.loads(reader.schema.metadata[_TABLES])
        if table in tables:
            yield reader.get_batch(tables.index(table))


class Sharing(Enum):
    """How rows are divided among tasks."""

    BY_BUCKET = auto()
    TOGETHER = auto()
    IN_TURN = auto()


def read_rows(
    folder: str, names: Sequence[str], wanted: Wanted, share: tuple[int, int], sharing: Sharing
) -> Iterator[tuple[int, int, bytes]]:
    """Give bucket, sequence and data of one share of the selected rows, sorted by bucket and sequence.

    Args:
        names: the files in the folder.
        share: its number, and how many there are.
        sharing: what stays together in one share: each bucket; all rows, as of one bucket; or each row by itself.
    """
    number, shares = share
    found, before = [], 0
    for file, name in enumerate(names):
        for rows in _rows_of_table(folder, name, wanted.table):
            at = np.nonzero(wanted.among(rows))[0]
            bucket = rows.column("bucket").to_numpy()[at]
            if sharing is Sharing.TOGETHER:
                bucket = np.zeros_like(bucket)
            turn = before + np.arange(len(at)) if sharing is Sharing.IN_TURN else bucket
            before += len(at)
            mine = turn % shares == number
            at, columns = at[mine], (rows.column(column).to_numpy() for column in ("sequence", _OFFSET, "size"))
            found.append((bucket[mine], np.full(len(at), file), *(column[at] for column in columns)))
    if not found:
        return
    bucket, of_file, sequence, offset, size = (np.concatenate(columns) for columns in zip(*found, strict=True))
    with ExitStack() as opened:
        files: dict[int, BinaryIO] = {}
        for at in np.lexsort((sequence, bucket)).tolist():
            file = int(of_file[at])
            if file not in files:
                if len(files) == _MOST_OPEN:
                    opened.close()
                    files.clear()
                files[file] = opened.enter_context(_paths(folder, names[file])[0].open("rb"))
            files[file].seek(int(offset[at]))
            yield int(bucket[at]), int(sequence[at]), files[file].read(int(size[at]))


__all__ = ["DATA", "Sharing", "StagedFileWriter", "Wanted", "read_columns", "read_rows"]
