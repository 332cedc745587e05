"""real and double precision: shortest exact digits, or NaN and the infinities, which the columns hold."""

import math
import re
from struct import Struct
from typing import Final

from walreplay.errors import ValueFormatError
from walreplay.types.base import DoesNotFit
from walreplay.types.cursor import unpack

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
    if math.isinf(value) and not text.lower().endswith("infinity"):
        raise DoesNotFit
    return value


def float4_text(data: bytes) -> str:
    """Write a real's 4 bytes as PostgreSQL does."""
    (value,) = unpack(_FLOAT4, data, "real")
    return single_text(value)


def float8_text(data: bytes) -> str:
    """Write the 8 bytes of a double precision as PostgreSQL does."""
    (value,) = unpack(_FLOAT8, data, "double precision")
    return double_text(value)


def single_text(value: float) -> str:
    """Write a number that single precision holds exactly, as PostgreSQL writes a real."""
    if not math.isfinite(value) or value == 0.0:
        return _special(value)
    data = _FLOAT4.pack(value)
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


def _special(value: float) -> str:
    if math.isnan(value):
        return "NaN"
    if value == 0.0:
        return "-0" if math.copysign(1.0, value) < 0 else "0"
    return "Infinity" if value > 0 else "-Infinity"


def _python_digits(value: float) -> tuple[str, int]:
    """Give the digits that Python writes for a number, and the power of ten of the last one."""
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
    implicit = 1 << fraction_bits
    mantissa = fraction if raised == 0 else fraction | implicit
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
