"""What the command that maintains a target prints."""

from __future__ import annotations

from typing import TYPE_CHECKING

from walreplay.console import Output, size

if TYPE_CHECKING:
    from walreplay.report import MaintenanceReport, TableMaintenance


def write_maintenance(output: Output, report: MaintenanceReport) -> None:
    """Write what a target's tables needed, and what was done; the tables that need nothing are counted alone."""
    needing = [table for table in report.tables if table.actions or table.problem]
    what = "would be maintained; nothing was written" if report.dry_run else "maintained"
    output.line(f"{len(needing):,} of {len(report.tables):,} tables of {report.target} {what} ({report.seconds:.1f} s)")
    if needing:
        output.line()
        output.table(
            ("table", "files", "size", "what", "why", "removed", "added"),
            [
                (
                    table.name,
                    table.files,
                    size(table.bytes),
                    ", ".join(table.actions),
                    "; ".join(table.reasons),
                    _rewritten(table, table.files_removed),
                    _rewritten(table, table.files_added),
                )
                for table in needing
            ],
        )
    for table in report.tables:
        if table.problem:
            output.line(f"failed: {table.name}: {table.problem}", style="red")
    for warning in report.warnings:
        output.line(f"warning: {warning}", style="yellow")


def _rewritten(table: TableMaintenance, count: int) -> int | None:
    return count if table.done else None


__all__ = ["write_maintenance"]
