"""The command line as a user runs it: another process, its exit code and what it says."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from support.spark import child_environment

_PATIENCE = 600.0


@dataclass(frozen=True)
class Outcome:
    """What is left of a command."""

    exit_code: int
    stdout: str
    stderr: str

    @property
    def errors(self) -> list[str]:
        """The lines that tell an error."""
        return [line for line in self.stderr.splitlines() if line.startswith("error:")]


def run_wal2delta(*arguments: object, scratch: Path, extra: Mapping[str, str] | None = None) -> Outcome:
    """Run ``wal2delta …`` to its end."""
    done = subprocess.run(
        [
            sys.executable,
            "-c",
            "import sys; from wal2delta.cli import main; sys.exit(main())",
            *map(str, arguments),
        ],
        env={**child_environment(scratch), **(extra or {})},
        cwd=scratch,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=_PATIENCE,
    )
    return Outcome(done.returncode, done.stdout, done.stderr)
