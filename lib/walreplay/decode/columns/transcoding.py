"""Convert tiles from another encoding to UTF-8; all cells of a column are decoded at once."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from walreplay.decode.columns.cells import MAX_DATA_BYTES, NULL, Tile
from walreplay.decode.kernels import text as kernels_text
from walreplay.types.encodings import decode

if TYPE_CHECKING:
    from walreplay.decode.columns.cells import Bytes, Cells
    from walreplay.types.base import Rescued


def in_utf8(tile: Tile, codec: str) -> tuple[Tile, list[Rescued]]:
    """Convert a tile's cells to text in UTF-8; give the new tile, and the values that have no text.

    Raises:
        ValueFormatError: a cell is not in the encoding, or contains a NUL.
    """
    if not tile.has_binary():
        found = _decoded(tile, codec)
        if found is not None:
            return found, []
    # One by one, because a value in binary format may be anything, and an error needs its offset.
    return tile.as_text(codec)


def _decoded(tile: Tile, codec: str) -> Tile | None:
    """Decode cells in text format; None if one of them cannot be decoded."""
    joined, valid = _joined(tile)
    try:
        data = decode(joined.tobytes(), codec).encode()
    except UnicodeDecodeError:
        return None
    buf = np.frombuffer(data, dtype=np.uint8)
    ends = np.flatnonzero(buf == 0)
    if ends.size != tile.size or len(data) > MAX_DATA_BYTES:
        return None
    ends = ends.astype(np.int32)
    offset = np.zeros(tile.size, dtype=np.int32)
    offset[1:] = ends[:-1] + 1
    length = np.where(valid == 0, NULL, ends - offset).astype(np.int32)
    places = np.zeros(tile.size, dtype=np.int32)
    has_cell = tile.first >= 0
    places[has_cell] = tile.offset[tile.first[has_cell] + tile.column]
    return Tile(buf, offset, length, np.arange(tile.size, dtype=np.int32), 0, tile.written, places)


def _joined(tile: Tile) -> tuple[Bytes, Bytes]:
    """Join the valid cells with a NUL after each; give the bytes, and which cells are valid.

    In none of the encodings is a NUL part of another character.  So if a cell ends in the middle of a character, or
    contains a NUL, the decoded text has a NUL too few or too many.
    """
    total = kernels_text.total_length(tile.length, tile.first, tile.column)
    data: Bytes = np.empty(total + kernels_text.SLACK, dtype=np.uint8)
    ends: Cells = np.zeros(tile.size + 1, dtype=np.int32)
    valid: Bytes = np.empty(tile.size, dtype=np.uint8)
    kernels_text.texts(*tile.arguments, ends, valid, data, 0, 0)
    return np.insert(data[: ends[-1]], ends[1:], 0), valid
