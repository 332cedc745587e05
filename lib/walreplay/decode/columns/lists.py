"""Columns of arrays of one dimension."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from walreplay.decode.columns.base import Call, ColumnBuilder, resized
from walreplay.decode.columns.cells import NULL
from walreplay.decode.kernels import text as kernels_text
from walreplay.errors import ValueFormatError
from walreplay.types.arrays import elements_from_text
from walreplay.types.base import ColumnType, DoesNotFit, Rescued
from walreplay.types.rendering import NotRendered

if TYPE_CHECKING:
    from walreplay.decode.columns.cells import Cells, Names, Tile


class ListBuilder(ColumnBuilder):
    """Arrays of one dimension.  Their elements have a builder of their own, to which they are one tile.

    Args:
        column_type: see `ColumnBuilder`.
        names: see `ColumnBuilder`.
        elements: the elements' builder.
        binary: the kernel that divides arrays; None if arrays in binary format are converted to text first.
    """

    def __init__(self, column_type: ColumnType, names: Names, elements: ColumnBuilder, binary: Call | None) -> None:
        super().__init__(column_type, names, binary)
        self._element_oid = elements.column_type.oid
        self._elements = elements
        self._ends: Cells = np.zeros(1, dtype=np.int32)

    @property
    def nbytes(self) -> int:
        """The size of the collected values in bytes, about as in Arrow."""
        return self._elements.nbytes + 4 * self.rows + self.rows // 8

    def truncate(self, rows: int) -> None:
        """Remove all rows after the first `rows`."""
        self._elements.truncate(int(self._ends[rows]))
        super().truncate(rows)

    def _convert(self, tile: Tile) -> list[Rescued]:
        rescued = self._convert_elements(tile)
        if not rescued:
            return []
        # Arrays with an element that does not fit must leave no elements, so all are converted again without them.
        rest = tile.first.copy()
        for misfit in rescued:
            rest[misfit.row] = NULL
        self._convert_elements(tile.of_rows(rest))
        return rescued

    def _convert_elements(self, tile: Tile) -> list[Rescued]:
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

    def _misfit(self, tile: Tile, row: int) -> Rescued:
        try:
            tile.read(row, partial(elements_from_text, delimiter=self.column_type.delimiter))
        except (DoesNotFit, NotRendered):
            return tile.rescued(row)
        raise ValueFormatError("an array is not in PostgreSQL's form", offset=tile.place(row))

    def _grow(self, capacity: int) -> None:
        self._ends = resized(self._ends, capacity + 1, self.rows + 1)
        self._ends[0] = 0
        self._valid = resized(self._valid, capacity, self.rows)

    def _arrow(self, rows: int, validity: pa.Buffer | None) -> pa.Array:
        ends = pa.py_buffer(self._ends[: rows + 1])
        children = [self._elements.finish()]
        return pa.Array.from_buffers(self.column_type.arrow, rows, [validity, ends], children=children)


class OverriddenListBuilder(ListBuilder):
    """Text that an override reads as an array; other texts are rescued."""

    def _misfit(self, tile: Tile, row: int) -> Rescued:
        return tile.rescued(row)


class _ArrayParts:
    """The elements of a tile's arrays, as a tile of their own."""

    def __init__(self, tile: Tile, delimiter: int, element_oid: int) -> None:
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
