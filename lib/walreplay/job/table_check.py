"""Check whether tables are as the ledger's last run left them, before anything is applied to them (`TableChecks`).

A change that this ledger has not made is refused, with the statement that undoes it.  A table that is ahead of its
ledger is a case of its own (`walreplay.job.standing`).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, replace

from pyspark.sql.types import StructType

from walreplay.delta import statements as delta
from walreplay.delta.commits import LoggedCommit, Standing, others_change
from walreplay.delta.local import clear_leftovers, newest_version
from walreplay.delta.opened import OpenedTable
from walreplay.delta.statements import spark_schema
from walreplay.delta.target import TableName
from walreplay.errors import LedgerConflict, TargetError
from walreplay.job.context import RunContext
from walreplay.job.holding import Holding
from walreplay.job.source_check import check_shared
from walreplay.job.standing import (
    AheadTable,
    KnownTable,
    check_ahead,
    forget_unknown,
    highest_recorded,
    newer_error,
    standing_of,
)
from walreplay.ledger.state import State
from walreplay.ledger.transactions import TransactionLog
from walreplay.report import TableReport
from walreplay.session.failures import spark_errors
from walreplay.session.folders import MountedFolder
from walreplay.session.isolation import session_with
from walreplay.session.naming import jobs_named
from walreplay.session.reach import folder_of
from walreplay.stream.plan import Plan
from walreplay.table.plan import TablePlan, TablesPlan
from walreplay.table.registry import MirrorEntry, made_again
from walreplay.table.table_run import TableRun, run_of, table_schema


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


def _foreign_table_error(opened: OpenedTable, plan: TablePlan, ledger: TableName) -> TargetError:
    kind, remedy = TargetError, "move the table away, or apply to another target"
    problem = "the table is there already, but was not made by this target's ledger"
    if opened.made:  # its commits have the id of another ledger
        problem = f"the table was made by a ledger which is gone: {ledger.text} is not there, or is that of a newer one"
        remedy = "put a backup of the ledger there; or apply all captures to a new target, and load what was loaded"
        kind = LedgerConflict
    return kind(problem, table=plan.name, path=plan.table.text, remedy=f"Nothing was applied; {remedy}")


def _check_columns(plan: TablePlan, present_schema: StructType) -> None:
    """Refuse a table whose columns are not those that the last run left."""
    assert plan.before is not None
    schema = spark_schema(table_schema(plan.before.shape, plan.metadata))
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

    def check(self, tables: TablesPlan, before: State | None, *, resumed: bool) -> list[CheckedTable]:
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

    def _known(self, plan: TablePlan | MirrorEntry, table: TableName, run: str | None = None) -> KnownTable:
        entry, share = (plan, plan.share) if isinstance(plan, MirrorEntry) else (plan.before, plan.metadata.share)
        makers = None if share is None else self.context.sibling_ledgers.has_made
        return KnownTable(table, plan.name, self.context.ledger.id, entry, run, makers)

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
        known_table = self._known(plan, table)
        with session_with(self.context.session, delta.SMALL_STATE) as session, known_table.damaged_log_errors():
            opened = OpenedTable(session, table)
            schema = opened.schema
            if schema is None:
                if plan.before is not None and not resumed:
                    raise known_table.refused(
                        "the table is gone, though the ledger has written to it: it was removed, or it was renamed by "
                        "a run that the ledger does not know of any more",
                        "what is gone, or the ledger as it was",
                    )
                return CheckedTable(False)
            if resumed:
                return CheckedTable(True)
            shared = plan.metadata.share is not None
            standing = standing_of(opened, known_table)
            if plan.before is None:
                if standing is not None and shared:
                    # The source may have had rows of another relation in it, which are gone.
                    ahead = tuple(commit for commit in standing.ahead if run_of(commit.number) > last_run)
                    standing = replace(standing, ahead=ahead)
                # This ledger may have made it for the relation, although it does not know the table.
                ahead = () if standing is None or standing.changed is not None else standing.ahead
                is_made = standing is not None and standing.changed is None and (shared or bool(ahead))
                if not is_made or any(commit.oid != plan.oid for commit in ahead):
                    raise _foreign_table_error(opened, plan, self.context.target.ledger("state"))
                if shared:
                    check_shared(plan, schema, self.context.sibling_ledgers, opened.made)
                return CheckedTable(True, standing)
            if standing is not None and standing.changed is not None and not (standing.ahead or self.accepts):
                raise known_table.changed_error(standing)
            if shared:
                check_shared(plan, schema, self.context.sibling_ledgers, ())
            elif standing is None or not standing.ahead:
                _check_columns(plan, schema)
        return CheckedTable(True, standing)

    def _check_begun(self, run: TableRun, run_id: str) -> TableRun | None:
        """Compare a table with the ledger when an interrupted run continues; None if it is gone, and can be made again.

        Raises:
            TargetError: somebody else has changed it meanwhile.
        """
        plan, before = run.plan, run.plan.before
        known_table = self._known(plan, plan.table, run_id)
        with session_with(self.context.session, delta.SMALL_STATE) as session:
            opened = OpenedTable(session, plan.table)
            if not opened.exists:
                is_known = before is not None and before.left is not None and plan.metadata.share is None
                return None if is_known else replace(run, exists=False)
            standing = standing_of(opened, known_table)
            if standing is not None and standing.changed is not None and not self.accepts:
                if before is None and not standing.steps:
                    raise _foreign_table_error(opened, plan, self.context.target.ledger("state"))
                raise known_table.changed_error(standing)
        return replace(run, exists=True, standing=standing)  # None: the ledger cannot tell

    def check_again(self, runs: Sequence[TableRun], plan: Plan, holding: Holding) -> list[TableRun]:
        """Compare the tables of an interrupted run with the ledger, and refuse those that others have changed.

        A table that is gone is left out: with the run's changes alone it would look like a whole one.

        Raises:
            TargetError: naming one.
        """

        def look(run: TableRun) -> TableRun | None:
            with holding.applying(run.plan), spark_errors(table=run.plan.name, path=run.plan.table.text):
                checked = self._check_begun(run, plan.id)
                standing = None if checked is None else checked.standing
                is_done = checked is None or checked.is_done
                if is_done or standing is None or not standing.ahead or run.plan.before is None:
                    return checked
                newer = self._known(run.plan, run.plan.table)
                raise newer_error(newer, standing, standing.ahead[0], plan.upto_lsn)
            return None

        looked = self.context.each(look, runs)
        checked = [run for run in looked if run is not None]
        for run in checked:
            self._warn_of_change(run.plan, run.standing)
        for run, looked_run in zip(runs, looked, strict=True):
            if looked_run is None and run.plan.oid not in holding.failed:
                self.context.warnings.append(
                    f"{run.plan.name}: the table is gone, so the run was finished without it; "
                    f"{made_again(run.plan.before)}"
                )
        return checked

    def look_at_others(
        self, entries: Sequence[MirrorEntry], written: Collection[int], *, thoroughly: bool = False
    ) -> list[AheadTable]:
        """Check the tables that a run does not write to, and warn of changes; return those ahead of the ledger.

        Args:
            written: the oids of the tables that are checked otherwise.
            thoroughly: also where Spark has to be asked for a table's history.
        """
        others = [entry for entry in entries if not (entry.set_aside or entry.held or entry.oid in written)]
        known_tables = [self._known(entry, entry.table) for entry in others]
        standings = self.context.each(lambda table: self._changed_standing(table, thoroughly=thoroughly), known_tables)
        ahead: list[AheadTable] = []
        for known_table, standing in zip(known_tables, standings, strict=True):
            if isinstance(standing, TargetError):
                self.context.warnings.append(f"{known_table.name}: {standing.problem}")
            elif standing is not None and standing.ahead:
                ahead.append((known_table, standing))
            elif standing is not None and standing.changed is not None and not self.accepts:
                problem, undone = known_table.change_of(standing)
                self.context.warnings.append(
                    f"{known_table.name}: {problem}. The run that next has changes for it will refuse it. {undone}"
                )
        return ahead

    def _changed_standing(self, known_table: KnownTable, *, thoroughly: bool) -> Standing | TargetError | None:
        """Compare a table that is not at the version that was left; None for all others.

        Returns:
            an error for a table that is gone, or is not the one that the ledger knows.
        """
        table, entry = known_table.table, known_table.entry
        folder = folder_of(self.context.session, table.path)
        newest = None if folder is None else newest_version(folder)
        # The newest version alone, without the log, shows that nothing has happened.
        if entry is None or entry.left is None or newest == entry.left or (newest is None and not thoroughly):
            return None
        if newest == -1:  # the folder has no log
            problem = f"the table is gone, and nothing was written to it; bring it back, or {made_again(entry)}"
            return TargetError(problem, table=entry.name, path=table.text)
        with session_with(self.context.session, delta.SMALL_STATE) as session:
            opened = OpenedTable(session, table)
            try:
                return standing_of(opened, known_table) if folder is not None or opened.exists else None
            except TargetError as error:
                return error

    def look_back(self, runs: Sequence[TableRun], reports: Iterable[TableReport]) -> None:
        """Warn of tables that somebody else has changed between their check and the run's commit.

        Such a change goes together with the commit, as Delta sees it, and the next run looks no further back.
        """
        versions = {report.oid: report.version for report in reports}

        def look(run: TableRun) -> LoggedCommit | None:
            version = versions.get(run.plan.oid)
            # Not compared, not written to, or nothing lies between.
            if run.standing is None or version is None or version <= run.standing.latest + 1:
                return None
            known_table = self._known(run.plan, run.plan.table)
            _, commits = OpenedTable(self.context.session, run.plan.table).commits_since(run.standing.latest + 1)
            between = (commit for commit in commits if commit.version < version)
            return others_change(between, ledger=known_table.ledger, is_siblings=known_table.is_siblings)

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
        tables: TablesPlan,
        checked: list[CheckedTable],
        before: State | None,
        transaction_log: TransactionLog,
    ) -> int:
        """Return the run's number; refuse a ledger that was set back while tables are ahead of it.

        Once none is, the ledger forgets what runs have recorded that its state does not know.
        """
        last_run = before.run if before is not None else 0
        recorded = highest_recorded(self.context)  # above the state's, if the ledger was set back
        highest = max(recorded, highest_of(checked))
        ahead = [
            (self._known(table, (table.before or table).table), check.standing)
            for table, check in zip(tables.tables, checked, strict=True)
            if check.standing is not None and check.standing.ahead
        ]
        if before is not None:
            written = [(table.before or table).oid for table in tables.tables]
            ahead += self.look_at_others(before.tables, written, thoroughly=bool(ahead) or recorded > last_run)
        check_ahead(ahead, plan, transaction_log)
        if highest > last_run:
            forget_unknown(self.context, last_run, highest)
            self.context.warnings.append(
                f"the ledger was set back: it knows of {f'run {last_run}' if last_run else 'no run'}, and there were "
                f"runs up to {highest}; what these have applied is applied again"
            )
        return max(last_run, highest) + 1  # Delta skips numbers that a table has had, even if a RESTORE has undone them
