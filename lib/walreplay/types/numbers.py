"""Numbers, boolean and money, from text and from binary format.

- real and double precision: shortest exact digits, or NaN and the infinities, which the columns hold.
- numeric with a precision and a scale that a decimal128 holds, or as the nearest double.  Other exact numerics become
  strings: those without a precision, because their values have no common scale, and those with more than 38 digits or
  with a scale outside 0 to the precision.
- smallint, integer, bigint; oid and xid, which are 32 bits without a sign.
- boolean: one letter.
- money: a count of cents.  The server's lc_monetary decides how it is written: currency, number of decimals,
  separators.  The bytes have none of this.  So it is written as in the locales C and en_US, which is exact if the
  server uses one of them.
"""

from __future__ import annotations

import math
import re
from decimal import MAX_EMAX, MIN_EMIN, ROUND_HALF_UP, Context, Decimal
from struct import Struct
from typing import Final

from walreplay.errors import ValueFormatError
from walreplay.types.base import Cursor, DoesNotFit, fixed_writer, malformed

_FLOAT = re.compile(r"-?(?:[0-9]+(?:\.[0-9]+)?(?:e[+-]?[0-9]+)?|Infinity)|NaN", re.IGNORECASE)

_FLOAT4: Final = Struct("!f")
_FLOAT8: Final = Struct("!d")
_BITS4: Final = Struct("!I")
_BITS8: Final = Struct("!Q")

_LOG10_2: Final = math.log10(2)

_FIXED_FROM: Final = -4
_FIXED_BELOW_SINGLE: Final = 6
_FIXED_BELOW_DOUBLE: Final = 15
"""Numbers whose first digit stands for a power of ten below this are written without an exponent."""

_AS_PYTHON_FROM: Final = 1e-4
_AS_PYTHON_BELOW: Final = 1e15
"""In this range Python writes a double as PostgreSQL does, except for the ``.0`` of whole numbers."""

_SINGLE_FIXED_FROM: Final = 1e-4
_SINGLE_FIXED_BELOW: Final = 999_999.0
_SINGLE_DIGITS: Final = (6, 7, 8, 9)
"""How many digits are tried: single precision distinguishes all numbers of up to 6 digits, and 9 are always enough."""

_MIDWAY_FROM: Final = 2.0**53
_MIDWAY_BELOW: Final = 1e41
"""Outside this range, a number midway between two doubles has more digits than Python ever writes.

It has 54 significant bits or more, so that a power of ten of which it is a multiple is ``10 ** 23`` at most.
"""


def float_from_text(text: str) -> float:
    """Read a floating-point number as a double.  Single precision has to be rounded from the text, not from this.

    Raises:
        DoesNotFit: the number is finite and beyond the largest double.  Old servers write the largest doubles with too
            few digits, which rounds them up to such numbers.
        ValueFormatError: the text is no number.
    """
    if _FLOAT.fullmatch(text) is None:
        raise ValueFormatError("a floating-point number is not in PostgreSQL's form")
    return finite(float(text), text)


def finite(value: float, text: str) -> float:
    """Return the float that a text was read as.

    Raises:
        DoesNotFit: the float is infinite, but the text is a finite number.
    """
    if math.isinf(value) and not text.lower().endswith("infinity"):  # the text is finite: float() has rounded it up
        raise DoesNotFit
    return value


def single_text(value: float) -> str:
    """Write a number that single precision holds exactly, as PostgreSQL writes a real."""
    if not math.isfinite(value) or value == 0.0:
        return _special(value)
    data = _FLOAT4.pack(value)  # what a text has to round to
    (bits,) = _BITS4.unpack(data)
    fraction, raised = bits & 0x7F_FFFF, (bits >> 23) & 0xFF
    if fraction and _SINGLE_FIXED_FROM <= abs(value) < _SINGLE_FIXED_BELOW:
        # Not for powers of two, large and subnormal numbers: their rounding intervals need more care.
        for digits in _SINGLE_DIGITS:
            text = f"{value:.{digits}g}"
            if _FLOAT4.pack(float(text)) == data:
                return text
    return _written(value < 0, *_shortest(fraction, raised, fraction_bits=23, bias=127), _FIXED_BELOW_SINGLE)


def double_text(value: float) -> str:
    """Write a number as PostgreSQL writes a double precision."""
    if not math.isfinite(value) or value == 0.0:
        return _special(value)
    if _AS_PYTHON_FROM <= abs(value) < _AS_PYTHON_BELOW:
        return repr(value).removesuffix(".0")
    if not _MIDWAY_FROM <= abs(value) < _MIDWAY_BELOW:
        digits, exponent = _python_digits(value)
    else:
        (bits,) = _BITS8.unpack(_FLOAT8.pack(value))
        fraction, raised = bits & 0xF_FFFF_FFFF_FFFF, (bits >> 52) & 0x7FF
        digits, exponent = _shortest(fraction, raised, fraction_bits=52, bias=1023)
    return _written(value < 0, digits, exponent, _FIXED_BELOW_DOUBLE)


float4_text: Final = fixed_writer(_FLOAT4, "real", single_text)
float8_text: Final = fixed_writer(_FLOAT8, "double precision", double_text)


def _special(value: float) -> str:
    if math.isnan(value):
        return "NaN"
    if value == 0.0:
        return "-0" if math.copysign(1.0, value) < 0 else "0"
    return "Infinity" if value > 0 else "-Infinity"


def _python_digits(value: float) -> tuple[str, int]:
    """Return the digits that Python writes for a number, and the power of ten of the last one."""
    mantissa, _, power = repr(abs(value)).partition("e")
    whole, _, fraction = mantissa.partition(".")
    digits = whole + fraction
    stripped = digits.rstrip("0")
    exponent = int(power or "0") - len(fraction) + len(digits) - len(stripped)
    return stripped.lstrip("0"), exponent


def _shortest(fraction: int, raised: int, *, fraction_bits: int, bias: int) -> tuple[str, int]:
    """Find the shortest digits inside a float's rounding interval, and the power of ten of the last one.

    A decimal that lies exactly midway between two floats is read as the even one of them.  Python and C write such a
    decimal if it is the shortest; PostgreSQL does not.
    """
    implicit = 1 << fraction_bits  # the first bit of a normal number, which is not stored
    mantissa = fraction if raised == 0 else fraction | implicit
    # Subnormal numbers have the exponent of the smallest normal ones.
    exponent = max(raised, 1) - bias - fraction_bits - 2
    # Everything is in quarters of the float's last bit, because below a power of two the floats lie twice as close.
    middle = 4 * mantissa
    low = middle - (1 if fraction == 0 and raised > 1 else 2)
    high = middle + 2
    power = math.floor(exponent * _LOG10_2) - 1
    scale = (1 << max(exponent, 0)) * 10 ** max(-power, 0)
    unit = (1 << max(-exponent, 0)) * 10 ** max(power, 0)
    low, middle, high = low * scale, middle * scale, high * scale
    while (low // (10 * unit) + 1) * 10 * unit < high:
        unit *= 10
        power += 1
    below = middle // unit
    candidates = [digits for digits in (below, below + 1) if low < digits * unit < high]
    best = min(candidates, key=lambda digits: (abs(digits * unit - middle), digits % 2))
    return str(best), power


def _written(negative: bool, digits: str, exponent: int, fixed_below: int) -> str:
    sign = "-" if negative else ""
    leading = exponent + len(digits) - 1
    if not _FIXED_FROM <= leading < fixed_below:
        point = "." if len(digits) > 1 else ""
        return f"{sign}{digits[0]}{point}{digits[1:]}e{leading:+03d}"
    if exponent >= 0:
        return sign + digits + "0" * exponent
    digits = digits.rjust(1 - exponent, "0")
    return f"{sign}{digits[:exponent]}.{digits[exponent:]}"


# numeric

MAX_PRECISION: Final = 38

_NUMERIC = re.compile(r"(-?)([0-9]+)(?:\.([0-9]+))?")
_NAMES = ("NaN", "Infinity", "-Infinity")
HEADER_SIZE: Final = 4
"""PostgreSQL adds the size of a varlena header to every typmod that is set, of a length too (VARHDRSZ)."""

_HEADER: Final = Struct("!HhHH")
"""Number of digits, the first digit's power of 10,000, sign, number of decimal digits after the point."""

_POSITIVE: Final = 0x0000
_NEGATIVE: Final = 0x4000
_SPECIAL: Final = {0xC000: "NaN", 0xD000: "Infinity", 0xF000: "-Infinity"}
_MAX_SCALE: Final = 0x3FFF
_BASE: Final = 10_000


def precision_and_scale(typmod: int) -> tuple[int, int] | None:
    """Return precision and scale from a numeric's typmod; None if it has none.  The scale may be negative."""
    if typmod < HEADER_SIZE:
        return None
    packed = typmod - HEADER_SIZE
    # A scale of 11 bits with a sign, since PostgreSQL 15.
    return (packed >> 16) & 0xFFFF, ((packed & 0x7FF) ^ 1024) - 1024


SPACE: Final = " \t\n\v\f\r"  # What PostgreSQL takes for white space
NUMBER: Final = re.compile(r"[+-]?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:e[+-]?[0-9]{1,9})?", re.IGNORECASE)
NOT_FINITE: Final = {"nan": "NaN", "infinity": "Infinity", "+infinity": "Infinity", "-infinity": "-Infinity"}
_EXPONENTS: Final = (-16_383, 131_071)  # The power of ten of the last digit that a numeric can have, and of the first
_WHOLE: Final = Context(prec=sum(map(abs, _EXPONENTS)) + 2, rounding=ROUND_HALF_UP, Emin=MIN_EMIN, Emax=MAX_EMAX)


def numeric_rounded(text: str, scale: int) -> str:
    """Round a numeric's text to a scale, half away from zero; NaN and the infinities stay."""
    if text in _NAMES:
        return text
    number = Decimal(text).quantize(Decimal(1).scaleb(-scale), context=_WHOLE)
    return format(number or number.copy_abs(), "f")


def numeric_written(text: str, precision: int | None = None, scale: int = 0) -> str:
    """Write a number as PostgreSQL writes a numeric, with its own decimals, or with a precision and scale.

    Raises:
        DoesNotFit: the text is no number, or the number does not fit the precision and scale exactly.
    """
    stripped = text.strip(SPACE)
    if stripped.lower() in NOT_FINITE:
        return NOT_FINITE[stripped.lower()]
    if NUMBER.fullmatch(stripped) is None:
        raise DoesNotFit
    number = Decimal(stripped)
    sign, digits, exponent = number.as_tuple()
    assert isinstance(exponent, int)
    if exponent < _EXPONENTS[0] or number.adjusted() > _EXPONENTS[1]:
        raise DoesNotFit
    if not number:  # numeric has no negative zero
        sign = 0
    if precision is not None:
        if not number:
            digits, exponent = (0,), -scale
        while digits[-1] == 0 and exponent < -scale:  # zeros that the scale does not keep
            digits, exponent = digits[:-1], exponent + 1
        if exponent < -scale or (number and number.adjusted() >= precision - scale):
            raise DoesNotFit
        if scale > 0:
            digits, exponent = digits + (0,) * (exponent + scale), -scale
    return format(Decimal((sign, digits, exponent)), "f")


def unscaled_from_text(text: str, precision: int, scale: int) -> int:
    """Read a numeric exactly, as an integer that counts units of ``10 ** -scale``.

    Raises:
        DoesNotFit: it is NaN or an infinity, or has more digits than precision and scale allow.
        ValueFormatError: the text is no numeric.
    """
    if text in _NAMES:
        raise DoesNotFit
    match = _NUMERIC.fullmatch(text)
    if match is None:
        raise ValueFormatError("a numeric is not in PostgreSQL's form")
    sign, whole, fraction = match[1], match[2], (match[3] or "").rstrip("0")
    # The number of digits is checked before int() reads them, because a numeric may have 131,072.
    if len(fraction) > scale or len(whole.lstrip("0")) > precision - scale:
        raise DoesNotFit
    value = int(whole.lstrip("0") + fraction.ljust(scale, "0") or "0")
    return -value if sign else value


def double_from_numeric(text: str) -> float:
    """Read a numeric as the nearest double; NaN and the infinities are kept.

    Raises:
        DoesNotFit: the number is finite and beyond the largest double.
        ValueFormatError: the text is no numeric.
    """
    if text not in _NAMES and _NUMERIC.fullmatch(text) is None:
        raise ValueFormatError("a numeric is not in PostgreSQL's form")
    return finite(float(text), text)


def numeric_text(data: bytes) -> str:
    """Write a numeric's bytes as PostgreSQL does, with as many decimal digits as its scale says."""
    cursor = Cursor(data, "numeric")
    count, weight, sign, scale = cursor.unpack(_HEADER)
    if cursor.left != 2 * count:
        raise malformed("numeric", "has another length than its number of digits asks for")
    digits = cursor.unpack(Struct(f"!{count}H"))
    if sign in _SPECIAL:
        return _SPECIAL[sign]
    if sign not in (_POSITIVE, _NEGATIVE) or scale > _MAX_SCALE or any(digit >= _BASE for digit in digits):
        raise malformed("numeric", "has a sign, a scale or a digit that there is none of")
    written = "".join(f"{digit:04d}" for digit in digits)
    point = 4 * (weight + 1)  # how many decimal digits lie in front of it
    whole, fraction = written[: max(point, 0)].ljust(point, "0"), written[max(point, 0) :]
    text = whole.lstrip("0") or "0"
    if scale:
        # The scale may ask for fewer digits than are sent, or more.
        text += "." + ("0" * -point + fraction)[:scale].ljust(scale, "0")
    return "-" + text if sign == _NEGATIVE else text


# Integers, boolean and money

_INTEGER = re.compile(r"-?[0-9]{1,40}")

int2_text: Final = fixed_writer(Struct("!h"), "smallint")
int4_text: Final = fixed_writer(Struct("!i"), "integer")
int8_text: Final = fixed_writer(Struct("!q"), "bigint")


def integer_from_text(text: str, limits: tuple[int, int]) -> int:
    """Read a decimal integer.

    Raises:
        ValueFormatError: it is none, or outside the limits of its type.
    """
    if _INTEGER.fullmatch(text) is None:
        raise ValueFormatError("an integer is not written in decimal digits")
    low, high = limits
    value = int(text)
    if not low <= value <= high:
        raise ValueFormatError(f"an integer lies outside {low} to {high}, the limits of its type")
    return value


def boolean_from_text(text: str) -> int:
    """Read PostgreSQL's ``t`` or ``f``."""
    if text in ("t", "f"):
        return int(text == "t")
    raise ValueFormatError("a boolean is neither t nor f")


def boolean_text(data: bytes) -> str:
    """Write a boolean's byte as ``t`` or ``f``."""
    if data not in (b"\0", b"\1"):
        raise malformed("boolean", "is neither 0 nor 1")
    return "t" if data == b"\1" else "f"


def _money(cents: int) -> str:
    whole, fraction = divmod(abs(cents), 100)
    return f"{'-' if cents < 0 else ''}${whole:,}.{fraction:02d}"


money_text: Final = fixed_writer(Struct("!q"), "money", _money)
