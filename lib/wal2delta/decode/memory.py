"""Memory for columns that is used again, once nobody looks at a batch any more.

A page of fresh memory costs more than to fill it, on virtual machines above all; a decoder that takes new memory for
every batch spends a quarter of its time so.  Blocks come back when the last view of them is gone, Arrow's included.
"""

from __future__ import annotations

import mmap
import weakref
from collections import defaultdict, deque
from typing import TYPE_CHECKING, Any, Final

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import DTypeLike, NDArray

LEAST: Final = 1 << 16
"""Smaller arrays are numpy's own."""

MOST_IDLE: Final = 256 << 20
"""So many bytes are kept for later, a few batches; what comes back beyond them goes to the operating system."""

_idle: defaultdict[int, deque[mmap.mmap]] = defaultdict(deque)
"""Blocks by their size, a power of two.  Appending and popping are atomic: batches may be freed by any thread."""


def empty(size: int, dtype: DTypeLike) -> NDArray[Any]:
    """Give an array of so many items, whatever they hold; from it alone all views of its memory have to be made."""
    type_ = np.dtype(dtype)
    wanted = size * type_.itemsize
    if wanted < LEAST:
        return np.empty(size, type_)
    block_size = 1 << (wanted - 1).bit_length()
    try:
        block = _idle[block_size].pop()
    except IndexError:
        block = mmap.mmap(-1, block_size)
        if hasattr(mmap, "MADV_HUGEPAGE") and block_size >= 1 << 21:
            block.madvise(mmap.MADV_HUGEPAGE)
    array = np.frombuffer(block, type_, size)
    weakref.finalize(array, _take_back, block, block_size).atexit = False
    return array


def idle_bytes() -> int:
    """Give how many bytes are kept for later."""
    return sum(size * len(blocks) for size, blocks in list(_idle.items()))


def _take_back(block: mmap.mmap, size: int) -> None:
    if idle_bytes() + size <= MOST_IDLE:
        _idle[size].append(block)
