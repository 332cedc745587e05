"""What a new slot's snapshot is for: the rows that were there before it, copied while the recorder is at work."""

from __future__ import annotations

import os
import shlex
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
from walreplay.recording.server import environment_of
from walreplay.scripts import copy_scripts

_HELD_SECONDS: Final = 3600.0  # for who copies by hand: the server keeps old rows as long


class FirstCopy:
    """Copies the tables by ``base.sh``, or holds the snapshot for a while for somebody who does.

    Args:
        folder: for the copies; None: nothing is copied here.

    Raises:
        ConfigError: the folder is not empty: what it has would be loaded, too.
    """

    def __init__(self, dsn: str, slot: str, publications: Sequence[str], folder: Path | None) -> None:
        if folder is not None and folder.exists() and any(folder.iterdir()):
            raise ConfigError("it is not empty, and its files would be loaded, too", path=str(folder))
        self._dsn, self._slot, self._publications = dsn, slot, ",".join(publications)
        self._folder = folder

    def begin(self, created: CreatedSlot) -> None:
        """Work in a thread until the copies are there, or the time is over; then the snapshot is released."""
        threading.Thread(target=self._work, args=[created], name="walreplay-copy", daemon=True).start()

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
            log("snapshot released")

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
            again = f"empty {folder}, and copy the tables by snapshot.sh --temporary (docs/starting.md)"
            log("copy failed", reason=done.stderr.strip().rpartition("\n")[2], remedy=again)
        else:
            place = shlex.quote(str(folder))
            log("tables copied", next=f"walreplay load --from {place} --captures … --target …")
