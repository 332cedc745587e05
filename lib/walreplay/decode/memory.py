"""Memory for columns that is used again, once nobody looks at a batch any more.

A page of fresh memory costs more than to fill it, on virtual machines above all; a decoder that takes new memory for
every batch spends a quarter of its time so.  Blocks come back when the last view of them is gone, Arrow's included.

Arrays do not begin at the same place of a page.  Columns are written side by side, and lines of the cache at the same
place of all pages compete for the same few ways: a kernel that writes twenty such columns is six times as slow.
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
"""So many bytes are kept for later, a few batches; beyond them, what has lain idle longest goes to the operating
system: captures of other tables, which may come next in a process, need blocks of other sizes."""

_LINE: Final = 64
_LINES_OF_PAGE: Final = mmap.PAGESIZE // _LINE
_STRIDE: Final = 27
"""Blocks that are made one behind the other lie so many lines apart; odd, so that every line's turn comes."""

_made = itertools.count()

_returned = itertools.count()

_idle: Final[dict[int, deque[tuple[int, _Block]]]] = {
    1 << power: deque() for power in range(LEAST.bit_length() - 1, MOST_IDLE.bit_length())
}
"""Blocks by their size, each with the number of its return, the last one on the right; larger ones are never kept.
Batches may be freed by any thread, and by the collector at any time: appending and popping are atomic, and no size is
added while others look."""


class _Block(NamedTuple):
    """Memory of so many bytes, a power of two, from a place of its own in the first page."""

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
    """Give an array of so many items, whatever they hold; from it alone all views of its memory have to be made."""
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
    """Give how many bytes are kept for later."""
    return sum(size * len(blocks) for size, blocks in _idle.items())


def _take_back(block: _Block) -> None:
    if block.size > MOST_IDLE:
        return
    _idle[block.size].append((next(_returned), block))
    while idle_bytes() > MOST_IDLE:
        _let_go_of_oldest()


def _let_go_of_oldest() -> None:
    # Another thread may take the block that was looked at.
    with contextlib.suppress(IndexError, ValueError):
        _, size = min((blocks[0][0], size) for size, blocks in _idle.items() if blocks)
        _idle[size].popleft()
