"""Find the files that a run has to read, scan them in parallel, and stitch them to the plan of transactions."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from hashlib import sha256
from itertools import accumulate, takewhile
from typing import TYPE_CHECKING, Any, Final

from walreplay.archive.facts import Recording
from walreplay.archive.index import ArchiveIndex, sessions_of
from walreplay.archive.joining import HOLE_REMEDY, not_joined
from walreplay.config import Settings
from walreplay.decode.files import ScanTask
from walreplay.decode.proof import other_bytes
from walreplay.decode.scan import Until
from walreplay.decode.summary import FileScan
from walreplay.delta import statements as delta
from walreplay.delta.target import TableName, ledger_errors
from walreplay.errors import (
    CaptureError,
    FramingChange,
    NotACapture,
    OrderError,
    TargetError,
    ValueFormatError,
    WalReplayError,
)
from walreplay.job.context import RunContext
from walreplay.ledger.state import State
from walreplay.listing import missing_numbers, sort_key, uncompressed
from walreplay.lsn import format_lsn, to_datetime
from walreplay.names import Output, output_of, source_oid
from walreplay.protocol.framing import Framing
from walreplay.recorded_names import BrokenChain, RecordedName, broken_chains
from walreplay.session import steps
from walreplay.session.session import local_cores
from walreplay.spark.captures import CaptureFile, confirm_holes, in_parts, name_in, root_of, scan_each
from walreplay.stream.duplicates import DuplicateFileError
from walreplay.stream.plan import Plan, Resume
from walreplay.stream.stitch import Stitch
from walreplay.table.registry import Entries, MirrorEntry

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


_UNCHANGED_REMEDY: Final = "Captures must not change but by growing; restore the file, or apply to a new target"


@dataclass(frozen=True, slots=True)
class MissingFiles:
    """In front of which new files something is missing, by their paths.

    Attributes:
        holes: by the numbers in their names, with the description.
        broken: of recorded files, by their names.
        tables: the target's; they may have been loaded as of an LSN behind a recorded gap.
    """

    holes: Mapping[str, str] = field(default_factory=dict)
    broken: Mapping[str, BrokenChain] = field(default_factory=dict)
    tables: Entries = ()


@dataclass(frozen=True, slots=True)
class RunInput:
    """What a run has to read.

    Attributes:
        first: the offset to begin at in the first file, if it is known.
        resume: where the last run ended.
        listed: all files of the captures.
        has_rest: more files follow, which are left to later runs.
    """

    files: tuple[CaptureFile, ...]
    first: int
    resume: Resume | None
    missing: MissingFiles = field(default_factory=MissingFiles)
    listed: Sequence[CaptureFile] = ()
    has_rest: bool = False

    @property
    def size(self) -> int:
        """Bytes of the files."""
        return sum(file.length for file in self.files)

    def at_most(self, size: int) -> RunInput:
        """Leave to later runs what is beyond so many bytes; the first file is always read."""
        sums = accumulate(file.length for file in self.files)  # running totals
        count = max(1, sum(total <= size for total in sums))
        return self if count == len(self.files) else replace(self, files=self.files[:count], has_rest=True)


@dataclass(frozen=True, slots=True)
class NewFiles:
    """Compare a listing of the captures with the place in the ledger where the last run ended.

    Attributes:
        captures: where the files lie.
        files: the ledger's table of the files that were read.
    """

    session: SparkSession
    captures: str
    settings: Settings
    files: TableName

    def what_is_new(self, files: Sequence[CaptureFile], state: State | None) -> RunInput | None:
        """Return what has to be read; None if nothing has come since the last run."""
        resume, tables = self._resume(files, state), () if state is None else state.tables
        if resume is None or state is None:  # nothing was applied yet
            return RunInput(tuple(files), 0, None, self._missing(files, files, None, tables), files) if files else None
        last_key = self._key_of(resume.last_path, files)
        earlier = [file for file in files if self._key(file) <= last_key]
        later = [file for file in files if self._key(file) > last_key]
        self._check_earlier(earlier, state, resume)
        missing = self._missing(files, later, resume, tables)
        lengths = {file.path: file.length for file in earlier}
        grown = lengths.get(resume.last_path, resume.last_length) != resume.last_length
        if not (later or grown or resume.has_more):  # has_more: what `until` has cut off
            return None
        framing = self.settings.framing
        if framing not in ("auto", resume.place.framing.value):
            # The earlier files were in another framing than the configuration names now: a session begins.
            session = resume.in_session_of(Framing(framing))
            return RunInput(tuple(later), 0, session, missing, files) if later else None
        resume_key = self._key_of(resume.path, files)
        again = [file for file in earlier if self._key(file) >= resume_key]
        if resume.done and lengths.get(resume.path, resume.length) == resume.length:
            # The file was read to its end and has not grown; the record of the place where it ends is enough.
            again = [file for file in again if file.path != resume.path]
        elif resume.path not in lengths:
            problem, remedy = "the file is gone, and its end was not applied yet", "Bring it back to where it was"
            raise OrderError(problem, path=resume.path, offset=resume.offset, remedy=remedy)
        elif lengths[resume.path] < resume.length:
            problem = f"the file had {resume.length:,} bytes and has {lengths[resume.path]:,} now"
            raise OrderError(problem, path=resume.path, remedy=_UNCHANGED_REMEDY)
        to_read = (*again, *later)
        # The run begins inside the file of the last run, or at the first byte of the next one.
        first = resume.offset if again and again[0].path == resume.path else 0
        return RunInput(to_read, first, resume, missing, files) if to_read else None

    def _resume(self, files: Sequence[CaptureFile], state: State | None) -> Resume | None:
        """Return where the last run ended, with the files' present paths: the captures' folder may have been moved."""
        if state is None or state.resume is None:
            return None
        old_root, new_root = root_of(state.captures), root_of(self.captures)
        present = {name_in(new_root, file.path): file.path for file in files}
        roots = {path.removesuffix(name) for name, path in present.items()}
        new_place = roots.pop() if len(roots) == 1 else ""

        @cache  # one path for each of many segments
        def moved(path: str) -> str:
            name = name_in(old_root, path)  # of a file that is gone, too: the next ones go on behind it
            return present.get(
                name, f"{new_place}{name}" if new_place and path.endswith(name) and name != path else path
            )

        return state.resume.moved(moved)

    def _key(self, file: CaptureFile) -> tuple[Any, ...]:
        return sort_key(self.settings.file_order, file.path, file.modified)

    def _key_of(self, path: str, files: Sequence[CaptureFile]) -> tuple[Any, ...]:
        """Return a file's place in the order; the file itself may be gone."""
        for file in files:
            if file.path == path:
                return self._key(file)
        if self.settings.file_order == "modified":
            raise OrderError(
                "the file is gone, and only its time says which files come after it",
                path=path,
                remedy="Bring it back, or order the captures by their names (file_order)",
            )
        return sort_key(self.settings.file_order, path, 0)

    def _check_earlier(self, earlier: Sequence[CaptureFile], state: State, resume: Resume) -> None:
        """Refuse new files that sort before what was applied, and applied files that have changed."""
        if not earlier or seen_files(self.captures, earlier, earlier[-1].path) == state.seen:  # as mostly
            return
        old_root, new_root = root_of(state.captures), root_of(self.captures)
        files = self.files
        with ledger_errors(files.text):
            recorded = delta.read(self.session, files).where(f"run <= {state.run}")
            rows = recorded.select("run", "path", "length").collect()
        lengths: dict[str, int] = {}
        # A file that has grown has a row for each run; the latest has its length.
        for row in sorted(rows, key=lambda row: row.run):
            lengths.update({name_in(root, row.path): row.length for root in (old_root, new_root)})
        late = [file.path for file in earlier if name_in(new_root, file.path) not in lengths]
        # Compressing an applied file gives it another name, which would look like a late file.
        originals = {uncompressed(name): name for name in lengths}
        for path in late:
            original = originals.get(uncompressed(name_in(new_root, path)))
            if original is not None:
                raise OrderError(
                    f"the file seems to be a copy of {original.lstrip('/')}, which is applied already",
                    path=path,
                    remedy="Move copies of applied files, compressed or not, out of the captures' folder: a run does "
                    "not need applied files, and a new target can be made from the copies; or compress files before "
                    "they are applied",
                )
        if late:
            raise OrderError(
                f"the file sorts before {resume.last_path}, which is applied already"
                + (f" (as do {len(late) - 1} more)" if len(late) > 1 else ""),
                path=late[0],
                remedy="Name files so that they sort by time; a file that came late can be applied to a new target "
                "together with all others",
            )
        for file in earlier:
            length = lengths[name_in(new_root, file.path)]
            if file.path != resume.last_path and file.length != length:
                raise OrderError(
                    f"the file had {length:,} bytes when it was read and has {file.length:,} now, "
                    "though newer files have been read since",
                    path=file.path,
                    remedy="Only the newest file may grow; restore the file, or apply to a new target",
                )

    def _missing(
        self, files: Sequence[CaptureFile], new: Sequence[CaptureFile], resume: Resume | None, tables: Entries
    ) -> MissingFiles:
        """Return the new files in front of which something is missing."""
        before = [resume.last_path] if resume is not None else []
        paths = list(dict.fromkeys([*before, *(file.path for file in files)]))
        new_paths = {file.path for file in new}
        holes = [hole for hole in missing_numbers(paths) if hole.after in new_paths]
        if resume is not None and len(files) > len(new):
            # Applied files may have been deleted since: only their neighbours that are still there count.
            applied_paths = {file.path for file in files} - new_paths
            holes = [hole for hole in holes if hole.before in new_paths or hole.before in applied_paths]
        confirmed = {hole.after: hole.describe() for hole in confirm_holes(self.session, holes)}
        broken = {chain.after: chain for chain in broken_chains(paths) if chain.after in new_paths}
        late_start = None if resume is not None else _late_start(paths[0], tables)
        return MissingFiles(confirmed, broken if late_start is None else {paths[0]: late_start, **broken}, tables)


def _late_start(path: str, tables: Entries) -> BrokenChain | None:
    """Return what lies between base loads and the first file, if that was recorded; None if nothing does."""
    name = RecordedName.parse(path)
    start = 0 if name is None else name.start_lsn
    # What committed below its base LSN a table has.
    early = {entry.name: entry.base_lsn for entry in tables if entry.base_lsn is not None and entry.base_lsn < start}
    if not early:
        return None
    table, base_lsn = min(early.items(), key=lambda item: item[1])
    others = f" (as were {len(early) - 1} more)" if len(early) > 1 else ""
    return BrokenChain(
        path,
        f"it begins at LSN {format_lsn(start)}, and {table} was loaded with what committed below LSN "
        f"{format_lsn(base_lsn)}{others}: what committed between is in neither",
        "Copy the tables again once the slot is there (docs/starting.md): walreplay load --replace --from COPY; or "
        f"load the same copies with --consistent-point {format_lsn(start)}, if nothing committed between",
        start,
    )


def seen_files(captures: str, files: Sequence[CaptureFile], last: str) -> str:
    """Hash a listing up to the last file that was read: names and lengths, but not that one's, which may grow."""
    root = root_of(captures)
    earlier = takewhile(lambda file: file.path != last, files)
    parts = [(name_in(root, file.path), file.length) for file in earlier]
    return sha256(repr((parts, name_in(root, last))).encode()).hexdigest()


_NOT_JOINED_REMEDY: Final = (
    "A file between them is missing, or their names do not sort by time; bring it back, or leave out what "
    "it cuts off by --allow-gaps"
)


# When a run has an end (`until`), files are scanned in batches, so that little is scanned beyond it.
_FILES_A_CORE: Final = 2  # at least, in local mode
_LEAST_FILES: Final = 64  # on a cluster, whose size is unknown
_LEAST_BYTES: Final = 256 << 20  # of small files more, until they have this size
_MOST_FILES: Final = 512  # or are so many


class Scanning:
    """The scan of a run, whose files are joined to one stream.

    Args:
        until: the last transaction that is wanted; None for the files' end.
        index: the archive's, which proves the files, and to which `record` writes what was found of them; None if there
            is none.
        follow: called after each file that is joined.
    """

    def __init__(
        self,
        run: RunContext,
        reading: RunInput,
        until: Until | None = None,
        index: ArchiveIndex | None = None,
        follow: Callable[[Stitch], None] | None = None,
    ) -> None:
        settings = run.settings
        self._run, self._reading, self._until, self._index, self._follow = run, reading, until, index, follow
        self._framing = None if settings.framing == "auto" else Framing(settings.framing)
        self._stitch = Stitch(
            reading.resume,
            wants_origin=settings.origins.wants,
            allow_gaps=settings.allow_gaps,
            until=until,
            announcements=settings.announcements,
        )
        self._recording = None if index is None else Recording(self._stitch, index.name_of)
        resume = reading.resume
        if index is not None and resume is not None and resume.path != reading.files[0].path:
            applied = [*takewhile(lambda file: file is not reading.files[0], reading.listed)]
            sessions = sessions_of(applied, index.rows_of(applied), resume.place.session)
            self._stitch.state.duplicate_files.indexed = sessions

    def plan(self) -> Plan:
        """Scan the files in parallel and stitch them."""
        stitch, resume, progress = self._stitch, self._reading.resume, self._run.progress
        with self._run.stage("scan", len(self._reading.files)):
            for part in self._parts():
                progress.doing(f"reading {len(part):,} files")
                scanned = self._scan_each({file.path: self._task(file) for file in part})
                progress.doing("joining the files")
                for file in part:
                    # The end (`until`) may lie in front of damage: then nobody asks for the damaged file.
                    if not stitch.state.ended:
                        self._join(file, scanned.pop(file.path))
                if stitch.state.ended:
                    break
        plan = stitch.plan(is_last=not self._reading.has_rest)
        check_times(plan)  # a damaged commit time would fail only when it is recorded
        before = resume.applied if resume is not None else 0
        plan = replace(plan, resume=replace(plan.resume, applied=before + plan.transactions))
        return plan if self._index is None else self._index.proving(plan)

    def record(self) -> None:
        """Write what was found of the files to the index, in one commit at most; if that fails, there is a warning."""
        recording, self._recording = self._recording, None  # once
        if recording is None or self._index is None:
            return
        try:
            self._index.add(recording.taken(), renews=False)
        except (TargetError, ValueError, OverflowError) as error:
            problem = error if isinstance(error, TargetError) else f"the index cannot hold it ({type(error).__name__})"
            self._run.warnings.append(f"what is in the files was not written to the index: {problem}")
        steps.reached("files recorded")

    def _parts(self) -> Iterator[Sequence[CaptureFile]]:
        """Divide the files: of a run that ends somewhere, what lies behind that need not be scanned.

        That the end was passed is known once the files in front have been joined, in their order, and never by what a
        file holds: sessions send again, and names may be out of order.  So a few files more are scanned, but where the
        index tells how far to read first.
        """
        files, until = self._reading.files, self._until
        if until is None:
            yield files
            return
        cores = local_cores(self._run.spark)
        least = _LEAST_FILES if cores is None else _FILES_A_CORE * cores
        rows = () if self._index is None else self._index.rows_of(files)
        count = next((number for number, row in enumerate(rows, 1) if row is not None and row.has_passed(until)), 0)
        if count:  # the index tells where the end is passed
            yield files[:count]
        yield from in_parts(files[count:], lambda n, size: n >= least and (size >= _LEAST_BYTES or n >= _MOST_FILES))

    def _task(self, file: CaptureFile) -> ScanTask:
        """Return how a file is scanned: only the first one's begin is known before the join."""
        task = ScanTask(self._framing, codec=self._run.settings.source_codec, length=file.length)
        if file is not self._reading.files[0]:
            return task
        resume = self._reading.resume
        if resume is None:
            return replace(task, first=True, until=self._until)
        return replace(
            task,
            place=resume.place,
            start=self._reading.first,
            known_length=resume.length if file.path == resume.path else 0,
            earlier_path=resume.last_path,
            until=self._until,
        )

    def _join(self, file: CaptureFile, scanned: FileScan | WalReplayError) -> None:
        """Join a file to the stream."""
        stitch, recording, reading = self._stitch, self._recording, self._reading
        was_open, gap = stitch.is_open, stitch.state.gap  # before the file is joined
        if recording is not None:
            recording.look(stitch)
        scan = self._add(file, scanned)
        hole = None if was_open else reading.missing.holes.get(file.path)
        if hole is not None:
            # If an open transaction or message continues here, nothing is missing.
            if not self._run.settings.allow_gaps:
                raise OrderError(hole, path=file.path, remedy=HOLE_REMEDY)
            stitch.state.warn_of_gap(f"{file.path}: {hole}")
        # Where the last run has ended may be at the file's first byte, and behind the session's begin there.
        is_begun = reading.resume is not None and file.path == reading.resume.path
        # Behind a gap the state in which a file begins is unknown.
        if recording is not None and stitch.state.gap == gap and not (is_begun or scan.ended):
            recording.take(stitch, file, scan, resumes=file in reading.files[-2:])  # the last may grow
        if self._follow is not None:
            self._follow(stitch)
        self._run.progress.advance()

    def _add(self, file: CaptureFile, scanned: FileScan | WalReplayError) -> FileScan:
        """Add a file to the stream, from where that is; behind a gap, if the file does not go on there."""
        stitch, reading, allows_gaps = self._stitch, self._reading, self._run.settings.allow_gaps
        is_first, resume = file is reading.files[0], reading.resume
        broken = reading.missing.broken.get(file.path)
        if broken is not None:
            if not allows_gaps and not self._is_loaded_behind(broken):
                raise broken.error
            # What is open does not go on here, though it may seem to.
            if stitch.place is not None and (stitch.is_open or broken.is_recorded):
                return self._add_behind_gap(file, broken.error)
            stitch.state.warn_of_gap(f"{file.path}: {broken.problem}")
        if isinstance(scanned, WalReplayError):
            # The run's first file begins at a known place, and may not fit what was read before.
            may_be_gap = allows_gaps and is_first and resume is not None and not reading.first
            if not may_be_gap or not isinstance(scanned, CaptureError):
                raise scanned
            return self._add_behind_gap(file, scanned)
        if scanned.differs:
            raise other_bytes(file.path)
        if is_first:
            if resume is not None and file.path == resume.path and scanned.known_fingerprint != resume.fingerprint:
                problem = "the part of the file that was read before has changed"
                raise OrderError(problem, path=file.path, remedy=_UNCHANGED_REMEDY)
            stitch.add_exact(scanned)
            return scanned
        if stitch.add(scanned):
            return scanned
        try:  # the guess how the file begins was wrong
            scan = self._scan(file, stitch.next_scan(self._framing, self._run.settings.source_codec))
            stitch.add_exact(scan)
        except (NotACapture, FramingChange, DuplicateFileError):  # no missing file explains these
            raise
        except CaptureError as error:
            stitch.state.duplicate_files.explain(scanned, error)  # a copy of another file is a better explanation
            if not allows_gaps or stitch.place is None:
                raise not_joined(error, stitch, _NOT_JOINED_REMEDY) from None
            return self._add_behind_gap(file, error)
        return scan

    def _is_loaded_behind(self, broken: BrokenChain) -> bool:
        """Return whether it is a recorded gap, and all tables were loaded as of its end or later."""
        state, settings, tables = self._stitch.state, self._run.settings, self._reading.missing.tables
        partitions = {partition.relation.oid for partition in state.partitions.in_force}  # their rows are their roots'
        relations = state.versions.relations
        names = [(relation.oid, (relation.namespace or "pg_catalog", relation.name)) for relation in relations]
        coming = {  # tables that this run makes would lack it, too
            (oid, output)
            for oid, name in names
            if settings.wants_table(*name) and oid not in partitions
            for output in settings.outputs_of(*name)
        }
        loaded = {_source_of(entry) for entry in tables if (entry.base_lsn or -1) >= broken.start}
        return broken.is_recorded and bool(tables) and coming.union(map(_source_of, tables)) <= loaded

    def _add_behind_gap(self, file: CaptureFile, error: CaptureError) -> FileScan:
        """Add a file in front of which something is missing, from where a session can begin in it."""
        place = self._stitch.gap(file.path, error.problem)
        codec = self._run.settings.source_codec
        scan = self._scan(file, ScanTask(self._framing, place, gap=True, codec=codec, until=self._until))
        self._stitch.add_exact(scan)
        return scan

    def _scan(self, file: CaptureFile, task: ScanTask) -> FileScan:
        """Scan a file from a place that is known by now."""
        scan = self._scan_each({file.path: task})[file.path]
        if isinstance(scan, WalReplayError) or scan.differs:
            raise scan if isinstance(scan, WalReplayError) else other_bytes(file.path)
        return scan

    def _scan_each(self, tasks: Mapping[str, ScanTask]) -> dict[str, FileScan | WalReplayError]:
        return scan_each(self._run.session, tasks if self._index is None else self._index.proved(tasks))


def _source_of(entry: MirrorEntry) -> tuple[int, Output]:
    return source_oid(entry.oid), output_of(entry.oid)


def check_times(plan: Plan) -> None:
    """Refuse commit times that no report or ledger can hold, before anything is applied.

    Raises:
        ValueFormatError: see `to_datetime`.
    """
    try:
        for time in (plan.upto_commit_time, *(item.commit_time for item in plan.decided)):
            to_datetime(time)
    except ValueFormatError as error:
        raise error.at(path=plan.resume.last_path) from None


# What one run reads at most: a run that dies is repeated from its plan, and its staged rows need as much room again.
_RUN_BYTES_A_CORE: Final = 8 << 30  # in local mode
_RUN_BYTES: Final = 256 << 30  # on a cluster, whose cores may come and go


def run_bytes_of(spark: SparkSession) -> int:
    """Return how many bytes of captures one run reads at most; a larger archive is several runs."""
    cores = local_cores(spark)
    return _RUN_BYTES if cores is None else cores * _RUN_BYTES_A_CORE  # local_cores: None on a cluster
