"""Row identity: 128-bit hashes of exact values, a table of them for kernels, and whole rows that are their own key.

Two rows are the same if the values of their keys are the same, exactly: -0 is not 0, and a value that its column cannot
hold is identified by its rescued text.  The hash is of the typed values, so a value has the same hash in text and in
binary.  With 128 bits, two of ten thousand million keys share a hash with a probability of 10^-19.

Rows without a key are identified by their whole *image* (all old values), with counts as in a multiset.  If a key is
configured over replica identity full, every change is an old image that is removed and a new one that is added.  With a
deferrable key, a key may have two rows inside a transaction.  Then the image decides which of them is removed:

- A removed row cancels the last added row of the same transaction with exactly the same image.  What is left of a part
  of a transaction (`unmatched`) has the same effect as all its changes.
- A removed row that was not added in the transaction is the row that the key had at the transaction's beginning, even
  if its image differs from what is known of that row.  If that row was removed before, it is the oldest added row.
- After each transaction a key has one row at most (`settle`).

Rows with equal images cannot be distinguished, except by their commit LSN.  In a multiset, the row that goes is the
newest of its equals; so an update that changes nothing makes the newest one newer, wherever runs end.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from walreplay.decode.compile.kernel import Kernel, helper, kernel
from walreplay.decode.compile.parameters import BYTES, CELLS, INT64, given, out

if TYPE_CHECKING:
    from numpy.typing import NDArray


Hashes = tuple["NDArray[np.uint64]", "NDArray[np.uint64]"]
"""The two halves of 128-bit hashes."""

HASHES: Final = (given("uint64"), given("uint64"))
"""A kernel's parameters for hashes."""

TABLE: Final = (out("int32"), out("uint64"), out("uint64"))
"""A kernel's parameters for a table, and for the keys of its slots."""

_LEAST: Final = 16


def new_table(keys: int) -> tuple[NDArray[np.int32], NDArray[np.uint64], NDArray[np.uint64]]:
    """Make an empty table for up to so many keys, at least half of which stays free, and room for the keys' hashes."""
    size = _LEAST
    while size < 2 * keys:
        size *= 2
    return np.full(size, -1, np.int32), np.empty(keys, np.uint64), np.empty(keys, np.uint64)


@helper
def slot_of(first, second, i, table, slot_first, slot_second, used):  # type: ignore[no-untyped-def]
    """Return the slot of a key; for a key that was not seen before, a new one (== used)."""
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
def _word_of(data, at, count):  # type: ignore[no-untyped-def]
    """Take up to 8 bytes as a number, the first as the lowest."""
    word = np.uint64(0)
    for k in range(count):
        word |= np.uint64(data[at + k]) << np.uint64(8 * k)
    return word


@kernel(BYTES, INT64, INT64, BYTES, INT64, *_MIXED)
def _hash_fixed(data, width, start, valid, has_valid, first, second):  # type: ignore[no-untyped-def]
    """Mix a column of ``width`` bytes a value (up to 16) into the hashes of its rows."""
    for i in range(first.shape[0]):
        if has_valid and valid[i] == 0:
            low = np.uint64(0x9E3779B97F4A7C15)
            high = np.uint64(1)
            size = np.uint64(255)
        else:
            high = np.uint64(0)
            at = (start + i) * width
            low = _word_of(data, at, min(width, 8))
            if width > 8:
                high = _word_of(data, at + 8, width - 8)
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
            b = _mix(b + size, np.uint64(0xA0761D6478BD642F))
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
            for p in range(offsets[i] - offsets[0], offsets[i + 1] - offsets[0]):
                a = _mix(a, child_first[p])
                b = _mix(b, child_second[p])
            a = _mix(a + np.uint64(2), size)
            b = _mix(b + size, np.uint64(0xE7037ED1A0B428DB))
        first[i] = a
        second[i] = b
    return first.shape[0]


def _mix_lists(array: pa.Array, first: NDArray[np.uint64], second: NDArray[np.uint64]) -> None:
    offsets = np.frombuffer(array.buffers()[1], np.int32)[array.offset : array.offset + len(array) + 1]
    elements = array.values.slice(int(offsets[0]), int(offsets[-1] - offsets[0]))
    child = hash_rows([elements], len(elements))
    valid, has_valid = _bits(array)
    _hash_lists(offsets, valid, has_valid, *child, first, second)


def _bits(array: pa.Array) -> tuple[NDArray[np.uint8], bool]:
    if array.null_count == 0:
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
        array = _one_nan(array)
    valid, has_valid = _bits(array)
    buffers = array.buffers()
    variable = pa.types.is_string(kind) or pa.types.is_binary(kind)
    if variable or pa.types.is_large_string(kind) or pa.types.is_large_binary(kind):
        width = np.int32 if variable else np.int64
        offsets = np.frombuffer(buffers[1], width)[array.offset : array.offset + len(array) + 1]
        hash_texts = _hash_short if variable else _hash_long
        hash_texts(_as_bytes(buffers[2]), offsets, valid, has_valid, first, second)
    else:
        _hash_fixed(_as_bytes(buffers[1]), kind.bit_width // 8, array.offset, valid, has_valid, first, second)


def _one_nan(array: pa.Array) -> pa.Array:
    """Replace all NaNs by one, because values in binary format may have any of the many bit patterns."""
    nan = pc.is_nan(array)
    return pc.if_else(nan, pa.scalar(float("nan"), array.type), array) if pc.any(nan).as_py() else array


def hash_rows(
    arrays: Sequence[pa.Array], rows: int, rescued: pa.Array | None = None
) -> tuple[NDArray[np.uint64], NDArray[np.uint64]]:
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
            one, two = first[some], second[some]
            _mix_array(texts.take(pa.array(some)), one, two)
            first[some], second[some] = one, two
    return first, second


def contiguous(array: Any) -> pa.Array:
    """Return a column as one array."""
    if isinstance(array, pa.ChunkedArray):
        return array.combine_chunks() if array.num_chunks != 1 else array.chunk(0)
    return array


@kernel(
    given("int64"),
    given("int64"),
    given("int64"),
    *HASHES,
    *TABLE,
    out("int32"),
    out("int32"),
    out("int32"),
    out("int32"),
    out("int64"),
    out("int64"),
    out("int64"),
)
def _count_images(  # type: ignore[no-untyped-def]
    count, needed, lsn, first, second, table, slot_first, slot_second, last, oldest, newest, before, need, left, gone
):
    used = 0
    for i in range(count.shape[0]):
        s = slot_of(first, second, i, table, slot_first, slot_second, used)
        if s == used:
            used += 1
            newest[s] = -1
            need[s] = 0
        last[s] = i
        left[i] = 0
        gone[i] = 0
        goes = needed[i]
        while goes > 0 and newest[s] >= 0:
            some = min(goes, left[newest[s]])
            goes -= some
            left[newest[s]] -= some
            if left[newest[s]] == 0:
                newest[s] = before[newest[s]]
        need[s] += goes
        comes = count[i] + needed[i]
        if comes > 0:
            if newest[s] >= 0 and lsn[newest[s]] == lsn[i]:
                left[newest[s]] += comes
            else:
                if newest[s] < 0:
                    oldest[s] = i
                before[i] = newest[s]
                newest[s] = i
                left[i] = comes
    for s in range(used):
        gone[oldest[s] if newest[s] >= 0 else last[s]] = need[s]
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
    need, left, gone = (np.empty(events, np.int64) for _ in range(3))
    last, oldest, newest, before = (np.empty(events, np.int32) for _ in range(4))
    _count_images(count, needed, lsn, *image, *new_table(events), last, oldest, newest, before, need, left, gone)
    kept = np.nonzero((left > 0) | (gone > 0))[0].astype(np.int32)
    return kept, left[kept] - gone[kept], gone[kept]


@kernel(given("bool"), *HASHES, *TABLE, out("int32"), out("int32"), out("bool"))
def _unmatched(comes, first, second, table, slot_first, slot_second, newest, before, left):  # type: ignore[no-untyped-def]
    used = 0
    for i in range(comes.shape[0]):
        s = slot_of(first, second, i, table, slot_first, slot_second, used)
        if s == used:
            used += 1
            newest[s] = -1
        if comes[i]:
            before[i] = newest[s]
            newest[s] = i
            left[i] = True
        elif newest[s] >= 0:
            left[newest[s]] = False
            newest[s] = before[newest[s]]
        else:
            left[i] = True
    return used


def unmatched(comes: NDArray[np.bool_], image: Hashes) -> NDArray[np.int64]:
    """Return the events that are left after each removed row has cancelled the last equal added one.

    Args:
        comes: whether an event adds a row; otherwise it removes one.
        image: the rows' hashes.

    Returns:
        the numbers of those events, in their order.
    """
    events = len(comes)
    left = np.zeros(events, np.bool_)
    newest, before = np.empty(events, np.int32), np.empty(events, np.int32)
    _unmatched(comes, *image, *new_table(events), newest, before, left)
    return np.nonzero(left)[0]


@kernel(given("bool"), *HASHES, *TABLE, out("int32"), out("int32"), out("int32"), out("int32"))
def _settle(comes, first, second, table, slot_first, slot_second, base, oldest, newest, after):  # type: ignore[no-untyped-def]
    used = 0
    for i in range(comes.shape[0]):
        s = slot_of(first, second, i, table, slot_first, slot_second, used)
        if s == used:
            used += 1
            base[s] = -1
            oldest[s] = -1
            newest[s] = -1
        if comes[i]:
            after[i] = -1
            if oldest[s] < 0:
                oldest[s] = i
            else:
                after[newest[s]] = i
            newest[s] = i
        elif base[s] < 0:
            base[s] = i
        elif oldest[s] >= 0:
            oldest[s] = after[oldest[s]]
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
    """Return the effect on each key of the events that `unmatched` has left.

    Args:
        comes: whether an event adds a row; otherwise it removes one.
        key: the hashes of the events' keys.  In different transactions a key has different hashes.
    """
    events = len(comes)
    base, oldest, newest, after = (np.empty(events, np.int32) for _ in range(4))
    used = _settle(comes, *key, *new_table(events), base, oldest, newest, after)
    row = oldest[:used]
    return Settled(row, base[:used], (row >= 0) & (row != newest[:used]))
