"""Rows that wait until their transaction cannot be read otherwise any more, and how many were given.

Invariants
----------
- Rows are given once their transaction's Commit was read, and it cannot be read otherwise any more: either the file has
  come to its end, or the walk is further than the search for a torn message ever goes back (`readings.FAR` bytes from
  the last whole message, and from there to the beginning of the message before that).
- What was given of a relation is the beginning of what a plan gives of it; but for an error in a value, all up to one
  commit LSN can be given (`WaitingRows.rest`) before a plan takes over, which need not decode it again.
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
"""A tile has a message at least."""


class WaitingRows:
    """Batches that wait, in the order of the stream.

    Attributes:
        given: how many rows were given of each relation, by its oid.
        final: transactions up to this commit LSN are as they were read.
        size: how many bytes wait.
    """

    def __init__(self) -> None:
        self.given: Counter[int] = Counter()
        self.final = walk.NO_LSN
        self.size = 0
        self._batches: deque[ChangeBatch] = deque()
        self._ended: deque[tuple[int, int]] = deque()
        """Where the tiles end in the file, and the commit LSN of the last transaction before that."""

    def add(self, batches: list[ChangeBatch]) -> None:
        """Have batches wait."""
        self._batches += batches
        self.size += sum(batch.data.nbytes for batch in batches)

    def end_tile(self, position: int, last_at: int, last_lsn: int) -> None:
        """Note how far a file was read.

        Args:
            position: where the tile ends.
            last_at: where the last whole message begins.
            last_lsn: the commit LSN of the last transaction that has ended.
        """
        self._ended.append((position, last_lsn))
        while len(self._ended) > _TILES_BACK and self._ended[_TILES_BACK][0] <= last_at - readings.FAR:
            self.final = self._ended.popleft()[1]

    def end_file(self, last_lsn: int) -> None:
        """Note that a file was read to its end."""
        self.final = last_lsn
        self._ended.clear()

    def ready(self) -> Iterator[ChangeBatch]:
        """Give the batches that need not wait any more."""
        while self._batches and _last_lsn(self._batches[0]) <= self.final:
            batch = self._batches.popleft()
            self.size -= batch.data.nbytes
            yield self._give(batch)

    def rest(self, gathered: Iterable[ChangeBatch]) -> Iterator[ChangeBatch]:
        """Give what is left up to `final`, of what waits and of what is only gathered so far."""
        for batch in (*self._batches, *gathered):
            rows = _rows_up_to(batch, self.final)
            if rows:
                yield self._give(batch.slice(0, rows))

    def known_rows(self, *, all_given: bool) -> Callable[[ChangeBatch], int]:
        """Give a count of a batch's first rows that were given; for a plan's batches in their order.

        Args:
            all_given: so were all rows up to `final`, by `rest`.
        """
        if all_given:
            return partial(_rows_up_to, lsn=self.final)
        return partial(_first_rows, left=self.given.copy())

    def _give(self, batch: ChangeBatch) -> ChangeBatch:
        self.given[batch.relation.oid] += batch.data.num_rows
        return batch


def _first_rows(batch: ChangeBatch, left: Counter[int]) -> int:
    """Count rows among the first of a relation, of which so many are left to be counted."""
    known: int = min(batch.data.num_rows, left[batch.relation.oid])
    left[batch.relation.oid] -= known
    return known


def _rows_up_to(batch: ChangeBatch, lsn: int) -> int:
    return int(np.searchsorted(batch.commit_lsns.to_numpy(), lsn, side="right"))


def _last_lsn(batch: ChangeBatch) -> int:
    lsns = batch.commit_lsns
    return int(lsns[len(lsns) - 1].as_py())


__all__ = ["WaitingRows"]
