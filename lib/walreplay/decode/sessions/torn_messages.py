"""Read one message as far as its bytes go, to decide whether they are the beginning of a message."""

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
"""The tags of messages inside a transaction."""

BETWEEN: Final = b"BSbcApPKrMRY"
"""The tags of messages between transactions."""

_MOST_TRUNCATED: Final = 1 << 20
_CELL: Final = 16


def is_torn(data: memoryview, at: int, end: int, place: Place, codec: str = UTF8) -> bool:
    """Say whether some bytes are the beginning of a message that is allowed at a place, and not a whole one."""
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
    """Give the end of the message at an offset, without its newline; the offset itself in framings without newlines."""
    if place.framing is not Framing.RECVLOGICAL:
        return at
    try:
        return read_message(data, at, streaming=place.stream is not None, names=names_in(codec))[1]
    except CaptureError:
        return at


def bytes_to_look_at(data: memoryview, at: int, end: int, place: Place) -> int:
    """Estimate how many bytes of a message have to be read, of those from ``at`` to ``end``.

    Values are skipped by their lengths; names and oids have to be read.
    """
    tag, size = at + head_size(place.framing, data, at, end), end - at
    if tag >= end or data[tag] not in b"IUDRTYOM":
        return 0
    if data[tag] in b"IUD":
        return min(size, 2 * _CELL * _columns_at(data, tag, place))
    return size if data[tag] != ord("M") else min(size, LONGEST_START)


def _columns_at(data: memoryview, tag: int, place: Place) -> int:
    """Give the number of columns of a row change's first tuple; 0 if it is cut off."""
    at = tag + (6 if place.stream is None else 10)
    return int.from_bytes(data[at : at + 2], "big") if at + 2 <= len(data) else 0


def _tags(place: Place) -> bytes:
    """Give the tags of messages that are allowed at a place: of its session, or of a new one."""
    if place.stream is not None:
        return ROWS + STARTERS + b"E"
    if place.transaction is not None:
        return ROWS + STARTERS + b"C"
    return BETWEEN


def read_frame(data: memoryview, at: int, end: int, place: Place, names: Names) -> int:
    """Read the message, with its frame, at an offset, as if the bytes ended at ``end``; give its end.

    Raises:
        TruncatedMessage: it is valid as far as its bytes go, but not complete.
        CaptureError: it is not valid.
    """
    return read_framed(data, at, end, frame_at(place.framing, data, at, end), place, names)


def read_framed(data: memoryview, at: int, end: int, frame: Frame, place: Place, names: Names) -> int:
    """Read the message at an offset, given what is known of its frame; see `read_frame`."""
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
            # A Stream Abort may have an LSN and a time, of which a part may be cut off.
            raise TruncatedMessage("the frame is cut", offset=at)
        raise MalformedMessage("the frame holds more bytes than its message", offset=at)
    return behind


def _refuse_large(data: memoryview, at: int, place: Place) -> None:
    """Refuse a row with more columns, or a Truncate with more relations, than are possible."""
    if at < len(data) and data[at] in b"IUD" and _columns_at(data, at, place) > walk.MAX_COLUMNS:
        raise MalformedMessage("the row has more columns than a table can have")
    count_at = at + (1 if place.stream is None else 5)
    if at < len(data) and data[at] == ord("T") and count_at + 4 <= len(data):
        count = int.from_bytes(data[count_at : count_at + 4], "big", signed=True)
        if count > _MOST_TRUNCATED:
            raise MalformedMessage("the Truncate's relations cannot be")


def content_of(data: memoryview, begin: int, end: int, place: Place) -> tuple[int, int] | None:
    """Give the range of a logical message's content, by its length; None for other messages.

    Args:
        begin: the offset of the message's tag.
        end: the message's bytes end here.
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
