"""Composite types: ``(1,"a, b",)``, where an empty field is NULL."""

from __future__ import annotations

import re
from struct import Struct
from typing import Final

from walreplay.types.cursor import Cursor

_TYPE: Final = Struct("!I")

_NEEDS_QUOTES = re.compile(r'[ \t\n\r\v\f"\\(),]')
_ESCAPED = re.compile(r'["\\]')


def fields_from_binary(data: bytes) -> list[tuple[int, bytes | None]]:
    """Divide a composite value's bytes into its fields: each one's type oid and its bytes, None for NULL."""
    cursor = Cursor(data, "composite")
    fields = [(cursor.unpack(_TYPE)[0], cursor.sized()) for _ in range(cursor.count(8))]
    cursor.finish()
    return fields


def composite_text(fields: list[str | None]) -> str:
    """Write a composite value's fields as PostgreSQL does."""
    return f"({','.join('' if field is None else _quoted(field) for field in fields)})"


def _quoted(text: str) -> str:
    if text and _NEEDS_QUOTES.search(text) is None:
        return text
    escaped = _ESCAPED.sub(r"\g<0>\g<0>", text)
    return f'"{escaped}"'
