"""The kernels that place rows: each value goes from the bytes to where its column lies, from text or binary format.

A program and its words are described in `walreplay.decode.placing`, where Python makes them.  First come the kernels of
one value.  The walk places the rows that it finds as it goes (`walreplay.decode.kernels.walk`), `place_rows` those of
a tile that lie in its arrays; `settle` looks at what either has left.  `place_column` places the cells of one column,
where they come from elsewhere: COPY, old tuples, arrays.
"""
# numba has no types.
# mypy: disable-error-code="no-untyped-def, no-untyped-call"

from __future__ import annotations

from typing import Final

import numpy as np

from walreplay.decode.compile.kernel import helper, kernel, routine
from walreplay.decode.compile.parameters import BYTES, CELLS, INT64, TILE, given, out
from walreplay.decode.kernels import programs
from walreplay.decode.kernels.base import (
    address_of,
    copy_32,
    copy_bytes,
    digits,
    digits_of_word,
    load_big_16,
    load_big_32,
    load_big_64,
    load_byte,
    load_int32,
    load_word,
    store_8,
    store_16,
    store_32,
    store_64,
    store_word,
)
from walreplay.decode.kernels.binary import (
    AS_SENT,
    BINARY,
    NARROW_PRECISION,
    SLACK,
    decimal_of,
    float_32_of,
    float_64_of,
    write_text,
)
from walreplay.decode.kernels.fixed import (
    BAD_DAY,
    NO_TIME,
    boolean_of,
    float_of,
    iso_day,
    iso_time,
    narrow_decimal_of,
    wide_decimal_of,
    zoned_time,
)
from walreplay.decode.kernels.programs import Refusal, get, put
from walreplay.decode.kernels.text import HAS_HIGH, flags_of, is_utf8, write_hex
from walreplay.decode.kernels.walk_words import CellAddresses, WalkedRow, WalkedTransaction
from walreplay.lsn import POSTGRES_EPOCH_UNIX_MICROS
from walreplay.protocol.messages import MAX_COLUMNS

_COPIED: Final = 32  # How many bytes of a text are written at once, so that there has to be room for them

_FEW_BYTES: Final = 256
_LARGEST: Final = np.uint64(0x7FFFFFFFFFFFFFFF)
_DAY_MICROS: Final = 86_400_000_000
_EPOCH_DAY: Final = POSTGRES_EPOCH_UNIX_MICROS // _DAY_MICROS


@helper
def _integer(base, start, size, in_tuple):
    """Read an integer's text; return it, how many digits it has, and whether it is one of up to 64 bits."""
    negative = np.int64(load_byte(base + start) == 45)  # a minus
    digit_count = size - negative
    end = start + size
    if 1 <= digit_count <= 8 and in_tuple:
        # In front of a tuple's value there are 8 bytes at least.
        magnitude = digits_of_word(base + end, digit_count)
    elif 1 <= digit_count <= 19:
        magnitude = digits(base, end - digit_count, digit_count)
    else:
        return np.int64(0), np.int64(0), False
    # The smallest bigint alone is left to the exact reader.
    if magnitude > _LARGEST:
        return np.int64(0), np.int64(0), False
    return (np.int64(magnitude) ^ -negative) + negative, digit_count, True  # two's complement, without a branch


@helper
def _copy_text(target, source, count, last):
    """Copy a text from one address to another, behind which there is `_COPIED`; see `_place_text` for `last`."""
    # Whole words overwrite what is not used yet, and cost less than a call of memcpy.
    if count <= 16 and source <= last:
        store_word(target, load_word(source))
        store_word(target + 8, load_word(source + 8))
    elif count <= _FEW_BYTES and source + count <= last:
        stop = source + count
        while source < stop:
            copy_32(target, source)
            source += 32
            target += 32
    else:
        copy_bytes(target, source, count)


@helper
def _end_text(column, row, end):
    """Note where a text ends that was written."""
    store_32(get(column, programs.VALUES) + 4 * row + 4, end)  # Arrow's offsets: one more than there are rows
    store_8(get(column, programs.VALID) + row, 1)


@helper
def _place_text(base, last, column, row, start, count):
    """Copy a text; False where there is no room. From address `last` on there are fewer than 32 bytes to read."""
    position = load_int32(get(column, programs.VALUES) + 4 * row)
    after = position + count
    if after + _COPIED > get(column, programs.CAPACITY):  # Python makes room, and the row is placed again
        return False
    target = get(column, programs.DATA) + position
    _copy_text(target, base + start, count, last)
    _end_text(column, row, after)
    return True


@routine
def _place_hex(base, column, row, start, size):
    r"""Read bytea in hex form (\x…); return what becomes of it."""
    if size < 2 or size & 1 or load_byte(base + start) != 92 or load_byte(base + start + 1) != 120:  # \x
        return programs.NO_TEXT
    count = (size - 2) >> 1
    position = load_int32(get(column, programs.VALUES) + 4 * row)
    if position + count + _COPIED > get(column, programs.CAPACITY):
        return programs.NO_ROOM
    if not write_hex(get(column, programs.DATA) + position, base + start + 2, count):
        return programs.NO_TEXT
    _end_text(column, row, position + count)
    return programs.PLACED


@routine
def _place_written(base, column, row, start, count):
    """Write the text of a value in binary format; return what becomes of it."""
    position = load_int32(get(column, programs.VALUES) + 4 * row)
    if position + count + SLACK > get(column, programs.CAPACITY):
        return programs.NO_ROOM
    size = write_text(get(column, programs.DATA) + position, base + start, count, get(column, programs.LOW))
    if size < 0:
        return programs.NO_TEXT
    _end_text(column, row, position + size)
    return programs.PLACED


@helper
def _put_decimal(column, row, low, high):
    values = get(column, programs.VALUES) + 16 * row
    store_64(values, low)
    store_64(values + 8, high)


@helper
def place_null(column, row):
    """Place a NULL."""
    kind = get(column, programs.KIND)
    if kind == programs.OTHER:
        return
    values = get(column, programs.VALUES)
    store_8(get(column, programs.VALID) + row, 0)
    if kind == programs.TEXT or kind == programs.BYTES:
        store_32(values + 4 * row + 4, load_int32(values + 4 * row))  # a text of no bytes
    elif programs.INT32 <= kind <= programs.DATE:
        store_32(values + 4 * row, np.int64(0))
    elif kind == programs.INT16:
        store_16(values + 2 * row, np.int64(0))
    elif kind == programs.BOOLEAN:
        store_8(values + row, 0)
    elif kind == programs.DECIMAL:
        _put_decimal(column, row, np.int64(0), np.int64(0))
    else:
        store_64(values + 8 * row, np.int64(0))


@routine
def _place_rarer(base, column, kind, row, start, size):
    """Convert a text whose kind is none of the most frequent; False where it is in another form."""
    end = start + size
    values = get(column, programs.VALUES)
    value = np.int64(0)
    is_read = False
    if kind == programs.INT16 or kind == programs.UNSIGNED:
        if size > 0:
            value, _, is_read = _integer(base, start, size, False)
            is_read = is_read and get(column, programs.LOW) <= value <= get(column, programs.HIGH)
    elif kind == programs.BOOLEAN:
        value = boolean_of(base + start, size)
        is_read = value >= 0
    elif kind == programs.FLOAT32:
        value, is_read = float_of(base, start, end, 23)
    elif kind == programs.FLOAT64:
        value, is_read = float_of(base, start, end, 52)
    elif kind == programs.DECIMAL:
        precision, scale = get(column, programs.LOW), get(column, programs.HIGH)
        if precision <= NARROW_PRECISION:
            value, is_read = narrow_decimal_of(base, start, end, precision, scale)
            _put_decimal(column, row, value, value >> 63)
        else:
            high, low, is_read = wide_decimal_of(base, start, end, precision, scale)
            _put_decimal(column, row, np.int64(low), np.int64(high))
    elif kind == programs.DATE:
        if size == 10:
            value = iso_day(base, start)
            is_read = value != BAD_DAY
    else:
        value = iso_time(base, start, end) if kind == programs.TIMESTAMP else zoned_time(base, start, end)
        is_read = value != NO_TIME
    _put_value(column, values, kind, row, value, is_read)
    return is_read


@helper
def _put_value(column, values, kind, row, value, is_read):
    """Write a value of any kind but text and decimals, and the validity."""
    if not is_read:
        value = np.int64(0)
    if programs.INT32 <= kind <= programs.DATE:
        store_32(values + 4 * row, value)
    elif kind == programs.INT16:
        store_16(values + 2 * row, value)
    elif kind == programs.BOOLEAN:
        store_8(values + row, value)
    elif kind != programs.DECIMAL:
        store_64(values + 8 * row, value)
    store_8(get(column, programs.VALID) + row, np.int64(is_read))


@routine
def _place_binary(base, column, kind, row, start, count):
    """Convert a value in binary format that is no text; False where it is in another form."""
    address = base + start
    value = np.int64(0)
    is_read = False
    if kind == programs.DECIMAL:
        high, low, is_read = decimal_of(address, count, get(column, programs.LOW), get(column, programs.HIGH))
        if not is_read:  # NULL, until Python has read the value
            high, low = np.uint64(0), np.uint64(0)
        _put_decimal(column, row, np.int64(low), np.int64(high))
    elif kind == programs.INT16:
        is_read = count == 2
        if is_read:
            value = np.int64(np.int16(load_big_16(address)))
    elif kind == programs.BOOLEAN:
        is_read = count == 1 and load_byte(address) <= 1
        if is_read:
            value = load_byte(address)
    elif kind == programs.UNSIGNED:
        is_read = count == 4
        if is_read:
            value = load_big_32(address)
    elif count == 4 and programs.INT32 <= kind <= programs.DATE:
        if kind == programs.FLOAT32:
            value, is_read = float_32_of(address), True
        elif kind == programs.INT32:
            value, is_read = np.int64(np.int32(load_big_32(address))), True
        else:
            value = np.int64(np.int32(load_big_32(address))) + _EPOCH_DAY  # PostgreSQL counts from 2000-01-01
            is_read = get(column, programs.LOW) <= value <= get(column, programs.HIGH)
    elif count == 8:
        value = load_big_64(address)
        if kind == programs.INT64_:
            is_read = True
        elif kind == programs.FLOAT64:
            value, is_read = float_64_of(address), True
        elif programs.TIMESTAMP <= kind <= programs.TIMESTAMPTZ:
            # The infinite ones come out below the first.
            value += POSTGRES_EPOCH_UNIX_MICROS
            is_read = get(column, programs.LOW) <= value <= get(column, programs.HIGH)
    _put_value(column, get(column, programs.VALUES), kind, row, value, is_read)
    return is_read


@helper
def place_text_form(base, last, column, row, start, size, in_tuple):
    """Place a value in text format; return what becomes of it."""
    kind = get(column, programs.KIND)
    if kind == programs.TEXT:
        return programs.PLACED if _place_text(base, last, column, row, start, size) else programs.NO_ROOM
    if kind == programs.INT32 or kind == programs.INT64_:
        value = np.int64(0)
        is_read = False
        if size > 0:
            value, count, is_read = _integer(base, start, size, in_tuple)
            # Eight digits fit.
            is_read = is_read and (count <= 8 or get(column, programs.LOW) <= value <= get(column, programs.HIGH))
        if not is_read:
            value = np.int64(0)
        store_8(get(column, programs.VALID) + row, np.int64(is_read))
        if kind == programs.INT32:
            store_32(get(column, programs.VALUES) + 4 * row, value)
        else:
            store_64(get(column, programs.VALUES) + 8 * row, value)
        return programs.PLACED if is_read else programs.MISSED_VALUE
    if kind == programs.OTHER:
        return programs.PLACED  # its builder reads the cell when the pending rows are completed
    if kind == programs.BYTES:
        return _place_hex(base, column, row, start, size)
    return programs.PLACED if _place_rarer(base, column, kind, row, start, size) else programs.MISSED_VALUE


@helper
def place_binary_form(base, last, column, row, start, count):
    """Place a value in binary format; return what becomes of it."""
    kind = get(column, programs.KIND)
    if kind == programs.TEXT or kind == programs.BYTES:
        if get(column, programs.LOW) != AS_SENT:
            return _place_written(base, column, row, start, count)
        return programs.PLACED if _place_text(base, last, column, row, start, count) else programs.NO_ROOM
    if kind == programs.OTHER:
        return programs.PLACED
    return programs.PLACED if _place_binary(base, column, kind, row, start, count) else programs.MISSED_VALUE


@helper
def _place_cell(base, last, column, row, start, length, in_tuple):
    """Place a cell of either format, or NULL; return what becomes of it."""
    if length >= 0:
        return place_text_form(base, last, column, row, start, length, in_tuple)
    if length <= BINARY:
        return place_binary_form(base, last, column, row, start, BINARY - length)
    place_null(column, row)
    return programs.PLACED


@helper
def note_miss(marks, program, number, row, first_cell):
    """List a value of column `number` that is in another form; it counts once its row does."""
    tried = get(marks, programs.TRIED)
    miss = get(marks, programs.MISSED_VALUES) + tried * (programs.MISS_WORDS * programs.WORD)
    put(miss, 0, program)
    put(miss, 1, np.int64(number))
    put(miss, 2, row)
    put(miss, 3, first_cell)
    put(marks, programs.TRIED, tried + 1)  # `take_row` makes it `MISSED`


@helper
def note_refused(marks, placed, number, count):
    """Note which text column has no room, and for how many bytes, or refuses its value; return a `Refusal`."""
    put(marks, programs.LEFT_COLUMN, np.int64(number))
    put(marks, programs.LEFT_BYTES, count + SLACK)
    return Refusal.TEXT_ROOM if placed == programs.NO_ROOM else Refusal.NOT_TEXT


@routine
def place_cells(base, last, program, first_cell, cells, marks):
    """Place the row whose cells stand in the arrays from `first_cell` on; below 0 it has none.  Returns a `Refusal`."""
    row = get(program, programs.ROWS)
    column = program + programs.HEAD * programs.WORD
    for number in range(get(program, programs.COLUMNS)):
        length = np.int64(-1)
        start = np.int64(0)
        if first_cell >= 0:
            length = load_int32(cells.lengths + 4 * (first_cell + number))
            start = load_int32(cells.offsets + 4 * (first_cell + number))
        placed = _place_cell(base, last, column, row, start, length, True)
        if length == -2:  # unchanged TOAST
            put(program, programs.HAS_UNCHANGED, np.int64(1))
        if placed == programs.MISSED_VALUE:
            note_miss(marks, program, number, row, first_cell)
        elif placed >= programs.NO_ROOM:
            return note_refused(marks, placed, number, length if length >= 0 else BINARY - length)
        column += programs.COLUMN * programs.WORD
    return Refusal.DONE


@kernel(TILE, given("int64"), INT64, INT64, out("int32"))
def place_column(tile, program, first_row, row, misses):
    """Place a column's cells from `row` on, behind the first rows; return the row that is not placed, or how many are.

    `program` has the column's words.  Rows whose value is in another form are listed in `misses` behind their number.
    """
    buf, offset, length, first, number = tile
    base = address_of(buf)
    last = base + buf.size - 32
    column = address_of(program)
    missed = np.int64(misses[0])
    while row < first.size:
        start = np.int64(0)
        size = np.int64(-1)
        if first[row] >= 0:
            cell = np.uint64(np.int64(first[row]) + number)
            start, size = np.int64(offset[cell]), np.int64(length[cell])
        placed = _place_cell(base, last, column, first_row + row, start, size, False)
        if placed == programs.MISSED_VALUE:
            missed += 1
            misses[missed] = row
        elif placed >= programs.NO_ROOM:
            break
        row += 1
    misses[0] = missed
    return row


@helper
def may_place(program, marks):
    """Return whether a row can be placed by a program: `DONE`, or why not."""
    if program == programs.UNSEEN:
        return Refusal.NEW
    if get(program, programs.ROWS) >= get(program, programs.LIMIT):  # the room, or as many as may be pending
        is_full = get(program, programs.ROWS) >= get(program, programs.ROOM)
        return Refusal.ROOM if is_full else Refusal.CARE
    return Refusal.DONE if get(marks, programs.MISSED) <= programs.MISSES - MAX_COLUMNS else Refusal.CARE


@helper
def forget_tried(marks):
    """Forget what the values of a row miss that was not taken."""
    put(marks, programs.TRIED, get(marks, programs.MISSED))


@helper
def note_old_tuple(program, old_cell):
    """List the old tuple of the update that is placed: its first cell, and the row."""
    count = get(program, programs.BEFORES)
    store_32(get(program, programs.BEFORE_FIRSTS) + 4 * count, old_cell)
    put(get(program, programs.BEFORE_ROWS), count, get(program, programs.ROWS))
    put(program, programs.BEFORES, count + 1)


@helper
def take_row(marks, program, slot, transaction, change):
    """Count a row whose values were placed, with what is known of it beside them."""
    row = get(program, programs.ROWS)
    settled = get(program, programs.SETTLED)
    if row == settled:  # the slot's first pending row
        touched_count = get(marks, programs.TOUCHED)
        store_32(get(marks, programs.TOUCHED_SLOTS) + 4 * touched_count, slot)
        put(marks, programs.TOUCHED, touched_count + 1)
    tried = get(marks, programs.TRIED)
    if tried != get(marks, programs.MISSED):
        put(marks, programs.MISSED, tried)
        put(program, programs.HAS_MISSES, np.int64(1))
    letter = np.int64(change.tag) + 32
    store_8(get(program, programs.OP) + row, 99 if letter == 105 else letter)  # an insert is a c, for create
    put(get(program, programs.LSN), row, transaction.lsn)
    put(get(program, programs.COMMIT_TS), row, transaction.commit_ts + POSTGRES_EPOCH_UNIX_MICROS)
    put(get(program, programs.XID), row, transaction.xid)
    put(get(program, programs.ORDINAL), row, change.ordinal)
    if get(program, programs.PLACES) != 0:  # somebody asks where rows come from
        put(get(program, programs.PLACES), row, change.source)
    store_32(get(program, programs.FIRSTS) + 4 * (row - settled), change.first_cell)
    put(program, programs.ROWS, row + 1)


@kernel(BYTES, INT64, given("int64", ndim=2), CELLS, CELLS, given("uint8"), out("int64"))
def place_rows(buf, change, rows, offset, length, kept, marks):
    """Place the rows that lie in a tile's arrays from `change` on; return a `Refusal`.

    `kept` says which rows are wanted (empty: all).
    """
    base = address_of(buf)
    last = base + buf.size - 32
    cells = CellAddresses(address_of(offset), address_of(length))
    marks_base = address_of(marks)
    refusal = np.int64(Refusal.DONE)
    while change < rows.shape[0]:
        tile_row = address_of(rows) + programs.ROW_BYTES * change
        slot = get(tile_row, programs.ROW_SLOT)
        program = get(marks[programs.SLOT_PROGRAMS], slot)
        if program != programs.NOT_WANTED and (kept.size == 0 or kept[change]):
            new_cell, old_cell = get(tile_row, programs.ROW_NEW), get(tile_row, programs.ROW_OLD)
            first_cell = new_cell if new_cell >= 0 else old_cell
            refusal = np.int64(may_place(program, marks_base))
            if refusal == Refusal.DONE:
                refusal = np.int64(place_cells(base, last, program, first_cell, cells, marks_base))
            if refusal != Refusal.DONE:
                marks[programs.LEFT_SLOT] = slot
                forget_tried(marks_base)
                break
            if new_cell >= 0 and old_cell >= 0:
                note_old_tuple(program, old_cell)
            lsn, commit_ts = get(tile_row, programs.ROW_LSN), get(tile_row, programs.ROW_COMMIT_TS)
            transaction = WalkedTransaction(lsn, commit_ts, get(tile_row, programs.ROW_XID))
            tag, ordinal = get(tile_row, programs.ROW_KIND), get(tile_row, programs.ROW_ORDINAL)
            row = WalkedRow(tag, ordinal, first_cell, get(tile_row, programs.ROW_PLACE))
            take_row(marks_base, program, slot, transaction, row)
        change += 1
    marks[programs.CHANGE] = change
    return refusal


@helper
def _needs_care(program):
    """Look at the pending rows; return whether Python has to complete them."""
    needs_care = (
        get(program, programs.NEEDS_CARE) != 0
        or get(program, programs.BEFORES) != 0
        or get(program, programs.HAS_UNCHANGED) != 0
        or get(program, programs.HAS_MISSES) != 0
    )
    rows = get(program, programs.ROWS)
    settled = get(program, programs.SETTLED)
    column = program + programs.HEAD * programs.WORD
    for _ in range(get(program, programs.COLUMNS)):
        if get(column, programs.KIND) == programs.TEXT:
            ends = get(column, programs.VALUES)
            data = get(column, programs.DATA)
            start = load_int32(ends + 4 * settled)
            end = load_int32(ends + 4 * rows)
            flags = flags_of(data + start, data + end)
            if flags == HAS_HIGH and is_utf8(data, ends, settled, rows):
                flags = np.int64(0)  # not ASCII, but nothing is wrong
            if flags != 0:
                put(column, programs.FLAGS, flags)
                needs_care = True
        column += programs.COLUMN * programs.WORD
    return needs_care


@kernel(out("int64"))
def settle(marks):
    """Look at all pending rows; what Python has to see to stays among the touched slots, the rest is done with.

    Gives how many slots stay.
    """
    touched = marks[programs.TOUCHED_SLOTS]
    care_count = np.int64(0)
    for index in range(marks[programs.TOUCHED]):
        slot = load_int32(touched + 4 * index)
        program = get(marks[programs.SLOT_PROGRAMS], slot)
        if _needs_care(program):
            store_32(touched + 4 * care_count, slot)
            care_count += 1
        else:
            rows = get(program, programs.ROWS)
            put(program, programs.SETTLED, rows)
            put(program, programs.LIMIT, min(get(program, programs.ROOM), rows + get(program, programs.PENDING_ROOM)))
    marks[programs.TOUCHED] = 0
    return care_count
