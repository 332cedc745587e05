"""Every transaction counts once, however often a run is repeated and wherever one is killed."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from chispa import assert_df_equality

import wal2delta
from support.captures import case
from support.killed_run import run_until_killed
from support.postgres import cut
from support.reference import replay
from support.truth import (
    assert_mirror_equals,
    assert_tables_equal,
    mirror_tables,
    read_mirror,
    source_tables,
    table_versions,
)

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.integration

# Inserts alone, multisets, keys of every kind: applying anything twice would show in a table without a key.
_IDENTITIES = "o11"


@pytest.mark.parametrize("name", ["o01", _IDENTITIES, "o13"])
def test_applying_again_changes_nothing(spark: SparkSession, tmp_path: Path, name: str) -> None:
    recorded, target = case(name), tmp_path / "mirror"
    wal2delta.apply(spark, captures=str(recorded.folder), target=str(target))
    versions = table_versions(spark, target)

    report = wal2delta.apply(spark, captures=str(recorded.folder), target=str(target))

    assert report.status == "nothing new"
    assert report.changes == 0
    assert table_versions(spark, target) == versions
    assert_mirror_equals(spark, target, recorded)


def test_applying_file_by_file_equals_applying_all_at_once(spark: SparkSession, tmp_path: Path) -> None:
    recorded = case(_IDENTITIES)
    captures, whole, stepwise = tmp_path / "captures", tmp_path / "whole", tmp_path / "stepwise"
    captures.mkdir()
    wal2delta.apply(spark, captures=str(recorded.folder), target=str(whole))

    data = b"".join(recorded.streams())
    size = len(data) // 3 + 1
    for number in range(3):
        (captures / f"{number}.bin").write_bytes(data[number * size : (number + 1) * size])
        wal2delta.apply(spark, captures=str(captures), target=str(stepwise))

    assert_mirror_equals(spark, stepwise, recorded)
    for name, location in mirror_tables(whole).items():
        # Runs of a multiset may write equal rows at other commits.
        assert_df_equality(
            read_mirror(spark, mirror_tables(stepwise)[name]).drop("__commit_lsn", "__commit_ts"),
            read_mirror(spark, location).drop("__commit_lsn", "__commit_ts"),
            ignore_row_order=True,
            allow_nan_equality=True,
        )


def test_a_transaction_cut_by_the_last_file_waits_for_its_rest(spark: SparkSession, tmp_path: Path) -> None:
    recorded = case(_IDENTITIES)
    captures, target = tmp_path / "captures", tmp_path / "mirror"
    captures.mkdir()
    data = b"".join(recorded.streams())
    for number, end in enumerate((len(data) // 2, len(data))):
        (captures / f"{number}.bin").write_bytes(data[number * (len(data) // 2) : end])
        wal2delta.apply(spark, captures=str(captures), target=str(target))
        replayed = replay([data[:end]], recorded.framing)
        assert_tables_equal(
            spark,
            target,
            [
                replace(table, rows=[row.values for row in replayed[table.qualified_name].rows])
                for table in source_tables(recorded)
                if table.qualified_name in replayed
            ],
        )


@pytest.mark.parametrize(
    ("step", "count"),
    [("plan written", 1), ("table applied", 1), ("table applied", 4), ("run recorded", 1)],
    ids=["before any table", "after the first table", "between tables", "when all was done"],
)
def test_a_killed_run_is_finished_by_the_next(spark: SparkSession, tmp_path: Path, step: str, count: int) -> None:
    recorded = case(_IDENTITIES)
    captures, target, later = tmp_path / "captures", tmp_path / "mirror", tmp_path / "later"
    captures.mkdir()
    later.mkdir()
    data = b"".join(recorded.streams())
    first, second = cut(recorded.files, later, [len(data) // 2 + 1])
    # The first half is applied in peace, so that the tables exist and have rows when the run is killed.
    first.rename(captures / first.name)
    wal2delta.apply(spark, captures=str(captures), target=str(target))
    second.rename(captures / second.name)

    done = run_until_killed(captures, target, step, count, scratch=tmp_path)
    versions = table_versions(spark, target)
    wal2delta.apply(spark, captures=str(captures), target=str(target))

    assert_mirror_equals(spark, target, recorded)
    after = table_versions(spark, target)
    applied = [name.removeprefix("table applied: ") for name in done if name.startswith("table applied: ")]
    assert len(applied) >= (count if step == "table applied" else 0)
    assert {name: after[name] for name in applied} == {name: versions[name] for name in applied}


def test_a_first_run_that_is_killed_is_finished_by_the_next(spark: SparkSession, tmp_path: Path) -> None:
    recorded, target = case(_IDENTITIES), tmp_path / "mirror"
    run_until_killed(recorded.folder, target, "table applied", 2, scratch=tmp_path)
    wal2delta.apply(spark, captures=str(recorded.folder), target=str(target))
    assert_mirror_equals(spark, target, recorded)
    assert wal2delta.apply(spark, captures=str(recorded.folder), target=str(target)).status == "nothing new"
