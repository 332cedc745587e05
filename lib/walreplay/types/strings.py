r"""Types that are nearly text: bytea, bit strings, ``"char"``, JSON and xml.

- bytea: ``\x`` and hexadecimal digits, or the older escape form (the sender's bytea_output).  They cannot be mistaken
  for each other: the escape form writes a backslash as two.
- bit and bit varying: zeros and ones.  The type ``"char"``: one byte.
- jsonb and jsonpath: a version byte, then the text (json itself is text alone).
- xml: text, whose declaration names an encoding only in binary format: there the server adds the recording session's
  encoding, unless it is UTF8.  In text format it leaves the encoding out, and the whole declaration if that says
  nothing else.
"""

from __future__ import annotations

import json
import re
from functools import partial
from typing import Any, Final

from walreplay.errors import ValueFormatError
from walreplay.types.base import INT32, Cursor, DoesNotFit, malformed
from walreplay.types.numbers import numeric_written
from walreplay.types.text import decode_text

_HEX = re.compile(r"\\x((?:[0-9A-Fa-f]{2})*)")
_ESCAPED = re.compile(r"(?:[ -\[\]-~]|\\\\|\\[0-3][0-7]{2})*")
_BACKSLASH = 0x5C
_ESCAPE = re.compile(r"\\(\\|[0-3][0-7]{2})")


def bytes_from_text(text: str) -> bytes:
    """Read a bytea in either form.

    Raises:
        ValueFormatError: it is in neither.
    """
    match = _HEX.fullmatch(text)
    if match is not None:
        return bytes.fromhex(match[1])
    if _ESCAPED.fullmatch(text) is None:
        raise ValueFormatError("a bytea is neither in hex nor in escape form")
    return _ESCAPE.sub(lambda match: "\\" if match[1] == "\\" else chr(int(match[1], 8)), text).encode("latin-1")


def bytea_text(data: bytes) -> str:
    """Write bytes in hex form."""
    return rf"\x{data.hex()}"


def bits_text(data: bytes) -> str:
    """Write the bytes of a bit or bit varying as PostgreSQL does."""
    cursor = Cursor(data, "bit")
    (length,) = cursor.unpack(INT32)
    if length < 0 or cursor.left != (length + 7) // 8:  # the last byte is filled up with zeros
        raise malformed("bit", "has another length than its number of bits asks for")
    packed = cursor.take(cursor.left)
    return f"{int.from_bytes(packed, 'big'):0{8 * len(packed)}b}"[:length] if length else ""


def char_text(data: bytes) -> str:
    r"""Write the byte of a ``"char"``: 0 is the empty text, a byte above 127 an octal escape (``\351``).

    That is the form from PostgreSQL 16 on; older servers write the byte itself, which is not UTF-8.
    """
    if len(data) != 1:
        raise malformed('"char"', f"has {len(data)} bytes instead of 1")
    if data == b"\0":
        return ""
    return chr(data[0]) if data[0] < 0x80 else f"\\{data[0]:03o}"


_VERSION = b"\x01"


def versioned_text(data: bytes, codec: str, what: str) -> str:
    """Return the text after a version byte.

    Raises:
        ValueFormatError: the version is not 1.
    """
    if data[:1] != _VERSION:
        raise malformed(what, "has a version other than 1")
    return decode_text(data[1:], codec)


jsonb_text: Final = partial(versioned_text, what="jsonb")
jsonpath_text: Final = partial(versioned_text, what="jsonpath")


class _Number(str):
    """A number's text, which is no JSON string."""

    __slots__ = ()


def jsonb_from_json(text: str) -> str:
    """Write json as its cast to jsonb does: shorter keys first, equally long ones by their bytes; the last of equals.

    Raises:
        DoesNotFit: jsonb cannot hold it (NUL, half a surrogate pair), or it is nested too deep to be read here.
    """
    try:
        # As floats, long numbers would lose digits.
        return _json(json.loads(text, parse_int=_Number, parse_float=_Number))
    except (ValueError, RecursionError):
        raise DoesNotFit from None


def _json(value: Any) -> str:
    if isinstance(value, dict):
        keys = sorted(value, key=lambda key: (len(key.encode()), key.encode()))  # jsonb's own order
        return "{" + ", ".join(f"{_json(key)}: {_json(value[key])}" for key in keys) + "}"
    if isinstance(value, list):
        return f"[{', '.join(map(_json, value))}]"
    if isinstance(value, _Number):
        return numeric_written(value)
    if isinstance(value, str) and "\0" in value:
        raise DoesNotFit
    written = json.dumps(value, ensure_ascii=False)
    written.encode()  # fails for half a surrogate pair
    return written


_ENCODED = re.compile(r'<\?xml version="([^"]*)" encoding="[^"]*"( standalone="(?:yes|no)")?\?>')
_DEFAULT_VERSION = "1.0"


def xml_text(data: bytes, codec: str) -> str:
    """Write an xml's bytes as PostgreSQL does."""
    text = decode_text(data, codec)
    declaration = _ENCODED.match(text)
    if declaration is None:
        return text
    version, standalone = declaration[1], declaration[2] or ""
    rest = text[declaration.end() :]
    if version == _DEFAULT_VERSION and not standalone:  # such a declaration says nothing
        return rest.removeprefix("\n")
    return f'<?xml version="{version}"{standalone}?>{rest}'
