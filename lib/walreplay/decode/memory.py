"""Reuse the memory of columns when a batch is no longer referenced.

To get a page of fresh memory takes longer than to fill it, above all on virtual machines.  A decoder that takes new
memory for every batch spends a quarter of its time on it.  A block is returned when the last view of it is gone,
including Arrow's.

Arrays begin at different places of a page.  Columns are written side by side, and cache lines at the same place of all
pages compete for the same few ways: a kernel that writes twenty such columns is six times as slow.
"""

from __future__ import annotations

import contextlib
import itertools
import mmap
import weakref
from collections import deque
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import DTypeLike, NDArray


LEAST: Final = 1 << 16
"""Smaller arrays are numpy's own."""

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
            memory.madvise(mmap.MADV_HUGEPAGE)
        return cls(memory, size, next(_made) * _STRIDE % _LINES_OF_PAGE * _LINE)


def empty(size: int, dtype: DTypeLike) -> NDArray[Any]:
    """Give an array with undefined content.

    All views of its memory have to be made from this array, because the memory is reused once the array is gone.
    """
    type_ = np.dtype(dtype)
    wanted = size * type_.itemsize
    if wanted < LEAST:
        return np.empty(size, type_)
    block_size = 1 << (wanted - 1).bit_length()
    try:
        _, block = _idle[block_size].pop()
    except LookupError:
        block = _Block.make(block_size)
    array = np.frombuffer(block.memory, type_, size, block.start)
    weakref.finalize(array, _take_back, block).atexit = False
    return array


def idle_bytes() -> int:
    """Give the number of bytes in idle blocks."""
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
