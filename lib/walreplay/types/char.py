"""The type ``"char"``: one byte."""

from __future__ import annotations

from walreplay.types.cursor import malformed


def char_text(data: bytes) -> str:
    r"""Write the byte of a ``"char"``: 0 is the empty text, a byte above 127 an octal escape (``\351``).

    That is the form from PostgreSQL 16 on; older servers write the byte itself, which is not UTF-8.
    """
    if len(data) != 1:
        raise malformed('"char"', f"has {len(data)} bytes instead of 1")
    if data == b"\0":
        return ""
    return chr(data[0]) if data[0] < 0x80 else f"\\{data[0]:03o}"
