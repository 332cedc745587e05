"""Put another table's rows in the place of a table's own, in one commit; a run that is killed can be continued.

The table keeps its history of versions.  It gets the columns of the rows that it is given, and what the configuration
wants of its properties, its clustering and its comment.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from walreplay.delta.local import clear_leftovers
from walreplay.errors import TargetError
from walreplay.sink.features import needed_by
from walreplay.spark.delta import statements as delta
from walreplay.spark.delta.located import folder_at
from walreplay.spark.delta.target import TableName, quote
from walreplay.spark.planning.registry import MirrorEntry
from walreplay.spark.session import steps
from walreplay.spark.writing.base import TableWriter
from walreplay.spark.writing.comments import say
from walreplay.spark.writing.conflicts import conflicts_told
from walreplay.spark.writing.features import ensure

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_APPENDS_ONLY: Final = "delta.appendOnly"


@dataclass(frozen=True, slots=True)
class Replacing:
    """What is done to one table.

    Attributes:
        source: the table that has the rows.
        entry: the ledger's entry for the table as it is to be; ``before`` is the one that it had, None for a new table.
        commit: the commit that this is.
        resumed: it may have been made already.
        check_lock: raises an error if the run has lost the lock.
    """

    source: TableName
    entry: MirrorEntry
    before: MirrorEntry | None
    commit: delta.CommitId
    resumed: bool
    check_lock: Callable[..., None]


def replace_rows(spark: SparkSession, writer: TableWriter, what: Replacing) -> int | None:
    """Put the rows in place, and give the version that the table has with them; None if they are gone.

    Args:
        spark: a session that only the caller uses.

    Raises:
        TargetError: somebody else writes to the table.
    """
    entry, table = what.entry, what.entry.table
    _clear(spark, table)
    there = delta.exists(spark, table)
    found = None
    if what.resumed and there:
        found = delta.find_commit(spark, table, what.commit, depth=delta.WHOLE_HISTORY)
    if found is None:
        if what.resumed and not delta.exists(spark, what.source):
            # Somebody has removed them: the table stays as it is.
            return None
        _write(spark, writer, what, there=there)
        found = delta.find_commit(spark, table, what.commit)
    if found is None:
        raise TargetError(
            "the table's commit is not in its history: another one has its number, or something else writes to it",
            table=entry.name,
            path=table.text,
            remedy="A table must have no other writer, and its ledger must not be set back while a run is at work; "
            "remove the table and run walreplay rebuild again, which makes it anew",
        )
    steps.reached(f"rows replaced: {entry.name}")
    _lay_out(spark, writer, what)
    return found.version


def _clear(spark: SparkSession, table: TableName) -> None:
    """Remove what commits that are gone have left: it would damn those that come in their place."""
    folder = folder_at(spark, table)
    if folder is not None:
        clear_leftovers(folder)


def _write(spark: SparkSession, writer: TableWriter, what: Replacing, *, there: bool) -> None:
    entry, table, before = what.entry, what.entry.table, what.before
    rows = delta.read(spark, what.source)
    if there and before is not None and before.layout.cluster_by:
        # Delta does not drop a column that clusters.
        _alter(spark, what, "CLUSTER BY NONE")
    if there:
        ensure(spark, table, needed_by(rows.schema.jsonValue()["fields"]), what.check_lock)
    with _may_be_emptied(spark, what, there=there), conflicts_told(table, what.check_lock):
        what.check_lock()
        steps.reached(f"rows are to be replaced: {entry.name}")
        delta.write(
            rows,
            table,
            "overwrite" if there else "append",
            what.commit,
            create=not there,
            new_schema=there,
            properties=dict(entry.layout.properties),
            comment=entry.comment,
        )
    if there:
        # Columns of the same names may have had other types.
        delta.checkpoint(spark, table)


@contextmanager
def _may_be_emptied(spark: SparkSession, what: Replacing, *, there: bool) -> Iterator[None]:
    """Let the rows of a table that is only appended to be replaced, this once."""
    is_closed = there and _properties(spark, what.entry.table).get(_APPENDS_ONLY, "").lower() == "true"
    if is_closed:
        _alter(spark, what, f"UNSET TBLPROPERTIES ({delta.literal(_APPENDS_ONLY)})")
    yield
    if is_closed:
        _alter(spark, what, f"SET TBLPROPERTIES ({delta.listed({_APPENDS_ONLY: 'true'})})")


def _properties(spark: SparkSession, table: TableName) -> dict[str, Any]:
    return {row.key: row.value for row in spark.sql(f"SHOW TBLPROPERTIES {table.sql}").collect()}


def _lay_out(spark: SparkSession, writer: TableWriter, what: Replacing) -> None:
    """Give the table its properties, its comment and its clustering; none of it changes rows or columns."""
    wanted, before = what.entry.layout, what.before
    known = {} if before is None else dict(before.layout.properties)
    gone = [name for name in known if name not in dict(wanted.properties)]
    if gone:
        _alter(spark, what, f"UNSET TBLPROPERTIES IF EXISTS ({', '.join(map(delta.literal, gone))})")
    ensure(spark, what.entry.table, dict(wanted.properties), what.check_lock)
    comment = "" if before is None else before.comment
    say(spark, what.entry.table, comment, what.entry.comment, what.check_lock)
    if wanted.cluster_by:
        _alter(spark, what, f"CLUSTER BY ({', '.join(map(quote, wanted.cluster_by))})")


def _alter(spark: SparkSession, what: Replacing, change: str) -> None:
    what.check_lock()
    spark.sql(f"ALTER TABLE {what.entry.table.sql} {change}")
    delta.forget_version(spark)


__all__ = ["Replacing", "replace_rows"]
