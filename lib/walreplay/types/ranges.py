"""Ranges and multiranges: ``[1,5)``, ``empty``, ``{[1,5),[7,)}``."""

from __future__ import annotations

import re
from struct import Struct
from typing import TYPE_CHECKING, Final

from walreplay.types.cursor import Cursor, malformed

if TYPE_CHECKING:
    from collections.abc import Callable

_FLAGS: Final = Struct("!B")
_EMPTY: Final = 0x01
_LOWER_INCLUSIVE: Final = 0x02
_UPPER_INCLUSIVE: Final = 0x04
_LOWER_INFINITE: Final = 0x08
_UPPER_INFINITE: Final = 0x10
_KNOWN_FLAGS: Final = 0x1F

_NEEDS_QUOTES = re.compile(r'[ \t\n\r\v\f"\\()\[\],]')
_ESCAPED = re.compile(r'["\\]')


def range_text(data: bytes, bound_text: Callable[[bytes], str]) -> str:
    """Write a range's bytes as PostgreSQL does.

    Args:
        data: flags, then the length and the bytes of each finite bound.
        bound_text: writes a bound's bytes; it has to be given because a range's bytes do not name its bounds' type.
    """
    cursor = Cursor(data, "range")
    (flags,) = cursor.unpack(_FLAGS)
    if flags & ~_KNOWN_FLAGS:
        raise malformed("range", "has flags that there are none of")
    if flags & _EMPTY:
        cursor.finish()
        return "empty"
    lower = "" if flags & _LOWER_INFINITE else _quoted(bound_text(cursor.present()))
    upper = "" if flags & _UPPER_INFINITE else _quoted(bound_text(cursor.present()))
    cursor.finish()
    opening = "[" if flags & _LOWER_INCLUSIVE else "("
    closing = "]" if flags & _UPPER_INCLUSIVE else ")"
    return f"{opening}{lower},{upper}{closing}"


def multirange_text(data: bytes, bound_text: Callable[[bytes], str]) -> str:
    """Write a multirange's bytes as PostgreSQL does; see `range_text`."""
    cursor = Cursor(data, "multirange")
    ranges = [range_text(cursor.present(), bound_text) for _ in range(cursor.count(5))]
    cursor.finish()
    return f"{{{','.join(ranges)}}}"


def _quoted(text: str) -> str:
    if text and _NEEDS_QUOTES.search(text) is None:
        return text
    escaped = _ESCAPED.sub(r"\g<0>\g<0>", text)
    return f'"{escaped}"'
