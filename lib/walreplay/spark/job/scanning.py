"""Scan the files in parallel, and stitch them to one stream.  The result is the plan of transactions."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Final

from walreplay.decode.summary import FileScan
from walreplay.decode.until import Until
from walreplay.errors import CaptureError, FramingChange, NotACapture, OrderError, TargetError, ValueFormatError
from walreplay.lsn import to_datetime
from walreplay.protocol.framing import Framing
from walreplay.spark.captures.files import scan_captures
from walreplay.spark.captures.twins import Twins
from walreplay.spark.index.archive import ArchiveIndex, Known
from walreplay.spark.index.joining import HOLE_REMEDY, not_joined
from walreplay.spark.job.ahead import AheadScan
from walreplay.spark.job.context import RunContext
from walreplay.spark.job.reading import Reading
from walreplay.spark.workers.scan import ScanTask
from walreplay.transactions.plan import Plan, Resume
from walreplay.transactions.stitch import Rescan, Stitch

_NOT_JOINED_REMEDY: Final = (
    "A file between them is missing, or their names do not sort by time; bring it back, or leave out what "
    "it cuts off by --allow-gaps"
)


@dataclass
class Scanning:
    """The scan of a run.

    Attributes:
        holes: files before which another one is missing, according to the numbers in the names, with the description.
        until: the last transaction that is wanted; None for the files' end.
        index: the archive's: a file that it knows is not read for the scan.
        follow: told of each file once it is joined.
    """

    run: RunContext
    holes: Mapping[str, str]
    until: Until | None = None
    index: ArchiveIndex | None = None
    follow: Callable[[Stitch], None] | None = None

    def plan(self, reading: Reading, ahead: AheadScan | None = None) -> Plan:
        """Scan the files in parallel and stitch them.

        Args:
            ahead: what decodes files with their scan.
        """
        resume = reading.resume
        framing = None if self.run.settings.captures.framing == "auto" else Framing(self.run.settings.captures.framing)
        codec = self.run.settings.source_codec
        stitch = Stitch(
            resume,
            wants_origin=self.run.settings.wants_origin,
            allow_gaps=self.run.settings.captures.allow_gaps,
            until=self.until,
            announcements=self.run.settings.announcements,
        )
        with self.run.stage("scan", len(reading.files)):
            tasks = self._tasks(reading, framing)
            known = self._known(reading)
            if known and ahead is not None:
                # What is not scanned is not decoded ahead.
                ahead.forget()
                ahead = None
            unknown = {path: task for path, task in tasks.items() if path not in known}
            first = reading.files[0].path
            read, failure = self._scan(unknown, first, stitch, resume, ahead) if unknown else ({}, None)
            read |= {path: one.scan for path, one in known.items()}
            scans = {file.path: read[file.path] for file in reading.files if file.path in read}
            self._check_unchanged(resume, scans)
            twins = Twins()
            for path, scanned in scans.items():
                twins.refuse(path, scanned)
            for number, file in enumerate(reading.files):
                if stitch.is_ended:
                    break
                scan = scans.get(file.path)
                if scan is None and failure is not None:
                    raise failure
                is_open = stitch.is_open
                again = None
                if scan is not None and file.path in known:
                    again = self._join(known[file.path], stitch)
                elif scan is not None and number == 0:
                    stitch.add_exact(scan)
                elif scan is not None:
                    again = stitch.add(scan)
                if again is not None:
                    if ahead is not None:
                        ahead.drop(file.path)
                    where = again.prefix, again.edges, again.origins
                    task = ScanTask(
                        framing,
                        again.place,
                        0,
                        again.place is None,
                        *where,
                        codec=codec,
                        before=again.before,
                        until=self.until,
                    )
                    self._rescan(stitch, task, file.path)
                if file.path in self.holes and not is_open:
                    # If an open transaction or message continues here, nothing is missing.
                    self._note_hole(self.holes[file.path], file.path)
                if self.follow is not None:
                    self.follow(stitch)
                self.run.progress.advance()
        plan = stitch.plan(is_last=not reading.has_rest)
        check_times(plan)
        before = resume.applied if resume is not None else 0
        return replace(plan, resume=replace(plan.resume, applied=before + plan.transactions))

    def _tasks(self, reading: Reading, framing: Framing | None) -> dict[str, ScanTask]:
        """Say how each file is scanned, by its path."""
        resume, tasks = reading.resume, dict[str, ScanTask]()
        for number, file in enumerate(reading.files):
            is_first = number == 0
            tasks[file.path] = ScanTask(
                framing=framing,
                place=resume.place if is_first and resume is not None else None,
                start=reading.first if is_first else 0,
                first=is_first and resume is None,
                known_length=resume.length if resume is not None and file.path == resume.path else 0,
                codec=self.run.settings.source_codec,
                length=file.length,
                before=resume.last_path if is_first and resume is not None else "",
                until=self.until if is_first else None,
            )
        return tasks

    def _known(self, reading: Reading) -> dict[str, Known]:
        """Give what the index knows of files that are read from their beginning."""
        if self.index is None:
            return {}
        begun = () if reading.resume is None else (reading.resume.path, reading.resume.last_path)
        files = [file for file in reading.files if file.path not in begun]
        try:
            return self.index.known(files)
        except TargetError as error:
            self.run.warnings.append(f"{error}; the files are scanned")
            return {}

    def _join(self, known: Known, stitch: Stitch) -> Rescan | None:
        """Add a file that the index knows to the stream; give a `Rescan` instead if it has to be read for that."""
        if self.until is not None and self.until.is_passed_in(known.scan.parts):
            return Rescan(known.scan.path, stitch.place, stitch.tail, stitch.edges, stitch.origins, stitch.last_path)
        return known.join(stitch)

    def _scan(
        self,
        tasks: Mapping[str, ScanTask],
        first: str,
        stitch: Stitch,
        resume: Resume | None,
        ahead: AheadScan | None,
    ) -> tuple[dict[str, FileScan], CaptureError | None]:
        """Scan files.  The run's first one begins at a known place, and may not fit what was read before.

        Args:
            first: the run's first file, which may be among them.

        Returns:
            the scans; and, if the run may end in front of it, the error of the first file that cannot be scanned.
        """
        try:
            return self._scan_all(tasks, first, stitch, resume, ahead), None
        except CaptureError as error:
            paths = list(tasks)
            if self.until is None or error.path == first or error.path not in paths:
                raise
            sound = {path: tasks[path] for path in paths[: paths.index(error.path)]}
            if ahead is not None:
                ahead.forget()
            return (self._scan_all(sound, first, stitch, resume, None) if sound else {}), error

    def _scan_all(
        self,
        tasks: Mapping[str, ScanTask],
        first: str,
        stitch: Stitch,
        resume: Resume | None,
        ahead: AheadScan | None,
    ) -> dict[str, FileScan]:
        try:
            return scan_captures(self.run.own, tasks) if ahead is None else ahead.scan(tasks, resume)
        except CaptureError as error:
            if not self.run.settings.captures.allow_gaps or error.path != first or resume is None or tasks[first].start:
                raise
            place = stitch.gap(first, error.problem)
            task = tasks[first]
            if ahead is not None:
                ahead.forget()
            return scan_captures(
                self.run.own,
                {**tasks, first: ScanTask(task.framing, place, gap=True, codec=task.codec, until=self.until)},
            )

    def _rescan(self, stitch: Stitch, task: ScanTask, path: str) -> None:
        try:
            stitch.add_exact(scan_captures(self.run.own, {path: task})[path])
        except (NotACapture, FramingChange):
            raise
        except CaptureError as error:
            if not self.run.settings.captures.allow_gaps or stitch.place is None:
                raise not_joined(error, stitch, _NOT_JOINED_REMEDY) from None
            place = stitch.gap(path, error.problem)
            behind = ScanTask(task.framing, place, gap=True, codec=task.codec, until=self.until)
            stitch.add_exact(scan_captures(self.run.own, {path: behind})[path])

    def _note_hole(self, problem: str, path: str) -> None:
        if not self.run.settings.captures.allow_gaps:
            raise OrderError(
                problem,
                path=path,
                remedy=HOLE_REMEDY,
            )
        self.run.warnings.append(f"{path}: {problem} (gaps are allowed)")

    def _check_unchanged(self, resume: Resume | None, scans: Mapping[str, FileScan]) -> None:
        """Refuse to continue in a file whose already applied part has changed."""
        if resume is not None and resume.path in scans and scans[resume.path].known_fingerprint != resume.fingerprint:
            raise OrderError(
                "the part of the file that was read before has changed",
                path=resume.path,
                remedy="Captures must not change but by growing; restore the file, or apply to a new target",
            )


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
