"""Detect a file's framing from its first bytes."""

from __future__ import annotations

import itertools
from typing import Final

from walreplay.errors import CaptureError, TruncatedMessage
from walreplay.protocol.framing import COPYDATA_HEADER, KEEPALIVE, PGCOPY_SIGNATURE, Framing
from walreplay.protocol.reader import Names, names_in_utf8, read_stream

FRAMING_ORDER: Final = (
    Framing.PGCOPY,
    Framing.COPYDATA,
    Framing.LENGTH,
    Framing.LENGTH_SELF,
    Framing.LENGTH_LE,
    Framing.LENGTH_SELF_LE,
    Framing.WALSENDER,
    Framing.RECVLOGICAL,
    Framing.RAW,
)
"""How they are tried: what says most of itself first, as a message inside a frame looks like one without."""

_DETECT_MESSAGES: Final = 16
"""So many messages at a file's head must be sound for its framing to be believed."""


def detect_framing(head: bytes, *, names: Names = names_in_utf8) -> Framing | None:
    """Recognise the framing of a file that begins where a session does.

    Args:
        head: the file's first bytes (decompressed), with the first message whole and one byte more.  A single
            message with nothing behind it counts as raw.
        names: see `read_message`.

    Returns:
        None when no framing fits, or the head is too short to tell.
    """
    if head.startswith(PGCOPY_SIGNATURE):
        return Framing.PGCOPY
    # No message has the tag d, w or k, and none begins with a newline; so hardly a head fits two of these.
    return next((framing for framing in FRAMING_ORDER[1:] if _fits(head, framing, names)), None)


def _begins_with_keepalives(head: bytes, framing: Framing) -> bool:
    if framing is Framing.COPYDATA:
        return len(head) > COPYDATA_HEADER.size
    # No text begins so, and no LSN is that large.
    return framing is Framing.WALSENDER and head[:2] == b"k\0" and len(head) > KEEPALIVE.size


def _fits(head: bytes, framing: Framing, names: Names) -> bool:
    """Say whether a head begins with sound messages, or keepalives, in a framing, and nothing behind refutes it."""
    begins = _begins_with_keepalives(head, framing)
    try:
        for _ in itertools.islice(read_stream(head, framing=framing, names=names), _DETECT_MESSAGES):
            begins = True
    except TruncatedMessage:
        return begins
    except CaptureError:
        return False
    return begins
