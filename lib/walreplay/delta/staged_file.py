"""Staged files: decoding tasks write folded events to them, and folding tasks read their share.

A file begins with the data of all rows, one after the other.  Behind it, as an Arrow IPC file, are the rows' other
columns and the place of their data: one record batch for each table, sorted by bucket and sequence.  To read some rows
of one table, a task reads only that table's part of this index, and then the bytes of those rows.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import ExitStack, closing, suppress
from dataclasses import dataclass, replace
from enum import Enum, auto
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from walreplay.session.folders import Folder

if TYPE_CHECKING:
    from numpy.typing import NDArray


DATA: Final = "data"
_OFFSET: Final = "offset"
_TABLES: Final = b"tables"  # schema metadata of the index: a JSON list with the table's number of each batch

_ORDER: Final = [("table", "ascending"), ("bucket", "ascending"), ("sequence", "ascending")]

_BATCHES_AT_ONCE: Final = 256  # batches of one row each that are joined, because each takes 7 kB of memory

_ALIGNED: Final = 64

_BETWEEN: Final = 64 << 10
_AT_ONCE: Final = 8 << 20
_AHEAD: Final = 6
"""Rows of a file in an object store are read together, up to so many bytes, if no more than the first lie between; and
so many of these windows are read ahead, at the same time."""

_MOST_WAITING: Final = 64 << 20
"""Rows that go to an object store are sorted before they are written, so many bytes at a time: what is read together
lies together, and takes a request or two instead of one for each batch."""

_MOST_OPEN: Final = 256  # files that a task has open at most; systems allow a process about a thousand

# Small files of a store are in memory as a whole while they are open: so many bytes of them at most.
_MOST_HELD: Final = 64 << 20


class StagedFileWriter:
    """Write one staged file, with a unique name; as a context manager it discards the file if an error leaves it."""

    def __init__(self, folder: Folder) -> None:
        self._folder = folder
        self._name = f"{uuid.uuid4()}.staged"
        self._file: pa.NativeFile | None = None
        self._places = _Gathered()
        self._waiting = _Gathered()

    def __enter__(self) -> StagedFileWriter:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        if kind is not None and self._file is not None:
            # Other errors are ignored, because they would hide the one that is the reason.
            with suppress(OSError):
                self._file.close()
            with suppress(OSError):
                self._folder.delete(self._name)

    def add(self, rows: pa.RecordBatch) -> None:
        """Write rows: the column ``data`` goes to the staged file, the others to the index."""
        if not self._folder.is_far or rows.nbytes >= _MOST_WAITING:
            self._write(rows)
            return
        self._waiting.add(rows)
        if self._waiting.size >= _MOST_WAITING:
            self._write_waiting()

    def _write_waiting(self) -> None:
        if self._waiting.size:
            (rows,) = self._waiting.taken().to_batches()
            self._write(rows, pc.sort_indices(rows.drop_columns([DATA]), _ORDER))

    def _write(self, rows: pa.RecordBatch, order: pa.Array | None = None) -> None:
        if self._file is None:
            self._folder.make()
            self._file = self._folder.create(self._name)
        data, places, offsets = rows.column(DATA), rows.drop_columns([DATA]), []
        for number in range(rows.num_rows) if order is None else order.to_pylist():
            offsets.append(self._file.tell())
            self._file.write(data[number].as_buffer())
        if order is not None:
            places = places.take(order)
        self._places.add(places.append_column(_OFFSET, pa.array(offsets, pa.int64())))

    def close(self) -> tuple[str, pa.Table] | None:
        """Finish the file; return its name and its index, or None if there were no rows."""
        self._write_waiting()
        if self._file is None:
            return None
        index = self._places.taken().sort_by(_ORDER).combine_chunks()
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


class _Gathered:
    """Rows of many batches, which are joined now and then; ``size`` is their bytes."""

    def __init__(self) -> None:
        self.size = 0
        self._joined: list[pa.Table] = []
        self._last: list[pa.RecordBatch] = []

    def add(self, rows: pa.RecordBatch) -> None:
        """Add rows."""
        self.size += rows.nbytes
        self._last.append(rows)
        if len(self._last) >= _BATCHES_AT_ONCE:
            self._join()

    def taken(self) -> pa.Table:
        """Return all rows, at least one, in one piece, and keep none."""
        self._join()
        rows = pa.concat_tables(self._joined).combine_chunks()
        self.size, self._joined = 0, []
        return rows

    def _join(self) -> None:
        if self._last:
            self._joined.append(pa.Table.from_batches(self._last).combine_chunks())
            self._last = []


@dataclass(frozen=True, slots=True)
class RowSelection:
    """A selection of rows of staged files.

    Attributes:
        table: the table's number.
        start: the first sequence number.
        stop: the sequence number after the last; None for no end.
        least_bucket: the lowest bucket.
    """

    table: int
    start: int = 0
    stop: int | None = None
    least_bucket: int = 0

    def among(self, rows: pa.RecordBatch) -> NDArray[np.bool_]:
        """Return for each row of the table whether it is selected."""
        sequence = rows.column("sequence").to_numpy()
        is_selected: NDArray[np.bool_] = sequence >= self.start
        is_selected &= rows.column("bucket").to_numpy() >= self.least_bucket
        if self.stop is not None:
            is_selected &= sequence < self.stop
        return is_selected


def read_columns(folder: Folder, name: str, selection: RowSelection, columns: Sequence[str]) -> list[tuple[Any, ...]]:
    """Return one tuple for each selected row of a file, with the values of some of the index's columns."""
    with folder.open(name) as file:
        rows = _rows_of_table(file, selection.table)
        if rows is None:
            return []
        selected_rows = rows.filter(pa.array(selection.among(rows)))
        return list(zip(*(selected_rows.column(column).to_pylist() for column in columns), strict=True))


def _rows_of_table(file: pa.NativeFile, table: int) -> pa.RecordBatch | None:
    """Return a table's batch in the index of a file; None if there is none."""
    with pa.ipc.open_file(file) as reader:
        tables = json.loads(reader.schema.metadata[_TABLES])
        return reader.get_batch(tables.index(table)) if table in tables else None


class Sharing(Enum):
    """How rows are divided among tasks."""

    BY_BUCKET = auto()
    TOGETHER = auto()
    IN_TURN = auto()


def read_rows(
    folder: Folder, names: Sequence[str], selection: RowSelection, share: tuple[int, int], sharing: Sharing
) -> Iterator[tuple[int, int, bytes]]:
    """Yield bucket, sequence and data of one share of the selected rows, sorted by bucket and sequence.

    Args:
        names: the files' names in the folder.
        share: the number of the share, and the number of shares.
        sharing: by which unit rows are divided among shares: by bucket, all rows together (as bucket 0), or row by row.
    """
    with closing(_Files(folder, names)) as files:
        rows = _places(files, selection, share, sharing)
        if rows is None:
            return
        windows, of_row = _windows(rows, _BETWEEN if folder.is_far else -1)
        with closing(_Reader(files, windows, of_row, _AHEAD if folder.is_far else 0)) as reader:
            bucket, _, sequence, offset, size = rows
            for row in range(len(bucket)):
                yield int(bucket[row]), int(sequence[row]), reader.read(row, int(offset[row]), int(size[row]))


# Bucket, number of the file, sequence, offset and size of rows, in the order in which they are read.
_Rows: TypeAlias = "tuple[NDArray[np.int64], ...]"


def _places(files: _Files, selection: RowSelection, share: tuple[int, int], sharing: Sharing) -> _Rows | None:
    """Find the rows of a share; None if there are none."""
    number, shares = share
    parts, before = [], 0
    for file in range(files.count):
        rows = _rows_of_table(files.opened(file), selection.table)
        if rows is None:
            continue
        positions = np.nonzero(selection.among(rows))[0]
        bucket = rows.column("bucket").to_numpy()[positions]
        if sharing is Sharing.TOGETHER:
            bucket = np.zeros_like(bucket)
        turn = before + np.arange(len(positions)) if sharing is Sharing.IN_TURN else bucket
        before += len(positions)
        is_mine = turn % shares == number
        positions = positions[is_mine]
        columns = (rows.column(column).to_numpy()[positions] for column in ("sequence", _OFFSET, "size"))
        parts.append((bucket[is_mine], np.full(len(positions), file), *columns))
    if not parts:
        return None
    bucket, of_file, sequence, offset, size = (np.concatenate(columns) for columns in zip(*parts, strict=True))
    order = np.lexsort((sequence, bucket))
    return bucket[order], of_file[order], sequence[order], offset[order], size[order]


@dataclass(frozen=True, slots=True)
class _Window:
    """Bytes of a file that are read at once; ``last`` is the number of the last row in it."""

    file: int
    start: int
    stop: int
    last: int

    def may_have(self, offset: int, size: int, most_between: int) -> bool:
        """Return whether a row that comes next may be read with the others."""
        return 0 <= offset - self.stop <= most_between and offset + size - self.start <= _AT_ONCE


def _windows(rows: _Rows, most_between: int) -> tuple[list[_Window], list[int]]:
    """Divide rows into windows, in the order of their first rows; return also the number of each row's window.

    Only rows of one bucket are read together, because a reader of one of them needs all of them.

    Args:
        most_between: how many bytes may lie between two of them; below 0, each row is read by itself.
    """
    windows: list[_Window] = []
    of_row: list[int] = []
    newest: dict[int, int] = {}
    before = None
    for row, (bucket, file, _, offset, size) in enumerate(zip(*(column.tolist() for column in rows), strict=True)):
        if bucket != before:
            newest.clear()
            before = bucket
        number = newest.get(file)
        if number is not None and windows[number].may_have(offset, size, most_between):
            windows[number] = replace(windows[number], stop=offset + size, last=row)
        else:
            number = newest[file] = len(windows)
            windows.append(_Window(file, offset, offset + size, row))
        of_row.append(number)
    return windows, of_row


class _Reader:
    """Read rows in their order, and windows of files in an object store some at a time, ahead of their rows.

    Args:
        of_row: the number of each row's window.
        ahead: how many windows are read before their turn; 0 for none.
    """

    def __init__(self, files: _Files, windows: Sequence[_Window], of_row: Sequence[int], ahead: int) -> None:
        self._files = files
        self._windows = windows
        self._of_row = of_row
        self._ahead = ahead
        self._asked = 0
        self._coming: dict[int, Future[bytes]] = {}
        self._read: dict[int, bytes] = {}
        self._pool = ThreadPoolExecutor(ahead) if ahead else None
        files.settle = self._settle

    def close(self) -> None:
        """Read no further windows."""
        if self._pool is not None:
            self._pool.shutdown(cancel_futures=True)

    def read(self, row: int, offset: int, size: int) -> bytes:
        """Return a row's data."""
        number = self._of_row[row]
        window = self._windows[number]
        data = self._read.get(number)
        if data is None:
            data = self._next(number)
            if window.last > row:
                self._read[number] = data  # other rows of the window follow
        elif window.last == row:
            del self._read[number]  # this was its last row
        start = offset - window.start
        return data if len(data) == size else data[start : start + size]

    def _settle(self) -> None:
        """Wait for what is being read."""
        wait(self._coming.values())

    def _next(self, number: int) -> bytes:
        if self._pool is None:
            return self._files.read(self._windows[number])
        while self._asked < len(self._windows) and self._asked <= number + self._ahead:
            window = self._windows[self._asked]
            self._coming[self._asked] = self._pool.submit(_bytes_of, self._files.opened(window.file), window)
            self._asked += 1
        return self._coming.pop(number).result()


def _bytes_of(file: pa.NativeFile, window: _Window) -> bytes:
    data: bytes = file.read_at(window.stop - window.start, window.start)
    return data


class _Files:
    """Staged files that a task reads; not too many are open at once."""

    def __init__(self, folder: Folder, names: Sequence[str]) -> None:
        self.count = len(names)
        self._folder = folder
        self._names = names
        self._opened = ExitStack()
        self._files: dict[int, pa.NativeFile] = {}
        self._held = 0
        self.settle: Callable[[], None] = lambda: None
        """Called before files are closed."""

    def close(self) -> None:
        """Close all that are open."""
        self.settle()
        self._opened.close()
        self._files.clear()
        self._held = 0

    def opened(self, file: int) -> pa.NativeFile:
        """Return an open file."""
        if file not in self._files:
            if len(self._files) >= _MOST_OPEN or self._held >= _MOST_HELD:
                self.close()
            opened = self._files[file] = self._opened.enter_context(self._folder.open(self._names[file]))
            self._held += opened.size() if isinstance(opened, pa.BufferReader) else 0  # the whole file is in memory
        return self._files[file]

    def read(self, window: _Window) -> bytes:
        """Read a window."""
        return _bytes_of(self.opened(window.file), window)
