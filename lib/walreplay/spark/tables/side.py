"""Remove a side target (`Target.side`), whose tables have come to their places."""

from __future__ import annotations

import shutil
from collections.abc import Iterable
from typing import TYPE_CHECKING, Final

from walreplay.spark.delta import statements as delta
from walreplay.spark.delta.mounted import local_folder
from walreplay.spark.delta.target import TableName, Target
from walreplay.spark.ledger.keeping import HISTORY
from walreplay.spark.tables.move import file_system

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_OF_LEDGER: Final = ("state", *HISTORY)


def remove_side(spark: SparkSession, side: Target, tables: Iterable[TableName]) -> str | None:
    """Remove a side target, and give a note where that cannot be done from here.

    Args:
        tables: those of its tables that are known.
    """
    if side.root is None:
        _drop(spark, side)
        return None
    folder = local_folder(spark, side.root)
    if folder is not None:
        shutil.rmtree(folder, ignore_errors=True)
    else:
        files = file_system(spark, side.root)
        if files is None:
            # Over Spark Connect no files can be removed.
            return f"{side.root} is left behind, for it cannot be removed from here; remove it by hand"
        files.delete(side.root)
    for table in (*tables, *map(side.ledger, _OF_LEDGER)):
        delta.forget(spark, table)
    return None


def _drop(spark: SparkSession, side: Target) -> None:
    sample = side.ledger("")
    schema, prefix = TableName(parts=sample.parts[:-1]), sample.parts[-1]
    if not spark.catalog.databaseExists(schema.sql):
        return
    for row in spark.sql(f"SHOW TABLES IN {schema.sql}").collect():
        # Catalogs keep names in lower case.
        if row.tableName.lower().startswith(prefix.lower()):
            delta.drop(spark, TableName(parts=(*schema.parts, row.tableName)))


__all__ = ["remove_side"]
