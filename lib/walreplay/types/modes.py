"""Values of numeric under decimal_handling_mode: double, and of bytea under binary_handling_mode."""

import math
import re
from base64 import b64encode, urlsafe_b64encode

from walreplay.errors import ValueFormatError
from walreplay.types.base import DoesNotFit, Family
from walreplay.types.binary import bytes_from_text

_NUMERIC = re.compile(r"-?[0-9]+(?:\.[0-9]+)?|NaN|-?Infinity")


def double_from_numeric(text: str) -> float:
    """Read a numeric as the nearest double; NaN and the infinities are kept.

    Raises:
        DoesNotFit: the number is finite and beyond the largest double.
        ValueFormatError: the text is no numeric.
    """
    if _NUMERIC.fullmatch(text) is None:
        raise ValueFormatError("a numeric is not in PostgreSQL's form")
    return finite(float(text), text)


def finite(value: float, text: str) -> float:
    """Return the float that a text was read as.

    Raises:
        DoesNotFit: the float is infinite, but the text is a finite number.
    """
    if math.isinf(value) and not text.lower().endswith("infinity"):
        raise DoesNotFit
    return value


def encoded_from_bytea(text: str, family: Family) -> str:
    """Write a bytea, given in either of its forms, in the encoding of one of the families BYTEA_AS_….

    Base64 has padding and no line breaks, as Java's encoders, and therefore Debezium, write it.
    """
    data = bytes_from_text(text)
    if family == Family.BYTEA_AS_HEX:
        return data.hex()
    encode = urlsafe_b64encode if family == Family.BYTEA_AS_BASE64_URL else b64encode
    return encode(data).decode("ascii")
