"""What a target holds according to its ledger: now, or after a given run."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone
from typing import TYPE_CHECKING, Final

from pyspark.sql import functions as F

from walreplay.config.selection import Share
from walreplay.delta import statements as delta
from walreplay.delta.target import TableName, Target, catalog_errors, ledger_errors
from walreplay.errors import TargetError
from walreplay.ledger.ledger import APPLIED, LOADING, PLANNED, Ledger, State
from walreplay.ledger.runs import loads_of, told, unreadable
from walreplay.ledger.state import REBUILDING, Holder, at_work, why_dead
from walreplay.lsn import to_datetime
from walreplay.names import output_of, source_oid
from walreplay.report import JsonResult
from walreplay.session.failures import spark_errors
from walreplay.session.isolation import own_session, quiet_queries, set_for_a_while
from walreplay.table.table_run import is_own
from walreplay.writing.by_files import choose_writer

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from walreplay.stream import plan


_RUNS_SHOWN: Final = 20


@dataclass(frozen=True, slots=True)
class RunStatus:
    """One run: ``applied``, or ``planned`` while it goes on (or since it was interrupted).

    Attributes:
        writer: how rows were written; None of a run that has not ended.
    """

    run: int
    state: str
    started_at: datetime
    finished_at: datetime | None
    applied_lsn: int | None
    files: int
    transactions: int | None
    changes: int | None
    tables: int | None
    writer: str | None = None


@dataclass(frozen=True, slots=True)
class RunAtWork:
    """The run that has the target's lock.

    Attributes:
        beat: its last sign of life.
        alive: False when the next run takes over from it.
    """

    run: int
    user: str
    host: str
    pid: int
    since: datetime
    beat: datetime
    alive: bool


@dataclass(frozen=True, slots=True)
class PendingTransaction:
    """A transaction that has begun in the captures, and has not ended there yet.

    Attributes:
        kind: ``ordinary``, ``streamed`` or ``prepared``.
        lsn: the commit's; of a prepared one the Prepare's; None while it is unknown.
        began_at_file, offset: the place of its first message.
        since: when it began or was prepared, by the server's clock; ``age`` is from then until now.
        bytes: its size in the captures, in ``segments`` pieces.
    """

    kind: str
    xid: int
    gid: str | None
    lsn: int | None
    began_at_file: str
    offset: int
    since: datetime | None
    age: timedelta | None
    bytes: int
    segments: int


@dataclass(frozen=True, slots=True)
class TargetStatus(JsonResult):
    """What a target holds: everything committed up to ``applied_lsn``; its newest runs come last."""

    target: str
    applied_lsn: int | None
    applied_commit_ts: datetime | None
    at_work: RunAtWork | None
    runs: tuple[RunStatus, ...]
    open_transactions: tuple[PendingTransaction, ...]


@dataclass(frozen=True, slots=True)
class TableVersion:
    """A table and the Delta version that it had after a run.

    Attributes:
        sql: reads that version; None if it is not what the source held at the run's LSN, and ``note`` says why.
    """

    name: str
    location: str
    version: int
    sql: str | None
    note: str = ""


@dataclass(frozen=True, slots=True)
class Cut(JsonResult):
    """All tables as of one run: those with ``sql`` are together what the source held at ``applied_lsn``."""

    target: str
    run: int
    applied_lsn: int | None
    applied_commit_ts: datetime | None
    tables: tuple[TableVersion, ...]


def status(spark: SparkSession, target: str | os.PathLike[str], source: str | None = None) -> TargetStatus:
    """Read a target's ledger.

    Args:
        source: of a target with several sources, the one whose ledger is read.

    Raises:
        TargetError: when there is none.
    """
    place = Target.parse(str(target)).of_source(source)
    own = own_session(spark)
    with spark_errors(path=place.text), quiet_queries(), set_for_a_while(own, delta.SMALL_STATE):
        ledger = Ledger(spark, place, choose_writer(spark, place), loads=True)
        with catalog_errors(place):
            state = ledger.read()
        running = _run_at_work(state, ledger.holder)
        if state is None:
            raise nothing_applied(place, running)
        runs = _newest_runs(own, place, state.run)
    if state.phase in (PLANNED, LOADING, REBUILDING):
        runs = [run for run in runs if run.run != state.run]
        runs.append(RunStatus(state.run, state.phase, state.started_at, None, None, state.files, None, None, None))
    applied, applied_ts = _applied(state, runs)
    return TargetStatus(place.text, applied, applied_ts, running, tuple(runs), _open_transactions(state))


def versions_at(spark: SparkSession, target: str | os.PathLike[str], run: int, source: str | None = None) -> Cut:
    """Return the Delta version of every mirror table after a run.

    Args:
        source: of a target with several sources, the one whose tables and runs are meant.

    Raises:
        TargetError: when there is no such run, or it has not come to its end.
    """
    place = Target.parse(str(target)).of_source(source)
    own = own_session(spark)
    table = place.ledger("runs")
    failures = spark_errors(path=place.text)
    with failures, quiet_queries(), set_for_a_while(own, delta.SMALL_STATE), ledger_errors(table.text):
        with catalog_errors(place):
            is_there = delta.exists(own, table)
        if not is_there:
            raise nothing_applied(place)
        runs = delta.read(own, table)
        found = told(runs).where(runs.run == run).select("applied_lsn", "applied_commit_ts").collect()
        if not found:
            there = [row.run for row in told(runs).select("run").orderBy("run").collect()]
            raise TargetError(
                f"there is no run {run} that has ended", path=place.text, remedy=f"There are: {spans(there)}"
            )
        rows = runs.where(runs.run <= run).selectExpr("run", "inline(tables)")
        # A table that the run did not write to has the version of an earlier run.
        newest = rows.groupBy("oid").agg(
            F.max(F.struct("run", "name", "location", "set_aside")).alias("last"),
            F.max(F.when(F.col("version").isNotNull(), F.struct("run", "version"))).alias("newest"),
        )
        held = newest.where("newest IS NOT NULL AND NOT last.set_aside").select("oid", "last.*", "newest.version")
        state = Ledger(own, place, choose_writer(own, place), loads=True).read()
        # A table may have moved since.
        entries = state.tables if state is not None else ()
        now = {entry.oid: entry.table.text for entry in entries}
        shares = {entry.oid: entry.share for entry in entries}
        loads, (row,) = loads_of(runs, state), found
        tables = tuple(
            _table_version(
                place,
                table_row.name,
                now.get(table_row.oid, table_row.location),
                table_row.version,
                shares.get(table_row.oid),
                # What is not whole has no loaded rows, whenever they came.
                unreadable(loads, source_oid(table_row.oid), run, row.applied_lsn)
                if output_of(table_row.oid).is_whole
                else "",
            )
            for table_row in held.orderBy("name").collect()
        )
    return Cut(place.text, run, row.applied_lsn, _utc(row.applied_commit_ts), tables)


def _table_version(
    target: Target, name: str, location: str, version: int, share: Share | None, note: str
) -> TableVersion:
    table = TableName(path=location)
    if target.root is None:
        # No catalog allows a dot in a name.
        table = TableName(parts=tuple(location.split(".")))
    own = "" if share is None else f" WHERE {is_own(share)}"
    sql = f"SELECT * FROM {table.sql} VERSION AS OF {version}{own}"
    return TableVersion(name, location, version, None if note else sql, note)


class NothingApplied(TargetError):
    """Nothing was applied to a target yet."""


def nothing_applied(target: Target, running: RunAtWork | None = None) -> NothingApplied:
    """Return the error for a target that has nothing yet; its first run may be at work."""
    whose = "" if target.source is None else f" from the source {target.source}"
    several = "; of a target with several sources, name one with --source, or give --config"
    first = "; its first run is at work" if running and running.alive else ""
    return NothingApplied(
        f"nothing was applied to this target yet{whose}{first}",
        path=target.text,
        remedy=f"Check --target; begin with apply{several if target.source is None else ''}",
    )


def _run_at_work(state: State | None, holder: Holder | None) -> RunAtWork | None:
    if holder is None:
        return None
    return RunAtWork(
        run=at_work(state),
        user=holder.user,
        host=holder.host,
        pid=holder.pid,
        since=holder.since,
        beat=holder.beat,
        alive=why_dead(holder, datetime.now(timezone.utc)) is None,
    )


def _newest_runs(spark: SparkSession, target: Target, last: int) -> list[RunStatus]:
    """Return the last runs that have ended, the newest last.

    Args:
        last: the newest run that the ledger's state knows; where that was set back, there are others.
    """
    table = target.ledger("runs")
    with ledger_errors(table.text):
        if not delta.exists(spark, table):
            return []
        runs = told(delta.read(spark, table)).where(F.col("run") <= last)
        newest = runs.orderBy("run", ascending=False).limit(_RUNS_SHOWN).collect()
    return [
        RunStatus(
            run=row.run,
            state=APPLIED,
            started_at=row.started_at.astimezone(timezone.utc),
            finished_at=_utc(row.finished_at),
            applied_lsn=row.applied_lsn,
            files=row.files,
            transactions=row.transactions,
            changes=row.changes,
            tables=len(row.tables),
            writer=row.asDict().get("writer"),
        )
        for row in reversed(newest)
    ]


def _applied(state: State, runs: Sequence[RunStatus]) -> tuple[int | None, datetime | None]:
    if state.resume is None:
        return (runs[-1].applied_lsn if runs else None), None
    lsn, commit_time = state.reached
    return (lsn, to_datetime(commit_time)) if lsn >= 0 else (None, None)


def _open_transactions(state: State) -> tuple[PendingTransaction, ...]:
    if state.resume is None:
        return ()
    now = datetime.now(timezone.utc)

    def describe(item: plan.OpenTransaction) -> PendingTransaction:
        since = None if item.since is None else to_datetime(item.since)
        return PendingTransaction(
            kind=item.kind,
            xid=item.xid,
            gid=item.gid,
            lsn=item.lsn,
            began_at_file=item.path,
            offset=item.offset,
            since=since,
            age=None if since is None else now - since,
            bytes=item.bytes,
            segments=item.segments,
        )

    return tuple(describe(item) for item in state.resume.open_transactions)


def _utc(moment: datetime | None) -> datetime | None:
    return None if moment is None else moment.astimezone(timezone.utc)


def spans(numbers: Iterable[int]) -> str:
    """Write ascending numbers for people.

    >>> spans([1, 2, 3, 5])
    '1 to 3, 5'
    """
    found: list[tuple[int, int]] = []
    for number in numbers:
        if found and found[-1][1] == number - 1:
            found[-1] = (found[-1][0], number)
        else:
            found.append((number, number))
    return ", ".join(str(first) if first == last else f"{first} to {last}" for first, last in found)
