"""The base of all column builders: rows are appended to arrays that grow geometrically and are handed to Arrow.

`CellTile` has the cells of a column: where they lie in a tile, and how single ones are read.  `in_utf8` converts tiles
from another encoding, all cells of a column at once.  `ColumnBuilder` is the interface of all builders.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np
import pyarrow as pa

from walreplay.decode.kernels import programs
from walreplay.decode.kernels import text as kernels_text
from walreplay.decode.kernels.binary import AS_SENT, BINARY, NULL, SLACK, UNCHANGED
from walreplay.decode.kernels.place import place_column
from walreplay.decode.placing import empty
from walreplay.errors import NotSupported, ValueFormatError
from walreplay.types.base import DoesNotFit, Rescued
from walreplay.types.rendering import NotRendered, render
from walreplay.types.text import UTF8, decode, decode_text, transcode

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from numpy.typing import NDArray

    from walreplay.decode.placing import Placing
    from walreplay.types.base import ColumnType

    Bytes = NDArray[np.uint8]

    Cells = NDArray[np.int32]

    Names = Mapping[int, tuple[str, str]]


MAX_DATA_BYTES: Final = 2**31 - 1
"""The offsets of Arrow's string, binary and list have 32 bits; finish a builder before its nbytes reach this."""


class CellTile(NamedTuple):
    """The cells of one append.

    Args:
        buf, offset, length, first, column: see `ColumnBuilder.add_rows`.
        written: gives the text of a value in binary format.
        places: the offset of each cell in the capture, for errors; None if that is ``offset``.
    """

    buf: Bytes
    offset: Cells
    length: Cells
    first: Cells
    column: int
    written: Callable[[bytes], str]
    places: Cells | None = None

    @property
    def arguments(self) -> tuple[Bytes, Cells, Cells, Cells, int]:
        """The first arguments of every kernel."""
        return self[:5]

    @property
    def size(self) -> int:
        """The number of rows."""
        return self.first.size

    def of_rows(self, first: Cells) -> CellTile:
        """Return the same tile for other rows, by their first cells."""
        return self._replace(first=first)

    def place(self, row: int) -> int:
        """Return the offset of a row's cell in the capture."""
        places = self.offset if self.places is None else self.places
        return int(places[self.first[row] + self.column])

    def sent_length(self, row: int) -> int:
        """Return the length of a row's cell, which must exist; `BINARY` and below for binary format."""
        return int(self.length[self.first[row] + self.column])

    def data(self, row: int) -> bytes:
        """Return the bytes of a row's value, which must exist."""
        start = int(self.offset[self.first[row] + self.column])
        size = self.sent_length(row)
        return self.buf[start : start + (size if size >= 0 else BINARY - size)].tobytes()

    def text(self, row: int) -> str:
        """Return the text of a row's value, which must exist.

        Raises:
            NotRendered: the value is in binary format and cannot be written as text.
        """
        data = self.data(row)
        try:
            return self.written(data) if self.sent_length(row) <= BINARY else decode_text(data)
        except ValueFormatError as error:
            raise error.at(offset=self.place(row)) from None

    def _utf8(self, row: int, codec: str) -> bytes:
        try:
            return self.data(row) if codec == UTF8 else transcode(self.data(row), codec)
        except ValueFormatError as error:
            raise error.at(offset=self.place(row)) from None

    def rescued(self, row: int) -> Rescued:
        """Return a row's value as a rescued value."""
        try:
            return Rescued(row, self.text(row))
        except NotRendered:
            return Rescued(row, f"\\x{self.data(row).hex()}")  # as PostgreSQL writes bytea

    def read(self, row: int, reader: Callable[[str], Any]) -> Any:
        """Read a row's value with an exact reader.

        Raises:
            DoesNotFit: the type cannot hold the value; the exception has its text.
            ValueFormatError: the value is not in the type's form; the error has its offset.
        """
        text = self.text(row)
        try:
            return reader(text)
        except DoesNotFit:
            raise DoesNotFit(text) from None
        except ValueFormatError as error:
            raise error.at(offset=self.place(row)) from None

    def is_ascii(self) -> bool:
        """Return whether the bytes of all cells, of both formats, are ASCII, and so the same text in every encoding."""
        return not kernels_text.has_high(*self.arguments)

    def has_binary(self) -> bool:
        """Return whether any cell is in binary format."""
        cells = self.first[self.first >= 0] + self.column
        return bool((self.length[cells] <= BINARY).any())

    def as_text(self, codec: str = UTF8) -> tuple[CellTile, list[Rescued]]:
        """Convert all cells to text in UTF-8; return the new tile, and the values that have no text."""
        rescued = []
        parts: list[bytes] = []
        places = np.zeros(self.size, dtype=np.int32)
        length = np.full(self.size, NULL, dtype=np.int32)
        for row in np.flatnonzero(self.first >= 0).tolist():
            size = self.sent_length(row)
            if size in (NULL, UNCHANGED):
                continue  # an unchanged value is taken from the table later; here it is NULL
            places[row] = self.place(row)
            if size >= 0:
                text = self._utf8(row, codec)
            else:
                try:
                    text = self.text(row).encode()
                except NotRendered:
                    rescued.append(self.rescued(row))
                    continue
            parts.append(text)
            length[row] = len(text)
        ends = np.cumsum(np.maximum(length, 0), dtype=np.int64)
        if self.size and ends[-1] > MAX_DATA_BYTES:
            raise NotSupported("one column of one batch holds more than 2 GiB")
        offset = (ends - np.maximum(length, 0)).astype(np.int32)
        buf = np.frombuffer(b"".join(parts), dtype=np.uint8)
        first = np.arange(self.size, dtype=np.int32)
        return CellTile(buf, offset, length, first, 0, self.written, places), rescued


def in_utf8(tile: CellTile, codec: str) -> tuple[CellTile, list[Rescued]]:
    """Convert a tile's cells to text in UTF-8; return the new tile, and the values that have no text.

    Raises:
        ValueFormatError: a cell is not in the encoding, or contains a NUL.
    """
    if not tile.has_binary():
        decoded = _decoded(tile, codec)
        if decoded is not None:
            return decoded, []
    # One by one, because a value in binary format may be anything, and an error needs its offset.
    return tile.as_text(codec)


def _decoded(tile: CellTile, codec: str) -> CellTile | None:
    """Decode cells in text format; None if one of them cannot be decoded."""
    joined, valid = _joined(tile)
    try:
        data = decode(joined.tobytes(), codec).encode()
    except UnicodeDecodeError:
        return None
    buf = np.frombuffer(data, dtype=np.uint8)
    ends = np.flatnonzero(buf == 0)  # a NUL stays a NUL in UTF-8
    if ends.size != tile.size or len(data) > MAX_DATA_BYTES:
        return None
    ends = ends.astype(np.int32)
    offset = np.zeros(tile.size, dtype=np.int32)
    offset[1:] = ends[:-1] + 1
    length = np.where(valid == 0, NULL, ends - offset).astype(np.int32)
    places = np.zeros(tile.size, dtype=np.int32)
    has_cell = tile.first >= 0
    places[has_cell] = tile.offset[tile.first[has_cell] + tile.column]
    return CellTile(buf, offset, length, np.arange(tile.size, dtype=np.int32), 0, tile.written, places)


def _joined(tile: CellTile) -> tuple[Bytes, Bytes]:
    """Join the valid cells with a NUL after each; return the bytes, and which cells are valid.

    In none of the encodings is a NUL part of another character.  So if a cell ends in the middle of a character, or
    contains a NUL, the decoded text has a NUL too few or too many.
    """
    total = kernels_text.total_length(tile.length, tile.first, tile.column)
    data: Bytes = np.empty(total + SLACK, dtype=np.uint8)
    ends: Cells = np.zeros(tile.size + 1, dtype=np.int32)
    valid: Bytes = np.empty(tile.size, dtype=np.uint8)
    outputs = ends.ctypes.data, valid.ctypes.data, AS_SENT, 0, data.ctypes.data, data.size
    program = np.array((programs.TEXT, *outputs, 0), np.int64)
    place_column(*tile.arguments, program, 0, 0, np.zeros(1, np.int32))  # there is room for all, and nothing is missed
    return np.insert(data[: ends[-1]], ends[1:], 0), valid


MIN_ROWS: Final = 16

MOST_GROWTH: Final = 16  # Outputs are enlarged by this factor at most at a time, even if an estimate asks for more


class ColumnBuilder(ABC):
    """Collects one column.

    Args:
        column_type: from `walreplay.types.resolve`.
        names: (namespace, name) of types by oid, from Type messages.
        placing: how the kernels convert a value; None if they do not.
        reads_binary: values of the type in binary format are read as they are; otherwise their text is written first.
    """

    def __init__(
        self, column_type: ColumnType, names: Names, placing: Placing | None = None, *, reads_binary: bool = True
    ) -> None:
        self.column_type = column_type
        self.rows = 0
        self._names = names
        # Values in binary format are of the sent type, but an override's column has another type.
        self._reads_binary = reads_binary and not column_type.overridden
        self._codec = UTF8
        self.is_placed = placing is not None and not column_type.overridden
        """Whether the walk places the column's values in its rows; otherwise the builder is given their cells."""
        self.program = np.zeros(programs.COLUMN, np.int64)
        """The column's words for the kernels; see `walreplay.decode.placing`."""
        if placing is not None:
            self.program[[programs.KIND, programs.LOW, programs.HIGH]] = placing
        self._capacity = 0
        self._valid: Bytes = np.empty(0, dtype=np.uint8)

    def take_encoding(self, codec: str) -> None:
        """Decode text, and texts inside binary values, from another encoding than UTF-8 from here on."""
        self._codec = codec
        if codec != UTF8:
            self.is_placed = False  # the kernels copy bytes as they are sent

    def add_rows(self, buf: Bytes, offset: Cells, length: Cells, first: Cells, column: int) -> list[Rescued] | None:
        """Append one row for each entry of `first`.

        Args:
            buf: the bytes in which the cells lie.
            offset: int32, the offset of each cell in ``buf``.
            length: int32, each cell's length, or `NULL`, `UNCHANGED` (which gives NULL), `BINARY` and below.
            first: the number of each row's first cell; below 0 if the row has none, which gives NULL.
            column: the column's number within its row.

        Returns:
            The values that the type cannot hold, and for which the column has NULL; None if there are none.

        Raises:
            ValueFormatError: a value is not in its type's form; its offset is the cell's in `buf`.
        """
        # A kernel reads an array by its layout in memory, and checks nothing.
        if first.dtype != np.int32 or not first.flags.c_contiguous:
            first = np.ascontiguousarray(first, dtype=np.int32)
        if not first.size:
            return None
        self.reserve(self.rows + first.size)
        tile = self.tile(buf, offset, length, first, column)
        without_form: list[Rescued] = []
        if self._codec != UTF8 and not tile.is_ascii():
            # First of all, because in some encodings a character's second byte may be a backslash.
            tile, without_form = in_utf8(tile, self._codec)
        elif not self._reads_binary and tile.has_binary():
            tile, without_form = tile.as_text()  # no kernel reads the type's binary format
        rescued = self._convert(tile) + without_form
        if without_form:
            rescued.sort(key=lambda misfit: misfit.row)
        self.rows += first.size
        return rescued or None

    def reserve(self, rows: int) -> None:
        """Make room for at least so many rows; if there is no memory, nothing has changed."""
        if rows > self._capacity:
            self._renew(max(MIN_ROWS, rows, 2 * self._capacity))  # doubled, so that each row is copied about once

    def _renew(self, capacity: int) -> None:
        valid = resized(self._valid, capacity, self.rows)
        self._grow(capacity)
        self._valid, self._capacity = valid, capacity
        self.program[programs.VALID] = valid.ctypes.data

    def finish_placed(self, tile: CellTile, missed: Cells, flags: int) -> list[Rescued]:
        """Complete the rows that the kernel has placed behind `rows`; return the values that the type cannot hold.

        Args:
            missed: the numbers of rows with a value in another form than the kernel reads.
            flags: what the kernel has found in their text.
        """
        raise NotImplementedError

    def tile(self, buf: Bytes, offset: Cells, length: Cells, first: Cells, column: int) -> CellTile:
        """Make a tile of some rows' cells; see `append`."""
        return CellTile(buf, offset, length, first, column, self._written)

    def _written(self, data: bytes) -> str:
        """Return PostgreSQL's text of a value in binary format."""
        return render(data, self.column_type.oid, self.column_type.typmod, self._names, codec=self._codec)

    @property
    @abstractmethod
    def nbytes(self) -> int:
        """The size of the collected values in bytes, about as in Arrow."""

    def finish(self) -> pa.Array:
        """Return the collected column and start a new one."""
        # The next column will have about as many rows, so its arrays are made for as many.
        array = self._arrow(self.rows, self._validity())
        self.rows = 0
        self._renew(self._capacity)
        return array

    def truncate(self, rows: int) -> None:
        """Remove all rows after the first `rows`."""
        self.rows = rows

    @abstractmethod
    def _convert(self, tile: CellTile) -> list[Rescued]:
        """Write the tile's rows after the first `rows`; there is room for them."""

    @abstractmethod
    def _grow(self, capacity: int) -> None:
        """Make new outputs, beside the validity, for so many rows, and copy the first `rows`; or keep all old ones."""

    @abstractmethod
    def _arrow(self, rows: int, validity: pa.Buffer | None) -> pa.Array:
        """Make the Arrow array, which takes over the outputs."""

    def _validity(self) -> pa.Buffer | None:
        valid = self._valid[: self.rows]
        if np.count_nonzero(valid) == self.rows:
            return None  # Arrow needs no bitmap if nothing is NULL
        return pa.py_buffer(np.packbits(valid, bitorder="little"))


def resized(array: NDArray[Any], size: int, used: int) -> NDArray[Any]:
    """Return a new array of a size that begins with the first `used` entries of another one."""
    larger = empty(size, array.dtype)
    larger[:used] = array[:used]
    return larger
