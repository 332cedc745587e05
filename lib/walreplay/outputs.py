"""What a source table becomes in the target: its mirror, and other tables that the same changes are written to.

An output of a relation is planned like a relation of its own, with an oid that is derived from the relation's.  So
its name, its moves, its columns and its commits are its own, and follow the same rules.
"""

from __future__ import annotations

from enum import Enum
from typing import Final

_BITS: Final = 32
"""An oid of PostgreSQL's has so many."""


class Output(str, Enum):
    """An output, by the name that the configuration has for it."""

    MIRROR = "mirror"
    """The rows that the source has now."""
    HISTORY = "history"
    """Every version of each row, with the time from which and until which it held."""
    CHANGELOG = "changelog"
    """Every row change, one behind the other."""

    @property
    def number(self) -> int:
        """Its number, which is part of what the ledger keeps."""
        return _NUMBERS[self]

    def oid_of(self, source: int) -> int:
        """Give the oid that stands for the output of a source relation; the mirror's is the relation's own."""
        return self.number << _BITS | source


_NUMBERS: Final = {Output.MIRROR: 0, Output.HISTORY: 1, Output.CHANGELOG: 2}
_OUTPUTS: Final = {number: output for output, number in _NUMBERS.items()}

COUNT: Final = len(_NUMBERS)
"""How many outputs a relation may have."""


def source_oid(oid: int) -> int:
    """Give the source relation's own oid."""
    return oid & ((1 << _BITS) - 1)


def output_of(oid: int) -> Output:
    """Give the output that an oid stands for."""
    return _OUTPUTS[oid >> _BITS]


__all__ = ["COUNT", "Output", "output_of", "source_oid"]
