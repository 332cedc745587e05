"""The command line as a user runs it: another process, its exit code and what it says."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from support.spark import LIBRARY, spark_environment

_PATIENCE = 600.0

_STDERR = "stderr.txt"

_PROGRAM = """
import sys
from support.command import speak_into
speak_into(sys.argv.pop(1))
from walreplay.cli import main
sys.exit(main())
"""


@dataclass(frozen=True)
class Outcome:
    """What is left of a command.

    Attributes:
        stderr: what the program itself has said there; see `speak_into`.
    """

    exit_code: int
    stdout: str
    stderr: str

    @property
    def errors(self) -> list[str]:
        """The lines that tell an error."""
        return [line for line in self.stderr.splitlines() if line.startswith("error:")]


def run_walreplay(*arguments: object, scratch: Path, extra: Mapping[str, str] | None = None) -> Outcome:
    """Run ``walreplay …`` to its end."""
    done = subprocess.run(
        [sys.executable, "-c", _PROGRAM, str(scratch), *map(str, arguments)],
        env={**program_environment(scratch), **(extra or {})},
        cwd=scratch,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=_PATIENCE,
    )
    return Outcome(done.returncode, done.stdout, said_in(scratch, done.stderr))


def run_without(blocked: str, program: str) -> subprocess.CompletedProcess[str]:
    """Run a program of Python in an interpreter that cannot import some packages."""
    block = f"import sys\nfor name in {blocked.split()!r}: sys.modules[name] = None\n"
    environment = {"PYTHONPATH": str(LIBRARY), "PATH": "/usr/bin:/bin"}
    return subprocess.run(
        [sys.executable, "-c", block + program], capture_output=True, text=True, check=False, env=environment
    )


def program_environment(scratch: Path) -> dict[str, str]:
    """Return the environment of a program that a test starts, and that is made of what tests have."""
    environment = spark_environment(scratch)
    environment["PYTHONPATH"] = os.pathsep.join([environment["PYTHONPATH"], str(Path(__file__).parents[1])])
    return environment


def speak_into(scratch: str | os.PathLike[str]) -> None:
    """Have this process's Python write its standard error into a file, where `said_in` finds it.

    Spark's JVM and the daemon of its workers share the process's own.  When they end while the machine is busy, or
    are killed in the middle of their work, the daemon may put a traceback there, in whole or in part.
    """
    sys.stderr = Path(scratch, _STDERR).open("w", encoding="utf-8", buffering=1)  # noqa: SIM115 (until the end)


def said_in(scratch: Path, otherwise: str) -> str:
    """Return what a program has said by itself; ``otherwise`` where it did not come as far as `speak_into`."""
    file = scratch / _STDERR
    return file.read_text(encoding="utf-8") if file.exists() else otherwise
