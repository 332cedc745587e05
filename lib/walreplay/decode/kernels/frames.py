"""Where messages lie in the framings: the kernels' share of `walreplay.protocol.framing`.

A framing is known by its code (`FRAMING_CODES`).  Those with a length before each message have `LENGTH` set, one more
bit if it is little-endian, and two numbers: the size of its header, and how many bytes of that it counts.

Then the numbers that kernels and Python share: a walk's state towards transactions, and the reasons for which it
returns.  `outcome_of_begin` checks a Begin's commit LSN and commit time for the walk.
"""
# numba has no types.
# mypy: disable-error-code="no-untyped-def, no-untyped-call"

from __future__ import annotations

from typing import Final, NamedTuple

import numpy as np

from walreplay.decode.compile.kernel import helper
from walreplay.decode.kernels import walk_words as words
from walreplay.decode.kernels.base import load_big_16, load_big_32, load_big_64, load_byte
from walreplay.decode.kernels.programs import get, put
from walreplay.lsn import POSTGRES_EPOCH_UNIX_MICROS
from walreplay.protocol.framing import Framing
from walreplay.types.datetime import FIRST_MICRO, LAST_MICRO

RAW: Final = 0
RECVLOGICAL: Final = 1
COPYDATA: Final = 2
PGCOPY: Final = 3
WALSENDER: Final = 4
LENGTH: Final = 8
_HEADER: Final = 4
_COUNTED: Final = 8
"""Where the numbers begin in the code, each of four bits."""

FRAMING_CODES: Final = {
    Framing.RAW: RAW,
    Framing.RECVLOGICAL: RECVLOGICAL,
    Framing.COPYDATA: COPYDATA,
    Framing.PGCOPY: PGCOPY,
    Framing.WALSENDER: WALSENDER,
    **{
        framing: LENGTH | field.is_little | field.header << _HEADER | field.counted << _COUNTED
        for framing in Framing
        if (field := framing.length_field) is not None
    },
}

KEEPALIVE_AT: Final = -2
NO_FRAME: Final = -1

_XLOGDATA_SIZE: Final = 25
_KEEPALIVE_SIZE: Final = 18
_MOST: Final = 0x7FFFFFFF


@helper
def header_size(framing):
    """Return the size of the header in front of each message, in a framing with lengths."""
    return framing >> _HEADER & 15


@helper
def length_at(base, p, framing):
    """Read how many bytes follow the header at p; what is no length comes to less than 1 or more than there can be."""
    if framing & 1:
        value = load_byte(base + p) | load_byte(base + p + 1) << 8
        value |= load_byte(base + p + 2) << 16 | load_byte(base + p + 3) << 24
    else:
        value = load_big_32(base + p)
    return value - (framing >> _COUNTED & 15)


@helper
def copy_row_head(base, p):
    """Return how many bytes stand in front of the message of the pgcopy row at p, by its fields; 0 if it is none."""
    fields = load_big_16(base + p)
    if fields == 3:
        return np.int64(26)
    if fields == 2:
        return np.int64(18)
    return np.int64(6) if fields == 1 else np.int64(0)


@helper
def copy_row_fits(base, p, head):
    """Return whether the fields of a pgcopy row in front of its message have the sizes that they must have."""
    if head == 6:
        return True
    return load_big_32(base + p + 2) == 8 and (head == 18 or load_big_32(base + p + 14) == 4)


@helper
def _plausible_sent(base, p, end, time):
    """Return whether an LSN and a time may stand here, as far as the bytes go."""
    if p < end and load_byte(base + p) != 0:
        return False
    return time + 8 > end or 0 <= load_big_64(base + time) < 6_000_000_000_000_000


@helper
def _sent_at(base, p, end):
    """Return where the message of what a walsender has sent at p begins; `KEEPALIVE_AT`, or `NO_FRAME`."""
    kind = load_byte(base + p)
    if kind == 119:
        if p + 9 < end and load_byte(base + p + 9) != 0:
            return np.int64(NO_FRAME)
        return p + _XLOGDATA_SIZE if _plausible_sent(base, p + 1, end, p + 17) else np.int64(NO_FRAME)
    if kind == 107:
        asks = p + 17 < end and load_byte(base + p + 17) > 1
        return np.int64(NO_FRAME if asks or not _plausible_sent(base, p + 1, end, p + 9) else KEEPALIVE_AT)
    return np.int64(NO_FRAME)


@helper
def size_fits(tag, size):
    """Return whether a message may have this size; of most it hangs on what they hold."""
    if tag == 66:  # B
        return size == 21
    if tag == 67:  # C
        return size == 26
    if tag == 83:  # S
        return size == 6
    if tag == 65:  # A, with or without an LSN and a time
        return size == 9 or size == 25
    if tag == 98 or tag == 80 or tag == 75 or tag == 114:  # b P K r, with a gid
        return 30 <= size <= 300
    return 8 < size <= _MOST


@helper
def _may_be_length(base, p, end, framing):
    """Return whether a length may begin with the bytes from p to the end, which may be a part of it.

    It is that of a session's first message; no logical message is expected to be longer than 1 kB.
    """
    for i in range(4):
        if p + i < end:
            place = 3 - i if framing & 1 else i
            if load_byte(base + p + i) > (255 if place == 3 else 3 if place == 2 else 0):
                return False
    return True


@helper
def message_at(base, p, end, framing):
    """Return where the message of a frame at p would begin: `end` or more, where the bytes are too few to tell.

    `KEEPALIVE_AT` and `NO_FRAME` as they say.  Not for the first three framings.
    """
    if framing == PGCOPY:
        head = copy_row_head(base, p) if p + 26 <= end else np.int64(0)
        return p + head if head and copy_row_fits(base, p, head) else np.int64(NO_FRAME)
    if framing == WALSENDER:
        return _sent_at(base, p, end)
    a = p + header_size(framing)
    if a >= end:
        is_short = a == end and length_at(base, p, framing) < 6
        return end if _may_be_length(base, p, end, framing) and not is_short else np.int64(NO_FRAME)
    size = length_at(base, p, framing)
    tag = load_byte(base + a)
    if tag == 107:
        return _sent_at(base, a, end) if size == _KEEPALIVE_SIZE else np.int64(NO_FRAME)
    if tag == 119:
        a = _sent_at(base, a, end)
        size -= _XLOGDATA_SIZE
        if a < 0 or a >= end:
            return a if size > 0 else np.int64(NO_FRAME)
        tag = load_byte(base + a)
    return a if size_fits(tag, size) else np.int64(NO_FRAME)


GO_ON: Final = -1
"""Nothing is in the way: the walk has no reason to return."""
KEEPALIVE: Final = -2
"""The frame has no message, but a walsender's keepalive: the walk steps over it."""

DONE: Final = 0
TILE: Final = 1
"""The tile is walked, or its arrays are full."""
INCOMPLETE: Final = 2
"""The bytes end inside of the message at ``state[POS]``."""
EVENT: Final = 3
"""A message for Python stands at ``state[MESSAGE]``, up to ``state[LIMIT]`` at most."""
NEW_RELATION: Final = 4
"""A row names the relation ``state[ARGUMENT]``, which has no slot."""
HEAD_COMMIT: Final = 5
"""The Commit of a transaction whose Begin lies before the bytes; its place is ``state[MESSAGE]``."""
RUNS: Final = 6
"""The arrays that count a streamed block's rows by xid are full."""
BAD_TUPLE_TAG: Final = 11
BAD_CELL: Final = 12
BAD_LENGTH: Final = 13
BAD_COLUMN_COUNT: Final = 14
BAD_FRAME: Final = 15
OVERRUN: Final = 16
UNDERRUN: Final = 17
NO_NEWLINE: Final = 18
OUTSIDE_TRANSACTION: Final = 19
BEGIN_INSIDE: Final = 20
COMMIT_MISMATCH: Final = 21
NOT_AFTER_LAST: Final = 22
NUL_IN_TEXT: Final = 23
NOT_PLACED: Final = 24
"""The row at ``state[POS]`` cannot be placed yet; the placer knows why."""
NO_TIME: Final = 25
BEHIND: Final = 26
"""The transaction that begins at ``state[POS]`` commits behind where the walk is to stop."""

HAS_NUL: Final = 1
HAS_HIGH: Final = 2
"""What is found in the bytes of texts: a NUL, and one that is none of ASCII."""


EARLIEST: Final = FIRST_MICRO - POSTGRES_EPOCH_UNIX_MICROS
LATEST: Final = LAST_MICRO - POSTGRES_EPOCH_UNIX_MICROS
"""The first and the last time of the years 1 to 9999, which a timestamp can hold: microseconds since 2000."""


@helper
def outcome_of_begin(begin, state):
    """Return what a whole Begin leads to: `GO_ON`, or why the walk stops in front of it; keep the greatest commit time.

    `begin` is the address of its tag, `state` that of the walk's state.
    """
    lsn, time = load_big_64(begin + 1), load_big_64(begin + 9)
    if lsn <= get(state, words.LAST_LSN):
        return np.int64(NOT_AFTER_LAST)
    if time < EARLIEST or time > LATEST:
        return np.int64(NO_TIME)
    if lsn > get(state, words.STOP_LSN) or time > get(state, words.STOP_TIME):
        return np.int64(BEHIND)
    if time > get(state, words.TOP_TIME):
        put(state, words.TOP_TIME, time)
    return np.int64(GO_ON)


# The walk's frames


class Payload(NamedTuple):
    """Where the message of a frame lies: from its tag on, up to the frame's end (or the buffer's, without a length).

    The outcome is `GO_ON`, `KEEPALIVE`, or why there is no message here.
    """

    outcome: int
    start: int
    end: int


@helper
def _payload(outcome, start, end):
    return Payload(np.int64(outcome), np.int64(start), np.int64(end))


@helper
def unwrap(base, pos, end, framing):
    """Unwrap the frame at `pos`: return its `Payload`."""
    if framing <= RECVLOGICAL:
        return _payload(GO_ON, pos, end)
    if framing == COPYDATA:
        return _unwrap_copydata(base, pos, end)
    if framing == PGCOPY:
        return _unwrap_copy_row(base, pos, end)
    return _unwrap_sent(base, pos, end, framing)


@helper
def _unwrap_copydata(base, pos, end):
    if load_byte(base + pos) != 100:  # d
        return _payload(BAD_FRAME, pos, end)
    if pos + 6 > end:
        return _payload(INCOMPLETE, pos, end)
    # CopyData's length counts itself: 4 bytes, then XLogData's header and at least a tag, or a keepalive.
    size = load_big_32(base + pos + 1)
    tag = load_byte(base + pos + 5)
    is_keepalive = tag == 107
    fits = size == 4 + _KEEPALIVE_SIZE if is_keepalive else tag == 119 and 4 + _XLOGDATA_SIZE < size <= _MOST
    if not fits:
        return _payload(BAD_FRAME, pos, end)
    behind = pos + 1 + size
    if behind > end:
        return _payload(INCOMPLETE, pos, end)
    if is_keepalive:
        asks_for_reply = load_byte(base + pos + 22)
        return _payload(BAD_FRAME if asks_for_reply > 1 else KEEPALIVE, pos, behind)
    return _payload(GO_ON, pos + 5 + _XLOGDATA_SIZE, behind)


@helper
def _unwrap_copy_row(base, pos, end):
    if load_byte(base + pos) == 80:  # the P of PGCOPY: a header, at the start or where files were concatenated
        return _payload(EVENT, pos, end)
    if pos + 2 > end:
        return _payload(INCOMPLETE, pos, end)
    if load_big_16(base + pos) == 0xFFFF:  # COPY BINARY's trailer; Python steps over headers and trailers
        return _payload(EVENT, pos, end)
    head = copy_row_head(base, pos)
    if head == 0:
        return _payload(BAD_FRAME, pos, end)
    message = pos + head
    if message > end:
        return _payload(INCOMPLETE, pos, end)
    size = load_big_32(base + message - 4)
    if not copy_row_fits(base, pos, head) or size > _MOST or size < 1:
        return _payload(BAD_FRAME, pos, end)
    return _payload(GO_ON if message + size <= end else INCOMPLETE, message, message + size)


@helper
def _unwrap_sent(base, pos, end, framing):
    """Unwrap what a walsender has sent, behind a length or alone; behind a length there may be a bare message, too."""
    start = pos
    behind = end
    if framing >= LENGTH:
        start = pos + header_size(framing)
        if start >= end:
            return _payload(INCOMPLETE, pos, end)
        size = length_at(base, pos, framing)
        if size < 1 or size > _MOST:
            return _payload(BAD_FRAME, pos, end)
        behind = start + size
        if behind > end:
            return _payload(INCOMPLETE, pos, end)
    # Behind a length all bytes are there: more of them would not make it fit.
    too_short = INCOMPLETE if framing == WALSENDER else BAD_FRAME
    tag = load_byte(base + start)
    if tag == 107:  # k
        after = start + _KEEPALIVE_SIZE
        if after > behind:
            return _payload(too_short, pos, end)
        asks_for_reply = load_byte(base + after - 1)
        is_bad = asks_for_reply > 1 or (framing >= LENGTH and after != behind)
        return _payload(BAD_FRAME if is_bad else KEEPALIVE, pos, after)
    if tag == 119:  # w
        if start + _XLOGDATA_SIZE + 1 > behind:
            return _payload(too_short, pos, end)
        return _payload(GO_ON, start + _XLOGDATA_SIZE, behind)
    return _payload(BAD_FRAME if framing == WALSENDER else GO_ON, start, behind)


@helper
def is_bounded(framing):
    """Return whether each message has a length: its payload is there as a whole, and more bytes cannot complete it."""
    return framing >= COPYDATA and framing != WALSENDER


@helper
def frame_end(base, cursor, payload_end, framing, may_lack_newline):
    """Return where the frame ends whose message ends at `cursor`, or minus an outcome where the message does not fit.

    `payload_end` is the end of the buffer, where messages have no length; `may_lack_newline`: a session's last one may.
    """
    if framing == RECVLOGICAL:
        if cursor < payload_end:
            return cursor + 1 if load_byte(base + cursor) == 10 else np.int64(-NO_NEWLINE)
        # A consumer that ends between a Commit and its newline has all of the transaction.
        return cursor if may_lack_newline else np.int64(-INCOMPLETE)
    if is_bounded(framing) and cursor != payload_end:
        return np.int64(-UNDERRUN)
    return cursor
