"""Changes that do not say which row they are about are refused; nothing is lost where nothing is left."""

from __future__ import annotations

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from support.batches import batch_of, row
from walreplay.errors import CaptureError
from walreplay.fold.events import Identity, Mode, events_of, from_ipc, to_ipc
from walreplay.fold.net_changes import fold_events, rows_to_merge, split
from walreplay.protocol import messages as m


def relation(identity: str = "d", keys: tuple[bool, ...] = (True, False)) -> m.Relation:
    return m.Relation(9, "s", "t", identity, (m.Column("id", 23, -1, keys[0]), m.Column("code", 25, -1, keys[1])))


@pytest.mark.parametrize(
    "change", [m.Delete(9, key=row(b"1", None)), m.Update(9, row(b"1", b"b"))], ids=["delete", "update"]
)
def test_a_configured_key_outside_the_replica_identity_is_refused(change: m.AnyMessage) -> None:
    batch = batch_of(relation(), m.Insert(9, row(b"1", b"a")), change)
    with pytest.raises(CaptureError, match="not in the replica identity") as caught:
        events_of(batch, Identity(Mode.KEYED, (1,)))
    assert caught.value.table == "s.t.code"


def test_a_key_that_is_not_sent_at_all_is_refused() -> None:
    update = m.Update(9, m.TupleData((m.Cell("t", b"1"), m.UNCHANGED_CELL)))
    batch = batch_of(relation(keys=(False, True)), update)
    with pytest.raises(CaptureError, match="unchanged TOAST"):
        events_of(batch, Identity(Mode.KEYED, (1,)))


def test_a_long_key_that_stays_is_taken_from_the_old_key() -> None:
    update = m.Update(9, m.TupleData((m.Cell("t", b"1"), m.UNCHANGED_CELL)), key=row(None, b"long"))
    events = events_of(batch_of(relation(keys=(False, True)), update), Identity(Mode.KEYED, (1,)))
    assert events.columns[1].to_pylist() == ["long"]
    assert not events.has_moves


@pytest.mark.parametrize("buckets", [1, 3])
def test_rows_that_come_and_go_leave_nothing_to_merge(buckets: int) -> None:
    identity, names = Identity(Mode.MULTISET), ["id", "code"]
    full = relation("f", (True, True))
    batch = batch_of(full, m.Insert(9, row(b"1", b"a")), m.Delete(9, old=row(b"1", b"a")))
    events = fold_events(events_of(batch, identity), identity, names)
    ((_, part),) = split(events, identity, names, buckets)
    merged = rows_to_merge(from_ipc(to_ipc(part)), identity, names, (), moves=False)
    assert sum(batch.num_rows for batch in merged) == 0


_CELLS = [
    (1184, -1, b"infinity"),
    (1114, -1, b"0044-03-15 12:00:00 BC"),
    (1082, -1, b"-infinity"),
    (1700, (9 << 16 | 2) + 4, b"NaN"),
    (1187, -1, b"{{P1M}}"),
    (1007, -1, b"[0:1]={1,2}"),
    (1185, -1, b"{infinity}"),
    (23, -1, b"1"),
    (25, -1, b"x"),
]
"""Types and texts; the columns of most cannot hold them, and each is told at another moment."""


@given(st.permutations(_CELLS), st.integers(1, len(_CELLS)))
@example(_CELLS, len(_CELLS))
@example([(1184, -1, b"infinity"), (1187, -1, b"{{P1M}}")], 2)
def test_a_row_that_was_rescued_is_the_same_when_it_goes(cells: list[tuple[int, int, bytes]], count: int) -> None:
    cells = cells[:count]
    names = [f"c{number}" for number in range(count)][::-1]
    columns = tuple(m.Column(name, oid, typmod, True) for name, (oid, typmod, _) in zip(names, cells, strict=True))
    values = row(*(text for _, _, text in cells))
    changes = m.Insert(9, values), m.Update(9, values, old=values), m.Delete(9, old=values)
    identity = Identity(Mode.MULTISET)
    batch = batch_of(m.Relation(9, "s", "t", "f", columns), *changes)
    events = fold_events(events_of(batch, identity), identity, names)
    merged = rows_to_merge(events, identity, names, (), moves=False)
    assert sum(batch.num_rows for batch in merged) == 0
