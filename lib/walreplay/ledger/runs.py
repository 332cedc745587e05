"""The rows of the ledger's history: of runs with their tables and relations, and of the files that they read.

The metrics of a run are JSON lines, one for each run and table, with the values of the ledger's ``runs``.  Their names
are listed in docs/operations.md and do not change.  There are no values of cells.

Keep a ledger small: each run leaves small files in its tables, and versions of its ``state`` that nobody reads.

A run every five minutes is 290 files a day in each table.  So every so many runs, the last one writes a table's files
together, forgets runs that are older than the configuration wants, and removes files that no version needs.  This comes
behind the run's end, under the lock: nothing depends on it, and if it is killed, the next time does it.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

from walreplay.decode.change_batch import TIMESTAMP
from walreplay.delta import statements as delta
from walreplay.delta.target import TableName, Target, ledger_errors
from walreplay.delta.upkeep import optimize, upkeep_session, vacuum
from walreplay.errors import TargetError
from walreplay.evolution.shapes import OWN
from walreplay.ledger.state import Load, State, at_work, from_json, now, to_json
from walreplay.lsn import format_lsn, to_datetime
from walreplay.protocol.messages import Relation
from walreplay.report import RunReport, TableReport, json_value
from walreplay.session import steps
from walreplay.session.text_files import append_lines
from walreplay.table.registry import MirrorEntry

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


_TABLE: Final = pa.struct(
    [
        ("name", pa.string()),
        ("location", pa.string()),
        ("action", pa.string()),
        ("changes", pa.int64()),
        ("inserted", pa.int64()),
        ("updated", pa.int64()),
        ("deleted", pa.int64()),
        ("truncated", pa.bool_()),
        ("version", pa.int64()),
        ("oid", pa.int64()),
        ("set_aside", pa.bool_()),
        ("without_base", pa.int64()),
        ("deletes_without_row", pa.int64()),
        ("unknown", pa.int64()),
        ("notes", pa.list_(pa.string())),
        ("writer", pa.string()),
        ("writer_reason", pa.string()),
        ("bytes", pa.int64()),
        ("seconds", pa.float64()),
        ("plan", pa.string()),
        ("kept", pa.list_(pa.string())),
        ("delete_mark", pa.string()),
    ]
)
# In ``tables``: ``plan`` is the id that the version's commit has; ``kept`` are columns that the source does not have,
# and ``delete_mark`` is the one of them that marks deleted rows.
_COLUMN: Final = pa.struct(
    [("name", pa.string()), ("type_oid", pa.int64()), ("typmod", pa.int64()), ("key", pa.bool_())],
)
_RELATION: Final = pa.struct(
    [
        ("oid", pa.int64()),
        ("namespace", pa.string()),
        ("name", pa.string()),
        ("replica_identity", pa.string()),
        ("columns", pa.list_(_COLUMN)),
        ("changes", pa.list_(pa.string())),
    ]
)
_PHASE: Final = pa.struct([("phase", pa.string()), ("seconds", pa.float64())])
# ``kept_for_tables``: the run is forgotten; later ones have tables that it was the last to write to, or names.
# ``relations``: the versions of relations that were announced; ``changes`` in columns are with the last one.
# ``load``: the base load that the run has brought, as `Load` writes it; such a row is never removed.
RUNS: Final = pa.schema(
    [
        ("run", pa.int64()),
        ("source", pa.string()),
        ("started_at", TIMESTAMP),
        ("finished_at", TIMESTAMP),
        ("seconds", pa.float64()),
        ("phases", pa.list_(_PHASE)),
        ("captures", pa.string()),
        ("files", pa.int64()),
        ("bytes", pa.int64()),
        ("transactions", pa.int64()),
        ("changes", pa.int64()),
        ("applied_lsn", pa.int64()),
        ("applied_commit_ts", TIMESTAMP),
        ("lag_seconds", pa.float64()),
        ("lag_bytes", pa.int64()),
        ("tables", pa.list_(_TABLE)),
        ("relations", pa.list_(_RELATION)),
        ("warnings", pa.list_(pa.string())),
        ("writer", pa.string()),
        ("kept_for_tables", pa.bool_()),
        ("load", pa.string()),
    ]
)
FILES: Final = pa.schema(
    [
        ("run", pa.int64()),
        ("path", pa.string()),
        ("length", pa.int64()),
        ("fingerprint", pa.int64()),
        ("framing", pa.string()),
        ("start", pa.int64()),
        ("stop", pa.int64()),
    ]
)


def run_row(
    state: State,
    ended: State,
    report: RunReport,
    reached: tuple[int, int],
    measured: Mapping[str, Any],
    announced: Sequence[Relation],
) -> tuple[Any, ...]:
    """Return the row of a run that ends.

    Args:
        state: before its end, and ``ended`` behind it.
        reached: commit LSN and time of what it has reached; an LSN below 0 for nothing.
        measured: what `metrics_of` returns of it.
        announced: the relations that it has met, in their order.
    """
    upto_lsn, upto_commit_time = reached
    load = state.load if state.rebuild is None else state.rebuild.load
    values = {
        **measured,
        "phases": list(measured["phases"].items()),
        "captures": state.captures,
        "files": state.files,  # of captures alone
        "bytes": state.bytes,
        "applied_lsn": None if upto_lsn < 0 else upto_lsn,
        "applied_commit_ts": None if upto_lsn < 0 else to_datetime(upto_commit_time),
        "tables": _tables(report, {entry.oid: entry for entry in ended.tables}, state.run_id.id),
        "relations": _relations(announced, report),
        "warnings": list(report.warnings),
        "writer": report.writer,
        "load": load and to_json(load),  # from which base loads are read again
    }
    return tuple(values.get(name) for name in RUNS.names)


def _tables(report: RunReport, entries: Mapping[int, MirrorEntry], plan: str) -> list[tuple[Any, ...]]:
    """Return tables as `RUNS` has them: its names are those of `TableReport`, or of `_noted`."""
    rows, names = [], [field.name for field in _TABLE]
    for table in report.tables:
        noted = _noted(table, entries.get(-1 if table.oid is None else table.oid), plan)
        rows.append(tuple(_plain(noted[name] if name in noted else getattr(table, name)) for name in names))
    return rows


def _noted(table: TableReport, entry: MirrorEntry | None, plan: str) -> dict[str, Any]:
    """Return what proves a table's version (the run's id), and which of its columns are not the source's."""
    # A copied table has a version though the run has not written to it.
    is_made = entry is not None and entry.left is not None and entry.run == plan
    version = entry.left if entry is not None and is_made else table.version
    kept = [] if entry is None else [column for column in entry.shape.columns if column.dropped or column.source == OWN]
    mark = next((column.name for column in kept if column.source == OWN), None)
    names = [column.name for column in kept]
    return {"version": version, "plan": plan if is_made else None, "kept": names, "delete_mark": mark}


def _plain(value: Any) -> Any:
    if isinstance(value, tuple):
        return list(value)
    return None if value == "" else value  # empty: the report says nothing


def _relations(announced: Sequence[Relation], report: RunReport) -> list[tuple[Any, ...]]:
    """Return relations as `RUNS` has them, the last version of each with what it has changed in its table."""
    notes = {table.name: list(table.notes) for table in report.tables}
    last = {r.qualified_name: r for r in announced}  # the last version of each
    return [
        (
            r.oid,
            r.namespace,
            r.name,
            r.replica_identity,
            [(c.name, c.type_oid, c.typmod, c.key) for c in r.columns],
            notes.get(r.qualified_name, []) if last[r.qualified_name] is r else [],
        )
        for r in announced
    ]


def remembered_runs(runs: DataFrame) -> DataFrame:
    """Return the table ``runs`` without rows that are kept only because later runs need them; see `RUNS`."""
    return runs.where("kept_for_tables IS NULL")


def loads_of(runs: DataFrame, state: State | None) -> list[tuple[int, Load]]:
    """Return the base loads that have ended, with their runs' numbers, in their order.

    One that was interrupted may have its row: a run ends with what is written to ``state``, behind it.
    """
    rows = runs.where(f"load IS NOT NULL AND run < {at_work(state)}").select("run", "load").orderBy("run")
    return [(row.run, from_json(Load, row.load)) for row in rows.collect()]


def unreadable(loads: Sequence[tuple[int, Load]], oid: int, run: int, applied_lsn: int | None) -> str:
    """Return why a table's version of a run is not what the source held at the run's LSN, as far as loads show it.

    Args:
        loads: of the target's runs, as `loads_of` returns them.
        oid: the source relation's.
        applied_lsn: what the run had reached; None for nothing.

    Returns:
        a sentence for people; empty if nothing is wrong.
    """
    loads = [(number, load) for number, load in loads if oid in load.oids]
    until = [load for number, load in loads if number <= run]
    if loads and not until:
        return f"it lacked rows from before the captures, which run {loads[0][0]} has loaded: read it from that run on"
    if until and until[-1].at_lsn > (-1 if applied_lsn is None else applied_lsn):  # the load has brought later rows
        lsn = format_lsn(until[-1].at_lsn)
        return f"its rows are as of LSN {lsn}, later than the run's: read it from a run on that has applied up to there"
    return ""


def first_lsn(loads: Sequence[tuple[int, Load]], oid: int) -> int | None:
    """Return the LSN from which on a loaded table's history is what the source held; None if nothing was loaded."""
    table_loads = [load for _, load in loads if oid in load.oids]
    # A load before all captures makes the history anew; one behind some goes on with it.
    newest_start = max((n for n, load in enumerate(table_loads) if load.after < 0), default=0)
    return table_loads[newest_start].at_lsn if table_loads else None


Rows = Sequence[Mapping[str, Any]]


def metrics_of(report: RunReport, state: State | None, finished_at: datetime, behind: Iterable[int | None]) -> Rows:
    """Return the rows of a run: one for each of its tables, or a single one without a table.

    Args:
        report: its stages are those of this run.
        state: the run's; None for a call that found nothing new.
        behind: LSNs that the captures have told of beyond what is applied: of transactions that have not ended in them.
    """
    applied = report.applied_lsn
    top = max((lsn for lsn in behind if lsn is not None), default=None)  # the source has come so far, at least
    lag = None if report.applied_commit_ts is None else (finished_at - report.applied_commit_ts).total_seconds()
    of_run = {
        "run": report.run,
        "source": None if state is None else state.source,
        "status": report.status,
        "started_at": None if state is None else state.started_at,
        "finished_at": finished_at,
        "seconds": round(float(sum(report.stages.values())), 3),
        "phases": {name: round(seconds, 3) for name, seconds in report.stages.items()},
        "files": report.files,
        "bytes": report.capture_bytes,
        "transactions": report.transactions,
        "changes": report.changes,
        "applied_lsn": applied,
        "applied_commit_ts": report.applied_commit_ts,
        "lag_seconds": None if lag is None else round(max(0.0, lag), 3),
        "lag_bytes": None if applied is None else max(0, (top or 0) - applied),  # LSNs count bytes of WAL
    }
    without = dict.fromkeys(_of(TableReport("", "", "unchanged")))
    return [{**of_run, **_of(table)} for table in report.tables] or [{**of_run, **without}]


def _of(table: TableReport) -> Mapping[str, Any]:
    return {
        "table": table.name,
        "oid": table.oid,
        "action": table.action,
        "table_bytes": table.bytes,
        "table_changes": table.changes,
        "inserted": table.inserted,
        "updated": table.updated,
        "deleted": table.deleted,
        "version": table.version,
        "table_seconds": round(table.seconds, 3),
        "writer": table.writer,
    }


def lines_of(target: str, rows: Rows) -> list[str]:
    """Write rows as JSON, each with its target: LSNs as ``X/X``, times in ISO form, phases as an object."""
    named = ({name: json_value(value, name) for name, value in row.items()} for row in rows)
    return [json.dumps({"target": target, **values}) for values in named]


def write_metrics(place: str | None, target: str, rows: Rows) -> str | None:
    """Add rows to a file, or as a file to a folder; return a warning where that fails, as the run itself has not.

    Args:
        place: see `walreplay.session.text_files.append_lines`; None for nowhere.
    """
    if place is None or not rows:
        return None
    name = f"{now():%Y%m%dT%H%M%S}-{uuid.uuid4().hex[:8]}.jsonl"
    try:
        append_lines(place, lines_of(target, rows), name)
    except TargetError as error:
        return str(error)
    return None


APPENDED_TABLES: Final = ("runs", "files", "transactions", "messages")  # The tables to which runs append

# Statistics of every column take as long as to write the rows.
OF_APPENDED: Final = {"delta.logRetentionDuration": "interval 7 days", "delta.dataSkippingStatsColumns": "run"}
"""Their properties.  No run looks back into the versions of these tables but the one that finishes another."""

OF_STATE: Final = {**OF_APPENDED, "delta.deletedFileRetentionDuration": "interval 1 day"}
"""Those of ``state``, of which each run writes some versions, and only the newest is read."""

NO_VACUUM_LOG: Final = {"spark.databricks.delta.vacuum.logging.enabled": "false"}
"""VACUUM of the ledger's own tables writes no commits of its own, so that histories show the runs' commits."""


def is_due(first: int, last: int, every: int) -> bool:
    """Return whether the ledger is to be kept small behind some runs.

    Args:
        first: the number of the first of these runs, and ``last`` of the last.
        every: it is done once in so many runs; 0 for never.

    >>> is_due(98, 99, 50), is_due(99, 100, 50), is_due(1, 100, 0)
    (False, True, False)
    """
    return every > 0 and last // every > (first - 1) // every


def keep_small(
    spark: SparkSession, target: Target, keep_days: int | None, now: datetime, check_lock: Callable[[], None]
) -> None:
    """Forget old runs, write the files of the ledger's tables together, and remove those that no version needs.

    Args:
        keep_days: runs that have ended before are forgotten; None for none.
        check_lock: raises an error if the lock is lost.
    """
    with upkeep_session(spark, NO_VACUUM_LOG) as session:
        steps.reached("ledger is to be kept small")
        forget(session, target, keep_days, now, check_lock)
        for name in (*APPENDED_TABLES, "state"):
            table = target.ledger(name)
            check_lock()
            with ledger_errors(table.text):
                if not delta.exists(session, table):
                    continue
                if name in APPENDED_TABLES:  # ``state`` has one row, in one file
                    optimize(session, table)
                vacuum(session, table)
            steps.reached(f"ledger's table kept small: {name}")


def first_kept(spark: SparkSession, target: Target, keep_days: int | None, now: datetime) -> int | None:
    """Return the first run that is not to be forgotten; None if none is."""
    table = target.ledger("runs")
    if keep_days is None or not delta.exists(spark, table):
        return None
    runs = delta.read(spark, table)
    micros = int((now - timedelta(days=keep_days)).timestamp() * 1e6)
    since = f"finished_at >= timestamp_micros({micros})"
    # The newest one is never forgotten.
    (row,) = runs.selectExpr(
        f"coalesce(min(CASE WHEN {since} THEN run END), max(run)) AS kept", "min(run) AS first"
    ).collect()
    return None if row.kept is None or row.first >= row.kept else int(row.kept)


def forget(
    spark: SparkSession, target: Target, keep_days: int | None, now: datetime, check_lock: Callable[[], None]
) -> None:
    """Remove the rows of runs that ended too long ago.

    ``files`` stay whole: what was read is asked of them however old it is.
    """
    kept = first_kept(spark, target, keep_days, now)
    if kept is None:
        return
    _forget_runs(spark, target.ledger("runs"), kept, check_lock)
    for name in ("messages", "transactions"):
        table = target.ledger(name)
        with ledger_errors(table.text):
            if not delta.exists(spark, table):
                continue
            rows = f"run < {kept}"
            if name == "transactions":
                # The last transaction shows whether a later run reads another server (`TransactionLog.followed`).
                (newest,) = delta.read(spark, table).selectExpr("max(commit_lsn) AS lsn").collect()
                rows += f" AND commit_lsn < {newest.lsn or 0}"
            check_lock()
            spark.sql(f"DELETE FROM {table.sql} WHERE {rows}").collect()
        steps.reached(f"runs forgotten: {name}")


def _forget_runs(spark: SparkSession, table: TableName, kept: int, check_lock: Callable[[], None]) -> None:
    """Remove runs, but for the rows that later runs need: of tables that these have not written to, and of names."""
    with ledger_errors(table.text):
        runs = delta.read(spark, table)
        old = runs.where(f"run < {kept}").selectExpr("run", "inline(tables)")
        last = old.groupBy("oid").agg({"run": "max"}).collect()  # each table's last name and place
        left = old.where("version IS NOT NULL").groupBy("oid").agg({"run": "max"}).collect()  # its last version
        loads = runs.where(f"run < {kept} AND load IS NOT NULL").select("run", "run").collect()
        named = runs.where(f"run < {kept}").selectExpr("run", "inline(relations)")
        names = named.groupBy("oid", "namespace", "name").agg({"run": "max"}).select("oid", "max(run)").collect()
        # With one that no run has: SQL has no empty IN ().
        needed = ", ".join(map(str, sorted({-1, *(row[1] for row in (*last, *left, *loads, *names))})))
        check_lock()
        marked = f"UPDATE {table.sql} SET kept_for_tables = true WHERE run IN ({needed}) AND kept_for_tables IS NULL"
        spark.sql(marked).collect()
    steps.reached("runs kept for tables")
    with ledger_errors(table.text):
        check_lock()
        spark.sql(f"DELETE FROM {table.sql} WHERE run < {kept} AND run NOT IN ({needed})").collect()
    steps.reached("runs forgotten: runs")
