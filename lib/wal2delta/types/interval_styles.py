"""Reading an interval's text in any of the four IntervalStyles; none of them can be taken for another.

Only sql_standard writes ``1-2`` and ``3 4:05:06``, where one sign in front holds for all; with signs of their own all
three parts stand there: ``+1-2 -3 +4:05:06``.  In postgres_verbose ``ago`` turns all signs.
"""

from __future__ import annotations

import re
from typing import Final

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
_MIXED = re.compile(rf"([+-])([0-9]+)-([0-9]+) ([+-])([0-9]+) ([+-])([0-9]+):([0-9]{{2}}):({_SECONDS})")

Interval = tuple[int, int, int]
"""Months, days, microseconds."""


def interval_from_text(text: str) -> Interval | None:
    """Read an interval; None for what is none, and for the infinities, which all styles write alike."""
    if text == "0":
        return 0, 0, 0
    if text.startswith("P"):
        match = _ISO.fullmatch(text)
        return None if match is None or len(text) == 1 else _parts(*match.groups())
    if text.startswith("@"):
        match = _VERBOSE.fullmatch(text)
        if match is None:
            return None
        months, days, micros = _parts(*match.groups()[:6])
        return (-months, -days, -micros) if match[7] else (months, days, micros)
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
    micros = int(whole) * 1_000_000 + int(fraction.ljust(6, "0") or "0")
    return -micros if seconds.startswith("-") else micros


def _signed(sign: str, value: int) -> int:
    return -value if sign == "-" else value


__all__ = ["interval_from_text"]
