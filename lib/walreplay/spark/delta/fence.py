"""What a run needs to rename folders, and loses with the lock.

Between a look at the lock and a rename a process may stand still for as long as it likes, and another run may have
taken over by then.  So both paths of a rename lead through an empty folder of the run's own, ``…/<id>/../…``.  Whoever
takes over removes that first, and from then on the system call itself fails, whenever it is made.

The folder is made before the lock is looked at once more (`Fence.put_up`): one that is made later, by a run that has
stood still, is never used.  This is for file systems that driver and system have mounted; others take ``..`` out of
paths by themselves.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Final

from walreplay.errors import TargetError
from walreplay.spark.session import steps

_FENCES: Final = "moving"


class Fence:
    """The fence of one run.

    Args:
        root: the target's folder, where it is mounted.
        ledger: the ledger's, in it.
        run_id: the id of the lock's holder.  Ids are never used again.
    """

    def __init__(self, root: str, ledger: str, run_id: str) -> None:
        self._root = root
        self._fences = Path(ledger, _FENCES)
        self._own = self._fences / run_id
        self._up = ""
        self._confirm: Callable[[], None] = lambda: None

    def put_up(self, confirm: Callable[[], None]) -> None:
        """Make the folder.

        Args:
            confirm: sees by a write of the lock's row that the run still has the lock.
        """
        self._own.mkdir(parents=True, exist_ok=True)
        # Of where they really are: either may be behind a link.
        self._up = os.path.relpath(os.path.realpath(self._root), os.path.realpath(self._own))
        self._confirm = confirm
        confirm()

    def take_down(self) -> None:
        """Remove the folder, and the one of all such if it is the last."""
        for folder in (self._own, self._fences):
            with suppress(OSError):
                folder.rmdir()

    def take_down_others(self) -> None:
        """Remove the folders of runs that have lost the lock; only for the one who has it.

        Raises:
            TargetError: where that cannot be done.
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
        """Rename a folder, if it is there and the run still has its own.

        Raises:
            TargetError: the run has lost the lock, or something else is where the folder is to go.
        """
        if not Path(source).exists():
            self._check()
            return
        # A folder that is empty gives way, as nothing is lost with it.
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
        """Give a path that leads through the run's own folder."""
        return self._own / self._up / os.path.relpath(path, self._root)
