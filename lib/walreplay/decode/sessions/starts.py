"""Find offsets at which a session may begin: nothing marks them, but few messages can be a session's first.

`frame_at` reads the first bytes of a frame that may be torn, or may be no frame; `next_start` finds the offsets.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from walreplay.decode.compile.kernel import helper, kernel
from walreplay.decode.compile.parameters import BYTES, INT64
from walreplay.decode.kernels import frames
from walreplay.decode.kernels.base import address_of, load_big_32, load_big_64, load_byte
from walreplay.decode.kernels.frames import FRAMING_CODES, Outcome, may_be_time
from walreplay.errors import CaptureError, FramingError, MalformedMessage, TruncatedMessage
from walreplay.protocol.framing import (
    LENGTH_SIZE,
    PGCOPY_HEADER,
    PGCOPY_SIGNATURE,
    PGCOPY_TRAILER,
    XLOGDATA,
    FrameContent,
    Framing,
    parse_head,
    size_fits,
)

_HEADER: Final = PGCOPY_HEADER.pack(PGCOPY_SIGNATURE, 0, 0)


_TRAILER: Final = PGCOPY_TRAILER.pack(-1)


def frame_at(framing: Framing, data: memoryview, offset: int) -> FrameContent:
    """Read the frame at an offset by `parse_head`; a header or trailer of PGCOPY is one without a message.

    Raises:
        TruncatedMessage: the bytes are too few.
        CaptureError: no frame begins here.
    """
    first = bytes(data[offset : offset + 1])
    if framing.layout.is_row and first in (b"P", b"\xff"):
        mark = _HEADER if first == b"P" else _TRAILER
        behind = offset + len(mark)
        # PostgreSQL sets no flags and writes no extension.  They would be another header behind a torn one.
        if not mark.startswith(bytes(data[offset:behind])):
            raise FramingError("no pgcopy frame begins here", offset=offset)
        return FrameContent(behind, behind, is_empty=True)
    content = parse_head(data, offset, framing)
    begin, end = content.begin, content.end
    if framing.has_bare_length and begin < min(end, len(data)) and not size_fits(data[begin], end - begin):
        raise MalformedMessage("no length of a message stands here", offset=offset)
    return content


def head_size(framing: Framing, data: memoryview, offset: int, end: int) -> int:
    """Return how many bytes of the frame at an offset, as far as they go, stand before its message; 0 for no frame.

    Of a keepalive, which has no message, that is all of it but a trailer.
    """
    try:
        return frame_at(framing, data[:end], offset).begin - offset
    except TruncatedMessage:
        return end - offset
    except CaptureError:
        return 0


def is_short_abort(framing: Framing, tail: bytes) -> bool:
    """Return whether unfinished bytes may be a whole Stream Abort, to which up to sixteen more bytes may belong."""
    head = XLOGDATA.size if framing.layout.is_sent else 0
    return framing.is_open_ended and len(tail) == head + 9 and tail[head : head + 1] == b"A"


def is_all_aborts(framing: Framing, session: bytes | memoryview) -> bool:
    """Return whether whole messages are Stream Aborts alone, without frames that say so: any bytes are their xids."""
    layout, size = framing.layout, 9 + len(framing.layout.trailer)
    has_header = framing.is_sized or layout.is_sent
    return not has_header and len(session) % size == 0 and set(session[::size]) == {ord("A")}


LONGEST_START: Final = 300
"""A session's first message is not longer (a gid has up to 199 bytes), unless it is a logical message."""

STARTERS: Final = b"BSAbPKrM"  # The tags of messages that can be a session's first


def may_wait(data: memoryview, start: int, framing: Framing) -> bool:
    """Return whether the unfinished message at an offset may be a session's first message."""
    if len(data) - start < LONGEST_START:
        return True
    return data[start + head_size(framing, data, start, len(data))] == ord("M")


@helper
def _plausible_lsns(base, p, end):  # type: ignore[no-untyped-def]
    """Return whether two LSNs may stand here, the second one behind the first."""
    if p + 16 > end:
        return p >= end or load_byte(base + p) == 0
    return 0 <= load_big_64(base + p) < load_big_64(base + p + 8) < 1 << 56


@helper
def _may_abort(base, p, end, framing):  # type: ignore[no-untyped-def]
    """Return whether a Stream Abort of a transaction that was never streamed may stand here: xid, subxid, LSN and time.

    Where no frame says how long it is, what stands behind it does: the LSN, or what the next message begins with.
    """
    if p + 10 > end:
        return True
    if load_big_32(base + p + 1) == 0 or load_big_32(base + p + 5) == 0:
        return False
    if framing & frames.SIZED:
        return True
    behind = load_byte(base + p + 9)
    if behind == 0:
        return may_be_time(base, p + 17, end)
    if framing & frames.SENT:
        return behind == 119 or behind == 107  # w k
    if frames.trailer_of(framing) != 0:
        return behind == frames.trailer_of(framing)
    is_tag = False
    for tag in (66, 83, 65, 99, 98, 80, 75, 114, 112, 77):  # B S A c b P K r p M
        is_tag = is_tag or behind == tag
    return is_tag


@helper
def _may_start(base, p, end, framing):  # type: ignore[no-untyped-def]
    """Return whether a session's first message may begin here, as far as its first bytes tell."""
    tag = load_byte(base + p)
    if tag == 66:  # B: final LSN, time, xid
        return (p + 1 >= end or load_byte(base + p + 1) == 0) and may_be_time(base, p + 9, end)
    if tag == 83:  # S: xid, 1
        return p + 5 >= end or load_byte(base + p + 5) == 1
    if tag == 65:  # A
        return _may_abort(base, p, end, framing)
    if tag == 98:  # b: prepare LSN, end LSN, time
        return _plausible_lsns(base, p + 1, end) and may_be_time(base, p + 17, end)
    if tag == 75 or tag == 80 or tag == 114:  # K, P: 0, LSN, end LSN, time; r: two end LSNs and two times
        sound = (p + 1 >= end or load_byte(base + p + 1) == 0) and _plausible_lsns(base, p + 2, end)
        return sound and may_be_time(base, p + 18, end) and (tag != 114 or may_be_time(base, p + 26, end))
    if tag == 77:  # M: 0, LSN
        return (p + 1 >= end or load_byte(base + p + 1) == 0) and (p + 2 >= end or load_byte(base + p + 2) == 0)
    return False


@helper
def _may_start_frame(base, p, end, framing):  # type: ignore[no-untyped-def]
    """Return whether the frame of a session's first message may begin here."""
    if framing & frames.ROWS:  # each COPY is a session of its own
        is_signed = p + 6 > end or (load_byte(base + p + 1) == 71 and load_byte(base + p + 5) == 89)  # G Y
        return load_byte(base + p) == 80 and is_signed  # P
    payload = frames.likely_message_at(base, p, end, framing)
    if payload.outcome == Outcome.BAD_FRAME:
        return False
    if payload.outcome == Outcome.KEEPALIVE:
        return True
    if payload.start < end:
        return _may_start(base, payload.start, end, framing)
    if not frames.has_bare_length(framing) or p + LENGTH_SIZE < end:
        return True
    # No logical message is expected to be longer than 1 kB, and no message with which a session begins has 5 bytes.
    length = frames.least_length(base, p, end, framing)
    return length < 1 << 10 and (p + LENGTH_SIZE > end or length >= 6)


@kernel(BYTES, INT64, INT64, INT64)
def next_start(buf, p, end, framing):  # type: ignore[no-untyped-def]
    """Return the next offset where a session may begin, or the end."""
    base = address_of(buf)
    while p < end:
        if _may_start_frame(base, p, end, framing):
            return p
        p += 1
    return end


def may_begin(data: memoryview, framing: Framing) -> bool:
    """Return whether a session may begin with the first byte of a file, as far as its first bytes tell."""
    buf = np.frombuffer(data[:LONGEST_START], np.uint8)
    return len(buf) > 0 and int(next_start(buf, 0, len(buf), FRAMING_CODES[framing])) == 0
