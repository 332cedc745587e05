"""Columns of real and double precision."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from walreplay.decode.columns.cells import BINARY
from walreplay.decode.columns.fixed import FixedBuilder
from walreplay.decode.columns.variable import plain_texts
from walreplay.errors import ValueFormatError
from walreplay.types.base import DoesNotFit, Rescued
from walreplay.types.floats import float_from_text

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from walreplay.decode.columns.cells import Cells, Names, Tile
    from walreplay.types.base import ColumnType

SINGLE: Final = (23,)
DOUBLE: Final = (52,)
"""The number of bits of a double's fraction, a parameter of the kernels."""


class FloatBuilder(FixedBuilder):
    """real and double precision; values that the kernels leave are read by pyarrow's cast, which is exact, too."""

    def __init__(self, column_type: ColumnType, names: Names, **rest: Any) -> None:
        super().__init__(column_type, names, reader=float_from_text, **rest)
        self._texts = plain_texts()

    def _read_exactly(self, tile: Tile, misses: Cells) -> list[Rescued]:
        if not misses.size:
            return []
        rest = tile.of_rows(tile.first[misses])
        for row in np.flatnonzero(rest.length[rest.first + rest.column] <= BINARY).tolist():
            # The kernel reads every valid float in binary format.
            rest.read(row, self._reader)
            raise ValueFormatError("a floating-point number has another size than its type", offset=rest.place(row))
        self._texts.truncate(0)
        self._texts.append(*rest.arguments)
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

    def _beyonds(self, rest: Tile, values: NDArray[Any]) -> list[int]:
        """Give the rows whose text is a finite number, but beyond the type's largest.

        PostgreSQL 11 and older write so few digits that the largest numbers are rounded up beyond the limit.
        """
        rows = np.flatnonzero(np.isinf(values)).tolist()
        return [row for row in rows if not rest.text(row).lstrip("-").lower().startswith("inf")]

    def _beyond(self, rest: Tile, row: int, misses: Cells) -> Rescued:
        at = int(misses[row])
        self._values[self.rows + at] = 0
        self._valid[self.rows + at] = 0
        return Rescued(at, rest.text(row))
