"""Record: read the stream, cut it into files, have them stored, and confirm what is stored.

Whatever breaks, the server sends again all that it was not told is stored.  So each session begins at the end of the
archive as its names say it, and nothing else has to be remembered.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import closing
from typing import Any, Final

from walreplay.errors import ConfigError, OrderError, TargetError
from walreplay.lsn import format_lsn
from walreplay.progress import log
from walreplay.recording.first_copy import FirstCopy
from walreplay.recording.server import SessionError, Stream, Watch, is_starting
from walreplay.recording.store import Store
from walreplay.recording.storing import StoredTotals, Storing
from walreplay.recording.stretch import LOAD, ArchiveClaim, RecordedArchive, SlotOrigin
from walreplay.recording.transfer import RecordOptions, RecordStatus, Transfer

_TAKEOVER_SECONDS: Final = 90.0  # the server may hold a dead recorder's session for wal_sender_timeout
_IN_USE: Final = "55006"
_MOST_ERRORS: Final = 5  # of the server, one behind the other, without anything stored between
_LONGEST_PAUSE: Final = 30.0
_FAILOVER_OF_TWO_PHASES: Final = 180_000
_LONG_SESSION: Final = 600.0  # seconds, behind which an error has nothing to do with those before


class Recorder:
    """Record until it is ended.

    Args:
        report: is given the status every minute.
        first_copy: is begun when a slot is made.
    """

    def __init__(
        self, options: RecordOptions, store: Store, report: Callable[[RecordStatus], None], first_copy: FirstCopy
    ) -> None:
        self._options, self._store = options, store
        self._report, self._first_copy = report, first_copy
        self._is_ending = False  # a plain flag: a signal's handler must not wait for a lock
        self._was_reached = self._has_begun = False
        self._totals = StoredTotals()

    def stop(self) -> None:
        """Have it end, with everything stored; from another thread, or from a signal's handler."""
        self._is_ending = True

    def is_ending(self) -> bool:
        """Return whether it is to end."""
        return self._is_ending

    def run(self) -> None:
        """Record; where the connection is lost, again and again.

        Raises:
            WalReplayError: what has to be mended first.  Nothing is lost: the server keeps what is not confirmed.
        """
        errors, pause = 0, 1.0
        while not self._is_ending:
            files, began = self._totals.files, time.monotonic()
            try:
                self._record()
            except SessionError as error:
                if self._totals.files > files or time.monotonic() - began > _LONG_SESSION:
                    errors, pause = 0, 1.0
                errors += error.sqlstate != ""
                # At the start only a server that was reached, and went away, is worth another try.
                may_come = self._has_begun or self._is_ending or (self._was_reached and not error.sqlstate)
                if errors >= _MOST_ERRORS or not may_come:
                    raise _nothing_recorded(str(error)) from None
                log("server's error" if error.sqlstate else "interrupted", reason=str(error), pause=pause)
                self._wait(pause)
                pause = min(2 * pause, _LONGEST_PAUSE)

    def _wait(self, seconds: float) -> None:
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline and not self._is_ending:
            time.sleep(0.1)

    def _record(self) -> None:
        options = self._options
        if is_starting(options.dsn):
            log("the server is starting")
            while is_starting(options.dsn) and not self._is_ending:
                self._wait(1)
        # The watch first: it sees each promotion since the stream has said its timeline.
        with closing(Watch(options.dsn)) as watch, closing(Stream(options.dsn, self.is_ending)) as stream:
            self._was_reached = True
            try:
                claim = self._start(stream, watch, options.stream.of_server(stream.version))
            except OSError as error:
                raise (SessionError if self._has_begun else _nothing_recorded)(f"the store: {error}") from None
            self._has_begun = True
            log("recording", slot=options.slot, lsn=format_lsn(claim.end_lsn), archive=self._store.shown)
            storing = Storing(self._store, claim, self._totals)
            Transfer(options, stream, watch, storing, self._report).run(self.is_ending)

    def _start(self, stream: Stream, watch: Watch, plugin_options: dict[str, str]) -> ArchiveClaim:
        """Begin the stream where the archive ends; a dead recorder's session may have the slot for a while."""
        deadline = time.monotonic() + _TAKEOVER_SECONDS
        while True:
            claim = self._claim(stream, watch)
            try:
                stream.start(self._options.slot, claim.end_lsn, plugin_options)
            except SessionError as error:
                if error.sqlstate != _IN_USE or self._is_ending:
                    raise
                if time.monotonic() > deadline:
                    remedy = "A slot has one reader: end that one, or make a slot for each"
                    raise TargetError(f"the slot has another reader: {error}", remedy=remedy) from None
                log("slot in use", slot=self._options.slot, reason=str(error))
                # Who has it may store more files: the archive is looked at anew once it is free.
                self._wait(1)
                while time.monotonic() < deadline and (watch.slot(self._options.slot) or {}).get("active"):
                    self._wait(1)
                    if self._is_ending:
                        raise
            else:
                claim.register()  # only now that the slot is ours
                return claim

    def _claim(self, stream: Stream, watch: Watch) -> ArchiveClaim:
        """Find where the archive ends, and see that the slot, which is made if it has to be, goes on there."""
        options = self._options
        slot = watch.slot(options.slot)  # first: whoever has it may go on to store and confirm
        archive = RecordedArchive(self._store)
        missing = watch.missing_publications(options.stream.publications)
        if missing:
            remedy = "Make it before the slot, which sends by what was published then: CREATE PUBLICATION"
            raise ConfigError(f"there is no publication {missing[0]} in the database {stream.database}", remedy=remedy)
        origin = SlotOrigin(stream.system, stream.timeline, stream.database, options.slot)
        archive.check_origin(origin, stream.switch_point, new_session=options.new_session)
        if slot is None:
            slot = self._create(watch, archive)
        elif archive.is_new and not self._has_begun:
            log("the slot was there: nothing is copied or announced", slot=options.slot)
        _check_slot(slot, stream.database, options)
        claim = archive.claim(origin, slot["confirmed_flush_lsn"], new_session=options.new_session)
        if slot["position"] < claim.end_lsn:
            slot = watch.slot(options.slot) or slot  # it may have got there meanwhile
        if slot["position"] < claim.end_lsn:
            position, end = format_lsn(slot["position"]), format_lsn(claim.end_lsn)
            behind = f"the server is at LSN {position}, and the archive at {end}"
            if slot["is_standby"]:
                raise SessionError(behind)
            remedy = "The server was set back: record into another folder, and load all tables of a new target"
            raise OrderError(behind, path=self._store.shown, remedy=remedy)
        return claim

    def _create(self, watch: Watch, archive: RecordedArchive) -> dict[str, Any]:
        options = self._options
        if not options.create or not (archive.is_new or options.new_session):
            remedy = "Give --create to make it"
            if not archive.is_new:
                remedy = f"What has committed since the archive's end is lost to it. {remedy}. {LOAD}"
            raise OrderError(f"there is no slot {options.slot}", path=self._store.shown, remedy=remedy)
        archive.try_out()  # a slot that nobody can record keeps WAL
        self._first_copy.prepare(watch)
        holder = Stream(options.dsn, self.is_ending)  # the snapshot lasts until it is used again
        two_phase = options.stream.two_phase
        # A standby has no such slots, and PostgreSQL 17 none of two phases.
        failover = not watch.is_standby() and (holder.version >= _FAILOVER_OF_TWO_PHASES or not two_phase)
        snapshot = holder.create_slot(options.slot, two_phase=two_phase, failover=failover)
        self._has_begun = True  # from here on it is this process that copies and announces
        log("slot made", slot=options.slot, lsn=format_lsn(snapshot.consistent_point))
        self._first_copy.start(snapshot, holder.close)
        slot = watch.slot(options.slot)
        if slot is None:
            raise SessionError("the slot that was just made is gone")
        return slot


def _nothing_recorded(problem: str) -> TargetError:
    remedy = "Mend that, and start again. Nothing is lost while the slot is there"
    return TargetError(f"nothing is recorded: {problem}", remedy=remedy)


def _check_slot(slot: dict[str, Any], database: str, options: RecordOptions) -> None:
    name = options.slot
    if slot["plugin"] != "pgoutput" or slot["database"] != database:
        problem = f"the slot {name} is of the plugin {slot['plugin']} and the database {slot['database']}"
        remedy = "It has to be of pgoutput and of the database that is recorded: name another one"
        raise ConfigError(problem, remedy=remedy)
    why = slot.get("invalidation_reason") or ("wal_removed" if slot.get("wal_status") == "lost" else None)
    if why:
        raise OrderError(
            f"the server has given up the slot {name} ({why}): what has committed since the archive's end is lost",
            remedy=f"Drop it (SELECT pg_drop_replication_slot('{name}')), and give --create. {LOAD}",
        )
    if options.stream.two_phase and not slot.get("two_phase"):
        remedy = "Leave that out, or make another slot with it"
        raise ConfigError(f"the slot {name} was not made for --two-phase", remedy=remedy)
    if slot["confirmed_flush_lsn"] is None:
        raise TargetError(
            f"the slot {name} is still being made: the server waits for transactions that were open",
            remedy="End them, or wait: the oldest xact_start of pg_stat_activity. Then start again",
        )
