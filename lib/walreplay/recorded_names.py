"""The names of files that ``walreplay record`` has written: a listing alone shows whether one is missing.

A name says the file's number and from which LSN to which it goes: ``00000042_0-16B3748_0-16C0000.pgo.zst``.  Each file
begins where the one before ended.  One that does not, because the slot was lost or moved meanwhile, says so:
``00000043_gap_0-1700000_0-1800000.pgo.zst``.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import Final

from walreplay.errors import OrderError
from walreplay.lsn import format_lsn, parse_lsn

_NAME: Final = re.compile(r"(\d{8,})_(gap_)?([0-9A-F]{1,8}-[0-9A-F]{1,8})_([0-9A-F]{1,8}-[0-9A-F]{1,8})\.pgo\.zst")


@dataclass(frozen=True, slots=True)
class RecordedName:
    """What a file's name says.

    Attributes:
        number: the first file's is 1.
        start: all that committed up to this LSN is in files before it; end: and up to this one, in them or in this.
        follows_gap: what committed between the file before and ``start`` was never recorded.
    """

    number: int
    start: int
    end: int
    follows_gap: bool = False

    def __str__(self) -> str:
        """Write the name."""
        start, end = (format_lsn(lsn).replace("/", "-") for lsn in (self.start, self.end))
        return f"{self.number:08}_{'gap_' if self.follows_gap else ''}{start}_{end}.pgo.zst"

    @classmethod
    def parse(cls, path: str) -> RecordedName | None:
        """Read the name at a path's end; None if it is another one."""
        match = _NAME.fullmatch(path.rpartition("/")[2])
        if match is None:
            return None
        start, end = (parse_lsn(match[group].replace("-", "/")) for group in (3, 4))
        return cls(int(match[1]), start, end, follows_gap=match[2] is not None)


@dataclass(frozen=True, slots=True)
class BrokenChain:
    """Two files of a folder, one behind the other, between which something is missing or doubled.

    Attributes:
        before: the paths.
        is_recorded: the second one's name says itself that what lies between was never recorded.
    """

    before: str
    after: str
    problem: str
    is_recorded: bool


def broken_chains(paths: Iterable[str]) -> Iterator[BrokenChain]:
    """Hold the names in each folder against each other; files with other names are not looked at.

    The first file of a folder may have any number: older ones may have been cleared away.
    """
    folders: dict[str, list[tuple[int, str, RecordedName]]] = {}
    for path in paths:
        if (name := RecordedName.parse(path)) is not None:
            folders.setdefault(path.rpartition("/")[0], []).append((name.number, path, name))
    for files in folders.values():
        for (_, before, earlier), (_, after, later) in pairwise(sorted(files, key=lambda file: file[:2])):
            if later.number == earlier.number:
                problem = f"two files have the number {later.number}: two recorders wrote into one folder"
            elif later.number > earlier.number + 1:
                problem = f"{later.number - earlier.number - 1:,} files between them are missing"
            elif later.start == earlier.end:
                continue
            else:
                places = f"from LSN {format_lsn(earlier.end)} to {format_lsn(later.start)}"
                problem = (
                    f"what committed {places} was never recorded" if later.follows_gap else f"nothing goes {places}"
                )
            yield BrokenChain(before, after, problem, later.follows_gap)


def refuse_outside(path: str, first_lsn: int | None, last_lsn: int | None) -> None:
    """Hold a file's name against what is in it.

    Args:
        first_lsn: of the first transaction that commits in it, the LSN of its commit; of the last one.

    Raises:
        OrderError: it has transactions from outside of its name's LSNs.
    """
    name = RecordedName.parse(path)
    if name is None or first_lsn is None or last_lsn is None or name.start <= first_lsn <= last_lsn <= name.end:
        return
    raise OrderError(
        f"the file has transactions from LSN {format_lsn(first_lsn)} to {format_lsn(last_lsn)}, and its name says "
        "others: it was renamed, or it is another file",
        path=path,
        remedy="Fetch the file from where it was recorded",
    )
