"""What commands share: reading the configuration, starting Spark, the progress display, printing."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final, TypeVar

from walreplay.cli.printing import Printing
from walreplay.console import Screen, progress_shown
from walreplay.report import JsonResult

if TYPE_CHECKING:
    from walreplay.config import Configuration
    from walreplay.progress import Progress


_Report = TypeVar("_Report", bound=JsonResult)
_Result = TypeVar("_Result")


def configuration(path: str | None, *, allow_gaps: bool = False, accept_changed_tables: bool = False) -> Configuration:
    """Read the configuration, with what the command line adds to it."""
    from walreplay.config import load_configuration  # pydantic takes a while: not for --help

    config = load_configuration(path)
    if allow_gaps:
        config = config.allowing_gaps()
    return config.accepting_changed_tables() if accept_changed_tables else config


def run(work: Callable[[Any, Progress], _Result], *, quiet: bool) -> _Result:
    """Start Spark, and do some work with it under the progress display."""
    progress = progress_shown(quiet=quiet)
    try:
        progress.stage("start Spark", None)  # it takes seconds
        from walreplay.session.session import build_session

        return work(build_session(progress=progress), progress)
    finally:
        progress.done()


def asked(question: Callable[[Any], _Result]) -> _Result:
    """Start Spark, and ask something of it without the progress display."""
    from walreplay.session.session import build_session

    return question(build_session(progress=progress_shown(quiet=False)))


def run_and_print(
    work: Callable[[Any, Progress], _Report], write: Callable[[Screen, _Report], None], printing: Printing
) -> _Report:
    """Do what a command does, print what came of it, and return that."""
    report = run(work, quiet=printing.quiet)
    printing.show(report.to_dict(), lambda output: write(output, report))
    return report


TRACEBACK_VARIABLE: Final = "WALREPLAY_TRACEBACK"  # a traceback may have values of rows: on request only
LOG_VARIABLE: Final = "WALREPLAY_LOG"
