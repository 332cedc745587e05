"""Place rows directly in the columns of their relation versions: kernels convert common values and list all others.

Each relation version has a *program*, an array of words: where its columns lie, how many rows they have, and how each
column is converted.  The kernels (`walreplay.decode.kernels.place`) follow it.  The builders
(`walreplay.decode.columns`) own the memory, provide more of it, and read what the kernels leave: columns of rarer
types, and single values in another form.

The words in front of those of the columns
------------------------------------------
- `ROWS` rows are placed; there is room for `ROOM`.
- Rows after the first `SETTLED` are *pending*: the builders have not completed them yet.  `FIRSTS` has the number of
  each one's first cell.  Up to `PENDING_ROOM` rows may be pending.  So `ROWS` may rise up to `LIMIT`.
- `BEFORES` pending rows have an old tuple; `BEFORE_FIRSTS` has its first cell, `BEFORE_ROWS` the row.
- `NEEDS_CARE`: some columns are left to their builders.  `HAS_UNCHANGED`, `HAS_MISSES`: some pending rows have
  unchanged TOAST values, or values in another form.
- `OP` to `ORDINAL` and `FIRSTS` to `BEFORE_ROWS` are addresses, and `PLACES`, which is 0 if nobody asks where rows come
  from (`walreplay.decode.row_places`).  `COLUMNS` is the number of columns that follow.

A column's words
----------------
Its kind (`KIND`), the addresses of its values (for text: of the ends of its values) and of their validity, the `LOW`
and `HIGH` limits of integers and times (or a decimal's precision and scale).  For text also the address of its `DATA`,
the `CAPACITY` of that, and what was found in it (`FLAGS`).

Invariant
---------
Rows are placed in stream order, each completely or not at all.  When a kernel returns because a row needs something, it
continues with the same row.
"""

from __future__ import annotations

from enum import IntEnum
from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np

from walreplay.decode.kernels import place as kernels
from walreplay.decode.kernels import programs as words

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from walreplay.decode.tiles import Tile


LEAST_PENDING: Final = 16
MOST_PENDING: Final = 4096
"""So many rows of a relation may be pending at most; fewer at first, because there may be thousands of relations."""


class Left(IntEnum):
    """Why a kernel did not place a row."""

    DONE = words.DONE
    """All rows are placed."""
    NEW = words.NEW
    """The row's slot has no program yet."""
    ROOM = words.ROWS_FULL
    """The slot's columns have no room for another row."""
    CARE = words.TOO_MANY_PENDING
    """Too many rows are pending, of this slot or in all."""
    TEXT_ROOM = words.TEXT_FULL
    """A text column of the slot has too little room."""
    NOT_TEXT = words.NOT_TEXT
    """A value is in binary format, but the kernels convert its column only from text."""


class Placing(NamedTuple):
    """How the kernels convert a column.

    Attributes:
        kind: one of the kinds of `kernels.programs`, except `OTHER`.
        low, high: the limits of an integer or a time; or a decimal's precision and scale.
    """

    kind: int
    low: int = 0
    high: int = 0


class Placer:
    """The arrays that the placing kernels share with Python.

    Attributes:
        programs: for each slot the address of its program, `NO_PROGRAM` or `UNSEEN`.
        touched: the slots that have pending rows.
        misses: four words for each value in another form: its program, column, row, and the row's first cell.
        marks: words by the numbers in `kernels.programs`: the row of a tile's arrays to continue with; the numbers of
            misses and touched slots; and, if a row was not placed, the reason, its slot, and for a text its column and
            the bytes that it needs.
    """

    def __init__(self) -> None:
        self.marks = np.zeros(words.MARKS, np.int64)
        self.programs = np.zeros(0, np.int64)
        self.touched = np.zeros(16, np.int32)
        self.misses = np.zeros(words.MISS_WORDS * words.MISSES, np.int64)

    def reset(self) -> None:
        """Forget all slots."""
        self.marks[:] = 0
        self.programs = np.zeros(0, np.int64)

    def extend(self, slots: int) -> None:
        """Make room for a number of slots."""
        if slots > len(self.programs):
            more = max(slots, 2 * len(self.programs)) - len(self.programs)
            self.programs = np.concatenate([self.programs, np.full(more, words.UNSEEN, np.int64)])
            if len(self.touched) < slots:
                self.touched = np.concatenate([self.touched, np.zeros(2 * slots, np.int32)])

    @property
    def has_left(self) -> bool:
        """Whether a row could not be placed."""
        return bool(self.marks[words.LEFT])

    @property
    def has_any(self) -> bool:
        """Whether rows are pending, or one could not be placed."""
        return bool(self.marks[words.TOUCHED] or self.marks[words.LEFT])

    def place(self, buf: NDArray[np.uint8], tile: Tile, kept: NDArray[np.uint8]) -> None:
        """Place the rows of a tile's arrays, beginning where the last call has stopped.

        Args:
            kept: a mask of the wanted rows; empty for all.
        """
        self.marks[words.LEFT] = kernels.place_rows(
            buf,
            int(self.marks[words.CHANGE]),
            tile.kind,
            tile.slot,
            tile.lsn,
            tile.commit_ts,
            tile.xid,
            tile.ordinal,
            tile.place,
            tile.new,
            tile.old,
            tile.offset,
            tile.length,
            kept,
            self.programs,
            self.touched,
            self.misses,
            self.marks,
        )

    def settle(self) -> tuple[list[int], NDArray[np.int64]]:
        """Settle pending rows that need no more work; give the slots that Python has to complete, and `misses`."""
        count = kernels.settle(self.programs, self.touched, self.marks)
        missed = self.misses[: words.MISS_WORDS * self.marks[words.MISSED]].reshape(-1, words.MISS_WORDS)
        self.marks[[words.MISSED, words.TRIED]] = 0
        return self.touched[:count].tolist(), missed

    def take_left(self) -> Left:
        """Give the reason why a row could not be placed, and forget it."""
        left = Left(int(self.marks[words.LEFT]))
        self.marks[words.LEFT] = words.DONE
        return left

    def begin(self) -> None:
        """Begin with the first row of a tile's arrays."""
        self.marks[words.CHANGE] = 0

    @property
    def wanting(self) -> tuple[int, int, int]:
        """For the row that could not be placed: its slot, and the text column and the bytes that it needs."""
        slot, column, count = self.marks[[words.LEFT_SLOT, words.LEFT_COLUMN, words.LEFT_BYTES]].tolist()
        return slot, column, count
