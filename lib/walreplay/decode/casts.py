"""Which changes of a column's type leave values that follow from the old ones' texts, whatever the session's settings.

A change of type without USING applies PostgreSQL's assignment cast.  Most casts round, cut off, or depend on settings;
those here do not.  Types go by the oids of PostgreSQL's ``pg_type.dat``.
"""

from __future__ import annotations

from typing import Final

_INT8, _INT2, _INT4 = 20, 21, 23
_TEXT, _VARCHAR, _NUMERIC = 25, 1043, 1700
_FLOAT4, _FLOAT8 = 700, 701
_DATE, _TIMESTAMP = 1082, 1114
_JSON, _JSONB, _UUID = 114, 3802, 2950

_INTEGERS: Final = (_INT2, _INT4, _INT8)

_EXACT: Final = frozenset(
    {(old, new) for old in _INTEGERS for new in _INTEGERS}
    | {(old, new) for old in (*_INTEGERS, _NUMERIC, _VARCHAR, _JSON, _JSONB, _UUID) for new in (_TEXT, _VARCHAR)}
    | {(_TEXT, _VARCHAR), (_FLOAT4, _FLOAT8), (_INT2, _FLOAT8), (_INT4, _FLOAT8), (_DATE, _TIMESTAMP)}
    | {(old, _NUMERIC) for old in _INTEGERS}
)
"""Pairs (old, new) whose cast gives the same value, or fails, where the new type has no modifier."""

_GROWING: Final = frozenset({_VARCHAR, 1083, _TIMESTAMP, 1184, 1266, 1562})
"""varchar, times and timestamps, varbit: a greater modifier keeps all values."""

_MOST_DIGITS: Final = 38

_HEADER: Final = 4
"""A modifier is this much larger than the number that is written."""


def casts_exactly(old: tuple[int, int], new: tuple[int, int]) -> bool:
    """Say whether the cast of all values from one type to another keeps them.

    Args:
        old, new: the type's oid, and its modifier, -1 for none.
    """
    if old == new:
        return True
    (before, size), (after, limit) = old, new
    if after == _NUMERIC and limit >= 0:
        # The cast rounds to the scale, or fails where there are too few digits in front of it.
        digits, scale = _digits(limit)
        kept = before in _INTEGERS or (before == _NUMERIC and size >= 0 and _digits(size)[1] <= scale)
        # More digits are texts in the mirror, which have another scale then.
        return kept and scale <= digits <= _MOST_DIGITS
    if before == after and (limit < 0 or (before in _GROWING and 0 <= size <= limit)):
        return True
    # Of a longer text the cast cuts blanks off.
    return limit < 0 and (before, after) in _EXACT


def _digits(modifier: int) -> tuple[int, int]:
    """Give a numeric's precision and scale; of a negative scale a great one."""
    return (modifier - _HEADER) >> 16, (modifier - _HEADER) & 0x7FF


__all__ = ["casts_exactly"]
