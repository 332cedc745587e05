"""A server at work, mirrored from its captures night by night: what was left out, or was damaged, is made again."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import walreplay
from support.postgres import running_server
from support.readers import read
from support.truth import assert_tables_equal, mirror_tables
from support.workload import PUBLICATION, PUBLISH, SCHEMAS, SETUP, at_work, run_workload

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.integration, pytest.mark.live, pytest.mark.full]

_AT_FIRST: dict[str, Any] = {
    "table_exclude_list": ["live\\.many_types"],
    "objects": [{"table": {"source_schema": "live", "source_table": "composite key", "exclude_columns": ["v"]}}],
}
_LATER_WANTED = "live\\.(many_types|composite key)"
_DAMAGED = "Live One.by default, the key"


def test_a_table_rebuilt_one_added_and_a_column_added_later_are_the_sources(
    spark: SparkSession, tmp_path: Path
) -> None:
    captures, target = tmp_path / "captures", tmp_path / "mirror"
    captures.mkdir()
    with running_server() as server:
        server.execute(*SETUP, PUBLISH)
        with server.recording(tmp_path / "growing", publication=PUBLICATION) as recording:
            run_workload(server, transactions=300, seed=1, pause=lambda: None)
            recording.rotate(captures / "0.bin")
            with at_work(server, 2):
                walreplay.apply(spark, captures, target, config=_AT_FIRST)
                recording.rotate(captures / "1.bin")
                walreplay.apply(spark, captures, target, config=_AT_FIRST)
                found = mirror_tables(target)
                assert "live.many_types" not in found
                assert "v" not in read(found["live.composite key"]).column_names

                wanted = walreplay.rebuild(spark, captures, target, _LATER_WANTED)
                assert {table.name: table.action for table in wanted.tables} == {
                    "live.many_types": "created",
                    "live.composite key": "overwritten",
                }
                (lost,) = spark.sql(f"DELETE FROM delta.`{found[_DAMAGED]}` WHERE id % 2 = 0").collect()
                assert lost.num_affected_rows > 0
                (mended,) = walreplay.rebuild(spark, captures, target, re.escape(_DAMAGED)).tables
                assert mended.action == "overwritten"
            run_workload(server, transactions=100, seed=3, pause=lambda: None)
        tables = server.source_tables(*SCHEMAS)
    (tmp_path / "growing").rename(captures / "2.bin")
    walreplay.apply(spark, captures, target)
    assert_tables_equal(spark, target, tables)
