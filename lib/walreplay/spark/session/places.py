"""Places that have several names, and which of them Python reaches by itself."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

_SCHEME: Final = re.compile(r"([A-Za-z][A-Za-z0-9+.-]+):")
_MOUNTABLE: Final = re.compile(r"(file|dbfs):(?:/|///+)([^/].*)", re.DOTALL)
"""``file:/x`` and ``file:///x``; what has a host, ``file://host/x``, is something else."""

_VOLUMES: Final = "Volumes/"


def one_name(place: str) -> str:
    """Give a path or URI the one name of several that it has.

    Databricks' volumes have three: ``/Volumes/x``, ``dbfs:/Volumes/x`` and ``file:/Volumes/x``, of which the first is
    given.  ``file:///x`` is ``file:/x``.  All else stays as it is.
    """
    found = _MOUNTABLE.fullmatch(place)
    if found is None:
        return place
    scheme, path = found.groups()
    return f"/{path}" if f"{path}/".startswith(_VOLUMES) else f"{scheme}:/{path}"


def mounted_path(place: str) -> Path | None:
    """Give a place as a path, if it is one that Python can reach itself; None for any other URI."""
    name = one_name(place)
    if _SCHEME.match(name) is None:
        return Path(name)
    return Path(name.removeprefix("file:")) if name.startswith("file:/") and _MOUNTABLE.fullmatch(name) else None


__all__ = ["mounted_path", "one_name"]
