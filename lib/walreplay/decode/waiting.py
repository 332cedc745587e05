"""Batches that wait until their rows are final, and the numbers of rows that were given.

A torn message may only be noticed later, and then change how bytes before it are read.

Invariants
----------
- Rows are given once their transaction's Commit was read and no torn message can reach back to it: either the file has
  ended, or the walk is further than the search for a torn message ever goes back (`readings.FAR` bytes from the last
  whole message, and from there to the beginning of the message before that).
- The given rows of a relation are the first rows that a plan would give of it.  Unless there was an error in a value,
  all rows up to one commit LSN can be given (`WaitingRows.rest`) before a plan takes over, which then skips them.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import Final

import numpy as np

from walreplay.decode import walk
from walreplay.decode.change_batch import ChangeBatch
from walreplay.decode.sessions import readings

_TILES_BACK: Final = 2
"""So many tiles have to end after a row, because each has at least one message."""


class WaitingRows:
    """Waiting batches, in stream order.

    Attributes:
        given: the number of rows that were given, by relation oid.
        final: transactions up to this commit LSN are final.
        size: the size of the waiting batches in bytes.
    """

    def __init__(self) -> None:
        self.given: Counter[int] = Counter()
        self.final = walk.NO_LSN
        self.size = 0
        self._batches: deque[ChangeBatch] = deque()
        self._ended: deque[tuple[int, int]] = deque()
        """Where tiles end in the file, and the commit LSN of the last complete transaction there."""

    def add(self, batches: list[ChangeBatch]) -> None:
        """Add batches."""
        self._batches += batches
        self.size += sum(batch.data.nbytes for batch in batches)

    def end_tile(self, position: int, last_at: int, last_lsn: int) -> None:
        """Note how far a file was read.

        Args:
            position: where the tile ends.
            last_at: where the last whole message begins.
            last_lsn: the commit LSN of the last complete transaction.
        """
        self._ended.append((position, last_lsn))
        while len(self._ended) > _TILES_BACK and self._ended[_TILES_BACK][0] <= last_at - readings.FAR:
            self.final = self._ended.popleft()[1]

    def end_file(self, last_lsn: int) -> None:
        """Note that a file was read to its end."""
        self.final = last_lsn
        self._ended.clear()

    def ready(self) -> Iterator[ChangeBatch]:
        """Give the batches that are final."""
        while self._batches and _last_lsn(self._batches[0]) <= self.final:
            batch = self._batches.popleft()
            self.size -= batch.data.nbytes
            yield self._give(batch)

    def rest(self, gathered: Iterable[ChangeBatch]) -> Iterator[ChangeBatch]:
        """Give the remaining rows up to `final`, from the waiting batches and from the gathered ones."""
        for batch in (*self._batches, *gathered):
            rows = _rows_up_to(batch, self.final)
            if rows:
                yield self._give(batch.slice(0, rows))

    def known_rows(self, *, all_given: bool) -> Callable[[ChangeBatch], int]:
        """Give a function that says how many of a batch's first rows were given.

        It has to be called with the batches of a plan, in their order.

        Args:
            all_given: all rows up to `final` were given, by `rest`.
        """
        if all_given:
            return partial(_rows_up_to, lsn=self.final)
        return partial(_first_rows, left=self.given.copy())

    def _give(self, batch: ChangeBatch) -> ChangeBatch:
        self.given[batch.relation.oid] += batch.data.num_rows
        return batch


def _first_rows(batch: ChangeBatch, left: Counter[int]) -> int:
    """Count a batch's rows that were given; ``left`` has the numbers of given rows that are not counted yet, by oid."""
    known: int = min(batch.data.num_rows, left[batch.relation.oid])
    left[batch.relation.oid] -= known
    return known


def _rows_up_to(batch: ChangeBatch, lsn: int) -> int:
    return int(np.searchsorted(batch.commit_lsns.to_numpy(), lsn, side="right"))


def _last_lsn(batch: ChangeBatch) -> int:
    lsns = batch.commit_lsns
    return int(lsns[len(lsns) - 1].as_py())


__all__ = ["WaitingRows"]
