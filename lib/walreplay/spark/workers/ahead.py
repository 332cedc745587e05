"""Scan a file and decode it in one task, on a guess of what is in force at its start (`walreplay.spark.job.ahead`)."""

from __future__ import annotations

import json
import pickle
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass

import pyarrow as pa

from walreplay.decode.summary import FileScan
from walreplay.errors import WalReplayError
from walreplay.protocol.compression import plain
from walreplay.protocol.messages import Relation
from walreplay.spark.workers.decode import Assigned, DecodeTask, staged_rows
from walreplay.spark.workers.process import spark_task
from walreplay.spark.workers.rows import NO_RELATION, SCANS_TABLE, stage_batch, staged_row
from walreplay.spark.workers.scan import ScanTask, capture_files, scan_of
from walreplay.task_settings import TaskSettings
from walreplay.transactions.ahead import Guess, place_ahead, stretch_ahead
from walreplay.transactions.plan import Step
from walreplay.transactions.planned import PlannedBytes
from walreplay.transactions.schedule import sequence_of


@dataclass(frozen=True, slots=True)
class Foresight:
    """A guess at the plan: the relation versions in force at a file's start, and the tables that rows go to."""

    guess: Guess
    assignments: Mapping[Relation, Assigned]

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
        own: the function that gives the first file's foresight, for its scan; pickled, as it needs the driver's
            packages, which an executor may lack.
        buckets: see `DecodeTask`.
    """

    scans: Mapping[str, ScanTask]
    numbers: Mapping[str, int]
    foresight: Foresight | None
    own: bytes
    settings: TaskSettings
    buckets: int


@dataclass(frozen=True, slots=True)
class FoundAhead:
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

    The last row of each file, of `SCANS_TABLE`, has its pickled `FoundAhead`, or its error.
    """
    for path, content in capture_files(batches, task.scans):
        found: FoundAhead | None = None
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
            own = None if task.foresight is not None else _own_foresight(scan, task.own)
            is_whole = True
            try:
                for row in _rows_ahead(scan, opened.data, view, task.foresight or own, task):
                    yield stage_batch(row | {"ahead": task.numbers[path]})
            except Exception:
                # Bytes that are read as the wrong type may fail in any way.  If the guess was right, the decode by the
                # plan fails as well, with an error for people.
                is_whole = False
            found = FoundAhead(scan, own, is_whole)
        row = staged_row(SCANS_TABLE, NO_RELATION, task.numbers[path], error, data=pickle.dumps(found))
        yield stage_batch(row | {"ahead": task.numbers[path]})


def _own_foresight(scan: FileScan, own: bytes) -> Foresight | None:
    """Give the foresight that a stream's first file gives itself; None if this executor lacks the packages for it."""
    try:
        foresight_of: Callable[[FileScan], Foresight | None] = pickle.loads(own)
    except ImportError:
        # The file is decoded by the plan, then, as others are that nothing can be guessed of.
        return None
    return foresight_of(scan)


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
    decode = DecodeTask({}, guess.relations, guess.types, foresight.assignments, {}, task.settings, task.buckets)
    yield from staged_rows(PlannedBytes(scan.path, data), [step], decode, content)


__all__ = ["AheadTask", "Foresight", "FoundAhead", "scan_ahead"]
