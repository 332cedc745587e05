"""A table's properties and its comment, each set in a commit of its own that changes neither rows nor columns.

`ensure` switches on the Delta features that a table needs before a change: Delta does not change columns in the commit
that switches column mapping on.  If a run is killed after that commit, the next one finds the features there.  `say`
changes the comment, `change_layout` the clustering.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING

from walreplay.delta import statements as delta
from walreplay.delta.commits import missing
from walreplay.delta.target import TableName
from walreplay.errors import TargetError
from walreplay.evolution.comments import followed
from walreplay.session import steps

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@contextmanager
def conflicts_told(table: TableName, check_lock: Callable[..., None]) -> Iterator[None]:
    """Turn a commit's conflict with another commit into an error for people.

    Args:
        check_lock: raises an error if the run has lost the lock.

    Raises:
        TargetError: there was a conflict; it names the table, or says that another run has taken over.
    """
    try:
        yield
    except Exception as error:
        if not delta.is_conflict(error):
            raise
        check_lock(sure=True)
        raise TargetError(
            "somebody else has written to the table at the same time",
            path=table.text,
            remedy="A mirror must have no other writer; run again",
        ) from error


def ensure(spark: SparkSession, table: TableName, features: Mapping[str, str], check_lock: Callable[..., None]) -> None:
    """Set those of the wanted properties that an existing table lacks; see `change_layout`."""
    if not features:
        return
    lacking = missing(features, shown(spark, table))
    if not lacking:
        return
    step_names = ("features are to come", "features have come")
    change_layout(spark, table, f"SET TBLPROPERTIES ({delta.listed(lacking)})", check_lock, step_names)


def unset(
    spark: SparkSession,
    table: TableName,
    old_names: Iterable[str],
    new_names: Collection[str],
    check_lock: Callable[..., None],
) -> None:
    """Unset the properties that a table had before and is not to have now; see `change_layout`."""
    gone = [name for name in old_names if name not in new_names]
    if gone:
        change = f"UNSET TBLPROPERTIES IF EXISTS ({', '.join(map(delta.literal, gone))})"
        change_layout(spark, table, change, check_lock)


def shown(spark: SparkSession, table: TableName) -> dict[str, str]:
    """Return a table's properties, including its protocol's features."""
    return {row.key: row.value for row in spark.sql(f"SHOW TBLPROPERTIES {table.sql}").collect()}


def say(
    spark: SparkSession,
    table: TableName,
    old_comment: str,
    new_comment: str,
    check_lock: Callable[..., None],
    *,
    is_new: bool = False,
) -> None:
    """Change a table's comment, unless somebody else has changed it; see `change_layout`.

    Args:
        old_comment: the comment that walreplay wrote last; empty for none.
        new_comment: the new comment; empty for none.
        is_new: the caller has just created the table, without a comment; to read that takes as long as to create it.
    """
    current = "" if is_new else delta.comment_of(spark, table)
    comment = followed(current, old_comment, new_comment)
    if comment == current:
        return
    step_names = ("comment is to change", "comment has changed")
    change_layout(spark, table, f"SET TBLPROPERTIES ({delta.listed({'comment': comment})})", check_lock, step_names)


def change_layout(
    spark: SparkSession,
    table: TableName,
    change: str,
    check_lock: Callable[..., None],
    step_names: tuple[str, str] = ("layout is to change", "layout has changed"),
) -> None:
    """Make a commit of its own that changes neither rows nor columns.

    Args:
        spark: a session that only the caller uses.
        change: SQL behind ALTER TABLE.
        check_lock: raises an error if the run has lost the lock.
        step_names: the steps before and behind the commit.

    Raises:
        TargetError: somebody else has written to the table at the same time.
    """
    check_lock()
    steps.reached(f"{step_names[0]}: {table.text}")
    with conflicts_told(table, check_lock):
        spark.sql(f"ALTER TABLE {table.sql} {change}")
    # The session must report the version of the commit that follows, not of this one.
    delta.forget_version(spark)
    steps.reached(f"{step_names[1]}: {table.text}")
