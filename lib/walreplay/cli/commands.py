"""The commands that write to a target, with their arguments and options."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

import walreplay
from walreplay.cli.by_source import apply_by_source, maintain_by_source, place_of, settings_of
from walreplay.cli.printing import Printing, write_forecast, write_maintenance, write_report
from walreplay.cli.running import (
    AcceptChangedTables,
    AllowGaps,
    Captures,
    Config,
    DryRun,
    Json,
    Metrics,
    Outputs,
    Quiet,
    Report,
    Sources,
    Target,
    asked,
    configuration,
    run_and_print,
)
from walreplay.console import Screen
from walreplay.errors import ConfigError

if TYPE_CHECKING:
    from walreplay.config import Settings

app = typer.Typer(
    name="walreplay",
    help="Turn archived PostgreSQL logical replication (pgoutput) into Delta tables.",
    add_completion=False,
    pretty_exceptions_enable=False,  # typer's tracebacks show values of variables
    rich_markup_mode=None,  # names in brackets are no markup
)


@app.callback(invoke_without_command=True)
def _root(
    context: typer.Context,
    version: Annotated[bool, typer.Option("--version", help="Print the version.")] = False,
    scripts: Annotated[
        Path | None,
        typer.Option("--scripts", help="Copy the scripts for the source there: SQL and shell.", metavar="FOLDER"),
    ] = None,
) -> None:
    if version:
        Screen().line(f"walreplay {walreplay.__version__}")
        raise typer.Exit
    if scripts is not None:
        from walreplay.scripts import about, copy_scripts

        copies = copy_scripts(scripts)
        Screen().table(("script", "what it does"), [(copy.name, about(copy.read_text("utf-8"))) for copy in copies])
        raise typer.Exit
    if context.invoked_subcommand is None:  # help, without an error
        Screen().lines(context.get_help())


UntilLsn = Annotated[str | None, typer.Option("--until-lsn", help="The last commit LSN that is wanted.", metavar="X/X")]
UntilTime = Annotated[
    str | None,
    typer.Option("--until-time", help="The last commit time that is wanted; UTC if no zone is given.", metavar="TS"),
]
Tables = Annotated[
    str | None, typer.Option("--table", help="Only tables whose whole schema.table is this expression's.", metavar="RE")
]
FromLsn = Annotated[str | None, typer.Option("--from-lsn", help="A change log's first commit LSN.", metavar="X/X")]
FromPlace = Annotated[
    str | None,
    typer.Option("--from", help="Folder of what COPY has written, or jdbc:postgresql://host/db.", metavar="URI"),
]
FromQuery = Annotated[
    str | None,
    typer.Option("--from-query", help="Or a query for Spark, such as SELECT * FROM t, for --table.", metavar="SQL"),
]
AtLsn = Annotated[
    str | None, typer.Option("--at-lsn", help="The last commit LSN that is among the rows.", metavar="X/X")
]
ConsistentPoint = Annotated[
    str | None, typer.Option("--consistent-point", help="Or the LSN that a slot's snapshot came with.", metavar="X/X")
]
Describe = Annotated[
    str | None, typer.Option("--describe", help="What describe.sql says of the tables.", metavar="FILE")
]
OfTable = Annotated[str | None, typer.Option("--table", help="All rows are of this table.", metavar="SCHEMA.TABLE")]
Publication = Annotated[
    str | None, typer.Option("--publication", help="Of a database: whose tables are read.", metavar="NAME")
]
Snapshot = Annotated[
    str | None, typer.Option("--snapshot", help="Of a database: an exported snapshot.", metavar="NAME")
]
CapturesPlace = Annotated[
    str | None, typer.Option("--captures", help="Where the captures lie or will lie, for a new target.", metavar="URI")
]
Replace = Annotated[
    bool,
    typer.Option(
        "--replace",
        help="Make tables anew that are there; an interrupted load is given up. Without rows: only give it up.",
    ),
]
CopyOptions = Annotated[
    str | None,
    typer.Option(
        "--copy-options",
        help="COPY's own, if they are not its defaults: \"format csv, header, null 'x'\".",
        metavar="OPTIONS",
    ),
]
OfSource = Annotated[
    str | None, typer.Option("--source", help="The source of the configuration that has the rows.", metavar="NAME")
]


@app.command("apply")
def apply_command(
    target: Target,
    captures: Captures = None,
    config: Config = None,
    source: Sources = None,
    allow_gaps: AllowGaps = False,
    accept_changed_tables: AcceptChangedTables = False,
    dry_run: DryRun = False,
    as_json: Json = False,
    report_file: Report = None,
    metrics: Metrics = None,
    quiet: Quiet = False,
) -> None:
    """Apply new captures to the Delta tables of the target."""
    printing = Printing(as_json, report_file, quiet)
    loaded_config = configuration(config, allow_gaps=allow_gaps, accept_changed_tables=accept_changed_tables)
    if loaded_config.sources and not dry_run:  # a forecast is of one source
        apply_by_source(target, loaded_config, source, captures=captures, printing=printing, metrics=metrics)
        return
    place, settings = place_of(loaded_config, source, captures, "a dry run" if dry_run else "")
    if dry_run:
        _forecast(place, target, settings, printing)
        return
    run_and_print(
        lambda spark, progress: walreplay.apply(
            spark, captures=place, target=target, config=settings, progress=progress, metrics=metrics
        ),
        write_report,
        printing,
    )


@app.command("backfill")
def backfill_command(
    target: Target,
    captures: Captures = None,
    config: Config = None,
    source: Sources = None,
    until_lsn: UntilLsn = None,
    until_time: UntilTime = None,
    table: Tables = None,
    output: Outputs = None,
    from_lsn: FromLsn = None,
    allow_gaps: AllowGaps = False,
    accept_changed_tables: AcceptChangedTables = False,
    dry_run: DryRun = False,
    as_json: Json = False,
    report_file: Report = None,
    metrics: Metrics = None,
    quiet: Quiet = False,
) -> None:
    """Bring a target to what the source held at an LSN or at a time."""
    printing = Printing(as_json, report_file, quiet)
    from walreplay.job.as_of import until_of

    until_of(until_lsn, until_time)  # said before Spark starts, if it cannot be read
    loaded_config = configuration(config, allow_gaps=allow_gaps, accept_changed_tables=accept_changed_tables)
    ends: dict[str, Any] = {"until_lsn": until_lsn, "until_time": until_time}
    parts: dict[str, Any] = {"table": table, "outputs": output or None, "from_lsn": from_lsn}
    alone = _alone(dry_run, parts)
    if loaded_config.sources and not alone:
        apply_by_source(target, loaded_config, source, captures=captures, printing=printing, metrics=metrics, **ends)
        return
    place, settings = place_of(loaded_config, source, captures, alone)
    if dry_run:
        _forecast(place, target, settings, printing, **ends, **parts)
        return
    run_and_print(
        lambda spark, progress: walreplay.backfill(
            spark, captures=place, target=target, config=settings, progress=progress, metrics=metrics, **ends, **parts
        ),
        write_report,
        printing,
    )


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
) -> None:
    """Make tables of a target again from the archive: damaged ones, and what was left out before."""
    loaded_config = configuration(config, allow_gaps=allow_gaps)
    place, settings = place_of(loaded_config, source, captures, "a rebuild")
    run_and_print(
        lambda spark, progress: walreplay.rebuild(
            spark, place, target, table, outputs=output or None, config=settings, base=base, progress=progress
        ),
        write_report,
        Printing(as_json, report_file, quiet),
    )


@app.command("load")
def load_command(
    target: Target,
    rows: FromPlace = None,
    query: FromQuery = None,
    at_lsn: AtLsn = None,
    consistent_point: ConsistentPoint = None,
    describe: Describe = None,
    table: OfTable = None,
    publication: Publication = None,
    snapshot: Snapshot = None,
    captures: CapturesPlace = None,
    replace: Replace = False,
    copy_options: CopyOptions = None,
    config: Config = None,
    source: OfSource = None,
    allow_gaps: AllowGaps = False,
    as_json: Json = False,
    report_file: Report = None,
    quiet: Quiet = False,
) -> None:
    """Give tables the rows that they had before the capture began."""
    if (rows is None) == (query is None) and (rows is not None or not replace):  # --replace alone gives a load up
        raise ConfigError(
            "it is not said where the rows are, or twice",
            remedy="Give one of --from and --from-query; or --replace alone, to give up an interrupted load",
        )
    from walreplay.job.as_of import last_lsn_of
    from walreplay.loading.formats import copy_options as read_copy_options

    read_copy_options(copy_options)  # said before Spark starts, if they cannot be read
    settings = settings_of(configuration(config, allow_gaps=allow_gaps), source)
    if rows is None and query is None:
        of_rows = (at_lsn, consistent_point, describe, table, publication, snapshot, captures, copy_options)
        if any(option is not None for option in of_rows):
            raise ConfigError(
                "it is said how rows are read, and not where they are",
                remedy="Give --from, or --from-query; or --replace alone, to give up an interrupted load",
            )
        Screen().line(asked(lambda spark: walreplay.give_up_load(spark, target, settings)))
        return
    last_lsn_of(at_lsn, consistent_point)  # so is an LSN
    run_and_print(
        lambda spark, progress: walreplay.load(
            spark,
            spark.sql(query) if query is not None else str(rows),
            target,
            at_lsn,
            consistent_point=consistent_point,
            describe=describe,
            table=table,
            publication=publication,
            snapshot=snapshot,
            captures=captures,
            copy_options=copy_options,
            replace=replace,
            config=settings,
            progress=progress,
        ),
        write_report,
        Printing(as_json, report_file, quiet),
    )


@app.command("maintain")
def maintain_command(
    target: Target,
    table: Tables = None,
    config: Config = None,
    source: Sources = None,
    dry_run: DryRun = False,
    as_json: Json = False,
    report_file: Report = None,
    quiet: Quiet = False,
) -> None:
    """Write small files together, remove unreferenced ones, and clean up the ledger, where that is needed."""
    printing = Printing(as_json, report_file, quiet)
    loaded_config = configuration(config)
    if loaded_config.sources:
        is_done = maintain_by_source(target, loaded_config, source, table, dry_run=dry_run, printing=printing)
    else:
        settings = settings_of(loaded_config, source[0] if source else None)  # none are configured: refuses a --source
        report = run_and_print(
            lambda spark, progress: walreplay.maintain(
                spark, target, table, config=settings, dry_run=dry_run, progress=progress
            ),
            write_maintenance,
            printing,
        )
        is_done = not report.has_failed
    if not is_done:
        raise typer.Exit(1)


def _alone(dry_run: bool, parts: Mapping[str, Any]) -> str:
    """Return what makes a backfill one of a single source; empty if nothing does."""
    if dry_run:
        return "a dry run"
    return "a backfill of a part" if any(part is not None for part in parts.values()) else ""


def _forecast(captures: str, target: str, settings: Settings, printing: Printing, **asked: Any) -> None:
    """Print what a command would do."""
    run_and_print(
        lambda spark, progress: walreplay.forecast(spark, captures, target, settings, progress=progress, **asked),
        write_forecast,
        printing,
    )
