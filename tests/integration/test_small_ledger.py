"""The ledger stays small: its files are written together behind a run, and old runs are forgotten."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import walreplay
from support.readers import read
from support.refusing_platform import refusing
from support.small_mirror import INT4, TEXT, SmallMirror, relation, row
from support.stopped_run import StoppedError
from walreplay.delta.local import LocalTable
from walreplay.delta.target import Target
from walreplay.errors import TargetError
from walreplay.ledger.runs import forget
from walreplay.protocol import messages as m
from walreplay.session.folders import MountedFolder

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.integration, pytest.mark.full]


@pytest.fixture(autouse=True)
def _once_in_two(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("walreplay.job.context.COMPACT_EVERY_RUNS", 2)


def files(mirror: SmallMirror, table: str) -> int:
    folder = MountedFolder(str(mirror.ledger / table))
    return len(LocalTable.open(folder).files)


def test_the_ledgers_files_are_written_together_and_old_runs_forgotten(
    mirror: SmallMirror, tmp_path: Path, stop: Callable[[str], None], capfd: pytest.CaptureFixture[str]
) -> None:
    a, b = (relation(oid, name, {"id": INT4, "v": TEXT}) for oid, name in ((1, "a"), (2, "b")))
    mirror.apply(a, b, m.Insert(1, row(1, "x")), m.Insert(2, row(1, "y")))
    stop("ledger's table kept small: runs")
    with pytest.raises(StoppedError):
        mirror.apply(m.Insert(1, row(2, "x")))
    assert files(mirror, "transactions") == 2

    # It was behind the run's end.
    assert mirror.apply().status == "nothing new"
    mirror.apply(m.Insert(1, row(3, "x")))
    assert files(mirror, "runs") > 1
    report = mirror.apply(m.Update(1, row(3, "z")))

    assert "compact ledger" in report.stages
    assert capfd.readouterr().out == ""
    assert report.warnings == ()
    assert {files(mirror, name) for name in ("runs", "files", "transactions")} == {1}
    assert [run.run for run in walreplay.status(mirror.spark, mirror.target).runs] == [1, 2, 3, 4]
    assert [table.version for table in walreplay.versions_at(mirror.spark, mirror.target, 1).tables] == [0, 0]

    at_last = walreplay.versions_at(mirror.spark, mirror.target, 4)
    in_a_week = datetime.now(timezone.utc) + timedelta(days=7)
    stop("runs kept for tables")
    with pytest.raises(StoppedError):
        forget(mirror.spark, Target.parse(mirror.target), 6, in_a_week, lambda: None)
    for _ in range(2):
        forget(mirror.spark, Target.parse(mirror.target), 6, in_a_week, lambda: None)
        assert [run.run for run in walreplay.status(mirror.spark, mirror.target).runs] == [4]
        # The table b was written by the first run alone.
        assert walreplay.versions_at(mirror.spark, mirror.target, 4) == at_last
        with pytest.raises(TargetError, match="There are: 4"):
            walreplay.versions_at(mirror.spark, mirror.target, 1)
    assert read(mirror.ledger / "transactions").num_rows == 1
    mirror.apply(m.Delete(1, key=row(1, None)))
    assert mirror.rows() == mirror.expected(tmp_path / "at once")


def test_a_catalogs_ledger_is_kept_small_where_settings_are_refused(
    spark: SparkSession, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    mirror = SmallMirror(spark, tmp_path, "spark_catalog")
    request.addfinalizer(lambda: [spark.sql(f"DROP SCHEMA {name} CASCADE") for name in ("s", "_walreplay")])
    volume = str(tmp_path / "volume")
    with refusing():
        mirror.apply(relation(1, "t", {"id": INT4, "v": TEXT}), m.Insert(1, row(1, "x")), staging=volume)
        report = mirror.apply(m.Insert(1, row(2, "x")), staging=volume)
        assert "compact ledger" in report.stages
        maintained = walreplay.maintain(spark, mirror.target)
    assert report.warnings == ()
    assert not maintained.has_failed
    found = {table.name: table.files for table in maintained.tables}
    assert {found[f"ledger: {name}"] for name in ("runs", "files", "transactions", "state")} == {1}
    assert sorted(r.id for r in spark.table("s.t").select("id").collect()) == [1, 2]
