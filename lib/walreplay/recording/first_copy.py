"""What is done with a new slot: announcements, and the rows from before it, copied while the recorder is at work."""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import closing
from pathlib import Path
from typing import Final

from walreplay.errors import ConfigError
from walreplay.lsn import format_lsn
from walreplay.progress import log
from walreplay.recording.server import SessionError, Snapshot, Watch, environment_of
from walreplay.scripts import copy_scripts, script

_TRIES, _PAUSE_SECONDS = 20, 15.0
_HELD_SECONDS: Final = 3600.0  # for who copies by hand: the server keeps old rows as long


class FirstCopy:
    """Copies the tables by ``base.sh``, or holds the snapshot for a while for somebody who does.

    Args:
        folder: for the copies; None: nothing is copied here.
        announces: the source announces its tables from then on.
    """

    def __init__(
        self, dsn: str, slot: str, publications: Sequence[str], folder: Path | None, *, announces: bool
    ) -> None:
        self._dsn, self._slot, self._publications = dsn, slot, ",".join(publications)
        self._folder, self._announces = folder, announces

    def prepare(self, watch: Watch) -> None:
        """See that the folder is empty, and install the announcements.

        Raises:
            ConfigError: the folder is not: what it has would be loaded, too.
            SessionError: the server refuses.
        """
        if self._folder is not None:
            self._try_out(self._folder)
        if self._announces:
            watch.run(script("announce.sql"))

    @staticmethod
    def _try_out(folder: Path) -> None:
        if shutil.which("psql") is None:
            raise ConfigError("--and-copy needs psql, which is not on the PATH", remedy="Install PostgreSQL's client")
        problem, remedy = "", "Empty it, or name another one for --and-copy"
        try:
            folder.mkdir(parents=True, exist_ok=True)
            if any(folder.iterdir()):
                problem = "it is not empty, and its files would be loaded"
            Path(f"{folder}.jsonl").touch()  # what base.sh writes beside it
        except OSError as error:
            problem = f"it cannot be written to ({error.strerror})"
        if problem:
            raise ConfigError(problem, path=str(folder), remedy=remedy)

    def start(self, snapshot: Snapshot, release: Callable[[], None]) -> None:
        """Announce all tables and copy them, in threads; the snapshot is released when the copies are there.

        Args:
            snapshot: what is visible in it, and what the slot sends, together are everything.
        """
        threading.Thread(target=self._work, args=[snapshot, release], name="walreplay-copy", daemon=True).start()
        if self._announces:
            threading.Thread(target=self._announce, name="walreplay-announce", daemon=True).start()

    def _announce(self) -> None:
        for _ in range(_TRIES):
            try:
                with closing(Watch(self._dsn)) as watch:
                    watch.run("SELECT walreplay.announce_all()")
                return
            except SessionError as error:
                log("not announced", reason=str(error), remedy="SELECT walreplay.announce_all(), if it stays so")
                time.sleep(_PAUSE_SECONDS)

    def _work(self, snapshot: Snapshot, release: Callable[[], None]) -> None:
        try:
            if self._folder is None:
                place = f"--snapshot {snapshot.name} --consistent-point {format_lsn(snapshot.consistent_point)}"
                log("snapshot held", seconds=_HELD_SECONDS, load_with=place)
                time.sleep(_HELD_SECONDS)
            else:
                self._copy(self._folder, snapshot)
        except OSError as error:
            log("copy failed", reason=str(error))
        finally:
            release()

    def _copy(self, folder: Path, snapshot: Snapshot) -> None:
        names = {"SNAPSHOT": snapshot.name, "LSN": format_lsn(snapshot.consistent_point)}
        with tempfile.TemporaryDirectory() as scripts:
            copy_scripts(Path(scripts))
            done = subprocess.run(
                ["sh", f"{scripts}/base.sh", self._slot, self._publications, str(folder)],
                env={**os.environ, **environment_of(self._dsn), **names},
                stderr=subprocess.PIPE,
                text=True,
            )
        if done.returncode:
            remedy = f"empty {folder}, and copy the tables by snapshot.sh --temporary (docs/starting.md)"
            lines = done.stderr.strip().splitlines() or [f"exit code {done.returncode}"]
            reason = next((line for line in lines if "ERROR:" in line or "FATAL:" in line), lines[0])
            log("copy failed", reason=reason, remedy=remedy)
        else:
            log("tables copied", next=f"walreplay load --from {shlex.quote(str(folder))} --captures … --target …")
