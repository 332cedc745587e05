"""What decimal_handling_mode and binary_handling_mode make of numeric and bytea."""

import math
import re
from base64 import b64encode, urlsafe_b64encode

from walreplay.errors import ValueFormatError
from walreplay.types.base import DoesNotFit, Family
from walreplay.types.binary import bytes_from_text

_NUMERIC = re.compile(r"-?[0-9]+(?:\.[0-9]+)?|NaN|-?Infinity")


def double_from_numeric(text: str) -> float:
    """Read a numeric as the double nearest to it; NaN and the infinities are values.

    Raises:
        DoesNotFit: a finite number beyond the largest double.
    """
    if _NUMERIC.fullmatch(text) is None:
        raise ValueFormatError("a numeric is not in PostgreSQL's form")
    return finite(float(text), text)


def finite(value: float, text: str) -> float:
    """Give the float that a text became, unless it is infinite and the text is not.

    Raises:
        DoesNotFit: infinity would be another value than the one sent.
    """
    if math.isinf(value) and not text.lower().endswith("infinity"):
        raise DoesNotFit
    return value


def encoded_from_bytea(text: str, family: Family) -> str:
    """Write a bytea, which came in either of its forms, as one of the families BYTEA_AS_… asks for.

    Base64 is padded and has no line breaks, as Java's encoders and so Debezium write it.
    """
    data = bytes_from_text(text)
    if family == Family.BYTEA_AS_HEX:
        return data.hex()
    encode = urlsafe_b64encode if family == Family.BYTEA_AS_BASE64_URL else b64encode
    return encode(data).decode("ascii")
