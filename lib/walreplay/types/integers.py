"""smallint, integer, bigint; oid and xid, which are 32 bits without a sign."""

import re
from struct import Struct
from typing import Final

from walreplay.errors import ValueFormatError
from walreplay.types.base import Family
from walreplay.types.cursor import unpack

LIMITS: Final[dict[Family, tuple[int, int]]] = {
    Family.INT16: (-(2**15), 2**15 - 1),
    Family.INT32: (-(2**31), 2**31 - 1),
    Family.INT64: (-(2**63), 2**63 - 1),
    Family.UNSIGNED: (0, 2**32 - 1),
}
"""The smallest and the largest value of each family."""

_INTEGER = re.compile(r"-?[0-9]{1,40}")

_INT2: Final = Struct("!h")
_INT4: Final = Struct("!i")
_INT8: Final = Struct("!q")


def integer_from_text(text: str, family: Family) -> int:
    """Read a decimal integer.

    Raises:
        ValueFormatError: it is none, or outside the limits of its type.
    """
    if _INTEGER.fullmatch(text) is None:
        raise ValueFormatError("an integer is not written in decimal digits")
    low, high = LIMITS[family]
    value = int(text)
    if not low <= value <= high:
        raise ValueFormatError(f"an integer lies outside {low} to {high}, the limits of its type")
    return value


def int2_text(data: bytes) -> str:
    """Write the 2 bytes of a smallint."""
    return str(unpack(_INT2, data, "smallint")[0])


def int4_text(data: bytes) -> str:
    """Write the 4 bytes of an integer."""
    return str(unpack(_INT4, data, "integer")[0])


def int8_text(data: bytes) -> str:
    """Write the 8 bytes of a bigint."""
    return str(unpack(_INT8, data, "bigint")[0])
