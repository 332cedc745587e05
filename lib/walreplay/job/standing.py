"""A table compared with its ledger (`standing_of`): as a run has left it, changed by others, or ahead of the ledger.

A ledger that tables are ahead of was set back: it was restored from a backup or by RESTORE, or its newest commits are
lost.  If the captures still hold all that such tables have, nothing is lost by a RESTORE of each to the version that
the ledger knows: the next run applies it again.  So the run is refused, with the statements (`check_ahead`).

Delta skips a commit whose number the table has had, even if a RESTORE has undone that commit.  So a run's number is
above all that the logs of the ledger's tables and of its own tables show (`highest_recorded`, `Standing.highest`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, TypeAlias

from walreplay.delta import statements as delta
from walreplay.delta.commits import CommitId, LoggedCommit, Standing, follow
from walreplay.delta.local import DamagedLogError
from walreplay.delta.opened import OpenedTable
from walreplay.delta.target import TableName, ledger_errors
from walreplay.errors import LedgerConflict, TargetError, listed
from walreplay.job.context import RunContext
from walreplay.ledger.runs import APPENDED_TABLES
from walreplay.ledger.transactions import TransactionLog
from walreplay.lsn import format_lsn
from walreplay.session.isolation import has_own_sessions, session_with
from walreplay.stream.plan import Plan
from walreplay.table.registry import MirrorEntry, made_again
from walreplay.table.table_run import run_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_NEWEST: Final = 20  # commits, among which the newest of the ledger's own is looked for: upkeep may have followed it


@dataclass(frozen=True, slots=True)
class KnownTable:
    """What the ledger knows of a table, and of the run that checks it.

    Attributes:
        name: for people.
        ledger: the ledger's id.
        entry: None for a table that the ledger does not know.
        run: the id of the run, if it was interrupted and continues now.
        is_siblings: of a table that several sources share, whether another one has made a commit; None for any other.
    """

    table: TableName
    name: str
    ledger: str
    entry: MirrorEntry | None
    run: str | None = None
    is_siblings: Callable[[CommitId], bool] | None = None

    def restore(self, standing: Standing) -> str:
        """Return the statement that sets the table back to what the ledger knows."""
        return f"RESTORE TABLE {self.table.sql} TO VERSION AS OF {standing.left}"

    def refused(self, problem: str, lost: str = "the table as it was") -> TargetError:
        """Return an error after which nothing was applied; ``lost`` is what can be brought back."""
        remedy = f"Nothing was applied; bring back {lost}, or {made_again(self.entry)}"
        return TargetError(problem, table=self.name, path=self.table.text, remedy=remedy)

    def change_of(self, standing: Standing) -> tuple[str, str]:
        """Return what somebody else has done to the table, and what undoes it."""
        changed = standing.changed
        assert changed is not None
        again = "" if self.entry is None else f" {made_again(self.entry)};"
        return (
            "the table was changed by somebody else since the ledger's last run has left it: its version "
            f"{changed.version} is made by {changed.operation}",
            f"Set it back by {self.restore(standing)};{again} or go on from the rows that it has, by "
            "--accept-changed-tables",
        )

    def changed_error(self, standing: Standing) -> TargetError:
        """Return the error for a table that somebody else has changed."""
        problem, undone = self.change_of(standing)
        return TargetError(problem, table=self.name, path=self.table.text, remedy=f"Nothing was applied. {undone}")

    @contextmanager
    def damaged_log_errors(self) -> Iterator[None]:
        """Raise a `TargetError` if the table's log is damaged."""
        try:
            yield
        except DamagedLogError as error:
            raise self.refused(f"the table's log is damaged: {error}") from error


def standing_of(opened: OpenedTable, known_table: KnownTable) -> Standing | None:
    """Compare an existing table with the ledger; None if the ledger does not know its version.

    Raises:
        TargetError: it is not the table that the ledger knows, or was set back as a whole.
    """
    table, entry, run = known_table.table, known_table.entry, known_table.run
    if entry is not None and entry.left is None:
        return None
    left = -1 if entry is None or entry.left is None else entry.left
    with known_table.damaged_log_errors():
        newest, commits = opened.commits_since(left)
    if newest < left and run is not None and entry is not None and entry.table.place != table.place:
        # The interrupted run has copied the table to its new place: a copy's versions begin at 0.
        left, commits = -1, opened.commits_since(-1)[1]
    if newest < left:
        raise known_table.refused(
            f"the table's newest version is {newest}, and the ledger's last run has left version {left}: it was set "
            "back as a whole, or made anew by somebody else"
        )
    first = commits.pop(0) if entry is not None and commits and commits[0].version == left else None
    if first is not None and entry is not None and not _is_left_by(first, entry, strict=has_own_sessions(opened.spark)):
        if run is None:
            raise known_table.refused(
                f"the table is not the one that the ledger's last run has left there: its version {left} was made by "
                "something else. Either it was replaced, or the ledger is older than its tables, which were renamed or "
                "made anew since",
                "the table, or the ledger, as it was",
            )
        # A copy again, which has grown beyond the version that the original was left at.
        left, commits = -1, opened.commits_since(-1)[1]
    return follow(commits, ledger=known_table.ledger, left=left, run=run, is_siblings=known_table.is_siblings)


def _is_left_by(commit: LoggedCommit, entry: MirrorEntry, *, strict: bool) -> bool:
    """Return whether a commit is the one that the ledger's last run made.

    Args:
        strict: that run's commits are sure to have its id.
    """
    if commit.id is None:
        # An automatic OPTIMIZE may have followed the commit.
        return commit.keeps_rows or not strict
    return commit.id.run is not None and commit.id.run.id == entry.run and commit.id.oid == entry.oid


# A ledger that is older than its tables


def highest_recorded(context: RunContext) -> int:
    """Return the number of the last run that wrote to one of the ledger's tables."""

    def highest(name: str) -> int:
        table = context.target.ledger(name)
        with ledger_errors(table.text):
            return newest_number(context.session, table, f"{context.ledger.id}/{name}")

    return max(context.each(highest, APPENDED_TABLES))  # a run that was killed may have written only some of them


def refuse_older(context: RunContext, last_run: int, then: str, *, is_ahead: bool = False) -> None:
    """Refuse a ledger that is older than what it has recorded, or than its tables (``is_ahead``).

    Args:
        then: the command to run again.
    """
    if is_ahead or highest_recorded(context) > last_run:
        remedy = f"Bring back the ledger as it was, or run walreplay apply, and do what it says; then {then}"
        raise TargetError("the tables are newer than the ledger", path=context.target.text, remedy=remedy)


AheadTable: TypeAlias = tuple[KnownTable, Standing]

MAX_STATEMENTS: Final = 50


def check_ahead(ahead: Sequence[AheadTable], plan: Plan, transaction_log: TransactionLog) -> None:
    """Refuse tables that are ahead of the ledger; a table that the ledger does not know needs no statement.

    Raises:
        TargetError: with the statements, if the captures hold all that the tables have.
    """
    _check_captures(ahead, plan, transaction_log)
    tables = [(table, standing) for table, standing in ahead if table.entry is not None]
    if not tables:
        return
    known_tables = [table for table, _ in tables]
    # RESTORE would undo the others' commits.
    shared_tables = [table for table in known_tables if table.is_siblings is not None]
    if shared_tables:
        raise LedgerConflict(
            "the table is newer than the ledger, and it is shared with other sources: to set it back would take "
            "their rows away",
            table=shared_tables[0].name,
            path=shared_tables[0].table.text,
            remedy="Nothing was applied; bring back the ledger as it was, or apply to a new target",
        )
    raise LedgerConflict(
        "the ledger was set back: "
        + ("the table is" if len(known_tables) == 1 else f"{len(known_tables)} tables are")
        + " newer, and the captures still hold what is to be applied again",
        table=listed([table.name for table in known_tables]),
        path=known_tables[0].table.text if len(known_tables) == 1 else None,
        remedy=f"Nothing was applied. Bring back the ledger as it was; or run {_statements(tables)}, and run again",
    )


def _statements(tables: Sequence[AheadTable]) -> str:
    text = "; ".join(table.restore(standing) for table, standing in tables[:MAX_STATEMENTS])
    rest_count = len(tables) - MAX_STATEMENTS
    return text if rest_count <= 0 else f"{text} (the next run names the statements for the other {rest_count})"


def _check_captures(ahead: Sequence[AheadTable], plan: Plan, transaction_log: TransactionLog) -> None:
    """Refuse tables that have transactions which the captures no longer hold."""
    counts: dict[int, int] = {plan.upto_lsn: plan.transactions}  # transactions up to an LSN, from the plan's begin on
    applied_before = plan.resume.applied - plan.transactions
    for table, standing in ahead:
        for commit in standing.ahead:
            if commit.run is None or not plan.after_lsn < commit.run.upto <= plan.upto_lsn:
                raise newer_error(table, standing, commit, plan.after_lsn)
            upto = commit.run.upto
            if upto not in counts:
                counts[upto] = transaction_log.count(upto)
            if counts[upto] != commit.run.applied - applied_before:  # the captures have fewer, or others
                raise newer_error(table, standing, commit, plan.after_lsn)


def newer_error(table: KnownTable, standing: Standing, commit: CommitId, after_lsn: int) -> TargetError:
    """Return the error for a table with changes that the captures no longer hold."""
    upto = "" if commit.run is None else f" up to LSN {format_lsn(commit.run.upto)}"
    known_upto = f"LSN {format_lsn(after_lsn)}" if after_lsn >= 0 else "nothing"
    # Captures that are applied already are not read again, so the table cannot be set back and reach them.
    late = commit.run is not None and commit.run.upto <= after_lsn
    run = run_of(commit.number)
    problem = f"the table is newer than the ledger: it has what {f'run {run}' if run else 'a run'} has applied{upto}, "
    problem += f"the ledger knows of {known_upto}, and "
    if late and table.entry is not None:
        problem += "the table has that only since then"
        remedy = f"If a run that was taken over has written this late: {table.restore(standing)}. Else "
        remedy += "bring back the ledger as it was, or apply to a new target"
    else:
        problem += "the captures do not hold what lies between"
        remedy = "Bring back the captures that are missing, or the ledger as it was; or apply to a new target"
    return LedgerConflict(problem, table=table.name, path=table.table.text, remedy=f"Nothing was applied. {remedy}")


def forget_unknown(context: RunContext, last_known: int, highest: int) -> None:
    """Remove from the ledger's tables what runs have recorded that its state does not know.

    A process that does this late removes nothing else: whatever comes later has a higher number.

    Args:
        last_known: the last run that the ledger's state knows; ``highest`` is the last one that there was.
    """
    with session_with(context.session, delta.FEW_ROWS) as session:
        for table in map(context.target.ledger, APPENDED_TABLES):
            with ledger_errors(table.text):
                if delta.exists(session, table):
                    context.ledger.check_lock()  # whoever has lost the lock deletes nothing
                    session.sql(f"DELETE FROM {table.sql} WHERE run > {last_known} AND run <= {highest}").collect()


def newest_number(spark: SparkSession, table: TableName, application: str) -> int:
    """Return the number of an application's newest commit in a table of the ledger; 0 where there is none."""
    opened = OpenedTable(spark, table)
    is_there = opened.log is not None or opened.is_known
    ids = (commit.id for commit in (opened.newest_commits(_NEWEST) if is_there else ()))
    return next((id_.number for id_ in ids if id_ is not None and id_.application == application), 0)
