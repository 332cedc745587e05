"""Everything that stays text: the bytes as sent, which have to be UTF-8 without NUL."""

from wal2delta.errors import ValueFormatError

NOT_UTF8 = "a text value is not UTF-8"
NOT_UTF8_REMEDY = "Set client_encoding to UTF8 where the capture is recorded"
HAS_NUL = "a text value contains a NUL byte, which PostgreSQL cannot store"


def decode_text(data: bytes) -> str:
    """Decode a text cell."""
    if b"\0" in data:
        raise ValueFormatError(HAS_NUL)
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError:
        raise ValueFormatError(NOT_UTF8, remedy=NOT_UTF8_REMEDY) from None
