"""The Spark SQL type of each Arrow type."""

from __future__ import annotations

import pyarrow as pa

from walreplay.spark.delta.target import quote


def sql_type(kind: pa.DataType) -> str:
    """Give the Spark SQL type that holds an Arrow type's values exactly.

    Raises:
        TypeError: for a type that no column has.
    """
    simple = {
        pa.bool_(): "BOOLEAN",
        pa.int8(): "TINYINT",
        pa.int16(): "SMALLINT",
        pa.int32(): "INT",
        pa.int64(): "BIGINT",
        pa.float32(): "FLOAT",
        pa.float64(): "DOUBLE",
        pa.string(): "STRING",
        pa.binary(): "BINARY",
        pa.date32(): "DATE",
    }
    if kind in simple:
        return simple[kind]
    if pa.types.is_dictionary(kind):
        return sql_type(kind.value_type)
    if pa.types.is_decimal(kind):
        return f"DECIMAL({kind.precision},{kind.scale})"
    if pa.types.is_timestamp(kind):
        return "TIMESTAMP_NTZ" if kind.tz is None else "TIMESTAMP"
    if pa.types.is_list(kind):
        return f"ARRAY<{sql_type(kind.value_type)}>"
    if pa.types.is_struct(kind):
        return f"STRUCT<{', '.join(f'{quote(field.name)}: {sql_type(field.type)}' for field in kind)}>"
    raise TypeError(f"no column has the type {kind}")


def sql_schema(schema: pa.Schema) -> str:
    """Give a whole schema, as mapInArrow and CREATE TABLE take it."""
    return ", ".join(f"{quote(field.name)} {sql_type(field.type)}" for field in schema)
