"""What all phases of a run share: sessions, settings, ledger, writer, progress and warnings."""

from __future__ import annotations

import os
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, TypeVar

from walreplay.config import Settings
from walreplay.decode.compile.kernel import check_compiled
from walreplay.delta.statements import SMALL_STATE
from walreplay.delta.target import Target, catalog_errors, storage_errors
from walreplay.errors import TargetError, WalReplayError, listed
from walreplay.job.source_check import SiblingLedgers, check_places
from walreplay.ledger.ledger import Ledger
from walreplay.ledger.runs import Rows, is_due, keep_small, write_metrics
from walreplay.ledger.state import State, now
from walreplay.lsn import to_datetime
from walreplay.progress import Progress, log
from walreplay.report import RunReport, Status, TableReport
from walreplay.session.failures import failure_of, spark_errors
from walreplay.session.isolation import cached_attribute, has_own_sessions, own_session, quiet_queries, set_for_a_while
from walreplay.session.naming import jobs_named
from walreplay.spark.staging import Staging
from walreplay.writing.by_files import choose_writer
from walreplay.writing.by_statements import TableWriter

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from pyspark.sql import SparkSession

_Item = TypeVar("_Item")
_Result = TypeVar("_Result")

_TABLES_AT_ONCE: Final = 4

COMPACT_EVERY_RUNS: Final = 50  # once in so many runs, the files of the ledger's tables are written together


@dataclass
class RunContext:
    """A run's sessions, settings and ledger, its writer, and what it reports.

    Attributes:
        spark: the caller's session; ``session`` has the settings that the run needs.
        stages: seconds, by the names of the run's stages.
        warnings: what a person should know.
        gaps: what earlier runs have left out, by the oids of tables that may lack rows by it.
        metrics: a file that gets what is measured of each run; None for nowhere.
        changed: the oids of tables that somebody else has changed, whose rows are accepted.
    """

    spark: SparkSession
    session: SparkSession
    target: Target
    settings: Settings
    ledger: Ledger
    writer: TableWriter
    progress: Progress
    stages: dict[str, float] = field(default_factory=dict)
    warnings: list[str] = field(default_factory=list)
    gaps: dict[int, str] = field(default_factory=dict)
    metrics: str | None = None
    changed: set[int] = field(default_factory=set)
    _earlier_stages: dict[str, float] = field(default_factory=dict)  # until the last run of the call was recorded
    _parts: list[str] = field(default_factory=list)  # what is at work, for the display
    _turn: threading.Lock = field(default_factory=threading.Lock)  # tables are worked on in threads

    @classmethod
    def of(
        cls,
        spark: SparkSession,
        target: Target,
        settings: Settings,
        progress: Progress | None,
        *,
        loads: bool = False,
        metrics: str | os.PathLike[str] | None = None,
    ) -> RunContext:
        """Begin a run: choose how it writes.

        Args:
            progress: None shows nothing.
            loads: see `Ledger`.
            metrics: see `walreplay.apply`.
        """
        check_compiled()
        writer = choose_writer(spark, target, settings.staging)
        ledger = Ledger(spark, target, writer, loads=loads)
        # In a session of its own the job's settings do not reach the caller's.
        place = None if metrics is None else os.fspath(metrics)
        return cls(spark, own_session(spark), target, settings, ledger, writer, progress or Progress(), metrics=place)

    @classmethod
    @contextmanager
    def on(
        cls,
        spark: SparkSession,
        target: str | os.PathLike[str],
        settings: Settings,
        progress: Progress | None,
        *,
        reads: str | None = None,
        loads: bool = False,
        metrics: str | os.PathLike[str] | None = None,
    ) -> Iterator[RunContext]:
        """Begin a call on a target; see `of`.

        Args:
            reads: the folder of the files that it reads; None for none.

        Raises:
            ConfigError: that folder and the target's lie inside one another.
            WalReplayError: what Spark cannot do inside.
        """
        place = Target.parse(str(target)).of_source(settings.ledger_name)
        with spark_errors(path=place.text):
            if reads is not None:
                check_places(reads, place)
            yield cls.of(spark, place, settings, progress, loads=loads, metrics=metrics)

    @contextmanager
    def at_work(self) -> Iterator[None]:
        """Work on the target; at the end release the lock, and close the progress display."""
        try:
            with quiet_queries(), storage_errors(self.target.text), set_for_a_while(self.session, SMALL_STATE):
                try:
                    yield
                except Exception as error:
                    # If another run has taken over, that is the reason for whatever failed here.
                    lost = self.ledger.why_lost()
                    if lost is None:
                        raise
                    raise lost from error
                finally:
                    self.ledger.release()
        finally:
            self.progress.done()

    def read(self) -> State | None:
        """Return the ledger's state; None if nothing was ever applied or loaded."""
        with self.stage("read ledger"), catalog_errors(self.target):
            return self.ledger.read()

    def lock(self) -> State | None:
        """Acquire the ledger's lock, and add its warnings; return the state that the run begins from."""
        with self.stage("lock"):
            state = self.ledger.acquire()
        self.warnings.extend(self.ledger.warnings)
        self.ledger.warnings.clear()  # each warning comes once
        return state

    @contextmanager
    def staging(self) -> Iterator[Staging]:
        """Provide a place for the run's staged events, and empty it at the end, also after an error."""
        staging = self.writer.staging(self.target, self.ledger.holder_id, self.ledger.taken_over)
        try:
            yield staging
        finally:
            self.clear(staging)

    def keep_ledger_small(self, runs: Sequence[int]) -> None:
        """Write the ledger's small files together, and forget old runs, if it is time for that.

        All runs have ended, and none depends on this: a failure is only warned of.

        Args:
            runs: the numbers of those of this call.
        """
        if not runs or not is_due(runs[0], runs[-1], COMPACT_EVERY_RUNS):
            return
        with self.stage("compact ledger"):
            try:
                self.ledger.acquire()
            except TargetError:
                # Another run is at work already.
                return
            try:
                keep_small(self.session, self.target, self.settings.ledger_keep_days, now(), self.ledger.check_lock)
            except Exception as error:
                problem = error if isinstance(error, WalReplayError) else failure_of(error)
                if problem is None:
                    raise
                self.warnings.append(f"the run is done, but the ledger's files were not written together: {problem}")
            finally:
                self.ledger.release()

    def clear(self, staging: Staging) -> None:
        """Delete what the run has staged; the next run tries again where that fails."""
        # A run that has lost the lock leaves everything to the other run; a recorded run has cleared up already.
        if staging.written and self.ledger.has_lock():
            with self.stage("clean up"):
                try:
                    staging.clear()
                except TargetError as error:
                    self.warnings.append(str(error))

    @cached_attribute
    def sibling_ledgers(self) -> SiblingLedgers:
        """The ledgers of the other sources."""
        return SiblingLedgers(self.session, self.target, self.writer, self.settings.siblings, self.at_once)

    def report(
        self,
        run: int | None,
        status: Status,
        captures: str,
        reached: tuple[int, int],
        tables: Iterable[TableReport] = (),
    ) -> RunReport:
        """Return a report, without its time, and without what was read.

        Args:
            reached: see `State.reached`.
        """
        lsn, commit_time = reached  # (-1, 0) if nothing was applied
        return RunReport(
            run=run,
            status=status,
            captures=captures,
            target=self.target.text,
            files=0,
            capture_bytes=0,
            transactions=0,
            changes=0,
            applied_lsn=lsn if lsn >= 0 else None,
            applied_commit_ts=to_datetime(commit_time) if lsn >= 0 else None,
            tables=tuple(sorted(tables, key=TableReport.order)),
            warnings=tuple(self.warnings),  # a copy: more may follow
            seconds=0.0,
            stages=self.stages,
        )

    @property
    def phases(self) -> dict[str, float]:
        """Seconds by the names of stages, of the run that is at work: a call may do several."""
        spent = {name: seconds - self._earlier_stages.get(name, 0.0) for name, seconds in self.stages.items()}
        return {name: seconds for name, seconds in spent.items() if seconds > 0}

    @contextmanager
    def recording(self) -> Iterator[None]:
        """Record a run, which ends it, and write its metrics."""
        with self.stage("record"):  # the record is the commit that ends the run
            yield
            self.tell_metrics(self.ledger.recorded)
        self._earlier_stages = dict(self.stages)

    def tell_metrics(self, rows: Rows) -> None:
        """Add rows to the metrics file, if the call has one."""
        problem = write_metrics(self.metrics, self.target.text, rows)
        if problem is not None:
            self.warnings.append(problem)

    @property
    def at_once(self) -> int:
        """How many tables are worked on at a time; each needs a session of its own."""
        return _TABLES_AT_ONCE if has_own_sessions(self.spark) else 1

    def each(self, work: Callable[[_Item], _Result], items: Iterable[_Item]) -> list[_Result]:
        """Do some work with each table, several at a time; return the results in the tables' order."""
        with ThreadPoolExecutor(self.at_once) as pool:
            return list(pool.map(work, items))

    @contextmanager
    def doing(self, part: str) -> Iterator[None]:
        """Report the parts of a stage that are at work: this one until it is done, and those of other threads."""
        with self._turn:
            # A list, as two tables may have one name: the table that is set aside, and the one that takes the name.
            self._parts.append(part)
            self.progress.doing(listed(dict.fromkeys(self._parts)))
        try:
            yield
        finally:
            with self._turn:
                self._parts.remove(part)
                if self._parts:
                    self.progress.doing(listed(dict.fromkeys(self._parts)))

    @contextmanager
    def stage(self, name: str, total: int | None = None) -> Iterator[None]:
        """Report that a stage begins, with its number of parts if known, and measure its time."""
        began = time.monotonic()
        self.progress.stage(name, total)
        try:
            with jobs_named(self.spark, name):  # shown in Spark's UI
                yield
        finally:
            seconds = time.monotonic() - began
            self.stages[name] = self.stages.get(name, 0.0) + seconds
            log("phase", name=name, target=self.target.text, source=self.target.source, seconds=seconds)
