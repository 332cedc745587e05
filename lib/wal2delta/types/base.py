"""What the type families share: a column's type, and the three ways a value can go.

A value is held exactly, or it is well formed but its column's type cannot hold it (`DoesNotFit`: NULL in the
column, the text rescued), or it is not in the type's form at all (`ValueFormatError`: the run stops).
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


@dataclass(frozen=True, slots=True)
class ColumnType:
    """A PostgreSQL type as it becomes a column.

    Args:
        arrow: the column's Arrow type.
        family: which reader takes its values.
        postgres_name: the type's SQL name, with precision and scale for numeric.
        element: the type of an array's elements, None for all others.
        delimiter: what stands between an array's elements.
    """

    arrow: pa.DataType
    family: Family
    postgres_name: str
    element: ColumnType | None = None
    delimiter: str = ","


@dataclass(frozen=True, slots=True)
class Rescued:
    """A value that its column's type cannot hold: its row within one append, and PostgreSQL's text."""

    row: int
    text: str


class DoesNotFit(Exception):
    """The text is well formed, but the column's type cannot hold its value."""
