"""Tables of Spark's own catalog, by files: made by a statement, found where the catalog says, written exactly once."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import unquote, urlsplit

import pyarrow as pa
import pytest

import walreplay
from support.extent import further
from support.small_mirror import INT4, TEXT, SmallMirror, relation, row
from support.stopped_run import stopping
from support.writing import N
from walreplay.delta import statements as delta
from walreplay.delta import target as located
from walreplay.delta.commits import CommitId
from walreplay.delta.local import LocalTable
from walreplay.delta.opened import OpenedTable
from walreplay.delta.target import TableName, Target
from walreplay.errors import TargetError, WalReplayError
from walreplay.ledger import state as lock
from walreplay.ledger.state import Holder, to_json
from walreplay.protocol import messages as m
from walreplay.session import steps
from walreplay.session.isolation import own_session
from walreplay.writing.by_files import choose_writer

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.integration

_CATALOG: Final = "spark_catalog"
_T: Final = relation(1, "t", {"id": INT4, "v": TEXT})
_FIRST: Final = (_T, m.Insert(1, row(1, "a")), m.Insert(1, row(2, "b")))
_SECOND: Final = (m.Update(1, row(1, "c")), m.Delete(1, key=row(2, None)), m.Insert(1, row(3, "d")))
_THIRD: Final = (m.Insert(1, row(4, "e")), m.Update(1, row(3, "f")))


@pytest.fixture
def mirror(spark: SparkSession, tmp_path: Path) -> Iterator[SmallMirror]:
    """Return a mirror in the session's catalog that has nothing yet."""
    yield SmallMirror(spark, tmp_path, _CATALOG)
    for schema in ("s", "_walreplay"):
        spark.sql(f"DROP SCHEMA IF EXISTS {schema} CASCADE")


@pytest.fixture
def by(monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """Have runs write by files or by statements."""
    return lambda way: monkeypatch.setenv("WALREPLAY_COMMITS", "" if way == "files" else way)


class KilledError(BaseException):
    """Nothing within a run takes it for a failure of Spark's or of the storage."""


@pytest.fixture
def kill_at() -> Iterator[Callable[[str], None]]:
    """Have a run end at the first step whose name begins so, as if it was killed."""
    with stopping(KilledError) as at:
        yield at


def _rows(spark: SparkSession, table: str = "s.t") -> list[tuple[Any, ...]]:
    return sorted(tuple(found) for found in spark.table(table).select("id", "v").collect())


def _folder(spark: SparkSession, table: str) -> Path:
    (detail,) = spark.sql(f"DESCRIBE DETAIL {table}").collect()
    return Path(unquote(urlsplit(detail.location).path))


def _made_by(spark: SparkSession, table: str) -> list[CommitId]:
    commits = OpenedTable(spark, TableName(parts=(_CATALOG, *table.split(".")))).newest_commits(100)
    return [commit.id for commit in commits if commit.id is not None]


def test_tables_are_written_by_files_and_the_catalog_is_asked_rarely(
    mirror: SmallMirror, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []
    real = located._location

    def counted(spark: SparkSession, table: TableName) -> str | None:
        asked.append(table.parts[-1])
        return real(spark, table)

    monkeypatch.setattr(located, "_location", counted)
    spark, reports = mirror.spark, []
    for changes in (_FIRST, _SECOND, ()):
        asked.clear()
        reports.append(mirror.apply(*changes))
        assert max(map(asked.count, asked)) <= 4, asked
    assert [report.writer for report in reports] == ["files", "files", None]
    assert [table.writer for report in reports for table in report.tables] == ["files", "files"]
    assert [table.version for report in reports for table in report.tables] == [1, 2]
    assert _rows(spark) == [(1, "c"), (3, "d")]
    history = spark.sql("DESCRIBE HISTORY s.t").orderBy("version").collect()
    assert [entry.operation for entry in history] == ["CREATE TABLE", "WRITE", "WRITE"]
    # The statement's commit is the run's, too, but none of its steps.
    assert [commit.number > 0 for commit in reversed(_made_by(spark, "s.t"))] == [False, True, True]
    (detail,) = spark.sql("DESCRIBE DETAIL s.t").collect()
    assert detail.description == "PostgreSQL table s.t"
    assert spark.table("s.t").schema["id"].metadata["comment"] == "integer"
    # Nothing else lies in the ledger's schema, and each table is a managed one: it goes with its schema.
    folder = _folder(spark, "_walreplay.state").parent
    listed = spark.sql("SHOW TABLES IN _walreplay").collect()
    tables = {found.tableName for found in listed if not found.isTemporary}
    assert {path.name for path in folder.iterdir()} == tables
    assert "staging" not in tables


_STEPS: Final = tuple(f"table made: spark_catalog.{name}" for name in ("s.t", "_walreplay.state", "_walreplay.runs"))


@pytest.mark.parametrize(
    ("step", "first", "then"),
    further(
        [
            (_STEPS[0], "files", "spark"),
            (_STEPS[1], "files", "spark"),
            ("table applied", "spark", "files"),
        ],
        long=[
            (_STEPS[0], "files", "files"),
            (_STEPS[1], "files", "files"),
            (_STEPS[2], "files", "spark"),
            ("plan written", "spark", "files"),
            ("table applied", "files", "spark"),
        ],
    ),
)
def test_a_run_that_is_stopped_is_finished_once_by_either_way(
    mirror: SmallMirror,
    by: Callable[[str], None],
    kill_at: Callable[[str], None],
    step: str,
    first: str,
    then: str,
) -> None:
    spark = mirror.spark
    mirror.write(*_FIRST)
    by(first)
    kill_at(step)
    with pytest.raises(KilledError):
        mirror.apply()
    if step == _STEPS[0]:
        # For a moment, readers see a table without rows.
        assert _rows(spark) == []
    by(then)
    finished = mirror.apply()
    assert finished.status == "applied"
    assert [table.version for table in finished.tables] == [1]
    assert _rows(spark) == [(1, "a"), (2, "b")]
    by(first)
    assert mirror.apply(*_SECOND).warnings == ()
    by(then)
    assert mirror.apply(*_THIRD).warnings == ()
    assert mirror.apply().status == "nothing new"
    assert _rows(spark) == [(1, "c"), (3, "f"), (4, "e")]
    numbers = [commit.number for commit in _made_by(spark, "s.t") if commit.number > 0]
    assert len(numbers) == len(set(numbers)) == 3
    assert sorted(found.run for found in spark.table("_walreplay.runs").collect()) == [1, 2, 3]


@pytest.mark.full
def test_a_table_is_found_where_the_catalog_says_whatever_the_place_is_called(
    mirror: SmallMirror, tmp_path: Path
) -> None:
    """A location is a URI, in which a space and a per cent sign are written otherwise than in a path."""
    spark, here, there = mirror.spark, tmp_path / "of a schema", tmp_path / "els%2Fe where"
    spark.sql(f"CREATE SCHEMA s LOCATION '{here}'")
    spark.sql(f"CREATE SCHEMA _walreplay LOCATION '{tmp_path / 'the ledger'}'")
    assert [table.writer for table in mirror.apply(*_FIRST).tables] == ["files"]
    assert (here / "t" / "_delta_log" / f"{1:020}.json").is_file()
    assert [path.name for path in (tmp_path / "the ledger").iterdir() if path.name.startswith(".")] == []
    # Somebody brings the table elsewhere, and names the new place to the catalog.
    shutil.copytree(here / "t", there)
    spark.sql("DROP TABLE s.t")
    spark.sql(f"CREATE TABLE s.t USING delta LOCATION '{there}'")
    report = mirror.apply(*_SECOND)
    # delta-rs takes a per cent sign for something else.
    assert [(table.writer, table.version) for table in report.tables] == [("statements", 2)]
    assert report.warnings == ()
    assert _rows(spark) == [(1, "c"), (3, "d")]
    assert not (here / "t").exists()
    # What others do that changes no rows is seen by the next transaction.
    spark.sql("OPTIMIZE s.t")
    spark.sql("ALTER TABLE s.t SET TBLPROPERTIES ('note' = 'by hand')")
    assert [table.writer for table in mirror.apply(*_THIRD).tables] == ["statements"]
    assert _rows(spark) == [(1, "c"), (3, "f"), (4, "e")]
    spark.sql("DROP TABLE s.t")


@pytest.mark.full
def test_a_table_that_is_made_anew_between_two_runs_is_not_taken_for_the_ledgers(
    mirror: SmallMirror, tmp_path: Path
) -> None:
    spark = mirror.spark
    mirror.apply(*_FIRST)
    mirror.apply(*_SECOND)
    mirror.write(*_THIRD)
    spark.sql("CREATE TABLE s.kept USING delta AS SELECT * FROM s.t")
    for location in ("", f"LOCATION '{tmp_path / 'elsewhere'}'"):
        spark.sql("DROP TABLE s.t")
        spark.sql(f"CREATE TABLE s.t USING delta {location} AS SELECT * FROM s.kept")
        for _ in range(2):
            # Its log has as many versions, in the end.
            with pytest.raises(TargetError, match=r"made anew by somebody else|was made by something else"):
                mirror.apply()
            spark.sql("INSERT INTO s.t SELECT * FROM s.kept WHERE false")
    spark.sql("DROP TABLE s.t")
    with pytest.raises(TargetError, match="the table is gone"):
        mirror.apply()
    # Both schemas dropped, in this very process, a target is a new one.
    for schema in ("s", "_walreplay"):
        spark.sql(f"DROP SCHEMA {schema} CASCADE")
    assert mirror.apply().run == 1
    assert _rows(spark) == [(1, "c"), (3, "f"), (4, "e")]


@pytest.mark.parametrize(
    ("instead", "way"),
    further(
        [("VIEW s.t", "files")],
        long=[("VIEW s.t", "spark"), ("TABLE s.t USING parquet", "files"), ("TABLE s.t USING parquet", "spark")],
    ),
)
def test_what_is_no_delta_table_any_more_is_left_alone(
    mirror: SmallMirror, by: Callable[[str], None], way: str, instead: str
) -> None:
    spark = mirror.spark
    by(way)
    mirror.apply(*_FIRST)
    spark.sql("CREATE TABLE s.kept USING delta AS SELECT * FROM s.t")
    spark.sql("DROP TABLE s.t")
    spark.sql(f"CREATE {instead} AS SELECT * FROM s.kept")
    with pytest.raises(WalReplayError) as caught:
        mirror.apply(*_SECOND)
    assert "s.t" in str(caught.value)
    assert _rows(spark) == [(1, "a"), (2, "b")]


@pytest.mark.parametrize(
    "rows", further([""], long=[" AS SELECT 7 AS id, 'theirs' AS v, CAST(NULL AS STRING) AS _rescued_data"])
)
def test_a_table_that_somebody_else_makes_meanwhile_gets_no_rows(mirror: SmallMirror, rows: str) -> None:
    spark = mirror.spark

    def on_step(step: str) -> None:
        if step == "plan written":
            steps.on_step = None
            columns = "" if rows else " (id INT, v STRING, _rescued_data STRING)"
            spark.sql("CREATE SCHEMA IF NOT EXISTS s")
            spark.sql(f"CREATE TABLE s.t{columns} USING delta{rows}")

    steps.on_step = on_step
    before = [(7, "theirs")] if rows else []
    for match in ("somebody else has made the table", "was not made by this target's ledger"):
        with pytest.raises(TargetError, match=match):
            mirror.apply(*([] if mirror.files else _FIRST))
        assert _rows(spark) == before
    spark.sql("DROP TABLE s.t")
    mirror.apply()
    assert _rows(spark) == [(1, "a"), (2, "b")]


@pytest.mark.parametrize("way", further(["files"], long=["spark"]))
def test_what_a_statement_has_left_that_was_killed_before_the_catalog_had_its_table_is_removed(
    mirror: SmallMirror, tmp_path: Path, by: Callable[[str], None], kill_at: Callable[[str], None], way: str
) -> None:
    spark = mirror.spark
    mirror.write(*_FIRST)
    kill_at(_STEPS[0])
    with pytest.raises(KilledError):
        mirror.apply()
    folder = _folder(spark, "s.t")
    shutil.copytree(folder, tmp_path / "t")
    spark.sql("DROP TABLE s.t")
    shutil.copytree(tmp_path / "t", folder)
    by(way)
    with pytest.raises(WalReplayError, match=r"NON_EMPTY|LOCATION_ALREADY_EXISTS"):
        # The statement may be at work still.
        mirror.apply()
    os.utime(folder / "_delta_log", (0, 0))
    (folder / "somebody's").touch()
    with pytest.raises(WalReplayError, match=r"NON_EMPTY|LOCATION_ALREADY_EXISTS"):
        mirror.apply()
    (folder / "somebody's").unlink()
    mirror.apply()
    assert _rows(spark) == [(1, "a"), (2, "b")]


@pytest.mark.parametrize("late", further(["the transaction"], long=["the statement"]))
def test_a_run_that_was_paused_behind_making_a_table_brings_it_no_rows(
    mirror: SmallMirror, monkeypatch: pytest.MonkeyPatch, late: str
) -> None:
    """Another run has taken over meanwhile, and has brought them."""
    spark, done = mirror.spark, list[str]()
    here = Holder.here()
    dead = replace(here, host="node1", boot_id="b", pid=99, beat=here.beat - 2 * lock.LEASE)

    def take_over() -> None:
        spark.sql(f"UPDATE _walreplay.state SET holder = '{to_json(dead)}'")
        done.append(walreplay.apply(spark, captures=mirror.captures, target=_CATALOG).status)

    def on_step(step: str) -> None:
        if step == _STEPS[0]:
            steps.on_step = None
            take_over()

    commit = LocalTable.commit

    def committed(self: LocalTable, *given: Any, **named: Any) -> int | None:
        if self.folder.uri.endswith("s.db/t") and not done:
            take_over()
        return commit(self, *given, **named)

    if late == "the statement":
        steps.on_step = on_step
    else:
        monkeypatch.setattr(LocalTable, "commit", committed)
    with pytest.raises(TargetError, match=r"taken over|is at work|lost"):
        mirror.apply(*_FIRST)
    assert done == ["applied"]
    assert _rows(spark) == [(1, "a"), (2, "b")]
    assert mirror.apply(*_SECOND).warnings == ()
    assert _rows(spark) == [(1, "c"), (3, "d")]


@pytest.mark.full
def test_of_two_who_make_the_table_of_one_row_one_brings_it(
    spark: SparkSession, request: pytest.FixtureRequest
) -> None:
    request.addfinalizer(lambda: spark.sql("DROP SCHEMA IF EXISTS one_row CASCADE"))
    target = Target.parse("spark_catalog.one_row")
    definition = delta.TableDefinition(target.ledger("state"), pa.schema([("n", pa.int64())]))
    one, other = (choose_writer(spark, target).one_row(own_session(spark), definition) for _ in range(2))
    assert (one.exists(), other.exists()) == (False, False)
    done: list[bool] = []

    def on_step(step: str) -> None:
        if step.startswith("table made"):
            steps.on_step = None
            done.append(other.create({"n": 2}, exists=False))

    steps.on_step = on_step
    done.append(one.create({"n": 1}, exists=False))
    assert done == [True, False]
    assert [found.n for found in spark.table("one_row._walreplay_state").collect()] == [2]
    assert (one.exists(), one.read()) == (True, {"n": 2})
    assert one.change({"n": 3}, N(2))
    assert not other.change({"n": 4}, N(2))
    assert other.read() == {"n": 3}


def test_only_spark_s_own_catalog_with_delta_s_in_front_is_asked(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    def way(session: SparkSession, target: str) -> str:
        return choose_writer(session, Target.parse(target)).kind

    assert [way(spark, target) for target in ("spark_catalog", "SPARK_CATALOG.shop", "main", "main.shop")] == [
        "files",
        "files",
        "statements",
        "statements",
    ]
    other = spark.newSession()
    other.conf.set("spark.sql.catalog.spark_catalog", "org.apache.spark.sql.connector.catalog.InMemoryCatalog")
    assert way(other, "spark_catalog") == "statements"
    shared: Any = spark._jsc.hadoopConfiguration()
    key = "hive.metastore.client.factory.class"
    for value, expected in (
        ("com.amazonaws.glue.catalog.metastore.AWSGlueDataCatalogHiveClientFactory", "statements"),
        ("org.apache.hadoop.hive.ql.metadata.SessionHiveMetaStoreClientFactory", "files"),
    ):
        shared.set(key, value)
        try:
            assert way(spark, "spark_catalog") == expected
        finally:
            shared.unset(key)
    monkeypatch.setenv("WALREPLAY_COMMITS", "spark")
    assert way(spark, "spark_catalog") == "statements"
