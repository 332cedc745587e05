"""money: a count of cents, and nothing of its currency.

How it is written is the server's lc_monetary: currency, number of decimals, separators.  The bytes hold none of
this, so it is written as the locales C and en_US do, which is exact where the server has one of them.
"""

from __future__ import annotations

from struct import Struct
from typing import Final

from walreplay.types.cursor import unpack

_CENTS: Final = Struct("!q")


def money_text(data: bytes) -> str:
    """Write a money's bytes as ``$1,234.56`` or ``-$1,234.56``."""
    (cents,) = unpack(_CENTS, data, "money")
    whole, fraction = divmod(abs(cents), 100)
    return f"{'-' if cents < 0 else ''}${whole:,}.{fraction:02d}"
