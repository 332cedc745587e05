"""The kernels of the fold: changes become one row per identity, or versions of rows for a history.

Each row that the table had before the run is a *base*, named by its key.  `fold_keys` follows every base through the
changes: it is deleted, or it ends as a row that may have another key.  Inserted rows have no base.  The result has one
row per base, so one MERGE on the base's key applies it, whatever keys were swapped.  Invariants, one slot per key:

- ``slot_row`` is the event that the slot's live row comes from, or -1: no row has this key (any more).
- ``slot_base`` is the slot of the base that the live row continues, or -1: it continues none.
- ``carrier[b]`` is the slot whose live row continues base b, or -1; ``carrier[slot_base[s]] == s`` if both are set.
- ``source[s, c]`` is the event that has the live row's value of the tracked column c, `KEEP` if it is the base's own
  value, `UNKNOWN` if it is not known.

For a history, `follow_keys` finds when each version of a row begins, and what ends it.  A *version* is the row that an
event leaves, named by that event's number.  It stays *open* until another event ends it, or a truncate.  The first
event that touches a base's key closes the base.  Truncates are not events: each event has an *epoch*, the number of
truncates before it.  A slot that was last touched in an earlier epoch is empty, so truncates cost nothing per row.
Invariants, one slot per key:

- ``slot_row`` is the open version that has the key, `NONE`, or `BASE`: no event has touched the key yet.
- ``slot_epoch`` is the epoch of the last event that touched the key.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np

from walreplay.decode.compile.kernel import kernel
from walreplay.decode.compile.parameters import given, out
from walreplay.fold.identity import HASHES, TABLE, Hashes, new_table, slot_of

if TYPE_CHECKING:
    from numpy.typing import NDArray


INSERT: Final = 0
"""A whole new row takes the key."""
UPDATE: Final = 1
"""The key's row changes; unchanged columns keep their values."""
DELETE: Final = 2
MOVE: Final = 3
"""The row of the old key changes and takes the new one; unchanged columns keep their values."""

EXPECTED: Final = 1
"""The key has a row before the event."""
CLAIMED: Final = 2
"""The key has no row before the event; if it has one, the key is not unique."""

KEEP: Final = -1
UNKNOWN: Final = -2

NO_BASE: Final = -1


@kernel(
    given("uint8"),
    given("uint8"),
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
    out("uint8"),
    out("int32", ndim=2),
    out("int64"),
)
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
    conflicts,
):
    tracked = unchanged.shape[1]
    used = 0
    for i in range(action.shape[0]):
        kind = action[i]
        s = slot_of(first, second, i, table, slot_first, slot_second, used)
        new_slot = s == used
        if new_slot:
            used += 1
            # The key occurs for the first time: its base is untouched, and nothing is known of it.
            slot_row[s] = -1
            slot_base[s] = s
            carrier[s] = s
            slot_expected[s] = expected[i] if kind != 3 or expected[i] == 2 else 0
            slot_reset[s] = 0
            key_event[s] = i
            key_is_old[s] = 0
            for c in range(tracked):
                source[s, c] = -1
        elif expected[i] == 2 and slot_row[s] >= 0:
            conflicts[0] += 1
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
            o = slot_of(old_first, old_second, i, table, slot_first, slot_second, used)
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
                # No row has the old key, so the moved row continues no base.
                slot_base[o] = -1
                for c in range(tracked):
                    source[o, c] = -2
            # A row that has the new key is replaced.
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


@kernel(given("uint8"), *HASHES, *HASHES, *TABLE, out("int64"), out("uint64"))
def _stretches(action, first, second, old_first, old_second, table, slot_first, slot_second, stretch, number):  # type: ignore[no-untyped-def]
    used = 0
    count = 0
    for i in range(action.shape[0]):
        s = slot_of(first, second, i, table, slot_first, slot_second, used)
        if s == used:
            used += 1
            stretch[s] = -1
        if action[i] == 3:
            o = slot_of(old_first, old_second, i, table, slot_first, slot_second, used)
            if o == used:
                used += 1
            stretch[s] = -1
            stretch[o] = -1
            number[i] = count
            count += 1
        else:
            if stretch[s] < 0:
                stretch[s] = count
                count += 1
            number[i] = stretch[s]
    return count


@dataclass(frozen=True, slots=True)
class Folded:
    """One row per base, or per new row without one.

    All arrays have one entry per row.

    Attributes:
        row: the number of the event that the final row is taken from; -1 for a base that is only deleted.
        source: rows x tracked columns: the event that the value is taken from, `KEEP` or `UNKNOWN`.
        base: the event that the base's key is taken from; `NO_BASE` if the row has no base.
        base_is_old: the base's key is that event's old key.
        expected: `EXPECTED` if the base should be in the table, because its first change was no insert; `CLAIMED` if it
            should not; otherwise 0.
        reset: none of the base's values are left.
        conflicts: how many keys were claimed while they had a row.
    """

    row: NDArray[np.int32]
    source: NDArray[np.int32]
    base: NDArray[np.int32]
    base_is_old: NDArray[np.uint8]
    expected: NDArray[np.uint8]
    reset: NDArray[np.uint8]
    conflicts: int = 0

    @property
    def content(self) -> NDArray[np.int32]:
        """For each row an event that has it: the one that it is taken from, or else its base's."""
        return np.where(self.row < 0, self.base, self.row)

    def take(self, at: slice | NDArray[np.intp]) -> Folded:
        """Return some of the rows, perhaps in another order."""
        return Folded(
            self.row[at], self.source[at], self.base[at], self.base_is_old[at], self.expected[at], self.reset[at]
        )


def fold_keys(
    action: NDArray[np.uint8],
    expected: NDArray[np.uint8],
    key: Hashes,
    old_key: Hashes | None,
    unchanged: NDArray[np.uint8],
) -> Folded:
    """Fold events in commit order.

    Args:
        action: `INSERT`, `UPDATE`, `DELETE` or `MOVE`, one per event.
        expected: `EXPECTED`, `CLAIMED` or 0: whether the event's key should have a row before the event.
        key: the hashes of the events' keys.
        old_key: the hashes of their old keys, which only a `MOVE` uses; None if there is no `MOVE`.
        unchanged: events x tracked columns, 1 if the event does not bring the value.
    """
    events, tracked = unchanged.shape
    capacity = events + (0 if old_key is None else int(np.count_nonzero(action == MOVE)))
    slot_row, slot_base, carrier, key_event = (np.empty(capacity, np.int32) for _ in range(4))
    slot_expected, slot_reset, key_is_old = (np.empty(capacity, np.uint8) for _ in range(3))
    source = np.empty((capacity, tracked), np.int32)
    conflicts = np.zeros(1, np.int64)
    slots = slot_row, slot_base, carrier, slot_expected, slot_reset, key_event, key_is_old
    keys = *key, *(key if old_key is None else old_key)
    used = _fold_keys(action, expected, *keys, unchanged, *new_table(capacity), *slots, source, conflicts)
    live = slot_row[:used] >= 0
    # A base continues only in the live row that carries it.
    carried = np.zeros(used, np.bool_)
    bases = slot_base[:used]
    carried[bases[live & (bases >= 0)]] = True
    rows, gone = np.nonzero(live)[0], np.nonzero(~carried)[0]
    row_base = bases[rows]
    base_slot = np.maximum(row_base, 0)
    has_base = row_base >= 0
    return Folded(
        row=np.concatenate([slot_row[rows], np.full(len(gone), -1, np.int32)]),
        source=np.concatenate([source[rows], np.full((len(gone), tracked), KEEP, np.int32)]),
        base=np.concatenate([np.where(has_base, key_event[base_slot], np.int32(NO_BASE)), key_event[gone]]),
        base_is_old=np.concatenate([key_is_old[base_slot], key_is_old[gone]]),
        expected=np.concatenate([np.where(has_base, slot_expected[base_slot], np.uint8(0)), slot_expected[gone]]),
        reset=np.concatenate([slot_reset[rows], slot_reset[gone]]),
        conflicts=int(conflicts[0]),
    )


def fold_between_moves(
    action: NDArray[np.uint8],
    expected: NDArray[np.uint8],
    key: Hashes,
    old_key: Hashes,
    unchanged: NDArray[np.uint8],
) -> Folded:
    """Fold each run of a key's events in which no `MOVE` touches it; see `fold_keys`.

    Returns:
        one row per run, and each `MOVE` as a row of its own: ``row`` and ``base`` are its event.
    """
    events, tracked = unchanged.shape
    capacity = events + int(np.count_nonzero(action == MOVE))
    number = np.empty(events, np.uint64)
    _stretches(action, *key, *old_key, *new_table(capacity), np.empty(capacity, np.int64), number)
    moves, rest = np.nonzero(action == MOVE)[0], np.nonzero(action != MOVE)[0]
    numbers = number[rest]
    folded = fold_keys(action[rest], expected[rest], (numbers, numbers), None, unchanged[rest])

    def back(at: NDArray[np.int32]) -> NDArray[np.int32]:
        """Translate to the events' own numbers; numbers below 0 stay."""
        if not len(rest):
            return at
        return np.where(at >= 0, rest[np.maximum(at, 0)], at).astype(np.int32)

    own = moves.astype(np.int32)
    none = np.zeros(len(moves), np.uint8)
    sources = np.where(unchanged[moves] == 1, np.int32(KEEP), own[:, None])
    return Folded(
        row=np.concatenate([back(folded.row), own]),
        source=np.concatenate([back(folded.source), sources.reshape(len(moves), tracked)]),
        base=np.concatenate([back(folded.base), own]),
        base_is_old=np.concatenate([folded.base_is_old, none]),
        expected=np.concatenate([folded.expected, expected[moves]]),
        reset=np.concatenate([folded.reset, none]),
        conflicts=folded.conflicts,
    )


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
class FollowedRows:
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
) -> FollowedRows:
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
    keys, table = (*key, *(key if old_key is None else old_key)), new_table(capacity)
    slots, rows = (slot_row, slot_epoch, key_event, key_is_old, slot_expected), (end, previous, base, opener)
    used = _follow_keys(action, expected, epoch, lsn, *keys, unchanged, *table, *slots, *rows, source, conflicts)
    touched = key_event[:used], key_is_old[:used], slot_expected[:used]
    return FollowedRows(end, previous, source, base, opener, *touched, int(conflicts[0]))


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
    newest, slot_epoch, below, end = (np.empty(events, np.int32) for _ in range(4))
    _follow_images(count, epoch, *image, *new_table(events), newest, slot_epoch, below, end)
    return end
