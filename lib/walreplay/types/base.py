"""What the type families share: a column's type, and the three outcomes of reading a value.

A value is held exactly; or it is well formed but its column cannot hold it (`DoesNotFit`: NULL in the column, the text
rescued); or it is not in the form of its type at all (`ValueFormatError`: the run stops).
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

import pyarrow as pa


class Family(str, Enum):
    """How a type's values are read."""

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
    BYTEA_AS_BASE64 = "bytea as base64"
    """bytea as a string; `binary_handling_mode`, as are the next two."""
    BYTEA_AS_BASE64_URL = "bytea as base64-url-safe"
    BYTEA_AS_HEX = "bytea as hex"
    VECTOR = "vector"
    """pgvector's vector and halfvec: a list of single-precision floats."""


@dataclass(frozen=True, slots=True)
class ColumnType:
    """A PostgreSQL type as it becomes a column.

    Args:
        arrow: the column's Arrow type.
        family: which reader takes its values.
        postgres_name: the type's SQL name, with precision and scale for numeric.
        element: the type of an array's elements, None for all others.
        delimiter: what stands between an array's elements.
        oid: the type that the values are sent in, so the form of those in binary format: a built-in type's oid,
            with domains resolved to their base type; a user-defined type's own.  0 where it is not known.
        typmod: the modifier of that type, -1 for none; a domain's own says nothing of its base type.
        overridden: the configuration has the values read as another type than the one they are sent in: `arrow`,
            `family` and `postgres_name` are that other type's.  What is not in its form does not fit it, and is
            rescued; `walreplay.types.overrides` reads it.
    """

    arrow: pa.DataType
    family: Family
    postgres_name: str
    element: ColumnType | None = None
    delimiter: str = ","
    oid: int = 0
    typmod: int = -1
    overridden: bool = False


@dataclass(frozen=True, slots=True)
class Rescued:
    """A value that its column's type cannot hold: its row within one append, and PostgreSQL's text."""

    row: int
    text: str


class DoesNotFit(Exception):
    """The text is well formed, but the column's type cannot hold its value."""
