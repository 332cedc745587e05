"""One session of a recorder: from the server's stream to the store, and what is stored back to the server."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Final

from walreplay.errors import TargetError
from walreplay.lsn import POSTGRES_EPOCH_UNIX_MICROS
from walreplay.progress import log
from walreplay.recording.cutting import Cutting, StreamPiece
from walreplay.recording.server import SessionError, Stream, StreamOptions, Watch
from walreplay.recording.storing import Storing

_STATUS_SECONDS: Final = 2.0  # a server that hears nothing for half of wal_sender_timeout asks, and ends the session
_WAIT_SECONDS: Final = 0.2
_AWAY_SECONDS: Final = 60.0  # a store that fails for so long is not waited for when no more fits in memory
_HANGS_SECONDS: Final = 300.0  # nor one that does not answer for so long
_ASKS, _ASK_SECONDS = 3, 0.5  # a server that asks so often, each time as soon as it is answered, is being stopped
_STOP_SECONDS: Final = 10.0  # a server that is being stopped does not have to wait longer for a store that fails
_END_SECONDS: Final = 60.0  # for the last files to be stored
_REPORT_SECONDS: Final = 60.0
_NEVER: Final = ("25006", "42501", "42883")  # a standby; no right to it; a server that has no messages
_QUIET_BYTES: Final = 16 << 20  # of WAL in which nothing was for us: a file of keepalives moves the slot beyond it
_QUIET_SECONDS: Final = 3600.0
_KEEPALIVE, _REPLY = ord("k"), 17  # and where a keepalive has whether the server waits for an answer


@dataclass(frozen=True, slots=True)
class RecordOptions:
    """What is recorded, and how.

    Attributes:
        dsn: for libpq; empty: its variables alone.
        file_bytes: before they are compressed; ``file_seconds``: a file is stored after so many, if there is anything.
        spool_bytes: so much waits for the store at most.
        heartbeat: seconds; None for none.
        create: make the slot if there is none.
        new_session: go on though LSNs are missing.
    """

    dsn: str
    slot: str
    stream: StreamOptions
    file_bytes: int = 64 << 20
    file_seconds: float = 60.0
    spool_bytes: int = 256 << 20
    heartbeat: float | None = 600.0
    create: bool = False
    new_session: bool = False


@dataclass(frozen=True, slots=True)
class RecordStatus:
    """How far a recorder is.

    Attributes:
        stored_lsn: all up to here is in the store; ``lag_bytes``: of WAL, from there to the server's end.
        stored_time: when the server sent the newest of it (seconds since 1970); None where nothing was stored yet.
        files, bytes: that this process has stored; ``waiting_bytes``: that the store does not have yet.
        retained_bytes: of WAL that the server keeps for the slot; ``spare_bytes``: that may come until it no
            longer does (max_slot_wal_keep_size); None where it has no limit.
        store_failure: what the store answers; None while it does what it is asked.
    """

    stored_lsn: int
    lag_bytes: int
    stored_time: float | None
    files: int
    bytes: int
    waiting_bytes: int
    retained_bytes: int
    spare_bytes: int | None
    store_failure: str | None


class Transfer:
    """Move what comes to the store until the stream ends."""

    def __init__(
        self,
        options: RecordOptions,
        stream: Stream,
        watch: Watch,
        storing: Storing,
        report: Callable[[RecordStatus], None],
    ) -> None:
        self._options, self._stream, self._watch, self._storing = options, stream, watch, storing
        self._report = report
        self._cutting = Cutting(storing.stored_lsn, options.file_bytes, options.file_seconds)
        self._confirmed = storing.stored_lsn
        now = time.monotonic()
        self._answered = now  # when the server was told something last
        self._next_report, self._next_beat = now + _REPORT_SECONDS, now
        self._may_beat = options.heartbeat is not None
        self._asks, self._is_asked = 0, False  # how often in a row the server has asked, and whether it waits
        self._stopping: float | None = None  # since when it is being stopped

    def run(self, is_ending: Callable[[], bool]) -> None:
        """Record until the stream ends or is to be ended; then store what is whole.

        Raises:
            SessionError: the server or the connection has ended it.
            TargetError: the store is away for so long that nothing more can wait for it.
        """
        try:
            self._confirm()
            while not is_ending():
                self._storing.check()
                if not self._must_wait():
                    self._receive()
                self._cut()
                self._confirm()
                self._keep_up()
        except SessionError:
            self._stream.close()  # the server need not wait for the store
            if not self._finish(is_ending):
                raise self._away("not all is stored at the end") from None
            raise
        all_stored = self._finish(is_ending)
        with suppress(SessionError):
            self._confirm()
            self._stream.stop(_STOP_SECONDS)
        if not all_stored:
            raise self._away("not all is stored at the end")

    def _receive(self) -> None:
        cutting, file_bytes = self._cutting, self._options.file_bytes
        for payload in self._stream.receive(_WAIT_SECONDS):
            cutting.add(payload)
            if payload[0] == _KEEPALIVE:
                if payload[_REPLY]:
                    self._asks = self._asks + 1 if time.monotonic() - self._answered < _ASK_SECONDS else 1
                    self._is_asked = True
            elif len(cutting.data) >= file_bytes and cutting.is_due():
                self._store(cutting.cut())

    def _store(self, piece: StreamPiece) -> None:
        if self._watch.is_promoted():  # a session has one timeline: what came since comes again in another one
            raise SessionError("the standby was promoted")
        self._storing.add(piece)

    def _cut(self) -> None:
        cutting = self._cutting
        passed = cutting.end_lsn - cutting.start_lsn
        is_quiet = passed >= _QUIET_BYTES or (passed > 0 and cutting.seconds >= _QUIET_SECONDS)
        # A server that is being stopped waits until all that it has sent is confirmed.
        is_asked, is_behind = self._asks >= _ASKS and passed > 0, self._storing.waiting_bytes > 0
        if cutting.is_due(is_quiet=is_quiet, is_asked=is_asked, is_behind=is_behind):
            self._store(cutting.cut())

    def _confirm(self) -> None:
        """Tell the server what is stored, at once; else that we are there, now and then, and when it asks."""
        now, stored = time.monotonic(), self._storing.stored_lsn
        silence = now - self._answered
        if stored > self._confirmed or silence >= (_WAIT_SECONDS if self._is_asked else _STATUS_SECONDS):
            if not self._is_asked and silence >= _STATUS_SECONDS:
                self._asks = 0
            self._stream.confirm(self._cutting.end_lsn, stored)
            self._confirmed, self._answered, self._is_asked = stored, now, False
        if self._asks < _ASKS:
            self._stopping = None
        elif self._stopping is None:
            self._stopping = now
        elif now - self._stopping > _STOP_SECONDS:
            raise SessionError("the server waits for what the store does not take")

    def _must_wait(self) -> bool:
        """Let the store catch up: what the server has sent meanwhile waits in the connection."""
        if self._storing.waiting_bytes < self._options.spool_bytes:
            return False
        if self._is_away():
            raise self._away("the store is away, and no more may wait for it (--spool-bytes)")
        time.sleep(_WAIT_SECONDS / 10)
        return True

    def _is_away(self) -> bool:
        failing, busy, now = self._storing.failing_since, self._storing.busy_since, time.monotonic()
        return now - (failing or now) > _AWAY_SECONDS or now - (busy or now) > _HANGS_SECONDS

    def _away(self, problem: str) -> TargetError:
        return TargetError(
            f"{problem}: {self._storing.failure or 'it is slow'}",
            remedy="Nothing is lost: the server keeps what is not confirmed. See that the store can be written to, and "
            "start again before max_slot_wal_keep_size is reached",
        )

    def _finish(self, is_ending: Callable[[], bool]) -> bool:
        if cut := self._cutting.last_cut():
            with suppress(SessionError):
                self._store(cut)
        while not is_ending():  # the connection is lost: there is time
            if self._storing.finish(_WAIT_SECONDS):
                return True
            if self._is_away():
                raise self._away("the connection is lost, and the store is away")
        return self._storing.finish(_END_SECONDS)

    def _keep_up(self) -> None:
        """Report, and have the source write a heartbeat, when it is time."""
        now = time.monotonic()
        if now >= self._next_report:
            self._next_report = now + _REPORT_SECONDS
            try:
                self._report(self.status())
            except SessionError as error:  # the stream itself goes on
                log("no status", reason=str(error))
        if self._may_beat and now >= self._next_beat:
            self._next_beat = now + (self._options.heartbeat or 0)
            try:
                self._watch.beat()
            except SessionError as error:
                self._may_beat = error.sqlstate not in _NEVER  # else the next time
                log("no heartbeat", reason=str(error))

    def status(self) -> RecordStatus:
        """Ask the server how far it is.

        Raises:
            SessionError: it does not answer.
        """
        storing, slot = self._storing, self._watch.slot(self._options.slot) or {}
        position, totals = slot.get("position") or storing.stored_lsn, storing.totals
        return RecordStatus(
            storing.stored_lsn,
            max(position - storing.stored_lsn, 0),
            None if totals.sent is None else (totals.sent + POSTGRES_EPOCH_UNIX_MICROS) / 1e6,
            totals.files,
            totals.bytes,
            storing.waiting_bytes,
            max(position - (slot.get("restart_lsn") or position), 0),
            slot.get("safe_wal_size"),
            storing.failure,
        )
