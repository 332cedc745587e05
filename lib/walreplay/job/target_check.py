"""Check the tables before a run writes to them, and refuse those that are not as the ledger left them.

`check_unique` refuses loaded rows that share a key, before any table has them.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING

from walreplay.config.selection import Share
from walreplay.delta import statements as delta
from walreplay.delta.commits import LoggedCommit, Standing
from walreplay.delta.local import clear_leftovers, newest_version
from walreplay.delta.statements import sql_schema
from walreplay.errors import CaptureError, TargetError
from walreplay.fold.events import Mode
from walreplay.job.context import RunContext
from walreplay.job.source_check import check_shared
from walreplay.job.table_check import (
    KnownTable,
    NewerTable,
    change_warning,
    changed_between,
    changed_error,
    check_ahead,
    damaged_log_errors,
    forget_unknown,
    highest_recorded,
    newer_error,
    standing_of,
)
from walreplay.ledger.state import State
from walreplay.ledger.transactions import History
from walreplay.names import source_oid
from walreplay.report import TableReport
from walreplay.session.failures import spark_errors
from walreplay.session.folders import MountedFolder
from walreplay.session.isolation import session_with
from walreplay.session.naming import jobs_named
from walreplay.session.reach import folder_of
from walreplay.spark.staging import Staging
from walreplay.spark.workers.load import COUNTED, count_keys
from walreplay.stream.plan import Plan
from walreplay.table.plan import RunPlan, TablePlan
from walreplay.table.registry import MirrorEntry, made_again
from walreplay.table.table_run import TableRun, run_of, table_schema

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.types import StructType


@dataclass(frozen=True, slots=True)
class CheckedTable:
    """What the check of a table has found, before anything is applied to it.

    Attributes:
        exists: the table exists.
        standing: compared with the ledger; None if the ledger cannot tell, or if it is compared later.
    """

    exists: bool
    standing: Standing | None = None


def highest_of(found: Iterable[CheckedTable]) -> int:
    """Return the highest number of a run in the logs of tables, whether its commits were undone or not."""
    return max((run_of(there.standing.highest) for there in found if there.standing is not None), default=0)


def _gone(name: str, entry: MirrorEntry) -> TargetError:
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


def _is_of_ledger(standing: Standing, oid: int, *, shared: bool) -> bool:
    """Return whether this ledger made a table for a relation, although it does not know the table.

    Args:
        shared: others may have made it as well.
    """
    ahead = standing.ahead
    return standing.changed is None and (shared or bool(ahead)) and all(commit.oid == oid for commit in ahead)


def _not_made(plan: TablePlan) -> TargetError:
    return TargetError(
        "the table is there already, but was not made by this target's ledger",
        table=plan.name,
        path=plan.table.text,
        remedy="Nothing was applied; move the table away, or apply to another target",
    )


def _check_columns(spark: SparkSession, plan: TablePlan, there: StructType) -> None:
    """Refuse a table whose columns are not those that the last run left."""
    assert plan.before is not None
    schema = spark.createDataFrame([], sql_schema(table_schema(plan.before.shape, plan.metadata))).schema
    expected, found = (
        [(item.name, item.dataType.simpleString()) for item in columns.fields] for columns in (schema, there)
    )
    if found == expected:
        return
    has, wanted = dict(found), dict(expected)
    before = plan.before
    restore = f" (RESTORE TABLE {before.table.sql} TO VERSION AS OF {before.left})" if before.left is not None else ""
    differing = [name for name in [*wanted, *has] if has.get(name) != wanted.get(name)]
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
    """The checks of a run's tables: what compares them with the ledger.

    Attributes:
        accepts: changes by others are accepted as they are.
    """

    context: RunContext
    accepts: bool

    def check(self, tables: RunPlan, before: State | None, *, resumed: bool) -> list[CheckedTable]:
        """Return which tables exist, and refuse those that are not as the ledger left them.

        Args:
            before: the ledger's state.
        """
        known = before.run if before is not None else 0
        moving = {place for move in tables.placement.moves for place in (move.source, move.destination)}

        def look(table: TablePlan) -> CheckedTable:
            with (
                spark_errors(table=table.name, path=(table.before or table).table.text),
                jobs_named(self.context.own, f"check {table.name}"),
            ):
                place = folder_of(self.context.own, (table.before or table).table.path)
                if isinstance(place, MountedFolder):
                    # As a crash of the machine leaves them; Spark and delta-rs refuse them in different ways.
                    clear_leftovers(place, sums_only=True)
                return self._check(table, known, resumed=resumed, moves_in=table.table in moving)

        with ThreadPoolExecutor(self.context.at_once) as pool:
            found = list(pool.map(look, tables.tables))
        for table, there in zip(tables.tables, found, strict=True):
            self._warn_of_change(table, there.standing)
        return found

    def _known(self, name: str, entry: MirrorEntry | None, share: Share | None, run: str | None = None) -> KnownTable:
        return KnownTable(name, self.context.ledger.id, entry, run, self.context.sibling_ledgers.makers_of(share))

    def _known_of(self, plan: TablePlan, run: str | None = None) -> KnownTable:
        return self._known(plan.name, plan.before, plan.metadata.share, run)

    def _check(self, plan: TablePlan, known: int, *, resumed: bool, moves_in: bool) -> CheckedTable:
        """Return whether a table exists and how it compares with the ledger, before anything is applied.

        Args:
            known: the last run that the ledger knows.
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
            session_with(self.context.own, delta.SMALL_STATE) as own,
            damaged_log_errors(table, plan.name, plan.before),
        ):
            found = delta.schema_of(own, table)
            if found is None:
                if plan.before is not None and not resumed:
                    raise _gone(plan.name, plan.before)
                return CheckedTable(False)
            if resumed:
                return CheckedTable(True)
            shared = plan.metadata.share is not None
            standing = standing_of(own, table, self._known_of(plan))
            if plan.before is None:
                if standing is not None and shared:
                    # The source may have had rows of another relation in it, which are gone.
                    ahead = tuple(commit for commit in standing.ahead if run_of(commit.number) > known)
                    standing = replace(standing, ahead=ahead)
                if standing is None or not _is_of_ledger(standing, plan.oid, shared=shared):
                    raise _not_made(plan)
                if shared:
                    check_shared(plan, found, self.context.sibling_ledgers, delta.made_by(own, table))
                return CheckedTable(True, standing)
            if standing is not None and standing.changed is not None and not (standing.ahead or self.accepts):
                raise changed_error(table, plan.name, standing, plan.before)
            if shared:
                check_shared(plan, found, self.context.sibling_ledgers, ())
            elif standing is None or not standing.ahead:
                _check_columns(own, plan, found)
        return CheckedTable(True, standing)

    def _check_begun(self, run: TableRun, run_id: str) -> Standing | None:
        """Compare a table with the ledger when an interrupted run continues; None if it does not exist yet.

        Args:
            run_id: of that run.

        Raises:
            TargetError: somebody else has changed it meanwhile.
        """
        plan = run.plan
        with session_with(self.context.own, delta.SMALL_STATE) as own:
            if not delta.exists(own, plan.table):
                return None
            standing = standing_of(own, plan.table, self._known_of(plan, run_id))
        if standing is None or standing.changed is None or self.accepts:
            return standing
        if plan.before is None and not standing.steps:
            raise _not_made(plan)
        raise changed_error(plan.table, plan.name, standing, plan.before)

    def check_again(self, runs: Sequence[TableRun], plan: Plan) -> list[TableRun]:
        """Compare the tables of an interrupted run with the ledger, and refuse those that others have changed.

        A table that is gone is left out: with the run's changes alone it would look like a whole one.

        Raises:
            TargetError: naming one.
        """

        def look(run: TableRun) -> TableRun | None:
            if _is_gone(self.context.own, run):
                return None
            with spark_errors(table=run.plan.name, path=run.plan.table.text):
                standing = self._check_begun(run, plan.id)
            checked = replace(run, standing=standing, checked=None if standing is None else standing.latest)
            if standing is not None and standing.ahead and run.plan.before is not None and not checked.is_done:
                one = NewerTable(run.plan.name, run.plan.table, standing, known=True)
                raise newer_error(one, standing.ahead[0], plan.upto_lsn)
            return checked

        with ThreadPoolExecutor(self.context.at_once) as pool:
            looked = list(pool.map(look, runs))
        checked = [run for run in looked if run is not None]
        for run in checked:
            self._warn_of_change(run.plan, run.standing)
        for run, there in zip(runs, looked, strict=True):
            if there is None:
                self.context.warnings.append(
                    f"{run.plan.name}: the table is gone, so the run was finished without it; "
                    f"{made_again(run.plan.before)}"
                )
        return checked

    def look_at_others(
        self, entries: Sequence[MirrorEntry], written: Collection[int], *, thoroughly: bool = False
    ) -> list[NewerTable]:
        """Check the tables that a run does not write to, and warn of changes.

        Args:
            entries: what the ledger knows of all tables.
            written: the oids of the tables that are checked otherwise.
            thoroughly: also where Spark has to be asked for a table's history.

        Returns:
            those that are ahead of the ledger.
        """
        others = [entry for entry in entries if not entry.set_aside and entry.oid not in written]
        with ThreadPoolExecutor(self.context.at_once) as pool:
            standings = list(pool.map(lambda entry: self._changed_standing(entry, thoroughly=thoroughly), others))
        ahead: list[NewerTable] = []
        for entry, standing in zip(others, standings, strict=True):
            if isinstance(standing, TargetError):
                self.context.warnings.append(f"{entry.name}: {standing.problem}")
            elif standing is not None and standing.ahead:
                ahead.append(NewerTable(entry.name, entry.table, standing, known=True, shared=entry.share is not None))
            elif standing is not None and standing.changed is not None and not self.accepts:
                self.context.warnings.append(change_warning(entry, standing))
        return ahead

    def _changed_standing(self, entry: MirrorEntry, *, thoroughly: bool) -> Standing | TargetError | None:
        """Compare a table that is not at the version that was left; None for all others.

        Returns:
            an error for a table that is not the one that the ledger knows.
        """
        folder = folder_of(self.context.own, entry.table.path)
        is_asked = thoroughly if folder is None else newest_version(folder) not in (-1, entry.left)
        if entry.left is None or not is_asked:
            return None
        with session_with(self.context.own, delta.SMALL_STATE) as own:
            if folder is None and not delta.exists(own, entry.table):
                return None
            try:
                return standing_of(own, entry.table, self._known(entry.name, entry, entry.share))
            except TargetError as error:
                return error

    def look_back(self, runs: Sequence[TableRun], reports: Iterable[TableReport]) -> None:
        """Warn of tables that somebody else has changed between their check and the run's commit.

        Such a change goes together with the commit, as Delta sees it, and the next run looks no further back.
        """
        versions = {report.oid: report.version for report in reports}

        def look(run: TableRun) -> LoggedCommit | None:
            version = versions.get(run.plan.oid)
            if run.checked is None or version is None:
                return None
            return changed_between(self.context.own, run.plan.table, self._known_of(run.plan), run.checked, version)

        with ThreadPoolExecutor(self.context.at_once) as pool:
            for run, changed in zip(runs, list(pool.map(look, runs)), strict=True):
                if changed is not None:
                    self.context.warnings.append(
                        f"{run.plan.name}: somebody else has changed it while the run was at work (version "
                        f"{changed.version}, {changed.operation}): its rows may not be the source's; "
                        f"{made_again(run.plan.before)}"
                    )

    def _warn_of_change(self, table: TablePlan, standing: Standing | None) -> None:
        changed = None if standing is None else standing.changed or standing.passed
        if changed is not None:
            self.context.warnings.append(
                f"{table.name}: somebody else has changed it (version {changed.version}, {changed.operation}); its "
                "rows are taken as they are"
            )

    def next_number(
        self, plan: Plan, tables: RunPlan, found: Sequence[CheckedTable], before: State | None, history: History
    ) -> int:
        """Return the run's number; refuse a ledger that was set back while tables are ahead of it.

        Once none is, the ledger forgets what runs have recorded that its state does not know.
        """
        known = before.run if before is not None else 0
        recorded = highest_recorded(self.context.own, self.context.target, self.context.ledger.id, self.context.at_once)
        ahead = [
            NewerTable(
                table.name,
                (table.before or table).table,
                there.standing,
                known=table.before is not None,
                shared=table.metadata.share is not None,
            )
            for table, there in zip(tables.tables, found, strict=True)
            if there.standing is not None and there.standing.ahead
        ]
        if before is not None:
            written = [(table.before or table).oid for table in tables.tables]
            ahead += self.look_at_others(before.tables, written, thoroughly=bool(ahead) or recorded > known)
        check_ahead(ahead, plan, history)
        highest = max(recorded, highest_of(found))
        if highest > known:
            forget_unknown(self.context.own, self.context.target, known, highest, self.context.ledger.check_lock)
            self.context.warnings.append(
                f"the ledger was set back: it knows of {f'run {known}' if known else 'no run'}, and there were runs up "
                f"to {highest}; what these have applied is applied again"
            )
        return max(known, highest) + 1


def check_unique(spark: SparkSession, staging: Staging, runs: Iterable[TableRun]) -> None:
    """Refuse rows that come twice.

    Raises:
        CaptureError: naming the table, and how many there are.
    """
    runs = list(runs)
    mirrors = {run.plan.oid for run in runs}
    for run in runs:
        if run.plan.metadata.is_history and source_oid(run.plan.oid) in mirrors:
            # It gets the same rows.
            continue
        (epoch,) = run.plan.epochs
        if epoch.identity.mode is not Mode.KEYED or not epoch.rows:
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
