"""What commands print: results as text for people, or as JSON, and the same JSON in a file if one is wanted.

`write_…` prints a result for people; for programs, results have a `to_dict` (`walreplay.report.JsonResult`).  First
runs, inspections, status and queries as of a moment, then maintenance, indexes, forecasts and audits.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, Final

from walreplay.cli.remedies import filled
from walreplay.console import Screen, age, size
from walreplay.errors import ConfigError
from walreplay.lsn import format_lsn

if TYPE_CHECKING:
    from walreplay.archive.audit import AuditReport
    from walreplay.archive.joining import IndexReport
    from walreplay.archive.messages import Inspection
    from walreplay.job.as_of import AsOf
    from walreplay.ledger.status import Cut, TargetStatus
    from walreplay.report import Forecast, MaintenanceReport, RunReport, TableForecast, TableReport, VerifyReport


@dataclass(frozen=True, slots=True)
class Printing:
    """How a command's result is printed.

    Attributes:
        as_json: for programs.
        report: a file that gets it as JSON, whatever is printed: a path, or a URI of a file system that Spark has.
            Under spark-submit and in jobs, Spark writes between the lines of standard output.
        quiet: no progress is shown before.
        strict: a table that is held makes the exit code 1.
        page: a file that gets it as a page for browsers, under a ``title``.

    Raises:
        ConfigError: what makes pages is not installed.
    """

    as_json: bool = False
    report: str | None = None
    quiet: bool = False
    strict: bool = False
    page: str | None = None
    title: str = ""

    def __post_init__(self) -> None:
        if self.page is not None:
            refuse_missing("--html", "html", "jinja2")

    def show(self, values: Mapping[str, Any], write: Callable[[Screen], None]) -> None:
        """Print a result.

        Args:
            values: the result for programs.
            write: writes it for people.

        Raises:
            TargetError: the file cannot be written; the result is printed by then.
        """
        output = Screen()
        if self.as_json:
            output.json(values, indent=2)
        else:
            write(output)
        if self.report is not None:
            from walreplay.session.text_files import write_text

            write_text(self.report, json.dumps(values, indent=2) + "\n")
        if self.page is not None:
            from walreplay.cli.pages import Page
            from walreplay.session.text_files import write_text

            page = Page(self.title)
            write(page)
            write_text(self.page, page.html(), "the page")


def refuse_missing(option: str, extra: str, package: str) -> None:
    """Refuse an option, before anything is done, whose package is not installed."""
    if find_spec(package) is None:
        remedy = f"Install it with: pip install 'walreplay[{extra}]'"
        raise ConfigError(f"{option} needs {package}, which is not installed", remedy=remedy)


_WRITTEN: Final = {"files": ", written as files", "statements": ", written by Spark's statements"}
_NAMED: Final = 5  # of the tables to which the same has happened

_RESULTS: Final = {True: "equal", False: "different", None: None}
_IDENTITIES: Final = {"d": "default", "n": "nothing", "f": "full", "i": "index"}  # by pg_class.relreplident


def write_report(output: Screen, report: RunReport) -> None:
    """Write what a run did."""
    number = "" if report.run is None else f"run {report.run}: "
    if report.status == "nothing new":
        output.line(f"{number}nothing new in {report.captures} ({report.seconds:.1f} s)")
    elif report.status == "loaded":
        files = f"{_counted(report.files, 'file')} ({size(report.capture_bytes)})"
        output.line(
            f"{number}{_counted(report.changes, 'row')} from {files if report.files else report.captures} loaded into "
            f"{report.target} in {report.seconds:.1f} s"
            f"{_WRITTEN.get(report.writer or '', '')}"
        )
    elif report.status == "rebuilt":
        made = sum(table.action != "unchanged" for table in report.tables)
        output.line(
            f"{number}{made:,} of {_counted(len(report.tables), 'table')} of {report.target} made again from "
            f"{_counted(report.files, 'file')} ({size(report.capture_bytes)}) in {report.seconds:.1f} s"
        )
    else:
        output.line(
            f"{number}{_counted(report.transactions, 'transaction')}, {_counted(report.changes, 'row change')} from "
            f"{_counted(report.files, 'file')} ({size(report.capture_bytes)}) applied to {report.target} "
            f"in {report.seconds:.1f} s{_WRITTEN.get(report.writer or '', '')}"
        )
    if report.applied_lsn is not None:
        output.line(f"applied up to {_reached(report)}")
    headers = ("table", "action", "changes", "inserted", "updated", "deleted", "version", "seconds")
    _write_section(
        output, headers, [(table.name, _action(table), *values_of(table, headers[2:])) for table in report.tables]
    )
    _write_notes(output, report.tables)
    for reason, names in _tables_by_reason(report).items():
        output.line(f"note: written by Spark's statements, as {reason}: {_listed(names)}")
    _write_warnings(output, report.warnings)


def _write_section(output: Screen, headers: Sequence[str], rows: Sequence[Sequence[Any]], title: str = "") -> None:
    """Write a table with a blank line in front; nothing if it has no rows."""
    if rows:
        output.line()
        output.table(headers, rows, title=title)


def values_of(record: Any, names: Iterable[str]) -> tuple[Any, ...]:
    """Return some of a record's values: LSNs, times and durations as text."""
    values = []
    for name in names:
        value = getattr(record, name)
        if name.endswith("lsn"):
            value = _lsn(value)
        elif isinstance(value, (datetime, timedelta)):
            value = _time(value) if isinstance(value, datetime) else age(value)
        values.append(value)
    return tuple(values)


def _action(table: TableReport | TableForecast) -> str:
    return f"{table.action}, truncated" if table.truncated else table.action


def _write_notes(output: Screen, tables: Sequence[TableReport | TableForecast]) -> None:
    for table in tables:
        for note in table.notes:
            output.line(f"note: {table.name}: {note}")


def _write_warnings(output: Screen, warnings: Sequence[str]) -> None:
    for warning in warnings:
        output.line(f"warning: {filled(warning)}", style="yellow")


def _tables_by_reason(report: RunReport) -> dict[str, list[str]]:
    """Return the tables that were written by statements though the run writes files, by what the reason was."""
    names_by_reason: dict[str, list[str]] = {}
    for table in report.tables:
        if report.writer == "files" and table.writer == "statements":
            names_by_reason.setdefault(table.writer_reason or "", []).append(table.name)
    return names_by_reason


def _listed(names: Sequence[str]) -> str:
    rest = len(names) - _NAMED
    # The last name is no longer than "and 1 more".
    return ", ".join(names) if rest <= 1 else f"{', '.join(names[:_NAMED])} and {rest:,} more"


def _counted(number: int, thing: str) -> str:
    return f"{number:,} {thing}{'' if number == 1 else 's'}"


def write_inspection(output: Screen, inspection: Inspection) -> None:
    """Write what is in capture files."""
    output.line(f"{inspection.transactions:,} transactions, {inspection.changes:,} row changes")
    if inspection.first_lsn is not None and inspection.last_lsn is not None:
        output.line(f"LSN     {format_lsn(inspection.first_lsn)} to {format_lsn(inspection.last_lsn)}")
    if inspection.first_commit is not None and inspection.last_commit is not None:
        output.line(f"commits {_time(inspection.first_commit)} to {_time(inspection.last_commit)}")
    output.line()
    headers = ("file", "framing", "compression", "bytes", "messages", "transactions", "note")
    output.table(headers, [(file.path, *values_of(file, headers[1:])) for file in inspection.files])
    output.line()
    output.table(("message", "count"), sorted(inspection.messages.items(), key=lambda item: -item[1]))
    counts = ("columns", "inserts", "updates", "deletes", "truncates")
    relations = [
        (
            *(relation.name, str(relation.oid)),  # oids are names, not numbers to align
            *(_IDENTITIES.get(relation.replica_identity, relation.replica_identity), ", ".join(relation.key)),
            *values_of(relation, counts),
        )
        for relation in inspection.relations
    ]
    _write_section(output, ("relation", "oid", "identity", "key", *counts), relations)


def write_status(output: Screen, status: TargetStatus) -> None:
    """Write what a target holds."""
    if status.applied_lsn is None:
        output.line(f"{status.target}: nothing has been applied yet")
    else:
        output.line(f"{status.target}: applied up to {_reached(status)}")
    if status.at_work is not None:
        run = status.at_work
        who = f"{run.user} on {run.host} (process {run.pid}, since {_time(run.since)})"
        seen = f"its last sign of life was at {_time(run.beat)}"
        if run.alive:
            output.line(f"run {run.run} is at work: {who}; {seen}")
        else:
            output.line(f"run {run.run} was interrupted: {who}; {seen}. The next run takes over", style="yellow")
    output.pictures(status)
    names = ("run", "state", "started_at", "finished_at", "applied_lsn", "files", "transactions", "changes")
    lags = [None if run.lag_seconds is None else age(timedelta(seconds=run.lag_seconds)) for run in status.runs]
    _write_section(
        output,
        ("run", "state", "started", "finished", "LSN", "files", "transactions", "changes", "tables", "written", "lag"),
        [(*values_of(run, (*names, "tables", "writer")), lag) for run, lag in zip(status.runs, lags, strict=True)],
    )
    of_open = ("gid", "lsn", "began_at_file", "offset", "since", "age")
    _write_section(
        output,
        ("open transaction", "xid", "gid", "LSN", "began in", "offset", "since", "age", "size", "segments"),
        [
            (item.kind, str(item.xid), *values_of(item, of_open), size(item.bytes), item.segments)
            for item in status.open_transactions
        ],
    )
    for table in status.tables:
        if table.held is not None:
            output.line(f"{table.name} is held, and left out: {filled(table.held)}", style="yellow")
    tables = sorted(status.tables, key=lambda table: (-table.bytes, -table.changes, table.name))
    of_verified = ("verified_lsn", "verified_at", "age", "against")
    _write_section(
        output,
        ("table", "changes", "size", "verified", "LSN", "when", "age", "against"),
        [
            (table.name, table.changes, size(table.bytes), _RESULTS[table.is_equal], *values_of(table, of_verified))
            for table in tables
            if table.changes or table.age is not None
        ],
        "tables, with what these runs have changed in them",
    )
    unverified = sum(table.age is None for table in tables)
    if 0 < unverified < len(tables):
        output.line(f"never verified: {_counted(unverified, 'table')}")


def write_verification(output: Screen, report: VerifyReport) -> None:
    """Write how a target's tables have compared."""
    equal = sum(table.result == "equal" for table in report.tables)
    output.line(
        f"{equal:,} of {_counted(len(report.tables), 'table')} of {report.target} equal to {report.against} "
        f"({report.captures}) in {report.seconds:.1f} s"
    )
    output.line(f"compared at {_reached(report)}")
    output.pictures(report)
    names = ("name", "result", "rows", "missing", "extra", "changed")
    worst = ("different", "not compared", "left out", "equal")
    rows = [
        (*values_of(table, names), _listed([f"{name} ({count:,})" for name, count in table.columns.items()]))
        for table in sorted(report.tables, key=lambda table: worst.index(table.result))
    ]
    _write_section(output, ("table", *names[1:], "columns that differ"), rows)
    for table in report.tables:
        if table.reason:
            output.line(f"note: {table.name}: {filled(table.reason)}")
    if report.differences is not None and report.result == "different":
        output.line(f"the rows that differ are in {report.differences}")
    _write_warnings(output, report.warnings)


def write_cut(output: Screen, cut: Cut) -> None:
    """Write which version of each table belongs to a run, and how to read it."""
    up_to = "nothing was applied yet" if cut.applied_lsn is None else f"applied up to {_reached(cut)}"
    output.line(f"{cut.target}, run {cut.run}: {up_to}")
    if cut.tables:
        rows = [(table.name, table.version, table.location) for table in cut.tables]
        _write_section(output, ("table", "version", "location"), rows)
        output.line()
        for table in cut.tables:
            _write_query(output, table.note and f"{table.name}: {table.note}", table.sql)


def write_as_of(output: Screen, moment: AsOf) -> None:
    """Write how each table is read as of a moment."""
    lsn = "before every commit" if moment.lsn is None else f"LSN {format_lsn(moment.lsn)}"
    time = "" if moment.time is None else f", at {moment.time.isoformat(sep=' ')}"
    output.line(f"{moment.target} as of {lsn}{time}")
    for table in moment.tables:
        output.line()
        now = "" if table.name_now == table.name else f", now {table.name_now or 'set aside'}"
        output.line(f"{table.name} ({table.output}){now}{'' if table.exact else ', not exactly'}", style="bold")
        _write_query(output, table.note, table.sql)


def _write_query(output: Screen, note: str, sql: str | None) -> None:
    if note:
        output.line(f"-- {note}")
    if sql is not None:
        output.line(f"{sql};")


def _lsn(lsn: int | None) -> str | None:
    return None if lsn is None else format_lsn(lsn)


def _time(time: datetime | None) -> str | None:
    return None if time is None else time.isoformat(sep=" ", timespec="seconds")


def _reached(record: RunReport | TargetStatus | VerifyReport | Cut) -> str:
    committed = "" if record.applied_commit_ts is None else f", committed at {_time(record.applied_commit_ts)}"
    return f"LSN {_lsn(record.applied_lsn)}{committed}"


# Maintenance, indexes, forecasts and audits


def write_maintenance(output: Screen, report: MaintenanceReport) -> None:
    """Write what a target's tables needed, and what was done; the tables that need nothing are counted alone."""
    needing = [table for table in report.tables if table.actions or table.problem]
    what = "would be maintained; nothing was written" if report.dry_run else "maintained"
    output.line(f"{len(needing):,} of {len(report.tables):,} tables of {report.target} {what} ({report.seconds:.1f} s)")
    _write_section(
        output,
        ("table", "files", "size", "what", "why", "removed", "added"),
        [
            (
                *(table.name, table.files, size(table.bytes), ", ".join(table.actions), "; ".join(table.reasons)),
                *((table.files_removed, table.files_added) if table.done else (None, None)),
            )
            for table in needing
        ],
    )
    for table in report.tables:
        if table.problem:
            output.line(f"failed: {table.name}: {filled(table.problem)}", style="red")
    _write_warnings(output, report.warnings)


def write_index(output: Screen, report: IndexReport) -> None:
    """Write what of an archive was indexed."""
    output.line(
        f"{_counted(report.files, 'file')} ({size(report.capture_bytes)}) in {report.index}; "
        f"{_counted(report.files_read, 'file')} ({size(report.bytes_read)}) read for it in {report.seconds:.1f} s"
    )
    lsns = ""
    if report.first_lsn is not None and report.last_lsn is not None:
        lsns = f", LSN {format_lsn(report.first_lsn)} to {format_lsn(report.last_lsn)}"
    output.line(f"{_counted(report.transactions, 'transaction')}, {_counted(report.changes, 'row change')}{lsns}")
    _write_warnings(output, report.warnings)


def write_forecast(output: Screen, report: Forecast) -> None:
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
        about = timedelta(seconds=max(1, round(report.estimated_seconds)))  # no fractions: it is an estimate
        output.line(f"it would take about {about}, to judge by {report.estimated_by}")
    headers = ("table", "action", "changes", "inserts", "updates", "deletes", "truncates")
    rows = [(table.name, _action(table), *values_of(table, headers[2:])) for table in report.tables]
    _write_section(output, headers, rows, "what would be done, and row changes in the files")
    if report.left_out:
        output.line(f"{_counted(report.left_out, 'row change')} of tables that are not wanted")
    _write_notes(output, report.tables)
    _write_warnings(output, report.warnings)


def write_audit(output: Screen, report: AuditReport) -> None:
    """Write what an archive holds, and what is wrong with it."""
    output.line(
        f"{report.captures}: {_counted(report.files, 'file')} ({size(report.capture_bytes)}), "
        f"{_counted(report.transactions, 'transaction')}, {_counted(report.changes, 'row change')}, "
        f"{_counted(report.sessions, 'session')}; {_counted(report.files_read, 'file')} read in {report.seconds:.1f} s"
    )
    if report.index is not None:
        output.line(f"{_counted(report.as_indexed, 'file')} as indexed in {report.index}")
    output.pictures(report)
    _write_coverage(output, report)
    _write_faults(output, report)
    _write_remarks(output, report)
    _write_tables(output, report)
    _write_warnings(output, report.warnings)
    output.line()
    if report.is_whole:
        output.line("nothing is damaged or missing, as far as the files can tell")
    else:
        count = _counted(len(report.problems) + len(report.holes), "problem")
        output.line(f"the archive is not whole: {count}, see above", style="red")


def _write_coverage(output: Screen, report: AuditReport) -> None:
    names = ("first_file", "last_file", "files", "transactions", "first_lsn", "last_lsn")
    output.line()
    output.table(
        ("first file", "last file", "files", "transactions", "first LSN", "last LSN", "first commit", "last commit"),
        [values_of(stretch, (*names, "first_commit_ts", "last_commit_ts")) for stretch in report.coverage],
        title="coverage: each line without a gap",
    )


def _write_faults(output: Screen, report: AuditReport) -> None:
    columns = ("kind", "file", "offset", "files")
    problems = [
        (*values_of(fault, columns), f"{fault.table}: {fault.problem}" if fault.table else fault.problem)
        for fault in report.problems
    ]
    _write_section(output, ("problem", "file", "offset", "files", "what"), problems, "damaged or missing")
    remedies = dict.fromkeys(fault.remedy for fault in report.problems if fault.remedy)
    for remedy in remedies:
        faults = [fault for fault in report.problems if fault.remedy == remedy]
        kinds = ", ".join(dict.fromkeys(fault.kind for fault in faults))
        # Of several remedies, each says which files it is for.
        names = list(dict.fromkeys(fault.file for fault in faults if fault.file is not None))
        files = f" {_listed(names)}" if len(remedies) > 1 and names else ""
        output.line(f"{kinds}{files}: {filled(remedy)}")
    holes = [(hole.before, hole.after, hole.missing, hole.example) for hole in report.holes]
    _write_section(output, ("between", "and", "missing", "such as"), holes, "numbers that the files leave out")


def _write_remarks(output: Screen, report: AuditReport) -> None:
    overlaps = [values_of(overlap, ("file", "transactions", "first_lsn", "last_lsn")) for overlap in report.overlaps]
    title = f"sent again ({'' if report.copies_compared else 'not '}compared with their first copies)"
    _write_section(output, ("file", "transactions", "first LSN", "last LSN"), overlaps, title)
    torn = [(message.file, message.bytes) for message in report.torn]
    _write_section(output, ("file", "bytes"), torn, "torn messages, which a reconnect has left")
    rows: list[tuple[Any, ...]] = [
        (transaction.kind, str(transaction.xid), *values_of(transaction, ("gid", "lsn", "since", "file", "offset")))
        for transaction in report.open
    ]
    if report.unfinished_bytes:
        rows.append((f"message, {report.unfinished_bytes:,} bytes", "", None, None, None, "", None))
    headers = ("open", "xid", "gid", "LSN", "since", "began in", "offset")
    _write_section(output, headers, rows, "not ended where the archive ends")


def _write_tables(output: Screen, report: AuditReport) -> None:
    headers = ["table", "oid", "inserts", "updates", "deletes", "truncates", "first file", "last file", "older rows"]
    rows = []
    for table in report.tables:
        base = f"truncated at {_lsn(table.truncated_lsn)}" if table.truncated_lsn is not None else table.base
        row = [table.name, str(table.oid), table.inserts, table.updates, table.deletes, table.truncates]
        row += [table.first_file, table.last_file, base]
        if report.values_counted:
            row += [table.decoded_rows, None if table.decoded_bytes is None else size(table.decoded_bytes)]
        rows.append(row)
    if report.values_counted:
        headers += ["committed changes", "decoded"]
    _write_section(output, headers, rows, "tables")
    rescued = [(table.name, column, count) for table in report.tables for column, count in table.rescued.items()]
    _write_section(output, ("table", "column", "values"), rescued, "values that go to _rescued_data")
