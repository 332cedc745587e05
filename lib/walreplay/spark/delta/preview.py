"""Look at a table's first rows."""

from __future__ import annotations

from typing import Final

from pyspark.sql import SparkSession
from pyspark.sql import functions as F

_WIDTH: Final = 40
"""Longer values are cut: a look at the rows, not a copy of them."""


def first_rows(spark: SparkSession, location: str, limit: int) -> tuple[list[str], list[tuple[str, ...]]]:
    """Give the columns of a Delta table and some of its rows, as text.

    Args:
        location: the table's path, or its name in a catalog (which has no slash).
    """
    is_path = "/" in location or "\\" in location
    table = spark.read.format("delta").load(location) if is_path else spark.table(location)
    # Columns are taken by position: a name may hold dots, backticks, anything.
    columns = table.columns
    numbered = table.toDF(*(f"c{number}" for number in range(len(columns))))
    texts = numbered.select(*(F.col(name).cast("string") for name in numbered.columns)).limit(limit)
    return columns, [tuple(_shorten(value) for value in row) for row in texts.collect()]


def _shorten(text: str | None) -> str:
    if text is None:
        return "NULL"
    return text if len(text) <= _WIDTH else f"{text[: _WIDTH - 1]}…"
