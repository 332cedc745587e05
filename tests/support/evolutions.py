"""Tables whose columns change, written as text."""

from __future__ import annotations

from typing import Final

import pyarrow as pa

from walreplay.evolution.shapes import OWN, Evolution, Policy, SourceColumn
from walreplay.types import families, resolve
from walreplay.types.base import ColumnType

_KINDS: Final = {
    "smallint": (21, -1),
    "int": (23, -1),
    "bigint": (20, -1),
    "text": (25, -1),
    "mood": (70000, -1),
    "char5": (1042, 9),
    "char9": (1042, 13),
    "date": (1082, -1),
    "timestamp": (1114, -1),
    "n52": (1700, (5 << 16 | 2) + 4),
    "n83": (1700, (8 << 16 | 3) + 4),
    "n63": (1700, (6 << 16 | 3) + 4),
    "real": (700, -1),
    "double": (701, -1),
    "ints": (1007, -1),
    "bytea": (17, -1),
}
TYPES: Final = {name: resolve(oid, typmod, {70000: ("public", "mood")}) for name, (oid, typmod) in _KINDS.items()}
MARK: Final = SourceColumn(OWN, "__deleted", ColumnType(pa.bool_(), families.BOOLEAN, "boolean"))


def columns(text: str, *, marked: bool = False) -> list[SourceColumn]:
    """Read ``id note:text Id=Id__2``: integers by default, the mirror's name behind the sign."""
    found = []
    for item in text.split():
        item, _, kind = item.partition(":")
        name, _, target = item.partition("=")
        found.append(SourceColumn(name, target or name, TYPES[kind or "int"]))
    return [*found, MARK] if marked else found


def evolve(*versions: str, policy: Policy | None = None, marked: bool = False, anew: bool = False) -> Evolution:
    """Make a table of the first version, and go on with the others in another run."""
    policy = policy or Policy()
    first = Evolution(None, policy)
    first.take(columns(versions[0], marked=marked))
    evolution = Evolution(first.shape, policy, anew=anew)
    for version in versions[1:]:
        evolution.take(columns(version, marked=marked))
    return evolution
