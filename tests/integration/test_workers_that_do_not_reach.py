"""Where driver and workers do not both reach a target by themselves, Spark stages and writes."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from support.small_mirror import INT4, TEXT, SmallMirror, relation, row
from walreplay.protocol import messages as m
from walreplay.session.reach import _hadoop_settings, store_of
from walreplay.spark import staged_rows as reached

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


@pytest.mark.parametrize(
    ("setting", "value", "is_reached"),
    [
        ("fs.s3a.secret.key", "s", True),
        ("fs.s3a.connection.maximum", "9", True),
        # Hadoop's own default.
        ("fs.s3a.accesspoint.required", "false", True),
        ("fs.s3a.accesspoint.required", "true", False),
        ("fs.s3a.encryption.algorithm", "SSE-KMS", False),
        ("hadoop.security.credential.provider.path", "jceks://file/keys", False),
    ],
)
def test_a_store_is_left_to_spark_by_what_was_set_and_not_by_hadoops_defaults(
    spark: SparkSession, setting: str, value: str, is_reached: bool
) -> None:
    configuration = spark._jsc.hadoopConfiguration()
    told = {"fs.s3a.access.key": "a", "fs.s3a.secret.key": "s", setting: value}
    before = {name: configuration.getRaw(name) for name in told}
    try:
        for name, said in told.items():
            configuration.set(name, said)
        store = store_of("s3a://lake/t", _hadoop_settings(spark))
    finally:
        for name, said in before.items():
            if said is None:
                configuration.unset(name)
            else:
                configuration.set(name, said)
    assert (store is not None) == is_reached
    assert store is None or dict(store.options) == {"access_key": "a", "secret_key": "s", "scheme": "https"}
