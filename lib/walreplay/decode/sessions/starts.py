"""Find offsets at which a session may begin: nothing marks them, but few messages can be a session's first.

`frame_at` reads the first bytes of a frame that may be torn, or may be no frame; `next_start` finds the offsets.
"""

from __future__ import annotations

from typing import Final, NamedTuple

import numpy as np

from walreplay.decode.compile.kernel import helper, kernel
from walreplay.decode.compile.parameters import BYTES, INT64
from walreplay.decode.kernels.base import address_of, load_big_32, load_big_64, load_byte
from walreplay.decode.kernels.frames import FRAMING_CODES, KEEPALIVE_AT, LENGTH, NO_FRAME, PGCOPY, WALSENDER, message_at
from walreplay.errors import CaptureError, MalformedMessage, TruncatedMessage
from walreplay.protocol.framing import (
    COPYDATA_HEADER,
    KEEPALIVE,
    LONGEST_MESSAGE,
    PGCOPY_HEADER,
    PGCOPY_ROW,
    PGCOPY_ROWS,
    PGCOPY_SIGNATURE,
    PGCOPY_TRAILER,
    XLOGDATA,
    Framing,
)

_XLOGDATA, _KEEPALIVE = b"wk"
_SIZES: Final = {b"B"[0]: (21, 21), b"C"[0]: (26, 26), b"S"[0]: (6, 6), b"E"[0]: (1, 1), b"c"[0]: (30, 30)} | {
    b"A"[0]: (9, 25),
    # With a gid of up to 199 bytes.
    **dict.fromkeys(b"bPKrp", (30, 300)),
    **dict.fromkeys(b"IUDTOMRY", (9, LONGEST_MESSAGE)),
}
"""The least and the greatest size of a message, by its tag."""
_HEADER: Final = PGCOPY_HEADER.pack(PGCOPY_SIGNATURE, 0, 0)
_LONGEST_GID: Final = 64
_STARTING_SIZES: Final = (
    *(
        size + head
        for size in (*_SIZES[b"B"[0]], *_SIZES[b"S"[0]], *_SIZES[b"A"[0]], *range(30, 31 + _LONGEST_GID))
        for head in (0, XLOGDATA.size)
    ),
    KEEPALIVE.size,
)
"""The usual sizes of a session's first message, by its tag; those with a gid have one of a usual length."""


def head_size(framing: Framing, data: memoryview, offset: int, end: int) -> int:
    """Return the number of a frame's bytes before its message; for a keepalive, its size.

    Args:
        end: the bytes end here.  If they are too few to decide, the number is what it may be.
    """
    if framing is Framing.COPYDATA:
        return COPYDATA_HEADER.size + XLOGDATA.size
    if framing is Framing.PGCOPY:
        fields = int.from_bytes(data[offset : offset + 2], "big") if offset + 2 <= end else 0
        return PGCOPY_ROWS.get(fields, PGCOPY_ROW).size
    if framing is Framing.WALSENDER:
        return _sent_head(data, offset, end) or XLOGDATA.size
    field = framing.length_field
    return field.header + _sent_head(data, offset + field.header, end) if field is not None else 0


def _sent_head(data: memoryview, offset: int, end: int) -> int:
    if offset >= end:
        return 0
    return {_XLOGDATA: XLOGDATA.size, _KEEPALIVE: KEEPALIVE.size}.get(data[offset], 0)


class Frame(NamedTuple):
    """What is known of the frame at an offset.

    Attributes:
        head: the number of its bytes before its message; see `head_size`.
        size: the frame's size; None if only its message shows where it ends.
        error: why it is no frame; or a `TruncatedMessage` if the bytes are too few to decide.  None for a valid frame.
    """

    head: int
    size: int | None = None
    error: CaptureError | None = None


def frame_at(framing: Framing, data: memoryview, offset: int, end: int) -> Frame:
    """Look at the frame at an offset."""
    head = head_size(framing, data, offset, end)
    if framing in (Framing.RAW, Framing.RECVLOGICAL):
        return Frame(head)
    try:
        size = _size_of(framing, bytes(data[offset : min(end, offset + head + 1)]), head)
    except MalformedMessage as error:
        return Frame(head, error=error)
    is_sent = framing is Framing.WALSENDER and end > offset + XLOGDATA.size
    if size is None and not is_sent:
        return Frame(head, error=TruncatedMessage("the frame's header is cut", offset=offset))
    return Frame(head, size)


def _size_of(framing: Framing, frame: bytes, head: int) -> int | None:
    """Return the size of a frame, given its bytes up to the message's first one; None if they are too few."""
    if framing is Framing.COPYDATA:
        return _copydata_size(frame[:head])
    if framing is Framing.PGCOPY:
        return _pgcopy_size(frame[:head])
    if framing is Framing.WALSENDER:
        return _sent_size(frame[:head])
    return _length_frame_size(framing, frame)


def _copydata_size(frame: bytes) -> int | None:
    """Return the size of the frame that begins with some bytes; None if they are too few.

    Raises:
        MalformedMessage: no frame begins with them.
    """
    if frame[:1] != b"d":
        raise MalformedMessage("no frame begins here")
    if len(frame) <= COPYDATA_HEADER.size:
        return None
    size: int = COPYDATA_HEADER.unpack_from(frame)[1]
    kind = frame[COPYDATA_HEADER.size :][:1]
    if not (kind == b"w" and size > 4 + XLOGDATA.size) and not (kind == b"k" and size == 4 + KEEPALIVE.size):
        raise MalformedMessage("the frame is neither XLogData nor a keepalive")
    return 1 + size


def _pgcopy_size(frame: bytes) -> int | None:
    """Return the size of the row, header or trailer that begins with some bytes; None if they are too few.

    Raises:
        MalformedMessage: none of these begins with them.
    """
    if frame[:1] == b"\xff":
        return PGCOPY_TRAILER.size
    if frame[:1] == PGCOPY_SIGNATURE[:1]:
        # PostgreSQL sets no flags and writes no extension.  They would be another header behind a torn one.
        if not _HEADER.startswith(frame[: len(_HEADER)]):
            raise MalformedMessage("no header begins here")
        return None if len(frame) < len(_HEADER) else len(_HEADER)
    fields = frame[1] if len(frame) > 1 else 3
    layout = PGCOPY_ROWS.get(fields)
    if layout is None or frame[:1] != b"\0":
        raise MalformedMessage("no row begins here")
    sound = PGCOPY_ROWS[3].pack(fields, 8, 0, 4, 0, 0)
    for start, stop in ((2, 6), (14, 18))[: fields - 1]:
        if not sound[start:stop].startswith(frame[start:stop]):
            raise MalformedMessage("no row begins here")
    if len(frame) < layout.size:
        return None
    size: int = layout.unpack(frame)[-1]
    if not 0 < size <= 0x7FFFFFFF:
        raise MalformedMessage("no row begins here")
    return layout.size + size


def _sent_size(frame: bytes) -> int | None:
    """Return the size of the keepalive that begins with some bytes; None if they are too few, or begin XLogData.

    Raises:
        MalformedMessage: neither begins with them.
    """
    if frame[:1] not in (b"w", b"k"):
        raise MalformedMessage("neither XLogData nor a keepalive begins here")
    if frame[:1] == b"w" or len(frame) < KEEPALIVE.size:
        return None
    if frame[KEEPALIVE.size - 1] > 1:
        raise MalformedMessage("no keepalive begins here")
    return KEEPALIVE.size


def _length_frame_size(framing: Framing, frame: bytes) -> int | None:
    """Return the size of the frame that begins with some bytes, in a framing with lengths; None if they are too few.

    Raises:
        MalformedMessage: no frame begins with them.
    """
    field = framing.length_field
    assert field is not None
    if len(frame) <= field.header:
        if field.size_of(frame.ljust(field.header, b"\0"), 0) > LONGEST_MESSAGE >> 1:
            # The length is big-endian, so its first byte shows whether it is too large.
            raise MalformedMessage("no length of a message stands here")
        return None
    size, kind, head = field.size_of(frame, 0), frame[field.header], 0
    if kind == _XLOGDATA:
        head = XLOGDATA.size
    tag = frame[field.header + head : field.header + head + 1]
    least, most = _SIZES.get(tag[0], (1, 0)) if tag else (1, LONGEST_MESSAGE)
    if kind == _KEEPALIVE:
        least, most = KEEPALIVE.size, KEEPALIVE.size
    if not least <= size - head <= most:
        raise MalformedMessage("no length of a message stands here")
    return field.header + size


def starting_bytes_of(framing: Framing, starters: bytes) -> bytes:
    """Return the bytes with which a session may begin, given the possible tags of its first message."""
    field = framing.length_field
    if field is not None:
        return bytes({field.pack(size)[0] for size in _STARTING_SIZES})
    return {Framing.COPYDATA: b"d", Framing.PGCOPY: b"P", Framing.WALSENDER: b"wk"}.get(framing, starters)


def is_short_abort(framing: Framing, tail: bytes) -> bool:
    """Return whether unfinished bytes may be a whole Stream Abort, to which up to sixteen more bytes may belong."""
    head = {Framing.RAW: 0, Framing.WALSENDER: XLOGDATA.size}.get(framing)
    return head is not None and len(tail) == head + 9 and tail[head : head + 1] == b"A"


LONGEST_START: Final = 300
"""A session's first message is not longer (a gid has up to 199 bytes), unless it is a logical message."""

STARTERS: Final = b"BSAbPKrM"  # The tags of messages that can be a session's first


def may_wait(data: memoryview, start: int, framing: Framing) -> bool:
    """Return whether the unfinished message at an offset may be a session's first message."""
    if len(data) - start < LONGEST_START:
        return True
    return data[start + head_size(framing, data, start, len(data))] == ord("M")


@helper
def _plausible_time(base, p, end):  # type: ignore[no-untyped-def]
    return p + 8 > end or 0 <= load_big_64(base + p) < 6_000_000_000_000_000


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
    if framing >= LENGTH:
        return True
    behind = load_byte(base + p + 9)
    if behind == 0:
        return _plausible_time(base, p + 17, end)
    if framing == WALSENDER:
        return behind == 119 or behind == 107  # w k
    if framing == 1:
        return behind == 10  # newline
    is_tag = False
    for tag in (66, 83, 65, 99, 98, 80, 75, 114, 112, 77):  # B S A c b P K r p M
        is_tag = is_tag or behind == tag
    return is_tag


@helper
def _may_start(base, p, end, framing):  # type: ignore[no-untyped-def]
    """Return whether a session's first message may begin here, as far as its first bytes tell."""
    tag = load_byte(base + p)
    if tag == 66:  # B: final LSN, time, xid
        return (p + 1 >= end or load_byte(base + p + 1) == 0) and _plausible_time(base, p + 9, end)
    if tag == 83:  # S: xid, 1
        return p + 5 >= end or load_byte(base + p + 5) == 1
    if tag == 65:  # A
        return _may_abort(base, p, end, framing)
    if tag == 98:  # b: prepare LSN, end LSN, time
        return _plausible_lsns(base, p + 1, end) and _plausible_time(base, p + 17, end)
    if tag == 75 or tag == 80:  # K, P: 0, LSN, end LSN, time
        sound = (p + 1 >= end or load_byte(base + p + 1) == 0) and _plausible_lsns(base, p + 2, end)
        return sound and _plausible_time(base, p + 18, end)
    if tag == 114:  # r: 0, the prepared transaction's end LSN, the rollback's, two times
        sound = (p + 1 >= end or load_byte(base + p + 1) == 0) and _plausible_lsns(base, p + 2, end)
        return sound and _plausible_time(base, p + 18, end) and _plausible_time(base, p + 26, end)
    if tag == 77:  # M: 0, LSN
        return (p + 1 >= end or load_byte(base + p + 1) == 0) and (p + 2 >= end or load_byte(base + p + 2) == 0)
    return False


@kernel(BYTES, INT64, INT64, INT64)
def next_start(buf, p, end, framing):  # type: ignore[no-untyped-def]
    """Return the next offset where a session may begin, or the end."""
    base = address_of(buf)
    while p < end:
        if framing <= 1:
            if _may_start(base, p, end, framing):
                return p
        elif framing == 2:
            if load_byte(base + p) == 100 and (
                p + 6 > end
                or load_byte(base + p + 5) == 119
                or (load_byte(base + p + 5) == 107 and load_big_32(base + p + 1) == 22)
            ):
                return p
        elif framing == PGCOPY:
            if load_byte(base + p) == 80 and (
                p + 6 > end or (load_byte(base + p + 1) == 71 and load_byte(base + p + 5) == 89)
            ):
                return p
        else:
            a = message_at(base, p, end, framing)
            if a == KEEPALIVE_AT or a >= end or (a != NO_FRAME and _may_start(base, a, end, framing)):
                return p
        p += 1
    return end


def may_begin(data: memoryview, framing: Framing) -> bool:
    """Return whether a session may begin with the first byte of a file, as far as its first bytes tell."""
    buf = np.frombuffer(data[:LONGEST_START], np.uint8)
    return len(buf) > 0 and int(next_start(buf, 0, len(buf), FRAMING_CODES[framing])) == 0
