"""One value to where its column lies, in text or in binary format."""

# mypy: disable-error-code="no-untyped-def, no-untyped-call"

from __future__ import annotations

from typing import Final

import numpy as np

from walreplay.decode.compile.kernel import helper, routine
from walreplay.decode.kernels.base import (
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
from walreplay.decode.kernels.binary import NARROW_PRECISION, decimal_of, float_32_of, float_64_of
from walreplay.decode.kernels.fixed import boolean_of, float_of, narrow_decimal_of, wide_decimal_of
from walreplay.decode.kernels.programs import (
    BOOLEAN,
    CAPACITY,
    DATA,
    DATE,
    DECIMAL,
    FLOAT32,
    FLOAT64,
    HIGH,
    INT16,
    INT32,
    INT64_,
    KIND,
    LOW,
    MISSED_VALUE,
    NO_ROOM,
    NO_TEXT,
    OTHER,
    PLACED,
    TEXT,
    TEXT_ONLY,
    TIMESTAMP,
    TIMESTAMPTZ,
    VALID,
    VALUES,
    get,
)
from walreplay.decode.kernels.times import BAD_DAY, NO_TIME, iso_day, iso_time, zoned_time
from walreplay.lsn import POSTGRES_EPOCH_UNIX_MICROS

SLACK: Final = 32
"""How much room is asked for behind a text's own bytes, to write 32 at once."""

_FEW_BYTES: Final = 256

_LARGEST: Final = np.uint64(0x7FFFFFFFFFFFFFFF)

_DAY_MICROS: Final = 86_400_000_000

_EPOCH_DAY: Final = POSTGRES_EPOCH_UNIX_MICROS // _DAY_MICROS


@helper
def _integer(base, start, size):
    """Read an integer's text; give it, how many digits it has, and whether it is one of up to 64 bits."""
    negative = np.int64(load_byte(base + start) == 45)
    count = size - negative
    end = start + size
    if 1 <= count <= 8:
        # In front of a tuple's value there are 8 bytes at least.
        magnitude = digits_of_word(base + end, count)
    elif 8 < count <= 19:
        magnitude = digits(base, end - count, count)
    else:
        return np.int64(0), np.int64(0), False
    # The smallest bigint alone is left to the exact reader.
    if magnitude > _LARGEST:
        return np.int64(0), np.int64(0), False
    return (np.int64(magnitude) ^ -negative) + negative, count, True


@helper
def _copy_text(target, source, count, last):
    """Copy a text from one address to another, behind which there is `SLACK`; see `_place_text` for `last`."""
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
def _place_text(base, last, column, row, start, count):
    """Copy a text; False where there is no room. From address `last` on there are fewer than 32 bytes to read."""
    ends = get(column, VALUES)
    position = load_int32(ends + 4 * row)
    after = position + count
    if after + SLACK > get(column, CAPACITY):
        return False
    target = get(column, DATA) + position
    _copy_text(target, base + start, count, last)
    store_32(ends + 4 * row + 4, after)
    store_8(get(column, VALID) + row, 1)
    return True


@helper
def _put_decimal(column, row, low, high):
    values = get(column, VALUES) + 16 * row
    store_64(values, low)
    store_64(values + 8, high)


@helper
def _null(column, row):
    """Write a NULL."""
    what = get(column, KIND)
    if what == OTHER:
        return
    values = get(column, VALUES)
    store_8(get(column, VALID) + row, 0)
    if TEXT <= what <= TEXT_ONLY:
        store_32(values + 4 * row + 4, load_int32(values + 4 * row))
    elif INT32 <= what <= DATE:
        store_32(values + 4 * row, np.int64(0))
    elif what == INT16:
        store_16(values + 2 * row, np.int64(0))
    elif what == BOOLEAN:
        store_8(values + row, 0)
    elif what == DECIMAL:
        _put_decimal(column, row, np.int64(0), np.int64(0))
    else:
        store_64(values + 8 * row, np.int64(0))


@routine
def _place_rarer(base, column, what, row, start, size):
    """Convert a text whose kind is none of the most frequent; False where it is in another form."""
    end = start + size
    values = get(column, VALUES)
    value = np.int64(0)
    good = False
    if what == INT16:
        if size > 0:
            value, _, good = _integer(base, start, size)
            good = good and get(column, LOW) <= value <= get(column, HIGH)
    elif what == BOOLEAN:
        value = boolean_of(base + start, size)
        good = value >= 0
    elif what == FLOAT32:
        value, good = float_of(base, start, end, 23)
    elif what == FLOAT64:
        value, good = float_of(base, start, end, 52)
    elif what == DECIMAL:
        precision, scale = get(column, LOW), get(column, HIGH)
        if precision <= NARROW_PRECISION:
            value, good = narrow_decimal_of(base, start, end, precision, scale)
            _put_decimal(column, row, value, value >> 63)
        else:
            high, low, good = wide_decimal_of(base, start, end, precision, scale)
            _put_decimal(column, row, np.int64(low), np.int64(high))
    elif what == DATE:
        if size == 10:
            value = iso_day(base, start)
            good = value != BAD_DAY
    else:
        value = iso_time(base, start, end) if what == TIMESTAMP else zoned_time(base, start, end)
        good = value != NO_TIME
    _put_value(column, values, what, row, value, good)
    return good


@helper
def _put_value(column, values, what, row, value, good):
    """Write a value of any kind but text and decimals, and the validity."""
    if not good:
        value = np.int64(0)
    if INT32 <= what <= DATE:
        store_32(values + 4 * row, value)
    elif what == INT16:
        store_16(values + 2 * row, value)
    elif what == BOOLEAN:
        store_8(values + row, value)
    elif what != DECIMAL:
        store_64(values + 8 * row, value)
    store_8(get(column, VALID) + row, np.int64(good))


@routine
def _place_binary(base, column, what, row, start, count):
    """Convert a value in binary format that is no text; False where it is in another form."""
    at = base + start
    value = np.int64(0)
    good = False
    if what == DECIMAL:
        high, low, good = decimal_of(at, count, get(column, LOW), get(column, HIGH))
        if not good:
            high, low = np.uint64(0), np.uint64(0)
        _put_decimal(column, row, np.int64(low), np.int64(high))
    elif what == INT16:
        good = count == 2
        if good:
            value = np.int64(np.int16(load_big_16(at)))
    elif what == BOOLEAN:
        good = count == 1 and load_byte(at) <= 1
        if good:
            value = load_byte(at)
    elif count == 4 and INT32 <= what <= DATE:
        if what == FLOAT32:
            value, good = float_32_of(at), True
        elif what == INT32:
            value, good = np.int64(np.int32(load_big_32(at))), True
        else:
            value = np.int64(np.int32(load_big_32(at))) + _EPOCH_DAY
            good = get(column, LOW) <= value <= get(column, HIGH)
    elif count == 8:
        value = load_big_64(at)
        if what == INT64_:
            good = True
        elif what == FLOAT64:
            value, good = float_64_of(at), True
        elif TIMESTAMP <= what <= TIMESTAMPTZ:
            # The infinite ones come out below the first.
            value += POSTGRES_EPOCH_UNIX_MICROS
            good = get(column, LOW) <= value <= get(column, HIGH)
    _put_value(column, get(column, VALUES), what, row, value, good)
    return good


@helper
def place_text_form(base, last, column, row, start, size):
    """Place a value in text format; give what becomes of it."""
    what = get(column, KIND)
    if TEXT <= what <= TEXT_ONLY:
        return PLACED if _place_text(base, last, column, row, start, size) else NO_ROOM
    if what == INT32 or what == INT64_:  # noqa: SIM109
        value = np.int64(0)
        good = False
        if size > 0:
            value, count, good = _integer(base, start, size)
            # Eight digits fit.
            good = good and (count <= 8 or get(column, LOW) <= value <= get(column, HIGH))
        if not good:
            value = np.int64(0)
        store_8(get(column, VALID) + row, np.int64(good))
        if what == INT32:
            store_32(get(column, VALUES) + 4 * row, value)
        else:
            store_64(get(column, VALUES) + 8 * row, value)
        return PLACED if good else MISSED_VALUE
    if what == OTHER:
        return PLACED
    return PLACED if _place_rarer(base, column, what, row, start, size) else MISSED_VALUE


@helper
def place_binary_form(base, last, column, row, start, count):
    """Place a value in binary format; give what becomes of it."""
    what = get(column, KIND)
    if what == TEXT:
        return PLACED if _place_text(base, last, column, row, start, count) else NO_ROOM
    if what == TEXT_ONLY:
        return NO_TEXT
    if what == OTHER:
        return PLACED
    return PLACED if _place_binary(base, column, what, row, start, count) else MISSED_VALUE


@helper
def place_null(column, row):
    """Place a NULL."""
    _null(column, row)
