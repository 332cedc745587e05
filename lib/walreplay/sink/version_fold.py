"""Follow rows through their changes, for a history: when each version of a row begins, and what ends it.

A *version* is the row that an event leaves; it is named by that event's number.  It stays *open* until another event
ends it, or a truncate.  Rows that the table had before the run are *bases*: the first event that touches a base's key
closes it.

Truncates are not events.  Each event has an *epoch*: how many truncates come before it.  A slot that was last touched
in an earlier epoch is empty, so truncates cost nothing per row.

Invariants of the kernel's tables, one slot per key:
- ``slot_row`` is the open version that has the key, `NONE`, or `BASE`: no event has touched the key yet.
- ``slot_epoch`` is the epoch of the last event that touched the key.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np

from walreplay.decode.compile.kernel import kernel
from walreplay.decode.compile.parameters import given, out
from walreplay.sink.fold import MOVE
from walreplay.sink.slots import HASHES, TABLE, Hashes, new_table, slot_of

if TYPE_CHECKING:
    from numpy.typing import NDArray

NONE: Final = -1
BASE: Final = -2
TRANSIENT: Final = 6
"""An action: a row comes and goes within its transaction, beside the row that has its key."""


@kernel(
    given("uint8"),
    given("uint8"),
    given("int32"),
    given("int64"),
    *HASHES,
    *HASHES,
    out("uint8", ndim=2),
    *TABLE,
    out("int32"),
    out("int32"),
    out("int32"),
    out("uint8"),
    out("uint8"),
    out("int32"),
    out("int32"),
    out("int32"),
    out("int32"),
    out("int32", ndim=2),
    out("int64"),
)
def _follow_keys(  # type: ignore[no-untyped-def]
    action,
    expected,
    epoch,
    lsn,
    first,
    second,
    old_first,
    old_second,
    unchanged,
    table,
    slot_first,
    slot_second,
    slot_row,
    slot_epoch,
    key_event,
    key_is_old,
    slot_expected,
    end,
    previous,
    base,
    opener,
    source,
    conflicts,
):
    tracked = source.shape[1]
    used = 0
    for i in range(action.shape[0]):
        kind = action[i]
        end[i] = -1
        previous[i] = -1
        base[i] = -1
        opener[i] = i
        if kind == 6:
            end[i] = i
            for c in range(tracked):
                source[i, c] = i if unchanged[i, c] == 0 else -2
            continue
        s = slot_of(first, second, i, table, slot_first, slot_second, used)
        if s == used:
            used += 1
            slot_row[s] = -2 if epoch[i] == 0 else -1
            key_event[s] = i
            key_is_old[s] = 0
            slot_expected[s] = expected[i] if kind != 3 or expected[i] == 2 else 0
        elif slot_epoch[s] < epoch[i]:
            slot_row[s] = -1
        slot_epoch[s] = epoch[i]
        before = slot_row[s]
        if expected[i] == 2 and before >= 0:
            conflicts[0] += 1
        if before >= 0:
            end[before] = i
        if kind == 2:
            slot_row[s] = -1
            continue
        # The row that goes on in this version: none for an insert.
        if kind == 1:
            b = s
        elif kind == 3:
            b = slot_of(old_first, old_second, i, table, slot_first, slot_second, used)
            if b == used:
                used += 1
                slot_row[b] = -2 if epoch[i] == 0 else -1
                key_event[b] = i
                key_is_old[b] = 1
                slot_expected[b] = 1
            elif slot_epoch[b] < epoch[i]:
                slot_row[b] = -1
            slot_epoch[b] = epoch[i]
            before = slot_row[b]
            if before >= 0:
                end[before] = i
            slot_row[b] = -1
        else:
            b = s
            before = -1
        previous[i] = before
        if before >= 0:
            base[i] = base[before]
            if lsn[before] == lsn[i]:
                opener[i] = opener[before]
        elif before == -2:
            base[i] = b
        for c in range(tracked):
            if unchanged[i, c] == 0:
                source[i, c] = i
            elif before >= 0:
                source[i, c] = source[before, c]
            else:
                # The base's own value, or one that is not known.
                source[i, c] = -1 if before == -2 else -2
        slot_row[s] = i
    return used


@kernel(given("int64"), given("int32"), *HASHES, *TABLE, out("int32"), out("int32"), out("int32"), out("int32"))
def _follow_images(count, epoch, first, second, table, slot_first, slot_second, newest, slot_epoch, below, end):  # type: ignore[no-untyped-def]
    used = 0
    for i in range(count.shape[0]):
        end[i] = -1
        below[i] = -1
        s = slot_of(first, second, i, table, slot_first, slot_second, used)
        if s == used:
            used += 1
            newest[s] = -1
        elif slot_epoch[s] < epoch[i]:
            newest[s] = -1
        slot_epoch[s] = epoch[i]
        if count[i] > 0:
            below[i] = newest[s]
            newest[s] = i
        elif newest[s] >= 0:
            # A removed copy is the newest one, so that it does not matter where runs are divided.
            end[newest[s]] = i
            end[i] = newest[s]
            newest[s] = below[newest[s]]
    return used


@dataclass(frozen=True, slots=True)
class Followed:
    """What became of the rows.

    The first arrays have one entry per event.  They mean nothing for events that leave no row.

    Attributes:
        end: the event that ends the event's version, or -1.
        previous: the version whose row the event's version goes on with, or `NONE` or `BASE`.
        source: events x tracked columns: the event that the value is taken from, `fold.KEEP` if it is the base's, or
            `fold.UNKNOWN`.
        base: the base (by its entry in the arrays below) whose row the version goes on with; -1 for none.
        opener: the first event of the same transaction since which the row is there under its key or those before.
        key_event: of each base or key that was touched, the first event that does so.
        key_is_old: the key is that event's old key.
        expected: `fold.EXPECTED` if there should be a row before that event, `fold.CLAIMED` if not; otherwise 0.
        conflicts: how many keys were claimed while they had a row.
    """

    end: NDArray[np.int32]
    previous: NDArray[np.int32]
    source: NDArray[np.int32]
    base: NDArray[np.int32]
    opener: NDArray[np.int32]
    key_event: NDArray[np.int32]
    key_is_old: NDArray[np.uint8]
    expected: NDArray[np.uint8]
    conflicts: int


def follow_keys(
    action: NDArray[np.uint8],
    expected: NDArray[np.uint8],
    epoch: NDArray[np.int32],
    lsn: NDArray[np.int64],
    key: Hashes,
    old_key: Hashes | None,
    unchanged: NDArray[np.uint8],
) -> Followed:
    """Follow rows with a key through events in commit order.

    Args:
        action: `fold.INSERT`, `fold.UPDATE`, `fold.DELETE`, `fold.MOVE` or `TRANSIENT`, one per event.
        expected: see `fold.fold_keys`.
        epoch: the number of truncates before each event.
        lsn: the events' commit LSNs.
        key: the hashes of the events' keys.
        old_key: the hashes of their old keys, which only a `MOVE` uses; None if there is no `MOVE`.
        unchanged: events x tracked columns, 1 if the event does not bring the value.
    """
    events, tracked = unchanged.shape
    capacity = events + (0 if old_key is None else int(np.count_nonzero(action == MOVE)))
    slot_row, slot_epoch, key_event = (np.empty(capacity, np.int32) for _ in range(3))
    key_is_old, slot_expected = np.empty(capacity, np.uint8), np.empty(capacity, np.uint8)
    end, previous, base, opener = (np.empty(events, np.int32) for _ in range(4))
    source, conflicts = np.empty((events, tracked), np.int32), np.zeros(1, np.int64)
    used = _follow_keys(
        action,
        expected,
        epoch,
        lsn,
        *key,
        *(key if old_key is None else old_key),
        unchanged,
        new_table(capacity),
        np.empty(capacity, np.uint64),
        np.empty(capacity, np.uint64),
        slot_row,
        slot_epoch,
        key_event,
        key_is_old,
        slot_expected,
        end,
        previous,
        base,
        opener,
        source,
        conflicts,
    )
    slots = key_event[:used], key_is_old[:used], slot_expected[:used]
    return Followed(end, previous, source, base, opener, *slots, int(conflicts[0]))


def follow_images(count: NDArray[np.int64], epoch: NDArray[np.int32], image: Hashes) -> NDArray[np.int32]:
    """Follow equal rows: each one that goes is the newest of them.

    Args:
        count: 1 for an event that adds a row, -1 for one that removes it.
        epoch: the number of truncates before each event.
        image: the hashes of the events' rows.

    Returns:
        for each added row the event that removes it, or -1; for each removed one the event that has added it, or -1 if
        it is a base.
    """
    events = len(count)
    slots = np.empty(events, np.uint64), np.empty(events, np.uint64)
    newest, slot_epoch, below, end = (np.empty(events, np.int32) for _ in range(4))
    _follow_images(count, epoch, *image, new_table(events), *slots, newest, slot_epoch, below, end)
    return end
