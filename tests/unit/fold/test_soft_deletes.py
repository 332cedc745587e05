from support.event_model import KEYED, NAMES, Event, build
from walreplay.fold.events import Identity, Mode, with_deleted_column
from walreplay.fold.net_changes import fold_events, rows_to_merge
from walreplay.fold.reducing import DELETE, INSERT, UPDATE


def marked(*events, identity=KEYED):
    return with_deleted_column(build(events), identity)


def rows(*events):
    """Fold events that are marked; give (key, a, b, deleted, keeps) of each row."""
    folded = fold_events(marked(*events), KEYED, (*NAMES, ""))
    batches = rows_to_merge(folded, KEYED, (*NAMES, ""), (1, 2), moves=False)
    found = [row for batch in batches for row in batch.to_pylist()]
    assert not any(row["deleted"] for row in found)
    return [(row["c0"], row["c1"], row["c2"], row["c3"], (row["k1"], row["k2"])) for row in found]


def test_a_delete_is_an_update_of_the_mark_alone():
    events = marked(Event(INSERT, 1, (5, 6)), Event(DELETE, 1))
    assert events.action.tolist() == [INSERT, UPDATE]
    assert events.columns[-1].to_pylist() == [False, True]
    assert {number: mask.tolist() for number, mask in events.unchanged.items()} == {1: [0, 1], 2: [0, 1]}


def test_where_nothing_is_deleted_nothing_is_left_alone():
    events = marked(Event(INSERT, 1, (5, 6)), Event(UPDATE, 1, (7, 0), (False, True)))
    assert events.columns[-1].to_pylist() == [False, False]
    assert {number: mask.tolist() for number, mask in events.unchanged.items() if mask.any()} == {2: [0, 1]}


def test_the_given_events_stay_as_they_are():
    given = build([Event(DELETE, 1)])
    with_deleted_column(given, Identity(Mode.KEYED, (0,)))
    assert given.action.tolist() == [DELETE]
    assert len(given.columns) == 3


def test_a_deleted_row_stays_as_it_last_was():
    assert rows(Event(INSERT, 1, (5, 6)), Event(UPDATE, 1, (7, 8)), Event(DELETE, 1)) == [(1, 7, 8, True, (False,) * 2)]
    assert rows(Event(UPDATE, 1, (7, 0), (False, True)), Event(DELETE, 1)) == [(1, 7, None, True, (False, True))]
    assert rows(Event(DELETE, 1)) == [(1, None, None, True, (True, True))]


def test_a_row_that_comes_back_is_deleted_no_more():
    assert rows(Event(DELETE, 1), Event(INSERT, 1, (5, 6))) == [(1, 5, 6, False, (False, False))]
