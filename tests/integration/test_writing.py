"""What holds of a target's writer, whichever way it goes: one suite for files of our own and for Spark's statements."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timezone
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest

import walreplay
from support.captures import case
from support.extent import further
from support.small_mirror import INT4, TEXT, SmallMirror, relation, row
from support.truth import assert_mirror_equals
from support.writing import WAYS, N, writer_of
from walreplay.delta import statements as delta
from walreplay.delta.opened import OpenedTable
from walreplay.delta.statements import TableDefinition, sql_schema
from walreplay.delta.target import TableName, Target
from walreplay.protocol import messages as m
from walreplay.report import WriterKind
from walreplay.session.isolation import own_session
from walreplay.writing import by_statements as row_statements
from walreplay.writing.by_statements import Append, TableWriter

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.integration

_SCHEMA = pa.schema(
    [
        ("n", pa.int64()),
        ("text", pa.string()),
        ("at", pa.timestamp("us", "UTC")),
        ("listed", pa.list_(pa.struct([("name", pa.string()), ("number", pa.int64())]))),
    ]
)
_MOMENT = datetime(2026, 1, 2, 3, 4, 5, 678, timezone.utc)
_ROWS = [(1, "it's a \\ text", _MOMENT, [("a", 1), (None, None)]), (2, None, None, None), (3, "", _MOMENT, [])]


@pytest.fixture(params=WAYS)
def writer(request: pytest.FixtureRequest, spark: SparkSession, tmp_path: Path) -> TableWriter:
    """Return a writer of each way."""
    kind: WriterKind = request.param
    return writer_of(spark, tmp_path, kind)


def _append(spark: SparkSession, writer: TableWriter, table: TableName, schema: pa.Schema = _SCHEMA) -> Append:
    return writer.begin_append(spark, TableDefinition(table, schema), create=not delta.exists(spark, table))


def _appended(
    spark: SparkSession, writer: TableWriter, table: TableName, number: int, rows: Sequence[tuple[object, ...]] = _ROWS
) -> int | None:
    own = own_session(spark)
    append = _append(own, writer, table)
    append.write_rows(rows)
    return append.commit(delta.CommitId("test", number))


@pytest.fixture
def table(tmp_path: Path) -> TableName:
    return TableName(path=str(tmp_path / "a table"))


def test_rows_are_in_the_table_once_they_are_committed(
    spark: SparkSession, writer: TableWriter, table: TableName
) -> None:
    append = _append(spark, writer, table)
    append.write_rows(_ROWS[:1])
    append.write_frame(spark.createDataFrame(_ROWS[1:], sql_schema(_SCHEMA)))
    assert not delta.exists(spark, table)
    assert append.commit(delta.CommitId("test", 1)) == 0
    found = delta.read(spark, table)
    wanted = spark.createDataFrame(_ROWS, sql_schema(_SCHEMA))
    assert found.schema == wanted.schema
    assert sorted(map(str, found.collect())) == sorted(map(str, wanted.collect()))


def test_an_append_of_nothing_is_a_commit(spark: SparkSession, writer: TableWriter, table: TableName) -> None:
    commit = delta.CommitId("test", 1)
    assert _append(spark, writer, table).commit(commit) == 0
    assert OpenedTable(spark, table).find(commit) is not None
    assert delta.read(spark, table).count() == 0


def test_a_commit_that_was_made_is_not_made_again(spark: SparkSession, writer: TableWriter, table: TableName) -> None:
    assert [_appended(spark, writer, table, number) for number in (1, 2, 2, 1, 3)] == [0, 1, None, None, 2]
    assert delta.read(spark, table).count() == 3 * len(_ROWS)


def test_a_history_tells_what_was_written_and_by_which_run(
    spark: SparkSession, writer: TableWriter, table: TableName
) -> None:
    _appended(spark, writer, table, 1)
    found = OpenedTable(spark, table).find(delta.CommitId("test", 1))
    assert found is not None
    assert found.count("numOutputRows") == len(_ROWS)


def test_both_ways_write_to_one_table_by_turns(spark: SparkSession, tmp_path: Path, table: TableName) -> None:
    for number in range(4):
        assert _appended(spark, writer_of(spark, tmp_path, WAYS[number % 2]), table, number) == number
    assert delta.read(spark, table).count() == 4 * len(_ROWS)


def test_a_table_that_asks_for_more_is_written_to_all_the_same(
    spark: SparkSession, writer: TableWriter, table: TableName
) -> None:
    spark.sql(f"CREATE TABLE {table.sql} ({sql_schema(_SCHEMA)}) USING delta PARTITIONED BY (text)")
    assert _appended(spark, writer, table, 1) == 1
    assert delta.read(spark, table).where("n = 1").select("text").collect()[0].text == _ROWS[0][1]


def test_of_two_who_make_a_table_one_fails(spark: SparkSession, writer: TableWriter, table: TableName) -> None:
    rows = [
        writer.one_row(own_session(spark), TableDefinition(table, pa.schema([("n", pa.int64())]))) for _ in range(2)
    ]
    assert rows[0].create({"n": 1}, exists=False)
    with pytest.raises(Exception, match=r"(?i)exist|somebody else has committed"):
        rows[1].create({"n": 2}, exists=False)
    assert rows[1].read() == {"n": 1}


@pytest.mark.parametrize("long", further([False, True], but=(True,)))
def test_a_row_is_changed_if_the_condition_holds(
    spark: SparkSession, writer: TableWriter, table: TableName, monkeypatch: pytest.MonkeyPatch, long: bool
) -> None:
    monkeypatch.setattr(row_statements, "_MAX_LITERAL_CHARS", 0 if long else 1000)
    schema = pa.schema(
        [("n", pa.int64()), ("text", pa.string()), ("at", pa.timestamp("us", "UTC")), ("all", pa.list_(pa.string()))]
    )
    one, other = (writer.one_row(own_session(spark), TableDefinition(table, schema)) for _ in range(2))
    first = {"n": 1, "text": "it's a \\ text", "at": _MOMENT, "all": ["a", "'"]}
    assert one.create(first, exists=False)
    assert other.read() == first
    assert not one.change({"text": "never"}, N(2))
    assert one.change({"n": 2, "text": None}, N(1))
    # It knows the row as it was.
    assert not other.change({"text": "never"}, N(1))
    assert other.change({"text": "x"}, N(2))
    assert one.read() == other.read() == first | {"n": 2, "text": "x"}


def test_a_table_without_its_row_gets_one_row(spark: SparkSession, writer: TableWriter, table: TableName) -> None:
    schema = pa.schema([("n", pa.int64())])
    _append(spark, writer, table, schema).commit(delta.CommitId("test", 1))
    one, other = (writer.one_row(own_session(spark), TableDefinition(table, schema)) for _ in range(2))
    assert one.read() is None
    assert one.create({"n": 1}, exists=True)
    assert not other.create({"n": 2}, exists=True)
    assert other.read() == {"n": 1}


@pytest.mark.parametrize(("kind", "name"), further(product(WAYS, ["o04", "o11", "o19"]), but=(("statements", "o11"),)))
def test_each_way_makes_the_same_tables_and_says_so(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: WriterKind, name: str
) -> None:
    monkeypatch.setenv("WALREPLAY_COMMITS", "spark" if kind == "statements" else "")
    recorded, target = case(name), tmp_path / "mirror"
    report = walreplay.apply(spark, captures=recorded.folder, target=target)
    assert_mirror_equals(spark, target, recorded)
    assert (report.writer, report.to_dict()["writer"], report.warnings) == (kind, kind, ())
    assert [run.writer for run in walreplay.status(spark, target).runs] == [kind]
    history = spark.sql(f"DESCRIBE HISTORY {Target.parse(str(target)).ledger('state').sql}").collect()
    assert {row.operation for row in history[:-1]} == {"UPDATE" if kind == "statements" else "WRITE"}
    again = walreplay.apply(spark, captures=recorded.folder, target=target)
    assert (again.status, again.writer) == ("nothing new", None)


@pytest.mark.full
def test_statements_take_what_tasks_have_staged_in_files(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As where the platform's Delta is not the open one, but the target is reached."""
    monkeypatch.setenv("WALREPLAY_COMMITS", "spark")
    recorded = case("o18")
    report = walreplay.apply(spark, str(recorded.folder), tmp_path / "t")
    assert report.writer == "statements"
    assert_mirror_equals(spark, tmp_path / "t", recorded)
    assert not (tmp_path / "t" / "_walreplay" / "staging").exists()


def test_a_report_says_which_tables_go_another_way_and_why(spark: SparkSession, tmp_path: Path) -> None:
    mirror = SmallMirror(spark, tmp_path)
    columns = {"id": INT4, "a": TEXT}
    kinds = {1: "d", 2: "f", 3: "d", 4: "d", 5: "d", 6: "d"}
    first = [[relation(oid, f"t{oid}", columns, kind), m.Insert(oid, row(1, "x"))] for oid, kind in kinds.items()]
    first.append([relation(7, "t7", {"id": INT4, "a": 1186}, "f"), m.Insert(7, row(1, "1 day"))])
    made = mirror.apply(*(change for changes in first for change in changes))
    assert {(table.writer, table.writer_reason) for table in made.tables} == {("files", None)}
    spark.sql(f"ALTER TABLE delta.`{mirror.location('t5')}` SET TBLPROPERTIES ('delta.randomizeFilePrefixes' = 'true')")
    unchanged = m.TupleData((m.Cell("t", b"2"), m.UNCHANGED_CELL))
    report = mirror.apply(
        *(m.Insert(oid, row(3, "y")) for oid in (1, 2, 5)),
        m.Update(3, unchanged, key=m.TupleData((m.Cell("t", b"1"), m.NULL_CELL))),
        *(m.Truncate((4,), 0), m.Insert(4, row(3, "y"))),
        *(relation(6, "t6", {**columns, "b": TEXT}), m.Insert(6, row(3, "y", "z"))),
        m.Delete(7, old=row(1, "1 day")),
    )
    reasons = {
        "s.t1": None,
        "s.t2": None,
        "s.t3": None,
        "s.t4": "its rows are overwritten",
        "s.t5": "it has the property delta.randomizeFilePrefixes",
        "s.t6": None,
        "s.t7": None,
    }
    ways = {name: "statements" if reason else "files" for name, reason in reasons.items()}
    assert {table.name: (table.writer, table.writer_reason) for table in report.tables} == {
        name: (ways[name], reason) for name, reason in reasons.items()
    }
    told = {table["name"]: (table["writer"], table["writer_reason"]) for table in report.to_dict()["tables"]}
    assert told == {name: (ways[name], reason) for name, reason in reasons.items()}
    ledger = delta.read(spark, Target.parse(mirror.target).ledger("runs")).where(f"run = {report.run}")
    rows = ledger.selectExpr("writer AS run_writer", "inline(tables)").collect()
    assert {row.name: (row.writer, row.writer_reason) for row in rows} == told
    assert {row.run_writer for row in rows} == {report.writer} == {"files"}
