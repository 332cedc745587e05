"""jsonb and jsonpath: a version byte, then the text (json itself is text alone)."""

from __future__ import annotations

from walreplay.types.cursor import malformed
from walreplay.types.text import decode_text

_VERSION = b"\x01"


def jsonb_text(data: bytes, codec: str) -> str:
    """Write a jsonb's bytes as PostgreSQL does."""
    return versioned_text(data, codec, "jsonb")


def jsonpath_text(data: bytes, codec: str) -> str:
    """Write a jsonpath's bytes as PostgreSQL does."""
    return versioned_text(data, codec, "jsonpath")


def versioned_text(data: bytes, codec: str, what: str) -> str:
    """Give the text after a version byte.

    Raises:
        ValueFormatError: the version is not 1.
    """
    if data[:1] != _VERSION:
        raise malformed(what, "has a version other than 1")
    return decode_text(data[1:], codec)
