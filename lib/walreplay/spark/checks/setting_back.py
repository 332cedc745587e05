"""Continue from a ledger that is older than its tables: restore the tables to what it knows, and apply the rest again.

A ledger is set back when it is restored from a backup or by RESTORE, or when its newest commits are lost.  Its tables
then have changes of runs that it does not know of.  If the captures still hold all of these, nothing is lost: each such
table is restored to the version that the ledger knows (RESTORE, a commit like any other), and the run applies the rest
again.  The run's number is one that was never given out.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from walreplay.errors import TargetError
from walreplay.lsn import format_lsn
from walreplay.sink.lineage import CommitId, RunId, Standing
from walreplay.spark.checks.standing import newest_number
from walreplay.spark.delta import statements as delta
from walreplay.spark.delta.storage import ledger_errors
from walreplay.spark.delta.target import TableName, Target
from walreplay.spark.ledger.keeping import HISTORY
from walreplay.spark.ledger.transactions import History
from walreplay.spark.planning.table_run import run_of, step_of
from walreplay.spark.session.isolation import session_with, settings
from walreplay.transactions.plan import Plan
from walreplay.visible import listed

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_ANY_AGE: Final = {
    # A version may be older than the files that VACUUM leaves.  Whether they are there, a RESTORE looks by itself.
    "spark.databricks.delta.vacuum.enforceTimeTravelWithinDeletedFileRetentionDuration": "false",
}


@dataclass(frozen=True, slots=True)
class Ahead:
    """A table that has more than its ledger knows.

    Attributes:
        oid: the relation's.
        known: the ledger knows the table; otherwise it is written from the beginning.
        shared: other sources write to it, too.
    """

    name: str
    table: TableName
    oid: int
    standing: Standing
    known: bool
    shared: bool = False


def highest_runs(spark: SparkSession, target: Target, ledger: str, at_once: int) -> dict[str, int]:
    """Give the number of the last run that wrote to each of the ledger's tables."""

    def highest(name: str) -> tuple[str, int]:
        table = target.ledger(name)
        with ledger_errors(table.text):
            return name, newest_number(spark, table, f"{ledger}/{name}")

    with ThreadPoolExecutor(at_once) as pool:
        return dict(pool.map(highest, HISTORY))


def highest_of(recorded: Mapping[str, int], ahead: Iterable[Ahead]) -> int:
    """Give the highest run number that was ever given out, as far as that is known."""
    numbers = [run_of(commit) for one in ahead for commit in one.standing.ahead]
    return max([*recorded.values(), *numbers], default=0)


def check_bytes(ahead: Sequence[Ahead], plan: Plan, history: History) -> None:
    """Make sure that the captures hold everything that tables have and the ledger does not know of.

    Raises:
        TargetError: they do not.
    """
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
    """Give the error for a table with changes that the captures no longer hold."""
    upto = "" if commit.run is None else f" up to LSN {format_lsn(commit.run.upto)}"
    known = f"LSN {format_lsn(after_lsn)}" if after_lsn >= 0 else "nothing"
    restore = f"RESTORE TABLE {one.table.sql} TO VERSION AS OF {one.standing.left}"
    late = commit.run is not None and commit.run.upto <= after_lsn
    if late and one.known:
        remedy = f"Nothing was applied. If a run that was taken over has written this late: {restore}. Else bring back "
        remedy += "the ledger as it was, or apply to a new target"
    else:
        remedy = "Nothing was applied; bring back the captures that are missing, or the ledger as it was; or apply to "
        remedy += "a new target"
    return TargetError(
        f"the table is newer than the ledger: it has what run {run_of(commit)} has applied{upto}, the ledger knows of "
        f"{known}, and the captures do not hold what lies between",
        table=one.name,
        path=one.table.text,
        remedy=remedy,
    )


def restore_tables(
    spark: SparkSession,
    ahead: Sequence[Ahead],
    commit: CommitId,
    check_lock: Callable[[], None],
) -> None:
    """Restore tables to the versions that the ledger knows; a run that is killed in between does it again.

    Args:
        commit: the run's.

    Raises:
        TargetError: a version no longer exists.
    """
    for one in ahead:
        if not one.known:
            # It is written from the beginning, in the run's own commit.
            continue
        mark = CommitId(commit.application, step_of(commit, 0).number, commit.run, one.oid).mark
        statement = f"RESTORE TABLE {one.table.sql} TO VERSION AS OF {one.standing.left}"
        with session_with(spark, delta.SMALL_STATE) as own, settings(own, {**_ANY_AGE, delta.USER_METADATA: mark}):
            check_lock()
            try:
                own.sql(statement).collect()
            except Exception as error:
                if delta.is_conflict(error):
                    raise
                raise TargetError(
                    f"the table is newer than the ledger, and cannot be set back to version {one.standing.left}, which "
                    "the ledger knows: that is gone, or VACUUM has removed its files",
                    table=one.name,
                    path=one.table.text,
                    remedy="Bring back the ledger as it was, or apply to a new target",
                ) from error


def clear_runs(
    spark: SparkSession,
    target: Target,
    ledger: str,
    recorded: Mapping[str, int],
    known: int,
    highest: int,
    check_lock: Callable[[], None],
) -> None:
    """Remove from the ledger's tables the records of runs that are done again.

    Args:
        recorded: see `highest_runs`.
        known: the last run that the ledger's state knows; ``highest`` is the last one that there was.
    """
    for name, number in recorded.items():
        if number <= known:
            continue
        commit = CommitId(f"{ledger}/{name}", highest)
        with session_with(spark, delta.FEW_ROWS) as own, delta.marking(own, commit) as marking:
            check_lock()
            # None but these runs: whatever comes later has a higher number.
            rows = f"run > {known} AND run <= {highest}{marking.also('run')}"
            own.sql(f"DELETE FROM {target.ledger(name).sql} WHERE {rows}").collect()


def restored_warning(ahead: Sequence[Ahead], known: int, highest: int) -> str:
    """Describe for people what was done."""
    runs = f"run {known}" if known else "no run"
    text = f"the ledger was set back: it knows of {runs}, and there were runs up to {highest}"
    if not ahead:
        return f"{text}; what these have recorded is recorded again"
    names = listed(sorted({one.name for one in ahead}))
    return f"{text}; what these have applied is undone in {names}, and applied again"


__all__ = [
    "Ahead",
    "RunId",
    "check_bytes",
    "clear_runs",
    "highest_of",
    "highest_runs",
    "newer_error",
    "restore_tables",
    "restored_warning",
]
