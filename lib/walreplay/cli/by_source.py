"""The commands for a configuration with several sources: each source's result, and a summary of all."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

import walreplay
from walreplay.cli.metrics import Prometheus
from walreplay.cli.printing import Printing, values_of, write_report, write_status
from walreplay.cli.remedies import filled
from walreplay.cli.running import asked, run, run_and_print
from walreplay.console import Screen
from walreplay.errors import ConfigError
from walreplay.report import JsonResult

if TYPE_CHECKING:
    from walreplay.config import Configuration, Settings
    from walreplay.job.sources import Source
    from walreplay.ledger.status import TargetStatus
    from walreplay.report import RunReport, SourcesReport

_Report = TypeVar("_Report", bound=JsonResult)


def settings_of(config: Configuration, names: Sequence[str] | None, what: str) -> Settings:
    """Return the settings of what is done with one source, or with a configuration without sources.

    Args:
        names: the sources that are given.
        what: is done with one source only.

    Raises:
        ConfigError: the configuration has sources, and not just one of them is given; or it has none, and one is.
    """
    if not config.sources:
        if names:
            raise ConfigError(
                "--source is given, and the configuration has no sources",
                remedy="Give a --config with sources, or leave it out",
            )
        return config.single()
    chosen = config.chosen(names)
    if len(chosen) != 1:
        raise ConfigError(
            f"{what} is of one source, and these are several: {', '.join(chosen)}",
            remedy="Name one of them, with --source",
        )
    return config.of(chosen[0])


def place_of(
    config: Configuration, names: Sequence[str] | None, captures: str | None, what: str = ""
) -> tuple[str, Settings]:
    """Return the captures, and the settings as `settings_of` does.

    Args:
        captures: those that are given; a configuration without sources needs some.
    """
    _refuse_captures(captures, config)
    settings = settings_of(config, names, what)
    place = settings.captures_uri or captures
    if place is None:
        raise ConfigError("Missing option '--captures'", remedy="Give it, or a --config with sources")
    return place, settings


def named(names: Sequence[str]) -> Configuration:
    """Return a configuration of sources that are named alone."""
    from walreplay.config import Configuration

    return Configuration.from_mapping({"sources": {name: {"captures": "."} for name in names}})


def apply_by_source(
    target: str,
    config: Configuration,
    names: Sequence[str] | None,
    *,
    captures: str | None,
    printing: Printing,
    prometheus: Prometheus | None = None,
    **ends: Any,
) -> Collection[RunReport]:
    """Apply what is new of each source, or up to an end, print it, and return the reports.

    Args:
        prometheus: a file that gets what the target holds then.
        ends: as `walreplay.apply_sources` takes them.
    """
    _refuse_captures(captures, config)
    config.chosen(names)  # said before Spark starts
    report = run(
        lambda spark, progress: walreplay.apply_sources(
            spark, target, config, sources=names, progress=progress, **ends
        ),
        quiet=printing.quiet,
    )
    _show(report, write_report, printing, _write_applied)  # also what the others have done, if one has failed
    if prometheus is not None:
        statuses = asked(lambda spark: walreplay.sources_status(spark, target, config, sources=names))
        prometheus.write({of.source: of.result for of in statuses.sources}, report.results)
    report.raise_first()
    return report.results.values()


def each_of(
    config: Configuration,
    names: Sequence[str] | None,
    captures: str | None,
    work: Callable[[Any, str, Settings, Any], _Report],
    write: Callable[[Screen, _Report], None],
    printing: Printing,
) -> Iterator[_Report]:
    """Do some work with Spark for each source, or with a configuration without sources, and print what came of it.

    Args:
        captures: those that are given; empty for work without any.
        work: takes the session, and of a source the captures, the settings and the progress display.

    Yields:
        what came of each; the error of one that has failed, which is printed by then, decides the exit code.
    """
    if not config.sources:
        given = place_of(config, names, captures)
        yield run_and_print(lambda spark, progress: work(spark, *given, progress), write, printing)
        return
    _refuse_captures(captures or None, config)
    chosen = config.chosen(names)

    def all_of_it(spark: Any, progress: Any) -> SourcesReport[_Report]:
        from walreplay.job.sources import each_source  # imports pyspark

        def of_source(of: Source) -> _Report:
            return work(spark, of.captures, of.settings, of.progress)

        return each_source(spark, config, of_source, sources=chosen, progress=progress)

    report = run(all_of_it, quiet=printing.quiet)
    _show(report, write, printing)
    for source_report in report.sources:
        if source_report.error is not None:
            raise source_report.error
        assert source_report.result is not None
        yield source_report.result


def status_by_source(
    target: str,
    config: Configuration,
    names: Sequence[str] | None,
    printing: Printing,
    prometheus: Prometheus | None = None,
) -> None:
    """Show what a target holds of each source."""
    chosen = config.chosen(names)
    report = asked(lambda spark: walreplay.sources_status(spark, target, config, sources=chosen))
    _show(report, write_status, printing, _write_standing)
    if prometheus is not None:
        prometheus.write({of.source: of.result for of in report.sources})
    report.raise_first()


def _refuse_captures(captures: str | None, config: Configuration) -> None:
    if captures is not None:
        config.single()  # raises: --captures is for a configuration without sources


def _show(
    report: SourcesReport[Any],
    write_one: Callable[[Screen, Any], None],
    printing: Printing,
    write_all: Callable[[Screen, Any], None] | None = None,
) -> None:
    """Print what came of each source, and behind that a summary of all, if there is one."""

    def write(output: Screen) -> None:
        for source_report in report.sources:
            output.line(f"source {source_report.source}", style="bold")
            if source_report.error is not None:
                output.line(f"failed: {filled(source_report.problem or '')}", style="red")
            elif source_report.result is None:  # a status of a source that was never applied
                output.line("nothing was applied yet")
            else:
                write_one(output, source_report.result)
        if write_all is not None:
            write_all(output, report)

    printing.show(report.to_dict(), write)


def _write_applied(output: Screen, report: SourcesReport[RunReport]) -> None:
    rows: list[tuple[Any, ...]] = []
    for source_report in report.sources:
        run_report = source_report.result
        if run_report is None:
            rows.append((source_report.source, "failed", None, None, None, None, None, source_report.seconds))
            continue
        *counts, lsn = values_of(run_report, ("status", "files", "transactions", "changes", "applied_lsn"))
        rows.append((source_report.source, *counts, len(run_report.tables), lsn, source_report.seconds))
    output.line()
    output.table(("source", "state", "files", "transactions", "changes", "tables", "LSN", "seconds"), rows)


def _write_standing(output: Screen, report: SourcesReport[TargetStatus | None]) -> None:
    rows: list[tuple[Any, ...]] = []
    for source_report in report.sources:
        status = source_report.result
        if status is None:
            problem = "nothing applied" if source_report.error is None else "failed"
            rows.append((source_report.source, problem, None, None, None, None))
            continue
        number, state = (status.runs[-1].run, status.runs[-1].state) if status.runs else (None, None)
        if status.at_work is not None:
            state = "at work" if status.at_work.alive else "interrupted"
        applied = values_of(status, ("applied_lsn", "applied_commit_ts"))
        rows.append((source_report.source, state, number, *applied, len(status.open_transactions)))
    output.line()
    output.table(("source", "state", "run", "LSN", "committed", "open transactions"), rows)
