"""The axis of time of histories: it never goes back, so that a moment on it is a cut between whole transactions.

A server's commit times may go back a little from one commit to the next.  A change's time on the axis is the greatest
commit time among all transactions of the stream up to its own, in commit order.  So at any time t the axis has what
the longest prefix of transactions wrote that comes before the first commit later than t.

It is put together from three parts, because the transactions of a run may be too many for one place:

- a decoding task knows the transactions of a unit of its file, and takes the greatest time among those up to each row's
  (`Commits`);
- the driver knows one number of each unit, and with it the greatest time before each;
- streamed and prepared transactions may lie in no unit, if nothing is left of them: the plan has them all.

Times are in microseconds since 1970-01-01 UTC.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

NO_TIME: Final = np.iinfo(np.int64).min
"""Earlier than every commit."""


@dataclass(frozen=True, slots=True)
class Commits:
    """Transactions in commit order, and the greatest commit time up to each.

    Attributes:
        lsn: commit LSNs, sorted.
    """

    lsn: NDArray[np.int64]
    top: NDArray[np.int64]

    @classmethod
    def of(cls, lsn: NDArray[np.int64], time: NDArray[np.int64]) -> Commits:
        """Sort transactions by their commit LSNs; one may come in several parts, or as copies."""
        order = np.argsort(lsn, kind="stable")
        return cls(lsn[order], np.maximum.accumulate(time[order]))

    @property
    def last(self) -> int:
        """The greatest time of all; `NO_TIME` if there are none."""
        return int(self.top[-1]) if len(self.top) else NO_TIME

    def up_to(self, lsn: NDArray[np.int64]) -> NDArray[np.int64]:
        """Give the greatest time among the transactions up to each LSN."""
        if not len(self.lsn):
            return np.full(len(lsn), NO_TIME)
        at = np.searchsorted(self.lsn, lsn, side="right") - 1
        return np.where(at >= 0, self.top[np.maximum(at, 0)], NO_TIME)


@dataclass(frozen=True, slots=True)
class Axis:
    """What a run knows of the axis beyond the units of its files.

    Attributes:
        units: the sequence number of each unit, rising; ``before`` has the greatest time in front of each.
        decided: the streamed and prepared transactions.
        end: the greatest time of all, with those of earlier runs; `NO_TIME` if there are none.
    """

    units: NDArray[np.int64]
    before: NDArray[np.int64]
    decided: Commits
    end: int

    @classmethod
    def of(cls, before: int, units: Sequence[tuple[int, int]], decided: Iterable[tuple[int, int]]) -> Axis:
        """Put the axis of a run together.

        Args:
            before: the greatest time of earlier runs; `NO_TIME` if there are none.
            units: sequence number and greatest time of each.
            decided: commit LSN and time of the streamed and prepared transactions.
        """
        ordered = np.array(sorted(units), np.int64).reshape(-1, 2)
        pairs = np.array(list(decided), np.int64).reshape(-1, 2)
        commits = Commits.of(pairs[:, 0], pairs[:, 1])
        tops = np.maximum.accumulate(np.concatenate([[before], ordered[:, 1]]))
        return cls(ordered[:, 0], tops[:-1], commits, max(int(tops[-1]), commits.last))

    def times(self, unit: int, lsn: NDArray[np.int64], top: NDArray[np.int64]) -> NDArray[np.int64]:
        """Give the times of changes.

        Args:
            unit: the sequence number of the unit that they lie in.
            lsn: their commit LSNs; ``top`` is what is known of them in their unit.
        """
        at = int(np.searchsorted(self.units, unit, side="right")) - 1
        before = int(self.before[at]) if at >= 0 else NO_TIME
        return np.maximum(np.maximum(top, before), self.decided.up_to(lsn))


NO_AXIS: Final = Axis.of(NO_TIME, (), ())
"""The axis of a run that has no transactions."""

__all__ = ["NO_AXIS", "NO_TIME", "Axis", "Commits"]
