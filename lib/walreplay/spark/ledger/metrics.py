"""What is measured of each run: one row a run and table, in the ledger's table ``metrics`` and as JSON lines.

The names are those that docs/operations.md lists, and stay.  There are no values of cells.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any, Final

import pyarrow as pa

from walreplay.errors import TargetError
from walreplay.lsn import format_lsn
from walreplay.report import RunReport
from walreplay.sink.merge import TIMESTAMP
from walreplay.spark.ledger.state import State, now
from walreplay.spark.session.text_files import append_lines

_PHASE: Final = pa.struct([("phase", pa.string()), ("seconds", pa.float64())])

METRICS: Final = pa.schema(
    [
        ("run", pa.int64()),
        ("source", pa.string()),
        ("status", pa.string()),
        ("started_at", TIMESTAMP),
        ("finished_at", TIMESTAMP),
        ("seconds", pa.float64()),
        ("phases", pa.list_(_PHASE)),
        ("files", pa.int64()),
        ("bytes", pa.int64()),
        ("transactions", pa.int64()),
        ("changes", pa.int64()),
        ("applied_lsn", pa.int64()),
        ("applied_commit_ts", TIMESTAMP),
        ("lag_seconds", pa.float64()),
        ("lag_bytes", pa.int64()),
        ("table", pa.string()),
        ("oid", pa.int64()),
        ("action", pa.string()),
        ("table_bytes", pa.int64()),
        ("table_changes", pa.int64()),
        ("inserted", pa.int64()),
        ("updated", pa.int64()),
        ("deleted", pa.int64()),
        ("version", pa.int64()),
        ("table_seconds", pa.float64()),
        ("writer", pa.string()),
    ]
)

FIELDS: Final = ("target", *METRICS.names)
"""The fields of a JSON line: also the target, to which a line in a file does not belong otherwise."""

_OF_NO_TABLE: Final = (None,) * (len(METRICS.names) - METRICS.names.index("table"))

Rows = Sequence[tuple[Any, ...]]


def metrics_of(report: RunReport, state: State | None, finished_at: datetime, behind: Iterable[int | None]) -> Rows:
    """Give the rows of a run: one for each of its tables, or a single one without a table.

    Args:
        report: its stages are those of this run.
        state: the run's; None for a call that found nothing new.
        behind: LSNs that the captures have told of beyond what is applied: of transactions that have not ended in them.
    """
    applied = report.applied_lsn
    top = max((lsn for lsn in behind if lsn is not None), default=None)
    lag = None if report.applied_commit_ts is None else (finished_at - report.applied_commit_ts).total_seconds()
    of_run = (
        report.run,
        None if state is None else state.source,
        report.status,
        None if state is None else state.started_at,
        finished_at,
        round(float(sum(report.stages.values())), 3),
        [(name, round(seconds, 3)) for name, seconds in report.stages.items()],
        report.files,
        report.capture_bytes,
        report.transactions,
        report.changes,
        applied,
        report.applied_commit_ts,
        None if lag is None else round(max(0.0, lag), 3),
        None if applied is None else max(0, (top or 0) - applied),
    )
    rows = [
        (
            *of_run,
            table.name,
            table.oid,
            table.action,
            table.bytes,
            table.changes,
            table.inserted,
            table.updated,
            table.deleted,
            table.version,
            round(table.seconds, 3),
            table.writer,
        )
        for table in report.tables
    ]
    return rows or [(*of_run, *_OF_NO_TABLE)]


def lines_of(target: str, rows: Rows) -> list[str]:
    """Write rows as JSON: LSNs as ``X/X``, times in ISO form, phases as an object."""
    return [json.dumps({"target": target, **_plain(dict(zip(METRICS.names, row, strict=True)))}) for row in rows]


def _plain(row: Mapping[str, Any]) -> dict[str, Any]:
    found = {name: value.isoformat() if isinstance(value, datetime) else value for name, value in row.items()}
    found["phases"] = dict(row["phases"])
    if row["applied_lsn"] is not None:
        found["applied_lsn"] = format_lsn(row["applied_lsn"])
    return found


def tell(place: str | None, target: str, rows: Rows) -> str | None:
    """Add rows to a file, or as a file to a folder; give a warning where that fails, as the run itself has not.

    Args:
        place: see `walreplay.spark.session.text_files.append_lines`; None for nowhere.
    """
    if place is None or not rows:
        return None
    name = f"{now():%Y%m%dT%H%M%S}-{uuid.uuid4().hex[:8]}.jsonl"
    try:
        append_lines(place, lines_of(target, rows), name)
    except TargetError as error:
        return str(error)
    return None


__all__ = ["FIELDS", "METRICS", "Rows", "lines_of", "metrics_of", "tell"]
