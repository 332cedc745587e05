"""Change an existing table's comment, in a commit of its own that changes neither rows nor columns."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from walreplay.sink.comments import followed
from walreplay.spark.delta import statements as delta
from walreplay.spark.delta.target import TableName
from walreplay.spark.session import steps
from walreplay.spark.writing.conflicts import conflicts_told

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def say(
    spark: SparkSession,
    table: TableName,
    before: str,
    wanted: str,
    check_lock: Callable[..., None],
    *,
    is_new: bool = False,
) -> None:
    """Change a table's comment, unless somebody else has changed it.

    Args:
        spark: a session that only the caller uses.
        before: the comment that walreplay wrote last; empty for none.
        wanted: the new comment; empty for none.
        check_lock: raises an error if the run has lost the lock.
        is_new: the caller has just made the table, without a comment; to ask it takes as long as to make it.

    Raises:
        TargetError: somebody else has written to the table at the same time.
    """
    there = "" if is_new else delta.comment_of(spark, table)
    comment = followed(there, before, wanted)
    if comment == there:
        return
    check_lock()
    steps.reached(f"comment is to change: {table.text}")
    with conflicts_told(table, check_lock):
        spark.sql(f"ALTER TABLE {table.sql} SET TBLPROPERTIES ({delta.listed({'comment': comment})})")
    # The session must report the version of the commit that follows, not of this one.
    delta.forget_version(spark)
    steps.reached(f"comment has changed: {table.text}")
