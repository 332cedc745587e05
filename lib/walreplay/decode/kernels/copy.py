"""Kernels that split the rows of COPY: where each field lies, and how long it is, as a tile has its cells.

Fields of text and CSV are unescaped in place, as a value is never longer than its written form.  So the bytes may be
split only once, and only whole rows are: `csv_end` returns where the last one ends; in text that is behind the last
newline that has no backslash before it.

A kernel returns how many rows it has read.  ``marks`` say where it stopped, why (one of the codes below), and where the
row begins at which it stopped.
"""

# mypy: disable-error-code="no-untyped-def, no-untyped-call"

from __future__ import annotations

from typing import Final

import numpy as np

from walreplay.decode.compile.kernel import helper, kernel
from walreplay.decode.compile.parameters import BYTES, INT64, out

AT, WHY, ROW, FIELDS = range(4)
MARKS: Final = 4

MORE: Final = 0
"""There is no room for another row, or the bytes are at their end."""
ENDED: Final = 1
"""The marker of the data's end."""
WRONG_FIELDS: Final = 2
"""A row has another number of fields: `FIELDS`, or more than so many."""
STRAY_RETURN: Final = 3
"""A carriage return stands in the middle of a row."""
STRAY_BACKSLASH: Final = 4
"""A backslash is the last of the bytes."""
WRONG_LENGTH: Final = 5
"""A field's length is negative."""

_NULL: Final = -1
_BINARY: Final = -3

_TAB: Final = 9
_LF: Final = 10
_CR: Final = 13
_DOT: Final = 46
_BACKSLASH: Final = 92

_SPLIT: Final = (INT64, INT64, INT64, INT64)
_CELLS: Final = (out("int32"), out("int32"), out("int64"))


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
    if 48 <= c <= 57:
        return c - 48
    if 97 <= c <= 102:
        return c - 87
    if 65 <= c <= 70:
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


@kernel(out("uint8"), *_SPLIT, BYTES, *_CELLS)
def split_text(buf, start, stop, columns, delimiter, null, offset, length, marks):
    """Take lines of COPY's text format apart; the last one need not have a newline."""
    rows = 0
    cell = 0
    i = np.int64(start)
    marks[0] = i
    marks[1] = 0
    while i < stop and cell + columns <= offset.size:
        row = i
        marks[2] = row
        if _is_end_marker(buf, i, stop):
            marks[0] = _behind_line(buf, i + 2, stop)
            marks[1] = 1
            return rows
        column = 0
        if columns == 0:
            if not _ends_at(buf, i, stop, _LF):
                marks[1], marks[3] = 2, 1
                return rows
        else:
            while True:
                begin = i
                is_null = False
                if null.size == 0 or (i < stop and buf[i] == null[0]):
                    end = i + null.size
                    if end <= stop and _ends_at(buf, end, stop, delimiter) and _is(buf, i, end, null):
                        is_null = True
                        i = end
                w = i
                while i < stop:
                    c = np.int64(buf[i])
                    if c == _BACKSLASH:
                        if i + 1 >= stop:
                            marks[1] = 4
                            return rows
                        e = np.int64(buf[i + 1])
                        i += 2
                        if 48 <= e <= 55:
                            value = e - 48
                            more = 0
                            while more < 2 and i < stop and 48 <= np.int64(buf[i]) <= 55:
                                value = value * 8 + np.int64(buf[i]) - 48
                                i += 1
                                more += 1
                            e = value & 255
                        elif e == 120 and i < stop and _hex_digit(np.int64(buf[i])) >= 0:
                            e = _hex_digit(np.int64(buf[i]))
                            i += 1
                            if i < stop and _hex_digit(np.int64(buf[i])) >= 0:
                                e = e * 16 + _hex_digit(np.int64(buf[i]))
                                i += 1
                        elif e == 98:
                            e = 8
                        elif e == 102:
                            e = 12
                        elif e == 110:
                            e = 10
                        elif e == 114:
                            e = 13
                        elif e == 116:
                            e = 9
                        elif e == 118:
                            e = 11
                        buf[w] = e
                        w += 1
                    elif c in (delimiter, _LF, _CR):
                        break
                    else:
                        if w != i:
                            buf[w] = c
                        w += 1
                        i += 1
                if i < stop and buf[i] == _CR and not _ends_at(buf, i, stop, delimiter):
                    marks[1] = 3
                    return rows
                if column < columns:
                    offset[cell + column] = begin
                    length[cell + column] = _NULL if is_null else w - begin
                column += 1
                if i < stop and buf[i] == delimiter and column <= columns:
                    i += 1
                else:
                    break
            if column != columns:
                marks[1], marks[3] = 2, column
                return rows
        cell += columns
        rows += 1
        i = _behind_line(buf, i, stop)
        marks[0] = i
    return rows


@kernel(BYTES, INT64, INT64, INT64, INT64)
def csv_end(buf, start, stop, quote, escape):
    """Return the last CSV row's end, behind its newline; ``start`` if none ends, -1 if that is within quotes."""
    last = np.int64(start)
    i = np.int64(start)
    quoted = False
    while i < stop:
        c = np.int64(buf[i])
        if quoted:
            if c == escape and escape != quote:
                if i + 1 >= stop:
                    break
                e = np.int64(buf[i + 1])
                if e in (quote, escape):
                    i += 1
            elif c == quote:
                quoted = False
        elif c == quote:
            quoted = True
        elif c == _LF:
            last = i + 1
        i += 1
    return -1 if quoted and last == start else last


@kernel(out("uint8"), *_SPLIT, INT64, INT64, BYTES, *_CELLS)
def split_csv(buf, start, stop, columns, delimiter, quote, escape, null, offset, length, marks):
    """Take whole rows of CSV apart; the last one need not have a newline."""
    rows = 0
    cell = 0
    i = np.int64(start)
    marks[0] = i
    marks[1] = 0
    while i < stop and cell + columns <= offset.size:
        marks[2] = i
        if _is_end_marker(buf, i, stop):
            marks[0] = _behind_line(buf, i + 2, stop)
            marks[1] = 1
            return rows
        column = 0
        if columns == 0:
            if not _ends_at(buf, i, stop, _LF):
                marks[1], marks[3] = 2, 1
                return rows
        else:
            while True:
                begin = i
                w = i
                was_quoted = False
                quoted = False
                while i < stop:
                    c = np.int64(buf[i])
                    if quoted:
                        if c == escape and i + 1 < stop and (buf[i + 1] == quote or buf[i + 1] == escape):
                            buf[w] = buf[i + 1]
                            w += 1
                            i += 2
                            continue
                        if c == quote:
                            quoted = False
                            i += 1
                            continue
                    elif c == quote:
                        if i == begin:
                            begin = w = i + 1
                        quoted = was_quoted = True
                        i += 1
                        continue
                    elif c in (delimiter, _LF, _CR):
                        break
                    if w != i:
                        buf[w] = c
                    w += 1
                    i += 1
                if i < stop and buf[i] == _CR and not _ends_at(buf, i, stop, delimiter):
                    marks[1] = 3
                    return rows
                if column < columns:
                    offset[cell + column] = begin
                    length[cell + column] = w - begin
                    if not was_quoted and _is(buf, begin, w, null):
                        length[cell + column] = _NULL
                column += 1
                if i < stop and buf[i] == delimiter and column <= columns:
                    i += 1
                else:
                    break
            if column != columns:
                marks[1], marks[3] = 2, column
                return rows
        cell += columns
        rows += 1
        i = _behind_line(buf, i, stop)
        marks[0] = i
    return rows


@helper
def _int32_at(buf, i):
    value = np.int64(buf[i]) << 24 | np.int64(buf[i + 1]) << 16 | np.int64(buf[i + 2]) << 8 | np.int64(buf[i + 3])
    return value - (np.int64(1) << 32) if value >> 31 else value


@kernel(BYTES, INT64, INT64, INT64, *_CELLS)
def split_binary(buf, start, stop, columns, offset, length, marks):
    """Take whole rows of COPY's binary format apart, as many as there are."""
    rows = 0
    cell = 0
    i = np.int64(start)
    marks[0] = i
    marks[1] = 0
    while i + 2 <= stop and cell + columns <= offset.size:
        marks[2] = i
        fields = np.int64(buf[i]) << 8 | np.int64(buf[i + 1])
        i += 2
        if fields == 0xFFFF:
            marks[0] = i
            marks[1] = 1
            return rows
        if fields != columns:
            marks[1], marks[3] = 2, fields
            return rows
        for column in range(columns):
            if i + 4 > stop:
                return rows
            size = _int32_at(buf, i)
            i += 4
            if size < -1:
                marks[1] = 5
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
        marks[0] = i
    return rows
