"""The main job: scan, stitch, decode, fold, apply, ledger."""

from __future__ import annotations

import os
import time
import zlib
from collections.abc import Callable, Collection, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final

from wal2delta.decode.scan import FileScan
from wal2delta.errors import OrderError, TargetError
from wal2delta.listing import natural_key
from wal2delta.lsn import to_datetime
from wal2delta.progress import NoProgress, Progress
from wal2delta.protocol.framing import Framing
from wal2delta.report import RunReport, TableReport
from wal2delta.settings import Settings, make_settings
from wal2delta.spark import delta, steps
from wal2delta.spark.catalogue import Catalogue
from wal2delta.spark.isolation import has_own_sessions, own_session, quiet_queries, settings
from wal2delta.spark.ledger import PLANNED, Ledger, Seen, State
from wal2delta.spark.mirror import MirrorTable, TableRun, apply_table, check_table
from wal2delta.spark.source import CaptureFile, list_captures, name_in, root_of, scan_captures
from wal2delta.spark.staging import Staged, Staging
from wal2delta.spark.target import Target
from wal2delta.spark.workers import DecodeTask, ScanTask
from wal2delta.transactions.plan import Plan, Resume
from wal2delta.transactions.stitch import Stitch

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import SparkSession

_MAX_BUCKETS: Final = 2048


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
        Wal2DeltaError: what stopped it.  No table is touched when the captures are at fault.
    """
    return _Job(spark, str(captures), Target.parse(str(target)), make_settings(config), progress or NoProgress()).run()


@dataclass(frozen=True, slots=True)
class _Reading:
    """What a run has to read.

    Attributes:
        first: the offset to begin at in the first file, where it is known already.
        seen: the listing up to the last file.
        resume: where the last run ended.
    """

    files: tuple[CaptureFile, ...]
    first: int
    seen: Seen
    resume: Resume | None


@dataclass
class _Job:
    spark: SparkSession
    captures: str
    target: Target
    settings: Settings
    progress: Progress
    stages: dict[str, float] = field(default_factory=dict)
    warnings: list[str] = field(default_factory=list)

    def run(self) -> RunReport:
        began = time.monotonic()
        # Settings that the job needs do not reach the caller's session.
        self.own = own_session(self.spark)
        self.ledger = Ledger(self.spark, self.target)
        self.source = self.settings.source or root_of(self.captures)
        try:
            with quiet_queries(), settings(self.own, delta.SMALL_STATE):
                return self._run(began)
        finally:
            self.progress.done()

    def _run(self, began: float) -> RunReport:
        finished: RunReport | None = None
        with self._stage("read ledger"):
            state = self.ledger.read()
            self._check_source(state)
        if state is not None and state.phase == PLANNED:
            self.warnings.append(f"run {state.run} was interrupted; it was finished first")
            interrupted = state
            assert interrupted.plan is not None
            state, finished = self._apply_plan(
                interrupted.plan, interrupted.bytes, interrupted.tables, lambda: interrupted, resumed=True, began=began
            )
        with self._stage("list"):
            files = list_captures(self.own, self.captures, self.settings.captures)
            reading = self._what_is_new(files, state)
        if reading is None:
            return finished or self._nothing_new(state, began)
        plan = self._plan(reading)
        if plan.upto_lsn <= plan.after_lsn and state is None:
            self._refuse_empty(plan)
        size = sum(file.length for file in reading.files)

        def write_plan() -> State:
            return self.ledger.write_plan(
                state,
                plan,
                source=self.source,
                captures=self.captures,
                files=len(reading.files),
                size=size,
                seen=reading.seen,
            )

        _, report = self._apply_plan(
            plan, size, state.tables if state is not None else (), write_plan, resumed=False, began=began
        )
        return report if finished is None else _joined(finished, report)

    # What there is to do

    def _check_source(self, state: State | None) -> None:
        if state is not None and state.source != self.source:
            raise TargetError(
                f"the target was made from the source {state.source!r}, not {self.source!r}",
                path=self.target.text,
                remedy="Use another target; or, if the captures were moved, name the source in the configuration: "
                f"source: {state.source}",
            )

    def _what_is_new(self, files: Sequence[CaptureFile], state: State | None) -> _Reading | None:
        """Give what has to be read; None when nothing has come since the last run."""
        resume = self._resume(files, state)
        if resume is None or state is None:
            return _Reading(tuple(files), 0, self._seen(files), None)
        last = _order(resume.last_path)
        earlier = [file for file in files if _order(file.path) <= last]
        later = [file for file in files if _order(file.path) > last]
        self._check_late(earlier, state)
        lengths = {file.path: file.length for file in earlier}
        grown = lengths.get(resume.last_path, resume.last_length) != resume.last_length
        if not later and not grown:
            return None
        at = _order(resume.path)
        again = [file for file in earlier if _order(file.path) >= at]
        if resume.done and lengths.get(resume.path, resume.length) == resume.length:
            # The whole file was read; what is known of its end is enough.
            again = [file for file in again if file.path != resume.path]
        elif resume.path not in lengths:
            raise OrderError(
                "the file is gone, and its end was not applied yet",
                path=resume.path,
                offset=resume.offset,
                remedy="Bring it back to where it was",
            )
        elif lengths[resume.path] < resume.length:
            raise OrderError(
                f"the file had {resume.length:,} bytes and has {lengths[resume.path]:,} now",
                path=resume.path,
                remedy="Captures must not change but by growing; restore the file, or apply to a new target",
            )
        to_read = (*again, *later)
        first = resume.offset if again and again[0].path == resume.path else 0
        return _Reading(to_read, first, self._seen(files), resume)

    def _resume(self, files: Sequence[CaptureFile], state: State | None) -> Resume | None:
        """Give where the last run ended, in the files' present place."""
        if state is None or state.resume is None:
            return None
        before, here = root_of(state.captures), root_of(self.captures)
        if before == here:
            return state.resume
        present = {name_in(here, file.path): file.path for file in files}

        def moved(path: str) -> str:
            return present.get(name_in(before, path), path)

        return replace(state.resume, path=moved(state.resume.path), last_path=moved(state.resume.last_path))

    def _seen(self, files: Sequence[CaptureFile]) -> Seen:
        root = root_of(self.captures)
        return Seen(len(files), sum(zlib.crc32(name_in(root, file.path).encode()) for file in files))

    def _check_late(self, earlier: Sequence[CaptureFile], state: State) -> None:
        """Refuse files that sort before what was applied but were not there then."""
        if self._seen(earlier) == state.seen:
            return
        before, here = root_of(state.captures), root_of(self.captures)
        rows = delta.read(self.own, self.target.ledger("files")).select("path").collect()
        known = {name_in(root, row.path) for row in rows for root in (before, here)}
        late = [file.path for file in earlier if name_in(here, file.path) not in known]
        if late:
            raise OrderError(
                f"the file sorts before {state.resume.last_path if state.resume else ''}, which is applied already"
                + (f" (as do {len(late) - 1} more)" if len(late) > 1 else ""),
                path=late[0],
                remedy="Name files so that they sort by time; a file that came late can be applied to a new target "
                "together with all others",
            )

    def _plan(self, reading: _Reading) -> Plan:
        """Scan the files in parallel and stitch them."""
        resume = reading.resume
        framing = None if self.settings.captures.framing == "auto" else Framing(self.settings.captures.framing)
        stitch = Stitch(resume)
        with self._stage("scan", len(reading.files)):
            tasks: dict[str, ScanTask] = {}
            for number, file in enumerate(reading.files):
                is_first = number == 0
                tasks[file.path] = ScanTask(
                    framing=framing,
                    place=resume.place if is_first and resume is not None else None,
                    start=reading.first if is_first else 0,
                    first=is_first and resume is None,
                    known_length=resume.length if resume is not None and file.path == resume.path else 0,
                )
            scans = scan_captures(self.own, tasks)
            self._check_unchanged(resume, scans)
            for number, file in enumerate(reading.files):
                again = stitch.add(scans[file.path], exact=number == 0)
                if again is not None:
                    task = ScanTask(framing, again.place, 0, again.place is None, again.prefix)
                    stitch.add(scan_captures(self.own, {file.path: task})[file.path], exact=True)
                self.progress.advance()
        return stitch.plan()

    def _check_unchanged(self, resume: Resume | None, scans: Mapping[str, FileScan]) -> None:
        """Refuse to go on in a file whose read part is another now."""
        if resume is not None and resume.path in scans and scans[resume.path].known_fingerprint != resume.fingerprint:
            raise OrderError(
                "the part of the file that was read before has changed",
                path=resume.path,
                remedy="Captures must not change but by growing; restore the file, or apply to a new target",
            )

    def _refuse_empty(self, plan: Plan) -> None:
        """Refuse to begin a target with captures that hold no whole transaction but end inside of one."""
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
        self, plan: Plan, size: int, before: Collection[str], begin: Callable[[], State], *, resumed: bool, began: float
    ) -> tuple[State, RunReport]:
        """Decode a plan, write it down, apply it table by table, record it.

        Args:
            size: bytes of the files that it reads.
            before: the tables that earlier runs have written to.
            begin: gives the run's state, in which the plan stands written; called once the files have proved to
                be decodable.
            resumed: the run was interrupted before; some tables may have its commit.
        """
        self.warnings.extend(plan.warnings)
        catalogue = Catalogue.of(plan, self.settings, self.target)
        truncates = {item.oid: (item.lsn, item.ordinal) for item in plan.truncates}
        staging = Staging(self.target)
        try:
            staged = self._decode(plan, catalogue, staging, truncates, size)
            tables = catalogue.used(staged, tuple(truncates), plan, self.settings)
            with self._stage("plan"):
                exists = self._check_tables(tables, before, resumed=resumed)
                state = begin()
            steps.reached("plan written")
            runs = [
                TableRun(
                    mirror=table,
                    staged=staged.get(table.number, Staged()),
                    truncated=bool(table.oids & truncates.keys()),
                    commit=delta.CommitId(state.ledger, state.run),
                    resumed=resumed,
                    partitions=self._buckets(size),
                    exists=there,
                )
                for table, there in zip(tables, exists, strict=True)
            ]
            reports = self._apply_tables(runs, staging)
        finally:
            with self._stage("clean up"):
                staging.clear(self.own)
        report = RunReport(
            run=state.run,
            status="applied",
            captures=self.captures,
            target=self.target.text,
            files=state.files,
            capture_bytes=size,
            transactions=plan.transactions,
            changes=sum(item.rows for item in staged.values()),
            applied_lsn=plan.upto_lsn if plan.upto_lsn >= 0 else None,
            applied_commit_ts=to_datetime(plan.upto_commit_time) if plan.upto_lsn >= 0 else None,
            tables=tuple(reports),
            warnings=tuple(self.warnings),
            seconds=0.0,
            stages=self.stages,
        )
        with self._stage("record"):
            state = self.ledger.record(state, report)
        steps.reached("run recorded")
        return state, _timed(report, began, self.stages)

    def _decode(
        self,
        plan: Plan,
        catalogue: Catalogue,
        staging: Staging,
        truncates: Mapping[int, tuple[int, int]],
        size: int,
    ) -> dict[int, Staged]:
        if plan.upto_lsn <= plan.after_lsn:
            return {}
        with self._stage("decode"):
            task = DecodeTask(
                files={file.path: (number, file) for number, file in enumerate(plan.files)},
                relations=catalogue.assignments(self.settings),
                after_lsn=plan.after_lsn,
                upto_lsn=plan.upto_lsn,
                truncates=truncates,
                buckets=self._buckets(size),
            )
            return staging.decode(self.own, [file.path for file in plan.files], task)

    def _buckets(self, size: int) -> int:
        return max(1, min(_MAX_BUCKETS, -(-size // self.settings.bucket_bytes)))

    @property
    def _at_once(self) -> int:
        """How many tables are worked on at a time; each needs a session of its own."""
        return self.settings.tables_at_once if has_own_sessions(self.spark) else 1

    def _check_tables(self, tables: Sequence[MirrorTable], known: Collection[str], *, resumed: bool) -> list[bool]:
        """Say which tables are there, and refuse those that are not as they should be."""

        def check(table: MirrorTable) -> bool:
            return check_table(self.spark, table, known=resumed or table.table.text in known)

        with ThreadPoolExecutor(self._at_once) as pool:
            return list(pool.map(check, tables))

    def _apply_tables(self, runs: Sequence[TableRun], staging: Staging) -> list[TableReport]:
        """Apply the tables concurrently."""
        reports: list[TableReport] = []
        with self._stage("apply", len(runs)), ThreadPoolExecutor(self._at_once) as pool:
            waiting = [pool.submit(apply_table, self.spark, staging, run) for run in runs]
            try:
                for done in as_completed(waiting):
                    report = done.result()
                    reports.append(report)
                    self.progress.advance()
                    steps.reached(f"table applied: {report.name}")
            except BaseException:
                for other in waiting:
                    other.cancel()
                raise
        return sorted(reports, key=lambda report: report.name)

    def _nothing_new(self, state: State | None, began: float) -> RunReport:
        resume = state.resume if state is not None else None
        applied = resume.place.last_lsn if resume is not None and resume.place.last_lsn >= 0 else None
        return RunReport(
            run=None,
            status="nothing new",
            captures=self.captures,
            target=self.target.text,
            files=0,
            capture_bytes=0,
            transactions=0,
            changes=0,
            applied_lsn=applied,
            applied_commit_ts=to_datetime(resume.place.last_commit_time) if applied is not None and resume else None,
            tables=(),
            warnings=(),
            seconds=time.monotonic() - began,
            stages=self.stages,
        )

    @contextmanager
    def _stage(self, name: str, total: int | None = None) -> Iterator[None]:
        began = time.monotonic()
        self.progress.stage(name, total)
        try:
            yield
        finally:
            self.stages[name] = self.stages.get(name, 0.0) + time.monotonic() - began


def _order(path: str) -> tuple[Any, str]:
    return natural_key(path), path


def _timed(report: RunReport, began: float, stages: Mapping[str, float]) -> RunReport:
    return replace(report, seconds=time.monotonic() - began, stages=dict(stages))


def _joined(one: RunReport, two: RunReport) -> RunReport:
    """Report an interrupted run that was finished and the new one behind it as one."""
    return replace(
        two,
        files=one.files + two.files,
        capture_bytes=one.capture_bytes + two.capture_bytes,
        transactions=one.transactions + two.transactions,
        changes=one.changes + two.changes,
        tables=(*one.tables, *two.tables),
    )


__all__ = ["apply"]
