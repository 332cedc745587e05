"""Switch on the Delta features that a table needs before a change and does not have yet.

This is a commit of its own, because Delta does not change columns in the commit that switches column mapping on.  It
changes neither rows nor columns: a run that is killed afterwards is continued by one that finds the features there.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from walreplay.sink.features import missing
from walreplay.spark.delta import statements as delta
from walreplay.spark.delta.target import TableName
from walreplay.spark.session import steps
from walreplay.spark.writing.conflicts import conflicts_told

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def ensure(
    spark: SparkSession,
    table: TableName,
    wanted: Mapping[str, str],
    check_lock: Callable[..., None],
) -> None:
    """Set those of the wanted properties that an existing table lacks.

    Args:
        spark: a session that only the caller uses.
        check_lock: raises an error if the run has lost the lock.

    Raises:
        TargetError: somebody else has written to the table at the same time.
    """
    if not wanted:
        return
    lacking = missing(wanted, _shown(spark, table))
    if not lacking:
        return
    check_lock()
    steps.reached(f"features are to come: {table.text}")
    with conflicts_told(table, check_lock):
        spark.sql(f"ALTER TABLE {table.sql} SET TBLPROPERTIES ({delta.listed(lacking)})")
    # The session must report the version of the commit that follows, not of this one.
    delta.forget_version(spark)
    steps.reached(f"features have come: {table.text}")


def _shown(spark: SparkSession, table: TableName) -> dict[str, str]:
    """Give a table's properties, including its protocol's features."""
    return {row.key: row.value for row in spark.sql(f"SHOW TBLPROPERTIES {table.sql}").collect()}
