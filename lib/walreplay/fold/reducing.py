"""The kernels of the fold: changes become one row per identity, or versions of rows for a history.

Each row that the table had before the run is a *base*, named by its key.  `fold_keys` follows every base through the
changes: it is deleted, or it ends as a row that may have another key.  Inserted rows have no base.  The result has one
row per base, so one MERGE on the base's key applies it, whatever keys were swapped.  Invariants, one slot per key:

- ``live_event`` is the event that the slot's live row comes from, or -1: no row has this key (any more).
- ``base_of_slot`` is the slot of the base that the live row continues, or -1: it continues none.
- ``slot_of_base`` is the inverse: the slot whose live row continues the base, or -1.  If key 1 becomes 2 while 2
  becomes 1, slot 1 continues base 2, and slot 2 base 1.
- ``value_event[slot, column]`` is the event that has the live row's value of the tracked column, `KEEP` if it is the
  base's own value, `UNKNOWN` if it is not known.

For a history, `follow_keys` finds when each version of a row begins, and what ends it.  A *version* is the row that an
event leaves, named by that event's number.  It stays *open* until another event ends it, or a truncate.  The first
event that touches a base's key closes the base.  Truncates are not events: each event has an *epoch*, the number of
truncates before it.  A slot that was last touched in an earlier epoch is empty, so truncates cost nothing per row.
Invariants, one slot per key:

- ``open_version`` is the open version that has the key, `NONE`, or `BASE`: no event has touched the key yet.
- ``slot_epoch`` is the epoch of the last event that touched the key.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np

from walreplay.decode.compile.kernel import kernel
from walreplay.decode.compile.parameters import given, out, record
from walreplay.fold.identity import HASHES, TABLE, Hashes, new_table, slot_of

if TYPE_CHECKING:
    from numpy.typing import NDArray


INSERT: Final = 0  # a whole new row takes the key
UPDATE: Final = 1  # the key's row changes; unchanged columns keep their values
DELETE: Final = 2
MOVE: Final = 3  # the row of the old key changes and takes the new one; unchanged columns keep their values

EXPECTED: Final = 1  # the key has a row before the event
CLAIMED: Final = 2  # the key has no row before the event; if it has one, the key is not unique

KEEP: Final = -1
UNKNOWN: Final = -2  # the source did not send it, and no event in front has it

NO_BASE: Final = -1  # the row is new


class KeyEvents(NamedTuple):
    """Events, and the hashes of their keys and of their old keys; see `fold_keys`."""

    action: NDArray[np.uint8]
    expected: NDArray[np.uint8]
    first: NDArray[np.uint64]
    second: NDArray[np.uint64]
    old_first: NDArray[np.uint64]
    old_second: NDArray[np.uint64]
    unchanged: NDArray[np.uint8]


EVENTS: Final = record(KeyEvents, given("uint8"), given("uint8"), *HASHES, *HASHES, out("uint8", ndim=2))


class _KeySlots(NamedTuple):
    """What is known of each key; see the module's invariants."""

    live_event: NDArray[np.int32]
    base_of_slot: NDArray[np.int32]
    slot_of_base: NDArray[np.int32]
    key_event: NDArray[np.int32]
    base_expected: NDArray[np.uint8]
    is_reset: NDArray[np.uint8]
    key_is_old: NDArray[np.uint8]


@kernel(
    EVENTS,
    TABLE,
    record(_KeySlots, *(out("int32") for _ in range(4)), *(out("uint8") for _ in range(3))),
    out("int32", ndim=2),
    out("int64"),
)
def _fold_keys(events, table, slots, value_event, conflicts):  # type: ignore[no-untyped-def]
    action, expected, first, second, old_first, old_second, unchanged = events
    places, slot_first, slot_second = table
    live_event, base_of_slot, slot_of_base, key_event, base_expected, is_reset, key_is_old = slots
    tracked = unchanged.shape[1]  # columns that some event does not bring (unchanged TOAST); others come whole
    used = 0
    for event in range(action.shape[0]):
        kind = action[event]
        slot = slot_of(first, second, event, places, slot_first, slot_second, used)
        is_new = slot == used
        if is_new:
            used += 1
            # The key occurs for the first time: its base is untouched, and nothing is known of it.
            live_event[slot] = -1
            base_of_slot[slot] = slot
            slot_of_base[slot] = slot
            # A MOVE needs a row under its old key. Of the new key it says something only where it claims that.
            base_expected[slot] = expected[event] if kind != MOVE or expected[event] == CLAIMED else 0
            is_reset[slot] = 0
            key_event[slot] = event
            key_is_old[slot] = 0
            for column in range(tracked):
                value_event[slot, column] = KEEP
        elif expected[event] == CLAIMED and live_event[slot] >= 0:
            conflicts[0] += 1  # whether the table itself has a row, the MERGE finds out
        if kind == UPDATE:
            if not is_new and live_event[slot] == -1:
                # The key's row was deleted or has moved away: what the update does not bring is not known.
                base_of_slot[slot] = slot if slot_of_base[slot] == -1 else -1
                if base_of_slot[slot] == slot:
                    slot_of_base[slot] = slot  # one row per base: the MERGE updates it, in place of delete and insert
                for column in range(tracked):
                    value_event[slot, column] = UNKNOWN
            live_event[slot] = event
            for column in range(tracked):
                if unchanged[event, column] == 0:
                    value_event[slot, column] = event
        elif kind == INSERT:
            base = base_of_slot[slot]
            if base != -1 and base != slot and slot_of_base[base] == slot:
                slot_of_base[base] = -1  # no row carries this base any more, so its row is deleted
            base_of_slot[slot] = -1
            if slot_of_base[slot] == -1 or slot_of_base[slot] == slot:
                base_of_slot[slot] = slot
                slot_of_base[slot] = slot
            live_event[slot] = event
            is_reset[slot] = 1
            for column in range(tracked):
                # An insert that a fold has made of several events may lack values, too.
                value_event[slot, column] = event if unchanged[event, column] == 0 else UNKNOWN
        elif kind == DELETE:
            base = base_of_slot[slot]
            if base != -1 and slot_of_base[base] == slot:
                slot_of_base[base] = -1
            base_of_slot[slot] = -1
            live_event[slot] = -1
            is_reset[slot] = 1
        else:
            old_slot = slot_of(old_first, old_second, event, places, slot_first, slot_second, used)
            if old_slot == used:
                used += 1
                live_event[old_slot] = -1
                base_of_slot[old_slot] = old_slot
                slot_of_base[old_slot] = old_slot
                base_expected[old_slot] = EXPECTED  # A MOVE changes a row that is there
                is_reset[old_slot] = 0
                key_event[old_slot] = event
                key_is_old[old_slot] = 1
                for column in range(tracked):
                    value_event[old_slot, column] = KEEP
            elif live_event[old_slot] == -1:
                # No row has the old key, so the moved row continues no base.
                base_of_slot[old_slot] = -1
                for column in range(tracked):
                    value_event[old_slot, column] = UNKNOWN
            # A row that has the new key is replaced.
            base = base_of_slot[slot]
            if base != -1 and slot_of_base[base] == slot:
                slot_of_base[base] = -1
            base_of_slot[slot] = base_of_slot[old_slot]
            if base_of_slot[slot] != -1:  # the moved row takes its base along
                slot_of_base[base_of_slot[slot]] = slot
            elif slot_of_base[slot] == -1:  # the row replaces the base of its new key
                base_of_slot[slot] = slot
                slot_of_base[slot] = slot
            is_reset[slot] = 1
            for column in range(tracked):
                is_sent = unchanged[event, column] == 0
                value_event[slot, column] = event if is_sent else value_event[old_slot, column]
            live_event[slot] = event
            live_event[old_slot] = -1
            base_of_slot[old_slot] = -1
            is_reset[old_slot] = 1
    return used


@kernel(given("uint8"), *HASHES, *HASHES, TABLE, out("int64"), out("uint64"))
def _number_runs(action, first, second, old_first, old_second, table, run_of_slot, run_of_event):  # type: ignore[no-untyped-def]
    places, slot_first, slot_second = table
    used = 0
    count = 0
    for event in range(action.shape[0]):
        slot = slot_of(first, second, event, places, slot_first, slot_second, used)
        if slot == used:
            used += 1
            run_of_slot[slot] = -1
        if action[event] == MOVE:
            old_slot = slot_of(old_first, old_second, event, places, slot_first, slot_second, used)
            if old_slot == used:
                used += 1
            run_of_slot[slot] = -1
            run_of_slot[old_slot] = -1  # A MOVE ends the runs of both keys
            run_of_event[event] = count
            count += 1
        else:
            if run_of_slot[slot] < 0:
                run_of_slot[slot] = count
                count += 1
            run_of_event[event] = run_of_slot[slot]
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

    def take(self, indices: slice | NDArray[np.intp]) -> Folded:
        """Return some of the rows, perhaps in another order."""
        events = self.row[indices], self.source[indices], self.base[indices]
        return Folded(*events, self.base_is_old[indices], self.expected[indices], self.reset[indices])


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
    slots = _KeySlots(*(np.empty(capacity, kind) for kind in 4 * [np.int32] + 3 * [np.uint8]))
    value_event, conflicts = np.empty((capacity, tracked), np.int32), np.zeros(1, np.int64)
    key_events = KeyEvents(action, expected, *key, *(key if old_key is None else old_key), unchanged)
    used = _fold_keys(*key_events, *new_table(capacity), *slots, value_event, conflicts)
    live = slots.live_event[:used] >= 0
    # A base continues only in the live row that carries it.
    carried = np.zeros(used, np.bool_)
    bases = slots.base_of_slot[:used]
    carried[bases[live & (bases >= 0)]] = True
    rows, gone = np.nonzero(live)[0], np.nonzero(~carried)[0]
    row_base = bases[rows]
    base_slot = np.maximum(row_base, 0)
    has_base = row_base >= 0
    base_expected, key_event, is_old = slots.base_expected, slots.key_event, slots.key_is_old
    return Folded(
        row=np.concatenate([slots.live_event[rows], np.full(len(gone), -1, np.int32)]),
        source=np.concatenate([value_event[rows], np.full((len(gone), tracked), KEEP, np.int32)]),
        base=np.concatenate([np.where(has_base, key_event[base_slot], np.int32(NO_BASE)), key_event[gone]]),
        base_is_old=np.concatenate([is_old[base_slot], is_old[gone]]),
        expected=np.concatenate([np.where(has_base, base_expected[base_slot], np.uint8(0)), base_expected[gone]]),
        reset=np.concatenate([slots.is_reset[rows], slots.is_reset[gone]]),
        conflicts=int(conflicts[0]),
    )


def fold_between_moves(
    action: NDArray[np.uint8], expected: NDArray[np.uint8], key: Hashes, old_key: Hashes, unchanged: NDArray[np.uint8]
) -> Folded:
    """Fold each run of a key's events in which no `MOVE` touches it; see `fold_keys`.

    Returns:
        one row per run, and each `MOVE` as a row of its own: ``row`` and ``base`` are its event.
    """
    events, tracked = unchanged.shape
    capacity = events + int(np.count_nonzero(action == MOVE))  # A MOVE touches two keys, any other event one
    run_of_event = np.empty(events, np.uint64)
    _number_runs(action, *key, *old_key, *new_table(capacity), np.empty(capacity, np.int64), run_of_event)
    moves, others = np.nonzero(action == MOVE)[0], np.nonzero(action != MOVE)[0]
    runs = run_of_event[others]
    # A run's number takes the place of a key's hash: both halves are equal, and no two runs share it.
    folded = fold_keys(action[others], expected[others], (runs, runs), None, unchanged[others])

    def to_events(event_numbers: NDArray[np.int32]) -> NDArray[np.int32]:
        """Translate to the events' own numbers; numbers below 0 stay."""
        if not len(others):
            return event_numbers
        return np.where(event_numbers >= 0, others[np.maximum(event_numbers, 0)], event_numbers).astype(np.int32)

    move_events = moves.astype(np.int32)
    zeros = np.zeros(len(moves), np.uint8)
    sources = np.where(unchanged[moves] == 1, np.int32(KEEP), move_events[:, None])  # the old row's value stays
    return Folded(
        row=np.concatenate([to_events(folded.row), move_events]),
        source=np.concatenate([to_events(folded.source), sources.reshape(len(moves), tracked)]),
        base=np.concatenate([to_events(folded.base), move_events]),
        base_is_old=np.concatenate([folded.base_is_old, zeros]),
        expected=np.concatenate([folded.expected, expected[moves]]),
        reset=np.concatenate([folded.reset, zeros]),
        conflicts=folded.conflicts,
    )


NONE: Final = -1  # no version has the key
BASE: Final = -2  # a row of the table, if there is one
TRANSIENT: Final = 6  # an action: a row comes and goes within its transaction, beside the row that has its key


class _VersionSlots(NamedTuple):
    """What is known of each key of a history; see the module's invariants."""

    open_version: NDArray[np.int32]
    slot_epoch: NDArray[np.int32]
    key_event: NDArray[np.int32]
    key_is_old: NDArray[np.uint8]
    base_expected: NDArray[np.uint8]


@kernel(
    EVENTS,
    given("int32"),
    given("int64"),
    TABLE,
    record(_VersionSlots, *(out("int32") for _ in range(3)), out("uint8"), out("uint8")),
    out("int32", ndim=2),
    out("int32", ndim=2),
    out("int64"),
)
def _follow_keys(events, epoch, lsn, table, slots, versions, value_event, conflicts):  # type: ignore[no-untyped-def]
    action, expected, first, second, old_first, old_second, unchanged = events
    places, slot_first, slot_second = table
    open_version, slot_epoch, key_event, key_is_old, base_expected = slots
    end, previous, base, opener = versions[0], versions[1], versions[2], versions[3]  # as in `FollowedRows`
    tracked = value_event.shape[1]
    used = 0
    for event in range(action.shape[0]):
        kind = action[event]
        end[event] = -1
        previous[event] = NONE
        base[event] = -1
        opener[event] = event
        if kind == TRANSIENT:
            end[event] = event  # the key has another row in the end, so its slot stays as it is
            for column in range(tracked):
                value_event[event, column] = event if unchanged[event, column] == 0 else UNKNOWN
            continue
        slot = slot_of(first, second, event, places, slot_first, slot_second, used)
        if slot == used:
            used += 1
            open_version[slot] = BASE if epoch[event] == 0 else NONE  # behind a truncate the table is empty
            key_event[slot] = event
            key_is_old[slot] = 0
            base_expected[slot] = expected[event] if kind != MOVE or expected[event] == CLAIMED else 0
        elif slot_epoch[slot] < epoch[event]:
            open_version[slot] = NONE
        slot_epoch[slot] = epoch[event]
        version = open_version[slot]
        if expected[event] == CLAIMED and version >= 0:
            conflicts[0] += 1
        if version >= 0:
            end[version] = event
        if kind == DELETE:
            open_version[slot] = NONE
            continue
        # The row that goes on in this version: none for an insert.
        if kind == UPDATE:
            row_slot = slot
        elif kind == MOVE:
            row_slot = slot_of(old_first, old_second, event, places, slot_first, slot_second, used)
            if row_slot == used:
                used += 1
                open_version[row_slot] = BASE if epoch[event] == 0 else NONE
                key_event[row_slot] = event
                key_is_old[row_slot] = 1
                base_expected[row_slot] = EXPECTED
            elif slot_epoch[row_slot] < epoch[event]:
                open_version[row_slot] = NONE
            slot_epoch[row_slot] = epoch[event]
            version = open_version[row_slot]
            if version >= 0:
                end[version] = event
            open_version[row_slot] = NONE
        else:
            row_slot = slot
            version = NONE
        previous[event] = version
        if version >= 0:
            base[event] = base[version]
            if lsn[version] == lsn[event]:  # a commit LSN names one transaction
                opener[event] = opener[version]
        elif version == BASE:
            base[event] = row_slot
        for column in range(tracked):
            if unchanged[event, column] == 0:
                value_event[event, column] = event
            elif version >= 0:
                value_event[event, column] = value_event[version, column]
            else:
                # The base's own value, or one that is not known.
                value_event[event, column] = KEEP if version == BASE else UNKNOWN
        open_version[slot] = event
    return used


@kernel(given("int64"), given("int32"), *HASHES, TABLE, out("int32", ndim=2), out("int32"))
def _follow_images(count, epoch, first, second, table, stacks, partner):  # type: ignore[no-untyped-def]
    places, slot_first, slot_second = table
    # Of each image the newest event that has added a row; of each event the next older one: a stack.
    newest, below, slot_epoch = stacks[0], stacks[1], stacks[2]
    used = 0
    for event in range(count.shape[0]):
        partner[event] = -1
        below[event] = -1
        slot = slot_of(first, second, event, places, slot_first, slot_second, used)
        if slot == used:
            used += 1
            newest[slot] = -1
        elif slot_epoch[slot] < epoch[event]:
            newest[slot] = -1  # a truncate came between
        slot_epoch[slot] = epoch[event]
        if count[event] > 0:
            below[event] = newest[slot]
            newest[slot] = event
        elif newest[slot] >= 0:
            # A removed copy is the newest one, so that it does not matter where runs are divided.
            partner[newest[slot]] = event
            partner[event] = newest[slot]
            newest[slot] = below[newest[slot]]
    return used


@dataclass(frozen=True, slots=True)
class FollowedRows:
    """What became of the rows.

    The first arrays have one entry per event.  They mean nothing for events that leave no row.

    Attributes:
        end: the event that ends the event's version, or -1.
        previous: the version whose row the event's version goes on with, or `NONE` or `BASE`.
        source: events x tracked columns: the event that has the value, `KEEP` if it is the base's, or `UNKNOWN`.
        base: the base (by its entry in the arrays below) whose row the version goes on with; -1 for none.
        opener: the first event of the same transaction since which the row is there under its key or those before.
        key_event: of each base or key that was touched, the first event that does so.
        key_is_old: the key is that event's old key.
        expected: `EXPECTED` if there should be a row before that event, `CLAIMED` if not; otherwise 0.
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
        action: `INSERT`, `UPDATE`, `DELETE`, `MOVE` or `TRANSIENT`, one per event.
        expected: see `fold_keys`.
        epoch: the number of truncates before each event.
        lsn: the events' commit LSNs.
        key: the hashes of the events' keys.
        old_key: the hashes of their old keys, which only a `MOVE` uses; None if there is no `MOVE`.
        unchanged: events x tracked columns, 1 if the event does not bring the value.
    """
    events, tracked = unchanged.shape
    capacity = events + (0 if old_key is None else int(np.count_nonzero(action == MOVE)))
    slots = _VersionSlots(*(np.empty(capacity, kind) for kind in 3 * [np.int32] + 2 * [np.uint8]))
    versions = end, previous, base, opener = np.empty((4, events), np.int32)
    source, conflicts = np.empty((events, tracked), np.int32), np.zeros(1, np.int64)
    key_events = KeyEvents(action, expected, *key, *(key if old_key is None else old_key), unchanged)
    used = _follow_keys(*key_events, epoch, lsn, *new_table(capacity), *slots, versions, source, conflicts)
    touched = slots.key_event[:used], slots.key_is_old[:used], slots.base_expected[:used]
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
    stacks, partner = np.empty((3, events), np.int32), np.empty(events, np.int32)
    _follow_images(count, epoch, *image, *new_table(events), stacks, partner)
    return partner
