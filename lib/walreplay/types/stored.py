"""Column types as JSON for the ledger, which keeps the types that a table had, independently of the configuration."""

from __future__ import annotations

import base64
from dataclasses import fields
from typing import Any

import pyarrow as pa

from walreplay.types.base import ColumnType, Family


def type_to_dict(column_type: ColumnType) -> dict[str, Any]:
    """Give a type as values that JSON can express; fields with their default value are left out."""
    found: dict[str, Any] = {}
    for field in fields(ColumnType):
        value = getattr(column_type, field.name)
        if field.name == "arrow":
            schema = pa.schema([pa.field("", value)])
            found["arrow"] = base64.b64encode(schema.serialize().to_pybytes()).decode()
        elif field.name == "element":
            if value is not None:
                found["element"] = type_to_dict(value)
        elif value != field.default:
            found[field.name] = value.value if isinstance(value, Family) else value
    return found


def type_from_dict(values: dict[str, Any]) -> ColumnType:
    """Read what `type_to_dict` gave; fields that this version does not know are ignored."""
    known = {field.name for field in fields(ColumnType)}
    found = {name: value for name, value in values.items() if name in known}
    schema = pa.ipc.read_schema(pa.py_buffer(base64.b64decode(found["arrow"])))
    found["arrow"] = schema.field(0).type
    found["family"] = Family(found["family"])
    if "labels" in found:
        found["labels"] = tuple((oid, tuple(texts)) for oid, texts in found["labels"])
    if "element" in found:
        found["element"] = type_from_dict(found["element"])
    return ColumnType(**found)
