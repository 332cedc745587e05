"""The cells that a column is made of: where they lie in a tile, and what single ones hold."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import numpy as np

from walreplay.decode.kernels import text as kernels_text
from walreplay.errors import NotSupported, ValueFormatError
from walreplay.types.base import DoesNotFit, Rescued
from walreplay.types.rendering import NotRendered
from walreplay.types.text import UTF8, decode_text, transcode

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from numpy.typing import NDArray

    Bytes = NDArray[np.uint8]
    Cells = NDArray[np.int32]
    Names = Mapping[int, tuple[str, str]]

NULL: Final = -1
UNCHANGED: Final = -2
BINARY: Final = -3
"""A cell's length from here downwards means binary format, of ``BINARY - length`` bytes."""

MAX_DATA_BYTES: Final = 2**31 - 1
"""Arrow's string, binary and list count with 32 bits: finish a builder before its nbytes get there."""


class Tile:
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
        """What every kernel takes first."""
        return self.buf, self.offset, self.length, self.first, self.column

    @property
    def size(self) -> int:
        """The number of rows."""
        return self.first.size

    def of_rows(self, first: Cells) -> Tile:
        """Give the tile with the first cells of other rows."""
        return Tile(self.buf, self.offset, self.length, first, self.column, self.written, self.places)

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

    def _utf8(self, row: int, codec: str) -> bytes:
        try:
            return self.data(row) if codec == UTF8 else transcode(self.data(row), codec)
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

    def is_ascii(self) -> bool:
        """Tell whether the bytes of all cells, of both formats, are ASCII: the same text in every encoding."""
        return not kernels_text.has_high(*self.arguments)

    def has_binary(self) -> bool:
        """Tell whether any cell is in binary format."""
        return bool(kernels_text.count_binary(self.length, self.first, self.column))

    def as_text(self, codec: str = UTF8) -> tuple[Tile, list[Rescued]]:
        """Give the tile with the text of those cells that are in binary format, and those that have none.

        Args:
            codec: what the cells in text format are in; they become UTF-8.
        """
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
        return Tile(buf, offset, length, first, 0, self.written, places), rescued
