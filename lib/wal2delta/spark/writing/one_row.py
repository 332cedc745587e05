"""A table of one row, whose file Python reads and writes.

A row is written in the place of the one that is known, and only if that is still the table's: so a commit that anybody
has made in between is never overwritten.  Each function gives None where that cannot be done, and Spark's own
statements have to do it (see `wal2delta.spark.delta.transaction`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pyspark

from wal2delta.sink.data_files import DataFileWriter
from wal2delta.sink.table_log import whole_file
from wal2delta.spark.delta.target import TableName
from wal2delta.spark.delta.transaction import Transaction, begin, log_entry

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@dataclass(frozen=True, slots=True)
class OneRow:
    """A table's row, and what it was read from.

    Attributes:
        version: the table's.
        files: what its log has of its files.
        values: by the columns' names.
    """

    version: int
    files: Sequence[Mapping[str, Any]]
    values: Mapping[str, Any]


def read_row(spark: SparkSession, table: TableName, schema: pa.Schema) -> OneRow | None:
    """Read the row of a table that has some columns."""
    transaction = begin(spark, table)
    columns = None if transaction is None else transaction.columns(schema)
    if transaction is None or columns is None:
        return None
    files = transaction.files()
    path = whole_file(transaction.folder, files[0]) if len(files) == 1 else None
    if path is None:
        return None
    rows = pq.ParquetFile(path).read()
    if rows.num_rows != 1:
        return None
    values = {}
    for column in columns:
        # A column that is younger than the file is not in it.
        there = column.physical in rows.column_names
        values[column.name] = rows[column.physical].cast(column.type, safe=False)[0].as_py() if there else None
    return OneRow(transaction.version, files, values)


def replace_row(
    spark: SparkSession, table: TableName, schema: pa.Schema, before: OneRow, values: Mapping[str, Any]
) -> OneRow | None:
    """Write a row in the place of another; None, and nothing is written, too, if that is the table's row no longer.

    Raises:
        Exception: Delta's, if another has committed at the same time.
    """
    transaction = begin(spark, table)
    if transaction is None or transaction.version != before.version:
        return None
    return _write(transaction, schema, values, before.files)


def create_row(spark: SparkSession, table: TableName, schema: pa.Schema, values: Mapping[str, Any]) -> OneRow | None:
    """Make the table, with the row.

    Raises:
        Exception: Delta's, if another has made it at the same time.
    """
    transaction = begin(spark, table, create=schema)
    return None if transaction is None else _write(transaction, schema, values, ())


def _write(
    transaction: Transaction, schema: pa.Schema, values: Mapping[str, Any], before: Sequence[Mapping[str, Any]]
) -> OneRow | None:
    columns = transaction.columns(schema)
    if columns is None:
        return None
    with DataFileWriter(transaction.folder, columns, written_by=pyspark.__version__) as writer:
        writer.write(pa.RecordBatch.from_pylist([dict(values)], schema))
        file = writer.close()
    assert file is not None
    version = transaction.commit([file], instead_of=before)
    assert version is not None
    return OneRow(version, [log_entry(file)], values)
