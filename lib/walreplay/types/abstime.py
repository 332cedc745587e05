"""abstime, reltime and tinterval, which ended with PostgreSQL 11: seconds in 32 bits."""

from __future__ import annotations

from struct import Struct
from typing import Final

from walreplay.types.cursor import malformed, unpack
from walreplay.types.datetime import unix_seconds_text
from walreplay.types.interval import parts_text

_SECONDS: Final = Struct("!i")
_TINTERVAL: Final = Struct("!iii")
"""Status, first and last abstime."""

_SPECIAL: Final = {0x7FFF_FFFE: "invalid", 0x7FFF_FFFC: "infinity", -(2**31): "-infinity"}
_YEAR: Final = 31_557_600
_MONTH: Final = 30 * 86_400
_DAY: Final = 86_400


def abstime_text(data: bytes) -> str:
    """Write an abstime's bytes as PostgreSQL does where TimeZone is UTC."""
    (seconds,) = unpack(_SECONDS, data, "abstime")
    return _abstime(seconds)


def reltime_text(data: bytes) -> str:
    """Write a reltime's bytes as PostgreSQL does: as an interval, whose years have 365.25 days."""
    (seconds,) = unpack(_SECONDS, data, "reltime")
    sign = -1 if seconds < 0 else 1
    years, rest = divmod(abs(seconds), _YEAR)
    months, rest = divmod(rest, _MONTH)
    days, rest = divmod(rest, _DAY)
    return parts_text(sign * years, sign * months, sign * days, sign * rest * 1_000_000)


def tinterval_text(data: bytes) -> str:
    """Write a tinterval's bytes as PostgreSQL does."""
    status, first, last = unpack(_TINTERVAL, data, "tinterval")
    if status == 0:
        return '["Undefined Range"]'
    if status != 1:
        raise malformed("tinterval", "is neither valid nor invalid")
    return f'["{_abstime(first)}" "{_abstime(last)}"]'


def _abstime(seconds: int) -> str:
    return _SPECIAL.get(seconds) or unix_seconds_text(seconds)
