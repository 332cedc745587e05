"""Read torn messages: one message as far as its bytes go, to decide whether they are the beginning of a message.

`is_damaged_end` and `promised_lsn` find which transaction such a message ended or began.  `refuse_swallowed` refuses
an unfinished message that contains the end of its own transaction: a length in it is damaged.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from struct import Struct
from typing import Final

from walreplay.decode.kernels.frames import LAST_LIKELY_TIME
from walreplay.decode.sessions.starts import LONGEST_START, STARTERS, frame_at, head_size
from walreplay.decode.walk import Place, Transaction
from walreplay.errors import CaptureError, MalformedMessage, TruncatedMessage
from walreplay.protocol import messages as m
from walreplay.protocol.framing import read_trailer
from walreplay.protocol.reader import Names, read_message
from walreplay.types.text import UTF8, names_in

ROWS: Final = b"IUDTOMRY"  # Insert, Update, Delete, Truncate, Origin, Message, Relation, Type
"""The tags of messages inside a transaction."""

BETWEEN: Final = b"BSbcApPKrMRY"  # The tags of messages between transactions

_MOST_TRUNCATED: Final = 1 << 20
_CELL: Final = 16


def is_torn(data: memoryview, offset: int, end: int, place: Place, codec: str = UTF8) -> bool:
    """Return whether some bytes are the beginning of a message that is allowed at a place, and not a whole one."""
    tag = offset + head_size(place.framing, data, offset, end)
    if tag < end and data[tag] not in _tags(place):
        return False
    try:
        read_frame(data, offset, end, place, names_in(codec))
    except TruncatedMessage:
        return True
    except CaptureError:
        return False
    return False


def bytes_to_look_at(data: memoryview, offset: int, end: int, place: Place) -> int:
    """Estimate how many bytes of a message have to be read, of those from ``offset`` to ``end``.

    Values are skipped by their lengths; names and oids have to be read.
    """
    tag, size = offset + head_size(place.framing, data, offset, end), end - offset
    if tag >= end or data[tag] not in b"IUDRTYOM":
        return 0
    if data[tag] in b"IUD":
        return min(size, 2 * _CELL * _columns_at(data, tag, place))  # an old tuple and a new one
    return size if data[tag] != ord("M") else min(size, LONGEST_START)


def _columns_at(data: memoryview, tag: int, place: Place) -> int:
    """Return the number of columns of a row change's first tuple; 0 if it is cut off."""
    count_offset = tag + (6 if place.stream is None else 10)  # behind oid and tuple's kind; in blocks, an xid
    return int.from_bytes(data[count_offset : count_offset + 2], "big") if count_offset + 2 <= len(data) else 0


def _tags(place: Place) -> bytes:
    """Return the tags of messages that are allowed at a place: of its session, or of a new one."""
    if place.stream is not None:
        return ROWS + STARTERS + b"E"
    if place.transaction is not None:
        return ROWS + STARTERS + b"C"
    return BETWEEN


def read_frame(data: memoryview, offset: int, end: int, place: Place, names: Names) -> int:
    """Read the message, with its frame, at an offset, as if the bytes ended at ``end``; return its end.

    Raises:
        TruncatedMessage: it is valid as far as its bytes go, but not complete.
        CaptureError: it is not valid.
    """
    try:
        return _frame_end(data[:end], offset, place, names)
    except CaptureError as error:
        error.at(offset=offset)
        raise


def _frame_end(data: memoryview, offset: int, place: Place, names: Names) -> int:
    framing = place.framing
    message, behind, is_empty = frame_at(framing, data, offset)
    if is_empty and behind <= len(data):
        return read_trailer(data, behind, framing)
    if message >= len(data):
        raise TruncatedMessage("the frame is cut", offset=offset)
    _refuse_large(data[:behind], message, place)
    try:
        _, stop = read_message(data[:behind], message, streaming=place.stream is not None, names=names)
    except TruncatedMessage as error:
        if not framing.is_sized or behind > len(data):
            raise
        raise MalformedMessage("the frame holds fewer bytes than its message", offset=offset) from error
    if framing.is_sized and stop != behind:
        if behind > len(data) and data[message] == ord("A"):
            # A Stream Abort may have an LSN and a time, of which a part may be cut off.
            raise TruncatedMessage("the frame is cut", offset=offset)
        raise MalformedMessage("the frame holds more bytes than its message", offset=offset)
    return read_trailer(data, stop, framing)


def _refuse_large(data: memoryview, offset: int, place: Place) -> None:
    """Refuse a row with more columns, or a Truncate with more relations, than are possible."""
    if offset < len(data) and data[offset] in b"IUD" and _columns_at(data, offset, place) > m.MAX_COLUMNS:
        raise MalformedMessage("the row has more columns than a table can have")
    count_at = offset + (1 if place.stream is None else 5)
    if offset < len(data) and data[offset] == ord("T") and count_at + 4 <= len(data):
        count = int.from_bytes(data[count_at : count_at + 4], "big", signed=True)
        if count > _MOST_TRUNCATED:
            raise MalformedMessage("the Truncate's relations cannot be")


def content_of(data: memoryview, begin: int, end: int, place: Place) -> tuple[int, int] | None:
    """Return the range of a logical message's content, by its length; None for other messages."""
    if begin >= end or data[begin] != ord("M"):
        return None
    fields = begin + 1 + (4 if place.stream is not None else 0) + 9  # behind flags and LSN
    prefix = bytes(data[fields:end])
    nul = prefix.find(0)
    content = fields + nul + 5  # behind the NUL and the content's length
    if nul < 0 or content > end:
        return None
    return content, content + int.from_bytes(data[content - 4 : content], "big")


_COMMIT: Final = Struct("!QQq")  # commit_lsn, end_lsn, commit_time


def is_damaged_end(data: memoryview, offset: int, place: Place, codec: str = UTF8) -> bool:
    """Return whether the message at an offset ends the open transaction, but either it or the Begin is damaged.

    A Commit with another LSN is the transaction's if the time is: torn messages can only look like that if they contain
    a Begin, whose LSN then stands as the Commit's end LSN.  A Prepare is the transaction's if its LSN and time are, and
    its xid or its gid.
    """
    begin, transaction = offset + head_size(place.framing, data, offset, len(data)), place.transaction
    if transaction is None:
        return False
    if transaction.gid is not None:
        return _is_damaged_prepare(data, offset, begin, replace(place, transaction=None), transaction, codec)
    if bytes(data[begin : begin + 2]) != b"C\0" or begin + 26 > len(data):
        return False
    lsn, end_lsn, time = _COMMIT.unpack_from(data, begin + 2)
    return bool(time == transaction.commit_time and transaction.final_lsn not in (lsn, end_lsn) and lsn < end_lsn)


def _is_damaged_prepare(
    data: memoryview, offset: int, begin: int, place: Place, transaction: Transaction, codec: str
) -> bool:
    """Return whether a Prepare that can be read ends the transaction, though not all of it agrees with the Begin.

    A Prepare that agrees in all is asked about as well, if what stands behind it was refused.
    """
    if bytes(data[begin : begin + 1]) != b"P":
        return False
    try:
        behind = read_frame(data, offset, len(data), place, names_in(codec))
        message, _ = read_message(data, begin, names=names_in(codec))
    except CaptureError:
        return False
    if not isinstance(message, m.Prepare) or (message.prepare_lsn, message.prepare_time) != (
        transaction.final_lsn,
        transaction.commit_time,
    ):
        return False
    # The gid may also differ because it is torn; then no valid message follows.  A frame's length shows it by itself.
    following = b"wk" if place.framing.layout.is_sent else BETWEEN
    goes_on = not place.framing.is_open_ended or behind == len(data) or data[behind] in following
    return message.gid == transaction.gid or (message.xid == transaction.xid and goes_on)


def promised_lsn(data: memoryview, offset: int, end: int, place: Place) -> int | None:
    """Return the LSN of the transaction that a torn message began or ended, and that has to be sent again; or None.

    A streamed transaction need not be sent again: when it is not streamed the second time, it may be left out as empty.
    """
    begin = offset + head_size(place.framing, data, offset, end)
    if begin >= end:
        return None
    lsn_position = {ord("B"): 1, ord("b"): 1, ord("K"): 2, ord("P"): 2}.get(data[begin])  # K and P have flags first
    if lsn_position is None or begin + lsn_position + 8 > end:
        return None
    return int.from_bytes(data[begin + lsn_position : begin + lsn_position + 8], "big")


def refuse_swallowed(data: memoryview, stop: int, head: int, place: Place) -> None:
    """Refuse an unfinished message that extends over the end, or a repeated beginning, of its own transaction.

    Args:
        stop: the offset of its frame.
        head: the number of the frame's bytes before the message.
        place: the place at ``stop``.

    Raises:
        MalformedMessage: it does.
    """
    _refuse_ends(data, stop, head, place)
    _refuse_stream(data, stop, head, place)


def _refuse_ends(data: memoryview, stop: int, head: int, place: Place) -> None:
    """Refuse an unfinished message that contains the end of its transaction, or its beginning once more."""
    marks = list(_marks(place))
    tail = bytes(data[stop:]) if marks else b""
    for mark, time_at, time in marks:
        # The search begins after the tag, because the unfinished message may itself be the transaction's end.
        mark_offset = tail.find(mark, 1 + head)
        time_bytes = tail[mark_offset + time_at : mark_offset + time_at + 8]
        if mark_offset < 0 or len(time_bytes) < 8:
            continue
        time_read = int.from_bytes(time_bytes, "big", signed=True)
        if time_read == time or (time is None and 0 <= time_read < LAST_LIKELY_TIME):
            raise MalformedMessage(
                f"the message of {len(tail):,} bytes or more runs over its own transaction's end, or over where that "
                f"begins anew, at offset {mark_offset + stop:,}; a length in it is damaged",
                offset=stop,
                remedy="Fetch the file from its source again",
            )


def _marks(place: Place) -> Iterator[tuple[bytes, int, int | None]]:
    """Yield byte sequences that only the messages contain which begin or end the open transaction.

    No value written before its commit can contain them, not even a capture inside a value.

    Yields:
        a byte sequence, the offset of a time relative to it, and that time if it is known.
    """
    transaction = place.transaction
    if transaction is not None:
        lsn, time = transaction.final_lsn.to_bytes(8, "big"), transaction.commit_time
        begin, end, time_at = (b"B", b"C", 9) if transaction.gid is None else (b"b", b"P", 17)
        yield end + b"\0" + lsn, 18, time  # flags; the time is behind the LSN and the end LSN
        yield begin + lsn, time_at, time
    elif place.stream is not None and place.stream >= 0:
        # A streamed transaction's commit LSN and time are not known yet; behind a guessed start its xid is not either.
        xid = place.stream.to_bytes(4, "big")
        yield b"c" + xid + bytes(2), 22, None  # the flags, and an LSN's first byte


def _refuse_stream(data: memoryview, stop: int, head: int, place: Place) -> None:
    """Refuse an unfinished message that contains a second beginning of its streamed transaction."""
    if place.stream is None or place.stream < 0:
        return
    begin = b"S" + place.stream.to_bytes(4, "big") + b"\1"  # the stream's first block
    tail = bytes(data[stop:])
    begin_offset = tail.find(begin, 1 + head)
    block_tag_offset = begin_offset + len(begin) + head + len(place.framing.layout.trailer)
    if begin_offset >= 0 and block_tag_offset < len(tail) and tail[block_tag_offset] in ROWS + b"E":
        raise MalformedMessage(
            f"the message of {len(tail):,} bytes or more runs over where the stream that it is in begins anew, "
            f"at offset {begin_offset + stop:,}",
            offset=stop,
            remedy="Fetch the file from its source again",
        )
