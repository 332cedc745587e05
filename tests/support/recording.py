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
from functools import partial
from pathlib import Path
from typing import Final

from pyarrow import fs

from support.object_store import KEYS
from support.postgres import Server
from support.waiting import wait_until
from support.workload import meanwhile
from walreplay.lsn import parse_lsn
from walreplay.recorded_names import RecordedName

SLOT = "archive"


_SINCE: Final = {"--announce": 14, "--binary": 14, "--streaming=on": 14, "--two-phase": 15, "--streaming=parallel": 16}


def available(version: int, *options: str) -> list[str]:
    """Return those options that a server of a major version has."""
    return [option for option in options if _SINCE[option] <= version]


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
        """Wait until all up to an LSN is in the archive, for as long as it grows."""
        while (stored := end()) < lsn:
            is_growing = partial(lambda before: end() > before, stored)
            wait_until(is_growing, f"LSN {lsn:X} in the archive, which ends at {stored:X}", self.said, patience=120)


def names_of(files: Sequence[str]) -> list[RecordedName]:
    """Return what the names of an archive's files say, in their order."""
    names = (RecordedName.parse(file) for file in files)
    return sorted((name for name in names if name is not None), key=lambda name: name.number)


def end_of(files: Sequence[str]) -> int:
    """Return the LSN up to which an archive goes."""
    return max((name.end_lsn for name in names_of(files)), default=0)


class ArchiveFolder:
    """A folder with all that is in an archive, as it is seen from outside."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def files(self) -> Sequence[str]:
        """List the archive's files."""
        return [path.name for path in self.folder.iterdir()] if self.folder.exists() else []

    def end(self) -> int:
        """Return the LSN up to which it goes."""
        return end_of(self.files())

    def pull(self) -> None:
        """Have the folder hold all that the archive holds."""


class ArchiveBucket(ArchiveFolder):
    """An archive in an object store, which is asked itself; the folder has copies of its files.

    Args:
        endpoint: the store's (``http://…``).
        place: the bucket and the prefix.
    """

    def __init__(self, endpoint: str, place: str, folder: Path) -> None:
        super().__init__(folder)
        keys = {"access_key": KEYS["access"], "secret_key": KEYS["secret"], "region": "us-east-1"}
        self._system = fs.S3FileSystem(**keys, endpoint_override=endpoint.removeprefix("http://"), scheme="http")
        self._place = place

    def files(self) -> Sequence[str]:
        """List the archive's files."""
        listed = self._system.get_file_info(fs.FileSelector(self._place, allow_not_found=True))
        return [file.base_name for file in listed if file.is_file]

    def pull(self) -> None:
        """Copy into the folder what it does not hold yet."""
        listed = self._system.get_file_info(fs.FileSelector(self._place, allow_not_found=True, recursive=True))
        for file in sorted(listed, key=lambda file: file.path):
            copy = self.folder / file.path.removeprefix(f"{self._place}/")
            # What is no capture may be written again.
            if file.is_file and not (copy.exists() and copy.name.endswith(".zst")):
                copy.parent.mkdir(parents=True, exist_ok=True)
                partial = self.folder.parent / "partial"
                # By its name, Arrow would decompress it: the bytes are wanted as they are stored.
                partial.write_bytes(self._system.open_input_stream(file.path, compression=None).read())
                partial.rename(copy)


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

        def look_on(ending: threading.Event) -> None:
            while not ending.is_set():
                self.look()
                time.sleep(0.005)

        with meanwhile(look_on):
            yield self
        assert self.looks > 0
        assert not self.ahead, f"the slot was ahead of the store: {self.ahead[:3]}"
