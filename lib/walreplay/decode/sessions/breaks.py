"""Find where one session ends and the next begins.

A consumer that reconnects goes on in the same stream: its new session may begin at a message's boundary, which the
walk notices by itself (`StreamWalker.broke`), or behind a message that was torn in the middle.  A torn message is
noticed when something behind its beginning cannot be.  Then every offset is tested at which a session may begin:

- What lies in front of it, from the last message's boundary, is the beginning of a sound message, and no whole one.
- What follows can be read as a session of its own, which announces its relations again.  It may end in a torn message
  too: then that has to have an explanation of its own.
- A transaction that was open comes again; so nothing behind it comes first.

Of several explanations of one torn message the first counts, since no message goes on over a session's beginning; only
the content of a logical message can look like one.  Else that with the fewest sessions counts.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from typing import Final

import numpy as np

from walreplay.decode import walk
from walreplay.decode.kernels.frames import FRAMING_CODES
from walreplay.decode.place import Place
from walreplay.decode.sessions.effort import Effort, GaveUp
from walreplay.decode.sessions.frames import head_size
from walreplay.decode.sessions.leftover import Leftover
from walreplay.decode.sessions.readings import PROBE_BYTES, Reader, Reading, read_session
from walreplay.decode.sessions.starts import LONGEST_START, may_wait, next_start, starting_bytes
from walreplay.decode.sessions.torn_messages import bytes_to_look_at, content_of, end_without_newline, is_torn
from walreplay.decode.sessions.transaction_ends import is_damaged_end, promised_lsn
from walreplay.errors import CaptureError
from walreplay.protocol.framing import Framing
from walreplay.types.text import UTF8

SOUND_MESSAGES: Final = 8
"""A session with so many sound messages is one, though an error follows that nothing explains."""

MOST_CANDIDATES: Final = 100_000
_MAX_DEPTH: Final = 30
"""So many sessions in a row that end in torn messages are looked at together."""

_LONGEST_TORN: Final = 512
"""Bytes that are no torn message may be several; not beyond so many."""

_PLACES_A_UNIT: Final = 4

_ENDING: Final = b"CcKrPpM"
"""What a transaction ends with, or is one by itself: once it is there as a whole, a server need not send it again."""

_SHORTEST_TRANSACTION: Final = 47
_MOST_LOST: Final = 256

UNEXPLAINED: Final = 1000

WAIT: Final = -1


@dataclass(frozen=True, slots=True)
class Explained:
    """How an error comes about.

    Attributes:
        breaks: how many sessions end, here and behind.
        stop: where the first one ends, and where the next one begins: nowhere yet, if it has to be waited for.
        late: as in `Part`.
    """

    breaks: int
    stop: int
    begin: int = WAIT
    late: bool = False


@dataclass(frozen=True, slots=True)
class _Start:
    """Where a session may begin.

    Attributes:
        awaited: the LSN of a transaction that was cut off and has to come again.
    """

    at: int
    place: Place
    strict: bool = True
    awaited: int | None = None


@dataclass(frozen=True, slots=True)
class _Candidate:
    """A session that may begin behind a torn message, which begins at ``torn_at``.

    Attributes:
        content: that of the torn message, if it is a logical one.
    """

    start: _Start
    torn_at: int
    breaks: int
    content: tuple[int, int] | None

    def gives_way_to(self, at: int, torn_at: int, breaks: int) -> bool:
        """Say whether one that comes later, of so many breaks at least, explains the error better."""
        if self.content is not None and self.content[0] <= self.start.at < self.content[1]:
            # In the content of a logical message anything may stand; also behind it, if it is whole: but for a newline.
            is_whole = at >= self.content[1] and (torn_at > self.torn_at or at == self.content[1])
            return breaks < self.breaks + is_whole
        # A torn message goes on over no session's start; but this message need not be the torn one.
        return torn_at > self.torn_at and breaks < self.breaks

    def waits_for(self, at: int, torn_at: int, breaks: int) -> bool:
        """Say whether a session of which too little is there would explain the error better.

        What takes more than one torn message may be the content of that session's first message.
        """
        return (self.breaks > 1 and at < self.start.at) or self.gives_way_to(at, torn_at, breaks)

    @property
    def is_best(self) -> bool:
        """Whether none that comes later can be better."""
        return self.breaks == 1 and self.content is None


class Explainer:
    """Explain why a session cannot be read to the end of some bytes: by where other sessions begin in them.

    Args:
        effort: what the search is paid from; each of the methods raises `GaveUp` when that comes to its end.
        readings: what is known of sessions that begin at some offset, strictly or not.
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
        self._starting = np.isin(np.arange(256), list(starting_bytes(framing)))
        self._own_ends: dict[int, int] = {}
        self._torn_starts: dict[int, tuple[int, int]] = {}
        """Up to where what begins at an offset may be torn, and from where on not, as far as was looked at."""

    @cached_property
    def _leftover(self) -> Leftover:
        return Leftover(self._data, self._framing, self._codec, self._effort)

    @property
    def begins_with_abort(self) -> bool:
        """Whether the first message is a Stream Abort: what is behind its tag may be anything."""
        return self._data[head_size(self._framing, self._data, 0, len(self._data))] == ord("A")

    def explain(self, at: int, place: Place, *, torn_only: bool = False) -> Explained | None:
        """Explain why the session that is known to go on at a place ends; None if nothing can.

        Args:
            torn_only: it does not end at a message's boundary.
        """
        start = _Start(at, place, strict=False)
        reading = self._read_on(at, place, len(self._data))
        if reading.broke and not torn_only:
            return self._ends(start, reading, 0)
        return self._torn(start, reading, 0)

    def swallowed(self, at: int, place: Place, low: int) -> Explained | None:
        """Find a session that begins inside of a message which is whole, but may be a torn one that goes on with it.

        Args:
            low: where the message begins.
        """
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

    def fits(self, at: int) -> Explained | None:
        """Explain the bytes from an offset on as sessions, the first of which begins there."""
        return self._explain(_Start(at, Place(self._framing)), 0)

    def read(self, at: int, *, strict: bool = True) -> Reading:
        """Read the session that begins at an offset, so far as it takes to believe it."""
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
        """Say whether what begins at an offset was read."""
        return (at, True) in self._readings

    def _read_on(self, at: int, place: Place, stop: int) -> Reading:
        return read_session(self._data, at, place, strict=False, stop_at=stop, effort=self._effort, codec=self._codec)

    def reader(self, place: Place, *, strict: bool) -> Reader:
        """Make a reader."""
        return Reader(place, strict=strict, effort=self._effort, codec=self._codec)

    def is_torn(self, at: int, end: int, place: Place) -> bool:
        """Say whether some bytes are the beginning of a message that may stand there, and no whole one."""
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
        """Explain how a session ends that has been read up to an error, or to where another one seems to begin."""
        if reading.broke:
            following = _Start(reading.stop, Place(self._framing), strict=not reading.late)
            explained = self._explain(following, depth + 1)
            if explained is not None:
                return Explained(1 + explained.breaks, reading.stop, reading.stop, reading.late)
        return self._torn(start, reading, depth)

    def _torn(self, start: _Start, reading: Reading, depth: int) -> Explained | None:
        """Find the session that begins behind a torn message, or in the middle of what is open."""
        if reading.error is not None:
            place = self._place_at(start, reading.stop)
            if is_damaged_end(self._data, reading.stop, place, self._codec):
                return None
        # What needs many torn messages at once is the last resort, and not for sessions that are guessed themselves.
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
                # One without a whole message is no more than torn bytes.
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
        """Say whether the unfinished message at an offset may be a session's first one, of which more will come."""
        return may_wait(self._data, at, self._framing) and self._leftover.whole_behind(at) is None

    def _is_lost(self, begin: int, end: int) -> bool:
        """Say whether torn bytes hold whole transactions, up to where the session behind them is to begin.

        Then a damaged length has swallowed them, and nothing is torn.
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
        """Give where the content of the torn message at an offset lies, if it is a logical one."""
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
        """Give the offsets at which another session may begin, where the torn message before it begins, and the place.

        The last number says whether sessions lie between the two of which no message is whole.  The offsets rise; so
        the session is walked once, by two walkers: one goes ahead to find the boundaries, one stays behind to know the
        places.

        Args:
            is_worth: says whether one with so many breaks at least is looked for.
            deeper: only such as need the torn message to be one that seems whole.
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
                # The torn message may be the one before, which has taken what follows for its end.
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
        """Give the place at a boundary."""
        if (start, at) not in self._places:
            reader = self.reader(start.place, strict=start.strict)
            reader.advance(self._data, start.at, at)
            self._places[start, at] = reader.place
        return self._places[start, at]

    def _place_without_newline(self, at: int, end: int, place: Place) -> Place | None:
        """Give the place behind the message in some bytes, if it lacks nothing but the newline; None else."""
        reader = self.reader(place, strict=False)
        reader.closed = reader.ends_session = True
        with suppress(CaptureError):
            reader.advance(self._data[:end], at)
        return reader.place if reader.position == end and not reader.broke else None

    def _own_end(self, at: int, place: Place) -> int:
        """Give up to where all bytes behind an offset are one message's own, as far as that is known."""
        if at not in self._own_ends:
            self._effort.spend_on_message(bytes_to_look_at(self._data, at, len(self._data), place))
            self._own_ends[at] = min(end_without_newline(self._data, at, place, self._codec), len(self._data))
        return self._own_ends[at]

    def _are_torn(self, at: int, end: int, place: Place) -> bool:
        """Say whether some bytes are a torn message, and behind it torn messages that sessions began with."""
        first = max(at + 1, min(self._own_end(at, place), end))
        begins = np.flatnonzero(self._starting[self._buf[first:end]])[::-1].tolist()
        self._effort.spend(1 + len(begins) // _PLACES_A_UNIT)
        stop = end
        for begin in begins:
            if self._is_torn_start(first + begin, stop):
                # The sooner a message ends, the likelier it may be torn there.
                stop = first + begin
        return self.is_torn(at, stop, place)

    def _is_torn_start(self, at: int, end: int) -> bool:
        """Say whether some bytes are the torn beginning of a session's first message.

        What is torn at some offset may be torn at any before it.
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
    """Find messages' boundaries, one after the other, up to where the session cannot be read on.

    Attributes:
        before: where the last whole message begins.
    """

    def __init__(self, data: memoryview, start: int, reader: Reader) -> None:
        self._data = data
        self._reader = reader
        self._at = start
        self.before = start
        self.stuck = False

    def boundary_before(self, at: int) -> int:
        """Give the last boundary at or before an offset, which must not be lower than that of the last call."""
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
    """Say whether so many sound messages stand at a stream's beginning that its framing is beyond doubt."""
    try:
        return Explainer(data, framing, codec, Effort(len(data))).read(0, strict=False).messages >= SOUND_MESSAGES
    except GaveUp:
        return False
