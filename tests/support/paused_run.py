"""Apply captures in another process, and hold it at a step for as long as a test likes.

``python -m support.paused_run`` reads a run from each line of its input, as JSON: the captures, the target, a step, a
folder, and whether it is silent.  When the first step whose name begins so is reached, it waits until the folder holds
a file ``go on``; if it is silent it gives no signs of life meanwhile.  `OtherProcess` starts it.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from types import TracebackType

from support.command import Outcome, program_environment, said_in, speak_into

_PATIENCE = 600.0

_PAUSED, _GO_ON, _ENDED = "paused", "go on", "ended"


class OtherProcess:
    """A process that applies captures, one run behind the other: its Java starts once."""

    def __init__(self, scratch: Path) -> None:
        self._scratch = scratch
        self._process: subprocess.Popen[str] | None = None

    def paused(self, captures: Path, target: Path, step: str, *, folder: Path, silent: bool = False) -> PausedRun:
        """Begin a run that will stand at a step.

        Args:
            folder: for what the two tell each other; the run's own.
        """
        if self._process is None or self._process.poll() is not None:
            self._process = self._start()
        assert self._process.stdin is not None
        told = [str(captures), str(target), step, str(folder), silent]
        self._process.stdin.write(json.dumps(told) + "\n")
        self._process.stdin.flush()
        return PausedRun(self._process, folder)

    def _start(self) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [sys.executable, "-m", "support.paused_run"],
            env=program_environment(self._scratch),
            cwd=self._scratch,
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            text=True,
            start_new_session=True,
        )

    def end(self) -> None:
        """End it, and its Java."""
        if self._process is not None:
            _kill(self._process)


class PausedRun:
    """A run that stands at a step; where it has not ended with the block, its process does."""

    def __init__(self, process: subprocess.Popen[str], folder: Path) -> None:
        self._folder = folder
        self._process = process
        self.pid = process.pid

    def __enter__(self) -> PausedRun:
        _wait_for(self._folder / _PAUSED, self._process, self._folder)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        if not (self._folder / _ENDED).exists():
            _kill(self._process)

    def go_on(self) -> Outcome:
        """Let it go on to its end."""
        (self._folder / _GO_ON).touch()
        _wait_for(self._folder / _ENDED, self._process, self._folder)
        return Outcome(int((self._folder / _ENDED).read_text()), "", said_in(self._folder, ""))


def _kill(process: subprocess.Popen[str]) -> None:
    if process.poll() is None:
        os.killpg(process.pid, signal.SIGKILL)
    process.communicate()


def _wait_for(file: Path, process: subprocess.Popen[str] | None = None, folder: Path | None = None) -> None:
    end = time.monotonic() + _PATIENCE
    while not file.exists():
        assert time.monotonic() < end, f"{file.name} has not come"
        if process is not None and folder is not None:
            ended = process.poll() is not None or (folder / _ENDED).exists()
            assert not ended or file.exists(), f"the run has ended by itself:\n{said_in(folder, '')}"
        time.sleep(0.05)


def _run(captures: str, target: str, step: str, folder: str) -> int:
    """Apply, and wait in the middle."""
    import walreplay
    from walreplay.session import steps
    from walreplay.session.session import build_session

    def on_step(name: str) -> None:
        if name.startswith(step):
            steps.on_step = None
            Path(folder, _PAUSED).touch()
            _wait_for(Path(folder, _GO_ON))

    steps.on_step = on_step
    try:
        walreplay.apply(build_session("a run that is held"), captures=captures, target=target)
    except walreplay.WalReplayError as error:
        sys.stderr.write(f"error: {error}\n")
        return error.exit_code
    return 0


def main() -> None:
    """Make the runs that are asked for."""
    from walreplay.ledger import state as lock

    usual = lock.BEAT_SECONDS
    for line in sys.stdin:
        *run, folder, silent = json.loads(line)
        speak_into(folder)
        lock.BEAT_SECONDS = 3600.0 if silent else usual  # type: ignore[misc]
        exit_code = _run(*run, folder)
        # A file is there with all that it holds.
        Path(folder, "ending").write_text(str(exit_code))
        Path(folder, "ending").rename(Path(folder, _ENDED))


if __name__ == "__main__":
    main()
