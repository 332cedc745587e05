"""What is done with a new slot: announcements, and the rows from before it, copied while the recorder is at work."""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import tempfile
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from walreplay.errors import ConfigError
from walreplay.lsn import format_lsn
from walreplay.progress import log
from walreplay.recording.recorder import CreatedSlot
from walreplay.recording.server import Watch, environment_of
from walreplay.scripts import copy_scripts, script

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
            StreamEnded: the server refuses.
        """
        if self._folder is not None and self._folder.exists() and any(self._folder.iterdir()):
            remedy = "Empty it, or name another one for --and-copy"
            raise ConfigError("it is not empty, and its files would be loaded", path=str(self._folder), remedy=remedy)
        if self._folder is not None and shutil.which("psql") is None:
            raise ConfigError("--and-copy needs psql, which is not on the PATH", remedy="Install PostgreSQL's client")
        if self._announces:
            watch.run(script("announce.sql"))

    def begin(self, created: CreatedSlot, watch: Watch) -> None:
        """Announce all tables; copy in a thread, which releases the snapshot when the copies are there."""
        threading.Thread(target=self._work, args=[created], name="walreplay-copy", daemon=True).start()
        if self._announces:
            watch.run("SELECT walreplay.announce_all()")

    def _work(self, created: CreatedSlot) -> None:
        try:
            if self._folder is None:
                place = f"--snapshot {created.snapshot} --consistent-point {format_lsn(created.consistent_point)}"
                log("snapshot held", seconds=_HELD_SECONDS, load_with=place)
                time.sleep(_HELD_SECONDS)
            else:
                self._copy(self._folder, created)
        finally:
            created.release()

    def _copy(self, folder: Path, created: CreatedSlot) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        names = {"SNAPSHOT": created.snapshot, "LSN": format_lsn(created.consistent_point)}
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
