"""What a run reports beside the tables that it has written to."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import replace

from walreplay.report import Action, RunReport, TableReport
from walreplay.spark.planning.plan import RunPlan
from walreplay.spark.planning.registry import MirrorEntry


def moved(tables: RunPlan) -> list[TableReport]:
    """Report the tables that the run has not written to, but that had to give way or have another name now."""
    placement = tables.placement
    told: list[tuple[MirrorEntry, Action]] = [(entry, "set aside") for entry in placement.aside]
    told += [(entry, "unchanged") for entry in placement.renamed]
    return [
        TableReport(
            entry.name,
            entry.table.text,
            action,
            oid=entry.oid,
            set_aside=entry.set_aside,
            notes=placement.notes.get(entry.oid, ()),
        )
        for entry, action in told
    ]


def timed(report: RunReport, began: float, stages: Mapping[str, float]) -> RunReport:
    """Give a report with the time that the run took, by stages too."""
    return replace(report, seconds=time.monotonic() - began, stages=dict(stages))


def joined(one: RunReport, two: RunReport) -> RunReport:
    """Report an interrupted run that was finished and the new one behind it as one."""
    return replace(
        two,
        files=one.files + two.files,
        capture_bytes=one.capture_bytes + two.capture_bytes,
        transactions=one.transactions + two.transactions,
        changes=one.changes + two.changes,
        tables=(*one.tables, *two.tables),
    )
