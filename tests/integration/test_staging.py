"""What is staged is read back table by table and part by part: a task holds one part in its heap."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import unquote, urlsplit

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from walreplay.delta.statements import sql_schema
from walreplay.delta.target import Target
from walreplay.spark.staged_rows import TableStaging
from walreplay.spark.workers.rows import STAGE

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.integration

_SMALL, _LARGE = 1 << 10, 1 << 20
_COUNT = 60
_MOST = 20 << 20
"""Bytes that a part may have: 16 MB, and what comes before Parquet looks again."""


@pytest.fixture(params=["folder", "catalog"])
def target(request: pytest.FixtureRequest, spark: SparkSession, tmp_path: Path) -> Iterator[Target]:
    """Return a target of each kind."""
    yield Target.parse(str(tmp_path) if request.param == "folder" else "spark_catalog.staged")
    spark.sql("DROP SCHEMA IF EXISTS staged CASCADE")


def _staged_rows(spark: SparkSession) -> DataFrame:
    """Yield a small row and many large ones behind it, whose bytes cannot be compressed."""

    # Inside, as workers do not know this module.
    def rows(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import os

        from walreplay.spark.workers.rows import stage_batch, staged_row

        for batch in batches:
            for number in batch.column("id").to_pylist():
                data = os.urandom(_LARGE if number else _SMALL)
                yield stage_batch(staged_row(0, 0, number, "{}", bucket=0, data=data))

    return spark.range(0, _COUNT, 1, 1).mapInArrow(rows, sql_schema(STAGE))


def _parts(frame: DataFrame) -> list[int]:
    """Return the bytes, uncompressed, that each row group of a frame's files has."""
    files = [pq.ParquetFile(unquote(urlsplit(uri).path)).metadata for uri in frame.inputFiles()]
    return [file.row_group(number).total_byte_size for file in files for number in range(file.num_row_groups)]


def test_a_small_row_in_front_does_not_bring_large_ones_into_one_part(spark: SparkSession, target: Target) -> None:
    staging = TableStaging(target.ledger("staging"))
    staging._write(_staged_rows(spark))
    parts = _parts(staging._frame(spark))
    assert sum(parts) > (_COUNT - 1) * _LARGE
    assert max(parts) <= _MOST


def test_of_many_tables_only_the_folder_of_the_one_that_is_read_is_listed(spark: SparkSession, tmp_path: Path) -> None:
    staging = TableStaging(Target.parse(str(tmp_path)).ledger("staging"))
    # Some tables have negative numbers: what is no table of the source.
    staging._write(_staged_rows(spark).selectExpr("* EXCEPT (table)", "CAST(sequence % 3 - 1 AS INT) AS table"))
    staging._sizes.update({-1: 1, 0: 1, 1: 1})
    for table in (-1, 0, 1):
        found = staging._of_table(spark, table)
        assert {Path(unquote(uri)).parent.name for uri in found.inputFiles()} == {f"table={table}"}
        sequences = [row.sequence for row in found.where(f"table = {table}").select("sequence").collect()]
        assert sorted(sequences) == [number for number in range(_COUNT) if number % 3 - 1 == table]
    assert staging._of_table(spark, 2).count() == 0
