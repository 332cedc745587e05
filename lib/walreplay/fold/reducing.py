"""The kernels of the fold: changes become versions of rows, of which a mirror takes the last and a history takes all.

Each row that the table had before the events is a *base*, named by its key.  A *version* is the row that an event
leaves, named by that event's number.  It stays *open* until another event ends it, or a truncate.  `follow_keys`
follows every row through the events: when each of its versions begins, what ends it, and which base its first version
continues.  Inserted rows continue no base.  Truncates are not events: ``truncates`` has for each event how many come
before it.  An open version of an event with fewer counts for nothing, so truncates cost nothing per row.

Invariants, one slot per key:

- ``open_version`` is the open version that has the key, `NONE`, or `BASE`: no event has touched the key yet.
- ``key_event`` is the first event that touches the key: it closes the key's base.

A history has ``base`` and ``source`` of each event's version.  For a mirror the versions of a key share one entry, that
of its slot, so its memory does not grow with the events of a key.

- ``base[version]`` is the slot of the base that the row continues, or -1.  If keys 1 and 2 are swapped by a
  third, slot 1 continues base 2, and slot 2 base 1.  No two open versions continue the same base.
- ``source[version, column]`` is the event that has the version's value of the tracked column, `KEEP` if it is the
  base's own value, `UNKNOWN` if it is not known.

`fold_keys` makes one row per base of the last versions, so one MERGE on the base's key applies it, whatever keys were
swapped.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np

from walreplay.decode.compile.kernel import helper, kernel
from walreplay.decode.compile.parameters import given, out, record
from walreplay.fold.identity import HASHES, NO_TRUNCATES, TABLE, new_table, slot_of

if TYPE_CHECKING:
    from numpy.typing import NDArray


INSERT: Final = 0  # a whole new row takes the key
UPDATE: Final = 1  # the key's row changes; unchanged columns keep their values
DELETE: Final = 2
MOVE: Final = 3  # the row of the old key changes and takes the new one; unchanged columns keep their values

EXPECTED: Final = 1  # the key has a row before the event
CLAIMED: Final = 2  # the key has no row before the event; said only of keys that may not be unique (`events`)

KEEP: Final = -1
UNKNOWN: Final = -2  # the source did not send it, and no event in front has it

NO_BASE: Final = -1  # the row is new, while the base of its key goes on under another key


NONE: Final = -1  # no version has the key
BASE: Final = -2  # a row of the table, if there is one


class KeyEvents(NamedTuple):
    """Events in commit order, and the hashes of their keys and of their old keys.

    ``action`` is `INSERT`, `UPDATE`, `DELETE` or `MOVE`, which alone uses the old keys.  ``expected`` says whether the
    event's key should have a row before the event: `EXPECTED`, `CLAIMED` or 0.  ``unchanged`` (events x tracked
    columns) is 1 if the event does not bring the value.
    """

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

    open_version: NDArray[np.int32]
    key_event: NDArray[np.int32]
    key_is_old: NDArray[np.uint8]
    base_expected: NDArray[np.uint8]


class _Versions(NamedTuple):
    """What is known of each version (see the module's invariants), and ``end``, ``previous`` and ``opener``."""

    base: NDArray[np.int32]
    source: NDArray[np.int32]
    courses: NDArray[np.int32]


@helper
def _version_before(event, version, truncates, end):  # type: ignore[no-untyped-def]
    """Return the version of a key in front of an event, which ends it there; of a mirror no end is kept."""
    if truncates.shape[0] == 0 or version < 0:
        return version
    if truncates[version] < truncates[event]:
        return np.int32(NONE)  # a truncate has ended it
    end[version] = event
    return version


@kernel(
    EVENTS,
    given("int32"),
    given("int64"),
    TABLE,
    record(_KeySlots, out("int32"), out("int32"), out("uint8"), out("uint8")),
    record(_Versions, out("int32"), out("int32", ndim=2), out("int32", ndim=2)),
    out("int64"),
)
def _follow_keys(events, truncates, lsn, table, slots, versions, conflicts):  # type: ignore[no-untyped-def]
    action, expected, first, second, old_first, old_second, unchanged = events
    places, slot_first, slot_second = table
    open_version, key_event, key_is_old, base_expected = slots
    base, source, courses = versions
    end, previous, opener = courses[0], courses[1], courses[2]  # as in `FollowedRows`
    is_history = truncates.shape[0] > 0
    tracked = unchanged.shape[1]  # columns that some event does not bring (unchanged TOAST); others come whole
    used = 0
    for event in range(action.shape[0]):
        kind = action[event]
        if is_history:
            end[event] = -1
            opener[event] = event
        slot = slot_of(first, second, event, places, slot_first, slot_second, used)
        if slot == used:
            used += 1
            # Behind a truncate the table is empty; otherwise the key's base is untouched.
            open_version[slot] = NONE if is_history and truncates[event] > 0 else BASE
            key_event[slot] = event
            key_is_old[slot] = 0
            # A MOVE needs a row under its old key.  Of the new key it says something only where it claims that.
            base_expected[slot] = expected[event] if kind != MOVE or expected[event] == CLAIMED else 0
        version = _version_before(event, open_version[slot], truncates, end)
        if expected[event] == CLAIMED and version >= 0:
            conflicts[0] += 1  # whether the table itself has a row, the MERGE finds out
        if kind == DELETE:
            open_version[slot] = NONE
            continue
        # The row that goes on in this version: none for an insert.
        row_slot = slot
        if kind == INSERT:
            version = NONE
        elif kind == MOVE:
            row_slot = slot_of(old_first, old_second, event, places, slot_first, slot_second, used)
            if row_slot == used:
                used += 1
                open_version[row_slot] = NONE if is_history and truncates[event] > 0 else BASE
                key_event[row_slot] = event
                key_is_old[row_slot] = 1
                base_expected[row_slot] = EXPECTED  # a MOVE changes a row that is there
            version = _version_before(event, open_version[row_slot], truncates, end)
            open_version[row_slot] = NONE
        open_version[slot] = event
        place, former = slot, row_slot  # of this version and of the one in front, in `base` and `source`
        if is_history:
            place, former = event, version
            previous[event] = version
            if version >= 0 and lsn[version] == lsn[event]:  # a commit LSN names one transaction
                opener[event] = opener[version]
        if version < 0:
            # The base's own values, or such as are not known.
            base[place] = row_slot if version == BASE else -1
            for column in range(tracked):
                is_sent = unchanged[event, column] == 0
                source[place, column] = event if is_sent else KEEP if version == BASE else UNKNOWN
            continue
        if place != former:
            base[place] = base[former]
        for column in range(tracked):
            if unchanged[event, column] == 0:
                source[place, column] = event
            elif place != former:
                source[place, column] = source[former, column]
    return used


@dataclass(frozen=True, slots=True)
class FollowedRows:
    """What became of the rows.

    For a history the first arrays have one entry per event, which means nothing for events that leave no row.  For a
    mirror ``end``, ``previous`` and ``opener`` are empty, and ``source`` and ``base`` have one entry per key, which
    means something where a version is ``last``.

    Attributes:
        end: the event that ends the event's version, or -1.
        previous: the version whose row the event's version goes on with, or `NONE` or `BASE`.
        opener: the first event of the same transaction since which the row is there under its key or those before; it
            says whether the transaction inserted the row (`versions`).
        source: versions x tracked columns: the event that has the value, `KEEP` if it is the base's, or `UNKNOWN`.
        base: the base (by its entry in the arrays below) whose row the version goes on with; -1 for none.
        last: of each base or key that was touched, the version that has the key in the end; below 0 for none.
        key_event: the first event that touches it.
        key_is_old: the key is that event's old key.
        expected: `EXPECTED` if there should be a row before that event, `CLAIMED` if not; otherwise 0.
        conflicts: how many keys were claimed while they had a row.
    """

    end: NDArray[np.int32]
    previous: NDArray[np.int32]
    opener: NDArray[np.int32]
    source: NDArray[np.int32]
    base: NDArray[np.int32]
    last: NDArray[np.int32]
    key_event: NDArray[np.int32]
    key_is_old: NDArray[np.uint8]
    expected: NDArray[np.uint8]
    conflicts: int


_NO_LSNS: Final = np.zeros(0, np.int64)


def follow_keys(
    events: KeyEvents, truncates: NDArray[np.int32] = NO_TRUNCATES, lsn: NDArray[np.int64] = _NO_LSNS
) -> FollowedRows:
    """Follow rows with a key through events in commit order.

    Args:
        truncates: for a history, the number of truncates before each event.
        lsn: for a history, the events' commit LSNs.
    """
    count, tracked = events.unchanged.shape
    capacity = count + int(np.count_nonzero(events.action == MOVE))  # a MOVE touches two keys, any other event one
    slots = _KeySlots(*(np.empty(capacity, kind) for kind in (np.int32, np.int32, np.uint8, np.uint8)))
    courses = end, previous, opener = np.empty((3, len(truncates)), np.int32)
    base, source = np.empty(capacity, np.int32), np.empty((capacity, tracked), np.int32)
    conflicts = np.zeros(1, np.int64)
    used = _follow_keys(*events, truncates, lsn, *new_table(capacity), *slots, base, source, courses, conflicts)
    touched = slots.key_event[:used], slots.key_is_old[:used], slots.base_expected[:used]
    rows = end, previous, opener, source, base, slots.open_version[:used]
    return FollowedRows(*rows, *touched, int(conflicts[0]))


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
        base: the event that the base's key is taken from; `NO_BASE` if the row has none. A row that is inserted under
            a key replaces that key's base, unless the base goes on under another key.
        base_is_old: the base's key is that event's old key.
        expected: `EXPECTED` if the base should be in the table, because its first change was no insert; `CLAIMED` if it
            should not; otherwise 0.
        reset: none of the base's values are left.
        conflicts: how many keys were claimed while they had a row.
    """

    row: NDArray[np.int32]
    source: NDArray[np.int32]
    base: NDArray[np.int32]
    base_is_old: NDArray[np.bool_]
    expected: NDArray[np.uint8]
    reset: NDArray[np.bool_]
    conflicts: int = 0

    @property
    def content(self) -> NDArray[np.int32]:
        """For each row an event that has it: the one that it is taken from, or else its base's."""
        return np.where(self.row < 0, self.base, self.row)

    def take(self, indices: slice | NDArray[np.intp]) -> Folded:
        """Return some of the rows, perhaps in another order."""
        events = self.row[indices], self.source[indices], self.base[indices]
        return Folded(*events, self.base_is_old[indices], self.expected[indices], self.reset[indices])


def fold_keys(events: KeyEvents) -> Folded:
    """Return the last version of each row, and the bases that no row continues."""
    rows = follow_keys(events)
    slots = np.flatnonzero(rows.last >= 0)
    base = rows.base[slots]
    reset = base < 0
    is_carried = np.zeros(len(rows.last), np.bool_)
    is_carried[base[~reset]] = True
    # A new row replaces the base of its key: one row of the MERGE, in place of delete and insert.
    base = np.where(reset & ~is_carried[slots], slots, base)
    is_carried[slots[base == slots]] = True
    gone = np.flatnonzero(~is_carried)
    touched, no_row = np.concatenate([base, gone]), np.full(len(gone), -1, np.int32)
    return Folded(
        row=np.concatenate([rows.last[slots], no_row]),
        source=np.concatenate([rows.source[slots], np.full((len(gone), rows.source.shape[1]), KEEP, np.int32)]),
        base=np.where(touched >= 0, rows.key_event[touched], np.int32(NO_BASE)),
        base_is_old=rows.key_is_old[touched] == 1,
        expected=np.where(touched >= 0, rows.expected[touched], np.uint8(0)),
        reset=np.concatenate([reset, np.ones(len(gone), np.bool_)]),
        conflicts=rows.conflicts,
    )


def fold_between_moves(events: KeyEvents) -> Folded:
    """Fold each run of a key's events in which no `MOVE` touches it; see `fold_keys`.

    The other key of a `MOVE` may be folded by another task, so it stays as it is until all events are together.

    Returns:
        one row per run, and each `MOVE` as a row of its own: ``row`` and ``base`` are its event.
    """
    action, expected, *hashes, unchanged = events
    is_move = action == MOVE
    capacity = len(action) + int(np.count_nonzero(is_move))
    runs = np.empty(len(action), np.uint64)
    _number_runs(action, *hashes, *new_table(capacity), np.empty(capacity, np.int64), runs)
    # A run's number takes the place of a key's hash: all halves are equal, and no two runs share it.  As an update in a
    # run of its own, a MOVE goes on with its base.
    return fold_keys(
        KeyEvents(np.where(is_move, np.uint8(UPDATE), action), expected, runs, runs, runs, runs, unchanged)
    )


class WatchedValues(NamedTuple):
    """Hashes of the watched columns: of all that every event brings, and (events x columns) of each of the others.

    ``nulls`` has the hash that NULL has in each of the others, ``tracked`` its place among the tracked columns.
    """

    always: NDArray[np.uint64]
    values: NDArray[np.uint64]
    tracked: NDArray[np.int64]
    nulls: NDArray[np.uint64]


class Continued(NamedTuple):
    """Which versions go on in later ones; all arrays have one entry per event.

    ``prior`` is the version in front of the event's, across versions of its transaction (see `FollowedRows.previous`),
    ``start`` the event that the version begins with.  It is ``replaced`` if a later event changes it without ending it:
    the version of that event stands for both.  It ``may_continue`` the one before, or the base, if the base's own
    values say so.
    """

    prior: NDArray[np.int32]
    start: NDArray[np.int32]
    replaced: NDArray[np.bool_]
    may_continue: NDArray[np.bool_]


@kernel(
    given("int64"),
    given("int64"),
    given("int32"),
    out("int32", ndim=2),
    record(WatchedValues, given("uint64"), out("uint64", ndim=2), given("int64"), given("uint64")),
    record(Continued, out("int32"), out("int32"), out("bool"), out("bool")),
)
def _continue_rows(action, lsn, previous, value_event, watched, results):  # type: ignore[no-untyped-def]
    """Compare each updated row with the one that its version would go on with."""
    always, values, tracked, nulls = watched
    prior, start, replaced, may_continue = results
    for event in range(action.shape[0]):
        prior[event], start[event] = -1, event
        replaced[event] = may_continue[event] = False
        if action[event] != UPDATE:
            continue
        version = previous[event]
        if version >= 0 and lsn[version] == lsn[event]:
            # What counts is the row before the transaction.
            replaced[version] = True
            version = prior[version]
        prior[event] = version  # the version before the transaction, for later events of it
        if version < 0:
            may_continue[event] = version == BASE
            continue
        is_same = always[version] == always[event]
        is_unsure = False
        for column in range(tracked.shape[0]):
            before = value_event[version, tracked[column]]
            after = value_event[event, tracked[column]]
            if before == after:
                continue
            if before == KEEP:
                is_unsure = True  # only the join with the table has the base's value
            elif (nulls[column] if before < 0 else values[before, column]) != (
                nulls[column] if after < 0 else values[after, column]
            ):
                is_same = False
        replaced[version] = is_same and not is_unsure
        if replaced[version]:
            start[event] = start[version]
            may_continue[event] = may_continue[version]
        else:
            may_continue[event] = is_same
    return 0


def continue_rows(
    action: NDArray[np.int64],
    lsn: NDArray[np.int64],
    end_lsn: NDArray[np.int64],
    followed: FollowedRows,
    watched: WatchedValues,
) -> Continued:
    """Find the versions of a history with watched columns that go on in later ones.

    Args:
        lsn: the events' commit LSNs.
        end_lsn: where each event's version ends.
    """
    integers, masks = np.empty((2, len(lsn)), np.int32), np.empty((2, len(lsn)), np.bool_)
    results = Continued(*integers, *masks)
    _continue_rows(action, lsn, followed.previous, followed.source, *watched, *results)
    # The transaction that changed the row has also ended it, so the change is never seen.
    unseen = np.flatnonzero((lsn == end_lsn) & ~results.replaced & (results.prior >= 0))
    results.replaced[results.prior[unseen]] = False  # so the version before has to be written
    return results
