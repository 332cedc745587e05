"""Decode ahead: scan a file and decode it in one task, so that its bytes come through Spark only once.

This is for files that the executors have not mounted.  (Mounted files are mapped twice instead, which costs less.)
Nothing is planned yet, so the task decodes on a guess.  `walreplay.transactions.ahead` says what may be decoded so, and
which of it holds once there is a plan.
"""

from __future__ import annotations

import copy
import json
import pickle
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Final

from walreplay.decode.summary import FileScan
from walreplay.errors import WalReplayError, from_dict
from walreplay.protocol.messages import Relation
from walreplay.settings import Settings
from walreplay.spark.captures.files import scan_captures, vanished
from walreplay.spark.planning.registry import MirrorEntry
from walreplay.spark.planning.versions import Catalogue
from walreplay.spark.staging.base import Staging
from walreplay.spark.workers.ahead import AheadTask, Foresight, FoundAhead, scan_ahead
from walreplay.spark.workers.decode import Assigned
from walreplay.spark.workers.scan import ScanTask
from walreplay.transactions.ahead import Confirmation, DecodedAhead, Guess
from walreplay.transactions.plan import Plan, Resume
from walreplay.transactions.stitch import Stitch

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


_MOST_VOID: Final = 500


def foresight_at(stitch: Stitch, settings: Settings, entries: Sequence[MirrorEntry]) -> Foresight | None:
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
    return Foresight(guess, catalogue.assignments)


def foresight_of_first(scan: FileScan, *, settings: Settings) -> Foresight | None:
    """Give the foresight at the end of a stream's first file, from what the file announces."""
    stitch = Stitch(None)
    try:
        stitch.add_exact(scan)
    except WalReplayError:
        return None
    return foresight_at(stitch, settings, ())


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
        foresight = self._foresight = self._foresight or foresight_at(stitch, self.settings, self.entries)
        if foresight is None:
            return scans | scan_captures(self.spark, rest)
        return scans | self._scan(rest, numbers, foresight)

    def _scan(
        self, tasks: Mapping[str, ScanTask], numbers: Mapping[str, int], foresight: Foresight | None
    ) -> dict[str, FileScan]:
        own = pickle.dumps(partial(foresight_of_first, settings=self.settings))
        task = AheadTask(tasks, numbers, foresight, own, self.settings.of_tasks, self.buckets)
        self.check()
        rows = self.staging.scan(self.spark, list(tasks), partial(scan_ahead, task=task))
        paths = {numbers[path]: path for path in tasks}
        rows = sorted((row for row in rows if row.ahead in paths), key=lambda row: row.ahead)
        for row in rows:
            if row.info:
                raise from_dict(json.loads(row.info))
        scans = {}
        for row in rows:
            found: FoundAhead = pickle.loads(row.data)
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


__all__ = ["AheadScan", "foresight_at", "foresight_of_first"]
