"""Intervals in any of the four IntervalStyles: reading them, and writing them as PostgreSQL does.

Only sql_standard writes ``1-2`` and ``3 4:05:06``, where one sign in front is valid for all parts.  If parts have signs
of their own, all three are written: ``+1-2 -3 +4:05:06``.  In postgres_verbose, ``ago`` reverses all signs.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

from walreplay.types.datetime import clock_text
from walreplay.types.interval import parts_text

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
    """Read an interval in any style; None for other texts, and for infinities, which all styles write alike."""
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


def interval_texts(interval: Interval) -> tuple[str, str, str, str]:
    """Write an interval in all styles: postgres, iso_8601, postgres_verbose, sql_standard."""
    months, days, micros = interval
    years = _quotient(months, 12)
    months -= 12 * years
    return (
        parts_text(years, months, days, micros),
        _iso_text(years, months, days, micros),
        _verbose_text(years, months, days, micros),
        _standard_text(years, months, days, micros),
    )


def _iso_text(years: int, months: int, days: int, micros: int) -> str:
    date = "".join(f"{value}{unit}" for value, unit in ((years, "Y"), (months, "M"), (days, "D")) if value)
    time = "".join(f"{value}{unit}" for value, unit in _clock_parts(micros, "HMS") if value)
    return f"P{date}T{time}" if time else f"P{date}" if date else "PT0S"


def _verbose_text(years: int, months: int, days: int, micros: int) -> str:
    values: list[tuple[int | str, str]] = [(years, "year"), (months, "mon"), (days, "day")]
    parts: list[str] = []
    ago: bool | None = None
    for value, unit in (*values, *_clock_parts(micros, ("hour", "min", "sec"))):
        if not value:
            continue
        if ago is None:
            # The first part is written without a sign, and the signs of the others are relative to its own.
            ago = str(value).startswith("-")
        text = str(value).removeprefix("-")
        written = text if str(value).startswith("-") == ago else f"-{text}"
        is_one = (text if unit == "sec" else written) == "1"
        parts.append(f"{written} {unit}{'' if is_one else 's'}")
    return f"@ {' '.join(parts)}{' ago' if ago else ''}" if parts else "@ 0"


def _standard_text(years: int, months: int, days: int, micros: int) -> str:
    parts = (years, months, days, micros)
    if not any(parts):
        return "0"
    is_negative, is_positive = any(part < 0 for part in parts), any(part > 0 for part in parts)
    has_months, has_time = bool(years or months), bool(days or micros)
    date, clock = f"{abs(years)}-{abs(months)}", clock_text(abs(micros))
    clock = clock.removeprefix("0") if abs(micros) < _TEN_HOURS else clock
    if (is_negative and is_positive) or (has_months and has_time):
        signs = ["-" if part < 0 else "+" for part in (years or months, days, micros)]
        return f"{signs[0]}{date} {signs[1]}{abs(days)} {signs[2]}{clock}"
    text = date if has_months else f"{abs(days)} {clock}" if days else clock
    return f"-{text}" if is_negative else text


_TEN_HOURS: Final = 36_000_000_000


def _clock_parts(micros: int, units: Sequence[str]) -> list[tuple[int | str, str]]:
    """Divide microseconds into hours, minutes and seconds (as text), each with the sign and its unit."""
    sign = -1 if micros < 0 else 1
    minutes, rest = divmod(abs(micros), 60_000_000)
    seconds, fraction = divmod(rest, 1_000_000)
    written: int | str = sign * seconds
    if fraction:
        written = f"{'-' if sign < 0 else ''}{seconds}.{fraction:06d}".rstrip("0")
    return list(zip((sign * (minutes // 60), sign * (minutes % 60), written), units, strict=True))


def _quotient(value: int, divisor: int) -> int:
    """Divide towards zero."""
    return -(-value // divisor) if value < 0 else value // divisor


__all__ = ["interval_from_text", "interval_texts"]
