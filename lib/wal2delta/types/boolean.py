"""boolean: one letter."""

from wal2delta.errors import ValueFormatError


def boolean_from_text(text: str) -> int:
    """Read PostgreSQL's ``t`` or ``f``."""
    if text in ("t", "f"):
        return int(text == "t")
    raise ValueFormatError("a boolean is neither t nor f")
