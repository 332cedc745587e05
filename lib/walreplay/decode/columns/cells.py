"""The cells of a column: where they lie in a tile, and how single ones are read."""

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
"""A cell length of this or below means binary format, with ``BINARY - length`` bytes."""

MAX_DATA_BYTES: Final = 2**31 - 1
"""The offsets of Arrow's string, binary and list have 32 bits; finish a builder before its nbytes reach this."""


class Tile:
    """The cells of one append.

    Args:
        buf, offset, length, first, column: see `ColumnBuilder.append`.
        written: gives the text of a value in binary format.
        places: the offset of each cell in the capture, for errors; None if that is ``offset``.
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
        """The first arguments of every kernel."""
        return self.buf, self.offset, self.length, self.first, self.column

    @property
    def size(self) -> int:
        """The number of rows."""
        return self.first.size

    def of_rows(self, first: Cells) -> Tile:
        """Give the same tile for other rows, by their first cells."""
        return Tile(self.buf, self.offset, self.length, first, self.column, self.written, self.places)

    def place(self, row: int) -> int:
        """Give the offset of a row's cell in the capture."""
        places = self.offset if self.places is None else self.places
        return int(places[self.first[row] + self.column])

    def sent_length(self, row: int) -> int:
        """Give the length of a row's cell, which must exist; `BINARY` and below for binary format."""
        return int(self.length[self.first[row] + self.column])

    def data(self, row: int) -> bytes:
        """Give the bytes of a row's value, which must exist."""
        start = int(self.offset[self.first[row] + self.column])
        size = self.sent_length(row)
        return self.buf[start : start + (size if size >= 0 else BINARY - size)].tobytes()

    def text(self, row: int) -> str:
        """Give the text of a row's value, which must exist.

        Raises:
            NotRendered: the value is in binary format and cannot be written as text.
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
        """Give a row's value as a rescued value."""
        try:
            return Rescued(row, self.text(row))
        except NotRendered:
            return Rescued(row, f"\\x{self.data(row).hex()}")

    def read(self, row: int, reader: Callable[[str], Any]) -> Any:
        """Read a row's value with an exact reader.

        Raises:
            DoesNotFit: the type cannot hold the value; the exception has its text.
            ValueFormatError: the value is not in the type's form; the error has its offset.
        """
        text = self.text(row)
        try:
            return reader(text)
        except DoesNotFit:
            raise DoesNotFit(text) from None
        except ValueFormatError as error:
            raise error.at(offset=self.place(row)) from None

    def is_ascii(self) -> bool:
        """Say whether the bytes of all cells, of both formats, are ASCII, and so the same text in every encoding."""
        return not kernels_text.has_high(*self.arguments)

    def has_binary(self) -> bool:
        """Say whether any cell is in binary format."""
        return bool(kernels_text.count_binary(self.length, self.first, self.column))

    def as_text(self, codec: str = UTF8) -> tuple[Tile, list[Rescued]]:
        """Convert all cells to text in UTF-8; give the new tile, and the values that have no text.

        Args:
            codec: the encoding of the cells in text format.
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
