"""bit and bit varying: zeros and ones."""

from __future__ import annotations

from walreplay.types.cursor import INT32, Cursor, malformed


def bits_text(data: bytes) -> str:
    """Write the bytes of a bit or bit varying as PostgreSQL does."""
    cursor = Cursor(data, "bit")
    (length,) = cursor.unpack(INT32)
    if length < 0 or cursor.left != (length + 7) // 8:
        raise malformed("bit", "has another length than its number of bits asks for")
    packed = cursor.take(cursor.left)
    return f"{int.from_bytes(packed, 'big'):0{8 * len(packed)}b}"[:length] if length else ""
