"""Kernels that split the rows of COPY: where each field lies, and how long it is, as a tile has its cells.

Fields of text and CSV are unescaped in place, as a value is never longer than its written form.  So the bytes may be
split only once, and only whole rows are: `csv_end` returns where the last one ends; in text that is behind the last
newline that has no backslash before it.

A kernel returns how many rows it has read.  ``marks`` say where it stopped, why (one of the codes below), and where the
row begins at which it stopped.
"""

# mypy: disable-error-code="no-untyped-def, no-untyped-call"

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np

from walreplay.decode.compile.kernel import helper, kernel
from walreplay.decode.compile.parameters import BYTES, INT64, out, record
from walreplay.decode.kernels.base import address_of, load_big_16, load_big_32, load_byte, store_8
from walreplay.decode.kernels.binary import BINARY, NULL
from walreplay.decode.kernels.text import NIBBLES

if TYPE_CHECKING:
    from numpy.typing import NDArray

AT, WHY, ROW, FIELDS = range(4)
MARKS: Final = 4

MORE: Final = 0  # There is no room for another row, or the bytes are at their end
ENDED: Final = 1  # The marker of the data's end
WRONG_FIELDS: Final = 2  # A row has another number of fields: `FIELDS`, or more than so many
STRAY_RETURN: Final = 3  # A carriage return stands in the middle of a row
STRAY_BACKSLASH: Final = 4  # A backslash is the last of the bytes
WRONG_LENGTH: Final = 5  # A field's length is negative

_LF: Final = 10
_CR: Final = 13
_DOT: Final = 46
_BACKSLASH: Final = 92


NO_QUOTE: Final = -1


class Signs(NamedTuple):
    """The bytes that lines are written with; `NO_QUOTE` in text format."""

    delimiter: int
    quote: int
    escape: int


class FieldCells(NamedTuple):
    """Where fields lie, as a tile has its cells, and where a kernel stopped."""

    offset: NDArray[np.int32]
    length: NDArray[np.int32]
    marks: NDArray[np.int64]


_CELLS: Final = record(FieldCells, out("int32"), out("int32"), out("int64"))


@helper
def _ends_at(base, i, stop, delimiter):
    """Return whether a field ends at a place."""
    if i >= stop:
        return True
    byte = load_byte(base + i)
    return byte in (delimiter, _LF) or (byte == _CR and (i + 1 >= stop or load_byte(base + i + 1) == _LF))


@helper
def _is(base, start, end, text, size):
    """Return whether there are the bytes of a text between start and end."""
    if end - start != size:
        return False
    for k in range(size):  # noqa: SIM110 (numba takes no generator)
        if load_byte(base + start + k) != load_byte(text + k):
            return False
    return True


@helper
def _is_end_marker(base, i, stop):
    """Return whether a line is the marker of the data's end."""
    if i + 1 >= stop or load_byte(base + i) != _BACKSLASH:
        return False
    return load_byte(base + i + 1) == _DOT and _ends_at(base, i + 2, stop, _LF)


@helper
def _behind_line(base, i, stop):
    """Return where the next line begins, from where a line's last field ends."""
    if i < stop and load_byte(base + i) == _CR:
        i += 1
    return min(i + 1, stop)


class Field(NamedTuple):
    """A field: where its value begins and ends in place, whether it is NULL, and where its written form ends (-1)."""

    begin: int
    end: int
    is_null: bool
    read_to: int


@helper
def _text_field(base, read_at, stop, delimiter, null, null_size):
    """Unescape a field of text in place; `read_to` is -1 where the bytes end with a backslash."""
    begin = write_at = read_at
    if null_size == 0 or (read_at < stop and load_byte(base + read_at) == load_byte(null)):
        end = read_at + null_size
        # NULL is looked for first, in what is written: its usual form \N would be unescaped to an N.
        if end <= stop and _ends_at(base, end, stop, delimiter) and _is(base, read_at, end, null, null_size):
            return Field(begin, begin, True, end)
    while read_at < stop:
        byte = load_byte(base + read_at)
        if byte == _BACKSLASH:
            if read_at + 1 >= stop:
                return Field(begin, write_at, False, np.int64(-1))
            escaped = load_byte(base + read_at + 1)
            read_at += 2
            if 48 <= escaped <= 55:  # up to three octal digits
                value = escaped - 48
                digit_count = 0
                while digit_count < 2 and read_at < stop and 48 <= load_byte(base + read_at) <= 55:
                    value = value * 8 + load_byte(base + read_at) - 48
                    read_at += 1
                    digit_count += 1
                escaped = value & 255  # as PostgreSQL does
            elif escaped == 120 and read_at < stop and NIBBLES[load_byte(base + read_at)] < 16:  # x
                escaped = np.int64(NIBBLES[load_byte(base + read_at)])
                read_at += 1
                if read_at < stop and NIBBLES[load_byte(base + read_at)] < 16:
                    escaped = escaped * 16 + np.int64(NIBBLES[load_byte(base + read_at)])
                    read_at += 1
            elif escaped == 98:  # \b
                escaped = 8
            elif escaped == 102:  # \f
                escaped = 12
            elif escaped == 110:  # \n
                escaped = 10
            elif escaped == 114:  # \r
                escaped = 13
            elif escaped == 116:  # \t
                escaped = 9
            elif escaped == 118:  # \v
                escaped = 11
            store_8(base + write_at, escaped)  # any other byte stands for itself
            write_at += 1
        elif byte in (delimiter, _LF, _CR):
            break
        else:
            if write_at != read_at:  # behind the first escape
                store_8(base + write_at, byte)
            write_at += 1
            read_at += 1
    return Field(begin, write_at, False, read_at)


@helper
def _csv_field(base, read_at, stop, signs, null, null_size):
    """Take a field of CSV out of its quotes, in place."""
    delimiter, quote, escape = signs
    begin = write_at = read_at
    was_quoted = False
    quoted = False
    while read_at < stop:
        byte = load_byte(base + read_at)
        if quoted:
            # By default the escape is the quote itself: two of them are one, a single one ends the quotes.
            may_escape = byte == escape and read_at + 1 < stop
            if may_escape and (load_byte(base + read_at + 1) == quote or load_byte(base + read_at + 1) == escape):
                store_8(base + write_at, load_byte(base + read_at + 1))
                write_at += 1
                read_at += 2
                continue
            if byte == quote:
                quoted = False
                read_at += 1
                continue
        elif byte == quote:
            if read_at == begin:
                begin = write_at = read_at + 1  # usual: the value lies between the quotes as it is
            quoted = was_quoted = True
            read_at += 1
            continue
        elif byte in (delimiter, _LF, _CR):
            break
        if write_at != read_at:  # behind the first sign that was left out
            store_8(base + write_at, byte)
        write_at += 1
        read_at += 1
    # In quotes it is a text like others.
    return Field(begin, write_at, not was_quoted and _is(base, begin, write_at, null, null_size), read_at)


@helper
def _split_lines(buf, start, stop, columns, signs, null, cells, is_csv):
    offset, length, marks = cells
    base, null_base, null_size = address_of(buf), address_of(null), null.size
    rows = 0
    cell = 0
    read_at = np.int64(start)
    marks[AT] = read_at
    marks[WHY] = MORE
    while read_at < stop and cell + columns <= offset.size:
        marks[ROW] = read_at
        if _is_end_marker(base, read_at, stop):
            marks[AT] = _behind_line(base, read_at + 2, stop)
            marks[WHY] = ENDED
            return rows
        column = 0
        if columns == 0 and not _ends_at(base, read_at, stop, _LF):  # a table without columns has empty lines
            column = 1
        while columns > 0:
            if is_csv:
                field = _csv_field(base, read_at, stop, signs, null_base, null_size)
            else:
                field = _text_field(base, read_at, stop, signs.delimiter, null_base, null_size)
            if field.read_to < 0:
                marks[WHY] = STRAY_BACKSLASH
                return rows
            read_at = field.read_to
            if not _ends_at(base, read_at, stop, signs.delimiter):  # the field ends in front of a carriage return
                marks[WHY] = STRAY_RETURN
                return rows
            if column < columns:  # a field too many has no cell
                offset[cell + column] = field.begin
                length[cell + column] = NULL if field.is_null else field.end - field.begin
            column += 1
            # One too many is enough.
            if read_at >= stop or load_byte(base + read_at) != signs.delimiter or column > columns:
                break
            read_at += 1
        if column != columns:
            marks[WHY], marks[FIELDS] = WRONG_FIELDS, column
            return rows
        cell += columns
        rows += 1
        read_at = _behind_line(base, read_at, stop)
        marks[AT] = read_at
    return rows


@kernel(out("uint8"), INT64, INT64, INT64, record(Signs, INT64, INT64, INT64), BYTES, _CELLS)
def split_lines(buf, start, stop, columns, signs, null, cells):
    """Take lines of COPY's text format apart, or whole rows of CSV; the last one need not have a newline."""
    if signs.quote == NO_QUOTE:
        return _split_lines(buf, start, stop, columns, signs, null, cells, False)
    return _split_lines(buf, start, stop, columns, signs, null, cells, True)


@kernel(BYTES, INT64, INT64, INT64, INT64)
def csv_end(buf, start, stop, quote, escape):
    """Return the last CSV row's end, behind its newline; ``start`` if none ends, -1 if that is within quotes."""
    last = np.int64(start)
    i = np.int64(start)
    quoted = False
    while i < stop:
        byte = np.int64(buf[i])
        if quoted:
            if byte == escape and escape != quote:  # a doubled quote ends the quotes and begins them again
                if i + 1 >= stop:
                    break  # the byte that it escapes is not there yet
                following = np.int64(buf[i + 1])
                if following in (quote, escape):
                    i += 1
            elif byte == quote:
                quoted = False
        elif byte == quote:
            quoted = True
        elif byte == _LF:
            last = i + 1
        i += 1
    return -1 if quoted and last == start else last


@kernel(BYTES, INT64, INT64, INT64, _CELLS)
def split_binary(buf, start, stop, columns, cells):
    """Take whole rows of COPY's binary format apart, as many as there are."""
    offset, length, marks = cells
    base = address_of(buf)
    rows = 0
    cell = 0
    i = np.int64(start)
    marks[AT] = i
    marks[WHY] = MORE
    while i + 2 <= stop and cell + columns <= offset.size:
        marks[ROW] = i
        fields = load_big_16(base + i)
        i += 2
        if fields == 0xFFFF:  # the trailer
            marks[AT] = i
            marks[WHY] = ENDED
            return rows
        if fields != columns:
            marks[WHY], marks[FIELDS] = WRONG_FIELDS, fields
            return rows
        for column in range(columns):
            if i + 4 > stop:
                return rows  # the row is not there as a whole: it is read again with more bytes
            size = np.int64(np.int32(load_big_32(base + i)))
            i += 4
            if size < -1:
                marks[WHY] = WRONG_LENGTH
                return rows
            offset[cell + column] = i
            if size < 0:
                length[cell + column] = NULL
            else:
                if i + size > stop:
                    return rows
                length[cell + column] = BINARY - size
                i += size
        cell += columns
        rows += 1
        marks[AT] = i
    return rows
