"""Events of several relation versions are folded as rows of one table, and find their keys wherever these stand."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pytest

from support.event_model import ADD, MOVE, REMOVE, UPDATE, Event, build
from walreplay.fold.change_log import Projection
from walreplay.fold.events import Events, Identity, Mode, to_ipc
from walreplay.fold.net_changes import fold_events, links_of, split
from walreplay.spark.workers.fold import NetFold, fold_batches, link_batches, route_batches
from walreplay.types import resolve

NUMBER = resolve(20, -1, {})
EARLIER, LATER = ("b", "a", "key"), ("key", "a")
KEYS = {EARLIER: 2, LATER: 0}
BUCKETS = 3


def task(*, moves: bool) -> NetFold:
    """The column b was dropped, and is kept."""
    chain = (NUMBER,)
    return NetFold(
        types=(pa.int64(),) * 3,
        names=EARLIER,
        identity=Identity(Mode.KEYED, (2,)),
        tracked=(0, 1),
        moves=moves,
        projections=(
            (0, Projection((0, 1, 2), (chain,) * 3, EARLIER, EARLIER), (2,)),
            (10, Projection((None, 1, 0), (chain,) * 3, LATER, EARLIER), (0,)),
        ),
    )


def of(names: tuple[str, ...], *events: Event) -> Events:
    """Make events that have these columns."""
    made = build(events)
    place = {"key": 0, "a": 1, "b": 2}
    made.unchanged = {names.index(name): made.unchanged[place[name]] for name in names if place[name] in made.unchanged}
    made.columns = [made.columns[place[name]] for name in names]
    return made


def merged(*parts: tuple[int, tuple[str, ...], Events]) -> dict[int, dict[str, Any]]:
    """Stage, route and fold the parts; give the rows by their keys."""
    staged, links = [], []
    for sequence, names, events in parts:
        identity = Identity(Mode.KEYED, (KEYS[names],))
        folded = fold_events(events, identity, names, buckets=BUCKETS)
        found = links_of(folded, identity, names)
        if found is not None:
            links.append({"data": found.to_ipc().to_pybytes()})
        for bucket, part in split(folded, identity, names, BUCKETS):
            staged.append({"bucket": bucket, "sequence": sequence, "data": to_ipc(part).to_pybytes()})
    how = task(moves=bool(links))

    def batches(rows: list[dict[str, Any]]) -> Iterator[pa.RecordBatch]:
        for row in sorted(rows, key=lambda row: (row.get("bucket"), row.get("sequence"))):
            yield pa.RecordBatch.from_pylist([row])

    if links:
        routes = [row for batch in link_batches(batches(links), buckets=BUCKETS) for row in batch.to_pylist()]
        routed = route_batches(batches([*staged, *routes]), task=how, buckets=BUCKETS)
        staged = [row for batch in routed for row in batch.to_pylist()]
    rows = [row for batch in fold_batches(batches(staged), task=how) for row in batch.to_pylist()]
    return {row["c2"]: row for row in rows if not row["deleted"]}


@pytest.mark.parametrize("key", range(5))
def test_a_row_that_moves_is_followed_into_another_version(key: int) -> None:
    rows = merged(
        (3, EARLIER, of(EARLIER, Event(MOVE, key + 100, (7, 8), (True, True), old=key))),
        (12, LATER, of(LATER, Event(UPDATE, key + 100, (9, 0)))),
        (13, LATER, of(LATER, Event(MOVE, key + 200, (5, 0), (True, False), old=key + 100))),
    )
    assert list(rows) == [key + 200]
    row = rows[key + 200]
    assert (row["b0"], row["c1"], row["k1"], row["k0"], row["expected"]) == (key, 9, False, True, True)


def test_a_dropped_column_keeps_its_value_where_old_rows_are_sent_whole() -> None:
    rows = merged(
        (3, EARLIER, of(EARLIER, Event(ADD, 1, (5, 6), lsn=1))),
        (12, LATER, of(LATER, Event(REMOVE, 1, (5, 0), lsn=2), Event(ADD, 1, (7, 0), lsn=2))),
        (13, LATER, of(LATER, Event(REMOVE, 2, (5, 0), lsn=3), Event(ADD, 2, (8, 0), lsn=3))),
    )
    assert (rows[1]["c0"], rows[1]["c1"], rows[1]["claimed"], rows[1]["unknown"]) == (6, 7, True, False)
    assert (rows[2]["k0"], rows[2]["c1"], rows[2]["expected"]) == (True, 8, True)
