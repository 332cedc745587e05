"""Parts of a run's report beside the tables that it wrote to: moved tables, times, several runs as one."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
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


def joined(one: RunReport | None, two: RunReport) -> RunReport:
    """Report a run, and those before it of the same call, as one."""
    if one is None:
        return two
    return replace(
        two,
        files=one.files + two.files,
        capture_bytes=one.capture_bytes + two.capture_bytes,
        transactions=one.transactions + two.transactions,
        changes=one.changes + two.changes,
        tables=_added_up((*one.tables, *two.tables)),
    )


def _added_up(tables: Sequence[TableReport]) -> tuple[TableReport, ...]:
    """Report each table once: what several runs did to it is added up, and the last one's version counts."""
    found: dict[tuple[int | None, str, str], TableReport] = {}
    for table in tables:
        key = (table.oid, table.name, table.location)
        before = found.get(key)
        found[key] = table if before is None else _sum(before, table)
    return tuple(sorted(found.values(), key=lambda table: table.name))


def _sum(one: TableReport, two: TableReport) -> TableReport:
    return replace(
        two,
        action=two.action if one.action in ("unchanged", "set aside") else one.action,
        changes=one.changes + two.changes,
        bytes=one.bytes + two.bytes,
        inserted=one.inserted + two.inserted,
        updated=one.updated + two.updated,
        deleted=one.deleted + two.deleted,
        truncated=one.truncated or two.truncated,
        version=one.version if two.version is None else two.version,
        seconds=one.seconds + two.seconds,
        without_base=one.without_base + two.without_base,
        deletes_without_row=one.deletes_without_row + two.deletes_without_row,
        unknown=one.unknown + two.unknown,
        notes=tuple(dict.fromkeys((*one.notes, *two.notes))),
        writer=two.writer or one.writer,
        writer_reason=two.writer_reason or one.writer_reason,
    )
