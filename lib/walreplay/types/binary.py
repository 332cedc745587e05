r"""bytea: ``\x`` and hexadecimal digits, or the older escape form (the sender's bytea_output).

The forms cannot be mistaken for each other: the escape form writes a backslash as two.
"""

import re

from walreplay.errors import ValueFormatError

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
    return _ESCAPE.sub(_unescape, text).encode("latin-1")


def _unescape(match: re.Match[str]) -> str:
    return "\\" if match[1] == "\\" else chr(int(match[1], 8))


def bytea_text(data: bytes) -> str:
    """Write bytes in hex form."""
    return rf"\x{data.hex()}"


def escaped_text(data: bytes) -> str:
    """Write bytes in escape form."""
    return "".join(
        "\\\\" if byte == _BACKSLASH else chr(byte) if 0x20 <= byte <= 0x7E else f"\\{byte:03o}" for byte in data
    )
