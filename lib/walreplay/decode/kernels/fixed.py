"""Texts of fixed width: boolean, floats, numeric(p,s); then dates and timestamps in ISO 8601.

Each function reads the common form of one value.  Other forms are left to the exact readers of `walreplay.types`.
"""
# numba has no types.
# mypy: disable-error-code="no-untyped-def, no-untyped-call"

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np

from walreplay.decode.compile.kernel import helper
from walreplay.decode.kernels.base import (
    BAD_DIGITS,
    POWERS_OF_TEN,
    above_nine,
    digits,
    last_digits,
    leading_zeros,
    load_byte,
    load_word,
    multiply_add,
)
from walreplay.types.datetime import FIRST_MICRO, LAST_MICRO

if TYPE_CHECKING:
    from numpy.typing import NDArray


@helper
def boolean_of(start, size):
    """Read t and f at an address as 1 and 0; below 0 for anything else."""
    letter = load_byte(start) if size == 1 else np.int64(0)  # t or f, as boolean's output function writes them
    return np.int64(letter == 116) if letter == 116 or letter == 102 else np.int64(-1)


_MOST_DECIMALS: Final = 19


def _inverse_powers() -> NDArray[np.uint64]:
    """Return 1 / 5 ** decimals as the upper and the lower half of 128 bits, the first of which is set; rounded up."""
    table = np.zeros(2 * (_MOST_DECIMALS + 1), np.uint64)
    for decimals in range(_MOST_DECIMALS + 1):
        power = 5**decimals
        bits = (1 << 127) if decimals == 0 else (1 << ((power - 1).bit_length() + 127)) // power + 1
        table[2 * decimals] = bits >> 64
        table[2 * decimals + 1] = bits & 0xFFFFFFFFFFFFFFFF
    return table


_INVERSE_POWERS: Final = _inverse_powers()
_NOUGHT: Final = np.uint64(0)
_ONE: Final = np.uint64(1)


@helper
def nearest_float(number, decimals, fraction_bits):
    """Return the bits of the float that is nearest to number / 10 ** decimals; number is not 0.

    This is the algorithm of Eisel and Lemire ("Number Parsing at a Gigabyte per Second", 2021, section 5), for the few
    powers of ten for which it needs no other one behind it.
    """
    shifted = leading_zeros(number)
    number <<= np.uint64(shifted)
    high, low = multiply_add(_NOUGHT, number, _INVERSE_POWERS[2 * decimals], _NOUGHT)
    spare = (_ONE << np.uint64(61 - fraction_bits)) - _ONE
    if high & spare == spare:
        # What was left out of the power may carry.
        carried, _ = multiply_add(_NOUGHT, number, _INVERSE_POWERS[2 * decimals + 1], _NOUGHT)
        low = np.uint64(low + carried)
        high += np.uint64(carried > low)
    upper = high >> np.uint64(63)
    shift = upper + np.uint64(61 - fraction_bits)
    fraction = high >> shift
    # The first part is the logarithm of the power of ten to the base of two.
    exponent = (np.int64(-217706 * decimals) >> 16) + 63 + np.int64(upper) - shifted
    exponent += 1023 if fraction_bits == 52 else 127  # the bias of IEEE 754
    # Midway between two floats the even one counts; only few decimals lead there.
    may_be_midway = low <= _ONE and decimals <= (4 if fraction_bits == 52 else 17)
    if may_be_midway and fraction & np.uint64(3) == _ONE and fraction << shift == high:
        fraction &= ~_ONE
    fraction = (fraction + (fraction & _ONE)) >> _ONE
    # It may have become the next power of two: the carry is the exponent's.
    return np.int64(fraction) + ((exponent - 1) << fraction_bits)


@helper
def float_of(base, start, end, fraction_bits):
    """Read a number of up to 19 digits without an exponent; return its bits, and whether it is one."""
    negative = np.int64(end > start and load_byte(base + start) == 45)
    start += negative
    point = start
    while point < end and load_byte(base + point) != 46:  # the decimal point
        point += 1
    decimals = end - point - 1
    magnitude = BAD_DIGITS
    if point == end:
        decimals = np.int64(0)
        if 1 <= end - start <= 19:
            magnitude = digits(base, start, end - start)
    elif 1 <= decimals <= _MOST_DECIMALS:
        fraction = digits(base, end - decimals, decimals)
        if fraction != BAD_DIGITS:
            if point == start + 1 and load_byte(base + start) == 48:  # 0.…: the nought is not one of the 19 digits
                magnitude = fraction
            elif point > start and point - start + decimals <= 19:
                magnitude = digits(base, start, point - start)
                if magnitude != BAD_DIGITS:
                    magnitude = magnitude * POWERS_OF_TEN[decimals] + fraction
    if magnitude == BAD_DIGITS:
        return np.int64(0), False
    bits = np.int64(0)
    if magnitude != _NOUGHT:
        bits = nearest_float(magnitude, decimals, fraction_bits)
    return bits | (negative << (63 if fraction_bits == 52 else 31)), True  # the sign is the highest bit


_NO_NUMERIC: Final = -1


@helper
def _split_numeric(base, start, end, precision, scale):
    """Return the number of digits in front of the point, or _NO_NUMERIC when text and type do not plainly agree."""
    whole = end - start
    if scale > 0:
        whole -= scale + 1
        if whole < 1 or load_byte(base + start + whole) != 46:  # another number of decimals than the scale
            return np.int64(_NO_NUMERIC)
    if whole < 1:
        return np.int64(_NO_NUMERIC)
    # A nought stands in front of the point even if the type has no digits there.
    if whole > precision - scale and not (whole == 1 and load_byte(base + start) == 48):
        return np.int64(_NO_NUMERIC)
    return whole


@helper
def narrow_decimal_of(base, start, end, precision, scale):
    """Read a numeric of a precision up to 18 that has exactly the scale's digits; return it, and whether it is one."""
    negative = np.int64(end > start and load_byte(base + start) == 45)
    start += negative
    whole = _split_numeric(base, start, end, precision, scale)
    if whole == _NO_NUMERIC:
        return np.int64(0), False
    magnitude = digits(base, start, whole)
    if scale > 0 and magnitude != BAD_DIGITS:
        fraction = digits(base, end - scale, scale)
        magnitude = BAD_DIGITS if fraction == BAD_DIGITS else magnitude * POWERS_OF_TEN[scale] + fraction
    if magnitude == BAD_DIGITS:
        return np.int64(0), False
    return (np.int64(magnitude) ^ -negative) + negative, True  # two's complement, without a branch


@helper
def _append_digits(base, start, count, high, low):
    """Put up to 38 digits behind a number of 128 bits; return (high, low, whether they were digits)."""
    if count > 19:
        part = digits(base, start, count - 19)
        if part == BAD_DIGITS:
            return high, low, False
        high, low = multiply_add(high, low, POWERS_OF_TEN[count - 19], part)
        start += count - 19
        count = np.int64(19)
    part = digits(base, start, count)
    if part == BAD_DIGITS:
        return high, low, False
    high, low = multiply_add(high, low, POWERS_OF_TEN[count], part)
    return high, low, True


@helper
def wide_decimal_of(base, start, end, precision, scale):
    """Read a numeric of a precision up to 38 that has exactly the scale's digits; (high, low, whether it is one)."""
    negative = end > start and load_byte(base + start) == 45
    if negative:
        start += 1
    whole = _split_numeric(base, start, end, precision, scale)
    if whole == _NO_NUMERIC:
        return _NOUGHT, _NOUGHT, False
    high, low, good = _append_digits(base, start, whole, np.uint64(0), np.uint64(0))
    if good and scale > 0:
        high, low, good = _append_digits(base, end - scale, scale, high, low)
    if not good:
        return _NOUGHT, _NOUGHT, False
    if negative:
        low = np.uint64(~low + np.uint64(1))  # two's complement of 128 bits
        high = np.uint64(~high + np.uint64(low == np.uint64(0)))
    return high, low, True


_DATE_ZEROS: Final = np.uint64(int.from_bytes(b"00-00-00", "little"))
_TIME_ZEROS: Final = np.uint64(int.from_bytes(b"00:00:00", "little"))
_MARKS: Final = np.uint64(int.from_bytes(b"\0\0\xff\0\0\xff\0\0", "little"))
BAD_DAY: Final = -(2**40)
_BAD_PAIRS: Final = np.uint64(0xFFFFFFFFFFFFFFFF)
_DAY_MICROS: Final = 86_400_000_000


def _calendar() -> tuple[NDArray[np.int32], NDArray[np.int32], NDArray[np.int32]]:
    """Make the tables that turn a date into days without a division.

    `years` has each year's 1 January in days since 1970-01-01, times two, plus one for a leap year.  The
    others have 100 places (any two digits) for common and 100 for leap years: days before a month, and in it.
    """
    new_years = np.arange("0000", "10001", dtype="datetime64[Y]").astype("datetime64[D]").astype(np.int32)
    before, inside = np.zeros((2, 200), dtype=np.int32)
    for place, year in ((1, 1970), (101, 1972)):
        months = np.arange(f"{year}-01", f"{year + 1}-02", dtype="datetime64[M]").astype("datetime64[D]")
        before[place : place + 12] = (months[:-1] - months[0]).astype(np.int32)
        inside[place : place + 12] = np.diff(months).astype(np.int32)
    return 2 * new_years[:-1] + (np.diff(new_years) == 366), before, inside


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
    pairs = _pairs(load_word(base + start + 2) ^ _DATE_ZEROS)  # YY-MM-DD; what is no digit or dash is above 9
    century = _two_digits(base, start)
    if pairs == _BAD_PAIRS or century > 99:
        return np.int64(BAD_DAY)
    year = century * 100 + _byte(pairs, 0)
    new_year = np.int64(_YEARS[year])
    month = _byte(pairs, 3) + 100 * (new_year & 1)  # leap years have the second half of the tables
    day = _byte(pairs, 6)
    if year < 1 or day < 1 or day > _MONTH_DAYS[month]:  # no month beyond 12 has days
        return np.int64(BAD_DAY)
    return (new_year >> 1) + _DAYS_BEFORE[month] + day - 1


NO_TIME: Final = -(2**62)


@helper
def iso_time(base, start, end):
    """Read YYYY-MM-DD HH:MM:SS[.f] as microseconds, or give NO_TIME."""
    if end - start < 19 or load_byte(base + start + 10) != 32:  # a space behind the date
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
    if count == -1:  # no fraction
        return micros
    if count < 1 or count > 6 or load_byte(base + start + 19) != 46:
        return np.int64(NO_TIME)
    fraction = last_digits(base, end, count)
    if fraction == BAD_DIGITS:
        return np.int64(NO_TIME)
    return micros + np.int64(fraction * POWERS_OF_TEN[6 - count])


@helper
def _zone_length(base, start, end):
    """Return the length of the offset from UTC at the end (+HH, +HH:MM or +HH:MM:SS), 0 for none."""
    for count in (3, 6, 9):
        if end - start < 19 + count:
            return 0
        sign = load_byte(base + end - count)
        if sign == 43 or sign == 45:  # + -
            return count
        if load_byte(base + end - 3) != 58:  # minutes and seconds have a colon before them
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
    good = hours <= 15  # PostgreSQL's zones are less than 16 hours away
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
    micros += shift if load_byte(base + zone) == 45 else -shift  # west of Greenwich, UTC is later
    return micros if FIRST_MICRO <= micros <= LAST_MICRO else np.int64(NO_TIME)  # the zone may lead out of the years


_YEARS, _DAYS_BEFORE, _MONTH_DAYS = _calendar()
