"""Apply captures and be killed at a step, as a machine that goes away does.

``python -m support.killed_run CAPTURES TARGET STEP COUNT`` kills itself without a word the COUNTth time that
a step whose name begins with STEP is done.  `run_until_killed` starts it.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

from support.spark import spark_environment

_PATIENCE = 600.0


def run_until_killed(captures: Path, target: Path, step: str, count: int, *, scratch: Path) -> list[str]:
    """Run the program until it kills itself, and give the steps that it had done."""
    environment = spark_environment(scratch)
    environment["PYTHONPATH"] = os.pathsep.join([environment["PYTHONPATH"], str(Path(__file__).parents[1])])
    # A session of its own, so that Spark's JVM, which outlives Python for a moment, can be ended with it.
    process = subprocess.Popen(
        [sys.executable, "-m", "support.killed_run", str(captures), str(target), step, str(count)],
        env=environment,
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
    assert exit_code == -signal.SIGKILL, f"the run ended by itself with {exit_code}:\n{stdout}\n{stderr}"
    return stdout.splitlines()


def _kill_group(leader: int) -> None:
    try:
        os.killpg(leader, signal.SIGKILL)
    except ProcessLookupError:
        return


def main(captures: str, target: str, step: str, count: str) -> None:
    """Apply, and die in the middle."""
    import wal2delta
    from wal2delta.spark import steps
    from wal2delta.spark.session import build_session

    remaining = int(count)

    def on_step(name: str) -> None:
        nonlocal remaining
        print(name, flush=True)
        remaining -= name.startswith(step)
        if remaining == 0:
            os.kill(os.getpid(), signal.SIGKILL)

    steps.on_step = on_step
    wal2delta.apply(build_session("a run that is killed"), captures=captures, target=target)


if __name__ == "__main__":
    main(*sys.argv[1:])
