"""Where the driver reaches a target by itself and the workers do not, Spark stages and writes."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from support.small_mirror import INT4, TEXT, SmallMirror, relation, row
from walreplay.protocol import messages as m
from walreplay.spark.staging import reached

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.integration


def test_spark_does_the_work(spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reached, "workers_reach", lambda *_, **__: False)
    mirror = SmallMirror(spark, tmp_path)
    table = relation(1, "t", {"id": INT4, "v": TEXT})
    first = mirror.apply(table, m.Insert(1, row(1, "a")), m.Insert(1, row(2, "b")))
    second = mirror.apply(m.Update(1, row(1, "c")), m.Delete(1, key=row(2, None)), m.Insert(1, row(3, "d")))
    written = [one for report in (first, second) for one in report.tables]
    assert [one.writer for one in written] == ["statements", "statements"]
    assert all("do not reach" in one.writer_reason for one in written)
    rows = spark.read.format("delta").load(written[0].location).select("id", "v").collect()
    assert sorted(map(tuple, rows)) == [(1, "c"), (3, "d")]
