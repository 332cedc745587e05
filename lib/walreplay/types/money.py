"""money: a count of cents, and nothing of its currency.

The server's lc_monetary decides how it is written: currency, number of decimals, separators.  The bytes have none of
this.  So it is written as in the locales C and en_US, which is exact if the server uses one of them.
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
