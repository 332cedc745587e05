"""What is measured of each run: JSON lines, one a run and table.  The ledger's ``runs`` have the same.

The names are those that docs/operations.md lists, and stay.  There are no values of cells.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any, Final

from walreplay.errors import TargetError
from walreplay.lsn import format_lsn
from walreplay.report import RunReport, TableReport
from walreplay.spark.ledger.state import State, now
from walreplay.spark.session.text_files import append_lines

Rows = Sequence[Mapping[str, Any]]

OF_TABLE: Final = (
    "table",
    "oid",
    "action",
    "table_bytes",
    "table_changes",
    "inserted",
    "updated",
    "deleted",
    "version",
    "table_seconds",
    "writer",
)
"""The fields of a line that are a table's; null in that of a run without tables."""


def metrics_of(report: RunReport, state: State | None, finished_at: datetime, behind: Iterable[int | None]) -> Rows:
    """Return the rows of a run: one for each of its tables, or a single one without a table.

    Args:
        report: its stages are those of this run.
        state: the run's; None for a call that found nothing new.
        behind: LSNs that the captures have told of beyond what is applied: of transactions that have not ended in them.
    """
    applied = report.applied_lsn
    top = max((lsn for lsn in behind if lsn is not None), default=None)
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
        "lag_bytes": None if applied is None else max(0, (top or 0) - applied),
    }
    return [{**of_run, **_of(table)} for table in report.tables] or [{**of_run, **dict.fromkeys(OF_TABLE)}]


def _of(table: TableReport) -> Mapping[str, Any]:
    values = (
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
    return dict(zip(OF_TABLE, values, strict=True))


def lines_of(target: str, rows: Rows) -> list[str]:
    """Write rows as JSON, each with its target: LSNs as ``X/X``, times in ISO form, phases as an object."""
    return [json.dumps({"target": target, **_plain(row)}) for row in rows]


def _plain(row: Mapping[str, Any]) -> dict[str, Any]:
    found = {name: value.isoformat() if isinstance(value, datetime) else value for name, value in row.items()}
    if row["applied_lsn"] is not None:
        found["applied_lsn"] = format_lsn(row["applied_lsn"])
    return found


def tell(place: str | None, target: str, rows: Rows) -> str | None:
    """Add rows to a file, or as a file to a folder; return a warning where that fails, as the run itself has not.

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


__all__ = ["OF_TABLE", "Rows", "lines_of", "metrics_of", "tell"]
