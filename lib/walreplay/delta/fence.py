"""The fence: it stops a paused run from renaming a folder after another run has taken over.

A process may be paused right after it has checked the lock, and another run may take over meanwhile.  So both paths of
a rename lead through an empty folder of the run's own, ``…/<id>/../…``.  Whoever takes over removes that folder first.
From then on the system call fails, whenever it is made.

The folder is made before one more check of the lock (`Fence.put_up`), so that a folder made late is never used.  This
works on file systems that driver and system have mounted.  Others resolve ``..`` by themselves.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Final

from walreplay.errors import TargetError
from walreplay.session import steps

_FENCES: Final = "moving"


class Fence:
    """The fence of one run.

    Args:
        root: the target's folder, where it is mounted.
        ledger: the ledger's folder, inside it.
        run_id: the id of the lock's holder.  Ids are never used again.
    """

    def __init__(self, root: str, ledger: str, run_id: str) -> None:
        self._root = root
        self._fences = Path(ledger, _FENCES)
        self._own = self._fences / run_id
        self._up = ""
        self._confirm: Callable[[], None] = lambda: None

    def put_up(self, confirm: Callable[[], None]) -> None:
        """Make the run's folder.

        Args:
            confirm: writes the lock's row, and raises if the run has lost the lock.
        """
        self._own.mkdir(parents=True, exist_ok=True)
        # The real paths: either may be behind a symbolic link.
        self._up = os.path.relpath(os.path.realpath(self._root), os.path.realpath(self._own))
        self._confirm = confirm
        confirm()

    def take_down(self) -> None:
        """Remove the run's folder, and the folder of all fences if it was the last."""
        for folder in (self._own, self._fences):
            with suppress(OSError):
                folder.rmdir()

    def take_down_others(self) -> None:
        """Remove the folders of runs that have lost the lock; only for the holder of the lock.

        Raises:
            TargetError: one cannot be removed.
        """
        try:
            others = [folder for folder in self._fences.iterdir() if folder != self._own]
        except FileNotFoundError:
            return
        for folder in others:
            try:
                folder.rmdir()
            except FileNotFoundError:
                continue
            except OSError as error:
                raise TargetError(
                    f"what a run before has left cannot be removed ({error.strerror})",
                    path=str(folder),
                    remedy="Remove it, and run again",
                ) from None

    def rename(self, source: str, destination: str) -> None:
        """Rename a folder, if it exists and the run's fence still stands.

        Raises:
            TargetError: the run has lost the lock, or something else is at the new place.
        """
        if not Path(source).exists():
            self._check()
            return
        # An empty folder may be replaced: nothing is lost with it.
        Path(destination).parent.mkdir(parents=True, exist_ok=True)
        steps.reached(f"folder is to be renamed: {destination}")
        try:
            self._through(source).rename(self._through(destination))
        except OSError as error:
            self._check()
            if Path(destination).exists():
                raise TargetError(
                    "a table cannot be moved here, for something is there",
                    path=destination,
                    remedy="Move it away, and run again",
                ) from None
            raise TargetError(
                f"the table's folder cannot be renamed to {destination} ({error.strerror})",
                path=source,
                remedy="Run again when it can",
            ) from None

    def _check(self) -> None:
        if self._own.exists():
            return
        self._confirm()
        raise TargetError(
            "the run has lost what it needs to rename a table's folder",
            path=str(self._own),
            remedy="Somebody has removed it; run again when no other run is at work",
        )

    def _through(self, path: str) -> Path:
        """Return a path that leads through the run's own folder."""
        return self._own / self._up / os.path.relpath(path, self._root)
