"""What keeps a table's folder small: OPTIMIZE, REORG and VACUUM, and what tells whether a table needs them.

None of these changes a row, and none needs a setting.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final

from walreplay.sink.upkeep import SMALL, FilesOfTable, from_history, from_log
from walreplay.spark.delta import statements as delta
from walreplay.spark.delta.located import opened_at
from walreplay.spark.delta.target import TableName
from walreplay.spark.session.isolation import has_own_sessions, session_with

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_COMMITS: Final = 100
"""So many of a table's newest commits tell how many small files it has got, where its log cannot be read here."""

_SETTINGS: Final = delta.FEW_ROWS | {
    # Files that are large enough are not written anew each time that there are some small ones.
    "spark.databricks.delta.optimize.minFileSize": str(SMALL),
    # VACUUM lists the folders of a table in so many tasks, 10,000 where nothing is set: minutes for a few files.
    "spark.sql.sources.parallelPartitionDiscovery.parallelism": "4",
}


@contextmanager
def upkeep_session(spark: SparkSession, more: Mapping[str, str] = delta.NO_PROPERTIES) -> Iterator[SparkSession]:
    """Give a session for the statements here."""
    with session_with(spark, {**_SETTINGS, **more}) as own:
        yield own


def files_of(spark: SparkSession, table: TableName) -> FilesOfTable:
    """Say how many files a table has, how many of them are small, and how many have rows that are only marked deleted.

    The log tells it exactly, where the driver reaches it by itself.  Elsewhere the table's history does, as far back as
    it is read here.
    """
    opened = opened_at(spark, table)
    if opened is not None and opened.obstacle is None:
        return from_log((file.size, file.marked) for file in opened.files)
    (detail,) = spark.sql(f"DESCRIBE DETAIL {table.sql}").select("numFiles", "sizeInBytes").collect()
    history = spark.sql(f"DESCRIBE HISTORY {table.sql} LIMIT {_COMMITS}")
    commits = [
        (str(row.operation), dict(row.operationMetrics or {}))
        for row in history.select("operation", "operationMetrics").collect()
    ]
    return from_history(int(detail.numFiles), int(detail.sizeInBytes), commits)


def optimize(spark: SparkSession, table: TableName) -> tuple[int, int]:
    """Write small files together, in one commit that changes no row; none if there is nothing to do.

    Returns:
        the files that were removed, and those that were added.
    """
    return _rewritten(spark, f"OPTIMIZE {table.sql}")


def purge(spark: SparkSession, table: TableName) -> tuple[int, int]:
    """Write the files anew that have rows which are only marked as deleted; see `optimize`."""
    return _rewritten(spark, f"REORG TABLE {table.sql} APPLY (PURGE)")


def _rewritten(spark: SparkSession, statement: str) -> tuple[int, int]:
    rows = spark.sql(statement).select("metrics.numFilesRemoved", "metrics.numFilesAdded").collect()
    return sum(int(row[0] or 0) for row in rows), sum(int(row[1] or 0) for row in rows)


def unreferenced(spark: SparkSession, table: TableName) -> int:
    """Count the files that no version needs any more which the table's retention still keeps."""
    with _silent(spark):
        return spark.sql(f"VACUUM {table.sql} DRY RUN").count()


def vacuum(spark: SparkSession, table: TableName) -> None:
    """Remove these files: what the table's retention (``delta.deletedFileRetentionDuration``) keeps, stays."""
    with _silent(spark):
        spark.sql(f"VACUUM {table.sql}").collect()


@contextmanager
def _silent(spark: SparkSession) -> Iterator[None]:
    """Keep Delta from saying on Java's standard output what VACUUM has done: a command's result belongs there alone."""
    if not has_own_sessions(spark):
        yield
        return
    java: Any = spark._jvm
    console = getattr(getattr(java.scala, "Console$"), "MODULE$")
    before = console.out()
    # Of this thread alone.
    console.setOutDirect(java.java.io.PrintStream(java.java.io.OutputStream.nullOutputStream()))
    try:
        yield
    finally:
        console.setOutDirect(before)


__all__ = ["files_of", "optimize", "purge", "unreferenced", "upkeep_session", "vacuum"]
