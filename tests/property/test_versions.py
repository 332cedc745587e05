"""Versions of rows are what a plain replay of the changes makes them, in however many runs they are written."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from support.event_model import ADD, DELETE, INSERT, MOVE, REMOVE, UPDATE, Event
from support.row_states import RowStates, State
from support.version_model import (
    TRUNCATE,
    Change,
    Copies,
    Table,
    played,
    rows_of,
)
from walreplay.errors import TargetError
from walreplay.fold.events import Identity, Mode

keys = st.integers(0, 5)
pairs = st.tuples(st.booleans(), st.booleans())


@dataclass(frozen=True)
class Delivery:
    """How changes are applied: in runs that end with these transactions, each of two files and so many buckets.

    The first one may be told that the table is new.
    """

    ends: frozenset[int]
    buckets: int
    cut: int
    fresh: bool


@st.composite
def histories(draw: st.DrawFn, *actions: int) -> list[Change]:
    """Return transactions of one to several changes, whose ordinals leave gaps."""
    changes: list[Change] = []
    value = 10
    for number in range(draw(st.integers(1, 12))):
        for ordinal in range(draw(st.integers(1, 5))):
            action, key, old = draw(st.sampled_from(actions)), draw(keys), draw(keys)
            keeps = (False, False) if action in (DELETE, TRUNCATE) else draw(pairs)
            if action == MOVE and key == old:
                continue
            value += 2
            event = Event(action, key, (value, value + 1), keeps, old, lsn=100 + number)
            letter = {INSERT: "c", UPDATE: "u", MOVE: "u", DELETE: "d", TRUNCATE: "t"}[action]
            # A key change whose new row is whole comes as a delete and an insert.
            if action in (INSERT, DELETE) and draw(st.integers(0, 3)) == 0:
                letter = "u"
            changes.append(Change(event, 3 * ordinal, letter))
    return changes


deliveries = st.builds(
    Delivery,
    ends=st.frozensets(st.integers(0, 11), max_size=4),
    buckets=st.integers(1, 3),
    cut=st.integers(0, 8),
    fresh=st.booleans(),
)


def runs_of(changes: list[Change], delivery: Delivery) -> Iterator[list[Change]]:
    transactions = [list(group) for _, group in groupby(changes, key=lambda one: one.lsn)]
    run: list[Change] = []
    for number, transaction in enumerate(transactions):
        run += transaction
        if number in delivery.ends or number == len(transactions) - 1:
            yield run
            run = []


def check(changes: list[Change], delivery: Delivery) -> None:
    table = Table()
    for number, run in enumerate(runs_of(changes, delivery)):
        fresh = delivery.fresh and number == 0
        table.apply(run, buckets=delivery.buckets, cut=delivery.cut, fresh=fresh)
    assert rows_of(table.versions) == rows_of(played(changes).history)


@pytest.mark.parametrize(
    "actions",
    [
        (INSERT, UPDATE, UPDATE, DELETE),
        (INSERT, UPDATE, UPDATE, DELETE, MOVE, MOVE),
        (INSERT, UPDATE, UPDATE, DELETE, MOVE, TRUNCATE),
        (UPDATE, MOVE),
    ],
    ids=["without moves", "rows that change their keys", "truncates", "chains and swaps of moves"],
)
@given(data=st.data(), delivery=deliveries)
def test_versions(actions: tuple[int, ...], data: st.DataObject, delivery: Delivery) -> None:
    check(data.draw(histories(*actions)), delivery)


class Whole:
    """Rows of a table that sends whole old rows; inside of a transaction a key may have several."""

    def __init__(self) -> None:
        self.states = RowStates()
        self.changes: list[Change] = []
        self.inserted: set[int] = set()

    @property
    def rows(self) -> list[State]:
        return self.states.rows

    def add(self, values: tuple[int, ...], lsn: int, ordinal: int, op: str) -> None:
        key, *others = values
        self.states.begin(State(values, lsn, 0, ordinal, op))
        self.changes.append(Change(Event(ADD, key, (others[0], others[1]), lsn=lsn), ordinal, op))
        if op == "c":
            self.inserted.add(key)

    def remove(self, row: State, lsn: int, ordinal: int, op: str) -> None:
        key, *others = row.values
        self.states.end(row.values, lsn)
        self.changes.append(Change(Event(REMOVE, key, (others[0], others[1]), lsn=lsn), ordinal, op))

    def empty(self, lsn: int, ordinal: int) -> None:
        self.states.empty(lsn)
        self.inserted.clear()
        self.changes.append(Change(Event(TRUNCATE, 0, lsn=lsn), ordinal, "t"))

    def pass_on(self, order: Sequence[int], lsn: int, ordinal: int) -> None:
        """Give the rows one another's keys, one after the other."""
        rows = list(self.rows)
        for number, (row, key) in enumerate(zip(rows, [rows[at].values[0] for at in order], strict=True)):
            if key != row.values[0]:
                self.remove(row, lsn, ordinal + number, "u")
                self.add((key, *row.values[1:]), lsn, ordinal + number, "u")

    def end(self, lsn: int, ordinal: int) -> None:
        """Leave each key one row; say of rows that were inserted, and then updated, that they were inserted."""
        first = {row.values[0]: row for row in reversed(self.rows)}
        for row in self.rows:
            if first[row.values[0]] is not row:
                self.remove(row, lsn, ordinal, "d")
        for row in self.rows:
            if row.lsn == lsn and row.values[0] in self.inserted:
                row.op = "c"
        self.inserted.clear()


@st.composite
def deferrable(draw: st.DrawFn, *, truncates: bool = True) -> Whole:
    """Change keys freely inside a transaction; at its end no two rows have one."""
    whole = Whole()
    # Few values, so that rows are equal but for their keys.
    value = st.integers(0, 1)
    for lsn in range(100, 100 + draw(st.integers(1, 8))):
        for ordinal in range(draw(st.integers(1, 7))):
            what = draw(st.sampled_from("iuuuumd" + "t" * truncates if draw(st.booleans()) else "iuuud"))
            if what == "i":
                whole.add((draw(keys), draw(value), draw(value)), lsn, ordinal, "c")
            elif what == "t":
                whole.empty(lsn, ordinal)
            elif whole.rows:
                row = draw(st.sampled_from(whole.rows))
                whole.remove(row, lsn, ordinal, "d" if what == "d" else "u")
                if what != "d":
                    key = row.values[0] if what == "u" else draw(keys)
                    whole.add((key, draw(value), draw(value)), lsn, ordinal, "u")
        if draw(st.booleans()):
            whole.pass_on(draw(st.permutations(range(len(whole.rows)))), lsn, 10)
        whole.end(lsn, 80)
    return whole


@given(st.data(), deliveries)
def test_versions_of_keys_that_two_rows_have_for_a_moment(data: st.DataObject, delivery: Delivery) -> None:
    whole = data.draw(deferrable())
    table = Table()
    for run in runs_of(whole.changes, delivery):
        # The images of a transaction's rows are compared among themselves, whatever file they are in.
        table.apply(run, buckets=delivery.buckets, cut=delivery.cut)
    assert rows_of(table.versions) == rows_of(whole.states.history)
    assert table.missing == 0
    for lsn in {change.lsn for change in whole.changes}:
        keys_then = [one.values[0] for one in whole.states.held_at(lsn)]
        assert len(keys_then) == len(set(keys_then)), "two rows have one key"


@st.composite
def images(draw: st.DrawFn, *actions: int) -> list[Change]:
    changes: list[Change] = []
    for lsn in range(100, 100 + draw(st.integers(1, 10))):
        for ordinal in range(draw(st.integers(1, 5))):
            action = draw(st.sampled_from(actions))
            event = Event(action, draw(st.integers(0, 1)), (draw(st.integers(0, 1)), 7), lsn=lsn)
            letter = {ADD: "c", INSERT: "c", REMOVE: "d", TRUNCATE: "t"}[action]
            changes.append(Change(event, ordinal, letter))
            if action == REMOVE and draw(st.booleans()):
                changes.append(Change(replace(event, action=ADD, key=draw(st.integers(0, 1))), ordinal, "u"))
    return changes


@pytest.mark.parametrize(
    ("mode", "changes_of"),
    [
        (Mode.MULTISET, images(ADD, ADD, REMOVE, REMOVE, TRUNCATE) | images(ADD, REMOVE)),
        (Mode.APPEND, images(INSERT, INSERT, TRUNCATE)),
    ],
    ids=["equal rows", "rows that are only added"],
)
@given(data=st.data(), delivery=deliveries)
def test_versions_of_copies(
    mode: Mode, changes_of: st.SearchStrategy[list[Change]], data: st.DataObject, delivery: Delivery
) -> None:
    table, changes = Copies(), data.draw(changes_of)
    for run in runs_of(changes, delivery):
        table.apply(run, identity=Identity(mode), buckets=delivery.buckets, cut=delivery.cut)
    states = played(changes, keyed=False)
    assert rows_of(table.versions) == rows_of(states.history)
    assert table.missing == states.missed


@given(
    histories(INSERT, UPDATE, UPDATE, UPDATE, UPDATE, DELETE, MOVE, TRUNCATE)
    | histories(UPDATE, UPDATE, UPDATE, INSERT),
    deliveries,
    st.sampled_from([(1,), (2,), (1, 2), ()]),
)
def test_only_watched_columns_begin_versions(
    changes: list[Change], delivery: Delivery, watched: tuple[int, ...]
) -> None:
    # Few values, so that many are the same.
    changes = [
        replace(one, event=replace(one.event, values=(one.event.values[0] // 2 % 3, one.event.values[1] // 4 % 2)))
        for one in changes
    ]
    table = Table()
    for number, run in enumerate(runs_of(changes, delivery)):
        options: Any = {"watched": watched, "fresh": delivery.fresh and number == 0}
        table.apply(run, buckets=delivery.buckets, cut=delivery.cut, **options)
    assert rows_of(table.versions) == rows_of(played(changes).tracked(watched))


@pytest.mark.parametrize("last", [DELETE, TRUNCATE, MOVE], ids=["deleted", "truncated", "moved"])
@pytest.mark.parametrize("ends", [frozenset(), frozenset({0})], ids=["in one run", "in two"])
def test_a_change_that_its_own_transaction_ends_is_never_seen(last: int, ends: frozenset[int]) -> None:
    changes = [
        Change(Event(INSERT, 1, (7, 8), lsn=100), 0, "c"),
        Change(Event(UPDATE, 1, (7, 9), lsn=101), 0, "u"),
        Change(Event(last, 2 if last == MOVE else 1, (7, 9), old=1, lsn=101), 1, "d"),
    ]
    table = Table()
    for run in runs_of(changes, Delivery(ends, 1, cut=0, fresh=False)):
        table.apply(run, watched=(1,))
    first = min(table.versions, key=lambda one: one.lsn)
    assert (first.values, first.lsn, first.end) == ((1, 7, 8), 100, 101)
    assert len(table.versions) == (2 if last == MOVE else 1)


def test_a_truncate_takes_several_rows_of_a_key_that_one_transaction_has_made() -> None:
    changes = [
        Change(Event(ADD, 1, (1, 1), lsn=100), 0, "c"),
        Change(Event(ADD, 1, (2, 2), lsn=101), 0, "c"),
        Change(Event(TRUNCATE, 0, lsn=101), 1, "t"),
        Change(Event(ADD, 1, (3, 3), lsn=101), 2, "c"),
    ]
    table = Table()
    table.apply(changes)
    spans = sorted((one.values, one.lsn, one.end) for one in table.versions)
    assert spans == [((1, 1, 1), 100, 101), ((1, 3, 3), 101, None)]


def test_of_equal_rows_that_are_written_anew_the_newest_ends_first() -> None:
    changes = [Change(Event(ADD, 1, (1, 7), lsn=100 + number // 2), number % 2, "c") for number in range(5)]
    changes += [Change(Event(REMOVE, 1, (1, 7), lsn=lsn), 0, "d") for lsn in (103, 104, 104)]
    table, identity = Copies(), Identity(Mode.MULTISET)
    for run in (changes[:5], changes[5:6], changes[6:]):
        table.apply(run, identity=identity, buckets=1, cut=0)
    assert table.anew == 2
    ends = {(one.lsn, one.ordinal): one.end for one in table.versions}
    assert ends == {(100, 0): None, (100, 1): None, (101, 0): 104, (101, 1): 104, (102, 0): 103}


def test_versions_with_values_of_the_table_are_written_anew() -> None:
    first = [Change(Event(INSERT, key, (key, 7), lsn=100), key, "c") for key in (1, 2, 3)]
    later = [
        # A value that is not sent, twice; a key that changes, and one that is deleted.
        Change(Event(UPDATE, 1, (0, 8), (True, False), lsn=101), 0, "u"),
        Change(Event(UPDATE, 1, (0, 9), (True, False), lsn=102), 0, "u"),
        Change(Event(MOVE, 5, (0, 7), (True, False), 2, lsn=102), 1, "u"),
        Change(Event(DELETE, 3, lsn=102), 2, "d"),
    ]
    table = Table()
    table.apply(first)
    table.apply(later)
    assert table.anew == 1
    assert rows_of(table.versions) == rows_of(played([*first, *later]).history)


def test_a_version_that_would_end_before_it_begins_is_refused() -> None:
    changes = [
        Change(Event(INSERT, 1, (7, 8), lsn=101), 0, "c"),
        Change(Event(UPDATE, 1, (7, 9), lsn=100), 0, "u"),
    ]
    with pytest.raises(TargetError, match="would end before it begins"):
        Table().apply(changes)
