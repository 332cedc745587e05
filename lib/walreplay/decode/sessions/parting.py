"""Divide a buffer into the sessions in which its bytes were sent, and recognise files that belong to no stream.

`framing_of` and `first_session` find a stream's framing and its first session if the first bytes do not show them.
Errors for files that are no captures, or of another stream, name the file and say what it is.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from typing import Final

import numpy as np

from walreplay.decode.kernels import walk_words as words
from walreplay.decode.kernels.frames import FRAMING_CODES
from walreplay.decode.scan import SOUND_MESSAGES, Scanner, is_framed_so
from walreplay.decode.sessions.breaks import (
    COST_UNEXPLAINED,
    WAIT,
    BoundaryFinder,
    Explained,
    Explainer,
)
from walreplay.decode.sessions.readings import LEAST, Effort, GaveUp, Reading, check_tail, read_session
from walreplay.decode.sessions.resync import guess_framing
from walreplay.decode.sessions.starts import may_begin, next_start
from walreplay.decode.summary import Stretch
from walreplay.decode.walk import Place
from walreplay.errors import CaptureError, FramingChange, NotACapture, OrderError, TruncatedMessage
from walreplay.protocol.framing import FRAMING_ORDER, LENGTH_SIZE, Framing
from walreplay.protocol.opening import HEAD_BYTES, REMEDIES, detect_framing, what_is
from walreplay.types.text import UTF8, names_in

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

    Raises:
        CaptureError: an error that no new session explains, or a message over a file's end with two readings.
    """
    parting = _Parting(data, place, start, codec)
    while not parting.is_done:
        parting.go_on()
    _refuse_two_readings(data, parting.stretches, edges, parting.explainer())
    return parting.stretches


class _Parting:
    """Divide a buffer into sessions, one after the other."""

    def __init__(self, data: memoryview, place: Place, start: int, codec: str) -> None:
        self._data = data
        self._codec = codec
        self._framing = place.framing
        self._effort = Effort(len(data))
        self._readings: dict[tuple[int, bool], Reading] = {}
        self._visited: set[tuple[int, int, int]] = set()
        self._next = Stretch(start, start, place)
        self.stretches: list[Stretch] = []
        self.is_done = False

    def _begin_session(self, start: int, place: Place, shown_by_lsn_only: bool = False, *, torn: int = 0) -> None:
        """Begin the next stretch at an offset, with a session."""
        self._next = Stretch(start, start, place, True, shown_by_lsn_only, torn)

    def explainer(self) -> Explainer:
        """Make an explainer; all share one budget and the known readings."""
        return Explainer(self._data, self._framing, self._codec, self._effort, self._readings)

    def go_on(self) -> None:
        """Find the end of the current stretch, and begin the next one.

        Raises:
            CaptureError: an error that no new session explains.
        """
        stretch = self._next
        progress = stretch.start, stretch.torn, len(self.stretches)
        if progress in self._visited:
            raise OrderError(
                "a message is torn here, and what follows cannot be parted into sessions",
                offset=stretch.start,
                remedy=_CUT,
            )
        self._visited.add(progress)  # going back to the session before might never end
        self._check_number()
        scanner = Scanner(self._framing, place=stretch.place, codec=self._codec)
        error = self._scan(scanner, stretch)
        explanation = self._explain(scanner, error)
        if explanation is not None:
            self._end_torn(explanation)
            return
        if error is not None:
            raise self._with_cut(error, scanner)
        self.stretches.append(replace(stretch, stop=scanner.position))
        self.is_done = not scanner.stopped_at_session
        self._begin_session(scanner.position, scanner.place.new_session(), scanner.shown_by_lsn_only)

    def _check_number(self) -> None:
        limit = _SESSIONS + len(self._data) // _BYTES_A_SESSION
        if len(self._visited) > limit:
            raise OrderError(
                f"more than {limit:,} sessions seem to begin up to here, more than there are in so few bytes",
                offset=self._next.start,
                remedy="The file is damaged or is no pgoutput capture; fetch it from its source again",
            )

    def _scan(self, scanner: Scanner, stretch: Stretch) -> CaptureError | None:
        data, start = self._data, stretch.start
        try:
            scanner.scan(data, start)
            if not scanner.stopped_at_session:
                if scanner.position < len(data):
                    check_tail(data, scanner.position, scanner.place, self._codec)
            elif stretch.new_session and scanner.position == start:
                raise OrderError("a session begins here that does not go on", offset=start, remedy=_CUT)
        except CaptureError as problem:
            return problem
        return None

    def _explain(self, scanner: Scanner, error: CaptureError | None) -> Explained | None:
        """Explain an error, or something doubtful; None if there is no explanation, or nothing to explain.

        Raises:
            CaptureError: the error, if the search for an explanation takes too long.
        """
        stretch, explanation = self._next, None
        try:
            if scanner.unannounced_type_at is not None:
                message = scanner.unannounced_type_at
                explanation = self.explainer().find_inside_message(stretch.start, stretch.place, message)
            if error is not None and explanation is None:
                explanation = self._explain_error(scanner)
        except GaveUp:
            if error is not None:
                raise _given_up(error, self._effort) from None
        return explanation

    def _explain_error(self, scanner: Scanner) -> Explained | None:
        stretch, explanation = self._next, None
        if not scanner.stopped_at_session:
            explanation = self.explainer().explain(stretch.start, stretch.place)
        if stretch.new_session and not stretch.torn and int(scanner.kernel.state[words.MESSAGES]) < SOUND_MESSAGES:
            # The seeming first message of this session may be a torn one that has swallowed the true one.
            last_stretch = self.stretches[-1]
            other = self.explainer().explain(last_stretch.start, last_stretch.place, torn_only=True)
            if other is not None and (explanation is None or other.session_ends < 1 + explanation.session_ends):
                self._next = self.stretches.pop()
                explanation = other
        return explanation

    def _with_cut(self, error: CaptureError, scanner: Scanner) -> CaptureError:
        """If several messages are torn one behind the other, say where to cut them out; otherwise return the error."""
        size, torn_at = None, scanner.position
        with suppress(GaveUp):
            explainer = Explainer(self._data, self._framing, self._codec, Effort(0))  # it is only advice
            size = explainer.torn_in_a_row(torn_at, scanner.place)
        if size is None:
            return error
        return type(error)(
            f"{error.problem}; several messages seem to be torn here, one behind the other",
            offset=torn_at,
            remedy=f"If the file is as its writer left it, cut out the {size:,} bytes from here on: the next session "
            "begins behind them. Otherwise fetch it from its source again",
        )

    def _end_torn(self, explanation: Explained) -> None:
        """End the stretch before a torn message."""
        stretch = self._next
        if explanation.begin != WAIT and stretch.new_session and explanation.stop == stretch.start:
            # The session has no whole message, so it only adds to the torn bytes.
            torn = stretch.torn + explanation.begin - stretch.start
            self._begin_session(explanation.begin, stretch.place, torn=torn)
            return
        place = _add(self.stretches, self._data, replace(stretch, stop=explanation.stop), self._codec)
        self.is_done = explanation.begin == WAIT  # the next session's first bytes may follow
        torn = explanation.begin - explanation.stop
        self._begin_session(explanation.begin, place, explanation.shown_by_lsn_only, torn=torn)


def _given_up(error: CaptureError, effort: Effort) -> CaptureError:
    """Add to an error that the search for an explanation was given up."""
    return type(error)(
        f"{error.problem}; whether a message is torn here and a new session follows could not be told in "
        f"{effort.all:,} steps, and was given up",
        offset=error.offset,
        table=error.table,
        remedy=error.remedy or _CUT,
    )


def _add(stretches: list[Stretch], data: memoryview, stretch: Stretch, codec: str) -> Place:
    """Add a stretch; return the place at which the session behind it begins."""
    scanner = Scanner(stretch.place.framing, place=stretch.place, codec=codec)
    scanner.is_last_buffer = scanner.ends_session = True
    scanner.scan(data[: stretch.stop], stretch.start)
    assert scanner.position == stretch.stop
    stretches.append(stretch)
    return scanner.place.new_session()


def _refuse_two_readings(data: memoryview, parts: list[Stretch], edges: tuple[int, ...], explainer: Explainer) -> None:
    """Raise an error if a message extends over a file's end, but a session might begin there as well."""
    for edge in edges:
        for stretch in parts:
            if stretch.start < edge < stretch.stop and _is_two(data, stretch, edge, explainer):
                raise OrderError(
                    "the bytes can be read in two ways: the message that the file before has begun goes on here, "
                    "or a new session begins",
                    offset=edge,
                    remedy="Remove the unfinished message from the end of the file before, if its writer was "
                    "interrupted there; then a new session begins",
                )


def _is_two(data: memoryview, stretch: Stretch, edge: int, explainer: Explainer) -> bool:
    """Return whether a session may begin at an offset, although another one can be read beyond it."""
    if not may_begin(data[edge:], stretch.place.framing):
        return False
    try:
        finder = BoundaryFinder(data, stretch.start, explainer.reader(stretch.place, strict=False))
        torn_at = finder.boundary_before(edge)
        if torn_at == edge:
            return False
        places = explainer.reader(stretch.place, strict=False)
        places.advance(data, stretch.start, torn_at)
        reading = explainer.read(edge)
        if not explainer.is_torn(torn_at, edge, places.place) or reading.waits or reading.ends:
            return False
    except GaveUp:
        # Nothing proves that there are two readings.
        return False
    transaction, first_event = places.place.transaction, reading.first_event
    return transaction is None or first_event is None or first_event <= transaction.final_lsn


def framing_of(data: memoryview, codec: str = UTF8) -> Framing | None:
    """Recognise the framing of a stream whose first session ends early, or that is damaged at its beginning.

    It is the framing in which the fewest sessions explain the bytes.  If they are explained in none, it is the one with
    the most sound messages.  None if no framing has any.

    Raises:
        TruncatedMessage: the bytes are too few.
    """
    ranked: list[tuple[int, int, Framing]] = []
    waiting: list[tuple[int, Framing]] = []
    begun = False
    for framing in FRAMING_ORDER:
        explainer = Explainer(data, framing, codec, Effort(len(data) // len(Framing), LEAST // len(Framing)))
        explanation = None
        try:
            explanation = explainer.explain_all()
        except GaveUp:
            # The error behind the sound messages is reported later.
            if not explainer.has_read(0):
                continue
        reading = explainer.read(0)
        messages = reading.messages
        begun = begun or messages > 0
        is_torn_only = explanation is not None and bool(explanation.session_ends) and explanation.begin == WAIT
        if is_torn_only and framing.has_bare_length and not messages:
            # Any bytes may be the torn beginning of a length.
            continue
        if reading.waits or is_torn_only:
            cost = explanation.session_ends if explanation is not None and messages else COST_UNEXPLAINED
            waiting.append((cost, framing))
        elif explanation is not None:
            ranked.append((explanation.session_ends, -messages, framing))
        elif messages > 1 or (messages and not explainer.begins_with_abort):
            ranked.append((COST_UNEXPLAINED, -messages, framing))
    if begun:
        # If bytes begin with a sound message in one framing, they are not a torn length in another.
        ranked = [rank for rank in ranked if rank[1] or not rank[2].has_bare_length]
    # Of equals, the first in FRAMING_ORDER counts: a frame's content looks like bare messages.
    best = min(ranked, key=lambda rank: rank[:2], default=None)
    if waiting and (best is None or best[0] >= COST_UNEXPLAINED or min(waiting)[0] < best[0]):
        if len(waiting) > 1:
            raise TruncatedMessage("the bytes are too few to tell their framing", offset=0)
        return waiting[0][1]
    return best[2] if best is not None else None


def first_session(data: memoryview, framing: Framing, codec: str = UTF8) -> int | None:
    """Find where the first session behind a gap begins.

    Returns:
        the first offset from which on the buffer can be read as a session that announces its relations; None if more
        bytes are needed.

    Raises:
        OrderError: the search was given up, because too many offsets look like a session's start.
    """
    explainer = Explainer(data, framing, codec, Effort(len(data)))
    for offset in explainer.starts(0, len(data)):
        try:
            reading = explainer.read(offset, strict=False)
        except GaveUp:
            raise OrderError(
                "no session is found to begin behind the gap, among too many places that look like one's beginning",
                offset=offset,
                remedy="Cut off what stands in front of the first whole message",
            ) from None
        if reading.stop > offset and (reading.error is None or reading.messages >= SOUND_MESSAGES):
            return offset
    return None


_LOOKED_AT: Final = 1 << 20
_TELLING_BYTES: Final = 9
"""So many bytes show whether a frame may begin with them.  Those behind may be torn off, and other bytes follow."""

_BY_PATTERN: Final = "out by `file_pattern`"
_LEAVE_OUT: Final = f"Leave the file {_BY_PATTERN}"
_NAME_IT: Final = f"{_LEAVE_OUT}, or name its framing by `framing`"


def may_become(data: bytes, codec: str = UTF8) -> bool:
    """Return whether a few bytes may be the beginning of a stream, in any framing."""
    telling_bytes, view = np.frombuffer(data[:_TELLING_BYTES], np.uint8), memoryview(data)
    for framing in FRAMING_ORDER:
        offset = int(next_start(telling_bytes, 0, len(telling_bytes), FRAMING_CODES[framing]))
        if offset > (LENGTH_SIZE if framing.has_bare_length else 0):
            continue
        try:
            if offset:
                # A torn length alone proves nothing: a session has to follow it.
                explanation = Explainer(view, framing, codec, Effort(len(view))).explain_all()
                if explanation is not None and explanation.begin != WAIT:
                    return True
                continue
            reading = _read(view, framing, codec)
            # Even so short a session may be torn, and another one follow.
            is_readable = reading.error is None or reading.messages
            if is_readable or Explainer(view, framing, codec, Effort(len(view))).explain_all():
                return True
        except GaveUp:
            continue
    return False


def no_capture(data: bytes | memoryview, compression: str | None = None) -> NotACapture:
    """Make the error for a file that is no capture; it says what the file seems to be."""
    what = what_is(data)
    if what is None:
        framings = ", ".join(framing.value for framing in Framing)
        return NotACapture(
            f"no pgoutput capture: the bytes fit none of the framings {framings}", offset=0, remedy=_NAME_IT
        )
    compressed = f", compressed with {compression}" if compression else ""
    instead = REMEDIES.get(what)
    return NotACapture(
        f"no pgoutput capture, but {what}{compressed}",
        offset=0,
        remedy=_LEAVE_OUT if instead is None else f"{instead}, or leave the file {_BY_PATTERN}",
    )


def stranger(
    data: memoryview, compression: str | None, framing: Framing, *, earlier_path: str, codec: str = UTF8
) -> NotACapture | FramingChange | None:
    """Make the error for a file that does not continue its stream; None if it might.

    Args:
        data: the file's bytes, decompressed.
        compression: how the file is compressed; None if it is not.
        earlier_path: the path of the file before it.
    """
    view = data[:_LOOKED_AT]
    if what_is(view[:HEAD_BYTES]) is not None:
        # A file may begin inside a value, and look like anything there.
        if guess_framing(view, codec=codec) is not None:
            return None
        error = no_capture(data, compression)
        error.remedy = f"{error.remedy}; if it is a part of a capture, one in front of it is missing"
        return error
    detected = detect_framing(bytes(view[:HEAD_BYTES]), names=names_in(codec))
    if detected in (None, framing) or not _is_plain(view, detected, codec):
        return None
    return FramingChange(
        f"the file's framing is {detected.value}, and that of {earlier_path} before it is {framing.value}",
        offset=0,
        remedy="A stream has one framing. Apply the files up to there first, leaving the others out by "
        f"`file_pattern`; then these, with a pattern of their own and `framing: {detected.value}`",
    )


def told_for_paths(error: NotACapture | FramingChange, option: str) -> NotACapture | FramingChange:
    """Adapt an error's remedy for callers who give paths and have no configuration file."""
    if isinstance(error, FramingChange):
        error.remedy = "A stream has one framing: give the files of one at a time"
    elif error.remedy is not None:
        error.remedy = error.remedy.replace(_BY_PATTERN, "out of the paths").replace("`framing`", option)
    return error


def _is_plain(data: memoryview, framing: Framing, codec: str) -> bool:
    """Return whether bytes can be read in a framing to their end, or far enough to be beyond doubt."""
    if is_framed_so(data, framing, codec):
        return True
    try:
        reading = _read(data, framing, codec)
    except GaveUp:
        return False
    return reading.error is None and reading.messages > 1


def _read(data: memoryview, framing: Framing, codec: str) -> Reading:
    """Read bytes from a stream's beginning to their end.

    Raises:
        GaveUp: it takes too much work.
    """
    effort = Effort(len(data))
    return read_session(data, 0, Place(framing), strict=False, stop_at=len(data), effort=effort, codec=codec)
