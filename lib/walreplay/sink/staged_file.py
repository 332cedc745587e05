"""Staged files: decoding tasks write folded events to them, and folding tasks read their share.

``<name>.staged`` has the data of all rows, one after the other.  ``<name>.index``, an Arrow IPC file, has the rows'
other columns and the place of their data: one record batch for each table, sorted by bucket and sequence.  To read some
rows of one table, a task reads only that table's part of the index, and then the bytes of those rows.
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
"""The key in the index's schema metadata for a JSON list: the table's number for each batch."""

_ORDER: Final = [("table", "ascending"), ("bucket", "ascending"), ("sequence", "ascending")]

_BATCHES_AT_ONCE: Final = 256
"""So many batches of one row each are joined, because each takes 7 kB of memory."""

_MOST_OPEN: Final = 256
"""A task has so many files open at most; systems allow a process about a thousand."""


class StagedFileWriter:
    """Write one staged file, with a unique name; as a context manager it discards the file if an error leaves it."""

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
        """Write rows: the column ``data`` goes to the staged file, the others to the index."""
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
        """Finish the file; give its name and its index, or None if there were no rows."""
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
        """Discard the file.  Errors are ignored, because they would hide the error that was the reason."""
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


def read_columns(folder: str, name: str, wanted: Wanted, columns: Sequence[str]) -> list[tuple[Any, ...]]:
    """Give one tuple for each selected row of a file, with the values of some of the index's columns."""
    for rows in _rows_of_table(folder, name, wanted.table):
        found = rows.filter(pa.array(wanted.among(rows)))
        return list(zip(*(found.column(column).to_pylist() for column in columns), strict=True))
    return []


def _rows_of_table(folder: str, name: str, table: int) -> Iterator[pa.RecordBatch]:
    """Give a table's batch in an index, which stays mapped until the next step; nothing if there is none."""
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
        names: the files' names in the folder.
        share: the number of the share, and the number of shares.
        sharing: by which unit rows are divided among shares: by bucket, all rows together (as bucket 0), or row by row.
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
