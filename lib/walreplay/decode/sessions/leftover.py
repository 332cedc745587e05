"""Say whether what is taken for an unfinished message holds what must come behind it.

An unfinished message waits for more bytes.  A damaged length, or a tag that damage has made, looks like one, and hides
all that follows: so it may wait only where nothing in it can be read as messages that follow each other.  The content
of a logical message, or a value in binary format, may be anything, a whole capture too; then more bytes will show it.
"""

from __future__ import annotations

from contextlib import suppress
from typing import Final

from walreplay.decode import walk
from walreplay.decode.sessions.effort import Effort, GaveUp
from walreplay.decode.sessions.resync import Probe, candidates
from walreplay.errors import CaptureError, MalformedMessage
from walreplay.protocol.framing import Framing
from walreplay.types.text import UTF8

_CHAIN: Final = 8
"""So many messages that follow each other are no chance; a transaction from Begin to Commit is none either."""

_LAST_CHAIN: Final = 3
"""So many are none, where the last one ends with the bytes."""

_PROBE_BYTES: Final = 1 << 16


class Leftover:
    """Bytes that may hold messages behind an unfinished one.

    Args:
        effort: what the search is paid from; it raises `GaveUp` when that comes to its end.
    """

    def __init__(self, data: memoryview, framing: Framing, codec: str, effort: Effort) -> None:
        self._data = data
        self._framing = framing
        self._codec = codec
        self._effort = effort
        self._known: list[tuple[int, int | None]] = []

    def whole_behind(self, at: int) -> int | None:
        """Give where messages that follow each other begin, behind the start of an unfinished one; None if nowhere."""
        for start, found in self._known:
            if start <= at and (found is None or at < found):
                return found
        found = self._search(at + 1)
        self._known.append((at, found))
        return found

    def _search(self, start: int) -> int | None:
        for at, streaming in candidates(self._data, start, len(self._data), self._framing):
            probe = Probe(self._framing, streaming=streaming, effort=self._effort, codec=self._codec)
            with suppress(CaptureError):
                probe.advance(self._data, at, at + _PROBE_BYTES)
            state = probe.kernel.state
            count = int(state[walk.MESSAGES] + state[walk.KEEPALIVES])
            is_last = probe.position == len(self._data)
            if state[walk.FIRST_LSN] != walk.NO_LSN or count >= (_LAST_CHAIN if is_last else _CHAIN):
                return at
        return None


def refuse_leftover(
    tail: bytes | memoryview, framing: Framing, codec: str = UTF8, *, path: str | None = None, offset: int = 0
) -> None:
    """Refuse the unfinished bytes at the end of all that is there, where messages follow in them.

    Args:
        path, offset: where they begin.

    Raises:
        MalformedMessage: they are damaged.
    """
    data = memoryview(tail)
    try:
        found = Leftover(data, framing, codec, Effort(len(data))).whole_behind(0)
    except GaveUp:
        # Nothing is proven.
        return
    if found is not None:
        raise MalformedMessage(
            f"the message that begins here seems to need more than the {len(data):,} bytes that are there, but from "
            f"{found:,} bytes on they are messages that follow each other: a length in it is damaged, or it was torn",
            path=path,
            offset=offset,
            remedy="Fetch the file from its source again. If it is as its writer left it, cut it off here, and behind "
            "the torn message, where the next session begins",
        )


__all__ = ["Leftover", "refuse_leftover"]
