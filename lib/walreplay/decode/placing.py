"""Place rows directly in the columns of their relation versions: kernels convert common values and list all others.

Each relation version has a *program*, an array of words: where its columns lie, how many rows they have, and how each
column is converted.  The kernels (`walreplay.decode.kernels.place`) follow it.  The builders
(`walreplay.decode.columns`) own the memory, provide more of it, and read what the kernels leave: columns of rarer
types, and single values in another form.  A `Tile` has the row changes and cells of a stretch of bytes as arrays.

The words in front of those of the columns
------------------------------------------
- `ROWS` rows are placed; there is room for `ROOM`.
- Rows after the first `SETTLED` are *pending*: the builders have not completed them yet.  `FIRSTS` has the number of
  each one's first cell.  Up to `PENDING_ROOM` rows may be pending.  So `ROWS` may rise up to `LIMIT`.
- `BEFORES` pending rows have an old tuple; `BEFORE_FIRSTS` has its first cell, `BEFORE_ROWS` the row.
- `NEEDS_CARE`: some columns are left to their builders.  `HAS_UNCHANGED`, `HAS_MISSES`: some pending rows have
  unchanged TOAST values, or values in another form.
- `OP` to `ORDINAL` and `FIRSTS` to `BEFORE_ROWS` are addresses, and `PLACES`, which is 0 if nobody asks where rows come
  from (`walreplay.decode.change_batch`).  `COLUMNS` is the number of columns that follow.

A column's words
----------------
Its kind (`KIND`), the addresses of its values (for text: of the ends of its values) and of their validity, the `LOW`
and `HIGH` limits of integers and times (or a decimal's precision and scale).  For text also its form in binary format
(`LOW`), the address of its `DATA`, the `CAPACITY` of that, and what was found in it (`FLAGS`).

Invariant
---------
Rows are placed in stream order, each completely or not at all.  When a kernel returns because a row needs something, it
continues with the same row.

Memory
------
To get a page of fresh memory takes longer than to fill it, above all on virtual machines: a decoder with new memory for
every batch spends a quarter of its time on it.  So blocks are used again, once their last view is gone, including
Arrow's.  Arrays begin at different places of a page: columns are written side by side, and cache lines at the same
place of all pages compete for the same few ways.  A kernel that writes twenty such columns is six times as slow.
"""

from __future__ import annotations

import contextlib
import itertools
import mmap
import weakref
from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np

from walreplay.decode.kernels import place as kernels
from walreplay.decode.kernels import programs
from walreplay.decode.kernels.programs import Refusal

if TYPE_CHECKING:
    from numpy.typing import DTypeLike, NDArray


LEAST_PENDING: Final = 16
MOST_PENDING: Final = 4096
"""So many rows of a relation may be pending at most; fewer at first, because there may be thousands of relations."""


class Placing(NamedTuple):
    """How the kernels convert a column.

    Attributes:
        kind: one of the kinds of `kernels.programs`, except `OTHER`.
        low, high: the limits of an integer or a time; or a decimal's precision and scale; or a text's form in binary
            format (`kernels.binary.NO_FORM` and those beside it).
    """

    kind: int
    low: int = 0
    high: int = 0


class Placer:
    """The arrays that the placing kernels share with Python.

    Attributes:
        programs: for each slot the address of its program, `NOT_WANTED` or `UNSEEN`.
        touched: the slots that have pending rows.
        misses: four words for each value in another form: its program, column, row, and the row's first cell.
        marks: words by the numbers in `kernels.programs`: the row of a tile's arrays to continue with; the numbers of
            misses and touched slots; if a row was not placed, the reason, its slot, and for a text its column and
            the bytes that it needs; and the addresses of the other arrays.
    """

    def __init__(self) -> None:
        self.marks = np.zeros(programs.MARKS, np.int64)
        self.misses = np.zeros(programs.MISS_WORDS * programs.MISSES, np.int64)
        self._set_arrays(np.zeros(0, np.int64), np.zeros(16, np.int32))

    def reset(self) -> None:
        """Forget all slots."""
        self.marks[:] = 0
        self._set_arrays(np.zeros(0, np.int64), self.touched)

    def extend(self, slot_count: int) -> None:
        """Make room for a number of slots."""
        if slot_count > len(self.programs):
            missing = max(slot_count, 2 * len(self.programs)) - len(self.programs)
            slot_programs = np.concatenate([self.programs, np.full(missing, programs.UNSEEN, np.int64)])
            # Each slot with pending rows is listed once, so there is room for as many as have programs.
            lacking = len(slot_programs) - len(self.touched)
            self._set_arrays(slot_programs, np.concatenate([self.touched, np.zeros(max(0, lacking), np.int32)]))

    def _set_arrays(self, slot_programs: NDArray[np.int64], touched: NDArray[np.int32]) -> None:
        self.programs, self.touched = slot_programs, touched
        addresses = [array.ctypes.data for array in (slot_programs, touched, self.misses)]
        self.marks[[programs.SLOT_PROGRAMS, programs.TOUCHED_SLOTS, programs.MISSED_VALUES]] = addresses

    @property
    def has_any(self) -> bool:
        """Whether rows are pending, or one could not be placed."""
        return bool(self.marks[programs.TOUCHED] or self.marks[programs.LEFT])

    def place(self, buf: NDArray[np.uint8], tile: Tile, mask: NDArray[np.uint8]) -> bool:
        """Place the rows of a tile's arrays, beginning where the last call has stopped; return whether all are placed.

        Args:
            mask: a mask of the wanted rows; empty for all.
        """
        rows = int(self.marks[programs.CHANGE]), tile.rows, tile.offset, tile.length, mask
        self.marks[programs.LEFT] = kernels.place_rows(buf, *rows, self.marks)
        return bool(self.marks[programs.LEFT] == Refusal.DONE)

    def settle(self) -> tuple[list[int], NDArray[np.int64]]:
        """Settle pending rows that need no more work; return the slots that Python has to complete, and `misses`."""
        count = kernels.settle(self.marks)
        missed = self.misses[: programs.MISS_WORDS * self.marks[programs.MISSED]].reshape(-1, programs.MISS_WORDS)
        self.marks[[programs.MISSED, programs.TRIED]] = 0
        return self.touched[:count].tolist(), missed

    def take_refusal(self) -> Refusal:
        """Return the reason why a row could not be placed, and forget it."""
        refusal = Refusal(int(self.marks[programs.LEFT]))
        self.marks[programs.LEFT] = Refusal.DONE
        return refusal

    def begin(self) -> None:
        """Begin with the first row of a tile's arrays."""
        self.marks[programs.CHANGE] = 0

    @property
    def request(self) -> tuple[int, int, int]:
        """For the row that could not be placed: its slot, and the text column and the bytes that it needs."""
        slot, column, count = self.marks[[programs.LEFT_SLOT, programs.LEFT_COLUMN, programs.LEFT_BYTES]].tolist()
        return slot, column, count


@dataclass(slots=True)
class Tile:
    """Row changes and cells of a stretch of bytes that fits the cache; the arrays are reused for the next tile.

    Attributes:
        rows: of each change that the walk has not placed itself, `programs.ROW_WORDS` words in the order of
            `kernels.programs.ROW_KIND` and those behind it.  `ROW_PLACE` is where it comes from (a word of
            `walreplay.decode.change_batch`); `ROW_NEW` and `ROW_OLD` are the numbers of the tuples' first cells, or -1
            if there is no such tuple.
        offset, length: of each cell; see `walreplay.decode.walk`.
        has_unchanged: some cell is unchanged TOAST.
    """

    rows: NDArray[np.int64]
    offset: NDArray[np.int32]
    length: NDArray[np.int32]
    has_unchanged: bool


# Memory

LEAST: Final = 1 << 16  # Smaller arrays are numpy's own

MOST_IDLE: Final = 256 << 20
"""So many bytes of idle blocks are kept, enough for a few batches.

Beyond that, the block that was idle longest is released, because the next captures in a process may have other tables,
which need blocks of other sizes.
"""

_LINE: Final = 64
_LINES_OF_PAGE: Final = mmap.PAGESIZE // _LINE
_STRIDE: Final = 27
"""Consecutive blocks begin so many cache lines apart within a page; odd, so that all lines are used in turn."""

_made = itertools.count()

_returned = itertools.count()

_idle: Final[dict[int, deque[tuple[int, _Block]]]] = {
    1 << power: deque() for power in range(LEAST.bit_length() - 1, MOST_IDLE.bit_length())
}
"""Idle blocks by size, each with the number of its return, the latest on the right.  Larger blocks are never kept.

Batches may be freed by any thread, and by garbage collection at any time.  This is safe without a lock: appending and
popping are atomic, and no key is added later.
"""


class _Block(NamedTuple):
    """A block of memory: its size is a power of two, and it begins at the offset ``start`` of the mapped memory."""

    memory: mmap.mmap
    size: int
    start: int

    @classmethod
    def make(cls, size: int) -> _Block:
        memory = mmap.mmap(-1, size + mmap.PAGESIZE)
        if hasattr(mmap, "MADV_HUGEPAGE") and size >= 1 << 21:
            memory.madvise(mmap.MADV_HUGEPAGE)  # fewer page faults
        return cls(memory, size, next(_made) * _STRIDE % _LINES_OF_PAGE * _LINE)


def empty(size: int, dtype: DTypeLike) -> NDArray[Any]:
    """Return an array with undefined content.

    All views of its memory have to be made from this array, because the memory is reused once the array is gone.
    """
    item_type = np.dtype(dtype)
    byte_count = size * item_type.itemsize
    if byte_count < LEAST:
        return np.empty(size, item_type)  # malloc reuses small memory by itself
    block_size = 1 << (byte_count - 1).bit_length()
    try:
        _, block = _idle[block_size].pop()
    except LookupError:
        block = _Block.make(block_size)
    array = np.frombuffer(block.memory, item_type, size, block.start)
    weakref.finalize(array, _take_back, block).atexit = False  # the process ends: nobody needs the memory
    return array


def idle_bytes() -> int:
    """Return the number of bytes in idle blocks."""
    return sum(size * len(blocks) for size, blocks in _idle.items())


def _take_back(block: _Block) -> None:
    if block.size > MOST_IDLE:
        return
    _idle[block.size].append((next(_returned), block))
    while idle_bytes() > MOST_IDLE:
        _let_go_of_oldest()


def _let_go_of_oldest() -> None:
    # Another thread may take the block in between.
    with contextlib.suppress(IndexError, ValueError):
        _, size = min((blocks[0][0], size) for size, blocks in _idle.items() if blocks)
        _idle[size].popleft()
