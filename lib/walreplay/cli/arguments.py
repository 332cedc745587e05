"""Values on the command line that have a form of their own."""

from __future__ import annotations

import re
from typing import Final

from walreplay.errors import ConfigError

_SIZE: Final = re.compile(r"(\d+(?:\.\d+)?)\s*([KMGT]?)(i?)B?", re.IGNORECASE)
_POWERS: Final = {"": 0, "K": 1, "M": 2, "G": 3, "T": 4}


def size_of(text: str, option: str) -> int:
    """Read a number of bytes.

    >>> size_of("64GiB", "--run-bytes"), size_of("1.5 MB", "--run-bytes"), size_of("4096", "--run-bytes")
    (68719476736, 1500000, 4096)

    Raises:
        ConfigError: it is none.
    """
    found = _SIZE.fullmatch(text.strip())
    count = 0 if found is None else int(float(found[1]) * (1024 if found[3] else 1000) ** _POWERS[found[2].upper()])
    if count < 1:
        raise ConfigError(f"{option}: not a number of bytes: {text}", remedy="Write it like 64GiB, 500MB or 1000000")
    return count


__all__ = ["size_of"]
