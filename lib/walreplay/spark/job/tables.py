"""Update the tables of a run: first move those that change their place, then apply the changes to each."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, as_completed
from dataclasses import dataclass, replace
from functools import partial

from walreplay.log import log
from walreplay.report import TableReport
from walreplay.spark.delta import statements as delta
from walreplay.spark.delta.fence import Fence
from walreplay.spark.delta.storage import storage_errors
from walreplay.spark.job.context import RunContext
from walreplay.spark.ledger.state import State
from walreplay.spark.planning.placement import Move
from walreplay.spark.planning.plan import RunPlan
from walreplay.spark.planning.registry import made_again
from walreplay.spark.planning.table_run import TableRun, step_of
from walreplay.spark.session import steps
from walreplay.spark.session.failures import spark_errors
from walreplay.spark.session.isolation import has_own_sessions, own_session
from walreplay.spark.session.naming import jobs_named
from walreplay.spark.staging.base import Staging
from walreplay.spark.tables.fold import Folded, fold_together, groups_of
from walreplay.spark.tables.move import fence_of, move
from walreplay.spark.tables.sharing import in_turn, move_rows
from walreplay.spark.tables.update import apply_table


@dataclass(frozen=True)
class RunTables:
    """The tables of a run."""

    run: RunContext

    def move(self, tables: RunPlan, state: State, commit: delta.CommitId) -> tuple[State, dict[int, int | None]]:
        """Move renamed tables, and those that have to give way, to their places.

        Tables that leave a place go first, and that they have left is written down: a table that is there afterwards is
        another one.

        Returns:
            the state, and the versions of tables that were copied, by oid.
        """
        placement = tables.placement
        copied: dict[int, int | None] = {}
        if not placement.moves:
            return state, copied
        fence = fence_of(self.run.own, self.run.target, self.run.ledger.run_id)
        with self.run.stage("move"):
            try:
                if fence is not None:
                    fence.put_up(partial(self.run.ledger.check_lock, sure=True))
                if not state.vacated:
                    copied |= self._move_all(placement.leaving, commit, 0, fence)
                    state = self.run.ledger.note_vacated(state)
                    steps.reached("places left")
                copied |= self._move_all(placement.arriving, commit, len(placement.leaving), fence)
            finally:
                if fence is not None:
                    fence.take_down()
        return state, copied

    def _move_all(
        self, moves: Sequence[Move], commit: delta.CommitId, first: int, fence: Fence | None
    ) -> dict[int, int | None]:
        copied: dict[int, int | None] = {}
        for number, step in enumerate(moves, first):
            self.run.ledger.check_lock()
            named = replace(step_of(commit, number), oid=step.oid)
            own, check_lock = own_session(self.run.spark), self.run.ledger.check_lock
            if step.is_shared:
                named = replace(named, source=self.run.target.source)
                moved = move_rows(own, self.run.writer, step, named, check_lock)
            else:
                moved = move(own, self.run.writer, step, named, check_lock, fence)
            if moved.note is not None:
                self.run.warnings.append(moved.note)
            if moved.is_copy:
                copied[step.oid] = moved.version
            steps.reached(f"table moved: {step.name}")
        return copied

    def apply(
        self, runs: Sequence[TableRun], staging: Staging, kept: Sequence[Callable[[], None]]
    ) -> list[TableReport]:
        """Apply the tables concurrently, and beside them write what the ledger keeps of transactions and files.

        Args:
            kept: writes that.
        """
        reports: list[TableReport] = []
        with (
            self.run.stage("apply", len(runs)),
            ThreadPoolExecutor(len(kept)) as beside,
            ThreadPoolExecutor(self.run.at_once) as pool,
        ):
            # A shared session allows one statement at a time.
            histories: list[Future[None]] = []
            for write in kept:
                histories.append(beside.submit(self._keep, write))
                if not has_own_sessions(self.run.spark):
                    histories[-1].result()
            waiting: list[Future[TableReport]] = []

            def gather() -> None:
                for done in as_completed(waiting):
                    report = done.result()
                    reports.append(report)
                    _log(report, runs[0].commit.number)
                    self.run.progress.advance()
                    steps.reached(f"table applied: {report.name}")
                waiting.clear()

            try:
                for number, group in enumerate(groups_of(runs, self.run.writer)):
                    # Tables with a job of their own start beside the first shared job.
                    if number > 1:
                        gather()
                    folded = self._fold_together(group, staging) if number else {}
                    waiting += [
                        pool.submit(self._apply_table, staging, run, folded.get(run.plan.number)) for run in group
                    ]
                gather()
            except BaseException:
                for other in waiting:
                    other.cancel()
                raise
            self.run.progress.doing("the ledger's transactions and files")
            for history in histories:
                history.result()
            steps.reached("history written")
        return sorted(reports, key=lambda report: report.name)

    def _keep(self, write: Callable[[], None]) -> None:
        with jobs_named(self.run.spark, "record files and transactions"):
            write()

    def _fold_together(self, group: Sequence[TableRun], staging: Staging) -> Mapping[int, Folded]:
        # Only for its own tables may a run write files.
        self.run.ledger.check_lock()
        self.run.progress.doing(f"folding {len(group):,} tables")
        with jobs_named(self.run.spark, f"fold {len(group):,} tables"):
            return fold_together(self.run.spark, self.run.writer, staging, group, self.run.at_once)

    def _apply_table(self, staging: Staging, run: TableRun, folded: Folded | None) -> TableReport:
        # If this process was paused, it may have lost the lock, and another run may be writing the table.
        self.run.ledger.check_lock()
        self.run.progress.doing(run.plan.name)
        place = run.plan.table.text

        def apply(one: TableRun, is_first: bool) -> TableReport:
            return apply_table(self.run.spark, self.run.writer, staging, one, folded if is_first else None)

        with (
            spark_errors(table=run.plan.name, path=place),
            storage_errors(place, if_damaged=_set_aside(run)),
            jobs_named(self.run.spark, f"apply {run.plan.name}"),
        ):
            return apply(run, True) if run.plan.metadata.share is None else in_turn(run, apply)


def _set_aside(run: TableRun) -> str:
    """Write how a run goes on from a table that is damaged; empty for a new one, and for one that sources share."""
    before = run.plan.before
    if before is None or before.left is None or before.share is not None:
        return ""
    away = f"move {before.table.text} away, and run again, which finishes this run without it"
    return f"{away}; then {made_again(before)}"


def _log(report: TableReport, number: int) -> None:
    log(
        "table applied",
        table=report.name,
        place=report.location,
        run=number,
        action=report.action,
        version=report.version,
        changes=report.changes,
        writer=report.writer,
        seconds=report.seconds,
    )
