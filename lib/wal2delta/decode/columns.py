"""Builders: the cells of one column, tile by tile, to one typed Arrow column.

A builder appends to numpy arrays that grow geometrically; `finish` hands them to Arrow as they are.  A kernel
converts all rows of an append and leaves out what is not in the common form; only those cells become Python
objects, and the exact readers of `wal2delta.types` decide about each (see `wal2delta.types.base`).

Cells in binary format have kernels of their own for the types that are common.  What those leave out, and all
other types, becomes PostgreSQL's text first and goes the way of text, so that both formats give the same rows.

Invariants: the first `rows` entries of the outputs are final; an append that raises leaves `rows` as it was.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from functools import partial
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from wal2delta.decode import kernels_binary, kernels_encode, kernels_fixed, kernels_text
from wal2delta.errors import NotSupported, ValueFormatError
from wal2delta.lsn import POSTGRES_EPOCH_UNIX_MICROS
from wal2delta.types.arrays import elements_from_text
from wal2delta.types.base import ColumnType, DoesNotFit, Family, Rescued
from wal2delta.types.binary import bytes_from_text
from wal2delta.types.boolean import boolean_from_text
from wal2delta.types.builtin import BUILTIN_TYPES
from wal2delta.types.datetime import FIRST_DAY, FIRST_MICRO, LAST_DAY, LAST_MICRO, days_from_text, micros_from_text
from wal2delta.types.extensions import EXTENSION_TEXTS, EXTENSION_TYPES
from wal2delta.types.floats import float_from_text
from wal2delta.types.integers import LIMITS, integer_from_text
from wal2delta.types.modes import double_from_numeric
from wal2delta.types.numeric import unscaled_from_text
from wal2delta.types.overrides import read_overridden
from wal2delta.types.rendering import NotRendered, render
from wal2delta.types.text import HAS_NUL, NOT_UTF8, NOT_UTF8_REMEDY, decode_text
from wal2delta.types.vectors import VECTOR_FORM

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from numpy.typing import NDArray

    from wal2delta.decode.kernels_base import Kernel

    Bytes = NDArray[np.uint8]
    Cells = NDArray[np.int32]
    Names = Mapping[int, tuple[str, str]]

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


class _Call(NamedTuple):
    """A kernel with what it takes between the tile and its outputs."""

    kernel: Kernel
    parameters: tuple[int, ...] = ()


class ColumnBuilder(ABC):
    """Collects one column.

    Args:
        column_type: from `wal2delta.types.resolve`.
        names: (namespace, name) of types by oid, from Type messages.
        binary: takes cells in binary format; None where each becomes text first.
    """

    def __init__(self, column_type: ColumnType, names: Names, binary: _Call | None) -> None:
        self.column_type = column_type
        self.rows = 0
        self._names = names
        # The kernels for binary format go by the type that the values are sent in, an override by another one.
        self._binary = None if column_type.overridden else binary
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
        """
        if first.dtype != np.int32 or not first.flags.c_contiguous:
            first = np.ascontiguousarray(first, dtype=np.int32)
        if not first.size:
            return None
        if self.rows + first.size > self._capacity:
            self._capacity = max(_MIN_ROWS, self.rows + first.size, 2 * self._capacity)
            self._grow(self._capacity)
        tile = _Tile(buf, offset, length, first, column, self._written)
        without_form: list[Rescued] = []
        if self._binary is None and tile.has_binary():
            tile, without_form = tile.as_text()
        rescued = self._convert(tile) + without_form
        if without_form:
            rescued.sort(key=lambda misfit: misfit.row)
        self.rows += first.size
        return rescued or None

    def _written(self, data: bytes) -> str:
        """Give PostgreSQL's text of a value in binary format."""
        return render(data, self.column_type.oid, self.column_type.typmod, self._names)

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
    """The cells of one append.

    Args:
        written: gives the text of a value in binary format.
        places: where each cell lies in the capture; None where that is its offset.
    """

    __slots__ = ("buf", "column", "first", "length", "offset", "places", "written")

    def __init__(
        self,
        buf: Bytes,
        offset: Cells,
        length: Cells,
        first: Cells,
        column: int,
        written: Callable[[bytes], str],
        places: Cells | None = None,
    ) -> None:
        self.buf = buf
        self.offset = offset
        self.length = length
        self.first = first
        self.column = column
        self.written = written
        self.places = places

    @property
    def arguments(self) -> tuple[Bytes, Cells, Cells, Cells, int]:
        return self.buf, self.offset, self.length, self.first, self.column

    @property
    def size(self) -> int:
        return self.first.size

    def of_rows(self, first: Cells) -> _Tile:
        """Give the tile with the first cells of other rows."""
        return _Tile(self.buf, self.offset, self.length, first, self.column, self.written, self.places)

    def place(self, row: int) -> int:
        """Give the offset of a row's cell."""
        places = self.offset if self.places is None else self.places
        return int(places[self.first[row] + self.column])

    def sent_length(self, row: int) -> int:
        """Give the length of the cell of a row that has one; `BINARY` and below for binary format."""
        return int(self.length[self.first[row] + self.column])

    def data(self, row: int) -> bytes:
        """Give the bytes of a row that has a value."""
        start = int(self.offset[self.first[row] + self.column])
        size = self.sent_length(row)
        return self.buf[start : start + (size if size >= 0 else BINARY - size)].tobytes()

    def text(self, row: int) -> str:
        """Give the text of a row that has a value.

        Raises:
            NotRendered: for a value in binary format.
        """
        data = self.data(row)
        try:
            return self.written(data) if self.sent_length(row) <= BINARY else decode_text(data)
        except ValueFormatError as error:
            raise error.at(offset=self.place(row)) from None

    def rescued(self, row: int) -> Rescued:
        """Give a row's value as it is rescued."""
        try:
            return Rescued(row, self.text(row))
        except NotRendered:
            return Rescued(row, f"\\x{self.data(row).hex()}")

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

    def has_binary(self) -> bool:
        """Tell whether any cell is in binary format."""
        return bool(kernels_text.count_binary(self.length, self.first, self.column))

    def as_text(self) -> tuple[_Tile, list[Rescued]]:
        """Give the tile with the text of those cells that are in binary format, and those that have none."""
        rescued = []
        parts: list[bytes] = []
        places = np.zeros(self.size, dtype=np.int32)
        length = np.full(self.size, NULL, dtype=np.int32)
        for row in np.flatnonzero(self.first >= 0).tolist():
            size = self.sent_length(row)
            if size in (NULL, UNCHANGED):
                continue
            places[row] = self.place(row)
            if size >= 0:
                text = self.data(row)
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
        return _Tile(buf, offset, length, first, 0, self.written, places), rescued


class _FixedBuilder(ColumnBuilder):
    """Values of a fixed width.

    Args:
        column_type: see `ColumnBuilder`.
        names: see `ColumnBuilder`.
        dtype: of one word of the output.
        text: one of `kernels_fixed`.
        binary: one of `kernels_binary` that sees to misses.
        reader: the exact reader.
    """

    _WORDS = 1

    def __init__(
        self,
        column_type: ColumnType,
        names: Names,
        *,
        dtype: Any,
        text: _Call,
        binary: _Call | None,
        reader: Callable[[str], Any],
    ) -> None:
        super().__init__(column_type, names, binary)
        self._values: NDArray[Any] = np.empty(0, dtype=dtype)
        self._text = text
        self._reader = reader
        self._only_binary = False
        """The append before had no text, so the kernel for text need not look first."""

    @property
    def nbytes(self) -> int:
        return self.rows * self._WORDS * self._values.itemsize + self.rows // 8

    def _convert(self, tile: _Tile) -> list[Rescued]:
        misses = np.empty(tile.size, dtype=np.int32)
        outputs = (self._values[self.rows * self._WORDS :], self._valid[self.rows :], misses)
        if self._only_binary and self._binary is not None:
            arguments = (*tile.arguments, *self._binary.parameters, *outputs)
            count = self._binary.kernel(*arguments, kernels_binary.ALL_ROWS)
            if not (tile.length[tile.first[misses[:count]] + tile.column] >= 0).any():
                return self._read_exactly(tile, misses[:count])
            self._only_binary = False
        count = self._text.kernel(*tile.arguments, *self._text.parameters, *outputs)
        if count and self._binary is not None and tile.has_binary():
            self._only_binary = not outputs[1][: tile.size].any()
            count = self._binary.kernel(*tile.arguments, *self._binary.parameters, *outputs, count)
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

    def _store(self, row: int, value: Any) -> None:
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

    def _store(self, row: int, value: Any) -> None:
        self._values[2 * row] = value & 0xFFFFFFFFFFFFFFFF
        self._values[2 * row + 1] = (value >> 64) & 0xFFFFFFFFFFFFFFFF


class _VariableBuilder(ColumnBuilder):
    """Values of any length, one behind the other.

    Args:
        column_type: see `ColumnBuilder`.
        names: see `ColumnBuilder`.
        text: one of `kernels_text` that goes on from a row.
        binary: `kernels_binary.texts`, which may take text as well.
        reader: the exact reader.
    """

    def __init__(
        self,
        column_type: ColumnType,
        names: Names,
        *,
        text: _Call,
        binary: _Call | None,
        reader: Callable[[str], bytes],
    ) -> None:
        super().__init__(column_type, names, binary)
        self._text = text
        self._reader = reader
        self._ends: Cells = np.zeros(1, dtype=np.int32)
        self._data: Bytes = np.empty(0, dtype=np.uint8)

    @property
    def nbytes(self) -> int:
        return int(self._ends[self.rows]) + 4 * self.rows + self.rows // 8

    def _convert(self, tile: _Tile) -> list[Rescued]:
        return self._gather(tile, self._binary)

    def _gather(self, tile: _Tile, binary: _Call | None) -> list[Rescued]:
        rescued = []
        call = self._text
        row = 0
        while True:
            outputs = (self._ends, self._valid, self._data, self.rows, row)
            row = call.kernel(*tile.arguments, *call.parameters, *outputs)
            if row == tile.size:
                break
            size = tile.sent_length(row)
            is_binary = size <= BINARY
            more = BINARY - size + kernels_binary.SLACK if is_binary else size + kernels_text.SLACK
            used = int(self._ends[self.rows + row])
            other = binary if is_binary else self._text
            if used + more > self._data.size:
                self._make_room(used, more)
            elif other is not None and call is not other:
                call = other
            else:
                misfit = self._append_exactly(tile, row)
                if misfit is not None:
                    rescued.append(misfit)
                row += 1
        return rescued

    def _append_exactly(self, tile: _Tile, row: int) -> Rescued | None:
        """Append the one value that the kernels did not take; where none of them can be right, raise."""
        at = self.rows + row
        used = int(self._ends[at])
        try:
            value: bytes = tile.read(row, self._reader)
        except (DoesNotFit, NotRendered):
            self._ends[at + 1] = used
            self._valid[at] = 0
            return tile.rescued(row)
        if used + len(value) > self._data.size:
            self._make_room(used, len(value))
        self._data[used : used + len(value)] = np.frombuffer(value, dtype=np.uint8)
        self._ends[at + 1] = used + len(value)
        self._valid[at] = 1
        return None

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
    def _convert(self, tile: _Tile) -> list[Rescued]:
        rescued = super()._convert(tile)
        fault = self._fault(tile)
        if fault is not None:
            raise fault
        return rescued

    def _fault(self, tile: _Tile) -> ValueFormatError | None:
        """Find what the kernels gathered without looking at it."""
        start, end = self.rows, self.rows + tile.size
        flags = kernels_text.text_flags(self._data, self._words, int(self._ends[start]), int(self._ends[end]))
        if flags & kernels_text.HAS_NUL:
            place = int(self._ends[start]) + int(np.argmin(self._data[self._ends[start] : self._ends[end]]))
            row = int(np.searchsorted(self._ends[start : end + 1], place, side="right")) - 1
            return ValueFormatError(HAS_NUL, offset=tile.place(row))
        if flags & kernels_text.HAS_HIGH:
            row = kernels_text.first_not_utf8(self._data, self._ends, start, end)
            if row >= 0:
                return ValueFormatError(NOT_UTF8, offset=tile.place(row - start), remedy=NOT_UTF8_REMEDY)
        return None

    @property
    def _words(self) -> NDArray[np.uint64]:
        return self._data[: self._data.size & ~7].view(np.uint64)


class _LabelBuilder(_TextBuilder):
    """A user-defined type: what reads as text is text, as an enum's label does; else each value is looked at."""

    def _convert(self, tile: _Tile) -> list[Rescued]:
        # As a rule all of it is text, and looking at all at once is faster than at each value.
        rescued = self._gather(tile, self._binary)
        start, end = (int(self._ends[row]) for row in (self.rows, self.rows + tile.size))
        has_control = kernels_binary.has_control(self._data, self._words, start, end)
        fault = self._fault(tile)
        if (has_control or fault is not None) and tile.has_binary():
            tile, rescued = tile.as_text()
            self._gather(tile, None)
            fault = self._fault(tile)
        if fault is not None:
            raise fault
        return rescued


class _FloatBuilder(_FixedBuilder):
    """real and double precision; pyarrow's cast from string, exact as well, reads what the kernels leave."""

    def __init__(self, column_type: ColumnType, names: Names, **rest: Any) -> None:
        super().__init__(column_type, names, reader=float_from_text, **rest)
        text = ColumnType(pa.string(), Family.STRING, "text")
        self._texts = _VariableBuilder(text, {}, text=_Call(kernels_text.texts), binary=None, reader=str.encode)

    def _read_exactly(self, tile: _Tile, misses: Cells) -> list[Rescued]:
        if not misses.size:
            return []
        rest = tile.of_rows(tile.first[misses])
        for row in np.flatnonzero(rest.length[rest.first + rest.column] <= BINARY).tolist():
            # The kernel takes every float that there is.
            rest.read(row, self._reader)
            raise ValueFormatError("a floating-point number has another size than its type", offset=rest.place(row))
        self._texts.truncate(0)
        self._texts.append(*rest.arguments)
        try:
            numbers = pc.cast(self._texts._arrow(rest.size, None), self.column_type.arrow)
        except pa.ArrowInvalid:
            for row in range(rest.size):
                rest.read(row, self._reader)
            raise
        self._values[self.rows + misses] = np.frombuffer(numbers.buffers()[1], self._values.dtype, rest.size)
        self._valid[self.rows + misses] = 1
        return []


class _ListBuilder(ColumnBuilder):
    """Arrays of one dimension; their elements have a builder of their own, which reads them as a tile."""

    def __init__(self, column_type: ColumnType, names: Names, element: ColumnType, binary: _Call | None) -> None:
        super().__init__(column_type, names, binary)
        self._element_oid = element.oid
        self._elements = make_builder(element, names)
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
        self._convert_elements(tile.of_rows(rest))
        return rescued

    def _convert_elements(self, tile: _Tile) -> list[Rescued]:
        at = self.rows
        base = int(self._ends[at])
        self._elements.truncate(base)
        parts = _ArrayParts(tile, ord(self.column_type.delimiter), self._element_oid)
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
            rescued.append(tile.rescued(row))
        stop = at + tile.size
        np.add(parts.counts, base, out=self._ends[at + 1 : stop + 1])
        self._valid[at:stop] = parts.valid
        return sorted(rescued, key=lambda misfit: misfit.row)

    def _misfit(self, tile: _Tile, row: int) -> Rescued:
        try:
            tile.read(row, partial(elements_from_text, delimiter=self.column_type.delimiter))
        except (DoesNotFit, NotRendered):
            return tile.rescued(row)
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

    def __init__(self, tile: _Tile, delimiter: int, element_oid: int) -> None:
        total = kernels_text.total_length(tile.length, tile.first, tile.column)
        bound = total // 2 + tile.size
        self.text = np.empty(total + 32, dtype=np.uint8)
        self.offset = np.empty(bound, dtype=np.int32)
        self.length = np.empty(bound, dtype=np.int32)
        self.counts = np.empty(tile.size, dtype=np.int32)
        self.valid = np.empty(tile.size, dtype=np.uint8)
        misses = np.empty(tile.size + 1, dtype=np.int32)
        self.elements = kernels_text.array_elements(
            *tile.arguments,
            delimiter,
            element_oid,
            self.text,
            self.offset,
            self.length,
            self.counts,
            self.valid,
            misses,
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


_DAY_MICROS: Final = 86_400_000_000
_EPOCH_DAY: Final = POSTGRES_EPOCH_UNIX_MICROS // _DAY_MICROS


def _whole_numbers(kernel: Kernel, size: int, low: int, high: int, shift: int = 0) -> _Call:
    """Take integers of so many bytes (-4: without a sign) within limits that `shift` is not yet added to."""
    return _Call(kernel, (size, low, high, shift))


def _boolean(column_type: ColumnType, names: Names) -> ColumnBuilder:
    return _BooleanBuilder(
        column_type,
        names,
        dtype=np.uint8,
        text=_Call(kernels_fixed.booleans),
        binary=_whole_numbers(kernels_binary.whole_numbers_8, 1, 0, 1),
        reader=boolean_from_text,
    )


def _integer(
    column_type: ColumnType, names: Names, *, dtype: Any, text: Kernel, binary: tuple[Kernel, int]
) -> ColumnBuilder:
    limits = LIMITS[column_type.family]
    reader = partial(integer_from_text, family=column_type.family)
    return _FixedBuilder(
        column_type,
        names,
        dtype=dtype,
        text=_Call(text, limits),
        binary=_whole_numbers(*binary, *limits),
        reader=reader,
    )


def _decimal(column_type: ColumnType, names: Names) -> ColumnBuilder:
    precision, scale = column_type.arrow.precision, column_type.arrow.scale
    narrow = precision <= _NARROW_PRECISION
    return _DecimalBuilder(
        column_type,
        names,
        dtype=np.uint64,
        text=_Call(kernels_fixed.decimals_narrow if narrow else kernels_fixed.decimals_wide, (precision, scale)),
        binary=_Call(kernels_binary.decimals, (precision, scale)),
        reader=partial(unscaled_from_text, precision=precision, scale=scale),
    )


def _date(column_type: ColumnType, names: Names) -> ColumnBuilder:
    low, high = FIRST_DAY - _EPOCH_DAY, LAST_DAY - _EPOCH_DAY
    return _FixedBuilder(
        column_type,
        names,
        dtype=np.int32,
        text=_Call(kernels_fixed.dates),
        binary=_whole_numbers(kernels_binary.whole_numbers_32, 4, low, high, _EPOCH_DAY),
        reader=days_from_text,
    )


def _timestamp(column_type: ColumnType, names: Names, *, text: Kernel, with_zone: bool) -> ColumnBuilder:
    low, high = FIRST_MICRO - POSTGRES_EPOCH_UNIX_MICROS, LAST_MICRO - POSTGRES_EPOCH_UNIX_MICROS
    return _FixedBuilder(
        column_type,
        names,
        dtype=np.int64,
        text=_Call(text),
        binary=_whole_numbers(kernels_binary.whole_numbers_64, 8, low, high, POSTGRES_EPOCH_UNIX_MICROS),
        reader=partial(micros_from_text, with_zone=with_zone),
    )


_FORMS: Final = {
    "text": kernels_binary.AS_SENT,
    "varchar": kernels_binary.AS_SENT,
    "bpchar": kernels_binary.AS_SENT,
    "name": kernels_binary.AS_SENT,
    "json": kernels_binary.AS_SENT,
    "xml": kernels_binary.XML,
    "pg_node_tree": kernels_binary.AS_SENT,
    "refcursor": kernels_binary.AS_SENT,
    "char": kernels_binary.ONE_BYTE,
    "jsonb": kernels_binary.VERSIONED,
    "jsonpath": kernels_binary.VERSIONED,
    "uuid": kernels_binary.UUID,
    "numeric": kernels_binary.NUMERIC,
}
"""What the binary format of the built-in types is; each value of the others becomes text on its own."""

_EXTENSIONS: Final = frozenset({*EXTENSION_TYPES, *EXTENSION_TEXTS})


def _string(column_type: ColumnType, names: Names) -> ColumnBuilder:
    builtin = BUILTIN_TYPES.get(column_type.oid)
    builder = _TextBuilder
    form: int | None = None
    if builtin is not None:
        form = _FORMS.get(builtin.name)
    elif _may_be_text(names.get(column_type.oid)):
        builder = _LabelBuilder
        form = kernels_binary.AS_SENT
    binary = None if form is None else _Call(kernels_binary.texts, (form,))
    return builder(column_type, names, text=_Call(kernels_text.texts), binary=binary, reader=str.encode)


def _may_be_text(name: tuple[str, str] | None) -> bool:
    # Where nothing announced the type, nothing is known of its bytes, not even that they are text.
    return name is not None and (name[1] == "citext" or name[1] not in _EXTENSIONS)


def _bytea(column_type: ColumnType, names: Names) -> ColumnBuilder:
    return _VariableBuilder(
        column_type,
        names,
        text=_Call(kernels_text.hex_bytes),
        binary=_Call(kernels_binary.texts, (kernels_binary.BYTEA,)),
        reader=bytes_from_text,
    )


def _array(column_type: ColumnType, names: Names) -> ColumnBuilder:
    if column_type.element is None:
        raise ValueError("an array's type names its elements' type")
    return _ListBuilder(column_type, names, column_type.element, _Call(kernels_text.array_elements))


class _CastingBuilder(_FixedBuilder):
    """Numbers in the text of any type: pyarrow casts what the kernel leaves, as far as it has the usual form.

    Args:
        column_type: see `ColumnBuilder`.
        names: see `ColumnBuilder`.
        usual: a regular expression of texts that pyarrow reads as the exact reader does.
    """

    def __init__(self, column_type: ColumnType, names: Names, *, usual: str, **rest: Any) -> None:
        super().__init__(column_type, names, binary=None, **rest)
        self._usual = usual
        self._texts = _plain_texts()

    def _read_exactly(self, tile: _Tile, misses: Cells) -> list[Rescued]:
        if not misses.size:
            return []
        self._texts.truncate(0)
        self._texts.append(*tile.of_rows(tile.first[misses]).arguments)
        texts = self._texts._arrow(misses.size, None)
        usual = pc.match_substring_regex(texts, self._usual)
        numbers = pc.cast(self._trimmed(pc.if_else(usual, texts, "0")), self.column_type.arrow)
        values = np.frombuffer(numbers.buffers()[1], self._values.dtype)[: misses.size * self._WORDS]
        values = values.reshape(misses.size, self._WORDS)
        exact = usual.to_numpy(zero_copy_only=False)
        if self._values.dtype.kind == "f":
            exact &= np.isfinite(values[:, 0])
        self._values.reshape(-1, self._WORDS)[self.rows + misses[exact]] = values[exact]
        self._valid[self.rows + misses[exact]] = 1
        return super()._read_exactly(tile, misses[~exact])

    def _trimmed(self, texts: pa.Array) -> pa.Array:
        # Arrow's integers have no decimal point.
        return pc.replace_substring_regex(texts, r"\.0+$", "") if self._values.dtype.kind == "i" else texts


class _CastingDecimalBuilder(_CastingBuilder, _DecimalBuilder):
    pass


class _EncodedBuilder(_VariableBuilder):
    """bytea, gathered as bytes and written as text when the column is finished."""

    def __init__(self, column_type: ColumnType, names: Names, *, encode: Kernel, alphabet: Bytes, **rest: Any) -> None:
        super().__init__(column_type, names, **rest)
        self._encode = encode
        self._alphabet = alphabet

    @property
    def nbytes(self) -> int:
        return super().nbytes + int(self._ends[self.rows])  # hexadecimal doubles it; base64 takes less

    def _arrow(self, rows: int, validity: pa.Buffer | None) -> pa.Array:
        sizes = np.diff(self._ends[: rows + 1]).astype(np.int64)
        sizes = 2 * sizes if self._encode is kernels_encode.hex_texts else (sizes + 2) // 3 * 4
        ends = np.zeros(rows + 1, dtype=np.int64)
        np.cumsum(sizes, out=ends[1:])
        if ends[-1] > MAX_DATA_BYTES:
            raise NotSupported("one column of one batch holds more than 2 GiB")
        text = np.empty(int(ends[-1]), dtype=np.uint8)
        text_ends = ends.astype(np.int32)
        self._encode(self._data, self._ends, text_ends, rows, self._alphabet, text)
        buffers = [validity, pa.py_buffer(text_ends), pa.py_buffer(text)]
        return pa.Array.from_buffers(self.column_type.arrow, rows, buffers)


class _VectorBuilder(ColumnBuilder):
    """pgvector's vector and halfvec; pyarrow rounds the elements, each from its own text."""

    def __init__(self, column_type: ColumnType, names: Names) -> None:
        super().__init__(column_type, names, None)
        self._texts = _plain_texts()
        self._ends: Cells = np.zeros(1, dtype=np.int32)
        self._values: NDArray[np.float32] = np.empty(0, dtype=np.float32)

    @property
    def nbytes(self) -> int:
        return 4 * int(self._ends[self.rows]) + 4 * self.rows + self.rows // 8

    def _convert(self, tile: _Tile) -> list[Rescued]:
        self._texts.truncate(0)
        self._texts.append(*tile.arguments)
        texts = self._texts._arrow(tile.size, None)
        valid = self._texts._valid[: tile.size].astype(np.bool_)
        readable = valid & pc.match_substring_regex(texts, VECTOR_FORM).to_numpy(zero_copy_only=False)
        filled = readable & (pc.binary_length(texts).to_numpy() > len("[]"))
        counts = np.zeros(tile.size, dtype=np.int64)
        elements, counts[filled] = _vector_elements(texts.filter(pa.array(filled)))
        numbers = pc.cast(elements, pa.float32()).to_numpy()
        finite = np.isfinite(numbers)
        if not finite.all():
            row_of = np.repeat(np.arange(tile.size), counts)
            beyond = np.unique(row_of[~finite])
            numbers = numbers[~np.isin(row_of, beyond)]
            counts[beyond] = 0
            readable[beyond] = False
        self._append(counts, numbers)
        self._valid[self.rows : self.rows + tile.size] = readable
        return [tile.rescued(row) for row in np.flatnonzero(valid & ~readable).tolist()]

    def _append(self, counts: NDArray[np.int64], numbers: NDArray[np.float32]) -> None:
        used = int(self._ends[self.rows])
        total = used + numbers.size
        if total > MAX_DATA_BYTES // 4:
            raise NotSupported("one column of one batch holds more than 2 GiB")
        if total > self._values.size:
            self._values = _resized(self._values, max(_MIN_ROWS, total, 2 * self._values.size), used)
        self._values[used:total] = numbers
        self._ends[self.rows + 1 : self.rows + 1 + counts.size] = used + np.cumsum(counts)

    def _grow(self, capacity: int) -> None:
        self._ends = _resized(self._ends, capacity + 1, self.rows + 1)
        self._ends[0] = 0
        self._values = _resized(self._values, self._values.size, int(self._ends[self.rows]))
        self._valid = _resized(self._valid, capacity, self.rows)

    def _arrow(self, rows: int, validity: pa.Buffer | None) -> pa.Array:
        size = int(self._ends[rows])
        values = pa.Array.from_buffers(pa.float32(), size, [None, pa.py_buffer(self._values[:size])])
        ends = pa.py_buffer(self._ends[: rows + 1])
        return pa.Array.from_buffers(self.column_type.arrow, rows, [validity, ends], children=[values])


class _OverriddenListBuilder(_ListBuilder):
    """Text that is read as an array; what is none is rescued."""

    def _misfit(self, tile: _Tile, row: int) -> Rescued:
        return tile.rescued(row)


def _plain_texts() -> _VariableBuilder:
    """Give a builder that gathers text and looks at none of it."""
    text = ColumnType(pa.string(), Family.STRING, "text")
    return _VariableBuilder(text, {}, text=_Call(kernels_text.texts), binary=None, reader=str.encode)


def _vector_elements(vectors: pa.Array) -> tuple[pa.Array, NDArray[np.int64]]:
    """Give the texts of all elements of vectors that have some, and the number of each vector's."""
    ends = np.frombuffer(vectors.buffers()[1], np.int32)[: len(vectors) + 1].astype(np.int64)
    data = np.frombuffer(vectors.buffers()[2] or b"", np.uint8)[ends[0] : ends[-1]]
    is_end = (data == ord(",")) | (data == ord("]"))
    element_ends = np.flatnonzero(is_end)
    counts = np.diff(np.searchsorted(element_ends, ends - ends[0]))
    offsets = np.zeros(element_ends.size + 1, dtype=np.int32)
    # The marks are left out: an opening one for each vector, and a closing one or a comma for each element.
    offsets[1:] = element_ends - np.arange(element_ends.size) - np.repeat(np.arange(1, len(vectors) + 1), counts)
    buffers = [None, pa.py_buffer(offsets), pa.py_buffer(data[~(is_end | (data == ord("[")))])]
    return pa.Array.from_buffers(pa.string(), element_ends.size, buffers), counts


_USUAL_NUMBER: Final = r"^-?[0-9]+(\.[0-9]+)?$"
_USUAL_DIGITS: Final = {Family.INT16: 4, Family.INT32: 9, Family.INT64: 18, Family.UNSIGNED: 9}
"""So many digits are within the limits of the type, whichever they are."""


def _rounded(column_type: ColumnType, names: Names, reader: Callable[[str], float]) -> ColumnBuilder:
    if column_type.arrow == pa.float32():
        dtype, text = np.float32, _Call(kernels_fixed.floats_32, _EXACT_IN_SINGLE)
    else:
        dtype, text = np.float64, _Call(kernels_fixed.floats_64, _EXACT_IN_DOUBLE)
    return _CastingBuilder(column_type, names, dtype=dtype, text=text, reader=reader, usual=_USUAL_NUMBER)


def _numeric_as_double(column_type: ColumnType, names: Names) -> ColumnBuilder:
    return _rounded(column_type, names, double_from_numeric)


def _overridden_integer(column_type: ColumnType, names: Names, reader: Callable[[str], int]) -> ColumnBuilder:
    dtypes = {Family.INT16: np.int16, Family.INT32: np.int32}
    texts = {Family.INT16: kernels_fixed.integers_16, Family.INT32: kernels_fixed.integers_32}
    family = column_type.family
    sign = "" if family == Family.UNSIGNED else "-?"
    return _CastingBuilder(
        column_type,
        names,
        dtype=dtypes.get(family, np.int64),
        text=_Call(texts.get(family, kernels_fixed.integers_64), LIMITS[family]),
        reader=reader,
        usual=rf"^{sign}[0-9]{{1,{_USUAL_DIGITS[family]}}}(\.0+)?$",
    )


def _overridden_decimal(column_type: ColumnType, names: Names, reader: Callable[[str], int]) -> ColumnBuilder:
    precision, scale = column_type.arrow.precision, column_type.arrow.scale
    whole = rf"[0-9]{{1,{precision - scale}}}" if precision > scale else "0"
    fraction = rf"(\.[0-9]{{1,{scale}}})?" if scale else ""
    narrow = precision <= _NARROW_PRECISION
    return _CastingDecimalBuilder(
        column_type,
        names,
        dtype=np.uint64,
        text=_Call(kernels_fixed.decimals_narrow if narrow else kernels_fixed.decimals_wide, (precision, scale)),
        reader=reader,
        usual=f"^-?{whole}{fraction}$",
    )


def _encoded_bytea(column_type: ColumnType, names: Names, *, text: Kernel, alphabet: Bytes) -> ColumnBuilder:
    return _EncodedBuilder(
        column_type,
        names,
        encode=text,
        alphabet=alphabet,
        text=_Call(kernels_text.hex_bytes),
        binary=_Call(kernels_binary.texts, (kernels_binary.BYTEA,)),
        reader=bytes_from_text,
    )


def _overridden(column_type: ColumnType, names: Names) -> ColumnBuilder:
    """Give the builder of the type that a column is read as, with the reader that refuses nothing."""
    reader = partial(read_overridden, column_type=column_type)
    if column_type.element is not None:
        return _OverriddenListBuilder(column_type, names, column_type.element, None)
    if column_type.family in (Family.FLOAT32, Family.FLOAT64):
        return _rounded(column_type, names, reader)
    if column_type.family in LIMITS:
        return _overridden_integer(column_type, names, reader)
    if column_type.family == Family.DECIMAL:
        return _overridden_decimal(column_type, names, reader)
    builder = _BUILDERS[column_type.family](column_type, names)
    # Strings keep their binary form, which goes by the type that is sent; all others read its text.
    if column_type.family != Family.STRING and isinstance(builder, (_FixedBuilder, _VariableBuilder)):
        builder._binary = None
        builder._reader = reader
    return builder


_BUILDERS: Final[dict[Family, Callable[[ColumnType, Names], ColumnBuilder]]] = {
    Family.BOOLEAN: _boolean,
    Family.INT16: partial(
        _integer,
        dtype=np.int16,
        text=kernels_fixed.integers_16,
        binary=(kernels_binary.whole_numbers_16, 2),
    ),
    Family.INT32: partial(
        _integer,
        dtype=np.int32,
        text=kernels_fixed.integers_32,
        binary=(kernels_binary.whole_numbers_32, 4),
    ),
    Family.INT64: partial(
        _integer,
        dtype=np.int64,
        text=kernels_fixed.integers_64,
        binary=(kernels_binary.whole_numbers_64, 8),
    ),
    Family.UNSIGNED: partial(
        _integer,
        dtype=np.int64,
        text=kernels_fixed.integers_64,
        binary=(kernels_binary.whole_numbers_64, -4),
    ),
    Family.FLOAT32: partial(
        _FloatBuilder,
        dtype=np.float32,
        text=_Call(kernels_fixed.floats_32, _EXACT_IN_SINGLE),
        binary=_Call(kernels_binary.floats_32),
    ),
    Family.FLOAT64: partial(
        _FloatBuilder,
        dtype=np.float64,
        text=_Call(kernels_fixed.floats_64, _EXACT_IN_DOUBLE),
        binary=_Call(kernels_binary.floats_64),
    ),
    Family.DECIMAL: _decimal,
    Family.STRING: _string,
    Family.BINARY: _bytea,
    Family.DATE: _date,
    Family.TIMESTAMP: partial(_timestamp, text=kernels_fixed.timestamps, with_zone=False),
    Family.TIMESTAMPTZ: partial(_timestamp, text=kernels_fixed.timestamps_with_zone, with_zone=True),
    Family.ARRAY: _array,
    Family.NUMERIC_AS_DOUBLE: _numeric_as_double,
    Family.BYTEA_AS_BASE64: partial(_encoded_bytea, text=kernels_encode.base64_texts, alphabet=kernels_encode.BASE64),
    Family.BYTEA_AS_BASE64_URL: partial(
        _encoded_bytea, text=kernels_encode.base64_texts, alphabet=kernels_encode.BASE64_URL
    ),
    Family.BYTEA_AS_HEX: partial(_encoded_bytea, text=kernels_encode.hex_texts, alphabet=kernels_encode.HEX),
    Family.VECTOR: _VectorBuilder,
}

_NO_NAMES: Final[Names] = MappingProxyType({})


def make_builder(column_type: ColumnType, names: Names = _NO_NAMES) -> ColumnBuilder:
    """Give the builder for a column's type.

    Args:
        names: (namespace, name) of types by oid, from Type messages: values in binary format may have others inside.
    """
    if column_type.overridden:
        return _overridden(column_type, names)
    return _BUILDERS[column_type.family](column_type, names)
