"""Targets and files as they change between runs: nothing is written that is not this target's to write."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import walreplay
from support.captures import case
from support.readers import read
from support.truth import assert_mirror_equals
from walreplay.errors import OrderError, TargetError
from walreplay.ledger.status import status, versions_at

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.integration

# One small table.
_SMALL = "o21"
_TABLE = "multi.t"


def _cut(captures: Path, places: list[int], names: list[str]) -> bytes:
    (data,) = case(_SMALL).streams()
    captures.mkdir(exist_ok=True)
    for name, start, end in zip(names, [0, *places], [*places, len(data)], strict=False):
        (captures / name).write_bytes(data[start:end])
    return data


@pytest.fixture
def schemas(spark: SparkSession) -> Iterator[list[str]]:
    """Name the schemas of the session's catalog that a test makes."""
    made: list[str] = []
    yield made
    for schema in made:
        spark.sql(f"DROP SCHEMA IF EXISTS `{schema}` CASCADE")


def test_a_catalog_holds_tables_by_schema_and_name(spark: SparkSession, schemas: list[str]) -> None:
    recorded = case(_SMALL)
    schemas += ["multi", "_walreplay"]
    report = walreplay.apply(spark, captures=recorded.folder, target="spark_catalog")
    again = walreplay.apply(spark, captures=recorded.folder, target="spark_catalog")
    (table,) = recorded.info["tables"]
    assert [item.location for item in report.tables] == [f"spark_catalog.{_TABLE}"]
    assert spark.table(_TABLE).count() == table["rows"]
    assert again.status == "nothing new"
    assert status(spark, "spark_catalog").runs[-1].state == "applied"


def test_the_newest_file_may_grow(spark: SparkSession, tmp_path: Path) -> None:
    captures, target = tmp_path / "captures", tmp_path / "mirror"
    data = _cut(captures, [1500], ["0.bin"])
    first = walreplay.apply(spark, captures=captures, target=target)
    (captures / "0.bin").write_bytes(data)
    second = walreplay.apply(spark, captures=captures, target=target)
    assert first.transactions + second.transactions == 30
    assert second.transactions > 0
    assert_mirror_equals(spark, target, case(_SMALL))


def test_a_mirror_may_be_moved_as_a_whole_and_be_named_otherwise(spark: SparkSession, tmp_path: Path) -> None:
    captures, before, target = tmp_path / "captures", tmp_path / "before", tmp_path / "mirror"
    data = _cut(captures, [1500], ["0.bin"])
    first = walreplay.apply(spark, captures=captures, target=before)
    shutil.copytree(before, target)
    (captures / "0.bin").write_bytes(data)
    second = walreplay.apply(spark, captures=captures, target=target.as_uri())
    assert not second.tables[0].notes
    assert_mirror_equals(spark, target, case(_SMALL))
    # The one that was copied is as it was, and its own.
    rows = read(before / "multi" / "t").num_rows
    assert rows == sum(table.inserted for table in first.tables)
    cut = versions_at(spark, target, 1)
    assert [table.location for table in cut.tables] == [str(target / "multi" / "t")]


@pytest.mark.parametrize(
    ("applied", "changed", "said"),
    [("0.bin", "0.bin", "has changed"), ("5.bin", "4.bin", "sorts before")],
    ids=["its applied part has changed", "it comes too late"],
)
def test_a_file_is_refused(spark: SparkSession, tmp_path: Path, applied: str, changed: str, said: str) -> None:
    captures, target = tmp_path / "captures", tmp_path / "mirror"
    data = _cut(captures, [1500], [applied])
    walreplay.apply(spark, captures=captures, target=target)
    (captures / changed).write_bytes(data[:100] + b"!" + data[101:])
    with pytest.raises(OrderError, match=said) as caught:
        walreplay.apply(spark, captures=captures, target=target)
    assert caught.value.path is not None
    assert caught.value.path.endswith(changed)


def test_a_table_that_is_somebody_elses_is_left_alone(spark: SparkSession, tmp_path: Path) -> None:
    target = tmp_path / "mirror"
    spark.range(3).write.format("delta").save(str(target / "multi" / "t"))
    with pytest.raises(TargetError, match="not made by this target's ledger"):
        walreplay.apply(spark, captures=case(_SMALL).folder, target=target)
    assert read(target / "multi" / "t").column_names == ["id"]


def test_a_target_belongs_to_one_source(spark: SparkSession, tmp_path: Path) -> None:
    captures, other, target = tmp_path / "captures", tmp_path / "other", tmp_path / "mirror"
    _cut(captures, [], ["0.bin"])
    _cut(other, [], ["0.bin"])
    walreplay.apply(spark, captures=captures, target=target)
    with pytest.raises(TargetError, match="was made from the source"):
        walreplay.apply(spark, captures=other, target=target)
    moved = walreplay.apply(spark, captures=other, target=target, config={"source": str(captures)})
    assert moved.status == "nothing new"
