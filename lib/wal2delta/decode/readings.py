"""Read a session from an offset at which one may begin, to see what comes of it.

Nothing marks a session's beginning.  What can be seen is that its first message is one that a session may begin with,
that it announces its relations and streamed transactions itself, and that what follows can be read.
"""

from __future__ import annotations

from collections import deque
from contextlib import suppress
from dataclasses import dataclass, replace
from struct import Struct
from typing import TYPE_CHECKING, ClassVar, Final

import numpy as np

from wal2delta.decode import walk
from wal2delta.decode.effort import READING, Effort, GaveUp
from wal2delta.decode.frames import head_size, length_frame_size, sent_size
from wal2delta.decode.frames import starting_bytes as starting_bytes_of
from wal2delta.decode.kernel import helper, kernel
from wal2delta.decode.kernels_base import address_of, load_big_32, load_big_64, load_byte
from wal2delta.decode.kernels_frames import (
    FRAMING_CODES,
    KEEPALIVE_AT,
    LENGTH,
    NO_FRAME,
    PGCOPY,
    WALSENDER,
    message_at,
)
from wal2delta.decode.parameters import BYTES, INT64
from wal2delta.decode.stream import Place, StreamWalker, Transaction
from wal2delta.errors import CaptureError, MalformedMessage, OrderError, TruncatedMessage
from wal2delta.protocol import messages as m
from wal2delta.protocol.framing import (
    COPYDATA_HEADER,
    KEEPALIVE,
    PGCOPY_HEADER,
    PGCOPY_ROWS,
    PGCOPY_SIGNATURE,
    PGCOPY_TRAILER,
    XLOGDATA,
    Framing,
)
from wal2delta.protocol.reader import Names, read_message
from wal2delta.types.text import UTF8, names_in

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

PROBE_BYTES: Final = 1 << 20
"""A session that can be read so far is one."""

LONGEST_START: Final = 300
"""No message that a session may begin with is longer (a gid has up to 199 bytes), but for a logical message."""

_RECENT: Final = 16
FAR: Final = 1 << 14
"""Torn bytes and those behind them look like messages for so long at the most: further back none is looked for."""

_HEADER: Final = PGCOPY_HEADER.pack(PGCOPY_SIGNATURE, 0, 0)

_COMMIT: Final = Struct("!QQq")  # commit_lsn, end_lsn, commit_time

_MOST_TRUNCATED: Final = 1 << 20
_CELL: Final = 16
_LATEST: Final = 6_000_000_000_000_000
"""No time is later: microseconds since 2000, up to the year 2190."""

_STARTERS: Final = b"BSAbPKrM"
_ROWS: Final = b"IUDTOMRY"
_BETWEEN: Final = b"BSbcApPKrMRY"


class Reader(StreamWalker):
    """Walk one session.

    Args:
        place: where to begin.
        strict: it is a session's start, so that nothing may be named that the session has not announced.
        effort: what the walk is paid from.
        codec: what names are in.
    """

    breaks: ClassVar[bool] = True

    def __init__(self, place: Place, *, strict: bool, effort: Effort, codec: str = UTF8) -> None:
        self._strict = strict
        self._effort = effort
        self._streams: dict[int, dict[int, m.Relation]] = {}
        super().__init__(place.framing, place=place, relations={}, codec=codec)
        self._events: list[tuple[int, int]] = []
        self._block_at = walk.NO_OFFSET
        self._recent: deque[int] = deque(maxlen=_RECENT)

    def advance(self, data: memoryview, start: int, stop_at: int | None = None) -> None:
        """Walk on.

        Raises:
            CaptureError: what cannot be.
            GaveUp: the effort has come to its end.
        """
        self._effort.spend(READING)
        try:
            for _ in self.walk(data, start, stop_at):
                pass
        finally:
            self._effort.note_walked(self.position - start)

    def inner_relations(self, xid: int) -> Mapping[int, m.Relation]:
        """Give what the transaction has announced in its blocks before, or what holds where it is prepared."""
        return self.relations if self.gid is not None else self._streams.get(xid, {})

    def on_unknown_relation(self, oid: int, offset: int) -> int:
        """Let pass what the session may have announced before the start."""
        self._effort.spend(1)
        return super().on_unknown_relation(oid, offset) if self._strict or self.is_foreign(oid) else -1

    def on_stream_commit(self, xid: int) -> None:
        """Let what the transaction has announced, so far as that was read, hold outside of it."""
        super().on_stream_commit(xid)
        self.relations.update(self._streams.pop(xid, {}))

    def on_message(self, message: m.AnyMessage, offset: int) -> None:
        """Note the messages with an LSN of their own, and where blocks begin."""
        at = int(self.kernel.state[walk.PREVIOUS])
        self._effort.spend_on_message(self.position - at)
        self._recent.append(at)
        if isinstance(message, m.StreamStart):
            self._block_at = at
        elif isinstance(message, (m.StreamCommit, m.CommitPrepared)):
            self._events.append((message.commit_lsn, at))
        elif isinstance(message, (m.BeginPrepare, m.Prepare, m.StreamPrepare)):
            self._events.append((message.prepare_lsn, at))
        elif isinstance(message, m.RollbackPrepared):
            self._events.append((message.rollback_end_lsn, at))

    def _take(self, message: m.AnyMessage, offset: int) -> bool:
        if isinstance(message, m.StreamStart) and message.first_segment:
            self._streams[message.xid] = {}
        if self._strict:
            self._check_own(message, offset)
        xid = self.stream_xid
        inner = self._inner
        went_on = super()._take(message, offset)
        if went_on and xid is not None and inner is not None and self.stream_xid is None:
            self._streams[xid] = inner
        return went_on

    def _check_own(self, message: m.AnyMessage, offset: int) -> None:
        """Refuse what goes on with something that the session has not begun."""
        streams = self._streams
        # Aborts come of what was never streamed, too: it was gone before there was anything to stream.
        if isinstance(message, m.StreamAbort):
            if message.xid == message.subxid:
                streams.pop(message.xid, None)
        elif isinstance(message, (m.StreamStart, m.StreamCommit, m.StreamPrepare)):
            if message.xid not in streams:
                raise OrderError(f"the session has not begun to stream transaction {message.xid}", offset=offset)
            if isinstance(message, m.StreamPrepare):
                del streams[message.xid]
        if getattr(message, "xid", None) == 0:
            raise OrderError("no transaction has the xid 0", offset=offset)
        is_free = self.stream_xid is None and self.kernel.state[walk.TXN] == walk.IDLE
        if is_free and isinstance(message, (m.Relation, m.Type)):
            raise OrderError("a relation is announced outside of any transaction", offset=offset)

    def first_event(self, *, sound: bool) -> int | None:
        """Give the LSN of the first commit or prepare.

        Args:
            sound: believe the last message too; where an error follows, it may be a torn one.
        """
        state = self.kernel.state
        previous = int(state[walk.PREVIOUS])
        known = [lsn for lsn, at in self._events if sound or at != previous]
        if state[walk.FIRST_LSN] != walk.NO_LSN:
            known.append(int(state[walk.FIRST_LSN]))
        begin = state[walk.BEGIN_AT]
        if state[walk.TXN] == walk.OPEN and begin != walk.NO_OFFSET and (sound or begin != previous):
            known.append(int(state[walk.LSN]))
        return min(known, default=None)

    @property
    def first_at(self) -> int | None:
        """Where the first message with a commit's or prepare's LSN stands, of those that are no Begin or Commit."""
        return min((at for _, at in self._events), default=None)

    def lows(self, start: int) -> tuple[int, ...]:
        """Give how far back the torn message may be looked for, the nearest first.

        Mostly it is the last one.  But torn bytes and those behind them may look like several messages: of the open
        transaction, or such as stand between transactions.
        """
        state = self.kernel.state
        previous = int(state[walk.PREVIOUS])
        recent = list(self._recent)
        lows = [previous, *recent[-4:-3], *recent[:1]]
        if self.stream_xid is not None:
            lows.append(self._block_at)
        elif state[walk.TXN] == walk.OPEN:
            lows.append(int(state[walk.BEGIN_AT]))
        if self.restarted_at is not None:
            lows.append(self.restarted_at)
        return tuple(sorted({max(at, start, previous - FAR) for at in lows if at <= previous}, reverse=True))


@dataclass(frozen=True, slots=True)
class Reading:
    """What a session that begins at an offset comes to.

    Attributes:
        stop: behind its last whole message.
        lows: how far back the torn message may be looked for, the nearest first.
        error: what cannot be, so that it ends before that.
        broke: another session begins at ``stop``; ``late`` as in `Part`.
        messages: how many are whole.
        first_event: the LSN of its first commit or prepare; ``first_at`` is where such a one stands, though it may be
            the torn message itself.
        waits: too few bytes are there to tell whether it is one.
    """

    stop: int
    lows: tuple[int, ...]
    error: CaptureError | None
    broke: bool
    late: bool
    messages: int
    first_event: int | None
    first_at: int | None
    waits: bool

    @property
    def ends(self) -> bool:
        """Whether another session has to follow."""
        return self.broke or self.error is not None


def read_session(
    data: memoryview, start: int, place: Place, *, strict: bool, stop_at: int, effort: Effort, codec: str = UTF8
) -> Reading:
    """Read a session up to the first boundary at or behind an offset, or to its end."""
    reader = Reader(place, strict=strict, effort=effort, codec=codec)
    error = None
    try:
        reader.advance(data, start, stop_at)
        if not reader.broke and reader.position < stop_at:
            _check_tail(data, reader.position, reader.place, codec, effort)
    except CaptureError as found:
        error = found
    is_bare = reader.position == start
    return Reading(
        stop=reader.position,
        lows=reader.lows(start),
        error=error,
        broke=reader.broke,
        late=reader.late,
        messages=int(reader.kernel.state[walk.MESSAGES]),
        first_event=reader.first_event(sound=error is None),
        first_at=reader.first_at,
        waits=is_bare and error is None and not reader.broke,
    )


def may_wait(data: memoryview, start: int, framing: Framing) -> bool:
    """Say whether the unfinished message at an offset may be what a session begins with."""
    if len(data) - start < LONGEST_START:
        return True
    return data[start + head_size(framing, data, start, len(data))] == ord("M")


def starting_bytes(framing: Framing) -> bytes:
    """Give what a session's bytes may begin with."""
    return starting_bytes_of(framing, _STARTERS)


# The beginning of a message.


def check_tail(data: memoryview, stop: int, place: Place, codec: str = UTF8) -> None:
    """Refuse an unfinished message that cannot be one.

    A damaged length makes a message look longer than the file.  Taken for a torn tail, it would hide all that
    follows; but the Commit's LSN and time are known from the Begin.  Likewise the beginning of a message that was
    torn swallows the session behind it; but a text value holds no NUL.
    """
    # What takes too long to tell is not refused.
    with suppress(GaveUp):
        _check_tail(data, stop, place, codec, Effort(len(data) - stop))


def _check_tail(data: memoryview, stop: int, place: Place, codec: str, effort: Effort) -> None:
    if stop == len(data):
        return
    effort.note_walked(len(data) - stop)
    effort.spend_on_message(len(data) - stop)
    _check_ends(data, stop, place)
    _check_stream(data, stop, place)
    try:
        _read_frame(data, stop, len(data), place, names_in(codec))
    except TruncatedMessage:
        _check_logical(data, stop, place, codec, effort)


def _check_logical(data: memoryview, stop: int, place: Place, codec: str, effort: Effort) -> None:
    """Refuse an unfinished logical message with a session in its head: the length of its content is not its own.

    The content may be anything, a session too; but not what stands in front of it.
    """
    begin = stop + head_size(place.framing, data, stop, len(data))
    if begin >= len(data) or data[begin] != ord("M"):
        return
    content = content_of(data, stop, len(data), place)
    buf, code = np.frombuffer(data, np.uint8), FRAMING_CODES[place.framing]
    # All that a session may begin with has a NUL within its first bytes, which ends the head.
    end = min(len(data), begin + LONGEST_START) if content is None else content[0]
    at = int(next_start(buf, begin + 1, end, code))
    while at < end:
        reader = Reader(Place(place.framing), strict=True, effort=effort, codec=codec)
        error = False
        try:
            reader.advance(data, at, at + PROBE_BYTES)
        except CaptureError:
            error = True
        if reader.position > at and (not error or reader.kernel.state[walk.MESSAGES] > 1):
            raise MalformedMessage("a session begins in the head of the Message", offset=stop)
        at = int(next_start(buf, at + 1, end, code))


def _check_ends(data: memoryview, stop: int, place: Place) -> None:
    """Refuse an unfinished message that holds the end of the transaction that it is in, or its beginning once more."""
    marks = list(_marks(place))
    tail = bytes(data[stop:]) if marks else b""
    for mark, time_at, time in marks:
        # The unfinished message may be such a one itself.
        found = tail.find(mark, 1 + head_size(place.framing, data, stop, len(data)))
        said = tail[found + time_at : found + time_at + 8]
        if found < 0 or len(said) < 8:
            continue
        said_time = int.from_bytes(said, "big", signed=True)
        if said_time == time or (time is None and 0 <= said_time < _LATEST):
            raise MalformedMessage(
                f"the message of {len(tail):,} bytes or more runs over its own transaction's end, or over where that "
                f"begins anew, at offset {found + stop:,}; a length in it is damaged",
                offset=stop,
                remedy="Fetch the file from its source again",
            )


def _marks(place: Place) -> Iterator[tuple[bytes, int, int | None]]:
    """Give what only the messages hold that begin and end the open transaction, where a time stands there, and it.

    Nothing that was written before its commit can hold them: not even a capture inside of a value.
    """
    open_ = place.transaction
    if open_ is not None:
        lsn, time = open_.final_lsn.to_bytes(8, "big"), open_.commit_time
        begin, end, time_at = (b"B", b"C", 9) if open_.gid is None else (b"b", b"P", 17)
        yield end + b"\0" + lsn, 18, time
        yield begin + lsn, time_at, time
    elif place.stream is not None and place.stream >= 0:
        # Its LSN and time are not known before, and behind a guessed start not even its xid.
        xid = place.stream.to_bytes(4, "big")
        yield b"c" + xid + bytes(2), 22, None


def _check_stream(data: memoryview, stop: int, place: Place) -> None:
    """Refuse an unfinished message over which the stream that it is in begins anew."""
    if place.stream is None or place.stream < 0:
        return
    head = head_size(place.framing, data, stop, len(data))
    begin = b"S" + place.stream.to_bytes(4, "big") + b"\1"
    tail = bytes(data[stop:])
    found = tail.find(begin, 1 + head)
    behind = found + len(begin) + head + (place.framing is Framing.RECVLOGICAL)
    if found >= 0 and behind < len(tail) and tail[behind] in _ROWS + b"E":
        raise MalformedMessage(
            f"the message of {len(tail):,} bytes or more runs over where the stream that it is in begins anew, "
            f"at offset {found + stop:,}",
            offset=stop,
            remedy="Fetch the file from its source again",
        )


def is_torn(data: memoryview, at: int, end: int, place: Place, codec: str = UTF8) -> bool:
    """Say whether some bytes are the beginning of a message that may stand there, and no whole one."""
    tag = at + head_size(place.framing, data, at, end)
    if tag < end and data[tag] not in _tags(place):
        return False
    try:
        _read_frame(data, at, end, place, names_in(codec))
    except TruncatedMessage:
        return True
    except CaptureError:
        return False
    return False


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
        return _ROWS + _STARTERS + b"E"
    if place.transaction is not None:
        return _ROWS + _STARTERS + b"C"
    return _BETWEEN


def _read_frame(data: memoryview, at: int, end: int, place: Place, names: Names) -> int:
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
        behind = _read_frame(data, at, len(data), place, names_in(codec))
        message, _ = read_message(data, begin, names=names_in(codec))
    except CaptureError:
        return False
    if not isinstance(message, m.Prepare) or (message.prepare_lsn, message.prepare_time) != (
        open_.final_lsn,
        open_.commit_time,
    ):
        return False
    # A gid may also be another one where it was torn: then nothing follows that can.
    goes_on = place.framing is not Framing.RAW or behind == len(data) or data[behind] in _BETWEEN
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


# Where a session may begin.


@helper
def _plausible_time(base, p, end):  # type: ignore[no-untyped-def]
    return p + 8 > end or 0 <= load_big_64(base + p) < 6_000_000_000_000_000


@helper
def _plausible_lsns(base, p, end):  # type: ignore[no-untyped-def]
    """Say whether two LSNs may stand here, the second one behind the first."""
    if p + 16 > end:
        return p >= end or load_byte(base + p) == 0
    return 0 <= load_big_64(base + p) < load_big_64(base + p + 8) < 1 << 56


@helper
def _may_abort(base, p, end, framing):  # type: ignore[no-untyped-def]
    """Say whether a Stream Abort of a transaction that was never streamed may stand here: xid, subxid, LSN and time.

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
    found = False
    for known in (66, 83, 65, 99, 98, 80, 75, 114, 112, 77):  # B S A c b P K r p M
        found = found or behind == known
    return found


@helper
def _may_start(base, p, end, framing):  # type: ignore[no-untyped-def]
    """Say whether a session's first message may begin here, as far as its first bytes tell."""
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
    """Give the next offset where a session may begin, or the end."""
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
