"""Kernels for cells in binary format: values of fixed width, then PostgreSQL's text.

Those for types of a fixed width take the rows that a kernel of `kernels.fixed` has left in `misses`, or all rows.  They
list and count rows that are not in binary format, or not in the common form.  `texts` writes cells as PostgreSQL's
text, and goes on from a row like the kernels of `kernels.text`.  A cell of n bytes has the length ``BINARY - n``.
"""
# numba has no types.
# mypy: disable-error-code="no-untyped-def, no-untyped-call"

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np

from walreplay.decode.compile.kernel import Kernel, helper, kernel
from walreplay.decode.compile.parameters import BYTES, INT64, TILE, VARIABLE, fixed, given, record
from walreplay.decode.kernels.base import (
    POWERS_OF_TEN,
    address_of,
    copy_bytes,
    load_big_16,
    load_big_32,
    load_big_64,
    load_byte,
    load_word,
    multiply_add,
    store_32,
    store_64,
    store_uuid,
    store_word,
)

if TYPE_CHECKING:
    from numpy.typing import NDArray


BINARY: Final = -3
ALL_ROWS: Final = -1
"""Instead of a number of misses: no kernel has seen the tile yet."""


class WholeNumbers(NamedTuple):
    """How integers are sent: how many bytes (-4: 4 bytes without a sign), their limits, and what is added to them."""

    width: int
    low: int
    high: int
    shift: int


def _whole_number_kernel(dtype: str) -> Kernel:
    return Kernel(_whole_numbers, (TILE, record(WholeNumbers, *(INT64,) * 4), fixed(dtype), INT64))


@helper
def _row_count(first, count):
    return np.int64(first.size) if count == ALL_ROWS else count


@helper
def _row_of(misses, count, i):
    return np.int64(i) if count == ALL_ROWS else np.int64(misses[np.uint64(i)])


@helper
def _sent_length(length, first, column, row):
    """Return a cell's length, and NULL's where there is no cell."""
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
    return load_big_32(address) if width == -4 else load_byte(address)  # -4: oid and its like


def _whole_numbers(tile, numbers, output, count):
    """Read integers of one width, within limits."""
    width, low, high, shift = numbers
    buf, offset, length, first, column = tile
    values, valid, misses = output
    base = address_of(buf)
    missed = 0
    fitting = BINARY - abs(width)
    for i in range(_row_count(first, count)):
        row = _row_of(misses, count, i)
        size = _sent_length(length, first, column, row)
        if size == fitting:
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


whole_numbers_8: Final = _whole_number_kernel("uint8")
whole_numbers_16: Final = _whole_number_kernel("int16")
whole_numbers_32: Final = _whole_number_kernel("int32")
whole_numbers_64: Final = _whole_number_kernel("int64")

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


@kernel(TILE, fixed("float32"), INT64)
def floats_32(tile, output, count):
    """Read real bit by bit."""
    buf, offset, length, first, column = tile
    values, valid, misses = output
    base = address_of(buf)
    words = address_of(values)
    missed = 0
    for i in range(_row_count(first, count)):
        row = _row_of(misses, count, i)
        size = _sent_length(length, first, column, row)
        if size == BINARY - 4:
            start = base + np.int64(offset[_cell_of(first, column, row)])
            store_32(words + 4 * row, float_32_of(start))
            valid[np.uint64(row)] = 1
        else:
            store_32(words + 4 * row, np.int64(0))
            valid[np.uint64(row)] = 0
            if size >= 0 or size <= BINARY:  # NULL and unchanged values are no misses
                misses[np.uint64(missed)] = row
                missed += 1
    return missed


@kernel(TILE, fixed("float64"), INT64)
def floats_64(tile, output, count):
    """Read double precision bit by bit."""
    buf, offset, length, first, column = tile
    values, valid, misses = output
    base = address_of(buf)
    words = address_of(values)
    missed = 0
    for i in range(_row_count(first, count)):
        row = _row_of(misses, count, i)
        size = _sent_length(length, first, column, row)
        if size == BINARY - 8:
            start = base + np.int64(offset[_cell_of(first, column, row)])
            store_64(words + 8 * row, float_64_of(start))
            valid[np.uint64(row)] = 1
        else:
            store_64(words + 8 * row, np.int64(0))
            valid[np.uint64(row)] = 0
            if size >= 0 or size <= BINARY:  # NULL and unchanged values are no misses
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


@kernel(TILE, INT64, INT64, fixed("uint64"), INT64)
def decimals(tile, precision, scale, output, count):
    """Read numerics that have the column's scale; two words a value."""
    buf, offset, length, first, column = tile
    values, valid, misses = output
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
            if size >= 0 or size <= BINARY:  # NULL and unchanged values are no misses
                misses[np.uint64(missed)] = row
                missed += 1
        values[np.uint64(2 * row)] = low
        values[np.uint64(2 * row + 1)] = high
        valid[np.uint64(row)] = good
    return missed


AS_SENT: Final = 0  # The text's bytes

VERSIONED: Final = 1  # Jsonb, jsonpath: the version 1 and the text

ONE_BYTE: Final = 2
""""char"."""

UUID: Final = 3
NUMERIC: Final = 4
XML: Final = 5
"""The text's bytes, but a declaration is a miss: it may differ from the one in text."""

BYTEA: Final = 6  # Bytea; here text cells are misses

SLACK: Final = 192  # How much room `texts` asks for behind a value's own bytes: none that it takes grows by more

_LONGEST_NUMERIC: Final = 160


def _group_digits() -> NDArray[np.uint64]:
    """Return the four digits of every number below 10,000 as bytes."""
    return np.array([int.from_bytes(b"%04d" % group, "little") for group in range(10_000)], dtype=np.uint64)


_GROUP_DIGITS: Final = _group_digits()
_8: Final = np.uint64(8)
_ONES: Final = np.uint64(0x0101010101010101)
_SEVEN_BITS: Final = np.uint64(0x7F7F7F7F7F7F7F7F)
_FROM_SPACE: Final = np.uint64(0x6060606060606060)
_TABS: Final = np.uint64(0x0909090909090909)
_LINE_FEEDS: Final = np.uint64(0x0A0A0A0A0A0A0A0A)
_RETURNS: Final = np.uint64(0x0D0D0D0D0D0D0D0D)
_SPACES: Final = np.uint64(0x2020202020202020)
_DASH: Final = np.uint64(45)
_POINT: Final = np.uint64(46)
_ZERO: Final = np.uint64(48)
_NAN_WORD: Final = np.uint64(int.from_bytes(b"NaN\0\0\0\0\0", "little"))
_INFINITY_WORD: Final = np.uint64(int.from_bytes(b"Infinity", "little"))
_HIGH_BITS: Final = np.uint64(0x8080808080808080)


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


@helper
def _is_not(word, bytes_):
    """Return a word with high bits where two words of ASCII differ."""
    return (word ^ bytes_) + _SEVEN_BITS


@helper
def _control_bits(word):
    """Return a word with high bits where a byte is a control character other than tabs and line ends."""
    seven = word & _SEVEN_BITS
    other = _is_not(seven, _TABS) & _is_not(seven, _LINE_FEEDS) & _is_not(seven, _RETURNS)
    return (~(seven + _FROM_SPACE) | (seven + _ONES)) & other & ~word & _HIGH_BITS


@kernel(TILE, INT64, VARIABLE, INT64, INT64)
def texts(tile, form, output, first_row, row):
    """Gather text, of cells in either format, from `row` on; return the row that has no room or is a miss, or all.

    `form` is what the cells in binary format are: `AS_SENT` and the others above.
    """
    buf, offset, length, first, column = tile
    ends, valid, data = output
    position = np.int64(ends[first_row + row])
    base = address_of(buf)
    target = address_of(data)
    source_end = buf.size - 16
    while row < first.size:
        count = np.int64(-1)
        if first[row] >= 0:
            cell = np.uint64(np.int64(first[row]) + column)
            start = np.int64(offset[cell])
            count = np.int64(length[cell])
            copied = count
            if count <= BINARY:
                count = BINARY - count
                copied = count
                if position + count + SLACK > data.size:
                    return row
                if form == VERSIONED:
                    if count < 1 or load_byte(base + start) != 1:  # the only version so far
                        return row
                    start += 1
                    count -= 1
                    copied = count
                elif form == XML:
                    if count >= 2 and load_byte(base + start) == 60 and load_byte(base + start + 1) == 63:  # <?
                        return row
                elif form == UUID:
                    if count != 16:
                        return row
                    store_uuid(target + position, base + start)
                    count = 36
                    copied = -1  # it is written already
                elif form == NUMERIC:
                    count = _write_numeric(target + position, base + start, count)
                    if count < 0:
                        return row
                    copied = -1
                elif form == ONE_BYTE:
                    if count != 1:
                        return row
                    count = _write_byte(target + position, load_byte(base + start))
                    copied = -1
            # bytea's text has to be converted, too: the other kernel does.
            elif count >= 0 and (form == BYTEA or position + count + SLACK > data.size):
                return row
            if 0 <= copied <= 16 and start <= source_end:
                # Two words overwrite what is not used yet, and cost less than a call of memcpy.
                store_word(target + position, load_word(base + start))
                store_word(target + position + 8, load_word(base + start + 8))
            elif copied > 0:
                copy_bytes(target + position, base + start, copied)
        if count >= 0:
            position += count
            valid[first_row + row] = 1
        else:
            valid[first_row + row] = 0
        row += 1
        ends[first_row + row] = position
    return row


@kernel(BYTES, given("uint64"), INT64, INT64)
def has_control(data, words, start, end):
    """Return whether there is any control character, but tabs and line ends, between start and end.

    `words` is the same bytes, eight at a time.
    """
    control = np.uint64(0)
    head = min(end, (start // 8 + 1) * 8)
    tail = max(head, end // 8 * 8)
    for i in range(head // 8, tail // 8):
        control |= _control_bits(words[i])
    for i in range(start, head):
        control |= _control_bits(np.uint64(data[i]) | (_SPACES << _8))  # seven spaces beside it
    for i in range(tail, end):
        control |= _control_bits(np.uint64(data[i]) | (_SPACES << _8))  # seven spaces beside it
    return 1 if control != np.uint64(0) else 0
