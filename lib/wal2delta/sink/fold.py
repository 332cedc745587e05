"""Reduce a table's changes to one row per row identity.

Each row of the table as it was before the run is a *base*, named by its key.  The fold follows every base through
the changes: it is deleted, or it ends as a row that may have another key.  Rows that were inserted have no base.
What comes out has one row per base, so one MERGE on the base key applies it, whatever keys were swapped.

Invariants of the kernel's tables, one slot per key:
- ``slot_row`` is the event that the slot's live row comes from, or -1: no row has this key (any more).
- ``slot_base`` is the slot of the base that the live row carries on, or -1: it carries on none.
- ``carrier[b]`` is the slot whose live row carries base b on, or -1; ``carrier[slot_base[s]] == s`` where both are.
- ``source[s, c]`` is the event that holds the live row's value of the tracked column c, `KEEP` where it is the
  base's own value, `UNKNOWN` where nobody knows it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numba
import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

INSERT: Final = 0
"""A whole new row takes the key."""
UPDATE: Final = 1
"""The key's row changes; unchanged columns keep their values."""
DELETE: Final = 2
MOVE: Final = 3
"""The row of the old key changes and takes the new one; unchanged columns keep their values."""

KEEP: Final = -1
UNKNOWN: Final = -2

NO_BASE: Final = -1


@numba.njit(cache=True, nogil=True)  # type: ignore[untyped-decorator]
def _slot(first, second, i, table, slot_first, slot_second, used):  # type: ignore[no-untyped-def]
    """Give the slot of a key, a new one (== used) where it was not seen."""
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


@numba.njit(cache=True, nogil=True)  # type: ignore[untyped-decorator]
def _fold_keys(  # type: ignore[no-untyped-def]
    action,
    expected,
    first,
    second,
    old_first,
    old_second,
    unchanged,
    table,
    slot_first,
    slot_second,
    slot_row,
    slot_base,
    carrier,
    slot_expected,
    slot_reset,
    key_event,
    key_is_old,
    source,
):
    tracked = unchanged.shape[1]
    used = 0
    for i in range(action.shape[0]):
        kind = action[i]
        s = _slot(first, second, i, table, slot_first, slot_second, used)
        new_slot = s == used
        if new_slot:
            used += 1
            # A key that is first met has its base untouched, and nothing is known of it.
            slot_row[s] = -1
            slot_base[s] = s
            carrier[s] = s
            slot_expected[s] = expected[i] if kind != 3 else 0
            slot_reset[s] = 0
            key_event[s] = i
            key_is_old[s] = 0
            for c in range(tracked):
                source[s, c] = -1
        if kind == 1:
            if not new_slot and slot_row[s] == -1:
                # The key's row was deleted or has moved away: what the update does not bring is not known.
                slot_base[s] = s if carrier[s] == -1 else -1
                if slot_base[s] == s:
                    carrier[s] = s
                for c in range(tracked):
                    source[s, c] = -2
            slot_row[s] = i
            for c in range(tracked):
                if unchanged[i, c] == 0:
                    source[s, c] = i
        elif kind == 0:
            b = slot_base[s]
            if b != -1 and b != s and carrier[b] == s:
                carrier[b] = -1
            slot_base[s] = -1
            if carrier[s] == -1 or carrier[s] == s:
                slot_base[s] = s
                carrier[s] = s
            slot_row[s] = i
            slot_reset[s] = 1
            for c in range(tracked):
                source[s, c] = i if unchanged[i, c] == 0 else -2
        elif kind == 2:
            b = slot_base[s]
            if b != -1 and carrier[b] == s:
                carrier[b] = -1
            slot_base[s] = -1
            slot_row[s] = -1
            slot_reset[s] = 1
        else:
            o = _slot(old_first, old_second, i, table, slot_first, slot_second, used)
            if o == used:
                used += 1
                slot_row[o] = -1
                slot_base[o] = o
                carrier[o] = o
                slot_expected[o] = 1
                slot_reset[o] = 0
                key_event[o] = i
                key_is_old[o] = 1
                for c in range(tracked):
                    source[o, c] = -1
            elif slot_row[o] == -1:
                # Nobody holds the old key: the row comes from nowhere.
                slot_base[o] = -1
                for c in range(tracked):
                    source[o, c] = -2
            # The holder of the new key gives way.
            b = slot_base[s]
            if b != -1 and carrier[b] == s:
                carrier[b] = -1
            slot_base[s] = slot_base[o]
            if slot_base[s] != -1:
                carrier[slot_base[s]] = s
            elif carrier[s] == -1:
                slot_base[s] = s
                carrier[s] = s
            slot_reset[s] = 1
            for c in range(tracked):
                source[s, c] = i if unchanged[i, c] == 0 else source[o, c]
            slot_row[s] = i
            slot_row[o] = -1
            slot_base[o] = -1
            slot_reset[o] = 1
    return used


@dataclass(frozen=True, slots=True)
class Folded:
    """One row per base, or per new row without one.

    All arrays have one entry a row.

    Attributes:
        row: the event that the final row is taken from; -1 for a base that is only deleted.
        source: per tracked column, the event that the value is taken from, `KEEP` or `UNKNOWN`.
        base: the event that the base's key is taken from, `NO_BASE` where there is none.
        base_is_old: the base's key is that event's old key.
        moved: the base's key differs from the final row's.
        expected: the base should exist in the table: a change named it that was no insert.
        reset: nothing is left of what the base held.
    """

    row: NDArray[np.int64]
    source: NDArray[np.int64]
    base: NDArray[np.int64]
    base_is_old: NDArray[np.uint8]
    moved: NDArray[np.bool_]
    expected: NDArray[np.uint8]
    reset: NDArray[np.uint8]


def fold_keys(
    action: NDArray[np.uint8],
    expected: NDArray[np.uint8],
    key: tuple[NDArray[np.uint64], NDArray[np.uint64]],
    old_key: tuple[NDArray[np.uint64], NDArray[np.uint64]] | None,
    unchanged: NDArray[np.uint8],
) -> Folded:
    """Fold events in commit order.

    Args:
        action: `INSERT`, `UPDATE`, `DELETE` or `MOVE`, one a row.
        expected: whether the event's key should exist before it.
        key: the two halves of the keys' hashes.
        old_key: those of the old keys; looked at for `MOVE` only, None where there is none.
        unchanged: rows x tracked columns, 1 where the event does not bring the value.
    """
    events, tracked = unchanged.shape
    moves = old_key is not None
    capacity = events * (2 if moves else 1)
    size = 16
    while size < 2 * capacity:
        size *= 2
    slot_row = np.empty(capacity, np.int64)
    slot_base = np.empty(capacity, np.int64)
    carrier = np.empty(capacity, np.int64)
    slot_expected = np.empty(capacity, np.uint8)
    slot_reset = np.empty(capacity, np.uint8)
    key_event = np.empty(capacity, np.int64)
    key_is_old = np.empty(capacity, np.uint8)
    source = np.empty((capacity, tracked), np.int64)
    used = _fold_keys(
        action,
        expected,
        key[0],
        key[1],
        old_key[0] if old_key is not None else key[0],
        old_key[1] if old_key is not None else key[1],
        unchanged,
        np.full(size, -1, np.int64),
        np.empty(capacity, np.uint64),
        np.empty(capacity, np.uint64),
        slot_row,
        slot_base,
        carrier,
        slot_expected,
        slot_reset,
        key_event,
        key_is_old,
        source,
    )
    slots = np.arange(used)
    live = slot_row[:used] >= 0
    # A base goes on only in the live row that carries it.
    carried = np.zeros(used, np.bool_)
    bases = slot_base[:used]
    with_base = live & (bases >= 0)
    carried[bases[with_base]] = True
    rows, gone = slots[live], slots[~carried]
    row_base = bases[rows]
    base_slot = np.maximum(row_base, 0)
    has_base = row_base >= 0
    return Folded(
        row=np.concatenate([slot_row[rows], np.full(len(gone), -1, np.int64)]),
        source=np.concatenate([source[rows], np.full((len(gone), tracked), KEEP, np.int64)]),
        base=np.concatenate([np.where(has_base, key_event[base_slot], NO_BASE), key_event[gone]]),
        base_is_old=np.concatenate([key_is_old[base_slot], key_is_old[gone]]),
        moved=np.concatenate([row_base != rows, np.zeros(len(gone), np.bool_)]),
        expected=np.concatenate(
            [np.where(has_base, slot_expected[base_slot], 0).astype(np.uint8), slot_expected[gone]]
        ),
        reset=np.concatenate([slot_reset[rows], slot_reset[gone]]),
    )


@numba.njit(cache=True, nogil=True)  # type: ignore[untyped-decorator]
def _net_counts(count, first, second, table, slot_first, slot_second, net, last):  # type: ignore[no-untyped-def]
    used = 0
    for i in range(count.shape[0]):
        s = _slot(first, second, i, table, slot_first, slot_second, used)
        if s == used:
            used += 1
            net[s] = 0
        net[s] += count[i]
        last[s] = i
    return used


def fold_images(
    count: NDArray[np.int64], image: tuple[NDArray[np.uint64], NDArray[np.uint64]]
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Count how often each distinct row image comes and goes.

    Args:
        count: +n for n rows that come, -n for n that go.
        image: the two halves of the images' hashes.

    Returns:
        the event of each image's last appearance, and its net count (never 0).
    """
    events = len(count)
    size = 16
    while size < 2 * events:
        size *= 2
    net, last = np.empty(events, np.int64), np.empty(events, np.int64)
    used = _net_counts(
        count,
        image[0],
        image[1],
        np.full(size, -1, np.int64),
        np.empty(events, np.uint64),
        np.empty(events, np.uint64),
        net,
        last,
    )
    kept = np.nonzero(net[:used])[0]
    return last[kept], net[kept]
