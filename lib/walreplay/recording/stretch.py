"""Who records into an archive, and where it goes on.

Each recorder describes what it records before it writes anything: ``_recorded/00000001.json`` is the first one's
description; readers of captures ignore such names.  By the next one's, a recorder learns that it has to end.
"""

from __future__ import annotations

import json
import os
import platform
import re
import uuid
from collections.abc import Callable
from dataclasses import asdict, dataclass
from datetime import datetime, timezone
from typing import Final

from zstandard import ZstdDecompressor, ZstdError

from walreplay.errors import OrderError, TargetError
from walreplay.lsn import format_lsn
from walreplay.recorded_names import RecordedName, broken_chains
from walreplay.recording.store import Store

_DESCRIPTIONS: Final = "_recorded"
_DESCRIPTION: Final = re.compile(r"(\d{8})\.json")
_PROCESS: Final = str(uuid.uuid4())

_ONE: Final = "An archive has one recorder. End one of them, or give it another folder"
LOAD: Final = "Start once with --new-session, and load all tables again (docs/starting.md): apply says from where on"


@dataclass(frozen=True, slots=True)
class SlotOrigin:
    """Whose stream it is.

    Attributes:
        system: the server's identifier, which its standbys share; the timeline on which it writes.
    """

    system: str
    timeline: int
    database: str
    slot: str


@dataclass(frozen=True, slots=True)
class _Stretch(SlotOrigin):
    """What one recorder has recorded or will: whose stream, from which LSN on, and who it is."""

    start: int
    recorder: str
    process: str
    began: str

    @property
    def reader(self) -> str:
        return f"the slot {self.slot} (since {self.began}, by {self.recorder})"


class ArchiveClaim:
    """An archive that this process records into, and where its next file goes.

    Attributes:
        end_lsn: what the archive's last file goes up to.
        next_number: of the next file.
        follows_gap: the next file is the first behind LSNs that were never recorded.
    """

    def __init__(
        self, archive: RecordedArchive, number: int, described: bytes, end_lsn: int, *, follows_gap: bool
    ) -> None:
        self._store, self._number, self._described = archive.store, number, described
        self.end_lsn, self.next_number, self.follows_gap = end_lsn, archive.next_number, follows_gap

    def register(self) -> None:
        """Write into the archive who records from here on.

        Raises:
            OrderError: somebody else has at the same time.
            OSError: the store does not answer.
        """
        self._store.put(_path(self._number), self._described)

    def check(self) -> None:
        """See that nobody else has begun to record into the archive.

        Raises:
            OrderError: somebody has.
            OSError: the store does not answer.
        """
        # Two may have written one name at a time; the one whose bytes are gone has lost.
        later = self._store.read(_path(self._number + 1)) or self._store.read(_path(self._number))
        if later not in (None, self._described):
            problem = f"{_parse(later).reader} records into this folder now"
            raise OrderError(problem, path=self._store.shown, remedy=_ONE)

    def check_next(self) -> None:
        """See that nobody has stored a file since the archive was looked at, before the first one is.

        Raises:
            OrderError: somebody has, who has lost the slot meanwhile.
            OSError: the store does not answer.
        """
        names = filter(None, map(RecordedName.parse, self._store.names()))
        later = [name for name in names if name.number >= self.next_number]
        if later:
            problem, remedy = "another recorder has stored it meanwhile", "Start again: it goes on behind it"
            raise OrderError(problem, path=f"{self._store.shown}/{later[0]}", remedy=remedy)

    def has_stored(self, name: RecordedName) -> None:
        """Go on behind a file."""
        self.end_lsn, self.next_number, self.follows_gap = name.end_lsn, name.number + 1, False


class RecordedArchive:
    """What is in an archive, when it is looked at.

    Attributes:
        next_number: of the next file.

    Raises:
        OrderError: its last files do not follow one another, or the last one is damaged.
        OSError: by all methods: the store does not answer.
    """

    def __init__(self, store: Store) -> None:
        self.store = store
        matches = map(_DESCRIPTION.fullmatch, store.names(_DESCRIPTIONS))
        self._number = max((int(match[1]) for match in matches if match), default=0)
        self._described = store.read(_path(self._number)) if self._number else None
        names = store.names()
        recorded = filter(None, map(RecordedName.parse, names))
        self._last = sorted(recorded, key=lambda name: name.number)[-2:]
        self.next_number = self._last[-1].number + 1 if self._last else 1
        for broken in broken_chains(map(str, self._last)):
            if not broken.is_recorded:
                raise OrderError(broken.problem, path=f"{store.shown}/{broken.after}", remedy=_ONE)
        if self._last:
            self._check_last(str(self._last[-1]))
        foreign = [name for name in names if not name.startswith((".", "_"))]
        if not self._last and foreign and self._described is None:
            problem, remedy = f"the folder has other files, such as {min(foreign)}", "Record into a folder of its own"
            raise OrderError(problem, path=store.shown, remedy=remedy)
        if self._last and self._described is None:
            problem = f"the archive has files, and no {_path(1)} says whose they are"
            remedy = "Fetch that folder from where the archive was recorded, or record into another one"
            raise OrderError(problem, path=store.shown, remedy=remedy)

    @property
    def is_new(self) -> bool:
        """Whether nobody has recorded into it."""
        return self._described is None

    def _check_last(self, name: str) -> None:
        """See that the last file is whole: what its name says is confirmed to the server."""
        try:
            ZstdDecompressor().decompress(self.store.read(name) or b"")
        except ZstdError as error:
            raise OrderError(
                f"the archive's last file is not whole: {error}",
                path=f"{self.store.shown}/{name}",
                remedy="Move it away: what it should have is sent again, if the server has not been told that it is "
                "stored",
            ) from None

    def check_origin(self, origin: SlotOrigin, switch: Callable[[int], int | None], *, new_session: bool) -> None:
        """See that the archive is of this server's history.

        Args:
            switch: returns the LSN where the server has left a timeline; None if it was never on it.
            new_session: the slot may be another one.

        Raises:
            OrderError: it is another one's.
        """
        if self._described is None:
            return
        stretch, place = _parse(self._described), self.store.shown
        if (stretch.system, stretch.database) != (origin.system, origin.database):
            server = f" of another server (system {stretch.system}, and not {origin.system})"
            other = stretch.database + (server if stretch.system != origin.system else "")
            problem = f"the archive is of the database {other}, and this is {origin.database}"
            remedy = "Record into another folder: it is a source of its own"
            raise OrderError(problem, path=place, remedy=remedy)
        if stretch.slot != origin.slot and not new_session:
            remedy = f"{_ONE}. If that slot is given up, start once with --new-session"
            problem = f"{stretch.reader} records into this folder, and not the slot {origin.slot}"
            raise OrderError(problem, path=place, remedy=remedy)
        end = self._end(stretch)
        left = end if stretch.timeline == origin.timeline else switch(stretch.timeline)
        if left is None or left < end:
            since = "" if left is None else f" since LSN {format_lsn(left)}"
            raise OrderError(
                f"the archive goes to LSN {format_lsn(end)} on timeline {stretch.timeline}, and this server has a "
                f"history of its own{since} (timeline {origin.timeline}): what committed behind it is in the archive, "
                "and not on this server",
                path=place,
                remedy="Record into another folder, and load all tables of a new target from this server",
            )

    def _end(self, stretch: _Stretch) -> int:
        return max(stretch.start, self._last[-1].end_lsn if self._last else 0)

    def claim(self, origin: SlotOrigin, confirmed: int, *, new_session: bool) -> ArchiveClaim:
        """Return where a recorder goes on, which has to register once it has the slot.

        Args:
            confirmed: up to which LSN the server will not send again.
            new_session: changes that were never recorded may lie between.

        Raises:
            OrderError: the slot goes on behind the archive's end.
        """
        if self._described is None:
            return self._stretch(origin, confirmed, follows_gap=False)
        stretch = _parse(self._described)
        end = self._end(stretch)
        if confirmed > end and not new_session:
            raise OrderError(
                f"the archive ends at LSN {format_lsn(end)}, and the slot {origin.slot} goes on at "
                f"{format_lsn(confirmed)}: it was made anew, or somebody else has read it. What committed between is "
                "missing",
                path=self.store.shown,
                remedy=LOAD,
            )
        # The stretch before may have begun behind a gap, and have no file.
        is_incomplete = bool(self._last) and self._last[-1].end_lsn < stretch.start
        follows_gap = confirmed > end or is_incomplete
        if stretch.process == _PROCESS and stretch.timeline == origin.timeline and confirmed <= end:
            return ArchiveClaim(self, self._number, self._described, end, follows_gap=is_incomplete)
        return self._stretch(origin, max(confirmed, end), follows_gap=follows_gap)

    def _stretch(self, origin: SlotOrigin, start: int, *, follows_gap: bool) -> ArchiveClaim:
        who = f"{platform.node()}, process {os.getpid()}"
        began = f"{datetime.now(timezone.utc):%FT%TZ}"
        stretch = _Stretch(**asdict(origin), start=start, recorder=who, process=_PROCESS, began=began)
        described = json.dumps(asdict(stretch), indent=1).encode()
        return ArchiveClaim(self, self._number + 1, described, start, follows_gap=follows_gap)

    def try_out(self) -> None:
        """See that the store can be written to."""
        self.store.put(f"{_DESCRIPTIONS}/written", b"walreplay record")


def _parse(described: bytes) -> _Stretch:
    try:
        return _Stretch(**json.loads(described))
    except (ValueError, TypeError) as error:
        raise TargetError("the archive's description is damaged", path=_DESCRIPTIONS, remedy="Fetch it anew") from error


def _path(number: int) -> str:
    return f"{_DESCRIPTIONS}/{number:08}.json"
