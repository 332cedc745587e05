"""The main job: runs, one after the other, until the archive's end, or the wanted one, is reached.

`Job._apply` is the order of one run: read the ledger, finish an interrupted run, list the new files, scan and stitch
them to a plan (`walreplay.job.scanning`), apply it (`walreplay.job.execution`).  A large archive is several
runs, each of as many bytes as `run_bytes_of` allows.
"""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from enum import Enum, auto
from typing import TYPE_CHECKING, Any

from walreplay.archive.index import ArchiveIndex, allowed, list_beside
from walreplay.config import Settings, make_settings
from walreplay.decode.scan import Until
from walreplay.errors import OrderError, TargetError
from walreplay.job.context import RunContext
from walreplay.job.execution import Applying, RunWork
from walreplay.job.holding import reported
from walreplay.job.installing import Installing
from walreplay.job.scanning import NewFiles, RunInput, Scanning, run_bytes_of, seen_files
from walreplay.job.standing import newer_error
from walreplay.job.table_check import TableChecks
from walreplay.ledger.runs import metrics_of
from walreplay.ledger.state import PLANNED, REBUILDING, State, now
from walreplay.ledger.transactions import refuse_gone
from walreplay.lsn import format_lsn, to_datetime
from walreplay.progress import Progress
from walreplay.report import RunReport, joined, timed
from walreplay.session import steps
from walreplay.session.isolation import has_own_sessions
from walreplay.session.reach import folder_of
from walreplay.spark.captures import CaptureFile, root_of
from walreplay.spark.staging import Staging
from walreplay.stream.plan import Plan
from walreplay.table.registry import Entries
from walreplay.writing.merge import missing_warnings
from walreplay.writing.move import fence_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def apply(
    spark: SparkSession,
    captures: str | os.PathLike[str],
    target: str | os.PathLike[str],
    config: str | os.PathLike[str] | Mapping[str, Any] | Settings | None = None,
    progress: Progress | None = None,
    *,
    metrics: str | os.PathLike[str] | None = None,
) -> RunReport:
    """Bring the target's tables up to the last transaction that the captures hold as a whole.

    A run that was interrupted is finished first, from its own plan.  An archive that is too large for one run
    is applied in several, which are reported as one.

    Args:
        captures: the folder (or file, or glob) of the capture files.
        target: the folder of the Delta tables, a catalog, or ``catalog.schema``.
        config: a YAML file, the same as a mapping, or `Settings`.
        progress: shows how far the run is.
        metrics: a file to which a JSON line is added for each run and table; or a folder (a path with a slash at its
            end, or a URI), in which each run writes a file.

    Raises:
        WalReplayError: what stopped it.  No table is touched when the captures are at fault.
    """
    return run_job(spark, captures, target, config, progress, metrics=metrics)


def run_job(
    spark: SparkSession,
    captures: str | os.PathLike[str],
    target: str | os.PathLike[str],
    config: str | os.PathLike[str] | Mapping[str, Any] | Settings | None = None,
    progress: Progress | None = None,
    until: Until | None = None,
    *,
    metrics: str | os.PathLike[str] | None = None,
) -> RunReport:
    """Do what `apply` does, up to a transaction.

    Args:
        until: the last transaction that is wanted; None for the captures' end.
    """
    with RunContext.on(spark, target, make_settings(config), progress, reads=str(captures), metrics=metrics) as run:
        return Job(run, str(captures), until).apply()


class Idle(Enum):
    """Why a run has nothing to apply."""

    TOO_FEW_FILES = auto()  # no transaction ends in them, and there are more
    AT_THE_END = auto()  # the next transaction is behind `until`


class Job:
    """One call of `apply`: finish the run that was interrupted, if there is one, then do the new ones."""

    def __init__(self, run: RunContext, captures: str, until: Until | None = None) -> None:
        self.run = run
        self.captures = captures
        self.until = until
        self.source = run.settings.source or root_of(captures)
        self._run_byte_limit = run_bytes_of(run.spark)
        self._files: list[CaptureFile] | None = None  # listed once for all runs of the call
        self._index: ArchiveIndex | None = None  # the archive's, if there is one
        self._first_warning = 0  # where the warnings of the next run begin
        self._run_numbers: list[int] = []
        self._bytes_read = self._bytes_wanted = 0  # for the display of a call that is several runs

    def apply(self) -> RunReport:
        """Return the report of all that was done."""
        began = time.monotonic()
        with self.run.at_work():  # gives the lock back, whatever happens
            report = self._apply()
            self.run.keep_ledger_small(self._run_numbers)
        # `report.tables` has all runs of the call, so each warning comes once.
        warnings = (*self.run.warnings, *missing_warnings(report.tables, self.run.settings, self.run.gaps))
        return timed(replace(report, warnings=tuple(dict.fromkeys(warnings))), began, self.run.stages)

    def _apply(self) -> RunReport:
        joined_report: RunReport | None = None
        state = self._read()
        self._check_source(state)
        while True:
            # A call that finds nothing to do never takes the lock.
            if state is not None and state.phase in (PLANNED, REBUILDING):
                state = self._lock()
            if state is not None and state.phase == REBUILDING:
                state = self._install(state)
            if state is not None and state.phase == PLANNED:
                state, report = self._finish(state)
                joined_report = joined(joined_report, report)
            self._check_end(state)
            reading = self._find_next_files(state)
            if reading is None:
                break
            locked = self._lock()
            if locked is not state:
                # `acquire` returns the very object that was read, unless another run has ended since: begin again.
                state, self._files = locked, None
                continue
            outcome = self._run(reading, state)
            if outcome is Idle.TOO_FEW_FILES:
                self._run_byte_limit *= 2  # no transaction ends in so many bytes: read on, twice as far
                continue
            if outcome is Idle.AT_THE_END:
                break
            state, report = outcome
            self._bytes_read += reading.size
            joined_report = joined(joined_report, report)
            # There is nothing more: by the listing, or as the next transaction is behind `until`.
            is_at_end = self.until is not None and state.resume is not None and state.resume.has_more
            if not reading.has_rest or is_at_end:
                return joined_report
        self._look_at_tables(state)
        if joined_report is not None:
            return joined_report
        report = self._nothing_new(state)
        waiting = state.resume.open_transactions if state is not None and state.resume is not None else ()
        self.run.tell_metrics(metrics_of(report, state, now(), (item.lsn for item in waiting)))
        return report

    def _read(self) -> State | None:
        return self.run.read()

    def _find_next_files(self, state: State | None) -> RunInput | None:
        """Return what the next run has to read; None if there is nothing new."""
        with self.run.stage("list"):
            files = self._list()
            new = NewFiles(self.run.session, self.captures, self.run.settings, self.run.target.ledger("files"))
            all_new = new.what_is_new(files, state)
        if all_new is None:
            return None
        reading = all_new.at_most(self._run_byte_limit)
        self._bytes_wanted = max(self._bytes_wanted, self._bytes_read + all_new.size)  # files may have come meanwhile
        if reading.has_rest or self._bytes_read:
            # A call that is one run shows its stages alone.
            self.run.progress.so_far(self._bytes_read, self._bytes_wanted)
        return reading

    def _run(self, reading: RunInput, state: State | None) -> tuple[State, RunReport] | Idle:
        """Do one run; return the ledger's state behind it and its report, or why there is nothing to apply."""
        with self.run.staging() as staging, ThreadPoolExecutor(1) as index_pool:
            scanning = Scanning(self.run, reading, self.until, self._index)
            plan = scanning.plan()
            steps.reached("scanned")
            idle = self._idle_reason(plan, reading, state)
            if idle is not None:
                return idle
            index_write = index_pool.submit(scanning.record)
            if not has_own_sessions(self.run.spark):  # a shared session allows one statement at a time
                index_write.result()

            def write_plan(decoded: Plan, number: int, places: tuple[str, ...], entries: Entries) -> State:
                # First the index: whoever finishes this run, once its plan is written, does not scan its files.
                index_write.result()
                seen = seen_files(self.captures, reading.listed, plan.resume.last_path)
                what = {"plan": decoded, "resume": None, "source": self.source, "captures": self.captures, "seen": seen}
                sizes = {"files": len(reading.files), "bytes": reading.size}
                return self.run.ledger.begin(state, number, places, tables=entries, **what, **sizes)

            return self._apply_work(staging, RunWork(plan, reading.size, state, write_plan))

    def _list(self) -> list[CaptureFile]:
        """Return the captures' files; refuse those that are not as the archive's index has them."""
        if self._files is None:
            settings = self.run.settings
            self._files, index, errors = list_beside(self.run.session, self.captures, settings)
            self._index = index if index.exists else None
            warnings = allowed(errors, settings)
            if index.is_empty and (settings.index or index.exists):
                warnings.append(f"{index.table.text}: no index of these captures, so nothing proves their bytes")
            if index.unlinked:
                problem = f"from {index.unlinked} on it cannot tell foreign files: the one in front is not read whole"
                warnings.append(f"{index.table.text}: {problem}; walreplay index reads it")
            self.run.warnings += (text for text in warnings if text not in self.run.warnings)
        return self._files

    def _idle_reason(self, plan: Plan, reading: RunInput, state: State | None) -> Idle | None:
        """Return why there is nothing to apply; refuse a plan that cannot be."""
        if plan.is_idle and plan.resume.has_more:  # it ended in front of a transaction behind `until`
            if state is None:
                raise OrderError(
                    "every transaction of the captures commits later than the end that is asked for",
                    path=self.captures,
                    remedy="`walreplay inspect` shows the first commit; ask for a later end, or bring older captures",
                )
            return Idle.AT_THE_END
        if plan.is_idle and reading.has_rest:
            return Idle.TOO_FEW_FILES
        # A target that exists may go on later; none is created from captures that end inside their first transaction.
        if plan.upto_lsn <= plan.after_lsn and state is None and plan.torn is not None:
            path, offset, size = plan.torn
            raise OrderError(
                f"the captures hold no whole transaction, and end inside a message of which {size:,} bytes are there",
                path=path,
                offset=offset,
                remedy="Run again when more has come; if nothing more will, the file was truncated: fetch it again",
            )
        refuse_gone([file.path for file in plan.files if not file.scanned], [file.path for file in reading.listed])
        return None

    def _apply_work(self, staging: Staging, work: RunWork) -> tuple[State, RunReport]:
        result = Applying(self.run, self.captures, staging, self._first_warning).apply(work)
        self._first_warning = len(self.run.warnings)  # the next run reports its own alone
        self._run_numbers.append(result[0].run)
        return result

    def _lock(self) -> State | None:
        state = self.run.lock()
        self._check_source(state)
        return state

    def _install(self, interrupted: State) -> State:
        state, _ = Installing(self.run, self.captures).finish(interrupted, resumed=True)
        return state

    def _finish(self, interrupted: State) -> tuple[State, RunReport]:
        self.run.warnings.append(f"run {interrupted.run} was interrupted; it was finished first")
        plan = interrupted.plan
        assert plan is not None
        self._list()
        if self._index is not None:
            plan = self._index.proving(plan, whole=True)
        fence = fence_of(self.run.session, self.run.target, self.run.ledger.holder_id)
        if fence is not None:  # if the interrupted run was only paused, it can rename nothing from here on
            fence.take_down_others()

        def reuse_plan(_: Plan, __: int, places: tuple[str, ...], ___: Entries) -> State:
            # The plan and its number stay; a changed configuration may want its tables in other places.
            if places == interrupted.places:
                return interrupted
            return self.run.ledger.write(replace(interrupted, places=places))

        with self.run.staging() as staging:
            work = RunWork(plan, interrupted.bytes, interrupted, reuse_plan, resumed=True)
            return self._apply_work(staging, work)

    # What there is to do

    def _check_source(self, state: State | None) -> None:
        if state is not None:
            remedy = "Check --captures; use another target; or, if the captures were moved, name the source in the "
            remedy += f"configuration: source: {state.source}"
            state.check_source(self.source, self.run.target.text, remedy)

    def _check_end(self, state: State | None) -> None:
        """Refuse to go back to an end that the target is behind."""
        resume = state.resume if state is not None else None
        if self.until is None or resume is None or not self.until.is_behind(resume.place):
            return
        raise TargetError(
            f"the target holds what was committed up to {format_lsn(resume.place.high_lsn)} "
            f"({to_datetime(resume.place.high_commit_time).isoformat(sep=' ')}), which is behind {self.until}",
            path=self.run.target.text,
            remedy="Backfill another target; or read an earlier version of the tables: `walreplay status --as-of RUN`",
        )

    def _look_at_tables(self, state: State | None) -> None:
        """Check that tables are as the last run left them, when there is nothing to apply.

        In an object store each table costs a request, in every run: there the next run that writes checks them.

        Raises:
            TargetError: one is newer than the ledger.
        """
        folder = folder_of(self.run.session, self.run.target.root)
        if state is None or (folder is not None and folder.is_far):  # an object store
            return
        with self.run.stage("check"):
            checks = TableChecks(self.run, accepts=self.run.settings.accept_changed_tables)
            ahead = checks.look_at_others(state.tables, ())
        if not ahead:
            return
        current = self.run.ledger.read()
        # No lock is held here: another run that has begun meanwhile may have written to the tables.
        if current is not None and (current.run, current.phase) == (state.run, state.phase):
            table, standing = ahead[0]
            raise newer_error(table, standing, standing.ahead[-1], state.reached[0])

    def _nothing_new(self, state: State | None) -> RunReport:
        reached, entries = ((-1, 0), ()) if state is None else (state.reached, state.tables)
        return self.run.report(None, "nothing new", self.captures, reached, reported(self.run, entries))
