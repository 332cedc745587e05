"""What the type families share: a column's type, and the three outcomes of reading a value.

A value is held exactly; or it is well formed but its column cannot hold it (`DoesNotFit`: NULL in the column, the text
rescued); or it is not in the form of its type at all (`ValueFormatError`: the run stops).  The ledger keeps a table's
column types as JSON (`type_to_dict`), independently of the configuration.
"""

from __future__ import annotations

import base64
from dataclasses import dataclass, fields
from enum import Enum
from typing import Any, TypeAlias

import pyarrow as pa


class Family(str, Enum):
    """The reader for a type's values."""

    BOOLEAN = "boolean"
    INT16 = "int16"
    INT32 = "int32"
    INT64 = "int64"
    UNSIGNED = "unsigned"
    """oid and xid: 32 bits without a sign."""
    FLOAT32 = "float32"
    FLOAT64 = "float64"
    DECIMAL = "decimal"
    STRING = "string"
    BINARY = "binary"
    DATE = "date"
    TIMESTAMP = "timestamp"
    TIMESTAMPTZ = "timestamptz"
    ARRAY = "array"
    NUMERIC_AS_DOUBLE = "numeric as double"
    """numeric as the nearest double; `decimal_handling_mode`."""
    VECTOR = "vector"
    """pgvector's vector and halfvec: a list of single-precision floats."""


Label: TypeAlias = tuple[int, tuple[str, ...]]
"""An enum's label: its oid, and the texts that it has had, the present one last."""


@dataclass(frozen=True, slots=True)
class ColumnType:
    """A column's type: what PostgreSQL sends, and the column that it becomes.

    Args:
        arrow: the column's Arrow type.
        family: the reader for its values.
        postgres_name: the type's SQL name, with precision and scale for numeric.
        element: the type of an array's elements; None for other types.
        delimiter: the character between an array's elements.
        oid: the type that is sent, which decides how binary values are read: a built-in type's oid (for a domain, that
            of its base type), or a user-defined type's own.  0 if it is not known.
        typmod: the modifier of that type, -1 for none.  A domain's modifier does not apply to its base type.
        overridden: the configuration chooses another type than the one that is sent.  `arrow`, `family` and
            `postgres_name` are those of the chosen type, and `walreplay.types.overrides` reads the values.  A value
            that is not in the chosen type's form is rescued.
        labels: of an enum, or an array of one, the labels that have had other texts; empty if none had, or nothing is
            announced.
        labels_in_array: the labels are those of an array's elements.
        as_sent: the values are as they were sent, so that some may have a label as it was before.
    """

    arrow: pa.DataType
    family: Family
    postgres_name: str
    element: ColumnType | None = None
    delimiter: str = ","
    oid: int = 0
    typmod: int = -1
    overridden: bool = False
    labels: tuple[Label, ...] = ()
    labels_in_array: bool = False
    as_sent: bool = False


@dataclass(frozen=True, slots=True)
class Rescued:
    """A value that its column's type cannot hold: the number of its row in one append, and PostgreSQL's text."""

    row: int
    text: str


class DoesNotFit(Exception):
    """The text is well formed, but the column's type cannot hold its value."""


def type_to_dict(column_type: ColumnType) -> dict[str, Any]:
    """Return a type as values that JSON can express; fields with their default value are left out."""
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
    """Read what `type_to_dict` gave."""
    found = dict(values)
    schema = pa.ipc.read_schema(pa.py_buffer(base64.b64decode(found["arrow"])))
    found["arrow"] = schema.field(0).type
    found["family"] = Family(found["family"])
    if "labels" in found:
        found["labels"] = tuple((oid, tuple(texts)) for oid, texts in found["labels"])
    if "element" in found:
        found["element"] = type_from_dict(found["element"])
    return ColumnType(**found)
