"""real and double precision: shortest exact digits, or NaN and the infinities, which the columns hold."""

import re

from wal2delta.errors import ValueFormatError

_FLOAT = re.compile(r"-?(?:[0-9]+(?:\.[0-9]+)?(?:e[+-]?[0-9]+)?|Infinity)|NaN", re.IGNORECASE)


def float_from_text(text: str) -> float:
    """Read a floating-point number; the caller rounds to single precision from the text, not from this."""
    if _FLOAT.fullmatch(text) is None:
        raise ValueFormatError("a floating-point number is not in PostgreSQL's form")
    return float(text)
