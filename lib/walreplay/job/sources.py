"""Work on several sources of one target: one after the other, or some at a time.

Each has a ledger of its own, and so its own lock, runs and staged rows; a source that fails does not stop the others.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

from walreplay.config import Configuration, Settings, make_configuration
from walreplay.errors import ConfigError, TargetError
from walreplay.job.apply import run_job
from walreplay.job.as_of import until_of
from walreplay.job.source_check import check_apart
from walreplay.ledger.status import NothingApplied, TargetStatus, status
from walreplay.progress import Progress
from walreplay.report import RunReport, SourceReport, SourcesReport
from walreplay.session.failures import failure_of
from walreplay.session.isolation import has_own_sessions, quiet_queries

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Config: TypeAlias = "str | os.PathLike[str] | Mapping[str, Any] | Configuration"

_Result = TypeVar("_Result")

_MOST_AT_ONCE = 64


def apply_sources(
    spark: SparkSession,
    target: str | os.PathLike[str],
    config: Config,
    *,
    sources: Sequence[str] | None = None,
    at_once: int = 1,
    until_lsn: str | int | None = None,
    until_time: str | datetime | None = None,
    progress: Progress | None = None,
    metrics: str | os.PathLike[str] | None = None,
) -> SourcesReport[RunReport]:
    """Bring the tables of several sources up to the end of their captures, or to a moment.

    What a source does is what `walreplay.apply` does with one.  If one fails, the others go on.

    Args:
        target, progress: as `walreplay.apply` takes them.
        config: a YAML file or a mapping with ``sources``.
        sources: the names of those that are wanted; None for all.
        at_once: so many are applied at the same time, where the session can have others beside it (Spark Connect
            cannot).
        until_lsn, until_time: see `walreplay.backfill`; an LSN is one source's.
        metrics: see `walreplay.apply`; each row says which source's it is.

    Returns:
        each source's report, or the error that has stopped it; `SourcesReport.raise_first` raises the first one.

    Raises:
        ConfigError: the configuration is not right, or there is no such source.
    """
    configuration = make_configuration(config)
    until = until_of(until_lsn, until_time)
    if until_lsn is not None and len(configuration.chosen(sources)) != 1:
        raise ConfigError("an LSN is that of one source", remedy="Name the source (--source), or give a time")

    def work(source: Source) -> RunReport:
        return run_job(spark, source.captures, target, source.settings, source.progress, until, metrics=metrics)

    return each_source(spark, configuration, work, sources=sources, at_once=at_once, progress=progress)


def sources_status(
    spark: SparkSession, target: str | os.PathLike[str], config: Config, *, sources: Sequence[str] | None = None
) -> SourcesReport[TargetStatus | None]:
    """Read the ledgers of several sources; of a source that nothing was applied from yet, there is no status.

    Args:
        sources: the names of those that are wanted; None for all.

    Raises:
        ConfigError: the configuration is not right, or there is no such source.
    """

    def work(source: Source) -> TargetStatus | None:
        try:
            return status(spark, target, source.name)
        except NothingApplied:
            return None

    return each_source(spark, make_configuration(config), work, sources=sources)


@dataclass(frozen=True, slots=True)
class Source:
    """One of several sources, to be worked on."""

    name: str
    captures: str
    settings: Settings
    progress: Progress


class _Named(Progress):
    """The progress of one source, whose name comes in front of the stage's."""

    def __init__(self, progress: Progress, source: str) -> None:
        self._progress = progress
        self._source = source

    def stage(self, name: str, total: int | None) -> None:
        self._progress.stage(f"{self._source}: {name}", total)

    def advance(self, count: int = 1) -> None:
        self._progress.advance(count)

    def doing(self, what: str) -> None:
        self._progress.doing(what)

    def so_far(self, done: int, total: int) -> None:
        self._progress.so_far(done, total)

    def done(self) -> None:
        self._progress.done()


class _Ending(Progress):
    """The stages of a source that is worked on beside others: they are not shown, and none begins after the end."""

    def __init__(self, ended: threading.Event) -> None:
        self._ended = ended

    def stage(self, name: str, total: int | None) -> None:
        if self._ended.is_set():  # an interrupt reaches the main thread alone
            raise TargetError("interrupted", remedy="Run it again, it goes on where it stopped")


def each_source(
    spark: SparkSession,
    config: Configuration,
    work: Callable[[Source], _Result],
    *,
    sources: Sequence[str] | None = None,
    at_once: int = 1,
    progress: Progress | None = None,
) -> SourcesReport[_Result]:
    """Do some work for each source, and go on where one fails.

    Args:
        sources: the names of those that are wanted; None for all.
        at_once: so many at the same time; their own stages are not shown then.

    Raises:
        ConfigError: there is no such source, or there are none at all.
    """
    names = config.chosen(sources)
    if not names:
        raise ConfigError("the configuration has no sources", remedy="Give --captures, or a configuration with sources")
    if not 1 <= at_once <= _MOST_AT_ONCE:
        raise ConfigError(f"{at_once} sources at once", remedy=f"Give 1 to {_MOST_AT_ONCE}")
    settings = {name: config.of(name) for name in config.sources}
    check_apart(config.captures_of, {name: source_settings.file_pattern for name, source_settings in settings.items()})
    display = progress or Progress()
    # A session that is shared allows one statement at a time.
    together = min(at_once, len(names)) if has_own_sessions(spark) else 1
    ended = threading.Event()
    if together > 1:
        display.stage("sources", len(names))  # one bar for all: stages of several would mix

    def report_of(name: str) -> SourceReport[_Result]:
        began = time.monotonic()
        shown: Progress = _Ending(ended) if together > 1 else _Named(display, name)
        result: _Result | None = None
        problem: Exception | None = None
        try:
            result = work(Source(name, config.captures_of[name], settings[name], shown))
        except Exception as error:
            problem = failure_of(error) or error  # in our own words, if the failure is one that is known
        if together > 1:
            display.advance()
        return SourceReport(name, result, problem, time.monotonic() - began)

    try:
        if together == 1:
            return SourcesReport(tuple(map(report_of, names)))
        # What keeps queries quiet for a while sets it back: here when no source is at work any more.
        with quiet_queries(), ThreadPoolExecutor(together) as pool:
            futures: list[Future[SourceReport[_Result]]] = [pool.submit(report_of, name) for name in names]
            try:
                return SourcesReport(tuple(future.result() for future in futures))
            except BaseException:
                ended.set()  # the others stop at their next stage
                raise
    finally:
        display.done()
