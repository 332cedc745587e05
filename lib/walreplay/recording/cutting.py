"""Cut the stream of a walsender into files: where no transaction is open, if that comes soon enough.

The files have the framing ``copydata``: what the server sent, with its LSNs and its clock.  A file's end is an LSN up
to which all that has committed is in the files; the server sends nothing of that again (`protocol-replication`,
START_REPLICATION: a transaction that committed before the LSN that was asked for is skipped).
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from struct import Struct
from typing import Final

_HEAD: Final = Struct("!cI").pack  # 'd' and the length, which counts itself
_XID: Final = Struct("!I").unpack_from
_LSN: Final = Struct("!Q").unpack_from
_XLOGDATA = ord("w")
_MESSAGE: Final = 25  # where XLogData has the message

_BEGINNINGS: Final = frozenset(b"Bb")
# Behind the tag, the flags and the record's own LSN; a Stream Commit has its xid in front.
_END_LSNS: Final = dict.fromkeys(b"CPKrp", 10) | {ord("c"): 14}
"""Where messages that end a transaction have the LSN behind it (`protocol-logicalrep-message-formats`)."""
_STREAM_XIDS: Final = {ord("S"): 1, ord("c"): 1, ord("p"): 26, ord("A"): 1}
_STREAM_START, _STREAM_STOP, _STREAM_ABORT, _LOGICAL_MESSAGE = b"SEAM"
_TAGS: Final = _BEGINNINGS | _END_LSNS.keys() | _STREAM_XIDS.keys() | {_STREAM_STOP, _LOGICAL_MESSAGE}

_PATIENCE: Final = 2  # a file has so many times its bytes and seconds at most, though a transaction is open


@dataclass(frozen=True, slots=True)
class StreamPiece:
    """A file's content, not compressed.

    Attributes:
        start_lsn, end_lsn: as in the file's name.
        sent: when the server sent the last of it (its clock, µs since 2000); None where it has nothing whole.
    """

    data: bytearray
    start_lsn: int
    end_lsn: int
    sent: int | None


class Cutting:
    """Gather what a server sends, and say when it is time for a file.

    Attributes:
        data: what the file has so far; ``start_lsn`` and ``end_lsn`` are as its name will have them.

    Args:
        start_lsn: from which on the server sends.
        file_bytes: so many make a file, ...
        file_seconds: ... or what has come in so many seconds.
    """

    def __init__(self, start_lsn: int, file_bytes: int, file_seconds: float) -> None:
        self.end_lsn = start_lsn
        self._file_bytes, self._file_seconds = file_bytes, file_seconds
        self._is_inside = False  # of a transaction, or of a block of a streamed one
        self._streams: set[int] = set()
        self._start_file()

    def _start_file(self) -> None:
        self.start_lsn = self.end_lsn
        self.data = bytearray()
        self._has_messages = False
        self._began = self._first = time.monotonic()  # of the file, and of its first message
        # Bytes up to the last place where no transaction was open, and whether messages are there.
        self._whole = 0, False
        self._sent: int | None = None

    def add(self, payload: bytes | memoryview) -> None:
        """Take what one CopyData message holds."""
        is_message = payload[0] == _XLOGDATA
        if not is_message:
            # All before it was sent, but what is still streamed, which is sent again as a whole if it has to be.
            (lsn,) = _LSN(payload, 1)
            if self._is_inside or lsn <= self.end_lsn:
                return  # a server that is being stopped sends the same again and again
            self.end_lsn = lsn
        self.data += _HEAD(b"d", len(payload) + 4)
        self.data += payload
        if is_message:
            if not self._has_messages:
                self._has_messages, self._first = True, time.monotonic()
            if payload[_MESSAGE] in _TAGS:
                self._follow(payload, payload[_MESSAGE])
        if not self._is_inside:
            (self._sent,) = _LSN(payload, 17 if is_message else 9)
            self._whole = len(self.data), self._has_messages

    def _follow(self, payload: bytes | memoryview, tag: int) -> None:
        if tag == _LOGICAL_MESSAGE:
            if not self._is_inside and not payload[_MESSAGE + 1] & 1:  # in no transaction, and at once
                # The LSN behind its record, at which the next one may begin: a commit that is still to come.
                self.end_lsn = max(self.end_lsn, _LSN(payload, _MESSAGE + 2)[0])
            return
        if tag in _STREAM_XIDS:
            (xid,) = _XID(payload, _MESSAGE + _STREAM_XIDS[tag])
            if tag == _STREAM_START:
                self._streams.add(xid)
            elif tag != _STREAM_ABORT or _XID(payload, _MESSAGE + 5)[0] == xid:  # else a subtransaction's alone
                self._streams.discard(xid)
        if tag in _END_LSNS:
            self.end_lsn = max(self.end_lsn, _LSN(payload, _MESSAGE + _END_LSNS[tag])[0])
        self._is_inside = tag in _BEGINNINGS or tag == _STREAM_START

    @property
    def seconds(self) -> float:
        """How long ago the file was begun."""
        return time.monotonic() - self._began

    def is_due(self, *, is_quiet: bool = False, is_asked: bool = False, is_behind: bool = False) -> bool:
        """Return whether the file should end here.

        Args:
            is_quiet: one that has keepalives alone, too.
            is_asked: at once, unless a transaction is open.
            is_behind: files wait for the store: by its bytes alone, as one more would only wait behind them.
        """
        if not self._has_messages and not is_quiet and not is_asked:
            return False
        age = 0 if is_behind else (time.monotonic() - self._first) / self._file_seconds
        share = max(len(self.data) / self._file_bytes, age)
        return share >= _PATIENCE or (not self._is_inside and (is_asked or (share >= 1 and not self._streams)))

    def cut(self) -> StreamPiece:
        """End the file here, and begin another one."""
        piece = StreamPiece(self.data, self.start_lsn, self.end_lsn, self._sent)
        self._start_file()
        return piece

    def last_cut(self) -> StreamPiece | None:
        """End the last file, before the transaction that is open: the server will send that again.

        None where nothing has committed since the file began.
        """
        size, has_messages = self._whole
        return StreamPiece(self.data[:size], self.start_lsn, self.end_lsn, self._sent) if has_messages else None
