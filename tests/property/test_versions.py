"""Versions of rows are what a plain replay of the changes makes them, in however many runs they are written."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from support.event_model import DELETE, INSERT, MOVE, UPDATE, Event, State, play
from support.version_model import TRUNCATE, Change, Table, in_transactions, versions_of

keys = st.integers(0, 5)
pairs = st.tuples(st.booleans(), st.booleans())


@st.composite
def histories(draw: st.DrawFn, *actions: int) -> list[Change]:
    """Give transactions of one to several changes, whose ordinals leave gaps."""
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


deliveries = st.tuples(st.sets(st.integers(0, 11), max_size=4), st.integers(1, 3), st.booleans())


def check(changes: list[Change], delivery: tuple[set[int], int, bool]) -> None:
    ends, buckets, keep = delivery
    transactions = list(in_transactions(changes))
    table, run = Table(), list[Change]()
    for number, transaction in enumerate(transactions):
        run += transaction
        if number in ends or number == len(transactions) - 1:
            table.apply(run, keep=keep, buckets=buckets)
            run = []
    assert table.rows == sorted(repr(version.row) for version in versions_of(changes, keep=keep))
    state: State = {}
    for transaction in transactions:
        for change in transaction:
            state = {} if change.action == TRUNCATE else play(state, [change.event])
        assert table.as_of(transaction[0].lsn) == state
    assert {one.key: one.values for one in table.versions if one.end is None} == state


@given(histories(INSERT, UPDATE, UPDATE, DELETE), deliveries)
def test_versions_without_moves(changes: list[Change], delivery: Any) -> None:
    check(changes, delivery)


@given(histories(INSERT, UPDATE, UPDATE, DELETE, MOVE, MOVE), deliveries)
def test_versions_of_rows_that_change_their_keys(changes: list[Change], delivery: Any) -> None:
    check(changes, delivery)


@given(histories(INSERT, UPDATE, UPDATE, DELETE, MOVE, TRUNCATE), deliveries)
def test_versions_that_truncates_end(changes: list[Change], delivery: Any) -> None:
    check(changes, delivery)


@given(histories(UPDATE, MOVE), deliveries)
def test_chains_and_swaps_of_moves(changes: list[Change], delivery: Any) -> None:
    check(changes, delivery)
