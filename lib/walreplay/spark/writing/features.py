"""Switch on what a table has to have before it can be changed in some way, and has not needed so far.

That is a commit of its own: Delta changes no columns in the one that switches column mapping on.  It leaves the rows
and the columns as they are, so that a run that is killed behind it finds it done and goes on.  Delta's own transaction
makes it, where that can be had: a run that was taken over meanwhile fails at it, as everything that it would be needed
for changes the table.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from walreplay.sink.features import SWITCHES, missing
from walreplay.spark.delta import statements as delta
from walreplay.spark.delta.target import TableName
from walreplay.spark.session import steps
from walreplay.spark.writing.base import TableWriter
from walreplay.spark.writing.conflicts import conflicts_told

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def ensure(
    spark: SparkSession,
    writer: TableWriter,
    table: TableName,
    wanted: Mapping[str, str],
    check_lock: Callable[..., None],
) -> None:
    """Give a table that is there those properties that it has not.

    Args:
        spark: a session of the caller's own.
        check_lock: refuses to go on when the run has lost the lock.

    Raises:
        TargetError: somebody else has written to the table at the same time.
    """
    if not wanted:
        return
    transaction = writer.begin_change(spark, table)
    if transaction is not None and not (transaction.may_have_properties and wanted.keys() <= SWITCHES):
        transaction = None
    lacking = transaction.lacks(wanted) if transaction is not None else missing(wanted, _shown(spark, table))
    if not lacking:
        return
    check_lock()
    steps.reached(f"features are to come: {table.text}")
    with conflicts_told(table, check_lock):
        if transaction is not None:
            transaction.set_properties(lacking)
        else:
            spark.sql(f"ALTER TABLE {table.sql} SET TBLPROPERTIES ({delta.listed(lacking)})")
    # What the session is asked for next is the version of the commit that is to come.
    delta.forget_version(spark)
    steps.reached(f"features have come: {table.text}")


def _shown(spark: SparkSession, table: TableName) -> dict[str, str]:
    """Give a table's properties, with the features of its protocol among them."""
    return {row.key: row.value for row in spark.sql(f"SHOW TBLPROPERTIES {table.sql}").collect()}
