"""What rows are, state after state: the truth that mirrors, histories and change logs are held against."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, replace
from typing import Any


@dataclass(slots=True, eq=False)
class State:
    """What a row is from one change to the next.

    Attributes:
        lsn, time, ordinal: of the change that has made it: commit LSN, commit time, and its number in the transaction.
        op: c(reate) or u(pdate): how the row came to be what it is at the transaction's end.
        end: the commit LSN of what has ended it.
        former: the state that it goes on from, if that told it from others in the same way.
    """

    values: Any
    lsn: int
    time: int = 0
    ordinal: int = 0
    op: str = "c"
    end: int | None = None
    former: State | None = None

    @property
    def lasts(self) -> bool:
        """Whether it outlives the transaction that has made it: nobody sees it otherwise."""
        return self.end != self.lsn


class RowStates:
    """A table's rows, in no order that means anything, and what they were before.

    Args:
        image: what of a row's values tells it from others; of rows that are equal in it the newest goes first.

    Attributes:
        missed: how many changes were about rows that are not there.
    """

    def __init__(self, image: Callable[[Any], Hashable] = tuple) -> None:
        self.image = image
        self.missed = 0
        self._ended: list[State] = []
        self._open: dict[Hashable, list[State]] = {}

    def begin(self, state: State, former: State | None = None) -> None:
        """Let a row be something, which may be what another state of it goes on as."""
        if former is not None:
            state.op = former.op if former.lsn == state.lsn else state.op
            state.former = former if self.image(former.values) == self.image(state.values) else None
        self._open.setdefault(self.image(state.values), []).append(state)

    def end(self, image: Hashable, lsn: int) -> State | None:
        """End the state of a row; None if there is none."""
        rows = self._open.get(image)
        if not rows:
            self.missed += 1
            return None
        row = rows.pop()
        if not rows:
            del self._open[image]
        self._end(row, lsn)
        return row

    def evict(self, image: Hashable, lsn: int) -> None:
        """End whatever is in the way."""
        for row in self._open.pop(image, ()):
            self._end(row, lsn)

    def empty(self, lsn: int) -> None:
        """End all."""
        for row in self.rows:
            self._end(row, lsn)
        self._open.clear()

    def _end(self, row: State, lsn: int) -> None:
        row.end = lsn
        if row.lasts:
            self._ended.append(row)

    @property
    def rows(self) -> list[State]:
        """The mirror's."""
        return [row for rows in self._open.values() for row in rows]

    def held_at(self, lsn: int) -> list[State]:
        """Return the mirror's as of a commit LSN."""
        return [one for one in self.history if one.lsn <= lsn and (one.end is None or one.end > lsn)]

    @property
    def history(self) -> list[State]:
        """All states that anybody can have seen."""
        return [*self._ended, *self.rows]

    def tracked(self, places: Sequence[int]) -> list[State]:
        """Return the history where only changes of these columns begin versions; others are made in the open one."""
        found: dict[State, State] = {}
        for one in sorted(self.history, key=lambda one: (one.lsn, one.ordinal)):
            former = one.former
            while former is not None and not former.lasts:
                former = former.former
            before = None if former is None else found[former]
            if before is not None and all(before.values[place] == one.values[place] for place in places):
                before.values, before.end = one.values, one.end
                found[one] = before
            else:
                found[one] = replace(one)
        return list(dict.fromkeys(found.values()))
