"""Whether a column that a shared table has can hold another source's values: by their types, as SQL writes them.

A table that several sources write to has the widest of their types, where the values of each are exact in it.  Of all
else it is not said which is meant: it is a conflict.
"""

from __future__ import annotations

import re
from enum import Enum
from typing import Final

_RANKS: Final = (
    {"tinyint": 1, "smallint": 2, "int": 3, "bigint": 4},
    {"float": 1, "double": 2},
)
_DECIMAL: Final = re.compile(r"decimal\((\d+),(\d+)\)")


class Fit(Enum):
    """How a column that is there fits values of another type."""

    HOLDS = "holds"
    """It has their type, or one that holds all of them exactly."""
    WIDENS = "widens"
    """It has to be widened, which keeps the values that it has."""
    CONFLICTS = "conflicts"


def fit_of(there: str, wanted: str) -> Fit:
    """Say how a column fits.

    Args:
        there: its type, as Spark writes it; ``wanted`` is that of the values.

    >>> fit_of("bigint", "int"), fit_of("int", "bigint"), fit_of("int", "string")
    (<Fit.HOLDS: 'holds'>, <Fit.WIDENS: 'widens'>, <Fit.CONFLICTS: 'conflicts'>)
    """
    there, wanted = there.lower().replace(" ", ""), wanted.lower().replace(" ", "")
    if there == wanted or _is_wider(there, wanted):
        return Fit.HOLDS
    return Fit.WIDENS if _is_wider(wanted, there) else Fit.CONFLICTS


def _is_wider(one: str, other: str) -> bool:
    for ranks in _RANKS:
        if one in ranks and other in ranks:
            return ranks[one] > ranks[other]
    first, second = _DECIMAL.fullmatch(one), _DECIMAL.fullmatch(other)
    if first is None or second is None:
        return False
    (precision, scale), (least_precision, least_scale) = map(int, first.groups()), map(int, second.groups())
    return precision - least_precision >= scale - least_scale >= 0


__all__ = ["Fit", "fit_of"]
