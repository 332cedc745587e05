"""Find offsets at which a session may begin: nothing marks them, but few messages can be a session's first."""

from __future__ import annotations

from typing import Final

import numpy as np

from walreplay.decode.compile.kernel import helper, kernel
from walreplay.decode.compile.parameters import BYTES, INT64
from walreplay.decode.kernels.base import address_of, load_big_32, load_big_64, load_byte
from walreplay.decode.kernels.frames import FRAMING_CODES, KEEPALIVE_AT, LENGTH, NO_FRAME, PGCOPY, WALSENDER, message_at
from walreplay.decode.sessions.frames import head_size
from walreplay.protocol.framing import Framing

LONGEST_START: Final = 300
"""A session's first message is not longer (a gid has up to 199 bytes), unless it is a logical message."""

STARTERS: Final = b"BSAbPKrM"
"""The tags of messages that can be a session's first."""


def may_wait(data: memoryview, start: int, framing: Framing) -> bool:
    """Say whether the unfinished message at an offset may be a session's first message."""
    if len(data) - start < LONGEST_START:
        return True
    return data[start + head_size(framing, data, start, len(data))] == ord("M")


@helper
def _plausible_time(base, p, end):  # type: ignore[no-untyped-def]
    return p + 8 > end or 0 <= load_big_64(base + p) < 6_000_000_000_000_000


@helper
def _plausible_lsns(base, p, end):  # type: ignore[no-untyped-def]
    """Say whether two LSNs may stand here, the second one behind the first."""
    if p + 16 > end:
        return p >= end or load_byte(base + p) == 0
    return 0 <= load_big_64(base + p) < load_big_64(base + p + 8) < 1 << 56


@helper
def _may_abort(base, p, end, framing):  # type: ignore[no-untyped-def]
    """Say whether a Stream Abort of a transaction that was never streamed may stand here: xid, subxid, LSN and time.

    Where no frame says how long it is, what stands behind it does: the LSN, or what the next message begins with.
    """
    if p + 10 > end:
        return True
    if load_big_32(base + p + 1) == 0 or load_big_32(base + p + 5) == 0:
        return False
    if framing >= LENGTH:
        return True
    behind = load_byte(base + p + 9)
    if behind == 0:
        return _plausible_time(base, p + 17, end)
    if framing == WALSENDER:
        return behind == 119 or behind == 107  # w k
    if framing == 1:
        return behind == 10  # newline
    found = False
    for known in (66, 83, 65, 99, 98, 80, 75, 114, 112, 77):  # B S A c b P K r p M
        found = found or behind == known
    return found


@helper
def _may_start(base, p, end, framing):  # type: ignore[no-untyped-def]
    """Say whether a session's first message may begin here, as far as its first bytes tell."""
    tag = load_byte(base + p)
    if tag == 66:  # B: final LSN, time, xid
        return (p + 1 >= end or load_byte(base + p + 1) == 0) and _plausible_time(base, p + 9, end)
    if tag == 83:  # S: xid, 1
        return p + 5 >= end or load_byte(base + p + 5) == 1
    if tag == 65:  # A
        return _may_abort(base, p, end, framing)
    if tag == 98:  # b: prepare LSN, end LSN, time
        return _plausible_lsns(base, p + 1, end) and _plausible_time(base, p + 17, end)
    if tag == 75 or tag == 80:  # K, P: 0, LSN, end LSN, time
        sound = (p + 1 >= end or load_byte(base + p + 1) == 0) and _plausible_lsns(base, p + 2, end)
        return sound and _plausible_time(base, p + 18, end)
    if tag == 114:  # r: 0, the prepared transaction's end LSN, the rollback's, two times
        sound = (p + 1 >= end or load_byte(base + p + 1) == 0) and _plausible_lsns(base, p + 2, end)
        return sound and _plausible_time(base, p + 18, end) and _plausible_time(base, p + 26, end)
    if tag == 77:  # M: 0, LSN
        return (p + 1 >= end or load_byte(base + p + 1) == 0) and (p + 2 >= end or load_byte(base + p + 2) == 0)
    return False


@kernel(BYTES, INT64, INT64, INT64)
def next_start(buf, p, end, framing):  # type: ignore[no-untyped-def]
    """Give the next offset where a session may begin, or the end."""
    base = address_of(buf)
    while p < end:
        if framing <= 1:
            if _may_start(base, p, end, framing):
                return p
        elif framing == 2:
            if load_byte(base + p) == 100 and (
                p + 6 > end
                or load_byte(base + p + 5) == 119
                or (load_byte(base + p + 5) == 107 and load_big_32(base + p + 1) == 22)
            ):
                return p
        elif framing == PGCOPY:
            if load_byte(base + p) == 80 and (
                p + 6 > end or (load_byte(base + p + 1) == 71 and load_byte(base + p + 5) == 89)
            ):
                return p
        else:
            a = message_at(base, p, end, framing)
            if a == KEEPALIVE_AT or a >= end or (a != NO_FRAME and _may_start(base, a, end, framing)):
                return p
        p += 1
    return end


def may_begin(data: memoryview, framing: Framing) -> bool:
    """Say whether a session may begin with the first byte of a file, as far as its first bytes tell."""
    buf = np.frombuffer(data[:LONGEST_START], np.uint8)
    return len(buf) > 0 and int(next_start(buf, 0, len(buf), FRAMING_CODES[framing])) == 0
