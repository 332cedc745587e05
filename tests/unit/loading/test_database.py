"""A database as a source: its address, who asks it, and what is asked."""

from __future__ import annotations

import json
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pytest

from walreplay.errors import CaptureError, ConfigError
from walreplay.loading.database import (
    Server,
    TablePiece,
    check_blocks,
    check_kept,
    check_moment,
    credentials_of,
    problem_of,
    query_of,
    ranges_of,
    read_address,
    read_pieces,
    read_server,
    rows_at_a_time,
    rows_query,
    session_statements,
    tables_setting,
)
from walreplay.loading.description import Description
from walreplay.protocol.messages import Column, Relation
from walreplay.scripts import script
from walreplay.spark.base_rows import DatabaseOfBase

SERVER = Server(170_000, False, 0, 8192)
MIB = 1 << 20


def piece(**values: object) -> TablePiece:
    known = {"table": "s.t", "oid": 7, "schema": "s", "name": "t", "blocks": 10, "size": 1, "rows": 1}
    return TablePiece(**{**known, **values})  # type: ignore[arg-type]


# The address.


def test_an_address_is_shown_without_its_parameters():
    found = read_address("jdbc:postgresql://one,[::1]:6432/my%20shop?user=ann&sslmode=require")
    assert found.shown == "jdbc:postgresql://one,[::1]:6432/my%20shop"
    assert (found.hosts, found.database, found.user) == ((("one", "5432"), ("::1", "6432")), "my shop", "ann")


@pytest.mark.parametrize(
    "text",
    [
        "jdbc:mysql://h/d?x=secret",
        "jdbc:postgresql:secret",
        "jdbc:postgresql://ann:secret@h/d",
        "jdbc:postgresql://h/d?password=secret",
        "jdbc:postgresql://h/d?user=a&sslPassword=secret",
        "jdbc:postgresql://h/d?user=a&pass%77ord=secret",
        "jdbc:postgresql://h:port/secret",
    ],
)
def test_what_is_no_address_or_has_a_password_is_refused_without_being_shown(text):
    with pytest.raises(ConfigError) as caught:
        read_address(text)
    assert "secret" not in str(caught.value)
    assert caught.value.remedy


ADDRESS = read_address("jdbc:postgresql://db.example/shop")


def test_user_and_password_are_of_the_environment():
    assert credentials_of(ADDRESS, {"PGUSER": "ann", "PGPASSWORD": "x"}) == {"user": "ann", "password": "x"}
    named = read_address("jdbc:postgresql://db.example/shop?user=bob")
    assert credentials_of(named, {"PGUSER": "ann", "PGPASSWORD": "x"})["user"] == "bob"
    with pytest.raises(ConfigError, match="who asks"):
        credentials_of(ADDRESS, {})


@pytest.fixture
def passfile(tmp_path: Path) -> Path:
    file = tmp_path / "passwords"
    file.write_text("# one\nother:5432:shop:ann:no\ndb.example:*:shop:a\\:nn:p\\:q\\\\r\n*:5432:*:bob:any\n")
    file.chmod(0o600)
    return file


@pytest.mark.parametrize(("user", "password"), [("a:nn", "p:q\\r"), ("bob", "any"), ("ann", None)])
def test_a_password_is_looked_up_in_a_file_as_libpq_has_it(passfile, user, password):
    found = credentials_of(ADDRESS, {"PGUSER": user, "PGPASSFILE": str(passfile)})
    assert found.get("password") == password


def test_a_file_that_others_may_read_is_refused_and_the_remedy_helps(passfile):
    passfile.chmod(0o644)
    asked = {"PGUSER": "bob", "PGPASSFILE": str(passfile)}
    with pytest.raises(ConfigError, match="others may read") as caught:
        credentials_of(ADDRESS, asked)
    assert caught.value.remedy == f"chmod 600 {passfile}"
    passfile.chmod(0o600)
    assert credentials_of(ADDRESS, asked)["password"] == "any"
    with pytest.raises(ConfigError, match="no such file"):
        credentials_of(ADDRESS, {"PGUSER": "bob", "PGPASSFILE": str(passfile) + "x"})


# The rows.


def test_names_are_data():
    relation = Relation(7, 's"', "t?", "d", (Column('c"; --', 16, -1, True), Column("n", 23, -1, False)))
    found = rows_query(piece(schema='s"', name="t?"), relation)
    assert """FROM ONLY "s""\"."t?" WHERE""" in found
    assert """num_nonnulls("c""; --") = 1 THEN pg_catalog.format('%s', "c""; --")""" in found
    assert '"n"::pg_catalog.text AS c1' in found
    assert session_statements(None, {"walreplay.publication": "it's"}).endswith(
        "SET LOCAL walreplay.publication = 'it''s'; SET LOCAL walreplay.snapshot_is_held = 'yes'"
    )


def test_operators_with_question_marks_are_no_parameters():
    filtered = piece(row_filter="(a ?| '{x,?}') AND \"b?\" ? 'it''s?'")
    assert """(a ??| '{x,?}') AND "b?" ?? 'it''s?'""" in rows_query(filtered, Relation(7, "s", "t", "d", ()))


@pytest.mark.parametrize(
    ("blocks", "size", "parts"),
    [(None, 900 * MIB, 1), (0, 0, 1), (1, 900 * MIB, 1), (8192, 64 * MIB, 1), (20_000, 0, 3)],
)
def test_a_table_is_divided_by_its_blocks_and_the_last_part_has_no_end(blocks, size, parts):
    found = ranges_of(piece(blocks=blocks, size=size), 8192)
    assert len(found) == parts
    assert found[0].startswith("true")
    assert found[-1].endswith("true")
    for one, other in pairwise(found):
        assert one.partition("place < ")[2] == other.partition("place >= ")[2].partition(" AND ")[0]


def test_fewer_rows_are_fetched_at_a_time_where_they_are_large():
    assert rows_at_a_time(piece(size=100 * MIB, rows=100)) == 8
    assert rows_at_a_time(piece(size=2_000 * MIB, rows=10)) == 1
    assert rows_at_a_time(piece(size=8192, rows=0)) == 1_024
    assert rows_at_a_time(piece(size=0, rows=0)) == 10_000


def line(**values: object) -> str:
    known = {
        "root": 7,
        "oid": 7,
        "schema": "s",
        "name": "t",
        "kind": "r",
        "bytes": 81920,
        "size": 90000,
        "rows": 5,
        "file_seen": 70,
        "file_now": 70,
    }
    return json.dumps({**known, **values})


def pieces(*lines: str, server: Server = SERVER, row_filters: dict[int, str] | None = None) -> tuple[TablePiece, ...]:
    return read_pieces(lines, server, {7: "s.t"}, row_filters or {})


def test_a_partitioned_table_is_read_by_its_partitions_with_its_row_filter():
    partitions = line(oid=8, name="t1"), line(oid=9, name="t2", kind="f")
    filters = {7: "(a > 1)"}
    found = pieces(line(kind="p"), *partitions, row_filters=filters)
    assert [(one.table, one.name, one.blocks) for one in found] == [("s.t", "t1", 10), ("s.t", "t2", None)]
    assert {one.row_filter for one in found} == {"(a > 1)"}
    assert tables_setting([9, 7]) == {"walreplay.tables": "{7,9}"}


def test_a_table_of_an_older_server_is_read_in_one_part():
    (found,) = pieces(line(), server=Server(130_012, False, 0, 8192))
    assert ranges_of(found, 8192) == ["true"]


TWO_PARTS = {"bytes": 20_000 * 8192, "size": 100 * MIB, "file_now": 71}


@pytest.mark.parametrize(
    ("seen", "now", "refused"),
    [
        ({}, {}, False),
        ({"file_now": 71}, {}, False),  # moved, and read by one session
        (TWO_PARTS, {}, True),  # moved
        (TWO_PARTS, {"rows": -1}, False),  # emptied: the stream has it, too
    ],
)
def test_a_table_whose_rows_have_moved_while_its_parts_were_read_is_refused(seen, now, refused):
    before, after = pieces(line(oid=8, name="t1", **seen)), pieces(line(oid=8, name="t1", **now))
    if not refused:
        check_blocks(before, after, SERVER)
        return
    with pytest.raises(CaptureError, match="VACUUM FULL or CLUSTER") as caught:
        check_blocks(before, after, SERVER)
    assert caught.value.table == "s.t1"


def test_what_has_not_kept_to_the_snapshot_is_refused_by_its_name():
    check_kept(['["x", "s.t", 1]'], ['["x", "s.t", 1]', '["x", "s.new", 2]'])
    with pytest.raises(CaptureError, match="labels of the enum were renamed, after the snapshot") as caught:
        check_kept(['["labels of the enum were renamed", "s.mood", 1, "7", "ok"]'], [])
    assert caught.value.table == "s.mood"


def test_rows_without_a_snapshot_are_those_of_a_standby_at_rest_alone():
    text = '{"version": 170000, "is_standby": true, "position": "0/64", "block_size": 8192}'
    check_moment(read_server(text), None, 99)
    check_moment(SERVER, "00000003-1", 5)
    with pytest.raises(ConfigError, match="each of them would see other rows"):
        check_moment(SERVER, None, 99)
    with pytest.raises(ConfigError, match="the standby stands at LSN 0/64"):
        check_moment(read_server(text), None, 100)


def test_a_truncate_is_among_what_had_been_written_when_its_table_had_been_read(monkeypatch):
    monkeypatch.setenv("PGUSER", "ann")
    base = DatabaseOfBase(None, ADDRESS, 5, publication="p", table=None, snapshot=None, connections=None)
    base._tables, base._description = {1: "s.t", 2: "s.u"}, Description.of((), ())
    monkeypatch.setattr(base, "_ask_pieces", lambda: [piece(is_elsewhere=True), piece(table="s.u")])
    monkeypatch.setattr(base, "_ask_server", lambda: replace(SERVER, position=99))
    base.check({})
    assert base.described().emptied == {1: 99}


@pytest.mark.parametrize("name", ["", "x'; DROP TABLE t; --", "00000003-", "1-2\n"])
def test_what_is_no_name_of_a_snapshot_is_refused(name):
    with pytest.raises(ConfigError, match="not the name of a snapshot"):
        session_statements(name)


def test_a_snapshot_is_taken_before_anything_else():
    first, second, *rest = session_statements("00000003-0000001B-1").split("; ")
    assert (first[:33], second) == (
        "SET TRANSACTION ISOLATION LEVEL R",
        "SET TRANSACTION SNAPSHOT '00000003-0000001B-1'",
    )
    assert all(one.startswith("SET LOCAL ") for one in rest)


def test_what_is_wrong_with_publications_is_told():
    error = 'ERROR: invalid input syntax for type bigint: "publications send different columns of s.t"'
    told = problem_of(error)
    assert told is not None
    assert "different columns" in told[0]
    told = problem_of('ERROR: invalid input syntax for bigint: "there is no publication x"')
    assert told is not None
    assert "no such publication" in told[0]


def test_a_query_that_fails_is_not_taken_for_a_lost_snapshot():
    assert problem_of(f"the query {query_of('SELECT 1')} failed") is None
    assert problem_of(f"the query {query_of(script('describe.sql'))} failed") is None
    told = problem_of('ERROR: unrecognized configuration parameter "walreplay.the_snapshot_is_not_held"')
    assert told is not None
    assert told[0] == "a session lost its snapshot"
