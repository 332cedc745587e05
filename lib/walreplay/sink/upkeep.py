"""Decide what a table needs: small files written together, rows that are marked deleted gone, old files removed."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Literal, TypeAlias

SMALL: Final = 64 << 20
"""A file with fewer bytes is small."""

LEAST: Final = 10
"""So few small files, or files with deletion vectors, are left as they are."""

Action: TypeAlias = Literal["optimize", "purge", "vacuum", "forget"]
"""``optimize``: small files are written together; ``purge``: files with deletion vectors are written anew; ``vacuum``:
files that no version needs any more are removed; ``forget``: the ledger's rows of old runs are removed."""

_ADDED: Final = ("numAddedFiles", "numTargetFilesAdded", "numFiles")
_BYTES: Final = ("numAddedBytes", "numTargetBytesAdded", "numOutputBytes")
_MARKED: Final = ("numDeletionVectorsAdded", "numTargetDeletionVectorsAdded")
_TOGETHER: Final = ("OPTIMIZE", "REORG")


@dataclass(frozen=True, slots=True)
class FilesOfTable:
    """A table's files.

    Attributes:
        size: bytes of all of them.
        small: those of fewer than `SMALL` bytes.
        marked: those with a deletion vector.
    """

    count: int
    size: int
    small: int
    marked: int


@dataclass(frozen=True, slots=True)
class Need:
    """Something that a table needs, and why."""

    action: Action
    reason: str


def from_log(files: Iterable[tuple[int, bool]]) -> FilesOfTable:
    """Count the files that a log has: bytes of each, and whether it has a deletion vector."""
    count = size = small = marked = 0
    for length, is_marked in files:
        count, size = count + 1, size + length
        small += length < SMALL
        marked += is_marked
    return FilesOfTable(count, size, small, marked)


def from_history(count: int, size: int, commits: Sequence[tuple[str, Mapping[str, str]]]) -> FilesOfTable:
    """Estimate the same from a table's history.

    A commit's files are small if they are so on an average; what came before an OPTIMIZE was written together by it.

    Args:
        count: the table's files, and ``size`` their bytes.
        commits: the newest first: each one's operation and its metrics.
    """
    small = marked = 0
    together = purged = False
    for operation, metrics in commits:
        together, purged = together or operation in _TOGETHER, purged or operation == "REORG"
        added, written = _number(metrics, _ADDED), _number(metrics, _BYTES)
        if not together and (written is None or written < SMALL * (added or 0)):
            small += added or 0
        if not purged:
            marked += _number(metrics, _MARKED) or 0
    if not together and size < SMALL * count:
        # None of the commits says that they were ever written together.
        small = max(small, count - size // SMALL)
    return FilesOfTable(count, size, min(small, count), min(marked, count))


def needs_of(files: FilesOfTable, unreferenced: int) -> tuple[Need, ...]:
    """Say what a table needs.

    Args:
        unreferenced: files that no version needs any more which the table's retention keeps.
    """
    needs = []
    if files.marked >= LEAST:
        needs.append(Need("purge", f"{_counted(files.marked)} of {files.count:,} with deletion vectors"))
    if files.small >= LEAST:
        needs.append(Need("optimize", f"{_counted(files.small)} of {files.count:,} below {SMALL >> 20} MiB"))
    if unreferenced:
        needs.append(Need("vacuum", f"{_counted(unreferenced)} unreferenced for longer than the table's retention"))
    return tuple(needs)


def _counted(number: int) -> str:
    return f"{number:,} file{'' if number == 1 else 's'}"


def _number(metrics: Mapping[str, str], names: Sequence[str]) -> int | None:
    return next((int(metrics[name]) for name in names if name in metrics), None)


__all__ = ["LEAST", "SMALL", "Action", "FilesOfTable", "Need", "from_history", "from_log", "needs_of"]
