"""PostgreSQL's log sequence numbers and its epoch.

An LSN is a byte position in the write-ahead log: a 64-bit integer, written for people as two
hexadecimal halves, ``X/X``.  Times on the wire count microseconds since 2000-01-01 00:00 UTC.
"""

import re
from datetime import datetime, timedelta, timezone
from typing import Final

from walreplay.errors import ValueFormatError

POSTGRES_EPOCH: Final = datetime(2000, 1, 1, tzinfo=timezone.utc)
POSTGRES_EPOCH_UNIX_MICROS: Final = 946_684_800_000_000  # from the Unix epoch to PostgreSQL's

_LSN = re.compile(r"([0-9A-Fa-f]{1,8})/([0-9A-Fa-f]{1,8})")


def format_lsn(lsn: int) -> str:
    """Write an LSN the way PostgreSQL does.

    >>> format_lsn(97500059720)
    '16/B374D848'
    """
    return f"{lsn >> 32:X}/{lsn & 0xFFFFFFFF:X}"


def parse_lsn(text: str) -> int:
    """Read an LSN written as ``X/X``.

    >>> parse_lsn("16/B374D848")
    97500059720

    Raises:
        ValueError: when the text has another form.
    """
    match = _LSN.fullmatch(text.strip())
    if match is None:
        raise ValueError(f"not an LSN: {text!r}; write it like 16/B374D848")
    return int(match[1], 16) << 32 | int(match[2], 16)


def to_datetime(micros: int) -> datetime:
    """Return the UTC time of a timestamp on the wire (microseconds since 2000-01-01).

    Raises:
        ValueFormatError: it lies outside of the years 1 to 9999.
    """
    try:
        return POSTGRES_EPOCH + timedelta(microseconds=micros)
    except OverflowError:
        raise ValueFormatError(
            f"a transaction's time is {micros:,} microseconds from 2000-01-01, outside of the years 1 to 9999",
            remedy="The sender's clock was wrong, or the file is damaged: fetch it from its source again",
        ) from None
