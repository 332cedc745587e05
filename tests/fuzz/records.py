"""What is read of text that others may write: descriptions of tables, recorded files' names, an index's rows."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import suppress

from pydantic import ValidationError

from fuzz.target import Target
from support.framings import frame, transaction
from support.runs import plan_run
from walreplay.decode.announcements import layout_of
from walreplay.errors import WalReplayError, visible
from walreplay.ledger.state import from_json, to_json
from walreplay.loading.description import read_description, write_description
from walreplay.protocol import messages as m
from walreplay.protocol.framing import Framing
from walreplay.recorded_names import RecordedName, broken_chains, refuse_outside
from walreplay.stream.plan import Resume

_DESCRIPTION, _NAME, _RESUME, _NAMES, _LAYOUT = range(5)


def read(data: bytes) -> None:
    """Read a description, a name, or where a stream goes on; the first byte chooses."""
    if not data:
        return
    text = data[1:].decode("utf-8", "surrogateescape")
    kind = data[0] % 5
    try:
        if kind == _DESCRIPTION:
            _description(text)
        elif kind == _NAME:
            _name(text)
        elif kind == _NAMES:
            for broken in broken_chains(text.split("\n")):
                assert visible(broken.problem) == broken.problem, "a problem that is not to be shown"
        elif kind == _LAYOUT:
            _layout(data[1:])
        else:
            _resume(text)
    except WalReplayError as error:
        problem = error
    else:
        return
    assert str(problem).isprintable(), "an error that is not to be shown"


def _description(text: str) -> None:
    described = read_description(text, "f")
    relations = [relation for several in described.relations.values() for relation in several]
    again = read_description(write_description(relations, described), "f")
    names = {name: [relation.oid for relation in several] for name, several in described.relations.items()}
    assert {name: [relation.oid for relation in several] for name, several in again.relations.items()} == names
    assert again.rows == described.rows, "counts of rows are read otherwise"


def _name(text: str) -> None:
    name = RecordedName.parse(text)
    if name is None:
        return
    assert RecordedName.parse(str(name)) == name, "a name is written otherwise"
    refuse_outside(text, [1, 1 << 40])


def _layout(content: bytes) -> None:
    with suppress(ValueError, KeyError, TypeError, AttributeError):
        layout = layout_of(m.Message(True, 1, "", content))
        assert layout is None or layout.oid < 1 << 32, "an oid is larger than any"


def _resume(text: str) -> None:
    try:
        resume = from_json(Resume, text)
    except ValidationError:  # an error of the index to who reads its table
        return
    assert from_json(Resume, to_json(resume)) == resume, "a place is written otherwise"
    resume.moved(str)


def seeds() -> Iterator[bytes]:
    """Yield what walreplay itself writes."""
    table = {"schema": "s", "table": "t", "oid": 7, "replica_identity": "d", "attnum": 1, "column": "id"}
    column = {"type_oid": 23, "typmod": -1, "key": True, "type_schema": "pg_catalog", "type_name": "int4"}
    lines = [{**table, **column}, {**table, **column, "attnum": 2, "column": "x", "labels": [[1, "a"]], "kind": "r"}]
    lines += [{**table, "oid": 8, "table": "u", "attnum": None}, {"oid": 7, "rows": 3, "emptied": "0/1"}]
    lines += [{**table, **column, "type_oid": 90_000, "row_filter": "(id > 1)"}]
    for some in (lines[:1], lines[:3], lines[1:4], lines[4:]):
        yield bytes([_DESCRIPTION]) + "".join(json.dumps(line) + "\n" for line in some).encode()
    names = "a/00000042_0-16B3748_0-16C0000.pgo.zst\na/00000043_gap_0-1700000_0-1800000.pgo.zst"
    for name in names.split("\n"):
        yield bytes([_NAME]) + name.encode()
    yield bytes([_NAMES]) + names.encode()
    insert = m.Insert(9, m.TupleData((m.Cell("t", b"1"),)), xid=7)
    columns = [{"n": 1, "name": "id", "type": 23}, {"n": 3, "name": "v", "type": 25, "missing": "x"}]
    layout = {"walreplay": 1, "oid": 9, "natts": 3, "columns": columns, "schema": "s", "table": "t", "xids": [7]}
    for values in (layout, {"walreplay": 1, "type": 90_000, "labels": [[1, "a"]]}, {**layout, "dropped": True}):
        yield bytes([_LAYOUT]) + json.dumps(values).encode()
    table_in = m.Relation(9, "s", "t", "d", (m.Column("id", 23, -1, True),), xid=7)
    data = frame([*transaction(100), m.StreamStart(7, True), table_in, insert, m.StreamStop()], Framing.LENGTH)
    planned = plan_run({"f": data}, None)
    if planned is not None:
        yield bytes([_RESUME]) + to_json(planned.plan.resume).encode()


_WORDS = (b'"attnum": ', b'"rows": ', b'"labels": ', b"null", b"1e999", b"[[[[[[[[")

TARGET = Target("records", read, seeds, _WORDS, longest=2048)
