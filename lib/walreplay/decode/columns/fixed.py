"""Builders of columns of fixed width: booleans, integers, decimals, dates and times, then real and double precision.

The last ones read numbers from the text of another type: overrides, and numerics as doubles.
"""

from __future__ import annotations

from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from walreplay.decode.columns.base import ColumnBuilder, resized
from walreplay.decode.columns.variable import plain_texts
from walreplay.decode.kernels import programs
from walreplay.decode.kernels.binary import BINARY
from walreplay.decode.kernels.place import place_column
from walreplay.decode.placing import Placing
from walreplay.errors import ValueFormatError
from walreplay.types.base import ColumnType, DoesNotFit, Rescued
from walreplay.types.numbers import (
    float_from_text,
    integer_from_text,
    unscaled_from_text,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    from walreplay.decode.columns.base import Cells, CellTile, Names


class FixedBuilder(ColumnBuilder):
    """Values of a fixed width.

    Args:
        dtype: of one word of the output.
        placing: how the kernels convert a value.
        reader: reads the text of a value that they leave.
    """

    _WORDS = 1

    def __init__(
        self,
        column_type: ColumnType,
        names: Names,
        *,
        dtype: Any,
        placing: Placing,
        reader: Callable[[str], Any],
        reads_binary: bool = True,
    ) -> None:
        super().__init__(column_type, names, placing, reads_binary=reads_binary)
        self._values: NDArray[Any] = np.empty(0, dtype=dtype)
        self._reader = reader

    @property
    def nbytes(self) -> int:
        """The size of the collected values in bytes, about as in Arrow."""
        return self.rows * self._WORDS * self._values.itemsize + self.rows // 8

    def _convert(self, tile: CellTile) -> list[Rescued]:
        misses = np.empty(tile.size + 1, dtype=np.int32)  # at most all rows, behind their number
        misses[0] = 0
        place_column(*tile.arguments, self.program, self.rows, 0, misses)
        return self._read_exactly(tile, misses[1 : misses[0] + 1])

    def finish_placed(self, tile: CellTile, missed: Cells, flags: int) -> list[Rescued]:
        """Read the values in another form."""
        return self._read_exactly(tile, missed)

    def _read_exactly(self, tile: CellTile, misses: Cells) -> list[Rescued]:
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
        self._values = resized(self._values, capacity * self._WORDS, self.rows * self._WORDS)
        self.program[programs.VALUES] = self._values.ctypes.data

    def _arrow(self, rows: int, validity: pa.Buffer | None) -> pa.Array:
        values = pa.py_buffer(self._values[: rows * self._WORDS])
        return pa.Array.from_buffers(self.column_type.arrow, rows, [validity, values])


class BooleanBuilder(FixedBuilder):
    """Booleans: one byte each while they are collected, one bit each in Arrow."""

    @property
    def nbytes(self) -> int:
        """The size of the collected values in bytes, about as in Arrow."""
        return self.rows // 4

    def _arrow(self, rows: int, validity: pa.Buffer | None) -> pa.Array:
        bits = pa.py_buffer(np.packbits(self._values[:rows], bitorder="little"))  # as Arrow orders them
        return pa.Array.from_buffers(self.column_type.arrow, rows, [validity, bits])


class DecimalBuilder(FixedBuilder):
    """Decimals of 128 bits."""

    _WORDS = 2  # the lower half stands first

    def _store(self, row: int, value: Any) -> None:
        self._values[2 * row] = value & 0xFFFFFFFFFFFFFFFF
        self._values[2 * row + 1] = (value >> 64) & 0xFFFFFFFFFFFFFFFF


def integer(column_type: ColumnType, names: Names, *, kind: int) -> ColumnBuilder:
    """Return the builder for integers within the limits of their family, which a kernel converts by its ``kind``."""
    limits = _limits(column_type)
    return FixedBuilder(
        column_type,
        names,
        dtype=column_type.arrow.to_pandas_dtype(),
        placing=Placing(kind, *limits),
        reader=partial(integer_from_text, limits=limits),
    )


def _limits(column_type: ColumnType) -> tuple[int, int]:
    limits = column_type.family.limits
    assert limits is not None
    return limits


def decimal(column_type: ColumnType, names: Names) -> ColumnBuilder:
    """Return the builder for decimals."""
    precision, scale = column_type.arrow.precision, column_type.arrow.scale
    return DecimalBuilder(
        column_type,
        names,
        dtype=np.uint64,
        placing=Placing(programs.DECIMAL, precision, scale),
        reader=partial(unscaled_from_text, precision=precision, scale=scale),
    )


class FloatBuilder(FixedBuilder):
    """real and double precision; values that the kernels leave are read by pyarrow's cast, which is exact, too."""

    def __init__(self, column_type: ColumnType, names: Names, **rest: Any) -> None:
        super().__init__(column_type, names, reader=float_from_text, **rest)
        self._texts = plain_texts()

    def _read_exactly(self, tile: CellTile, misses: Cells) -> list[Rescued]:
        if not misses.size:
            return []
        rest = tile.of_rows(tile.first[misses])
        for row in np.flatnonzero(rest.length[rest.first + rest.column] <= BINARY).tolist():
            # The kernel reads every valid float in binary format.
            rest.read(row, self._reader)
            raise ValueFormatError("a floating-point number has another size than its type", offset=rest.place(row))
        self._texts.truncate(0)
        self._texts.add_rows(*rest.arguments)
        try:
            numbers = pc.cast(self._texts._arrow(rest.size, None), self.column_type.arrow)
        except pa.ArrowInvalid:
            for row in range(rest.size):
                # The value in a wrong form is looked for, not one that the type cannot hold.
                with suppress(DoesNotFit):
                    rest.read(row, self._reader)
            raise
        values = np.frombuffer(numbers.buffers()[1], self._values.dtype, rest.size)
        self._values[self.rows + misses] = values
        self._valid[self.rows + misses] = 1
        return [self._beyond(rest, row, misses) for row in self._beyonds(rest, values)]

    def _beyonds(self, rest: CellTile, values: NDArray[Any]) -> list[int]:
        """Return the rows whose text is a finite number, but beyond the type's largest.

        PostgreSQL 11 and older write so few digits that the largest numbers are rounded up beyond the limit.
        """
        rows = np.flatnonzero(np.isinf(values)).tolist()
        return [row for row in rows if not rest.text(row).lstrip("-").lower().startswith("inf")]

    def _beyond(self, rest: CellTile, row: int, misses: Cells) -> Rescued:
        tile_row = int(misses[row])
        self._values[self.rows + tile_row] = 0
        self._valid[self.rows + tile_row] = 0
        return Rescued(tile_row, rest.text(row))


_USUAL_NUMBER: Final = r"^-?[0-9]+(\.[0-9]+)?$"


class CastingBuilder(FixedBuilder):
    """Numbers from the text of any type: pyarrow casts texts in a usual form that the kernel leaves.

    Args:
        usual: a regular expression for texts that pyarrow reads like the exact reader.
    """

    def __init__(self, column_type: ColumnType, names: Names, *, usual: str, **rest: Any) -> None:
        super().__init__(column_type, names, reads_binary=False, **rest)
        self.is_placed = False  # a value in binary format is of another type
        self._usual = usual
        self._texts = plain_texts()

    def _read_exactly(self, tile: CellTile, misses: Cells) -> list[Rescued]:
        if not misses.size:
            return []
        self._texts.truncate(0)
        self._texts.add_rows(*tile.of_rows(tile.first[misses]).arguments)
        texts = self._texts._arrow(misses.size, None)
        usual = pc.match_substring_regex(texts, self._usual)
        # One text that cannot be cast would refuse all of them.
        numbers = pc.cast(self._trimmed(pc.if_else(usual, texts, "0")), self.column_type.arrow)
        values = np.frombuffer(numbers.buffers()[1], self._values.dtype)[: misses.size * self._WORDS]
        values = values.reshape(misses.size, self._WORDS)
        exact = usual.to_numpy(zero_copy_only=False)
        if self._values.dtype.kind == "f":
            exact &= np.isfinite(values[:, 0])  # beyond the largest number: the exact reader says so
        self._values.reshape(-1, self._WORDS)[self.rows + misses[exact]] = values[exact]
        self._valid[self.rows + misses[exact]] = 1
        return super()._read_exactly(tile, misses[~exact])

    def _trimmed(self, texts: pa.Array) -> pa.Array:
        # Arrow's integers have no decimal point.
        return pc.replace_substring_regex(texts, r"\.0+$", "") if self._values.dtype.kind == "i" else texts


class CastingDecimalBuilder(CastingBuilder, DecimalBuilder):
    """Decimals in the text of any type."""


def rounded(column_type: ColumnType, names: Names, reader: Callable[[str], float]) -> ColumnBuilder:
    """Return the builder for floats that are rounded from their text."""
    placing = Placing(programs.FLOAT32 if column_type.arrow == pa.float32() else programs.FLOAT64)
    dtype = column_type.arrow.to_pandas_dtype()
    return CastingBuilder(column_type, names, dtype=dtype, placing=placing, reader=reader, usual=_USUAL_NUMBER)


def overridden_integer(
    column_type: ColumnType, names: Names, reader: Callable[[str], int], *, kind: int
) -> ColumnBuilder:
    """Return the builder for integers from the text of any type."""
    low, high = limits = _limits(column_type)
    sign = "-?" if low else ""  # oid and its like have none
    digits = len(str(high)) - 1  # any number with so many digits is within the limits
    return CastingBuilder(
        column_type,
        names,
        dtype=column_type.arrow.to_pandas_dtype(),
        placing=Placing(kind, *limits),
        reader=reader,
        usual=rf"^{sign}[0-9]{{1,{digits}}}(\.0+)?$",
    )


def overridden_decimal(column_type: ColumnType, names: Names, reader: Callable[[str], int]) -> ColumnBuilder:
    """Return the builder for decimals from the text of any type."""
    precision, scale = column_type.arrow.precision, column_type.arrow.scale
    # So many digits fit in any case; others are left to the exact reader.
    whole = rf"[0-9]{{1,{precision - scale}}}" if precision > scale else "0"
    fraction = rf"(\.[0-9]{{1,{scale}}})?" if scale else ""
    return CastingDecimalBuilder(
        column_type,
        names,
        dtype=np.uint64,
        placing=Placing(programs.DECIMAL, precision, scale),
        reader=reader,
        usual=f"^-?{whole}{fraction}$",
    )
