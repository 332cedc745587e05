"""Several sources in one table: each has its own rows, whatever becomes of those of the others."""

from __future__ import annotations

import json
import re
import threading
from collections import Counter, defaultdict
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from shutil import copytree, rmtree
from typing import TYPE_CHECKING, Any

import pytest

import walreplay
from support.pages import block, with_places
from support.plain_source import PlainTable
from support.shards import Shards
from support.small_mirror import INT4, INT8, TEXT, SmallMirror, forget, relation, row
from support.stopped_run import StoppedError
from walreplay.cli import main
from walreplay.delta import statements
from walreplay.errors import ConfigError, TargetError
from walreplay.protocol import messages as m
from walreplay.session import steps
from walreplay.writing import shared_table as sharing

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from walreplay.delta.target import TableName

pytestmark = pytest.mark.integration

ITEMS = relation(9, "items", {"id": INT4, "note": TEXT})
PAIRS = relation(8, "pairs", {"a": INT4, "b": TEXT}, "f")

FLOAT4, FLOAT8 = 700, 701

PAGE = "docs/sources.md"


@pytest.fixture
def shards(spark: SparkSession, tmp_path: Path) -> Shards:
    return Shards(spark, tmp_path)


@pytest.fixture
def stopped(spark: SparkSession, shards: Shards, stop: Callable[[str], None]) -> Callable[[str], None]:
    """Return what runs the source ``eu`` up to a step."""

    def run(step: str) -> None:
        stop(step)
        (failed,) = walreplay.apply_sources(spark, shards.lake, shards.config, sources=["eu"]).failed
        assert isinstance(failed.error, StoppedError), step

    return run


def test_each_source_has_its_own_rows_of_a_table(shards: Shards) -> None:
    eu, us = shards.of.values()
    table = {"source_schema": "s", "source_table": "items", "outputs": ["mirror", "history", "changelog"]}
    shards.config["objects"] = [{"table": table}]
    for name, one in shards.of.items():
        one.plain.append(PlainTable(ITEMS))
        one.write(ITEMS, PAIRS, *(m.Insert(9, row(n, name)) for n in range(3)), *(m.Insert(8, row(1, "x")),) * 2)
    reports = shards.apply(at_once=2)
    assert {table.action for report in reports.values() for table in report.tables} == {"created"}
    assert next(iter(shards.columns())) == "__source"

    gone = m.Update(9, row(1, "changed")), m.Delete(9, key=row(0, None)), m.Delete(8, row(1, "x"))
    eu.write(*gone, m.Insert(8, row(5, "z")))
    us.write(m.Truncate((9,), 0), m.Insert(9, row(1, "after")), m.Insert(9, row(7, "new")))
    shards.apply(at_once=2)
    assert shards.rows() == {
        "eu": ["id=1 note=changed", "id=2 note=eu"],
        "us": ["id=1 note=after", "id=7 note=new"],
    }
    assert shards.rows("pairs") == {"eu": ["a=1 b=x", "a=5 b=z"], "us": ["a=1 b=x", "a=1 b=x"]}
    assert shards.versions() == shards.plain(9, "versions")
    assert shards.log() == shards.plain(9, "log")
    assert shards.apply()["eu"].status == "nothing new"

    assert verified(shards) == {("eu", "equal"): 4, ("us", "equal"): 4}
    shards.spark.sql(f"UPDATE delta.`{shards.lake}/s/items` SET note = 'x' WHERE __source = 'us' AND id = 7")
    assert verified(shards) == {("eu", "equal"): 4, ("us", "equal"): 3, ("us", "different"): 1}


def verified(shards: Shards) -> Counter[tuple[str, str]]:
    """Compare the tables of each source, and count what has come of it."""
    settings = {name: walreplay.source_settings(shards.config, name) for name in shards.of}
    reports = {name: walreplay.verify(shards.spark, shards.lake, config=one) for name, one in settings.items()}
    return Counter((name, table.result) for name, report in reports.items() for table in report.tables)


@pytest.mark.full
def test_a_table_that_one_source_has_maintained_is_gone_on_from_by_both(
    spark: SparkSession, shards: Shards, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("walreplay.delta.upkeep.LEAST", 2)
    eu, us = shards.of.values()
    for name, one in shards.of.items():
        one.write(ITEMS, m.Insert(9, row(1, name)))
    shards.apply()
    report = walreplay.maintain(spark, shards.lake, r"s\.items", config=walreplay.source_settings(shards.config, "eu"))
    (table,) = report.tables
    assert (table.actions, table.files_removed, table.files_added) == (("optimize",), 2, 1)

    eu.write(m.Update(9, row(1, "changed")))
    us.write(m.Insert(9, row(2, "new")))
    assert {name: done.warnings for name, done in shards.apply().items()} == {"eu": (), "us": ()}
    assert shards.rows() == {"eu": ["id=1 note=changed"], "us": ["id=1 note=us", "id=2 note=new"]}


@pytest.mark.full
def test_columns_of_all_sources_are_in_the_table(shards: Shards) -> None:
    eu, us = shards.of.values()
    for name, one in shards.of.items():
        one.write(ITEMS, PAIRS, m.Insert(9, row(1, name)), m.Insert(8, row(1, name)))
    shards.apply()
    # One has a column more, and a wider key; the other has renamed a column between others, and has dropped one.
    more = relation(9, "items", {"id": INT8, "note": TEXT, "price": FLOAT4})
    us.write(more, m.Insert(9, row(2**40, "big", 1.5)), m.Update(9, row(1, "us", 2.5)))
    wide = relation(8, "pairs", {"a": INT8, "b": TEXT}, "f")
    us.write(wide, m.Insert(8, row(2**40, "w")))
    shards.apply()
    eu.write(m.Update(9, row(1, "again")), m.Insert(9, row(2, "two")), m.Insert(8, row(1, "eu")))
    eu.write(m.Delete(8, row(1, "eu")))
    shards.apply()
    assert shards.columns() | {"__commit_ts": "", "__commit_lsn": "", "_rescued_data": ""} == {
        **dict.fromkeys(("__commit_lsn", "__commit_ts", "_rescued_data"), ""),
        "__source": "string",
        "id": "bigint",
        "note": "string",
        "price": "float",
    }
    big = f"id={2**40} note=big price=1.5"
    assert shards.rows() == {
        "eu": ["id=1 note=again", "id=2 note=two"],
        "us": ["id=1 note=us price=2.5", big],
    }
    assert shards.rows("pairs") == {"eu": ["a=1 b=eu"], "us": ["a=1 b=us", f"a={2**40} b=w"]}

    # A float is found by what it is where another source has widened its column.
    eu.write(relation(8, "pairs", {"a": INT4, "b": TEXT, "f": FLOAT4}, "f"), m.Insert(8, row(3, "f", 0.1)))
    us.write(relation(8, "pairs", {"a": INT8, "b": TEXT, "f": FLOAT8}, "f"), m.Insert(8, row(3, "f", 0.1)))
    shards.apply()
    assert verified(shards) == {("eu", "equal"): 2, ("us", "equal"): 2}
    eu.write(m.Delete(8, row(3, "f", 0.1)), m.Delete(8, row(1, "eu", None)))
    us.write(m.Delete(8, row(3, "f", 0.1)))
    renamed = relation(9, "items", {"id": INT4, "remark": TEXT})
    eu.write(renamed, m.Insert(9, row(3, "three")))
    shards.config["objects"] = [
        {"table": {"source_schema": "s", "source_table": "items", "rename_columns": {"note": "remark"}}}
    ]
    shards.apply("eu")
    del shards.config["objects"]
    shards.apply("us")
    assert shards.rows() == {
        "eu": ["id=1 remark=again", "id=2 remark=two", "id=3 remark=three"],
        "us": ["id=1 note=us price=2.5", big],
    }
    assert shards.rows("pairs") == {"us": ["a=1 b=us", f"a={2**40} b=w"]}


@pytest.mark.full
def test_what_cannot_be_in_one_table_is_refused(spark: SparkSession, shards: Shards) -> None:
    eu, us = shards.of.values()
    eu.write(ITEMS, m.Insert(9, row(1, "eu")))
    shards.apply("eu")
    us.write(relation(9, "items", {"id": INT4, "note": INT4}), m.Insert(9, row(1, 5)))
    with pytest.raises(ConfigError) as refused:
        shards.apply()
    assert "'note' is INT (integer) in the source us, and STRING (text) in the source eu" in str(refused.value)
    assert "type_overrides in its objects (note: text)" in str(refused.value)
    # The remedy.
    table = {"source_schema": "s", "source_table": "items", "type_overrides": {"note": "text"}}
    shards.config["sources"]["us"]["objects"] = [{"table": table}]
    shards.apply()
    assert shards.rows() == {"eu": ["id=1 note=eu"], "us": ["id=1 note=5"]}

    # It stays shared, and is not made again for one; nobody else writes to it.
    alone = {**shards.config}
    del alone["shared_tables"]
    us.write(m.Insert(9, row(2, 6)))
    (failed,) = walreplay.apply_sources(spark, shards.lake, alone).failed
    assert "no longer one of several sources" in str(failed.error)
    settings = walreplay.source_settings(shards.config, "us")
    with pytest.raises(ConfigError, match="shared with other sources"):
        walreplay.rebuild(spark, us.captures, shards.lake, "s\\.items", config=settings)
    spark.sql(f"UPDATE delta.`{shards.lake}/s/items` SET note = 'x'")
    with pytest.raises(TargetError) as changed:
        shards.apply("us")
    eu.write(m.Insert(9, row(2, "eu")))
    with pytest.raises(TargetError, match="changed by somebody else"):
        shards.apply("eu")
    found = re.search(r"RESTORE TABLE .*? TO VERSION AS OF \d+", str(changed.value))
    assert found is not None
    spark.sql(found[0])
    shards.apply()
    assert shards.rows() == {"eu": ["id=1 note=eu", "id=2 note=eu"], "us": ["id=1 note=5", "id=2 note=6"]}

    # As of a run of one source: its rows.
    cut = walreplay.versions_at(spark, shards.lake, 1, "us")
    assert [one.note for one in spark.sql(cut.tables[0].sql).collect()] == ["5"]
    # A table that is not shared is not taken for one.
    other = Shards(spark, shards.lake.parent / "other")
    for name, one in other.of.items():
        one.write(ITEMS, m.Insert(9, row(1, name)))
    kept = other.config.pop("shared_tables")
    other.apply("eu")
    other.config["shared_tables"] = kept
    (failed,) = walreplay.apply_sources(spark, other.lake, other.config, sources=["us"]).failed
    assert "would write to a table of the source eu" in str(failed.error)
    # Nor is the mirror of one source the history of another.
    last = Shards(spark, shards.lake.parent / "last")
    for name, one in last.of.items():
        one.write(ITEMS, m.Insert(9, row(1, name)))
    last.apply("eu")
    table = {"source_schema": "s", "source_table": "items", "scd_type": 2}
    last.config["sources"]["us"]["objects"] = [{"table": table}]
    (failed,) = walreplay.apply_sources(spark, last.lake, last.config, sources=["us"]).failed
    assert "is the mirror of the source eu, and the source us would write its history to it" in str(failed.error)
    assert last.rows() == {"eu": ["id=1 note=eu"]}


@pytest.mark.long
def test_a_ledger_that_is_set_back_takes_no_rows_of_others_away(spark: SparkSession, shards: Shards) -> None:
    shards.config["outputs"] = ["mirror", "history"]
    eu, us = shards.of.values()
    eu.write(ITEMS, m.Insert(9, row(1, "eu")))
    us.write(ITEMS, m.Insert(9, row(1, "us")))
    shards.apply()
    ledger = shards.lake / "_walreplay" / "sources" / "eu"
    copytree(ledger, shards.lake.parent / "saved")
    eu.write(m.Insert(9, row(2, "eu")))
    us.write(m.Insert(9, row(2, "us")))
    shards.apply()
    before = shards.rows()
    rmtree(ledger)
    copytree(shards.lake.parent / "saved", ledger)
    forget(spark)
    eu.write(m.Insert(9, row(3, "eu")))
    with pytest.raises(TargetError, match="to set it back would take their rows away"):
        shards.apply("eu")
    assert shards.rows() == before
    us.write(m.Insert(9, row(3, "us")))
    shards.apply("us")
    assert shards.rows() == {"eu": before["eu"], "us": ["id=1 note=us", "id=2 note=us", "id=3 note=us"]}

    # Nor does a load of one source's rows.
    dump, config = shards.lake.parent / "dump", shards.lake.parent / "lake.json"
    dump.mkdir()
    (dump / "s.items.copy").write_text("7\tloaded\n", encoding="utf-8")
    config.write_text(json.dumps(shards.config), encoding="utf-8")
    of_us = ["--config", str(config), "--target", str(shards.lake), "--source", "us", "-q"]
    assert main(["load", *of_us, "--from", str(dump), "--at-lsn", "0/12C", "--replace"]) == 0
    us.write(m.Update(9, row(7, "changed")))
    shards.apply("us")
    assert shards.rows() == {"eu": before["eu"], "us": ["id=7 note=changed"]}
    assert shards.versions() == {
        "eu": ["100-None c: id=1 note=eu", "200-None c: id=2 note=eu"],
        "us": [
            "100-300 c: id=1 note=us",
            "200-300 c: id=2 note=us",
            "300-300 c: id=3 note=us",
            "300-400 r: id=7 note=loaded",
            "400-None u: id=7 note=changed",
        ],
    }


@pytest.mark.full
def test_a_run_that_was_stopped_goes_on_behind_the_others(
    spark: SparkSession, shards: Shards, stopped: Callable[[str], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WALREPLAY_COMMITS", "spark")

    eu, us = shards.of.values()
    for name, one in shards.of.items():
        one.write(ITEMS, PAIRS, m.Insert(9, row(1, name)), m.Insert(8, row(1, name)))
    stopped("table is to be made")
    shards.apply("us")
    stopped("table applied")
    us.write(m.Insert(9, row(2, "us")), m.Insert(8, row(1, "us")))
    shards.apply("us")
    shards.apply("eu")
    assert shards.rows() == {"eu": ["id=1 note=eu"], "us": ["id=1 note=us", "id=2 note=us"]}
    assert shards.rows("pairs") == {"eu": ["a=1 b=eu"], "us": ["a=1 b=us", "a=1 b=us"]}
    more = relation(9, "items", {"id": INT8, "note": TEXT, "price": INT4})
    eu.write(more, m.Truncate((9,), 0), m.Insert(9, row(1, "new", 5)), m.Delete(8, row(1, "eu")))
    us.write(m.Delete(8, row(1, "us")))
    stopped("columns are to change")
    shards.apply("us")
    shards.apply("eu")
    assert shards.rows() == {"eu": ["id=1 note=new price=5"], "us": ["id=1 note=us", "id=2 note=us"]}
    assert shards.rows("pairs") == {"us": ["a=1 b=us"]}


@pytest.mark.full
def test_a_table_that_is_made_anew_or_renamed_takes_its_own_rows_along(
    spark: SparkSession, shards: Shards, stopped: Callable[[str], None]
) -> None:
    eu, us = shards.of.values()
    shards.config["outputs"] = ["mirror", "changelog"]
    for name, one in shards.of.items():
        one.write(ITEMS, m.Insert(9, row(1, name)), m.Insert(9, row(2, name)))
    shards.apply()
    # Another table takes the name of the first, which comes back under one of its own.
    eu.write(relation(19, "items", {"id": INT4, "note": TEXT, "more": TEXT}), m.Insert(19, row(1, "anew", "x")))
    stopped("rows copied")
    us.write(m.Insert(9, row(3, "us")))
    shards.apply("us")
    stopped("table moved")
    shards.apply("eu")
    here = ["id=1 note=us", "id=2 note=us", "id=3 note=us"]
    assert shards.rows() == {"eu": ["id=1 more=x note=anew"], "us": here}
    eu.write(relation(9, "former", {"id": INT4, "note": TEXT}), m.Update(9, row(1, "came back")))
    stopped("rows copied")
    shards.apply("eu")
    assert shards.rows("former") == {"eu": ["id=1 note=came back", "id=2 note=eu"]}
    assert shards.rows() == {"eu": ["id=1 more=x note=anew"], "us": here}
    # The other one's too, now to a table that others have; then a name that both of them have left is taken anew.
    us.write(relation(9, "former", {"id": INT4, "note": TEXT}), m.Delete(9, key=row(3, None)))
    eu.write(relation(19, "last", {"id": INT4, "note": TEXT, "more": TEXT}), m.Insert(19, row(2, "last", "y")))
    shards.apply()
    assert shards.rows() == {}
    assert shards.rows("former") == {"eu": ["id=1 note=came back", "id=2 note=eu"], "us": here[:2]}
    assert shards.rows("last") == {"eu": ["id=1 more=x note=anew", "id=2 more=y note=last"]}
    eu.write(relation(29, "items", {"id": INT4, "note": TEXT}), m.Insert(29, row(5, "third")))
    shards.apply("eu")
    assert shards.rows() == {"eu": ["id=5 note=third"]}
    # So do the rows of its change log.
    assert shards.log("items__changes") == {"eu": ["500 c: id=5 note=third |  | "]}
    last = ["200 c: id=1 more=x note=anew |  | ", "400 c: id=2 more=y note=last |  | "]
    assert shards.log("last__changes") == {"eu": last}
    first = {name: [f"100 c: id={n} note={name} |  | " for n in (1, 2)] for name in shards.of}
    first["us"] += ["200 c: id=3 note=us |  | ", "300 d: id=3 | id=3 | "]
    first["eu"] += ["300 u: id=1 note=came back |  | "]
    assert shards.log("former__changes") == first


@pytest.mark.long
def test_rows_that_are_kept_or_softly_deleted_are_the_source_s_own(spark: SparkSession, tmp_path: Path) -> None:
    shards = Shards(spark, tmp_path, soft_deletes=True, on_recreate="keep")
    eu, _ = shards.of.values()
    for name, one in shards.of.items():
        one.write(ITEMS, m.Insert(9, row(1, name)), m.Insert(9, row(2, name)))
    shards.apply()
    eu.write(m.Truncate((9,), 0), m.Insert(9, row(3, "eu")))
    shards.apply()
    us = ["__deleted=False id=1 note=us", "__deleted=False id=2 note=us"]
    kept = ["__deleted=False id=3 note=eu", "__deleted=True id=1 note=eu", "__deleted=True id=2 note=eu"]
    assert shards.rows() == {"eu": kept, "us": us}
    eu.write(relation(19, "items", {"id": INT4, "note": TEXT}), m.Insert(19, row(4, "anew")))
    shards.apply()
    assert shards.rows() == {"eu": sorted([*kept, "__deleted=False id=4 note=anew"]), "us": us}


class _NoTurns(defaultdict[str, Any]):
    """Lets all sources write at once, as from several machines."""

    def __missing__(self, place: str) -> Any:
        return nullcontext()


@pytest.mark.full
def test_sources_that_write_at_once_wait_for_nobody_and_lose_nothing(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sharing, "_turns", _NoTurns())
    seen: list[str] = []
    with _Told(seen):
        shards = Shards(spark, tmp_path, "eu", "us", "asia", outputs=["mirror", "history", "changelog"])
        wide = {"eu": {"id": INT4, "note": TEXT}, "us": {"id": INT8, "note": TEXT, "more": TEXT}}
        for name, one in shards.of.items():
            columns = wide.get(name, {"id": INT4, "note": TEXT, "other": INT4})
            values = [None] * (len(columns) - 2)
            items = relation(9, "items", columns)
            one.plain.append(PlainTable(items))
            one.write(items, *(m.Insert(9, row(n, name, *values)) for n in range(4)))
        shards.apply(at_once=3)
        for turn in range(2):
            for name, one in shards.of.items():
                values = [None] * (len(wide.get(name, "xxx")) - 2)
                one.write(
                    m.Update(9, row(turn, f"{name} {turn}", *values)),
                    m.Delete(9, key=row(3, None, *values)),
                )
                one.write(m.Insert(9, row(3, name, *values)))
            shards.apply(at_once=3)
    assert shards.rows() == {
        name: [f"id=0 note={name} 0", f"id=1 note={name} 1", f"id=2 note={name}", f"id=3 note={name}"]
        for name in sorted(shards.of)
    }
    assert shards.versions() == shards.plain(9, "versions")
    assert shards.log() == shards.plain(9, "log")
    assert any(step.startswith("another source was faster") for step in seen)


@pytest.mark.full
def test_a_column_that_another_source_widens_while_rows_are_appended_is_heeded(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Delta does not call that a conflict: the rows have the column's type of before."""
    monkeypatch.setenv("WALREPLAY_COMMITS", "spark")
    shards = Shards(spark, tmp_path, "eu", "us", outputs=["changelog"])
    for name, kind in (("eu", INT4), ("us", INT8)):
        items = relation(9, "items", {"id": kind, "note": TEXT})
        shards.of[name].plain.append(PlainTable(items))
        shards.of[name].write(items)
    shards.of["eu"].write(m.Insert(9, row(1, "first")))
    shards.apply(at_once=1)
    write = statements.write
    widened: list[TableName] = []

    def between(rows: DataFrame, table: TableName, *how: Any, **options: Any) -> None:
        """Widen the column when the rows have their columns' types already."""
        if not widened and "_walreplay" not in table.text:
            widened.append(table)
            own = spark.newSession()
            own.sql(f"ALTER TABLE {table.sql} SET TBLPROPERTIES ('delta.enableTypeWidening' = 'true')")
            own.sql(f"ALTER TABLE {table.sql} ALTER COLUMN id TYPE BIGINT")
        write(rows, table, *how, **options)

    monkeypatch.setattr(statements, "write", between)
    shards.of["eu"].write(m.Insert(9, row(2, "second")))
    shards.of["us"].write(m.Insert(9, row(2**40, "third")))
    shards.apply(at_once=1)
    assert len(widened) == 1
    assert shards.log() == shards.plain(9, "log")


class _Told:
    """Write down the steps of all runs."""

    def __init__(self, seen: list[str]) -> None:
        self.seen, self._turn = seen, threading.Lock()

    def __enter__(self) -> None:
        steps.on_step = self._add

    def __exit__(self, *_: object) -> None:
        steps.on_step = None

    def _add(self, step: str) -> None:
        with self._turn:
            self.seen.append(step)


@pytest.mark.long
def test_a_catalog_s_table_is_shared_too(spark: SparkSession, shards: Shards) -> None:
    schema = "lake_of_shards"
    config = {**shards.config, "destination_schema": schema, "shared_tables": [f"{schema}\\..*"]}
    config["outputs"] = ["mirror", "history", "changelog"]
    eu, us = shards.of.values()
    try:
        for name, one in shards.of.items():
            one.write(ITEMS, m.Insert(9, row(1, name)))
        walreplay.apply_sources(spark, "spark_catalog", config).raise_first()
        us.write(m.Truncate((9,), 0), m.Insert(9, row(2, "us")))
        eu.write(relation(19, "items", {"id": INT4, "note": TEXT}), m.Insert(19, row(3, "anew")))
        walreplay.apply_sources(spark, "spark_catalog", config).raise_first()
        rows = spark.table(f"spark_catalog.{schema}.items").select("__source", "id", "note").collect()
        assert sorted(map(tuple, rows)) == [("eu", 3, "anew"), ("us", 2, "us")]
        versions = spark.table(f"spark_catalog.{schema}.items__history").select("__source", "id", "__end_lsn").collect()
        assert sorted(map(repr, map(tuple, versions))) == [
            "('eu', 3, None)",
            "('us', 1, 200)",
            "('us', 2, None)",
        ]
        log = spark.table(f"spark_catalog.{schema}.items__changes").select("__source", "__op", "id").collect()
        assert sorted(map(repr, map(tuple, log))) == [
            "('eu', 'c', 3)",
            "('us', 'c', 1)",
            "('us', 'c', 2)",
            "('us', 't', None)",
        ]
    finally:
        for made in (schema, "_walreplay_eu", "_walreplay_us"):
            spark.sql(f"DROP SCHEMA IF EXISTS spark_catalog.{made} CASCADE")


@pytest.mark.full
def test_shards_are_in_one_table_as_the_page_says(
    spark: SparkSession, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    places = {}
    for number in (1, 2):
        shard = SmallMirror(spark, tmp_path / str(number))
        orders = relation(9, "orders", {"id": INT4, "note": TEXT}, schema="shop")
        shard.write(orders, *(m.Insert(9, row(n, "x")) for n in range(number)))
        places[f"/data/captures/shard{number}"] = shard.captures
    # As a configuration, all of these are taken elsewhere.
    text = with_places(block(PAGE, "shared_tables:").text, places)
    (tmp_path / "lake.yaml").write_text(f"{text}\noutputs: [mirror, history]\n", encoding="utf-8")
    lake = tmp_path / "lake"
    assert main(["apply", "--config", str(tmp_path / "lake.yaml"), "--target", str(lake), "-q"]) == 0
    of_now = block("docs/sources.md", "SELECT __source, count(*) FROM delta.`/data/lake/shop/orders`")
    of_then = block("docs/sources.md", "SELECT __source, count(*) FROM delta.`/data/lake/shop/orders__history`")
    for shown in (of_now, of_then):
        rows = spark.sql(with_places(shown.text, {"/data/lake": lake})).collect()
        assert {row[0]: row[1] for row in rows} == {"shard1": 1, "shard2": 2}
    capsys.readouterr()
    assert main(["status", "--target", str(lake), "--source", "shard1", "--as-of", "1"]) == 0
    assert "WHERE `__source` = 'shard1'" in capsys.readouterr().out
