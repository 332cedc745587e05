"""What all builders have in common: rows are appended to arrays that grow geometrically, and handed to Arrow."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np
import pyarrow as pa

from walreplay.decode.columns.cells import Tile
from walreplay.decode.columns.transcoding import in_utf8
from walreplay.decode.memory import empty
from walreplay.types.rendering import render
from walreplay.types.text import UTF8

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from walreplay.decode.columns.cells import Bytes, Cells, Names
    from walreplay.decode.compile.kernel import Kernel
    from walreplay.decode.placing import Placing
    from walreplay.types.base import ColumnType, Rescued

MIN_ROWS: Final = 16

MOST_GROWTH: Final = 16
"""Outputs grow so many times at the most at once, whatever what was seen says of what follows."""


class Call(NamedTuple):
    """A kernel with what it takes between the tile and its outputs."""

    kernel: Kernel
    parameters: tuple[int, ...] = ()


class ColumnBuilder(ABC):
    """Collects one column.

    Args:
        column_type: from `walreplay.types.resolve`.
        names: (namespace, name) of types by oid, from Type messages.
        binary: takes cells in binary format; None where each becomes text first.
    """

    def __init__(self, column_type: ColumnType, names: Names, binary: Call | None) -> None:
        self.column_type = column_type
        self.rows = 0
        self._names = names
        # The kernels for binary format go by the type that the values are sent in, an override by another one.
        self._binary = None if column_type.overridden else binary
        self._codec = UTF8
        self.placing: Placing | None = None
        """How `walreplay.decode.placing` converts the column, where it does."""
        self._capacity = 0
        self._valid: Bytes = np.empty(0, dtype=np.uint8)

    def take_encoding(self, codec: str) -> None:
        """Have text, and the texts inside of binary values, decoded from another encoding than UTF-8."""
        self._codec = codec
        if codec != UTF8:
            self.placing = None

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
        self.reserve(self.rows + first.size)
        tile = self.tile(buf, offset, length, first, column)
        without_form: list[Rescued] = []
        if self._codec != UTF8 and not tile.is_ascii():
            # Before anything looks into it: in some encodings a character's second byte may be a backslash.
            tile, without_form = in_utf8(tile, self._codec)
        elif self._binary is None and tile.has_binary():
            tile, without_form = tile.as_text()
        rescued = self._convert(tile) + without_form
        if without_form:
            rescued.sort(key=lambda misfit: misfit.row)
        self.rows += first.size
        return rescued or None

    def reserve(self, rows: int) -> int:
        """Make room for so many rows; give how many there is room for."""
        if rows > self._capacity:
            self._capacity = max(MIN_ROWS, rows, 2 * self._capacity)
            self._grow(self._capacity)
        return self._capacity

    def addresses(self) -> tuple[int, int, int, int]:
        """Give where the outputs of a placed column lie: values (text's ends), validity, text's data and its size."""
        raise NotImplementedError

    def finish_placed(self, tile: Tile, missed: Cells, flags: int) -> list[Rescued]:
        """See to what the kernel has left of the rows that it has placed behind `rows`.

        Args:
            tile: their cells.
            missed: which of them hold a value in another form.
            flags: what the kernel has found in their text.
        """
        raise NotImplementedError

    def tile(self, buf: Bytes, offset: Cells, length: Cells, first: Cells, column: int) -> Tile:
        """Give the cells of some rows of the column; see `append`."""
        return Tile(buf, offset, length, first, column, self._written)

    def _written(self, data: bytes) -> str:
        """Give PostgreSQL's text of a value in binary format."""
        return render(data, self.column_type.oid, self.column_type.typmod, self._names, codec=self._codec)

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
    def _convert(self, tile: Tile) -> list[Rescued]:
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


def resized(array: NDArray[Any], size: int, used: int) -> NDArray[Any]:
    """Give a new array of some size that begins with what was used of another."""
    larger = empty(size, array.dtype)
    larger[:used] = array[:used]
    return larger
