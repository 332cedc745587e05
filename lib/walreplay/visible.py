"""Text that is safe to show: control characters, line breaks and invisible characters are escaped.

Names come from captures, folders and configurations, and may hold anything.
"""

from __future__ import annotations

import json
from collections.abc import Collection
from typing import Any, Final

_BYTE: Final = 0xFF
_PLANE: Final = 0xFFFF


def visible(text: str) -> str:
    r"""Return a text as one line that shows all there is in it, and does nothing else.

    Controls (line ends, escape sequences), formats (what turns the direction of writing, or has no width), blanks that
    look like a space, private and unassigned characters, and halves of surrogate pairs (which stand for the bytes of a
    file's name that are no text) are written as in a Python string.  What comes out is left as it is the next time.

    >>> visible("a\nb\x1b[2J")
    'a\\x0ab\\x1b[2J'
    """
    return text if text.isprintable() else "".join(char if char.isprintable() else _escaped(char) for char in text)


def listed(names: Collection[str], most: int = 5) -> str:
    """Return the first names, for a sentence; dots stand for the others."""
    return ", ".join(list(names)[:most]) + (", …" if len(names) > most else "")


def _escaped(char: str) -> str:
    code = ord(char)
    return f"\\x{code:02x}" if code <= _BYTE else f"\\u{code:04x}" if code <= _PLANE else f"\\U{code:08x}"


def visible_json(values: Any, *, indent: int | None = None) -> str:
    """Write JSON in which such characters are escaped as JSON has it."""
    text = json.dumps(values, ensure_ascii=False, indent=indent)
    # Within texts line ends are escaped already.
    return "".join(char if char.isprintable() or char == "\n" else _escaped_json(char) for char in text)


def _escaped_json(char: str) -> str:
    return f"\\u{ord(char):04x}" if ord(char) <= _PLANE else json.dumps(char)[1:-1]
