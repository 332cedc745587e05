"""The kernels that were compiled when the package was built, as a library of machine code.

It is named by the machine that it is for and by a digest of the sources: one that does not fit both is not there.
It needs no Python and no numba; of an array it reads what every CPython and numpy lay down alike.
"""

from __future__ import annotations

import ctypes
import hashlib
import os
import platform
import sys
import sysconfig
from contextlib import suppress
from functools import lru_cache
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING, Final
from uuid import uuid4

from walreplay.decode.compile.folders import cache_folders

if TYPE_CHECKING:
    from collections.abc import Iterator
    from importlib.abc import Traversable

FOLDER: Final = "prebuilt"
"""Where the library lies, beside this module."""

_PACKAGE: Final = "walreplay"
_SOURCES: Final = ("decode", "protocol", "sink", "types")
"""The parts of the package that kernels are made of, or take constants from."""

PROCESSOR: Final = {"x86_64": "x86-64-v3"}.get(platform.machine(), "generic")
"""What the library is compiled for."""

_INSTRUCTIONS: Final = {"abm", "avx2", "bmi1", "bmi2", "f16c", "fma", "movbe"}
"""What x86-64-v3 has and older processors, those up to 2013, have not, by the names that Linux gives."""

CHOICE: Final = "WALREPLAY_KERNELS"
"""A variable of the environment: ``numba`` has it compile the kernels though there is a library, ``checked`` has each
look at what it is given."""


def load() -> ctypes.CDLL | None:
    """Load the library; None where there is none for this machine and these sources."""
    if os.environ.get(CHOICE) == "numba" or not is_usable():
        return None
    found = resources.files(__package__ or "").joinpath(FOLDER).joinpath(name())
    if not found.is_file():
        return None
    path = found if isinstance(found, Path) else _extracted(found)
    if path is None:
        return None
    try:
        return ctypes.CDLL(str(path))
    except OSError:
        # It was made for another system library.
        return None


def is_usable() -> bool:
    """Say whether the processor has what a library asks, and objects lie in memory as it takes them to."""
    is_free_threaded = bool(sysconfig.get_config_var("Py_GIL_DISABLED"))
    is_known = platform.python_implementation() == "CPython" and not is_free_threaded and sys.maxsize > 1 << 32
    return is_known and (platform.machine() != "x86_64" or _flags() >= _INSTRUCTIONS)


def _flags(cpuinfo: Path = Path("/proc/cpuinfo")) -> set[str]:
    """Give what the processor can do, as far as the system tells."""
    with suppress(OSError), cpuinfo.open(encoding="utf-8", errors="replace") as lines:
        for line in lines:
            if line.startswith("flags"):
                return set(line.split())
    return set()


def name() -> str:
    """Give the library's name."""
    return f"kernels-{platform.system()}-{platform.machine()}-{digest_of_sources()}.so".lower()


@lru_cache(maxsize=1)
def digest_of_sources() -> str:
    """Digest what kernels are made of."""
    digest = hashlib.blake2b(digest_size=16)
    package = resources.files(_PACKAGE)
    for folder in _SOURCES:
        for path, file in _modules(package.joinpath(folder), folder):
            digest.update(f"{path}\0".encode())
            digest.update(file.read_bytes())
    return digest.hexdigest()


def _modules(folder: Traversable, path: str) -> Iterator[tuple[str, Traversable]]:
    """Give the modules below a folder, which may lie in a zip, in one order everywhere."""
    for file in sorted(folder.iterdir(), key=lambda file: file.name):
        if file.is_dir():
            yield from _modules(file, f"{path}/{file.name}")
        elif file.name.endswith(".py"):
            yield f"{path}/{file.name}", file


def _extracted(file: Traversable) -> Path | None:
    """Bring the library out of the zip that the package was imported from."""
    content = file.read_bytes()
    for folder in cache_folders():
        path = folder / file.name
        with suppress(OSError):
            if not path.is_file() or path.read_bytes() != content:
                folder.mkdir(parents=True, exist_ok=True)
                partial = folder / f"{file.name}.{uuid4().hex}"
                partial.write_bytes(content)
                partial.replace(path)
            return path
    return None


__all__ = ["CHOICE", "FOLDER", "PROCESSOR", "digest_of_sources", "is_usable", "load", "name"]
