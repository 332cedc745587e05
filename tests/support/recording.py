"""A running ``walreplay record``, and what can be seen of it from outside."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from support.postgres import Server
from support.waiting import wait_until
from walreplay.lsn import parse_lsn
from walreplay.recorded_names import RecordedName

SLOT = "archive"


def dsn_of(server: Server) -> str:
    """Return how a server is reached."""
    return f"host={server.home} port={server.port} user=postgres dbname={server.database}"


class Recorder:
    """A recorder's processes, one behind the other."""

    def __init__(
        self,
        server: Server,
        archive: str,
        log: Path,
        *options: str,
        publication: str = "archive",
        environment: Mapping[str, str] | None = None,
    ) -> None:
        self.server, self.archive, self.log = server, archive, log
        command = [sys.executable, "-m", "walreplay", "record", "--slot", SLOT, "--publication", publication]
        self._command = [*command, "--to", archive, "--dsn", dsn_of(server), *options]
        path = os.pathsep.join([str(server.programs), os.environ["PATH"]])
        self._environment = {**os.environ, "PATH": path, **(environment or {})}
        self.process: subprocess.Popen[bytes] | None = None

    def start(self, *options: str) -> None:
        """Start it."""
        with self.log.open("ab") as log:
            self.process = subprocess.Popen([*self._command, *options], stderr=log, env=self._environment)

    def signal(self, number: signal.Signals) -> None:
        """Send it a signal."""
        assert self.process is not None
        self.process.send_signal(number)

    def kill(self) -> None:
        """End it as a crash would."""
        assert self.process is not None
        self.process.kill()
        self.process.wait()

    def end(self, patience: float = 60.0) -> int:
        """End it as a system does; return its exit code."""
        self.signal(signal.SIGTERM)
        return self.wait(patience)

    def wait(self, patience: float = 60.0) -> int:
        """Wait for its end; return its exit code."""
        assert self.process is not None
        return self.process.wait(patience)

    def said(self) -> str:
        """Return its log."""
        return self.log.read_text(encoding="utf-8") if self.log.exists() else ""

    def await_stored(self, lsn: int, end: Callable[[], int]) -> None:
        """Wait until all up to an LSN is in the archive."""
        wait_until(lambda: end() >= lsn, f"LSN {lsn:X} in the archive", self.said, patience=300)


def names_of(files: Sequence[str]) -> list[RecordedName]:
    """Return what the names of an archive's files say, in their order."""
    names = (RecordedName.parse(file) for file in files)
    return sorted((name for name in names if name is not None), key=lambda name: name.number)


def end_of(files: Sequence[str]) -> int:
    """Return the LSN up to which an archive goes."""
    return max((name.end for name in names_of(files)), default=0)


def confirmed_lsn(server: Server, slot: str = SLOT) -> int | None:
    """Return up to which LSN the server knows the changes to be stored; None where there is no slot."""
    rows = server.rows("SELECT confirmed_flush_lsn::text FROM pg_replication_slots WHERE slot_name = %s", slot)
    return parse_lsn(rows[0][0]) if rows and rows[0][0] else None


class Watcher:
    """Looks all the time whether the slot is ahead of what the store has.

    Attributes:
        looks: how often it has looked.
        first: the LSN of the slot when it was made, which nothing in the archive has to reach.
    """

    def __init__(self, server: Server, files: Callable[[], Sequence[str]]) -> None:
        self._server, self._files = server, files
        self.looks, self.ahead = 0, list[tuple[int, int]]()
        self.first: int | None = None

    def look(self) -> None:
        """Look once: first at the slot, as the store only grows."""
        try:
            confirmed = confirmed_lsn(self._server)
        except Exception:  # the server is down
            return
        if confirmed is None:
            return
        if self.first is None:
            self.first = confirmed
        end = max(end_of(self._files()), self.first)
        self.looks += 1
        if confirmed > end:
            self.ahead.append((confirmed, end))

    @contextmanager
    def watching(self) -> Iterator[Watcher]:
        """Look until the block ends."""
        ends = threading.Event()

        def work() -> None:
            while not ends.is_set():
                self.look()
                time.sleep(0.005)

        thread = threading.Thread(target=work)
        thread.start()
        try:
            yield self
        finally:
            ends.set()
            thread.join()
        assert self.looks > 0
        assert not self.ahead, f"the slot was ahead of the store: {self.ahead[:3]}"
