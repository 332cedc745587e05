"""Give a mirror table the properties and the clustering that the configuration wants of it, and its comment.

They change where what is wanted has.  What the table was given last stands in the ledger, so that nothing is asked of
a table for which nothing has changed.  All of it keeps rows and columns as they are: a run that is killed in between
does it again.
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
    """Give a table that is there its properties, and take from it what the configuration has no longer."""
    plan, wanted = run.plan, dict(run.plan.layout.properties)
    before = {} if plan.before is None else dict(plan.before.layout.properties)
    gone = [name for name in before if name not in wanted]
    if gone:
        _run(spark, run, f"UNSET TBLPROPERTIES IF EXISTS ({', '.join(map(delta.literal, gone))})")
    if wanted != before:
        ensure(spark, writer, plan.table, wanted, run.check_lock)
    if plan.before is not None and plan.changes_comment:
        say(spark, writer, plan.table, plan.before.comment, plan.comment, run.check_lock)


def leave_clustering(spark: SparkSession, run: TableRun) -> None:
    """Let a table be clustered by nothing for as long as its columns change: Delta drops none that it clusters by."""
    before = run.plan.before
    if before is not None and before.layout.cluster_by and _changes(run.plan):
        _run(spark, run, "CLUSTER BY NONE")


def set_layout(spark: SparkSession, writer: TableWriter, run: TableRun, way: Way | None) -> None:
    """Give a table what it can have only once it is there, with its columns: the clustering, and anybody's properties.

    A DataFrame that makes a table at a path gives it none but Delta's, and no comment.

    Args:
        way: how the run has made its commits; None where it had made one before it was interrupted.
    """
    plan = run.plan
    if plan.before is None and plan.table.path is not None and way != "files":
        say(spark, writer, plan.table, "", plan.comment, run.check_lock)
    if plan.before is None and any(not name.startswith("delta.") for name, _ in plan.layout.properties):
        ensure(spark, writer, plan.table, dict(plan.layout.properties), run.check_lock)
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
