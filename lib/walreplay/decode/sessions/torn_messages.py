"""Read one message as far as it goes, to see whether bytes are the beginning of one, and what it was."""

from __future__ import annotations

from dataclasses import replace
from struct import Struct
from typing import Final

from walreplay.decode import walk
from walreplay.decode.place import Place, Transaction
from walreplay.decode.sessions.frames import head_size, length_frame_size, sent_size
from walreplay.decode.sessions.starts import LONGEST_START, STARTERS
from walreplay.errors import CaptureError, MalformedMessage, TruncatedMessage
from walreplay.protocol import messages as m
from walreplay.protocol.framing import (
    COPYDATA_HEADER,
    KEEPALIVE,
    PGCOPY_HEADER,
    PGCOPY_ROWS,
    PGCOPY_SIGNATURE,
    PGCOPY_TRAILER,
    XLOGDATA,
    Framing,
)
from walreplay.protocol.reader import Names, read_message
from walreplay.types.text import UTF8, names_in

ROWS: Final = b"IUDTOMRY"
"""What stands inside of a transaction."""

BETWEEN: Final = b"BSbcApPKrMRY"
"""What stands between transactions."""

_HEADER: Final = PGCOPY_HEADER.pack(PGCOPY_SIGNATURE, 0, 0)
_COMMIT: Final = Struct("!QQq")  # commit_lsn, end_lsn, commit_time
_MOST_TRUNCATED: Final = 1 << 20
_CELL: Final = 16


def is_torn(data: memoryview, at: int, end: int, place: Place, codec: str = UTF8) -> bool:
    """Say whether some bytes are the beginning of a message that may stand there, and no whole one."""
    tag = at + head_size(place.framing, data, at, end)
    if tag < end and data[tag] not in _tags(place):
        return False
    try:
        read_frame(data, at, end, place, names_in(codec))
    except TruncatedMessage:
        return True
    except CaptureError:
        return False
    return False


def end_without_newline(data: memoryview, at: int, place: Place, codec: str = UTF8) -> int:
    """Give where the message at an offset ends, if the framing has newlines; where it has none, the offset."""
    if place.framing is not Framing.RECVLOGICAL:
        return at
    try:
        return _read_message(data, at, place, names_in(codec))
    except CaptureError:
        return at


def bytes_to_look_at(data: memoryview, at: int, end: int, place: Place) -> int:
    """Give about how many bytes have to be looked at of a message of which so many are there.

    Values are stepped over; names and oids are not.
    """
    tag, size = at + head_size(place.framing, data, at, end), end - at
    if tag >= end or data[tag] not in b"IUDRTYOM":
        return 0
    if data[tag] in b"IUD":
        return min(size, 2 * _CELL * _columns_at(data, tag, place))
    return size if data[tag] != ord("M") else min(size, LONGEST_START)


def _columns_at(data: memoryview, tag: int, place: Place) -> int:
    """Give how many columns the first tuple of a row change has, 0 where that is cut off."""
    at = tag + (6 if place.stream is None else 10)
    return int.from_bytes(data[at : at + 2], "big") if at + 2 <= len(data) else 0


def _tags(place: Place) -> bytes:
    """Give what may begin a message at a place: of its session, or of a new one."""
    if place.stream is not None:
        return ROWS + STARTERS + b"E"
    if place.transaction is not None:
        return ROWS + STARTERS + b"C"
    return BETWEEN


def read_frame(data: memoryview, at: int, end: int, place: Place, names: Names) -> int:
    """Read the one message, or frame, that begins at an offset, as if the bytes ended at another; give its end.

    Raises:
        TruncatedMessage: it is sound as far as it goes.
        CaptureError: it cannot be.
    """
    try:
        return _frame_end(data, at, end, place, names)
    except CaptureError as error:
        error.at(offset=at)
        raise


def _frame_end(data: memoryview, at: int, end: int, place: Place, names: Names) -> int:
    if place.framing in (Framing.RAW, Framing.RECVLOGICAL):
        behind = _read_message(data[:end], at, place, names)
        if place.framing is Framing.RAW:
            return behind
        if behind >= end:
            raise TruncatedMessage("the newline is missing", offset=at)
        if data[behind] != 0x0A:
            raise MalformedMessage("the message is not followed by a newline", offset=at)
        return behind + 1
    head = head_size(place.framing, data, at, end)
    if place.framing is Framing.WALSENDER:
        size = sent_size(bytes(data[at : min(end, at + head)]))
        if size is not None:
            return at + size
        if end <= at + XLOGDATA.size:
            raise TruncatedMessage("the frame's header is cut", offset=at)
        return _read_message(data[:end], at + head, place, names)
    size = _frame_size(place.framing, bytes(data[at : min(end, at + head + 1)]), head)
    if size is None:
        raise TruncatedMessage("the frame's header is cut", offset=at)
    behind = at + size
    message = at + head
    if end <= message:
        if behind > end:
            raise TruncatedMessage("the frame is cut", offset=at)
        return behind
    try:
        stop = _read_message(data[: min(behind, end)], message, place, names)
    except TruncatedMessage as error:
        if behind > end:
            raise
        raise MalformedMessage("the frame holds fewer bytes than its message", offset=at) from error
    if stop != behind:
        if behind > end and data[message] == ord("A"):
            # A Stream Abort has an LSN and a time, or has not: a part of them may be cut off.
            raise TruncatedMessage("the frame is cut", offset=at)
        raise MalformedMessage("the frame holds more bytes than its message", offset=at)
    return behind


def _read_message(data: memoryview, at: int, place: Place, names: Names) -> int:
    streaming = place.stream is not None
    if at < len(data) and data[at] in b"IUD" and _columns_at(data, at, place) > walk.MAX_COLUMNS:
        raise MalformedMessage("the row has more columns than a table can have")
    try:
        return read_message(data, at, streaming=streaming, names=names)[1]
    except TruncatedMessage:
        if at < len(data) and data[at] == ord("T"):
            _check_truncate(bytes(data[at + (5 if streaming else 1) :]))
        raise


def _check_truncate(fields: bytes) -> None:
    """Refuse a Truncate of more relations than there can be, or of a relation 0."""
    count = fields[:4]
    oids = [fields[at : at + 4] for at in range(5, len(fields) - 3, 4)]
    if (len(count) == 4 and int.from_bytes(count, "big") > _MOST_TRUNCATED) or bytes(4) in oids:
        raise MalformedMessage("the Truncate's relations cannot be")


def _frame_size(framing: Framing, frame: bytes, head: int) -> int | None:
    """Give the size of the frame that some bytes begin, up to the first of its message; None where they are too few."""
    if framing.length_field is not None:
        return length_frame_size(framing, frame)
    return _copydata_size(frame[:head]) if framing is Framing.COPYDATA else _pgcopy_size(frame[:head])


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


def content_of(data: memoryview, at: int, end: int, place: Place) -> tuple[int, int] | None:
    """Give where the content of the logical message at an offset lies, as its length says; None if it is none.

    Args:
        end: the message's own bytes end here at the latest.
    """
    begin = at + head_size(place.framing, data, at, end)
    if begin >= end or data[begin] != ord("M"):
        return None
    fields = begin + 1 + (4 if place.stream is not None else 0) + 9
    prefix = bytes(data[fields:end])
    nul = prefix.find(0)
    content = fields + nul + 5
    if nul < 0 or content > end:
        return None
    return content, content + int.from_bytes(data[content - 4 : content], "big")


def is_damaged_end(data: memoryview, at: int, place: Place, codec: str = UTF8) -> bool:
    """Say whether the message at an offset ends the open transaction, but that one of them is damaged.

    Of a Commit with another LSN the time says whose it is: torn messages can only give it so where a Begin stands in
    it, whose LSN is then its end.  Of a Prepare its LSN and time say it, and its xid or its gid.
    """
    begin, open_ = at + head_size(place.framing, data, at, len(data)), place.transaction
    if open_ is None:
        return False
    if open_.gid is not None:
        return _is_damaged_prepare(data, at, begin, replace(place, transaction=None), open_, codec)
    if bytes(data[begin : begin + 2]) != b"C\0" or begin + 26 > len(data):
        return False
    lsn, end_lsn, time = _COMMIT.unpack_from(data, begin + 2)
    return bool(time == open_.commit_time and open_.final_lsn not in (lsn, end_lsn) and lsn < end_lsn)


def _is_damaged_prepare(data: memoryview, at: int, begin: int, place: Place, open_: Transaction, codec: str) -> bool:
    if bytes(data[begin : begin + 1]) != b"P":
        return False
    try:
        behind = read_frame(data, at, len(data), place, names_in(codec))
        message, _ = read_message(data, begin, names=names_in(codec))
    except CaptureError:
        return False
    if not isinstance(message, m.Prepare) or (message.prepare_lsn, message.prepare_time) != (
        open_.final_lsn,
        open_.commit_time,
    ):
        return False
    # A gid may also be another one where it was torn: then nothing follows that can.  A frame's length tells by itself.
    following = {Framing.RAW: BETWEEN, Framing.WALSENDER: b"wk"}.get(place.framing)
    goes_on = following is None or behind == len(data) or data[behind] in following
    return message.gid == open_.gid or (message.xid == open_.xid and goes_on)


def promised_lsn(data: memoryview, at: int, end: int, place: Place) -> int | None:
    """Give the LSN of the transaction that a torn message began or ended, and which has to come again for that.

    One that was streamed need not: not streamed, it may be found to be empty.
    """
    begin = at + head_size(place.framing, data, at, end)
    if begin >= end:
        return None
    where = {ord("B"): 1, ord("b"): 1, ord("K"): 2, ord("P"): 2}.get(data[begin])
    if where is None or begin + where + 8 > end:
        return None
    return int.from_bytes(data[begin + where : begin + where + 8], "big")
