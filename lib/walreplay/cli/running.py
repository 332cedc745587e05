"""What all commands do: read the configuration, start Spark, work under the progress display, print."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from walreplay.cli.printing import Printing
from walreplay.cli.results import write_report
from walreplay.console import Output, progress_shown
from walreplay.errors import ConfigError

if TYPE_CHECKING:
    from walreplay.progress import Progress
    from walreplay.report import RunReport
    from walreplay.settings import Configuration


class _Dictable(Protocol):
    def to_dict(self) -> dict[str, Any]: ...


_Report = TypeVar("_Report", bound=_Dictable)
_Result = TypeVar("_Result")
_Answer = TypeVar("_Answer")


def configuration(path: str | None, *, allow_gaps: bool = False, accept_changed_tables: bool = False) -> Configuration:
    """Read the configuration, with what the command line adds to it."""
    from walreplay.settings import load_configuration

    found = load_configuration(path)
    if allow_gaps:
        found = found.allowing_gaps()
    return found.accepting_changed_tables() if accept_changed_tables else found


def captures_given(captures: str | None) -> str:
    """Give ``--captures`` for a configuration without sources.

    Raises:
        ConfigError: it is missing.
    """
    if captures is None:
        raise ConfigError("Missing option '--captures'", remedy="Give it, or a --config with sources")
    return captures


def run(work: Callable[[Any, Progress], _Result], *, quiet: bool) -> tuple[Any, _Result]:
    """Start Spark, and do some work with it under the progress display."""
    progress = progress_shown(quiet=quiet)
    try:
        progress.stage("start Spark", None)
        from walreplay.spark.session.session import build_session

        spark = build_session(progress=progress)
        return spark, work(spark, progress)
    finally:
        progress.done()


def asked(question: Callable[[Any], _Answer]) -> _Answer:
    """Start Spark, and ask something of it without the progress display."""
    from walreplay.spark.session.session import build_session

    return question(build_session(progress=progress_shown(quiet=False)))


def print_report(report: _Report, write: Callable[[Output, _Report], None], printing: Printing) -> None:
    """Print what a command has done."""
    printing.show(report.to_dict(), lambda output: write(output, report))


def print_with_rows(spark: Any, report: RunReport, printing: Printing, *, show: int) -> None:
    """Print a report, and for people the first rows of each of its tables."""
    print_report(report, write_report, printing)
    if not printing.as_json:
        print_rows(spark, report, show)


def print_rows(spark: Any, report: RunReport, show: int) -> None:
    """Print the first rows of each of a report's tables."""
    if not show:
        return
    from walreplay.spark.delta.preview import first_rows

    output = Output()
    for table in report.tables:
        columns, rows = first_rows(spark, table.location, show)
        output.line()
        output.table(columns, rows, title=table.name)
