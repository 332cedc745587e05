"""Check that an unfinished message does not contain messages that should come behind it.

An unfinished message waits for more bytes.  But a damaged length, or a damaged tag, looks like one, too, and hides all
messages that follow.  So a message may only wait if nothing in it can be read as consecutive messages.  The content of
a logical message, or a value in binary format, may be anything, even a whole capture; then more bytes will show it.
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
"""So many consecutive messages are no coincidence; nor is a transaction from Begin to Commit."""

_LAST_CHAIN: Final = 3
"""So many are enough if the last one ends exactly with the bytes."""

_PROBE_BYTES: Final = 1 << 16


class Leftover:
    """Search bytes for messages behind the start of an unfinished one.

    Args:
        effort: the budget of the search, which raises `GaveUp` when it is used up.
    """

    def __init__(self, data: memoryview, framing: Framing, codec: str, effort: Effort) -> None:
        self._data = data
        self._framing = framing
        self._codec = codec
        self._effort = effort
        self._known: list[tuple[int, int | None]] = []

    def whole_behind(self, at: int) -> int | None:
        """Give the offset where consecutive messages begin behind the start of an unfinished one; None if nowhere."""
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
    """Refuse the unfinished bytes at the end of the last file if they contain consecutive messages.

    Args:
        path, offset: where the bytes begin, for the error.

    Raises:
        MalformedMessage: they contain such messages, so they are damaged or torn.
    """
    data = memoryview(tail)
    try:
        found = Leftover(data, framing, codec, Effort(len(data))).whole_behind(0)
    except GaveUp:
        # The search proves nothing, so the bytes may wait.
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
