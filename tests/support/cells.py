"""Tiles for the column builders, made from texts, and the columns that come of them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from walreplay.decode.columns import NULL, make_builder

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pyarrow as pa
    from numpy.typing import NDArray

    from walreplay.types import ColumnType, Rescued

Tile = tuple["NDArray[np.uint8]", "NDArray[np.int32]", "NDArray[np.int32]", "NDArray[np.int32]", int]


def tile(values: Sequence[str | bytes | None], *, lead: bytes = b"") -> Tile:
    """Lay cells one behind the other, with nothing in front of the first or behind the last unless asked."""
    buf = bytearray(lead)
    offset, length = [], []
    for value in values:
        data = value.encode() if isinstance(value, str) else value
        offset.append(len(buf))
        length.append(NULL if data is None else len(data))
        buf += data or b""
    return (
        np.frombuffer(bytes(buf), dtype=np.uint8),
        np.array(offset, dtype=np.int32),
        np.array(length, dtype=np.int32),
        np.arange(len(values), dtype=np.int32),
        0,
    )


def convert(
    column_type: ColumnType, values: Sequence[str | bytes | None], *, lead: bytes = b""
) -> tuple[pa.Array, list[Rescued]]:
    """Convert the cells in one append; the array is validated."""
    builder = make_builder(column_type)
    rescued = builder.append(*tile(values, lead=lead))
    array = builder.finish()
    array.validate(full=True)
    return array, rescued or []
