"""Keep a ledger small: each run leaves small files in its tables, and versions of its ``state`` that nobody reads.

A run every five minutes is 290 files a day in each table.  So every so many runs, the last one writes a table's files
together, forgets runs that are older than the configuration wants, and removes files that no version needs.  This comes
behind the run's end, under the lock: nothing depends on it, and if it is killed, the next time does it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Final

from walreplay.delta import statements as delta
from walreplay.delta.target import TableName, Target, ledger_errors
from walreplay.delta.upkeep import optimize, upkeep_session, vacuum
from walreplay.session import steps

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


HISTORY: Final = ("runs", "files", "transactions", "messages")
"""The tables to which runs append."""

OF_HISTORY: Final = {"delta.logRetentionDuration": "interval 7 days"}
"""Their properties.  No run looks back into the versions of these tables but the one that finishes another."""

OF_STATE: Final = {**OF_HISTORY, "delta.deletedFileRetentionDuration": "interval 1 day"}
"""Those of ``state``, of which each run writes some versions, and only the newest is read."""

UNTOLD: Final = {"spark.databricks.delta.vacuum.logging.enabled": "false"}
"""That files were removed need not be among the commits, which tell what runs have recorded."""


def is_due(first: int, last: int, every: int) -> bool:
    """Return whether the ledger is to be kept small behind some runs.

    Args:
        first: the number of the first of these runs, and ``last`` of the last.
        every: it is done once in so many runs; 0 for never.

    >>> is_due(98, 99, 50), is_due(99, 100, 50), is_due(1, 100, 0)
    (False, True, False)
    """
    return every > 0 and last // every > (first - 1) // every


def keep_small(
    spark: SparkSession, target: Target, keep_days: int | None, now: datetime, check_lock: Callable[[], None]
) -> None:
    """Forget old runs, write the files of the ledger's tables together, and remove those that no version needs.

    Args:
        keep_days: runs that have ended before are forgotten; None for none.
        check_lock: raises an error if the lock is lost.
    """
    with upkeep_session(spark, UNTOLD) as own:
        steps.reached("ledger is to be kept small")
        forget(own, target, keep_days, now, check_lock)
        for name in (*HISTORY, "state"):
            table = target.ledger(name)
            check_lock()
            with ledger_errors(table.text):
                if not delta.exists(own, table):
                    continue
                if name in HISTORY:
                    optimize(own, table)
                vacuum(own, table)
            steps.reached(f"ledger's table kept small: {name}")


def first_kept(spark: SparkSession, target: Target, keep_days: int | None, now: datetime) -> int | None:
    """Return the first run that is not to be forgotten; None if none is."""
    table = target.ledger("runs")
    if keep_days is None or not delta.exists(spark, table):
        return None
    runs = delta.read(spark, table)
    micros = int((now - timedelta(days=keep_days)).timestamp() * 1e6)
    since = f"finished_at >= timestamp_micros({micros})"
    # The newest one is never forgotten.
    (row,) = runs.selectExpr(
        f"coalesce(min(CASE WHEN {since} THEN run END), max(run)) AS kept", "min(run) AS first"
    ).collect()
    return None if row.kept is None or row.first >= row.kept else int(row.kept)


def forget(
    spark: SparkSession, target: Target, keep_days: int | None, now: datetime, check_lock: Callable[[], None]
) -> None:
    """Remove the rows of runs that ended too long ago.

    ``files`` stay whole: what was read is asked of them however old it is.
    """
    kept = first_kept(spark, target, keep_days, now)
    if kept is None:
        return
    _forget_runs(spark, target.ledger("runs"), kept, check_lock)
    for name in ("messages", "transactions"):
        table = target.ledger(name)
        with ledger_errors(table.text):
            if not delta.exists(spark, table):
                continue
            rows = f"run < {kept}"
            if name == "transactions":
                # A new server is told by the last one.
                (newest,) = delta.read(spark, table).selectExpr("max(commit_lsn) AS lsn").collect()
                rows += f" AND commit_lsn < {newest.lsn or 0}"
            check_lock()
            spark.sql(f"DELETE FROM {table.sql} WHERE {rows}").collect()
        steps.reached(f"runs forgotten: {name}")


def _forget_runs(spark: SparkSession, table: TableName, kept: int, check_lock: Callable[[], None]) -> None:
    """Remove runs, but for the rows that later runs need: of tables that these have not written to, and of names."""
    with ledger_errors(table.text):
        runs = delta.read(spark, table)
        old = runs.where(f"run < {kept}").selectExpr("run", "inline(tables)")
        last = old.groupBy("oid").agg({"run": "max"}).collect()
        left = old.where("version IS NOT NULL").groupBy("oid").agg({"run": "max"}).collect()
        loads = runs.where(f"run < {kept} AND load IS NOT NULL").select("run", "run").collect()
        named = runs.where(f"run < {kept}").selectExpr("run", "inline(relations)")
        names = named.groupBy("oid", "namespace", "name").agg({"run": "max"}).select("oid", "max(run)").collect()
        needed = _listed(row[1] for row in (*last, *left, *loads, *names))
        check_lock()
        marked = f"UPDATE {table.sql} SET kept_for_tables = true WHERE run IN ({needed}) AND kept_for_tables IS NULL"
        spark.sql(marked).collect()
    steps.reached("runs kept for tables")
    with ledger_errors(table.text):
        check_lock()
        spark.sql(f"DELETE FROM {table.sql} WHERE run < {kept} AND run NOT IN ({needed})").collect()
    steps.reached("runs forgotten: runs")


def _listed(runs: Iterable[int]) -> str:
    """Write runs' numbers in SQL; with one that no run has, as there has to be one."""
    return ", ".join(map(str, sorted({-1, *runs})))
