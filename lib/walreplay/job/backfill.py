"""Backfill: make a target that holds what the source held at an LSN or at a time; and forecast what runs would do.

A backfill is an ordinary run, or several, that end before the first transaction which commits too late: so the target's
ledger, tables and next nightly run are those of a target whose archive had ended there.  In an existing target a part
of the tables is made by a rebuild (`walreplay.job.rebuild`): all tables stay at one LSN.  A forecast plans the runs one
after the other and applies none: nothing is written.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final

from walreplay.archive.facts import RelationChangeCounts, relation_rows
from walreplay.config import Settings, make_settings
from walreplay.config.model import Narrowed, outputs_named, tables_named
from walreplay.decode.scan import Until
from walreplay.delta import statements as delta
from walreplay.delta.target import Target, catalog_errors, ledger_errors
from walreplay.errors import ConfigError, TargetError
from walreplay.job.apply import Idle, Job, run_job
from walreplay.job.as_of import lsn_of, until_of
from walreplay.job.context import RunContext
from walreplay.job.execution import Applying, RunWork, buckets_of, tasks_of
from walreplay.job.rebuild import rebuild
from walreplay.job.scanning import RunInput, Scanning, seen_files
from walreplay.ledger.ledger import Ledger
from walreplay.ledger.state import State, now
from walreplay.lsn import format_lsn, to_datetime
from walreplay.names import Output, output_of, source_oid
from walreplay.progress import Progress
from walreplay.report import Forecast, RunReport, TableForecast, TableReport, added_up
from walreplay.session.failures import spark_errors
from walreplay.session.session import local_cores
from walreplay.spark.captures import tasks_for
from walreplay.spark.staging import CountedStaging
from walreplay.stream.plan import Plan
from walreplay.table.registry import MirrorEntry
from walreplay.table.versions import Catalogue
from walreplay.writing.by_files import choose_writer

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from walreplay.stream.stitch import Stitch

_COUNTS: Final = ("inserts", "updates", "deletes", "truncates")
_LAST_RUNS: Final = 20  # by which the time of the next is estimated
_RUN_PER_SCAN: Final = 4.0  # a run takes about so many times as long as the scan of its files


class ForecastJob(Job):
    """A `Job` that applies nothing: each plan counts as applied, so that the next run is planned behind it.

    Args:
        anew: forecast as for a new target.
    """

    def __init__(self, run: RunContext, captures: str, until: Until | None = None, *, anew: bool = False) -> None:
        super().__init__(run, captures, until)
        self._anew = anew
        self._state: State | None = None
        self._change_counts: dict[int, list[int]] = {}
        self._wanted_oids, self._known_oids = set[int](), set[int]()
        self._reports: tuple[TableReport, ...] = ()
        self._runs = self._files_read = self._bytes = self._transactions = self._tasks = 0

    def forecast(self) -> Forecast:
        """Return what runs would do."""
        began = time.monotonic()
        with self.run.at_work():
            self._apply()
            seconds, basis = self._estimate()
        lsn, commit_time = (-1, 0) if self._state is None else self._state.reached
        return Forecast(
            captures=self.captures,
            target=self.run.target.text,
            runs=self._runs,
            files=self._files_read,
            capture_bytes=self._bytes,
            transactions=self._transactions,
            applied_lsn=lsn if lsn >= 0 else None,
            applied_commit_ts=to_datetime(commit_time) if lsn >= 0 else None,
            tables=tuple(self._forecast_of(report) for report in self._reports),
            left_out=sum(sum(counts) for oid, counts in self._change_counts.items() if oid not in self._wanted_oids),
            tasks=self._tasks,
            estimated_seconds=seconds,
            estimated_by=basis,
            warnings=tuple(self.run.warnings),
            seconds=time.monotonic() - began,
        )

    # What `Job` would do

    def _check_source(self, state: State | None) -> None:
        if not self._anew:
            super()._check_source(state)
            self._state = state

    def _read(self) -> State | None:
        state = super()._read()
        self._known_oids = set() if state is None else {entry.oid for entry in state.tables}
        return None if self._anew else state  # as for a new target

    def _lock(self) -> State | None:
        return self._state

    def _install(self, interrupted: State) -> State:
        self.run.warnings.append(f"rebuild {interrupted.run} was interrupted; it would be finished first")
        self._state = replace(interrupted, rebuild=None)
        return self._state

    def _finish(self, interrupted: State) -> tuple[State, RunReport]:
        plan = interrupted.plan
        assert plan is not None
        self.run.warnings.append(f"run {interrupted.run} was interrupted; it would be finished first")
        tables = self._plan_tables(plan, interrupted.bytes, interrupted)
        self._state = replace(interrupted, plan=None, resume=plan.resume, tables=tables)
        return self._state, self._nothing_new(self._state)

    def _look_at_tables(self, state: State | None) -> None:
        """Leave the tables alone."""

    def _run(self, reading: RunInput, state: State | None) -> tuple[State, RunReport] | Idle:
        rows: list[RelationChangeCounts] = []

        def follow(stitch: Stitch) -> None:
            rows.extend(relation_rows(stitch.state))

        plan = Scanning(self.run, reading, self.until, self._index, follow).plan()
        idle = self._idle_reason(plan, reading, state)
        if idle is not None:
            return idle
        self.run.warnings.extend(plan.warnings)
        before = state or State("", self.source, 0, now(), self.captures)  # a new target
        tables = self._plan_tables(plan, reading.size, before)
        self._count(plan, rows, reading)
        # The next plan begins behind these files.
        seen = seen_files(self.captures, reading.listed, plan.resume.last_path)
        self._state = replace(before, resume=plan.resume, seen=seen, captures=self.captures, tables=tables)
        return self._state, self._nothing_new(self._state)

    # The forecast's numbers

    def _count(self, plan: Plan, rows: Iterable[RelationChangeCounts], reading: RunInput) -> None:
        self._runs += 1
        self._files_read += len(reading.files)
        self._bytes += reading.size
        self._transactions += plan.transactions
        run_changes: dict[int, int] = {}
        for relation in rows:
            counts = (relation.inserts, relation.updates, relation.deletes, relation.truncates)
            earlier = self._change_counts.get(relation.oid, (0,) * 4)
            self._change_counts[relation.oid] = [sum(pair) for pair in zip(earlier, counts, strict=True)]
            run_changes[relation.oid] = run_changes.get(relation.oid, 0) + sum(counts)
        self._tasks += self._tasks_of(run_changes, reading)

    def _plan_tables(self, plan: Plan, size: int, state: State) -> tuple[MirrorEntry, ...]:
        """Plan the tables of a run as it does itself; return what the ledger would know of them behind it."""
        catalogue = Catalogue.of(plan, self.run.settings, state.tables)
        self.run.warnings.extend(catalogue.warnings)
        self._wanted_oids |= {relation.oid for relation, versions in catalogue.versions.items() if versions}
        work = RunWork(plan, size, state, lambda *_: state)  # a forecast writes no plan
        tables, reports = Applying(self.run, self.captures, CountedStaging()).forecast(work, catalogue)
        self._reports = added_up((*self._reports, *reports))
        return tables.entries

    def _forecast_of(self, report: TableReport) -> TableForecast:
        counts = self._change_counts.get(source_oid(report.oid or 0), (0,) * 4)
        names = (name for name in TableForecast.__slots__ if hasattr(report, name))
        planned: dict[str, Any] = {name: getattr(report, name) for name in names}
        if self._anew and report.oid in self._known_oids:  # a rebuild replaces the table that is there
            planned["action"] = "overwritten"
        return TableForecast(**planned | dict(zip(_COUNTS, counts, strict=True)))

    def _tasks_of(self, changes: dict[int, int], reading: RunInput) -> int:
        """Return about how many tasks read a run's files twice, and fold what they have of each wanted table."""
        files, size, cores = len(reading.files), reading.size, local_cores(self.run.spark)
        reads = tasks_for(files, size, cores) or min(files, cores or files)  # scan and decode: each reads all files
        buckets, total_changes = buckets_of(size), max(1, sum(changes.values()))  # the bytes are divided by row changes
        table_changes = [count for oid, count in changes.items() if oid in self._wanted_oids]
        return 2 * reads + sum(tasks_of(buckets, size * count // total_changes) for count in table_changes)

    def _estimate(self) -> tuple[float | None, str]:
        """Return how long it would take: by the rate of the target's last runs, or else by how long the scan took."""
        if not self._runs:
            return None, ""
        table = self.run.target.ledger("runs")
        rows: Sequence[tuple[int, float]] = ()
        with ledger_errors(table.text):
            if delta.exists(self.run.session, table):
                runs = delta.read(self.run.session, table).where("transactions > 0 AND bytes > 0")
                took = "unix_micros(finished_at) - unix_micros(started_at) AS micros"
                run_rows = runs.orderBy("run", ascending=False).limit(_LAST_RUNS).selectExpr("bytes", took).collect()
                rows = [(row.bytes, row.micros / 1e6) for row in run_rows]
        if rows:
            # A line through two runs: the quickest gives what a run takes in any case, the largest the rate.
            least = min(seconds for _, seconds in rows)
            size, seconds = max(rows)
            rate = max(0.0, seconds - least) / size
            return self._runs * least + rate * self._bytes, "the target's runs before"
        return _RUN_PER_SCAN * self.run.stages.get("scan", 0.0), "the scan of the same files"


def backfill(
    spark: SparkSession,
    captures: str | os.PathLike[str],
    target: str | os.PathLike[str],
    config: str | os.PathLike[str] | Mapping[str, Any] | Settings | None = None,
    *,
    until_lsn: str | int | None = None,
    until_time: str | datetime | None = None,
    table: str | None = None,
    outputs: Iterable[str | Output] | None = None,
    from_lsn: str | int | None = None,
    progress: Progress | None = None,
    metrics: str | os.PathLike[str] | None = None,
) -> RunReport:
    """Bring the target's tables to what the source held at an LSN or at a time; without either, as far as `apply`.

    Whole transactions are applied, in commit order: all that commit in front of the first one that is too late.  Times
    need not rise with the commits, so a later transaction with an earlier time is not applied either.  Killed, the same
    call goes on where it was.  An `apply` goes on from there to the captures' end.

    Args:
        captures, target, config, progress: as `walreplay.apply` takes them.
        until_lsn: the last commit LSN that is wanted, such as ``16/B374D848``.
        until_time: the last commit time that is wanted; without a time zone it is UTC.
        table: a regular expression over the whole of ``schema.table``: the only tables that are wanted.  Of a target
            that has others, too, they are made as by `walreplay.rebuild`, at the LSN that it is at.
        outputs: what is made of each table, in place of the configuration's ``outputs``.
        from_lsn: changes of transactions with a lower commit LSN are left out; only if no output is whole.
        metrics: see `apply`; of tables that are made again as by `walreplay.rebuild`, the ledger alone has them.

    Raises:
        ConfigError: both an LSN and a time are given, or one cannot be read; or a whole output is to begin at an LSN.
        TargetError: the target is behind that end already.
        WalReplayError: as `apply` does.
    """
    call = _call(spark, str(target), config, until_lsn, until_time, table, outputs, from_lsn)
    if call.rebuilds:
        named = call.narrowed.outputs
        return rebuild(spark, captures, target, table or ".*", outputs=named, config=call.settings, progress=progress)
    settings = call.settings.narrowed(call.narrowed)
    if call.until is not None and call.until.lsn is not None:
        _check_loaded(spark, call.until.lsn, Target.parse(str(target)).of_source(settings.ledger_name))
    return run_job(spark, captures, target, settings, progress, call.until, metrics=metrics)


def forecast(
    spark: SparkSession,
    captures: str | os.PathLike[str],
    target: str | os.PathLike[str],
    config: str | os.PathLike[str] | Mapping[str, Any] | Settings | None = None,
    *,
    until_lsn: str | int | None = None,
    until_time: str | datetime | None = None,
    table: str | None = None,
    outputs: Iterable[str | Output] | None = None,
    from_lsn: str | int | None = None,
    progress: Progress | None = None,
) -> Forecast:
    """Return what `backfill` (without an end: `apply`) would do, and write nothing.

    All files that it would read are scanned for that.

    Args:
        captures, target, config, until_lsn, until_time, table, outputs, from_lsn, progress: as `backfill` takes
            them.

    Raises:
        WalReplayError: what would stop it, as far as a scan shows it.
    """
    call = _call(spark, str(target), config, until_lsn, until_time, table, outputs, from_lsn)
    settings = call.settings.narrowed(call.narrowed)
    with RunContext.on(spark, target, settings, progress, reads=str(captures)) as run:
        return ForecastJob(run, str(captures), call.until, anew=call.rebuilds).forecast()


@dataclass(frozen=True, slots=True)
class _Call:
    """What a call asks for.

    Attributes:
        until: of a rebuild, where the target is.
        rebuilds: the target has other tables: these are made again.
    """

    settings: Settings
    narrowed: Narrowed
    until: Until | None
    rebuilds: bool = False


def _call(
    spark: SparkSession,
    target: str,
    config: str | os.PathLike[str] | Mapping[str, Any] | Settings | None,
    until_lsn: str | int | None,
    until_time: str | datetime | None,
    table: str | None,
    outputs: Iterable[str | Output] | None,
    from_lsn: str | int | None,
) -> _Call:
    """Read what is asked for, and look at what is there."""
    settings, until = make_settings(config), until_of(until_lsn, until_time)
    first = None if from_lsn is None else lsn_of(from_lsn, "--from-lsn")
    named = outputs_named(outputs)
    if named is not None:
        settings = settings.with_outputs(named)
    narrowed = Narrowed(None if table is None else tables_named(table), outputs=named, from_lsn=first)
    if first is not None:
        _check_first(first, until, settings)
    if table is None and named is None and first is None:  # no part: the ledger need not be read
        return _Call(settings, narrowed, until)
    state = _state_of(spark, Target.parse(target).of_source(settings.ledger_name))
    # The ledger has one LSN for all tables: runs that leave some out would make these incomplete.
    others = [
        entry
        for entry in (() if state is None else state.tables)
        if not (narrowed.wants(entry.source_name) and narrowed.wants_output(output_of(entry.oid)))
    ]
    if others and (until is not None or first is not None):
        raise TargetError(
            f"the target has other tables, too, such as {others[0].name}: a part of its tables is made at the LSN "
            "that it is at, as a whole",
            path=target,
            remedy="Leave out --until-lsn, --until-time and --from-lsn; or backfill a target of its own",
        )
    if first is not None:
        _check_begun(first, state, target)
    if others and state is not None and state.resume is not None:
        until = Until(lsn=state.resume.place.high_lsn)
    return _Call(settings, narrowed, until, bool(others))


def _check_first(first: int, until: Until | None, settings: Settings) -> None:
    """Refuse to begin where nothing can be whole, or nothing is left."""
    if until is not None and until.lsn is not None and until.lsn < first:
        problem = f"--from-lsn {format_lsn(first)} is behind --until-lsn {format_lsn(until.lsn)}"
        raise ConfigError(problem, remedy="Exchange them")
    if settings.makes_whole:
        raise ConfigError(
            "a mirror or a history cannot begin in the middle: it would lack the rows from before",
            remedy="Give --output changelog; or begin with a base load (walreplay load, docs/starting.md)",
        )


def _state_of(spark: SparkSession, place: Target) -> State | None:
    with spark_errors(path=place.text), catalog_errors(place):
        return Ledger(spark, place, choose_writer(spark, place)).read()


def _check_loaded(spark: SparkSession, until: int, place: Target) -> None:
    """Refuse an end below the LSN that a table's loaded rows are as of."""
    state = _state_of(spark, place)
    entries = () if state is None else state.tables
    later = max(entries, key=lambda entry: entry.rows_at, default=None)
    if later is not None and later.rows_at > until:
        raise TargetError(
            f"the table was loaded with rows as of LSN {format_lsn(later.rows_at)}, which is behind the end that "
            f"is asked for, {format_lsn(until)}: the tables would be of two moments",
            table=later.name,
            path=place.text,
            remedy="Ask for that LSN or a later one; or backfill a target into which nothing was loaded",
        )


def _check_begun(first: int, state: State | None, target: str) -> None:
    """Refuse to leave a hole in tables that are there; none of them is whole (`_check_first`, `_call`)."""
    resume = None if state is None else state.resume
    if state is None or resume is None or not state.tables or resume.place.high_lsn >= first:
        return
    raise TargetError(
        f"the target's change logs go up to {format_lsn(resume.place.high_lsn)}: what commits between that and "
        f"{format_lsn(first)} would be missing in them",
        path=target,
        remedy="Leave out --from-lsn, or backfill a target of its own",
    )
