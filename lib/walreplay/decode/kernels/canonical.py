"""Find the texts that may not be as PostgreSQL writes them under the settings of docs/capturing.md.

`walreplay.types.canonical` writes those anew.  What is found here and is canonical costs time only; a text that a
server writes under other settings is always found.
"""

# mypy: disable-error-code="no-untyped-def, no-untyped-call"

from __future__ import annotations

from typing import Final

import numpy as np

from walreplay.decode.compile.kernel import helper, kernel
from walreplay.decode.compile.parameters import BYTES, CELLS, INT64, out
from walreplay.decode.kernels.base import address_of, load_byte
from walreplay.decode.kernels.fixed import nearest_float
from walreplay.types.canonical import INTERVAL, MOMENTS, NUMBERS

_SURE: Final = 15
"""Decimals of up to so many digits are each a double's shortest text; also, so many digits precede the point."""
_MOST: Final = 17
"""No shortest text of a double has more digits."""
_TEN: Final = np.uint64(10)


@helper
def _is_digit(byte):
    return 48 <= byte <= 57


@helper
def _is_interval(at, end):
    """Return whether an interval begins as in the style postgres: a number and a unit, or two digits of hours.

    Of the others, iso_8601 begins with P, postgres_verbose with @, and sql_standard has no units and writes single
    digits of hours, except where it writes the same as postgres.
    """
    if at < end and load_byte(at) == 45:
        at += 1
    start = at
    while at < end and _is_digit(load_byte(at)):
        at += 1
    if at == end:
        return False
    if load_byte(at) == 58:
        return at - start >= 2
    if load_byte(at) == 32:
        at += 1
    return at < end and 97 <= load_byte(at) <= 122


@helper
def _are_moments(at, end):
    """Return whether each sign behind a time is that of the offset +00."""
    in_time = False
    while at < end:
        byte = load_byte(at)
        at += 1
        if byte == 58:
            in_time = True
        elif byte == 32 or byte == 34 or byte == 44:
            in_time = False
        elif in_time and (byte == 43 or byte == 45):
            if byte == 45 or at + 2 > end or load_byte(at) != 48 or load_byte(at + 1) != 48:
                return False
            if at + 2 < end and load_byte(at + 2) == 58:
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
    for at in range(start, end):
        if at != point:
            number = number * _TEN + np.uint64(load_byte(at) - 48)
    below = number // _TEN
    bits = nearest_float(number, decimals, 52)
    return (
        nearest_float(below, decimals - 1, 52) != bits and nearest_float(below + np.uint64(1), decimals - 1, 52) != bits
    )


@helper
def _are_numbers(at, end):
    """Return whether all numbers have no exponent, and the fewest digits that identify their doubles."""
    while at < end:
        byte = load_byte(at)
        if not _is_digit(byte):
            at += 1
            continue
        start, point, digits = at, np.int64(0), np.int64(0)
        while _is_digit(byte) or (byte == 46 and point == 0):
            if byte == 46:
                point = at
            elif digits > 0 or byte != 48:
                digits += 1
            at += 1
            byte = load_byte(at) if at < end else np.int64(0)
        if byte == 101 or digits > _MOST or (digits > _SURE and not _is_shortest(start, at, point)):
            return False
    return True


@kernel(BYTES, CELLS, INT64, out("int32"))
def uncertain(data, ends, look, rows):
    """List the rows whose text may not be canonical; return their number.

    `ends` has the beginning of the first text in front; `look` is a number of `walreplay.types.canonical`.
    """
    base = address_of(data)
    found = 0
    for row in range(ends.size - 1):
        start, end = base + np.int64(ends[row]), base + np.int64(ends[row + 1])
        if look == INTERVAL:
            is_sure = start == end or _is_interval(start, end)
        elif look == MOMENTS:
            is_sure = _are_moments(start, end)
        elif look == NUMBERS:
            is_sure = _are_numbers(start, end)
        else:
            is_sure = False
        if not is_sure:
            rows[found] = row
            found += 1
    return found
