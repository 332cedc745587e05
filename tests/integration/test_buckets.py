"""A table's changes are split by key: however many tasks fold them, and merge them, the tables are the same."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import walreplay
from support.captures import case
from support.extent import further
from support.postgres import cut
from support.truth import assert_mirror_equals
from walreplay.job import execution as applying
from walreplay.spark.staging import Staging
from walreplay.writing import by_statements

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.integration


@pytest.mark.parametrize(
    ("name", "buckets", "tasks", "way"),
    further(
        [("o11", 4, 3, "files")],
        long=[
            ("o12", 7, 7, "spark"),
            ("o11", 4, 3, "spark"),
            ("o12", 7, 7, "files"),
            ("o12", 4, 1, "files"),
            ("o12", 4, 1, "spark"),
        ],
    ),
)
def test_tables_are_the_same_however_their_changes_are_split(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, buckets: int, tasks: int, way: str
) -> None:
    monkeypatch.setenv("WALREPLAY_COMMITS", way)
    # As of changes of many megabytes, all of which would take minutes.
    monkeypatch.setattr(applying, "buckets_of", lambda size: buckets)
    monkeypatch.setattr(applying, "tasks_of", lambda buckets, size: tasks)
    monkeypatch.setattr(by_statements, "_FEW_CHANGES", -1)
    read: list[tuple[int, int]] = []
    original = Staging.read

    def watched(self: Staging, spark: SparkSession, rows: Any, task: Any) -> Any:
        read.append((rows.buckets, rows.tasks))
        return original(self, spark, rows, task)

    monkeypatch.setattr(Staging, "read", watched)
    recorded, captures, later = case(name), tmp_path / "captures", tmp_path / "later"
    captures.mkdir()
    later.mkdir()
    size = sum(path.stat().st_size for path in recorded.files)
    for part in cut(recorded.files, later, [size // 2 + 1]):
        part.rename(captures / part.name)
        walreplay.apply(spark, captures=str(captures), target=str(tmp_path / "mirror"))
    assert_mirror_equals(spark, tmp_path / "mirror", recorded)
    assert set(read) == {(buckets, tasks)}
