"""The kernels of the walk: messages, rows and cells one behind the other, and the digests of rows.

What goes in and out is described where it is made, in `wal2delta.decode.walk`: the state's words by their numbers
there (`POS` is ``st[0]``, and so on), and an `Outcome` as what comes back.

Three things can be made of the rows (`want`): nothing, arrays that say where they lie (`ARRAYS`), or values in their
columns (`COLUMNS`, by `wal2delta.decode.kernels.place`).
"""

from __future__ import annotations

from typing import Final

import numpy as np

from wal2delta.decode.compile.kernel import helper, kernel
from wal2delta.decode.compile.parameters import BYTES, INT64, given, out
from wal2delta.decode.kernels.base import (
    address_of,
    load_big_16,
    load_big_32,
    load_big_64,
    load_byte,
    load_int32,
    load_int64,
    nul_bits,
    store_8,
    store_32,
    store_64,
)
from wal2delta.decode.kernels.frames import (
    LENGTH,
    PGCOPY,
    WALSENDER,
    copy_row_fits,
    copy_row_head,
    length_at,
    row_frame,
)
from wal2delta.decode.kernels.place import forget_tried, may_place, note_before, note_miss, place_cells, take_row
from wal2delta.decode.kernels.programs import (
    COLUMN,
    DONE,
    HAS_UNCHANGED,
    HEAD,
    LEFT,
    LEFT_SLOT,
    LIMIT,
    MISSED,
    MISSED_VALUE,
    MISSES,
    MOST_COLUMNS,
    NO_PROGRAM,
    NO_ROOM,
    ROWS,
    get,
    put,
)
from wal2delta.decode.kernels.values import place_binary_form, place_null, place_text_form
from wal2delta.lsn import POSTGRES_EPOCH_UNIX_MICROS
from wal2delta.types.datetime import FIRST_MICRO, LAST_MICRO

EARLIEST: Final = FIRST_MICRO - POSTGRES_EPOCH_UNIX_MICROS
LATEST: Final = LAST_MICRO - POSTGRES_EPOCH_UNIX_MICROS
"""The first and the last time of the years 1 to 9999, which a timestamp can hold: microseconds since 2000."""

_LONGEST: Final = 0x3FFFFFFF
"""No value is longer."""
_BEHIND: Final = 32
"""So many bytes in front of a row may be read."""

ARRAYS: Final = 1
COLUMNS: Final = 2


@helper
def _has_nul(base, p, size):  # type: ignore[no-untyped-def]
    """Say whether a text value holds a NUL, which PostgreSQL's texts never do.

    Many bytes at a time; those in front of a short value, its length and what is before it, count as no NUL.
    """
    if p + size >= 32:
        return _has_nul_behind(base, p, size)
    found = False
    for i in range(p, p + size):
        found = found or load_byte(base + i) == 0
    return found


@helper
def _has_nul_behind(base, p, size):  # type: ignore[no-untyped-def]
    """Say the same where the value ends behind the first 32 bytes."""
    end = p + size
    last = nul_bits(base + end - 32)
    if size <= 32:
        return last >> (32 - size) != 0
    for i in range(p, end - 32, 32):
        last |= nul_bits(base + i)
    return last != 0


@helper
def _digest(base, p, end, ordinal):  # type: ignore[no-untyped-def]
    """Digest a row change and its place in the transaction; a transaction's digest is the exclusive or of its rows'.

    It can be made in parts, in any order, by whoever has the bytes.
    """
    h = (end - p) * 0x1E3779B97F4A7C15
    k = np.int64(0x2545F4914F6CDD1D)
    while p + 8 <= end:
        h += load_big_64(base + p) * k
        k += 0x1B873593CC9E2D50
        p += 8
    v = np.int64(0)
    while p < end:
        v = (v << 8) | load_byte(base + p)
        p += 1
    h += v * k
    h ^= h >> 31
    h = (h + ordinal) * 0x369DEA0F31A53F85
    h ^= h >> 29
    return h * 0x2127599BF4325C37


@helper
def _walk_tuple(base, p, lim, offset, length, want, expected, unchanged):  # type: ignore[no-untyped-def]
    """Walk one TupleData; give its end, or minus an outcome.

    What is found of its cells goes to the addresses ``offset`` and ``length``.
    """
    if p + 2 > lim:
        return -2
    columns = load_big_16(base + p)
    p += 2
    if expected >= 0 and columns != expected:
        return -14
    for i in range(columns):
        if p >= lim:
            return -2
        kind = load_byte(base + p)
        if kind == 116:  # t
            if p + 5 > lim:
                return -2
            size = load_big_32(base + p + 1)
            if size > 0x3FFFFFFF:
                return -13
            if want:
                store_32(offset + 4 * i, p + 5)
                store_32(length + 4 * i, size)
            p += 5 + size
            if p > lim:
                return -2
            if not want and _has_nul(base, p - size, size):
                return -23
        elif kind == 110:  # n
            if want:
                store_32(offset + 4 * i, p)
                store_32(length + 4 * i, -1)
            p += 1
        elif kind == 117:  # u
            if want:
                store_32(offset + 4 * i, p)
                store_32(length + 4 * i, -2)
                store_64(unchanged, load_int64(unchanged) + 1)
            p += 1
        elif kind == 98:  # b
            if p + 5 > lim:
                return -2
            size = load_big_32(base + p + 1)
            if size > 0x3FFFFFFF:
                return -13
            if want:
                store_32(offset + 4 * i, p + 5)
                store_32(length + 4 * i, -3 - size)
            p += 5 + size
            if p > lim:
                return -2
        else:
            return -12
    return p


@helper
def _skip_tuple(base, p, bound, expected):  # type: ignore[no-untyped-def]
    """Walk one TupleData; give its end, or below 0 where that fails.  Up to `bound` there are bytes."""
    columns = load_big_16(base + p)
    if columns != expected and expected >= 0:
        return -1
    p += 2
    for _ in range(columns):
        if p + 5 > bound:
            return -1
        kind = load_byte(base + p)
        if kind == 116:  # t
            size = load_big_32(base + p + 1)
            p += 5 + size
            if p > bound or _has_nul_behind(base, p - size, size):
                return -1
        elif kind == 110 or kind == 117:  # n u
            p += 1
        elif kind == 98:  # b
            p += 5 + load_big_32(base + p + 1)
            if p > bound:
                return -1
        else:
            return -1
    return p


@helper
def _place_tuple(  # type: ignore[no-untyped-def]
    base, p, bound, last, offset, length, expected, program, row, first, misses, marks, unchanged
):
    """Walk one TupleData and place its values in the columns' next row; give its end, or below 0 where that fails."""
    if load_big_16(base + p) != expected:
        return -1
    p += 2
    column = program + HEAD * 8
    for i in range(expected):
        if p + 5 > bound:
            return -1
        kind = load_byte(base + p)
        if kind == 116:  # t
            size = load_big_32(base + p + 1)
            start = p + 5
            p = start + size
            if p > bound:
                return -1
            store_32(offset + 4 * i, start)
            store_32(length + 4 * i, size)
            placed = place_text_form(base, last, column, row, start, size)
            if placed == MISSED_VALUE:
                note_miss(misses, marks, program, i, row, first)
            elif placed >= NO_ROOM:
                return -1
        elif kind == 110 or kind == 117:  # n u
            store_32(offset + 4 * i, p)
            store_32(length + 4 * i, -1 if kind == 110 else -2)
            place_null(column, row)
            if kind == 117:
                put(program, HAS_UNCHANGED, np.int64(1))
                store_64(unchanged, load_int64(unchanged) + 1)
            p += 1
        elif kind == 98:  # b
            size = load_big_32(base + p + 1)
            start = p + 5
            p = start + size
            if p > bound:
                return -1
            store_32(offset + 4 * i, start)
            store_32(length + 4 * i, -3 - size)
            placed = place_binary_form(base, last, column, row, start, size)
            if placed == MISSED_VALUE:
                note_miss(misses, marks, program, i, row, first)
            elif placed >= NO_ROOM:
                return -1
        else:
            return -1
        column += COLUMN * 8
    return p


@helper
def _frame(base, pos, end, framing):  # type: ignore[no-untyped-def]
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
    if lim > end or a + 8 > lim or a < _BEHIND:
        return np.int64(-1), end
    return a, lim


@helper
def _has_one_tuple(base, a, p):  # type: ignore[no-untyped-def]
    """Say whether the message is an insert, a delete, or an update that brings no old row; `p` is behind its oid."""
    tag = load_byte(base + a)
    part = load_byte(base + p)
    if tag == 85 or tag == 73:  # U I
        return part == 78
    return tag == 68 and (part == 75 or part == 79)  # D, K O


@helper
def _slot_of(known_oids, known_slots, mask, oid):  # type: ignore[no-untyped-def]
    """Look an oid's newest slot up; -1 where it has none."""
    h = (oid * 2654435761) & mask
    found_oid = load_int64(known_oids + 8 * h)
    while found_oid != oid and found_oid != -1:
        h = (h + 1) & mask
        found_oid = load_int64(known_oids + 8 * h)
    return np.int64(load_int32(known_slots + 4 * h)) if found_oid != -1 else np.int64(-1)


@helper
def _after_row(base, p, lim, end, framing):  # type: ignore[no-untyped-def]
    """Give what follows a row that ends at `p`, or -1 where its message does not end so."""
    if framing == 1:
        return p + 1 if p < end and load_byte(base + p) == 10 else np.int64(-1)
    return p if framing == 0 or framing == WALSENDER or p == lim else np.int64(-1)


@helper
def _count_row(base, a, counts, slot):  # type: ignore[no-untyped-def]
    tag = load_byte(base + a)
    counted = counts + 32 * slot + (0 if tag == 73 else 8 if tag == 85 else 16)
    store_64(counted, load_int64(counted) + 1)


# Most rows come with others of their transaction, and there is nothing unusual about them.  The two loops that follow
# take such, and nothing else; they keep little in mind.  What is unusual is left to the walk, which tells what it is:
# another message, damage, two tuples in one, a relation that is not known, no room.


@helper
def _skip_rows(  # type: ignore[no-untyped-def]
    base, pos, stop, end, framing, lead, xid, known_oids, known_slots, mask, columns_of, counts, previous
):
    """Walk over rows that lie one behind the other; ``lead`` is 4 where each brings an xid, which has to be `xid`.

    Gives where it ends, the place of the last row, and how many they are.
    """
    last_oid = np.int64(-1)
    slot = np.int64(0)
    expected = np.int64(0)
    count = np.int64(0)
    bound = min(end, pos + _LONGEST)
    while pos < stop:
        a, lim = _frame(base, pos, end, framing)
        p = a + 1 + lead
        if a < 0 or p + 7 > lim or not _has_one_tuple(base, a, p + 4):
            break
        if lead and load_big_32(base + a + 1) != xid:
            break
        oid = load_big_32(base + p)
        if oid != last_oid:
            slot = _slot_of(known_oids, known_slots, mask, oid)
            if slot < 0:
                break
            last_oid = oid
            expected = load_int64(columns_of + 8 * slot)
        p = _skip_tuple(base, p + 5, bound, expected)
        if p < 0:
            break
        following = _after_row(base, p, lim, end, framing)
        if following < 0:
            break
        _count_row(base, a, counts, slot)
        count += 1
        previous = pos
        pos = following
    return pos, previous, count


@helper
def _place_rows(  # type: ignore[no-untyped-def]
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
):
    """Place rows that lie one behind the other; `lead` bytes stand in front of each row's oid, but for its tag.

    Gives where it ends, the place of the last row, the next cell and ordinal, and the digest.
    """
    last_oid = np.int64(-1)
    slot = np.int64(0)
    program = np.int64(0)
    expected = np.int64(0)
    bound = min(end, pos + _LONGEST)
    while pos < stop and at <= max_cells:
        a, lim = _frame(base, pos, end, framing)
        p = a + 1 + lead
        if a < 0 or p + 7 > lim or not _has_one_tuple(base, a, p + 4):
            break
        oid = load_big_32(base + p)
        if oid != last_oid:
            slot = _slot_of(known_oids, known_slots, mask, oid)
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
        p = _place_tuple(
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
        following = _after_row(base, p, lim, end, framing)
        if following < 0:
            break
        if recording:
            digest ^= _digest(base, row_at, p, ordinal)
        take_row(program, slot, touched, marks, load_byte(base + a), lsn, commit_ts, xid, ordinal, at)
        _count_row(base, a, counts, slot)
        at += expected
        ordinal += 1
        previous = pos
        pos = following
    forget_tried(marks)
    return pos, previous, at, ordinal, digest


@kernel(BYTES, INT64, INT64, INT64)
def digest_row(buf, p, end, ordinal):  # type: ignore[no-untyped-def]
    """Digest a row change and its place in the transaction; see `_digest`."""
    return _digest(address_of(buf), p, end, ordinal)


@helper
def _walk_buffer(  # type: ignore[no-untyped-def]
    buf,
    end,
    tile_end,
    framing,
    want,
    st,
    hash_oids,
    hash_slots,
    slot_columns,
    slot_counts,
    offset,
    length,
    c_kind,
    c_slot,
    c_lsn,
    c_ts,
    c_xid,
    c_ordinal,
    c_new,
    c_old,
    aborted,
    r_xid,
    r_count,
    t_lsn,
    t_ts,
    t_xid,
    t_rows,
    t_digest,
    t_origin,
    t_at,
    programs,
    touched,
    misses,
    marks,
):
    base = address_of(buf)
    last = base + buf.size - 32
    unchanged = address_of(st) + 14 * 8
    program_of, touching, missing, marking = (
        address_of(programs),
        address_of(touched),
        address_of(misses),
        address_of(marks),
    )
    offsets, lengths = address_of(offset), address_of(length)
    kinds, slots, lsns, times = address_of(c_kind), address_of(c_slot), address_of(c_lsn), address_of(c_ts)
    xids, ordinals, news, olds = address_of(c_xid), address_of(c_ordinal), address_of(c_new), address_of(c_old)
    counts, columns_of = address_of(slot_counts), address_of(slot_columns)
    known_oids, known_slots = address_of(hash_oids), address_of(hash_slots)
    pos = st[0]
    # What is used for every message lies in registers: the compiler cannot know that no array overlaps the state.
    txn = st[2]
    lsn = st[3]
    commit_ts = st[4]
    txn_xid = st[5]
    ordinal = st[6]
    message = st[9]
    limit = st[10]
    transactions = st[12]
    messages = st[13]
    last_lsn = st[15]
    last_ts = st[16]
    begin_at = st[17]
    keepalives = st[18]
    first_lsn = st[19]
    first_ts = st[20]
    skip = st[21]
    high_lsn = st[22]
    resent = st[23]
    previous = st[24]
    run_count = st[25]
    record_count = st[27]
    rows = st[28]
    digest = st[29]
    origin = st[30]
    in_stream = st[1]
    changes = st[7]
    cells = st[8]
    max_changes = c_kind.shape[0]
    most_records = t_lsn.shape[0]
    max_cells = offset.shape[0] - 2 * 1664
    mask = hash_oids.shape[0] - 1
    last_oid = np.int64(-1)
    last_slot = np.int64(-1)
    expected = np.int64(-1)
    outcome = 0
    inside = False
    counting = in_stream != 0 and want == 0
    recording = st[26] != 0
    last_xid = np.int64(-1)
    dropped = False
    is_new_run = False
    program = np.int64(NO_PROGRAM)
    q = np.int64(0)
    while True:
        inside = False
        if pos >= end:
            outcome = 0
            break
        if pos >= tile_end or (
            want != 0
            and ((want == ARRAYS and changes >= max_changes) or cells > max_cells or record_count >= most_records)
        ):
            outcome = 1
            break
        if counting and run_count >= r_xid.shape[0]:
            outcome = 6
            break
        # The frame: where the message begins, and how far it may go.
        if framing <= 1:
            a = pos
            lim = end
        elif framing == 2:
            if load_byte(base + pos) != 100:
                outcome = 15
                break
            if pos + 6 > end:
                outcome = 2
                break
            size = load_big_32(base + pos + 1)
            kind = load_byte(base + pos + 5)
            if size > 0x7FFFFFFF or (kind == 119 and size < 4 + 25 + 1) or (kind == 107 and size != 4 + 18):
                outcome = 15
                break
            if kind != 119 and kind != 107:
                outcome = 15
                break
            if pos + 1 + size > end:
                outcome = 2
                break
            if kind == 107:
                if load_byte(base + pos + 22) > 1:  # whether a reply is asked for
                    outcome = 15
                    break
                previous = pos
                pos += 1 + size
                keepalives += 1
                continue
            a = pos + 30
            lim = pos + 1 + size
        elif framing == PGCOPY:
            if load_byte(base + pos) == 80:  # the P of PGCOPY: a header, at the start or where files were concatenated
                outcome = 3
                message = pos
                limit = end
                break
            if pos + 2 > end:
                outcome = 2
                break
            fields = load_big_16(base + pos)
            if fields == 0xFFFF:
                outcome = 3
                message = pos
                limit = end
                break
            head = copy_row_head(base, pos)
            if head == 0:
                outcome = 15
                break
            if pos + head > end:
                outcome = 2
                break
            size = load_big_32(base + pos + head - 4)
            if not copy_row_fits(base, pos, head) or size > 0x7FFFFFFF or size < 1:
                outcome = 15
                break
            a = pos + head
            lim = a + size
            if lim > end:
                outcome = 2
                break
        else:
            a = pos
            lim = end
            if framing >= LENGTH:
                if pos + 4 >= end:
                    outcome = 2
                    break
                size = length_at(base, pos, framing)
                if size < 1 or size > 0x7FFFFFFF:
                    outcome = 15
                    break
                a = pos + 4
                lim = a + size
                if lim > end:
                    outcome = 2
                    break
            # What a walsender has sent, behind the length or alone.
            kind = load_byte(base + a)
            if kind == 107:
                if a + 18 > lim:
                    outcome = 2 if framing == WALSENDER else 15
                    break
                if load_byte(base + a + 17) > 1 or (framing >= LENGTH and a + 18 != lim):
                    outcome = 15
                    break
                previous = pos
                pos = a + 18
                keepalives += 1
                continue
            if kind == 119:
                if a + 26 > lim:
                    outcome = 2 if framing == WALSENDER else 15
                    break
                a += 25
            elif framing == WALSENDER:
                outcome = 15
                break
        # The message.
        inside = framing >= 2 and framing != WALSENDER
        tag = load_byte(base + a)
        p = a + 1
        message = a
        limit = lim
        if tag == 73 or tag == 85 or tag == 68:  # I U D
            if want == COLUMNS and skip == 0 and (aborted.shape[0] == 0 if in_stream else txn != 0):
                first_ordinal = ordinal
                pos, previous, cells, ordinal, digest = _place_rows(
                    base,
                    pos,
                    tile_end,
                    end,
                    framing,
                    4 if in_stream else 0,
                    known_oids,
                    known_slots,
                    mask,
                    columns_of,
                    counts,
                    program_of,
                    touching,
                    missing,
                    marking,
                    last,
                    offsets,
                    lengths,
                    cells,
                    max_cells,
                    lsn,
                    commit_ts,
                    txn_xid,
                    ordinal,
                    recording,
                    digest,
                    previous,
                    unchanged,
                )
                count = ordinal - first_ordinal
                if count > 0:
                    if recording:
                        rows += count
                    messages += count
                    continue
            # A row of another xid than the one before begins a new run, which the walk counts.
            if want == 0 and ((last_xid >= 0 and not dropped) if in_stream else txn != 0):
                pos, previous, count = _skip_rows(
                    base,
                    pos,
                    tile_end,
                    end,
                    framing,
                    4 if in_stream else 0,
                    last_xid,
                    known_oids,
                    known_slots,
                    mask,
                    columns_of,
                    counts,
                    previous,
                )
                if count > 0:
                    ordinal += count
                    messages += count
                    if counting:
                        r_count[run_count - 1] += count
                    continue
            if in_stream:
                if p + 4 > lim:
                    outcome = 2
                    break
                xid = load_big_32(base + p)
                p += 4
            else:
                xid = txn_xid
                if txn == 0:
                    outcome = 19
                    break
            if p + 5 > lim:
                outcome = 2
                break
            oid = load_big_32(base + p)
            if oid != last_oid:
                found_slot = _slot_of(known_oids, known_slots, mask, oid)
                if found_slot < 0:
                    st[11] = oid
                    outcome = 4
                    break
                last_oid = oid
                last_slot = found_slot
                expected = load_int64(columns_of + 8 * last_slot)
            if in_stream and xid != last_xid:
                last_xid = xid
                dropped = False
                if aborted.shape[0] > 0:
                    found = np.searchsorted(aborted, xid)
                    dropped = found < aborted.shape[0] and aborted[found] == xid
                is_new_run = True
            part = load_byte(base + p + 4)
            row_at = p
            p += 5
            new_first = np.int64(-1)
            old_first = np.int64(-1)
            at = cells
            is_placed = False
            if want == COLUMNS and skip == 0 and not dropped:
                program = load_int64(program_of + 8 * last_slot)
                is_placed = program != NO_PROGRAM
                if is_placed:
                    left = may_place(program, marking)
                    if left != DONE:
                        put(marking, LEFT, np.int64(left))
                        outcome = 24
                        break
            if tag != 73 and (part == 75 or part == 79):
                old_first = at
                q = _walk_tuple(base, p, lim, offsets + 4 * at, lengths + 4 * at, want != 0, expected, unchanged)
                if q < 0:
                    outcome = -q
                    break
                at += load_big_16(base + p)
                p = q
                if tag == 85:
                    if p >= lim:
                        outcome = 2
                        break
                    part = load_byte(base + p)
                    p += 1
            if tag != 68:
                if part != 78:
                    outcome = 11
                    break
                new_first = at
                q = _walk_tuple(base, p, lim, offsets + 4 * at, lengths + 4 * at, want != 0, expected, unchanged)
                if q < 0:
                    outcome = -q
                    break
                columns = load_big_16(base + p)
                at += columns
                p = q
            elif old_first < 0:
                outcome = 11
                break
        elif tag == 66:  # B
            if p + 20 > lim:
                outcome = 2
                break
            if in_stream or txn == 1 or (txn == 2 and ordinal > 0):
                outcome = 20
                break
            p += 20
        elif tag == 67:  # C
            if p + 25 > lim:
                outcome = 2
                break
            if in_stream or txn == 0:
                outcome = 19
                break
            p += 25
        else:
            outcome = 3
            break
        # Its end.
        if framing == 0 or framing == WALSENDER:
            following = p
        elif framing == 1:
            following = p + 1
            if p >= end:
                if tag != 67 or st[32] == 0:
                    outcome = 2
                    break
                # A consumer that ends between a Commit and its newline has all of the transaction.
                following = p
            elif load_byte(base + p) != 10:
                outcome = 18
                break
        else:
            if p != lim:
                outcome = 17
                break
            following = p
        # It is whole: take it.
        if tag == 66:
            final_lsn = load_big_64(base + a + 1)
            if final_lsn <= last_lsn:
                outcome = 22
                break
            if load_big_64(base + a + 9) < EARLIEST or load_big_64(base + a + 9) > LATEST:
                outcome = 25
                break
            # A transaction that is known already is walked, and given no more.
            skip = 0 if final_lsn > high_lsn and st[31] == 0 else 2 if final_lsn <= high_lsn else 1
            rows = 0
            digest = 0
            origin = 0
            txn = 1
            lsn = final_lsn
            commit_ts = load_big_64(base + a + 9)
            txn_xid = load_big_32(base + a + 17)
            ordinal = 0
            begin_at = pos
        elif tag == 67:
            final_lsn = load_big_64(base + a + 2)
            if lsn == -1:
                outcome = 5
                break
            if load_byte(base + a + 1) != 0 or final_lsn != lsn or load_big_64(base + a + 18) != commit_ts:
                outcome = 21
                break
            if recording:
                record = record_count
                t_lsn[record] = final_lsn
                t_ts[record] = commit_ts
                t_xid[record] = txn_xid
                t_rows[record] = rows
                t_digest[record] = digest
                t_origin[record] = origin
                t_at[record] = begin_at
                record_count = record + 1
            txn = 0
            transactions += 1
            last_lsn = final_lsn
            last_ts = commit_ts
            if final_lsn <= high_lsn:
                resent += 1
            else:
                high_lsn = final_lsn
            if first_lsn == -1:
                first_lsn = final_lsn
                first_ts = commit_ts
        else:
            if counting:
                if is_new_run:
                    r_xid[run_count] = xid
                    r_count[run_count] = 0
                    run_count += 1
                    is_new_run = False
                r_count[run_count - 1] += 1
            if dropped:
                messages += 1
                previous = pos
                pos = following
                continue
            if want != 0 and skip == 0:
                if tag == 85 and old_first >= 0:
                    for i in range(columns):
                        if length[new_first + i] == -2:
                            was = length[old_first + i]
                            if was >= 0 or was <= -3:
                                length[new_first + i] = was
                                offset[new_first + i] = offset[old_first + i]
                if is_placed:
                    first = np.int64(new_first if new_first >= 0 else old_first)
                    row = get(program, ROWS)
                    left = place_cells(base, last, program, row, first, offsets, lengths, missing, marking)
                    if left != DONE:
                        put(marking, LEFT, np.int64(left))
                        outcome = 24
                        break
                    if new_first >= 0 and old_first >= 0:
                        note_before(program, row, np.int64(old_first))
                    take_row(program, last_slot, touching, marking, tag, lsn, commit_ts, txn_xid, ordinal, first)
                    cells = at
                elif want == ARRAYS:
                    store_8(kinds + changes, tag)
                    store_32(slots + 4 * changes, last_slot)
                    store_64(lsns + 8 * changes, lsn)
                    store_64(times + 8 * changes, commit_ts)
                    store_64(xids + 8 * changes, txn_xid)
                    store_64(ordinals + 8 * changes, ordinal)
                    store_32(news + 4 * changes, new_first)
                    store_32(olds + 4 * changes, old_first)
                    changes += 1
                    cells = at
            if recording:
                rows += 1
                digest ^= _digest(base, row_at, p, ordinal)
            # A scan counts them all; of what was counted before, or will be, nothing says how its relations are used.
            if want == 0 or skip != 2:
                _count_row(base, a, counts, last_slot)
            ordinal += 1
        messages += 1
        previous = pos
        pos = following
    st[0] = pos
    st[2] = txn
    st[3] = lsn
    st[4] = commit_ts
    st[5] = txn_xid
    st[6] = ordinal
    st[9] = message
    st[10] = limit
    st[12] = transactions
    st[13] = messages
    st[15] = last_lsn
    st[16] = last_ts
    st[17] = begin_at
    st[18] = keepalives
    st[19] = first_lsn
    st[20] = first_ts
    st[21] = skip
    st[22] = high_lsn
    st[23] = resent
    st[24] = previous
    st[25] = run_count
    st[27] = record_count
    st[28] = rows
    st[29] = digest
    st[30] = origin
    st[7] = changes
    st[8] = cells
    if want == COLUMNS:
        forget_tried(marking)
        put(marking, LEFT_SLOT, last_slot)
    if outcome == 2 and inside:
        # The frame is there as a whole: more bytes will not mend a message that does not fit in it.
        outcome = 16
    return outcome


@kernel(
    BYTES,
    INT64,
    INT64,
    INT64,
    INT64,
    out("int64"),
    given("int64"),
    given("int32"),
    given("int64"),
    out("int64", ndim=2),
    *(out("int32"),) * 2,
    out("uint8"),
    out("int32"),
    *(out("int64"),) * 4,
    *(out("int32"),) * 2,
    given("int64"),
    *(out("int64"),) * 9,
    given("int64"),
    out("int32"),
    *(out("int64"),) * 2,
)
def walk_messages(  # type: ignore[no-untyped-def]
    buf,
    end,
    tile_end,
    framing,
    want,
    st,
    hash_oids,
    hash_slots,
    slot_columns,
    slot_counts,
    offset,
    length,
    c_kind,
    c_slot,
    c_lsn,
    c_ts,
    c_xid,
    c_ordinal,
    c_new,
    c_old,
    aborted,
    r_xid,
    r_count,
    t_lsn,
    t_ts,
    t_xid,
    t_rows,
    t_digest,
    t_origin,
    t_at,
    programs,
    touched,
    misses,
    marks,
):
    """Walk a buffer from ``st[0]`` on; see `wal2delta.decode.walk` for what the state and the arrays are."""
    arrays = (
        st,
        hash_oids,
        hash_slots,
        slot_columns,
        slot_counts,
        offset,
        length,
        c_kind,
        c_slot,
        c_lsn,
        c_ts,
        c_xid,
        c_ordinal,
        c_new,
        c_old,
        aborted,
        r_xid,
        r_count,
        t_lsn,
        t_ts,
        t_xid,
        t_rows,
        t_digest,
        t_origin,
        t_at,
        programs,
        touched,
        misses,
        marks,
    )
    # Each is compiled for itself: what stays the same throughout is not asked for every message.
    if want == COLUMNS:
        if framing == 0:
            return _walk_buffer(buf, end, tile_end, 0, COLUMNS, *arrays)
        return _walk_buffer(buf, end, tile_end, framing, COLUMNS, *arrays)
    if want == ARRAYS:
        return _walk_buffer(buf, end, tile_end, framing, ARRAYS, *arrays)
    if framing == 0:
        return _walk_buffer(buf, end, tile_end, 0, 0, *arrays)
    return _walk_buffer(buf, end, tile_end, framing, 0, *arrays)
