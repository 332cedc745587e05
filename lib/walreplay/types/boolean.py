"""boolean: one letter."""

from walreplay.errors import ValueFormatError
from walreplay.types.cursor import malformed


def boolean_from_text(text: str) -> int:
    """Read PostgreSQL's ``t`` or ``f``."""
    if text in ("t", "f"):
        return int(text == "t")
    raise ValueFormatError("a boolean is neither t nor f")


def boolean_text(data: bytes) -> str:
    """Write a boolean's byte as ``t`` or ``f``."""
    if data not in (b"\0", b"\1"):
        raise malformed("boolean", "is neither 0 nor 1")
    return "t" if data == b"\1" else "f"
