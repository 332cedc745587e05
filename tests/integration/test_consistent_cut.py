"""Delta has no transaction over several tables; the ledger's versions of them belong together all the same."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import walreplay
from support.captures import case
from support.killed_run import run_until_killed
from support.reference import replay
from support.truth import content_difference, source_tables
from walreplay.cli import main
from walreplay.errors import TargetError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.integration

# Its tables do not all begin at once, and what lies between the last two of these places changes only some.
_RECORDED = "o12"
_PLACES = (8, 12, 13)
_SIXTEENTHS = 16


def _assert_holds(spark: SparkSession, cut: walreplay.Cut, data: bytes) -> None:
    """Read every table by the statement that the cut gives, and compare it with what these bytes make of it."""
    recorded = case(_RECORDED)
    replayed = replay([data], recorded.framing)
    sources = {source.qualified_name: source for source in replayed.sources(source_tables(recorded))}
    assert {table.name for table in cut.tables} == set(sources)
    for table in cut.tables:
        difference = content_difference(sources[table.name], spark.sql(table.sql).toArrow())
        assert difference is None, f"run {cut.run}: {difference}"


@pytest.mark.full
def test_every_run_gives_the_tables_as_the_source_was_then(
    spark: SparkSession, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    captures, target = tmp_path / "captures", tmp_path / "mirror"
    captures.mkdir()
    data = b"".join(case(_RECORDED).streams())
    ends = [place * len(data) // _SIXTEENTHS for place in _PLACES]
    reports = []
    for number, (start, end) in enumerate(zip([0, *ends], ends, strict=False)):
        (captures / f"{number}.bin").write_bytes(data[start:end])
        if number == 2:
            # The tables that the run had done when it was killed are unchanged by the one that finishes it.
            run_until_killed(captures, target, "table applied", 1, scratch=tmp_path)
        reports.append(walreplay.apply(spark, captures=captures, target=target))

    cuts = [walreplay.versions_at(spark, target, run) for run in (1, 2, 3)]

    touched = [{table.name for table in report.tables} for report in reports]
    assert touched[1] - touched[0], "no table was new in the second run"
    assert touched[2] < touched[1], "every table was touched in the last run"
    assert "unchanged" in {table.action for table in reports[2].tables}
    assert [(cut.run, cut.applied_lsn, cut.applied_commit_ts) for cut in cuts] == [
        (report.run, report.applied_lsn, report.applied_commit_ts) for report in reports
    ]
    for cut, end in zip(cuts, ends, strict=True):
        _assert_holds(spark, cut, data[:end])

    with pytest.raises(TargetError, match=r"there is no run 9 that has ended\. There are: 1 to 3$"):
        walreplay.versions_at(spark, target, 9)
    assert main(["status", "--target", str(target), "--as-of", "4"]) == 1
    assert "There are: 1 to 3" in capsys.readouterr().err
    config = tmp_path / "walreplay.yaml"
    config.write_text("outputs: [mirror]\n")
    assert main(["status", "--target", str(target), "--config", str(config), "--as-of", "2", "--json"]) == 0
    printed = json.loads(capsys.readouterr().out)
    assert [(item["name"], item["version"], item["sql"]) for item in printed["tables"]] == [
        (table.name, table.version, table.sql) for table in cuts[1].tables
    ]


def test_a_target_without_runs_has_no_cut(spark: SparkSession, tmp_path: Path) -> None:
    with pytest.raises(TargetError, match="nothing was applied to this target yet"):
        walreplay.versions_at(spark, tmp_path / "mirror", 1)


def test_a_catalogs_tables_are_read_by_their_names(spark: SparkSession) -> None:
    recorded = case("o21")
    try:
        walreplay.apply(spark, captures=recorded.folder, target="spark_catalog.cut_test")
        cut = walreplay.versions_at(spark, "spark_catalog.cut_test", 1)
        (table,) = cut.tables
        assert table.sql == f"SELECT * FROM `spark_catalog`.`cut_test`.`t` VERSION AS OF {table.version}"
        assert spark.sql(table.sql).count() == recorded.info["tables"][0]["rows"]
    finally:
        spark.sql("DROP SCHEMA IF EXISTS cut_test CASCADE")


def test_a_transaction_that_has_not_ended_is_listed_with_its_age(spark: SparkSession, tmp_path: Path) -> None:
    captures, target = tmp_path / "captures", tmp_path / "mirror"
    captures.mkdir()
    data = b"".join(case(_RECORDED).streams())
    (captures / "0.bin").write_bytes(data[: len(data) // 2])
    walreplay.apply(spark, captures=captures, target=target)
    found = walreplay.status(spark, target)
    (waiting,) = found.open_transactions
    assert (waiting.kind, waiting.gid, waiting.segments) == ("ordinary", None, 1)
    assert waiting.began_at_file.endswith("0.bin")
    assert 0 < waiting.offset < waiting.offset + waiting.bytes <= len(data) // 2
    assert found.applied_lsn is not None
    assert waiting.lsn is not None
    assert waiting.lsn > found.applied_lsn
    assert waiting.since is not None
    assert found.applied_commit_ts is not None
    assert waiting.since >= found.applied_commit_ts
    assert waiting.age is not None
    assert waiting.age.total_seconds() > 0
