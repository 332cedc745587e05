"""Read a session from an offset at which one may begin, to see what comes of it.

Nothing marks a session's beginning.  What can be seen is that its first message is one that a session may begin with,
that it announces its relations and streamed transactions itself, and that what follows can be read.
"""

from __future__ import annotations

from collections import deque
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Final

import numpy as np

from walreplay.decode import walk
from walreplay.decode.kernels.frames import FRAMING_CODES
from walreplay.decode.place import Place
from walreplay.decode.sessions.effort import READING, Effort, GaveUp
from walreplay.decode.sessions.frames import frame_at
from walreplay.decode.sessions.starts import LONGEST_START, next_start
from walreplay.decode.sessions.swallowed import refuse_swallowed
from walreplay.decode.sessions.torn_messages import content_of, read_framed
from walreplay.decode.stream import StreamWalker
from walreplay.errors import CaptureError, MalformedMessage, OrderError, TruncatedMessage
from walreplay.protocol import messages as m
from walreplay.types.text import UTF8, names_in

if TYPE_CHECKING:
    from collections.abc import Mapping


PROBE_BYTES: Final = 1 << 20
"""A session that can be read so far is one."""

_RECENT: Final = 16
FAR: Final = 1 << 14
"""Torn bytes and those behind them look like messages for so long at the most: further back none is looked for."""


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
    frame = frame_at(place.framing, data, stop, len(data))
    refuse_swallowed(data, stop, frame.head, place)
    content = content_of(data, stop + frame.head, len(data), place)
    try:
        read_framed(data, stop, len(data), frame, place, names_in(codec))
    except TruncatedMessage:
        _check_logical(data, stop, stop + frame.head, content, place, codec, effort)


def _check_logical(
    data: memoryview,
    stop: int,
    begin: int,
    content: tuple[int, int] | None,
    place: Place,
    codec: str,
    effort: Effort,
) -> None:
    """Refuse an unfinished logical message with a session in its head: the length of its content is not its own.

    The content may be anything, a session too; but not what stands in front of it.

    Args:
        begin: where the message at ``stop`` has its tag.
        content: where its content lies, if it is there so far.
    """
    if begin >= len(data) or data[begin] != ord("M"):
        return
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
