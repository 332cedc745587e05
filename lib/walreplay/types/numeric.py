"""numeric with a precision and a scale that a decimal128 holds, or as the nearest double.

Other exact numerics become strings: those without a precision, because their values have no common scale, and those
with more than 38 digits or with a scale outside 0 to the precision.
"""

import re
from struct import Struct
from typing import Final

from walreplay.errors import ValueFormatError
from walreplay.types.base import DoesNotFit
from walreplay.types.cursor import Cursor, malformed
from walreplay.types.floats import finite

MAX_PRECISION: Final = 38

_NUMERIC = re.compile(r"(-?)([0-9]+)(?:\.([0-9]+))?")
_NOT_FINITE = ("NaN", "Infinity", "-Infinity")
_HEADER_SIZE = 4
"""PostgreSQL adds the size of a varlena header to every typmod that is set (VARHDRSZ)."""

_HEADER: Final = Struct("!HhHH")
"""Number of digits, the first digit's power of 10,000, sign, number of decimal digits after the point."""

_POSITIVE: Final = 0x0000
_NEGATIVE: Final = 0x4000
_SPECIAL: Final = {0xC000: "NaN", 0xD000: "Infinity", 0xF000: "-Infinity"}
_MAX_SCALE: Final = 0x3FFF
_BASE: Final = 10_000


def precision_and_scale(typmod: int) -> tuple[int, int] | None:
    """Give precision and scale from a numeric's typmod; None if it has none.  The scale may be negative."""
    if typmod < _HEADER_SIZE:
        return None
    packed = typmod - _HEADER_SIZE
    return (packed >> 16) & 0xFFFF, ((packed & 0x7FF) ^ 1024) - 1024


def unscaled_from_text(text: str, precision: int, scale: int) -> int:
    """Read a numeric exactly, as an integer that counts units of ``10 ** -scale``.

    Raises:
        DoesNotFit: it is NaN or an infinity, or has more digits than precision and scale allow.
        ValueFormatError: the text is no numeric.
    """
    if text in _NOT_FINITE:
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
    if text not in _NOT_FINITE and _NUMERIC.fullmatch(text) is None:
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
    point = 4 * (weight + 1)
    whole, fraction = written[: max(point, 0)].ljust(point, "0"), written[max(point, 0) :]
    text = whole.lstrip("0") or "0"
    if scale:
        text += "." + ("0" * -point + fraction)[:scale].ljust(scale, "0")
    return "-" + text if sign == _NEGATIVE else text
