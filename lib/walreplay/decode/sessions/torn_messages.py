"""Read one message as far as it goes, to see whether bytes are the beginning of one, and what it was."""

from __future__ import annotations

from typing import Final

from walreplay.decode import walk
from walreplay.decode.place import Place
from walreplay.decode.sessions.frames import Frame, frame_at, head_size
from walreplay.decode.sessions.starts import LONGEST_START, STARTERS
from walreplay.errors import CaptureError, MalformedMessage, TruncatedMessage
from walreplay.protocol.framing import NEWLINE, Framing
from walreplay.protocol.reader import Names, read_message
from walreplay.types.text import UTF8, names_in

ROWS: Final = b"IUDTOMRY"
"""What stands inside of a transaction."""

BETWEEN: Final = b"BSbcApPKrMRY"
"""What stands between transactions."""

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
        return read_message(data, at, streaming=place.stream is not None, names=names_in(codec))[1]
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
    return read_framed(data, at, end, frame_at(place.framing, data, at, end), place, names)


def read_framed(data: memoryview, at: int, end: int, frame: Frame, place: Place, names: Names) -> int:
    """Read the one message at an offset, whose frame is known as far as it goes; else as `read_frame`."""
    try:
        if frame.error is not None:
            raise frame.error
        return _frame_end(data, at, end, frame, place, names)
    except CaptureError as error:
        error.at(offset=at)
        raise


def _frame_end(data: memoryview, at: int, end: int, frame: Frame, place: Place, names: Names) -> int:
    message, behind = at + frame.head, None if frame.size is None else at + frame.size
    if behind is not None and end <= message:
        if behind > end:
            raise TruncatedMessage("the frame is cut", offset=at)
        return behind
    stop_at = end if behind is None else min(behind, end)
    _refuse_large(data[:stop_at], message, place)
    try:
        _, stop = read_message(data[:stop_at], message, streaming=place.stream is not None, names=names)
    except TruncatedMessage as error:
        if behind is None or behind > end:
            raise
        raise MalformedMessage("the frame holds fewer bytes than its message", offset=at) from error
    if place.framing is Framing.RECVLOGICAL:
        if stop >= end:
            raise TruncatedMessage("the newline is missing", offset=at)
        if data[stop] != NEWLINE[0]:
            raise MalformedMessage("the message is not followed by a newline", offset=at)
        return stop + 1
    if behind is None:
        return stop
    if stop != behind:
        if behind > end and data[message] == ord("A"):
            # A Stream Abort has an LSN and a time, or has not: a part of them may be cut off.
            raise TruncatedMessage("the frame is cut", offset=at)
        raise MalformedMessage("the frame holds more bytes than its message", offset=at)
    return behind


def _refuse_large(data: memoryview, at: int, place: Place) -> None:
    """Refuse a row of more columns, or a Truncate of more relations, than there can be."""
    if at < len(data) and data[at] in b"IUD" and _columns_at(data, at, place) > walk.MAX_COLUMNS:
        raise MalformedMessage("the row has more columns than a table can have")
    count_at = at + (1 if place.stream is None else 5)
    if at < len(data) and data[at] == ord("T") and count_at + 4 <= len(data):
        count = int.from_bytes(data[count_at : count_at + 4], "big", signed=True)
        if count > _MOST_TRUNCATED:
            raise MalformedMessage("the Truncate's relations cannot be")


def content_of(data: memoryview, begin: int, end: int, place: Place) -> tuple[int, int] | None:
    """Give where the content of the logical message that begins with its tag lies, by its length; None if it is none.

    Args:
        end: the message's own bytes end here at the latest.
    """
    if begin >= end or data[begin] != ord("M"):
        return None
    fields = begin + 1 + (4 if place.stream is not None else 0) + 9
    prefix = bytes(data[fields:end])
    nul = prefix.find(0)
    content = fields + nul + 5
    if nul < 0 or content > end:
        return None
    return content, content + int.from_bytes(data[content - 4 : content], "big")
