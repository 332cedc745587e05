"""Identify rows by their whole *image* (all old values): counts of a multiset, and keys whose old rows are sent whole.

If a key is configured over replica identity full, every change is an old image that is removed and a new one that is
added.  With a deferrable key, a key may have two rows inside a transaction.  Then the image decides which of them is
removed:

- A removed row cancels the last added row of the same transaction with exactly the same image.  What is left of a part
  of a transaction (`unmatched`) has the same effect as all its changes.
- A removed row that was not added in the transaction is the row that the key had at the transaction's beginning, even
  if its image differs from what is known of that row.  If that row was removed before, it is the oldest added row.
- After each transaction a key has one row at most (`settle`).

Rows with equal images cannot be distinguished, except by their commit LSN.  In a multiset, the row that goes is the
newest of its equals; so an update that changes nothing makes the newest one newer, wherever runs end.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from walreplay.decode.compile.kernel import kernel
from walreplay.decode.compile.parameters import given, out
from walreplay.sink.slots import HASHES, TABLE, Hashes, new_table, slot_of

if TYPE_CHECKING:
    from numpy.typing import NDArray


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
    slots = np.empty(events, np.uint64), np.empty(events, np.uint64)
    _count_images(count, needed, lsn, *image, new_table(events), *slots, last, oldest, newest, before, need, left, gone)
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
    """Give the events that are left after each removed row has cancelled the last equal added one.

    Args:
        comes: whether an event adds a row; otherwise it removes one.
        image: the rows' hashes.

    Returns:
        the numbers of those events, in their order.
    """
    events = len(comes)
    left = np.zeros(events, np.bool_)
    slots = np.empty(events, np.uint64), np.empty(events, np.uint64)
    newest, before = np.empty(events, np.int32), np.empty(events, np.int32)
    _unmatched(comes, *image, new_table(events), *slots, newest, before, left)
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
    """Give the effect on each key of the events that `unmatched` has left.

    Args:
        comes: whether an event adds a row; otherwise it removes one.
        key: the hashes of the events' keys.  In different transactions a key has different hashes.
    """
    events = len(comes)
    slots = np.empty(events, np.uint64), np.empty(events, np.uint64)
    base, oldest, newest, after = (np.empty(events, np.int32) for _ in range(4))
    used = _settle(comes, *key, new_table(events), *slots, base, oldest, newest, after)
    row = oldest[:used]
    return Settled(row, base[:used], (row >= 0) & (row != newest[:used]))
