"""Builders: the cells of one column, tile by tile, to one typed Arrow column.

A builder appends to numpy arrays that grow geometrically; `finish` hands them to Arrow as they are.  A kernel
converts all rows of an append and leaves out what is not in the common form; only those cells become Python
objects, and the exact readers of `wal2delta.types` decide about each (see `wal2delta.types.base`).

Invariants: the first `rows` entries of the outputs are final; an append that raises leaves `rows` as it was.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from wal2delta.decode import kernels_fixed, kernels_text
from wal2delta.errors import NotSupported, ValueFormatError
from wal2delta.types.arrays import elements_from_text
from wal2delta.types.base import ColumnType, DoesNotFit, Family, Rescued
from wal2delta.types.binary import bytes_from_text
from wal2delta.types.boolean import boolean_from_text
from wal2delta.types.datetime import days_from_text, micros_from_text
from wal2delta.types.floats import float_from_text
from wal2delta.types.integers import LIMITS, integer_from_text
from wal2delta.types.numeric import unscaled_from_text
from wal2delta.types.text import decode_text

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    from wal2delta.decode.kernels_base import Kernel

    Bytes = NDArray[np.uint8]
    Cells = NDArray[np.int32]

NULL: Final = -1
UNCHANGED: Final = -2
BINARY: Final = -3
"""A cell's length from here downwards means binary format, of ``BINARY - length`` bytes."""

MAX_DATA_BYTES: Final = 2**31 - 1
"""Arrow's string, binary and list count with 32 bits: finish a builder before its nbytes get there."""

_MIN_ROWS: Final = 1024
_MIN_DATA: Final = 16 * 1024
_NARROW_PRECISION: Final = 18
"""Up to so many digits a decimal fits 64 bits."""

_EXACT_IN_SINGLE: Final = (2**24, 10)
_EXACT_IN_DOUBLE: Final = (2**53, 19)
"""The largest integer up to which all are floats of the type, and a power of ten up to which all are."""


class ColumnBuilder(ABC):
    """Collects one column.

    Args:
        column_type: from `wal2delta.types.resolve`.
    """

    def __init__(self, column_type: ColumnType) -> None:
        self.column_type = column_type
        self.rows = 0
        self._capacity = 0
        self._valid: Bytes = np.empty(0, dtype=np.uint8)

    def append(self, buf: Bytes, offset: Cells, length: Cells, first: Cells, column: int) -> list[Rescued] | None:
        """Append one row for each entry of `first`.

        Args:
            buf: the bytes that the cells lie in.
            offset: int32, where each cell lies.
            length: int32, each cell's length, or `NULL`, `UNCHANGED` (which gives NULL), `BINARY` and below.
            first: the number of each row's first cell; below 0 where the row has none, which gives NULL.
            column: the column's number within its row.

        Returns:
            The values that the type cannot hold, with NULL in the column; None when there are none.

        Raises:
            ValueFormatError: a value is not in its type's form; its offset is the cell's in `buf`.
            NotSupported: a value is in binary format.
        """
        if first.dtype != np.int32 or not first.flags.c_contiguous:
            first = np.ascontiguousarray(first, dtype=np.int32)
        if not first.size:
            return None
        if self.rows + first.size > self._capacity:
            self._capacity = max(_MIN_ROWS, self.rows + first.size, 2 * self._capacity)
            self._grow(self._capacity)
        rescued = self._convert(_Tile(buf, offset, length, first, column))
        self.rows += first.size
        return rescued or None

    @property
    @abstractmethod
    def nbytes(self) -> int:
        """The size of what is collected, about as it will be in Arrow."""

    def finish(self) -> pa.Array:
        """Give the collected column and start a new one."""
        # The next column will be about as long, so its arrays are made at that size at once.
        array = self._arrow(self.rows, self._validity())
        self.rows = 0
        self._grow(self._capacity)
        return array

    def truncate(self, rows: int) -> None:
        """Take back all rows behind the first `rows`."""
        self.rows = rows

    @abstractmethod
    def _convert(self, tile: _Tile) -> list[Rescued]:
        """Write the tile's rows behind `rows`, where there is room for them."""

    @abstractmethod
    def _grow(self, capacity: int) -> None:
        """Make new outputs for so many rows, with what `rows` says copied."""

    @abstractmethod
    def _arrow(self, rows: int, validity: pa.Buffer | None) -> pa.Array:
        """Make the Arrow array; nothing writes to the outputs afterwards."""

    def _validity(self) -> pa.Buffer | None:
        valid = self._valid[: self.rows]
        if np.count_nonzero(valid) == self.rows:
            return None
        return pa.py_buffer(np.packbits(valid, bitorder="little"))


class _Tile:
    """The cells of one append."""

    __slots__ = ("buf", "column", "first", "length", "offset")

    def __init__(self, buf: Bytes, offset: Cells, length: Cells, first: Cells, column: int) -> None:
        self.buf = buf
        self.offset = offset
        self.length = length
        self.first = first
        self.column = column

    @property
    def arguments(self) -> tuple[Bytes, Cells, Cells, Cells, int]:
        return self.buf, self.offset, self.length, self.first, self.column

    @property
    def size(self) -> int:
        return self.first.size

    def place(self, row: int) -> int:
        """Give the offset of a row's cell."""
        return int(self.offset[self.first[row] + self.column])

    def text(self, row: int) -> str:
        """Give the text of a row that has a value."""
        place = self.place(row)
        size = int(self.length[self.first[row] + self.column])
        if size <= BINARY:
            raise NotSupported(
                "a value is in binary format, which this version does not read",
                offset=place,
                remedy="Record the capture without the plugin's binary option",
            )
        try:
            return decode_text(self.buf[place : place + size].tobytes())
        except ValueFormatError as error:
            raise error.at(offset=place) from None

    def read(self, row: int, reader: Callable[[str], Any]) -> Any:
        """Read a row's value exactly.

        Raises:
            DoesNotFit: with the value's text.
        """
        text = self.text(row)
        try:
            return reader(text)
        except DoesNotFit:
            raise DoesNotFit(text) from None
        except ValueFormatError as error:
            raise error.at(offset=self.place(row)) from None


class _FixedBuilder(ColumnBuilder):
    """Values of a fixed width.

    Args:
        column_type: see `ColumnBuilder`.
        dtype: of one word of the output.
        kernel: one of `kernels_fixed`.
        parameters: what the kernel takes between the tile and its outputs.
        reader: the exact reader.
    """

    _WORDS = 1

    def __init__(
        self,
        column_type: ColumnType,
        dtype: Any,
        kernel: Kernel,
        parameters: tuple[int, ...],
        reader: Callable[[str], int],
    ) -> None:
        super().__init__(column_type)
        self._values: NDArray[Any] = np.empty(0, dtype=dtype)
        self._kernel = kernel
        self._parameters = parameters
        self._reader = reader

    @property
    def nbytes(self) -> int:
        return self.rows * self._WORDS * self._values.itemsize + self.rows // 8

    def _convert(self, tile: _Tile) -> list[Rescued]:
        misses = np.empty(tile.size, dtype=np.int32)
        count = self._kernel(
            *tile.arguments,
            *self._parameters,
            self._values[self.rows * self._WORDS :],
            self._valid[self.rows :],
            misses,
        )
        return self._read_exactly(tile, misses[:count])

    def _read_exactly(self, tile: _Tile, misses: Cells) -> list[Rescued]:
        rescued = []
        for row in misses.tolist():
            try:
                value = tile.read(row, self._reader)
            except DoesNotFit as misfit:
                rescued.append(Rescued(row, misfit.args[0]))
            else:
                self._store(self.rows + row, value)
                self._valid[self.rows + row] = 1
        return rescued

    def _store(self, row: int, value: int) -> None:
        self._values[row] = value

    def _grow(self, capacity: int) -> None:
        self._values = _resized(self._values, capacity * self._WORDS, self.rows * self._WORDS)
        self._valid = _resized(self._valid, capacity, self.rows)

    def _arrow(self, rows: int, validity: pa.Buffer | None) -> pa.Array:
        values = pa.py_buffer(self._values[: rows * self._WORDS])
        return pa.Array.from_buffers(self.column_type.arrow, rows, [validity, values])


class _BooleanBuilder(_FixedBuilder):
    @property
    def nbytes(self) -> int:
        return self.rows // 4

    def _arrow(self, rows: int, validity: pa.Buffer | None) -> pa.Array:
        bits = pa.py_buffer(np.packbits(self._values[:rows], bitorder="little"))
        return pa.Array.from_buffers(self.column_type.arrow, rows, [validity, bits])


class _DecimalBuilder(_FixedBuilder):
    _WORDS = 2  # the lower half stands first

    def _store(self, row: int, value: int) -> None:
        self._values[2 * row] = value & 0xFFFFFFFFFFFFFFFF
        self._values[2 * row + 1] = (value >> 64) & 0xFFFFFFFFFFFFFFFF


class _VariableBuilder(ColumnBuilder):
    """Values of any length, one behind the other.

    Args:
        column_type: see `ColumnBuilder`.
        kernel: one of `kernels_text` that goes on from a row.
    """

    def __init__(self, column_type: ColumnType, kernel: Kernel) -> None:
        super().__init__(column_type)
        self._kernel = kernel
        self._ends: Cells = np.zeros(1, dtype=np.int32)
        self._data: Bytes = np.empty(0, dtype=np.uint8)

    @property
    def nbytes(self) -> int:
        return int(self._ends[self.rows]) + 4 * self.rows + self.rows // 8

    def _convert(self, tile: _Tile) -> list[Rescued]:
        row = 0
        while True:
            row = self._kernel(*tile.arguments, self._ends, self._valid, self._data, self.rows, row)
            if row == tile.size:
                break
            size = int(tile.length[tile.first[row] + tile.column])
            used = int(self._ends[self.rows + row])
            if size >= 0 and used + size + kernels_text.SLACK > self._data.size:
                self._make_room(used, size + kernels_text.SLACK)
            else:
                self._append_exactly(tile, row)
                row += 1
        self._check(tile)
        return []

    def _append_exactly(self, tile: _Tile, row: int) -> None:
        """Append the one value that the kernel did not take; where none of them can be right, raise."""
        value = tile.read(row, bytes_from_text)
        at = self.rows + row
        used = int(self._ends[at])
        if used + len(value) > self._data.size:
            self._make_room(used, len(value))
        self._data[used : used + len(value)] = np.frombuffer(value, dtype=np.uint8)
        self._ends[at + 1] = used + len(value)
        self._valid[at] = 1

    def _check(self, tile: _Tile) -> None:
        """Refuse what the kernel gathered without looking at it."""

    def _make_room(self, used: int, more: int) -> None:
        if used + more > MAX_DATA_BYTES:
            raise NotSupported("one column of one batch holds more than 2 GiB")
        size = min(MAX_DATA_BYTES, max(_MIN_DATA, used + more, 2 * self._data.size))
        self._data = _resized(self._data, size, used)

    def _grow(self, capacity: int) -> None:
        self._ends = _resized(self._ends, capacity + 1, self.rows + 1)
        self._ends[0] = 0
        self._data = _resized(self._data, self._data.size, int(self._ends[self.rows]))
        self._valid = _resized(self._valid, capacity, self.rows)

    def _arrow(self, rows: int, validity: pa.Buffer | None) -> pa.Array:
        data = pa.py_buffer(self._data[: self._ends[rows]])
        ends = pa.py_buffer(self._ends[: rows + 1])
        return pa.Array.from_buffers(self.column_type.arrow, rows, [validity, ends, data])


class _TextBuilder(_VariableBuilder):
    def _append_exactly(self, tile: _Tile, row: int) -> None:
        tile.text(row)
        raise AssertionError("the kernel takes all text")

    def _check(self, tile: _Tile) -> None:
        start, end = self.rows, self.rows + tile.size
        words = self._data[: self._data.size & ~7].view(np.uint64)
        flags = kernels_text.text_flags(self._data, words, int(self._ends[start]), int(self._ends[end]))
        if flags & kernels_text.HAS_NUL:
            place = int(self._ends[start]) + int(np.argmin(self._data[self._ends[start] : self._ends[end]]))
            tile.text(int(np.searchsorted(self._ends[start : end + 1], place, side="right")) - 1)
        if flags & kernels_text.HAS_HIGH:
            row = kernels_text.first_not_utf8(self._data, self._ends, start, end)
            if row >= 0:
                tile.text(row - start)


class _FloatBuilder(_FixedBuilder):
    """real and double precision; pyarrow's cast from string, exact as well, reads what the kernel leaves."""

    def __init__(self, column_type: ColumnType, dtype: Any, kernel: Kernel, limits: tuple[int, int]) -> None:
        super().__init__(column_type, dtype, kernel, limits, _no_reader)
        self._text = _VariableBuilder(ColumnType(pa.string(), Family.STRING, "text"), kernels_text.texts)

    def _read_exactly(self, tile: _Tile, misses: Cells) -> list[Rescued]:
        if not misses.size:
            return []
        rest = _Tile(tile.buf, tile.offset, tile.length, tile.first[misses], tile.column)
        for row in np.flatnonzero(rest.length[rest.first + rest.column] <= BINARY)[:1].tolist():
            rest.text(row)
        self._text.truncate(0)
        self._text.append(*rest.arguments)
        try:
            numbers = pc.cast(self._text._arrow(rest.size, None), self.column_type.arrow)
        except pa.ArrowInvalid:
            for row in range(rest.size):
                rest.read(row, float_from_text)
            raise
        self._values[self.rows + misses] = np.frombuffer(numbers.buffers()[1], self._values.dtype, rest.size)
        self._valid[self.rows + misses] = 1
        return []


class _ListBuilder(ColumnBuilder):
    """Arrays of one dimension; their elements have a builder of their own, which reads them as a tile."""

    def __init__(self, column_type: ColumnType, element: ColumnType) -> None:
        super().__init__(column_type)
        self._elements = make_builder(element)
        self._ends: Cells = np.zeros(1, dtype=np.int32)

    @property
    def nbytes(self) -> int:
        return self._elements.nbytes + 4 * self.rows + self.rows // 8

    def truncate(self, rows: int) -> None:
        self._elements.truncate(int(self._ends[rows]))
        super().truncate(rows)

    def _convert(self, tile: _Tile) -> list[Rescued]:
        rescued = self._convert_elements(tile)
        if not rescued:
            return []
        # Arrays with an element that does not fit leave no elements behind: once more, without them.
        rest = tile.first.copy()
        for misfit in rescued:
            rest[misfit.row] = NULL
        self._convert_elements(_Tile(tile.buf, tile.offset, tile.length, rest, tile.column))
        return rescued

    def _convert_elements(self, tile: _Tile) -> list[Rescued]:
        at = self.rows
        base = int(self._ends[at])
        self._elements.truncate(base)
        parts = _ArrayParts(tile, ord(self.column_type.delimiter))
        rescued = [self._misfit(tile, row) for row in parts.misses.tolist()]
        try:
            misfits = self._elements.append(
                parts.text, parts.offset, parts.length, np.arange(parts.elements, dtype=np.int32), 0
            )
        except ValueFormatError as error:
            element = int(np.searchsorted(parts.offset, error.offset or 0))
            row = parts.row_of(element)
            raise ValueFormatError(
                f"in an array, {error.problem}", offset=tile.place(row), remedy=error.remedy
            ) from None
        known = {misfit.row for misfit in rescued}
        for row in sorted({parts.row_of(misfit.row) for misfit in misfits or ()} - known):
            rescued.append(Rescued(row, tile.text(row)))
        stop = at + tile.size
        np.add(parts.counts, base, out=self._ends[at + 1 : stop + 1])
        self._valid[at:stop] = parts.valid
        return sorted(rescued, key=lambda misfit: misfit.row)

    def _misfit(self, tile: _Tile, row: int) -> Rescued:
        try:
            tile.read(row, partial(elements_from_text, delimiter=self.column_type.delimiter))
        except DoesNotFit as misfit:
            return Rescued(row, misfit.args[0])
        raise ValueFormatError("an array is not in PostgreSQL's form", offset=tile.place(row))

    def _grow(self, capacity: int) -> None:
        self._ends = _resized(self._ends, capacity + 1, self.rows + 1)
        self._ends[0] = 0
        self._valid = _resized(self._valid, capacity, self.rows)

    def _arrow(self, rows: int, validity: pa.Buffer | None) -> pa.Array:
        ends = pa.py_buffer(self._ends[: rows + 1])
        children = [self._elements.finish()]
        return pa.Array.from_buffers(self.column_type.arrow, rows, [validity, ends], children=children)


class _ArrayParts:
    """The elements of a tile's arrays, as a tile of their own."""

    def __init__(self, tile: _Tile, delimiter: int) -> None:
        total = kernels_text.total_length(tile.length, tile.first, tile.column)
        bound = total // 2 + tile.size
        self.text = np.empty(total + 32, dtype=np.uint8)
        self.offset = np.empty(bound, dtype=np.int32)
        self.length = np.empty(bound, dtype=np.int32)
        self.counts = np.empty(tile.size, dtype=np.int32)
        self.valid = np.empty(tile.size, dtype=np.uint8)
        misses = np.empty(tile.size + 1, dtype=np.int32)
        self.elements = kernels_text.array_elements(
            *tile.arguments, delimiter, self.text, self.offset, self.length, self.counts, self.valid, misses
        )
        self.offset = self.offset[: self.elements]
        self.length = self.length[: self.elements]
        self.misses = misses[1 : misses[0] + 1]

    def row_of(self, element: int) -> int:
        """Give the row that an element belongs to."""
        return int(np.searchsorted(self.counts, element, side="right"))


def _resized(array: NDArray[Any], size: int, used: int) -> NDArray[Any]:
    larger = np.empty(size, dtype=array.dtype)
    larger[:used] = array[:used]
    return larger


def _no_reader(_text: str) -> int:
    raise AssertionError("this builder reads all its values itself")


def _boolean(column_type: ColumnType) -> ColumnBuilder:
    return _BooleanBuilder(column_type, np.uint8, kernels_fixed.booleans, (), boolean_from_text)


def _integer(column_type: ColumnType, *, dtype: Any, kernel: Kernel) -> ColumnBuilder:
    family = column_type.family
    reader = partial(integer_from_text, family=family)
    return _FixedBuilder(column_type, dtype, kernel, LIMITS[family], reader)


def _decimal(column_type: ColumnType) -> ColumnBuilder:
    parameters = (column_type.arrow.precision, column_type.arrow.scale)
    narrow = column_type.arrow.precision <= _NARROW_PRECISION
    kernel = kernels_fixed.decimals_narrow if narrow else kernels_fixed.decimals_wide
    reader = partial(unscaled_from_text, precision=parameters[0], scale=parameters[1])
    return _DecimalBuilder(column_type, np.uint64, kernel, parameters, reader)


def _date(column_type: ColumnType) -> ColumnBuilder:
    return _FixedBuilder(column_type, np.int32, kernels_fixed.dates, (), days_from_text)


def _timestamp(column_type: ColumnType, *, kernel: Kernel, with_zone: bool) -> ColumnBuilder:
    reader = partial(micros_from_text, with_zone=with_zone)
    return _FixedBuilder(column_type, np.int64, kernel, (), reader)


def _array(column_type: ColumnType) -> ColumnBuilder:
    if column_type.element is None:
        raise ValueError("an array's type names its elements' type")
    return _ListBuilder(column_type, column_type.element)


_BUILDERS: Final[dict[Family, Callable[[ColumnType], ColumnBuilder]]] = {
    Family.BOOLEAN: _boolean,
    Family.INT16: partial(_integer, dtype=np.int16, kernel=kernels_fixed.integers_16),
    Family.INT32: partial(_integer, dtype=np.int32, kernel=kernels_fixed.integers_32),
    Family.INT64: partial(_integer, dtype=np.int64, kernel=kernels_fixed.integers_64),
    Family.UNSIGNED: partial(_integer, dtype=np.int64, kernel=kernels_fixed.integers_64),
    Family.FLOAT32: partial(_FloatBuilder, dtype=np.float32, kernel=kernels_fixed.floats_32, limits=_EXACT_IN_SINGLE),
    Family.FLOAT64: partial(_FloatBuilder, dtype=np.float64, kernel=kernels_fixed.floats_64, limits=_EXACT_IN_DOUBLE),
    Family.DECIMAL: _decimal,
    Family.STRING: partial(_TextBuilder, kernel=kernels_text.texts),
    Family.BINARY: partial(_VariableBuilder, kernel=kernels_text.hex_bytes),
    Family.DATE: _date,
    Family.TIMESTAMP: partial(_timestamp, kernel=kernels_fixed.timestamps, with_zone=False),
    Family.TIMESTAMPTZ: partial(_timestamp, kernel=kernels_fixed.timestamps_with_zone, with_zone=True),
    Family.ARRAY: _array,
}


def make_builder(column_type: ColumnType) -> ColumnBuilder:
    """Give the builder for a column's type."""
    return _BUILDERS[column_type.family](column_type)
