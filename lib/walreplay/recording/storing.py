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
        stored: all up to this LSN is in the store; its files and bytes since the process began; the server's clock
            (µs since 2000) at the newest.
        waiting_bytes: of files that the store does not have yet, not compressed.
        failure: what the store answered to the last try, in a few words; None when that went well.
    """

    def __init__(self, store: Store, archive: ArchiveEnd) -> None:
        self._store, self._archive = store, archive
        self.stored = archive.end
        self.files = self.bytes = 0
        self.newest: int | None = None
        self.waiting_bytes = 0
        self.failure: str | None = None
        self._error: WalReplayError | None = None
        self._cuts: deque[StreamPiece] = deque()
        self._changed = threading.Condition()
        self._ends = False
        # The checksum of the content shows every change of a bit, without an index.
        self._compress = ZstdCompressor(_LEVEL, write_checksum=True).compress
        self._thread = threading.Thread(target=self._work, name="walreplay-store", daemon=True)
        self._thread.start()

    def add(self, cut: StreamPiece) -> None:
        """Take a file."""
        with self._changed:
            self._cuts.append(cut)
            self.waiting_bytes += sum(map(len, cut.frames))
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
        return not self._cuts

    def _work(self) -> None:
        try:
            while True:
                with self._changed:
                    self._changed.wait_for(lambda: self._cuts or self._ends)
                    if not self._cuts:
                        return
                    cut = self._cuts[0]
                self._keep(cut)
                with self._changed:
                    self._cuts.popleft()
                    self.waiting_bytes -= sum(map(len, cut.frames))
        except WalReplayError as error:
            self._error = error
        except Exception as error:  # a fault of this program: the recorder must not go on without its store
            self._error = WalReplayError(f"the store's thread has ended by {type(error).__name__}: {error}")

    def _keep(self, cut: StreamPiece) -> None:
        name = RecordedName(self._archive.next_number, cut.start, cut.end, self._archive.follows_gap)
        data, began, pause = self._compress(b"".join(cut.frames)), time.monotonic(), _LEAST_PAUSE
        while True:
            try:
                self._archive.check()
                self._store.put(str(name), data)
                break
            except OSError as error:
                self.failure = str(error).splitlines()[0] if str(error) else type(error).__name__
                log("store failed", file=str(name), waiting=pause, reason=self.failure)
                time.sleep(pause)
                pause = min(2 * pause, _MOST_PAUSE)
        self._archive.has_stored(name)
        self.failure = None
        self.stored, self.newest = cut.end, cut.last_time or self.newest
        self.files += 1
        self.bytes += len(data)
        log("file stored", file=str(name), bytes=len(data), seconds=time.monotonic() - began)
