"""A backfill holds what the source held at an LSN or at a time, and an apply goes on from there."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import walreplay
from support.captures import case
from support.extent import further
from support.moments import assert_holds, moments, third_of
from support.small_mirror import SmallMirror, relation, row, runs_of
from support.stopped_run import StoppedError
from support.truth import (
    assert_mirror_equals,
)
from walreplay.errors import ConfigError, OrderError, TargetError
from walreplay.protocol import messages as m

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.integration

T = relation(9, "t", {"id": 23, "name": 25})


def test_an_archive_is_applied_in_runs_of_so_many_bytes(spark: SparkSession, tmp_path: Path) -> None:
    recorded = case("o03")
    largest = max(file.stat().st_size for file in recorded.files)
    with runs_of(2 * largest):
        report = walreplay.apply(spark, recorded.folder, tmp_path / "mirror")
    assert_mirror_equals(spark, tmp_path / "mirror", recorded)
    runs = walreplay.status(spark, tmp_path / "mirror").runs
    assert len(runs) > 2
    assert report.transactions == recorded.info["transactions_committed"]
    assert sum(run.transactions for run in runs) == report.transactions
    assert sum(table.changes for table in report.tables) == report.changes
    assert walreplay.apply(spark, recorded.folder, tmp_path / "mirror").status == "nothing new"


def test_a_transaction_that_is_larger_than_a_run_is_read_as_a_whole(small: SmallMirror) -> None:
    changes = [m.Insert(T.oid, row(number, "x" * 50)) for number in range(200)]
    data = small.write(T, *changes).read_bytes()
    small.captures.joinpath("001.bin").unlink()
    for number, start in enumerate(range(0, len(data), 700)):
        small.captures.joinpath(f"{number:03}.bin").write_bytes(data[start : start + 700])
    with runs_of(1000):
        report = walreplay.backfill(small.spark, small.captures, small.target)
    assert (report.transactions, report.changes) == (1, 200)


@pytest.fixture
def small(spark: SparkSession, tmp_path: Path) -> SmallMirror:
    return SmallMirror(spark, tmp_path)


STEPS = ("scanned", "decoded", "plan written", "table applied", "transactions written", "runs written", "run recorded")


@pytest.mark.parametrize("step", further(STEPS, but=("plan written",)))
def test_a_backfill_that_was_stopped_goes_on(
    spark: SparkSession, tmp_path: Path, stop: Callable[[str], None], step: str
) -> None:
    recorded = case("o03")
    end, size = moments(recorded, 9)[6], third_of(recorded)
    for _ in range(2):
        stop(step)
        with runs_of(size), pytest.raises(StoppedError):
            walreplay.backfill(spark, recorded.folder, tmp_path / "mirror", **end)
    stop("no such step")
    with runs_of(size):
        walreplay.backfill(spark, recorded.folder, tmp_path / "mirror", **end)
    assert_holds(spark, tmp_path / "mirror", recorded, end)


def test_what_is_wrong_behind_the_end_does_not_matter(small: SmallMirror) -> None:
    small.write(T, m.Insert(T.oid, row(1, "a")))
    small.write(m.Insert(T.oid, row(2, "b")))
    damaged = small.write(m.Insert(T.oid, row(3, "c")))
    damaged.write_bytes(b"\xff" * 300)
    with pytest.raises(walreplay.WalReplayError):
        small.apply()
    report = walreplay.backfill(small.spark, small.captures, small.target, until_lsn="0/64")
    assert (report.transactions, report.files) == (1, 3)
    # The file in which the run ends is read; those behind it are not needed.
    assert sum(small.rows()["s.t"].values()) == 1


def test_the_end_is_checked(small: SmallMirror) -> None:
    small.write(T, m.Insert(T.oid, row(1, "a")))
    small.write(m.Insert(T.oid, row(2, "b")))
    arguments = (small.spark, small.captures, small.target)
    with pytest.raises(ConfigError, match="an LSN and a time"):
        walreplay.backfill(*arguments, until_lsn="0/1", until_time="2020-01-01")
    with pytest.raises(ConfigError, match="not an LSN"):
        walreplay.backfill(*arguments, until_lsn="12")
    with pytest.raises(ConfigError, match="not a time"):
        walreplay.backfill(*arguments, until_time="yesterday")
    with pytest.raises(OrderError, match="every transaction of the captures commits later"):
        walreplay.backfill(*arguments, until_lsn="0/1")
    assert not Path(small.target, "s").exists()
    assert walreplay.backfill(*arguments, until_lsn="0/64").transactions == 1
    assert walreplay.backfill(*arguments, until_lsn="0/64").status == "nothing new"
    assert walreplay.backfill(*arguments, until_lsn="0/70").status == "nothing new"
    assert walreplay.backfill(*arguments).transactions == 1
    with pytest.raises(TargetError, match="which is behind 0/64"):
        walreplay.backfill(*arguments, until_lsn="0/64")
