"""The main job: the phases of a run, one after the other.

`_Job._apply` is the order: read the ledger, finish an interrupted run, list the new files, scan and stitch them to a
plan (`walreplay.spark.job.scanning`).  `_Job._apply_plan` decodes, writes the plan down, applies it table by table
(`walreplay.spark.job.tables`) and records it in the ledger.
"""

from __future__ import annotations

import os
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from walreplay.errors import OrderError, TargetError
from walreplay.lsn import to_datetime
from walreplay.outputs import source_oid
from walreplay.progress import NoProgress, Progress
from walreplay.report import RunReport
from walreplay.settings import Settings, make_settings
from walreplay.spark.captures.files import (
    are_mapped,
    list_captures,
    root_of,
)
from walreplay.spark.checks.places import check_places
from walreplay.spark.checks.setting_back import newer_error
from walreplay.spark.checks.tables import TableChecks
from walreplay.spark.delta import statements as delta
from walreplay.spark.delta.storage import catalog_errors, storage_errors
from walreplay.spark.delta.target import Target
from walreplay.spark.job.ahead import AheadScan
from walreplay.spark.job.context import RunContext
from walreplay.spark.job.reading import NewFiles, Reading
from walreplay.spark.job.reports import joined, moved, timed
from walreplay.spark.job.scanning import Scanning
from walreplay.spark.job.shares import buckets_of, tasks_of
from walreplay.spark.job.tables import RunTables
from walreplay.spark.ledger.ledger import Ledger, run_id
from walreplay.spark.ledger.state import PLANNED, State
from walreplay.spark.ledger.transactions import History, refuse_gone
from walreplay.spark.planning.placement import Placement
from walreplay.spark.planning.plan import plan_tables
from walreplay.spark.planning.registry import MirrorEntry, left_at
from walreplay.spark.planning.same_server import check_followed, is_in_doubt, warnings_of
from walreplay.spark.planning.table_run import TableRun
from walreplay.spark.planning.versions import Catalogue
from walreplay.spark.session import steps
from walreplay.spark.session.failures import spark_errors
from walreplay.spark.session.isolation import own_session, quiet_queries, settings
from walreplay.spark.staging.base import Staged, Staging
from walreplay.spark.tables.move import fence_of
from walreplay.spark.workers.decode import DecodeTask
from walreplay.spark.writing.choice import choose_writer
from walreplay.spark.writing.missing_rows import missing_warnings
from walreplay.transactions.plan import Plan
from walreplay.transactions.stitch import Stitch

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import SparkSession


def apply(
    spark: SparkSession,
    captures: str | os.PathLike[str],
    target: str | os.PathLike[str],
    config: str | os.PathLike[str] | Mapping[str, Any] | Settings | None = None,
    progress: Progress | None = None,
) -> RunReport:
    """Bring the target's tables up to the last transaction that the captures hold as a whole.

    A run that was interrupted is finished first, from its own plan.

    Args:
        captures: the folder (or file, or glob) of the capture files.
        target: the folder of the Delta tables, a catalog, or ``catalog.schema``.
        config: a YAML file, the same as a mapping, or `Settings`.
        progress: told how far the run is.

    Raises:
        WalReplayError: what stopped it.  No table is touched when the captures are at fault.
    """
    place, settings = Target.parse(str(target)), make_settings(config)
    with spark_errors(path=place.text):
        check_places(str(captures), place)
        # Settings that the job needs do not reach the caller's session.
        own, writer = own_session(spark), choose_writer(spark, place)
        ledger = Ledger(spark, place, writer)
        context = RunContext(spark, own, place, settings, ledger, writer, progress or NoProgress())
        context.warnings.extend(writer.warnings)
        return _Job(context, str(captures)).apply()


class _Job:
    """One call of `apply`: finish the run that was interrupted, if there is one, then do the new one."""

    def __init__(self, run: RunContext, captures: str) -> None:
        self.run = run
        self.captures = captures
        self.source = run.settings.source or root_of(captures)

    def apply(self) -> RunReport:
        began = time.monotonic()
        try:
            with quiet_queries(), storage_errors(self.run.target.text), settings(self.run.own, delta.SMALL_STATE):
                try:
                    return self._apply(began)
                except Exception as error:
                    # If another run has taken over, that is the reason for whatever failed here.
                    lost = self.run.ledger.why_lost()
                    if lost is None:
                        raise
                    raise lost from error
                finally:
                    self.run.ledger.release()
        finally:
            self.run.progress.done()

    def _apply(self, began: float) -> RunReport:
        finished: RunReport | None = None
        with self.run.stage("read ledger"), catalog_errors(self.run.target):
            state = self.run.ledger.read()
            self._check_source(state)
        while True:
            if state is not None and state.phase == PLANNED:
                state = self._lock()
            if state is not None and state.phase == PLANNED:
                state, finished = self._finish(state, began)
            with self.run.stage("list"):
                files = list_captures(self.run.own, self.captures, self.run.settings.captures)
                new = NewFiles(self.run.own, self.captures, self.run.settings, self.run.target.ledger("files"))
                reading = new.what_is_new(files, state)
            if reading is None:
                self._look_at_tables(state)
                return (
                    replace(finished, warnings=tuple(self.run.warnings))
                    if finished
                    else self._nothing_new(state, began)
                )
            locked = self._lock()
            if locked is state:
                break
            # Another run has come to its end since the ledger was read.
            state = locked
        before = state.tables if state is not None else ()
        with self._staging() as staging:
            ahead = self._scan_ahead(reading, before, staging)
            plan = Scanning(self.run, new.holes).plan(reading, ahead)
            steps.reached("scanned")
            if plan.upto_lsn <= plan.after_lsn and state is None:
                self._refuse_empty(plan)
            refuse_gone([file.path for file in plan.files if not file.scanned], [file.path for file in files])

            def write_plan(decoded: Plan, run: int) -> State:
                return self.run.ledger.write_plan(
                    state,
                    decoded,
                    run,
                    source=self.source,
                    captures=self.captures,
                    files=len(reading.files),
                    size=reading.size,
                    seen=reading.seen,
                )

            _, report = self._apply_plan(
                plan, staging, reading.size, state, write_plan, ahead=ahead, resumed=False, began=began
            )
        return report if finished is None else joined(finished, report)

    def _lock(self) -> State | None:
        with self.run.stage("lock"):
            state = self.run.ledger.acquire()
        self._check_source(state)
        self.run.warnings.extend(self.run.ledger.warnings)
        self.run.ledger.warnings.clear()
        return state

    def _finish(self, interrupted: State, began: float) -> tuple[State, RunReport]:
        self.run.warnings.append(f"run {interrupted.run} was interrupted; it was finished first")
        plan = interrupted.plan
        assert plan is not None
        fence = fence_of(self.run.own, self.run.target, self.run.ledger.run_id)
        if fence is not None:
            # If the interrupted run was only paused, it can rename nothing from here on.
            fence.take_down_others()
        with self._staging() as staging:
            return self._apply_plan(
                plan, staging, interrupted.bytes, interrupted, lambda *_: interrupted, resumed=True, began=began
            )

    @contextmanager
    def _staging(self) -> Iterator[Staging]:
        """Give the run a place for its staged events, and empty it at the end, also after an error."""
        ledger = self.run.ledger
        staging = self.run.writer.staging(self.run.target, ledger.run_id, ledger.taken_over, ledger.turn)
        try:
            yield staging
        finally:
            self._clear(staging)

    def _clear(self, staging: Staging) -> None:
        # A run that has lost the lock leaves everything to the other one.  A recorded run has cleared up already.
        if staging.written and self.run.ledger.has_lock():
            with self.run.stage("clean up"):
                try:
                    staging.clear(self.run.own)
                except TargetError as error:
                    # The next run will try again.
                    self.run.warnings.append(str(error))

    # What there is to do

    def _check_source(self, state: State | None) -> None:
        if state is not None and state.source != self.source:
            raise TargetError(
                f"the target was made from the source {state.source!r}, not {self.source!r}",
                path=self.run.target.text,
                remedy="Use another target; or, if the captures were moved, name the source in the configuration: "
                f"source: {state.source}",
            )

    def _scan_ahead(self, reading: Reading, before: Sequence[MirrorEntry], staging: Staging) -> AheadScan | None:
        """Give the scan that also decodes; None for mounted files, which are mapped twice instead.

        Args:
            before: what the ledger knows of the tables that earlier runs have written to.
        """
        if are_mapped([file.path for file in reading.files]):
            return None
        stitch = Stitch(reading.resume, wants_origin=self.run.settings.wants_origin)
        buckets, check = buckets_of(reading.size, self.run.settings.bucket_bytes), self.run.ledger.check_lock
        return AheadScan(self.run.own, staging, self.run.settings, before, buckets, stitch, check)

    def _refuse_empty(self, plan: Plan) -> None:
        """Refuse to create a target from captures that hold no whole transaction and end inside one."""
        if plan.torn is not None:
            path, offset, size = plan.torn
            raise OrderError(
                f"the captures hold no whole transaction, and end inside a message of which {size:,} bytes are there",
                path=path,
                offset=offset,
                remedy="Run again when more has come; if nothing more will, the file was truncated: fetch it again",
            )

    # Doing it

    def _apply_plan(
        self,
        plan: Plan,
        staging: Staging,
        size: int,
        before: State | None,
        begin: Callable[[Plan, int], State],
        *,
        ahead: AheadScan | None = None,
        resumed: bool,
        began: float,
    ) -> tuple[State, RunReport]:
        """Decode a plan, write it down, apply it table by table, record it.

        Args:
            size: bytes of the files that it reads.
            before: the ledger's state, of an interrupted run its own.
            begin: gives the run's state, in which the plan stands written under its number; called once the files have
                proved to be decodable.
            ahead: what was decoded with the scan.
            resumed: the run was interrupted before; some tables may have its commit.
        """
        self.run.warnings.extend(plan.warnings)
        entries = before.tables if before is not None else ()
        catalogue = Catalogue.of(plan, self.run.settings, entries)
        self.run.warnings.extend(catalogue.warnings)
        skips_truncates = self.run.settings.skips("t")
        truncates = {} if skips_truncates else {item.oid: (item.lsn, item.ordinal) for item in plan.truncates}
        try:
            self.run.ledger.check_lock()
            staged = self._decode(plan, catalogue, staging, truncates, size, ahead)
            steps.reached("decoded")
            history = History(self.run.own, self.run.target, plan, staging, self.run.writer)
            with self.run.stage("check"):
                history.check_copies()
                plan = _without_ended(plan, history)
            tables = plan_tables(
                catalogue, staged, staging.uses, tuple(truncates), entries, self.run.settings, self.run.target
            )
            with self.run.stage("check"):
                self._check_server(tables.placement, entries, history, resumed=resumed)
            with self.run.stage("plan"):
                checks = self._checks
                found = checks.check(tables, resumed=resumed)
                if not resumed:
                    plan = replace(plan, id=str(uuid.uuid4()))
                number = checks.go_back(plan, tables, found, before, history) if not resumed else 0
                state = begin(plan, number)
            steps.reached("plan written")
            commit = delta.CommitId(state.ledger, state.run, run_id(plan))
            brought = RunTables(self.run)
            state, copied = brought.move(tables, state, commit)
            buckets = buckets_of(size, self.run.settings.bucket_bytes)
            runs = [
                TableRun(
                    plan=table,
                    commit=commit,
                    resumed=resumed,
                    buckets=buckets,
                    tasks=tasks_of(buckets, staged[table.number].size),
                    size=staged[table.number].size,
                    exists=there.exists,
                    check_lock=self.run.ledger.check_lock,
                )
                for table, there in zip(tables.tables, found, strict=True)
            ]
            if resumed and plan.id:
                with self.run.stage("plan"):
                    runs = checks.check_again(runs, plan)
            kept = [
                lambda: history.write(state, resumed=resumed),
                lambda: self.run.ledger.record_files(state, resumed=resumed),
            ]
            reports = brought.apply(runs, staging, kept)
            self.run.warnings.extend(missing_warnings(reports, self.run.settings))
        finally:
            self._clear(staging)
        report = RunReport(
            run=state.run,
            status="applied",
            captures=self.captures,
            target=self.run.target.text,
            files=state.files,
            capture_bytes=size,
            transactions=plan.transactions,
            changes=tables.changes,
            applied_lsn=plan.upto_lsn if plan.upto_lsn >= 0 else None,
            applied_commit_ts=to_datetime(plan.upto_commit_time) if plan.upto_lsn >= 0 else None,
            tables=tuple(sorted([*reports, *moved(tables)], key=lambda report: report.name)),
            warnings=tuple(self.run.warnings),
            seconds=0.0,
            stages=self.run.stages,
            writer=self.run.writer.way,
        )
        with self.run.stage("record"):
            left = copied | {one.oid: one.version for one in reports if one.oid is not None}
            state = self.run.ledger.record(state, report, left_at(tables.entries, left, plan.id), resumed=resumed)
        steps.reached("run recorded")
        return state, timed(report, began, self.run.stages)

    def _decode(
        self,
        plan: Plan,
        catalogue: Catalogue,
        staging: Staging,
        truncates: Mapping[int, tuple[int, int]],
        size: int,
        ahead: AheadScan | None,
    ) -> dict[int, Staged]:
        files = {file.path: file for file in plan.files if file.steps}
        if not files:
            return {}
        with self.run.stage("decode"):
            confirmed = ahead.confirm(plan, catalogue.assignments) if ahead is not None else None
            task = DecodeTask(
                files=files if confirmed is None else {p: file for p, file in files.items() if p not in confirmed.held},
                versions=plan.versions if confirmed is None else confirmed.versions,
                types=plan.type_versions if confirmed is None else confirmed.types,
                relations=catalogue.assignments,
                truncates=truncates,
                settings=self.run.settings.of_tasks,
                buckets=buckets_of(size, self.run.settings.bucket_bytes),
            )
            return staging.decode(self.run.own, task, confirmed)

    def _check_server(
        self, placement: Placement, before: Sequence[MirrorEntry], history: History, *, resumed: bool
    ) -> None:
        """Refuse tables that were all created again if they must be another server's; warn if they are many."""
        count = len({source_oid(entry.oid) for entry in before if not entry.set_aside})
        if is_in_doubt(placement) and not resumed:
            followed = history.followed()
            if followed is not None:
                check_followed(placement, followed, count)
        self.run.warnings.extend(warnings_of(placement, count))

    @property
    def _checks(self) -> TableChecks:
        accepts = self.run.settings.accept_changed_tables
        return TableChecks(
            self.run.own,
            self.run.target,
            self.run.ledger,
            accepts,
            self.run.at_once,
            self.run.warnings,
        )

    def _look_at_tables(self, state: State | None) -> None:
        """Check that tables are as the last run left them, when there is nothing to apply.

        Raises:
            TargetError: one is newer than the ledger.
        """
        if state is None:
            return
        with self.run.stage("check"):
            ahead = self._checks.look_at_others(state.tables, ())
        if not ahead:
            return
        again = self.run.ledger.read()
        # Without the lock, another run may have begun meanwhile.
        if again is not None and (again.run, again.phase) == (state.run, state.phase):
            known = state.resume.place.high_lsn if state.resume is not None else -1
            raise newer_error(ahead[0], ahead[0].standing.ahead[-1], known)

    def _nothing_new(self, state: State | None, began: float) -> RunReport:
        resume = state.resume if state is not None else None
        applied = resume.place.high_lsn if resume is not None and resume.place.high_lsn >= 0 else None
        return RunReport(
            run=None,
            status="nothing new",
            captures=self.captures,
            target=self.run.target.text,
            files=0,
            capture_bytes=0,
            transactions=0,
            changes=0,
            applied_lsn=applied,
            applied_commit_ts=to_datetime(resume.place.high_commit_time) if applied is not None and resume else None,
            tables=(),
            warnings=tuple(self.run.warnings),
            seconds=time.monotonic() - began,
            stages=self.run.stages,
        )


def _without_ended(plan: Plan, history: History) -> Plan:
    """Leave out of what is open the streamed transactions that have come as ordinary ones in a later session."""
    open_ = [item.xid for item in plan.resume.deferred if item.gid is None]
    ended = history.ended(open_) if open_ else set()
    if not ended:
        return plan
    deferred = tuple(item for item in plan.resume.deferred if item.gid is not None or item.xid not in ended)
    return replace(plan, resume=replace(plan.resume, deferred=deferred))


__all__ = ["apply"]
