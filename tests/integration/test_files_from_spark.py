"""Files that the executors have not mounted, whose bytes come from Spark: the tables are the same."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import walreplay
from support.captures import case
from support.extent import further
from support.postgres import cut
from support.truth import assert_mirror_equals
from walreplay.spark import captures as source

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.integration


@pytest.mark.parametrize("name", further(["o05", "o18"], but=("o18",), long=["o01", "o06", "o08", "o12", "o13", "o26"]))
def test_files_whose_bytes_come_from_spark_give_the_same_tables(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.setattr(source, "LOCAL_SCHEME", "none:")
    recorded = case(name)
    captures, later = tmp_path / "captures", tmp_path / "later"
    captures.mkdir()
    later.mkdir()
    size = sum(path.stat().st_size for path in recorded.files)
    for number, part in enumerate(cut(recorded.files, later, [size // 4 + 1])):
        part.rename(captures / part.name)
        # The first two files in one run, each of the others in one of its own.
        if number > 0:
            walreplay.apply(spark, captures=str(captures), target=str(tmp_path / "mirror"))
    assert_mirror_equals(spark, tmp_path / "mirror", recorded)
