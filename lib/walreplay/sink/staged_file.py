"""Staged files: decoding tasks write folded events to them, and folding tasks read their share.

A file begins with the data of all rows, one after the other.  Behind it, as an Arrow IPC file, are the rows' other
columns and the place of their data: one record batch for each table, sorted by bucket and sequence.  To read some rows
of one table, a task reads only that table's part of this index, and then the bytes of those rows.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from enum import Enum, auto
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import numpy as np
import pyarrow as pa

from walreplay.sink.folders import Folder

if TYPE_CHECKING:
    from numpy.typing import NDArray

DATA: Final = "data"
_OFFSET: Final = "offset"
_TABLES: Final = b"tables"
"""The key in the index's schema metadata for a JSON list: the table's number for each batch."""

_ORDER: Final = [("table", "ascending"), ("bucket", "ascending"), ("sequence", "ascending")]

_BATCHES_AT_ONCE: Final = 256
"""So many batches of one row each are joined, because each takes 7 kB of memory."""

_ALIGNED: Final = 64

_BETWEEN: Final = 64 << 10
_AT_ONCE: Final = 8 << 20
"""Rows of a file in an object store are read together, up to so many bytes, if no more than the others lie between."""

_MOST_OPEN: Final = 256
"""A task has so many files open at most; systems allow a process about a thousand."""

_MOST_HELD: Final = 64 << 20
"""Small files of a store are in memory as a whole while they are open: so many bytes of them at most."""


class StagedFileWriter:
    """Write one staged file, with a unique name; as a context manager it discards the file if an error leaves it."""

    def __init__(self, folder: Folder) -> None:
        self._folder = folder
        self._name = f"{uuid.uuid4()}.staged"
        self._file: pa.NativeFile | None = None
        self._rows: list[pa.Table] = []
        self._last: list[pa.RecordBatch] = []

    def __enter__(self) -> StagedFileWriter:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        if kind is not None:
            self._abandon()

    def add(self, rows: pa.RecordBatch) -> None:
        """Write rows: the column ``data`` goes to the staged file, the others to the index."""
        if self._file is None:
            self._folder.make()
            self._file = self._folder.create(self._name)
        offsets = []
        for value in rows.column(DATA):
            offsets.append(self._file.tell())
            self._file.write(value.as_buffer())
        self._last.append(rows.drop_columns([DATA]).append_column(_OFFSET, pa.array(offsets, pa.int64())))
        if len(self._last) >= _BATCHES_AT_ONCE:
            self._gather()

    def close(self) -> tuple[str, pa.Table] | None:
        """Finish the file; give its name and its index, or None if there were no rows."""
        if self._file is None:
            return None
        self._gather()
        index = pa.concat_tables(self._rows).combine_chunks().sort_by(_ORDER).combine_chunks()
        tables, starts = np.unique(index.column("table").to_numpy(), return_index=True)
        stops = [*starts[1:].tolist(), index.num_rows]
        schema = index.schema.with_metadata({_TABLES: json.dumps(tables.tolist()).encode()})
        # Arrow aligns what it writes to the file's beginning.
        self._file.write(bytes(-self._file.tell() % _ALIGNED))
        with pa.ipc.new_file(self._file, schema) as writer:
            for start, stop in zip(starts.tolist(), stops, strict=True):
                (batch,) = index.slice(start, stop - start).to_batches()
                writer.write_batch(batch.replace_schema_metadata(schema.metadata))
        self._file.close()
        return self._name, index

    def _gather(self) -> None:
        if self._last:
            self._rows.append(pa.Table.from_batches(self._last).combine_chunks())
            self._last = []

    def _abandon(self) -> None:
        """Discard the file.  Errors are ignored, because they would hide the error that was the reason."""
        if self._file is not None:
            with suppress(OSError):
                self._file.close()
            with suppress(OSError):
                self._folder.delete(self._name)


@dataclass(frozen=True, slots=True)
class Wanted:
    """A selection of rows of staged files.

    Attributes:
        table: the table's number.
        start: the first sequence number.
        stop: the sequence number after the last; None for no end.
        least_bucket: the lowest bucket.
        void: rows with these values in the column ``ahead`` are left out.
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


def read_columns(folder: Folder, name: str, wanted: Wanted, columns: Sequence[str]) -> list[tuple[Any, ...]]:
    """Give one tuple for each selected row of a file, with the values of some of the index's columns."""
    with folder.open(name) as file:
        rows = _rows_of_table(file, wanted.table)
        if rows is None:
            return []
        found = rows.filter(pa.array(wanted.among(rows)))
        return list(zip(*(found.column(column).to_pylist() for column in columns), strict=True))


def _rows_of_table(file: pa.NativeFile, table: int) -> pa.RecordBatch | None:
    """Give a table's batch in the index of a file; None if there is none."""
    with pa.ipc.open_file(file) as reader:
        tables = json.loads(reader.schema.metadata[_TABLES])
        return reader.get_batch(tables.index(table)) if table in tables else None


class Sharing(Enum):
    """How rows are divided among tasks."""

    BY_BUCKET = auto()
    TOGETHER = auto()
    IN_TURN = auto()


def read_rows(
    folder: Folder, names: Sequence[str], wanted: Wanted, share: tuple[int, int], sharing: Sharing
) -> Iterator[tuple[int, int, bytes]]:
    """Give bucket, sequence and data of one share of the selected rows, sorted by bucket and sequence.

    Args:
        names: the files' names in the folder.
        share: the number of the share, and the number of shares.
        sharing: by which unit rows are divided among shares: by bucket, all rows together (as bucket 0), or row by row.
    """
    with ExitStack() as opened:
        files = _Files(folder, names, opened)
        rows = _places(files, wanted, share, sharing)
        if rows is None:
            return
        most_between = _BETWEEN if folder.is_far else -1
        ends = _ends(rows, most_between)
        for bucket, file, sequence, offset, size, end in zip(*(one.tolist() for one in (*rows, ends)), strict=True):
            yield bucket, sequence, files.read(file, offset, size, end)


_Rows: TypeAlias = "tuple[NDArray[np.int64], ...]"
"""Bucket, number of the file, sequence, offset and size of rows, in the order in which they are read."""


def _places(files: _Files, wanted: Wanted, share: tuple[int, int], sharing: Sharing) -> _Rows | None:
    """Find the rows of a share; None if there are none."""
    number, shares = share
    found, before = [], 0
    for file in range(files.count):
        rows = _rows_of_table(files.opened(file), wanted.table)
        if rows is None:
            continue
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
        return None
    bucket, of_file, sequence, offset, size = (np.concatenate(columns) for columns in zip(*found, strict=True))
    order = np.lexsort((sequence, bucket))
    return bucket[order], of_file[order], sequence[order], offset[order], size[order]


def _ends(rows: _Rows, most_between: int) -> NDArray[np.int64]:
    """Say for each row up to where its file is read with it: to its own end, or to that of rows that come next.

    Rows are read together that are of one bucket, as whoever reads one of them needs the others, too.

    Args:
        most_between: how many bytes may lie between two of them; below 0, each row is read by itself.
    """
    bucket, of_file, _, offset, size = rows
    ends = offset + size
    if most_between < 0:
        return ends
    last: dict[int, int] = {}
    for row in range(len(ends) - 1, -1, -1):
        following = last.get(int(of_file[row]))
        if following is not None and bucket[following] == bucket[row]:
            between = offset[following] - ends[row]
            if 0 <= between <= most_between and ends[following] - offset[row] <= _AT_ONCE:
                ends[row] = ends[following]
        last[int(of_file[row])] = row
    return ends


class _Files:
    """Staged files that a task reads; not too many are open at once."""

    def __init__(self, folder: Folder, names: Sequence[str], opened: ExitStack) -> None:
        self._folder = folder
        self._names = names
        self._opened = opened
        self._files: dict[int, pa.NativeFile] = {}
        self._read: dict[int, tuple[int, memoryview]] = {}
        self._held = 0

    @property
    def count(self) -> int:
        """How many there are."""
        return len(self._names)

    def opened(self, file: int) -> pa.NativeFile:
        """Give an open file."""
        if file not in self._files:
            if len(self._files) >= _MOST_OPEN or self._held >= _MOST_HELD:
                self._opened.close()
                self._files.clear()
                self._held = 0
            opened = self._files[file] = self._opened.enter_context(self._folder.open(self._names[file]))
            self._held += opened.size() if isinstance(opened, pa.BufferReader) else 0
        return self._files[file]

    def read(self, file: int, offset: int, size: int, end: int) -> bytes:
        """Give some bytes of a file, which is read up to ``end`` with them.

        What was read with them is kept up to its last row.
        """
        start, there = self._read.get(file, (0, memoryview(b"")))
        if not start <= offset <= offset + size <= start + len(there):
            source = self.opened(file)
            source.seek(offset)
            data: bytes = source.read(end - offset)
            if end == offset + size:
                return data
            start, there = offset, memoryview(data)
            self._read[file] = start, there
        elif offset + size == start + len(there):
            self._read.pop(file, None)
        return bytes(there[offset - start : offset - start + size])


__all__ = ["DATA", "Sharing", "StagedFileWriter", "Wanted", "read_columns", "read_rows"]
