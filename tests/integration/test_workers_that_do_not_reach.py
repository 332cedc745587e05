"""Where driver and workers do not both reach a target by themselves, Spark writes what they have in another folder."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from support.small_mirror import INT4, TEXT, SmallMirror, relation, row
from walreplay.errors import ConfigError
from walreplay.protocol import messages as m
from walreplay.session.reach import _hadoop_settings, store_of
from walreplay.spark import reached

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.integration


def test_the_user_is_told_to_name_a_folder_and_then_spark_writes_the_tables(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shared = tmp_path / "a shared [folder]%20"
    monkeypatch.setattr(reached, "reach_problem", lambda _, folder: None if shared.name in folder.uri else "no way")
    mirror = SmallMirror(spark, tmp_path)
    table = relation(1, "t", {"id": INT4, "v": TEXT})
    with pytest.raises(ConfigError) as caught:
        mirror.apply(table, m.Insert(1, row(1, "a")), m.Insert(1, row(2, "b")))
    assert "share no folder for the run's events" in str(caught.value)
    assert "_walreplay/staging): no way" in str(caught.value)
    assert "(staging: /Volumes/" in (caught.value.remedy or "")
    with pytest.raises(ConfigError, match=r"staging \(file:/elsewhere.*no way"):
        mirror.apply(staging="/elsewhere")

    reports = [
        mirror.apply(staging=str(shared)),
        mirror.apply(m.Update(1, row(1, "c")), m.Delete(1, key=row(2, None)), staging=str(shared)),
        mirror.apply(m.Truncate((1,), 0), m.Insert(1, row(3, "d")), staging=str(shared)),
    ]
    written = [one for report in reports for one in report.tables]
    assert [one.writer for one in written] == ["statements"] * 3
    assert all("do not reach" in (one.writer_reason or "") for one in written[:2])
    rows = spark.read.format("delta").load(written[0].location).select("id", "v").collect()
    assert sorted(map(tuple, rows)) == [(3, "d")]
    assert list(shared.iterdir()) == []  # no row stays there


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
