"""Columns of numbers that are read from the text of another type: overrides, and numerics as doubles."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from walreplay.decode.columns.base import Call, ColumnBuilder
from walreplay.decode.columns.fixed import DecimalBuilder, FixedBuilder
from walreplay.decode.columns.floats import DOUBLE, SINGLE
from walreplay.decode.columns.variable import plain_texts
from walreplay.decode.kernels import fixed as kernels_fixed
from walreplay.decode.kernels.binary import NARROW_PRECISION
from walreplay.types.base import ColumnType, Family, Rescued
from walreplay.types.integers import LIMITS
from walreplay.types.numeric import double_from_numeric

if TYPE_CHECKING:
    from collections.abc import Callable

    from walreplay.decode.columns.cells import Cells, Names, Tile

_USUAL_NUMBER: Final = r"^-?[0-9]+(\.[0-9]+)?$"
_USUAL_DIGITS: Final = {Family.INT16: 4, Family.INT32: 9, Family.INT64: 18, Family.UNSIGNED: 9}
"""Any number with so many digits is within the limits of the type."""


class CastingBuilder(FixedBuilder):
    """Numbers from the text of any type: pyarrow casts texts in a usual form that the kernel leaves.

    Args:
        column_type: see `ColumnBuilder`.
        names: see `ColumnBuilder`.
        usual: a regular expression for texts that pyarrow reads like the exact reader.
    """

    def __init__(self, column_type: ColumnType, names: Names, *, usual: str, **rest: Any) -> None:
        super().__init__(column_type, names, binary=None, **rest)
        self._usual = usual
        self._texts = plain_texts()

    def _read_exactly(self, tile: Tile, misses: Cells) -> list[Rescued]:
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


class CastingDecimalBuilder(CastingBuilder, DecimalBuilder):
    """Decimals in the text of any type."""


def rounded(column_type: ColumnType, names: Names, reader: Callable[[str], float]) -> ColumnBuilder:
    """Give the builder for floats that are rounded from their text."""
    if column_type.arrow == pa.float32():
        dtype, text = np.float32, Call(kernels_fixed.floats_32, SINGLE)
    else:
        dtype, text = np.float64, Call(kernels_fixed.floats_64, DOUBLE)
    return CastingBuilder(column_type, names, dtype=dtype, text=text, reader=reader, usual=_USUAL_NUMBER)


def numeric_as_double(column_type: ColumnType, names: Names) -> ColumnBuilder:
    """Give the builder for numerics as the nearest doubles."""
    return rounded(column_type, names, double_from_numeric)


def overridden_integer(column_type: ColumnType, names: Names, reader: Callable[[str], int]) -> ColumnBuilder:
    """Give the builder for integers from the text of any type."""
    dtypes = {Family.INT16: np.int16, Family.INT32: np.int32}
    texts = {Family.INT16: kernels_fixed.integers_16, Family.INT32: kernels_fixed.integers_32}
    family = column_type.family
    sign = "" if family == Family.UNSIGNED else "-?"
    return CastingBuilder(
        column_type,
        names,
        dtype=dtypes.get(family, np.int64),
        text=Call(texts.get(family, kernels_fixed.integers_64), LIMITS[family]),
        reader=reader,
        usual=rf"^{sign}[0-9]{{1,{_USUAL_DIGITS[family]}}}(\.0+)?$",
    )


def overridden_decimal(column_type: ColumnType, names: Names, reader: Callable[[str], int]) -> ColumnBuilder:
    """Give the builder for decimals from the text of any type."""
    precision, scale = column_type.arrow.precision, column_type.arrow.scale
    whole = rf"[0-9]{{1,{precision - scale}}}" if precision > scale else "0"
    fraction = rf"(\.[0-9]{{1,{scale}}})?" if scale else ""
    narrow = precision <= NARROW_PRECISION
    return CastingDecimalBuilder(
        column_type,
        names,
        dtype=np.uint64,
        text=Call(kernels_fixed.decimals_narrow if narrow else kernels_fixed.decimals_wide, (precision, scale)),
        reader=reader,
        usual=f"^-?{whole}{fraction}$",
    )
