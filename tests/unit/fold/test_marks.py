"""What a history says of a change stays with its events, however a change becomes events."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from support.batches import batch_of, row
from walreplay.errors import CaptureError
from walreplay.fold.events import IN_PARTITIONS, Events, Identity, Marks, Mode, events_of
from walreplay.fold.versions import Emptied, settled_versions, version_rows
from walreplay.protocol import messages as m

NAMES = ("id", "code")
NOTHING_EMPTIED = Emptied(*(np.zeros(0, np.int64) for _ in range(3)))


def relation(identity: str = "d") -> m.Relation:
    whole = identity == "f"
    return m.Relation(9, "s", "t", identity, (m.Column("id", 23, -1, True), m.Column("code", 25, -1, whole)))


def marked(identity: Identity, of: m.Relation, *changes: m.AnyMessage, letters: str) -> Events:
    numbers = np.arange(len(changes))
    marks = Marks(10 + numbers, np.array(["cud".index(one) for one in letters], np.uint8), 100 + numbers)
    return events_of(batch_of(of, *changes), identity, marks=marks)


def seen(events: Events) -> list[tuple[Any, ...]]:
    assert events.marks is not None
    marks = events.marks.ordinal, events.marks.operation, events.marks.top
    return list(zip(*(array.tolist() for array in marks), strict=True))


def test_a_key_change_is_a_delete_and_an_insert_with_the_same_marks() -> None:
    changes = m.Insert(9, row(b"1", b"a")), m.Update(9, row(b"2", b"a"), key=row(b"1", None))
    events = marked(Identity(Mode.KEYED, (0,)), relation(), *changes, letters="cu")
    assert seen(events) == [(10, 0, 100), (11, 1, 101), (11, 1, 101)]
    assert events.columns[0].to_pylist() == [1, 1, 2]


@pytest.mark.parametrize("identity", [Identity(Mode.MULTISET), Identity(Mode.KEYED, (0,))], ids=["no key", "key"])
def test_an_update_with_its_old_row_is_two_events_with_the_same_marks(identity: Identity) -> None:
    changes = m.Insert(9, row(b"1", b"a")), m.Update(9, row(b"1", b"b"), old=row(b"1", b"a"))
    events = marked(identity, relation("f"), *changes, letters="cu")
    assert seen(events) == [(10, 0, 100), (11, 1, 101), (11, 1, 101)]


def test_rows_that_are_inserted_and_updated_in_one_transaction_are_inserted() -> None:
    identity = Identity(Mode.KEYED, (0,))
    changes = m.Insert(9, row(b"1", b"a")), m.Update(9, row(b"1", b"b"), old=row(b"1", b"a"))
    for of in relation("f"), relation():
        events = marked(identity, of, *changes, letters="cu")
        events = settled_versions(events, identity, NAMES, None, NOTHING_EMPTIED)
        rows = [
            one
            for batch in version_rows(events, NOTHING_EMPTIED, identity, NAMES, ())
            for one in batch.to_pylist()
            if one["opens"]
        ]
        assert [(one["c1"], one["op"], one["ordinal"]) for one in rows] == [("b", "c", 11)]


def test_a_key_of_partitions_that_two_rows_have_is_refused() -> None:
    identity = Identity(Mode.KEYED, (0,), claims=IN_PARTITIONS)
    changes = m.Insert(9, row(b"1", b"a")), m.Insert(9, row(b"1", b"b"))
    events = marked(identity, relation(), *changes, letters="cc")
    with pytest.raises(CaptureError, match="not unique"):
        list(version_rows(events, NOTHING_EMPTIED, identity, NAMES, ()))
