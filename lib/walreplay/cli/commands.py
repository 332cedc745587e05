"""The commands that write to a target, with their arguments and options."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Annotated, Any

import typer

import walreplay
from walreplay.cli.by_source import apply_by_source, maintain_by_source, place_of, settings_of
from walreplay.cli.printing import Printing, write_forecast, write_maintenance, write_report
from walreplay.cli.running import (
    AcceptChangedTables,
    AllowGaps,
    AtOnce,
    Captures,
    Config,
    DryRun,
    Json,
    Metrics,
    Outputs,
    Quiet,
    Report,
    Show,
    Sources,
    Target,
    Traceback,
    asked,
    configuration,
    print_report,
    print_with_rows,
    run,
)
from walreplay.console import Screen
from walreplay.errors import ConfigError

if TYPE_CHECKING:
    from walreplay.config import Settings

app = typer.Typer(
    name="walreplay",
    help="Turn archived PostgreSQL logical replication (pgoutput) into Delta tables.",
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)


@app.callback(invoke_without_command=True)
def _root(
    context: typer.Context,
    version: Annotated[bool, typer.Option("--version", help="Print the version.")] = False,
) -> None:
    if version:
        Screen().line(f"walreplay {walreplay.__version__}")
        raise typer.Exit
    if context.invoked_subcommand is None:
        Screen().lines(context.get_help())


UntilLsn = Annotated[str | None, typer.Option("--until-lsn", help="The last commit LSN that is wanted.", metavar="X/X")]
UntilTime = Annotated[
    str | None,
    typer.Option("--until-time", help="The last commit time that is wanted; UTC if no zone is given.", metavar="TS"),
]
Tables = Annotated[
    str | None,
    typer.Option("--table", help="Only tables whose whole schema.table is this expression's.", metavar="RE"),
]
FromLsn = Annotated[str | None, typer.Option("--from-lsn", help="A change log's first commit LSN.", metavar="X/X")]
FromPlace = Annotated[
    str | None,
    typer.Option("--from", help="Folder of what COPY has written, or jdbc:postgresql://host/db.", metavar="URI"),
]
FromTable = Annotated[
    str | None, typer.Option("--from-table", help="Or a table that Spark knows, for --table.", metavar="NAME")
]
FromQuery = Annotated[
    str | None, typer.Option("--from-query", help="Or a query for Spark, for --table.", metavar="SQL")
]
AtLsn = Annotated[
    str | None, typer.Option("--at-lsn", help="The last commit LSN that is among the rows.", metavar="X/X")
]
ConsistentPoint = Annotated[
    str | None,
    typer.Option("--consistent-point", help="Or the LSN that a slot's snapshot came with.", metavar="X/X"),
]
Describe = Annotated[
    str | None,
    typer.Option("--describe", help="What describe.sql says of the tables.", metavar="FILE"),
]
OfTable = Annotated[str | None, typer.Option("--table", help="All rows are of this table.", metavar="SCHEMA.TABLE")]
Publication = Annotated[
    str | None, typer.Option("--publication", help="Of a database: whose tables are read.", metavar="NAME")
]
Snapshot = Annotated[
    str | None, typer.Option("--snapshot", help="Of a database: an exported snapshot.", metavar="NAME")
]
Connections = Annotated[
    int | None, typer.Option("--connections", help="Of a database: how many read at a time.", metavar="N")
]
CapturesPlace = Annotated[
    str | None,
    typer.Option("--captures", help="Where the captures lie or will lie, for a new target.", metavar="URI"),
]
Replace = Annotated[
    bool, typer.Option("--replace", help="Make tables anew that are there, or give up an interrupted load.")
]
GiveUp = Annotated[
    bool, typer.Option("--give-up", help="Only forget a load that was interrupted while it read its rows.")
]
CopyFormat = Annotated[
    str | None, typer.Option("--format", help="text, csv or binary, if files do not tell.", metavar="NAME")
]
Delimiter = Annotated[str | None, typer.Option("--delimiter", help="As COPY was given it.", metavar="TEXT")]
Null = Annotated[str | None, typer.Option("--null", help="As COPY was given it.", metavar="TEXT")]
Quote = Annotated[str | None, typer.Option("--quote", help="As COPY was given it.", metavar="TEXT")]
Escape = Annotated[str | None, typer.Option("--escape", help="As COPY was given it.", metavar="TEXT")]
Header = Annotated[bool, typer.Option("--header", help="The first line has the columns' names.")]
OfSource = Annotated[
    str | None,
    typer.Option("--source", help="The source of the configuration that has the rows.", metavar="NAME"),
]


@app.command("apply")
def apply_command(
    target: Target,
    captures: Captures = None,
    config: Config = None,
    source: Sources = None,
    at_once: AtOnce = 1,
    allow_gaps: AllowGaps = False,
    accept_changed_tables: AcceptChangedTables = False,
    dry_run: DryRun = False,
    show: Show = 0,
    as_json: Json = False,
    report_file: Report = None,
    metrics: Metrics = None,
    quiet: Quiet = False,
    with_traceback: Traceback = False,
) -> None:
    """Apply new captures to the Delta tables of the target."""
    printing = Printing(as_json, report_file)
    found = configuration(config, allow_gaps=allow_gaps, accept_changed_tables=accept_changed_tables)
    if found.sources and not dry_run:
        apply_by_source(
            target,
            found,
            source,
            at_once,
            captures=captures,
            show=show,
            printing=printing,
            quiet=quiet,
            metrics=metrics,
        )
        return
    place, settings = place_of(found, source, at_once, captures, "a dry run" if dry_run else "")
    if dry_run:
        _forecast(place, target, settings, printing, quiet=quiet)
        return
    spark, report = run(
        lambda spark, progress: walreplay.apply(
            spark, captures=place, target=target, config=settings, progress=progress, metrics=metrics
        ),
        quiet=quiet,
    )
    print_with_rows(spark, report, printing, show=show)


@app.command("backfill")
def backfill_command(
    target: Target,
    captures: Captures = None,
    config: Config = None,
    source: Sources = None,
    at_once: AtOnce = 1,
    until_lsn: UntilLsn = None,
    until_time: UntilTime = None,
    table: Tables = None,
    output: Outputs = None,
    from_lsn: FromLsn = None,
    allow_gaps: AllowGaps = False,
    accept_changed_tables: AcceptChangedTables = False,
    dry_run: DryRun = False,
    show: Show = 0,
    as_json: Json = False,
    report_file: Report = None,
    metrics: Metrics = None,
    quiet: Quiet = False,
    with_traceback: Traceback = False,
) -> None:
    """Bring a target to what the source held at an LSN or at a time."""
    printing = Printing(as_json, report_file)
    from walreplay.job.as_of import until_of

    until_of(until_lsn, until_time)  # said before Spark starts, if it cannot be read
    found = configuration(config, allow_gaps=allow_gaps, accept_changed_tables=accept_changed_tables)
    ends: dict[str, Any] = {"until_lsn": until_lsn, "until_time": until_time}
    parts: dict[str, Any] = {"table": table, "outputs": output or None, "from_lsn": from_lsn}
    alone = _alone(dry_run, parts)
    if found.sources and not alone:
        apply_by_source(
            target,
            found,
            source,
            at_once,
            captures=captures,
            show=show,
            printing=printing,
            quiet=quiet,
            metrics=metrics,
            **ends,
        )
        return
    place, settings = place_of(found, source, at_once, captures, alone)
    if dry_run:
        _forecast(place, target, settings, printing, quiet=quiet, **ends, **parts)
        return
    spark, report = run(
        lambda spark, progress: walreplay.backfill(
            spark, captures=place, target=target, config=settings, progress=progress, metrics=metrics, **ends, **parts
        ),
        quiet=quiet,
    )
    print_with_rows(spark, report, printing, show=show)


@app.command("rebuild")
def rebuild_command(
    table: Annotated[
        str, typer.Option("--table", help="Regular expression over the whole of schema.table.", metavar="RE")
    ],
    target: Target,
    captures: Captures = None,
    output: Outputs = None,
    config: Config = None,
    source: Sources = None,
    base: Annotated[
        str | None,
        typer.Option("--base", help="Where the files of the tables' base load are, if they were moved.", metavar="URI"),
    ] = None,
    allow_gaps: AllowGaps = False,
    as_json: Json = False,
    report_file: Report = None,
    quiet: Quiet = False,
    with_traceback: Traceback = False,
) -> None:
    """Make tables of a target again from the archive: damaged ones, and what was left out before."""
    found = configuration(config, allow_gaps=allow_gaps)
    place, settings = place_of(found, source, 1, captures, "a rebuild")
    _, report = run(
        lambda spark, progress: walreplay.rebuild(
            spark,
            place,
            target,
            table,
            outputs=output or None,
            config=settings,
            base=base,
            progress=progress,
        ),
        quiet=quiet,
    )
    print_report(report, write_report, Printing(as_json, report_file))


@app.command("load")
def load_command(
    target: Target,
    source: FromPlace = None,
    from_table: FromTable = None,
    from_query: FromQuery = None,
    at_lsn: AtLsn = None,
    consistent_point: ConsistentPoint = None,
    describe: Describe = None,
    table: OfTable = None,
    publication: Publication = None,
    snapshot: Snapshot = None,
    connections: Connections = None,
    captures: CapturesPlace = None,
    replace: Replace = False,
    give_up: GiveUp = False,
    kind: CopyFormat = None,
    delimiter: Delimiter = None,
    null: Null = None,
    quote: Quote = None,
    escape: Escape = None,
    header: Header = False,
    config: Config = None,
    of_source: OfSource = None,
    as_json: Json = False,
    report_file: Report = None,
    quiet: Quiet = False,
    with_traceback: Traceback = False,
) -> None:
    """Give tables the rows that they had before the capture began."""
    rows_of = _rows_of(source, from_table, from_query, give_up=give_up)
    settings = settings_of(configuration(config), of_source)
    if give_up:
        Screen().line(asked(lambda spark: walreplay.give_up_load(spark, target, settings)))
        return
    _, report = run(
        lambda spark, progress: walreplay.load(
            spark,
            rows_of(spark),
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
    print_report(report, write_report, Printing(as_json, report_file))


def _rows_of(place: str | None, table: str | None, query: str | None, *, give_up: bool) -> Callable[[Any], Any]:
    """Return what finds the rows of a load in a session: their place, or a DataFrame."""
    if sum(one is not None for one in (place, table, query)) != (0 if give_up else 1):
        raise ConfigError(
            "it is not said where the rows are, or twice",
            remedy="Give one of --from, --from-table and --from-query, or --give-up",
        )
    if place is not None:
        return lambda _: place
    return lambda spark: spark.table(table) if table is not None else spark.sql(str(query))


@app.command("maintain")
def maintain_command(
    target: Target,
    table: Annotated[
        str | None,
        typer.Option("--table", help="Only tables whose whole schema.table is this expression's.", metavar="RE"),
    ] = None,
    config: Config = None,
    source: Sources = None,
    dry_run: DryRun = False,
    as_json: Json = False,
    report_file: Report = None,
    quiet: Quiet = False,
    with_traceback: Traceback = False,
) -> None:
    """Write small files together, remove unreferenced ones, and clean up the ledger, where that is needed."""
    printing = Printing(as_json, report_file)
    found = configuration(config)
    if found.sources:
        is_done = maintain_by_source(target, found, source, table, dry_run=dry_run, printing=printing, quiet=quiet)
    else:
        settings = settings_of(found, source[0] if source else None)
        _, report = run(
            lambda spark, progress: walreplay.maintain(
                spark, target, table, config=settings, dry_run=dry_run, progress=progress
            ),
            quiet=quiet,
        )
        print_report(report, write_maintenance, printing)
        is_done = not report.has_failed
    if not is_done:
        raise typer.Exit(1)


def _alone(dry_run: bool, parts: Mapping[str, Any]) -> str:
    """Return what makes a backfill one of a single source; empty if nothing does."""
    if dry_run:
        return "a dry run"
    return "a backfill of a part" if any(one is not None for one in parts.values()) else ""


def _forecast(captures: str, target: str, settings: Settings, printing: Printing, *, quiet: bool, **asked: Any) -> None:
    """Print what a command would do."""
    _, report = run(
        lambda spark, progress: walreplay.forecast(spark, captures, target, settings, progress=progress, **asked),
        quiet=quiet,
    )
    print_report(report, write_forecast, printing)
