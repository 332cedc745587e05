"""What a target holds according to its ledger: now, or after a given run."""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from datetime import datetime, timedelta, timezone
from functools import partial
from typing import TYPE_CHECKING, Final

from pyspark.errors import AnalysisException
from pyspark.sql import functions as F

from walreplay.delta import statements as delta
from walreplay.delta.commits import LOOK_BACK, proven
from walreplay.delta.local import DamagedLogError
from walreplay.delta.opened import OpenedTable
from walreplay.delta.target import TableName, Target, catalog_errors, ledger_errors, quote
from walreplay.errors import TargetError
from walreplay.ledger.ledger import Ledger
from walreplay.ledger.runs import loads_of, remembered_runs, unreadable
from walreplay.ledger.state import APPLIED, WORK, Holder, Load, State, at_work, why_dead
from walreplay.lsn import to_datetime
from walreplay.names import RowKind, output_of, source_oid
from walreplay.report import JsonResult
from walreplay.session.failures import spark_errors
from walreplay.session.isolation import own_session, quiet_queries, set_for_a_while
from walreplay.table.registry import MirrorEntry
from walreplay.table.table_run import is_own
from walreplay.writing.by_files import choose_writer

if TYPE_CHECKING:
    from pyspark.sql import Row, SparkSession


_RUNS_SHOWN: Final = 20


@dataclass(frozen=True, slots=True)
class RunStatus:
    """One run: ``applied``, or ``planned`` while it goes on (or since it was interrupted).

    Attributes:
        writer: how rows were written; None of a run that has not ended.
        lag_seconds, lag_bytes: see `walreplay.ledger.runs.metrics_of`.
        warnings: how many there were.
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
    lag_seconds: float | None = None
    lag_bytes: int | None = None
    warnings: int | None = None


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
class TableStatus:
    """A table of the target, and how `walreplay.verify` has found it last.

    Attributes:
        verified_lsn: what it had applied then; None if it was never compared.
        age: of that comparison.
        against: where the right rows came from.
        is_equal: it had the same rows.
        changes: row changes in the runs that are shown, and ``bytes`` of them, decoded.
        held: the error for which runs leave it out; None for none.
    """

    name: str
    location: str
    verified_lsn: int | None = None
    verified_at: datetime | None = None
    age: timedelta | None = None
    against: str | None = None
    is_equal: bool | None = None
    changes: int = 0
    bytes: int = 0
    held: str | None = None


@dataclass(frozen=True, slots=True)
class TargetStatus(JsonResult):
    """What a target holds: everything committed up to ``applied_lsn``; its newest runs come last."""

    target: str
    applied_lsn: int | None
    applied_commit_ts: datetime | None
    at_work: RunAtWork | None
    runs: tuple[RunStatus, ...]
    open_transactions: tuple[PendingTransaction, ...]
    tables: tuple[TableStatus, ...]


@dataclass(frozen=True, slots=True)
class TableVersion:
    """A table and the Delta version that it had after a run.

    Attributes:
        sql: reads that version; None if it is not what the source held at the run's LSN, or does not prove to be the
            run's, and ``note`` says why.
        exact: it gives just what the source held then; if not, ``note`` says why.
        oid: see `walreplay.report.TableReport`.
    """

    name: str
    location: str
    version: int
    sql: str | None
    note: str = ""
    exact: bool = True
    oid: int = field(default=0, repr=False)


@dataclass(frozen=True, slots=True)
class Cut(JsonResult):
    """All tables as of one run: those that are exact are together what the source held at ``applied_lsn``.

    Names are those of that time.
    """

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
    session = own_session(spark)
    with spark_errors(path=place.text), quiet_queries(), set_for_a_while(session, delta.SMALL_STATE):
        ledger = Ledger(spark, place, choose_writer(spark, place), loads=True)  # an interrupted load is shown
        with catalog_errors(place):
            state = ledger.read()
        running = _run_at_work(state, ledger.holder)
        if state is None:
            raise nothing_applied(place, running)
        runs, sums = _newest_runs(session, place, state.run)
    if state.phase in WORK:
        runs = [run for run in runs if run.run != state.run]  # its row is written before its end
        runs.append(RunStatus(state.run, state.phase, state.started_at, None, None, state.files, None, None, None))
    lsn, commit_time = state.reached
    applied = None if lsn < 0 else lsn
    if state.resume is None and runs:
        applied = runs[-1].applied_lsn
    applied_ts = None if lsn < 0 else to_datetime(commit_time)
    named = sorted(state.tables, key=lambda entry: entry.name)
    tables = tuple(_table_status(entry, *sums[entry.oid]) for entry in named if not entry.set_aside or entry.held)
    return TargetStatus(place.text, applied, applied_ts, running, tuple(runs), tuple(_open_transactions(state)), tables)


def versions_at(spark: SparkSession, target: str | os.PathLike[str], run: int, source: str | None = None) -> Cut:
    """Return the Delta version of every mirror table after a run.

    Args:
        source: of a target with several sources, the one whose tables and runs are meant.

    Raises:
        TargetError: when there is no such run, or it has not come to its end.
    """
    place = Target.parse(str(target)).of_source(source)
    session = own_session(spark)
    table = place.ledger("runs")
    failures = spark_errors(path=place.text)
    with failures, quiet_queries(), set_for_a_while(session, delta.SMALL_STATE), ledger_errors(table.text):
        with catalog_errors(place):
            is_there = delta.exists(session, table)
        if not is_there:
            raise nothing_applied(place)
        runs = delta.read(session, table)
        run_rows = remembered_runs(runs).where(runs.run == run).select("applied_lsn", "applied_commit_ts").collect()
        if not run_rows:
            numbers = spans(row.run for row in remembered_runs(runs).select("run").orderBy("run").collect())
            raise TargetError(f"there is no run {run} that has ended", path=place.text, remedy=f"There are: {numbers}")
        rows = runs.where(runs.run <= run).selectExpr("run", "inline(tables)")
        # A table that the run did not write to has the version of an earlier run.
        newest = rows.groupBy("oid").agg(
            F.expr("max_by(struct(name, location, set_aside), run) AS last"),
            F.expr(
                "max_by(struct(run, version, plan, kept, delete_mark), run) FILTER (WHERE version IS NOT NULL) AS at"
            ),
        )
        held = newest.where("at IS NOT NULL AND NOT last.set_aside").select("oid", "last.*", "at.*")
        state = Ledger(session, place, choose_writer(session, place), loads=True).read()
        loads, (row,) = loads_of(runs, state), run_rows
        version_of = partial(_version_of, session, place, state, loads, run, row.applied_lsn)
        with ThreadPoolExecutor(_AT_ONCE) as pool:
            tables = tuple(pool.map(version_of, held.orderBy("name").collect()))
    return Cut(place.text, run, row.applied_lsn, _utc(row.applied_commit_ts), tables)


_AT_ONCE: Final = 8  # tables whose logs are read at the same time


def _version_of(
    spark: SparkSession,
    target: Target,
    state: State | None,
    loads: Sequence[tuple[int, Load]],
    run: int,
    applied_lsn: int | None,
    row: Row,
) -> TableVersion:
    """Return a table's version after a run, if it proves to be the one of the run that has noted it."""
    entries = {} if state is None else {entry.oid: entry for entry in state.tables}
    entry = entries.get(row.oid)
    # A table may have moved since.
    location = row.location if entry is None else entry.table.text
    table = table_at(target, location)
    output, lsn = output_of(row.oid), -1 if applied_lsn is None else applied_lsn
    # What is not whole has no loaded rows, whenever they came.
    note = unreadable(loads, source_oid(row.oid), run, applied_lsn) if output.is_whole else ""
    version = None
    if not note and state is not None:
        version, note = proved(spark, table, row.version, state.ledger, row.plan, row.oid)
    if version is None:
        return TableVersion(row.name, location, row.version, None, note, False, row.oid)
    conditions = [is_own(entry.share)] if entry is not None and entry.share is not None else []
    columns = "*"
    if output.rows is RowKind.CURRENT:
        conditions += [f"NOT {quote(row.delete_mark)}"] if row.delete_mark else []  # soft deletes
        columns += f" EXCEPT ({', '.join(map(quote, row.kept))})" if row.kept else ""  # the source has no such columns
    where = f" WHERE {' AND '.join(conditions)}" if conditions else ""
    doubts = [] if entry is None else [doubt.text for doubt in entry.doubts if doubt.covers(lsn, row.run)]
    sql = f"SELECT {columns} FROM {table.sql} VERSION AS OF {version}{where}"
    return TableVersion(row.name, location, version, sql, "; ".join(doubts), not doubts, row.oid)


def table_at(target: Target, location: str) -> TableName:
    """Return the table at a place of the target's, as the ledger's runs have noted it."""
    # No catalog allows a dot in a name.
    return TableName(path=location) if target.root is not None else TableName(parts=tuple(location.split(".")))


def proved(
    spark: SparkSession, table: TableName, version: int, ledger: str, run: str | None, oid: int
) -> tuple[int | None, str]:
    """Read a table's log, and return what `walreplay.delta.commits.proven` does."""
    try:
        opened = OpenedTable(spark, table)
        if not opened.exists:
            return None, "the table is not there"
        commits = opened.commits_since(max(version - LOOK_BACK, 0))[1]
    except (DamagedLogError, AnalysisException) as error:
        return None, f"the table's log cannot be read ({type(error).__name__})"
    return proven(commits, version, ledger, run, oid)


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
    alive = why_dead(holder, datetime.now(timezone.utc)) is None
    return RunAtWork(at_work(state), holder.user, holder.host, holder.pid, holder.since, holder.beat, alive)


def _newest_runs(spark: SparkSession, target: Target, last: int) -> tuple[list[RunStatus], Mapping[int, list[int]]]:
    """Return the last runs that have ended, the newest last; and by a table's oid its changes in them, and their bytes.

    Args:
        last: the newest run that the ledger's state knows; where that was set back, there are others.
    """
    table, sums = target.ledger("runs"), defaultdict[int, list[int]](lambda: [0, 0])
    with ledger_errors(table.text):
        if not delta.exists(spark, table):
            return [], sums
        runs = remembered_runs(delta.read(spark, table)).where(F.col("run") <= last)
        columns = ("run", "started_at", "finished_at", "applied_lsn", "files", "transactions", "changes", "writer")
        counts = (F.size("tables").alias("tables"), F.size("warnings").alias("warnings"))
        of_tables = [F.col(f"tables.{name}").alias(f"of_{name}") for name in ("oid", "changes", "bytes")]
        shown = runs.select(*columns, "lag_seconds", "lag_bytes", *counts, *of_tables)
        newest = [row.asDict() for row in shown.orderBy("run", ascending=False).limit(_RUNS_SHOWN).collect()]
    for row in newest:
        for oid, changes, size in zip(row.pop("of_oid"), row.pop("of_changes"), row.pop("of_bytes"), strict=True):
            sums[oid] = [sums[oid][0] + changes, sums[oid][1] + size]
    times = ("started_at", "finished_at")
    runs_shown = [RunStatus(state=APPLIED, **row | {name: _utc(row[name]) for name in times}) for row in newest]
    return runs_shown[::-1], sums


def _open_transactions(state: State) -> Iterator[PendingTransaction]:
    for item in () if state.resume is None else state.resume.open_transactions:
        since = None if item.since is None else to_datetime(item.since)
        age = None if since is None else datetime.now(timezone.utc) - since
        yield PendingTransaction(
            item.kind, item.xid, item.gid, item.lsn, item.path, item.offset, since, age, item.bytes, item.segments
        )


def _table_status(entry: MirrorEntry, changes: int, size: int) -> TableStatus:
    place, last, held = entry.table.text, entry.verified, entry.held or None
    if last is None:
        return TableStatus(entry.name, place, changes=changes, bytes=size, held=held)
    verified = last.lsn, last.moment, datetime.now(timezone.utc) - last.moment, last.against, last.is_equal
    return TableStatus(entry.name, place, *verified, changes, size, held)


def _utc(moment: datetime | None) -> datetime | None:
    return None if moment is None else moment.astimezone(timezone.utc)


def spans(numbers: Iterable[int]) -> str:
    """Write ascending numbers for people.

    >>> spans([1, 2, 3, 5])
    '1 to 3, 5'
    """
    ranges: list[list[int]] = []
    for number in numbers:
        if ranges and ranges[-1][-1] == number - 1:
            ranges[-1][1:] = [number]
        else:
            ranges.append([number])
    return ", ".join(" to ".join(map(str, span)) for span in ranges)
