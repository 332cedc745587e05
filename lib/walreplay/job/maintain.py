"""Maintain a target: find out what its tables and its ledger need, and do it under the run lock.

OPTIMIZE, REORG and VACUUM change no row, so the next run finds its tables as it has left them
(`walreplay.delta.commits`).  A run that came in between would meet a commit that it does not know.  So the lock is
held, and a run that is at work, or was interrupted, comes first.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from walreplay.config import Settings, make_settings
from walreplay.config.keys import expression
from walreplay.config.model import tables_named
from walreplay.delta import statements as delta
from walreplay.delta import upkeep
from walreplay.delta.target import TableName, storage_errors
from walreplay.delta.upkeep import Action
from walreplay.errors import ConfigError, TargetError, WalReplayError
from walreplay.job.context import RunContext
from walreplay.ledger.runs import APPENDED_TABLES, NO_VACUUM_LOG, first_kept, forget
from walreplay.ledger.state import APPLIED, State, now
from walreplay.ledger.status import nothing_applied
from walreplay.progress import Progress, log
from walreplay.report import MaintenanceReport, TableMaintenance
from walreplay.session import steps
from walreplay.session.failures import failure_of
from walreplay.session.naming import jobs_named

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def maintain(
    spark: SparkSession,
    target: str | os.PathLike[str],
    table: str | None = None,
    *,
    config: str | os.PathLike[str] | Mapping[str, Any] | Settings | None = None,
    dry_run: bool = False,
    progress: Progress | None = None,
) -> MaintenanceReport:
    """Write small files together, remove files that no version needs, and forget old runs, where that is needed.

    VACUUM keeps what each table's own ``delta.deletedFileRetentionDuration`` keeps.  While this is at work, no run is.

    Args:
        target, config, progress: as `walreplay.apply` takes them; ``ledger_keep_days`` says what is forgotten.
        table: a regular expression over the whole of the source's ``schema.table``; None for all, and the ledger.
        dry_run: say what would be done, and why; nothing is written, and no lock is taken.

    Raises:
        TargetError: nothing was applied to the target yet; a run is at work on it, or was interrupted.
        ConfigError: no table is called so.
    """
    table_pattern = None if table is None else tables_named(table)
    with RunContext.on(spark, target, make_settings(config), progress, loads=True) as run:
        return _Maintenance(run, table_pattern, dry_run).run()


@dataclass(frozen=True, slots=True)
class _Looked:
    """A table, its report so far, and what it needs."""

    table: TableName
    report: TableMaintenance
    needs: Mapping[Action, str]
    is_ledger: bool


@dataclass
class _Maintenance:
    """One call of `maintain`."""

    context: RunContext
    table_pattern: str | None
    dry_run: bool

    def run(self) -> MaintenanceReport:
        began = time.monotonic()
        with self.context.at_work():
            tables = self._run()
        warnings, seconds = tuple(self.context.warnings), time.monotonic() - began
        return MaintenanceReport(self.context.target.text, self.dry_run, tuple(tables), warnings, seconds)

    def _run(self) -> list[TableMaintenance]:
        context = self.context
        state = context.read()
        if state is not None and not self.dry_run:  # a dry run writes nothing
            state = context.lock()
        if state is None:
            raise nothing_applied(context.target)
        if not self.dry_run and state.phase != APPLIED:
            raise TargetError(
                f"run {state.run} was interrupted, and its tables are in its hands until it is finished",
                path=context.target.text,
                remedy="Run again what was interrupted, then maintain",
            )
        places = self._places(state)
        with context.stage("look at tables", len(places)):
            looked = context.each(lambda place: self._look(*place), places)
        if self.dry_run:
            return [table.report for table in looked]
        steps.reached("tables looked at")
        due = sum(bool(table.needs) for table in looked)
        with context.stage("maintain", due):
            return context.each(self._work, looked)

    def _places(self, state: State) -> list[tuple[str, TableName, bool]]:
        """Return the tables, each once: its name, its place, and whether it is the ledger's."""
        places: dict[str, tuple[str, TableName, bool]] = {}
        for entry in sorted((table for table in state.tables if not table.is_unmade), key=lambda table: table.name):
            if self.table_pattern is None or expression(self.table_pattern).fullmatch(entry.source_name):
                places.setdefault(entry.table.place, (entry.name, entry.table, False))
        if self.table_pattern is None:
            for name in (*APPENDED_TABLES, "state"):
                table = self.context.target.ledger(name)
                places[table.place] = (f"ledger: {name}", table, True)
        elif not places:
            raise ConfigError(
                f"no table of the target is called {self.table_pattern!r}",
                remedy="--table is a regular expression over the whole of the source's schema.table",
            )
        return list(places.values())

    def _look(self, name: str, table: TableName, is_ledger: bool) -> _Looked:
        """Return what a table needs."""
        report, needs = TableMaintenance(name, table.text), dict[Action, str]()

        def look(spark: SparkSession) -> None:
            nonlocal report, needs
            if not delta.exists(spark, table):
                if not is_ledger:  # of the ledger's some may never have been written
                    report = replace(report, problem="the table is gone")
                return
            files, unreferenced = upkeep.files_of(spark, table), upkeep.unreferenced(spark, table)
            needs = upkeep.needs_of(files, unreferenced)
            if table == self.context.target.ledger("runs"):  # its rows have the times when runs ended
                days = self.context.settings.ledger_keep_days
                first_run = first_kept(spark, self.context.target, days, now())
                if first_run is not None:
                    needs = {"forget": f"runs before {first_run:,} ended more than {days:,} days ago", **needs}
            report = replace(
                report,
                files=files.count,
                bytes=files.size,
                small_files=files.small,
                files_with_deletion_vectors=files.marked,
                unreferenced_files=unreferenced,
                actions=tuple(needs),
                reasons=tuple(needs.values()),
            )

        problem = self._tried(name, table, is_ledger, look)
        self.context.progress.advance()
        return _Looked(table, report if problem is None else replace(report, problem=problem), needs, is_ledger)

    def _work(self, looked: _Looked) -> TableMaintenance:
        """Do what a table needs; a failure does not stop the work on other tables."""
        if not looked.needs:
            return looked.report
        removed, added = 0, 0

        def work(spark: SparkSession) -> None:
            nonlocal removed, added
            for action in looked.needs:
                self.context.ledger.check_lock()
                with self.context.doing(f"{action} {looked.report.name}"):
                    removed_files, added_files = self._do(spark, action, looked.table)
                removed, added = removed + removed_files, added + added_files
                log("maintained", table=looked.report.name, action=action, removed=removed_files, added=added_files)
                steps.reached(f"maintained by {action}: {looked.report.name}")

        problem = self._tried(looked.report.name, looked.table, looked.is_ledger, work)
        self.context.progress.advance()
        return replace(looked.report, done=problem is None, files_removed=removed, files_added=added, problem=problem)

    def _do(self, spark: SparkSession, action: Action, table: TableName) -> tuple[int, int]:
        """Do one thing; return how many files were removed and added."""
        if action == "purge":  # rows that deletion vectors mark
            return upkeep.purge(spark, table)
        if action == "optimize":
            return upkeep.optimize(spark, table)
        if action == "vacuum":
            upkeep.vacuum(spark, table)
        else:
            days = self.context.settings.ledger_keep_days
            forget(spark, self.context.target, days, now(), self.context.ledger.check_lock)
        return 0, 0

    def _tried(self, name: str, table: TableName, is_ledger: bool, work: Callable[[SparkSession], None]) -> str | None:
        """Do some work on a table; return in one line what has stopped it, which does not stop the work on others."""
        try:
            with (
                storage_errors(table.text),
                jobs_named(self.context.spark, f"maintain {name}"),
                upkeep.upkeep_session(
                    self.context.spark, NO_VACUUM_LOG if is_ledger else delta.NO_PROPERTIES
                ) as session,
            ):
                work(session)
        except Exception as error:
            self.context.ledger.check_lock()
            if delta.is_conflict(error):  # only a shared table has other writers
                return "another source has written to it at the same time; maintain it again"
            problem = error if isinstance(error, WalReplayError) else failure_of(error, path=table.text)
            if problem is None:
                raise
            return str(problem)
        return None
