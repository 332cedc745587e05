"""What people do in their first days: the source is quiet, the ledger is removed, captures are compressed."""

from __future__ import annotations

import gzip
import shutil
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import walreplay
from support.small_mirror import INT4, TEXT, SmallMirror, forget, relation, row
from walreplay.errors import ConfigError, OrderError, TargetError
from walreplay.protocol import messages as m

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.integration

T = relation(9, "t", {"id": INT4, "v": TEXT})


@pytest.mark.parametrize("place", ["captures", "captures/2026", "captures/0001.bin", "captures/*.bin"])
def test_a_source_that_was_quiet_so_far_has_nothing_new(spark: SparkSession, tmp_path: Path, place: str) -> None:
    """pg_recvlogical makes an empty file at once."""
    captures = tmp_path / "captures" / "2026" if place.endswith("2026") else tmp_path / "captures"
    captures.mkdir(parents=True)
    target, named = tmp_path / "mirror", tmp_path / place
    with pytest.raises(ConfigError, match="no such file or folder" if "." in place else "there are no capture files"):
        walreplay.apply(spark, named, target)
    (captures / "0001.bin").touch()
    report = walreplay.apply(spark, named, target)
    assert (report.status, report.files, report.warnings) == ("nothing new", 0, ())
    assert walreplay.forecast(spark, named, target).runs == 0
    assert not target.exists()
    if "*" not in place and "." not in place:
        # A name that is not wanted is no file, whatever it holds.
        with pytest.raises(ConfigError, match="there are no capture files"):
            walreplay.apply(spark, named, target, {"file_pattern": "*.wal"})


def test_nothing_is_new_where_applied_files_gave_way_to_an_empty_one(spark: SparkSession, tmp_path: Path) -> None:
    mirror = SmallMirror(spark, tmp_path)
    applied = mirror.write(T, m.Insert(9, row(1, "a")))
    mirror.apply()
    applied.unlink()
    (mirror.captures / "002.bin").touch()
    assert mirror.apply().status == "nothing new"


def test_a_ledger_that_is_gone_is_said_to_be_gone_with_what_helps(spark: SparkSession, tmp_path: Path) -> None:
    mirror = SmallMirror(spark, tmp_path)
    mirror.apply(T, m.Insert(9, row(1, "a")))
    mirror.save(tmp_path / "backup")
    shutil.rmtree(mirror.ledger)
    forget(spark)
    with pytest.raises(TargetError, match="made by a ledger which is gone") as caught:
        mirror.apply()
    assert f"{mirror.ledger}/state" in caught.value.problem
    assert caught.value.table == "s.t"
    # Both that the error names.
    report = walreplay.apply(spark, mirror.captures, tmp_path / "another")
    assert report.transactions == 1
    mirror.put_back(tmp_path / "backup")
    assert mirror.apply(T, m.Insert(9, row(2, "b"))).transactions == 1
    assert sum(mirror.rows()["s.t"].values()) == 2


def test_a_table_of_somebody_else_is_not_called_a_ledgers(spark: SparkSession, tmp_path: Path) -> None:
    mirror = SmallMirror(spark, tmp_path)
    spark.sql("SELECT 1 AS id").write.format("delta").save(str(mirror.location("t")))
    with pytest.raises(TargetError, match="was not made by this target's ledger"):
        mirror.apply(T, m.Insert(9, row(1, "a")))


@pytest.mark.parametrize("stays", [True, False])
def test_compressed_copies_of_applied_files_are_told_where_they_may_lie(
    spark: SparkSession, tmp_path: Path, stays: bool
) -> None:
    mirror = SmallMirror(spark, tmp_path)
    first, *_ = [mirror.write(T, m.Insert(9, row(number, "a"))) for number in (1, 2, 3)]
    mirror.apply()
    copy = first.with_suffix(".bin.gz")
    copy.write_bytes(gzip.compress(first.read_bytes()))
    if not stays:
        first.unlink()
    with pytest.raises(OrderError, match=r"seems to be a copy of 001\.bin, which is applied already") as caught:
        mirror.apply()
    assert caught.value.path == f"file:{copy}"
    # As the error says.
    (tmp_path / "old").mkdir()
    copy.rename(tmp_path / "old" / copy.name)
    assert mirror.apply().status == "nothing new"
    for path in mirror.captures.glob("*.bin"):
        (tmp_path / "old" / f"{path.name}.gz").write_bytes(gzip.compress(path.read_bytes()))
    assert walreplay.apply(spark, tmp_path / "old", tmp_path / "new").transactions == 3
