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
from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from wal2delta.decode import walk
from wal2delta.decode.kernels.frames import FRAMING_CODES
from wal2delta.decode.place import Place
from wal2delta.decode.scan import Scanner
from wal2delta.decode.sessions.effort import LEAST, Effort, GaveUp
from wal2delta.decode.sessions.frames import head_size
from wal2delta.decode.sessions.leftover import Leftover
from wal2delta.decode.sessions.readings import PROBE_BYTES, Reader, Reading, check_tail, read_session
from wal2delta.decode.sessions.starts import LONGEST_START, may_wait, next_start, starting_bytes
from wal2delta.decode.sessions.torn_messages import bytes_to_look_at, content_of, is_damaged_end, is_torn, promised_lsn
from wal2delta.errors import CaptureError, OrderError, TruncatedMessage
from wal2delta.protocol.detection import FRAMING_ORDER
from wal2delta.protocol.framing import Framing
from wal2delta.types.text import UTF8

_MESSAGES: Final = 8
"""A session with so many sound messages is one, though an error follows that nothing explains."""

_MAX_CANDIDATES: Final = 100_000
_MAX_DEPTH: Final = 30
"""So many sessions in a row that end in torn messages are looked at together."""

_LONGEST_TORN: Final = 512
"""Bytes that are no torn message may be several; not beyond so many."""

_PLACES_A_UNIT: Final = 4

_SESSIONS: Final = 1_000
_BYTES_A_SESSION: Final = 64
"""So many sessions there may be in any bytes, and another one for so many: an empty COPY of one empty transaction has
82.  Each takes a tenth of a millisecond."""

_ENDING: Final = b"CcKrPpM"
"""What a transaction ends with, or is one by itself: once it is there as a whole, a server need not send it again."""

_SHORTEST_TRANSACTION: Final = 47
_MOST_LOST: Final = 256

_UNEXPLAINED: Final = 1000

WAIT: Final = -1

_CUT: Final = "Cut the file in front of the torn message and behind it, where the next session begins"


@dataclass(frozen=True, slots=True)
class Stretch:
    """A session's messages in a buffer, from ``start`` (at ``place``) to ``stop``; see `Part` for the rest."""

    start: int
    stop: int
    place: Place
    new_session: bool = False
    late: bool = False
    torn: int = 0


def find_sessions(
    data: memoryview, place: Place, start: int, *, edges: tuple[int, ...] = (), codec: str = UTF8
) -> list[Stretch]:
    """Walk a buffer from a known place, part it into sessions.

    Args:
        edges: where files begin in the buffer; a message that lies over one may be two readings.
        codec: what names are in.

    Raises:
        CaptureError: what cannot be, and is no new session either.
    """
    parting = _Parting(data, place, start, codec)
    while not parting.is_done:
        parting.go_on()
    _refuse_two_readings(data, parting.found, edges, parting.explainer())
    return parting.found


class _Parting:
    """Part a buffer into sessions, one after the other.

    Attributes:
        found: the stretches up to ``start``.
    """

    def __init__(self, data: memoryview, place: Place, start: int, codec: str) -> None:
        self._data = data
        self._codec = codec
        self._framing = place.framing
        self._effort = Effort(len(data))
        self._readings: dict[tuple[int, bool], Reading] = {}
        self._been: set[tuple[int, int, int]] = set()
        self._begin(start, place)
        self.found: list[Stretch] = []
        self.is_done = False

    def _begin(self, start: int, place: Place, *, new_session: bool = False, late: bool = False, torn: int = 0) -> None:
        """Have the next stretch begin at an offset."""
        self._next = Stretch(start, start, place, new_session, late, torn)

    def explainer(self) -> Explainer:
        """Make an explainer; all share what the search may cost, and what was read."""
        return Explainer(self._data, self._framing, self._codec, self._effort, self._readings)

    def go_on(self) -> None:
        """Find where the next stretch ends.

        Raises:
            CaptureError: what cannot be.
        """
        following = self._next
        been = following.start, following.torn, len(self.found)
        if been in self._been:
            raise OrderError(
                "a message is torn here, and what follows cannot be parted into sessions",
                offset=following.start,
                remedy=_CUT,
            )
        self._been.add(been)
        self._check_number()
        scanner = Scanner(self._framing, place=following.place, codec=self._codec)
        error = self._scan(scanner, following)
        explained = self._explain(scanner, error)
        if explained is not None:
            self._end_torn(explained)
            return
        if error is not None:
            raise error
        self.found.append(replace(following, stop=scanner.position))
        self.is_done = not scanner.broke
        self._begin(scanner.position, scanner.place.new_session(), new_session=True, late=scanner.late)

    def _check_number(self) -> None:
        most = _SESSIONS + len(self._data) // _BYTES_A_SESSION
        if len(self._been) > most:
            raise OrderError(
                f"more than {most:,} sessions seem to begin up to here, more than there are in so few bytes",
                offset=self._next.start,
                remedy="The file is damaged or is no pgoutput capture; fetch it from its source again",
            )

    def _scan(self, scanner: Scanner, following: Stretch) -> CaptureError | None:
        data, start = self._data, following.start
        try:
            scanner.scan(data, start)
            if not scanner.broke:
                check_tail(data, scanner.position, scanner.place, self._codec)
            elif following.new_session and scanner.position == start:
                raise OrderError("a session begins here that does not go on", offset=start, remedy=_CUT)
        except CaptureError as problem:
            return problem
        return None

    def _explain(self, scanner: Scanner, error: CaptureError | None) -> Explained | None:
        """Explain an error, or what is doubtful.

        Raises:
            CaptureError: the error, where the search for an explanation takes too long.
        """
        following, explained = self._next, None
        try:
            if scanner.doubtful_at is not None:
                explained = self.explainer().swallowed(following.start, following.place, scanner.doubtful_at)
            if error is not None and explained is None:
                explained = self._explain_error(scanner)
        except GaveUp:
            if error is not None:
                raise _given_up(error, self._effort) from None
        return explained

    def _explain_error(self, scanner: Scanner) -> Explained | None:
        following, explained = self._next, None
        if not scanner.broke:
            explained = self.explainer().explain(following.start, following.place)
        if following.new_session and not following.torn and int(scanner.kernel.state[walk.MESSAGES]) < _MESSAGES:
            # What looked like a session's first message may be a torn one that has swallowed the true one.
            last = self.found[-1]
            other = self.explainer().explain(last.start, last.place, torn_only=True)
            if other is not None and (explained is None or other.breaks < 1 + explained.breaks):
                self._next = self.found.pop()
                explained = other
        return explained

    def _end_torn(self, explained: Explained) -> None:
        """End the stretch in front of a torn message."""
        following = self._next
        if explained.begin != WAIT and following.new_session and explained.stop == following.start:
            # Not one message of that session is whole: it comes to nothing, but for more bytes that are torn.
            torn = following.torn + explained.begin - following.start
            self._begin(explained.begin, following.place, new_session=True, torn=torn)
            return
        place = _add(self.found, self._data, replace(following, stop=explained.stop), self._codec)
        self.is_done = explained.begin == WAIT
        torn = explained.begin - explained.stop
        self._begin(explained.begin, place, new_session=True, late=explained.late, torn=torn)


def _given_up(error: CaptureError, effort: Effort) -> CaptureError:
    """Say of an error that nothing explains it, as far as that could be tried."""
    return type(error)(
        f"{error.problem}; whether a message is torn here and a new session follows could not be told in "
        f"{effort.all:,} steps, and was given up",
        offset=error.offset,
        table=error.table,
        remedy=error.remedy or _CUT,
    )


def _add(found: list[Stretch], data: memoryview, stretch: Stretch, codec: str) -> Place:
    """Add a stretch; give the place of the session behind it."""
    scanner = Scanner(stretch.place.framing, place=stretch.place, codec=codec)
    scanner.closed = scanner.ends_session = True
    scanner.scan(data[: stretch.stop], stretch.start)
    assert scanner.position == stretch.stop
    found.append(stretch)
    return scanner.place.new_session()


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
        self._leftover = Leftover(data, framing, codec, effort)
        self._starting = np.isin(np.arange(256), list(starting_bytes(framing)))
        self._torn_starts: dict[int, tuple[int, int]] = {}
        """Up to where what begins at an offset may be torn, and from where on not, as far as was looked at."""

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
        return best if best is not None and best.breaks < _UNEXPLAINED else None

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
        if explained is None and reading.messages >= _MESSAGES:
            return Explained(_UNEXPLAINED, reading.stop)
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
        if reading.error is not None and is_damaged_end(
            self._data, reading.stop, self._place_at(start, reading.stop), self._codec
        ):
            return None
        # What needs many torn messages at once is the last resort, and not for sessions that are guessed themselves.
        for deeper in (False, True)[: 2 if depth == 0 else 1]:
            for number, low in enumerate(reading.lows):
                found = self._torn_behind(start, reading, low, depth, deeper=deeper)
                if found is not None and ((number == 0 and not deeper) or found.breaks < _UNEXPLAINED):
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
                best = _Candidate(following, torn_at, breaks, content_of(self._data, torn_at, at, before))
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
        ahead = _Ahead(data, start.at, self.reader(start.place, strict=start.strict))
        behind = self.reader(start.place, strict=start.strict)
        at, behind_at = low, start.at
        for _ in range(_MAX_CANDIDATES):
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
            elif ahead.stuck and at - torn_at > _LONGEST_TORN:
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

    def _are_torn(self, at: int, end: int, place: Place) -> bool:
        """Say whether some bytes are a torn message, and behind it torn messages that sessions began with."""
        begins = np.flatnonzero(self._starting[self._buf[at + 1 : end]])[::-1].tolist()
        self._effort.spend(1 + len(begins) // _PLACES_A_UNIT)
        stop = end
        for begin in begins:
            if self._is_torn_start(at + 1 + begin, stop):
                # The sooner a message ends, the likelier it may be torn there.
                stop = at + 1 + begin
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


class _Ahead:
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


def _refuse_two_readings(data: memoryview, found: list[Stretch], edges: tuple[int, ...], explainer: Explainer) -> None:
    """Stop where a message goes on over a file's end, but a session might as well begin there."""
    for edge in edges:
        for stretch in found:
            if stretch.start < edge < stretch.stop and _is_two(data, stretch, edge, explainer):
                raise OrderError(
                    "the bytes can be read in two ways: the message that the file before has begun goes on here, "
                    "or a new session begins",
                    offset=edge,
                    remedy="Remove the unfinished message from the end of the file before, if its writer was "
                    "interrupted there; then a new session begins",
                )


def _is_two(data: memoryview, stretch: Stretch, edge: int, explainer: Explainer) -> bool:
    """Say whether a session may begin at an offset at which another one can be read on."""
    if not may_begin(data[edge:], stretch.place.framing):
        return False
    try:
        torn_at = _Ahead(data, stretch.start, explainer.reader(stretch.place, strict=False)).boundary_before(edge)
        if torn_at == edge:
            return False
        before = explainer.reader(stretch.place, strict=False)
        before.advance(data, stretch.start, torn_at)
        reading = explainer.read(edge)
        if not explainer.is_torn(torn_at, edge, before.place) or reading.waits or reading.error or reading.broke:
            return False
    except GaveUp:
        # Nothing shows that there are two.
        return False
    open_, first = before.place.transaction, reading.first_event
    return open_ is None or first is None or first <= open_.final_lsn


def is_framed_so(data: memoryview, framing: Framing, codec: str = UTF8) -> bool:
    """Say whether so many sound messages stand at a stream's beginning that its framing is beyond doubt."""
    try:
        return Explainer(data, framing, codec, Effort(len(data))).read(0, strict=False).messages >= _MESSAGES
    except GaveUp:
        return False


def framing_of(data: memoryview, codec: str = UTF8) -> Framing | None:
    """Recognise the framing of a stream whose first session ends in its first bytes, or that is damaged there.

    That counts of which the fewest sessions explain the bytes; if none does, that with the most sound messages.

    Raises:
        TruncatedMessage: more bytes will tell.
    """
    ranked: list[tuple[int, int, Framing]] = []
    waiting: list[tuple[int, Framing]] = []
    begun = False
    for framing in FRAMING_ORDER:
        explainer = Explainer(data, framing, codec, Effort(len(data) // len(Framing), LEAST // len(Framing)))
        explained = None
        try:
            reading = explainer.read(0)
            explained = explainer.fits(0)
        except GaveUp:
            # It is told later what is wrong behind the messages that are sound.
            if not explainer.has_read(0):
                continue
        messages = reading.messages
        begun = begun or messages > 0
        is_torn_only = explained is not None and bool(explained.breaks) and explained.begin == WAIT
        if is_torn_only and framing.length_field is not None and not messages:
            # Anything may be the torn beginning of a length.
            continue
        if reading.waits or is_torn_only:
            waiting.append((explained.breaks if explained is not None and messages else _UNEXPLAINED, framing))
        elif explained is not None:
            ranked.append((explained.breaks, -messages, framing))
        elif messages > 1 or (messages and not _begins_with_abort(data, framing)):
            ranked.append((_UNEXPLAINED, -messages, framing))
    if begun:
        # What begins with a sound message in one framing is not the torn beginning of a length in another.
        ranked = [rank for rank in ranked if rank[1] or rank[2].length_field is None]
    best = min(ranked, key=lambda rank: rank[:2], default=None)
    if waiting and (best is None or best[0] >= _UNEXPLAINED or min(waiting)[0] < best[0]):
        if len(waiting) > 1:
            raise TruncatedMessage("the bytes are too few to tell their framing", offset=0)
        return waiting[0][1]
    return best[2] if best is not None else None


def _begins_with_abort(data: memoryview, framing: Framing) -> bool:
    """Say whether a stream's first message is a Stream Abort: what is behind its tag may be anything."""
    return data[head_size(framing, data, 0, len(data))] == ord("A")


def may_begin(data: memoryview, framing: Framing) -> bool:
    """Say whether a session may begin with the first byte of a file, as far as its first bytes tell."""
    buf = np.frombuffer(data[:LONGEST_START], np.uint8)
    return len(buf) > 0 and int(next_start(buf, 0, len(buf), FRAMING_CODES[framing])) == 0


def first_session(data: memoryview, framing: Framing, codec: str = UTF8) -> int | None:
    """Give the first offset from which on a buffer can be read as a session that goes on, its relations being known."""
    buf, at = np.frombuffer(data, np.uint8), 0
    explainer = Explainer(data, framing, codec, Effort(len(data)))
    for _ in range(_MAX_CANDIDATES):
        at = int(next_start(buf, at, len(data), FRAMING_CODES[framing]))
        if at >= len(data):
            break
        try:
            reading = explainer.read(at, strict=False)
        except GaveUp:
            raise OrderError(
                "no session is found to begin behind the gap, among too many places that look like one's beginning",
                offset=at,
                remedy="Cut off what stands in front of the first whole message",
            ) from None
        if reading.stop > at and (reading.error is None or reading.messages >= _MESSAGES):
            return at
        at += 1
    return None


__all__ = [
    "WAIT",
    "Explained",
    "Explainer",
    "Stretch",
    "find_sessions",
    "first_session",
    "framing_of",
    "is_framed_so",
    "may_begin",
]
