"""What is known of a frame from its first bytes, where these may be torn off, or be no frame at all."""

from __future__ import annotations

from typing import Final, NamedTuple

from walreplay.errors import CaptureError, MalformedMessage, TruncatedMessage
from walreplay.protocol.framing import (
    COPYDATA_HEADER,
    KEEPALIVE,
    LENGTH_SIZE,
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
"""How large a message of each tag is, at least and at most."""
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
"""How large that is what a session mostly begins with; of what names a prepared transaction, with a common gid."""


def head_size(framing: Framing, data: memoryview, at: int, end: int) -> int:
    """Give how many bytes of the frame at an offset stand before its message; of a keepalive, all that it has.

    Args:
        end: the frame's bytes end here at the latest.  Where they are too few to tell, it is said what there may be.
    """
    if framing is Framing.COPYDATA:
        return COPYDATA_HEADER.size + XLOGDATA.size
    if framing is Framing.PGCOPY:
        fields = int.from_bytes(data[at : at + 2], "big") if at + 2 <= end else 0
        return PGCOPY_ROWS.get(fields, PGCOPY_ROW).size
    if framing is Framing.WALSENDER:
        return _sent_head(data, at, end) or XLOGDATA.size
    return LENGTH_SIZE + _sent_head(data, at + LENGTH_SIZE, end) if framing.length_field is not None else 0


def _sent_head(data: memoryview, at: int, end: int) -> int:
    if at >= end:
        return 0
    return {_XLOGDATA: XLOGDATA.size, _KEEPALIVE: KEEPALIVE.size}.get(data[at], 0)


class Frame(NamedTuple):
    """What is known of the frame that begins at an offset.

    Attributes:
        head: how many bytes stand before its message; see `head_size`.
        size: of all of it; None where only its message says where it ends.
        error: why it cannot be one, or, a `TruncatedMessage`, that the bytes are too few to tell.
    """

    head: int
    size: int | None = None
    error: CaptureError | None = None


def frame_at(framing: Framing, data: memoryview, at: int, end: int) -> Frame:
    """Look at the frame that begins at an offset.

    Args:
        end: the frame's bytes end here at the latest.
    """
    head = head_size(framing, data, at, end)
    if framing in (Framing.RAW, Framing.RECVLOGICAL):
        return Frame(head)
    try:
        size = _size_of(framing, bytes(data[at : min(end, at + head + 1)]), head)
    except MalformedMessage as error:
        return Frame(head, error=error)
    is_sent = framing is Framing.WALSENDER and end > at + XLOGDATA.size
    if size is None and not is_sent:
        return Frame(head, error=TruncatedMessage("the frame's header is cut", offset=at))
    return Frame(head, size)


def _size_of(framing: Framing, frame: bytes, head: int) -> int | None:
    """Give the size of the frame that some bytes begin, up to the first of its message; None where they are too few."""
    if framing is Framing.COPYDATA:
        return _copydata_size(frame[:head])
    if framing is Framing.PGCOPY:
        return _pgcopy_size(frame[:head])
    if framing is Framing.WALSENDER:
        return _sent_size(frame[:head])
    return _length_frame_size(framing, frame)


def _copydata_size(frame: bytes) -> int | None:
    """Give the size of the frame that some bytes begin; None where they are too few.

    Raises:
        MalformedMessage: they begin none.
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
    """Give the size of the row, or the mark, that some bytes begin; None where they are too few.

    Raises:
        MalformedMessage: they begin none.
    """
    if frame[:1] == b"\xff":
        return PGCOPY_TRAILER.size
    if frame[:1] == PGCOPY_SIGNATURE[:1]:
        # PostgreSQL sets no flags and writes no extension; another header behind a torn one looks like them.
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
    """Give the size of the keepalive that some bytes begin; None where they are too few, or begin XLogData.

    Raises:
        MalformedMessage: they begin neither.
    """
    if frame[:1] not in (b"w", b"k"):
        raise MalformedMessage("neither XLogData nor a keepalive begins here")
    if frame[:1] == b"w" or len(frame) < KEEPALIVE.size:
        return None
    if frame[KEEPALIVE.size - 1] > 1:
        raise MalformedMessage("no keepalive begins here")
    return KEEPALIVE.size


def _length_frame_size(framing: Framing, frame: bytes) -> int | None:
    """Give the size of the frame that some bytes begin, in a framing with lengths; None where they are too few.

    Raises:
        MalformedMessage: they begin none.
    """
    field = framing.length_field
    assert field is not None
    if len(frame) <= LENGTH_SIZE:
        if field.size_of(frame.ljust(LENGTH_SIZE, b"\0"), 0) > LONGEST_MESSAGE >> 1:
            # Big-endian, its first byte tells.
            raise MalformedMessage("no length of a message stands here")
        return None
    size, kind, head = field.size_of(frame, 0), frame[LENGTH_SIZE], 0
    if kind == _XLOGDATA:
        head = XLOGDATA.size
    tag = frame[LENGTH_SIZE + head : LENGTH_SIZE + head + 1]
    least, most = _SIZES.get(tag[0], (1, 0)) if tag else (1, LONGEST_MESSAGE)
    if kind == _KEEPALIVE:
        least, most = KEEPALIVE.size, KEEPALIVE.size
    if not least <= size - head <= most:
        raise MalformedMessage("no length of a message stands here")
    return LENGTH_SIZE + size


def starting_bytes(framing: Framing, starters: bytes) -> bytes:
    """Give what a session's bytes may begin with, given the tags that its messages may begin with."""
    field = framing.length_field
    if field is not None:
        return bytes({field.pack(size)[0] for size in _STARTING_SIZES})
    return {Framing.COPYDATA: b"d", Framing.PGCOPY: b"P", Framing.WALSENDER: b"wk"}.get(framing, starters)


def is_short_abort(framing: Framing, tail: bytes) -> bool:
    """Say whether unfinished bytes may be a whole Stream Abort, to which sixteen bytes more may belong."""
    head = {Framing.RAW: 0, Framing.WALSENDER: XLOGDATA.size}.get(framing)
    return head is not None and len(tail) == head + 9 and tail[head : head + 1] == b"A"


__all__ = ["Frame", "frame_at", "head_size", "is_short_abort", "starting_bytes"]
