"""Recognise a file's framing from its first bytes."""

from __future__ import annotations

import itertools
from typing import Final

from wal2delta.errors import CaptureError, TruncatedMessage
from wal2delta.protocol.framing import COPYDATA_HEADER, PGCOPY_SIGNATURE, Framing
from wal2delta.protocol.reader import read_stream

_DETECT_MESSAGES: Final = 16
"""So many messages at a file's head must be sound for its framing to be believed."""


def detect_framing(head: bytes) -> Framing | None:
    """Recognise the framing of a file that begins where a session does.

    Args:
        head: the file's first bytes (decompressed), with the first message whole and one byte more.  A single
            message with nothing behind it counts as raw.

    Returns:
        None when no framing fits, or the head is too short to tell.
    """
    if head.startswith(PGCOPY_SIGNATURE):
        return Framing.PGCOPY
    # No message has the tag 'd' and none begins with a newline, so no head fits two of these.
    for framing in (Framing.COPYDATA, Framing.RECVLOGICAL, Framing.RAW):
        if _fits(head, framing):
            return framing
    return None


def _fits(head: bytes, framing: Framing) -> bool:
    """Say whether the first messages are sound in a framing."""
    # A frame's own header tells enough; where there are no frames, a whole message has to be seen.
    enough = framing is Framing.COPYDATA and len(head) > COPYDATA_HEADER.size
    try:
        for _ in itertools.islice(read_stream(head, framing=framing), _DETECT_MESSAGES):
            enough = True
    except TruncatedMessage:
        return enough
    except CaptureError:
        return False
    return enough
