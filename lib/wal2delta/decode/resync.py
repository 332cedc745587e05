"""Find a message's boundary in a file that may begin in the middle of one.

Only a guess: the bytes of a value may look like messages.  Whoever uses it holds the guess against the end of the
file before (`transactions.stitch`), and has the file walked again where it proves wrong.
"""

from __future__ import annotations

from typing import Final

import numba
import numpy as np

from wal2delta.decode import walk
from wal2delta.decode.intrinsics import load_i64, load_u16, load_u32
from wal2delta.decode.stream import StreamWalker
from wal2delta.decode.walk import FRAMING_CODES
from wal2delta.errors import CaptureError
from wal2delta.protocol.framing import Framing

_PROBE_BYTES: Final = 1 << 16
_PROBE_MESSAGES: Final = 8
_MAX_CANDIDATES: Final = 10_000
_NEAR: Final = 1 << 20
"""A message is rarely longer; searching whole files for the framings that they do not have takes time."""


@numba.njit(cache=True, nogil=True)  # type: ignore[untyped-decorator]
def _looks_like_message(buf, p, end):  # type: ignore[no-untyped-def]
    """Say whether one of the five hot messages may begin here."""
    tag = buf[p]
    if tag == 66:
        if p + 21 > end or buf[p + 1] != 0:
            return False
        ts = load_i64(buf, p + 9)
        return 0 <= ts < 6_000_000_000_000_000
    if tag == 67:
        if p + 26 > end or buf[p + 1] != 0 or buf[p + 2] != 0:
            return False
        ts = load_i64(buf, p + 18)
        return load_i64(buf, p + 2) < load_i64(buf, p + 10) and 0 <= ts < 6_000_000_000_000_000
    if tag == 73 or tag == 85 or tag == 68:
        if p + 9 > end:
            return False
        part = buf[p + 5]
        if tag == 73 and part != 78:
            return False
        if tag == 85 and part != 78 and part != 75 and part != 79:
            return False
        if tag == 68 and part != 75 and part != 79:
            return False
        columns = load_u16(buf, p + 6)
        if columns > 1664:
            return False
        kind = buf[p + 8]
        return columns == 0 or kind == 110 or kind == 117 or kind == 116 or kind == 98
    return False


@numba.njit(cache=True, nogil=True)  # type: ignore[untyped-decorator]
def _looks_like_frame(buf, p, end, framing):  # type: ignore[no-untyped-def]
    """Say whether a frame may begin here."""
    if framing == 0:
        return _looks_like_message(buf, p, end)
    if framing == 1:
        return (p == 0 or buf[p - 1] == 10) and _looks_like_message(buf, p, end)
    if framing == 2:
        if buf[p] != 100 or p + 6 > end:
            return False
        size = np.int64(load_u32(buf, p + 1))
        kind = buf[p + 5]
        return (kind == 107 and size == 22) or (kind == 119 and 30 <= size < 0x7FFFFFFF)
    if buf[p] != 0 or p + 30 > end or load_u16(buf, p) != 3:
        return False
    sizes_fit = load_u32(buf, p + 2) == 8 and load_u32(buf, p + 14) == 4
    return sizes_fit and 1 <= load_u32(buf, p + 22) < 0x7FFFFFFF


@numba.njit(cache=True, nogil=True)  # type: ignore[untyped-decorator]
def _next_candidate(buf, p, limit, end, framing):  # type: ignore[no-untyped-def]
    """Give the next offset from p on where a frame may begin, or the limit."""
    while p < limit and not _looks_like_frame(buf, p, end, framing):
        p += 1
    return p


class _Probe(StreamWalker):
    def __init__(self, framing: Framing) -> None:
        super().__init__(framing, place=None, relations={})

    def on_unknown_relation(self, oid: int, offset: int) -> int:
        return -1


def _fits(data: bytes | memoryview, start: int, framing: Framing) -> int:
    """Give how many messages follow from an offset, or -1 when something cannot be."""
    probe = _Probe(framing)
    try:
        for _ in probe.walk(data, start, stop_at=start + _PROBE_BYTES):
            pass
    except CaptureError:
        return -1
    return int(probe.kernel.state[walk.MESSAGES] + probe.kernel.state[walk.KEEPALIVES])


def find_boundary(data: bytes | memoryview, framing: Framing, limit: int | None = None) -> int | None:
    """Guess the first boundary before ``limit`` (the end, if None); None where nothing looks like one.

    An offset from which several messages follow without a fault is taken.  Near the end of the file, where that
    many do not fit any more, so is one from which messages follow up to the end.
    """
    buf = np.frombuffer(data, np.uint8)
    end, code = len(buf) if limit is None else min(limit, len(buf)), FRAMING_CODES[framing]
    weak = None
    at = 0
    for _ in range(_MAX_CANDIDATES):
        at = int(_next_candidate(buf, at, end, len(buf), code))
        if at >= end:
            break
        count = _fits(data, at, framing)
        if count >= _PROBE_MESSAGES:
            return at
        if count > 0 and weak is None:
            weak = at
        at += 1
    return weak


def guess_framing(data: bytes | memoryview) -> tuple[Framing, int] | None:
    """Guess the framing of a file that begins anywhere, and its first boundary.

    The framings with lengths go first: their frames cannot be mistaken for bare messages, while a message inside
    a frame looks like one without.
    """
    for limit in (_NEAR, None):
        found = [
            (framing, at)
            for framing in (Framing.PGCOPY, Framing.COPYDATA, Framing.RECVLOGICAL, Framing.RAW)
            if (at := find_boundary(data, framing, limit)) is not None
        ]
        if found:
            return min(found, key=lambda guess: guess[1])
    return None
