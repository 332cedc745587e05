"""Row identity: 128-bit hashes of exact values, a table of them for kernels, and whole rows that are their own key.

Two rows are the same if the values of their keys are the same, exactly: -0 is not 0, and a value that its column cannot
hold is identified by its rescued text.  The hash is of the typed values, so a value has the same hash in text and in
binary.  With 128 bits, two of ten thousand million keys share a hash with a probability of 10^-19.

Rows without a key are identified by their whole *image* (all old values), with counts as in a multiset.  If a key is
configured over replica identity full, every change is an old image that is removed and a new one that is added.  With a
deferrable key, a key may have two rows inside a transaction.  Then the image decides which of them is removed:

- A removed row cancels the last added row of the same transaction with exactly the same image (`follow_images`).  What
  is left of a part of a transaction has the same effect as all its changes.
- A removed row that was not added in the transaction is the row that the key had at the transaction's beginning, even
  if its image differs from what is known of that row.  If that row was removed before, it is the oldest added row.
- After each transaction a key has one row at most (`settle`).

Rows with equal images cannot be distinguished, except by their commit LSN.  In a multiset, the row that goes is the
newest of its equals; so an update that changes nothing makes the newest one newer, wherever runs end.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from walreplay.decode.compile.kernel import Kernel, helper, kernel
from walreplay.decode.compile.parameters import BYTES, CELLS, INT64, given, out, record
from walreplay.fold.batches import contiguous

if TYPE_CHECKING:
    from numpy.typing import NDArray


Hashes = tuple["NDArray[np.uint64]", "NDArray[np.uint64]"]
"""The two halves of 128-bit hashes."""

HASHES: Final = (given("uint64"), given("uint64"))  # A kernel's parameters for hashes


class KeyTable(NamedTuple):
    """A table from keys to slots (-1: free), and the two halves of each slot's key."""

    table: NDArray[np.int32]
    first: NDArray[np.uint64]
    second: NDArray[np.uint64]


TABLE: Final = record(KeyTable, out("int32"), out("uint64"), out("uint64"))

_LEAST: Final = 16  # a power of 2, because the hash is masked


def new_table(keys: int) -> KeyTable:
    """Make an empty table for up to so many keys, at least half of which stays free, and room for the keys' hashes."""
    size = _LEAST
    while size < 2 * keys:  # half of the places stay free, so that collisions are few
        size *= 2
    return KeyTable(np.full(size, -1, np.int32), np.empty(keys, np.uint64), np.empty(keys, np.uint64))


@helper
def slot_of(first, second, event, table, slot_first, slot_second, used):  # type: ignore[no-untyped-def]
    """Return the slot of an event's key; for a key that was not seen before, a new one (== used)."""
    mask = table.shape[0] - 1
    place = np.int64(first[event] & np.uint64(0x7FFFFFFFFFFFFFFF)) & mask
    while table[place] >= 0:  # ends, because half of the table is free
        slot = table[place]
        if slot_first[slot] == first[event] and slot_second[slot] == second[event]:
            return np.int64(slot)
        place = (place + 1) & mask
    table[place] = used
    slot_first[used] = first[event]
    slot_second[used] = second[event]
    return np.int64(used)


_INTEGER: Final = pa.int64()

_MIXED: Final = (out("uint64"), out("uint64"))


@helper
def _mix(h, v):  # type: ignore[no-untyped-def]
    h = np.uint64((h ^ v) * np.uint64(0xBF58476D1CE4E5B9))
    h ^= h >> np.uint64(29)
    h = np.uint64(h * np.uint64(0x94D049BB133111EB))
    h ^= h >> np.uint64(32)
    return h


@helper
def _word_of(data, offset, count):  # type: ignore[no-untyped-def]
    """Take up to 8 bytes as a number, the first as the lowest."""
    word = np.uint64(0)
    for k in range(count):
        word |= np.uint64(data[offset + k]) << np.uint64(8 * k)
    return word


@kernel(BYTES, INT64, INT64, BYTES, INT64, *_MIXED)
def _hash_fixed(data, width, start, valid, has_valid, first, second):  # type: ignore[no-untyped-def]
    """Mix a column of ``width`` bytes a value (up to 16) into the hashes of its rows."""
    for i in range(first.shape[0]):
        if has_valid and valid[i] == 0:
            low = np.uint64(0x9E3779B97F4A7C15)  # NULL: no value has a size of 255
            high = np.uint64(1)
            size = np.uint64(255)
        else:
            high = np.uint64(0)
            offset = (start + i) * width
            low = _word_of(data, offset, min(width, 8))
            if width > 8:
                high = _word_of(data, offset + 8, width - 8)
            size = np.uint64(width)
        first[i] = _mix(_mix(first[i] + size, low), high)
        second[i] = _mix(_mix(second[i] ^ high, low + size), np.uint64(0xD6E8FEB86659FD93))
    return first.shape[0]


def _hash_variable(data, offsets, valid, has_valid, first, second):  # type: ignore[no-untyped-def]
    """Mix a column of strings or bytes into the hashes of its rows."""
    for i in range(first.shape[0]):
        a = first[i]
        b = second[i]
        if has_valid and valid[i] == 0:
            a = _mix(a, np.uint64(0x9E3779B97F4A7C15))
            b = _mix(b + np.uint64(1), np.uint64(0x9E3779B97F4A7C15))
        else:
            lo = np.int64(offsets[i])
            hi = np.int64(offsets[i + 1])
            size = np.uint64(hi - lo)
            p = lo
            while p < hi:
                word = _word_of(data, p, min(8, hi - p))
                a = _mix(a, word)
                b = _mix(b ^ np.uint64(0xD6E8FEB86659FD93), word)
                p += 8
            a = _mix(a, size)
            b = _mix(b + size, np.uint64(0xA0761D6478BD642F))  # the size tells "a" from "a\0"
        first[i] = a
        second[i] = b
    return first.shape[0]


_hash_short: Final = Kernel(_hash_variable, (BYTES, CELLS, BYTES, INT64, *_MIXED))
_hash_long: Final = Kernel(_hash_variable, (BYTES, given("int64"), BYTES, INT64, *_MIXED))


@kernel(CELLS, BYTES, INT64, *HASHES, *_MIXED)
def _hash_lists(offsets, valid, has_valid, child_first, child_second, first, second):  # type: ignore[no-untyped-def]
    """Mix lists into the hashes of their rows, given the hashes of their elements."""
    for i in range(first.shape[0]):
        a = first[i]
        b = second[i]
        if has_valid and valid[i] == 0:
            a = _mix(a, np.uint64(0x9E3779B97F4A7C15))
            b = _mix(b + np.uint64(1), np.uint64(0x9E3779B97F4A7C15))
        else:
            size = np.uint64(offsets[i + 1] - offsets[i])
            for p in range(offsets[i] - offsets[0], offsets[i + 1] - offsets[0]):  # children begin at the first list
                a = _mix(a, child_first[p])
                b = _mix(b, child_second[p])
            a = _mix(a + np.uint64(2), size)
            b = _mix(b + size, np.uint64(0xE7037ED1A0B428DB))
        first[i] = a
        second[i] = b
    return first.shape[0]


def _mix_lists(array: pa.Array, first: NDArray[np.uint64], second: NDArray[np.uint64]) -> None:
    # A slice shares its parent's buffers.
    offsets = np.frombuffer(array.buffers()[1], np.int32)[array.offset : array.offset + len(array) + 1]
    elements = array.values.slice(int(offsets[0]), int(offsets[-1] - offsets[0]))
    child = hash_rows([elements], len(elements))
    valid, has_valid = _bits(array)
    _hash_lists(offsets, valid, has_valid, *child, first, second)


def _bits(array: pa.Array) -> tuple[NDArray[np.uint8], bool]:
    if array.null_count == 0:  # no mask is made
        return np.zeros(0, np.uint8), False
    return np.asarray(array.is_valid().cast(pa.uint8()).to_numpy(zero_copy_only=False)), True


def _as_bytes(buffer: pa.Buffer | None) -> NDArray[np.uint8]:
    return np.zeros(0, np.uint8) if buffer is None else np.frombuffer(buffer, np.uint8)


def _mix_array(array: pa.Array, first: NDArray[np.uint64], second: NDArray[np.uint64]) -> None:
    kind = array.type
    if pa.types.is_list(kind):
        _mix_lists(array, first, second)
        return
    if pa.types.is_boolean(kind) or (pa.types.is_integer(kind) and kind.bit_width < _INTEGER.bit_width):
        # All integers are hashed as 64 bits, so that a key keeps its hash when its column is widened.
        array, kind = array.cast(_INTEGER), _INTEGER
    elif pa.types.is_floating(kind):
        array = _one_nan(array)  # PostgreSQL treats all NaNs as equal
    valid, has_valid = _bits(array)
    buffers = array.buffers()
    variable = pa.types.is_string(kind) or pa.types.is_binary(kind)
    if variable or pa.types.is_large_string(kind) or pa.types.is_large_binary(kind):
        width = np.int32 if variable else np.int64  # large types have offsets of 64 bits
        offsets = np.frombuffer(buffers[1], width)[array.offset : array.offset + len(array) + 1]
        hash_texts = _hash_short if variable else _hash_long
        hash_texts(_as_bytes(buffers[2]), offsets, valid, has_valid, first, second)
    else:
        _hash_fixed(_as_bytes(buffers[1]), kind.bit_width // 8, array.offset, valid, has_valid, first, second)


def _one_nan(array: pa.Array) -> pa.Array:
    """Replace all NaNs by one, because values in binary format may have any of the many bit patterns."""
    nan = pc.is_nan(array)
    return pc.if_else(nan, pa.scalar(float("nan"), array.type), array) if pc.any(nan).as_py() else array


def hash_rows(arrays: Sequence[pa.Array], rows: int, rescued: pa.Array | None = None) -> Hashes:
    """Return the two halves of each row's 128-bit hash over some columns.

    Args:
        arrays: columns of ``rows`` values each, always in the same order.
        rescued: the rescued texts of these columns (see `rescued_of`), NULL for rows without; None if no row has any.
            The hash of a row without rescued texts does not depend on the other rows.
    """
    first = np.full(rows, 0x243F6A8885A308D3, np.uint64)
    second = np.full(rows, 0x13198A2E03707344, np.uint64)
    if rows:
        for array in arrays:
            _mix_array(contiguous(array), first, second)
        if rescued is not None and rescued.null_count < rows:
            texts = contiguous(rescued)
            some = np.nonzero(texts.is_valid().to_numpy(zero_copy_only=False))[0]
            some_first, some_second = first[some], second[some]
            _mix_array(texts.take(pa.array(some)), some_first, some_second)
            first[some], second[some] = some_first, some_second  # only rows with rescued texts have these in their hash
    return first, second


class _ImageSlots(NamedTuple):
    """Of each image its events: the last, and a stack of those with added rows; and how many rows it requires."""

    last: NDArray[np.int32]
    oldest: NDArray[np.int32]
    newest: NDArray[np.int32]
    below: NDArray[np.int32]
    required: NDArray[np.int64]


@kernel(
    given("int64"),
    given("int64"),
    given("int64"),
    *HASHES,
    TABLE,
    record(_ImageSlots, *(out("int32") for _ in range(4)), out("int64")),
    out("int64", ndim=2),
)
def _count_images(count, needed, lsn, first, second, table, slots, results):  # type: ignore[no-untyped-def]
    places, slot_first, slot_second = table
    last, oldest, newest, below, required = slots
    left, gone = results[0], results[1]
    used = 0
    for event in range(count.shape[0]):
        slot = slot_of(first, second, event, places, slot_first, slot_second, used)
        if slot == used:
            used += 1
            newest[slot] = -1
            required[slot] = 0
        last[slot] = event
        left[event] = 0
        gone[event] = 0
        to_remove = needed[event]
        while to_remove > 0 and newest[slot] >= 0:
            removed = min(to_remove, left[newest[slot]])
            to_remove -= removed
            left[newest[slot]] -= removed
            if left[newest[slot]] == 0:
                newest[slot] = below[newest[slot]]
        required[slot] += to_remove  # no event has added these rows, so the table has them
        to_add = count[event] + needed[event]
        if to_add > 0:
            if newest[slot] >= 0 and lsn[newest[slot]] == lsn[event]:  # equal rows of one transaction stay one event
                left[newest[slot]] += to_add
            else:
                if newest[slot] < 0:
                    oldest[slot] = event
                below[event] = newest[slot]
                newest[slot] = event
                left[event] = to_add
    for slot in range(used):
        gone[oldest[slot] if newest[slot] >= 0 else last[slot]] = required[slot]
    return used


def count_images(
    count: NDArray[np.int64], needed: NDArray[np.int64], lsn: NDArray[np.int64], image: Hashes
) -> tuple[NDArray[np.int32], NDArray[np.int64], NDArray[np.int64]]:
    """Reduce how often each distinct row image is added and removed: a removed row is the newest of its equals.

    An event takes away ``needed`` rows, the newest ones first, and then adds ``count + needed`` rows with its commit's
    LSN.  The result is of the same kind, and so are its parts: where events are divided does not matter.

    Args:
        count: for each event, +n for n added rows, -n for n removed ones.
        needed: for each event, how many rows with its image have to exist before it.
        lsn: the events' commit LSNs, which do not fall.
        image: the hashes of the events' images.

    Returns:
        numbers of events in their order, their net counts, and how many rows have to exist before.  An image has one
        event for each LSN of added rows that stay; the first of them, or else the last event, takes away all rows that
        have to exist before.  Images that are added and removed again are left out.
    """
    events = len(count)
    last, oldest, newest, below = (np.empty(events, np.int32) for _ in range(4))
    slots = _ImageSlots(last, oldest, newest, below, np.empty(events, np.int64))
    results = left, gone = np.empty((2, events), np.int64)
    _count_images(count, needed, lsn, *image, *new_table(events), *slots, results)
    kept = np.nonzero((left > 0) | (gone > 0))[0].astype(np.int32)
    return kept, left[kept] - gone[kept], gone[kept]


@kernel(given("bool"), given("int32"), *HASHES, TABLE, out("int32", ndim=2), out("int32"))
def _follow_images(comes, truncates, first, second, table, stacks, partner):  # type: ignore[no-untyped-def]
    places, slot_first, slot_second = table
    # Of each image the newest event that has added a row; of each event the next older one: a stack.
    newest, below = stacks[0], stacks[1]
    has_truncates = truncates.shape[0] > 0
    used = 0
    for event in range(comes.shape[0]):
        partner[event] = -1
        slot = slot_of(first, second, event, places, slot_first, slot_second, used)
        if slot == used:
            used += 1
            newest[slot] = -1
        last = newest[slot]
        if has_truncates and last >= 0 and truncates[last] < truncates[event]:
            last = -1  # a truncate came between
        if comes[event]:
            below[event] = last
            newest[slot] = event
        elif last >= 0:
            # A removed copy is the newest one, so that it does not matter where runs are divided.
            partner[last] = event
            partner[event] = last
            newest[slot] = below[last]
    return used


NO_TRUNCATES: Final = np.zeros(0, np.int32)
"""Of events without truncates between them."""


def follow_images(
    comes: NDArray[np.bool_], image: Hashes, truncates: NDArray[np.int32] = NO_TRUNCATES
) -> NDArray[np.int32]:
    """Follow equal rows: each one that goes is the newest of them.

    Args:
        comes: whether an event adds a row; otherwise it removes one.
        image: the hashes of the events' rows.
        truncates: the number of truncates before each event.

    Returns:
        for each added row the event that removes it, or -1; for each removed one the event that has added it, or -1 if
        no event has.
    """
    events = len(comes)
    stacks, partner = np.empty((2, events), np.int32), np.empty(events, np.int32)
    _follow_images(comes, truncates, *image, *new_table(events), stacks, partner)
    return partner


@kernel(given("bool"), *HASHES, TABLE, out("int32"), out("int32"), out("int32"), out("int32"))
def _settle(comes, first, second, table, base, oldest, newest, above):  # type: ignore[no-untyped-def]
    places, slot_first, slot_second = table
    used = 0
    for event in range(comes.shape[0]):
        slot = slot_of(first, second, event, places, slot_first, slot_second, used)
        if slot == used:
            used += 1
            base[slot] = -1
            oldest[slot] = -1
            newest[slot] = -1
        if comes[event]:
            above[event] = -1
            if oldest[slot] < 0:
                oldest[slot] = event
            else:
                above[newest[slot]] = event
            newest[slot] = event
        elif base[slot] < 0:
            base[slot] = event  # the row that the key had when the transaction began
        elif oldest[slot] >= 0:
            oldest[slot] = above[oldest[slot]]  # the oldest added row: the base is gone already
    return used


@dataclass(frozen=True, slots=True)
class Settled:
    """The effect of a transaction on each key; all arrays have one entry per key.

    Attributes:
        row: the event that brings the key's final row, or -1 for none.
        base: the event that removed the row which the key had before; -1 if no event shows that there was one.
        several: more than one row has the key in the end.
    """

    row: NDArray[np.int32]
    base: NDArray[np.int32]
    several: NDArray[np.bool_]


def settle(comes: NDArray[np.bool_], key: Hashes) -> Settled:
    """Return the effect on each key of the events that cancel no others of their transactions.

    Args:
        comes: whether an event adds a row; otherwise it removes one.
        key: the hashes of the events' keys.  In different transactions a key has different hashes.
    """
    events = len(comes)
    base, oldest, newest, above = (np.empty(events, np.int32) for _ in range(4))
    used = _settle(comes, *key, *new_table(events), base, oldest, newest, above)
    row = oldest[:used]
    return Settled(row, base[:used], (row >= 0) & (row != newest[:used]))
