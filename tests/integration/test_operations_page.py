"""The commands of docs/operations.md do what the page says, and its table of fields is the code's."""

from __future__ import annotations

import json
import logging
import os
import re
import shlex
from collections.abc import Callable
from datetime import datetime, timezone
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pytest

import walreplay
from support.pages import ROOT, block, with_places
from support.readers import read
from support.small_mirror import INT4, TEXT, SmallMirror, relation, row
from support.stopped_run import StoppedError
from walreplay.cli import main
from walreplay.delta.local import newest_version
from walreplay.delta.target import TableName
from walreplay.delta.upkeep import files_of, purge, unreferenced, upkeep_session
from walreplay.errors import TargetError
from walreplay.ledger.runs import lines_of, metrics_of
from walreplay.protocol import messages as m
from walreplay.report import RunReport
from walreplay.session.folders import MountedFolder

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.integration

PAGE: Final = "docs/operations.md"
CONFIG: Final = """
outputs: [mirror, changelog]
table_properties: {delta.deletedFileRetentionDuration: interval 0 hours}
"""


def fields_listed() -> list[str]:
    text = (ROOT / PAGE).read_text(encoding="utf-8")
    table = text.partition("| field | what it holds |")[2].partition("\n\n")[0]
    return re.findall(r"^\| `(\w+)` \|", table, re.MULTILINE)


def test_the_pages_fields_are_those_of_the_code() -> None:
    report = RunReport(1, "applied", "c", "t", 0, 0, 0, 0, None, None, (), (), 0.0, {})
    (line,) = lines_of("t", metrics_of(report, None, datetime.now(timezone.utc), ()))
    assert fields_listed() == list(json.loads(line))


@pytest.fixture
def mirror(spark: SparkSession, tmp_path: Path) -> SmallMirror:
    (tmp_path / "walreplay.yaml").write_text(CONFIG, encoding="utf-8")
    return SmallMirror(spark, tmp_path)


def run(mirror: SmallMirror, text: str, *more: str) -> None:
    """Run a command of the page."""
    places = {"/data/mirror": mirror.target, "/data/captures": mirror.captures, "/data/metrics": lines_at(mirror)}
    program, *arguments = shlex.split(with_places(text, {key: at for key, at in places.items() if key in text}))
    assert program == "walreplay"
    assert main([*arguments, *more]) == 0


def lines_at(mirror: SmallMirror) -> str:
    return str(mirror.captures.parent / "metrics")


def versions(mirror: SmallMirror) -> dict[str, int]:
    logs = Path(mirror.target).rglob("_delta_log")
    return {str(log.parent.relative_to(mirror.target)): newest_version(MountedFolder(str(log.parent))) for log in logs}


def maintained(mirror: SmallMirror, capsys: pytest.CaptureFixture[str], text: str) -> dict[str, list[str]]:
    """Run the command that maintains; give what each table needed."""
    capsys.readouterr()
    run(mirror, text, "--json", "--config", str(mirror.captures.parent / "walreplay.yaml"))
    found = json.loads(capsys.readouterr().out)
    assert all(table["problem"] is None for table in found["tables"])
    return {table["name"]: table["actions"] for table in found["tables"] if table["actions"]}


def test_runs_are_measured_logged_and_named_as_the_page_says(
    mirror: SmallMirror,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    request: pytest.FixtureRequest,
) -> None:
    apply, _ = block("docs/operations.md", "walreplay apply").text.splitlines()
    spark, config = mirror.spark, str(tmp_path / "walreplay.yaml")
    # As in a program of one's own: with handlers, which pytest has, nothing is configured.
    monkeypatch.setattr(logging.root, "handlers", [])
    request.addfinalizer(lambda: logging.getLogger("walreplay").setLevel(logging.NOTSET))
    names: dict[str, Any] = {}
    exec(compile(block("docs/operations.md", "import logging").text, PAGE, "exec"), names)

    mirror.write(relation(1, "t", {"id": INT4, "v": TEXT}), m.Insert(1, row(1, "secret")), m.Insert(1, row(2, "x")))
    run(mirror, apply, "--config", config)
    run(mirror, apply, "--config", config)

    text = Path(f"{lines_at(mirror)}.jsonl").read_text(encoding="utf-8")
    first, second, third = lines = [json.loads(line) for line in text.splitlines()]
    assert all(list(line) == fields_listed() for line in lines)
    of_tables = [(1, "s.t"), (1, "s.t (changelog)")]
    assert [(line["run"], line["table"]) for line in lines] == [*of_tables, (None, None)]
    assert first["phases"].keys() >= {"list", "scan", "decode", "apply"}
    assert (first["inserted"], second["inserted"], first["transactions"], first["changes"]) == (2, 2, 1, 2)
    assert min(first["lag_seconds"], first["table_bytes"], first["table_seconds"], first["seconds"]) > 0
    assert [line["lag_bytes"] for line in lines] == [0, 0, 0]
    assert (third["status"], third["applied_lsn"]) == ("nothing new", first["applied_lsn"])
    query = with_places(block("docs/operations.md", "SELECT run").text, {"/data/mirror": mirror.target})
    (found,) = spark.sql(query).collect()
    assert (found.run, found.tables, found.lag_seconds) == (1, 2, first["lag_seconds"])

    status = walreplay.status(spark, mirror.target)
    assert [(table.name, table.changes, table.bytes) for table in status.tables] == [
        (line["table"], line["table_changes"], line["table_bytes"]) for line in (first, second)
    ]
    (of_run,) = status.runs
    assert (of_run.lag_seconds, of_run.lag_bytes, of_run.warnings) == (first["lag_seconds"], 0, 0)

    logged = capsys.readouterr().err
    assert re.search(r"walreplay table applied table=s\.t place=\S+ run=1 action=created version=0 ", logged)
    assert re.search(r"walreplay phase name=scan target=\S+ seconds=", logged)
    assert re.search(r"walreplay commit table=\S+/runs run=1 version=0$", logged, re.MULTILINE)
    assert "secret" not in logged + text

    jobs = spark._jsc.sc().statusStore().jobsList(None)  # type: ignore[attr-defined]
    shown = {str(jobs.apply(number).description().toString()) for number in range(jobs.size())}
    assert shown >= {f"Some(walreplay: {what})" for what in ("scan", "decode", "fold 2 tables")}
    run(mirror, block("docs/operations.md", "walreplay status").text)
    for command in (f"walreplay apply --captures {mirror.captures}", "walreplay status --html {tmp_path}/page.html"):
        run(mirror, f"{command.format(tmp_path=tmp_path)} --target /data/mirror --metrics {tmp_path}/mirror.prom")
        assert " 2.0" in (tmp_path / "mirror.prom").read_text(encoding="utf-8").partition("walreplay_table_changes{")[2]
    assert "s.t (changelog)" in (tmp_path / "page.html").read_text(encoding="utf-8")


@pytest.mark.full
def test_a_target_is_maintained_by_what_its_tables_need(
    mirror: SmallMirror,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    stop: Callable[[str], None],
) -> None:
    monkeypatch.setattr("walreplay.delta.upkeep.LEAST", 2)
    apply, maintain = block("docs/operations.md", "walreplay apply").text.splitlines()
    spark, config = mirror.spark, tmp_path / "walreplay.yaml"
    mirror.write(relation(1, "t", {"id": INT4, "v": TEXT}), m.Insert(1, row(1, "a")), m.Insert(1, row(2, "b")))
    run(mirror, apply, "--config", str(config))
    mirror.write(m.Update(1, row(1, "c")))
    run(mirror, apply, "--config", str(config))

    before = versions(mirror)
    dry = block("docs/operations.md", "walreplay maintain --target /data/mirror --dry-run").text
    wanted = maintained(mirror, capsys, dry)
    assert wanted.items() >= {"s.t": ["vacuum"], "s.t (changelog)": ["optimize"], "ledger: runs": ["optimize"]}.items()
    assert versions(mirror) == before

    stop("maintained by optimize")
    with pytest.raises(StoppedError):
        walreplay.maintain(spark, mirror.target, "s[.]t", config=config)
    maintained(mirror, capsys, maintain)
    left = walreplay.maintain(spark, mirror.target, "s[.]t", dry_run=True)
    assert [(table.name, table.actions) for table in left.tables] == [("s.t", ()), ("s.t (changelog)", ())]
    # Nothing that the table's retention does not keep can be read.
    cut = walreplay.versions_at(spark, mirror.target, 1).tables
    assert [(table.sql, table.note) for table in cut] == [(None, "VACUUM has removed files of version 0")] * 2

    # The next run finds its tables as it has left them.
    mirror.write(m.Delete(1, key=row(2, None)), m.Insert(1, row(3, "y")))
    report = walreplay.apply(spark, mirror.captures, mirror.target, config)
    assert report.warnings == ()
    assert read(mirror.location("t")).num_rows == 2
    assert read(mirror.location("t__changes")).num_rows == 5


@pytest.mark.full
def test_a_target_with_an_interrupted_run_is_not_maintained(mirror: SmallMirror, stop: Callable[[str], None]) -> None:
    with pytest.raises(TargetError, match="nothing was applied"):
        walreplay.maintain(mirror.spark, mirror.target)
    stop("plan written")
    with pytest.raises(StoppedError):
        mirror.apply(relation(1, "t", {"id": INT4}), m.Insert(1, row(1)))
    with pytest.raises(TargetError, match="run 1 was interrupted"):
        walreplay.maintain(mirror.spark, mirror.target)
    assert walreplay.maintain(mirror.spark, mirror.target, dry_run=True).dry_run
    mirror.apply()
    assert not walreplay.maintain(mirror.spark, mirror.target).has_failed


@pytest.mark.full
def test_marked_rows_are_purged_and_a_catalogs_history_tells_of_them(spark: SparkSession) -> None:
    table = TableName(parts=("spark_catalog", "default", "to_be_kept_small"))
    spark.sql(
        f"CREATE TABLE {table.sql} USING delta TBLPROPERTIES (delta.enableDeletionVectors = true) "
        "AS SELECT id FROM range(0, 100, 1, 1)"
    )
    try:
        spark.sql(f"DELETE FROM {table.sql} WHERE id = 3")
        with upkeep_session(spark) as own:
            found = files_of(own, table)
            assert (found.count, found.small, found.marked) == (1, 1, 1)
            assert purge(own, table) == (1, 1)
            assert files_of(own, table).marked == 0
        assert spark.table(table.sql).count() == 99
    finally:
        spark.sql(f"DROP TABLE {table.sql}")


@pytest.mark.full
@pytest.mark.parametrize("way", ["", "delta.enableChangeDataFeed", "delta.enableDeletionVectors"])
def test_files_that_are_counted_as_unreferenced_are_those_that_vacuum_removes(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, way: str
) -> None:
    table = TableName(path=str(tmp_path / "t"))
    given = {way: "true"} if way else {}
    spark.range(0, 100, 1, 1).write.format("delta").options(**given).save(str(table.path))
    spark.range(100, 200, 1, 1).write.format("delta").mode("append").save(str(table.path))
    spark.sql(f"DELETE FROM {table.sql} WHERE id = 3")
    spark.sql(f"DELETE FROM {table.sql} WHERE id > 100")
    (tmp_path / "t" / "orphan.parquet").write_bytes(b"x")
    for path in (tmp_path / "t").rglob("*"):
        if "_delta_log" not in path.parts:
            os.utime(path, (1, 1))
    asked: list[str] = []
    for retention in ("30 days", "0 seconds"):
        properties = f"('delta.deletedFileRetentionDuration' = 'interval {retention}')"
        spark.sql(f"ALTER TABLE {table.sql} SET TBLPROPERTIES {properties}")
        with upkeep_session(spark) as own:
            by_spark = own.sql(f"VACUUM {table.sql} DRY RUN").count()
            assert unreferenced(own, table) == by_spark >= 1
            asked.clear()
            monkeypatch.setattr(own, "sql", lambda statement: asked.append(statement) or spark.sql(statement))
            assert unreferenced(own, table) == by_spark
            # Where there are no deletion vectors, Spark has no part in it.
            assert bool(asked) == ("Vectors" in way)
