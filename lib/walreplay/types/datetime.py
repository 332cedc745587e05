"""Dates, times and intervals, and abstime, reltime and tinterval, which ended with PostgreSQL 11.

- date, timestamp and timestamptz in ISO form become days and microseconds since 1970-01-01 (UTC).  The columns hold the
  years 1 to 9999 of PostgreSQL's calendar, the proleptic Gregorian one.  A timestamptz is judged by its UTC time: the
  zone it is written in is the sender's setting, not part of the value.
- interval in the IntervalStyle postgres: ``1 year 2 mons -3 days +04:05:06.7``.  From PostgreSQL 17 on, an interval
  whose three fields all have their largest (or smallest) values is an infinity.  For older servers it is an ordinary
  interval, but one of 178,956,970 years.
- abstime, reltime and tinterval: seconds in 32 bits.
- Intervals are read in all four IntervalStyles.  Only sql_standard writes ``1-2`` and ``3 4:05:06``, where one sign in
  front is valid for all parts.  If parts have signs of their own, all three are written: ``+1-2 -3 +4:05:06``.  In
  postgres_verbose, ``ago`` reverses all signs.
"""

from __future__ import annotations

import re
from calendar import monthrange
from functools import partial
from struct import Struct
from typing import Final

import numpy as np

from walreplay.errors import ValueFormatError
from walreplay.types.base import DoesNotFit, fixed_writer, malformed

_DAY_MICROS: Final = 86_400_000_000
MICROSECONDS: Final = 6
"""The most decimals of a second."""
_INFINITE = ("infinity", "-infinity")

_DATE = re.compile(r"([0-9]{4,7})-([0-9]{2})-([0-9]{2})( BC)?")
_TIMESTAMP = re.compile(
    r"([0-9]{4,7}-[0-9]{2}-[0-9]{2}) ([0-9]{2}):([0-9]{2}):([0-9]{2})(?:\.([0-9]{1,6}))?"
    r"(?:([+-])([0-9]{2})(?::([0-9]{2})(?::([0-9]{2}))?)?)?( BC)?"
)
_EPOCH_DAYS: Final = 10_957  # PostgreSQL's epoch, 2000-01-01, in days since 1970-01-01
EPOCH_MICROS: Final = _EPOCH_DAYS * _DAY_MICROS

_DATE_INFINITIES: Final = {2**31 - 1: "infinity", -(2**31): "-infinity"}
_TIMESTAMP_INFINITIES: Final = {2**63 - 1: "infinity", -(2**63): "-infinity"}
_DATES: Final = range(-2_451_545, 2_145_031_949)
_TIMESTAMPS: Final = range(-211_813_488_000_000_000, 9_223_371_331_200_000_001)
"""PostgreSQL's own limits: 4714-11-24 BC (Julian day 0) to the years 5874897 and 294276.

It does not look at them again once it has rounded to a column's precision: a timestamp(0) may be the first moment of
294277.
"""
_ZONES: Final = range(1 - 16 * 3600, 16 * 3600)

_REMEDY = (
    "Set DateStyle to ISO where the capture is recorded; what is recorded already can be kept as it stands, with "
    "type_overrides to text"
)


def days_from_civil(year: int, month: int, day: int) -> int:
    """Count the days from 1970-01-01 to a date; year 0 is 1 BC."""
    shifted = year - (month <= 2)  # years from March on: the leap day is the last one
    era_day = (153 * ((month + 9) % 12) + 2) // 5 + day - 1
    # 719,468 days from 0000-03-01 to 1970-01-01.
    return shifted * 365 + shifted // 4 - shifted // 100 + shifted // 400 + era_day - 719_468


FIRST_DAY: Final = days_from_civil(1, 1, 1)
LAST_DAY: Final = days_from_civil(9999, 12, 31)
FIRST_MICRO: Final = FIRST_DAY * _DAY_MICROS
LAST_MICRO: Final = (LAST_DAY + 1) * _DAY_MICROS - 1


def days_from_text(text: str) -> int:
    """Read a date as days since 1970-01-01.

    Raises:
        DoesNotFit: it is an infinity, or its year is outside 1 to 9999.
        ValueFormatError: it is no date in ISO form.
    """
    if text in _INFINITE:
        raise DoesNotFit
    days = _days(text)
    if not FIRST_DAY <= days <= LAST_DAY:
        raise DoesNotFit
    return days


def micros_from_text(text: str, *, with_zone: bool) -> int:
    """Read a timestamp, or a timestamptz (which has an offset from UTC), as microseconds since 1970-01-01.

    Raises:
        DoesNotFit: it is an infinity, or its year (of a timestamptz, in UTC) is outside 1 to 9999.
        ValueFormatError: it is not in ISO form.
    """
    if text in _INFINITE:
        raise DoesNotFit
    match = _TIMESTAMP.fullmatch(text)
    if match is None or (match[6] is not None) != with_zone:
        raise _not_iso("timestamptz" if with_zone else "timestamp")
    # Zones are less than 16 hours from UTC.
    if any(part > most for part, most in zip(_clock_parts(match), (23, 59, 59, 15, 59, 59), strict=True)):
        raise _not_iso("timestamptz" if with_zone else "timestamp")
    micros = _micros_of(match)
    if not FIRST_MICRO <= micros <= LAST_MICRO:
        raise DoesNotFit
    return micros


def in_utc(text: str, precision: int = MICROSECONDS) -> str | None:
    """Write a timestamp of any year, or a timestamptz where TimeZone is UTC, as PostgreSQL does; None if it is neither.

    Args:
        precision: how many decimals of a second it is rounded to.
    """
    match = _TIMESTAMP.fullmatch(text)
    if match is None:
        return None
    try:
        micros = _micros_of(match) - EPOCH_MICROS
        return _timestamp("timestamptz", rounded(micros, precision), "+00" if match[6] else "")
    except ValueFormatError:
        return None


def _clock_parts(match: re.Match[str]) -> list[int]:
    """Return a timestamp's hour, minute and second, and those of its zone."""
    return [int(part or "0") for part in match.group(2, 3, 4, 7, 8, 9)]


def _micros_of(match: re.Match[str]) -> int:
    """Return a timestamp as microseconds since 1970-01-01, of any year."""
    hour, minute, second, *zone = _clock_parts(match)
    offset = zone[0] * 3600 + zone[1] * 60 + zone[2]
    seconds = hour * 3600 + minute * 60 + second - _signed(match[6], offset)
    return _days(match[1] + (match[10] or "")) * _DAY_MICROS + seconds * 1_000_000 + _fraction(match[5] or "")


def _fraction(digits: str) -> int:
    """Return the microseconds of a second's decimals."""
    return int(digits.ljust(6, "0"))


def rounded(micros: int, precision: int) -> int:
    """Round to so many decimals of a second, half away from zero; a timestamp counts from 2000-01-01."""
    unit: int = 10 ** (MICROSECONDS - precision)
    return (abs(micros) + unit // 2) // unit * unit * (-1 if micros < 0 else 1)


def _days(text: str) -> int:
    match = _DATE.fullmatch(text)
    if match is None:
        raise _not_iso("date")
    year, month, day = int(match[1]), int(match[2]), int(match[3])
    if year == 0:  # 1 BC is written as 0001 BC
        raise _not_iso("date")
    if match[4]:
        year = 1 - year
    if not 1 <= month <= 12 or not 1 <= day <= monthrange(year, month)[1]:
        raise _not_iso("date")
    return days_from_civil(year, month, day)


def _not_iso(name: str) -> ValueFormatError:
    return ValueFormatError(f"a {name} is not in ISO form", remedy=_REMEDY)


def clock_text(micros: int) -> str:
    """Write microseconds as ``HH:MM:SS`` with as many decimals as they need; there may be more than 24 hours."""
    seconds, fraction = divmod(micros, 1_000_000)
    minutes, second = divmod(seconds, 60)
    text = f"{minutes // 60:02d}:{minutes % 60:02d}:{second:02d}"
    return f"{text}.{fraction:06d}".rstrip("0") if fraction else text


def _date(days: int) -> str:
    if days in _DATE_INFINITIES:
        return _DATE_INFINITIES[days]
    if days not in _DATES:
        raise _outside("date")
    written, era = _civil_text(days + _EPOCH_DAYS)
    return written + era


def _timestamp(name: str, micros: int, zone: str) -> str:
    if micros in _TIMESTAMP_INFINITIES:
        return _TIMESTAMP_INFINITIES[micros]
    if micros not in _TIMESTAMPS:
        raise _outside(name)
    days, rest = divmod(micros, _DAY_MICROS)
    written, era = _civil_text(days + _EPOCH_DAYS)
    return f"{written} {clock_text(rest)}{zone}{era}"


def _time_with_zone(micros: int, west: int) -> str:
    """Write a timetz, whose zone is part of the value, and counts in seconds *west* of UTC."""
    if west not in _ZONES:
        raise _outside("timetz")
    minutes, seconds = divmod(abs(west), 60)
    zone = f"{'-' if west > 0 else '+'}{minutes // 60:02d}"
    if minutes % 60 or seconds:
        zone += f":{minutes % 60:02d}"
    if seconds:
        zone += f":{seconds:02d}"
    return _time_of_day("timetz", micros) + zone


def _time_of_day(name: str, micros: int) -> str:
    if not 0 <= micros <= _DAY_MICROS:  # 24:00:00 is a time
        raise _outside(name)
    return clock_text(micros)


def _civil_text(days: int) -> tuple[str, str]:
    """Write the date of a day since 1970-01-01, and the suffix for its era (`` BC`` or nothing)."""
    written, month, day = str(np.datetime64(days, "D")).rsplit("-", 2)
    year = int(written)  # 0 is 1 BC
    return f"{year if year > 0 else 1 - year:04d}-{month}-{day}", "" if year > 0 else " BC"


def _outside(name: str) -> ValueFormatError:
    return malformed(name, "lies outside its type's limits")


date_text: Final = fixed_writer(Struct("!i"), "date", _date)
time_text: Final = fixed_writer(Struct("!q"), "time", partial(_time_of_day, "time"))
timetz_text: Final = fixed_writer(Struct("!qi"), "timetz", _time_with_zone)
timestamp_text: Final = fixed_writer(Struct("!q"), "timestamp", partial(_timestamp, "timestamp", zone=""))
timestamptz_text: Final = fixed_writer(Struct("!q"), "timestamptz", partial(_timestamp, "timestamptz", zone="+00"))
"""timestamptz is written as where TimeZone is UTC.  Dates and timestamps count from 2000-01-01, times from midnight."""

_INFINITIES: Final = {
    (2**63 - 1, 2**31 - 1, 2**31 - 1): "infinity",
    (-(2**63), -(2**31), -(2**31)): "-infinity",
}


def _interval(micros: int, days: int, months: int) -> str:
    return _INFINITIES.get((micros, days, months)) or interval_written(months, days, micros)


def interval_written(months: int, days: int, micros: int) -> str:
    """Write an interval as PostgreSQL does."""
    years = abs(months) // 12 * (-1 if months < 0 else 1)
    return parts_text(years, months - 12 * years, days, micros)


def parts_text(years: int, months: int, days: int, micros: int) -> str:
    """Write an interval of these parts, each with its own sign."""
    parts: list[str] = []
    behind_negative = False
    for value, unit in ((years, "year"), (months, "mon"), (days, "day")):
        if value:
            # A part has a plus sign only if the one before it is negative.
            plus = "+" if behind_negative and value > 0 else ""
            parts.append(f"{plus}{value} {unit}{'' if value == 1 else 's'}")
            behind_negative = value < 0
    if micros or not parts:
        sign = "-" if micros < 0 else "+" if behind_negative else ""
        parts.append(sign + clock_text(abs(micros)))
    return " ".join(parts)


interval_text: Final = fixed_writer(Struct("!qii"), "interval", _interval)

_SPECIAL: Final = {0x7FFF_FFFE: "invalid", 0x7FFF_FFFC: "infinity", -(2**31): "-infinity"}
_YEAR: Final = 31_557_600
_MONTH: Final = 30 * 86_400
_DAY: Final = 86_400


def _abstime(seconds: int) -> str:
    micros = (seconds - _EPOCH_DAYS * _DAY) * 1_000_000
    return _SPECIAL.get(seconds) or _timestamp("abstime", micros, "+00")


def _reltime(seconds: int) -> str:
    """Write a reltime as an interval, whose years have 365.25 days."""
    years, rest = divmod(abs(seconds), _YEAR)
    months, rest = divmod(rest, _MONTH)
    days, rest = divmod(rest, _DAY)
    sign = -1 if seconds < 0 else 1
    return parts_text(sign * years, sign * months, sign * days, sign * rest * 1_000_000)


def _tinterval(status: int, first: int, last: int) -> str:
    if status == 0:  # invalid: its ends say nothing
        return '["Undefined Range"]'
    if status != 1:
        raise malformed("tinterval", "is neither valid nor invalid")
    return f'["{_abstime(first)}" "{_abstime(last)}"]'


abstime_text: Final = fixed_writer(Struct("!i"), "abstime", _abstime)
reltime_text: Final = fixed_writer(Struct("!i"), "reltime", _reltime)
tinterval_text: Final = fixed_writer(Struct("!iii"), "tinterval", _tinterval)


# Intervals in any IntervalStyle

_SECONDS: Final = r"[0-9]{2}(?:\.[0-9]{1,6})?"
_POSTGRES = re.compile(
    r"(?:([+-]?[0-9]+) years?)? ?(?:([+-]?[0-9]+) mons?)? ?(?:([+-]?[0-9]+) days?)? ?"
    rf"(?:([+-]?)([0-9]+):([0-9]{{2}}):({_SECONDS}))?"
)
_VERBOSE = re.compile(
    r"@ (?:0|(?:(-?[0-9]+) years? ?)?(?:(-?[0-9]+) mons? ?)?(?:(-?[0-9]+) days? ?)?"
    r"(?:(-?[0-9]+) hours? ?)?(?:(-?[0-9]+) mins? ?)?(?:(-?[0-9]+(?:\.[0-9]{1,6})?) secs? ?)?)( ?ago)?"
)
_ISO = re.compile(
    r"P(?:(-?[0-9]+)Y)?(?:(-?[0-9]+)M)?(?:(-?[0-9]+)D)?"
    r"(?:T(?:(-?[0-9]+)H)?(?:(-?[0-9]+)M)?(?:(-?[0-9]+(?:\.[0-9]{1,6})?)S)?)?"
)
_YEAR_MONTH = re.compile(r"(-?)([0-9]+)-([0-9]+)")
_DAY_TIME = re.compile(rf"(-?)([0-9]+) ([0-9]+):([0-9]{{2}}):({_SECONDS})")
_CLOCK = re.compile(rf"([0-9]{{2}}):([0-9]{{2}}):({_SECONDS})((?:[+-][0-9:]+)?)")
_MIXED = re.compile(rf"([+-])([0-9]+)-([0-9]+) ([+-])([0-9]+) ([+-])([0-9]+):([0-9]{{2}}):({_SECONDS})")

Interval = tuple[int, int, int]
"""Months, days, microseconds."""


def interval_from_text(text: str) -> Interval | None:
    """Read an interval in any style; None for other texts, and for infinities, which all styles write alike."""
    if text == "0":  # sql_standard's empty interval
        return 0, 0, 0
    if text.startswith("P"):
        match = _ISO.fullmatch(text)
        return None if match is None or len(text) == 1 else _parts(*match.groups())  # a P alone is none
    if text.startswith("@"):
        match = _VERBOSE.fullmatch(text)
        if match is None:
            return None
        months, days, micros = _parts(*match.groups()[:6])
        return (-months, -days, -micros) if match[7] else (months, days, micros)  # ago
    match = _POSTGRES.fullmatch(text)
    if match is not None and text:
        years, months_, days_, sign, *clock = match.groups()
        months, days, _ = _parts(years, months_, days_, None, None, None)
        return months, days, _clock(sign, *clock) if clock[0] else 0
    return _standard(text)


def _standard(text: str) -> Interval | None:
    match = _YEAR_MONTH.fullmatch(text)
    if match is not None:
        return _signed(match[1], 12 * int(match[2]) + int(match[3])), 0, 0
    match = _DAY_TIME.fullmatch(text)
    if match is not None:
        return 0, _signed(match[1], int(match[2])), _clock(match[1], *match.groups()[2:])
    match = _MIXED.fullmatch(text)
    if match is not None:
        months = _signed(match[1], 12 * int(match[2]) + int(match[3]))
        return months, _signed(match[4], int(match[5])), _clock(match[6], *match.groups()[6:])
    return None


_UNITS: Final = {"second": 1 << 12, "minute": 1 << 11, "hour": 1 << 10, "day": 1 << 3, "month": 1 << 1}
"""The bits of an interval's fields in its modifier, the smallest field first; a year alone has none of them."""


def interval_modifier(typmod: int) -> tuple[str, int]:
    """Return the smallest field that a type's modifier leaves an interval, and how many decimals of its seconds."""
    # All bits are set where there is no modifier (-1), or no precision.
    field = next((name for name, bit in _UNITS.items() if typmod >> 16 & bit), "year")
    return field, min(typmod & 0xFFFF, MICROSECONDS)


def interval_cut(text: str, field: str, precision: int) -> str:
    """Cut an interval to the fields down to one, and round its seconds; infinities, and texts of other forms, stay."""
    parts = interval_from_text(text)
    if parts is None:
        return text
    months, days, micros = parts
    unit = {"hour": 3_600_000_000, "minute": 60_000_000}.get(field, 1)
    micros = abs(micros) // unit * unit * (-1 if micros < 0 else 1) if field in ("hour", "minute", "second") else 0
    if field in ("year", "month"):
        days = 0
    if field == "year":
        months = abs(months) // 12 * 12 * (-1 if months < 0 else 1)
    return interval_written(months, days, rounded(micros, precision))


def clock_rounded(text: str, precision: int) -> str:
    """Round a time of day, with or without a zone; texts of other forms stay."""
    match = _CLOCK.fullmatch(text)
    return text if match is None else clock_text(rounded(_clock("", *match.groups()[:3]), precision)) + match[4]


def clock_of_interval(text: str) -> str:
    """Return the time of day that an interval becomes: days and months do not count.

    Raises:
        DoesNotFit: it is an infinity.
    """
    parts = interval_from_text(text)
    if parts is None:
        raise DoesNotFit
    return clock_text(parts[2] % _DAY_MICROS)  # a negative time counts back from midnight


def _parts(
    years: str | None,
    months: str | None,
    days: str | None,
    hours: str | None,
    minutes: str | None,
    seconds: str | None,
) -> Interval:
    clock = (int(hours or 0) * 60 + int(minutes or 0)) * 60_000_000 + _micros(seconds or "0")
    return 12 * int(years or 0) + int(months or 0), int(days or 0), clock


def _clock(sign: str, hours: str, minutes: str, seconds: str) -> int:
    return _signed(sign, (int(hours) * 60 + int(minutes)) * 60_000_000 + _micros(seconds))


def _micros(seconds: str) -> int:
    whole, _, fraction = seconds.lstrip("-").partition(".")
    micros = int(whole) * 1_000_000 + _fraction(fraction)
    return -micros if seconds.startswith("-") else micros


def _signed(sign: str, value: int) -> int:
    return -value if sign == "-" else value
