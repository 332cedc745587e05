"""Kernels for values of any length: checks of text, bytea's digits, and arrays in either format."""

# mypy: disable-error-code="no-untyped-def, no-untyped-call"

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np

from walreplay.decode.compile.kernel import helper, kernel
from walreplay.decode.compile.parameters import BYTES, CELLS, INT64, TILE, out, record
from walreplay.decode.kernels.base import (
    address_of,
    copy_bytes,
    load_big_32,
    load_byte,
    load_int32,
    load_word,
    store_8,
    store_word,
    utf8_faults,
)
from walreplay.decode.kernels.binary import BINARY
from walreplay.decode.kernels.fixed import nearest_float
from walreplay.types.canonical import INTERVAL, MOMENTS, NUMBERS

if TYPE_CHECKING:
    from numpy.typing import NDArray

_ONES: Final = np.uint64(0x0101010101010101)
_HIGH_BITS: Final = np.uint64(0x8080808080808080)
_ZERO: Final = np.uint64(0)
_ONE: Final = np.uint64(1)
_LAST_BYTE: Final = np.uint64(0x80)

HAS_NUL: Final = 1
HAS_HIGH: Final = 2
"""What is found in the bytes of texts: a NUL, and one that is none of ASCII."""


@helper
def flags_of(address, end):
    """Return whether there is a NUL (`HAS_NUL`), or a byte outside of ASCII (`HAS_HIGH`), between two addresses."""
    high = _ZERO
    zero = _ZERO
    while address + 8 <= end:
        word = load_word(address)
        high |= word
        zero |= (word - _ONES) & ~word  # the high bit of a byte that was 0
        address += 8
    while address < end:
        word = np.uint64(load_byte(address))
        high |= word
        zero |= (word - _ONE) & ~word & _LAST_BYTE
        address += 1
    return (HAS_NUL if zero & _HIGH_BITS else np.int64(0)) | (HAS_HIGH if high & _HIGH_BITS else np.int64(0))


@kernel(BYTES, INT64, INT64)
def text_flags(data, start, end):
    """Return `flags_of` the bytes between start and end."""
    base = address_of(data)
    return flags_of(base + start, base + end)


@helper
def _after_character(base, i, end):
    """Return the end of the character of UTF-8 at `i`, or -1 where there is none."""
    lead = load_byte(base + i)
    if lead < 0x80:
        return i + 1
    if lead < 0xC2 or lead > 0xF4:  # inside of a character, overlong, or beyond U+10FFFF
        return np.int64(-1)
    rest = 1 if lead < 0xE0 else (2 if lead < 0xF0 else 3)
    if i + rest >= end:  # torn
        return np.int64(-1)
    second = load_byte(base + i + 1)
    # Overlong forms, surrogates and what lies beyond U+10FFFF show in the second byte.
    low = 0xA0 if lead == 0xE0 else (0x90 if lead == 0xF0 else 0x80)
    high = 0x9F if lead == 0xED else (0x8F if lead == 0xF4 else 0xBF)
    if second < low or second > high:
        return np.int64(-1)
    for j in range(i + 2, i + rest + 1):
        if load_byte(base + j) & 0xC0 != 0x80:  # no byte that goes on a character
            return np.int64(-1)
    return i + rest + 1


@helper
def _fault_from(base, i, stop, end):
    """Return the first fault between a character's start and `stop`, or where the character there begins."""
    while i < stop:
        after = _after_character(base, i, end)
        if after < 0:
            return i, True
        i = after
    return i, False


@helper
def _is_utf8_throughout(base, first, end):
    """Return whether the bytes from first to end are UTF-8."""
    # The words look back by 3 bytes, at whole characters.
    i, fault = _fault_from(base, first, min(first + 3, end), end)
    if fault:
        return False
    faults = np.int64(0)
    while i + 32 <= end:
        faults |= utf8_faults(base + i)
        i += 32
    if faults != 0:
        return False
    # What the last character asks for they have not seen.
    i = max(first, i - 1)
    while i > first and load_byte(base + i) & 0xC0 == 0x80:
        i -= 1
    i, fault = _fault_from(base, i, end, end)
    return not fault


@helper
def is_utf8(base, ends, start, stop):
    """Return whether the text at `base` of the rows start to stop is UTF-8, and none begins inside of a character.

    `ends` is the address of where they end.
    """
    first = load_int32(ends + 4 * start)
    end = load_int32(ends + 4 * stop)
    if not _is_utf8_throughout(base, first, end):
        return False
    for row in range(start, stop):
        text_start = load_int32(ends + 4 * row)
        # Of an empty row's place the next row tells.
        if text_start < end and load_byte(base + text_start) & 0xC0 == 0x80:
            return False
    return True


@kernel(BYTES, CELLS, INT64, INT64)
def are_utf8(data, ends, start, stop):
    """Return whether the text of the rows start to stop is UTF-8, and none begins inside of a character."""
    return np.int64(is_utf8(address_of(data), address_of(ends), start, stop))


def _nibbles() -> NDArray[np.uint8]:
    table = np.full(256, 255, dtype=np.uint8)
    for value, digit in enumerate("0123456789abcdef"):
        table[ord(digit)] = table[ord(digit.upper())] = value
    return table


NIBBLES: Final = _nibbles()
"""The values of hexadecimal digits; 255 for any other byte."""

_LETTER_BIT: Final = np.uint64(0x2020202020202020)
_FROM_A: Final = np.uint64(0x1F1F1F1F1F1F1F1F)
_FROM_G: Final = np.uint64(0x1919191919191919)
_LOW_NIBBLES: Final = np.uint64(0x0F0F0F0F0F0F0F0F)
_ZERO_DIGITS: Final = np.uint64(0x3030303030303030)
_ABOVE_NINE: Final = np.uint64(0x7676767676767676)
_BYTES_0246: Final = np.uint64(0x00FF00FF00FF00FF)
_BYTES_0145: Final = np.uint64(0x0000FFFF0000FFFF)
_4: Final = np.uint64(4)
_6: Final = np.uint64(6)
_8: Final = np.uint64(8)
_9: Final = np.uint64(9)
_16: Final = np.uint64(16)


@helper
def _hex_fault(word):
    """Return a word with high bits where a byte is no hexadecimal digit."""
    letter = word | _LETTER_BIT  # in lower case
    is_letter = (letter + _FROM_A) & ~(letter + _FROM_G)  # the high bit from a on, but not from g on
    return word | (((word ^ _ZERO_DIGITS) + _ABOVE_NINE) & ~is_letter)


@helper
def _hex_word(word):
    """Turn eight hexadecimal digits into the four lowest bytes."""
    nibbles = (word & _LOW_NIBBLES) + ((word >> _6) & _ONES) * _9  # A and a are 1 in the low nibble: 9 too few
    word = ((nibbles << _4) | (nibbles >> _8)) & _BYTES_0246
    word = (word | (word >> _8)) & _BYTES_0145
    return word | (word >> _16)


@helper
def write_hex(target, start, count):
    """Write so many bytes, of which the hexadecimal digits lie at an address; return whether they are such digits."""
    fault = _ZERO
    whole = count & ~3  # four bytes at a time
    for i in range(0, whole, 4):
        word = load_word(start + 2 * i)
        fault |= _hex_fault(word)
        store_word(target + i, _hex_word(word))
    fault &= _HIGH_BITS  # a fault of the words; single bytes add theirs below
    for i in range(whole, count):
        high = np.uint64(NIBBLES[load_byte(start + 2 * i)])
        low = np.uint64(NIBBLES[load_byte(start + 2 * i + 1)])
        fault |= (high | low) & np.uint64(0xF0)  # 255 is no digit
        store_8(target + i, np.int64((high << _4) | low))
    return fault == _ZERO


@kernel(TILE)
def has_high(tile):
    """Return whether a byte of the cells, of either format, is none of ASCII."""
    buf, offset, length, first, column = tile
    base = address_of(buf)
    for row in range(first.size):
        if first[row] < 0:
            continue
        cell = first[row] + column
        size = np.int64(length[cell])
        if size <= BINARY:
            size = BINARY - size
        start = np.int64(offset[cell])
        done = np.int64(0)
        bits = _ZERO
        while done + 8 <= size:
            bits |= load_word(base + start + done)
            done += 8
        while done < size:
            bits |= np.uint64(buf[start + done])
            done += 1
        if bits & _HIGH_BITS:
            return 1
    return 0


@kernel(CELLS, CELLS, INT64)
def total_length(length, first, column):
    """Add up the lengths of a column's cells."""
    total = 0
    for row in range(first.size):
        if first[row] >= 0:
            count = np.int64(length[np.uint64(np.int64(first[row]) + column)])
            total += count if count >= 0 else max(BINARY - count, 0)
    return total


class ElementCells(NamedTuple):
    """Where arrays' elements go: like a tile, their bytes, and each one's offset and length."""

    text: NDArray[np.uint8]
    offset: NDArray[np.int32]
    length: NDArray[np.int32]


@helper
def _text_array(buf, i, end, delimiter, cells, elements, position):
    """Take the text of one array apart; return the elements and the position behind it, below 0 for another form."""
    text, text_offset, text_length = cells
    end -= 1
    if end <= i or buf[i] != 123 or buf[end] != 125:  # braces; limits of the index would stand before them
        return np.int64(-1), position
    i += 1
    if i == end:
        return elements, position
    while True:
        start = position
        if buf[i] == 34:  # in double quotes, with backslashes
            i += 1
            while i < end and buf[i] != 34:
                if buf[i] == 92:
                    i += 1  # the next byte stands for itself
                text[position] = buf[i]
                position += 1
                i += 1
            if i >= end:
                return np.int64(-1), position
            i += 1
            text_length[elements] = position - start
        else:
            while i < end and buf[i] != delimiter:
                byte = buf[i]
                if byte == 34 or byte == 92 or byte == 123 or byte == 125:  # a brace: more than one dimension
                    return np.int64(-1), position
                text[position] = byte
                position += 1
                i += 1
            size = position - start
            if size == 0:
                return np.int64(-1), position
            # NULL without quotes, which a text NULL always has.  PostgreSQL writes it in capitals.
            is_null = size == 4 and text[start] == 78 and text[start + 1] == 85
            if is_null and text[start + 2] == 76 and text[start + 3] == 76:
                size = -1
            text_length[elements] = size
        text_offset[elements] = start
        elements += 1
        position += 1  # no two elements begin at one place, so the place tells the element
        if i == end:
            return elements, position
        if buf[i] != delimiter:
            return np.int64(-1), position
        i += 1
        if i == end:
            return np.int64(-1), position


_DIMENSION: Final = 20
"""The header of an array of one dimension: the number of dimensions, flags, element type, length, first index."""


@helper
def _binary_array(buf, i, end, element_oid, cells, elements, position):
    """Take one array in binary format apart, as `_text_array` does; the elements stay in binary format."""
    text, text_offset, text_length = cells
    base = address_of(buf)
    target = address_of(text)
    if end - i < _DIMENSION - 8 or load_big_32(base + i + 8) != element_oid:
        return np.int64(-1), position
    dimensions = load_big_32(base + i)
    if dimensions == 0:  # an empty array: a header without lengths
        return elements if end - i == _DIMENSION - 8 else np.int64(-1), position
    if dimensions != 1 or end - i < _DIMENSION or load_big_32(base + i + 16) != 1:  # indices begin with 1
        return np.int64(-1), position
    count = load_big_32(base + i + 12)
    i += _DIMENSION
    # Each element has a length in front of it, so no count that is wrong leads beyond the arrays.
    if 4 * count > end - i:
        return np.int64(-1), position
    for _ in range(count):
        if end - i < 4:
            return np.int64(-1), position
        size = np.int64(np.int32(load_big_32(base + i)))
        i += 4
        # -1 is NULL.
        if size < -1 or size > end - i:
            return np.int64(-1), position
        text_offset[elements] = position
        text_length[elements] = size
        if size >= 0:
            if size <= 8 and i + 8 <= buf.size:
                store_word(target + position, load_word(base + i))
            else:
                copy_bytes(target + position, base + i, size)
            text_length[elements] = BINARY - size
            position += size
            i += size
        elements += 1
        position += 1
    return elements if i == end else np.int64(-1), position


@kernel(
    TILE,
    INT64,
    INT64,
    record(ElementCells, out("uint8"), out("int32"), out("int32")),
    *(out("int32"), out("uint8"), out("int32")),
)
def array_elements(tile, delimiter, element_oid, cells, counts, valid, misses):
    """Take arrays of one dimension apart.

    The elements, without quotes and backslashes where they are text, go to `cells`.  `counts[row]` is the number of
    elements up to and with that row.  Rows of another form are listed in `misses` behind their number.  Returns the
    number of elements.
    """
    buf, offset, length, first, column = tile
    missed = 0
    elements = np.int64(0)
    position = np.int64(8)  # reading digits looks at 8 bytes, so none of them stands at the very beginning
    for row in range(first.size):
        valid[row] = 0
        counts[row] = elements
        if first[row] < 0:
            continue
        cell = np.uint64(np.int64(first[row]) + column)
        start = np.int64(offset[cell])
        size = np.int64(length[cell])
        if size >= 0:
            after, behind = _text_array(buf, start, start + size, delimiter, cells, elements, position)
        elif size <= BINARY:
            end = start + BINARY - size
            after, behind = _binary_array(buf, start, end, element_oid, cells, elements, position)
        else:
            continue
        if after >= 0:
            valid[row] = 1
            counts[row] = after
            elements = after
            position = behind
        else:
            missed += 1
            misses[missed] = row
    misses[0] = missed
    return elements


# Texts that may not be as PostgreSQL writes them under the settings of docs/capturing.md.  `walreplay.types.canonical`
# writes them anew.  What is found and is canonical only costs time; what a server writes under other settings is found.

_SURE: Final = 15
"""Decimals of up to so many digits are each a double's shortest text; also, so many digits precede the point."""
_MOST: Final = 17  # No shortest text of a double has more digits
_TEN: Final = np.uint64(10)


@helper
def _is_digit(byte):
    return 48 <= byte <= 57


@helper
def _is_interval(address, end):
    """Return whether an interval begins as in the style postgres: a number and a unit, or two digits of hours.

    Of the others, iso_8601 begins with P, postgres_verbose with @, and sql_standard has no units and writes single
    digits of hours, except where it writes the same as postgres.
    """
    if address < end and load_byte(address) == 45:  # a minus
        address += 1
    start = address
    while address < end and _is_digit(load_byte(address)):
        address += 1
    if address == end:
        return False
    if load_byte(address) == 58:  # a colon behind hours
        return address - start >= 2
    if load_byte(address) == 32:
        address += 1
    return address < end and 97 <= load_byte(address) <= 122  # a unit, in lower case


@helper
def _are_moments(address, end):
    """Return whether each sign behind a time is that of the offset +00."""
    in_time = False
    while address < end:
        byte = load_byte(address)
        address += 1
        if byte == 58:
            in_time = True
        elif byte == 32 or byte == 34 or byte == 44:  # a time has ended
            in_time = False
        elif in_time and (byte == 43 or byte == 45):  # + -
            if byte == 45 or address + 2 > end or load_byte(address) != 48 or load_byte(address + 1) != 48:
                return False
            if address + 2 < end and load_byte(address + 2) == 58:  # +00:mm
                return False
            in_time = False
    return True


@helper
def _is_shortest(start, end, point):
    """Return whether no decimal with a digit less than this one, of 16 or 17 digits, is the same double."""
    decimals = end - point - 1
    if point == 0 or point - start > _SURE or decimals < 1 or decimals > 19:
        return False
    number = np.uint64(0)
    for address in range(start, end):
        if address != point:
            number = number * _TEN + np.uint64(load_byte(address) - 48)
    below = number // _TEN
    bits = nearest_float(number, decimals, 52)
    return (
        nearest_float(below, decimals - 1, 52) != bits and nearest_float(below + np.uint64(1), decimals - 1, 52) != bits
    )


@helper
def _are_numbers(address, end):
    """Return whether all numbers have no exponent, and the fewest digits that identify their doubles."""
    while address < end:
        byte = load_byte(address)
        if not _is_digit(byte):
            address += 1
            continue
        start, point, digits = address, np.int64(0), np.int64(0)
        while _is_digit(byte) or (byte == 46 and point == 0):  # a decimal point
            if byte == 46:
                point = address
            elif digits > 0 or byte != 48:
                digits += 1
            address += 1
            byte = load_byte(address) if address < end else np.int64(0)
        # An exponent (e), or more digits than the shortest text of the double has.
        if byte == 101 or digits > _MOST or (digits > _SURE and not _is_shortest(start, address, point)):
            return False
    return True


@kernel(BYTES, CELLS, INT64, out("int32"))
def not_canonical(data, ends, form, rows):
    """List the rows whose text may not be canonical; return their number.

    `ends` has the beginning of the first text in front; `form` is a number of `walreplay.types.canonical`.
    """
    base = address_of(data)
    unsure_count = 0
    for row in range(ends.size - 1):
        start, end = base + np.int64(ends[row]), base + np.int64(ends[row + 1])
        if form == INTERVAL:
            is_sure = start == end or _is_interval(start, end)
        elif form == MOMENTS:
            is_sure = _are_moments(start, end)
        elif form == NUMBERS:
            is_sure = _are_numbers(start, end)
        else:
            is_sure = False
        if not is_sure:
            rows[unsure_count] = row
            unsure_count += 1
    return unsure_count
