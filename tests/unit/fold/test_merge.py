"""A file's events fold to a few, whatever they were; what cannot be is refused."""

from __future__ import annotations

from typing import Any

import pytest

from support.batches import batch_of, row
from support.event_model import ADD, DELETE, INSERT, KEYED, MOVE, NAMES, REMOVE, UPDATE, Event, build, rows_at_once
from walreplay.errors import CaptureError
from walreplay.fold import batches
from walreplay.fold.events import Events, Identity, Mode, concat, events_of
from walreplay.fold.net_changes import fold_events, rows_to_merge, settled, split
from walreplay.protocol import messages as m

WHOLE = m.Relation(9, "s", "t", "f", (m.Column("id", 23, -1, True), m.Column("n", 1700, (5 << 16 | 2) + 4, True)))
COUNTED = Identity(Mode.MULTISET)


def merged(events: Events, identity: Identity = KEYED, names: Any = NAMES) -> list[dict[str, Any]]:
    batches = rows_to_merge(events, identity, names, sorted(events.unchanged), moves=events.has_moves, table="s.t")
    return [one for batch in batches for one in batch.to_pylist()]


@pytest.mark.parametrize("transactions", [1, 3, 500])
def test_a_hot_row_whose_old_rows_are_sent_folds_to_a_few(transactions: int) -> None:
    history = [
        Event(action, 1, (n if action == ADD else n - 1, 0), lsn=1 + n * transactions // 1000)
        for n in range(1, 1000)
        for action in (REMOVE, ADD)
    ]
    folded = fold_events(build(history), KEYED, NAMES)
    assert folded.rows <= 5
    (one,) = merged(folded)
    assert (one["c1"], one["expected"], one["deleted"]) == (999, True, False)
    # Of a row that goes, only its key is carried.
    assert folded.columns[1].to_pylist()[0] is None


def test_a_hot_row_in_a_file_with_moves_folds_to_a_few() -> None:
    history = [Event(UPDATE, 1, (n, n)) for n in range(500)]
    history += [Event(MOVE, 3, old=1, keeps=(True, False))]
    history += [Event(UPDATE, key, (n, n), keeps=(False, n % 2 == 0)) for n in range(500) for key in (2, 3)]
    assert fold_events(build(history), KEYED, NAMES).rows == 4


def test_rows_of_other_keys_are_parted_where_some_keys_move() -> None:
    history = [Event(MOVE, 1001, old=1, keeps=(True, True))] + [Event(UPDATE, key) for key in range(2, 1000)]
    parts = split(fold_events(build(history), KEYED, NAMES), KEYED, NAMES, 4)
    assert len(parts) == 4
    assert max(part.rows for _, part in parts) < 400
    assert sum(part.has_moves for _, part in parts) == 1


def test_what_is_folded_for_its_buckets_is_parted_without_a_copy(monkeypatch: pytest.MonkeyPatch) -> None:
    history = [Event((UPDATE, DELETE)[key % 7 == 0], key, (key, n)) for n in range(3) for key in range(1000)]
    folded = fold_events(build(history), KEYED, NAMES, buckets=4)
    expected = split(fold_events(build(history), KEYED, NAMES), KEYED, NAMES, 4)
    monkeypatch.delattr(Events, "take")
    parts = split(folded, KEYED, NAMES, 4)
    assert [bucket for bucket, _ in parts] == [bucket for bucket, _ in expected] == [0, 1, 2, 3]
    for (_, part), (_, other) in zip(parts, expected, strict=True):
        assert part.columns == other.columns
        assert part.action.tolist() == other.action.tolist()


def test_an_unchanged_value_is_filled_from_the_old_row_though_it_is_rescued() -> None:
    update = m.Update(9, m.TupleData((m.Cell("t", b"2"), m.UNCHANGED_CELL)), old=row(b"1", b"NaN"))
    events = events_of(batch_of(WHOLE, update), Identity(Mode.KEYED, (0,)))
    assert events.unchanged == {}
    assert events.rescued.to_pylist() == ['{"n":"NaN"}'] * 2
    gone, come = merged(events, Identity(Mode.KEYED, (0,)), ("id", "n"))
    if come["deleted"]:
        gone, come = come, gone
    assert (gone["c0"], gone["deleted"], gone["expected"]) == (1, True, True)
    assert (come["c0"], come["rescued"], come["unknown"], come["claimed"]) == (2, '{"n":"NaN"}', False, True)


@pytest.mark.parametrize("identity", [KEYED, COUNTED], ids=["keyed", "multiset"])
def test_an_update_without_its_old_row_is_refused_where_it_should_have_it(identity: Identity) -> None:
    batch = batch_of(WHOLE, m.Update(9, row(b"1", b"1")))
    with pytest.raises(CaptureError, match="does not bring its old row") as caught:
        events_of(batch, identity)
    assert caught.value.table == "s.t"


def test_an_insert_that_lacks_a_value_is_told() -> None:
    back = Event(INSERT, 1, (5, 6), keeps=(True, False))
    (one,) = rows_at_once([back])
    assert (one["c1"], one["k1"], one["unknown"]) == (None, False, True)
    (one,) = rows_at_once([back, Event(UPDATE, 1, (7, 8))])
    assert (one["c1"], one["unknown"]) == (7, False)
    (one,) = rows_at_once([back, Event(DELETE, 1)])
    assert (one["deleted"], one["unknown"]) == (True, False)


def test_what_a_multiset_needs_is_counted_before_what_comes() -> None:
    def of(*actions: int) -> Events:
        events = build([Event(action, 1) for action in actions])
        events.action = (events.action == ADD) * 2 - 1
        events.expected = (events.action < 0).astype("int64")
        return events

    for parts in ([of(REMOVE, ADD, REMOVE, REMOVE, ADD)], [of(REMOVE, ADD), of(REMOVE, REMOVE, ADD)]):
        folded = [fold_events(part, COUNTED, NAMES) for part in parts]
        (one,) = merged(concat(folded), COUNTED)
        assert (one["net"], one["needed"]) == (-1, 2)
    assert merged(fold_events(of(ADD, ADD, REMOVE, REMOVE), COUNTED, NAMES), COUNTED) == []
    hot = fold_events(of(*[REMOVE, ADD] * 10_000), COUNTED, NAMES)
    assert (hot.rows, hot.action.tolist(), hot.expected.tolist()) == (1, [0], [1])


def test_a_key_that_is_not_unique_is_refused_by_its_table_alone() -> None:
    history = build([Event(ADD, 4711, (1, 1)), Event(ADD, 4711, (2, 2))])
    with pytest.raises(CaptureError, match="not unique") as caught:
        merged(history)
    assert caught.value.table == "s.t"
    assert "4711" not in str(caught.value)


def test_a_row_keeps_its_key_through_a_change_of_the_columns_between_its_images() -> None:
    # The image behind the change is of more columns, so that it is another.
    before, behind = build([Event(ADD, 1, (5, 0))]), build([Event(REMOVE, 1, (5, 9)), Event(ADD, 1, (6, 9))])
    (one,) = merged(concat([settled(part, KEYED, NAMES) for part in (before, behind)]))
    assert (one["c1"], one["claimed"]) == (6, True)


def test_strings_that_are_too_long_for_one_column_are_joined(monkeypatch: pytest.MonkeyPatch) -> None:
    relation = m.Relation(9, "s", "t", "d", (m.Column("id", 25, -1, True), m.Column("code", 25, -1, False)))
    identity, names = Identity(Mode.KEYED, (0,)), ("id", "code")
    parts = [
        events_of(batch_of(relation, *[m.Insert(9, row(b"%d" % (n % 3), b"%d" % n)) for n in range(k, 9)]), identity)
        for k in range(3)
    ]
    usual = merged(concat(parts), identity, names)
    monkeypatch.setattr(batches, "MOST_BYTES", 10)
    assert merged(concat([parts[0], concat(parts[1:])]), identity, names) == usual
