"""What a decoding task stages for a change log, and that its mirror's events are the same with it and without."""

from __future__ import annotations

import json
from typing import Any

import pyarrow as pa
import pytest

from support.captures import Case, case
from support.change_model import changes_of, comparable
from support.extent import further
from support.runs import plan_runs, staged_rows
from walreplay.changes import decode_plan
from walreplay.config import Settings
from walreplay.delta.target import TableName
from walreplay.evolution.shapes import TableShape
from walreplay.fold.change_log import LogTask, Projection, log_batches
from walreplay.fold.events import from_ipc
from walreplay.names import COUNT, Output
from walreplay.protocol.framing import Framing
from walreplay.spark.workers.rows import NO_BUCKET, USES_TABLE
from walreplay.stream.plan import Plan
from walreplay.table.registry import MirrorEntry
from walreplay.table.versions import Catalogue

Row = dict[str, Any]


def planned(recorded: Case) -> tuple[Plan, dict[str, bytes]]:
    files = {str(path): path.read_bytes() for path in recorded.files}
    ((_, found),) = plan_runs([files], framing=Framing(recorded.info["framing"]))
    return found.plan, files


def staged(plan: Plan, files: dict[str, bytes], catalogue: Catalogue) -> list[Row]:
    truncates = {item.oid: (item.lsn, item.ordinal) for item in plan.truncates}
    return staged_rows(plan, files, catalogue.assignments, truncates=truncates, buckets=3)


def catalogue_of(plan: Plan, *outputs: str, base: int | None = None) -> Catalogue:
    """Return what is wanted; ``base``: the mirrors were loaded as of this LSN."""
    loaded = {
        relation.oid: MirrorEntry(relation.oid, "", TableName(path="/"), TableShape(), base_lsn=base)
        for relation in plan.relations
    }
    return Catalogue.of(plan, Settings.from_mapping({"outputs": list(outputs)}), tuple(loaded.values()))


def events_of(row: Row) -> list[Any]:
    if row["bucket"] == NO_BUCKET or not row["data"]:
        return []
    events = from_ipc(row["data"])
    columns = [*events.columns, events.lsn, events.ts, events.rescued]
    return [*(comparable(column.to_pylist()) for column in columns), events.action.tolist(), events.expected.tolist()]


_CAPTURES = ["o11", "o12", "o13", "o15", "o18", "o22", "o26"]


@pytest.mark.parametrize("name", further(_CAPTURES, but=("o12", "o13", "o18")))
@pytest.mark.parametrize("loaded", [False, True])
def test_a_mirror_gets_the_same_events_with_a_change_log_beside_it(name: str, loaded: bool) -> None:
    plan, files = planned(case(name))
    changes = changes_of(decode_plan(plan, lambda path: files[path]))
    lsns = sorted(row["__commit_lsn"] for rows in changes.values() for row in rows)
    base = lsns[len(lsns) // 2] if loaded else None
    alone, both = (
        staged(plan, files, catalogue_of(plan, *of, base=base)) for of in (["mirror"], ["mirror", "changelog"])
    )
    mirrors = [row for row in both if row["table"] < 0 or row["table"] % COUNT == Output.MIRROR.number]
    own = [row for row in mirrors if row["table"] >= 0]
    names = ("table", "relation", "bucket", "sequence", "rows", "info")

    def told(rows: list[Row]) -> list[tuple[Any, ...]]:
        return sorted(((*(row[one] for one in names), events_of(row)) for row in rows), key=repr)

    assert told(own) == told([row for row in alone if row["table"] >= 0])
    others = [sorted(repr(_told_of_all(row)) for row in rows if row["table"] < 0) for rows in (mirrors, alone)]
    assert others[0] == others[1]
    if loaded:
        # A log has what came before, too.
        log = Output.CHANGELOG.number
        unloaded = staged(plan, files, catalogue_of(plan, "mirror", "changelog"))
        logs = [
            sorted(repr(row) for row in rows if row["table"] >= 0 and row["table"] % COUNT == log)
            for rows in (both, unloaded)
        ]
        assert logs[0] == logs[1]


@pytest.mark.parametrize("name", further(_CAPTURES, but=("o12", "o13", "o18")))
def test_all_committed_changes_are_staged_in_the_order_of_their_sequence(name: str) -> None:
    plan, files = planned(case(name))
    catalogue = catalogue_of(plan, "changelog")
    versions = catalogue.by_number
    found: dict[str, list[Row]] = {}
    for row in sorted(staged(plan, files, catalogue), key=lambda row: row["sequence"]):
        if row["table"] < 0:
            continue
        version = versions[row["relation"]]
        types = tuple(column.type for column in version.columns)
        task = LogTask(version.names, tuple(kind.arrow for kind in types), "__before")
        own = tuple(range(len(types)))
        projection = Projection(own, tuple((kind,) for kind in types), version.names, version.names)
        rows = [one for part in log_batches(pa.py_buffer(row["data"]), task, projection) for one in part.to_pylist()]
        assert len(rows) == row["rows"]
        found.setdefault(version.relation.qualified_name, []).extend(
            {
                "__op": one["op"],
                "__commit_lsn": one["lsn"],
                "__ordinal": one["ordinal"],
                **{name: one[f"c{number}"] for number, name in enumerate(version.names)},
                "__before": one["before"],
            }
            for one in rows
        )
    expected = changes_of(decode_plan(plan, lambda path: files[path]))
    wanted = {
        table: [{name: value for name, value in row.items() if name in _comparable_names(row)} for row in rows]
        for table, rows in expected.items()
    }
    for table, rows in found.items():
        # Files that are decoded by themselves come in any order; a table's rows have one.
        in_order = sorted(rows, key=lambda row: (row["__commit_lsn"], row["__ordinal"]))
        assert [comparable(row) for row in in_order] == [comparable(row) for row in wanted[table]], table
    assert found.keys() == wanted.keys()


def _told_of_all(row: Row) -> Row:
    """Return a row that tells of no table, without the LSNs of uses, which are bounds where rows are left out."""
    if row["table"] != USES_TABLE:
        return row
    first, time, *used = json.loads(row["info"])
    return row | {"info": [first, time, *(number for number, _ in used)]}


def _comparable_names(row: Row) -> set[str]:
    return set(row) - {"__commit_ts", "__xid", "__unchanged", "_rescued_data"}
