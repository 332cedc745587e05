"""Record: read the stream, cut it into files, have them stored, and confirm what is stored.

Whatever breaks, the server sends again all that it was not told is stored.  So each session begins at the end of the
archive as its names say it, and nothing else has to be remembered.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Final

from walreplay.errors import ConfigError, OrderError, TargetError, WalReplayError
from walreplay.lsn import format_lsn
from walreplay.progress import log
from walreplay.recording.server import Stream, StreamEnded, Watch
from walreplay.recording.store import Store
from walreplay.recording.storing import Storing
from walreplay.recording.stretch import DESCRIPTIONS, LOAD, ArchiveEnd, SlotOrigin, archive_end
from walreplay.recording.transfer import RecordOptions, RecordStatus, Transfer

_TAKEOVER_SECONDS: Final = 90.0  # the server may hold a dead recorder's session for wal_sender_timeout
_MOST_ERRORS: Final = 5  # of the server, one behind the other, without anything stored between
_LONGEST_PAUSE: Final = 30.0


@dataclass(frozen=True, slots=True)
class CreatedSlot:
    """A slot that was just made.

    Attributes:
        snapshot: what is visible in it, and what the slot sends, together are everything; it lasts until ``release``.
    """

    snapshot: str
    consistent_point: int
    release: Callable[[], None]


class Recorder:
    """Record until it is ended.

    Args:
        report: is given the status every minute, and at the end.
        created: is called when the slot was made.
    """

    def __init__(
        self,
        options: RecordOptions,
        store: Store,
        report: Callable[[RecordStatus], None],
        created: Callable[[CreatedSlot], None],
    ) -> None:
        self._options, self._store = options, store
        self._report, self._created = report, created
        self._ending = threading.Event()
        self._files = self._bytes = 0
        self._has_begun = False

    def end(self) -> None:
        """Have it end, with everything stored; from another thread, or from a signal's handler."""
        self._ending.set()

    def run(self) -> None:
        """Record; where the connection is lost, again and again.

        Raises:
            WalReplayError: what has to be mended first.  Nothing is lost: the server keeps what is not confirmed.
        """
        errors, pause = 0, 1.0
        while not self._ending.is_set():
            files = self._files
            try:
                self._record()
            except StreamEnded as error:
                errors = 1 if self._files > files else errors + 1
                pause = 1.0 if self._files > files else min(2 * pause, _LONGEST_PAUSE)
                if (errors >= _MOST_ERRORS and not error.is_lost) or not self._has_begun:
                    raise _refused(error) from None
                log("connection lost" if error.is_lost else "server's error", reason=str(error), pause=pause)
            except OSError as error:  # the store does not say where the archive ends
                pause = min(2 * pause, _LONGEST_PAUSE)
                log("store failed", reason=str(error), pause=pause)
            self._ending.wait(pause)

    def _record(self) -> None:
        options = self._options
        stream = Stream(options.dsn)
        try:
            watch = Watch(options.dsn)
            try:
                archive = self._archive(stream, watch)
                self._start(stream, watch, archive)
                self._has_begun = True
                log("recording", slot=options.slot, lsn=format_lsn(archive.end), archive=self._store.uri)
                storing = Storing(self._store, archive)
                try:
                    Transfer(options, stream, watch, storing, self._tell).run(self._ending)
                finally:
                    self._files, self._bytes = self._files + storing.files, self._bytes + storing.bytes
            finally:
                watch.close()
        finally:
            stream.close()

    def _tell(self, status: RecordStatus) -> None:
        self._report(replace(status, files=self._files + status.files, bytes=self._bytes + status.bytes))

    def _archive(self, stream: Stream, watch: Watch) -> ArchiveEnd:
        """Find where the archive ends, and see that the slot, which is made if it has to be, goes on there."""
        options = self._options
        missing = watch.missing_publications(options.stream.publications)
        if missing:
            raise ConfigError(
                f"there is no publication {missing[0]} in the database {stream.database}",
                remedy="Make it before the slot, which sends by what was published then: CREATE PUBLICATION",
            )
        slot = watch.slot(options.slot)
        if slot is None:
            slot = self._create(stream, watch)
        _check_slot(slot, stream.database, options)
        origin = SlotOrigin(stream.system, stream.timeline, stream.database, options.slot)
        confirmed = slot["confirmed_flush_lsn"]
        return archive_end(self._store, origin, confirmed, stream.switch_point, new_session=options.new_session)

    def _create(self, stream: Stream, watch: Watch) -> dict[str, Any]:
        options, has_archive = self._options, bool(self._store.names(DESCRIPTIONS))
        if not options.create or (has_archive and not options.new_session):
            raise OrderError(
                f"there is no slot {options.slot}",
                path=self._store.uri,
                remedy=f"What has committed since the archive's end is lost to it. Give --create. {LOAD}"
                if has_archive
                else "Give --create to make it",
            )
        holder = Stream(options.dsn)  # the snapshot lasts until it is used again
        snapshot, point = holder.create_slot(options.slot, two_phase=options.stream.two_phase)
        log("slot made", slot=options.slot, lsn=format_lsn(point), snapshot=snapshot)
        self._created(CreatedSlot(snapshot, point, holder.close))
        slot = watch.slot(options.slot)
        assert slot is not None
        return slot

    def _start(self, stream: Stream, watch: Watch, archive: ArchiveEnd) -> None:
        """Begin the stream; a session of a recorder that is dead may still have the slot for a while."""
        deadline = time.monotonic() + _TAKEOVER_SECONDS
        plugin_options = self._options.stream.of_server(stream.version)
        while True:
            try:
                return stream.start(self._options.slot, archive.end, plugin_options)
            except StreamEnded as error:
                reader = (watch.slot(self._options.slot) or {}).get("reader")
                if reader is None or self._ending.is_set():
                    raise
                if time.monotonic() > deadline:
                    raise TargetError(
                        f"the slot {self._options.slot} is read by {reader}",
                        remedy="A slot has one reader: end that one, or make a slot for each",
                    ) from None
                log("slot in use", slot=self._options.slot, reader=reader, reason=str(error))
                self._ending.wait(1)


def _check_slot(slot: dict[str, Any], database: str, options: RecordOptions) -> None:
    name = options.slot
    if slot["plugin"] != "pgoutput" or slot["database"] != database:
        raise ConfigError(
            f"the slot {name} is of the plugin {slot['plugin']} and the database {slot['database']}",
            remedy="It has to be of pgoutput and of the database that is recorded: name another one",
        )
    why = slot.get("invalidation_reason") or ("wal_removed" if slot.get("wal_status") == "lost" else None)
    if why:
        raise OrderError(
            f"the server has given up the slot {name} ({why}): what has committed since the archive's end is lost",
            remedy=f"Drop it (SELECT pg_drop_replication_slot('{name}')), and give --create. {LOAD}",
        )
    if options.stream.two_phase and not slot.get("two_phase"):
        raise ConfigError(
            f"the slot {name} was not made for --two-phase",
            remedy="Leave that out, or make another slot with it",
        )


def _refused(error: StreamEnded) -> WalReplayError:
    if error.is_lost:
        return TargetError(f"the server cannot be reached: {error}", remedy="See --dsn, or PGHOST and its kin")
    return TargetError(
        f"the server does not send: {error}",
        remedy="It keeps what is not recorded. Mend what it says, and start again; a slot that fails so from its start "
        "is made anew",
    )
