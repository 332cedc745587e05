"""A backfill holds what the source held at an LSN or at a time, and an apply goes on from there."""

from __future__ import annotations

import os
import random
from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import walreplay
from support.captures import Case, case
from support.extent import further
from support.reference import Identity, Replay, replay
from support.small_mirror import SmallMirror, relation, row
from support.stopped_run import StoppedError
from support.truth import (
    assert_equal,
    assert_mirror_equals,
    mirror_tables,
    read_tables,
    source_tables,
)
from walreplay.errors import ConfigError, OrderError, TargetError
from walreplay.lsn import POSTGRES_EPOCH, format_lsn
from walreplay.protocol import messages as m

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.integration

CAPTURES = [
    *("o01", "o02", "o03", "o04", "o05", "o06", "o07", "o08", "o10", "o11", "o12", "o13", "o17", "o18", "o19", "o20"),
    *("o21", "o22", "o23", "o24", "o25", "o26"),
]
"""Those that can be replayed row by row."""

_MOMENTS = 40 if os.environ.get("WALREPLAY_LONG") else 2
"""Ends of each capture, half of them LSNs: ``WALREPLAY_LONG=1`` tries many."""

T = relation(9, "t", {"id": 23, "name": 25})


def moments(recorded: Case, count: int) -> list[dict[str, Any]]:
    """Choose ends for a backfill, half of them LSNs, in an order in which one target can reach them."""
    known = Replay()
    for stream in recorded.streams():
        known.session(stream, recorded.framing)
    chosen = random.Random(recorded.name)
    found: list[dict[str, Any]] = []
    for lsn, _, time in chosen.sample(list(known.applied), min(count, len(known.applied))):
        if len(found) % 2:
            found.append({"until_time": POSTGRES_EPOCH + timedelta(microseconds=time + chosen.choice([-1, 0, 1]))})
        else:
            found.append({"until_lsn": format_lsn(lsn + chosen.choice([-1, 0, 1]))})
    return sorted(found, key=lambda end: len(applied_at(recorded, end)))


def too_late(end: dict[str, Any]) -> Callable[[Identity], bool]:
    if "until_time" in end:
        return lambda one: POSTGRES_EPOCH + timedelta(microseconds=one[2]) > end["until_time"]
    high, low = (int(part, 16) for part in end["until_lsn"].split("/"))
    return lambda one: one[0] > high << 32 | low


def applied_at(recorded: Case, end: dict[str, Any]) -> list[Identity]:
    replayed = Replay(too_late(end))
    for stream in recorded.streams():
        replayed.session(stream, recorded.framing)
    return list(replayed.applied)


def assert_holds(spark: SparkSession, target: Path, recorded: Case, end: dict[str, Any]) -> None:
    """Compare a target with what a replay, row by row, gives at an end."""
    tables = replay(recorded.streams(), recorded.framing, too_late(end))
    sources = [
        replace(source, rows=[list(one.values) for one in tables[source.qualified_name].rows])
        for source in source_tables(recorded)
        if source.qualified_name in tables
    ]
    assert_equal(read_tables(spark, mirror_tables(target)), sources)


def _third(recorded: Case) -> int:
    """Give so many bytes that all files are some runs, and not as many as there are files."""
    return max(1, sum(file.stat().st_size for file in recorded.files) // 3)


@pytest.mark.parametrize("name", further(CAPTURES, but=("o03",)))
def test_a_backfill_holds_what_the_source_held(spark: SparkSession, tmp_path: Path, name: str) -> None:
    recorded = case(name)
    captures, target = str(recorded.folder), tmp_path / "mirror"
    ends = [end for end in moments(recorded, _MOMENTS) if applied_at(recorded, end)]
    assert ends
    for end in ends:
        report = walreplay.backfill(spark, captures, target, **end)
        assert report.applied_lsn == max(lsn for lsn, _, _ in applied_at(recorded, end))
        assert_holds(spark, target, recorded, end)
    walreplay.apply(spark, captures, target)
    assert_mirror_equals(spark, target, recorded)
    # In one go, in several runs.
    walreplay.backfill(spark, captures, tmp_path / "new", run_bytes=_third(recorded), **ends[-1])
    assert_holds(spark, tmp_path / "new", recorded, ends[-1])


def test_an_archive_is_applied_in_runs_of_so_many_bytes(spark: SparkSession, tmp_path: Path) -> None:
    recorded = case("o03")
    largest = max(file.stat().st_size for file in recorded.files)
    report = walreplay.apply(spark, recorded.folder, tmp_path / "mirror", {"run_bytes": 2 * largest})
    assert_mirror_equals(spark, tmp_path / "mirror", recorded)
    runs = walreplay.status(spark, tmp_path / "mirror").runs
    assert len(runs) > 2
    assert report.transactions == recorded.info["transactions_committed"]
    assert sum(run.transactions for run in runs) == report.transactions
    assert sum(table.changes for table in report.tables) == report.changes
    assert walreplay.apply(spark, recorded.folder, tmp_path / "mirror", {"run_bytes": 1}).status == "nothing new"


def test_a_transaction_that_is_larger_than_a_run_is_read_as_a_whole(small: SmallMirror) -> None:
    changes = [m.Insert(T.oid, row(number, "x" * 50)) for number in range(200)]
    data = small.write(T, *changes).read_bytes()
    small.captures.joinpath("001.bin").unlink()
    for number, start in enumerate(range(0, len(data), 700)):
        small.captures.joinpath(f"{number:03}.bin").write_bytes(data[start : start + 700])
    report = walreplay.backfill(small.spark, small.captures, small.target, run_bytes=1000)
    assert (report.transactions, report.changes) == (1, 200)


@pytest.fixture
def small(spark: SparkSession, tmp_path: Path) -> SmallMirror:
    return SmallMirror(spark, tmp_path)


STEPS = ("scanned", "decoded", "plan written", "table applied", "history written", "history recorded", "run recorded")


@pytest.mark.parametrize("step", further(STEPS, but=("plan written",)))
def test_a_backfill_that_was_stopped_goes_on(
    spark: SparkSession, tmp_path: Path, stop: Callable[[str], None], step: str
) -> None:
    recorded = case("o03")
    end, size = moments(recorded, 9)[6], _third(recorded)
    for _ in range(2):
        stop(step)
        with pytest.raises(StoppedError):
            walreplay.backfill(spark, recorded.folder, tmp_path / "mirror", run_bytes=size, **end)
    stop("no such step")
    walreplay.backfill(spark, recorded.folder, tmp_path / "mirror", run_bytes=size, **end)
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
    with pytest.raises(ConfigError, match="run_bytes"):
        walreplay.backfill(*arguments, run_bytes=0)
    with pytest.raises(OrderError, match="every transaction of the captures commits later"):
        walreplay.backfill(*arguments, until_lsn="0/1")
    assert not Path(small.target, "s").exists()
    assert walreplay.backfill(*arguments, until_lsn="0/64").transactions == 1
    assert walreplay.backfill(*arguments, until_lsn="0/64").status == "nothing new"
    assert walreplay.backfill(*arguments, until_lsn="0/70").status == "nothing new"
    assert walreplay.backfill(*arguments).transactions == 1
    with pytest.raises(TargetError, match="which is behind 0/64"):
        walreplay.backfill(*arguments, until_lsn="0/64")
