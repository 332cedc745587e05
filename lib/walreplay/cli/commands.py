"""The commands of the command line, with their arguments and options."""

from __future__ import annotations

from typing import Annotated, Final

import typer

import walreplay
from walreplay.cli.archives import write_audit, write_index
from walreplay.cli.arguments import size_of
from walreplay.cli.by_source import apply_by_source, look_by_source, refuse_sources, settings_of, status_by_source
from walreplay.cli.results import (
    cut_to_dict,
    inspection_to_dict,
    status_to_dict,
    write_cut,
    write_inspection,
    write_report,
    write_status,
)
from walreplay.cli.running import asked as _asked
from walreplay.cli.running import captures_given, print_with_rows
from walreplay.cli.running import configuration as _configuration
from walreplay.cli.running import print_report as _print
from walreplay.cli.running import run as _run
from walreplay.console import Output
from walreplay.errors import ConfigError

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

_Captures = Annotated[
    str | None,
    typer.Option("--captures", help="Folder of the capture files, if the configuration has no sources.", metavar="URI"),
]
_Sources = Annotated[
    list[str] | None,
    typer.Option(
        "--source", help="Only this source of the configuration; several by several --source.", metavar="NAME"
    ),
]
_AtOnce = Annotated[int, typer.Option("--at-once", help="So many sources at the same time.", metavar="N", min=1)]
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
    target: _Target,
    captures: _Captures = None,
    config: _Config = None,
    source: _Sources = None,
    at_once: _AtOnce = 1,
    allow_gaps: _AllowGaps = False,
    accept_changed_tables: _AcceptChangedTables = False,
    show: _Show = 0,
    as_json: _Json = False,
    quiet: _Quiet = False,
    with_traceback: _Traceback = False,
) -> None:
    """Apply new captures to the Delta tables of the target."""
    found = _configuration(config, allow_gaps=allow_gaps, accept_changed_tables=accept_changed_tables)
    if found.sources:
        apply_by_source(target, found, source, at_once, captures=captures, show=show, as_json=as_json, quiet=quiet)
        return
    refuse_sources(source, at_once)
    place, settings = captures_given(captures), found.single()
    spark, report = _run(
        lambda spark, progress: walreplay.apply(
            spark, captures=place, target=target, config=settings, progress=progress
        ),
        quiet=quiet,
    )
    print_with_rows(spark, report, as_json=as_json, show=show)


@app.command("backfill")
def backfill_command(
    target: _Target,
    captures: _Captures = None,
    config: _Config = None,
    source: _Sources = None,
    at_once: _AtOnce = 1,
    until_lsn: Annotated[
        str | None, typer.Option("--until-lsn", help="The last commit LSN that is wanted.", metavar="X/X")
    ] = None,
    until_time: Annotated[
        str | None,
        typer.Option(
            "--until-time", help="The last commit time that is wanted; UTC if no zone is given.", metavar="TS"
        ),
    ] = None,
    run_bytes: Annotated[
        str | None,
        typer.Option("--run-bytes", help="Captures that one run reads, such as 64GiB.", metavar="BYTES"),
    ] = None,
    allow_gaps: _AllowGaps = False,
    accept_changed_tables: _AcceptChangedTables = False,
    show: _Show = 0,
    as_json: _Json = False,
    quiet: _Quiet = False,
    with_traceback: _Traceback = False,
) -> None:
    """Bring a target to what the source held at an LSN or at a time."""
    from walreplay.spark.job.moments import until_of

    until_of(until_lsn, until_time)  # said before Spark starts, if it cannot be read
    size = None if run_bytes is None else size_of(run_bytes, "--run-bytes")
    found = _configuration(config, allow_gaps=allow_gaps, accept_changed_tables=accept_changed_tables)
    if found.sources:
        apply_by_source(
            target,
            found,
            source,
            at_once,
            captures=captures,
            show=show,
            as_json=as_json,
            quiet=quiet,
            until_lsn=until_lsn,
            until_time=until_time,
            run_bytes=size,
        )
        return
    refuse_sources(source, at_once)
    place, settings = captures_given(captures), found.single()
    spark, report = _run(
        lambda spark, progress: walreplay.backfill(
            spark,
            captures=place,
            target=target,
            config=settings,
            until_lsn=until_lsn,
            until_time=until_time,
            run_bytes=size,
            progress=progress,
        ),
        quiet=quiet,
    )
    print_with_rows(spark, report, as_json=as_json, show=show)


@app.command("load")
def load_command(
    source: Annotated[
        str, typer.Option("--from", help="Folder of what COPY has written, named by table.", metavar="URI")
    ],
    target: _Target,
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
        str | None, typer.Option("--table", help="All files are of this table.", metavar="SCHEMA.TABLE")
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
    of_source: Annotated[
        str | None,
        typer.Option("--source", help="The source of the configuration that has the rows.", metavar="NAME"),
    ] = None,
    as_json: _Json = False,
    quiet: _Quiet = False,
    with_traceback: _Traceback = False,
) -> None:
    """Give tables the rows that they had before the capture began."""
    settings = settings_of(_configuration(config), of_source)
    _, report = _run(
        lambda spark, progress: walreplay.load(
            spark,
            source,
            target,
            at_lsn,
            consistent_point=consistent_point,
            describe=describe,
            table=table,
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
    captures: _Captures = None,
    index: _Index = None,
    config: _Config = None,
    source: _Sources = None,
    as_json: _Json = False,
    quiet: _Quiet = False,
    with_traceback: _Traceback = False,
) -> None:
    """Write down what is in each capture file, so that later commands need not read it to know."""
    found = _configuration(config)
    if found.sources:
        look_by_source("index", found, source, captures=captures, index=index, as_json=as_json, quiet=quiet)
        return
    refuse_sources(source, 1)
    place, settings = captures_given(captures), found.single()
    _, report = _run(lambda spark, progress: walreplay.index(spark, place, index, settings, progress), quiet=quiet)
    _print(report, write_index, as_json=as_json)


@app.command("audit")
def audit_command(
    captures: _Captures = None,
    index: _Index = None,
    config: _Config = None,
    source: _Sources = None,
    values: Annotated[
        bool, typer.Option("--values", help="Decode everything: rows, bytes and rescued values by table.")
    ] = False,
    as_json: _Json = False,
    quiet: _Quiet = False,
    with_traceback: _Traceback = False,
) -> None:
    """Show what an archive holds, and all that is damaged or missing; exit code 3 if anything is."""
    found = _configuration(config)
    if found.sources:
        is_whole = look_by_source(
            "audit", found, source, captures=captures, index=index, as_json=as_json, quiet=quiet, values=values
        )
        if not is_whole:
            raise typer.Exit(_NOT_WHOLE)
        return
    refuse_sources(source, 1)
    place, settings = captures_given(captures), found.single()
    _, report = _run(
        lambda spark, progress: walreplay.audit(spark, place, index, settings, progress, values=values),
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
    config: _Config = None,
    source: _Sources = None,
    as_json: _Json = False,
    with_traceback: _Traceback = False,
) -> None:
    """Show a target's runs, its applied LSN, and the transactions that are still open."""
    given = None if config is None else _configuration(config)
    if source or (given is not None and given.sources):
        status_by_source(target, given, source, at, as_json=as_json)
        return
    output = Output()
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


def _check_framing(framing: str | None) -> None:
    from walreplay.protocol.framing import Framing

    known = [item.value for item in Framing]
    if framing is not None and framing not in known:
        raise ConfigError(f"--framing {framing}: there is no such framing", remedy=f"There are {', '.join(known)}")
