"""Hand files to the store by a thread of its own, so that the server is answered also while the store is slow."""

from __future__ import annotations

import threading
import time
from collections import deque
from typing import Final

from zstandard import ZstdCompressor

from walreplay.errors import WalReplayError
from walreplay.progress import log
from walreplay.recorded_names import RecordedName
from walreplay.recording.cutting import StreamPiece
from walreplay.recording.store import Store
from walreplay.recording.stretch import ArchiveEnd

_LEAST_PAUSE, _MOST_PAUSE = 0.5, 30.0  # seconds between tries
_LEVEL: Final = 3  # of zstd


class Storing:
    """Compress and store files one behind the other, and try for as long as it takes.

    Attributes:
        sent: when the server sent the newest of what is stored (µs since 2000).
        files, bytes: that were stored.
        waiting_bytes: of files that the store does not have yet, not compressed.
        failure: what the store answered to the last try, in a few words, and since when (`time.monotonic`); None when
            that went well; ``busy``: since when it has been given a file.
    """

    def __init__(self, store: Store, archive: ArchiveEnd) -> None:
        self._store, self._archive = store, archive
        self.files = self.bytes = 0
        self.sent: int | None = None
        self.waiting_bytes = 0
        self.failure: tuple[str, float] | None = None
        self.busy: float | None = None
        self._error: WalReplayError | None = None
        self._pieces: deque[StreamPiece] = deque()
        self._changed = threading.Condition()
        self._ends = False
        # The checksum of the content shows every change of a bit, without an index.
        self._compress = ZstdCompressor(_LEVEL, write_checksum=True).compress
        self._thread = threading.Thread(target=self._work, name="walreplay-store", daemon=True)
        self._thread.start()

    @property
    def stored(self) -> int:
        """All up to this LSN is in the store."""
        return self._archive.end

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
        name = RecordedName(self._archive.next_number, piece.start, piece.end, self._archive.follows_gap)
        data, began, pause, has_tried = self._compress(piece.data), time.monotonic(), _LEAST_PAUSE, False
        self.busy = began
        while True:
            try:
                self._archive.check()
                if not self.files and not has_tried:
                    self._archive.check_next()
                has_tried = True
                self._store.put(str(name), data)
                self._archive.check()
                break
            except OSError as error:
                reason = (str(error).splitlines() or [type(error).__name__])[0]
                self.failure = reason, self.failure[1] if self.failure else time.monotonic()
                log("store failed", file=str(name), waiting=pause, reason=reason)
                time.sleep(pause)
                pause = min(2 * pause, _MOST_PAUSE)
        self._archive.has_stored(name)
        self.failure = self.busy = None
        self.sent = piece.sent or self.sent
        self.files += 1
        self.bytes += len(data)
        log("file stored", file=str(name), bytes=len(data), seconds=time.monotonic() - began)
