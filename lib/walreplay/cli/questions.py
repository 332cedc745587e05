"""The commands that ask: about an archive, files or a target.  They write to no table of a target.

`app` has all commands of the program once this module is imported.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

import walreplay
from walreplay.cli.by_source import each_of, named, settings_of, status_by_source
from walreplay.cli.commands import app as app
from walreplay.cli.metrics import Prometheus
from walreplay.cli.printing import (
    Printing,
    write_as_of,
    write_audit,
    write_cut,
    write_index,
    write_inspection,
    write_status,
)
from walreplay.cli.running import (
    AllowGaps,
    Captures,
    Config,
    Index,
    Json,
    Metrics,
    Quiet,
    Report,
    Sources,
    Target,
    asked,
    configuration,
    paged,
)
from walreplay.console import Screen
from walreplay.errors import ConfigError

if TYPE_CHECKING:
    from walreplay.archive.audit import AuditReport
    from walreplay.archive.joining import IndexReport
    from walreplay.config import Configuration, Settings
    from walreplay.progress import Progress

_NOT_WHOLE: Final = 3  # the exit code of an audit that has found something damaged or missing


@app.command("index")
def index_command(
    captures: Captures = None,
    index: Index = None,
    config: Config = None,
    source: Sources = None,
    allow_gaps: AllowGaps = False,
    as_json: Json = False,
    report_file: Report = None,
    quiet: Quiet = False,
) -> None:
    """Write down what is in each capture file, so that later commands need not read it to know."""
    loaded_config = configuration(config, allow_gaps=allow_gaps)
    _refuse_common(index, loaded_config, source)

    def work(spark: Any, place: str, settings: Settings, progress: Progress) -> IndexReport:
        return walreplay.index(spark, place, index, settings, progress)

    list(each_of(loaded_config, source, captures, work, write_index, Printing(as_json, report_file, quiet)))


@app.command("audit")
@paged("Audit of an archive")
def audit_command(
    *,
    printing: Printing,
    captures: Captures = None,
    index: Index = None,
    config: Config = None,
    source: Sources = None,
    values: Annotated[
        bool, typer.Option("--values", help="Decode everything: rows, bytes and rescued values by table.")
    ] = False,
    quiet: Quiet = False,
) -> None:
    """Show what an archive holds, and all that is damaged or missing; exit code 3 if anything is."""
    loaded_config = configuration(config)
    _refuse_common(index, loaded_config, source)

    def work(spark: Any, place: str, settings: Settings, progress: Progress) -> AuditReport:
        return walreplay.audit(spark, place, index, settings, progress, values=values)

    reports = each_of(loaded_config, source, captures, work, write_audit, replace(printing, quiet=quiet))
    if not all(report.is_whole for report in reports):
        raise typer.Exit(_NOT_WHOLE)


def _refuse_common(index: str | None, config: Configuration, names: Sequence[str] | None) -> None:
    """Refuse one index of several archives, which would mix in it."""
    if index is not None and len(config.chosen(names) if config.sources else ()) > 1:
        raise ConfigError("--index is the index of one source's captures", remedy="Name the source, with --source")


@app.command("inspect")
def inspect_command(
    paths: Annotated[list[str], typer.Argument(help="Capture files and folders.", metavar="PATH...")],
    messages: Annotated[bool, typer.Option("--messages", help="List every message.")] = False,
    config: Config = None,
    source: Sources = None,
    as_json: Json = False,
    report_file: Report = None,
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
@paged("Status of a target")
def status_command(
    *,
    printing: Printing,
    target: Target,
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
    config: Config = None,
    source: Sources = None,
    metrics: Metrics = None,
) -> None:
    """Show a target's runs, its applied LSN, and the transactions that are still open."""
    given = named(source) if config is None and source else configuration(config)
    run_number = int(as_of) if as_of is not None and as_of.isdecimal() else None  # an LSN has a slash, a time a dash
    if table is not None and (as_of is None or run_number is not None):
        raise ConfigError("--table goes with --as-of a time or an LSN", remedy="Leave it out")
    prometheus = Prometheus.of(metrics, target)
    if metrics is not None and (prometheus is None or as_of is not None):
        raise ConfigError("a status has metrics for Prometheus alone", remedy="Give --metrics FILE.prom, no --as-of")
    if as_of is not None and run_number is None:
        from walreplay.job.as_of import moment_of

        moment_of(as_of)  # said before Spark starts, if it cannot be read
    if as_of is not None:
        settings = settings_of(given, source, "--as-of")
        if run_number is None:
            moment = asked(lambda spark: walreplay.as_of(spark, target, as_of, table, settings))
            printing.show(moment.to_dict(), lambda output: write_as_of(output, moment))
            return
        cut = asked(lambda spark: walreplay.versions_at(spark, target, run_number, settings.ledger_name))
        printing.show(cut.to_dict(), lambda output: write_cut(output, cut))
        return
    if source or given.sources:
        status_by_source(target, given, source, printing, prometheus)
        return
    status = asked(lambda spark: walreplay.status(spark, target))
    printing.show(status.to_dict(), lambda output: write_status(output, status))
    if prometheus is not None:
        prometheus.write({"": status})
