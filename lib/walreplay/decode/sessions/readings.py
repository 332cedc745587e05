"""Try to read a session from an offset at which one may begin.

Nothing marks a session's beginning.  But its first message has to be one with which a session may begin, it has to
announce its relations and streamed transactions itself, and the messages that follow have to be valid.

Reading itself goes once over the bytes.  A search that tries several readings pays for each from a budget (`Effort`)
that grows with the number of bytes, and stops when it is used up.  Otherwise hostile bytes could keep it busy for ever,
because a message may be torn, and a session may begin, at every offset.
"""

from __future__ import annotations

from collections import deque
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Final

import numpy as np

from walreplay.decode.kernels import walk_words as words
from walreplay.decode.kernels.frames import FRAMING_CODES
from walreplay.decode.sessions.starts import LONGEST_START, head_size, next_start
from walreplay.decode.sessions.torn_messages import content_of, read_frame, refuse_swallowed
from walreplay.decode.stream import StreamWalker
from walreplay.decode.walk import Place
from walreplay.errors import CaptureError, MalformedMessage, OrderError, TruncatedMessage
from walreplay.protocol import messages as m
from walreplay.types.text import UTF8, names_in

if TYPE_CHECKING:
    from collections.abc import Mapping


LEAST: Final = 40_000  # The budget for any bytes, in units of about five microseconds

BYTES_A_UNIT: Final = 16  # For so many bytes the budget has another unit

READING: Final = 8  # The price of beginning to read at an offset, in units

LOOKING: Final = 4  # The price of looking at one message, in units

_BYTES_WALKED: Final = 1 << 13  # by a kernel, for one unit
_BYTES_COMPARED: Final = 1 << 6  # by Python, for one unit


class GaveUp(Exception):
    """The budget is used up."""


class Effort:
    """A budget for the search of so many bytes, with some units for any number of them."""

    def __init__(self, size: int, least: int = LEAST) -> None:
        self.all = least + size // BYTES_A_UNIT
        self.left = self.all

    def spend(self, units: int) -> None:
        """Pay for work.

        Raises:
            GaveUp: there are not so many units left.
        """
        self.left -= units
        if self.left < 0:
            raise GaveUp

    def spend_on_message(self, size: int) -> None:
        """Pay for looking at one message of so many bytes."""
        self.spend(LOOKING + min(size, 1 << 20) // _BYTES_COMPARED)

    def note_walked(self, size: int) -> None:
        """Pay for bytes that a kernel has walked over.  This does not raise; the next `spend` may."""
        self.left -= size // _BYTES_WALKED


class PaidWalker(StreamWalker):
    """Walk over messages, and pay for the bytes; subclasses set ``_effort``, the budget."""

    _effort: Effort

    def advance(self, data: bytes | memoryview, start: int, stop_at: int | None = None) -> None:
        """Walk over whole messages, from ``start`` up to the first boundary at or after ``stop_at``.

        Raises:
            CaptureError: a message is not valid.
            GaveUp: the budget is used up.
        """
        self._effort.spend(READING)
        try:
            for _ in self.walk(data, start, stop_at):
                pass
        finally:
            self._effort.note_walked(self.position - start)


PROBE_BYTES: Final = 1 << 20  # A session that can be read over so many bytes is accepted

_RECENT: Final = 16  # messages that Python reads are remembered
FAR: Final = 1 << 14
"""A torn message is looked for so many bytes back: torn bytes do not look like valid messages any longer."""


class Reader(PaidWalker):
    """Walk one session.

    Args:
        strict: it is a session's start, so the session has to announce everything that it uses.
    """

    allows_session_end: ClassVar[bool] = True

    def __init__(self, place: Place, *, strict: bool, effort: Effort, codec: str = UTF8) -> None:
        self._strict = strict
        self._effort = effort
        self._streams: dict[int, dict[int, m.Relation]] = {}
        super().__init__(place.framing, place=place, relations={}, codec=codec)
        self._events: list[tuple[int, int]] = []
        self._block_at = words.NO_OFFSET
        self._recent: deque[int] = deque(maxlen=_RECENT)

    def inner_relations(self, xid: int) -> Mapping[int, m.Relation]:
        """Return what the transaction has announced in earlier blocks, or what is in force where it is prepared."""
        return self.relations if self.gid is not None else self._streams.get(xid, {})

    def on_unknown_relation(self, oid: int, offset: int) -> int:
        """Accept relations that the session may have announced before the start."""
        self._effort.spend(1)
        return super().on_unknown_relation(oid, offset) if self._strict or self.is_foreign(oid) else -1

    def on_stream_commit(self, xid: int) -> None:
        """Put in force what the transaction has announced, as far as it was read."""
        super().on_stream_commit(xid)
        self.relations.update(self._streams.pop(xid, {}))

    def on_message(self, message: m.AnyMessage, offset: int) -> None:
        """Note messages with an LSN of their own, and the starts of blocks."""
        frame_offset = int(self.kernel.state[words.PREVIOUS])
        self._effort.spend_on_message(self.position - frame_offset)
        self._recent.append(frame_offset)
        if isinstance(message, m.StreamStart):
            self._block_at = frame_offset
        elif isinstance(message, (m.StreamCommit, m.CommitPrepared)):
            self._events.append((message.commit_lsn, frame_offset))
        elif isinstance(message, (m.BeginPrepare, m.Prepare, m.StreamPrepare)):
            self._events.append((message.prepare_lsn, frame_offset))
        elif isinstance(message, m.RollbackPrepared):
            self._events.append((message.rollback_end_lsn, frame_offset))

    def _take(self, message: m.AnyMessage, offset: int) -> bool:
        if isinstance(message, m.StreamStart) and message.first_segment:
            self._streams[message.xid] = {}  # begun again, it announces all again
        if self._strict:
            self._check_own(message, offset)
        xid = self.stream_xid
        own_versions = self._inner
        is_taken = super()._take(message, offset)
        if is_taken and xid is not None and own_versions is not None and self.stream_xid is None:  # at a Stream Stop
            self._streams[xid] = own_versions
        return is_taken

    def _check_own(self, message: m.AnyMessage, offset: int) -> None:
        """Refuse a message that continues something that the session has not begun."""
        streams = self._streams
        # Aborts are also sent for subtransactions that were never streamed, because they rolled back before.
        if isinstance(message, m.StreamAbort):
            if message.xid == message.subxid:
                streams.pop(message.xid, None)
        elif isinstance(message, (m.StreamStart, m.StreamCommit, m.StreamPrepare)):
            if message.xid not in streams:
                raise OrderError(f"the session has not begun to stream transaction {message.xid}", offset=offset)
            if isinstance(message, m.StreamPrepare):
                del streams[message.xid]  # it is prepared now
        if getattr(message, "xid", None) == 0:  # InvalidTransactionId
            raise OrderError("no transaction has the xid 0", offset=offset)
        is_free = self.stream_xid is None and self.kernel.state[words.TXN] == words.IDLE
        # The server announces a relation in front of the first row that uses it.
        if is_free and isinstance(message, (m.Relation, m.Type)):
            raise OrderError("a relation is announced outside of any transaction", offset=offset)

    def first_event(self, *, sound: bool) -> int | None:
        """Return the LSN of the first commit or prepare; None if there is none.

        Args:
            sound: trust the last message, too.  If an error follows it, it may be a torn one.
        """
        state = self.kernel.state
        previous = int(state[words.PREVIOUS])
        lsns = [lsn for lsn, offset in self._events if sound or offset != previous]
        if state[words.FIRST_LSN] != words.NO_LSN:
            lsns.append(int(state[words.FIRST_LSN]))
        begin = state[words.BEGIN_AT]
        if state[words.TXN] == words.OPEN and begin != words.NO_OFFSET and (sound or begin != previous):
            lsns.append(int(state[words.LSN]))
        return min(lsns, default=None)

    @property
    def first_event_at(self) -> int | None:
        """The offset of the first message, except Begin and Commit, that has the LSN of a commit or prepare."""
        return min((offset for _, offset in self._events), default=None)

    def search_floors(self, start: int) -> tuple[int, ...]:
        """Return the offsets back to which the torn message is looked for, the nearest first.

        Usually the last message is the torn one.  But torn bytes and those behind them may look like several messages:
        of the open transaction, or between transactions.
        """
        state = self.kernel.state
        previous = int(state[words.PREVIOUS])
        recent = list(self._recent)
        floors = [previous, *recent[-4:-3], *recent[:1]]  # the fourth last, and the oldest one
        if self.stream_xid is not None:
            floors.append(self._block_at)
        elif state[words.TXN] == words.OPEN:
            floors.append(int(state[words.BEGIN_AT]))
        if self.open_streams.restarted_at is not None:
            floors.append(self.open_streams.restarted_at)  # a session began before the stream began again
        floors = [max(floor, start, previous - FAR) for floor in floors if floor <= previous]
        return tuple(sorted(set(floors), reverse=True))


@dataclass(frozen=True, slots=True)
class Reading:
    """The result of reading a session from an offset.

    Attributes:
        stop: the offset behind its last whole message; ``place`` is the place there.
        last_message: where that message begins.
        search_floors: the offsets back to which a torn message is looked for, the nearest first.
        error: why it cannot be read further; None if there is no error.
        stopped_at_session: another session begins at ``stop``; ``shown_by_lsn_only`` is as in `Part`.
        messages: the number of its whole messages.
        first_event: the LSN of its first commit or prepare.
        first_event_at: the offset of the first message with such an LSN; it may be the torn message itself.
        waits: there are too few bytes to decide whether it is a session.
    """

    stop: int
    place: Place
    last_message: int
    search_floors: tuple[int, ...]
    error: CaptureError | None
    stopped_at_session: bool
    shown_by_lsn_only: bool
    messages: int
    first_event: int | None
    first_event_at: int | None
    waits: bool

    @property
    def ends(self) -> bool:
        """Whether it ends here, so that another session has to follow."""
        return self.stopped_at_session or self.error is not None


def read_session(
    data: memoryview, start: int, place: Place, *, strict: bool, stop_at: int, effort: Effort, codec: str = UTF8
) -> Reading:
    """Read a session up to the first boundary at or behind ``stop_at``, or to its end.

    Args:
        place: the place at ``start``.
        strict, effort, codec: see `Reader`.

    Raises:
        GaveUp: the budget is used up.
    """
    reader = Reader(place, strict=strict, effort=effort, codec=codec)
    error = None
    try:
        reader.advance(data, start, stop_at)
        if not reader.stopped_at_session and reader.position < min(stop_at, len(data)):
            _check_tail(data, reader.position, reader.place, codec, effort)
    except CaptureError as problem:
        error = problem
    is_bare = reader.position == start  # not one whole message
    return Reading(
        stop=reader.position,
        place=reader.place,
        last_message=max(int(reader.kernel.state[words.PREVIOUS]), start),
        search_floors=reader.search_floors(start),
        error=error,
        stopped_at_session=reader.stopped_at_session,
        shown_by_lsn_only=reader.shown_by_lsn_only,
        messages=int(reader.kernel.state[words.MESSAGES]),
        first_event=reader.first_event(sound=error is None),
        first_event_at=reader.first_event_at,
        waits=is_bare and error is None and not reader.stopped_at_session,
    )


# The beginning of a message.


def check_tail(data: memoryview, stop: int, place: Place, codec: str = UTF8) -> None:
    """Refuse an unfinished message, at the offset ``stop`` and its place, that is damaged or torn.

    A damaged length makes a message look longer than the file, and hides all messages behind it.  It is noticed because
    the Commit's LSN and time are known from the Begin, and may be found inside.  A torn message swallows the session
    behind it.  It is noticed because a text value contains no NUL.

    Raises:
        CaptureError: the message is not valid.
    """
    # If the check takes too long, the message is accepted.
    with suppress(GaveUp):
        _check_tail(data, stop, place, codec, Effort(len(data) - stop))


def _check_tail(data: memoryview, stop: int, place: Place, codec: str, effort: Effort) -> None:
    effort.note_walked(len(data) - stop)
    effort.spend_on_message(len(data) - stop)
    head = head_size(place.framing, data, stop, len(data))
    message = stop + head
    refuse_swallowed(data, stop, head, place)
    content = content_of(data, message, len(data), place)
    try:
        read_frame(data, stop, len(data), place, names_in(codec))
    except TruncatedMessage:
        _check_logical(data, stop, message, content, place, codec, effort)
    except CaptureError:
        if place.stream is None or bytes(data[message : message + 1]) != b"M":
            raise
        # A session may begin here, outside of streams: there a logical message has no xid.
        _check_tail(data, stop, Place(place.framing), codec, effort)


def _check_logical(
    data: memoryview,
    stop: int,
    begin: int,
    content: tuple[int, int] | None,
    place: Place,
    codec: str,
    effort: Effort,
) -> None:
    """Refuse an unfinished logical message that has a session in its head: then the message is torn there.

    The content may be anything, even a session, but the bytes in front of it may not.

    Args:
        begin: the offset of the message's tag; its frame begins at ``stop``.
        content: the range of its content; None if it is not known yet.
    """
    if begin >= len(data) or data[begin] != ord("M"):
        return
    buf, code = np.frombuffer(data, np.uint8), FRAMING_CODES[place.framing]
    # Every first message of a session has a NUL within its first bytes, which would end the head.
    end = min(len(data), begin + LONGEST_START) if content is None else content[0]
    offset = int(next_start(buf, begin + 1, end, code))
    while offset < end:
        reader = Reader(Place(place.framing), strict=True, effort=effort, codec=codec)
        error = False
        try:
            reader.advance(data, offset, offset + PROBE_BYTES)
        except CaptureError:
            error = True
        if reader.position > offset and (not error or reader.kernel.state[words.MESSAGES] > 1):
            raise MalformedMessage("a session begins in the head of the Message", offset=stop)
        offset = int(next_start(buf, offset + 1, end, code))
