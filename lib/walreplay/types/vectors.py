"""pgvector's vector and halfvec: ``[1,2.5,-3e-05]``.

The server writes the shortest digits that identify a single-precision float.  So each element is rounded to single
precision directly from its text: rounded to a double first, some would become a neighbouring float.
"""

import math
import re
from typing import Final

import pyarrow as pa

from walreplay.types.base import DoesNotFit

_NUMBER = r"-?[0-9]+(?:\.[0-9]+)?(?:e[+-]?[0-9]+)?"
VECTOR_FORM: Final = rf"^\[(?:{_NUMBER}(?:,{_NUMBER})*)?\]$"
"""A regular expression, which the vectorized reader uses, too."""

_VECTOR = re.compile(VECTOR_FORM)


def floats_from_text(text: str) -> list[float]:
    """Read a vector's elements, each of which is a single-precision float.

    Raises:
        DoesNotFit: the text is no vector, or has elements beyond single precision, NaN or infinities.  It is no format
            error, because the type is known only by its name, which a type of another extension, or a table, may have.
    """
    if _VECTOR.fullmatch(text) is None:
        raise DoesNotFit
    if text == "[]":
        return []
    try:
        elements: list[float] = pa.array(text[1:-1].split(",")).cast(pa.float32()).to_pylist()
    except pa.ArrowInvalid:
        raise DoesNotFit from None
    if not all(map(math.isfinite, elements)):
        raise DoesNotFit
    return elements
