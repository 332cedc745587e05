"""Guess the first boundary of a message in a file that may begin in the middle of one.

It is only a guess, because the bytes of a value may look like messages.  `stream.stitch` compares it with the end
of the file before, and has the file scanned again if it is wrong.

`refuse_leftover` checks the unfinished message at a file's end.  It waits for more bytes; but a damaged length or tag
looks like one, too, and hides all messages that follow.  So a message may only wait if nothing in it can be read as
consecutive messages.  The content of a logical message, or a value in binary format, may be anything, even a whole
capture; then more bytes will show it.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from typing import Final

import numpy as np

from walreplay.decode.compile.kernel import helper, kernel
from walreplay.decode.compile.parameters import BYTES, INT64
from walreplay.decode.kernels import frames
from walreplay.decode.kernels import walk_words as words
from walreplay.decode.kernels.base import address_of, load_big_16, load_big_32, load_big_64, load_byte
from walreplay.decode.kernels.frames import FRAMING_CODES, Outcome, may_be_time
from walreplay.decode.sessions.readings import Effort, GaveUp, PaidWalker
from walreplay.errors import CaptureError, MalformedMessage
from walreplay.protocol import messages as m
from walreplay.protocol.framing import FRAMING_ORDER, Framing
from walreplay.types.text import UTF8

_PROBE_BYTES: Final = 1 << 16
_PROBE_MESSAGES: Final = 8
_NEAR: Final = 1 << 20
"""The first boundary is looked for in so many bytes first: messages are rarely longer.

To search a whole file for each framing that it does not have would take long.
"""

_TAGS: Final = tuple(b"BCORYIUDTMSEcAbPKrpwk")
"""What a frame with a length may begin with: a message's tag, or what a walsender puts in front of it."""

_OUTSIDE: Final = 1
_INSIDE: Final = 2
"""Whether the bytes at an offset may be a message outside or inside of a streamed block, where it has an xid."""


@helper
def _looks_like_row(base, p, end, tag):  # type: ignore[no-untyped-def]
    """Return whether a row change's kind of tuple, number of columns and first cell may stand here."""
    if p + 4 > end:
        return False
    part = load_byte(base + p)
    if tag == 73 and part != 78:  # I N
        return False
    if tag == 85 and part != 78 and part != 75 and part != 79:  # U N K O
        return False
    if tag == 68 and part != 75 and part != 79:  # D K O
        return False
    columns = load_big_16(base + p + 1)
    if columns > m.MAX_COLUMNS:
        return False
    kind = load_byte(base + p + 3)
    return columns == 0 or kind == 110 or kind == 117 or kind == 116 or kind == 98  # n u t b


@helper
def _looks_like_message(base, p, end, gap):  # type: ignore[no-untyped-def]
    """Return whether a Begin, Commit, row change or Stream Start may begin here, outside or inside of a streamed block.

    ``gap`` is how many bytes stand between two messages.
    """
    tag = load_byte(base + p)
    if tag == 66:  # B: no LSN has a first byte other than 0
        if p + 21 > end or load_byte(base + p + 1) != 0:
            return 0
        return 1 if may_be_time(base, p + 9, end) else 0
    if tag == 67:  # C: flags, LSN, end LSN, time
        if p + 26 > end or load_byte(base + p + 1) != 0 or load_byte(base + p + 2) != 0:
            return 0
        return 1 if load_big_64(base + p + 2) < load_big_64(base + p + 10) and may_be_time(base, p + 18, end) else 0
    if tag == 83:  # S: xid, and whether it begins
        tag_offset = p + 6 + gap
        if tag_offset >= end or load_byte(base + p + 5) > 1 or load_big_32(base + p + 1) == 0:
            return 0
        following = load_byte(base + tag_offset)
        for inner_tag in (73, 85, 68, 84, 82, 89, 77, 79, 69):  # I U D T R Y M O E
            if following == inner_tag:
                return 1
        return 0
    if tag == 73 or tag == 85 or tag == 68:  # I U D
        outside = 1 if _looks_like_row(base, p + 5, end, tag) else 0
        return outside + (2 if _looks_like_row(base, p + 9, end, tag) else 0)  # in a block, an xid is in front
    return 0


@helper
def _is_followed(base, following, end, framing):  # type: ignore[no-untyped-def]
    """Return whether another frame with a bare length begins here, or the bytes end.

    Any four bytes are a length, and each message of a file without frames has four in front of it.
    """
    header = frames.header_size(framing)
    if following + header >= end:
        return True
    tag = load_byte(base + following + header)
    is_known = False
    for frame_tag in _TAGS:
        is_known = is_known or tag == frame_tag
    return is_known and frames.message_at(base, following, end, framing).outcome != Outcome.BAD_FRAME


@helper
def _looks_like_frame(base, p, end, framing):  # type: ignore[no-untyped-def]
    """Return whether a frame may begin here: 1 outside, 2 inside of a streamed block, 3 one or the other, 0 none."""
    trailer = frames.trailer_of(framing)
    if trailer != 0 and p > 0 and load_byte(base + p - 1) != trailer:
        return 0
    payload = frames.likely_message_at(base, p, end, framing)
    if payload.outcome == Outcome.BAD_FRAME or payload.outcome == Outcome.EVENT:
        return 0
    is_keepalive = payload.outcome == Outcome.KEEPALIVE
    if payload.start >= end and not is_keepalive:
        return 0
    is_row, header = framing & frames.ROWS != 0, payload.start - p
    if frames.mark_of(framing) != 0 or (is_row and header == 26):
        return 3  # its header shows it
    trailer_size = frames.trailer_size(framing)
    if frames.has_bare_length(framing):
        following = payload.end + trailer_size
        if payload.outcome == Outcome.INCOMPLETE or not _is_followed(base, following, end, framing):
            return 0
    return 3 if is_keepalive else _looks_like_message(base, payload.start, end, header + trailer_size)


@kernel(BYTES, INT64, INT64, INT64, INT64)
def _next_candidate(buf, p, limit, end, framing):  # type: ignore[no-untyped-def]
    """Return the next offset from p on where a frame may begin (the limit, if none) times 4, and what it may be."""
    base = address_of(buf)
    while p < limit:
        kinds = _looks_like_frame(base, p, end, framing)
        if kinds:
            return p * 4 + kinds
        p += 1
    return limit * 4


def candidates(data: bytes | memoryview, start: int, end: int, framing: Framing) -> Iterator[tuple[int, bool]]:
    """Yield the offsets from ``start`` to ``end`` at which a message may begin, and whether in a streamed block."""
    buf, code = np.frombuffer(data, np.uint8), FRAMING_CODES[framing]
    offset = start
    while True:
        offset, kinds = divmod(_next_candidate(buf, offset, end, len(buf), code), 4)
        if offset >= end:
            return
        for streaming, bit in ((False, _OUTSIDE), (True, _INSIDE)):
            if kinds & bit:
                yield offset, streaming
        offset += 1


class Probe(PaidWalker):
    """Walk from a guessed boundary, to see how far the messages are valid.

    Args:
        streaming: it lies inside a streamed block.
    """

    def __init__(self, framing: Framing, *, streaming: bool, effort: Effort, codec: str) -> None:
        self._effort = effort
        super().__init__(framing, place=None, relations={}, streaming=streaming, codec=codec)

    def on_message(self, message: m.AnyMessage, offset: int) -> None:
        """Pay for a message that Python reads."""
        self._effort.spend_on_message(self.position - offset)

    def on_unknown_relation(self, oid: int, offset: int) -> int:
        """Accept any relation."""
        self._effort.spend(1)
        return -1


def _fits(
    data: bytes | memoryview, start: int, framing: Framing, *, streaming: bool, effort: Effort, codec: str
) -> int:
    """Return the number of valid messages from an offset on, or -1 if one is not valid."""
    probe = Probe(framing, streaming=streaming, effort=effort, codec=codec)
    try:
        probe.advance(data, start, start + _PROBE_BYTES)
    except CaptureError:
        return -1
    return int(probe.kernel.state[words.MESSAGES] + probe.kernel.state[words.KEEPALIVES])


@dataclass(frozen=True, slots=True)
class _Guess:
    """A possible boundary.

    Attributes:
        streaming: it lies inside a streamed block.
        strong: several valid messages follow.
    """

    offset: int
    streaming: bool
    strong: bool

    @property
    def rank(self) -> tuple[bool, int]:
        """The better of two guesses has the greater one: strong before weak, then the first."""
        return self.strong, -self.offset


def find_boundary(data: bytes | memoryview, framing: Framing, *, codec: str = UTF8) -> tuple[int, bool] | None:
    """Guess the first boundary, and whether it lies inside a streamed block.

    It is the first offset from which on several messages are valid, or, near the end of the file, all messages up to
    the end.  None if there is no such offset.
    """
    guess = _find(data, framing, len(data), codec)
    return None if guess is None else (guess.offset, guess.streaming)


def _find(data: bytes | memoryview, framing: Framing, limit: int, codec: str) -> _Guess | None:
    """Find the first strong guess before ``limit``, or else the first weak one."""
    end = min(limit, len(data))
    weak, effort = None, Effort(end)
    try:
        for offset, streaming in candidates(data, 0, end, framing):
            count = _fits(data, offset, framing, streaming=streaming, effort=effort, codec=codec)
            if count >= _PROBE_MESSAGES:
                return _Guess(offset, streaming, strong=True)
            if count > 0 and weak is None:
                weak = _Guess(offset, streaming, strong=False)
    except GaveUp:
        # The search was given up, which is no error: the result is only a guess anyway.
        pass
    return weak


def guess_framing(data: bytes | memoryview, *, codec: str = UTF8) -> tuple[Framing, int, bool] | None:
    """Guess the framing of a file that begins anywhere, its first boundary, and whether a streamed block is open there.

    The framings with lengths go first: their frames cannot be mistaken for bare messages, while a message inside
    a frame looks like one without.
    """
    for limit in (_NEAR, len(data)):
        best: tuple[Framing, _Guess] | None = None
        for framing in FRAMING_ORDER:
            guess = _find(data, framing, limit, codec)
            if guess is not None and (best is None or guess.rank > best[1].rank):
                best = framing, guess
                # Another framing is only better if its boundary lies before this one.
                limit = guess.offset if guess.strong else limit
        if best is not None:
            return best[0], best[1].offset, best[1].streaming
    return None


_CHAIN: Final = 8  # So many consecutive messages are no coincidence; nor is a transaction from Begin to Commit

_LAST_CHAIN: Final = 3  # So many are enough if the last one ends exactly with the bytes

_LEFTOVER_PROBE_BYTES: Final = 1 << 16


class Leftover:
    """Search bytes for messages behind the start of an unfinished one.

    Args:
        effort: the budget of the search, which raises `GaveUp` when it is used up.
    """

    def __init__(self, data: memoryview, framing: Framing, codec: str, effort: Effort) -> None:
        self._data = data
        self._framing = framing
        self._codec = codec
        self._effort = effort
        self._searched: list[tuple[int, int | None]] = []

    def whole_behind(self, offset: int) -> int | None:
        """Return the offset where consecutive messages begin behind the start of an unfinished one; None if nowhere."""
        for start, chain_offset in self._searched:
            if start <= offset and (chain_offset is None or offset < chain_offset):  # nothing begins in between
                return chain_offset
        chain_offset = self._search(offset + 1)
        self._searched.append((offset, chain_offset))
        return chain_offset

    def _search(self, start: int) -> int | None:
        for offset, streaming in candidates(self._data, start, len(self._data), self._framing):
            probe = Probe(self._framing, streaming=streaming, effort=self._effort, codec=self._codec)
            with suppress(CaptureError):
                probe.advance(self._data, offset, offset + _LEFTOVER_PROBE_BYTES)
            state = probe.kernel.state
            count = int(state[words.MESSAGES] + state[words.KEEPALIVES])
            is_last = probe.position == len(self._data)
            # A transaction from Begin to Commit is no coincidence, either.
            if state[words.FIRST_LSN] != words.NO_LSN or count >= (_LAST_CHAIN if is_last else _CHAIN):
                return offset
        return None


def refuse_leftover(
    tail: bytes | memoryview, framing: Framing, codec: str = UTF8, *, path: str | None = None, offset: int = 0
) -> None:
    """Refuse the unfinished bytes at the end of the last file if they contain consecutive messages.

    Raises:
        MalformedMessage: they contain such messages, so they are damaged or torn.
    """
    data = memoryview(tail)
    try:
        chain_offset = Leftover(data, framing, codec, Effort(len(data))).whole_behind(0)
    except GaveUp:
        # The search proves nothing, so the bytes may wait.
        return
    if chain_offset is not None:
        raise MalformedMessage(
            f"the message that begins here seems to need more than the {len(data):,} bytes that are there, but from "
            f"{chain_offset:,} bytes on they are messages that follow each other: a length in it is damaged, "
            "or it was torn",
            path=path,
            offset=offset,
            remedy="Fetch the file from its source again. If it is as its writer left it, cut it off here, and behind "
            "the torn message, where the next session begins",
        )
