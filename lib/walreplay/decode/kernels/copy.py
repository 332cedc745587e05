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

_NULL: Final = -1
_BINARY: Final = -3

_TAB: Final = 9
_LF: Final = 10
_CR: Final = 13
_DOT: Final = 46
_BACKSLASH: Final = 92


class CsvSigns(NamedTuple):
    """The bytes that CSV is written with."""

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
def _ends_at(buf, i, stop, delimiter):
    """Return whether a field ends at a place."""
    return i >= stop or buf[i] == delimiter or buf[i] == _LF or (buf[i] == _CR and (i + 1 >= stop or buf[i + 1] == _LF))


@helper
def _is(buf, start, end, text):
    """Return whether there are the bytes of a text between start and end."""
    if end - start != text.size:
        return False
    for k in range(text.size):  # noqa: SIM110 (numba takes no generator)
        if buf[start + k] != text[k]:
            return False
    return True


@helper
def _hex_digit(c):
    if 48 <= c <= 57:  # 0 to 9
        return c - 48
    if 97 <= c <= 102:  # a to f
        return c - 87
    if 65 <= c <= 70:  # A to F
        return c - 55
    return -1


@helper
def _is_end_marker(buf, i, stop):
    """Return whether a line is the marker of the data's end."""
    return i + 1 < stop and buf[i] == _BACKSLASH and buf[i + 1] == _DOT and _ends_at(buf, i + 2, stop, _LF)


@helper
def _behind_line(buf, i, stop):
    """Return where the next line begins, from where a line's last field ends."""
    if i < stop and buf[i] == _CR:
        i += 1
    return min(i + 1, stop)


@kernel(out("uint8"), INT64, INT64, INT64, INT64, BYTES, _CELLS)
def split_text(buf, start, stop, columns, delimiter, null, cells):
    """Take lines of COPY's text format apart; the last one need not have a newline."""
    offset, length, marks = cells
    rows = 0
    cell = 0
    read_at = np.int64(start)
    marks[AT] = read_at
    marks[WHY] = MORE
    while read_at < stop and cell + columns <= offset.size:
        row = read_at
        marks[ROW] = row
        if _is_end_marker(buf, read_at, stop):
            marks[AT] = _behind_line(buf, read_at + 2, stop)
            marks[WHY] = ENDED
            return rows
        column = 0
        if columns == 0:  # a table without columns has empty lines
            if not _ends_at(buf, read_at, stop, _LF):
                marks[WHY], marks[FIELDS] = WRONG_FIELDS, 1
                return rows
        else:
            while True:
                begin = read_at
                is_null = False
                if null.size == 0 or (read_at < stop and buf[read_at] == null[0]):
                    end = read_at + null.size
                    # NULL is looked for first, in what is written: its usual form \N would be unescaped to an N.
                    if end <= stop and _ends_at(buf, end, stop, delimiter) and _is(buf, read_at, end, null):
                        is_null = True
                        read_at = end
                write_at = read_at
                while read_at < stop:
                    byte = np.int64(buf[read_at])
                    if byte == _BACKSLASH:
                        if read_at + 1 >= stop:
                            marks[WHY] = STRAY_BACKSLASH
                            return rows
                        escaped = np.int64(buf[read_at + 1])
                        read_at += 2
                        if 48 <= escaped <= 55:  # up to three octal digits
                            value = escaped - 48
                            digit_count = 0
                            while digit_count < 2 and read_at < stop and 48 <= np.int64(buf[read_at]) <= 55:
                                value = value * 8 + np.int64(buf[read_at]) - 48
                                read_at += 1
                                digit_count += 1
                            escaped = value & 255  # as PostgreSQL does
                        elif escaped == 120 and read_at < stop and _hex_digit(np.int64(buf[read_at])) >= 0:  # x
                            escaped = _hex_digit(np.int64(buf[read_at]))
                            read_at += 1
                            if read_at < stop and _hex_digit(np.int64(buf[read_at])) >= 0:
                                escaped = escaped * 16 + _hex_digit(np.int64(buf[read_at]))
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
                        buf[write_at] = escaped  # any other byte stands for itself
                        write_at += 1
                    elif byte in (delimiter, _LF, _CR):
                        break
                    else:
                        if write_at != read_at:  # behind the first escape
                            buf[write_at] = byte
                        write_at += 1
                        read_at += 1
                if read_at < stop and buf[read_at] == _CR and not _ends_at(buf, read_at, stop, delimiter):
                    marks[WHY] = STRAY_RETURN
                    return rows
                if column < columns:  # a field too many has no cell
                    offset[cell + column] = begin
                    length[cell + column] = _NULL if is_null else write_at - begin
                column += 1
                if read_at < stop and buf[read_at] == delimiter and column <= columns:  # one too many is enough
                    read_at += 1
                else:
                    break
            if column != columns:
                marks[WHY], marks[FIELDS] = WRONG_FIELDS, column
                return rows
        cell += columns
        rows += 1
        read_at = _behind_line(buf, read_at, stop)
        marks[AT] = read_at
    return rows


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


@kernel(out("uint8"), INT64, INT64, INT64, record(CsvSigns, INT64, INT64, INT64), BYTES, _CELLS)
def split_csv(buf, start, stop, columns, signs, null, cells):
    """Take whole rows of CSV apart; the last one need not have a newline."""
    delimiter, quote, escape = signs
    offset, length, marks = cells
    rows = 0
    cell = 0
    read_at = np.int64(start)
    marks[AT] = read_at
    marks[WHY] = MORE
    while read_at < stop and cell + columns <= offset.size:
        marks[ROW] = read_at
        if _is_end_marker(buf, read_at, stop):
            marks[AT] = _behind_line(buf, read_at + 2, stop)
            marks[WHY] = ENDED
            return rows
        column = 0
        if columns == 0:  # a table without columns has empty lines
            if not _ends_at(buf, read_at, stop, _LF):
                marks[WHY], marks[FIELDS] = WRONG_FIELDS, 1
                return rows
        else:
            while True:
                begin = read_at
                write_at = read_at
                was_quoted = False
                quoted = False
                while read_at < stop:
                    byte = np.int64(buf[read_at])
                    if quoted:
                        # By default the escape is the quote itself: two of them are one, a single one ends the quotes.
                        may_escape = byte == escape and read_at + 1 < stop
                        if may_escape and (buf[read_at + 1] == quote or buf[read_at + 1] == escape):
                            buf[write_at] = buf[read_at + 1]
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
                        buf[write_at] = byte
                    write_at += 1
                    read_at += 1
                if read_at < stop and buf[read_at] == _CR and not _ends_at(buf, read_at, stop, delimiter):
                    marks[WHY] = STRAY_RETURN
                    return rows
                if column < columns:  # a field too many has no cell
                    offset[cell + column] = begin
                    length[cell + column] = write_at - begin
                    if not was_quoted and _is(buf, begin, write_at, null):  # in quotes it is a text like others
                        length[cell + column] = _NULL
                column += 1
                if read_at < stop and buf[read_at] == delimiter and column <= columns:  # one too many is enough
                    read_at += 1
                else:
                    break
            if column != columns:
                marks[WHY], marks[FIELDS] = WRONG_FIELDS, column
                return rows
        cell += columns
        rows += 1
        read_at = _behind_line(buf, read_at, stop)
        marks[AT] = read_at
    return rows


@helper
def _int32_at(buf, i):
    value = np.int64(buf[i]) << 24 | np.int64(buf[i + 1]) << 16 | np.int64(buf[i + 2]) << 8 | np.int64(buf[i + 3])
    return value - (np.int64(1) << 32) if value >> 31 else value


@kernel(BYTES, INT64, INT64, INT64, _CELLS)
def split_binary(buf, start, stop, columns, cells):
    """Take whole rows of COPY's binary format apart, as many as there are."""
    offset, length, marks = cells
    rows = 0
    cell = 0
    i = np.int64(start)
    marks[AT] = i
    marks[WHY] = MORE
    while i + 2 <= stop and cell + columns <= offset.size:
        marks[ROW] = i
        fields = np.int64(buf[i]) << 8 | np.int64(buf[i + 1])
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
            size = _int32_at(buf, i)
            i += 4
            if size < -1:
                marks[WHY] = WRONG_LENGTH
                return rows
            offset[cell + column] = i
            if size < 0:
                length[cell + column] = _NULL
            else:
                if i + size > stop:
                    return rows
                length[cell + column] = _BINARY - size
                i += size
        cell += columns
        rows += 1
        marks[AT] = i
    return rows
