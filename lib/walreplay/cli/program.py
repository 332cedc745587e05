"""Run the command line: exit codes, and errors in one line."""

from __future__ import annotations

import os
import sys
import traceback
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import typer

from walreplay.cli.commands import app
from walreplay.cli.remedies import filled, of_call
from walreplay.cli.running import LOG_VARIABLE, TRACEBACK_VARIABLE
from walreplay.console import Screen, drop_output, guarded, logged
from walreplay.errors import WalReplayError
from walreplay.session.failures import failure_of

# typer brings click along or has it inside, by version; both name the base of usage errors like this.
_UsageError: Final = next(kind for kind in typer.BadParameter.__mro__ if kind.__name__ == "ClickException")

_INTERRUPTED: Final = 130
_USAGE: Final = 2
_OF_SPARK: Final = ("pyspark", "delta", "py4j")
_LEVELS: Final = ("DEBUG", "INFO", "WARNING", "ERROR")


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit code."""
    level = os.environ.get(LOG_VARIABLE, "")
    with guarded():  # whatever is written, names included, is made visible
        if level.upper() not in ("", *_LEVELS):
            _say(f"error: {LOG_VARIABLE} is {level!r}. It may be {', '.join(_LEVELS)}")
            return _USAGE
        arguments = list(sys.argv[1:] if argv is None else argv)
        with logged(level), of_call(arguments):
            return _main(arguments)


def run() -> int:
    """Run the command line as an installed program.

    What starts it may ignore its result, as Databricks does in a wheel task: a failure is raised.

    Raises:
        SystemExit: the exit code is not 0.
    """
    code = main()
    if code:
        raise SystemExit(code)
    return code


def _main(arguments: list[str]) -> int:
    try:
        code = app(arguments, prog_name="walreplay", standalone_mode=False)
        if code == _INTERRUPTED:  # some versions of typer turn the interrupt into this
            raise KeyboardInterrupt
    except BrokenPipeError:  # `walreplay inspect … | head`
        drop_output()  # the reader has what it wanted
        return 0
    except (KeyboardInterrupt, typer.Abort):
        _say("error: interrupted; run it again, it goes on where it stopped")
        return _INTERRUPTED
    except Exception as error:
        if os.environ.get(TRACEBACK_VARIABLE, "0") not in ("", "0"):
            # What Spark has thrown stands behind an error of ours.
            error.__suppress_context__ = False
            Screen.of_errors().traceback()
        text, code = explain(error)
        _say(f"error: {text}")
    return code if isinstance(code, int) else 0


def explain(error: Exception) -> tuple[str, int]:
    """Return an error as one line, and the exit code; no text of it quotes a row's value."""
    if isinstance(error, WalReplayError):
        error.remedy = None if error.remedy is None else filled(error.remedy)
        return str(error), error.exit_code
    if isinstance(error, _UsageError):
        return f"{error.format_message()} See walreplay --help", 2  # type: ignore[attr-defined]
    if isinstance(error, ModuleNotFoundError) and (error.name or "").split(".")[0] in _OF_SPARK:
        return f"{error.name} is not installed. Install Spark and Delta with: pip install 'walreplay[spark]'", 2
    failure = failure_of(error)  # of Spark, Delta, Java or a store
    if failure is not None:
        return str(failure), failure.exit_code
    if isinstance(error, OSError):
        return f"{error.filename}: {error.strerror}" if error.filename else str(error), 1
    # A fault of the program.  Its message may hold a value, so it is shown on request only.
    frame = traceback.extract_tb(error.__traceback__)[-1]
    place = f"{Path(frame.filename).name}:{frame.lineno}"
    return f"{type(error).__name__} in {place}, a fault of walreplay. Set {TRACEBACK_VARIABLE}=1 to see more", 1


def _say(text: str) -> None:
    Screen.of_errors().line(text)
