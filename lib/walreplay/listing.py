"""Which files a capture consists of, and in which order."""

from __future__ import annotations

import mmap
import os
import re
import stat
from collections.abc import Iterable, Iterator, Sequence
from fnmatch import fnmatch
from pathlib import Path
from typing import Any, Literal, TypeAlias

from walreplay.errors import ConfigError

Order: TypeAlias = Literal["natural", "path", "modified"]

_NUMBER = re.compile(r"(\d+)")
_GLOB = re.compile(r"([\[\]{}*?\\])")


# Order


def natural_key(path: str) -> tuple[tuple[int, int | str], ...]:
    """Give a sort key that puts part10 behind part9.

    Numbers compare as numbers, all else as text; a number sorts before text.  Names that differ only in leading zeros
    are ordered by their length, last.
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


def sort_key(order: Order, path: str, modified: int) -> tuple[Any, ...]:
    """Give the sort key for the configured order; no two paths have the same key.

    Args:
        order: ``natural``; ``path``, plain text; ``modified``, by time and, if that is equal, naturally.
        modified: the modification time in µs since 1970.
    """
    if order == "path":
        return (path,)
    if order == "modified":
        return (modified, natural_key(path), path)
    return (natural_key(path), path)


def list_files(
    paths: str | os.PathLike[str] | Sequence[str | os.PathLike[str]], *, order: Order = "natural", hidden: bool = False
) -> list[str]:
    """Return the named files, and the files of named folders, sorted.

    Args:
        hidden: also those whose names, or whose folders', begin with ``.`` or ``_``.

    Raises:
        ConfigError: a path does not exist or is no file, or there is no file at all.
    """
    given = [paths] if isinstance(paths, (str, os.PathLike)) else list(paths)
    files: list[str] = []
    for item in given:
        path = Path(item)
        refuse_endless(path)
        if path.is_dir():
            found = (file for file in path.rglob("*") if file.is_file() and (hidden or not _hidden(file, path)))
            files.extend(map(str, sorted(found, key=lambda file: sort_key(order, str(file), _modified(file)))))
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


def refuse_endless(path: Path, *, pattern: str | None = None, recursive: bool = True) -> None:
    """Refuse pipes, sockets and devices, given as a path or in a folder: they give bytes only once, or without end.

    Args:
        pattern: in a folder, only files whose names match it count.

    Raises:
        ConfigError: naming the first, or what cannot be read.
    """
    try:
        found = next(_special(path, pattern, recursive=recursive), None)
    except OSError as error:
        # A link that leads to itself, a folder that may not be read.
        raise ConfigError(
            f"the captures cannot be listed: {error.strerror}",
            path=str(error.filename or path),
            remedy="See that it can be read, or leave it out of the captures' folder",
        ) from None
    if found is not None:
        mode = found.stat().st_mode
        kind = "a pipe" if stat.S_ISFIFO(mode) else "a socket" if stat.S_ISSOCK(mode) else "a device"
        raise ConfigError(
            f"{kind} is no capture file: its bytes cannot be read a second time",
            path=str(found),
            remedy="Write what it gives to a file, and leave it out of the captures' folder",
        )


def _special(path: Path, pattern: str | None, *, recursive: bool) -> Iterator[Path]:
    """Give what exists but is neither a file nor a folder."""
    if not path.is_dir():
        if path.exists() and not path.is_file():
            yield path
        return
    with os.scandir(path) as entries:
        for entry in entries:
            if entry.name.startswith((".", "_")) or entry.is_file():
                continue
            here = Path(entry.path)
            if entry.is_dir():
                # As with rglob, links to folders are not followed.
                if recursive and not entry.is_symlink():
                    yield from _special(here, pattern, recursive=True)
            elif here.exists() and (pattern is None or fnmatch(entry.name, pattern)):
                yield here


def _hidden(file: Path, root: Path) -> bool:
    return any(part.startswith((".", "_")) for part in file.relative_to(root).parts)


def _modified(file: Path) -> int:
    # Hadoop's file systems have milliseconds: with more, Spark's listing would have another order.
    return file.stat().st_mtime_ns // 1_000_000 * 1_000


def escape_glob(text: str) -> str:
    """Escape a text so that a glob matches it literally."""
    return _GLOB.sub(r"\\\1", text)


def map_file(path: str) -> memoryview:
    """Memory-map a local file: its bytes are read once, straight from the page cache."""
    with Path(path).open("rb") as file:
        if os.fstat(file.fileno()).st_size == 0:
            return memoryview(b"")
        return memoryview(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ))


def release_pages(content: memoryview) -> None:
    """Release the memory of a mapped file in this process; pages that are read again are loaded again."""
    if isinstance(content.obj, mmap.mmap) and hasattr(mmap, "MADV_DONTNEED"):
        content.obj.madvise(mmap.MADV_DONTNEED)
