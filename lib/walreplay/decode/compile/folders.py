"""Folders for compiled code when the package is imported from a zip."""

from __future__ import annotations

import os
import tempfile
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

_PACKAGE = __name__.partition(".")[0]


def cache_folders() -> Iterator[Path]:
    """Give the folders in which compiled code may be kept, best first."""
    configured = os.environ.get("NUMBA_CACHE_DIR")
    if configured:
        yield Path(configured)
    with suppress(RuntimeError):  # the user may have no home directory
        yield Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache", _PACKAGE)
    shared = Path(tempfile.gettempdir(), f"{_PACKAGE}-{_user()}")
    # Code that is found there is run, so nobody else may be able to write there.
    shared.mkdir(mode=0o700, exist_ok=True)
    if _is_own(shared):
        yield shared


def _user() -> str:
    return str(os.getuid()) if hasattr(os, "getuid") else os.environ.get("USERNAME", "user")


def _is_own(folder: Path) -> bool:
    found = folder.lstat()
    return not hasattr(os, "getuid") or (found.st_uid == os.getuid() and not found.st_mode & 0o022)


__all__ = ["cache_folders"]
