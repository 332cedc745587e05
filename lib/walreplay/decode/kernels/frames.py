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
def length_at(base, offset, framing):
    """Read how many bytes follow the header at `offset`; below 1 or above the limit if there is no length."""
    if framing & 1:
        length = load_byte(base + offset) | load_byte(base + offset + 1) << 8
        length |= load_byte(base + offset + 2) << 16 | load_byte(base + offset + 3) << 24
    else:
        length = load_big_32(base + offset)
    return length - (framing >> _COUNTED & 15)


@helper
def copy_row_head(base, pos):
    """Return how many bytes precede the message of the pgcopy row at `pos`, by its fields; 0 if there is none."""
    fields = load_big_16(base + pos)
    # The last field is the message, behind a length of 4 bytes; an LSN (4 + 8) and an xid (4 + 4) may come before it.
    if fields == 3:
        return np.int64(26)
    if fields == 2:
        return np.int64(18)
    return np.int64(6) if fields == 1 else np.int64(0)


@helper
def copy_row_fits(base, pos, head):
    """Return whether the fields of a pgcopy row in front of its message have the sizes that they must have."""
    if head == 6:
        return True
    return load_big_32(base + pos + 2) == 8 and (head == 18 or load_big_32(base + pos + 14) == 4)


@helper
def row_frame(base, pos, end, framing):
    """Return where a row's message begins and how far it may go, in a framing that is none of the first three.

    -1 where there is none, or only a part of it, or it is unusual: `unwrap` says what, but takes longer.
    """
    if pos + 26 > end:
        return np.int64(-1), end
    if framing == PGCOPY:
        head = copy_row_head(base, pos)
        if head == 0 or not copy_row_fits(base, pos, head):
            return np.int64(-1), end
        message = pos + head
        return message, message + load_big_32(base + message - 4)
    if framing == WALSENDER:
        return (pos + _XLOGDATA_SIZE if load_byte(base + pos) == 119 else np.int64(-1)), end
    message = pos + header_size(framing)
    payload_end = message + length_at(base, pos, framing)
    return (message + _XLOGDATA_SIZE if load_byte(base + message) == 119 else message), payload_end


@helper
def _plausible_sent(base, lsn_offset, end, time_offset):
    """Return whether an LSN and a time may stand here, as far as the bytes go."""
    if lsn_offset < end and load_byte(base + lsn_offset) != 0:  # an LSN beyond 2 ** 56 is not to be expected
        return False
    # Between 2000 and 2190.
    return time_offset + 8 > end or 0 <= load_big_64(base + time_offset) < 6_000_000_000_000_000


@helper
def _sent_at(base, offset, end):
    """Return where the message of what a walsender has sent begins; `KEEPALIVE_AT`, or `NO_FRAME`."""
    tag = load_byte(base + offset)
    if tag == 119:  # w, with the LSNs of the data and of the WAL's end, and a time
        if offset + 9 < end and load_byte(base + offset + 9) != 0:
            return np.int64(NO_FRAME)
        return offset + _XLOGDATA_SIZE if _plausible_sent(base, offset + 1, end, offset + 17) else np.int64(NO_FRAME)
    if tag == 107:  # k
        may_ask = offset + 17 >= end or load_byte(base + offset + 17) <= 1  # whether a reply is asked for
        is_keepalive = may_ask and _plausible_sent(base, offset + 1, end, offset + 9)
        return np.int64(KEEPALIVE_AT if is_keepalive else NO_FRAME)
    return np.int64(NO_FRAME)


@helper
def size_fits(tag, size):
    """Return whether a message may have this size; that of most depends on what they hold."""
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
def _may_be_length(base, offset, end, framing):
    """Return whether a length may begin with the bytes from an offset to the end, which may be a part of it.

    It is that of a session's first message; no logical message is expected to be longer than 1 kB.
    """
    for i in range(4):
        if offset + i < end:
            order = 3 - i if framing & 1 else i  # 0 is the highest byte
            if load_byte(base + offset + i) > (255 if order == 3 else 3 if order == 2 else 0):
                return False
    return True


@helper
def message_at(base, pos, end, framing):
    """Return where the message of a frame at `pos` would begin: `end` or more, where the bytes are too few to tell.

    `KEEPALIVE_AT` and `NO_FRAME` as they say.  Not for the first three framings.
    """
    if framing == PGCOPY:
        head = copy_row_head(base, pos) if pos + 26 <= end else np.int64(0)
        return pos + head if head and copy_row_fits(base, pos, head) else np.int64(NO_FRAME)
    if framing == WALSENDER:
        return _sent_at(base, pos, end)
    message = pos + header_size(framing)
    if message >= end:
        is_short = message == end and length_at(base, pos, framing) < 6  # no message is as short
        return end if _may_be_length(base, pos, end, framing) and not is_short else np.int64(NO_FRAME)
    size = length_at(base, pos, framing)
    tag = load_byte(base + message)
    if tag == 107:
        return _sent_at(base, message, end) if size == _KEEPALIVE_SIZE else np.int64(NO_FRAME)
    if tag == 119:
        message = _sent_at(base, message, end)
        size -= _XLOGDATA_SIZE
        if message < 0 or message >= end:
            return message if size > 0 else np.int64(NO_FRAME)
        tag = load_byte(base + message)
    return message if size_fits(tag, size) else np.int64(NO_FRAME)


GO_ON: Final = -1  # Nothing is in the way: the walk has no reason to return
KEEPALIVE: Final = -2  # The frame has no message, but a walsender's keepalive: the walk steps over it

DONE: Final = 0
TILE: Final = 1
"""The tile is walked, or its arrays are full."""
INCOMPLETE: Final = 2  # The bytes end inside of the message at ``state[POS]``
EVENT: Final = 3  # A message for Python stands at ``state[MESSAGE]``, up to ``state[LIMIT]`` at most
NEW_RELATION: Final = 4  # A row names the relation ``state[ARGUMENT]``, which has no slot
HEAD_COMMIT: Final = 5  # The Commit of a transaction whose Begin lies before the bytes; its place is ``state[MESSAGE]``
RUNS: Final = 6  # The arrays that count a streamed block's rows by xid are full
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
    head = copy_row_head(base, pos) if pos + 2 <= end else np.int64(0)
    if head == 0:  # Python steps over headers and trailers
        if load_byte(base + pos) == 80:  # the P of PGCOPY: a header, at the start or where files were concatenated
            return _payload(EVENT, pos, end)
        if pos + 2 > end:
            return _payload(INCOMPLETE, pos, end)
        is_trailer = load_big_16(base + pos) == 0xFFFF
        return _payload(EVENT if is_trailer else BAD_FRAME, pos, end)
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
