"""Refuse a ledger that is older than its tables, with the statements that put it right.

A ledger is set back when it is restored from a backup or by RESTORE, or when its newest commits are lost.  Its tables
then have changes of runs that it does not know.  If the captures still hold all of these, nothing is lost by a RESTORE
of each such table to the version that the ledger knows: the next run applies them again.

Delta skips a commit whose number the table has had, even if a RESTORE has undone that commit.  So a run's number is
above all that the logs of the ledger's tables and of its own tables show (`highest_recorded`, `Standing.highest`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from walreplay.errors import TargetError
from walreplay.lsn import format_lsn
from walreplay.sink.lineage import CommitId, Standing
from walreplay.spark.checks.standing import newest_number
from walreplay.spark.delta import statements as delta
from walreplay.spark.delta.storage import ledger_errors
from walreplay.spark.delta.target import TableName, Target
from walreplay.spark.ledger.keeping import HISTORY
from walreplay.spark.ledger.transactions import History
from walreplay.spark.planning.table_run import run_of
from walreplay.spark.session.isolation import session_with
from walreplay.transactions.plan import Plan
from walreplay.visible import listed

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

MAX_STATEMENTS: Final = 50


@dataclass(frozen=True, slots=True)
class Ahead:
    """A table that has more than its ledger knows.

    Attributes:
        known: the ledger knows the table; otherwise the run writes it from the beginning.
        shared: other sources write to it, too.
    """

    name: str
    table: TableName
    standing: Standing
    known: bool
    shared: bool = False

    @property
    def restore(self) -> str:
        """The statement that takes the table back to what the ledger knows."""
        return f"RESTORE TABLE {self.table.sql} TO VERSION AS OF {self.standing.left}"


def highest_recorded(spark: SparkSession, target: Target, ledger: str, at_once: int) -> int:
    """Return the number of the last run that wrote to one of the ledger's tables."""

    def highest(name: str) -> int:
        table = target.ledger(name)
        with ledger_errors(table.text):
            return newest_number(spark, table, f"{ledger}/{name}")

    with ThreadPoolExecutor(at_once) as pool:
        return max(pool.map(highest, HISTORY))


def check_ahead(ahead: Sequence[Ahead], plan: Plan, history: History) -> None:
    """Refuse tables that the ledger knows less of; one that it does not know at all needs no statement.

    Raises:
        TargetError: with the statements, if the captures hold all that the tables have.
    """
    _check_captures(ahead, plan, history)
    known = [one for one in ahead if one.known]
    if not known:
        return
    shared = [one for one in known if one.shared]
    if shared:
        raise TargetError(
            "the table is newer than the ledger, and it is shared with other sources: to set it back would take "
            "their rows away",
            table=shared[0].name,
            path=shared[0].table.text,
            remedy="Nothing was applied; bring back the ledger as it was, or apply to a new target",
        )
    raise TargetError(
        "the ledger was set back: "
        + ("the table is" if len(known) == 1 else f"{len(known)} tables are")
        + " newer, and the captures still hold what is to be applied again",
        table=listed([one.name for one in known]),
        path=known[0].table.text if len(known) == 1 else None,
        remedy=f"Nothing was applied. Bring back the ledger as it was; or run {_statements(known)}, and run again",
    )


def _statements(known: Sequence[Ahead]) -> str:
    text = "; ".join(one.restore for one in known[:MAX_STATEMENTS])
    more = len(known) - MAX_STATEMENTS
    return text if more <= 0 else f"{text} (the next run names the statements for the other {more})"


def _check_captures(ahead: Sequence[Ahead], plan: Plan, history: History) -> None:
    """Refuse tables that have transactions which the captures no longer hold."""
    counts: dict[int, int] = {plan.upto_lsn: plan.transactions}
    before = plan.resume.applied - plan.transactions
    for one in ahead:
        for commit in one.standing.ahead:
            if commit.run is None or not plan.after_lsn < commit.run.upto <= plan.upto_lsn:
                raise newer_error(one, commit, plan.after_lsn)
            upto = commit.run.upto
            if upto not in counts:
                counts[upto] = history.count(upto)
            if counts[upto] != commit.run.applied - before:
                raise newer_error(one, commit, plan.after_lsn)


def newer_error(one: Ahead, commit: CommitId, after_lsn: int) -> TargetError:
    """Return the error for a table with changes that the captures no longer hold."""
    upto = "" if commit.run is None else f" up to LSN {format_lsn(commit.run.upto)}"
    known = f"LSN {format_lsn(after_lsn)}" if after_lsn >= 0 else "nothing"
    late = commit.run is not None and commit.run.upto <= after_lsn
    if late and one.known:
        remedy = f"If a run that was taken over has written this late: {one.restore}. Else bring back "
        remedy += "the ledger as it was, or apply to a new target"
    else:
        remedy = "Bring back the captures that are missing, or the ledger as it was; or apply to a new target"
    return TargetError(
        f"the table is newer than the ledger: it has what run {run_of(commit.number)} has applied{upto}, the ledger "
        f"knows of {known}, and the captures do not hold what lies between",
        table=one.name,
        path=one.table.text,
        remedy=f"Nothing was applied. {remedy}",
    )


def forget_unknown(
    spark: SparkSession, target: Target, known: int, highest: int, check_lock: Callable[[], None]
) -> None:
    """Remove from the ledger's tables what runs have recorded that its state does not know.

    A process that does this late removes nothing else: whatever comes later has a higher number.

    Args:
        known: the last run that the ledger's state knows; ``highest`` is the last one that there was.
    """
    with session_with(spark, delta.FEW_ROWS) as own:
        for table in map(target.ledger, HISTORY):
            with ledger_errors(table.text):
                if delta.exists(own, table):
                    check_lock()
                    own.sql(f"DELETE FROM {table.sql} WHERE run > {known} AND run <= {highest}").collect()


__all__ = ["Ahead", "check_ahead", "forget_unknown", "highest_recorded", "newer_error"]
