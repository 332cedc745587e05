"""Decoded and folded events between the pass over the files and the tables' merges.

The files are decoded once, whatever the number of tables; what comes out lies in a folder (or table) of the
ledger's until the run ends.  Each row is an Arrow IPC stream: the events of one table and key bucket of one file.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Final

from wal2delta.errors import from_dict
from wal2delta.spark import delta
from wal2delta.spark.isolation import settings
from wal2delta.spark.source import ONE_FILE_A_BATCH, read_files
from wal2delta.spark.target import Target
from wal2delta.spark.workers import ERROR_TABLE, STAGE_SCHEMA, DecodeTask, decode_batches, unpack_batches

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_NAME: Final = "staging"


@dataclass(frozen=True, slots=True)
class Staged:
    """What is staged for one table.

    Attributes:
        rows: row changes decoded.
        relations: the relation versions that they belong to.
        tracked: columns that some change leaves unchanged.
        moves: some key changes have to be followed.
        deletes: some rows are deleted.
    """

    rows: int = 0
    relations: tuple[int, ...] = ()
    tracked: tuple[int, ...] = ()
    moves: bool = False
    deletes: bool = False


class Staging:
    """The staged events of a run.

    Args:
        turn: which of several places to use, so that a run that was taken over from does not write to this one's.
    """

    def __init__(self, target: Target, turn: int = 0) -> None:
        self._table = target.ledger(_NAME if turn == 0 else f"{_NAME}_{turn}")
        self._written = False

    @property
    def written(self) -> bool:
        """Whether something was staged."""
        return self._written

    def decode(self, spark: SparkSession, paths: Sequence[str], task: DecodeTask) -> dict[int, Staged]:
        """Decode files in parallel and stage their events; give what each table has.

        Raises:
            Wal2DeltaError: what the first file in the stream's order has against it.
        """
        frame = read_files(spark, paths).mapInArrow(partial(decode_batches, task=task), STAGE_SCHEMA)
        self._written = True
        with settings(spark, ONE_FILE_A_BATCH):
            self._overwrite(frame)
        return _summarise(self._frame(spark).select("table", "sequence", "rows", "info"))

    def read(self, spark: SparkSession, table: int, *, together: bool, partitions: int) -> DataFrame:
        """Give a table's events by bucket, each bucket's in commit order and in one task.

        Args:
            together: all of the table's events have to come to one task.
        """
        frame = self._frame(spark).where(f"table = {table}")
        if together:
            frame = frame.selectExpr("0 AS bucket", "sequence", "data").coalesce(1)
        else:
            frame = frame.select("bucket", "sequence", "data")
            frame = frame.coalesce(1) if partitions == 1 else frame.repartition(partitions, "bucket")
        return frame.sortWithinPartitions("bucket", "sequence")

    def records(self, spark: SparkSession, table: int, schema: str) -> DataFrame:
        """Give what was recorded of transactions or messages.

        Args:
            table: `TRANSACTIONS_TABLE` or `MESSAGES_TABLE`; ``schema`` is its rows'.
        """
        if not self._written:
            return spark.createDataFrame([], schema)
        return self._frame(spark).where(f"table = {table}").select("data").mapInArrow(unpack_batches, schema)

    def clear(self, spark: SparkSession) -> None:
        """Throw the staged events away."""
        if not self._written:
            return
        self._written = False
        if self._table.path is not None:
            # There is no way to delete a folder that every platform has; an empty overwrite empties it.
            self._overwrite(spark.createDataFrame([], STAGE_SCHEMA).coalesce(1))
        else:
            spark.sql(f"DROP TABLE IF EXISTS {self._table.sql}")

    def _overwrite(self, frame: DataFrame) -> None:
        if self._table.path is not None:
            frame.write.mode("overwrite").partitionBy("table").parquet(self._table.path)
        else:
            delta.write(frame, self._table, "overwrite", create=True)

    def _frame(self, spark: SparkSession) -> DataFrame:
        if self._table.path is not None:
            return spark.read.schema(STAGE_SCHEMA).parquet(self._table.path)
        return spark.read.table(self._table.sql)


def _summarise(frame: DataFrame) -> dict[int, Staged]:
    """Gather what the staged rows say of themselves, their contents unread."""
    from pyspark.sql import functions as f

    failed = frame.where(f"table = {ERROR_TABLE}").orderBy("sequence").limit(1).collect()
    if failed:
        raise from_dict(json.loads(failed[0].info))
    found: dict[int, Staged] = {}
    grouped = frame.where("table >= 0").groupBy("table", "info").agg(f.sum("rows").alias("rows"))
    for row in grouped.collect():
        info = json.loads(row.info)
        before = found.get(row.table, Staged())
        found[row.table] = Staged(
            rows=before.rows + row.rows,
            relations=tuple(sorted({*before.relations, *info["relations"]})),
            tracked=tuple(sorted({*before.tracked, *info["tracked"]})),
            moves=before.moves or info["moves"],
            deletes=before.deletes or info["deletes"],
        )
    return found
