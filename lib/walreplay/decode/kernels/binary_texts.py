"""Kernels that give cells in binary format as PostgreSQL's text."""

# mypy: disable-error-code="no-untyped-def, no-untyped-call"

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np

from walreplay.decode.compile.kernel import helper, kernel
from walreplay.decode.compile.parameters import BYTES, INT64, TILE, given, out
from walreplay.decode.kernels.base import (
    POWERS_OF_TEN,
    address_of,
    copy_bytes,
    load_big_16,
    load_byte,
    load_word,
    store_uuid,
    store_word,
)
from walreplay.decode.kernels.binary import (
    BINARY,
    NUMERIC_HEADER,
    NUMERIC_INFINITY,
    NUMERIC_MINUS_INFINITY,
    NUMERIC_NAN,
    NUMERIC_NEGATIVE,
    digit_count,
)

if TYPE_CHECKING:
    from numpy.typing import NDArray


AS_SENT: Final = 0
"""The text's bytes."""

VERSIONED: Final = 1
"""jsonb, jsonpath: the version 1 and the text."""

ONE_BYTE: Final = 2
""""char"."""

UUID: Final = 3

NUMERIC: Final = 4

XML: Final = 5
"""The text's bytes, but a declaration is a miss: it may differ from the one in text."""

BYTEA: Final = 6
"""bytea; here text cells are misses."""

SLACK: Final = 192
"""How much room `texts` asks for behind a value's own bytes: none that it takes grows by more."""

_LONGEST_NUMERIC: Final = 160


def _group_digits() -> NDArray[np.uint64]:
    """Give the four digits of every number below 10,000 as bytes."""
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
    if 4 * max(weight, 0) + scale > _LONGEST_NUMERIC:
        return np.int64(-1)
    digit = start + NUMERIC_HEADER
    excess = 4 * (groups - 1 - weight) - scale
    if groups > 0:
        # Digits that the scale hides, and leading zeros, are nothing that a server sends.
        if load_big_16(digit) == 0 or excess > 3:
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
            if j == 0:
                width = np.int64(digit_count(group))
                word >>= np.uint64(8 * (4 - width))
            store_word(place, word)
            place += width
    if scale > 0:
        store_word(place, _POINT)
        place += 1
        end = place + scale
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
    digits = (48 + (byte >> 6)) << 8 | (48 + (byte >> 3 & 7)) << 16 | (48 + (byte & 7)) << 24
    store_word(target, np.uint64(92 | digits))
    return np.int64(4)


@helper
def _is_not(word, bytes_):
    """Give a word with high bits where two words of ASCII differ."""
    return (word ^ bytes_) + _SEVEN_BITS


@helper
def _control_bits(word):
    """Give a word with high bits where a byte is a control character other than tabs and line ends."""
    seven = word & _SEVEN_BITS
    other = _is_not(seven, _TABS) & _is_not(seven, _LINE_FEEDS) & _is_not(seven, _RETURNS)
    return (~(seven + _FROM_SPACE) | (seven + _ONES)) & other & ~word & _HIGH_BITS


@kernel(*TILE, INT64, out("int32"), out("uint8"), out("uint8"), INT64, INT64)
def texts(buf, offset, length, first, column, form, ends, valid, data, at, row):
    """Gather text, of cells in either format, from `row` on; give the row that has no room or is a miss, or all.

    `form` is what the cells in binary format are: `AS_SENT` and the others above.
    """
    position = np.int64(ends[at + row])
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
                    if count < 1 or load_byte(base + start) != 1:
                        return row
                    start += 1
                    count -= 1
                    copied = count
                elif form == XML:
                    if count >= 2 and load_byte(base + start) == 60 and load_byte(base + start + 1) == 63:
                        return row
                elif form == UUID:
                    if count != 16:
                        return row
                    store_uuid(target + position, base + start)
                    count = 36
                    copied = -1
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
            valid[at + row] = 1
        else:
            valid[at + row] = 0
        row += 1
        ends[at + row] = position
    return row


@kernel(BYTES, given("uint64"), INT64, INT64)
def has_control(data, words, start, end):
    """Tell whether there is any control character, but tabs and line ends, between start and end.

    `words` is the same bytes, eight at a time.
    """
    control = np.uint64(0)
    head = min(end, (start // 8 + 1) * 8)
    tail = max(head, end // 8 * 8)
    for i in range(head // 8, tail // 8):
        control |= _control_bits(words[i])
    for i in range(start, head):
        control |= _control_bits(np.uint64(data[i]) | (_SPACES << _8))
    for i in range(tail, end):
        control |= _control_bits(np.uint64(data[i]) | (_SPACES << _8))
    return 1 if control != np.uint64(0) else 0
