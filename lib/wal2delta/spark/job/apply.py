"""The main job: scan, stitch, decode, fold, apply, ledger."""

from __future__ import annotations

import os
import time
import uuid
import zlib
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, as_completed
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from wal2delta.decode.summary import FileScan
from wal2delta.errors import CaptureError, FramingChange, NotACapture, OrderError, TargetError, ValueFormatError
from wal2delta.listing import sort_key
from wal2delta.lsn import to_datetime
from wal2delta.numbering import missing_numbers
from wal2delta.progress import NoProgress, Progress
from wal2delta.protocol.framing import Framing
from wal2delta.report import Action, RunReport, TableReport
from wal2delta.settings import Settings, make_settings
from wal2delta.spark.captures.files import (
    CaptureFile,
    are_mapped,
    confirm_holes,
    list_captures,
    name_in,
    root_of,
    scan_captures,
)
from wal2delta.spark.checks.places import check_places
from wal2delta.spark.checks.setting_back import refuse_newer
from wal2delta.spark.checks.tables import TableChecks
from wal2delta.spark.delta import statements as delta
from wal2delta.spark.delta.fence import Fence
from wal2delta.spark.delta.mounted import mounted_folder
from wal2delta.spark.delta.storage import damage_told, naming_the_catalog, storage_told
from wal2delta.spark.delta.target import Target
from wal2delta.spark.job.ahead import AheadScan
from wal2delta.spark.ledger.ledger import Ledger, run_id
from wal2delta.spark.ledger.registry import MirrorEntry, left_at
from wal2delta.spark.ledger.state import PLANNED, Seen, State
from wal2delta.spark.ledger.transactions import History, refuse_gone
from wal2delta.spark.planning.placement import Move, Placement
from wal2delta.spark.planning.plan import RunPlan, plan_tables
from wal2delta.spark.planning.same_server import check_followed, is_in_doubt, warnings_of
from wal2delta.spark.planning.table_run import TableRun, step_of
from wal2delta.spark.planning.versions import Catalogue
from wal2delta.spark.session import steps
from wal2delta.spark.session.failures import failures_told
from wal2delta.spark.session.isolation import has_own_sessions, own_session, quiet_queries, settings
from wal2delta.spark.staging.base import Staged, Staging
from wal2delta.spark.staging.by_spark import TableStaging
from wal2delta.spark.staging.files import FileStaging
from wal2delta.spark.tables.fold import Folded, fold_together, groups_of
from wal2delta.spark.tables.missing_rows import missing_warnings
from wal2delta.spark.tables.move import fence_of, move
from wal2delta.spark.tables.update import apply_table
from wal2delta.spark.workers.decode import DecodeTask
from wal2delta.spark.workers.scan import ScanTask
from wal2delta.transactions.plan import Plan, Resume
from wal2delta.transactions.stitch import Stitch

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import SparkSession

_STAGING: Final = "staging"

_MAX_BUCKETS: Final = 2048
_FEW_BUCKETS: Final = 4
_FEW_BYTES: Final = 8 << 20
_TASK_BYTES: Final = 4 << 20
"""How much of a table's staged changes is worth a task of its own."""
_LEAST_TWIN: Final = 64


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
    job = _Job(spark, str(captures), Target.parse(str(target)), make_settings(config), progress or NoProgress())
    with failures_told(path=job.target.text):
        return job.run()


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

    @property
    def size(self) -> int:
        """Bytes of the files."""
        return sum(file.length for file in self.files)


@dataclass
class _Job:
    spark: SparkSession
    captures: str
    target: Target
    settings: Settings
    progress: Progress
    stages: dict[str, float] = field(default_factory=dict)
    warnings: list[str] = field(default_factory=list)
    holes: dict[str, str] = field(default_factory=dict)

    def run(self) -> RunReport:
        began = time.monotonic()
        check_places(self.captures, self.target)
        # Settings that the job needs do not reach the caller's session.
        self.own = own_session(self.spark)
        self.ledger = Ledger(self.spark, self.target)
        self.source = self.settings.source or root_of(self.captures)
        try:
            with quiet_queries(), storage_told(self.target.text), settings(self.own, delta.SMALL_STATE):
                try:
                    return self._run(began)
                except Exception as error:
                    # Whatever it has met then: that another has taken over says why.
                    lost = self.ledger.why_lost()
                    if lost is None:
                        raise
                    raise lost from error
                finally:
                    self.ledger.release()
        finally:
            self.progress.done()

    def _run(self, began: float) -> RunReport:
        finished: RunReport | None = None
        with self._stage("read ledger"), naming_the_catalog(self.target):
            state = self.ledger.read()
            self._check_source(state)
        while True:
            if state is not None and state.phase == PLANNED:
                state = self._lock()
            if state is not None and state.phase == PLANNED:
                state, finished = self._finish(state, began)
            with self._stage("list"):
                files = list_captures(self.own, self.captures, self.settings.captures)
                reading = self._what_is_new(files, state)
            if reading is None:
                self._look_at_tables(state)
                return replace(finished, warnings=tuple(self.warnings)) if finished else self._nothing_new(state, began)
            locked = self._lock()
            if locked is state:
                break
            # Another run has come to its end since the ledger was read.
            state = locked
        before = state.tables if state is not None else ()
        with self._staging() as staging:
            ahead = self._scan_ahead(reading, before, staging)
            plan = self._plan(reading, ahead)
            steps.reached("scanned")
            if plan.upto_lsn <= plan.after_lsn and state is None:
                self._refuse_empty(plan)
            refuse_gone([file.path for file in plan.files if not file.scanned], [file.path for file in files])

            def write_plan(decoded: Plan, run: int) -> State:
                return self.ledger.write_plan(
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
        return report if finished is None else _joined(finished, report)

    def _lock(self) -> State | None:
        with self._stage("lock"):
            state = self.ledger.acquire()
        self._check_source(state)
        self.warnings.extend(self.ledger.warnings)
        self.ledger.warnings.clear()
        return state

    def _finish(self, interrupted: State, began: float) -> tuple[State, RunReport]:
        self.warnings.append(f"run {interrupted.run} was interrupted; it was finished first")
        plan = interrupted.plan
        assert plan is not None
        fence = fence_of(self.own, self.target, self.ledger.run_id)
        if fence is not None:
            # From here on, the run that was interrupted renames nothing any more, should it only have stood still.
            fence.take_down_others()
        with self._staging() as staging:
            return self._apply_plan(
                plan, staging, interrupted.bytes, interrupted, lambda *_: interrupted, resumed=True, began=began
            )

    @contextmanager
    def _staging(self) -> Iterator[Staging]:
        """Give the run its place for staged events, and have it empty whatever happens."""
        staging = _staging_of(self.own, self.target, self.ledger)
        try:
            yield staging
        finally:
            self._clear(staging)

    def _clear(self, staging: Staging) -> None:
        # A run that has lost the lock leaves everything to the other one; once recorded, it has cleared up already.
        if staging.written and self.ledger.has_lock():
            with self._stage("clean up"):
                try:
                    staging.clear(self.own)
                except TargetError as error:
                    # The next run will try again.
                    self.warnings.append(str(error))

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
            self._check_holes(files, files, None)
            return _Reading(tuple(files), 0, self._seen(files), None)
        last = self._key_of(resume.last_path, files)
        earlier = [file for file in files if self._key(file) <= last]
        later = [file for file in files if self._key(file) > last]
        self._check_earlier(earlier, state, resume)
        self._check_holes(files, later, resume)
        lengths = {file.path: file.length for file in earlier}
        grown = lengths.get(resume.last_path, resume.last_length) != resume.last_length
        if not later and not grown:
            return None
        anew = self._in_named_framing(resume)
        if anew is not None:
            return _Reading(tuple(later), 0, self._seen(files), anew) if later else None
        at = self._key_of(resume.path, files)
        again = [file for file in earlier if self._key(file) >= at]
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

    def _in_named_framing(self, resume: Resume) -> Resume | None:
        """Begin a session in the framing that the configuration names, if the files before were in another one."""
        name = self.settings.captures.framing
        return None if name in ("auto", resume.place.framing.value) else resume.in_session_of(Framing(name))

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

        resume = state.resume
        paths = {segment.path for item in resume.deferred for segment in item.segments}
        paths |= {segment.seam_path for item in resume.deferred for segment in item.segments}
        deferred = tuple(item.moved({path: moved(path) for path in paths}) for item in resume.deferred)
        return replace(resume, path=moved(resume.path), last_path=moved(resume.last_path), deferred=deferred)

    def _key(self, file: CaptureFile) -> tuple[Any, ...]:
        return sort_key(self.settings.captures.order, file.path, file.modified)

    def _key_of(self, path: str, files: Sequence[CaptureFile]) -> tuple[Any, ...]:
        """Give a file's place in the order; it may be gone."""
        for file in files:
            if file.path == path:
                return self._key(file)
        if self.settings.captures.order == "modified":
            raise OrderError(
                "the file is gone, and only its time says which files come after it",
                path=path,
                remedy="Bring it back, or order the captures by their names (captures: order)",
            )
        return sort_key(self.settings.captures.order, path, 0)

    def _seen(self, files: Sequence[CaptureFile]) -> Seen:
        """Sum up a listing: each file's name and length, but for the length of the newest, which may grow."""
        root = root_of(self.captures)
        names = [name_in(root, file.path) for file in files]
        lengths = [file.length for file in files[:-1]] + [0] * bool(files)
        parts = zip(names, lengths, strict=True)
        return Seen(len(files), sum(zlib.crc32(f"{name}\0{length}".encode()) for name, length in parts))

    def _check_earlier(self, earlier: Sequence[CaptureFile], state: State, resume: Resume) -> None:
        """Refuse files that sort before what was applied but were not there then, and such that have changed."""
        if self._seen(earlier) == state.seen:
            return
        before, here = root_of(state.captures), root_of(self.captures)
        files = self.target.ledger("files")
        with damage_told(files.text):
            recorded = delta.read(self.own, files).where(f"run <= {state.run}")
            rows = recorded.select("run", "path", "length").collect()
        known: dict[str, int] = {}
        for row in sorted(rows, key=lambda row: row.run):
            known.update({name_in(root, row.path): row.length for root in (before, here)})
        late = [file.path for file in earlier if name_in(here, file.path) not in known]
        if late:
            raise OrderError(
                f"the file sorts before {resume.last_path}, which is applied already"
                + (f" (as do {len(late) - 1} more)" if len(late) > 1 else ""),
                path=late[0],
                remedy="Name files so that they sort by time; a file that came late can be applied to a new target "
                "together with all others",
            )
        for file in earlier:
            length = known[name_in(here, file.path)]
            if file.path != resume.last_path and file.length != length:
                raise OrderError(
                    f"the file had {length:,} bytes when it was read and has {file.length:,} now, "
                    "though newer files have been read since",
                    path=file.path,
                    remedy="Only the newest file may grow; restore the file, or apply to a new target",
                )

    def _check_holes(self, files: Sequence[CaptureFile], new: Sequence[CaptureFile], resume: Resume | None) -> None:
        """Note where the files' own numbering says that one is missing in front of a new one."""
        before = [resume.last_path] if resume is not None else []
        paths = list(dict.fromkeys([*before, *(file.path for file in files)]))
        wanted = {file.path for file in new}
        holes = [hole for hole in missing_numbers(paths) if hole.after in wanted]
        if resume is not None and len(files) > len(new):
            # Files that were applied may be cleared away.
            there = {file.path for file in files} - wanted
            holes = [hole for hole in holes if hole.before in wanted or hole.before in there]
        for hole in confirm_holes(self.own, holes):
            self.holes[hole.after] = hole.describe()

    def _refuse_twins(self, scans: Mapping[str, FileScan]) -> None:
        """Refuse the same bytes under two names."""
        names: dict[tuple[int, int], str] = {}
        for path, scan in scans.items():
            # Files without a message, as idle writers leave them, may be equal.
            if scan.length < _LEAST_TWIN:
                continue
            other = names.setdefault((scan.length, scan.fingerprint), path)
            if other != path:
                raise OrderError(
                    f"the file holds the same bytes as {other}",
                    path=path,
                    remedy="Remove one of them, or leave it out by `captures: pattern`",
                )

    def _scan_ahead(self, reading: _Reading, before: Sequence[MirrorEntry], staging: Staging) -> AheadScan | None:
        """Give what decodes files with their scan, where that is worth it.

        Args:
            before: what the ledger knows of the tables that earlier runs have written to.
        """
        if are_mapped([file.path for file in reading.files]):
            return None
        stitch = Stitch(reading.resume, wants_origin=self.settings.wants_origin)
        buckets, check = self._buckets(reading.size), self.ledger.check_lock
        return AheadScan(self.own, staging, self.settings, before, buckets, stitch, check)

    def _plan(self, reading: _Reading, ahead: AheadScan | None = None) -> Plan:
        """Scan the files in parallel and stitch them.

        Args:
            ahead: what decodes files with their scan.
        """
        resume = reading.resume
        framing = None if self.settings.captures.framing == "auto" else Framing(self.settings.captures.framing)
        codec = self.settings.source_codec
        stitch = Stitch(resume, wants_origin=self.settings.wants_origin, allow_gaps=self.settings.captures.allow_gaps)
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
                    codec=codec,
                    length=file.length,
                    before=resume.last_path if is_first and resume is not None else "",
                )
            scans = self._scan(tasks, stitch, resume, ahead)
            self._check_unchanged(resume, scans)
            self._refuse_twins(scans)
            for number, file in enumerate(reading.files):
                scan = scans.get(file.path)
                is_open = stitch.is_open
                again = stitch.add(scan, exact=number == 0) if scan is not None else None
                if again is not None:
                    if ahead is not None:
                        ahead.drop(file.path)
                    where = again.prefix, again.edges, again.origins
                    task = ScanTask(
                        framing, again.place, 0, again.place is None, *where, codec=codec, before=again.before
                    )
                    self._rescan(stitch, task, file.path)
                if file.path in self.holes and not is_open:
                    # Where something is open that goes on here, nothing is missing.
                    self._note_hole(self.holes[file.path], file.path)
                self.progress.advance()
        plan = stitch.plan()
        _check_times(plan)
        before = resume.applied if resume is not None else 0
        return replace(plan, resume=replace(plan.resume, applied=before + plan.transactions))

    def _scan(
        self, tasks: Mapping[str, ScanTask], stitch: Stitch, resume: Resume | None, ahead: AheadScan | None
    ) -> dict[str, FileScan]:
        """Scan all files; the first one, whose place is known, may not fit what was read before."""
        try:
            return scan_captures(self.own, tasks) if ahead is None else ahead.scan(tasks, resume)
        except CaptureError as error:
            first = next(iter(tasks))
            if not self.settings.captures.allow_gaps or error.path != first or resume is None or tasks[first].start:
                raise
            place = stitch.gap(first, error.problem)
            task = tasks[first]
            if ahead is not None:
                ahead.forget()
            return scan_captures(self.own, {**tasks, first: ScanTask(task.framing, place, gap=True, codec=task.codec)})

    def _rescan(self, stitch: Stitch, task: ScanTask, path: str) -> None:
        try:
            stitch.add(scan_captures(self.own, {path: task})[path], exact=True)
        except (NotACapture, FramingChange):
            raise
        except CaptureError as error:
            if not self.settings.captures.allow_gaps or stitch.place is None:
                raise _not_joined(error, stitch) from None
            behind = ScanTask(task.framing, stitch.gap(path, error.problem), gap=True, codec=task.codec)
            stitch.add(scan_captures(self.own, {path: behind})[path], exact=True)

    def _note_hole(self, problem: str, path: str) -> None:
        if not self.settings.captures.allow_gaps:
            raise OrderError(
                problem,
                path=path,
                remedy="Bring the missing files; or go on without them by --allow-gaps, if they were empty",
            )
        self.warnings.append(f"{path}: {problem} (gaps are allowed)")

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
        self.warnings.extend(plan.warnings)
        entries = before.tables if before is not None else ()
        catalogue = Catalogue.of(plan, self.settings, entries)
        self.warnings.extend(catalogue.warnings)
        skips_truncates = self.settings.skips("t")
        truncates = {} if skips_truncates else {item.oid: (item.lsn, item.ordinal) for item in plan.truncates}
        try:
            self.ledger.check_lock()
            staged = self._decode(plan, catalogue, staging, truncates, size, ahead)
            steps.reached("decoded")
            history = History(self.own, self.target, plan, staging)
            with self._stage("check"):
                history.check_copies()
                plan = _without_ended(plan, history)
            tables = plan_tables(catalogue, staged, staging.uses, tuple(truncates), entries, self.settings, self.target)
            with self._stage("check"):
                self._check_server(tables.placement, entries, history, resumed=resumed)
            with self._stage("plan"):
                checks = self._checks
                found = checks.check(tables, resumed=resumed)
                if not resumed:
                    plan = replace(plan, id=str(uuid.uuid4()))
                number = checks.go_back(plan, tables, found, before, history) if not resumed else 0
                state = begin(plan, number)
            steps.reached("plan written")
            commit = delta.CommitId(state.ledger, state.run, run_id(plan))
            state, moved = self._move_tables(tables, state, commit)
            runs = [
                TableRun(
                    plan=table,
                    commit=commit,
                    resumed=resumed,
                    buckets=self._buckets(size),
                    tasks=_tasks(self._buckets(size), staged[table.number].size),
                    size=staged[table.number].size,
                    exists=there.exists,
                    check_lock=self.ledger.check_lock,
                )
                for table, there in zip(tables.tables, found, strict=True)
            ]
            if resumed and plan.id:
                with self._stage("plan"):
                    runs = checks.check_again(runs, plan)
            kept = [
                lambda: history.write(state, resumed=resumed),
                lambda: self.ledger.record_files(state, resumed=resumed),
            ]
            reports = self._apply_tables(runs, staging, kept)
            self.warnings.extend(missing_warnings(reports, self.settings))
        finally:
            self._clear(staging)
        report = RunReport(
            run=state.run,
            status="applied",
            captures=self.captures,
            target=self.target.text,
            files=state.files,
            capture_bytes=size,
            transactions=plan.transactions,
            changes=sum(table.rows for table in tables.tables),
            applied_lsn=plan.upto_lsn if plan.upto_lsn >= 0 else None,
            applied_commit_ts=to_datetime(plan.upto_commit_time) if plan.upto_lsn >= 0 else None,
            tables=tuple(sorted([*reports, *_moved(tables)], key=lambda report: report.name)),
            warnings=tuple(self.warnings),
            seconds=0.0,
            stages=self.stages,
        )
        with self._stage("record"):
            left = moved | {one.oid: one.version for one in reports if one.oid is not None}
            state = self.ledger.record(state, report, left_at(tables.entries, left, plan.id), resumed=resumed)
        steps.reached("run recorded")
        return state, _timed(report, began, self.stages)

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
        with self._stage("decode"):
            confirmed = ahead.confirm(plan, catalogue.assignments) if ahead is not None else None
            task = DecodeTask(
                files=files if confirmed is None else {p: file for p, file in files.items() if p not in confirmed.held},
                versions=plan.versions if confirmed is None else confirmed.versions,
                types=plan.type_versions if confirmed is None else confirmed.types,
                relations=catalogue.assignments,
                truncates=truncates,
                settings=self.settings.of_tasks,
                buckets=self._buckets(size),
            )
            return staging.decode(self.own, task, confirmed)

    def _check_server(
        self, placement: Placement, before: Sequence[MirrorEntry], history: History, *, resumed: bool
    ) -> None:
        """Refuse tables that were made anew if they must be another server's, and warn where they are many."""
        count = sum(not entry.set_aside for entry in before)
        if is_in_doubt(placement) and not resumed:
            followed = history.followed()
            if followed is not None:
                check_followed(placement, followed, count)
        self.warnings.extend(warnings_of(placement, count))

    def _buckets(self, size: int) -> int:
        """Say how many parts each table's changes are split into: of little a few, so that cores share the work."""
        few = min(_FEW_BUCKETS, size // _FEW_BYTES)
        return max(1, few, min(_MAX_BUCKETS, -(-size // self.settings.bucket_bytes)))

    @property
    def _at_once(self) -> int:
        """How many tables are worked on at a time; each needs a session of its own."""
        return self.settings.tables_at_once if has_own_sessions(self.spark) else 1

    @property
    def _checks(self) -> TableChecks:
        accepts = self.settings.accept_changed_tables
        return TableChecks(self.own, self.target, self.ledger, accepts, self._at_once, self.warnings)

    def _move_tables(
        self, tables: RunPlan, state: State, commit: delta.CommitId
    ) -> tuple[State, dict[int, int | None]]:
        """Let renamed tables, and those that give way, go to their places.

        What leaves goes first, and that it has is written down: what stands in its place afterwards is another table.

        Returns:
            the state, and the versions of tables that were copied, by oid.
        """
        placement = tables.placement
        copied: dict[int, int | None] = {}
        if not placement.moves:
            return state, copied
        fence = fence_of(self.own, self.target, self.ledger.run_id)
        with self._stage("move"):
            try:
                if fence is not None:
                    fence.put_up(partial(self.ledger.check_lock, sure=True))
                if not state.vacated:
                    copied |= self._move(placement.leaving, commit, 0, fence)
                    state = self.ledger.note_vacated(state)
                    steps.reached("places left")
                copied |= self._move(placement.arriving, commit, len(placement.leaving), fence)
            finally:
                if fence is not None:
                    fence.take_down()
        return state, copied

    def _move(
        self, moves: Sequence[Move], commit: delta.CommitId, first: int, fence: Fence | None
    ) -> dict[int, int | None]:
        copied: dict[int, int | None] = {}
        for number, step in enumerate(moves, first):
            self.ledger.check_lock()
            named = replace(step_of(commit, number), oid=step.oid)
            moved = move(own_session(self.spark), step, named, self.ledger.check_lock, fence)
            if moved.note is not None:
                self.warnings.append(moved.note)
            if moved.is_copy:
                copied[step.oid] = moved.version
            steps.reached(f"table moved: {step.name}")
        return copied

    def _apply_tables(
        self, runs: Sequence[TableRun], staging: Staging, kept: Sequence[Callable[[], None]]
    ) -> list[TableReport]:
        """Apply the tables concurrently, and beside them write what the ledger keeps of transactions and files.

        Args:
            kept: writes that.
        """
        reports: list[TableReport] = []
        with (
            self._stage("apply", len(runs)),
            ThreadPoolExecutor(len(kept)) as beside,
            ThreadPoolExecutor(self._at_once) as pool,
        ):
            # In a shared session one thing is done after the other.
            histories: list[Future[None]] = []
            for write in kept:
                histories.append(beside.submit(write))
                if not has_own_sessions(self.spark):
                    histories[-1].result()
            waiting: list[Future[TableReport]] = []

            def gather() -> None:
                for done in as_completed(waiting):
                    report = done.result()
                    reports.append(report)
                    self.progress.advance()
                    steps.reached(f"table applied: {report.name}")
                waiting.clear()

            try:
                for number, group in enumerate(groups_of(runs, staging)):
                    # Those that share no job go on beside the first that do.
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
            for history in histories:
                history.result()
            steps.reached("history written")
        return sorted(reports, key=lambda report: report.name)

    def _fold_together(self, group: Sequence[TableRun], staging: Staging) -> Mapping[int, Folded]:
        # Only for its own tables may a run write files.
        self.ledger.check_lock()
        return fold_together(self.spark, staging, group, self._at_once)

    def _apply_table(self, staging: Staging, run: TableRun, folded: Folded | None) -> TableReport:
        # A process that stood still may have lost the lock: then the table is another run's by now.
        self.ledger.check_lock()
        place = run.plan.table.text
        with failures_told(table=run.plan.name, path=place), storage_told(place):
            return apply_table(self.spark, staging, run, folded)

    def _look_at_tables(self, state: State | None) -> None:
        """Look whether tables are as the last run has left them, where there is nothing to apply.

        Raises:
            TargetError: one is newer than the ledger.
        """
        if state is None:
            return
        with self._stage("check"):
            ahead = self._checks.look_at_others(state.tables, ())
        if not ahead:
            return
        again = self.ledger.read()
        # Without the lock, another run may have begun meanwhile.
        if again is not None and (again.run, again.phase) == (state.run, state.phase):
            known = state.resume.place.high_lsn if state.resume is not None else -1
            raise refuse_newer(ahead[0], ahead[0].standing.ahead[-1], known)

    def _nothing_new(self, state: State | None, began: float) -> RunReport:
        resume = state.resume if state is not None else None
        applied = resume.place.high_lsn if resume is not None and resume.place.high_lsn >= 0 else None
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
            applied_commit_ts=to_datetime(resume.place.high_commit_time) if applied is not None and resume else None,
            tables=(),
            warnings=tuple(self.warnings),
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


def _staging_of(spark: SparkSession, target: Target, ledger: Ledger) -> Staging:
    """Give a run's place for staged events: a run that was taken over from must not write to it, or clear it."""
    folder = mounted_folder(spark, target.ledger(_STAGING).path)
    if folder is not None:
        return FileStaging(folder, ledger.run_id, ledger.taken_over)
    turn = ledger.turn
    return TableStaging(target.ledger(_STAGING if turn == 0 else f"{_STAGING}_{turn}"))


def _tasks(buckets: int, size: int) -> int:
    """Say how many tasks fold a table of which so many bytes are staged."""
    return min(buckets, 1 + size // _TASK_BYTES)


def _not_joined(error: CaptureError, stitch: Stitch) -> CaptureError:
    """Say of an error at a file's start that the file before it does not lead up to it."""
    if error.offset != 0 or not stitch.is_open:
        return error
    return OrderError(
        f"the file does not go on where the one before it ended ({error.problem})",
        path=error.path,
        offset=0,
        remedy="A file between them is missing, or their names do not sort by time; bring it back, or leave out what "
        "it cuts off by --allow-gaps",
    )


def _check_times(plan: Plan) -> None:
    """Refuse what no report, and no ledger, can say when it was, before anything is applied.

    Raises:
        ValueFormatError: see `to_datetime`.
    """
    try:
        for time in (plan.upto_commit_time, *(item.commit_time for item in plan.decided)):
            to_datetime(time)
    except ValueFormatError as error:
        raise error.at(path=plan.resume.last_path) from None


def _without_ended(plan: Plan, history: History) -> Plan:
    """Leave out of what is open the streamed transactions that have come as ordinary ones in a later session."""
    open_ = [item.xid for item in plan.resume.deferred if item.gid is None]
    ended = history.ended(open_) if open_ else set()
    if not ended:
        return plan
    deferred = tuple(item for item in plan.resume.deferred if item.gid is not None or item.xid not in ended)
    return replace(plan, resume=replace(plan.resume, deferred=deferred))


def _moved(tables: RunPlan) -> list[TableReport]:
    """Report the tables that the run has not written to, but that had to give way or have another name now."""
    placement = tables.placement
    told: list[tuple[MirrorEntry, Action]] = [(entry, "set aside") for entry in placement.aside]
    told += [(entry, "unchanged") for entry in placement.renamed]
    return [
        TableReport(
            entry.name,
            entry.table.text,
            action,
            oid=entry.oid,
            set_aside=entry.set_aside,
            notes=placement.notes.get(entry.oid, ()),
        )
        for entry, action in told
    ]


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
