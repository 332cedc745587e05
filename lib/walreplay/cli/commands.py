"""The commands of the command line, with their arguments and options."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final, Protocol, TypeVar

import typer

import walreplay
from walreplay.cli.archives import write_audit, write_forecast, write_index
from walreplay.cli.arguments import size_of
from walreplay.cli.results import (
    as_of_to_dict,
    cut_to_dict,
    inspection_to_dict,
    status_to_dict,
    write_as_of,
    write_cut,
    write_inspection,
    write_report,
    write_status,
)
from walreplay.console import Output, progress_shown
from walreplay.errors import ConfigError

if TYPE_CHECKING:
    from walreplay.progress import Progress
    from walreplay.report import RunReport
    from walreplay.settings import Settings


class _Dictable(Protocol):
    def to_dict(self) -> dict[str, Any]: ...


_Report = TypeVar("_Report", bound=_Dictable)
_Answer = TypeVar("_Answer")

app = typer.Typer(
    name="walreplay",
    help="Turn archived PostgreSQL logical replication (pgoutput) into Delta tables.",
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)

TRACEBACK_VARIABLE: Final = "WALREPLAY_TRACEBACK"

_NOT_WHOLE: Final = 3
"""The exit code of an audit that has found something damaged or missing."""

_Captures = Annotated[str, typer.Option("--captures", help="Folder of the capture files.", metavar="URI")]
_Config = Annotated[str | None, typer.Option("--config", help="Configuration (YAML).", metavar="FILE")]
_Index = Annotated[
    str | None,
    typer.Option(
        "--index",
        help="The index's place; else _walreplay_index in the captures' folder.",
        metavar="URI|TABLE",
    ),
]
_Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]
_Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="Show no progress.")]
_Target = Annotated[
    str,
    typer.Option("--target", help="Folder of the Delta tables, or catalog[.schema].", metavar="URI|CATALOG[.SCHEMA]"),
]
_Traceback = Annotated[
    bool, typer.Option("--traceback", help=f"Show the Python traceback of an error (or set {TRACEBACK_VARIABLE}=1).")
]
_AllowGaps = Annotated[
    bool, typer.Option("--allow-gaps", help="Continue where something is missing; incomplete transactions are named.")
]
_AcceptChangedTables = Annotated[
    bool, typer.Option("--accept-changed-tables", help="Continue from tables that somebody else has changed.")
]
_Outputs = Annotated[
    list[str] | None,
    typer.Option("--output", help="mirror or changelog; else all that the configuration wants.", metavar="NAME"),
]
_RunBytes = Annotated[
    str | None,
    typer.Option("--run-bytes", help="Captures that one run reads, such as 64GiB.", metavar="BYTES"),
]
_DryRun = Annotated[bool, typer.Option("--dry-run", help="Say what would be done, and write nothing.")]
_Show = Annotated[int, typer.Option("--show", help="Print the first rows of each table.", metavar="ROWS", min=0)]


@app.callback(invoke_without_command=True)
def _root(
    context: typer.Context,
    version: Annotated[bool, typer.Option("--version", help="Print the version.")] = False,
) -> None:
    if version:
        Output().line(f"walreplay {walreplay.__version__}")
        raise typer.Exit
    if context.invoked_subcommand is None:
        Output().lines(context.get_help())


@app.command("apply")
def apply_command(
    captures: _Captures,
    target: _Target,
    config: _Config = None,
    allow_gaps: _AllowGaps = False,
    accept_changed_tables: _AcceptChangedTables = False,
    dry_run: _DryRun = False,
    show: _Show = 0,
    as_json: _Json = False,
    quiet: _Quiet = False,
    with_traceback: _Traceback = False,
) -> None:
    """Apply new captures to the Delta tables of the target."""
    settings = _settings(config, allow_gaps=allow_gaps, accept_changed_tables=accept_changed_tables)
    if dry_run:
        _forecast(captures, target, settings, as_json=as_json, quiet=quiet)
        return
    spark, report = _run(
        lambda spark, progress: walreplay.apply(
            spark, captures=captures, target=target, config=settings, progress=progress
        ),
        quiet=quiet,
    )
    _print_with_rows(spark, report, as_json=as_json, show=show)


@app.command("backfill")
def backfill_command(
    captures: _Captures,
    target: _Target,
    config: _Config = None,
    until_lsn: Annotated[
        str | None, typer.Option("--until-lsn", help="The last commit LSN that is wanted.", metavar="X/X")
    ] = None,
    until_time: Annotated[
        str | None,
        typer.Option(
            "--until-time", help="The last commit time that is wanted; UTC if no zone is given.", metavar="TS"
        ),
    ] = None,
    table: Annotated[
        str | None,
        typer.Option("--table", help="Only tables whose whole schema.table is this expression's.", metavar="RE"),
    ] = None,
    output: _Outputs = None,
    from_lsn: Annotated[
        str | None, typer.Option("--from-lsn", help="A change log's first commit LSN.", metavar="X/X")
    ] = None,
    run_bytes: _RunBytes = None,
    allow_gaps: _AllowGaps = False,
    accept_changed_tables: _AcceptChangedTables = False,
    dry_run: _DryRun = False,
    show: _Show = 0,
    as_json: _Json = False,
    quiet: _Quiet = False,
    with_traceback: _Traceback = False,
) -> None:
    """Bring a target to what the source held at an LSN or at a time."""
    from walreplay.spark.job.moments import until_of

    until_of(until_lsn, until_time)  # said before Spark starts, if it cannot be read
    size = None if run_bytes is None else size_of(run_bytes, "--run-bytes")
    settings = _settings(config, allow_gaps=allow_gaps, accept_changed_tables=accept_changed_tables)
    asked: dict[str, Any] = {
        "until_lsn": until_lsn,
        "until_time": until_time,
        "table": table,
        "outputs": output or None,
        "from_lsn": from_lsn,
        "run_bytes": size,
    }
    if dry_run:
        _forecast(captures, target, settings, as_json=as_json, quiet=quiet, **asked)
        return
    spark, report = _run(
        lambda spark, progress: walreplay.backfill(
            spark, captures=captures, target=target, config=settings, progress=progress, **asked
        ),
        quiet=quiet,
    )
    _print_with_rows(spark, report, as_json=as_json, show=show)


@app.command("rebuild")
def rebuild_command(
    table: Annotated[
        str, typer.Option("--table", help="Regular expression over the whole of schema.table.", metavar="RE")
    ],
    captures: _Captures,
    target: _Target,
    output: _Outputs = None,
    config: _Config = None,
    run_bytes: _RunBytes = None,
    allow_gaps: _AllowGaps = False,
    as_json: _Json = False,
    quiet: _Quiet = False,
    with_traceback: _Traceback = False,
) -> None:
    """Make tables of a target again from the archive: damaged ones, and what was left out before."""
    size = None if run_bytes is None else size_of(run_bytes, "--run-bytes")
    settings = _settings(config, allow_gaps=allow_gaps)
    _, report = _run(
        lambda spark, progress: walreplay.rebuild(
            spark,
            captures,
            target,
            table,
            outputs=output or None,
            config=settings,
            run_bytes=size,
            progress=progress,
        ),
        quiet=quiet,
    )
    _print(report, write_report, as_json=as_json)


@app.command("load")
def load_command(
    target: _Target,
    source: Annotated[
        str | None,
        typer.Option("--from", help="Folder of what COPY has written, or jdbc:postgresql://host/db.", metavar="URI"),
    ] = None,
    from_table: Annotated[
        str | None, typer.Option("--from-table", help="Or a table that Spark knows, for --table.", metavar="NAME")
    ] = None,
    from_query: Annotated[
        str | None, typer.Option("--from-query", help="Or a query for Spark, for --table.", metavar="SQL")
    ] = None,
    at_lsn: Annotated[
        str | None, typer.Option("--at-lsn", help="The last commit LSN that is among the rows.", metavar="X/X")
    ] = None,
    consistent_point: Annotated[
        str | None,
        typer.Option("--consistent-point", help="Or the LSN that a slot's snapshot came with.", metavar="X/X"),
    ] = None,
    describe: Annotated[
        str | None,
        typer.Option("--describe", help="What describe.sql says of the tables.", metavar="FILE"),
    ] = None,
    table: Annotated[
        str | None, typer.Option("--table", help="All rows are of this table.", metavar="SCHEMA.TABLE")
    ] = None,
    publication: Annotated[
        str | None, typer.Option("--publication", help="Of a database: whose tables are read.", metavar="NAME")
    ] = None,
    snapshot: Annotated[
        str | None, typer.Option("--snapshot", help="Of a database: an exported snapshot.", metavar="NAME")
    ] = None,
    connections: Annotated[
        int | None, typer.Option("--connections", help="Of a database: how many read at a time.", metavar="N")
    ] = None,
    captures: Annotated[
        str | None,
        typer.Option("--captures", help="Where the captures lie or will lie, for a new target.", metavar="URI"),
    ] = None,
    replace: Annotated[
        bool, typer.Option("--replace", help="Make tables anew that are there, or give up an interrupted load.")
    ] = False,
    kind: Annotated[
        str | None, typer.Option("--format", help="text, csv or binary, if files do not tell.", metavar="NAME")
    ] = None,
    delimiter: Annotated[str | None, typer.Option("--delimiter", help="As COPY was given it.", metavar="TEXT")] = None,
    null: Annotated[str | None, typer.Option("--null", help="As COPY was given it.", metavar="TEXT")] = None,
    quote: Annotated[str | None, typer.Option("--quote", help="As COPY was given it.", metavar="TEXT")] = None,
    escape: Annotated[str | None, typer.Option("--escape", help="As COPY was given it.", metavar="TEXT")] = None,
    header: Annotated[bool, typer.Option("--header", help="The first line has the columns' names.")] = False,
    config: _Config = None,
    as_json: _Json = False,
    quiet: _Quiet = False,
    with_traceback: _Traceback = False,
) -> None:
    """Give tables the rows that they had before the capture began."""
    if sum(one is not None for one in (source, from_table, from_query)) != 1:
        raise ConfigError(
            "it is not said where the rows are, or twice", remedy="Give one of --from, --from-table and --from-query"
        )
    settings = _settings(config)

    def rows(spark: Any) -> Any:
        return spark.table(from_table) if from_table is not None else spark.sql(from_query)

    _, report = _run(
        lambda spark, progress: walreplay.load(
            spark,
            source if source is not None else rows(spark),
            target,
            at_lsn,
            consistent_point=consistent_point,
            describe=describe,
            table=table,
            publication=publication,
            snapshot=snapshot,
            connections=connections,
            captures=captures,
            file_format=kind,
            delimiter=delimiter,
            null=null,
            quote=quote,
            escape=escape,
            header=header,
            replace=replace,
            config=settings,
            progress=progress,
        ),
        quiet=quiet,
    )
    _print(report, write_report, as_json=as_json)


@app.command("index")
def index_command(
    captures: _Captures,
    index: _Index = None,
    config: _Config = None,
    allow_gaps: _AllowGaps = False,
    as_json: _Json = False,
    quiet: _Quiet = False,
    with_traceback: _Traceback = False,
) -> None:
    """Write down what is in each capture file, so that later commands need not read it to know."""
    settings = _settings(config, allow_gaps=allow_gaps)
    _, report = _run(lambda spark, progress: walreplay.index(spark, captures, index, settings, progress), quiet=quiet)
    _print(report, write_index, as_json=as_json)


@app.command("audit")
def audit_command(
    captures: _Captures,
    index: _Index = None,
    config: _Config = None,
    values: Annotated[
        bool, typer.Option("--values", help="Decode everything: rows, bytes and rescued values by table.")
    ] = False,
    as_json: _Json = False,
    quiet: _Quiet = False,
    with_traceback: _Traceback = False,
) -> None:
    """Show what an archive holds, and all that is damaged or missing; exit code 3 if anything is."""
    settings = _settings(config)
    _, report = _run(
        lambda spark, progress: walreplay.audit(spark, captures, index, settings, progress, values=values),
        quiet=quiet,
    )
    _print(report, write_audit, as_json=as_json)
    if not report.is_whole:
        raise typer.Exit(_NOT_WHOLE)


@app.command("inspect")
def inspect_command(
    paths: Annotated[list[str], typer.Argument(help="Capture files and folders.", metavar="PATH...")],
    messages: Annotated[bool, typer.Option("--messages", help="List every message.")] = False,
    framing: Annotated[
        str | None,
        typer.Option("--framing", help="Such as raw or pgcopy, if it cannot be detected.", metavar="NAME"),
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
    """Show what capture files contain.  Needs no Spark."""
    _check_framing(framing)
    output = Output()
    if messages:
        from walreplay.transcript import transcribe

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
    from walreplay.inspection import inspect_captures

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
        typer.Option("--at", help="Show the Delta version that each table had after this run.", metavar="RUN"),
    ] = None,
    as_of: Annotated[
        str | None,
        typer.Option("--as-of", help="Write a query for each table as of this LSN or time.", metavar="TS|LSN"),
    ] = None,
    table: Annotated[
        str | None,
        typer.Option("--table", help="With --as-of: only tables whose schema.table this matches.", metavar="RE"),
    ] = None,
    config: _Config = None,
    as_json: _Json = False,
    with_traceback: _Traceback = False,
) -> None:
    """Show a target's runs, its applied LSN, and the transactions that are still open."""
    output = Output()
    if (as_of is not None and at is not None) or (as_of is None and (table is not None or config is not None)):
        raise ConfigError(
            "--table and --config go with --as-of, and --at with neither", remedy="Leave some of them out"
        )
    if as_of is not None:
        moment = _asked(lambda spark: walreplay.as_of(spark, target, as_of, table, config))
        if as_json:
            output.json(as_of_to_dict(moment), indent=2)
        else:
            write_as_of(output, moment)
        return
    if at is not None:
        cut = _asked(lambda spark: walreplay.versions_at(spark, target, at))
        if as_json:
            output.json(cut_to_dict(cut), indent=2)
        else:
            write_cut(output, cut)
        return
    found = _asked(lambda spark: walreplay.status(spark, target))
    if as_json:
        output.json(status_to_dict(found), indent=2)
    else:
        write_status(output, found)


@app.command("sql")
def sql_command(
    name: Annotated[str | None, typer.Argument(help="The script to print.", metavar="NAME")] = None,
    into: Annotated[str | None, typer.Option("--into", help="Copy all of them there.", metavar="FOLDER")] = None,
    with_traceback: _Traceback = False,
) -> None:
    """List, print or copy the scripts for the source: SQL and shell.  Needs no Spark."""
    from walreplay.scripts import about, copy_scripts, script, script_names

    output = Output()
    if into is not None:
        if name is not None:
            raise ConfigError("all scripts are copied", remedy="Leave out the name, or --into")
        copy_scripts(Path(into))
    elif name is not None:
        output.lines(script(name))
    else:
        output.table(("script", "what it does"), [(one, about(script(one))) for one in script_names()])


def _check_framing(framing: str | None) -> None:
    from walreplay.protocol.framing import Framing

    known = [item.value for item in Framing]
    if framing is not None and framing not in known:
        raise ConfigError(f"--framing {framing}: there is no such framing", remedy=f"There are {', '.join(known)}")


def _settings(config: str | None, *, allow_gaps: bool = False, accept_changed_tables: bool = False) -> Settings:
    from walreplay.settings import load_settings

    settings = load_settings(config)
    if allow_gaps:
        settings = settings.allowing_gaps()
    return settings.accepting_changed_tables() if accept_changed_tables else settings


def _run(work: Callable[[Any, Progress], _Report], *, quiet: bool) -> tuple[Any, _Report]:
    """Start Spark, and do some work with it under the progress display."""
    progress = progress_shown(quiet=quiet)
    try:
        progress.stage("start Spark", None)
        from walreplay.spark.session.session import build_session

        spark = build_session(progress=progress)
        return spark, work(spark, progress)
    finally:
        progress.done()


def _asked(question: Callable[[Any], _Answer]) -> _Answer:
    """Start Spark, and ask something of it without the progress display."""
    from walreplay.spark.session.session import build_session

    return question(build_session(progress=progress_shown(quiet=False)))


def _forecast(captures: str, target: str, settings: Settings, *, as_json: bool, quiet: bool, **asked: Any) -> None:
    """Print what a command would do."""
    _, report = _run(
        lambda spark, progress: walreplay.forecast(spark, captures, target, settings, progress=progress, **asked),
        quiet=quiet,
    )
    _print(report, write_forecast, as_json=as_json)


def _print(report: _Report, write: Callable[[Output, _Report], None], *, as_json: bool) -> None:
    output = Output()
    if as_json:
        output.json(report.to_dict(), indent=2)
    else:
        write(output, report)


def _print_with_rows(spark: Any, report: RunReport, *, as_json: bool, show: int) -> None:
    """Print a report, and for people the first rows of each of its tables."""
    _print(report, write_report, as_json=as_json)
    if as_json or not show:
        return
    from walreplay.spark.delta.preview import first_rows

    output = Output()
    for table in report.tables:
        columns, rows = first_rows(spark, table.location, show)
        output.line()
        output.table(columns, rows, title=table.name)
