"""The library of kernels that were compiled when the package was built.

Its name contains the machine and a digest of the sources, so that a library for other ones is never loaded.  It needs
neither Python nor numba.  It reads arrays by their layout in memory, which is the same in every CPython and numpy
(`is_usable` checks it).  If the package is imported from a zip, compiled code is kept in one of `cache_folders`.
"""

from __future__ import annotations

import ctypes
import hashlib
import os
import platform
import sys
import sysconfig
import tempfile
from contextlib import suppress
from functools import lru_cache
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING, Final
from uuid import uuid4

if TYPE_CHECKING:
    from collections.abc import Iterator
    from importlib.abc import Traversable


_NAME = __name__.partition(".")[0]


def cache_folders() -> Iterator[Path]:
    """Yield the folders in which compiled code may be kept, best first."""
    configured = os.environ.get("NUMBA_CACHE_DIR")
    if configured:
        yield Path(configured)
    with suppress(RuntimeError):  # the user may have no home directory
        yield Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache", _NAME)
    shared = Path(tempfile.gettempdir(), f"{_NAME}-{_user()}")
    # Code that is found there is run, so nobody else may be able to write there.
    shared.mkdir(mode=0o700, exist_ok=True)
    if _is_own(shared):
        yield shared


def _user() -> str:
    return str(os.getuid()) if hasattr(os, "getuid") else os.environ.get("USERNAME", "user")


def _is_own(folder: Path) -> bool:
    status = folder.lstat()
    return not hasattr(os, "getuid") or (status.st_uid == os.getuid() and not status.st_mode & 0o022)


FOLDER: Final = "prebuilt"  # The folder of the library, beside this module

_PACKAGE: Final = "walreplay"
_SOURCES: Final = ("decode", "fold", "protocol", "types")
"""The parts of the package with kernels, or with constants that kernels use."""

PROCESSOR: Final = {"x86_64": "x86-64-v3"}.get(platform.machine(), "generic")
"""The processor for which the library is compiled."""

_INSTRUCTIONS: Final = {"abm", "avx2", "bmi1", "bmi2", "f16c", "fma", "movbe"}
"""The instructions of x86-64-v3 that processors up to 2013 do not have, by Linux's names."""

CHOICE: Final = "WALREPLAY_KERNELS"
"""An environment variable: ``numba`` compiles the kernels even if there is a library, ``checked`` checks arguments."""


def load() -> ctypes.CDLL | None:
    """Load the library; None if there is none for this machine and these sources."""
    if os.environ.get(CHOICE) == "numba" or not is_usable():
        return None
    library_file = resources.files(__package__ or "").joinpath(FOLDER).joinpath(name())
    if not library_file.is_file():
        return None
    path = library_file if isinstance(library_file, Path) else _extracted(library_file)
    if path is None:
        return None
    try:
        return ctypes.CDLL(str(path))
    except OSError:
        # It was made for another C library.
        return None


def is_usable() -> bool:
    """Return whether the processor has the library's instructions, and objects have the expected layout in memory."""
    is_free_threaded = bool(sysconfig.get_config_var("Py_GIL_DISABLED"))  # its objects have a larger head
    is_known = platform.python_implementation() == "CPython" and not is_free_threaded and sys.maxsize > 1 << 32
    return is_known and (platform.machine() != "x86_64" or _flags() >= _INSTRUCTIONS)


def _flags(cpuinfo: Path = Path("/proc/cpuinfo")) -> set[str]:
    """Return the processor's features, as far as the system lists them."""
    with suppress(OSError), cpuinfo.open(encoding="utf-8", errors="replace") as lines:
        for line in lines:
            if line.startswith("flags"):
                return set(line.split())
    return set()


def name() -> str:
    """Return the library's name."""
    return f"kernels-{platform.system()}-{platform.machine()}-{digest_of_sources()}.so".lower()


@lru_cache(maxsize=1)
def digest_of_sources() -> str:
    """Digest the sources of the kernels."""
    digest = hashlib.blake2b(digest_size=16)
    package = resources.files(_PACKAGE)
    for folder in _SOURCES:
        for path, file in _modules(package.joinpath(folder), folder):
            digest.update(f"{path}\0".encode())  # a module that only moves has other names in the library
            digest.update(file.read_bytes())
    return digest.hexdigest()


def _modules(folder: Traversable, path: str) -> Iterator[tuple[str, Traversable]]:
    """Yield path and file of all modules below a folder, which may lie in a zip, in the same order everywhere."""
    for file in sorted(folder.iterdir(), key=lambda file: file.name):
        if file.is_dir():
            yield from _modules(file, f"{path}/{file.name}")
        elif file.name.endswith(".py"):
            yield f"{path}/{file.name}", file


def _extracted(file: Traversable) -> Path | None:
    """Extract the library from the zip from which the package was imported; None if no folder is writable."""
    content = file.read_bytes()
    for folder in cache_folders():
        path = folder / file.name
        with suppress(OSError):
            if not path.is_file() or path.read_bytes() != content:
                folder.mkdir(parents=True, exist_ok=True)
                partial = folder / f"{file.name}.{uuid4().hex}"
                partial.write_bytes(content)
                partial.replace(path)  # other processes may extract it, or load it, at the same time
            return path
    return None
