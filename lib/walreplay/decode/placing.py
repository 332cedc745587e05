"""Rows to the columns of their relations as they are found: what is common is converted, the rest is listed.

Each relation version has a *program*, an array of words: where its columns lie, how many rows they have, and what is
to be done for each of its columns.  The kernels (`walreplay.decode.kernels.place`) go by it; the builders
(`walreplay.decode.columns`) own the memory, make more of it, and read what the kernels leave: columns that are not
theirs, and single values in another form.

The words in front of those of the columns
------------------------------------------
- `ROWS` are placed, and there is room for `ROOM`.
- Those behind the first `SETTLED` are *pending* until that is done, and the number of each one's first cell stands in
  `FIRSTS`; up to `PENDING_ROOM` may be.  So `ROWS` come up to `LIMIT`.
- `BEFORES` of them have an old row; those' first cells are in `BEFORE_FIRSTS`, their rows in `BEFORE_ROWS`.
- `NEEDS_CARE`: some columns are not the kernels'.  `HAS_UNCHANGED`, `HAS_MISSES`: what pending rows have.
- `OP` to `BEFORE_ROWS` are addresses; `PLACES` is 0 where nobody asks for the rows' (`walreplay.decode.row_places`).
  `COLUMNS`: how many columns follow.

A column's words
----------------
What it is (`KIND`), the addresses of its values (of text: where each ends) and of their validity, the `LOW` and
`HIGH` limits of integers and times (a decimal's precision and scale), and of text the `DATA`'s address, its
`CAPACITY`, and what was found in it (`FLAGS`).

Invariant
---------
Rows are placed in the order of the stream, and a row as a whole or not at all: whatever the kernels come back for,
they go on with that row.
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
"""So many rows of a relation may be pending: few at first, as there may be thousands of relations."""


class Left(IntEnum):
    """Why a kernel did not place a row."""

    DONE = words.DONE
    """All are placed."""
    NEW = words.NEW
    """The row's slot was never seen."""
    ROOM = words.ROWS_FULL
    """The slot's columns are full."""
    CARE = words.TOO_MANY_PENDING
    """Too much of the slot's, or in all, is pending."""
    TEXT_ROOM = words.TEXT_FULL
    """A text column of the slot has not so much room."""
    NOT_TEXT = words.NOT_TEXT
    """A value of a column of the slot is in binary format, and the kernels take it as text only."""


class Placing(NamedTuple):
    """How the kernels convert a column.

    Attributes:
        kind: one of `kernels.programs`, but not `OTHER`.
        low, high: an integer's or a time's limits; a decimal's precision and scale.
    """

    kind: int
    low: int = 0
    high: int = 0


class Placer:
    """What the kernels place rows by, and what they leave behind.

    Attributes:
        programs: the address of each slot's program, `NO_PROGRAM` or `UNSEEN`.
        touched: the slots of programs with pending rows.
        misses: four words for each value in another form: its program, column, row, and the row's first cell.
        marks: by the numbers in `kernels.programs`: the row of a tile's arrays to go on with, how much is missed and
            touched, and why a row was not placed: its slot, and of a text its column and how many bytes it needs.
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
        """Know of so many slots."""
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
        """Place the rows of a tile's arrays, from where the last call has left off.

        Args:
            kept: which of them are wanted; empty for all.
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
        """Look at what is pending; give the slots that Python has to see to, and what is missed, as in `misses`."""
        count = kernels.settle(self.programs, self.touched, self.marks)
        missed = self.misses[: words.MISS_WORDS * self.marks[words.MISSED]].reshape(-1, words.MISS_WORDS)
        self.marks[[words.MISSED, words.TRIED]] = 0
        return self.touched[:count].tolist(), missed

    def take_left(self) -> Left:
        """Give why a row could not be placed, once."""
        left = Left(int(self.marks[words.LEFT]))
        self.marks[words.LEFT] = words.DONE
        return left

    def begin(self) -> None:
        """Begin with the first row of a tile's arrays."""
        self.marks[words.CHANGE] = 0

    @property
    def wanting(self) -> tuple[int, int, int]:
        """The slot of the row that could not be placed, and the column and how many bytes it needs."""
        slot, column, count = self.marks[[words.LEFT_SLOT, words.LEFT_COLUMN, words.LEFT_BYTES]].tolist()
        return slot, column, count
