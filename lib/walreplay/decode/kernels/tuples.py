"""The kernels of one row: its tuple of cells, stepped over, put into arrays or into columns, and its digest."""

from __future__ import annotations

from typing import Final

import numpy as np

from walreplay.decode.compile.kernel import helper
from walreplay.decode.kernels.base import (
    load_big_16,
    load_big_32,
    load_big_64,
    load_byte,
    load_int64,
    nul_bits,
    store_32,
    store_64,
)
from walreplay.decode.kernels.outcomes import BAD_CELL, BAD_COLUMN_COUNT, BAD_LENGTH, INCOMPLETE, NUL_IN_TEXT
from walreplay.decode.kernels.place import note_miss
from walreplay.decode.kernels.programs import (
    COLUMN,
    HAS_UNCHANGED,
    HEAD,
    MISSED_VALUE,
    NO_ROOM,
    put,
)
from walreplay.decode.kernels.values import place_binary_form, place_null, place_text_form

LONGEST: Final = 0x3FFFFFFF
"""No value is longer."""

BEHIND: Final = 32
"""So many bytes in front of a row may be read."""


@helper
def has_nul(base, p, size):  # type: ignore[no-untyped-def]
    """Say whether a text value holds a NUL, which PostgreSQL's texts never do.

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
    """Say the same where the value ends behind the first 32 bytes."""
    end = p + size
    last = nul_bits(base + end - 32)
    if size <= 32:
        return last >> (32 - size) != 0
    for i in range(p, end - 32, 32):
        last |= nul_bits(base + i)
    return last != 0


@helper
def digest_of(base, p, end, ordinal):  # type: ignore[no-untyped-def]
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
    h = np.int64(h + v * k)
    h ^= h >> 31
    h = np.int64((h + ordinal) * 0x369DEA0F31A53F85)
    h ^= h >> 29
    return np.int64(h * 0x2127599BF4325C37)


@helper
def walk_tuple(base, p, lim, offset, length, want, expected, unchanged):  # type: ignore[no-untyped-def]
    """Walk one TupleData; give its end, or minus an outcome.

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
def place_tuple(  # type: ignore[no-untyped-def]
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
