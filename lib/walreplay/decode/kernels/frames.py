"""Where messages lie in the framings: the kernels' share of `walreplay.protocol.framing`.

A framing is known by its code (`FRAMING_CODES`), which has the fields of its `FrameLayout` as bits.  Kernels read a
frame in `message_at` alone, and leave it in `frame_end`.

The reasons for which a walk returns come first.  A new one that is an error is also a line of
`decode.walk_state.PROBLEMS`.  `outcome_of_begin` checks a Begin's commit LSN and commit time for the walk.
"""
# numba has no types.
# mypy: disable-error-code="no-untyped-def, no-untyped-call"

from __future__ import annotations

from enum import IntEnum
from typing import Final, NamedTuple

import numpy as np

from walreplay.decode.compile.kernel import helper, kernel
from walreplay.decode.compile.parameters import BYTES, INT64
from walreplay.decode.kernels import walk_words as words
from walreplay.decode.kernels.base import (
    address_of,
    load_big_16,
    load_big_32,
    load_big_64,
    load_byte,
    load_int32,
)
from walreplay.decode.kernels.programs import get, put
from walreplay.lsn import POSTGRES_EPOCH_UNIX_MICROS
from walreplay.protocol.framing import (
    KEEPALIVE,
    LENGTH_SIZE,
    LONGEST_MESSAGE,
    XLOGDATA,
    FrameLayout,
    Framing,
    size_fits,
)
from walreplay.types.datetime import FIRST_MICRO, LAST_MICRO


class Outcome(IntEnum):
    """Why a walk returns; kernels have the numbers."""

    KEEPALIVE = -2  # The frame has no message, but a walsender's keepalive: the walk steps over it
    GO_ON = -1  # Nothing is in the way: the walk has no reason to return
    DONE = 0
    TILE = 1  # The tile is walked, or its arrays are full
    INCOMPLETE = 2  # The bytes end inside of the message at ``state[POS]``
    EVENT = 3  # A message for Python stands at ``state[MESSAGE]``, up to ``state[LIMIT]`` at most
    NEW_RELATION = 4  # A row names an oid, ``state[ARGUMENT]``, without a slot, or of which Python watches the next row
    HEAD_COMMIT = 5  # The Commit at ``state[MESSAGE]`` is of a transaction whose Begin lies before the bytes
    RUNS = 6  # The arrays that count a streamed block's rows by xid are full
    BAD_TUPLE_TAG = 11
    BAD_CELL = 12
    BAD_LENGTH = 13
    BAD_COLUMN_COUNT = 14
    BAD_FRAME = 15
    OVERRUN = 16
    UNDERRUN = 17
    NO_TRAILER = 18
    OUTSIDE_TRANSACTION = 19
    BEGIN_INSIDE = 20
    COMMIT_MISMATCH = 21
    NOT_AFTER_LAST = 22
    NUL_IN_TEXT = 23
    NOT_PLACED = 24  # The row at ``state[POS]`` cannot be placed yet; the placer knows why
    NO_TIME = 25
    BEHIND = 26  # The transaction that begins at ``state[POS]`` commits behind where the walk is to stop


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
        return np.int64(Outcome.NOT_AFTER_LAST)
    if time < EARLIEST or time > LATEST:
        return np.int64(Outcome.NO_TIME)
    if lsn > get(state, words.STOP_LSN) or time > get(state, words.STOP_TIME):
        return np.int64(Outcome.BEHIND)
    if time > get(state, words.TOP_TIME):
        put(state, words.TOP_TIME, time)
    return np.int64(Outcome.GO_ON)


# Frames

RAW: Final = 0
SIZED: Final = 1
LITTLE: Final = 2
ROWS: Final = 4
SENT: Final = 8
BARE: Final = 16
_COUNTED: Final = 8
_MARK: Final = 16
_TRAILER: Final = 24
"""Where the numbers begin in a framing's code, each of eight bits; those before them are one bit each."""


def code_of(layout: FrameLayout) -> int:
    """Return the code of a framing with this layout."""
    bits = SIZED * (layout.order != "") | LITTLE * (layout.order == "little") | ROWS * layout.is_row
    # A message that stands alone is only told apart where something else may stand.
    bits |= (SENT | BARE * layout.is_bare) * layout.is_sent | layout.counted << _COUNTED
    return bits | int.from_bytes(layout.mark, "big") << _MARK | int.from_bytes(layout.trailer, "big") << _TRAILER


FRAMING_CODES: Final = {framing: code_of(framing.layout) for framing in Framing}

_XLOGDATA_SIZE: Final = XLOGDATA.size
_KEEPALIVE_SIZE: Final = KEEPALIVE.size


class Payload(NamedTuple):
    """Where the message of a frame lies: from its tag on, up to its end (or the buffer's, without a length).

    The `Outcome` is `GO_ON`, `KEEPALIVE`, or why there is no message here.  Of a frame that is `INCOMPLETE`, the start
    is the buffer's end or more if its header is cut; of a `KEEPALIVE`, both are where that ends; of a `BAD_FRAME`, the
    frame's start.
    """

    outcome: int
    start: int
    end: int


@helper
def _payload(outcome, start, end):
    return Payload(np.int64(outcome), np.int64(start), np.int64(end))


@helper
def _bad_frame(pos):
    return _payload(Outcome.BAD_FRAME, pos, pos)


@helper
def message_at(base, pos, end, framing):
    """Return the `Payload` of the frame at `pos`, in a buffer that ends at `end`.

    What needs the whole frame is checked here.  Searches call it at every offset, by `likely_message_at`: checks that
    read the message do not belong into that, but in here, where the walk and whoever reads on has a whole frame.
    """
    if framing & (SIZED | SENT) == 0:
        return _payload(Outcome.GO_ON, pos, end)
    start, size = pos, np.int64(0)
    behind = max(end, pos + _XLOGDATA_SIZE + 1)  # without a length; behind the header is a tag at least
    if framing & SIZED:
        if framing & ROWS:
            head = _row_head(base, pos, end)
            if head == 0:
                return _mark_of_copy(base, pos, end)
            fits = _row_fits(base, pos, end, head)
        else:
            head = header_size(framing)
            fits = mark_of(framing) == 0 or load_byte(base + pos) == mark_of(framing)
        if not fits:
            return _bad_frame(pos)
        start = pos + head
        if start >= end:
            may_be = least_length(base, start - LENGTH_SIZE, end, framing) <= LONGEST_MESSAGE
            return _payload(Outcome.INCOMPLETE, start, end) if may_be else _bad_frame(pos)
        size = _length_at(base, start - LENGTH_SIZE, framing)
        behind = start + size
        if size < 1 or size > LONGEST_MESSAGE:
            return _bad_frame(pos)
    if framing & SENT:
        tag = load_byte(base + start)
        if tag == 119:  # w
            start += _XLOGDATA_SIZE
            if start >= behind:
                return _bad_frame(pos)
        elif tag == 107:  # k
            return _keepalive(base, pos, start, behind, end, framing)
        elif framing & BARE == 0:
            return _bad_frame(pos)
    if behind + trailer_size(framing) > end:
        return _payload(Outcome.INCOMPLETE, start, behind)
    return _payload(Outcome.GO_ON, start, behind)


@helper
def _keepalive(base, pos, start, behind, end, framing):
    after = start + _KEEPALIVE_SIZE
    is_whole = after + trailer_size(framing) <= end
    if (framing & SIZED and after != behind) or (is_whole and load_byte(base + after - 1) > 1):  # whether to reply
        return _bad_frame(pos)
    return _payload(Outcome.KEEPALIVE if is_whole else Outcome.INCOMPLETE, after, after)


@helper
def header_size(framing):
    """Return how many bytes of a frame end with the length of its message, where that is no row of COPY."""
    return np.int64(LENGTH_SIZE + (mark_of(framing) != 0))


@helper
def _row_head(base, pos, end):
    """Return how many bytes of a row of COPY end with the length of its message, by its fields; 0 if it is no row."""
    fields = load_big_16(base + pos) if pos + 2 <= end else np.int64(3 if load_byte(base + pos) == 0 else 0)
    # The last field is the message, behind a length of 4 bytes; an LSN (4 + 8) and an xid (4 + 4) may come before it.
    if fields == 3:
        return np.int64(26)
    if fields == 2:
        return np.int64(18)
    return np.int64(6) if fields == 1 else np.int64(0)


@helper
def _row_fits(base, pos, end, head):
    """Return whether the fields in front of a row's message have the sizes that they must have, as far as bytes go."""
    if pos + head <= end:
        is_sized = head == 6 or load_big_32(base + pos + 2) == 8
        return is_sized and (head < 26 or load_big_32(base + pos + 14) == 4)
    for i in range(2, min(head - LENGTH_SIZE, end - pos)):
        if (i < 6 or 14 <= i < 18) and load_byte(base + pos + i) != (8 if i == 5 else 4 if i == 17 else 0):
            return False
    return True


@helper
def _mark_of_copy(base, pos, end):
    """Return the `Payload` of what is no row of COPY: Python steps over headers and trailers."""
    if load_byte(base + pos) == 80:  # the P of PGCOPY: a header, at the start or where files were concatenated
        return _payload(Outcome.EVENT, pos, end)
    if pos + 2 > end and load_byte(base + pos) == 0xFF:
        return _payload(Outcome.INCOMPLETE, end, end)
    is_trailer = pos + 2 <= end and load_big_16(base + pos) == 0xFFFF
    return _payload(Outcome.EVENT, pos, end) if is_trailer else _bad_frame(pos)


@helper
def _length_at(base, offset, framing):
    """Read how many bytes follow the length at `offset`."""
    length = load_int32(base + offset) & 0xFFFFFFFF if framing & LITTLE else load_big_32(base + offset)
    return length - (framing >> _COUNTED & 255)


@helper
def least_length(base, offset, end, framing):
    """Do so as far as the bytes go, of which some may be missing: it is so many at least."""
    length = np.int64(0)
    for i in range(min(LENGTH_SIZE, end - offset)):
        length |= load_byte(base + offset + i) << (8 * i if framing & LITTLE else 24 - 8 * i)
    return length - (framing >> _COUNTED & 255)


@helper
def mark_of(framing):
    """Return the byte in front of the length, 0 if there is none."""
    return framing >> _MARK & 255


@helper
def has_bare_length(framing):
    """Return whether frames begin with a length, and so with almost any bytes."""
    return framing & (SIZED | ROWS) == SIZED and mark_of(framing) == 0


@helper
def trailer_of(framing):
    """Return the byte behind each message, 0 if there is none."""
    return framing >> _TRAILER


@helper
def trailer_size(framing):
    """Return how many bytes stand behind each message."""
    return np.int64(trailer_of(framing) != 0)


@helper
def frame_end(base, cursor, payload_end, framing, may_lack_trailer):
    """Return where the frame ends whose message ends at `cursor`, or minus an outcome where the message does not fit.

    `payload_end` is the end of the buffer, where messages have no length; `may_lack_trailer`: a session's last one may.
    """
    trailer = trailer_of(framing)
    if framing & SIZED:
        if cursor != payload_end:
            return np.int64(-Outcome.UNDERRUN)
    elif trailer != 0 and cursor >= payload_end:
        # A consumer that ends between a Commit and its newline has all of the transaction.
        return cursor if may_lack_trailer else np.int64(-Outcome.INCOMPLETE)
    if trailer != 0 and load_byte(base + cursor) != trailer:
        return np.int64(-Outcome.NO_TRAILER)
    return cursor + trailer_size(framing)


@kernel(BYTES, INT64, INT64, INT64, INT64)
def end_of_frame(buf, cursor, payload_end, framing, may_lack_trailer):
    """Return `frame_end`."""
    return frame_end(address_of(buf), cursor, payload_end, framing, may_lack_trailer)


# What tells frames from other bytes, where none need begin

LAST_LIKELY_TIME: Final = 6_000_000_000_000_000
_size_fits: Final = helper(size_fits)


@helper
def likely_message_at(base, pos, end, framing):
    """Return `message_at`, but `BAD_FRAME` where the message's size, or a walsender's LSNs and time, cannot be."""
    payload = message_at(base, pos, end, framing)
    is_likely = payload.outcome != Outcome.BAD_FRAME and _may_be_sent(base, pos, end, framing)
    if is_likely and has_bare_length(framing) and payload.start < min(end, payload.end):
        is_likely = _size_fits(load_byte(base + payload.start), payload.end - payload.start)
    return payload if is_likely else _bad_frame(pos)


@helper
def _may_be_sent(base, pos, end, framing):
    """Return whether a walsender may have sent what stands in a frame, if it looks so, as far as the bytes go."""
    if framing & SENT == 0 or mark_of(framing) != 0:
        return True
    offset = pos + header_size(framing) if framing & SIZED else pos
    tag = load_byte(base + offset) if offset < end else np.int64(0)
    if tag != 119 and tag != 107:  # w k
        return True
    # An LSN beyond 2 ** 56 is not to be expected; XLogData has two of them, a keepalive one.
    if offset + 1 < end and load_byte(base + offset + 1) != 0:
        return False
    if tag == 119 and offset + 9 < end and load_byte(base + offset + 9) != 0:
        return False
    return may_be_time(base, offset + (17 if tag == 119 else 9), end)


@helper
def may_be_time(base, offset, end):
    """Return whether a time between 2000 and 2190 may stand here, as far as the bytes go."""
    return offset + 8 > end or 0 <= load_big_64(base + offset) < LAST_LIKELY_TIME
