"""date, timestamp and timestamptz in ISO form, as days and microseconds since 1970-01-01 (UTC).

The columns hold the years 1 to 9999 of PostgreSQL's calendar, the proleptic Gregorian one.  A timestamptz
is judged by its UTC time: the zone it is written in is the sender's setting, not part of the value.
"""

import re
from typing import Final

from wal2delta.errors import ValueFormatError
from wal2delta.types.base import DoesNotFit

_DAY_MICROS: Final = 86_400_000_000
_INFINITE = ("infinity", "-infinity")

_DATE = re.compile(r"([0-9]{4,7})-([0-9]{2})-([0-9]{2})( BC)?")
_TIMESTAMP = re.compile(
    r"([0-9]{4,7}-[0-9]{2}-[0-9]{2}) ([0-9]{2}):([0-9]{2}):([0-9]{2})(?:\.([0-9]{1,6}))?"
    r"(?:([+-])([0-9]{2})(?::([0-9]{2})(?::([0-9]{2}))?)?)?( BC)?"
)
_REMEDY = "Set DateStyle to ISO where the capture is recorded"


def days_from_civil(year: int, month: int, day: int) -> int:
    """Count the days since 1970-01-01; year 0 is 1 BC."""
    shifted = year - (month <= 2)
    era_day = (153 * ((month + 9) % 12) + 2) // 5 + day - 1
    return shifted * 365 + shifted // 4 - shifted // 100 + shifted // 400 + era_day - 719_468


FIRST_DAY: Final = days_from_civil(1, 1, 1)
LAST_DAY: Final = days_from_civil(9999, 12, 31)
FIRST_MICRO: Final = FIRST_DAY * _DAY_MICROS
LAST_MICRO: Final = (LAST_DAY + 1) * _DAY_MICROS - 1


def days_from_text(text: str) -> int:
    """Read a date.

    Raises:
        DoesNotFit: an infinity, or a year outside 1 to 9999.
    """
    if text in _INFINITE:
        raise DoesNotFit
    days = _days(text)
    if not FIRST_DAY <= days <= LAST_DAY:
        raise DoesNotFit
    return days


def micros_from_text(text: str, *, with_zone: bool) -> int:
    """Read a timestamp, or a timestamptz, which has an offset from UTC.

    Raises:
        DoesNotFit: an infinity, or a year outside 1 to 9999.
    """
    if text in _INFINITE:
        raise DoesNotFit
    match = _TIMESTAMP.fullmatch(text)
    if match is None or (match[6] is not None) != with_zone:
        raise _not_iso("timestamptz" if with_zone else "timestamp")
    hour, minute, second = int(match[2]), int(match[3]), int(match[4])
    zone = [int(part or "0") for part in match.group(7, 8, 9)]
    if hour > 23 or minute > 59 or second > 59 or zone[0] > 15 or zone[1] > 59 or zone[2] > 59:
        raise _not_iso("timestamptz" if with_zone else "timestamp")
    offset = zone[0] * 3600 + zone[1] * 60 + zone[2]
    seconds = hour * 3600 + minute * 60 + second - (-offset if match[6] == "-" else offset)
    micros = _days(match[1] + (match[10] or "")) * _DAY_MICROS + seconds * 1_000_000
    micros += int((match[5] or "0").ljust(6, "0"))
    if not FIRST_MICRO <= micros <= LAST_MICRO:
        raise DoesNotFit
    return micros


def _days(text: str) -> int:
    match = _DATE.fullmatch(text)
    if match is None:
        raise _not_iso("date")
    year, month, day = int(match[1]), int(match[2]), int(match[3])
    if year == 0:  # 1 BC is written as 0001 BC
        raise _not_iso("date")
    if match[4]:
        year = 1 - year
    if not 1 <= month <= 12 or not 1 <= day <= _month_days(year, month):
        raise _not_iso("date")
    return days_from_civil(year, month, day)


def _month_days(year: int, month: int) -> int:
    if month == 2:
        return 29 if year % 4 == 0 and (year % 100 != 0 or year % 400 == 0) else 28
    return 30 if month in (4, 6, 9, 11) else 31


def _not_iso(name: str) -> ValueFormatError:
    return ValueFormatError(f"a {name} is not in ISO form", remedy=_REMEDY)
