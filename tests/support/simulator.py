"""Whole captures as PostgreSQL could produce them, and what must come of them.

A capture is made in four steps, each from records of small numbers: a server runs transactions (`simulator_server`), a
walsender sends them in sessions (`simulator_sender`), of which the client keeps all but some of the end, the bytes are
framed and cut into files, and runs find more and more of them.  `simulator_model` knows what is true.

Any records make a valid capture and zeros make the simplest one, so that Hypothesis can draw them and shrink them, and
a plain random number generator can make them too, which is much faster.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from random import Random
from typing import Final

from hypothesis import strategies as st

from support.framings import FORMS, Form, Keepalive
from support.simulator_model import Mark, Model, Session, State
from support.simulator_sender import Options, Sent, Walsender
from support.simulator_server import OPS, STEP_BYTES, Event, Op, Server
from walreplay.errors import CaptureError, TruncatedMessage
from walreplay.lsn import format_lsn
from walreplay.protocol.framing import (
    PGCOPY_HEADER,
    PGCOPY_SIGNATURE,
    PGCOPY_TRAILER,
    Framing,
    parse_frame,
    read_trailer,
)
from walreplay.protocol.reader import is_streaming_after, read_message

OPTION_BYTES: Final = 8
CUT_BYTES: Final = 3
RUN_BYTES: Final = 2

LEAST_BYTES: Final = 64
"""A stream of fewer bytes may not show its framing yet."""

EMPTY_LATE: Final = True
"""Whether a transaction of which nothing survives may be skipped in one session and streamed in a later one.

It is real: not streamed, it is found empty at its commit and left out; streamed before its rows are rolled back, it
ends in a Stream Commit.  Then a commit LSN comes that is unknown and below what is applied, of an empty transaction.
"""

_SHORT_ABORT: Final = 9

_LIMITS: Final = (3, 1, 2, 1, 2, 5, 8, 1000)
_LOST: Final = (0, 0, 1, 2, 5, 17)
_BACK: Final = (0, 0, 1, 3, 9, 25)


@dataclass(frozen=True)
class Drawn:
    """The numbers that a capture is made of.

    Attributes:
        options: of the server, the walsender and the files.
        steps: what the server does, one after the other.
        cuts: where files end.
        runs: how much is there at each run but the last.
    """

    options: bytes = bytes(OPTION_BYTES)
    steps: tuple[bytes, ...] = ()
    cuts: tuple[bytes, ...] = ()
    runs: tuple[bytes, ...] = ()


def _records(size: int, most: int) -> st.SearchStrategy[tuple[bytes, ...]]:
    return st.lists(st.binary(min_size=size, max_size=size), max_size=most).map(tuple)


def _many(size: int, least: int, most: int) -> st.SearchStrategy[tuple[bytes, ...]]:
    """Draw many records at once: one draw each would take longer than all else."""
    return st.integers(least, most).flatmap(
        lambda count: st.binary(min_size=size * count, max_size=size * count).map(lambda data: _split(data, size))
    )


def _split(data: bytes, size: int) -> tuple[bytes, ...]:
    return tuple(data[at : at + size] for at in range(0, len(data), size))


captures: st.SearchStrategy[Drawn] = st.builds(
    Drawn,
    st.binary(min_size=OPTION_BYTES, max_size=OPTION_BYTES),
    # The first is small and shrinks well; the second is of the size that finds something.
    st.one_of(_records(STEP_BYTES, 40), _many(STEP_BYTES, 20, 160)),
    _records(CUT_BYTES, 5),
    _records(RUN_BYTES, 2),
)
"""Captures, drawn."""


def seeded(seed: int) -> Drawn:
    """Make the numbers of a capture from one number, fast."""
    random = Random(seed)
    return Drawn(
        random.randbytes(OPTION_BYTES),
        _split(random.randbytes(STEP_BYTES * random.randint(10, 160)), STEP_BYTES),
        _split(random.randbytes(CUT_BYTES * random.randint(0, 5)), CUT_BYTES),
        _split(random.randbytes(RUN_BYTES * random.randint(0, 2)), RUN_BYTES),
    )


@dataclass(frozen=True)
class Tear:
    """A message of which only the beginning is there; a new session follows.

    Attributes:
        at, end: where the beginning lies in the stream.
        sent: the message.
    """

    at: int
    end: int
    sent: Sent


def _is_cut(data: bytes, at: int, framing: Framing) -> bool:
    try:
        parse_frame(data, at, framing)
    except TruncatedMessage:
        return True
    return False


def _last_kind(data: bytes, at: int) -> bytes | None:
    """Return the kind of the value that goes on behind the end of the data, in a row's tuples."""
    while at + 3 <= len(data):
        columns = int.from_bytes(data[at + 1 : at + 3], "big")
        at += 3
        for _ in range(columns):
            kind = data[at : at + 1]
            if kind not in (b"t", b"b"):
                at += 1
                continue
            at += 5 + int.from_bytes(data[at + 1 : at + 5], "big")
            if at > len(data):
                return kind
    return None


@dataclass
class Capture:
    """A capture.

    Attributes:
        data: the bytes of all files, one after the other; ``edges`` are where files begin, and the end.
        sizes: how many of the bytes are there at each run.
        pieces: each message's place in the bytes, for people.
    """

    form: Form
    options: Options
    data: bytes
    edges: list[int]
    sizes: list[int]
    sessions: list[Session]
    tears: list[Tear]
    wal: list[Event]
    pieces: list[tuple[int, int, int, Sent]] = field(default_factory=list)

    @property
    def framing(self) -> Framing:
        return self.form.framing

    @property
    def model(self) -> Model:
        return Model(self.sessions, prepares=self.options.two_phase)

    @property
    def stages(self) -> list[dict[str, bytes]]:
        """The files that are there at each run."""
        return [self.files(size) for size in self.sizes]

    def files(self, size: int) -> dict[str, bytes]:
        """Return the files as they are when so many bytes of the stream have been written."""
        return {
            f"part{number:03}": self.data[start : min(end, size)]
            for number, (start, end) in enumerate(pairwise(self.edges))
            if start <= size
        }

    def expected(self, size: int) -> State:
        """Return what must come of so many bytes."""
        return self.model.at(size)

    def has_bare_session(self) -> bool:
        """Return whether a session between two torn messages has no whole one."""
        return any(
            not any(one.end <= at and end <= other.at for at, end, _, _ in self.pieces)
            for one, other in pairwise(self.tears)
        )

    def has_message(self, size: int) -> bool:
        """Return whether so many bytes have a whole message; without one, several framings may fit them."""
        torn = {tear.at for tear in self.tears}
        return any(end <= size for at, end, _, _ in self.pieces if at not in torn)

    def bare_since(self, size: int) -> int | None:
        """Return where the torn message begins behind which a session has begun that has no whole message yet.

        Until it has, that message may go on.
        """
        torn = {tear.at for tear in self.tears}
        whole = [(at, end) for at, end, _, _ in self.pieces if at not in torn]
        for tear in self.tears:
            if tear.end < size and not any(tear.end <= at and end <= size for at, end in whole):
                return tear.at
        return None

    def undecided(self, size: int) -> list[int]:
        """Return where the torn logical messages begin of which the bytes that are there may be the rest.

        Its content can be anything, a whole session of another stream too: until it is long enough nothing tells that
        it is torn.  A row can go on over the next session's first bytes only by a value in binary format, which a
        Begin Prepare's tag announces: in text there is no NUL, but in all that begins a session.
        """
        return [
            tear.at
            for tear in self.tears
            if tear.end < size
            and ((tear.sent.tag == b"M" and self._goes_on(tear, size)) or self._is_binary(tear, size))
        ]

    def _is_binary(self, tear: Tear, size: int) -> bool:
        """Return whether the bytes that are there are a row with a value in binary format that goes on behind them."""
        if tear.sent.tag not in (b"I", b"U", b"D") or self.framing.is_sized:
            return False
        at = tear.at + self.form.head
        try:
            read_message(self.data[:size], at, streaming=tear.sent.streamed)
        except TruncatedMessage:
            return _last_kind(self.data[:size], at + (9 if tear.sent.streamed else 5)) == b"b"
        except CaptureError:
            pass
        return False

    def _goes_on(self, tear: Tear, size: int) -> bool:
        at = tear.at
        if self.framing is Framing.PGCOPY:
            return False
        at += self.form.head
        if size <= at:
            return True
        if self.framing.is_sized:
            return _is_cut(self.data[:size], tear.at, self.framing) and self.data[at] == b"M"[0]
        try:
            read_message(self.data[:size], at, streaming=tear.sent.streamed)
        except TruncatedMessage:
            return True
        except CaptureError:
            return False
        return False

    def is_open_ended(self, size: int) -> bool:
        """Return whether the last message that is there may have 16 bytes more: a Stream Abort, which nothing ends."""
        return self.framing in (Framing.RAW, Framing.WALSENDER) and any(
            end == size and sent.tag == b"A" and end - at == self.form.head + _SHORT_ABORT
            for at, end, _, sent in self.pieces
        )

    def is_completed(self) -> bool:
        """Return whether the next session's first bytes, up to where a file or a run ends, complete a torn message.

        Nothing tells then that it was torn, until the rest of the session's first message comes: too late, for what
        was read has been believed.
        """
        ends = {*self.edges, *self.sizes}
        return any(self._completes(tear, end) for tear in self.tears for end in ends if end > tear.end)

    def _completes(self, tear: Tear, end: int) -> bool:
        if self.framing is Framing.WALSENDER or self.framing.has_bare_length:
            return self._is_whole(tear.at, end, streamed=tear.sent.streamed)
        if isinstance(tear.sent.payload, Keepalive):
            return end - tear.at == self.form.keepalive_size and self.data[end - 1] <= 1
        at, streamed, count = tear.at + self.form.head, tear.sent.streamed, 0
        try:
            while at < end:
                message, at = read_message(self.data[:end], at, streaming=streamed)
                streamed = is_streaming_after(message, streamed)
                at = read_trailer(self.data[:end], at, self.framing)
                count += 1
        except TruncatedMessage:
            return count > 0
        except CaptureError:
            return False
        return count > 0

    def _is_whole(self, at: int, end: int, *, streamed: bool) -> bool:
        """Return whether frames may stand between two places, the last of them unfinished perhaps."""
        start, data = at, self.data[:end]
        try:
            while at < end:
                begin, stop, is_empty = parse_frame(data, at, self.framing)
                if not is_empty:
                    message, behind = read_message(data[:stop], begin, streaming=streamed)
                    if self.framing.is_sized and behind != stop:
                        return False
                    streamed, stop = is_streaming_after(message, streamed), behind
                at = read_trailer(data, stop, self.framing)
        except TruncatedMessage:
            return at > start
        except CaptureError:
            return False
        return at > start

    def listing(self) -> str:
        """Write all messages with their places, for people."""
        lines = [f"{self.form.name} {self.options}", f"files {self.edges} runs {self.sizes}"]
        for at, end, session, sent in self.pieces:
            what: object = sent.payload
            if isinstance(sent.payload, bytes):
                what = read_message(sent.payload, 0, streaming=sent.streamed, parallel=self.options.parallel)[0]
            torn = "" if end - at == len(_framed(self.form, sent)) else f" TORN, {end - at} bytes of"
            lines.append(f"{at:6} s{session} wal{sent.event} {format_lsn(sent.lsn)}{torn} {what}")
        return "\n".join(lines)


def play(drawn: Drawn, ops: Sequence[Op] = OPS) -> Capture:
    """Make a capture.

    Args:
        ops: what the server's steps may be.
    """
    o = drawn.options
    version = 1 + o[0] % 4
    form = FORMS[o[4] % len(FORMS)]
    streaming = version >= 2 and o[1] % 4 > 0
    options = Options(
        version,
        streaming=streaming,
        parallel=version == 4 and o[1] % 4 > 1,
        two_phase=version >= 3 and o[2] % 4 > 0,
        skips_empty=o[3] % 2 == 1 and (EMPTY_LATE or not streaming),
        keepalives=o[3] // 2 % 8 if form.has_keepalives else 0,
    )
    server = Server(1 + o[5] % 4, 1 + o[5] // 4 % 4, o[6], origins=o[7] % 2 == 1, ops=ops)
    server.play(drawn.steps)
    writer = _Writer(form, options, server.wal)
    writer.write(o)
    return writer.capture(drawn)


class _Writer:
    """Put sessions into bytes."""

    def __init__(self, form: Form, options: Options, wal: list[Event]) -> None:
        self._form = form
        self._options = options
        self._wal = wal
        self._data = bytearray()
        self._sessions: list[Session] = []
        self._tears: list[Tear] = []
        self._files: list[int] = []
        self._pieces: list[tuple[int, int, int, Sent]] = []

    def write(self, options: bytes) -> None:
        """Write all sessions: one ends at each place that the server's steps set, the last at the WAL's end.

        A record's numbers say how much of the session's end is lost, where the next one starts from, how it streams,
        and whether it begins a file.
        """
        start = known = 0
        how = bytes([0, 0, 0, 0, 0, 0, 0, options[7] // 2])
        ends = [at + 1 for at, event in enumerate(self._wal) if event.what == "connect"]
        for number, end in enumerate([*ends, len(self._wal)]):
            limit = _LIMITS[how[7] % len(_LIMITS)]
            sender = Walsender(self._options, start=start, known=known, limit=limit)
            sender.decode(self._wal, end)
            last = number == len(ends)
            step = self._wal[end - 1].step if not last else bytes([0, options[7], *options[:6]])
            kept, torn = _kept(sender.sent, step)
            if last and options[6] // 16 % 2 == 0:
                kept, torn = len(sender.sent), 0
            self._session(
                sender.sent, kept, torn, new_file=how[2] % 2 == 1, closed=not last or options[2] // 4 % 2 == 0
            )
            # All that the events before this one made be sent is there.
            whole = sender.sent[kept].event if kept < len(sender.sent) else end
            start = max(whole - _BACK[step[4] % len(_BACK)], 0) if step[4] < 200 else whole * step[5] // 256
            known = end if step[2] // 2 % 2 == 0 else 0
            how = step

    def _session(self, sent: Sequence[Sent], kept: int, torn: int, *, new_file: bool, closed: bool) -> None:
        data, form = self._data, self._form
        pgcopy = form.framing is Framing.PGCOPY
        session = Session(len(data))
        if pgcopy or new_file:
            self._files.append(len(data))
        if pgcopy:
            data += PGCOPY_HEADER.pack(PGCOPY_SIGNATURE, 0, 0)
            session.first = len(data)
        number = len(self._sessions)
        for item in sent[:kept]:
            at = len(data)
            data += _framed(form, item)
            self._pieces.append((at, len(data), number, item))
            if item.mark:
                event = self._wal[item.event]
                content = (event.lsn, *event.content) if item.mark == "loose" and event.content else None
                session.marks.append(Mark(len(data), item.mark, item.txn, content))
        if kept < len(sent):
            framed = _framed(form, sent[kept])
            beginning = framed[: torn % len(framed)]
            if beginning:
                at = len(data)
                data += beginning
                session.torn = True
                self._tears.append(Tear(at, len(data), sent[kept]))
                self._pieces.append((at, len(data), number, sent[kept]))
        elif pgcopy and closed:
            data += PGCOPY_TRAILER.pack(-1)
        session.end = len(data)
        # One that left no byte behind is none.
        if session.end > session.start:
            self._sessions.append(session)

    def capture(self, drawn: Drawn) -> Capture:
        """Cut what was written into files, and let runs find some of it."""
        size = len(self._data)
        cuts = [self._place(cut) for cut in drawn.cuts]
        edges = sorted([0, size, *cuts, *(at for at in self._files if at)])
        # A run of too few bytes cannot be; the last one has all.
        seen = [(run[0] << 8 | run[1]) * (size + 1) >> 16 for run in drawn.runs]
        least = max(LEAST_BYTES, self._shown)
        sizes = [*sorted(at for at in seen if at >= least), size]
        return Capture(
            self._form,
            self._options,
            bytes(self._data),
            edges,
            sizes,
            self._sessions,
            self._tears,
            self._wal,
            self._pieces,
        )

    @property
    def _shown(self) -> int:
        """The byte behind the first message that is whole, if torn ones precede it: then the framing shows.

        A length may count itself or not, until its message is whole.
        """
        torn = {tear.at for tear in self._tears}
        for at, end, _, _ in self._pieces:
            if at not in torn:
                has_length = self._form.framing.has_bare_length
                return end + 1 if has_length or at in {tear.end for tear in self._tears} else 0
        return 0

    def _place(self, cut: bytes) -> int:
        """Return where to cut: anywhere, or close to where a message begins, or a session."""
        size = len(self._data)
        at = (cut[0] << 8 | cut[1]) * (size + 1) >> 16
        near = cut[2] % 8 - 3
        if cut[2] // 8 % 4 == 1 and self._pieces:
            at = self._pieces[(cut[0] << 8 | cut[1]) % len(self._pieces)][0] + near
        elif cut[2] // 8 % 4 == 2 and self._sessions:
            at = self._sessions[cut[0] % len(self._sessions)].start + near
        return min(max(at, 0), size)


def _kept(sent: Sequence[Sent], step: bytes) -> tuple[int, int]:
    """Return how many messages of a session are there, and how many bytes of the next one."""
    lost = _LOST[step[3] % len(_LOST)] if step[3] < 160 else len(sent) * step[4] // 256
    kept = max(len(sent) - lost, 0)
    # One time in three it ends between two messages.
    torn = 0 if step[7] % 3 == 0 else step[7] // 3 * 2 + step[6] % 2
    return kept, torn


def _framed(form: Form, item: Sent) -> bytes:
    """Write a message or, where there are any, a keepalive."""
    if isinstance(item.payload, Keepalive):
        return form.wrap_keepalive(item.payload)
    return form.wrap(item.payload, lsn=item.lsn, xid=item.xid, time=item.time)
