"""Kernels for dates and timestamps in their common form, ISO 8601."""

# mypy: disable-error-code="no-untyped-def, no-untyped-call"

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np

from walreplay.decode.compile.kernel import helper, kernel
from walreplay.decode.kernels.base import (
    BAD_DIGITS,
    POWERS_OF_TEN,
    above_nine,
    address_of,
    last_digits,
    load_byte,
    load_word,
)
from walreplay.decode.kernels.fixed import MISS, signature, text_cell
from walreplay.types.datetime import FIRST_MICRO, LAST_MICRO, days_from_civil

if TYPE_CHECKING:
    from numpy.typing import NDArray


_DATE_ZEROS: Final = np.uint64(int.from_bytes(b"00-00-00", "little"))

_TIME_ZEROS: Final = np.uint64(int.from_bytes(b"00:00:00", "little"))

_MARKS: Final = np.uint64(int.from_bytes(b"\0\0\xff\0\0\xff\0\0", "little"))

BAD_DAY: Final = -(2**40)

_BAD_PAIRS: Final = np.uint64(0xFFFFFFFFFFFFFFFF)

_DAY_MICROS: Final = 86_400_000_000

_FIRST_MICRO: Final = FIRST_MICRO

_LAST_MICRO: Final = LAST_MICRO


def _calendar() -> tuple[NDArray[np.int32], NDArray[np.int32], NDArray[np.int32]]:
    """Make the tables that turn a date into days without a division.

    `years` has each year's 1 January in days since 1970-01-01, times two, plus one for a leap year.  The
    others have 100 places (any two digits) for common and 100 for leap years: days before a month, and in it.
    """
    years = np.zeros(10_000, dtype=np.int32)
    before = np.zeros(200, dtype=np.int32)
    inside = np.zeros(200, dtype=np.int32)
    for year in range(1, 10_000):
        leap = days_from_civil(year, 3, 1) - days_from_civil(year, 2, 1) == 29
        years[year] = 2 * days_from_civil(year, 1, 1) + leap
    for kind, year in enumerate((1970, 1972)):
        for month in range(1, 13):
            first = days_from_civil(year, month, 1)
            before[100 * kind + month] = first - days_from_civil(year, 1, 1)
            inside[100 * kind + month] = days_from_civil(year + month // 12, month % 12 + 1, 1) - first
    return years, before, inside


@helper
def _pairs(word):
    """Add up the digits of DDxDDxDD, whose x are zero, in bytes 0, 3 and 6; or give _BAD_PAIRS."""
    if above_nine(word) | (word & _MARKS):
        return _BAD_PAIRS
    return word * np.uint64(10) + (word >> np.uint64(8))


@helper
def _byte(word, index):
    return np.int64((word >> np.uint64(8 * index)) & np.uint64(0xFF))


@helper
def _two_digits(base, start):
    """Read two digits, or give a number above 99."""
    tens = load_byte(base + start) - 48
    ones = load_byte(base + start + 1) - 48
    return tens * 10 + ones if 0 <= tens <= 9 and 0 <= ones <= 9 else np.int64(1000)


@helper
def iso_day(base, start):
    """Read YYYY-MM-DD as days since 1970-01-01, or give BAD_DAY."""
    pairs = _pairs(load_word(base + start + 2) ^ _DATE_ZEROS)
    century = _two_digits(base, start)
    if pairs == _BAD_PAIRS or century > 99:
        return np.int64(BAD_DAY)
    year = century * 100 + _byte(pairs, 0)
    new_year = np.int64(_YEARS[year])
    month = _byte(pairs, 3) + 100 * (new_year & 1)
    day = _byte(pairs, 6)
    if year < 1 or day < 1 or day > _MONTH_DAYS[month]:
        return np.int64(BAD_DAY)
    return (new_year >> 1) + _DAYS_BEFORE[month] + day - 1


@kernel(*signature("int32", 0))
def dates(buf, offset, length, first, column, values, valid, misses):
    """Read dates of the years 1 to 9999."""
    base = address_of(buf)
    missed = 0
    for row in range(first.size):
        values[row] = 0
        valid[row] = 0
        cell = text_cell(length, first, column, row)
        if cell < 0:
            if cell == MISS:
                misses[missed] = row
                missed += 1
            continue
        if length[np.uint64(cell)] == 10:
            day = iso_day(base, np.int64(offset[np.uint64(cell)]))
            if day != BAD_DAY:
                values[row] = day
                valid[row] = 1
                continue
        misses[missed] = row
        missed += 1
    return missed


NO_TIME: Final = -(2**62)


@helper
def iso_time(base, start, end):
    """Read YYYY-MM-DD HH:MM:SS[.f] as microseconds, or give NO_TIME."""
    if end - start < 19 or load_byte(base + start + 10) != 32:
        return np.int64(NO_TIME)
    day = iso_day(base, start)
    pairs = _pairs(load_word(base + start + 11) ^ _TIME_ZEROS)
    if day == BAD_DAY or pairs == _BAD_PAIRS:
        return np.int64(NO_TIME)
    hour, minute, second = _byte(pairs, 0), _byte(pairs, 3), _byte(pairs, 6)
    if hour > 23 or minute > 59 or second > 59:
        return np.int64(NO_TIME)
    micros = day * _DAY_MICROS + (hour * 3600 + minute * 60 + second) * 1_000_000
    count = end - start - 20
    if count == -1:
        return micros
    if count < 1 or count > 6 or load_byte(base + start + 19) != 46:
        return np.int64(NO_TIME)
    fraction = last_digits(base, end, count)
    if fraction == BAD_DIGITS:
        return np.int64(NO_TIME)
    return micros + np.int64(fraction * POWERS_OF_TEN[6 - count])


@helper
def _zone_length(base, start, end):
    """Give the length of the offset from UTC at the end (+HH, +HH:MM or +HH:MM:SS), 0 for none."""
    for count in (3, 6, 9):
        if end - start < 19 + count:
            return 0
        sign = load_byte(base + end - count)
        if sign == 43 or sign == 45:
            return count
        if load_byte(base + end - 3) != 58:
            return 0
    return 0


@helper
def zoned_time(base, start, end):
    """Read YYYY-MM-DD HH:MM:SS[.f] with an offset from UTC as microseconds, or give NO_TIME."""
    size = _zone_length(base, start, end)
    if size == 0:
        return np.int64(NO_TIME)
    zone = end - size
    hours = _two_digits(base, zone + 1)
    minutes = np.int64(0)
    seconds = np.int64(0)
    good = hours <= 15
    if size > 3:
        minutes = _two_digits(base, zone + 4)
        good = good and load_byte(base + zone + 3) == 58 and minutes <= 59
    if size > 6:
        seconds = _two_digits(base, zone + 7)
        good = good and load_byte(base + zone + 6) == 58 and seconds <= 59
    micros = iso_time(base, start, zone)
    if not good or micros == NO_TIME:
        return np.int64(NO_TIME)
    shift = (hours * 3600 + minutes * 60 + seconds) * 1_000_000
    micros += shift if load_byte(base + zone) == 45 else -shift
    return micros if _FIRST_MICRO <= micros <= _LAST_MICRO else np.int64(NO_TIME)


@helper
def _timestamps_of(buf, offset, length, first, column, with_zone, values, valid, misses):
    base = address_of(buf)
    missed = 0
    for row in range(first.size):
        values[row] = 0
        valid[row] = 0
        cell = text_cell(length, first, column, row)
        if cell < 0:
            if cell == MISS:
                misses[missed] = row
                missed += 1
            continue
        start = np.int64(offset[np.uint64(cell)])
        end = start + np.int64(length[np.uint64(cell)])
        micros = zoned_time(base, start, end) if with_zone else iso_time(base, start, end)
        if micros == NO_TIME:
            misses[missed] = row
            missed += 1
        else:
            values[row] = micros
            valid[row] = 1
    return missed


@kernel(*signature("int64", 0))
def timestamps(buf, offset, length, first, column, values, valid, misses):
    """Read timestamps without a zone, of the years 1 to 9999."""
    return _timestamps_of(buf, offset, length, first, column, False, values, valid, misses)


@kernel(*signature("int64", 0))
def timestamps_with_zone(buf, offset, length, first, column, values, valid, misses):
    """Read timestamps with an offset from UTC, as UTC."""
    return _timestamps_of(buf, offset, length, first, column, True, values, valid, misses)


_YEARS, _DAYS_BEFORE, _MONTH_DAYS = _calendar()
