"""Say what runs would do, without writing anything: they are planned one after the other, and not applied."""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final

from walreplay.decode.until import Until
from walreplay.lsn import to_datetime
from walreplay.report import Forecast, RunReport, TableForecast
from walreplay.sink.evolution import Evolution, Policy, TableShape
from walreplay.spark.captures.files import tasks_for
from walreplay.spark.delta import statements as delta
from walreplay.spark.delta.storage import ledger_errors
from walreplay.spark.index.facts import RelationRows, relation_rows
from walreplay.spark.job.apply import Found, Idle, Job
from walreplay.spark.job.context import RunContext
from walreplay.spark.job.scanning import Scanning
from walreplay.spark.job.shares import buckets_of, tasks_of
from walreplay.spark.ledger.state import APPLIED, State, now
from walreplay.spark.planning.registry import MirrorEntry
from walreplay.spark.planning.versions import Catalogue, Version
from walreplay.spark.session.session import local_cores
from walreplay.transactions.plan import Plan

if TYPE_CHECKING:
    from walreplay.transactions.stitch import Stitch

_RUNS: Final = 20
_AS_LONG_AS: Final = 4.0
"""A run takes about so many times as long as the scan of its files."""


@dataclass
class _Rows:
    """What files have of one relation.

    Attributes:
        shape: the columns of its table.
    """

    name: str = ""
    counts: list[int] = field(default_factory=lambda: [0, 0, 0, 0])
    outputs: dict[str, None] = field(default_factory=dict)
    changes: dict[str, None] = field(default_factory=dict)
    shape: TableShape | None = None


class ForecastJob(Job):
    """Goes the way of `Job`, and applies nothing: it takes each plan for applied.

    Args:
        anew: whatever the target has does not count.
    """

    def __init__(self, run: RunContext, captures: str, until: Until | None = None, *, anew: bool = False) -> None:
        super().__init__(run, captures, until)
        self._anew = anew
        self._state: State | None = None
        self._entries: tuple[MirrorEntry, ...] = ()
        self._rows: dict[int, _Rows] = {}
        self._runs = self._files_read = self._bytes = self._transactions = self._tasks = 0

    def forecast(self) -> Forecast:
        """Give what runs would do."""
        began = time.monotonic()
        with self.run.at_work():
            self._apply()
            seconds, told = self._estimate()
        place = None if self._state is None or self._state.resume is None else self._state.resume.place
        is_any = place is not None and place.high_lsn >= 0
        wanted = {oid: found for oid, found in self._rows.items() if found.outputs}
        known = {entry.oid for entry in self._entries}
        return Forecast(
            captures=self.captures,
            target=self.run.target.text,
            runs=self._runs,
            files=self._files_read,
            capture_bytes=self._bytes,
            transactions=self._transactions,
            applied_lsn=place.high_lsn if place is not None and is_any else None,
            applied_commit_ts=to_datetime(place.high_commit_time) if place is not None and is_any else None,
            tables=tuple(
                _told(oid, found, is_new=oid not in known)
                for oid, found in sorted(wanted.items(), key=lambda item: item[1].name)
            ),
            left_out=sum(sum(found.counts) for oid, found in self._rows.items() if oid not in wanted),
            tasks=self._tasks,
            estimated_seconds=seconds,
            estimated_by=told,
            warnings=tuple(self.run.warnings),
            seconds=time.monotonic() - began,
        )

    # What `Job` would do

    def _check_source(self, state: State | None) -> None:
        if not self._anew:
            super()._check_source(state)
            self._state = state
            self._entries = () if state is None else state.tables

    def _read(self) -> State | None:
        return None if self._anew else super()._read()

    def _lock(self) -> State | None:
        return self._state

    def _install(self, interrupted: State) -> State:
        self.run.warnings.append(f"rebuild {interrupted.run} was interrupted; it would be finished first")
        self._state = replace(interrupted, phase=APPLIED, rebuild=None)
        return self._state

    def _finish(self, interrupted: State) -> tuple[State, RunReport]:
        plan = interrupted.plan
        assert plan is not None
        self.run.warnings.append(f"run {interrupted.run} was interrupted; it would be finished first")
        self._state = replace(interrupted, phase=APPLIED, plan=None, resume=plan.resume)
        return self._state, self._nothing_new(self._state)

    def _look_at_tables(self, state: State | None) -> None:
        """Leave the tables alone."""

    def _run(self, found: Found, state: State | None) -> tuple[State, RunReport] | Idle:
        rows: list[RelationRows] = []

        def follow(stitch: Stitch) -> None:
            rows.extend(relation_rows(stitch.state))

        plan = Scanning(self.run, found.new.holes, self.until, self._index(found), follow).plan(found.reading)
        idle = self._idle(plan, found, state)
        if idle is not None:
            return idle
        self.run.warnings.extend(plan.warnings)
        self._count(plan, rows, found)
        before = state or State("", self.source, 0, APPLIED, now(), self.captures)
        seen = found.new.seen(found.files, plan.resume.last_path)
        self._state = replace(before, resume=plan.resume, seen=seen, captures=self.captures)
        return self._state, self._nothing_new(self._state)

    # What is told of it

    def _count(self, plan: Plan, rows: Iterable[RelationRows], found: Found) -> None:
        reading = found.reading
        self._runs += 1
        self._files_read += len(reading.files)
        self._bytes += reading.size
        self._transactions += plan.transactions
        here: dict[int, int] = {}
        for one in rows:
            told = self._rows.setdefault(one.oid, _Rows())
            counts = (one.inserts, one.updates, one.deletes, one.truncates)
            told.counts = [before + more for before, more in zip(told.counts, counts, strict=True)]
            here[one.oid] = here.get(one.oid, 0) + sum(counts)
            if one.name is not None:
                told.name = f"{one.namespace or 'pg_catalog'}.{one.name}"
        catalogue = Catalogue.of(plan, self.run.settings, self._entries)
        self.run.warnings.extend(catalogue.warnings)
        shapes = {entry.oid: entry.shape for entry in self._entries}
        for relation in plan.announced:
            versions = catalogue.versions.get(relation, ())
            if relation.oid in self._rows and versions:
                of_it = self._rows[relation.oid]
                of_it.outputs |= dict.fromkeys(version.output.value for version in versions)
                self._follow_columns(of_it, versions[0], shapes.get(versions[0].oid))
        self._tasks += self._tasks_of(here, found)

    def _follow_columns(self, told: _Rows, version: Version, known: TableShape | None) -> None:
        selection = version.selection
        policy = Policy(
            keep_dropped=selection.on_drop_column == "keep",
            renames=selection.renames,
            infer_renames=self.run.settings.infer_renames,
        )
        evolution = Evolution(told.shape or known, policy)
        evolution.take(version.columns)
        told.changes |= dict.fromkeys(change.text for change in evolution.changes)
        told.shape = evolution.shape

    def _tasks_of(self, changes: dict[int, int], found: Found) -> int:
        """Say about how many tasks read a run's files twice, and fold what they have of each wanted table."""
        files, size, cores = len(found.reading.files), found.reading.size, local_cores(self.run.spark)
        reading = tasks_for(files, size, cores) or min(files, cores or files)
        buckets, all_ = buckets_of(size), max(1, sum(changes.values()))
        wanted = [count for oid, count in changes.items() if self._rows[oid].outputs]
        return 2 * reading + sum(tasks_of(buckets, size * count // all_) for count in wanted)

    def _estimate(self) -> tuple[float | None, str]:
        """Say how long it would take: by the rate of the target's last runs, or else by how long the scan took."""
        if not self._runs:
            return None, ""
        table = self.run.target.ledger("runs")
        rows: Sequence[tuple[int, float]] = ()
        with ledger_errors(table.text):
            if delta.exists(self.run.own, table):
                last = delta.read(self.run.own, table).where("transactions > 0 AND bytes > 0")
                took = "unix_micros(finished_at) - unix_micros(started_at) AS micros"
                found = last.orderBy("run", ascending=False).limit(_RUNS).selectExpr("bytes", took).collect()
                rows = [(row.bytes, row.micros / 1e6) for row in found]
        if rows:
            # What a run takes whatever it reads, and what each byte takes.
            least = min(seconds for _, seconds in rows)
            size, seconds = max(rows)
            rate = max(0.0, seconds - least) / size
            return self._runs * least + rate * self._bytes, "the target's runs before"
        return _AS_LONG_AS * self.run.stages.get("scan", 0.0), "the scan of the same files"


def _told(oid: int, found: _Rows, *, is_new: bool) -> TableForecast:
    inserts, updates, deletes, truncates = found.counts
    return TableForecast(
        found.name, oid, tuple(found.outputs), inserts, updates, deletes, truncates, tuple(found.changes), is_new
    )


__all__ = ["ForecastJob"]
