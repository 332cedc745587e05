"""pgvector's vector and halfvec: ``[1,2.5,-3e-05]``.

The server writes the shortest digits that tell one single-precision float from all others, so each is rounded
to single precision from its text: by way of a double, some would come out as their neighbour.
"""

import math
import re
from typing import Final

import pyarrow as pa

from walreplay.types.base import DoesNotFit

_NUMBER = r"-?[0-9]+(?:\.[0-9]+)?(?:e[+-]?[0-9]+)?"
VECTOR_FORM: Final = rf"^\[(?:{_NUMBER}(?:,{_NUMBER})*)?\]$"
"""A regular expression that the vectorized reader takes too."""

_VECTOR = re.compile(VECTOR_FORM)


def floats_from_text(text: str) -> list[float]:
    """Read a vector's elements, each of which is a single-precision float.

    Raises:
        DoesNotFit: whatever else the text is: the type is known by its name alone, which another extension's
            type, or a table, may have too.  So do elements beyond single precision, NaN and the infinities.
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
