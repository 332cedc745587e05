"""Columns of pgvector's vectors."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from walreplay.decode.columns.base import MIN_ROWS, ColumnBuilder, resized
from walreplay.decode.columns.cells import MAX_DATA_BYTES
from walreplay.decode.columns.variable import plain_texts
from walreplay.errors import NotSupported
from walreplay.types.vectors import VECTOR_FORM

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from walreplay.decode.columns.cells import Cells, Names, Tile
    from walreplay.types.base import ColumnType, Rescued


class VectorBuilder(ColumnBuilder):
    """pgvector's vector and halfvec; pyarrow rounds each element directly from its text."""

    def __init__(self, column_type: ColumnType, names: Names) -> None:
        super().__init__(column_type, names, None)
        self._texts = plain_texts()
        self._ends: Cells = np.zeros(1, dtype=np.int32)
        self._values: NDArray[np.float32] = np.empty(0, dtype=np.float32)

    @property
    def nbytes(self) -> int:
        """The size of the collected values in bytes, about as in Arrow."""
        return 4 * int(self._ends[self.rows]) + 4 * self.rows + self.rows // 8

    def _convert(self, tile: Tile) -> list[Rescued]:
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
            self._values = resized(self._values, max(MIN_ROWS, total, 2 * self._values.size), used)
        self._values[used:total] = numbers
        self._ends[self.rows + 1 : self.rows + 1 + counts.size] = used + np.cumsum(counts)

    def _grow(self, capacity: int) -> None:
        self._ends = resized(self._ends, capacity + 1, self.rows + 1)
        self._ends[0] = 0
        self._values = resized(self._values, self._values.size, int(self._ends[self.rows]))
        self._valid = resized(self._valid, capacity, self.rows)

    def _arrow(self, rows: int, validity: pa.Buffer | None) -> pa.Array:
        size = int(self._ends[rows])
        values = pa.Array.from_buffers(pa.float32(), size, [None, pa.py_buffer(self._values[:size])])
        ends = pa.py_buffer(self._ends[: rows + 1])
        return pa.Array.from_buffers(self.column_type.arrow, rows, [validity, ends], children=[values])


def _vector_elements(vectors: pa.Array) -> tuple[pa.Array, NDArray[np.int64]]:
    """Give the texts of the elements of all vectors, none of which may be empty, and the number in each vector."""
    ends = np.frombuffer(vectors.buffers()[1], np.int32)[: len(vectors) + 1].astype(np.int64)
    data = np.frombuffer(vectors.buffers()[2] or b"", np.uint8)[ends[0] : ends[-1]]
    is_end = (data == ord(",")) | (data == ord("]"))
    element_ends = np.flatnonzero(is_end)
    counts = np.diff(np.searchsorted(element_ends, ends - ends[0]))
    offsets = np.zeros(element_ends.size + 1, dtype=np.int32)
    # Minus the marks: each vector has an opening bracket, each element a comma or a closing bracket behind it.
    offsets[1:] = element_ends - np.arange(element_ends.size) - np.repeat(np.arange(1, len(vectors) + 1), counts)
    buffers = [None, pa.py_buffer(offsets), pa.py_buffer(data[~(is_end | (data == ord("[")))])]
    return pa.Array.from_buffers(pa.string(), element_ends.size, buffers), counts
