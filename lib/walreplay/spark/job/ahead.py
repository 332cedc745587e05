"""Decode ahead: scan a file and decode it in one task, so that its bytes come through Spark only once.

This is for files that the executors have not mounted.  (Mounted files are mapped twice instead, which costs less.)
Nothing is planned yet, so the task decodes on a guess.  `walreplay.transactions.ahead` says what may be decoded so, and
which of it holds once there is a plan.
"""

from __future__ import annotations

import copy
import json
import pickle
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Final

import pyarrow as pa

from walreplay.decode.summary import FileScan
from walreplay.errors import WalReplayError, from_dict
from walreplay.protocol.compression import plain
from walreplay.protocol.messages import Relation
from walreplay.settings import Settings
from walreplay.spark.captures.files import scan_captures, vanished
from walreplay.spark.planning.registry import MirrorEntry
from walreplay.spark.planning.versions import Catalogue
from walreplay.spark.staging.base import Staging
from walreplay.spark.workers.decode import Assigned, DecodeTask, staged_rows
from walreplay.spark.workers.process import spark_task
from walreplay.spark.workers.rows import NO_RELATION, SCANS_TABLE, stage_batch, staged_row
from walreplay.spark.workers.scan import ScanTask, capture_files, scan_of
from walreplay.transactions.ahead import Confirmation, DecodedAhead, Guess, place_ahead, stretch_ahead
from walreplay.transactions.plan import Plan, Resume, Step
from walreplay.transactions.planned import PlannedBytes
from walreplay.transactions.schedule import sequence_of
from walreplay.transactions.stitch import Stitch

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


_MOST_VOID: Final = 500


@dataclass(frozen=True, slots=True)
class Foresight:
    """A guess at the plan: the relation versions in force at a file's start, and the tables that rows go to."""

    guess: Guess
    assignments: Mapping[Relation, Assigned]

    @classmethod
    def at(cls, stitch: Stitch, settings: Settings, entries: Sequence[MirrorEntry]) -> Foresight | None:
        """Guess from what was stitched so far; None if it cannot be planned.

        Args:
            entries: the tables that the ledger knows.
        """
        guess = Guess.at(stitch)
        try:
            # To plan ends what is open, and the stitch may be needed further.
            catalogue = Catalogue.of(copy.deepcopy(stitch).plan(), settings, entries)
        except WalReplayError:
            # The plan of all files will tell.
            return None
        return cls(guess, catalogue.assignments)

    def doubtful(self, assignments: Mapping[Relation, Assigned]) -> set[int]:
        """Give the relations (by oid) whose rows go elsewhere, or are taken otherwise, than was guessed."""
        return {
            relation.oid
            for relation in self.guess.relations
            if self.assignments.get(relation) != assignments.get(relation)
        }


@dataclass(frozen=True, slots=True)
class AheadTask:
    """What a task needs that scans and decodes files.

    Attributes:
        scans: how each file is scanned, by path.
        numbers: each file's number among the files of the run.
        foresight: None for the first file of a stream, which announces its relations itself.
        buckets: see `DecodeTask`.
    """

    scans: Mapping[str, ScanTask]
    numbers: Mapping[str, int]
    foresight: Foresight | None
    settings: Settings
    buckets: int


@dataclass(frozen=True, slots=True)
class _Found:
    """What a task returns for one file.

    Attributes:
        own: the foresight that the task made from the file itself.
        is_whole: all of the file's rows were decoded.
    """

    scan: FileScan
    own: Foresight | None
    is_whole: bool


@spark_task
def scan_ahead(batches: Iterable[pa.RecordBatch], *, task: AheadTask) -> Iterator[pa.RecordBatch]:
    """Scan whole files, and decode what can be decoded ahead: rows as `decode_batches` gives them.

    The last row of each file, of `SCANS_TABLE`, has its pickled `_Found`, or its error.
    """
    for path, content in capture_files(batches, task.scans):
        found: _Found | None = None
        error = ""
        try:
            if isinstance(content, WalReplayError):
                raise content
            view = memoryview(content)
            opened = plain(view)
            scan = scan_of(path, view, task.scans[path], opened)
        except WalReplayError as problem:
            error = json.dumps(problem.at(path=path).to_dict())
        else:
            own = None if task.foresight is not None else _own_foresight(scan, task.settings)
            is_whole = True
            try:
                for row in _rows_ahead(scan, opened.data, view, task.foresight or own, task):
                    yield stage_batch(row | {"ahead": task.numbers[path]})
            except Exception:
                # Bytes that are read as the wrong type may fail in any way.  If the guess was right, the decode by the
                # plan fails as well, with an error for people.
                is_whole = False
            found = _Found(scan, own, is_whole)
        row = staged_row(SCANS_TABLE, NO_RELATION, task.numbers[path], error, data=pickle.dumps(found))
        yield stage_batch(row | {"ahead": task.numbers[path]})


def _own_foresight(scan: FileScan, settings: Settings) -> Foresight | None:
    """Give the foresight at the end of a stream's first file, from what the file announces."""
    stitch = Stitch(None)
    try:
        stitch.add_exact(scan)
    except WalReplayError:
        return None
    return Foresight.at(stitch, settings, ())


def _rows_ahead(
    scan: FileScan, data: memoryview, content: memoryview, foresight: Foresight | None, task: AheadTask
) -> Iterator[dict[str, object]]:
    if foresight is None:
        return
    guess = foresight.guess
    scan.ahead = stretch_ahead(scan, data, guess)
    if scan.ahead is None:
        return
    step = Step(
        sequence_of(task.numbers[scan.path]),
        scan.ahead.start,
        scan.ahead.stop,
        place_ahead(scan, task.scans[scan.path].place),
        tuple(range(len(guess.relations))),
        tuple(range(len(guess.types))),
    )
    settings = task.settings.of_tasks
    decode = DecodeTask({}, guess.relations, guess.types, foresight.assignments, {}, settings, task.buckets)
    yield from staged_rows(PlannedBytes(scan.path, data), [step], decode, content)


@dataclass
class AheadScan:
    """Scan a run's files, and keep what was decoded with that.

    Args:
        entries: the tables that the ledger knows.
        buckets: how many parts a table's changes are split into.
        stitch: stands where the run begins.
        check: sees to it that the run may still write what it stages, or raises.
    """

    spark: SparkSession
    staging: Staging
    settings: Settings
    entries: Sequence[MirrorEntry]
    buckets: int
    stitch: Stitch
    check: Callable[[], None]
    _found: dict[str, tuple[int, FileScan, Foresight]] = field(default_factory=dict)
    _spoilt: list[int] = field(default_factory=list)
    _foresight: Foresight | None = None
    _count: int = 0
    _is_blind: bool = False

    def scan(self, tasks: Mapping[str, ScanTask], resume: Resume | None) -> dict[str, FileScan]:
        """Scan files, as `scan_captures` does; they may come in parts, in the stream's order.

        The first file of a stream is scanned first: it gives the foresight for the others.
        """
        numbers = {path: number for number, path in enumerate(tasks, self._count)}
        rest, scans, stitch = dict(tasks), {}, self.stitch
        is_first, self._count = self._count == 0, self._count + len(tasks)
        if self._is_blind:
            return scan_captures(self.spark, rest)
        if resume is None and is_first:
            first = next(iter(rest))
            scans = self._scan({first: rest.pop(first)}, numbers, None)
            try:
                stitch.add_exact(scans[first])
            except WalReplayError:
                # It will be told when all files are there.
                self._is_blind = True
                return scans | (scan_captures(self.spark, rest) if rest else {})
        if not rest:
            return scans
        foresight = self._foresight = self._foresight or Foresight.at(stitch, self.settings, self.entries)
        if foresight is None:
            return scans | scan_captures(self.spark, rest)
        return scans | self._scan(rest, numbers, foresight)

    def _scan(
        self, tasks: Mapping[str, ScanTask], numbers: Mapping[str, int], foresight: Foresight | None
    ) -> dict[str, FileScan]:
        task = AheadTask(tasks, numbers, foresight, self.settings, self.buckets)
        self.check()
        rows = self.staging.scan(self.spark, list(tasks), partial(scan_ahead, task=task))
        paths = {numbers[path]: path for path in tasks}
        rows = sorted((row for row in rows if row.ahead in paths), key=lambda row: row.ahead)
        for row in rows:
            if row.info:
                raise from_dict(json.loads(row.info))
        scans = {}
        for row in rows:
            found: _Found = pickle.loads(row.data)
            scan, used = found.scan, foresight or found.own
            scans[scan.path] = scan
            if not found.is_whole:
                self._spoilt.append(row.ahead)
            elif scan.ahead is not None and used is not None:
                self._found[scan.path] = row.ahead, scan, used
        for path in tasks:
            if path not in scans:
                raise vanished(path)
        return scans

    def drop(self, path: str) -> None:
        """Discard a file's rows: the stream does not continue with the scan that they belong to."""
        dropped = self._found.pop(path, None)
        if dropped is not None:
            self._spoilt.append(dropped[0])

    def forget(self) -> None:
        """Discard the rows of all files."""
        self._found.clear()

    def confirm(self, plan: Plan, assignments: Mapping[Relation, Assigned]) -> Confirmation | None:
        """Say which of the rows agree with the plan; None if none do.

        The bytes that were kept of the files are released.

        Args:
            assignments: the tables that the plan's rows go to.
        """
        files = list(self._found.values())
        self._found.clear()
        # One or two of them are all the files'.
        foresights = {id(foresight): foresight for _, _, foresight in files}
        doubtful = {key: foresight.doubtful(assignments) for key, foresight in foresights.items()}
        confirmation = Confirmation(
            plan,
            (DecodedAhead(number, scan, foresight.guess, doubtful[id(foresight)]) for number, scan, foresight in files),
        )
        confirmation.void += self._spoilt
        # To leave many files out costs every look at the staged rows more than to decode the others again.
        return confirmation if confirmation.held and len(confirmation.void) <= _MOST_VOID else None


__all__ = ["AheadScan", "AheadTask", "Foresight", "scan_ahead"]
