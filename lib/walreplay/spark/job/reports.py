"""Parts of a run's report beside the tables that it wrote to: moved tables, times, an interrupted run."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import replace

from walreplay.report import Action, RunReport, TableReport
from walreplay.spark.planning.plan import RunPlan
from walreplay.spark.planning.registry import MirrorEntry


def moved(tables: RunPlan) -> list[TableReport]:
    """Report the tables that the run did not write to, but moved or set aside."""
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
    """Give a report with the run's time, in all and by stage."""
    return replace(report, seconds=time.monotonic() - began, stages=dict(stages))


def joined(one: RunReport, two: RunReport) -> RunReport:
    """Report a finished interrupted run and the new run after it as one."""
    return replace(
        two,
        files=one.files + two.files,
        capture_bytes=one.capture_bytes + two.capture_bytes,
        transactions=one.transactions + two.transactions,
        changes=one.changes + two.changes,
        tables=(*one.tables, *two.tables),
    )
