"""Which local files a capture is made of, and in which order."""

from __future__ import annotations

import mmap
import os
import re
from collections.abc import Iterable, Sequence
from pathlib import Path

from wal2delta.errors import ConfigError

_NUMBER = re.compile(r"(\d+)")


def natural_key(path: str) -> tuple[tuple[int, int | str], ...]:
    """Give a sort key under which part10 stands behind part9.

    Numbers compare as numbers, all else as text; a number stands before text.  Names that differ in leading zeros
    alone keep a definite order by their length, at the end.
    """
    parts: list[tuple[int, int | str]] = []
    for part in _NUMBER.split(path):
        if part.isdigit() and part.isascii():
            parts.append((0, int(part)))
        elif part:
            parts.append((1, part))
    parts.append((0, len(path)))
    return tuple(parts)


def natural_order(paths: Iterable[str]) -> list[str]:
    """Sort paths naturally; equal keys by their text."""
    return sorted(paths, key=lambda path: (natural_key(path), path))


def list_files(paths: str | os.PathLike[str] | Sequence[str | os.PathLike[str]]) -> list[str]:
    """Give the files of folders (naturally sorted, hidden ones left out) and the files named.

    Raises:
        ConfigError: when a path does not exist, or there is no file at all.
    """
    given = [paths] if isinstance(paths, (str, os.PathLike)) else list(paths)
    files: list[str] = []
    for item in given:
        path = Path(item)
        if path.is_dir():
            found = (str(file) for file in path.rglob("*") if file.is_file() and not _hidden(file, path))
            files.extend(natural_order(found))
        elif path.exists():
            files.append(str(path))
        else:
            raise ConfigError("no such file or folder", path=str(path), remedy="Check the captures' path")
    if not files:
        raise ConfigError(
            "there are no files",
            path=", ".join(str(item) for item in given),
            remedy="Check the captures' path",
        )
    return files


def _hidden(file: Path, root: Path) -> bool:
    return any(part.startswith((".", "_")) for part in file.relative_to(root).parts)


def map_file(path: str) -> memoryview:
    """Give a local file's bytes, mapped: they are read once, straight from the page cache."""
    with Path(path).open("rb") as file:
        if os.fstat(file.fileno()).st_size == 0:
            return memoryview(b"")
        return memoryview(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ))
