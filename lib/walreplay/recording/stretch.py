"""Who records into an archive, and where it goes on.

A *stretch* is what one slot of one server has sent without anything missing.  ``_recorded/00000001.json`` describes the
first one: readers of captures ignore such names.  A recorder that begins another stretch writes the next description,
by which the one before learns that it has to end.
"""

from __future__ import annotations

import json
import os
import platform
from collections.abc import Callable
from dataclasses import asdict, dataclass
from datetime import datetime, timezone
from typing import Final

from walreplay.errors import OrderError, TargetError
from walreplay.lsn import format_lsn
from walreplay.recorded_names import RecordedName, broken_chains
from walreplay.recording.store import Store

DESCRIPTIONS: Final = "_recorded"


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
class _Stretch:
    """A description: the origin, the LSN where the first file begins, and who began it."""

    system: str
    timeline: int
    database: str
    slot: str
    start: int
    recorder: str
    began: str


class ArchiveEnd:
    """An archive that is recorded into.

    Attributes:
        end: what the archive's last file goes up to.
        next_number: of the next file.
        follows_gap: the next file is the first behind LSNs that were never recorded.
    """

    def __init__(self, store: Store, stretch: int, end: int, next_number: int, *, follows_gap: bool) -> None:
        self._store, self._stretch = store, stretch
        self.end, self.next_number, self.follows_gap = end, next_number, follows_gap

    def check(self) -> None:
        """See that nobody else has begun to record into the archive.

        Raises:
            OrderError: somebody has.
            OSError: the store does not answer.
        """
        later = self._store.read(_path(self._stretch + 1))
        if later is not None:
            raise OrderError(f"{_who(_parse(later))} records into this folder now", path=self._store.uri, remedy=_ONE)

    def has_stored(self, name: RecordedName) -> None:
        """Go on behind a file."""
        self.end, self.next_number, self.follows_gap = name.end, name.number + 1, False


_ONE: Final = "An archive has one recorder. End one of them, or give it another folder"
LOAD: Final = (
    "Start once with --new-session, and load all tables again (docs/starting.md): apply says from which LSN on"
)


def archive_end(
    store: Store, origin: SlotOrigin, confirmed: int, switch: Callable[[int], int | None], *, new_session: bool
) -> ArchiveEnd:
    """Find the archive's end, and see that the slot goes on there.

    Args:
        confirmed: up to which LSN the server will not send again.
        switch: returns the LSN where the server has left a timeline; None if it was never on it.
        new_session: changes that were never recorded may lie between.

    Raises:
        OrderError: it does not, or the archive is another one's.
        OSError: the store does not answer.
    """
    names = sorted((name for name in map(RecordedName.parse, store.names()) if name), key=lambda name: name.number)
    for broken in broken_chains(map(str, names[-2:])):
        if not broken.is_recorded:
            raise OrderError(broken.problem, path=f"{store.uri}/{broken.after}", remedy=_ONE)
    number = len(store.names(DESCRIPTIONS))
    described = store.read(_path(number)) if number else None
    if described is None and names:
        raise OrderError(
            f"the archive has files, and no {_path(1)} says whose they are",
            path=store.uri,
            remedy="Fetch that folder from where the archive was recorded, or record into another one",
        )
    next_number = names[-1].number + 1 if names else 1
    if described is None:
        return _begin(store, 1, origin, confirmed, next_number, follows_gap=False)
    stretch = _parse(described)
    end = max(stretch.start, names[-1].end if names else 0)
    _check_origin(store.uri, stretch, origin, end, switch, new_session=new_session)
    if confirmed > end:
        if not new_session:
            raise OrderError(
                f"the archive ends at LSN {format_lsn(end)}, and the slot {origin.slot} goes on at "
                f"{format_lsn(confirmed)}: it was made anew, or somebody else has read it. What committed between is "
                "missing",
                path=store.uri,
                remedy=LOAD,
            )
        return _begin(store, number + 1, origin, confirmed, next_number, follows_gap=True)
    if (stretch.timeline, stretch.slot) != (origin.timeline, origin.slot):
        return _begin(store, number + 1, origin, end, next_number, follows_gap=False)
    # A stretch without a file may have begun behind a gap.
    follows_gap = bool(names) and names[-1].end < stretch.start
    return ArchiveEnd(store, number, end, next_number, follows_gap=follows_gap)


def _check_origin(
    place: str,
    stretch: _Stretch,
    origin: SlotOrigin,
    end: int,
    switch: Callable[[int], int | None],
    *,
    new_session: bool,
) -> None:
    if (stretch.system, stretch.database) != (origin.system, origin.database):
        raise OrderError(
            f"the archive is of the database {stretch.database} of another server (system {stretch.system}; this is "
            f"{origin.database}, {origin.system})",
            path=place,
            remedy="Record into another folder: it is a source of its own",
        )
    if stretch.slot != origin.slot and not new_session:
        raise OrderError(
            f"{_who(stretch)} records into this folder, and not the slot {origin.slot}",
            path=place,
            remedy=f"{_ONE}. If that slot is given up, start once with --new-session",
        )
    if stretch.timeline != origin.timeline:
        left = switch(stretch.timeline)
        if left is None or left < end:
            since = "" if left is None else f" since LSN {format_lsn(left)}"
            raise OrderError(
                f"the archive goes to LSN {format_lsn(end)} on timeline {stretch.timeline}, and this server has a "
                f"history of its own{since} (timeline {origin.timeline}): what committed behind it is in the "
                "archive, and not on this server",
                path=place,
                remedy="Record into another folder, and load all tables of a new target from this server",
            )


def _begin(
    store: Store, number: int, origin: SlotOrigin, start: int, next_number: int, *, follows_gap: bool
) -> ArchiveEnd:
    who = f"{platform.node()}, process {os.getpid()}"
    stretch = _Stretch(**asdict(origin), start=start, recorder=who, began=f"{datetime.now(timezone.utc):%FT%TZ}")
    store.put(_path(number), json.dumps(asdict(stretch), indent=1).encode())
    return ArchiveEnd(store, number, start, next_number, follows_gap=follows_gap)


def _parse(described: bytes) -> _Stretch:
    try:
        return _Stretch(**json.loads(described))
    except (ValueError, TypeError) as error:
        raise TargetError("the archive's description is damaged", path=DESCRIPTIONS, remedy="Fetch it again") from error


def _path(number: int) -> str:
    return f"{DESCRIPTIONS}/{number:08}.json"


def _who(stretch: _Stretch) -> str:
    return f"the slot {stretch.slot} (since {stretch.began}, by {stretch.recorder})"
