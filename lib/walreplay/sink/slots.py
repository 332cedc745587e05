"""A hash table of 128-bit keys, for the kernels of this package."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np

from walreplay.decode.compile.kernel import helper
from walreplay.decode.compile.parameters import given, out

if TYPE_CHECKING:
    from numpy.typing import NDArray

Hashes = tuple["NDArray[np.uint64]", "NDArray[np.uint64]"]
"""The two halves of 128-bit hashes."""

HASHES: Final = (given("uint64"), given("uint64"))
"""A kernel's parameters for hashes."""

TABLE: Final = (out("int32"), out("uint64"), out("uint64"))
"""A kernel's parameters for a table, and for the keys of its slots."""

_LEAST: Final = 16


def new_table(keys: int) -> NDArray[np.int32]:
    """Make an empty table for up to so many keys; at least half of it stays free."""
    size = _LEAST
    while size < 2 * keys:
        size *= 2
    return np.full(size, -1, np.int32)


@helper
def slot_of(first, second, i, table, slot_first, slot_second, used):  # type: ignore[no-untyped-def]
    """Give the slot of a key; for a key that was not seen before, a new one (== used)."""
    mask = table.shape[0] - 1
    h = np.int64(first[i] & np.uint64(0x7FFFFFFFFFFFFFFF)) & mask
    while table[h] >= 0:
        s = table[h]
        if slot_first[s] == first[i] and slot_second[s] == second[i]:
            return np.int64(s)
        h = (h + 1) & mask
    table[h] = used
    slot_first[used] = first[i]
    slot_second[used] = second[i]
    return np.int64(used)
