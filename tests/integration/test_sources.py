"""Several sources in one target: each is applied whatever becomes of the others, and none writes to another's table."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import walreplay
from support.captures import Case, case
from support.killed_run import run_until_killed
from support.small_mirror import INT4, TEXT, SmallMirror, relation, row, rows_of
from support.stopped_run import StoppedError
from support.truth import SourceTable, assert_equal, mirror_tables, read_tables, source_tables
from walreplay.cli import main
from walreplay.errors import CaptureError, ConfigError, TargetError
from walreplay.lsn import format_lsn
from walreplay.protocol import messages as m

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.integration

ITEMS = relation(9, "items", {"id": INT4, "note": TEXT})


def configured(*, common: dict[str, Any] | None = None, **sources: Any) -> dict[str, Any]:
    """Configure sources, each with the place of its captures, or with more."""
    return {
        **(common or {}),
        "sources": {
            name: one if isinstance(one, dict) else {"captures": str(one), "destination_schema": f"{name}_{{schema}}"}
            for name, one in sources.items()
        },
    }


def in_schemas_of(name: str, recorded: Case) -> list[SourceTable]:
    return [replace(table, schema=f"{name}_{table.schema}") for table in source_tables(recorded)]


def states(folder: Path) -> dict[str, bytes]:
    """Return all files of a folder, to see that nothing has changed."""
    return {str(path): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_each_source_is_applied_whatever_becomes_of_the_others(
    spark: SparkSession, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    lake, damaged = tmp_path / "lake", tmp_path / "damaged"
    damaged.mkdir()
    whole = case("o21").files[0].read_bytes()
    middle = len(whole) // 2
    (damaged / "1.bin").write_bytes(whole[:middle] + b"\xff" * 40 + whole[middle:])
    config = configured(eu=case("o03").folder, bad=damaged, us=case("o20").folder)
    (tmp_path / "lake.yaml").write_text(json.dumps(config), encoding="utf-8")

    report = walreplay.apply_sources(spark, lake, config, at_once=3)

    assert list(report.results) == ["eu", "us"]
    assert report.results["eu"].transactions == case("o03").info["transactions_committed"]
    (failed,) = report.failed
    assert failed.source == "bad"
    assert str(damaged) in str(failed.error)
    with pytest.raises(CaptureError):
        report.raise_first()
    expected = [*in_schemas_of("eu", case("o03")), *in_schemas_of("us", case("o20"))]
    assert_equal(read_tables(spark, mirror_tables(lake)), expected)

    # Each has a ledger of its own, and the place has none besides.
    for name, one in report.results.items():
        known = walreplay.status(spark, lake, name)
        assert (known.applied_lsn, [run.run for run in known.runs]) == (one.applied_lsn, [1])
        cut = walreplay.versions_at(spark, lake, 1, name)
        assert {table.location for table in cut.tables} == {table.location for table in one.tables}
    with pytest.raises(TargetError, match="name one with --source"):
        walreplay.status(spark, lake)
    every = walreplay.sources_status(spark, lake, config)
    assert not every.failed
    assert every.results.keys() == {"eu", "us"}

    # By the command: the damaged one fails again, and its exit code is the command's.
    arguments = ["--config", str(tmp_path / "lake.yaml"), "--target", str(lake)]
    assert main(["apply", *arguments, "--quiet", "--json"]) == 1
    out, err = capsys.readouterr()
    told = {one["source"]: one for one in json.loads(out)["sources"]}
    assert {name: one["status"] for name, one in told.items()} == {"eu": "done", "bad": "failed", "us": "done"}
    assert told["eu"]["report"]["status"] == "nothing new"
    assert told["bad"]["error"] in err
    assert main(["status", *arguments]) == 0
    lines = capsys.readouterr().out.splitlines()[-3:]
    eu = format_lsn(report.results["eu"].applied_lsn or 0)
    assert [line.split()[:4] for line in lines] == [
        ["eu", "applied", "1", eu],
        ["bad", "nothing", "applied"],
        ["us", "applied", "1", format_lsn(report.results["us"].applied_lsn or 0)],
    ]

    # Once it is whole, it is applied, alone.
    (damaged / "1.bin").write_bytes(whole)
    assert main(["apply", *arguments, "--source", "bad", "--quiet"]) == 0
    assert "source eu" not in capsys.readouterr().out
    assert_equal(read_tables(spark, mirror_tables(lake)), [*expected, *in_schemas_of("bad", case("o21"))])


@pytest.fixture
def small(spark: SparkSession, tmp_path: Path) -> Callable[[str], SmallMirror]:
    """Return captures of a small table, in a folder of their own by name."""
    return lambda name: SmallMirror(spark, tmp_path / name)


def test_two_sources_cannot_have_one_table(
    spark: SparkSession, tmp_path: Path, small: Callable[[str], SmallMirror], stop: Callable[[str], None]
) -> None:
    lake = tmp_path / "lake"
    first, second = small("first"), small("second")
    first.write(ITEMS, m.Insert(9, row(1, "a")))
    second.write(ITEMS, m.Insert(9, row(2, "b")))
    same = {"destination_schema": "all"}
    config = configured(a={"captures": str(first.captures), **same}, b={"captures": str(second.captures), **same})

    # Neither when one was interrupted before it had made its table, which its ledger alone knows of; nor later.
    stop("plan written")
    a, b = walreplay.apply_sources(spark, lake, config).sources
    assert isinstance(a.error, StoppedError)
    assert mirror_tables(lake) == {}
    assert isinstance(b.error, ConfigError)
    assert "the source b would write to a table of the source a" in str(b.error)
    stop("no such step")
    for _ in range(2):
        report = walreplay.apply_sources(spark, lake, config, at_once=2)
        (b,) = report.failed
        assert (b.source, type(b.error)) == ("b", ConfigError)
    assert "run 1 was interrupted; it was finished first" in warnings_of(spark, lake)
    assert rows_of(str(lake)).keys() == {"all.items"}

    # With a schema of its own it goes on; a rename into the other's table is refused as well.
    config["sources"]["b"]["destination_schema"] = "b_{schema}"
    walreplay.apply_sources(spark, lake, config).raise_first()
    assert rows_of(str(lake)).keys() == {"all.items", "b_s.items"}
    config["sources"]["b"]["destination_schema"] = "all"
    second.write(m.Insert(9, row(3, "c")))
    before = states(lake / "all"), states(lake / "b_s")
    (b,) = walreplay.apply_sources(spark, lake, config).failed
    assert "would write to a table of the source a" in str(b.error)
    assert (states(lake / "all"), states(lake / "b_s")) == before


def warnings_of(spark: SparkSession, lake: Path) -> list[str]:
    """Return the warnings of all of a's runs, as its ledger has them."""
    table = spark.read.format("delta").load(str(lake / "_walreplay" / "sources" / "a" / "runs"))
    return [warning for found in table.select("warnings").collect() for warning in found.warnings]


@pytest.mark.full
def test_what_was_applied_without_sources_is_left_alone(
    spark: SparkSession, tmp_path: Path, small: Callable[[str], SmallMirror]
) -> None:
    lake = tmp_path / "lake"
    first = small("first")
    first.write(ITEMS, m.Insert(9, row(1, "a")))
    walreplay.apply(spark, first.captures, lake)
    config = configured(a={"captures": str(first.captures)})
    with pytest.raises(ConfigError, match="what was applied to this target without sources"):
        walreplay.apply_sources(spark, lake, config).raise_first()
    # And the other way round, where no configuration tells of the source.
    config["sources"]["a"]["destination_schema"] = "x"
    walreplay.apply_sources(spark, lake, config).raise_first()
    first.write(m.Insert(9, row(2, "b")))
    before = states(lake / "x")
    with pytest.raises(TargetError, match="a table cannot be moved here, for something is there"):
        walreplay.apply(spark, first.captures, lake, {"destination_schema": "x"})
    assert states(lake / "x") == before
    walreplay.apply(spark, first.captures, lake)
    rows = rows_of(str(lake))
    assert {name: sorted(one[1] for one in found) for name, found in rows.items()} == {
        "s.items": [1, 2],
        "x.items": [1],
    }


@pytest.mark.full
def test_a_killed_source_goes_on_behind_the_others(spark: SparkSession, tmp_path: Path) -> None:
    lake = tmp_path / "lake"
    config = configured(eu=case("o03").folder, us=case("o20").folder)
    (tmp_path / "lake.yaml").write_text(json.dumps(config), encoding="utf-8")
    steps = run_until_killed(None, lake, "table applied", 2, scratch=tmp_path, config=tmp_path / "lake.yaml")
    assert steps[-1].startswith("table applied")
    assert walreplay.apply_sources(spark, lake, config, sources=["us"]).results.keys() == {"us"}
    known = walreplay.sources_status(spark, lake, config).results
    assert [known[name].runs[-1].state for name in ("eu", "us")] == ["planned", "applied"]
    report = walreplay.apply_sources(spark, lake, config, at_once=2)
    report.raise_first()
    assert any("was interrupted; it was finished first" in text for text in report.results["eu"].warnings)
    assert report.results["us"].status == "nothing new"
    expected = [*in_schemas_of("eu", case("o03")), *in_schemas_of("us", case("o20"))]
    assert_equal(read_tables(spark, mirror_tables(lake)), expected)


@pytest.mark.full
def test_a_catalog_has_a_ledger_for_each_source(spark: SparkSession) -> None:
    made = {"_walreplay_us__x2d__2", "lake_us_outbox"}
    us = {"captures": str(case("o20").folder), "destination_schema": "lake_us_{schema}"}
    config = configured(**{"eu": "somewhere", "US-2": us})
    try:
        walreplay.apply_sources(spark, "spark_catalog", config, sources=["US-2"]).raise_first()
        assert {one.namespace for one in spark.sql("SHOW SCHEMAS").collect()} >= made
        cut = walreplay.versions_at(spark, "spark_catalog", 1, "US-2")
        count = case("o20").info["tables"][0]["rows"]
        assert spark.sql(cut.tables[0].sql).count() == count
        # What a rebuild makes beside lies with the source's own ledger, and is gone at the end.
        table = cut.tables[0].location
        spark.sql(f"DELETE FROM {table}")
        settings = walreplay.source_settings(config, "US-2")
        walreplay.rebuild(spark, case("o20").folder, "spark_catalog", ".*", config=settings)
        assert spark.table(table).count() == count
        left = spark.sql("SHOW TABLES IN spark_catalog._walreplay_us__x2d__2").collect()
        assert [one.tableName for one in left if "rebuild" in one.tableName] == []
        assert not spark.catalog.databaseExists("spark_catalog._walreplay")
    finally:
        for schema in made:
            spark.sql(f"DROP SCHEMA IF EXISTS spark_catalog.{schema} CASCADE")


@pytest.mark.full
def test_rows_are_loaded_for_a_source_and_its_captures_go_on(
    spark: SparkSession, tmp_path: Path, small: Callable[[str], SmallMirror], capsys: pytest.CaptureFixture[str]
) -> None:
    lake, dump = tmp_path / "lake", tmp_path / "dump"
    first, second = small("first"), small("second")
    for one in (first, second):
        one.write(ITEMS, m.Insert(9, row(1, "a")))
    dump.mkdir()
    (dump / "s.items.copy").write_text("7\told\n", encoding="utf-8")
    config = configured(a=first.captures, b=second.captures)
    (tmp_path / "lake.yaml").write_text(json.dumps(config), encoding="utf-8")
    walreplay.apply_sources(spark, lake, config).raise_first()
    arguments = ["--config", str(tmp_path / "lake.yaml"), "--target", str(lake), "--quiet"]
    load = ["load", *arguments, "--from", str(dump), "--at-lsn", "0/64", "--replace"]
    assert main(load) == 2
    assert "Name one of them, with --source" in capsys.readouterr().err
    assert main([*load, "--source", "b"]) == 0
    second.write(m.Insert(9, row(8, "new")))
    walreplay.apply_sources(spark, lake, config).raise_first()
    rows = rows_of(str(lake))
    assert sorted(found[1] for found in rows["a_s.items"]) == [1]
    assert sorted(found[1] for found in rows["b_s.items"]) == [7, 8]


@pytest.mark.full
def test_a_table_of_one_source_is_made_again_and_read_as_of_a_moment(
    spark: SparkSession, tmp_path: Path, small: Callable[[str], SmallMirror], capsys: pytest.CaptureFixture[str]
) -> None:
    lake, other = tmp_path / "lake", relation(8, "others", {"id": INT4, "note": TEXT})
    first, second = small("first"), small("second")
    for one in (first, second):
        one.write(ITEMS, m.Insert(9, row(1, "a")))
        one.write(other, m.Insert(8, row(2, "b")))
    config = configured(a=first.captures, b=second.captures)
    config["sources"]["a"]["table_exclude_list"] = ["s\\.others"]
    (tmp_path / "lake.yaml").write_text(json.dumps(config), encoding="utf-8")
    walreplay.apply_sources(spark, lake, config).raise_first()
    spark.sql(f"DELETE FROM delta.`{lake}/a_s/items`")
    spark.sql(f"DELETE FROM delta.`{lake}/b_s/items`")
    arguments = ["--config", str(tmp_path / "lake.yaml"), "--target", str(lake), "--source", "a"]

    assert main(["rebuild", *arguments, "--table", "s\\.items", "--quiet"]) == 0
    rows = rows_of(str(lake))
    assert {name: [one[1] for one in found] for name, found in rows.items()} == {
        "a_s.items": [1],
        "b_s.items": [],
        "b_s.others": [2],
    }
    assert walreplay.status(spark, lake, "a").runs[-1].state == "applied"
    # What was made beside lay with the source's own ledger.
    assert [one.name for one in (lake / "_walreplay").iterdir()] == ["sources"]
    assert list((lake / "_walreplay" / "sources" / "a" / "rebuild").iterdir()) == []

    # A table that another source has is refused, and what was not wanted before comes to a place of its own.
    before = states(lake / "b_s")
    config["sources"]["a"] = {"captures": str(first.captures), "destination_schema": "b_{schema}"}
    (tmp_path / "lake.yaml").write_text(json.dumps(config), encoding="utf-8")
    capsys.readouterr()
    assert main(["rebuild", *arguments, "--table", "s\\.others", "--quiet"]) == 2
    assert "the source a would write to a table of the source b" in capsys.readouterr().err
    assert states(lake / "b_s") == before
    config["sources"]["a"]["destination_schema"] = "a_{schema}"
    (tmp_path / "lake.yaml").write_text(json.dumps(config), encoding="utf-8")
    assert main(["backfill", *arguments, "--table", "s\\.others", "--quiet"]) == 0
    assert [one[1] for one in rows_of(str(lake))["a_s.others"]] == [2]

    first.write(m.Insert(9, row(3, "c")))
    capsys.readouterr()
    before = states(lake)
    assert main(["apply", *arguments, "--dry-run", "--quiet", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["transactions"] == 1
    assert states(lake) == before
    walreplay.apply_sources(spark, lake, config, sources=["a"]).raise_first()
    lsn = format_lsn(walreplay.status(spark, lake, "a").applied_lsn or 0)
    assert main(["status", *arguments, "--as-of", lsn, "--table", "s\\.items", "--json"]) == 0
    (found,) = json.loads(capsys.readouterr().out)["tables"]
    assert spark.sql(found["sql"]).count() == 2


@pytest.mark.full
def test_an_audit_by_source_says_which_is_not_whole(
    spark: SparkSession, tmp_path: Path, small: Callable[[str], SmallMirror], capsys: pytest.CaptureFixture[str]
) -> None:
    first, second = small("first"), small("second")
    for one in (first, second):
        for number in range(6):
            one.write(*([ITEMS] if not number else []), m.Insert(9, row(number, "a")))
    (second.captures / "004.bin").unlink()
    config = tmp_path / "lake.yaml"
    config.write_text(json.dumps(configured(a=first.captures, b=second.captures)), encoding="utf-8")
    assert main(["index", "--config", str(config), "--source", "a", "--quiet"]) == 0
    assert main(["audit", "--config", str(config), "--quiet"]) == 3
    a, b = capsys.readouterr().out.rpartition("source a")[2].split("source b")
    assert "nothing is damaged or missing" in a
    assert "the archive is not whole" in b
    assert main(["audit", "--config", str(config), "--quiet", "--index", str(tmp_path / "index")]) == 2
    assert "--index is the index of one source's captures" in capsys.readouterr().err


@pytest.mark.full
def test_captures_of_another_source_are_not_taken_for_its_own(
    spark: SparkSession, tmp_path: Path, small: Callable[[str], SmallMirror]
) -> None:
    first, second = small("first"), small("second")
    first.write(ITEMS, m.Insert(9, row(1, "a")))
    second.write(ITEMS, m.Insert(9, row(2, "b")))
    lake = tmp_path / "lake"
    walreplay.apply_sources(spark, lake, configured(a=first.captures, b=second.captures)).raise_first()
    report = walreplay.apply_sources(spark, lake, configured(a=second.captures, b=first.captures))
    assert [type(one.error) for one in report.sources] == [TargetError, TargetError]
    moved = first.captures.rename(tmp_path / "moved")
    own = {"captures": str(moved), "source": str(first.captures), "destination_schema": "a_{schema}"}
    report = walreplay.apply_sources(spark, lake, configured(a=own, b=second.captures))
    assert {one.status for one in report.results.values()} == {"nothing new"}


@pytest.mark.usefixtures("spark")  # some of these begin a session before they refuse
def test_options_for_sources_need_sources(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    config = tmp_path / "lake.yaml"
    config.write_text(json.dumps(configured(a="x", b="y")), encoding="utf-8")
    for arguments, part in (
        (["apply", "--target", "t"], "Missing option '--captures'"),
        (["apply", "--target", "t", "--captures", "x", "--source", "a"], "--source is given"),
        (["audit"], "Missing option '--captures'"),
        (["apply", "--target", "t", "--captures", "x", "--config", str(config)], "Leave --captures out"),
        (["apply", "--target", "t", "--config", str(config), "--source", "c"], "no source 'c'"),
        (["status", "--target", "t", "--config", str(config), "--as-of", "1"], "--as-of is of one source"),
        (["backfill", "--target", "t", "--config", str(config), "--until-lsn", "0/1"], "an LSN is that of one source"),
        (["apply", "--target", "t", "--config", str(config), "--dry-run"], "a dry run is of one source"),
        (
            ["backfill", "--target", "t", "--config", str(config), "--table", "x"],
            "a backfill of a part is of one source",
        ),
        (["rebuild", "--target", "t", "--table", "x"], "Missing option '--captures'"),
        (["rebuild", "--target", "t", "--table", "x", "--config", str(config)], "a rebuild is of one source"),
        (["status", "--target", "t", "--config", str(config), "--as-of", "0/1"], "--as-of is of one source"),
        (["status", "--target", "t", "--config", str(config), "--table", "x"], "--table goes with --as-of"),
    ):
        assert main([*arguments, *([] if arguments[0] == "status" else ["--quiet"])]) == 2, arguments
        assert part in capsys.readouterr().err
