"""What a table that is there says of itself: changed in a commit of its own, which leaves rows and columns alone."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from walreplay.sink.comments import followed
from walreplay.spark.delta import statements as delta
from walreplay.spark.delta.target import TableName
from walreplay.spark.session import steps
from walreplay.spark.writing.base import TableWriter
from walreplay.spark.writing.conflicts import conflicts_told

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def say(
    spark: SparkSession,
    writer: TableWriter,
    table: TableName,
    before: str,
    wanted: str,
    check_lock: Callable[..., None],
) -> None:
    """Have a table say something else of itself, if it says what it was given last.

    Args:
        spark: a session of the caller's own.
        before: what it was given last; empty for nothing.
        check_lock: refuses to go on when the run has lost the lock.

    Raises:
        TargetError: somebody else has written to the table at the same time.
    """
    transaction = writer.begin_change(spark, table)
    if transaction is not None and not transaction.may_have_properties:
        transaction = None
    there = transaction.comment if transaction is not None else delta.comment_of(spark, table)
    comment = followed(there, before, wanted)
    if comment == there:
        return
    check_lock()
    steps.reached(f"comment is to change: {table.text}")
    with conflicts_told(table, check_lock):
        if transaction is not None:
            transaction.set_comment(comment)
        else:
            spark.sql(f"ALTER TABLE {table.sql} SET TBLPROPERTIES ({delta.listed({'comment': comment})})")
    # What the session is asked for next is the version of the commit that is to come.
    delta.forget_version(spark)
    steps.reached(f"comment has changed: {table.text}")
