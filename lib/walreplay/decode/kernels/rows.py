"""The kernels of ordinary rows that follow each other: most rows of a stream.

First the kernels of one row: its tuple of cells is skipped, written to arrays or placed in columns, and hashed.  Most
rows come with others of their transaction: `skip_rows_ahead` and `place_rows_ahead` read only those, and keep little
state.  Anything unusual is left to the walk, which finds out what it is: another message, damage, two tuples in one,
a relation that is not known, no room.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from walreplay.decode.compile.kernel import helper
from walreplay.decode.kernels import programs as words
from walreplay.decode.kernels.base import (
    load_big_16,
    load_big_32,
    load_big_64,
    load_byte,
    load_int32,
    load_int64,
    nul_bits,
    store_32,
    store_64,
)
from walreplay.decode.kernels.frames import (
    BAD_CELL,
    BAD_COLUMN_COUNT,
    BAD_LENGTH,
    INCOMPLETE,
    NUL_IN_TEXT,
    WALSENDER,
    row_frame,
)
from walreplay.decode.kernels.place import (
    forget_tried,
    note_miss,
    place_binary_form,
    place_null,
    place_text_form,
    take_row,
)
from walreplay.decode.kernels.programs import get, put
from walreplay.protocol.messages import MAX_COLUMNS

LONGEST: Final = 0x3FFFFFFF
"""No value is longer."""

BEHIND: Final = 32
"""So many bytes in front of a row may be read."""

SHAPE: Final = (1 << 22) - 1
TEXT_VALUES: Final = (1 << 43) - (1 << 22)
BINARY_VALUES: Final = -(1 << 43)
"""The parts of a digest."""


@helper
def has_nul(base, p, size):  # type: ignore[no-untyped-def]
    """Return whether a text value holds a NUL, which PostgreSQL's texts never do.

    Many bytes at a time; those in front of a short value, its length and what is before it, count as no NUL.
    """
    if p + size >= 32:
        return has_nul_behind(base, p, size)
    found = False
    for i in range(p, p + size):
        found = found or load_byte(base + i) == 0
    return found


@helper
def has_nul_behind(base, p, size):  # type: ignore[no-untyped-def]
    """Return the same where the value ends behind the first 32 bytes."""
    end = p + size
    last = nul_bits(base + end - 32)
    if size <= 32:
        return last >> (32 - size) != 0
    for i in range(p, end - 32, 32):
        last |= nul_bits(base + i)
    return last != 0


@helper
def digest_of(base, a, p, end, ordinal, columns, varying, cells, offset, length):  # type: ignore[no-untyped-def]
    """Digest a row change and its place in the transaction; a transaction's digest is the exclusive or of its rows'.

    It can be made in parts, in any order, by whoever has the bytes: the message is at `a`, its oid at `p`, and
    ``offset`` and ``length`` have its ``cells``.  Sessions with other settings send the same row in other bytes.  So
    only `SHAPE`, of table and kind of change, is there in any case.  The values are in the part of their format, and
    texts of ``varying`` columns (their numbers, then -1) are in none; see `walreplay.stream.duplicates.agree`.
    """
    shape = (load_byte(base + a) << 32 | load_big_32(base + p)) * 0x1E3779B97F4A7C15 + load_big_32(base + p + 3)
    part = np.int64(0)
    h = np.int64(cells)
    key = np.int64(0x2545F4914F6CDD1D)
    p += 7
    for first in range(0, cells, max(columns, 1)):
        # The first value in binary tells the format, or in text of another column.
        other = varying
        for i in range(columns if part == 0 else 0):
            if load_int32(length + 4 * (first + i)) <= -3:
                part = BINARY_VALUES
                break
            if load_int64(other) == i:
                other += 8
            elif load_int32(length + 4 * (first + i)) >= 0:
                part = TEXT_VALUES
                break
        other = varying
        i = load_int64(other)
        while i >= 0:
            size = load_int32(length + 4 * (first + i))
            if size >= 0:
                start = load_int32(offset + 4 * (first + i))
                h, key = _with_bytes(base, p, start - 4, h, key)
                p = start + size
            other += 8
            i = load_int64(other)
    h, key = _with_bytes(base, p, end, h, key)
    return _mixed(shape, ordinal) & SHAPE | _mixed(h, ordinal) & part


@helper
def _with_bytes(base, p, end, h, key):  # type: ignore[no-untyped-def]
    """Add bytes to a digest; 8 bytes in front of their end can be read."""
    for at in range(p, end - 7, 8):
        h += load_big_64(base + at) * key
        key += 0x1B873593CC9E2D50
    rest = (end - p) & 7
    h += (load_big_64(base + end - 8) & ((1 << 8 * rest) - 1) | rest << 56) * key
    return h, key + 0x1B873593CC9E2D50


@helper
def _mixed(h, ordinal):  # type: ignore[no-untyped-def]
    h ^= h >> 31
    h = np.int64((h + ordinal) * 0x369DEA0F31A53F85)
    h ^= h >> 29
    return np.int64(h * 0x2127599BF4325C37)


@helper
def walk_tuple(base, p, lim, offset, length, want, expected, unchanged):  # type: ignore[no-untyped-def]
    """Walk one TupleData; return its end, or minus an outcome.

    What is found of its cells goes to the addresses ``offset`` and ``length``.
    """
    if p + 2 > lim:
        return -INCOMPLETE
    columns = load_big_16(base + p)
    p += 2
    if expected >= 0 and columns != expected:
        return -BAD_COLUMN_COUNT
    for i in range(columns):
        if p >= lim:
            return -INCOMPLETE
        kind = load_byte(base + p)
        if kind == 116:  # t
            if p + 5 > lim:
                return -INCOMPLETE
            size = load_big_32(base + p + 1)
            if size > LONGEST:
                return -BAD_LENGTH
            if want:
                store_32(offset + 4 * i, p + 5)
                store_32(length + 4 * i, size)
            p += 5 + size
            if p > lim:
                return -INCOMPLETE
            if not want and has_nul(base, p - size, size):
                return -NUL_IN_TEXT
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
                return -INCOMPLETE
            size = load_big_32(base + p + 1)
            if size > LONGEST:
                return -BAD_LENGTH
            if want:
                store_32(offset + 4 * i, p + 5)
                store_32(length + 4 * i, -3 - size)
            p += 5 + size
            if p > lim:
                return -INCOMPLETE
        else:
            return -BAD_CELL
    return p


@helper
def skip_tuple(base, p, bound, expected):  # type: ignore[no-untyped-def]
    """Walk one TupleData; return its end, or below 0 where that fails.  Up to `bound` there are bytes."""
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
            if p > bound or has_nul_behind(base, p - size, size):
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
def place_tuple(base, last, p, bound, expected, program, row, first, outputs):  # type: ignore[no-untyped-def]
    """Walk one TupleData and place its values in the columns' next row; return its end, or below 0 where that fails."""
    _, _, misses, marks, offsets, lengths, unchanged = outputs
    offset, length = offsets + 4 * first, lengths + 4 * first
    if load_big_16(base + p) != expected:
        return -1
    p += 2
    column = program + words.HEAD * 8
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
            if placed == words.MISSED_VALUE:
                note_miss(misses, marks, program, i, row, first)
            elif placed >= words.NO_ROOM:
                return -1
        elif kind == 110 or kind == 117:  # n u
            store_32(offset + 4 * i, p)
            store_32(length + 4 * i, -1 if kind == 110 else -2)
            place_null(column, row)
            if kind == 117:
                put(program, words.HAS_UNCHANGED, np.int64(1))
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
            if placed == words.MISSED_VALUE:
                note_miss(misses, marks, program, i, row, first)
            elif placed >= words.NO_ROOM:
                return -1
        else:
            return -1
        column += words.COLUMN * 8
    return p


@helper
def frame_at(base, pos, end, framing):  # type: ignore[no-untyped-def]
    """Return where a row's message begins and how far it may go; -1 where there is none, or only a part of it."""
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
    """Return whether the message is an insert, a delete, or an update that brings no old row; `p` is behind its oid."""
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
    """Return what follows a row that ends at `p`, or -1 where its message does not end so."""
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
def skip_rows_ahead(base, frames, xid, relations, previous):  # type: ignore[no-untyped-def]
    """Walk over rows that lie one behind the other; ``lead`` is 4 where each brings an xid, which has to be `xid`.

    Gives where it ends, the place of the last row, and how many they are.
    """
    pos, stop, end, framing, lead = frames
    known_oids, known_slots, mask, columns_of, counts = relations
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
            expected = load_int64(columns_of + 16 * slot)
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
def place_rows_ahead(base, last, frames, relations, outputs, max_cells, of_all, recording, so_far):  # type: ignore[no-untyped-def]
    """Place rows that lie one behind the other; `lead` bytes stand in front of each row's oid, but for its tag.

    ``of_all`` has what they have in common: commit LSN and time, xid, and the number of their origin in the upper half
    of a word (`walreplay.decode.change_batch`).  Gives where it ends; then, as they are given in ``so_far``, the place
    of the last row, the next cell and ordinal, and the digest.
    """
    pos, stop, end, framing, lead = frames
    known_oids, known_slots, mask, columns_of, counts = relations
    programs, touched, _, marks, offsets, lengths, _ = outputs
    lsn, commit_ts, xid, origin = of_all
    previous, at, ordinal, digest = so_far
    last_oid = np.int64(-1)
    slot = np.int64(0)
    program = np.int64(0)
    expected = np.int64(0)
    varying = np.int64(0)
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
            expected = load_int64(columns_of + 16 * slot)
            varying = load_int64(columns_of + 16 * slot + 8)
            program = load_int64(programs + 8 * slot)
        if program <= 0:
            break
        row = get(program, words.ROWS)
        if row >= get(program, words.LIMIT) or get(marks, words.MISSED) > words.MISSES - MAX_COLUMNS:
            break
        row_at = p
        p = place_tuple(base, last, p + 5, bound, expected, program, row, at, outputs)
        if p < 0:
            break
        following = after_row(base, p, lim, end, framing)
        if following < 0:
            break
        if recording:
            cells = expected, offsets + 4 * at, lengths + 4 * at
            digest ^= digest_of(base, a, row_at, p, ordinal, expected, varying, *cells)
        tag = load_byte(base + a)
        take_row(program, slot, touched, marks, tag, lsn, commit_ts, xid, ordinal, at, origin | a)
        count_row(base, a, counts, slot)
        at += expected
        ordinal += 1
        previous = pos
        pos = following
    forget_tried(marks)
    return pos, previous, at, ordinal, digest
