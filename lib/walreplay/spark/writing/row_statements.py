"""A table of one row that is read and changed by Spark's statements."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta, timezone
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

from walreplay.spark.delta import statements as delta
from walreplay.spark.delta.sql_types import sql_schema
from walreplay.spark.delta.target import TableName, quote
from walreplay.spark.writing.base import Condition, OneRow

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_SOURCE: Final = "walreplay_row"

_LONG: Final = 1 << 17
"""A row with more characters is not written as literals, because a statement's text must not grow without limit."""

_UNIX_EPOCH: Final = datetime(1970, 1, 1, tzinfo=timezone.utc)


class StatementRow(OneRow):
    """A table of one row that is read and changed by Spark's statements."""

    def __init__(
        self,
        spark: SparkSession,
        table: TableName,
        schema: pa.Schema,
        properties: Mapping[str, str] = delta.NO_PROPERTIES,
    ) -> None:
        self._properties = properties
        self._spark = spark
        self._table = table
        self._schema = schema

    def exists(self) -> bool:
        """Say whether the table exists."""
        return delta.exists(self._spark, self._table)

    def read(self) -> Mapping[str, Any] | None:
        """Give the row of an existing table, by its columns' names; None if the table is empty."""
        rows = delta.read(self._spark, self._table).collect()
        if not rows:
            return None
        (row,) = rows
        # Spark gives times without a zone, in this machine's local time.
        return {
            name: value.astimezone(timezone.utc) if isinstance(value, datetime) else value
            for name, value in row.asDict().items()
        }

    def create(self, values: Mapping[str, Any], *, exists: bool) -> bool:
        """Create the table with its row, or insert the row into an empty table; say whether that was done."""
        frame = self._frame(values)
        if not exists and self._table.path is not None:
            delta.write(frame, self._table, "error", create=True, properties=self._properties)
            return True
        if not exists:
            # A table in a catalog is created empty first.
            delta.write(frame.limit(0), self._table, "append", create=True, properties=self._properties)
        frame.createOrReplaceTempView(_SOURCE)
        return self._changed(
            f"MERGE INTO {self._table.sql} AS t USING {_SOURCE} AS s ON true WHEN NOT MATCHED THEN INSERT *"
        )

    def change(self, values: Mapping[str, Any], condition: Condition) -> bool:
        """Change some of the row's values; say whether the condition held."""
        if sum(len(value) for value in values.values() if isinstance(value, str)) <= _LONG:
            # An UPDATE of one row takes half the time of a MERGE.
            assignments = ", ".join(f"{quote(name)} = {_literal(value)}" for name, value in values.items())
            return self._changed(f"UPDATE {self._table.sql} SET {assignments} WHERE {condition.sql()}")
        self._frame(values).createOrReplaceTempView(_SOURCE)
        assignments = ", ".join(f"t.{quote(name)} = s.{quote(name)}" for name in values)
        return self._changed(
            f"MERGE INTO {self._table.sql} AS t USING {_SOURCE} AS s ON {condition.sql('t.')} "
            f"WHEN MATCHED THEN UPDATE SET {assignments}"
        )

    def _changed(self, statement: str) -> bool:
        """Run a statement, and say whether it found the row."""
        (counts,) = self._spark.sql(statement).collect()
        return bool(counts[0])

    def _frame(self, values: Mapping[str, Any]) -> DataFrame:
        schema = pa.schema([self._schema.field(name) for name in values])
        return self._spark.createDataFrame([tuple(values.values())], sql_schema(schema)).coalesce(1)


def _literal(value: str | bool | int | datetime | list[str] | None) -> str:
    """Write a value in SQL; text in hexadecimal, because the meaning of a backslash in SQL can be configured."""
    if value is None:
        return "NULL"
    if isinstance(value, str):
        return f"CAST(X'{value.encode().hex()}' AS STRING)"
    if isinstance(value, datetime):
        return f"timestamp_micros({(value - _UNIX_EPOCH) // timedelta(microseconds=1)})"
    if isinstance(value, list):
        return f"CAST(array({', '.join(map(_literal, value))}) AS ARRAY<STRING>)"
    return str(value)
