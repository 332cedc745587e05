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
from walreplay.decode.kernels import frames, programs
from walreplay.decode.kernels import walk_words as words
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
from walreplay.decode.kernels.binary import BINARY
from walreplay.decode.kernels.frames import Outcome
from walreplay.decode.kernels.place import (
    forget_tried,
    note_miss,
    place_binary_form,
    place_null,
    place_text_form,
    take_row,
)
from walreplay.decode.kernels.programs import get, put
from walreplay.decode.kernels.walk_words import RowBytes, WalkedRow, WalkedTransaction, add_to
from walreplay.protocol.messages import MAX_COLUMNS

LONGEST: Final = 0x3FFFFFFF  # No value is longer

READABLE_BEFORE: Final = 32
"""So many bytes in front of a row may be read: before that much of a buffer, rows are walked singly."""

SHAPE: Final = (1 << 22) - 1
TEXT_VALUES: Final = (1 << 43) - (1 << 22)
BINARY_VALUES: Final = -(1 << 43)
"""The parts of a digest."""


@helper
def has_nul(base, start, size):  # type: ignore[no-untyped-def]
    """Return whether a text value holds a NUL, which PostgreSQL's texts never do.

    Many bytes at a time; those in front of a short value, its length and what is before it, count as no NUL.
    """
    if start + size >= 32:
        return has_nul_behind(base, start, size)
    has_zero = False
    for i in range(start, start + size):
        has_zero = has_zero or load_byte(base + i) == 0
    return has_zero


@helper
def has_nul_behind(base, start, size):  # type: ignore[no-untyped-def]
    """Return the same where the value ends behind the first 32 bytes."""
    end = start + size
    bits = nul_bits(base + end - 32)
    if size <= 32:
        return bits >> (32 - size) != 0  # without the bytes in front of the value
    for i in range(start, end - 32, 32):
        bits |= nul_bits(base + i)
    return bits != 0


@helper
def digest_of(base, cells, row, layout, ordinal, first_cell, cell_count):  # type: ignore[no-untyped-def]
    """Digest a row change and its place in the transaction; a transaction's digest is the exclusive or of its rows'.

    It can be made in parts, in any order, by whoever has the bytes.  Sessions with other settings send the same row in
    other bytes.  So only `SHAPE`, of table and kind of change, is there in any case.  The values are in the part of
    their format, and texts of columns that depend on settings are in none; see `walreplay.stream.duplicates.agree`.

    Args:
        row: its `RowBytes`; its cells are `cell_count` from `first_cell` on.
        layout: the address of its slot's layout.
    """
    offset, length = cells.offsets + 4 * first_cell, cells.lengths + 4 * first_cell
    columns, varying = load_int64(layout), load_int64(layout + 8)
    cursor = row.oid
    shape = load_byte(base + row.message) << 32 | load_big_32(base + cursor)
    shape = shape * 0x1E3779B97F4A7C15 + load_big_32(base + cursor + 3)
    part = np.int64(0)
    digest = np.int64(cell_count)
    key = np.int64(0x2545F4914F6CDD1D)
    cursor += 7  # behind the oid, the tuple's letter and its number of columns
    for first in range(0, cell_count, max(columns, 1)):  # two tuples at most
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
                digest, key = _with_bytes(base, cursor, start - 4, digest, key)  # up to the text's length
                cursor = start + size
            other += 8
            i = load_int64(other)
    digest, key = _with_bytes(base, cursor, row.end, digest, key)
    return _mixed(shape, ordinal) & SHAPE | _mixed(digest, ordinal) & part


@helper
def _with_bytes(base, start, end, digest, key):  # type: ignore[no-untyped-def]
    """Add bytes to a digest; 8 bytes in front of their end can be read."""
    for offset in range(start, end - 7, 8):
        digest += load_big_64(base + offset) * key
        key += 0x1B873593CC9E2D50
    rest = (end - start) & 7  # so many bytes of the last word; their number goes into its highest byte
    digest += (load_big_64(base + end - 8) & ((1 << 8 * rest) - 1) | rest << 56) * key
    return digest, key + 0x1B873593CC9E2D50


@helper
def _mixed(digest, ordinal):  # type: ignore[no-untyped-def]
    digest ^= digest >> 31
    digest = np.int64((digest + ordinal) * 0x369DEA0F31A53F85)
    digest ^= digest >> 29
    return np.int64(digest * 0x2127599BF4325C37)


@helper
def walk_tuple(walk, cursor, payload_end, columns, first_cell):  # type: ignore[no-untyped-def]
    """Walk one TupleData; return its end, or minus an outcome.

    If rows are wanted, its cells are written from `first_cell` on.  `columns` is their number by the Relation message;
    -1 for any.
    """
    base = walk.base
    offset, length = walk.cells.offsets + 4 * first_cell, walk.cells.lengths + 4 * first_cell
    writes_cells = walk.output != 0
    if cursor + 2 > payload_end:
        return -Outcome.INCOMPLETE
    count = load_big_16(base + cursor)
    cursor += 2
    if count != columns and (columns >= 0 or count > MAX_COLUMNS):  # there is room for no more cells
        return -Outcome.BAD_COLUMN_COUNT
    for i in range(count):
        if cursor >= payload_end:
            return -Outcome.INCOMPLETE
        kind = load_byte(base + cursor)
        start = cursor
        cursor += 1
        if kind == 116 or kind == 98:  # t b
            start += 5
            if start > payload_end:
                return -Outcome.INCOMPLETE
            size = load_big_32(base + cursor)
            if size > LONGEST:
                return -Outcome.BAD_LENGTH
            cursor = start + size
            if cursor > payload_end:
                return -Outcome.INCOMPLETE
            # The builders look for a NUL in their columns; if there are none, nobody else does.
            if kind == 116 and not writes_cells and has_nul(base, start, size):
                return -Outcome.NUL_IN_TEXT
            cell_length = size if kind == 116 else BINARY - size
        elif kind == 110:  # n
            cell_length = np.int64(-1)
        elif kind == 117:  # u
            cell_length = np.int64(-2)
            if writes_cells:
                add_to(walk.state, words.UNCHANGED_CELLS, 1)
        else:
            return -Outcome.BAD_CELL
        if writes_cells:
            store_32(offset + 4 * i, start)
            store_32(length + 4 * i, cell_length)
    return cursor


@helper
def skip_tuple(base, cursor, bound, columns):  # type: ignore[no-untyped-def]
    """Walk one TupleData; return its end, or below 0 where that fails.  Up to `bound` there are bytes."""
    count = load_big_16(base + cursor)
    if count != columns and (columns >= 0 or count > MAX_COLUMNS):
        return -1
    cursor += 2
    for _ in range(count):
        if cursor + 5 > bound:
            return -1
        kind = load_byte(base + cursor)
        if kind == 116:  # t
            size = load_big_32(base + cursor + 1)
            cursor += 5 + size
            if cursor > bound or has_nul_behind(base, cursor - size, size):
                return -1
        elif kind == 110 or kind == 117:  # n u
            cursor += 1
        elif kind == 98:  # b
            cursor += 5 + load_big_32(base + cursor + 1)
            if cursor > bound:
                return -1
        else:
            return -1
    return cursor


@helper
def _place_tuple(walk, cursor, bound, columns, program, first_cell):  # type: ignore[no-untyped-def]
    """Walk one TupleData and place its values in the columns' next row; return its end, or below 0 where that fails."""
    base, last = walk.base, walk.last
    offset, length = walk.cells.offsets + 4 * first_cell, walk.cells.lengths + 4 * first_cell
    row = get(program, programs.ROWS)
    if load_big_16(base + cursor) != columns:
        return -1
    cursor += 2
    column = program + programs.HEAD * 8
    for i in range(columns):
        if cursor + 5 > bound:
            return -1
        kind = load_byte(base + cursor)
        if kind == 116 or kind == 98:  # t b
            size = load_big_32(base + cursor + 1)
            start = cursor + 5
            cursor = start + size
            if cursor > bound:
                return -1
            store_32(offset + 4 * i, start)
            if kind == 116:
                store_32(length + 4 * i, size)
                placed = place_text_form(base, last, column, row, start, size, True)
            else:
                store_32(length + 4 * i, BINARY - size)
                placed = place_binary_form(base, last, column, row, start, size)
            if placed == programs.MISSED_VALUE:
                note_miss(walk.marks, program, i, row, first_cell)
            elif placed >= programs.NO_ROOM:
                return -1
        elif kind == 110 or kind == 117:  # n u
            store_32(offset + 4 * i, cursor)
            store_32(length + 4 * i, -1 if kind == 110 else -2)
            place_null(column, row)
            if kind == 117:
                put(program, programs.HAS_UNCHANGED, np.int64(1))
                add_to(walk.state, words.UNCHANGED_CELLS, 1)
            cursor += 1
        else:
            return -1
        column += programs.COLUMN * 8
    return cursor


@helper
def _row_ahead(walk, pos):  # type: ignore[no-untyped-def]
    """Return where the message in the next frame begins and ends; -1 where a row of one tuple cannot be read there."""
    payload = frames.message_at(walk.base, pos, walk.end, walk.framing)
    # The least that a row has: a tag, an oid, a letter and the number of columns.
    is_short = payload.start + 8 > payload.end or payload.start < READABLE_BEFORE
    if payload.outcome != Outcome.GO_ON or is_short:
        return np.int64(-1), walk.end
    return payload.start, payload.end


@helper
def _has_one_tuple(base, message, cursor):  # type: ignore[no-untyped-def]
    """Return whether the message is an insert, a delete, or an update without an old row; the oid ends at `cursor`."""
    tag = load_byte(base + message)
    letter = load_byte(base + cursor)
    if tag == 85 or tag == 73:  # U I
        return letter == 78
    return tag == 68 and (letter == 75 or letter == 79)  # D, K O


@helper
def slot_of(walk, oid):  # type: ignore[no-untyped-def]
    """Look an oid's newest slot up; -1 where it has none, or Python wants to know of its next row."""
    bucket = (oid * 2654435761) & walk.bucket_mask  # as in `decode.walk`
    bucket_oid = load_int64(walk.oids + 8 * bucket)
    while bucket_oid != oid and bucket_oid != -1:
        bucket = (bucket + 1) & walk.bucket_mask
        bucket_oid = load_int64(walk.oids + 8 * bucket)
    return load_int32(walk.slots + 4 * bucket) if bucket_oid != -1 else np.int64(-1)


@helper
def layout_of(walk, slot):  # type: ignore[no-untyped-def]
    """Return the address of a slot's layout: the number of its columns comes first."""
    return walk.layouts + 16 * slot


@helper
def count_row(walk, message, slot):  # type: ignore[no-untyped-def]
    """Count the row whose message is given for its slot: an insert, an update or a delete."""
    tag = load_byte(walk.base + message)
    counter = walk.counts + 32 * slot + (0 if tag == 73 else 8 if tag == 85 else 16)
    store_64(counter, load_int64(counter) + 1)


@helper
def skip_rows_ahead(walk):  # type: ignore[no-untyped-def]
    """Walk over rows that lie one behind the other, and return how many they are; in a block all of one xid."""
    base, end, framing = walk.base, walk.end, walk.framing
    pos, last_message = get(walk.state, words.POS), get(walk.state, words.PREVIOUS)
    xid, xid_size = get(walk.state, words.ROW_XID), 4 if get(walk.state, words.STREAM) else 0
    last_oid = np.int64(-1)
    slot = np.int64(0)
    columns = np.int64(0)
    count = np.int64(0)
    bound = min(end, pos + LONGEST)
    while pos < walk.tile_end:
        message, payload_end = _row_ahead(walk, pos)
        cursor = message + 1 + xid_size
        if message < 0 or cursor + 7 > payload_end or not _has_one_tuple(base, message, cursor + 4):
            break
        if xid_size and load_big_32(base + message + 1) != xid:
            break
        oid = load_big_32(base + cursor)
        if oid != last_oid:
            slot = slot_of(walk, oid)
            if slot < 0:
                break
            last_oid = oid
            columns = load_int64(layout_of(walk, slot))
        cursor = skip_tuple(base, cursor + 5, bound, columns)
        if cursor < 0:
            break  # the walk finds out what is wrong
        following = frames.frame_end(base, cursor, payload_end, framing, False)
        if following < 0:
            break
        count_row(walk, message, slot)
        count += 1
        last_message = pos
        pos = following
    put(walk.state, words.POS, pos)
    put(walk.state, words.PREVIOUS, last_message)
    add_to(walk.state, words.ORDINAL, count)
    add_to(walk.state, words.MESSAGES, count)
    return count


@helper
def place_rows_ahead(walk):  # type: ignore[no-untyped-def]
    """Place rows of the open transaction that lie one behind the other, and return how many they are."""
    base, end, framing, marks = walk.base, walk.end, walk.framing, walk.marks
    pos, last_message = get(walk.state, words.POS), get(walk.state, words.PREVIOUS)
    cell, ordinal = get(walk.state, words.CELLS), get(walk.state, words.ORDINAL)
    lsn, commit_ts = get(walk.state, words.LSN), get(walk.state, words.COMMIT_TS)
    transaction = WalkedTransaction(lsn, commit_ts, get(walk.state, words.XID))
    origin = get(walk.state, words.ORIGIN) << 32
    xid_size = 4 if get(walk.state, words.STREAM) else 0
    is_recording, digest = get(walk.state, words.RECORDING) != 0, np.int64(0)
    first_ordinal = ordinal
    last_oid = np.int64(-1)
    slot = np.int64(0)
    program = np.int64(0)
    columns = np.int64(0)
    bound = min(end, pos + LONGEST)
    while pos < walk.tile_end and cell <= walk.cell_limit:
        message, payload_end = _row_ahead(walk, pos)
        cursor = message + 1 + xid_size
        if message < 0 or cursor + 7 > payload_end or not _has_one_tuple(base, message, cursor + 4):
            break
        oid = load_big_32(base + cursor)
        if oid != last_oid:
            slot = slot_of(walk, oid)
            if slot < 0:
                break
            last_oid = oid
            columns = load_int64(layout_of(walk, slot))
            program = get(get(marks, programs.SLOT_PROGRAMS), slot)
        if program <= 0:  # the rows are left out, or Python has to make a program first
            break
        rows = get(program, programs.ROWS)
        # As many values may miss their form as a row has columns.
        if rows >= get(program, programs.LIMIT) or get(marks, programs.MISSED) > programs.MISSES - MAX_COLUMNS:
            break
        row_end = _place_tuple(walk, cursor + 5, bound, columns, program, cell)
        if row_end < 0:
            break
        following = frames.frame_end(base, row_end, payload_end, framing, False)
        if following < 0:
            break
        if is_recording:
            row = RowBytes(message, cursor, row_end)
            digest ^= digest_of(base, walk.cells, row, layout_of(walk, slot), ordinal, cell, columns)
        change = WalkedRow(load_byte(base + message), ordinal, cell, origin | message)
        take_row(marks, program, slot, transaction, change)
        count_row(walk, message, slot)
        cell += columns
        ordinal += 1
        last_message = pos
        pos = following
    forget_tried(marks)
    count = ordinal - first_ordinal
    put(walk.state, words.POS, pos)
    put(walk.state, words.PREVIOUS, last_message)
    put(walk.state, words.CELLS, cell)
    put(walk.state, words.ORDINAL, ordinal)
    add_to(walk.state, words.MESSAGES, count)
    if is_recording:
        add_to(walk.state, words.ROWS, count)
        put(walk.state, words.DIGEST, get(walk.state, words.DIGEST) ^ digest)
    return count
