"""A ledger that is older than its tables: it was restored from a backup or by RESTORE, or its newest commits are lost.

Tables have changes of runs that it does not know then (`Standing.ahead`).  If the captures still hold all of these,
nothing is lost by a RESTORE of each such table to the version that the ledger knows: the next run applies them again.
Such a ledger is refused, with the statements that put it right (`check_ahead`).

Delta skips a commit whose number the table has had, even if a RESTORE has undone that commit.  So a run's number is
above all that the logs of the ledger's tables and of its own tables show (`highest_recorded`, `Standing.highest`).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from walreplay.delta import statements as delta
from walreplay.delta.commits import CommitId, LoggedCommit, Standing
from walreplay.delta.target import TableName, ledger_errors, opened_at
from walreplay.errors import TargetError, listed
from walreplay.job.context import RunContext
from walreplay.ledger.runs import HISTORY
from walreplay.ledger.transactions import TransactionLog
from walreplay.lsn import format_lsn
from walreplay.session.isolation import session_with
from walreplay.stream.plan import Plan
from walreplay.table.table_run import run_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_NEWEST: Final = 20  # commits, among which the newest of the ledger's own is looked for: upkeep may have followed it

MAX_STATEMENTS: Final = 50


@dataclass(frozen=True, slots=True)
class NewerTable:
    """A table that has more than its ledger knows.

    Attributes:
        is_known: the ledger knows the table; otherwise the run writes it from the beginning.
        shared: other sources write to it, too.
    """

    name: str
    table: TableName
    standing: Standing
    is_known: bool
    shared: bool = False

    @property
    def restore(self) -> str:
        """The statement that sets the table back to what the ledger knows."""
        return f"RESTORE TABLE {self.table.sql} TO VERSION AS OF {self.standing.left}"


def highest_recorded(context: RunContext) -> int:
    """Return the number of the last run that wrote to one of the ledger's tables."""

    def highest(name: str) -> int:
        table = context.target.ledger(name)
        with ledger_errors(table.text):
            return newest_number(context.session, table, f"{context.ledger.id}/{name}")

    return max(context.each(highest, HISTORY))  # a run that was killed may have written only some of them


def refuse_older(context: RunContext, last_run: int, then: str, *, is_ahead: bool = False) -> None:
    """Refuse a ledger that is older than what it has recorded, or than its tables (``is_ahead``).

    Args:
        then: the command to run again.
    """
    if is_ahead or highest_recorded(context) > last_run:
        remedy = f"Bring back the ledger as it was, or run walreplay apply, and do what it says; then {then}"
        raise TargetError("the ledger is older than its tables", path=context.target.text, remedy=remedy)


def check_ahead(ahead: Sequence[NewerTable], plan: Plan, transaction_log: TransactionLog) -> None:
    """Refuse tables that are ahead of the ledger; a table that the ledger does not know needs no statement.

    Raises:
        TargetError: with the statements, if the captures hold all that the tables have.
    """
    _check_captures(ahead, plan, transaction_log)
    known_tables = [table for table in ahead if table.is_known]
    if not known_tables:
        return
    shared_tables = [table for table in known_tables if table.shared]  # RESTORE undoes the others' commits
    if shared_tables:
        raise TargetError(
            "the table is newer than the ledger, and it is shared with other sources: to set it back would take "
            "their rows away",
            table=shared_tables[0].name,
            path=shared_tables[0].table.text,
            remedy="Nothing was applied; bring back the ledger as it was, or apply to a new target",
        )
    raise TargetError(
        "the ledger was set back: "
        + ("the table is" if len(known_tables) == 1 else f"{len(known_tables)} tables are")
        + " newer, and the captures still hold what is to be applied again",
        table=listed([table.name for table in known_tables]),
        path=known_tables[0].table.text if len(known_tables) == 1 else None,
        remedy=f"Nothing was applied. Bring back the ledger as it was; or run {_statements(known_tables)}, and run "
        "again",
    )


def _statements(tables: Sequence[NewerTable]) -> str:
    text = "; ".join(table.restore for table in tables[:MAX_STATEMENTS])
    rest_count = len(tables) - MAX_STATEMENTS
    return text if rest_count <= 0 else f"{text} (the next run names the statements for the other {rest_count})"


def _check_captures(ahead: Sequence[NewerTable], plan: Plan, transaction_log: TransactionLog) -> None:
    """Refuse tables that have transactions which the captures no longer hold."""
    counts: dict[int, int] = {plan.upto_lsn: plan.transactions}  # transactions up to an LSN, from the plan's begin on
    applied_before = plan.resume.applied - plan.transactions
    for table in ahead:
        for commit in table.standing.ahead:
            if commit.run is None or not plan.after_lsn < commit.run.upto <= plan.upto_lsn:
                raise newer_error(table, commit, plan.after_lsn)
            upto = commit.run.upto
            if upto not in counts:
                counts[upto] = transaction_log.count(upto)
            if counts[upto] != commit.run.applied - applied_before:  # the captures have fewer, or others
                raise newer_error(table, commit, plan.after_lsn)


def newer_error(table: NewerTable, commit: CommitId, after_lsn: int) -> TargetError:
    """Return the error for a table with changes that the captures no longer hold."""
    upto = "" if commit.run is None else f" up to LSN {format_lsn(commit.run.upto)}"
    known_upto = f"LSN {format_lsn(after_lsn)}" if after_lsn >= 0 else "nothing"
    # Captures that are applied already are not read again, so the table cannot be set back and reach them.
    late = commit.run is not None and commit.run.upto <= after_lsn
    run = run_of(commit.number)
    problem = f"the table is newer than the ledger: it has what {f'run {run}' if run else 'a run'} has applied{upto}, "
    problem += f"the ledger knows of {known_upto}, and "
    if late and table.is_known:
        problem += "the table has that only since then"
        remedy = f"If a run that was taken over has written this late: {table.restore}. Else bring back "
        remedy += "the ledger as it was, or apply to a new target"
    else:
        problem += "the captures do not hold what lies between"
        remedy = "Bring back the captures that are missing, or the ledger as it was; or apply to a new target"
    return TargetError(
        problem,
        table=table.name,
        path=table.table.text,
        remedy=f"Nothing was applied. {remedy}",
    )


def forget_unknown(context: RunContext, last_known: int, highest: int) -> None:
    """Remove from the ledger's tables what runs have recorded that its state does not know.

    A process that does this late removes nothing else: whatever comes later has a higher number.

    Args:
        last_known: the last run that the ledger's state knows; ``highest`` is the last one that there was.
    """
    with session_with(context.session, delta.FEW_ROWS) as session:
        for table in map(context.target.ledger, HISTORY):
            with ledger_errors(table.text):
                if delta.exists(session, table):
                    context.ledger.check_lock()  # whoever has lost the lock deletes nothing
                    session.sql(f"DELETE FROM {table.sql} WHERE run > {last_known} AND run <= {highest}").collect()


def newest_number(spark: SparkSession, table: TableName, application: str) -> int:
    """Return the number of an application's newest commit in a table of the ledger; 0 where there is none."""
    opened = opened_at(spark, table)  # by delta-rs; None: Spark alone reaches the table
    commits: Iterable[LoggedCommit]
    if opened is not None:
        commits = opened.history(_NEWEST)
    elif delta.is_known(spark, table):
        commits = delta.logged(spark, table, _NEWEST)
    else:
        return 0
    marks = (CommitId.of_mark(commit.mark) for commit in commits)
    return next((mark.number for mark in marks if mark is not None and mark.application == application), 0)
