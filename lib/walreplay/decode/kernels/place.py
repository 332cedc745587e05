"""The kernels that place rows: each value goes from the bytes to where its column lies.

What a program and its words are is described in `walreplay.decode.placing`, where Python makes them.  The walk places
the rows that it finds as it goes (`walreplay.decode.kernels.walk`); `place_rows` places those of a tile that lie in
its arrays; `settle` looks at what either has left.
"""

# mypy: disable-error-code="no-untyped-def, no-untyped-call"

from __future__ import annotations

import numpy as np

from walreplay.decode.compile.kernel import helper, kernel, routine
from walreplay.decode.compile.parameters import BYTES, CELLS, INT64, given, out
from walreplay.decode.kernels.base import (
    address_of,
    load_byte,
    load_int32,
    load_int64,
    load_word,
    store_8,
    store_32,
    store_64,
)
from walreplay.decode.kernels.binary import BINARY
from walreplay.decode.kernels.outcomes import HAS_HIGH, HAS_NUL
from walreplay.decode.kernels.programs import (
    BEFORE_FIRSTS,
    BEFORE_ROWS,
    BEFORES,
    CHANGE,
    COLUMN,
    COLUMNS,
    COMMIT_TS,
    DATA,
    DONE,
    FIRSTS,
    FLAGS,
    HAS_MISSES,
    HAS_UNCHANGED,
    HEAD,
    KIND,
    LEFT_BYTES,
    LEFT_COLUMN,
    LEFT_SLOT,
    LIMIT,
    LSN,
    MISS_WORDS,
    MISSED,
    MISSED_VALUE,
    MISSES,
    MOST_COLUMNS,
    NEEDS_CARE,
    NEW,
    NO_PROGRAM,
    NO_ROOM,
    NOT_TEXT,
    OP,
    ORDINAL,
    PENDING_ROOM,
    PLACED,
    PLACES,
    ROOM,
    ROWS,
    ROWS_FULL,
    SETTLED,
    TEXT,
    TEXT_FULL,
    TEXT_ONLY,
    TOO_MANY_PENDING,
    TOUCHED,
    TRIED,
    UNSEEN,
    VALUES,
    WORD,
    XID,
    get,
    put,
)
from walreplay.decode.kernels.text import is_utf8
from walreplay.decode.kernels.values import SLACK, place_binary_form, place_null, place_text_form
from walreplay.lsn import POSTGRES_EPOCH_UNIX_MICROS


@helper
def note_miss(misses, marks, program, number, row, first):
    """List a value that is in another form; it counts once its row does."""
    at = misses + load_int64(marks + TRIED * WORD) * (MISS_WORDS * WORD)
    store_64(at, program)
    store_64(at + WORD, np.int64(number))
    store_64(at + 2 * WORD, row)
    store_64(at + 3 * WORD, first)
    put(marks, TRIED, get(marks, TRIED) + 1)


@helper
def note_left(marks, placed, number, count):
    """Leave behind which text column has no room, and for how many bytes, or does not take its value; give a `Left`."""
    put(marks, LEFT_COLUMN, np.int64(number))
    put(marks, LEFT_BYTES, count + SLACK)
    return TEXT_FULL if placed == NO_ROOM else NOT_TEXT


@routine
def place_cells(base, last, program, row, first, offsets, lengths, misses, marks):
    """Place the row whose cells stand in the arrays from `first` on; below 0 it has none.  Gives a `Left`."""
    column = program + HEAD * WORD
    for number in range(get(program, COLUMNS)):
        size = np.int64(-1)
        start = np.int64(0)
        if first >= 0:
            size = load_int32(lengths + 4 * (first + number))
            start = load_int32(offsets + 4 * (first + number))
        placed = PLACED
        if size >= 0:
            placed = place_text_form(base, last, column, row, start, size)
        elif size <= BINARY:
            size = BINARY - size
            placed = place_binary_form(base, last, column, row, start, size)
        else:
            place_null(column, row)
            if size == -2:
                put(program, HAS_UNCHANGED, np.int64(1))
        if placed == MISSED_VALUE:
            note_miss(misses, marks, program, number, row, first)
        elif placed >= NO_ROOM:
            return note_left(marks, placed, number, size)
        column += COLUMN * WORD
    return DONE


@helper
def may_place(program, marks):
    """Say whether a row can be placed by a program: `DONE`, or why not."""
    if program == UNSEEN:
        return NEW
    if get(program, ROWS) >= get(program, LIMIT):
        return ROWS_FULL if get(program, ROWS) >= get(program, ROOM) else TOO_MANY_PENDING
    return DONE if get(marks, MISSED) <= MISSES - MOST_COLUMNS else TOO_MANY_PENDING


@helper
def forget_tried(marks):
    """Forget what the values of a row miss that was not taken."""
    put(marks, TRIED, get(marks, MISSED))


@helper
def note_before(program, row, before):
    """List the old tuple of an update: its first cell, and the row."""
    befores = get(program, BEFORES)
    store_32(get(program, BEFORE_FIRSTS) + 4 * befores, before)
    store_64(get(program, BEFORE_ROWS) + WORD * befores, row)
    put(program, BEFORES, befores + 1)


@helper
def take_row(program, slot, touched, marks, kind, lsn, commit_ts, xid, ordinal, first, place):
    """Count a row whose values were placed, with what is known of it beside them."""
    row = get(program, ROWS)
    settled = get(program, SETTLED)
    if row == settled:
        touching = get(marks, TOUCHED)
        store_32(touched + 4 * touching, slot)
        put(marks, TOUCHED, touching + 1)
    missed = get(marks, TRIED)
    if missed != get(marks, MISSED):
        put(marks, MISSED, missed)
        put(program, HAS_MISSES, np.int64(1))
    letter = np.int64(kind) + 32
    store_8(get(program, OP) + row, 99 if letter == 105 else letter)  # an insert is a c, for create
    store_64(get(program, LSN) + WORD * row, lsn)
    store_64(get(program, COMMIT_TS) + WORD * row, commit_ts + POSTGRES_EPOCH_UNIX_MICROS)
    store_64(get(program, XID) + WORD * row, xid)
    store_64(get(program, ORDINAL) + WORD * row, ordinal)
    if get(program, PLACES) != 0:
        store_64(get(program, PLACES) + WORD * row, place)
    store_32(get(program, FIRSTS) + 4 * (row - settled), first)
    put(program, ROWS, row + 1)


@kernel(
    BYTES,
    INT64,
    given("uint8"),
    CELLS,
    given("int64"),
    given("int64"),
    given("int64"),
    given("int64"),
    given("int64"),
    CELLS,
    CELLS,
    CELLS,
    CELLS,
    given("uint8"),
    given("int64"),
    out("int32"),
    out("int64"),
    out("int64"),
)
def place_rows(
    buf,
    change,
    kind,
    slot,
    lsn,
    commit_ts,
    xid,
    ordinal,
    place,
    new,
    old,
    offset,
    length,
    kept,
    programs,
    touched,
    misses,
    marks,
):
    """Place the rows that lie in a tile's arrays from `change` on; give a `Left`.

    `kept` says which rows are wanted (empty: all), `programs` has the address of each slot's program; for `touched`,
    `misses` and `marks` see `walreplay.decode.placing.Placer`.
    """
    base = address_of(buf)
    last = base + buf.size - 32
    missing, marking = address_of(misses), address_of(marks)
    left = np.int64(DONE)
    while change < kind.size:
        of = np.uint64(slot[change])
        program = programs[of]
        if program != NO_PROGRAM and (kept.size == 0 or kept[change]):
            own, before = np.int64(new[change]), np.int64(old[change])
            first = own if own >= 0 else before
            left = np.int64(may_place(program, marking))
            if left == DONE:
                row = get(program, ROWS)
                at, sizes = address_of(offset), address_of(length)
                left = np.int64(place_cells(base, last, program, row, first, at, sizes, missing, marking))
            if left != DONE:
                marks[LEFT_SLOT] = np.int64(of)
                forget_tried(marking)
                break
            if own >= 0 and before >= 0:
                note_before(program, row, before)
            take_row(
                program,
                np.int64(of),
                address_of(touched),
                marking,
                kind[change],
                lsn[change],
                commit_ts[change],
                xid[change],
                ordinal[change],
                first,
                place[change],
            )
        change += 1
    marks[CHANGE] = change
    return left


@helper
def _text_flags(start, end):
    """Tell whether there is a NUL (`HAS_NUL`), or a byte outside of ASCII (`HAS_HIGH`), between two addresses."""
    high = np.uint64(0)
    zero = np.uint64(0)
    at = start
    while at + 8 <= end:
        word = load_word(at)
        high |= word
        zero |= (word - np.uint64(0x0101010101010101)) & ~word
        at += 8
    while at < end:
        word = np.uint64(load_byte(at))
        high |= word
        if word == np.uint64(0):
            zero |= np.uint64(0x80)
        at += 1
    found = np.int64(0)
    if zero & np.uint64(0x8080808080808080):
        found |= HAS_NUL
    if high & np.uint64(0x8080808080808080):
        found |= HAS_HIGH
    return found


@helper
def _needs_care(program):
    """Look at the pending rows; say whether Python has to see to them."""
    care = (
        get(program, NEEDS_CARE) != 0
        or get(program, BEFORES) != 0
        or get(program, HAS_UNCHANGED) != 0
        or get(program, HAS_MISSES) != 0
    )
    rows = get(program, ROWS)
    since = get(program, SETTLED)
    column = program + HEAD * WORD
    for _ in range(get(program, COLUMNS)):
        if TEXT <= get(column, KIND) <= TEXT_ONLY:
            ends = get(column, VALUES)
            data = get(column, DATA)
            first = load_int32(ends + 4 * since)
            last = load_int32(ends + 4 * rows)
            flags = _text_flags(data + first, data + last)
            if flags == HAS_HIGH and is_utf8(data, ends, since, rows):
                flags = np.int64(0)
            if flags != 0:
                put(column, FLAGS, flags)
                care = True
        column += COLUMN * WORD
    return care


@kernel(given("int64"), out("int32"), out("int64"))
def settle(programs, touched, marks):
    """Look at all pending rows; what Python has to see to stays in `touched`, the rest is done with.

    Gives how many slots stay.
    """
    care = np.int64(0)
    for at in range(marks[TOUCHED]):
        program = programs[np.uint64(touched[at])]
        if _needs_care(program):
            touched[care] = touched[at]
            care += 1
        else:
            rows = get(program, ROWS)
            put(program, SETTLED, rows)
            put(program, LIMIT, min(get(program, ROOM), rows + get(program, PENDING_ROOM)))
    marks[TOUCHED] = 0
    return care
