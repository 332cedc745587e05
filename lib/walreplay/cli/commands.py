"""The commands with their arguments and options: first those that write to a target, then those that ask."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal

import typer

import walreplay
from walreplay.cli import options
from walreplay.cli.by_source import apply_by_source, each_of, named, place_of, settings_of, status_by_source
from walreplay.cli.metrics import Prometheus
from walreplay.cli.printing import (
    Printing,
    write_as_of,
    write_audit,
    write_cut,
    write_forecast,
    write_index,
    write_inspection,
    write_maintenance,
    write_report,
    write_status,
    write_verification,
)
from walreplay.cli.running import asked, configuration, run_and_print
from walreplay.console import Screen
from walreplay.errors import ConfigError

if TYPE_CHECKING:
    from walreplay.archive.audit import AuditReport
    from walreplay.archive.joining import IndexReport
    from walreplay.config import Configuration, Settings
    from walreplay.progress import Progress
    from walreplay.report import MaintenanceReport, RunReport, VerifyReport

_FAULTY: Final = 3  # the exit code of a verify that has found other rows, and of an audit that has found a fault

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
Base = Annotated[
    str | None,
    typer.Option("--base", help="Where the files of the tables' base load are, if they were moved.", metavar="URI"),
]
FromLsn = Annotated[str | None, typer.Option("--from-lsn", help="A change log's first commit LSN.", metavar="X/X")]


@app.command("record")
def record_command(
    slot: Annotated[str, typer.Option("--slot", help="The replication slot.", metavar="NAME")],
    publication: Annotated[str, typer.Option("--publication", help="Whose tables are recorded.", metavar="NAME[,…]")],
    to: Annotated[str, typer.Option("--to", help="Folder or prefix of the archive.", metavar="URI")],
    dsn: Annotated[str, typer.Option("--dsn", help="For libpq; else PGHOST and so on.", metavar="TEXT")] = "",
    create: Annotated[bool, typer.Option("--create", help="Make the slot, if the archive is new.")] = False,
    and_copy: Annotated[
        Path | None, typer.Option("--and-copy", help="With a new slot: copy the tables for load.", metavar="FOLDER")
    ] = None,
    announce: Annotated[bool, typer.Option("--announce", help="With a new slot: install the announcements.")] = False,
    new_session: Annotated[
        bool, typer.Option("--new-session", help="Go on though changes were never recorded; a name says it.")
    ] = False,
    file_bytes: Annotated[str, typer.Option(help="A file's, before it is compressed.", metavar="SIZE")] = "64MiB",
    file_seconds: Annotated[float, typer.Option(help="A file is stored after so many.", metavar="N", min=0.1)] = 60,
    spool_bytes: Annotated[
        str, typer.Option(help="So much waits in memory while the store is away.", metavar="SIZE")
    ] = "256MiB",
    heartbeat: Annotated[
        float, typer.Option(help="Seconds between messages that move a quiet slot; 0: none.", metavar="N", min=0)
    ] = 600,
    streaming: Annotated[
        Literal["on", "parallel"] | None, typer.Option(help="Large transactions while they run.", metavar="on|parallel")
    ] = None,
    two_phase: Annotated[bool, typer.Option("--two-phase", help="Transactions when they are prepared.")] = False,
    binary: Annotated[bool, typer.Option("--binary", help="Values in binary format.")] = False,
    no_messages: Annotated[bool, typer.Option("--no-messages", help="No logical messages.")] = False,
    metrics: Annotated[
        str | None, typer.Option("--metrics", help="Numbers for Prometheus, anew each minute.", metavar="FILE.prom")
    ] = None,
) -> None:
    """Record a slot's changes into an archive, and confirm to the server what is stored."""
    from walreplay.cli.record import run_recorder, size_of
    from walreplay.recording.first_copy import FirstCopy
    from walreplay.recording.server import StreamOptions
    from walreplay.recording.transfer import RecordOptions

    if (and_copy or announce) and not create:
        raise ConfigError("--and-copy and --announce belong to a new slot", remedy="Give --create, too")
    stream = StreamOptions(
        publication.split(","), streaming or "", two_phase, binary, messages=False if no_messages else None
    )
    sizes = size_of(file_bytes), file_seconds, size_of(spool_bytes), heartbeat or None
    record_options = RecordOptions(dsn, slot, stream, *sizes, create=create, new_session=new_session)
    copy = FirstCopy(dsn, slot, stream.publications, and_copy, announces=announce)
    run_recorder(record_options, to, copy, metrics)


@app.command("apply")
def apply_command(
    target: options.Target,
    captures: options.Captures = None,
    config: options.Config = None,
    source: options.Sources = None,
    allow_gaps: options.AllowGaps = False,
    accept_changed_tables: options.AcceptChangedTables = False,
    dry_run: options.DryRun = False,
    strict: options.Strict = False,
    as_json: options.Json = False,
    report_file: options.Report = None,
    metrics: options.Metrics = None,
    quiet: options.Quiet = False,
) -> None:
    """Apply new captures to the Delta tables of the target."""
    printing = Printing(as_json, report_file, quiet, strict)
    loaded_config = configuration(config, allow_gaps=allow_gaps, accept_changed_tables=accept_changed_tables)
    _applied("apply", captures, target, loaded_config, source, printing, {"metrics": metrics}, dry_run=dry_run)


@app.command("backfill")
def backfill_command(
    target: options.Target,
    captures: options.Captures = None,
    config: options.Config = None,
    source: options.Sources = None,
    until_lsn: UntilLsn = None,
    until_time: UntilTime = None,
    table: Tables = None,
    output: options.Outputs = None,
    from_lsn: FromLsn = None,
    allow_gaps: options.AllowGaps = False,
    accept_changed_tables: options.AcceptChangedTables = False,
    dry_run: options.DryRun = False,
    strict: options.Strict = False,
    as_json: options.Json = False,
    report_file: options.Report = None,
    metrics: options.Metrics = None,
    quiet: options.Quiet = False,
) -> None:
    """Bring a target to what the source held at an LSN or at a time."""
    printing = Printing(as_json, report_file, quiet, strict)
    from walreplay.job.as_of import until_of

    until_of(until_lsn, until_time)  # said before Spark starts, if it cannot be read
    loaded_config = configuration(config, allow_gaps=allow_gaps, accept_changed_tables=accept_changed_tables)
    asked: dict[str, Any] = {"until_lsn": until_lsn, "until_time": until_time, "metrics": metrics}
    asked |= {"table": table, "outputs": output or None, "from_lsn": from_lsn}
    _applied("backfill", captures, target, loaded_config, source, printing, asked, dry_run=dry_run)


@app.command("rebuild")
def rebuild_command(
    table: Annotated[
        str, typer.Option("--table", help="Regular expression over the whole of schema.table.", metavar="RE")
    ],
    target: options.Target,
    captures: options.Captures = None,
    output: options.Outputs = None,
    config: options.Config = None,
    source: options.Sources = None,
    base: Base = None,
    allow_gaps: options.AllowGaps = False,
    as_json: options.Json = False,
    report_file: options.Report = None,
    quiet: options.Quiet = False,
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


@app.command("verify")
def verify_command(
    target: options.Target,
    captures: options.Captures = None,
    rows: options.FromPlace = None,
    publication: options.Publication = None,
    consistent_point: options.ConsistentPoint = None,
    snapshot: options.Snapshot = None,
    describe: options.Describe = None,
    wait: Annotated[
        float, typer.Option("--wait", help="With --from: wait for captures that reach its rows.", metavar="SECONDS")
    ] = 0.0,
    table: Tables = None,
    output: options.Outputs = None,
    differences: Annotated[
        str | None,
        typer.Option(
            "--differences", help="Add rows that differ to this Delta table, with their values.", metavar="URI"
        ),
    ] = None,
    base: Base = None,
    config: options.Config = None,
    source: options.Sources = None,
    allow_gaps: options.AllowGaps = False,
    quiet: options.Quiet = False,
    as_json: options.Json = False,
    report_file: options.Report = None,
    page: options.Html = None,
) -> None:
    """Compare a target's tables, value by value, with the archive or the source; exit code 3 if one differs."""
    of_rows: dict[str, Any] = {"publication": publication, "consistent_point": consistent_point, "snapshot": snapshot}
    of_rows |= {"describe": describe, "wait": wait}
    if rows is None and any(of_rows.values()):
        raise ConfigError("it is said how the source's rows are read, and not where they are", remedy="Give --from")

    def work(spark: Any, place: str, settings: Settings, progress: Progress) -> VerifyReport:
        return walreplay.verify(
            spark,
            target,
            place or None,
            source=rows,
            **of_rows,
            table=table,
            outputs=output or None,
            differences=differences,
            config=settings,
            base=base,
            progress=progress,
        )

    printing = Printing(as_json, report_file, quiet, page=page, title="Verification of a target")
    loaded_config = configuration(config, allow_gaps=allow_gaps)
    place = "" if captures is None and not loaded_config.sources else captures
    results = {report.result for report in each_of(loaded_config, source, place, work, write_verification, printing)}
    if results != {"equal"}:
        raise typer.Exit(_FAULTY if "different" in results else 1)


@app.command("load")
def load_command(
    target: options.Target,
    rows: options.FromPlace = None,
    query: options.FromQuery = None,
    at_lsn: options.AtLsn = None,
    consistent_point: options.ConsistentPoint = None,
    describe: options.Describe = None,
    table: options.OfTable = None,
    publication: options.Publication = None,
    snapshot: options.Snapshot = None,
    captures: options.CapturesPlace = None,
    replace: options.Replace = False,
    copy_options: options.CopyOptions = None,
    config: options.Config = None,
    source: options.Sources = None,
    allow_gaps: options.AllowGaps = False,
    as_json: options.Json = False,
    report_file: options.Report = None,
    quiet: options.Quiet = False,
) -> None:
    """Give tables the rows that they had before the capture began."""
    if (rows is None) == (query is None) and (rows is not None or not replace):  # --replace alone gives a load up
        raise ConfigError(
            "it is not said where the rows are, or twice",
            remedy="Give one of --from and --from-query; or --replace alone, to give up an interrupted load",
        )
    from walreplay.job.as_of import last_lsn_of
    from walreplay.job.load import written_beside
    from walreplay.loading.formats import copy_options as read_copy_options

    read_copy_options(copy_options)  # said before Spark starts, if they cannot be read
    settings = settings_of(configuration(config, allow_gaps=allow_gaps), source, "a load")
    of_rows: dict[str, Any] = {"at_lsn": at_lsn, "consistent_point": consistent_point, "describe": describe}
    of_rows |= {"table": table, "publication": publication, "snapshot": snapshot}
    of_rows |= {"captures": captures, "copy_options": copy_options}
    if rows is None and query is None:
        if any(option is not None for option in of_rows.values()):
            raise ConfigError(
                "it is said how rows are read, and not where they are",
                remedy="Give --from, or --from-query; or --replace alone, to give up an interrupted load",
            )
        Screen().line(asked(lambda spark: walreplay.give_up_load(spark, target, settings)))
        return
    if at_lsn is None and consistent_point is None:
        consistent_point, _ = written_beside(rows)
    last_lsn_of(at_lsn, consistent_point)  # so is an LSN
    run_and_print(
        lambda spark, progress: walreplay.load(
            spark,
            spark.sql(query) if query is not None else str(rows),
            target,
            **of_rows,
            replace=replace,
            config=settings,
            progress=progress,
        ),
        write_report,
        Printing(as_json, report_file, quiet),
    )


@app.command("maintain")
def maintain_command(
    target: options.Target,
    table: Tables = None,
    config: options.Config = None,
    source: options.Sources = None,
    dry_run: options.DryRun = False,
    as_json: options.Json = False,
    report_file: options.Report = None,
    quiet: options.Quiet = False,
) -> None:
    """Write small files together, remove unreferenced ones, and clean up the ledger, where that is needed."""

    def work(spark: Any, _: str, settings: Settings, progress: Progress) -> MaintenanceReport:
        return walreplay.maintain(spark, target, table, config=settings, dry_run=dry_run, progress=progress)

    printing = Printing(as_json, report_file, quiet)
    reports = list(each_of(configuration(config), source, "", work, write_maintenance, printing))
    if any(report.has_failed for report in reports):
        raise typer.Exit(1)


def _applied(
    command: Literal["apply", "backfill"],
    captures: str | None,
    target: str,
    config: Configuration,
    names: Sequence[str] | None,
    printing: Printing,
    asked: Mapping[str, Any],
    *,
    dry_run: bool,
) -> None:
    """Apply what is new of each source, or of a single one a part; or print what would be done.

    Args:
        asked: what is asked for, by the command's own arguments.
    """
    given = {name: value for name, value in asked.items() if value is not None}
    alone = "a backfill of a part" if given.keys() & {"table", "outputs", "from_lsn"} else ""
    alone = "a dry run" if dry_run else alone  # a forecast is of one source, and so is a part
    prometheus = Prometheus.of(given.get("metrics"), target)
    if prometheus is not None or dry_run:
        given.pop("metrics", None)
    if config.sources and not alone:
        given |= {"captures": captures, "printing": printing, "prometheus": prometheus}
        _refuse_held(apply_by_source(target, config, names, **given), printing)
        return
    place, settings = place_of(config, names, captures, alone)
    if dry_run:
        run_and_print(
            lambda spark, progress: walreplay.forecast(spark, place, target, settings, progress=progress, **given),
            write_forecast,
            printing,
        )
        return
    report = run_and_print(
        lambda spark, progress: getattr(walreplay, command)(
            spark, captures=place, target=target, config=settings, progress=progress, **given
        ),
        write_report,
        printing,
    )
    if prometheus is not None:
        source = settings.ledger_name
        prometheus.write_applied(lambda spark: walreplay.status(spark, target, source), source)
    _refuse_held([report], printing)


def _refuse_held(reports: Iterable[RunReport], printing: Printing) -> None:
    """End with 1, once all is written, if a table is held and that was asked for."""
    if printing.strict and any(table.action == "held" for report in reports for table in report.tables):
        raise typer.Exit(1)


@app.command("index")
def index_command(
    captures: options.Captures = None,
    index: options.Index = None,
    config: options.Config = None,
    source: options.Sources = None,
    allow_gaps: options.AllowGaps = False,
    cleared: options.Cleared = False,
    as_json: options.Json = False,
    report_file: options.Report = None,
    quiet: options.Quiet = False,
) -> None:
    """Write down what is in each capture file, so that later commands need not read it to know."""
    loaded_config = configuration(config, allow_gaps=allow_gaps)
    _refuse_common(index, loaded_config, source)

    def work(spark: Any, place: str, settings: Settings, progress: Progress) -> IndexReport:
        return walreplay.index(spark, place, index, settings, progress, cleared=cleared)

    list(each_of(loaded_config, source, captures, work, write_index, Printing(as_json, report_file, quiet)))


@app.command("audit")
def audit_command(
    captures: options.Captures = None,
    index: options.Index = None,
    config: options.Config = None,
    source: options.Sources = None,
    values: Annotated[
        bool, typer.Option("--values", help="Decode everything: rows, bytes and rescued values by table.")
    ] = False,
    quiet: options.Quiet = False,
    as_json: options.Json = False,
    report_file: options.Report = None,
    page: options.Html = None,
) -> None:
    """Show what an archive holds, and all that is damaged or missing; exit code 3 if anything is."""
    printing = Printing(as_json, report_file, quiet, page=page, title="Audit of an archive")
    loaded_config = configuration(config)
    _refuse_common(index, loaded_config, source)

    def work(spark: Any, place: str, settings: Settings, progress: Progress) -> AuditReport:
        return walreplay.audit(spark, place, index, settings, progress, values=values)

    reports = each_of(loaded_config, source, captures, work, write_audit, printing)
    if not all(report.is_whole for report in reports):
        raise typer.Exit(_FAULTY)


def _refuse_common(index: str | None, config: Configuration, names: Sequence[str] | None) -> None:
    """Refuse one index of several archives, which would mix in it."""
    if index is not None and len(config.chosen(names) if config.sources else ()) > 1:
        raise ConfigError("--index is the index of one source's captures", remedy="Name the source, with --source")


@app.command("inspect")
def inspect_command(
    paths: Annotated[list[str], typer.Argument(help="Capture files and folders.", metavar="PATH...")],
    messages: Annotated[bool, typer.Option("--messages", help="List every message.")] = False,
    config: options.Config = None,
    source: options.Sources = None,
    as_json: options.Json = False,
    report_file: options.Report = None,
) -> None:
    """Show what capture files contain.  Needs no Spark."""
    settings = settings_of(configuration(config), source, "an inspection")
    framing = None if settings.framing == "auto" else settings.framing  # recognised from the bytes
    if messages and report_file is not None:
        raise ConfigError("--report has no messages", remedy="Leave it out, or --messages")
    output = Screen()
    if messages:
        from walreplay.archive.messages import transcribe  # no pyspark: inspect needs none

        path = None
        for line in transcribe(paths, framing, source_encoding=settings.source_encoding):
            if as_json:
                output.json({name: getattr(line, name) for name in ("path", "offset", "message", "details")})
                continue
            if line.path != path:  # a heading for each file
                path = line.path
                output.line(path, style="bold")
            output.line(f"{line.offset:>12}  {line.message:<16}  {line.details}".rstrip())
        return
    from walreplay.archive.messages import inspect_captures

    inspection = inspect_captures(paths, framing, source_encoding=settings.source_encoding)
    Printing(as_json, report_file).show(inspection.to_dict(), lambda output: write_inspection(output, inspection))


@app.command("status")
def status_command(
    target: options.Target,
    as_of: Annotated[
        str | None,
        typer.Option(
            "--as-of",
            help="Write a query for each table as of a time, an LSN, or a run (with its tables' Delta versions).",
            metavar="TS|LSN|RUN",
        ),
    ] = None,
    table: Annotated[
        str | None,
        typer.Option("--table", help="With --as-of: only tables whose schema.table this matches.", metavar="RE"),
    ] = None,
    config: options.Config = None,
    source: options.Sources = None,
    metrics: options.Metrics = None,
    as_json: options.Json = False,
    report_file: options.Report = None,
    page: options.Html = None,
) -> None:
    """Show a target's runs, its applied LSN, and the transactions that are still open."""
    printing = Printing(as_json, report_file, page=page, title="Status of a target")
    given = named(source) if config is None and source else configuration(config)
    run_number = int(as_of) if as_of is not None and as_of.isdecimal() else None  # an LSN has a slash, a time a dash
    if table is not None and (as_of is None or run_number is not None):
        raise ConfigError("--table goes with --as-of a time or an LSN", remedy="Leave it out")
    prometheus = Prometheus.of(metrics, target)
    if metrics is not None and (prometheus is None or as_of is not None):
        raise ConfigError("a status has metrics for Prometheus alone", remedy="Give --metrics FILE.prom, no --as-of")
    if run_number is not None:
        settings = settings_of(given, source, "--as-of")
        cut = asked(lambda spark: walreplay.versions_at(spark, target, run_number, settings.ledger_name))
        printing.show(cut.to_dict(), lambda output: write_cut(output, cut))
    elif as_of is not None:
        from walreplay.job.as_of import moment_of

        moment_of(as_of)  # said before Spark starts, if it cannot be read
        settings = settings_of(given, source, "--as-of")
        moment = asked(lambda spark: walreplay.as_of(spark, target, as_of, table, settings))
        printing.show(moment.to_dict(), lambda output: write_as_of(output, moment))
    elif source or given.sources:
        status_by_source(target, given, source, printing, prometheus)
    else:
        status = asked(lambda spark: walreplay.status(spark, target))
        printing.show(status.to_dict(), lambda output: write_status(output, status))
        if prometheus is not None:
            prometheus.write({"": status})
