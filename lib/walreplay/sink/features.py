"""Delta table features: what a table requires of its readers, each with the property that switches it on.

Every reader of Delta can read a table without features.  A reader that does not know one of a table's features refuses
the table.  So each is switched on only when something needs it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any, Final

COLUMN_MAPPING: Final = {"delta.columnMapping.mode": "name"}
"""Columns can be renamed and dropped, and have any name, because files use names of their own."""

TYPE_WIDENING: Final = {"delta.enableTypeWidening": "true"}

TIMESTAMP_NTZ: Final = {"delta.feature.timestampNtz": "supported"}

DELETION_VECTORS: Final = {"delta.enableDeletionVectors": "true"}
"""A MERGE can mark rows as deleted instead of rewriting their files."""

FEATURE: Final = "delta.feature."
"""The beginning of a property that switches a feature on.  It is kept in the table's protocol, not as a property."""

_READER: Final = "delta.minReaderVersion"

_LISTS: Final = 3
"""The reader version from which on a protocol lists its features."""

_NOT_IN_PARQUET: Final = re.compile(r"[ ,;{}()\n\t=]")
"""Characters that Delta refuses in a column's name without column mapping."""


def needed_by(fields: Iterable[Mapping[str, Any]]) -> dict[str, str]:
    """Give the properties that some columns require.

    Args:
        fields: as Delta's log declares them.
    """
    needed: dict[str, str] = {}
    for field in fields:
        if _NOT_IN_PARQUET.search(field["name"]):
            needed |= COLUMN_MAPPING
        if _has_local_times(field["type"]):
            needed |= TIMESTAMP_NTZ
    return needed


def _has_local_times(kind: Any) -> bool:
    if isinstance(kind, str):
        return kind == "timestamp_ntz"
    parts = [field["type"] for field in kind.get("fields", ())]
    return any(map(_has_local_times, [*parts, kind.get("elementType", "")]))


def of_new(properties: Mapping[str, str]) -> dict[str, str]:
    """Give the properties with which a table is created, given those that are wanted."""
    return missing(properties, {})


def missing(wanted: Mapping[str, str], there: Mapping[str, str]) -> dict[str, str]:
    """Give the wanted properties that a table lacks, and those that have to be set with them.

    Column mapping alone is declared by a reader version, not by a list of features.  delta-rs does not check that
    version, and silently reads renamed columns as NULL; DuckDB's reader takes the table for damaged.  So column mapping
    is switched on together with ``timestampNtz``, which brings the list.

    Args:
        there: the table's properties, and its protocol's versions and features, as SHOW TBLPROPERTIES gives them.
    """
    lacking = {name: value for name, value in wanted.items() if there.get(name, "").lower() != value.lower()}
    lists = int(there.get(_READER, 1)) >= _LISTS or bool(
        lacking.keys() & {*TYPE_WIDENING, *TIMESTAMP_NTZ, *DELETION_VECTORS}
    )
    return lacking if lists or not lacking.keys() & COLUMN_MAPPING.keys() else lacking | TIMESTAMP_NTZ
