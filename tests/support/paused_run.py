"""Apply captures in another process, and hold it at a step for as long as a test likes.

``python -m support.paused_run CAPTURES TARGET STEP FOLDER`` waits, when the first step whose name begins with STEP
is done, until FOLDER holds a file ``go on``.  With ``silent`` behind that it gives no signs of life meanwhile.
`PausedRun` starts it.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from types import TracebackType

from support.command import Outcome, program_environment, said_in, speak_into

_PATIENCE = 600.0


class PausedRun:
    """A run that stands at a step; what is left of it is ended with the block."""

    def __init__(self, captures: Path, target: Path, step: str, *, scratch: Path, silent: bool = False) -> None:
        self._folder = scratch
        self._process = subprocess.Popen(
            [
                *(sys.executable, "-m", "support.paused_run", str(captures), str(target), step, str(scratch)),
                *(["silent"] if silent else []),
            ],
            env=program_environment(scratch),
            cwd=scratch,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        self.pid = self._process.pid

    def __enter__(self) -> PausedRun:
        _wait_for(self._folder / "paused", self._process)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        if self._process.poll() is None:
            os.killpg(self.pid, signal.SIGKILL)
        self._process.communicate()

    def go_on(self) -> Outcome:
        """Let it go on to its end."""
        (self._folder / "go on").touch()
        stdout, stderr = self._process.communicate(timeout=_PATIENCE)
        return Outcome(self._process.returncode, stdout, said_in(self._folder, stderr))


def _wait_for(file: Path, process: subprocess.Popen[str] | None = None) -> None:
    end = time.monotonic() + _PATIENCE
    while not file.exists():
        assert time.monotonic() < end, f"{file.name} has not come"
        assert process is None or process.poll() is None, f"the run has ended by itself:\n{process.communicate()}"
        time.sleep(0.05)


def main(captures: str, target: str, step: str, folder: str, how: str = "alive") -> int:
    """Apply, and wait in the middle."""
    import walreplay
    from walreplay.spark.ledger import lock
    from walreplay.spark.session import steps
    from walreplay.spark.session.session import build_session

    def on_step(name: str) -> None:
        if name.startswith(step):
            steps.on_step = None
            Path(folder, "paused").touch()
            _wait_for(Path(folder, "go on"))

    steps.on_step = on_step
    speak_into(folder)
    if how == "silent":
        lock.BEAT_SECONDS = 3600.0  # type: ignore[misc]
    try:
        walreplay.apply(build_session("a run that is held"), captures=captures, target=target)
    except walreplay.WalReplayError as error:
        sys.stderr.write(f"error: {error}\n")
        return error.exit_code
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
