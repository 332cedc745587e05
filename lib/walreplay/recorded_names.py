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

from walreplay.errors import NotACapture, OrderError
from walreplay.lsn import format_lsn, parse_lsn

_NAME: Final = re.compile(r"([0-9]{8,18})_(gap_)?([0-9A-F]{1,8}-[0-9A-F]{1,8})_([0-9A-F]{1,8}-[0-9A-F]{1,8})\.pgo\.zst")

_BRING: Final = (
    "Bring what is missing from where it was recorded; or go on without it by --allow-gaps, and load all tables again "
    "(docs/starting.md)"
)
_ONE: Final = "An archive has one recorder: keep the files of one, and move the other's to a folder of their own"


@dataclass(frozen=True, slots=True)
class RecordedName:
    """What a file's name says.

    Attributes:
        number: the first file's is 1.
        start_lsn: all that committed up to here is in files before it; end_lsn: and up to here, in them or in this.
        follows_gap: what committed between the file before and ``start_lsn`` was never recorded.
    """

    number: int
    start_lsn: int
    end_lsn: int
    follows_gap: bool = False

    def __str__(self) -> str:
        """Write the name."""
        start, end = (format_lsn(lsn).replace("/", "-") for lsn in (self.start_lsn, self.end_lsn))
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
        after: the path of the second one.
        start: the LSN at which the second one begins.
        is_recorded: its name says itself that what lies between was never recorded.
    """

    after: str
    problem: str
    remedy: str
    start: int
    is_recorded: bool = False

    @property
    def error(self) -> OrderError:
        """The error of who needs what is missing."""
        return OrderError(self.problem, path=self.after, remedy=self.remedy)


def broken_chains(paths: Iterable[str]) -> Iterator[BrokenChain]:
    """Hold the names in each folder against each other; files with other names are not looked at.

    The first file of a folder may have any number: older ones may have been cleared away.
    """
    folders: dict[str, list[tuple[int, str, RecordedName]]] = {}
    for path in paths:
        if (name := RecordedName.parse(path)) is not None:
            folders.setdefault(path.rpartition("/")[0], []).append((name.number, path, name))
    for files in folders.values():
        for (_, _, earlier), (_, after, later) in pairwise(sorted(files, key=lambda file: file[:2])):
            broken = _broken(earlier, later)
            if broken is not None:
                is_recorded = later.follows_gap and later.number == earlier.number + 1
                yield BrokenChain(after, *broken, later.start_lsn, is_recorded)


def _broken(earlier: RecordedName, later: RecordedName) -> tuple[str, str] | None:
    """Return what is wrong between two files, and what to do; None if the second one goes on behind the first."""
    end, start, missing = format_lsn(earlier.end_lsn), format_lsn(later.start_lsn), later.number - earlier.number - 1
    if missing < 0:
        return f"{earlier} has the same number: two recorders wrote into one folder", _ONE
    if missing:
        files = "1 file is" if missing == 1 else f"{missing:,} files are"
        return f"in front of it {files} missing, behind {earlier}, which goes to LSN {end}", _BRING
    if later.start_lsn < earlier.end_lsn:
        return f"it begins at LSN {start}, and {earlier}, in front of it, goes to {end}", _ONE
    if later.start_lsn == earlier.end_lsn:
        return None
    if not later.follows_gap:
        return f"it begins at LSN {start}, and {earlier}, in front of it, ends at {end}", _BRING
    return f"what committed from LSN {end} to {start} was never recorded", (
        f"Load all tables again, as of LSN {start} or later (docs/starting.md): walreplay load --replace --from COPY; "
        "if walreplay apply still stops here, it has outputs or tables that were not loaded: give it --allow-gaps"
    )


def refuse_outside(path: str, commits: Iterable[int]) -> None:
    """Hold a file's name against the commit LSNs in it.

    Raises:
        NotACapture: it has transactions from outside of its name's LSNs: it is no file of this name's archive.
    """
    name, lsns = RecordedName.parse(path), [*commits]
    # A file's end lies behind its last commit.
    if name is None or not lsns or name.start_lsn <= min(lsns) <= max(lsns) < name.end_lsn:
        return
    raise NotACapture(
        f"the file has transactions from LSN {format_lsn(min(lsns))} to {format_lsn(max(lsns))}, and its name says "
        f"{format_lsn(name.start_lsn)} to {format_lsn(name.end_lsn)}: it was renamed, or it is another file",
        path=path,
        remedy="Fetch the file from where it was recorded",
    )
