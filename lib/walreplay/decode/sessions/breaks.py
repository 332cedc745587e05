"""Find where one session ends and the next begins.

A consumer that reconnects continues the same stream.  Its new session may begin at a message's boundary, which the walk
notices by itself (`StreamWalker.stopped_at_session`), or behind a torn message.  A torn message is noticed when
something behind its beginning cannot be right.  Then every offset at which a session may begin is tested:

- The bytes in front of it, from the last message's boundary on, are the beginning of a valid message, and not a whole
  one.
- The bytes behind it can be read as a session of its own, which announces its relations again.  If that session also
  ends in a torn message, this needs an explanation, too.  It has a whole message: without one it would be nothing but
  torn bytes, and the run stops and says where to cut.
- A transaction that was open is sent again, so the session does not begin with a later one.

If one torn message has several explanations, the first offset counts, because no message extends over a session's
beginning.  (Only the content of a logical message can look like one.)  Otherwise the explanation with the fewest
sessions counts.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import islice
from typing import Final

import numpy as np

from walreplay.decode.kernels import walk_words as words
from walreplay.decode.kernels.frames import FRAMING_CODES
from walreplay.decode.scan import SOUND_MESSAGES
from walreplay.decode.sessions.readings import PROBE_BYTES, Effort, Reader, Reading, read_session
from walreplay.decode.sessions.resync import Leftover
from walreplay.decode.sessions.starts import LONGEST_START, head_size, is_all_aborts, may_wait, next_start
from walreplay.decode.sessions.torn_messages import (
    bytes_to_look_at,
    content_of,
    is_damaged_end,
    is_torn,
    promised_lsn,
)
from walreplay.decode.walk import Place
from walreplay.errors import CaptureError
from walreplay.protocol.framing import Framing

_MOST_CANDIDATES: Final = 100_000

_LOOKAHEAD: Final = 3
"""So many consecutive sessions that end early have to be explained; of the next one any whole message counts.

There may be thousands: a recorder tries again and again to write to a full disk.
"""

_ENDING: Final = b"CcKrPpM"  # Commit, Stream Commit, Commit and Rollback Prepared, Prepare, Stream Prepare, Message
"""Tags of messages that end a transaction, or are one by themselves; a complete one need not be sent again."""

_SHORTEST_TRANSACTION: Final = 47  # Begin has 21 bytes, Commit 26
_MAX_PROBES: Final = 256  # in the bytes of one torn message, or of several in a row

COST_UNEXPLAINED: Final = 1000  # of a session with SOUND_MESSAGES that ends in an error without an explanation

WAIT: Final = -1  # in place of an offset: more bytes are needed


@dataclass(frozen=True, slots=True)
class Explained:
    """The explanation of an error by sessions that end.

    Attributes:
        session_ends: how many sessions end, here and in the bytes that follow.
        stop: the offset where the first one ends.
        begin: the offset where the next one begins; `WAIT` if more bytes are needed to find it.
        shown_by_lsn_only: as in `Part`.
    """

    session_ends: int
    stop: int
    begin: int = WAIT
    shown_by_lsn_only: bool = False


@dataclass(frozen=True, slots=True)
class _Start:
    """A place where a session may begin, or continue.

    Attributes:
        strict: it is a session's first byte, so that the session has to announce everything that it uses.
        awaited: the LSN of a transaction that was cut off and has to be sent again.
    """

    offset: int
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
    session_ends: int
    content: tuple[int, int] | None

    def is_beaten_by(self, offset: int, torn_at: int, session_ends: int) -> bool:
        """Return whether a later candidate, with at least so many breaks, explains the error better."""
        if self.content is not None and self.content[0] <= self.start.offset < self.content[1]:
            # The content of a logical message can be anything.  If it is complete, only the newline behind it is torn.
            is_whole = offset >= self.content[1] and (torn_at > self.torn_at or offset == self.content[1])
            return session_ends < self.session_ends + is_whole
        # No torn message extends over a session's start.  But a later message may be the torn one.
        return torn_at > self.torn_at and session_ends < self.session_ends

    def should_wait_for(self, offset: int, torn_at: int) -> bool:
        """Return whether a session with too few bytes so far would explain the error better.

        A candidate that needs more than one torn message may be the content of that session's first message.
        """
        is_content = self.session_ends > 1 and offset < self.start.offset
        return is_content or self.is_beaten_by(offset, torn_at, 1)

    def is_best(self, last_boundary: int) -> bool:
        """Return whether no later candidate can be better; no message behind ``last_boundary`` can be the torn one."""
        return self.content is None and (self.session_ends == 1 or self.torn_at >= last_boundary)


@dataclass(slots=True)
class _Search:
    """The best candidate so far, and the first one (as `_Candidate.should_wait_for` takes it) that needs more bytes.

    Attributes:
        trusts_aborts: sessions are candidates, too, that end early and are nothing but Stream Aborts.
    """

    trusts_aborts: bool
    best: _Candidate | None = None
    undecided: tuple[int, int] | None = None

    def can_improve(self, offset: int, torn_at: int, session_ends: int) -> bool:
        """Return whether a candidate with at least so many breaks is of interest."""
        return self.best is None or self.best.is_beaten_by(offset, torn_at, session_ends)


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
        self._explanations: dict[_Start, Explained | None] = {}
        self._readings = {} if readings is None else readings

    @cached_property
    def _leftover(self) -> Leftover:
        return Leftover(self._data, self._framing, self._codec, self._effort)

    @property
    def begins_with_abort(self) -> bool:
        """Whether the first message is a Stream Abort, after whose tag any bytes may follow."""
        return self._data[head_size(self._framing, self._data, 0, len(self._data))] == ord("A")

    def explain(self, offset: int, place: Place, *, torn_only: bool = False) -> Explained | None:
        """Explain why a session ends that is known to continue at a place; None if there is no explanation.

        Args:
            torn_only: it does not end at a message's boundary.
        """
        start = _Start(offset, place, strict=False)
        reading = self._read_on(offset, place, len(self._data))
        if reading.stopped_at_session and not torn_only:
            return self._explain_end(start, reading, 0)
        return self._explain_torn(start, reading, 0)

    def find_inside_message(self, offset: int, place: Place, message_offset: int) -> Explained | None:
        """Find a session that begins inside a seemingly whole message, which may be torn and go on with its bytes."""
        start = _Start(offset, place, strict=False)
        reading = self._read_on(offset, place, message_offset)
        limit = min(message_offset + LONGEST_START, len(self._data))
        best: Explained | None = None
        for begin in self.starts(message_offset + 1, limit):
            if not self.is_torn(message_offset, begin, reading.place) or self.read(begin).stop == begin:
                continue
            explanation = self._explain(self._next_session(start, reading, begin, message_offset, reading.place), 1)
            if explanation is not None and (best is None or 1 + explanation.session_ends < best.session_ends):
                best = Explained(1 + explanation.session_ends, message_offset, begin)
        return best if best is not None and best.session_ends < COST_UNEXPLAINED else None

    def explain_all(self) -> Explained | None:
        """Explain the bytes as sessions, the first of which begins with the first byte."""
        return self._explain(_Start(0, Place(self._framing)), 0)

    def read(self, offset: int, *, strict: bool = True) -> Reading:
        """Read the session that begins at an offset, as far as necessary to accept it."""
        reading = self._readings.get((offset, strict))
        if reading is None:
            reading = self._read_on(offset, Place(self._framing), offset + PROBE_BYTES, strict=strict)
            self._readings[offset, strict] = reading
        return reading

    def has_read(self, offset: int) -> bool:
        """Return whether a session from an offset on was read."""
        return (offset, True) in self._readings

    def torn_in_a_row(self, offset: int, place: Place) -> int | None:
        """Return how many bytes from a message on are nothing but torn messages; None if they may be anything else."""
        nothing = self._read_on(offset, place, offset)
        behind = self.starts(offset + 1, min(offset + PROBE_BYTES, len(self._data)))
        for begin in islice(behind, _MAX_PROBES):
            reading = self.read(begin)
            session = reading.stop > begin and self._next_session(_Start(offset, place), nothing, begin, offset, place)
            if session and self._explain(session, 1) is not None:
                # If this message had taken the next one for its own, a whole one would begin here, and no torn one.
                first = next(self.starts(offset + 1, begin), begin)
                is_torn = self.is_torn(offset, first, place) and not self._hides_transactions(offset, begin)
                return begin - offset if is_torn else None
            if reading.first_event is not None:
                return None  # it may not come again
        return None

    def starts(self, begin: int, end: int) -> Iterator[int]:
        """Yield the offsets in a range at which a session may begin, so many at most."""
        for _ in range(_MOST_CANDIDATES):
            begin = int(next_start(self._buf, begin, end, FRAMING_CODES[self._framing]))
            if begin >= end:
                return
            yield begin
            begin += 1

    def _read_on(self, offset: int, place: Place, stop: int, *, strict: bool = False) -> Reading:
        effort, codec = self._effort, self._codec
        return read_session(self._data, offset, place, strict=strict, stop_at=stop, effort=effort, codec=codec)

    def reader(self, place: Place, *, strict: bool) -> Reader:
        """Make a reader that is paid from the same budget."""
        return Reader(place, strict=strict, effort=self._effort, codec=self._codec)

    def is_torn(self, offset: int, end: int, place: Place) -> bool:
        """Return whether some bytes are the beginning of a message that is allowed there, and not a whole one."""
        self._effort.spend_on_message(bytes_to_look_at(self._data, offset, end, place))
        return is_torn(self._data, offset, end, place, self._codec)

    def _explain(self, start: _Start, depth: int) -> Explained | None:
        if depth == _LOOKAHEAD:
            # What is accepted unexplained here has to be explained where it is nearer, so it is not remembered.
            return self._explain_uncached(start, depth)
        if start not in self._explanations:
            self._explanations[start] = self._explain_uncached(start, depth)
        return self._explanations[start]

    def _explain_uncached(self, start: _Start, depth: int) -> Explained | None:
        reading = self.read(start.offset, strict=start.strict)
        first_event = reading.first_event
        # The server sends what was cut off again, before anything later.
        if first_event is not None and start.awaited is not None and first_event > start.awaited:
            return None
        if reading.error is None and not reading.stopped_at_session:
            return Explained(0, reading.stop)
        if depth == _LOOKAHEAD:
            return Explained(0, reading.stop) if reading.messages or reading.stopped_at_session else None
        explanation = self._explain_end(start, reading, depth)
        if explanation is None and reading.messages >= SOUND_MESSAGES:
            return Explained(COST_UNEXPLAINED, reading.stop)
        return explanation

    def _explain_end(self, start: _Start, reading: Reading, depth: int) -> Explained | None:
        """Explain how a session ends that was read up to an error, or up to where another one seems to begin."""
        if reading.stopped_at_session:
            next_session = self._next_session(start, reading, reading.stop, reading.stop, reading.place)
            # Blocks before a session that only an LSN shows may be its own, with Relation messages in them.
            next_session = replace(next_session, strict=not reading.shown_by_lsn_only)
            explanation = self._explain(next_session, depth + 1)
            if explanation is not None:
                return Explained(1 + explanation.session_ends, reading.stop, reading.stop, reading.shown_by_lsn_only)
        return self._explain_torn(start, reading, depth)

    def _explain_torn(self, start: _Start, reading: Reading, depth: int) -> Explained | None:
        """Find the session that begins behind a torn message, or while a transaction is open."""
        if reading.error is not None and is_damaged_end(self._data, reading.stop, reading.place, self._codec):
            return None
        # Any text can be read as Stream Aborts: a session of them alone is believed where nothing else is found.
        for trusts_aborts in (False, True):
            for number, floor in enumerate(reading.search_floors):
                search = _Search(trusts_aborts)
                explanation = self._search_behind(start, reading, floor, depth, search)
                if explanation is not None and (number == 0 or explanation.session_ends < COST_UNEXPLAINED):
                    return explanation
        return None

    def _search_behind(
        self, start: _Start, reading: Reading, floor: int, depth: int, search: _Search
    ) -> Explained | None:
        for offset, torn_at, torn_place in self._candidates(start, reading, floor, search):
            next_reading = self.read(offset)
            # Its first message is not whole yet, and the message in front of it is torn.
            if next_reading.waits and torn_at < offset and search.undecided is None and self._may_wait(offset):
                search.undecided = offset, torn_at
            # A session without a whole message is nothing but torn bytes.
            if next_reading.stop == offset or not search.can_improve(offset, torn_at, 1 + next_reading.ends):
                continue
            session = self._data[offset : next_reading.stop]
            if not search.trusts_aborts and next_reading.ends and is_all_aborts(self._framing, session):
                continue
            next_session = self._next_session(start, reading, offset, torn_at, torn_place)
            explanation = self._explain(next_session, depth + 1)
            if explanation is None or not search.can_improve(offset, torn_at, 1 + explanation.session_ends):
                continue
            if not self._hides_transactions(torn_at, offset):
                message = torn_at + head_size(self._framing, self._data, torn_at, offset)
                content = content_of(self._data, message, offset, torn_place)
                search.best = _Candidate(next_session, torn_at, 1 + explanation.session_ends, content)
        best, undecided = search.best, search.undecided
        if best is not None and (undecided is None or not best.should_wait_for(*undecided)):
            return Explained(best.session_ends, best.torn_at, best.start.offset)
        return None if undecided is None else Explained(1, undecided[1])  # `WAIT`

    def _may_wait(self, offset: int) -> bool:
        """Return whether the unfinished message at an offset may be a session's first one, to be completed later."""
        return may_wait(self._data, offset, self._framing) and self._leftover.whole_behind(offset) is None

    def _hides_transactions(self, begin: int, end: int) -> bool:
        """Return whether supposedly torn bytes contain whole transactions, up to the start of the session behind them.

        Then no message is torn: a damaged length has swallowed these transactions.
        """
        probes = _MAX_PROBES if end - begin > _SHORTEST_TRANSACTION else 0
        for offset in islice(self.starts(begin + 1, end), probes):
            reader = self.reader(Place(self._framing), strict=False)
            with suppress(CaptureError):
                reader.advance(self._data, offset, end)
                if reader.position == end and not reader.stopped_at_session and reader.kernel.state[words.TRANSACTIONS]:
                    return True
        return False

    def _next_session(self, start: _Start, reading: Reading, offset: int, torn_at: int, torn_place: Place) -> _Start:
        has_come = (
            reading.first_event is not None
            or (reading.first_event_at is not None and reading.first_event_at < torn_at)
            or torn_place.last_lsn != words.NO_LSN
        )
        awaited_lsns = [
            None if has_come else start.awaited,  # what was awaited, and has not come
            torn_place.transaction.final_lsn if torn_place.transaction is not None else None,  # what is cut off
            promised_lsn(self._data, torn_at, offset, torn_place),  # what the torn message begins or ends
        ]
        awaited = min((lsn for lsn in awaited_lsns if lsn is not None), default=None)
        return _Start(offset, Place(self._framing), awaited=awaited)

    def _candidates(
        self, start: _Start, reading: Reading, floor: int, search: _Search
    ) -> Iterator[tuple[int, int, Place]]:
        """Yield the candidates for the session that begins behind a torn message, in the order of their offsets.

        Because the offsets rise, the session is walked once more at most, by two walkers: one goes ahead to find
        boundaries, the one behind it knows places.

        Args:
            floor: the first offset at which the torn message may begin.
            search: says whether a candidate is of interest.

        Yields:
            the offset at which the session may begin, the offset of the torn message, and the place there.
        """
        data = self._data
        boundaries = BoundaryFinder(data, start.offset, self.reader(start.place, strict=start.strict))
        places = self.reader(start.place, strict=start.strict)
        places_offset = start.offset
        for offset in self.starts(floor + 1, len(data)):
            self._effort.spend(1)
            if search.best is not None and search.best.is_best(reading.stop):
                return
            if offset >= reading.last_message:  # the last boundaries are known
                torn_at = reading.stop if offset >= reading.stop else reading.last_message
            else:
                torn_at = boundaries.boundary_before(offset)
            if not search.can_improve(offset, torn_at, 1):
                continue
            if places_offset < torn_at < reading.stop:
                places.advance(data, places_offset, torn_at)
                places_offset = torn_at
            place = reading.place if torn_at == reading.stop else places.place
            if torn_at == offset:
                if place.transaction is not None or place.stream is not None:
                    yield offset, offset, place
            elif self.is_torn(torn_at, offset, place):
                yield offset, torn_at, place
                # Without its newline such a message may be complete, and nothing comes again.
                if self._framing.layout.trailer and data[torn_at] in _ENDING:
                    place_after = self._place_without_newline(torn_at, offset, place)
                    if place_after is not None:
                        yield offset, offset, place_after
            elif torn_at == reading.stop:
                return  # with more bytes it is not torn either

    def _place_without_newline(self, offset: int, end: int, place: Place) -> Place | None:
        """Return the place behind the message in some bytes, if only its newline is missing; otherwise None."""
        reader = self.reader(place, strict=False)
        reader.is_last_buffer = reader.ends_session = True
        with suppress(CaptureError):
            reader.advance(self._data[:end], offset)
        return reader.place if reader.position == end and not reader.stopped_at_session else None


class BoundaryFinder:
    """Find messages' boundaries, as far as a session can be read."""

    def __init__(self, data: memoryview, start: int, reader: Reader) -> None:
        self._data = data
        self._reader = reader
        self._boundary = start
        self._last_message = start
        self._is_stopped = False

    def boundary_before(self, offset: int) -> int:
        """Return the last boundary at or before an offset; offsets must not become lower from call to call."""
        if self._boundary < offset and not self._is_stopped:
            reader = self._reader
            try:
                reader.advance(self._data, self._boundary, offset)
            except CaptureError:
                self._is_stopped = True
            # If the walk can go on, it goes to the first boundary at or behind the offset.
            self._is_stopped = self._is_stopped or reader.stopped_at_session or reader.position < offset
            if reader.position > self._boundary:
                self._last_message = max(int(reader.kernel.state[words.PREVIOUS]), self._boundary)
                self._boundary = reader.position
        return self._boundary if self._boundary <= offset else self._last_message
