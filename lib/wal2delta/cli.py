"""The command line: ``wal2delta apply | inspect | status``.

Exit codes: 0 done, 1 a failed run, 2 a usage or configuration error, 130 interrupted.  Results go to standard
output, progress and errors to standard error.
"""

from __future__ import annotations

import os
import sys
import traceback
from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

import wal2delta
from wal2delta.console import Output, age, drop_output, guarded, progress_shown, size
from wal2delta.errors import ConfigError, Wal2DeltaError
from wal2delta.lsn import format_lsn
from wal2delta.spark.session.failures import failure_of

if TYPE_CHECKING:
    from wal2delta.inspection import Inspection
    from wal2delta.report import RunReport
    from wal2delta.spark.ledger.status import Cut, TargetStatus

app = typer.Typer(
    name="wal2delta",
    help="Make Delta tables of archived PostgreSQL logical replication streams (pgoutput).",
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)

TRACEBACK_VARIABLE: Final = "WAL2DELTA_TRACEBACK"

# typer brings click along or has it inside, by version; both name the base of usage errors like this.
_UsageError: Final = next(kind for kind in typer.BadParameter.__mro__ if kind.__name__ == "ClickException")

_INTERRUPTED: Final = 130

_Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]
_Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="Say nothing while it works.")]
_Target = Annotated[
    str,
    typer.Option("--target", help="Folder of the Delta tables, or catalog[.schema].", metavar="URI|CATALOG"),
]
_Traceback = Annotated[
    bool, typer.Option("--traceback", help=f"Show where an error comes from (or set {TRACEBACK_VARIABLE}=1).")
]


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line and give its exit code."""
    with guarded():
        return _main(argv)


def _main(argv: Sequence[str] | None) -> int:
    arguments = list(sys.argv[1:] if argv is None else argv)
    try:
        code = app(arguments, prog_name="wal2delta", standalone_mode=False)
        if code == _INTERRUPTED:  # some versions of typer turn the interrupt into this
            raise KeyboardInterrupt
    except BrokenPipeError:  # `wal2delta inspect … | head`
        drop_output()
        return 0
    except (KeyboardInterrupt, typer.Abort):
        _say("error: interrupted; run it again, it goes on where it stopped")
        return _INTERRUPTED
    except Exception as error:
        if "--traceback" in arguments or os.environ.get(TRACEBACK_VARIABLE, "0") not in ("", "0"):
            # What Spark has thrown stands behind an error of ours.
            error.__suppress_context__ = False
            Output.of_errors().traceback()
        text, code = explain(error)
        _say(f"error: {text}")
    return code if isinstance(code, int) else 0


@app.callback(invoke_without_command=True)
def _root(
    context: typer.Context,
    version: Annotated[bool, typer.Option("--version", help="Print the version.")] = False,
) -> None:
    if version:
        Output().line(f"wal2delta {wal2delta.__version__}")
        raise typer.Exit
    if context.invoked_subcommand is None:
        Output().lines(context.get_help())


@app.command("apply")
def apply_command(
    captures: Annotated[str, typer.Option("--captures", help="Folder of the capture files.", metavar="URI")],
    target: _Target,
    config: Annotated[str | None, typer.Option("--config", help="Configuration (YAML).", metavar="FILE")] = None,
    allow_gaps: Annotated[
        bool,
        typer.Option("--allow-gaps", help="Go on where something is missing; leave out and name what is not whole."),
    ] = False,
    accept_changed_tables: Annotated[
        bool,
        typer.Option("--accept-changed-tables", help="Go on from tables that somebody else has changed, as they are."),
    ] = False,
    show: Annotated[int, typer.Option("--show", help="Print the first rows of each table.", min=0)] = 0,
    as_json: _Json = False,
    quiet: _Quiet = False,
    with_traceback: _Traceback = False,
) -> None:
    """Apply what is new in the captures to the target's tables."""
    from wal2delta.settings import load_settings

    settings = load_settings(config)
    if allow_gaps:
        settings = settings.allowing_gaps()
    if accept_changed_tables:
        settings = settings.accepting_changed_tables()
    progress = progress_shown(quiet=quiet)
    try:
        progress.stage("start Spark", None)
        from wal2delta.spark.session.session import build_session

        spark = build_session()
        report = wal2delta.apply(spark, captures=captures, target=target, config=settings, progress=progress)
    finally:
        progress.done()
    output = Output()
    if as_json:
        output.json(report.to_dict(), indent=2)
        return
    write_report(output, report)
    if show:
        from wal2delta.spark.delta.preview import first_rows

        for table in report.tables:
            columns, rows = first_rows(spark, table.location, show)
            output.line()
            output.table(columns, rows, title=table.name)


@app.command("inspect")
def inspect_command(
    paths: Annotated[list[str], typer.Argument(help="Capture files and folders.", metavar="PATH...")],
    messages: Annotated[bool, typer.Option("--messages", help="List every message.")] = False,
    framing: Annotated[
        str | None,
        typer.Option("--framing", help="Such as raw or pgcopy, where the bytes do not tell."),
    ] = None,
    source_encoding: Annotated[
        str,
        typer.Option(
            "--source-encoding", help="The client_encoding that the captures were recorded with.", metavar="NAME"
        ),
    ] = "UTF8",
    as_json: _Json = False,
    with_traceback: _Traceback = False,
) -> None:
    """Say what is in capture files; needs no Spark."""
    _check_framing(framing)
    output = Output()
    if messages:
        from wal2delta.transcript import transcribe

        path = None
        for line in transcribe(paths, framing, source_encoding=source_encoding):
            if as_json:
                values = {
                    "path": line.path,
                    "offset": line.offset,
                    "message": line.message,
                    "details": line.details,
                }
                output.json(values)
                continue
            if line.path != path:
                path = line.path
                output.line(path, style="bold")
            output.line(f"{line.offset:>12}  {line.message:<16}  {line.details}".rstrip())
        return
    from wal2delta.inspection import inspect_captures

    inspection = inspect_captures(paths, framing, source_encoding=source_encoding)
    if as_json:
        output.json(inspection_to_dict(inspection), indent=2)
    else:
        write_inspection(output, inspection)


@app.command("status")
def status_command(
    target: _Target,
    at: Annotated[
        int | None,
        typer.Option("--at", help="Say which Delta version each table had after this run.", metavar="RUN"),
    ] = None,
    as_json: _Json = False,
    with_traceback: _Traceback = False,
) -> None:
    """Say what a target holds: its runs, up to which LSN, and transactions still open."""
    from wal2delta.spark.session.session import build_session

    output = Output()
    if at is not None:
        cut = wal2delta.versions_at(build_session(), target, at)
        if as_json:
            output.json(cut_to_dict(cut), indent=2)
        else:
            write_cut(output, cut)
        return
    found = wal2delta.status(build_session(), target)
    if as_json:
        output.json(status_to_dict(found), indent=2)
    else:
        write_status(output, found)


# Errors


def explain(error: Exception) -> tuple[str, int]:
    """Put an error into one line, and give the exit code; no text of it quotes a row's value."""
    if isinstance(error, Wal2DeltaError):
        return str(error), error.exit_code
    if isinstance(error, _UsageError):
        return f"{error.format_message()} See wal2delta --help", 2  # type: ignore[attr-defined]
    if isinstance(error, ModuleNotFoundError) and (error.name or "").split(".")[0] in (
        "pyspark",
        "delta",
        "py4j",
    ):
        return (
            f"{error.name} is not installed. Install Spark and Delta with: pip install 'wal2delta[spark]'",
            2,
        )
    failure = failure_of(error)
    if failure is not None:
        return str(failure), failure.exit_code
    if isinstance(error, OSError):
        return f"{error.filename}: {error.strerror}" if error.filename else str(error), 1
    # A fault of the program.  Its message may hold a value, so it is shown on request only.
    frame = traceback.extract_tb(error.__traceback__)[-1]
    place = f"{Path(frame.filename).name}:{frame.lineno}"
    return f"{type(error).__name__} in {place}, a fault of wal2delta. Run with --traceback to see more", 1


def _check_framing(framing: str | None) -> None:
    from wal2delta.protocol.framing import Framing

    known = [item.value for item in Framing]
    if framing is not None and framing not in known:
        raise ConfigError(f"--framing {framing}: there is no such framing", remedy=f"There are {', '.join(known)}")


def _say(text: str) -> None:
    Output.of_errors().line(text)


# Results

_IDENTITIES: Final = {"d": "default", "n": "nothing", "f": "full", "i": "index"}


def write_report(output: Output, report: RunReport) -> None:
    """Write what a run did."""
    number = "" if report.run is None else f"run {report.run}: "
    if report.status == "nothing new":
        output.line(f"{number}nothing new in {report.captures} ({report.seconds:.1f} s)")
    else:
        output.line(
            f"{number}{_counted(report.transactions, 'transaction')}, {_counted(report.changes, 'row change')} from "
            f"{_counted(report.files, 'file')} ({size(report.capture_bytes)}) applied to {report.target} "
            f"in {report.seconds:.1f} s"
        )
    if report.applied_lsn is not None:
        output.line(f"applied up to LSN {format_lsn(report.applied_lsn)}{_committed(report.applied_commit_ts)}")
    if report.tables:
        output.line()
        output.table(
            ("table", "action", "changes", "inserted", "updated", "deleted", "version", "seconds"),
            [
                (
                    table.name,
                    f"{table.action}, truncated" if table.truncated else table.action,
                    table.changes,
                    table.inserted,
                    table.updated,
                    table.deleted,
                    table.version,
                    table.seconds,
                )
                for table in report.tables
            ],
        )
    for table in report.tables:
        for note in table.notes:
            output.line(f"note: {table.name}: {note}")
    for warning in report.warnings:
        output.line(f"warning: {warning}", style="yellow")


def _counted(number: int, thing: str) -> str:
    return f"{number:,} {thing}{'' if number == 1 else 's'}"


def write_inspection(output: Output, inspection: Inspection) -> None:
    """Write what is in capture files."""
    output.line(f"{inspection.transactions:,} transactions, {inspection.changes:,} row changes")
    if inspection.first_lsn is not None and inspection.last_lsn is not None:
        output.line(f"LSN     {format_lsn(inspection.first_lsn)} to {format_lsn(inspection.last_lsn)}")
    if inspection.first_commit is not None and inspection.last_commit is not None:
        output.line(f"commits {_time(inspection.first_commit)} to {_time(inspection.last_commit)}")
    output.line()
    output.table(
        ("file", "framing", "compression", "bytes", "messages", "transactions", "note"),
        [
            (
                file.path,
                file.framing,
                file.compression,
                file.bytes,
                file.messages,
                file.transactions,
                file.note,
            )
            for file in inspection.files
        ],
    )
    output.line()
    output.table(("message", "count"), sorted(inspection.messages.items(), key=lambda item: -item[1]))
    if inspection.relations:
        output.line()
        output.table(
            ("relation", "oid", "identity", "key", "columns", "inserts", "updates", "deletes", "truncates"),
            [
                (
                    relation.name,
                    str(relation.oid),
                    _IDENTITIES.get(relation.replica_identity, relation.replica_identity),
                    ", ".join(relation.key),
                    relation.columns,
                    relation.inserts,
                    relation.updates,
                    relation.deletes,
                    relation.truncates,
                )
                for relation in inspection.relations
            ],
        )


def inspection_to_dict(inspection: Inspection) -> dict[str, Any]:
    """Give an inspection as values that JSON knows."""
    files = ("path", "framing", "compression", "bytes", "messages", "transactions", "note")
    relations = (
        "name", "oid", "replica_identity", "columns", "key", "inserts", "updates", "deletes", "truncates",
    )  # fmt: skip
    return {
        "files": _records(inspection.files, files),
        "messages": dict(inspection.messages),
        "transactions": inspection.transactions,
        "changes": inspection.changes,
        "relations": _records(inspection.relations, relations),
        "first_lsn": _lsn(inspection.first_lsn),
        "last_lsn": _lsn(inspection.last_lsn),
        "first_commit": _iso(inspection.first_commit),
        "last_commit": _iso(inspection.last_commit),
    }


def write_status(output: Output, status: TargetStatus) -> None:
    """Write what a target holds."""
    if status.applied_lsn is None:
        output.line(f"{status.target}: nothing has been applied yet")
    else:
        when = _committed(status.applied_commit_ts)
        output.line(f"{status.target}: applied up to LSN {format_lsn(status.applied_lsn)}{when}")
    if status.at_work is not None:
        run = status.at_work
        who = f"{run.user} on {run.host} (process {run.pid}, since {_time(run.since)})"
        seen = f"its last sign of life was at {_time(run.beat)}"
        if run.alive:
            output.line(f"run {run.run} is at work: {who}; {seen}")
        else:
            output.line(f"run {run.run} was interrupted: {who}; {seen}. The next run takes over", style="yellow")
    if status.runs:
        output.line()
        output.table(
            ("run", "state", "started", "finished", "LSN", "files", "transactions", "changes", "tables"),
            [
                (
                    run.run,
                    run.state,
                    _time(run.started_at),
                    _time(run.finished_at),
                    _lsn(run.applied_lsn),
                    run.files,
                    run.transactions,
                    run.changes,
                    _count(run.tables),
                )
                for run in status.runs
            ],
        )
    if status.open_transactions:
        output.line()
        output.table(
            ("open transaction", "xid", "gid", "LSN", "began in", "offset", "since", "age", "size", "segments"),
            [
                (
                    item.kind,
                    str(item.xid),
                    item.gid,
                    _lsn(item.lsn),
                    item.began_at_file,
                    item.offset,
                    _time(item.since),
                    None if item.age is None else age(item.age),
                    size(item.bytes),
                    item.segments,
                )
                for item in status.open_transactions
            ],
        )


def status_to_dict(status: TargetStatus) -> dict[str, Any]:
    """Give a target's status as values that JSON knows."""
    runs = (
        "run", "state", "started_at", "finished_at", "applied_lsn",
        "files", "transactions", "changes", "tables",
    )  # fmt: skip
    at_work = ("run", "user", "host", "pid", "since", "beat", "alive")
    open_transactions = (
        "kind", "xid", "gid", "lsn", "began_at_file", "offset", "since", "age", "bytes", "segments",
    )  # fmt: skip
    return {
        "target": status.target,
        "applied_lsn": _lsn(status.applied_lsn),
        "applied_commit_ts": _iso(status.applied_commit_ts),
        "at_work": next(iter(_records([status.at_work] if status.at_work else [], at_work)), None),
        "runs": _records(status.runs, runs),
        "open_transactions": _records(status.open_transactions, open_transactions),
    }


def write_cut(output: Output, cut: Cut) -> None:
    """Write which version of each table belongs to a run, and how to read it."""
    up_to = "nothing was applied yet"
    if cut.applied_lsn is not None:
        up_to = f"applied up to LSN {format_lsn(cut.applied_lsn)}{_committed(cut.applied_commit_ts)}"
    output.line(f"{cut.target}, run {cut.run}: {up_to}")
    if cut.tables:
        output.line()
        output.table(
            ("table", "version", "location"), [(table.name, table.version, table.location) for table in cut.tables]
        )
        output.line()
        for table in cut.tables:
            output.line(f"{table.sql};")


def cut_to_dict(cut: Cut) -> dict[str, Any]:
    """Give a cut as values that JSON knows."""
    return {
        "target": cut.target,
        "run": cut.run,
        "applied_lsn": _lsn(cut.applied_lsn),
        "applied_commit_ts": _iso(cut.applied_commit_ts),
        "tables": _records(cut.tables, ("name", "version", "location", "sql")),
    }


def _records(items: Iterable[Any], names: Sequence[str]) -> list[dict[str, Any]]:
    return [{name: _plain(name, getattr(item, name)) for name in names} for item in items]


def _plain(name: str, value: Any) -> Any:
    if isinstance(value, datetime):
        return value.isoformat()
    if isinstance(value, timedelta):
        return round(value.total_seconds())
    return _lsn(value) if name.endswith("lsn") else value


def _lsn(lsn: int | None) -> str | None:
    return None if lsn is None else format_lsn(lsn)


def _iso(time: datetime | None) -> str | None:
    return None if time is None else time.isoformat()


def _time(time: datetime | None) -> str | None:
    return None if time is None else time.isoformat(sep=" ", timespec="seconds")


def _committed(time: datetime | None) -> str:
    return "" if time is None else f", committed at {_time(time)}"


def _count(tables: Any) -> Any:
    return tables if isinstance(tables, int) or tables is None else len(tables)


if __name__ == "__main__":
    sys.exit(main())
