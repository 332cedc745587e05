"""Join an archive's files to one stream, in their order; with an index, from where it says that the stream goes on.

The driver has the scans of some files at a time (`_MOST_FILES`, `_MOST_BYTES`).  What is found of them goes to the
index before the next are read, so a killed run continues there.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final

from walreplay.archive.facts import FileFacts, FoundFile, Recording
from walreplay.archive.index import ArchiveIndex, IndexedFile, allowed, in_order, list_beside, sessions_of
from walreplay.config import Settings, make_settings
from walreplay.decode.files import ScanTask
from walreplay.decode.proof import other_bytes
from walreplay.decode.summary import FileScan
from walreplay.decode.walk import Place
from walreplay.delta import statements as delta
from walreplay.errors import (
    CaptureError,
    FramingChange,
    NotACapture,
    OrderError,
    TargetError,
    UnknownRelation,
    WalReplayError,
)
from walreplay.listing import Hole, missing_numbers
from walreplay.progress import Progress
from walreplay.protocol.framing import Framing
from walreplay.recorded_names import broken_chains
from walreplay.report import JsonResult
from walreplay.session import steps
from walreplay.session.failures import spark_errors
from walreplay.session.isolation import own_session, quiet_queries, set_for_a_while
from walreplay.spark.captures import CaptureFile, confirm_holes, in_parts, scan_each
from walreplay.stream.duplicates import DuplicateFileError
from walreplay.stream.plan import Resume
from walreplay.stream.stitch import Stitch, end_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


_MOST_FILES: Final = 1_000
_MOST_BYTES: Final = 64 << 30
"""So many files, of so many bytes, are scanned before that is written down."""

NOTHING_READ: Final = "nothing in the file can be read: no transaction begins in it, and what is in front of it is lost"

_MISSING_REMEDY: Final = "A file in front of it is missing, or the files' names do not sort by time; bring it back"
_CLEARED_REMEDY: Final = "Bring back the files in front; or first run walreplay apply; or walreplay index --allow-gaps"
HOLE_REMEDY: Final = "Bring the missing files; or go on without them by --allow-gaps, if they were empty"


@dataclass(frozen=True, slots=True)
class Joined:
    """A file of the archive, once it is joined to the stream.

    Attributes:
        facts: None if nothing of it could be read, or if it is only read for what begins in it.
        stitch: stands behind the file.
        start_place: the place in front of it, as far as that was known.
        gaps: what is wrong with it, or missing in front of it; None of these where gaps are not allowed.
        hole: according to the files' numbers something is missing in front of it.
        differs: its bytes are not those that the index knows.
    """

    file: CaptureFile
    facts: FileFacts | None
    stitch: Stitch
    start_place: Place | None
    gaps: tuple[WalReplayError, ...] = ()
    hole: Hole | None = None
    differs: CaptureError | None = None


class Joining:
    """The files of an archive on their way into one stream.

    Args:
        lenient: go on behind what is damaged or missing, as far as it can be told where that is; else it is an error.
        write: writes what was found of files to the index; None to keep it nowhere.
        rows, resume: of the first files, which need not be read; see `Archive.certain`.
    """

    def __init__(
        self,
        archive: Archive,
        *,
        lenient: bool,
        write: Callable[[Sequence[FoundFile]], None] | None,
        rows: Sequence[IndexedFile] = (),
        resume: Resume | None = None,
    ) -> None:
        settings = archive.settings
        self.stitch = Stitch(
            resume, wants_origin=settings.origins.wants, allow_gaps=lenient, announcements=settings.announcements
        )
        session = 0 if resume is None else resume.place.session
        self.stitch.state.duplicate_files.indexed = sessions_of(archive.files[: len(rows)], rows, session)
        self.unwritten: TargetError | None = None
        self._resume, begin = resume, len(rows)
        if resume is not None and not resume.done:
            begin = next(number for number, file in enumerate(archive.files) if file.path == resume.path)
        self.files = archive.files[begin:]
        self._again = dict(zip((file.path for file in self.files), rows[begin:], strict=False))
        self._archive, self._lenient, self._write_rows = archive, lenient, write
        self._framing = None if settings.framing == "auto" else Framing(settings.framing)
        self._codec = settings.source_codec
        self._recording = Recording(self.stitch, archive.index.name_of)
        self._lost, self._is_cut = False, resume is None and archive.index.follow_others(archive.files)
        self._start_place: Place | None = None
        self._was_open = False
        self._gaps: list[WalReplayError] = []

    def run(self) -> Iterator[Joined]:
        """Yield the files one after the other; what is found of them is written to the index by and by.

        Raises:
            CaptureError: what is damaged or missing first.
            TargetError: the index cannot be read or written.
        """
        self._archive.progress.stage("scan", len(self.files))
        for part in in_parts(self.files, lambda count, size: count >= _MOST_FILES or size >= _MOST_BYTES):
            try:
                scanned = self._scan_each({file.path: self._task(file) for file in part})
                for file in part:
                    # The last may grow, and is read again then; or all in front of it may be cleared away.
                    yield self._take(file, scanned.pop(file.path), resumes=file in part[-2:])
                    self._archive.progress.advance()
            finally:
                self._write()  # also in front of what cannot be read, which may be brought anew
            steps.reached("part indexed")

    def _write(self) -> None:
        files = self._recording.taken()
        if self._write_rows is None:
            return
        try:
            self._write_rows(files)
        except TargetError as error:
            if not self._lenient:
                raise
            self.unwritten = error  # the files are read on; the caller reports it in the end

    def _task(self, file: CaptureFile) -> ScanTask:
        # Once the stream's framing is known, it need not be found out for each file.
        place = self.stitch.place
        framing = place.framing if self._framing is None and place is not None else self._framing
        if self._again and self._resume is not None and file is self.files[0]:
            task = self.stitch.next_scan(self._framing, self._codec)
            return replace(task, start=self._resume.offset, length=file.length)
        is_first = file is self.files[0] and place is None  # only the first file surely begins at a message
        return ScanTask(framing=framing, first=is_first, codec=self._codec, length=file.length)

    def _scan_each(self, tasks: Mapping[str, ScanTask]) -> dict[str, FileScan | WalReplayError]:
        is_proved = self._write_rows is not None or self._archive.index.exists
        return scan_each(self._archive.spark, self._archive.index.proved(tasks) if is_proved else tasks)

    def _scan(self, file: CaptureFile, task: ScanTask) -> FileScan:
        """Scan a file from a place that is known by now."""
        outcome = self._scan_each({file.path: replace(task, length=file.length)})[file.path]
        if isinstance(outcome, WalReplayError):
            raise outcome
        return outcome

    # One file

    def _take(self, file: CaptureFile, scanned: FileScan | WalReplayError, *, resumes: bool) -> Joined:
        self._gaps, row, broken = [], self._again.get(file.path), self._archive.broken.get(file.path)
        differs = other_bytes(file.path) if isinstance(scanned, FileScan) and scanned.differs else None
        if differs is not None and not self._lenient:
            raise differs
        self._start_place = start_place = self.stitch.place
        self._was_open = was_open = self.stitch.is_open or self._lost  # noted before the file is added
        self._recording.look(self.stitch, lost=self._lost)
        scan: FileScan | None
        try:
            if broken is not None and not (self._lenient and (self._lost or not was_open)):
                raise broken  # what is open does not go on here, though it may seem to
            scan = self._add(file, scanned)
        except CaptureError as error:
            if not self._lenient:
                if self._is_cut and (file is self.files[0] or isinstance(error, UnknownRelation)):
                    error.remedy = _CLEARED_REMEDY
                raise
            scan = self._leave_out(file, error)
        self._gaps += [broken] if broken is not None and broken not in self._gaps else []
        self._gaps += self.stitch.state.gap_errors  # with gaps allowed, the stitch leaves out what is incomplete
        self.stitch.state.gap_errors.clear()
        # If an open transaction or message goes on here, nothing is missing.
        hole = None if was_open else self._archive.holes.get(file.path)
        if hole is not None and not self._lenient:
            raise OrderError(hole.describe(), path=file.path, remedy=HOLE_REMEDY)
        facts = None
        if scan is not None and row is None:  # else what comes before it was not read, and is in its row
            gaps = [*map(str, self._gaps)]
            gaps += [] if hole is None else [f"{file.path}: {hole.describe()} (gaps are allowed)"]
            again = file is self.files[-1] and not self._ends_well()
            facts = self._recording.take(self.stitch, file, scan, resumes=resumes, gaps=gaps, again=again)
        return Joined(file, facts, self.stitch, start_place, tuple(self._gaps), hole, differs)

    def _ends_well(self) -> bool:
        """Return whether the archive may end where the stream is, so that it can be planned."""
        with suppress(CaptureError):
            end_of(self.stitch.state)
            return True
        return False

    def _add(self, file: CaptureFile, scanned: FileScan | WalReplayError) -> FileScan:
        """Add a file to the stream; if that fails, the stream is as it was."""
        if isinstance(scanned, WalReplayError):
            raise scanned
        stitch = self.stitch
        if self._lenient:
            self.stitch = stitch.copied()  # an error must leave the stream as it was
        try:
            return self._join(self.stitch, file, scanned)
        except CaptureError:
            self.stitch = stitch
            raise

    def _join(self, stitch: Stitch, file: CaptureFile, guess: FileScan) -> FileScan:
        if self._lost:
            return self._behind_gap(stitch, file, guess)
        if not guess.guessed:  # the archive's first file, or the one that the index has it go on in
            stitch.add_exact(guess)
            return guess
        if stitch.add(guess):
            return guess
        try:
            scan = self._scan(file, stitch.next_scan(self._framing, self._codec))
        except (NotACapture, FramingChange):
            raise
        except CaptureError as error:
            stitch.state.duplicate_files.explain(guess, error)
            raise not_joined(error, stitch, _MISSING_REMEDY) from None
        stitch.add_exact(scan)
        return scan

    # Behind what cannot be read

    def _leave_out(self, file: CaptureFile, error: CaptureError) -> FileScan | None:
        """Go on behind what cannot be read: in the same file, if there is a place at which a session can begin."""
        stitch = self.stitch
        is_foreign = isinstance(error, (NotACapture, FramingChange, DuplicateFileError))
        if self._lost or (is_foreign and stitch.place is not None):
            # What does not belong to the stream does not end it: it goes on behind the file.
            self._gaps.append(error)
            return None
        if stitch.place is not None:
            stitch = stitch.copied()
            stitch.gap(file.path, error.problem)
        self._recording.look_behind_gap(stitch)
        self.stitch = stitch.copied()
        try:
            scan = self._behind_gap(self.stitch, file, None)
        except CaptureError as problem:
            if is_foreign and isinstance(problem, UnknownRelation):  # it has messages, but begins inside of one
                self._gaps, is_foreign, error = [*self._gaps, problem], False, problem
            else:
                self._gaps.append(error)
            if problem.offset is not None and error.offset is not None and problem.offset > error.offset:
                self._gaps.append(problem)
            # The next file is read as if this one were missing; but for one that is no capture at all.
            self._lost, self.stitch = not is_foreign, stitch
            return None
        self._gaps.append(self._in_front(file, error, scan))
        return scan

    def _in_front(self, file: CaptureFile, error: CaptureError, scan: FileScan) -> CaptureError:
        """Return a file's error: it is damaged, or is sound from some place on and lacks what comes before it."""
        if error.path != file.path:
            # A message begins in a file in front, and does not go on here.
            return OrderError(error.problem, path=error.path, offset=error.offset, remedy=error.remedy)
        start = next((part.summary.start for part in scan.parts if part.data is None), 0)
        if error.offset is None or error.offset >= start or isinstance(error, OrderError):
            return error
        problem = "the file does not go on where the one before it ended"
        if self._start_place is None:
            problem = "the file begins inside of a message, and none is in front of it"
        elif not self._was_open:
            return error
        return OrderError(f"{problem} ({error.problem})", path=file.path, offset=0, remedy=_MISSING_REMEDY)

    def _behind_gap(self, stitch: Stitch, file: CaptureFile, scanned: FileScan | None) -> FileScan:
        """Add a file of which it is not known how it begins, as what was in front of it is lost."""
        place = stitch.place
        if place is None:
            # Nothing was read that tells the framing.
            if scanned is None or not scanned.guessed:
                scanned = self._scan(file, ScanTask(self._framing, codec=self._codec))
            if not scanned.parts:
                raise OrderError(NOTHING_READ, path=file.path, offset=0, remedy=_MISSING_REMEDY)
            place = Place(scanned.parts[0].summary.framing)
        task = ScanTask(place.framing, place, gap=True, codec=self._codec)  # it looks for where a session can go on
        scan = self._scan(file, task)
        if not scan.parts:
            raise OrderError(NOTHING_READ, path=file.path, offset=0, remedy=_MISSING_REMEDY)
        scan = replace(scan, framing=place.framing)
        stitch.add_exact(scan)
        self._lost = False
        return scan


def not_joined(error: CaptureError, stitch: Stitch, remedy: str) -> CaptureError:
    """Turn an error at a file's start into one that says that the file before it does not lead up to it."""
    if error.offset != 0 or not stitch.is_open:  # nothing goes on into the file, or the error lies inside of it
        return error
    return OrderError(
        f"the file does not go on where the one before it ended ({error.problem})",
        path=error.path,
        offset=0,
        remedy=remedy,
    )


@dataclass(frozen=True, slots=True)
class IndexReport(JsonResult):
    """What `index` did.

    Attributes:
        index: where the index is.
        files, capture_bytes: of the archive; ``files_read`` and ``bytes_read`` had to be read.
        transactions: that commit in the archive, without those that come again.
        first_lsn, last_lsn: the least and the greatest commit LSN.
    """

    captures: str
    index: str
    files: int
    capture_bytes: int
    files_read: int
    bytes_read: int
    transactions: int
    changes: int
    first_lsn: int | None
    last_lsn: int | None
    warnings: tuple[str, ...]
    seconds: float


@dataclass(frozen=True, slots=True)
class Archive:
    """An archive's listing, and its index.

    Attributes:
        files: in their order.
        holes: by the path of the file before which others are missing, according to their numbers.
        errors: what is wrong in the listing, by the index.
        broken: by the path of a recorded file, what is wrong in front of it (`broken_chains`).
    """

    spark: SparkSession
    settings: Settings
    progress: Progress
    files: Sequence[CaptureFile]
    index: ArchiveIndex
    holes: Mapping[str, Hole]
    errors: Sequence[CaptureError] = ()
    broken: Mapping[str, OrderError] = field(default_factory=dict)

    @property
    def size(self) -> int:
        """Bytes of the files, as stored."""
        return sum(file.length for file in self.files)

    def certain(self) -> tuple[list[IndexedFile], Resume | None]:
        """Return the index's rows of the first files, which are as they were, and where the stream goes on behind them.

        If that is not done, it begins in one of these files.  If the rows are of all files, it is None.
        """
        names = [self.index.name_of(file.path) for file in self.files]
        rows, missing = list[IndexedFile](), self.holes.keys() | self.broken.keys()
        for row, file in zip(in_order(names, self.index.rows_of(self.files)), self.files, strict=False):
            # What is missing is an error each time, unless the row has it as a warning, and gaps are allowed.
            if not self.settings.allow_gaps if row.gap else file.path in missing:
                break
            rows.append(row)
        if len(rows) == len(self.files):
            return rows, None
        last = next((row for row in reversed(rows) if row.resumes), None)
        resume = None if last is None else self.index.resume_of(last)
        if resume is None or resume.path not in names:
            return [], None  # all has to be read
        paths = dict(zip(names, (file.path for file in self.files), strict=True))
        return rows[: names.index(resume.last_path) + 1], resume.moved(lambda name: paths.get(name, name))


@contextmanager
def archive_of(
    spark: SparkSession,
    captures: str | os.PathLike[str],
    index: str | os.PathLike[str] | None,
    settings: Settings,
    progress: Progress | None,
) -> Iterator[Archive]:
    """List an archive and open its index, in a session of its own.

    Raises:
        WalReplayError: it cannot be listed.
    """
    captures, progress = str(captures), progress or Progress()
    with spark_errors(path=captures):
        session = own_session(spark)
        with quiet_queries(), set_for_a_while(session, delta.SMALL_STATE):
            progress.stage("list", None)
            files, opened, errors = list_beside(session, captures, settings, None if index is None else str(index))
            paths = [file.path for file in files]
            holes = {hole.after: hole for hole in confirm_holes(session, missing_numbers(paths))}
            broken = {chain.after: chain.error for chain in broken_chains(paths)}
            try:
                yield Archive(session, settings, progress, files, opened, holes, errors, broken)
            finally:
                progress.done()


def index(
    spark: SparkSession,
    captures: str | os.PathLike[str],
    index: str | os.PathLike[str] | None = None,
    config: str | os.PathLike[str] | Mapping[str, Any] | Settings | None = None,
    progress: Progress | None = None,
    *,
    cleared: bool = False,
) -> IndexReport:
    """Read the capture files that are new or have grown, and write down what is in each.

    It may be stopped at any time, and goes on where it was.  Two may be at work at the same time.

    With gaps allowed, what is wrong beside the index is a warning, and the index has the archive as it is from then on.

    Args:
        captures: the folder (or file, or glob) of the capture files.
        index: a folder's URI, or ``catalog.schema.table``; by default the configuration's, or ``_walreplay_index`` in
            the captures' folder.
        config: as `walreplay.apply` takes it; how files are found and read is what counts.
        progress: told how far it is.
        cleared: the archive's oldest files may be gone: they are named, and taken out of the index.

    Raises:
        WalReplayError: what stopped it: captures are damaged or missing, or the index cannot be written.
    """
    began, settings = time.monotonic(), make_settings(config)
    with archive_of(spark, captures, index, settings, progress) as archive:
        warnings = allowed(archive.errors, settings, cleared=cleared)
        archive.index.accept(archive.errors, gone=False)
        rows, resume = archive.certain()
        joining = Joining(archive, lenient=settings.allow_gaps, write=archive.index.add, rows=rows, resume=resume)
        files: list[IndexedFile | FileFacts] = [*rows]
        warnings += (text for row in rows for text in row.warnings)
        for joined in joining.run():
            warnings += (str(gap) for gap in joined.gaps)
            problems = joined.differs and joined.differs.problem, joined.hole and joined.hole.describe()
            warnings += (f"{joined.file.path}: {problem} (gaps are allowed)" for problem in problems if problem)
            if joined.facts is not None:
                files.append(joined.facts)
        if joining.unwritten is not None:
            raise joining.unwritten
        if rows and not joining.files:
            archive.index.add(())  # removes doubles, if there are some
        else:
            warnings += joining.stitch.plan().warnings  # raises if bytes are left at the end that begin no message
        archive.index.accept(archive.errors, gone=True)  # if anything stops this call before, the next one names them
        return IndexReport(
            captures=str(captures),
            index=archive.index.table.text,
            files=len(archive.files),
            capture_bytes=archive.size,
            files_read=len(joining.files),
            bytes_read=sum(file.length for file in joining.files),
            transactions=sum(file.transactions - file.resent for file in files),
            changes=sum(file.changes for file in files),
            first_lsn=min((file.first_lsn for file in files if file.first_lsn is not None), default=None),
            last_lsn=max((file.last_lsn for file in files if file.last_lsn is not None), default=None),
            warnings=tuple(dict.fromkeys(warnings)),
            seconds=time.monotonic() - began,
        )
