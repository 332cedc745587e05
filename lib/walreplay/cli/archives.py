"""What the commands print that look at an archive, or ahead."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

from walreplay.console import Output, size
from walreplay.lsn import format_lsn

if TYPE_CHECKING:
    from walreplay.report import Forecast
    from walreplay.spark.index.audited import AuditReport
    from walreplay.spark.index.building import IndexReport


def write_index(output: Output, report: IndexReport) -> None:
    """Write what of an archive was indexed."""
    output.line(
        f"{_counted(report.files, 'file')} ({size(report.capture_bytes)}) in {report.index}; "
        f"{_counted(report.files_read, 'file')} ({size(report.bytes_read)}) read for it in {report.seconds:.1f} s"
    )
    lsns = _lsns(report.first_lsn, report.last_lsn)
    counts = f"{_counted(report.transactions, 'transaction')}, {_counted(report.changes, 'row change')}"
    output.line(f"{counts}{lsns and f', LSN {lsns}'}")
    for warning in report.warnings:
        output.line(f"warning: {warning}", style="yellow")


def write_forecast(output: Output, report: Forecast) -> None:
    """Write what a run would do."""
    if not report.runs:
        output.line(f"nothing new in {report.captures}")
    else:
        output.line(
            f"{_counted(report.transactions, 'transaction')} from {_counted(report.files, 'file')} "
            f"({size(report.capture_bytes)}) would be applied to {report.target} in {_counted(report.runs, 'run')}, "
            f"by about {_counted(report.tasks, 'Spark task')}; nothing was written"
        )
    if report.applied_lsn is not None:
        output.line(
            f"it would be applied up to LSN {format_lsn(report.applied_lsn)}, {_time(report.applied_commit_ts)}"
        )
    if report.estimated_seconds is not None:
        about = timedelta(seconds=max(1, round(report.estimated_seconds)))
        output.line(f"it would take about {about}, to judge by {report.estimated_by}")
    if report.tables:
        output.line()
        output.table(
            ("table", "becomes", "inserts", "updates", "deletes", "truncates"),
            [
                (
                    one.name,
                    f"{', '.join(one.outputs)}{' (new)' if one.is_new else ''}",
                    *(one.inserts, one.updates, one.deletes, one.truncates),
                )
                for one in report.tables
            ],
            title="row changes in the files",
        )
    if report.left_out:
        output.line(f"{_counted(report.left_out, 'row change')} of tables that are not wanted")
    for one in report.tables:
        for change in one.changes:
            output.line(f"note: {one.name}: {change}")
    for warning in report.warnings:
        output.line(f"warning: {warning}", style="yellow")


def write_audit(output: Output, report: AuditReport) -> None:
    """Write what an archive holds, and what is wrong with it."""
    output.line(
        f"{report.captures}: {_counted(report.files, 'file')} ({size(report.capture_bytes)}), "
        f"{_counted(report.transactions, 'transaction')}, {_counted(report.changes, 'row change')}, "
        f"{_counted(report.sessions, 'session')}; {_counted(report.files_read, 'file')} read in {report.seconds:.1f} s"
    )
    if report.index is not None:
        output.line(f"{_counted(report.as_indexed, 'file')} as indexed in {report.index}")
    _write_coverage(output, report)
    _write_faults(output, report)
    _write_remarks(output, report)
    _write_tables(output, report)
    for warning in report.warnings:
        output.line(f"warning: {warning}", style="yellow")
    output.line()
    if report.is_whole:
        output.line("nothing is damaged or missing, as far as the files can tell")
    else:
        count = _counted(len(report.problems) + len(report.holes), "problem")
        output.line(f"the archive is not whole: {count}, see above", style="red")


def _write_coverage(output: Output, report: AuditReport) -> None:
    output.line()
    output.table(
        ("first file", "last file", "files", "transactions", "first LSN", "last LSN", "first commit", "last commit"),
        [
            (
                one.first_file,
                one.last_file,
                one.files,
                one.transactions,
                _lsn(one.first_lsn),
                _lsn(one.last_lsn),
                _time(one.first_commit_ts),
                _time(one.last_commit_ts),
            )
            for one in report.coverage
        ],
        title="coverage: each line without a gap",
    )


def _write_faults(output: Output, report: AuditReport) -> None:
    if report.problems:
        output.line()
        output.table(
            ("problem", "file", "offset", "files", "what"),
            [
                (one.kind, one.file, one.offset, one.files, f"{one.table}: {one.problem}" if one.table else one.problem)
                for one in report.problems
            ],
            title="damaged or missing",
        )
        for remedy in dict.fromkeys(one.remedy for one in report.problems if one.remedy):
            kinds = dict.fromkeys(one.kind for one in report.problems if one.remedy == remedy)
            output.line(f"{', '.join(kinds)}: {remedy}")
    if report.holes:
        output.line()
        output.table(
            ("between", "and", "missing", "such as"),
            [(one.before, one.after, one.missing, one.example) for one in report.holes],
            title="numbers that the files leave out",
        )


def _write_remarks(output: Output, report: AuditReport) -> None:
    if report.overlaps:
        output.line()
        compared = "compared with" if report.copies_compared else "not compared with"
        output.table(
            ("file", "transactions", "first LSN", "last LSN"),
            [(one.file, one.transactions, _lsn(one.first_lsn), _lsn(one.last_lsn)) for one in report.overlaps],
            title=f"sent again ({compared} their first copies)",
        )
    if report.torn:
        output.line()
        output.table(
            ("file", "bytes"),
            [(one.file, one.bytes) for one in report.torn],
            title="torn messages, which a reconnect has left",
        )
    if report.open or report.unfinished_bytes:
        output.line()
        rows: list[tuple[Any, ...]] = [
            (one.kind, str(one.xid), one.gid, _lsn(one.lsn), _time(one.since), one.file, one.offset)
            for one in report.open
        ]
        if report.unfinished_bytes:
            rows.append((f"message, {report.unfinished_bytes:,} bytes", "", None, None, None, "", None))
        output.table(
            ("open", "xid", "gid", "LSN", "since", "began in", "offset"), rows, title="not ended where the archive ends"
        )


def _write_tables(output: Output, report: AuditReport) -> None:
    if not report.tables:
        return
    output.line()
    headers = ["table", "oid", "inserts", "updates", "deletes", "truncates", "first file", "last file", "older rows"]
    rows = []
    for one in report.tables:
        base = f"truncated at {_lsn(one.truncated_lsn)}" if one.truncated_lsn is not None else one.base
        row = [one.name, str(one.oid), one.inserts, one.updates, one.deletes, one.truncates]
        row += [one.first_file, one.last_file, base]
        if report.values_counted:
            row += [one.decoded_rows, None if one.decoded_bytes is None else size(one.decoded_bytes)]
        rows.append(row)
    if report.values_counted:
        headers += ["committed changes", "decoded"]
    output.table(headers, rows, title="tables")
    rescued = [(one.name, column, count) for one in report.tables for column, count in one.rescued.items()]
    if rescued:
        output.line()
        output.table(("table", "column", "values"), rescued, title="values that go to _rescued_data")


def _counted(number: int, thing: str) -> str:
    return f"{number:,} {thing}{'' if number == 1 else 's'}"


def _lsns(first: int | None, last: int | None) -> str:
    return "" if first is None or last is None else f"{format_lsn(first)} to {format_lsn(last)}"


def _lsn(lsn: int | None) -> str | None:
    return None if lsn is None else format_lsn(lsn)


def _time(time: datetime | None) -> str | None:
    return None if time is None else time.isoformat(sep=" ", timespec="seconds")
