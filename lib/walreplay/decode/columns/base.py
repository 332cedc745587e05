"""The base of all builders: rows are appended to arrays that grow geometrically, and handed to Arrow."""

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
"""Outputs are enlarged by this factor at most at a time, even if an estimate asks for more."""


class Call(NamedTuple):
    """A kernel, and the parameters between the tile and the outputs in its call."""

    kernel: Kernel
    parameters: tuple[int, ...] = ()


class ColumnBuilder(ABC):
    """Collects one column.

    Args:
        column_type: from `walreplay.types.resolve`.
        names: (namespace, name) of types by oid, from Type messages.
        binary: the kernel for cells in binary format; None if these are converted to text first.
    """

    def __init__(self, column_type: ColumnType, names: Names, binary: Call | None) -> None:
        self.column_type = column_type
        self.rows = 0
        self._names = names
        # The kernels for binary format are for the sent type, but an override's column has another type.
        self._binary = None if column_type.overridden else binary
        self._codec = UTF8
        self.placing: Placing | None = None
        """How `walreplay.decode.placing` converts the column; None if it does not."""
        self._capacity = 0
        self._valid: Bytes = np.empty(0, dtype=np.uint8)

    def take_encoding(self, codec: str) -> None:
        """Decode text, and texts inside binary values, from another encoding than UTF-8 from here on."""
        self._codec = codec
        if codec != UTF8:
            self.placing = None

    def append(self, buf: Bytes, offset: Cells, length: Cells, first: Cells, column: int) -> list[Rescued] | None:
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
        elif self._binary is None and tile.has_binary():
            tile, without_form = tile.as_text()
        rescued = self._convert(tile) + without_form
        if without_form:
            rescued.sort(key=lambda misfit: misfit.row)
        self.rows += first.size
        return rescued or None

    def reserve(self, rows: int) -> int:
        """Make room for at least so many rows; give the number of rows for which there is room."""
        if rows > self._capacity:
            self._capacity = max(MIN_ROWS, rows, 2 * self._capacity)
            self._grow(self._capacity)
        return self._capacity

    def addresses(self) -> tuple[int, int, int, int]:
        """Give the addresses of a placed column: its values (or texts' ends), validity and text data; and that size."""
        raise NotImplementedError

    def finish_placed(self, tile: Tile, missed: Cells, flags: int) -> list[Rescued]:
        """Complete the rows that the kernel has placed behind `rows`; give the values that the type cannot hold.

        Args:
            tile: the cells of these rows.
            missed: the numbers of rows with a value in another form than the kernel reads.
            flags: what the kernel has found in their text.
        """
        raise NotImplementedError

    def tile(self, buf: Bytes, offset: Cells, length: Cells, first: Cells, column: int) -> Tile:
        """Make a tile of some rows' cells; see `append`."""
        return Tile(buf, offset, length, first, column, self._written)

    def _written(self, data: bytes) -> str:
        """Give PostgreSQL's text of a value in binary format."""
        return render(data, self.column_type.oid, self.column_type.typmod, self._names, codec=self._codec)

    @property
    @abstractmethod
    def nbytes(self) -> int:
        """The size of the collected values in bytes, about as in Arrow."""

    def finish(self) -> pa.Array:
        """Give the collected column and start a new one."""
        # The next column will have about as many rows, so its arrays are made for as many.
        array = self._arrow(self.rows, self._validity())
        self.rows = 0
        self._grow(self._capacity)
        return array

    def truncate(self, rows: int) -> None:
        """Remove all rows after the first `rows`."""
        self.rows = rows

    @abstractmethod
    def _convert(self, tile: Tile) -> list[Rescued]:
        """Write the tile's rows after the first `rows`; there is room for them."""

    @abstractmethod
    def _grow(self, capacity: int) -> None:
        """Make new outputs for so many rows, and copy the first `rows`."""

    @abstractmethod
    def _arrow(self, rows: int, validity: pa.Buffer | None) -> pa.Array:
        """Make the Arrow array, which takes over the outputs."""

    def _validity(self) -> pa.Buffer | None:
        valid = self._valid[: self.rows]
        if np.count_nonzero(valid) == self.rows:
            return None
        return pa.py_buffer(np.packbits(valid, bitorder="little"))


def resized(array: NDArray[Any], size: int, used: int) -> NDArray[Any]:
    """Give a new array of a size that begins with the first `used` entries of another one."""
    larger = empty(size, array.dtype)
    larger[:used] = array[:used]
    return larger
