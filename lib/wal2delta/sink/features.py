"""What a table asks of those who read it: Delta's table features, each by the property that switches it on.

Every reader of Delta knows a table that has none.  One that has is refused by all that do not know it, so each comes
with what cannot be had without.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any, Final

COLUMN_MAPPING: Final = {"delta.columnMapping.mode": "name"}
"""Columns may be renamed and dropped, and have any name: files call them otherwise."""

TYPE_WIDENING: Final = {"delta.enableTypeWidening": "true"}

TIMESTAMP_NTZ: Final = {"delta.feature.timestampNtz": "supported"}

DELETION_VECTORS: Final = {"delta.enableDeletionVectors": "true"}
"""A MERGE marks rows in place of writing their files anew."""

FEATURE: Final = "delta.feature."
"""What such a property begins with is no property of the table once it is set, but stands in its protocol."""

_READER: Final = "delta.minReaderVersion"
_WRITER: Final = "delta.minWriterVersion"

_LISTS: Final = (3, 7)
"""The protocol's versions from which on it lists features for readers, and for writers."""

_NOT_IN_PARQUET: Final = re.compile(r"[ ,;{}()\n\t=]")
"""Characters that Delta refuses in the name of a column that files have as it is."""


def needed_by(fields: Iterable[Mapping[str, Any]]) -> dict[str, str]:
    """Give the properties without which a table cannot have some columns.

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


def of_new(properties: Mapping[str, str], *, clustered: bool = False) -> dict[str, str]:
    """Give the properties that a table is made with, of those that it is to have.

    Args:
        clustered: it is made with clustering, whose protocol it has then.
    """
    return {**properties, **_protocol_for(properties, (1, 7) if clustered else (1, 2))}


def missing(wanted: Mapping[str, str], there: Mapping[str, str]) -> dict[str, str]:
    """Give those of some properties that a table has not, with what has to come with them.

    Args:
        there: the table's, with its protocol's versions and features among them, as SHOW TBLPROPERTIES has it.
    """
    lacking = {name: value for name, value in wanted.items() if there.get(name, "").lower() != value.lower()}
    return lacking | _protocol_for(lacking, (int(there.get(_READER, 1)), int(there.get(_WRITER, 2))))


def protocol_shown(protocol: Mapping[str, Any]) -> dict[str, str]:
    """Give a protocol, as Delta's log has it, as SHOW TBLPROPERTIES shows it."""
    features = {*(protocol.get("readerFeatures") or ()), *(protocol.get("writerFeatures") or ())}
    return {
        _READER: str(protocol["minReaderVersion"]),
        _WRITER: str(protocol["minWriterVersion"]),
        **{f"{FEATURE}{name}": "supported" for name in features},
    }


def _protocol_for(properties: Mapping[str, str], versions: tuple[int, int]) -> dict[str, str]:
    """Have column mapping come with a protocol that all know who know column mapping.

    Delta writes the least: version 2 for readers and a list of features for writers.  DuckDB's reader (delta-kernel)
    holds that for damaged.  It takes lists for both, which any feature for readers brings, or for none.

    Args:
        versions: the table's, of readers and writers.
    """
    reader, writer = versions
    brings_lists = properties.keys() & {*TYPE_WIDENING, *TIMESTAMP_NTZ, *DELETION_VECTORS}
    if not COLUMN_MAPPING.items() <= properties.items() or brings_lists or reader >= _LISTS[0]:
        return {}
    return TIMESTAMP_NTZ if writer >= _LISTS[1] else {_READER: "2", _WRITER: "5"}
