"""Check whether tables are as the ledger's last run left them, before anything is applied to them (`TableChecks`).

A change that this ledger has not made is refused, with the statement that undoes it.  A table that is ahead of its
ledger (`Standing.ahead`) is a case of its own: the ledger was set back, because it was restored from a backup or by
RESTORE, or its newest commits are lost.  Then tables have changes of runs that it does not know.  If the captures
still hold all of these, nothing is lost by a RESTORE of each such table to the version that the ledger knows: the next
run applies them again.  Such a ledger is refused, with the statements that put it right (`check_ahead`).

Delta skips a commit whose number the table has had, even if a RESTORE has undone that commit.  So a run's number is
above all that the logs of the ledger's tables and of its own tables show (`highest_recorded`, `Standing.highest`).

`check_unique` refuses loaded rows that share a key, before any table has them.  `rightness_of` compares a table with
one that is known to be right: if both are equal, the table is not touched.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Final

from pyspark.sql import functions as f
from pyspark.sql.types import ArrayType, DoubleType, FloatType, StructType

from walreplay.config.selection import Share
from walreplay.delta import statements as delta
from walreplay.delta.commits import CommitId, LoggedCommit, Standing, follow, others_change
from walreplay.delta.local import DamagedLogError, clear_leftovers, newest_version
from walreplay.delta.statements import sql_schema
from walreplay.delta.target import TableName, ledger_errors, opened_at, quote
from walreplay.errors import CaptureError, TargetError, WalReplayError, listed
from walreplay.fold.events import Mode
from walreplay.job.context import RunContext
from walreplay.job.source_check import check_shared
from walreplay.ledger.runs import HISTORY
from walreplay.ledger.state import State
from walreplay.ledger.transactions import History
from walreplay.lsn import format_lsn
from walreplay.names import RowKind, output_of, relation_of
from walreplay.report import TableReport
from walreplay.session.failures import failure_of, spark_errors
from walreplay.session.folders import MountedFolder
from walreplay.session.isolation import has_own_sessions, session_with
from walreplay.session.naming import jobs_named
from walreplay.session.reach import folder_of
from walreplay.spark.staging import Staging
from walreplay.spark.workers.load import COUNTED, count_keys
from walreplay.stream.plan import Plan
from walreplay.table.plan import RunPlan, TablePlan
from walreplay.table.registry import MirrorEntry, made_again
from walreplay.table.table_run import TableRun, run_of, table_schema

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession
    from pyspark.sql.types import StructField


_NEWEST: Final = 20  # commits, among which the newest of the ledger's own is looked for: upkeep may have followed it


@dataclass(frozen=True, slots=True)
class KnownTable:
    """What the ledger knows of a table, and of the run that checks it.

    Attributes:
        name: for people.
        ledger: the ledger's id.
        entry: None for a table that the ledger does not know.
        run: the id of the run, if it was interrupted and continues now.
        is_siblings: of a table that several sources share, whether another one has made a commit.
    """

    name: str
    ledger: str
    entry: MirrorEntry | None
    run: str | None = None
    is_siblings: Callable[[CommitId], bool] = lambda _: False


def standing_of(spark: SparkSession, table: TableName, known_table: KnownTable) -> Standing | None:
    """Compare an existing table with the ledger; None if the ledger does not know its version.

    Raises:
        TargetError: it is not the table that the ledger knows, or was set back as a whole.
    """
    entry = known_table.entry
    if entry is not None and entry.left is None:
        return None
    left = -1 if entry is None or entry.left is None else entry.left
    with damaged_log_errors(table, known_table.name, entry):
        newest, commits = delta.commits_since(spark, table, left)
    if newest < left and known_table.run is not None and entry is not None and entry.table.place != table.place:
        # The interrupted run has copied the table to its new place: a copy's versions begin at 0.
        left, commits = -1, delta.commits_since(spark, table, -1)[1]
    if newest < left:
        raise TargetError(
            f"the table's newest version is {newest}, and the ledger's last run has left version {left}: it was set "
            "back as a whole, or made anew by somebody else",
            table=known_table.name,
            path=table.text,
            remedy=f"Nothing was applied; bring the table back as it was, or {made_again(entry)}",
        )
    first = commits.pop(0) if entry is not None and commits and commits[0].version == left else None
    if first is not None and entry is not None and not _is_left_by(first, entry, strict=has_own_sessions(spark)):
        if known_table.run is None:
            raise _replaced_error(table, known_table)
        # A copy again, which has grown beyond the version that the original was left at.
        left, commits = -1, delta.commits_since(spark, table, -1)[1]
    return follow(
        commits, ledger=known_table.ledger, left=left, run=known_table.run, is_siblings=known_table.is_siblings
    )


@contextmanager
def damaged_log_errors(table: TableName, name: str, entry: MirrorEntry | None) -> Iterator[None]:
    """Raise a `TargetError` for a table whose log is damaged."""
    try:
        yield
    except DamagedLogError as error:
        raise TargetError(
            f"the table's log is damaged: {error}",
            table=name,
            path=table.text,
            remedy=f"Nothing was applied; bring the table back as it was, or {made_again(entry)}",
        ) from error


def changed_between(
    spark: SparkSession, table: TableName, known_table: KnownTable, checked: int, version: int
) -> LoggedCommit | None:
    """Return the first commit by somebody else between a table's check and a run's last commit, if it changed rows.

    Args:
        checked: the version that the check has seen; ``version`` is that of the run's last commit.
    """
    if version <= checked + 1:  # nothing lies between them
        return None
    commits = (commit for commit in delta.commits_since(spark, table, checked + 1)[1] if commit.version < version)
    return others_change(commits, ledger=known_table.ledger, is_siblings=known_table.is_siblings)


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


def changed_error(table: TableName, name: str, standing: Standing, entry: MirrorEntry | None) -> TargetError:
    """Return the error for a table that somebody else has changed, with what undoes it."""
    remedy = f"Nothing was applied. {_undo_remedy(table, standing, entry)}"
    return TargetError(_change_text(standing), table=name, path=table.text, remedy=remedy)


def change_warning(entry: MirrorEntry, standing: Standing) -> str:
    """Return the warning about such a change when the run has nothing to write to the table."""
    undone = _undo_remedy(entry.table, standing, entry)
    return f"{entry.name}: {_change_text(standing)}. The run that next has changes for it will refuse it. {undone}"


def _change_text(standing: Standing) -> str:
    changed = standing.changed
    assert changed is not None
    return (
        "the table was changed by somebody else since the ledger's last run has left it: its version "
        f"{changed.version} is made by {changed.operation}"
    )


def _undo_remedy(table: TableName, standing: Standing, entry: MirrorEntry | None) -> str:
    again = "" if entry is None else f" {made_again(entry)};"
    return (
        f"Set it back by RESTORE TABLE {table.sql} TO VERSION AS OF {standing.left};{again} or go on from the rows "
        "that it has, by --accept-changed-tables"
    )


def _replaced_error(table: TableName, known_table: KnownTable) -> TargetError:
    return TargetError(
        f"the table is not the one that the ledger's last run has left there: its version "
        f"{known_table.entry.left if known_table.entry else 0} was made by something else. Either it was replaced, or "
        "the ledger is older than its tables, which were renamed or made anew since",
        table=known_table.name,
        path=table.text,
        remedy="Nothing was applied; bring back the table, or the ledger, as it was; or "
        f"{made_again(known_table.entry)}",
    )


def _is_left_by(commit: LoggedCommit, entry: MirrorEntry, *, strict: bool) -> bool:
    """Return whether a commit is the one that the ledger's last run made.

    Args:
        strict: that run's commits are sure to have its id.
    """
    mark = CommitId.of_mark(commit.mark)
    if mark is None:
        # An automatic OPTIMIZE may have followed the commit.
        return commit.keeps_rows or not strict
    return mark.run is not None and mark.run.id == entry.run and mark.oid == entry.oid


# A ledger that is older than its tables

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


def check_ahead(ahead: Sequence[NewerTable], plan: Plan, transaction_log: History) -> None:
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


def _check_captures(ahead: Sequence[NewerTable], plan: Plan, transaction_log: History) -> None:
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


# The checks of a run's tables


@dataclass(frozen=True, slots=True)
class CheckedTable:
    """What the check of a table has found, before anything is applied to it.

    Attributes:
        exists: the table exists.
        standing: compared with the ledger; None if the ledger cannot tell, or if it is compared later.
    """

    exists: bool
    standing: Standing | None = None


def highest_of(checked: Iterable[CheckedTable]) -> int:
    """Return the highest number of a run in the logs of tables, whether its commits were undone or not."""
    return max((run_of(check.standing.highest) for check in checked if check.standing is not None), default=0)


def _gone_error(name: str, entry: MirrorEntry) -> TargetError:
    return TargetError(
        "the table is gone, though the ledger has written to it: it was removed, or it was renamed by a run that the "
        "ledger does not know of any more",
        table=name,
        path=entry.table.text,
        remedy=f"Nothing was applied; bring back what is gone, or the ledger as it was; or {made_again(entry)}",
    )


def _is_gone(spark: SparkSession, run: TableRun) -> bool:
    """Return whether a table is gone that earlier runs have written to, and that a rebuild can make again."""
    before = run.plan.before
    is_known = before is not None and before.left is not None and run.plan.metadata.share is None
    return is_known and not delta.exists(spark, run.plan.table)


def _foreign_table_error(spark: SparkSession, plan: TablePlan, ledger: TableName) -> TargetError:
    problem = "the table is there already, but was not made by this target's ledger"
    remedy = "move the table away, or apply to another target"
    if delta.made_by(spark, plan.table):  # its commits have the id of another ledger
        problem = f"the table was made by a ledger which is gone: {ledger.text} is not there, or is that of a newer one"
        remedy = "put a backup of the ledger there; or apply all captures to a new target, and load what was loaded"
    return TargetError(problem, table=plan.name, path=plan.table.text, remedy=f"Nothing was applied; {remedy}")


def _check_columns(spark: SparkSession, plan: TablePlan, present_schema: StructType) -> None:
    """Refuse a table whose columns are not those that the last run left."""
    assert plan.before is not None
    schema = spark.createDataFrame([], sql_schema(table_schema(plan.before.shape, plan.metadata))).schema
    expected_columns, present_columns = (
        [(item.name, item.dataType.simpleString()) for item in columns.fields] for columns in (schema, present_schema)
    )
    if present_columns == expected_columns:
        return
    present, expected = dict(present_columns), dict(expected_columns)
    before = plan.before
    restore = f" (RESTORE TABLE {before.table.sql} TO VERSION AS OF {before.left})" if before.left is not None else ""
    differing = [name for name in [*expected, *present] if present.get(name) != expected.get(name)]
    raise TargetError(
        "the table's columns are not those that its last run has left"
        + (f" ({', '.join(dict.fromkeys(differing))})" if differing else ", in their order"),
        table=plan.name,
        path=plan.before.table.text,
        remedy=f"A mirror must have no other writer; undo the change{restore}; or {made_again(before)}. So it is made "
        "as well with other names of metadata columns, or with soft deletes",
    )


@dataclass(frozen=True, slots=True)
class TableChecks:
    """The checks of a run's tables; ``accepts``: changes by others are accepted as they are."""

    context: RunContext
    accepts: bool

    def check(self, tables: RunPlan, before: State | None, *, resumed: bool) -> list[CheckedTable]:
        """Return which tables exist, and refuse those that are not as the ledger (``before``) left them."""
        last_run = before.run if before is not None else 0
        moving = {place for move in tables.placement.moves for place in (move.source, move.destination)}

        def look(table: TablePlan) -> CheckedTable:
            with (
                spark_errors(table=table.name, path=(table.before or table).table.text),
                jobs_named(self.context.session, f"check {table.name}"),
            ):
                place = folder_of(self.context.session, (table.before or table).table.path)
                if isinstance(place, MountedFolder):
                    # As a crash of the machine leaves them; Spark and delta-rs refuse them in different ways.
                    clear_leftovers(place, checksums_only=True)
                return self._check(table, last_run, resumed=resumed, moves_in=table.table in moving)

        checked = self.context.each(look, tables.tables)
        for table, check in zip(tables.tables, checked, strict=True):
            self._warn_of_change(table, check.standing)
        return checked

    def _facts(self, name: str, entry: MirrorEntry | None, share: Share | None, run: str | None = None) -> KnownTable:
        return KnownTable(name, self.context.ledger.id, entry, run, self.context.sibling_ledgers.makers_of(share))

    def _facts_of(self, plan: TablePlan, run: str | None = None) -> KnownTable:
        return self._facts(plan.name, plan.before, plan.metadata.share, run)

    def _check(self, plan: TablePlan, last_run: int, *, resumed: bool, moves_in: bool) -> CheckedTable:
        """Return whether a table exists and how it compares with the ledger, before anything is applied.

        Args:
            last_run: the last run that the ledger knows.
            resumed: the run may have written to the table already: it is compared once it is in its place.
            moves_in: the table comes from another place, or the table at its place will leave.

        Raises:
            TargetError: it exists, but belongs to somebody else or was changed by somebody else.
        """
        table = plan.before.table if plan.before is not None and not resumed else plan.table
        if moves_in and (resumed or plan.before is None):
            # Its present place depends on how far the moves have come.
            return CheckedTable(plan.before is not None)
        with (
            session_with(self.context.session, delta.SMALL_STATE) as session,
            damaged_log_errors(table, plan.name, plan.before),
        ):
            schema = delta.schema_of(session, table)
            if schema is None:
                if plan.before is not None and not resumed:
                    raise _gone_error(plan.name, plan.before)
                return CheckedTable(False)
            if resumed:
                return CheckedTable(True)
            shared = plan.metadata.share is not None
            standing = standing_of(session, table, self._facts_of(plan))
            if plan.before is None:
                if standing is not None and shared:
                    # The source may have had rows of another relation in it, which are gone.
                    ahead = tuple(commit for commit in standing.ahead if run_of(commit.number) > last_run)
                    standing = replace(standing, ahead=ahead)
                # This ledger may have made it for the relation, although it does not know the table.
                ahead = () if standing is None or standing.changed is not None else standing.ahead
                is_made = standing is not None and standing.changed is None and (shared or bool(ahead))
                if not is_made or any(commit.oid != plan.oid for commit in ahead):
                    raise _foreign_table_error(session, plan, self.context.target.ledger("state"))
                if shared:
                    check_shared(plan, schema, self.context.sibling_ledgers, delta.made_by(session, table))
                return CheckedTable(True, standing)
            if standing is not None and standing.changed is not None and not (standing.ahead or self.accepts):
                raise changed_error(table, plan.name, standing, plan.before)
            if shared:
                check_shared(plan, schema, self.context.sibling_ledgers, ())
            elif standing is None or not standing.ahead:
                _check_columns(session, plan, schema)
        return CheckedTable(True, standing)

    def _check_begun(self, run: TableRun, run_id: str) -> Standing | None:
        """Compare a table with the ledger when an interrupted run continues; None if it does not exist yet.

        Args:
            run_id: of that run.

        Raises:
            TargetError: somebody else has changed it meanwhile.
        """
        plan = run.plan
        with session_with(self.context.session, delta.SMALL_STATE) as session:
            if not delta.exists(session, plan.table):
                return None
            standing = standing_of(session, plan.table, self._facts_of(plan, run_id))
            if standing is None or standing.changed is None or self.accepts:  # None: the ledger cannot tell
                return standing
            if plan.before is None and not standing.steps:
                raise _foreign_table_error(session, plan, self.context.target.ledger("state"))
        raise changed_error(plan.table, plan.name, standing, plan.before)

    def check_again(self, runs: Sequence[TableRun], plan: Plan) -> list[TableRun]:
        """Compare the tables of an interrupted run with the ledger, and refuse those that others have changed.

        A table that is gone is left out: with the run's changes alone it would look like a whole one.

        Raises:
            TargetError: naming one.
        """

        def look(run: TableRun) -> TableRun | None:
            if _is_gone(self.context.session, run):
                return None
            with spark_errors(table=run.plan.name, path=run.plan.table.text):
                standing = self._check_begun(run, plan.id)
            checked = replace(run, standing=standing, checked=None if standing is None else standing.latest)
            if standing is not None and standing.ahead and run.plan.before is not None and not checked.is_done:
                newer = NewerTable(run.plan.name, run.plan.table, standing, is_known=True)
                raise newer_error(newer, standing.ahead[0], plan.upto_lsn)
            return checked

        looked = self.context.each(look, runs)
        checked = [run for run in looked if run is not None]
        for run in checked:
            self._warn_of_change(run.plan, run.standing)
        for run, looked_run in zip(runs, looked, strict=True):
            if looked_run is None:
                self.context.warnings.append(
                    f"{run.plan.name}: the table is gone, so the run was finished without it; "
                    f"{made_again(run.plan.before)}"
                )
        return checked

    def look_at_others(
        self, entries: Sequence[MirrorEntry], written: Collection[int], *, thoroughly: bool = False
    ) -> list[NewerTable]:
        """Check the tables that a run does not write to, and warn of changes; return those ahead of the ledger.

        Args:
            written: the oids of the tables that are checked otherwise.
            thoroughly: also where Spark has to be asked for a table's history.
        """
        others = [entry for entry in entries if not entry.set_aside and entry.oid not in written]
        standings = self.context.each(lambda entry: self._changed_standing(entry, thoroughly=thoroughly), others)
        ahead: list[NewerTable] = []
        for entry, standing in zip(others, standings, strict=True):
            if isinstance(standing, TargetError):
                self.context.warnings.append(f"{entry.name}: {standing.problem}")
            elif standing is not None and standing.ahead:
                is_shared = entry.share is not None
                ahead.append(NewerTable(entry.name, entry.table, standing, is_known=True, shared=is_shared))
            elif standing is not None and standing.changed is not None and not self.accepts:
                self.context.warnings.append(change_warning(entry, standing))
        return ahead

    def _changed_standing(self, entry: MirrorEntry, *, thoroughly: bool) -> Standing | TargetError | None:
        """Compare a table that is not at the version that was left; None for all others.

        Returns:
            an error for a table that is gone, or is not the one that the ledger knows.
        """
        folder = folder_of(self.context.session, entry.table.path)
        newest = None if folder is None else newest_version(folder)
        # The newest version alone, without the log, shows that nothing has happened.
        if entry.left is None or newest == entry.left or (newest is None and not thoroughly):
            return None
        if newest == -1:  # the folder has no log
            problem = f"the table is gone, and nothing was written to it; bring it back, or {made_again(entry)}"
            return TargetError(problem, table=entry.name, path=entry.table.text)
        with session_with(self.context.session, delta.SMALL_STATE) as session:
            if folder is None and not delta.exists(session, entry.table):
                return None
            try:
                return standing_of(session, entry.table, self._facts(entry.name, entry, entry.share))
            except TargetError as error:
                return error

    def look_back(self, runs: Sequence[TableRun], reports: Iterable[TableReport]) -> None:
        """Warn of tables that somebody else has changed between their check and the run's commit.

        Such a change goes together with the commit, as Delta sees it, and the next run looks no further back.
        """
        versions = {report.oid: report.version for report in reports}

        def look(run: TableRun) -> LoggedCommit | None:
            version = versions.get(run.plan.oid)
            if run.checked is None or version is None:  # not compared, or not written to
                return None
            return changed_between(self.context.session, run.plan.table, self._facts_of(run.plan), run.checked, version)

        for run, changed in zip(runs, self.context.each(look, runs), strict=True):
            if changed is not None:
                self.context.changed.add(run.plan.oid)
                self.context.warnings.append(
                    f"{run.plan.name}: somebody else has changed it while the run was at work (version "
                    f"{changed.version}, {changed.operation}): its rows may not be the source's; "
                    f"{made_again(run.plan.before)}"
                )

    def _warn_of_change(self, table: TablePlan, standing: Standing | None) -> None:
        changed = None if standing is None else standing.changed or standing.passed
        if changed is not None:
            self.context.changed.add(table.oid)
            self.context.warnings.append(
                f"{table.name}: somebody else has changed it (version {changed.version}, {changed.operation}); its "
                "rows are taken as they are"
            )

    def next_number(
        self,
        plan: Plan,
        tables: RunPlan,
        checked: list[CheckedTable],
        before: State | None,
        transaction_log: History,
    ) -> int:
        """Return the run's number; refuse a ledger that was set back while tables are ahead of it.

        Once none is, the ledger forgets what runs have recorded that its state does not know.
        """
        last_run = before.run if before is not None else 0
        recorded = highest_recorded(self.context)  # above the state's, if the ledger was set back
        ahead = [
            NewerTable(
                table.name,
                (table.before or table).table,
                check.standing,
                is_known=table.before is not None,
                shared=table.metadata.share is not None,
            )
            for table, check in zip(tables.tables, checked, strict=True)
            if check.standing is not None and check.standing.ahead
        ]
        if before is not None:
            written = [(table.before or table).oid for table in tables.tables]
            ahead += self.look_at_others(before.tables, written, thoroughly=bool(ahead) or recorded > last_run)
        check_ahead(ahead, plan, transaction_log)
        highest = max(recorded, highest_of(checked))
        if highest > last_run:
            forget_unknown(self.context, last_run, highest)
            self.context.warnings.append(
                f"the ledger was set back: it knows of {f'run {last_run}' if last_run else 'no run'}, and there were "
                f"runs up to {highest}; what these have applied is applied again"
            )
        return max(last_run, highest) + 1  # Delta skips numbers that a table has had, even if a RESTORE has undone them


def check_unique(spark: SparkSession, staging: Staging, runs: Iterable[TableRun]) -> None:
    """Refuse rows that come twice.

    Raises:
        CaptureError: naming the table, and how many there are.
    """
    runs = list(runs)
    mirrors = {run.plan.oid for run in runs}
    for run in runs:
        if relation_of(run.plan.oid) in mirrors - {run.plan.oid}:
            # It gets the same rows.
            continue
        (epoch,) = run.plan.epochs  # a load is one version of the relation
        if epoch.identity.mode is not Mode.KEYED or not epoch.rows:  # rows without a key may be equal
            continue
        task = run.fold_task(epoch)
        rows = run.events(spark, staging, epoch, task)
        counts = rows.mapInArrow(partial(count_keys, task=task), sql_schema(COUNTED)).collect()
        twice = epoch.rows - sum(row.keys for row in counts)
        if twice:
            raise CaptureError(
                f"{twice:,} of the {epoch.rows:,} rows have a key that another one has, too",
                table=run.plan.name,
                remedy="Nothing was loaded. Perhaps a file is there twice; or the rows were not all read in one "
                "snapshot; or the key in the configuration is none",
            )


# Comparison with a table that is right

_SEEDS: Final = (1, 2)


@dataclass(frozen=True, slots=True)
class Rightness:
    """What the comparison of two tables has found.

    Attributes:
        why: what of the table is not right; empty if all is.
        rows: how many the right table has.
    """

    why: str
    rows: int


def rightness_of(
    spark: SparkSession, ledger: str, entry: MirrorEntry | None, right: MirrorEntry, commit_columns: tuple[str, ...]
) -> Rightness:
    """Compare a table with one that has the rows, the columns and the names that it should have.

    Args:
        spark: a session that only the caller uses.
        ledger: the ledger's id.
        entry: what the ledger knows of the table; None for none.
        right: the ledger's entry of the other table.
        commit_columns: of a mirror, the columns that say by which commit a row was written last: where nothing
            identifies equal rows, they depend on where runs have ended.
    """
    rows = delta.read(spark, right.table)
    left_out = commit_columns if output_of(right.oid).rows is RowKind.CURRENT else ()
    sums = _sums(rows.drop(*left_out))
    why = "it is new" if entry is None else _difference(spark, ledger, entry, right, rows, sums, left_out)
    return Rightness(why, sums[0])


def _difference(
    spark: SparkSession,
    ledger: str,
    entry: MirrorEntry,
    right: MirrorEntry,
    rows: DataFrame,
    right_sums: tuple[int, ...],
    left_out: tuple[str, ...],
) -> str:
    if entry.paused:
        return "it lacks what changed while it was switched off"
    shapes = [[(c.source, c.name, c.type, c.dropped) for c in compared.shape.columns] for compared in (entry, right)]
    if shapes[0] != shapes[1]:
        return "its columns are others"
    try:
        if not delta.exists(spark, entry.table):
            return "it is gone"
        standing = standing_of(spark, entry.table, KnownTable(entry.name, ledger, entry))
        if standing is None or not standing.is_sound:  # not as a run has left it
            return "somebody else has changed it"
        present_rows = delta.read(spark, entry.table)
        if _declared(present_rows.schema) != _declared(rows.schema):
            return "its columns were changed"
        return "" if _sums(present_rows.drop(*left_out)) == right_sums else "its rows are others"
    except TargetError as error:
        return error.problem
    except WalReplayError:
        raise
    except Exception:
        # Whatever Spark has met there: the table is made again.
        return "it cannot be read"


def check_readable(spark: SparkSession, entry: MirrorEntry) -> None:
    """Refuse a table whose log is damaged, before anything is put in its place.

    Raises:
        TargetError: it cannot be opened, so nothing can be committed to it.
    """
    try:
        opened_at(spark, entry.table)
        if delta.exists(spark, entry.table):
            # A commit depends on the whole log: `inputFiles` has Spark read all of it.
            delta.read(spark, entry.table).inputFiles()
    except Exception as error:
        failure = None if isinstance(error, DamagedLogError) else failure_of(error)
        if failure is None and not isinstance(error, DamagedLogError):
            raise
        raise TargetError(
            f"nothing can be committed to the table, as its log is damaged: {failure.problem if failure else error}",
            table=entry.name,
            path=(failure.path if failure else None) or entry.table.text,
            remedy=f"Move {entry.table.text} away, and run walreplay rebuild again: it is made anew",
        ) from None


def _declared(schema: StructType) -> list[tuple[str, str]]:
    return [(field.name, field.dataType.simpleString()) for field in schema.fields]


def _sums(rows: DataFrame) -> tuple[int, ...]:
    """Return how many rows there are, and sums over hashes of them, in whatever order they lie."""
    parts = [part for field in rows.schema.fields for part in _hashed(field)]
    # A sum of 64-bit hashes overflows a bigint; two seeds make equal sums of unequal rows improbable.
    hashes = (f.sum(f.xxhash64(f.lit(seed), *parts).cast("decimal(20,0)")) for seed in _SEEDS)
    (row,) = rows.agg(f.count(f.lit(1)), *hashes).collect()
    return tuple(int(value or 0) for value in row)


def _hashed(field: StructField) -> list[Column]:
    """Return what of a column is hashed: NULL leaves a hash as it is, and 0.0 is like -0.0."""
    column = f.col(quote(field.name))
    if isinstance(field.dataType, (ArrayType, StructType)):
        column = f.to_json(f.struct(column), {"ignoreNullFields": "false"})
    elif isinstance(field.dataType, (FloatType, DoubleType)):
        column = column.cast("string")  # xxhash64 normalizes -0.0
    return [column, column.isNull()]
