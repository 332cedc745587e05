"""Divide a buffer into the sessions in which its bytes were sent."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from walreplay.decode import walk
from walreplay.decode.place import Place
from walreplay.decode.scan import Scanner
from walreplay.decode.sessions.breaks import SOUND_MESSAGES, WAIT, Ahead, Explained, Explainer
from walreplay.decode.sessions.effort import Effort, GaveUp
from walreplay.decode.sessions.readings import Reading, check_tail
from walreplay.decode.sessions.starts import may_begin
from walreplay.decode.summary import Stretch
from walreplay.errors import CaptureError, OrderError
from walreplay.types.text import UTF8

_SESSIONS: Final = 1_000

_BYTES_A_SESSION: Final = 64
"""One more session is accepted for so many bytes: even a COPY with a single empty transaction has 82.

The limit is needed because each session takes a tenth of a millisecond.
"""

_CUT: Final = "Cut the file in front of the torn message and behind it, where the next session begins"


def find_sessions(
    data: memoryview, place: Place, start: int, *, edges: tuple[int, ...] = (), codec: str = UTF8
) -> list[Stretch]:
    """Walk over a buffer from a known place, and divide it into sessions.

    Args:
        place: the place at ``start``.
        edges: the offsets at which files begin in the buffer.  A message that extends over one may also be read as a
            torn message and a new session.
        codec: the encoding of names.

    Raises:
        CaptureError: an error that no new session explains, or a message over a file's end with two readings.
    """
    parting = _Parting(data, place, start, codec)
    while not parting.is_done:
        parting.go_on()
    _refuse_two_readings(data, parting.found, edges, parting.explainer())
    return parting.found


class _Parting:
    """Divide a buffer into sessions, one after the other.

    Attributes:
        found: the stretches found so far.
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
        """Begin the next stretch at an offset."""
        self._next = Stretch(start, start, place, new_session, late, torn)

    def explainer(self) -> Explainer:
        """Make an explainer; all share one budget and the known readings."""
        return Explainer(self._data, self._framing, self._codec, self._effort, self._readings)

    def go_on(self) -> None:
        """Find the end of the current stretch, and begin the next one.

        Raises:
            CaptureError: an error that no new session explains.
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
        """Explain an error, or something doubtful; None if there is no explanation, or nothing to explain.

        Raises:
            CaptureError: the error, if the search for an explanation takes too long.
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
        if following.new_session and not following.torn and int(scanner.kernel.state[walk.MESSAGES]) < SOUND_MESSAGES:
            # The seeming first message of this session may be a torn one that has swallowed the true one.
            last = self.found[-1]
            other = self.explainer().explain(last.start, last.place, torn_only=True)
            if other is not None and (explained is None or other.breaks < 1 + explained.breaks):
                self._next = self.found.pop()
                explained = other
        return explained

    def _end_torn(self, explained: Explained) -> None:
        """End the stretch before a torn message."""
        following = self._next
        if explained.begin != WAIT and following.new_session and explained.stop == following.start:
            # The session has no whole message, so it only adds to the torn bytes.
            torn = following.torn + explained.begin - following.start
            self._begin(explained.begin, following.place, new_session=True, torn=torn)
            return
        place = _add(self.found, self._data, replace(following, stop=explained.stop), self._codec)
        self.is_done = explained.begin == WAIT
        torn = explained.begin - explained.stop
        self._begin(explained.begin, place, new_session=True, late=explained.late, torn=torn)


def _given_up(error: CaptureError, effort: Effort) -> CaptureError:
    """Add to an error that the search for an explanation was given up."""
    return type(error)(
        f"{error.problem}; whether a message is torn here and a new session follows could not be told in "
        f"{effort.all:,} steps, and was given up",
        offset=error.offset,
        table=error.table,
        remedy=error.remedy or _CUT,
    )


def _add(found: list[Stretch], data: memoryview, stretch: Stretch, codec: str) -> Place:
    """Add a stretch; give the place at which the session behind it begins."""
    scanner = Scanner(stretch.place.framing, place=stretch.place, codec=codec)
    scanner.closed = scanner.ends_session = True
    scanner.scan(data[: stretch.stop], stretch.start)
    assert scanner.position == stretch.stop
    found.append(stretch)
    return scanner.place.new_session()


def _refuse_two_readings(data: memoryview, found: list[Stretch], edges: tuple[int, ...], explainer: Explainer) -> None:
    """Raise an error if a message extends over a file's end, but a session might begin there as well."""
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
    """Say whether a session may begin at an offset, although another one can be read beyond it."""
    if not may_begin(data[edge:], stretch.place.framing):
        return False
    try:
        torn_at = Ahead(data, stretch.start, explainer.reader(stretch.place, strict=False)).boundary_before(edge)
        if torn_at == edge:
            return False
        before = explainer.reader(stretch.place, strict=False)
        before.advance(data, stretch.start, torn_at)
        reading = explainer.read(edge)
        if not explainer.is_torn(torn_at, edge, before.place) or reading.waits or reading.error or reading.broke:
            return False
    except GaveUp:
        # Nothing proves that there are two readings.
        return False
    open_, first = before.place.transaction, reading.first_event
    return open_ is None or first is None or first <= open_.final_lsn
