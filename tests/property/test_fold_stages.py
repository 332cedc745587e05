"""Folding by files, buckets and linked keys is folding all at once, and both are what the events do one by one."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from property.test_versions import Whole, deferrable
from support.event_model import (
    ADD,
    DELETE,
    INSERT,
    MOVE,
    REMOVE,
    UPDATE,
    Event,
    comparable,
    merge,
    rows_at_once,
    rows_by_stages,
)
from support.version_model import state_after
from walreplay.errors import CaptureError

keys = st.integers(0, 5)


def numbered(events: list[Event]) -> list[Event]:
    """Return each event values of its own, and transactions of a few events."""
    return [
        Event(one.action, one.key, (10 + 2 * n, 11 + 2 * n), one.keeps, one.old, lsn=100 + n // 3)
        for n, one in enumerate(events)
        if one.action != MOVE or one.key != one.old
    ]


def histories(*actions: int) -> st.SearchStrategy[list[Event]]:
    event = st.builds(Event, st.sampled_from(actions), keys, keeps=st.tuples(st.booleans(), st.booleans()), old=keys)
    return st.lists(event, min_size=1, max_size=40).map(numbered)


stages = st.tuples(st.lists(st.integers(0, 40), max_size=4), st.integers(1, 4), st.sets(st.integers(0, 4)).map(tuple))
targets = st.sets(keys).map(lambda there: {key: (-10 - key, -20 - key) for key in there})


def first_named(events: list[Event]) -> dict[int, bool]:
    """Say of each key whether it was first named by a change that finds it."""
    named: dict[int, bool] = {}
    for event in events:
        named.setdefault(event.key, event.action in (UPDATE, DELETE))
        if event.action == MOVE:
            named.setdefault(event.old, True)
    return named


def check(target: dict[int, Any], events: list[Event], how: tuple[list[int], int, tuple[int, ...]]) -> None:
    whole = rows_at_once(events)
    assert merge(target, whole) == state_after(target, events)
    named = first_named(events)
    for row in whole:
        assert row["expected"] == (row["matches"] and named[row["b0"]])
        values = [(row["c1"], row["k1"]), (row["c2"], row["k2"])]
        assert row["deleted"] or row["unknown"] == any(value is None and not kept for value, kept in values)
    cuts, buckets, again = how
    assert comparable(rows_by_stages(events, cuts, buckets, again)) == comparable(whole)


@pytest.mark.parametrize(
    "actions",
    [(INSERT, UPDATE, DELETE), (INSERT, UPDATE, DELETE, MOVE, MOVE), (UPDATE, MOVE)],
    ids=["without moves", "with moves", "chains and swaps of moves"],
)
@given(data=st.data(), target=targets, how=stages)
def test_events(actions: tuple[int, ...], data: st.DataObject, target: dict[int, Any], how: Any) -> None:
    check(target, data.draw(histories(*actions)), how)


@given(deferrable(truncates=False), st.integers(100, 104), stages)
def test_keys_that_two_rows_have_for_a_moment(whole: Whole, first: int, how: Any) -> None:
    """The transactions before the first one have made what the table holds."""
    events = [change.event for change in whole.changes if change.lsn >= first]
    if not events:
        return
    before = {one.values[0]: one.values[1:] for one in whole.states.held_at(first - 1)}
    rows = rows_at_once(events)
    assert merge(before, rows) == {one.values[0]: one.values[1:] for one in whole.rows}
    for row in rows:
        assert not row["expected"] or row["b0"] in before
        assert not row["claimed"] or row["b0"] not in before
    cuts, buckets, again = how
    assert comparable(rows_by_stages(events, cuts, buckets, again)) == comparable(rows)


@given(st.lists(st.tuples(st.sampled_from([ADD, REMOVE]), st.integers(0, 1), st.integers(0, 2)), max_size=20), stages)
def test_what_cannot_be_is_the_same_or_refused_in_any_stages(drawn: Any, how: Any) -> None:
    events = [Event(action, key, (value, 0), lsn=1 + n // 3) for n, (action, key, value) in enumerate(drawn)]
    if not events:
        return
    cuts, buckets, again = how
    try:
        whole: Any = comparable(rows_at_once(events))
    except CaptureError:
        whole = None
    try:
        staged: Any = comparable(rows_by_stages(events, cuts, buckets, again))
    except CaptureError:
        staged = None
    assert staged == whole


@pytest.mark.parametrize("lsns", [(1, 1), (1, 2)], ids=["in one transaction", "in two"])
def test_two_rows_that_stay_under_one_key_are_refused(lsns: tuple[int, int]) -> None:
    events = [Event(ADD, 1, (1, 1), lsn=lsns[0]), Event(ADD, 1, (2, 2), lsn=lsns[1])]
    with pytest.raises(CaptureError, match="not unique: 1 of its values"):
        rows_at_once(events)
    with pytest.raises(CaptureError, match="not unique"):
        rows_by_stages(events, [1], 1)
