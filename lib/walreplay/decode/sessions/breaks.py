"""Find where one session ends and the next begins.

A consumer that reconnects continues the same stream.  Its new session may begin at a message's boundary, which the walk
notices by itself (`StreamWalker.broke`), or behind a torn message.  A torn message is noticed when something behind its
beginning cannot be right.  Then every offset at which a session may begin is tested:

- The bytes in front of it, from the last message's boundary on, are the beginning of a valid message, and not a whole
  one.
- The bytes behind it can be read as a session of its own, which announces its relations again.  If that session also
  ends in a torn message, this needs an explanation, too.
- A transaction that was open is sent again, so the session does not begin with a later one.

If one torn message has several explanations, the first offset counts, because no message extends over a session's
beginning.  (Only the content of a logical message can look like one.)  Otherwise the explanation with the fewest
sessions counts.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Final

import numpy as np

from walreplay.decode import walk
from walreplay.decode.kernels.frames import FRAMING_CODES
from walreplay.decode.sessions.readings import PROBE_BYTES, Effort, GaveUp, Reader, Reading, read_session
from walreplay.decode.sessions.resync import Leftover
from walreplay.decode.sessions.starts import LONGEST_START, STARTERS, head_size, may_wait, next_start, starting_bytes_of
from walreplay.decode.sessions.torn_messages import (
    bytes_to_look_at,
    content_of,
    end_without_newline,
    is_damaged_end,
    is_torn,
    promised_lsn,
)
from walreplay.decode.walk import Place
from walreplay.errors import CaptureError
from walreplay.protocol.framing import Framing
from walreplay.types.text import UTF8

SOUND_MESSAGES: Final = 8
"""So many sound messages prove a session, even if an error follows that nothing explains."""

MOST_CANDIDATES: Final = 100_000
_MAX_DEPTH: Final = 30
"""So many consecutive sessions that end in torn messages are considered."""

_LONGEST_TORN: Final = 512
"""So many bytes at most are tried as several torn messages, if they are not a single one."""

_PLACES_A_UNIT: Final = 4

_ENDING: Final = b"CcKrPpM"
"""Tags of messages that end a transaction, or are one by themselves; a complete one need not be sent again."""

_SHORTEST_TRANSACTION: Final = 47
_MOST_LOST: Final = 256

UNEXPLAINED: Final = 1000

WAIT: Final = -1


@dataclass(frozen=True, slots=True)
class Explained:
    """The explanation of an error by sessions that end.

    Attributes:
        breaks: how many sessions end, here and in the bytes that follow.
        stop: the offset where the first one ends.
        begin: the offset where the next one begins; `WAIT` if more bytes are needed to find it.
        late: as in `Part`.
    """

    breaks: int
    stop: int
    begin: int = WAIT
    late: bool = False


@dataclass(frozen=True, slots=True)
class _Start:
    """A place where a session may begin, or continue.

    Attributes:
        strict: it is a session's first byte, so that the session has to announce everything that it uses.
        awaited: the LSN of a transaction that was cut off and has to be sent again.
    """

    at: int
    place: Place
    strict: bool = True
    awaited: int | None = None


@dataclass(frozen=True, slots=True)
class _Candidate:
    """A session that may begin behind a torn message, which begins at ``torn_at``.

    Attributes:
        content: the range of the torn message's content, if it is a logical message.
    """

    start: _Start
    torn_at: int
    breaks: int
    content: tuple[int, int] | None

    def gives_way_to(self, at: int, torn_at: int, breaks: int) -> bool:
        """Return whether a later candidate, with at least so many breaks, explains the error better."""
        if self.content is not None and self.content[0] <= self.start.at < self.content[1]:
            # The content of a logical message can be anything.  If it is complete, only the newline behind it is torn.
            is_whole = at >= self.content[1] and (torn_at > self.torn_at or at == self.content[1])
            return breaks < self.breaks + is_whole
        # No torn message extends over a session's start.  But a later message may be the torn one.
        return torn_at > self.torn_at and breaks < self.breaks

    def waits_for(self, at: int, torn_at: int, breaks: int) -> bool:
        """Return whether a session with too few bytes so far would explain the error better.

        A candidate that needs more than one torn message may be the content of that session's first message.
        """
        return (self.breaks > 1 and at < self.start.at) or self.gives_way_to(at, torn_at, breaks)

    @property
    def is_best(self) -> bool:
        """Whether no later candidate can be better."""
        return self.breaks == 1 and self.content is None


class Explainer:
    """Explain why a session cannot be read to the end of some bytes: other sessions begin in them.

    Args:
        effort: the budget of the search; each method raises `GaveUp` when it is used up.
        readings: readings that are already known, by offset and strictness (`_Start.strict`).
    """

    def __init__(
        self,
        data: memoryview,
        framing: Framing,
        codec: str,
        effort: Effort,
        readings: dict[tuple[int, bool], Reading] | None = None,
    ) -> None:
        self._data = data
        self._buf = np.frombuffer(data, np.uint8)
        self._framing = framing
        self._codec = codec
        self._effort = effort
        self._known: dict[_Start, Explained | None] = {}
        self._readings = {} if readings is None else readings
        self._places: dict[tuple[_Start, int], Place] = {}
        self._starting = np.isin(np.arange(256), list(starting_bytes_of(framing, STARTERS)))
        self._own_ends: dict[int, int] = {}
        self._torn_starts: dict[int, tuple[int, int]] = {}
        """For bytes that begin at an offset: up to which end they may be torn, and from which end on they may not."""

    @cached_property
    def _leftover(self) -> Leftover:
        return Leftover(self._data, self._framing, self._codec, self._effort)

    @property
    def begins_with_abort(self) -> bool:
        """Whether the first message is a Stream Abort, after whose tag any bytes may follow."""
        return self._data[head_size(self._framing, self._data, 0, len(self._data))] == ord("A")

    def explain(self, at: int, place: Place, *, torn_only: bool = False) -> Explained | None:
        """Explain why a session ends that is known to continue at a place; None if there is no explanation.

        Args:
            torn_only: it does not end at a message's boundary.
        """
        start = _Start(at, place, strict=False)
        reading = self._read_on(at, place, len(self._data))
        if reading.broke and not torn_only:
            return self._ends(start, reading, 0)
        return self._torn(start, reading, 0)

    def swallowed(self, at: int, place: Place, low: int) -> Explained | None:
        """Find a session that begins inside a seemingly whole message, which may be torn and go on with its bytes."""
        start = _Start(at, place, strict=False)
        before = self._place_at(start, low)
        reading = self._read_on(at, place, low)
        end = min(low + LONGEST_START, len(self._data))
        best: Explained | None = None
        begin = low
        while (begin := int(next_start(self._buf, begin + 1, end, FRAMING_CODES[self._framing]))) < end:
            if not self.is_torn(low, begin, before) or self.read(begin).stop == begin:
                continue
            found = self._explain(self._following(start, reading, begin, low, before), 1)
            if found is not None and (best is None or 1 + found.breaks < best.breaks):
                best = Explained(1 + found.breaks, low, begin)
        return best if best is not None and best.breaks < UNEXPLAINED else None

    def fits(self) -> Explained | None:
        """Explain the bytes as sessions, the first of which begins with the first byte."""
        return self._explain(_Start(0, Place(self._framing)), 0)

    def read(self, at: int, *, strict: bool = True) -> Reading:
        """Read the session that begins at an offset, as far as necessary to accept it."""
        known = self._readings.get((at, strict))
        if known is None:
            place = Place(self._framing)
            stop = at + PROBE_BYTES
            known = read_session(
                self._data, at, place, strict=strict, stop_at=stop, effort=self._effort, codec=self._codec
            )
            self._readings[at, strict] = known
        return known

    def has_read(self, at: int) -> bool:
        """Return whether a session from an offset on was read."""
        return (at, True) in self._readings

    def _read_on(self, at: int, place: Place, stop: int) -> Reading:
        return read_session(self._data, at, place, strict=False, stop_at=stop, effort=self._effort, codec=self._codec)

    def reader(self, place: Place, *, strict: bool) -> Reader:
        """Make a reader that is paid from the same budget."""
        return Reader(place, strict=strict, effort=self._effort, codec=self._codec)

    def is_torn(self, at: int, end: int, place: Place) -> bool:
        """Return whether some bytes are the beginning of a message that is allowed there, and not a whole one."""
        self._effort.spend_on_message(bytes_to_look_at(self._data, at, end, place))
        return is_torn(self._data, at, end, place, self._codec)

    def _explain(self, start: _Start, depth: int) -> Explained | None:
        if start not in self._known:
            self._known[start] = self._explain_anew(start, depth)
        return self._known[start]

    def _explain_anew(self, start: _Start, depth: int) -> Explained | None:
        reading = self.read(start.at, strict=start.strict)
        first = reading.first_event
        if first is not None and start.awaited is not None and first > start.awaited:
            return None
        if reading.error is None and not reading.broke:
            return Explained(0, reading.stop)
        explained = self._ends(start, reading, depth) if depth < _MAX_DEPTH else None
        if explained is None and reading.messages >= SOUND_MESSAGES:
            return Explained(UNEXPLAINED, reading.stop)
        return explained

    def _ends(self, start: _Start, reading: Reading, depth: int) -> Explained | None:
        """Explain how a session ends that was read up to an error, or up to where another one seems to begin."""
        if reading.broke:
            before = self._place_at(start, reading.stop)
            following = self._following(start, reading, reading.stop, reading.stop, before)
            following = replace(following, strict=not reading.late)
            explained = self._explain(following, depth + 1)
            if explained is not None:
                return Explained(1 + explained.breaks, reading.stop, reading.stop, reading.late)
        return self._torn(start, reading, depth)

    def _torn(self, start: _Start, reading: Reading, depth: int) -> Explained | None:
        """Find the session that begins behind a torn message, or while a transaction is open."""
        if reading.error is not None:
            place = self._place_at(start, reading.stop)
            if is_damaged_end(self._data, reading.stop, place, self._codec):
                return None
        # Many torn messages at once are the last resort, and not tried for sessions that are guesses themselves.
        for deeper in (False, True)[: 2 if depth == 0 else 1]:
            for number, low in enumerate(reading.lows):
                found = self._torn_behind(start, reading, low, depth, deeper=deeper)
                if found is not None and ((number == 0 and not deeper) or found.breaks < UNEXPLAINED):
                    return found
        return None

    def _torn_behind(self, start: _Start, reading: Reading, low: int, depth: int, *, deeper: bool) -> Explained | None:
        best: _Candidate | None = None
        wait: tuple[int, int, int] | None = None

        def is_worth(at: int, torn_at: int, breaks: int) -> bool:
            return best is None or best.gives_way_to(at, torn_at, breaks)

        for at, torn_at, before, more in self._candidates(start, low, is_worth, deeper=deeper):
            following = self._following(start, reading, at, torn_at, before)
            found = self.read(at)
            if found.waits and torn_at < at and wait is None and self._may_wait(at):
                wait = at, torn_at, 1 + more
            if found.stop == at or not is_worth(at, torn_at, 1 + more + found.ends):
                # A session without a whole message is nothing but torn bytes.
                continue
            explained = self._explain(following, depth + 1)
            if explained is None:
                continue
            breaks = 1 + more + explained.breaks
            if is_worth(at, torn_at, breaks) and not self._is_lost(torn_at, at):
                best = _Candidate(following, torn_at, breaks, self._content_of(torn_at, at, before))
            if best is not None and best.is_best:
                break
        if best is not None and (wait is None or not best.waits_for(*wait)):
            return Explained(best.breaks, best.torn_at, best.start.at)
        return None if wait is None else Explained(1, wait[1])

    def _may_wait(self, at: int) -> bool:
        """Return whether the unfinished message at an offset may be a session's first one, to be completed later."""
        return may_wait(self._data, at, self._framing) and self._leftover.whole_behind(at) is None

    def _is_lost(self, begin: int, end: int) -> bool:
        """Return whether supposedly torn bytes contain whole transactions, up to the start of the session behind them.

        Then no message is torn: a damaged length has swallowed these transactions.
        """
        at = begin
        for _ in range(_MOST_LOST if end - begin > _SHORTEST_TRANSACTION else 0):
            at = int(next_start(self._buf, at + 1, end, FRAMING_CODES[self._framing]))
            if at >= end:
                break
            reader = self.reader(Place(self._framing), strict=False)
            with suppress(CaptureError):
                reader.advance(self._data, at, end)
                if reader.position == end and not reader.broke and reader.kernel.state[walk.TRANSACTIONS]:
                    return True
        return False

    def _content_of(self, at: int, end: int, place: Place) -> tuple[int, int] | None:
        """Return the range of the content of the torn message at an offset; None if it is no logical message."""
        return content_of(self._data, at + head_size(self._framing, self._data, at, end), end, place)

    def _following(self, start: _Start, reading: Reading, at: int, torn_at: int, before: Place) -> _Start:
        has_come = (
            reading.first_event is not None
            or (reading.first_at is not None and reading.first_at < torn_at)
            or before.last_lsn != walk.NO_LSN
        )
        awaited = [
            None if has_come else start.awaited,
            before.transaction.final_lsn if before.transaction is not None else None,
            promised_lsn(self._data, torn_at, at, before),
        ]
        return _Start(at, Place(self._framing), awaited=min((lsn for lsn in awaited if lsn is not None), default=None))

    def _candidates(
        self, start: _Start, low: int, is_worth: Callable[[int, int, int], bool], *, deeper: bool
    ) -> Iterator[tuple[int, int, Place, int]]:
        """Yield the candidates for the session that begins behind a torn message, in the order of their offsets.

        Because the offsets rise, the session is walked once, by two walkers: one goes ahead to find boundaries, the one
        behind it knows places.

        Args:
            low: the first offset at which the torn message may begin.
            is_worth: says whether a candidate with at least so many breaks is of interest.
            deeper: give only candidates whose torn message seems to be whole.

        Yields:
            the offset at which the session may begin; the offset of the torn message, and the place there; and 1 if
            sessions without a whole message lie between the two offsets, otherwise 0.
        """
        data = self._data
        ahead = Ahead(data, start.at, self.reader(start.place, strict=start.strict))
        behind = self.reader(start.place, strict=start.strict)
        at, behind_at = low, start.at
        for _ in range(MOST_CANDIDATES):
            at = int(next_start(self._buf, at + 1, len(data), FRAMING_CODES[self._framing]))
            if at >= len(data):
                return
            self._effort.spend(1)
            torn_at = ahead.boundary_before(at)
            if not is_worth(at, torn_at, 1):
                continue
            if behind_at < torn_at:
                behind.advance(data, behind_at, torn_at)
                behind_at = torn_at
            place = behind.place
            if deeper:
                # The torn message may be the one before, which has taken the following bytes for its own.
                if ahead.stuck and ahead.before < torn_at <= at < torn_at + _LONGEST_TORN:
                    place = self._place_at(start, ahead.before)
                    if self._are_torn(ahead.before, at, place):
                        yield at, ahead.before, place, 1
            elif torn_at == at:
                if place.transaction is not None or place.stream is not None:
                    yield at, at, place, 0
            elif self.is_torn(torn_at, at, place):
                yield at, torn_at, place, 0
                if self._framing is Framing.RECVLOGICAL and data[torn_at] in _ENDING:
                    behind_it = self._place_without_newline(torn_at, at, place)
                    if behind_it is not None:
                        yield at, at, behind_it, 0
            elif ahead.stuck and at - self._own_end(torn_at, place) > _LONGEST_TORN:
                return
            elif is_worth(at, torn_at, 2) and self._are_torn(torn_at, at, place):
                yield at, torn_at, place, 1

    def _place_at(self, start: _Start, at: int) -> Place:
        """Return the place at a boundary."""
        if (start, at) not in self._places:
            reader = self.reader(start.place, strict=start.strict)
            reader.advance(self._data, start.at, at)
            self._places[start, at] = reader.place
        return self._places[start, at]

    def _place_without_newline(self, at: int, end: int, place: Place) -> Place | None:
        """Return the place behind the message in some bytes, if only its newline is missing; otherwise None."""
        reader = self.reader(place, strict=False)
        reader.closed = reader.ends_session = True
        with suppress(CaptureError):
            reader.advance(self._data[:end], at)
        return reader.place if reader.position == end and not reader.broke else None

    def _own_end(self, at: int, place: Place) -> int:
        """Return the offset up to which all bytes certainly belong to the message at an offset."""
        if at not in self._own_ends:
            self._effort.spend_on_message(bytes_to_look_at(self._data, at, len(self._data), place))
            self._own_ends[at] = min(end_without_newline(self._data, at, place, self._codec), len(self._data))
        return self._own_ends[at]

    def _are_torn(self, at: int, end: int, place: Place) -> bool:
        """Return whether some bytes are a torn message, followed by torn first messages of sessions."""
        first = max(at + 1, min(self._own_end(at, place), end))
        begins = np.flatnonzero(self._starting[self._buf[first:end]])[::-1].tolist()
        self._effort.spend(1 + len(begins) // _PLACES_A_UNIT)
        stop = end
        for begin in begins:
            if self._is_torn_start(first + begin, stop):
                # The shorter the bytes of a message, the sooner they can be a torn one.
                stop = first + begin
        return self.is_torn(at, stop, place)

    def _is_torn_start(self, at: int, end: int) -> bool:
        """Return whether some bytes are the torn beginning of a session's first message.

        If a message may be torn at some offset, it may be torn at any offset before that.
        """
        torn, whole = self._torn_starts.get(at, (at, len(self._data) + 1))
        if torn < end < whole:
            if self.is_torn(at, end, Place(self._framing)):
                torn = end
            else:
                whole = end
            self._torn_starts[at] = torn, whole
        return end <= torn


class Ahead:
    """Find messages' boundaries, as far as a session can be read; the last whole message begins at ``before``."""

    def __init__(self, data: memoryview, start: int, reader: Reader) -> None:
        self._data = data
        self._reader = reader
        self._at = start
        self.before = start
        self.stuck = False

    def boundary_before(self, at: int) -> int:
        """Return the last boundary at or before an offset; offsets must not become lower from call to call."""
        if self._at < at and not self.stuck:
            reader = self._reader
            try:
                reader.advance(self._data, self._at, at)
            except CaptureError:
                self.stuck = True
            self.stuck = self.stuck or reader.broke or reader.position < at
            if reader.position > self._at:
                self.before = max(int(reader.kernel.state[walk.PREVIOUS]), self._at)
                self._at = reader.position
        return self._at if self._at <= at else self.before


def is_framed_so(data: memoryview, framing: Framing, codec: str = UTF8) -> bool:
    """Return whether a stream begins with so many sound messages that its framing is beyond doubt."""
    try:
        return Explainer(data, framing, codec, Effort(len(data))).read(0, strict=False).messages >= SOUND_MESSAGES
    except GaveUp:
        return False
