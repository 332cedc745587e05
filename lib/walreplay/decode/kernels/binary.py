"""Kernels for cells in binary format.

Those for types of a fixed width see to the rows that a kernel of `kernels.fixed` has left in `misses`, or to all of
them; they list those that are not in binary format, or not in the common form, and count them.  `texts` goes on
from a row like the kernels of `kernels.text`.  A cell of n bytes in binary format has the length ``BINARY - n``.
"""

# mypy: disable-error-code="no-untyped-def, no-untyped-call"

from __future__ import annotations

from typing import Final

import numpy as np

from walreplay.decode.compile.kernel import Kernel, helper, kernel
from walreplay.decode.compile.parameters import INT64, TILE, Parameter, out
from walreplay.decode.kernels.base import (
    POWERS_OF_TEN,
    address_of,
    load_big_16,
    load_big_32,
    load_big_64,
    load_byte,
    multiply_add,
    store_32,
    store_64,
)

BINARY: Final = -3

ALL_ROWS: Final = -1
"""Instead of a number of misses: no kernel has seen the tile yet."""


def _signature(dtype: str, parameters: int) -> tuple[Parameter, ...]:
    return (*TILE, *(INT64,) * parameters, out(dtype), out("uint8"), out("int32"), INT64)


@helper
def _row_count(first, count):
    return np.int64(first.size) if count == ALL_ROWS else count


@helper
def _row_of(misses, count, i):
    return np.int64(i) if count == ALL_ROWS else np.int64(misses[np.uint64(i)])


@helper
def _sent_length(length, first, column, row):
    """Give a cell's length, and NULL's where there is no cell."""
    if first[np.uint64(row)] < 0:
        return np.int64(-1)
    return np.int64(length[np.uint64(np.int64(first[np.uint64(row)]) + column)])


@helper
def _cell_of(first, column, row):
    return np.uint64(np.int64(first[np.uint64(row)]) + column)


@helper
def _whole_number(address, width):
    """Load an integer of 1, 2, 4 or 8 bytes; a width of -4 is 4 bytes without a sign."""
    if width == 4:
        return np.int64(np.int32(load_big_32(address)))
    if width == 8:
        return load_big_64(address)
    if width == 2:
        return np.int64(np.int16(load_big_16(address)))
    return load_big_32(address) if width == -4 else load_byte(address)


def _whole_numbers(buf, offset, length, first, column, width, low, high, shift, values, valid, misses, count):
    """Read what is one integer of `width` bytes from `low` to `high`, and add `shift` to it."""
    base = address_of(buf)
    missed = 0
    wanted = BINARY - abs(width)
    for i in range(_row_count(first, count)):
        row = _row_of(misses, count, i)
        size = _sent_length(length, first, column, row)
        if size == wanted:
            number = _whole_number(base + np.int64(offset[_cell_of(first, column, row)]), width)
            if low <= number <= high:
                values[np.uint64(row)] = number + shift
                valid[np.uint64(row)] = 1
                continue
        values[np.uint64(row)] = 0
        valid[np.uint64(row)] = 0
        if size >= 0 or size <= BINARY:
            misses[np.uint64(missed)] = row
            missed += 1
    return missed


whole_numbers_8: Final = Kernel(_whole_numbers, _signature("uint8", 4))
whole_numbers_16: Final = Kernel(_whole_numbers, _signature("int16", 4))
whole_numbers_32: Final = Kernel(_whole_numbers, _signature("int32", 4))
whole_numbers_64: Final = Kernel(_whole_numbers, _signature("int64", 4))

# Text says NaN and no more, so a NaN's sign and payload are not kept.
_NAN_32: Final = 0x7FC00000
_NAN_64: Final = 0x7FF8000000000000
_INFINITY_32: Final = 0x7F800000
_INFINITY_64: Final = 0x7FF0000000000000


@helper
def float_32_of(start):
    """Read real at an address; give its bits."""
    word = load_big_32(start)
    return np.int64(_NAN_32) if (word & 0x7FFFFFFF) > _INFINITY_32 else word


@helper
def float_64_of(start):
    """Read double precision at an address; give its bits."""
    word = load_big_64(start)
    return np.int64(_NAN_64) if (word & 0x7FFFFFFFFFFFFFFF) > _INFINITY_64 else word


@kernel(*_signature("float32", 0))
def floats_32(buf, offset, length, first, column, values, valid, misses, count):
    """Read real bit by bit."""
    base = address_of(buf)
    words = address_of(values)
    missed = 0
    for i in range(_row_count(first, count)):
        row = _row_of(misses, count, i)
        size = _sent_length(length, first, column, row)
        if size == BINARY - 4:
            at = base + np.int64(offset[_cell_of(first, column, row)])
            store_32(words + 4 * row, float_32_of(at))
            valid[np.uint64(row)] = 1
        else:
            store_32(words + 4 * row, np.int64(0))
            valid[np.uint64(row)] = 0
            if size >= 0 or size <= BINARY:
                misses[np.uint64(missed)] = row
                missed += 1
    return missed


@kernel(*_signature("float64", 0))
def floats_64(buf, offset, length, first, column, values, valid, misses, count):
    """Read double precision bit by bit."""
    base = address_of(buf)
    words = address_of(values)
    missed = 0
    for i in range(_row_count(first, count)):
        row = _row_of(misses, count, i)
        size = _sent_length(length, first, column, row)
        if size == BINARY - 8:
            at = base + np.int64(offset[_cell_of(first, column, row)])
            store_64(words + 8 * row, float_64_of(at))
            valid[np.uint64(row)] = 1
        else:
            store_64(words + 8 * row, np.int64(0))
            valid[np.uint64(row)] = 0
            if size >= 0 or size <= BINARY:
                misses[np.uint64(missed)] = row
                missed += 1
    return missed


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
    """Read a numeric that has the scale; give it in two words, and whether it is one."""
    high = np.uint64(0)
    low = np.uint64(0)
    if size < NUMERIC_HEADER:
        return high, low, False
    groups = load_big_16(start)
    weight = np.int64(np.int16(load_big_16(start + 2)))
    sign = load_big_16(start + 4)
    good = size == NUMERIC_HEADER + 2 * groups and (sign | NUMERIC_NEGATIVE) == NUMERIC_NEGATIVE
    good = good and load_big_16(start + 6) == scale
    if not good or groups == 0:
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
        part = (group * _RECIPROCALS[np.uint64(excess)]) >> 23
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
        if excess < 0:
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
        if zeros > 19:
            high, low = multiply_add(high, low, POWERS_OF_TEN[19], np.uint64(0))
            zeros -= 19
        if zeros > 0:
            high, low = multiply_add(high, low, POWERS_OF_TEN[np.uint64(zeros)], np.uint64(0))
    if sign == NUMERIC_NEGATIVE:
        low = np.uint64(~low + np.uint64(1))
        high = np.uint64(~high + np.uint64(low == np.uint64(0)))
    return high, low, good and fault == np.uint64(0)


@kernel(*_signature("uint64", 2))
def decimals(buf, offset, length, first, column, precision, scale, values, valid, misses, count):
    """Read numerics that have the column's scale; two words a value."""
    base = address_of(buf)
    missed = 0
    for i in range(_row_count(first, count)):
        row = _row_of(misses, count, i)
        size = _sent_length(length, first, column, row)
        high = np.uint64(0)
        low = np.uint64(0)
        good = size <= BINARY
        if good:
            start = base + np.int64(offset[_cell_of(first, column, row)])
            high, low, good = decimal_of(start, BINARY - size, precision, scale)
        if not good:
            high = np.uint64(0)
            low = np.uint64(0)
            if size >= 0 or size <= BINARY:
                misses[np.uint64(missed)] = row
                missed += 1
        values[np.uint64(2 * row)] = low
        values[np.uint64(2 * row + 1)] = high
        valid[np.uint64(row)] = good
    return missed
