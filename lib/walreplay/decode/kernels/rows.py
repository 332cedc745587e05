"""The kernels of rows that lie one behind the other with nothing unusual about them: most of what there is.

Most rows come with others of their transaction.  The two loops of this module take such, and nothing else; they keep
little in mind.  What is unusual is left to the walk, which tells what it is: another message, damage, two tuples in
one, a relation that is not known, no room.
"""

from __future__ import annotations

import numpy as np

from walreplay.decode.compile.kernel import helper
from walreplay.decode.kernels.base import (
    load_big_32,
    load_byte,
    load_int32,
    load_int64,
    store_64,
)
from walreplay.decode.kernels.frames import (
    WALSENDER,
    row_frame,
)
from walreplay.decode.kernels.place import forget_tried, take_row
from walreplay.decode.kernels.programs import (
    LIMIT,
    MISSED,
    MISSES,
    MOST_COLUMNS,
    ROWS,
    get,
)
from walreplay.decode.kernels.tuples import BEHIND, LONGEST, digest_of, place_tuple, skip_tuple


@helper
def frame_at(base, pos, end, framing):  # type: ignore[no-untyped-def]
    """Give where a row's message begins and how far it may go; -1 where there is none, or only a part of it."""
    if framing == 2:
        if pos + 30 > end or load_byte(base + pos) != 100 or load_byte(base + pos + 5) != 119:
            return np.int64(-1), end
        a = pos + 30
        lim = pos + 1 + load_big_32(base + pos + 1)
    elif framing <= 1:
        a = pos
        lim = end
    else:
        a, lim = row_frame(base, pos, end, framing)
    # The least that a row has: a tag, an oid, a letter and the number of columns.
    if lim > end or a + 8 > lim or a < BEHIND:
        return np.int64(-1), end
    return a, lim


@helper
def has_one_tuple(base, a, p):  # type: ignore[no-untyped-def]
    """Say whether the message is an insert, a delete, or an update that brings no old row; `p` is behind its oid."""
    tag = load_byte(base + a)
    part = load_byte(base + p)
    if tag == 85 or tag == 73:  # U I
        return part == 78
    return tag == 68 and (part == 75 or part == 79)  # D, K O


@helper
def slot_of(known_oids, known_slots, mask, oid):  # type: ignore[no-untyped-def]
    """Look an oid's newest slot up; -1 where it has none."""
    h = (oid * 2654435761) & mask
    found_oid = load_int64(known_oids + 8 * h)
    while found_oid != oid and found_oid != -1:
        h = (h + 1) & mask
        found_oid = load_int64(known_oids + 8 * h)
    return load_int32(known_slots + 4 * h) if found_oid != -1 else np.int64(-1)


@helper
def after_row(base, p, lim, end, framing):  # type: ignore[no-untyped-def]
    """Give what follows a row that ends at `p`, or -1 where its message does not end so."""
    if framing == 1:
        return p + 1 if p < end and load_byte(base + p) == 10 else np.int64(-1)
    return p if framing == 0 or framing == WALSENDER or p == lim else np.int64(-1)


@helper
def count_row(base, a, counts, slot):  # type: ignore[no-untyped-def]
    """Count the row whose message is at `a` for its slot: an insert, an update or a delete."""
    tag = load_byte(base + a)
    counted = counts + 32 * slot + (0 if tag == 73 else 8 if tag == 85 else 16)
    store_64(counted, load_int64(counted) + 1)


@helper
def skip_rows_ahead(  # type: ignore[no-untyped-def]
    base, pos, stop, end, framing, lead, xid, known_oids, known_slots, mask, columns_of, counts, previous
):
    """Walk over rows that lie one behind the other; ``lead`` is 4 where each brings an xid, which has to be `xid`.

    Gives where it ends, the place of the last row, and how many they are.
    """
    last_oid = np.int64(-1)
    slot = np.int64(0)
    expected = np.int64(0)
    count = np.int64(0)
    bound = min(end, pos + LONGEST)
    while pos < stop:
        a, lim = frame_at(base, pos, end, framing)
        p = a + 1 + lead
        if a < 0 or p + 7 > lim or not has_one_tuple(base, a, p + 4):
            break
        if lead and load_big_32(base + a + 1) != xid:
            break
        oid = load_big_32(base + p)
        if oid != last_oid:
            slot = slot_of(known_oids, known_slots, mask, oid)
            if slot < 0:
                break
            last_oid = oid
            expected = load_int64(columns_of + 8 * slot)
        p = skip_tuple(base, p + 5, bound, expected)
        if p < 0:
            break
        following = after_row(base, p, lim, end, framing)
        if following < 0:
            break
        count_row(base, a, counts, slot)
        count += 1
        previous = pos
        pos = following
    return pos, previous, count


@helper
def place_rows_ahead(  # type: ignore[no-untyped-def]
    base,
    pos,
    stop,
    end,
    framing,
    lead,
    known_oids,
    known_slots,
    mask,
    columns_of,
    counts,
    programs,
    touched,
    misses,
    marks,
    last,
    offsets,
    lengths,
    at,
    max_cells,
    lsn,
    commit_ts,
    xid,
    ordinal,
    recording,
    digest,
    previous,
    unchanged,
    origin,
):
    """Place rows that lie one behind the other; `lead` bytes stand in front of each row's oid, but for its tag.

    `origin` is the number of their transaction's, in the upper half of a word (`walreplay.decode.row_places`).

    Gives where it ends, the place of the last row, the next cell and ordinal, and the digest.
    """
    last_oid = np.int64(-1)
    slot = np.int64(0)
    program = np.int64(0)
    expected = np.int64(0)
    bound = min(end, pos + LONGEST)
    while pos < stop and at <= max_cells:
        a, lim = frame_at(base, pos, end, framing)
        p = a + 1 + lead
        if a < 0 or p + 7 > lim or not has_one_tuple(base, a, p + 4):
            break
        oid = load_big_32(base + p)
        if oid != last_oid:
            slot = slot_of(known_oids, known_slots, mask, oid)
            if slot < 0:
                break
            last_oid = oid
            expected = load_int64(columns_of + 8 * slot)
            program = load_int64(programs + 8 * slot)
        if program <= 0:
            break
        row = get(program, ROWS)
        if row >= get(program, LIMIT) or get(marks, MISSED) > MISSES - MOST_COLUMNS:
            break
        row_at = p
        p = place_tuple(
            base,
            p + 5,
            bound,
            last,
            offsets + 4 * at,
            lengths + 4 * at,
            expected,
            program,
            row,
            at,
            misses,
            marks,
            unchanged,
        )
        if p < 0:
            break
        following = after_row(base, p, lim, end, framing)
        if following < 0:
            break
        if recording:
            digest ^= digest_of(base, row_at, p, ordinal)
        tag = load_byte(base + a)
        take_row(program, slot, touched, marks, tag, lsn, commit_ts, xid, ordinal, at, origin | a)
        count_row(base, a, counts, slot)
        at += expected
        ordinal += 1
        previous = pos
        pos = following
    forget_tried(marks)
    return pos, previous, at, ordinal, digest
