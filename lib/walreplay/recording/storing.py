"""Hand files to the store by a thread of its own, so that the server is answered also while the store is slow."""

from __future__ import annotations

import threading
import time
from collections import deque
from dataclasses import dataclass
from typing import Final

from zstandard import ZstdCompressor

from walreplay.errors import WalReplayError
from walreplay.progress import log
from walreplay.recorded_names import RecordedName
from walreplay.recording.cutting import StreamPiece
from walreplay.recording.store import Store
from walreplay.recording.stretch import ArchiveClaim

_LEAST_PAUSE, _MOST_PAUSE = 0.5, 30.0  # seconds between tries
_LEVEL: Final = 3  # of zstd


@dataclass(slots=True)
class StoredTotals:
    """What a process has stored, in all of its sessions.

    Attributes:
        sent: when the server sent the newest of it (µs since 2000).
    """

    files: int = 0
    bytes: int = 0
    sent: int | None = None


class Storing:
    """Compress and store files one behind the other, and try for as long as it takes.

    Attributes:
        totals: are counted up.
        waiting_bytes: of files that the store does not have yet, not compressed.
        failure: what the store answered to the last try, in a few words; None when that went well.
        failing_since, busy_since: the first of the tries that have failed, and when the file was given to the store
            that it does not have yet (`time.monotonic`).
    """

    def __init__(self, store: Store, claim: ArchiveClaim, totals: StoredTotals) -> None:
        self._store, self._claim, self.totals = store, claim, totals
        self._is_first = True  # nothing was given to the store yet
        self.waiting_bytes = 0
        self.failure: str | None = None
        self.failing_since: float | None = None
        self.busy_since: float | None = None
        self._error: WalReplayError | None = None
        self._pieces: deque[StreamPiece] = deque()
        self._changed = threading.Condition()
        self._ends = False
        # The checksum of the content shows every change of a bit, without an index.
        self._compress = ZstdCompressor(_LEVEL, write_checksum=True).compress
        self._thread = threading.Thread(target=self._work, name="walreplay-store", daemon=True)
        self._thread.start()

    @property
    def stored_lsn(self) -> int:
        """All up to here is in the store."""
        return self._claim.end_lsn

    def add(self, piece: StreamPiece) -> None:
        """Take a file."""
        with self._changed:
            self._pieces.append(piece)
            self.waiting_bytes += len(piece.data)
            self._changed.notify()

    def check(self) -> None:
        """Raise what has ended the thread, if something has."""
        if self._error is not None:
            raise self._error

    def finish(self, patience: float) -> bool:
        """Store what was taken, for so many seconds at most, and end; return whether all is stored."""
        with self._changed:
            self._ends = True
            self._changed.notify()
        self._thread.join(patience)
        self.check()
        return not self._pieces

    def _work(self) -> None:
        try:
            while True:
                with self._changed:
                    self._changed.wait_for(lambda: self._pieces or self._ends)
                    if not self._pieces:
                        return
                    piece = self._pieces[0]
                self._keep(piece)
                with self._changed:
                    self._pieces.popleft()
                    self.waiting_bytes -= len(piece.data)
        except WalReplayError as error:
            self._error = error
        except Exception as error:  # a fault of this program: the recorder must not go on without its store
            self._error = WalReplayError(f"the store's thread has ended by {type(error).__name__}: {error}")

    def _keep(self, piece: StreamPiece) -> None:
        name = RecordedName(self._claim.next_number, piece.start_lsn, piece.end_lsn, self._claim.follows_gap)
        data, began, pause = self._compress(piece.data), time.monotonic(), _LEAST_PAUSE
        self.busy_since = began
        while True:
            try:
                self._claim.check()
                if self._is_first:
                    self._claim.check_next()
                self._is_first = False
                self._store.put(str(name), data)
                self._claim.check()
                break
            except OSError as error:
                self.failure = (str(error).splitlines() or [type(error).__name__])[0]
                self.failing_since = self.failing_since or time.monotonic()
                log("store failed", file=str(name), waiting=pause, reason=self.failure)
                time.sleep(pause)
                pause = min(2 * pause, _MOST_PAUSE)
        self._claim.has_stored(name)
        self.failure = self.failing_since = self.busy_since = None
        self.totals.sent = piece.sent or self.totals.sent
        self.totals.files += 1
        self.totals.bytes += len(data)
        log("file stored", file=str(name), bytes=len(data), seconds=time.monotonic() - began)
