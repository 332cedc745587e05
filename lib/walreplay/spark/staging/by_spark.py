"""Staged events in Spark's hands: Parquet files in a folder of the ledger, or a table of a catalog."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Final

from walreplay.listing import escape_glob
from walreplay.spark.delta import statements as delta
from walreplay.spark.delta.sql_types import sql_schema
from walreplay.spark.delta.target import TableName
from walreplay.spark.session.isolation import settings
from walreplay.spark.staging.base import Rows, StagedRows, Staging, by_bucket, together
from walreplay.spark.workers.rows import NO_BUCKET, STAGE, Total, Work

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, Row, SparkSession

_FEW_LARGE_ROWS: Final = {
    # Parquet looks at how much it holds after 100 rows at first, which may be all that a file has, and then after as
    # many as it guesses from the rows so far: behind a small row thousands of large ones would come into one group.
    "parquet.page.size.row.check.min": "1",
    "parquet.page.size.row.check.max": "1",
    "parquet.block.size": str(16 << 20),
    "parquet.enable.dictionary": "false",
}
"""How staged events are written: a row is all that a table has in one file and bucket."""


class TableStaging(Staging):
    """Staged events that Spark writes and reads.

    Args:
        table: where they are staged.
    """

    def __init__(self, table: TableName) -> None:
        super().__init__()
        self._table = table

    def staged(self, spark: SparkSession, table: int) -> Rows:
        """Give what was staged under a table's number, as `walreplay.spark.workers.records.unpack_batches` takes it."""
        return self._of_table(spark, table).select("data")

    def clear(self, spark: SparkSession) -> None:
        """Delete the staged events."""
        if not self._written:
            return
        self._written = False
        if self._table.path is not None:
            # No way to delete a folder works on every platform; an empty overwrite empties it.
            self._write(spark.createDataFrame([], sql_schema(STAGE)).coalesce(1))
        else:
            spark.sql(f"DROP TABLE IF EXISTS {self._table.sql}")

    def _stage(
        self,
        spark: SparkSession,
        works: Sequence[tuple[Rows, Work]],
        values: Mapping[str, str],
        tasks: int | None,
    ) -> None:
        frames = [rows.mapInArrow(work, sql_schema(STAGE)) for rows, work in works]
        frame = together(frames, tasks)
        self._written = True
        with settings(spark, values):
            self._write(frame)

    def _write(self, frame: DataFrame) -> None:
        if self._table.path is not None:
            # Whatever the session says of overwriting: of an earlier run's tables nothing may stay.
            writer = frame.write.mode("overwrite").options(partitionOverwriteMode="static", **_FEW_LARGE_ROWS)
            writer = writer.partitionBy("table")
            writer.parquet(self._table.path)
        else:
            # A catalog's tables do not take these as options.
            with settings(frame.sparkSession, _FEW_LARGE_ROWS):
                delta.write(frame, self._table, "overwrite", create=True)

    def _totals(self, spark: SparkSession) -> list[Total]:
        from pyspark.sql import functions as f

        totals = self._frame(spark).groupBy("table", "relation", "info")
        found = totals.agg(
            f.sum("rows").alias("rows"),
            f.sum("size").alias("size"),
            f.min("sequence").alias("first"),
            f.max("sequence").alias("last"),
        )
        return [Total(*row) for row in found.select(*Total._fields).collect()]

    def _places(self, spark: SparkSession, table: int) -> list[Row]:
        rows = self._of_table(spark, table).select("sequence", "relation")
        return rows.distinct().orderBy("sequence").collect()

    def _events(self, spark: SparkSession, rows: StagedRows) -> DataFrame:
        events = self._frame_of_events(spark, rows)
        if not rows.together and rows.tasks > 1:
            return by_bucket(events, rows.tasks)
        events = events.selectExpr("0 AS bucket", "sequence", "data").coalesce(1)
        return events.sortWithinPartitions("bucket", "sequence")

    def _frame_of_events(self, spark: SparkSession, rows: StagedRows) -> DataFrame:
        return self._within(spark, rows).where(f"bucket <> {NO_BUCKET}").select("bucket", "sequence", "data")

    def _links(self, spark: SparkSession, rows: StagedRows) -> DataFrame:
        return self._within(spark, rows).select("data").coalesce(1)

    def _within(self, spark: SparkSession, rows: StagedRows) -> DataFrame:
        frame = self._of_table(spark, rows.table).where(f"sequence >= {rows.start}")
        return frame if rows.stop is None else frame.where(f"sequence < {rows.stop}")

    def _frame(self, spark: SparkSession) -> DataFrame:
        if self._table.path is not None:
            return spark.read.schema(sql_schema(STAGE)).parquet(escape_glob(self._table.path))
        return spark.read.table(self._table.sql)

    def _of_table(self, spark: SparkSession, table: int) -> DataFrame:
        if self._table.path is None or not self.has(table):
            return self._frame(spark).where(f"table = {table}")
        # Only its own folder is listed: of more than 32 Spark lists each by a task, and would do so for every table.
        reader = spark.read.schema(sql_schema(STAGE)).option("basePath", self._table.path)
        return reader.parquet(f"{escape_glob(self._table.path)}/table={table}")
