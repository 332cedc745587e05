"""Give a mirror table its configured properties and clustering, and its comment.

They are set only when the configuration or the comment has changed.  The ledger has what was set last, so an unchanged
table is not asked.  None of this changes rows or columns: after a run that was killed it is simply done again.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from walreplay.report import Way
from walreplay.spark.delta import statements as delta
from walreplay.spark.delta.target import quote
from walreplay.spark.planning.plan import TablePlan
from walreplay.spark.planning.table_run import TableRun
from walreplay.spark.session import steps
from walreplay.spark.tables.alter import alters_columns
from walreplay.spark.writing.base import TableWriter
from walreplay.spark.writing.comments import say
from walreplay.spark.writing.features import ensure

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def set_properties(spark: SparkSession, writer: TableWriter, run: TableRun) -> None:
    """Set an existing table's properties and comment, and unset properties that are no longer configured."""
    plan, wanted = run.plan, dict(run.plan.layout.properties)
    before = {} if plan.before is None else dict(plan.before.layout.properties)
    gone = [name for name in before if name not in wanted]
    if gone:
        _run(spark, run, f"UNSET TBLPROPERTIES IF EXISTS ({', '.join(map(delta.literal, gone))})")
    if wanted != before:
        ensure(spark, plan.table, wanted, run.check_lock)
    if plan.before is not None and plan.changes_comment:
        say(spark, plan.table, plan.before.comment, plan.comment, run.check_lock)


def leave_clustering(spark: SparkSession, run: TableRun) -> None:
    """Remove a table's clustering before its columns change, because Delta does not drop a column that clusters."""
    before = run.plan.before
    if before is not None and before.layout.cluster_by and _changes(run.plan):
        _run(spark, run, "CLUSTER BY NONE")


def set_layout(spark: SparkSession, writer: TableWriter, run: TableRun, way: Way | None) -> None:
    """Set what a table can only be given when it exists with all its columns.

    That is its clustering.  If a DataFrame's write has created the table at a path, it is also its comment and the
    properties that are not Delta's own.

    Args:
        way: how this run has made the table's commits; None if it has made none itself.
    """
    plan = run.plan
    if plan.before is None and plan.table.path is not None and way != "files":
        is_new = way is not None and not run.resumed and plan.metadata.share is None
        say(spark, plan.table, "", plan.comment, run.check_lock, is_new=is_new)
    if plan.before is None and any(not name.startswith("delta.") for name, _ in plan.layout.properties):
        ensure(spark, plan.table, dict(plan.layout.properties), run.check_lock)
    before = () if plan.before is None else plan.before.layout.cluster_by
    columns = plan.layout.cluster_by
    if columns == before and not (columns and (_changes(plan) or plan.truncated or run.resumed)):
        return
    listed = ", ".join(map(quote, columns))
    _run(spark, run, f"CLUSTER BY ({listed})" if columns else "CLUSTER BY NONE")


def _changes(plan: TablePlan) -> bool:
    return any(alters_columns(epoch.evolution) for epoch in plan.epochs)


def _run(spark: SparkSession, run: TableRun, change: str) -> None:
    run.check_lock()
    steps.reached(f"layout is to change: {run.plan.table.text}")
    spark.sql(f"ALTER TABLE {run.plan.table.sql} {change}")
    delta.forget_version(spark)
