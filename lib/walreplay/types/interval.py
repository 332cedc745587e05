"""interval in the IntervalStyle postgres: ``1 year 2 mons -3 days +04:05:06.7``.

From PostgreSQL 17 on, an interval whose three fields all have their largest (or smallest) values is an infinity.  For
older servers it is an ordinary interval, but one of 178,956,970 years.
"""

from __future__ import annotations

from struct import Struct
from typing import Final

from walreplay.types.cursor import unpack
from walreplay.types.datetime import clock_text

_INTERVAL: Final = Struct("!qii")
"""Microseconds, days, months."""

_INFINITIES: Final = {
    (2**63 - 1, 2**31 - 1, 2**31 - 1): "infinity",
    (-(2**63), -(2**31), -(2**31)): "-infinity",
}


def interval_text(data: bytes) -> str:
    """Write an interval's bytes as PostgreSQL does."""
    micros, days, months = unpack(_INTERVAL, data, "interval")
    infinity = _INFINITIES.get((micros, days, months))
    if infinity is not None:
        return infinity
    years = abs(months) // 12
    return parts_text(-years if months < 0 else years, months - (-years if months < 0 else years) * 12, days, micros)


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
