"""The rows of a change log, for each kind of change and of replica identity, and what becomes of them afterwards."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest

from support.batches import row
from support.framings import frame
from support.runs import plan_runs
from walreplay.decode.change_batch import ChangeBatch
from walreplay.decode.decoder import Decoder
from walreplay.evolution.shapes import Evolution, Policy, SourceColumn
from walreplay.fold.change_log import LogTask, OldLogRows, Projection, log_batches, staged_changes
from walreplay.protocol import messages as m
from walreplay.protocol.framing import Framing
from walreplay.stream.planned import PlannedBytes
from walreplay.types import resolve
from walreplay.types.base import ColumnType

INT, BIGINT, TEXT, NUMERIC = 23, 20, 25, 1700
N52 = (5 << 16 | 2) + 4


def table(identity: str, *columns: tuple[str, int], key: str = "id") -> m.Relation:
    flagged = {name for name, _ in columns} if identity == "f" else set() if identity == "n" else {key}
    kinds = {NUMERIC: N52}
    found = (m.Column(name, kind, kinds.get(kind, -1), name in flagged) for name, kind in columns)
    return m.Relation(1, "s", "t", identity, tuple(found))


def batches_of(data: bytes, *, tile_bytes: int = 1 << 20) -> list[ChangeBatch]:
    ((_, planned),) = plan_runs([{"file": data}], framing=Framing.RAW)
    plan = planned.plan
    decoder = Decoder(Framing.RAW, with_places={*plan.relations}, tile_bytes=tile_bytes)
    found: list[ChangeBatch] = []
    for file in plan.files:
        opened = PlannedBytes.of(file, data)
        for step in file.steps:
            found += opened.decode(decoder, step, plan.versions, plan.type_versions)
    return [*found, *decoder.rest()]


def transaction(*changes: m.AnyMessage) -> bytes:
    return frame([m.Begin(100, 1, 7), *changes, m.Commit(0, 100, 108, 1)], Framing.RAW)


def types_of(relation: m.Relation) -> list[ColumnType]:
    return [resolve(column.type_oid, column.typmod, {}) for column in relation.columns]


def as_it_is(relation: m.Relation) -> tuple[LogTask, Projection]:
    names = tuple(column.name for column in relation.columns)
    types = types_of(relation)
    task = LogTask(names, tuple(kind.arrow for kind in types), "__before")
    return task, Projection(tuple(range(len(names))), tuple((kind,) for kind in types), names, names)


def rows_of(batches: list[ChangeBatch], task: LogTask, projection: Projection) -> list[dict[str, Any]]:
    return [
        one
        for batch in batches
        for part in log_batches(staged_changes(batch), task, projection)
        for one in part.to_pylist()
    ]


def logged(relation: m.Relation, *changes: m.AnyMessage, tile_bytes: int = 1 << 20) -> list[dict[str, Any]]:
    found = batches_of(transaction(relation, *changes), tile_bytes=tile_bytes)
    return rows_of(found, *as_it_is(relation))


def told(rows: list[dict[str, Any]]) -> list[tuple[Any, ...]]:
    return [(one["op"], one["c0"], one["c1"], one["before"], one["unchanged"]) for one in rows]


KEPT = m.TupleData((m.Cell("t", b"1"), m.UNCHANGED_CELL))
KEY = row(b"1", None)
OLD = row(b"1", b"a")


@pytest.mark.parametrize("tile_bytes", [64, 1 << 20])
@pytest.mark.parametrize(
    ("identity", "changes", "expected"),
    [
        ("d", [m.Insert(1, row(b"1", b"a"))], [("c", 1, "a", None, [])]),
        ("d", [m.Update(1, row(b"1", b"b"))], [("u", 1, "b", None, [])]),
        ("d", [m.Update(1, KEPT)], [("u", 1, None, None, ["note"])]),
        ("d", [m.Delete(1, key=KEY)], [("d", 1, None, {"id": 1, "note": None}, [])]),
        ("d", [m.Update(1, row(b"2", b"b"), key=KEY)], [("u", 2, "b", {"id": 1, "note": None}, [])]),
        (
            "d",
            [m.Update(1, m.TupleData((m.Cell("t", b"2"), m.UNCHANGED_CELL)), key=KEY)],
            [("u", 2, None, {"id": 1, "note": None}, ["note"])],
        ),
        ("i", [m.Delete(1, key=KEY)], [("d", 1, None, {"id": 1, "note": None}, [])]),
        ("f", [m.Insert(1, row(b"1", None))], [("c", 1, None, None, [])]),
        ("f", [m.Update(1, row(b"1", b"b"), old=OLD)], [("u", 1, "b", {"id": 1, "note": "a"}, [])]),
        # What has not changed is known: the old row has it.
        ("f", [m.Update(1, KEPT, old=OLD)], [("u", 1, "a", {"id": 1, "note": "a"}, [])]),
        ("f", [m.Delete(1, old=OLD)], [("d", 1, "a", {"id": 1, "note": "a"}, [])]),
        ("n", [m.Insert(1, OLD), m.Update(1, row(b"1", b"b"))], [("c", 1, "a", None, []), ("u", 1, "b", None, [])]),
        (
            "d",
            [m.Insert(1, OLD), m.Truncate((1,), 0), m.Insert(1, OLD)],
            [("c", 1, "a", None, []), ("t", None, None, None, []), ("c", 1, "a", None, [])],
        ),
        (
            "f",
            [m.Delete(1, old=OLD), m.Update(1, row(b"2", b"c"), old=row(b"2", b"b")), m.Insert(1, OLD)],
            [
                ("d", 1, "a", {"id": 1, "note": "a"}, []),
                ("u", 2, "c", {"id": 2, "note": "b"}, []),
                ("c", 1, "a", None, []),
            ],
        ),
    ],
)
def test_a_change_is_a_row(
    identity: str, changes: list[m.AnyMessage], expected: list[tuple[Any, ...]], tile_bytes: int
) -> None:
    found = logged(table(identity, ("id", INT), ("note", TEXT)), *changes, tile_bytes=tile_bytes)
    assert told(found) == expected
    assert [one["ordinal"] for one in found] == list(range(len(changes)))
    assert {(one["lsn"], one["xid"], one["file"]) for one in found} == {(100, 7, "file")}


def test_of_a_streamed_transaction_the_rows_that_remain_are_there_with_their_places() -> None:
    notes = table("d", ("id", INT), ("note", TEXT))

    def insert(number: int, xid: int) -> m.Insert:
        return m.Insert(1, row(b"%d" % number, b"n"), xid=xid)

    messages = [
        m.StreamStart(7, True),
        replace(notes, xid=7),
        insert(1, 7),
        insert(2, 8),
        m.StreamStop(),
        m.StreamStart(7, False),
        insert(3, 9),
        m.StreamStop(),
        m.StreamAbort(7, 8),
        m.StreamCommit(7, 0, 100, 108, 1),
    ]
    data = frame(messages, Framing.RAW)
    found = rows_of(batches_of(data), *as_it_is(notes))
    assert [(one["c0"], one["ordinal"], one["xid"]) for one in found] == [(1, 0, 7), (3, 1, 7)]
    assert [data[one["offset"] : one["offset"] + 5] for one in found] == [b"I\0\0\0\x07", b"I\0\0\0\x09"]


def test_what_a_column_cannot_hold_is_rescued_of_old_and_of_new_rows() -> None:
    prices = table("f", ("id", INT), ("price", NUMERIC))
    nan, one = row(b"1", b"NaN"), row(b"1", b"1.50")
    found = logged(prices, m.Insert(1, nan), m.Update(1, one, old=nan), m.Update(1, nan, old=one), m.Delete(1, old=nan))
    assert [value["rescued"] and json.loads(value["rescued"]) for value in found] == [
        {"price": "NaN"},
        {"__before": {"price": "NaN"}},
        {"price": "NaN"},
        {"price": "NaN", "__before": {"price": "NaN"}},
    ]


def evolved(*versions: m.Relation) -> Evolution:
    evolution = Evolution(None, Policy(keep_dropped=False))
    for version in versions:
        evolution.take(
            [
                SourceColumn(one.name, one.name, kind)
                for one, kind in zip(version.columns, types_of(version), strict=True)
            ]
        )
    return evolution


def test_rows_of_an_earlier_version_get_the_columns_that_the_table_has_in_the_end() -> None:
    first = table("f", ("id", INT), ("a", TEXT), ("gone", TEXT), ("v", INT))
    last = table("f", ("id", BIGINT), ("b", TEXT), ("v", INT), ("new", INT))
    evolution = evolved(first, table("f", ("id", INT), ("b", TEXT), ("gone", TEXT), ("v", INT)), last)
    names = tuple(one.name for one in evolution.shape.columns)
    task = LogTask(names, tuple(one.type.arrow for one in evolution.shape.columns), "__before")
    projection = Projection.of(evolution.of_version(0), [one.name for one in first.columns], names)
    changed = m.TupleData((m.Cell("t", b"1"), m.UNCHANGED_CELL, m.UNCHANGED_CELL, m.Cell("t", b"2")))
    # Such as a row filter sends: the old row is not there.
    (found,) = rows_of(batches_of(transaction(first, m.Insert(1, changed))), task, projection)
    assert found["unchanged"] == ["b"]
    old = row(b"1", b"x", b"y", b"3")
    (found,) = rows_of(batches_of(transaction(first, m.Delete(1, old=old))), task, projection)
    assert found["before"] == {"id": 1, "b": "x", "v": 3, "new": None}
    assert [found[f"c{number}"] for number in range(4)] == [1, "x", 3, None]


def test_rows_that_are_there_already_are_rewritten_alike() -> None:
    first, last = table("f", ("id", INT), ("a", TEXT)), table("f", ("id", INT), ("b", INT))
    evolution = Evolution(evolved(first).shape, Policy(renames=(("a", "b"),)))
    evolution.take(
        [SourceColumn(one.name, one.name, kind) for one, kind in zip(last.columns, types_of(last), strict=True)]
    )
    names = tuple(one.name for one in evolution.shape.columns)
    task = LogTask(names, tuple(one.type.arrow for one in evolution.shape.columns), "__before")
    projection = Projection.of(evolution.of_table(), ["id", "a"], names)
    old = pa.array(
        [{"id": 1, "a": "7"}, None, {"id": 2, "a": "x"}], pa.struct([("id", pa.int32()), ("a", pa.string())])
    )
    given = pa.RecordBatch.from_pydict({"u": pa.array([["a"], [], ["id", "a"]]), "old": old})
    rescued = pa.array([None, json.dumps({"a": "n", "__before": {"id": "o"}}), None])
    found, own, of_old = OldLogRows(task, 0, 1).project(given, rescued, projection)
    assert found[0].to_pylist() == [["b"], [], ["id", "b"]]
    assert found[1].to_pylist() == [{"id": 1, "b": 7}, None, {"id": 2, "b": None}]
    assert [text and json.loads(text) for text in own.to_pylist()] == [None, {"a": "n"}, None]
    assert [text and json.loads(text) for text in of_old.to_pylist()] == [None, {"id": "o"}, {"b": "x"}]


def test_without_a_column_for_old_rows_there_are_none() -> None:
    notes = table("d", ("id", INT), ("note", TEXT))
    task, projection = as_it_is(notes)
    (batch,) = batches_of(transaction(notes, m.Delete(1, key=KEY)))
    (found,) = rows_of([batch], replace(task, before=None), projection)
    assert (found["op"], found["c0"], "before" in found) == ("d", 1, False)
