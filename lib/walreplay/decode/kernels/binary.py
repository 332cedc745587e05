"""Values in binary format: floats and numeric(p,s), then PostgreSQL's text of values.

Each function reads or writes the common form of one value.  A cell of n bytes has the length ``BINARY - n``.
"""
# numba has no types.
# mypy: disable-error-code="no-untyped-def, no-untyped-call"

from __future__ import annotations

from typing import Final

import numpy as np

from walreplay.decode.compile.kernel import helper, routine
from walreplay.decode.kernels.base import (
    POWERS_OF_TEN,
    copy_bytes,
    load_big_16,
    load_big_32,
    load_big_64,
    load_byte,
    multiply_add,
    store_uuid,
    store_word,
)

NULL: Final = -1
UNCHANGED: Final = -2
BINARY: Final = -3
"""What a cell's length says below 0; from `BINARY` downwards it is in binary format."""

# Text says NaN and no more, so a NaN's sign and payload are not kept.
_NAN_32: Final = 0x7FC00000
_NAN_64: Final = 0x7FF8000000000000
_INFINITY_32: Final = 0x7F800000
_INFINITY_64: Final = 0x7FF0000000000000


@helper
def float_32_of(start):
    """Read real at an address; return its bits."""
    word = load_big_32(start)
    return np.int64(_NAN_32) if (word & 0x7FFFFFFF) > _INFINITY_32 else word


@helper
def float_64_of(start):
    """Read double precision at an address; return its bits."""
    word = load_big_64(start)
    return np.int64(_NAN_64) if (word & 0x7FFFFFFFFFFFFFFF) > _INFINITY_64 else word


# numeric: the number of digits to base 10,000, the first one's weight, the sign, the scale, and the digits, each of
# 16 bits.
NUMERIC_HEADER: Final = 8
NUMERIC_NEGATIVE: Final = 0x4000
NUMERIC_NAN: Final = 0xC000
NUMERIC_INFINITY: Final = 0xD000
NUMERIC_MINUS_INFINITY: Final = 0xF000
NARROW_PRECISION: Final = 18
_GROUP: Final = np.uint64(10_000)
_1E8: Final = np.uint64(10**8)
_1E16: Final = np.uint64(10**16)
_EVEN_GROUPS: Final = np.uint64(0x0000FFFF0000FFFF)
_TO_HIGH_BIT: Final = np.uint64(0x58F058F058F058F0)  # a group from 10,000 on, and this added, has the high bit set
_HIGH_BIT: Final = np.uint64(0x8000800080008000)
_LOW_HALF: Final = np.uint64(0xFFFFFFFF)
_16: Final = np.uint64(16)
_32: Final = np.uint64(32)
_GROUP_MASKS: Final = np.array([(1 << 16 * count) - 1 for count in range(5)], dtype=np.uint64)
_RECIPROCALS: Final = np.array([2**23, 838_861, 83_887, 8_389], dtype=np.int64)
"""Below 10,000, times this and divided by 2 ** 23 is division by a power of ten, for far less than a division."""


@helper
def digit_count(group):
    """Count the decimal digits of a group of a numeric."""
    return 1 + (group > 9) + (group > 99) + (group > 999)


@helper
def _groups_before(end, count):
    """Read the up to 4 groups that end at an address, as one number and whether one of them is none."""
    word = np.uint64(load_big_64(end - 8)) & _GROUP_MASKS[np.uint64(count)]
    fault = ((word + _TO_HIGH_BIT) | word) & _HIGH_BIT
    pairs = ((word >> _16) & _EVEN_GROUPS) * _GROUP + (word & _EVEN_GROUPS)
    return (pairs >> _32) * _1E8 + (pairs & _LOW_HALF), fault


@helper
def decimal_of(start, size, precision, scale):
    """Read a numeric that has the scale; return it in two words, and whether it is one."""
    high = np.uint64(0)
    low = np.uint64(0)
    if size < NUMERIC_HEADER:
        return high, low, False
    groups = load_big_16(start)
    weight = np.int64(np.int16(load_big_16(start + 2)))
    sign = load_big_16(start + 4)
    good = size == NUMERIC_HEADER + 2 * groups and (sign | NUMERIC_NEGATIVE) == NUMERIC_NEGATIVE
    good = good and load_big_16(start + 6) == scale  # another scale: the exact reader decides whether it fits
    if not good or groups == 0:  # zero has no groups
        return high, low, good and sign == 0 and weight == 0
    first = load_big_16(start + NUMERIC_HEADER)
    whole = 4 * weight + digit_count(first) if weight >= 0 else np.int64(0)
    # So many decimal digits of the last group lie beyond the scale; they have to be zeros.
    excess = 4 * (groups - 1 - weight) - scale
    if first == 0 or first > 9999 or whole > precision - scale or excess > 3:
        return high, low, False
    # These bounds hold every number that comes up below 10 ** precision.
    last = start + size - 2
    group = load_big_16(last)
    factor = _GROUP
    if excess > 0:
        part = (group * _RECIPROCALS[np.uint64(excess)]) >> 23  # without the digits beyond the scale
        good = part * np.int64(POWERS_OF_TEN[np.uint64(excess)]) == group
        factor = POWERS_OF_TEN[np.uint64(4 - excess)]
        group = part
    good = good and group <= 9999
    count = groups - 1
    low, fault = _groups_before(last, min(count, 4))
    if precision <= NARROW_PRECISION:
        if count > 4:
            upper, upper_fault = _groups_before(last - 8, count - 4)
            low += upper * _1E16
            fault |= upper_fault
        low = low * factor + np.uint64(group)
        if excess < 0:  # the last groups were zeros, which are not sent
            low *= POWERS_OF_TEN[np.uint64(-excess)]
    else:
        if count > 4:
            middle, middle_fault = _groups_before(last - 8, min(count - 4, 4))
            fault |= middle_fault
            upper = np.uint64(0)
            if count > 8:
                upper, upper_fault = _groups_before(last - 16, count - 8)
                fault |= upper_fault
                high, middle = multiply_add(high, upper, _1E16, middle)
            high, low = multiply_add(high, middle, _1E16, low)
        high, low = multiply_add(high, low, factor, np.uint64(group))
        zeros = max(-excess, 0)
        if zeros > 19:  # the table's last power
            high, low = multiply_add(high, low, POWERS_OF_TEN[19], np.uint64(0))
            zeros -= 19
        if zeros > 0:
            high, low = multiply_add(high, low, POWERS_OF_TEN[np.uint64(zeros)], np.uint64(0))
    if sign == NUMERIC_NEGATIVE:
        low = np.uint64(~low + np.uint64(1))  # two's complement of 128 bits
        high = np.uint64(~high + np.uint64(low == np.uint64(0)))
    return high, low, good and fault == np.uint64(0)


NO_FORM, AS_SENT, VERSIONED, ONE_BYTE, UUID, NUMERIC, XML = range(7)
"""What the bytes of a value in binary format are, where its column is text.

`NO_FORM`: no kernel writes the text.  `AS_SENT`: the text's bytes.  `VERSIONED`: jsonb and jsonpath, the version 1 and
the text.  `ONE_BYTE`: "char".  `XML`: the text's bytes, but a declaration may differ from the one in text.
"""

SLACK: Final = 192  # How much room is asked for behind a value's own bytes: no text grows by more

_LONGEST_NUMERIC: Final = 160

_GROUP_DIGITS: Final = np.array([int.from_bytes(b"%04d" % group, "little") for group in range(10_000)], dtype=np.uint64)
"""The four digits of every number below 10,000 as bytes."""

_DASH: Final = np.uint64(45)
_POINT: Final = np.uint64(46)
_ZERO: Final = np.uint64(48)
_NAN_WORD: Final = np.uint64(int.from_bytes(b"NaN\0\0\0\0\0", "little"))
_INFINITY_WORD: Final = np.uint64(int.from_bytes(b"Infinity", "little"))


@helper
def _write_numeric(target, start, size):
    """Write a numeric's text and give its length, or -1 for one that is long or not in the common form."""
    if size < NUMERIC_HEADER:
        return np.int64(-1)
    groups = load_big_16(start)
    weight = np.int64(np.int16(load_big_16(start + 2)))
    sign = load_big_16(start + 4)
    scale = load_big_16(start + 6)
    if size != NUMERIC_HEADER + 2 * groups:
        return np.int64(-1)
    if sign >= NUMERIC_NAN:
        if groups != 0 or (sign != NUMERIC_NAN and sign != NUMERIC_INFINITY and sign != NUMERIC_MINUS_INFINITY):
            return np.int64(-1)
        if sign == NUMERIC_NAN:
            store_word(target, _NAN_WORD)
            return np.int64(3)
        store_word(target, _DASH)
        minus = np.int64(sign == NUMERIC_MINUS_INFINITY)
        store_word(target + minus, _INFINITY_WORD)
        return 8 + minus
    if sign != 0 and sign != NUMERIC_NEGATIVE:
        return np.int64(-1)
    if groups == 0 and (sign != 0 or weight != 0):
        return np.int64(-1)
    if 4 * max(weight, 0) + scale > _LONGEST_NUMERIC:  # room was made for no more (`SLACK`)
        return np.int64(-1)
    digit = start + NUMERIC_HEADER
    excess = 4 * (groups - 1 - weight) - scale
    if groups > 0:
        # Digits that the scale hides, and leading zeros, are nothing that a server sends.
        if load_big_16(digit) == 0 or excess > 3:  # a whole group beyond the scale
            return np.int64(-1)
        if excess > 0 and load_big_16(digit + 2 * (groups - 1)) % np.int64(POWERS_OF_TEN[excess]) != 0:
            return np.int64(-1)
    place = target
    if sign == NUMERIC_NEGATIVE:
        store_word(place, _DASH)
        place += 1
    if weight < 0:
        store_word(place, _ZERO)
        place += 1
    else:
        for j in range(weight + 1):
            group = load_big_16(digit + 2 * j) if j < groups else np.int64(0)
            if group > 9999:
                return np.int64(-1)
            word = _GROUP_DIGITS[np.uint64(group)]
            width = np.int64(4)
            if j == 0:  # without leading zeros
                width = np.int64(digit_count(group))
                word >>= np.uint64(8 * (4 - width))
            store_word(place, word)
            place += width
    if scale > 0:
        store_word(place, _POINT)
        place += 1
        end = place + scale  # the last group may write beyond it, where the next value begins
        j = weight + 1
        while place < end:
            group = load_big_16(digit + 2 * j) if 0 <= j < groups else np.int64(0)
            if group > 9999:
                return np.int64(-1)
            store_word(place, _GROUP_DIGITS[np.uint64(group)])
            place += 4
            j += 1
        place = end
    return place - target


@helper
def _write_byte(target, byte):
    """Write a "char" as PostgreSQL 16 does and give its length: from 128 on it is an octal escape."""
    if byte == 0:
        return np.int64(0)
    if byte < 128:
        store_word(target, np.uint64(byte))
        return np.int64(1)
    # A backslash and three octal digits.
    digits = (48 + (byte >> 6)) << 8 | (48 + (byte >> 3 & 7)) << 16 | (48 + (byte & 7)) << 24
    store_word(target, np.uint64(92 | digits))
    return np.int64(4)


@routine
def write_text(target, start, size, form):
    """Write the text of a value of some form and give its length, or -1 for another form; behind it is `SLACK`."""
    if form == UUID and size == 16:
        store_uuid(target, start)
        return np.int64(36)
    if form == NUMERIC:
        return _write_numeric(target, start, size)
    if form == ONE_BYTE and size == 1:
        return _write_byte(target, load_byte(start))
    if form == VERSIONED and size >= 1 and load_byte(start) == 1:  # the only version so far
        copy_bytes(target, start + 1, size - 1)
        return size - 1
    if form == XML and not (size >= 2 and load_byte(start) == 60 and load_byte(start + 1) == 63):  # <?
        copy_bytes(target, start, size)
        return size
    return np.int64(-1)
