"""Apply captures and be killed at a step, as a machine that goes away does.

``python -m support.killed_run CAPTURES TARGET STEP COUNT [itself CONFIG [COMMAND …]]`` kills itself without a word the
COUNTth time that a step whose name begins with STEP is done; with a COUNT like 1+0.5 it is half a second later that it
is killed, and Java and all workers at the same moment.  `run_until_killed` starts it.

``python -m support.killed_run CAPTURES TARGET STEP COUNT workers`` kills its Python workers from then on instead, as a
machine without memory does.  `run_with_workers_killed` starts it.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Final

from support.command import program_environment, said_in, speak_into

_COMPACT_EVERY: Final = "TESTED_COMPACT_EVERY_RUNS"

_PATIENCE = 600.0


def run_until_killed(
    captures: Path | None,
    target: Path,
    step: str,
    count: int,
    *,
    scratch: Path,
    later: float = 0.0,
    config: Path | None = None,
    command: Sequence[str] = ("apply",),
    compact_every: int | None = None,
) -> list[str]:
    """Run the program until it kills itself, and give the steps that it had done.

    Args:
        captures: None for a configuration with sources.
        later: seconds from the step to the kill, in which it works on.
        command: what it does, with the command's own options.
        compact_every: once in so many runs it keeps the ledger small; None for as often as it always does.
    """
    arguments = ["" if captures is None else str(captures), str(target), step, f"{count}+{later}"]
    arguments += ["itself", str(config or ""), *command]
    exit_code, stdout, stderr = _run(arguments, scratch, {_COMPACT_EVERY: str(compact_every or "")})
    assert exit_code == -signal.SIGKILL, f"the run ended by itself with {exit_code}:\n{stdout}\n{stderr}"
    return stdout.splitlines()


def run_with_workers_killed(captures: Path, target: Path, step: str, *, scratch: Path) -> tuple[int, str]:
    """Run the program and have its Python workers killed behind a step; give its exit code and what it says of that."""
    exit_code, _, stderr = _run([str(captures), str(target), step, "1", "workers"], scratch)
    return exit_code, stderr


def _run(arguments: list[str], scratch: Path, told: Mapping[str, str] = MappingProxyType({})) -> tuple[int, str, str]:
    # A session of its own, so that Spark's JVM, which outlives Python for a moment, can be ended with it.
    process = subprocess.Popen(
        [sys.executable, "-m", "support.killed_run", *arguments],
        env={**program_environment(scratch), **told},
        cwd=scratch,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    try:
        exit_code = process.wait(_PATIENCE)
    finally:
        _kill_group(process.pid)
    stdout, stderr = process.communicate()
    return exit_code, stdout, said_in(scratch, stderr)


def _kill_group(leader: int) -> None:
    try:
        os.killpg(leader, signal.SIGKILL)
    except ProcessLookupError:
        return


def main(
    captures: str, target: str, step: str, count: str, what: str = "itself", config: str = "", *command: str
) -> None:
    """Apply, or do what a command does, and die in the middle."""
    from walreplay import cli
    from walreplay.job import context
    from walreplay.session import steps

    context.COMPACT_EVERY_RUNS = int(os.environ.get(_COMPACT_EVERY) or context.COMPACT_EVERY_RUNS)  # type: ignore[misc]
    number, _, later = count.partition("+")
    remaining = int(number)

    def on_step(name: str) -> None:
        nonlocal remaining
        print(name, flush=True)
        remaining -= name.startswith(step)
        if remaining == 0:
            if what == "workers":
                threading.Thread(target=_kill_workers, daemon=True).start()
            elif float(later or 0):
                threading.Timer(float(later), _kill_group, [os.getpgrp()]).start()
            else:
                os.kill(os.getpid(), signal.SIGKILL)

    steps.on_step = on_step
    speak_into(Path.cwd())
    settings = ["--config", config] if config else []
    given = ["--captures", captures] if captures else []
    sys.exit(cli.main([*(command or ["apply"]), *given, "--target", target, "--quiet", *settings]))


def _kill_workers() -> None:
    """Kill whatever Python worker Spark starts in this session of processes, until the run has failed."""
    group = os.getpgrp()
    while True:
        for process in Path("/proc").glob("[0-9]*"):
            try:
                command = (process / "cmdline").read_bytes()
                if b"pyspark.daemon" in command and os.getpgid(int(process.name)) == group:
                    os.kill(int(process.name), signal.SIGKILL)
            except OSError:
                continue
        time.sleep(0.01)


if __name__ == "__main__":
    main(*sys.argv[1:])
