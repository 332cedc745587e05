"""A canary: what of Delta's private classes is driven is there in the Delta that is loaded; what is not is named."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import walreplay
from support.captures import case
from support.truth import assert_mirror_equals
from support.writing import begin, file_writer
from walreplay.spark.delta import internals
from walreplay.spark.delta.internals import COLUMNS, COMMITS, MERGES, USED, Method, internals_of, missing
from walreplay.spark.delta.target import TableName, Target
from walreplay.spark.writing.choice import choose_writer

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.integration

_GONE = Method("org.apache.spark.sql.delta.OptimisticTransaction", "commitFiles", ("java.lang.String",))


@pytest.mark.parametrize("method", [method for used in USED.values() for method in used], ids=str)
def test_delta_has_each_method_that_is_called(spark: SparkSession, method: Method) -> None:
    assert missing(spark._jvm, [method]) == []


@pytest.mark.parametrize(
    "method",
    [
        _GONE,
        replace(USED[COMMITS][0], of="org.apache.spark.sql.delta.Elsewhere"),
        *(replace(method, name=f"{method.name}Renamed") for method in USED[COMMITS]),
        *(replace(method, takes=(*method.takes, "int")) for used in USED.values() for method in used),
    ],
    ids=str,
)
def test_a_method_that_has_changed_is_found(spark: SparkSession, method: Method) -> None:
    assert missing(spark._jvm, [method]) == [method]


@pytest.fixture
def lacking(monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> Iterator[str]:
    """Have something call a method that Delta does not have; give what."""
    what: str = request.param
    monkeypatch.setattr(internals, "USED", {**USED, what: (*USED[what], _GONE)})
    internals._of_jvm.cache_clear()
    yield what
    internals._of_jvm.cache_clear()


@pytest.mark.full
@pytest.mark.parametrize("lacking", [COMMITS], indirect=True)
def test_a_run_that_cannot_write_files_says_which_method_is_missing(
    spark: SparkSession, tmp_path: Path, lacking: str
) -> None:
    recorded = case("o04")
    report = walreplay.apply(spark, captures=recorded.folder, target=tmp_path / "mirror")
    assert report.writer == "statements"
    assert report.warnings == (
        "rows are written by Spark's statements, which take longer: the Delta that is loaded has no "
        "org.apache.spark.sql.delta.OptimisticTransaction.commitFiles(java.lang.String)",
    )
    assert_mirror_equals(spark, tmp_path / "mirror", recorded)


@pytest.mark.parametrize("lacking", [MERGES, COLUMNS], indirect=True)
def test_what_else_is_missing_is_said_and_files_are_written_all_the_same(
    spark: SparkSession, tmp_path: Path, lacking: str
) -> None:
    writer = choose_writer(spark, Target.parse(str(tmp_path)))
    found = internals_of(spark)
    assert found is not None
    assert [found.can(what) for what in (COMMITS, MERGES, COLUMNS)] == [True, lacking != MERGES, lacking != COLUMNS]
    assert writer.way == "files"
    assert len(writer.warnings) == 1
    assert writer.warnings[0].endswith(f"has no {_GONE}")


def test_with_a_delta_that_is_known_nothing_is_said(spark: SparkSession, tmp_path: Path) -> None:
    assert file_writer(spark, tmp_path).warnings == ()
    assert begin(spark, TableName(path=str(tmp_path / "t"))) is None
