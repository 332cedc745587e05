"""A table of one row, whose file Python reads and writes.

The new row replaces the one that was read, and only if the table still has that one.  So a commit that somebody else
has made in between is never overwritten.  If the row cannot be replaced so, a statement with the condition is run.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pyspark

from walreplay.sink.data_files import DataFileWriter
from walreplay.sink.folders import Folder
from walreplay.sink.table_log import LoggedVersion, newest_version, whole_file
from walreplay.spark.delta import statements as delta
from walreplay.spark.delta.internals import Internals
from walreplay.spark.delta.target import TableName
from walreplay.spark.delta.transaction import Transaction, begin, begin_at, columns_in, log_entry, obstacle_in
from walreplay.spark.writing.base import Condition
from walreplay.spark.writing.row_statements import StatementRow

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@dataclass(frozen=True, slots=True)
class _Known:
    """A table's row, and what it was read from.

    Attributes:
        version: the table's; ``made_by`` is the id of its commit.
        files: the table's files, as its log's entries.
        values: the row's, by the columns' names.
    """

    version: int
    made_by: str | None
    files: Sequence[Mapping[str, Any]]
    values: Mapping[str, Any]


class FileRow(StatementRow):
    """A table of one row that is read and changed by its file.

    Args:
        folder: the table's, which the driver reaches by itself.
    """

    def __init__(
        self,
        spark: SparkSession,
        table: TableName,
        schema: pa.Schema,
        folder: Folder,
        internals: Internals,
        properties: Mapping[str, str] = delta.NO_PROPERTIES,
    ) -> None:
        super().__init__(spark, table, schema, properties)
        self._folder = folder
        self._internals = internals
        self._seen: int | None = None
        self._known: _Known | None = None

    def exists(self) -> bool:
        """Say whether the table exists."""
        self._seen = newest_version(self._folder)
        return self._seen >= 0

    def read(self) -> Mapping[str, Any] | None:
        """Give the row of an existing table, by its columns' names; None if the table is empty."""
        self._known = self._read()
        return super().read() if self._known is None else self._known.values

    def create(self, values: Mapping[str, Any], *, exists: bool) -> bool:
        """Create the table with its row, or insert the row into an empty table; say whether that was done."""
        transaction = None if exists else self._begin(self._schema)
        self._known = None if transaction is None else self._write(transaction, values, ())
        return self._known is not None or super().create(values, exists=exists)

    def change(self, values: Mapping[str, Any], condition: Condition) -> bool:
        """Change some of the row's values; say whether the condition held."""
        known = self._known
        if known is not None and condition.is_in(known.values):
            # If the write fails, it is not known which row the table has.
            self._known = None
            try:
                self._known = self._replace(known, {**known.values, **values})
            except Exception as error:
                # Somebody has committed meanwhile; a statement's condition says whether the row still is the same.
                if not delta.is_conflict(error):
                    raise
            if self._known is not None:
                return True
        return super().change(values, condition)

    def _read(self) -> _Known | None:
        """Read the row by the log alone: to ask Delta takes several times as long, and as many requests of a store."""
        version = newest_version(self._folder) if self._seen is None else self._seen
        self._seen = None
        logged = LoggedVersion(self._folder, version)
        return self._by_commit(logged, version) or self._by_log(logged, version)

    def _by_commit(self, logged: LoggedVersion, version: int) -> _Known | None:
        """Read the row by the commit that has written it, if the file says itself that it has all columns."""
        file = logged.replaced_by()
        name = None if file is None else whole_file(file)
        if file is None or name is None:
            return None
        rows = pq.ParquetFile(self._folder.open(name)).read()
        if rows.num_rows != 1 or rows.column_names != self._schema.names:
            return None
        values = {field.name: rows[field.name].cast(field.type, safe=False)[0].as_py() for field in self._schema}
        return _Known(version, logged.made_by, [file], values)

    def _by_log(self, logged: LoggedVersion, version: int) -> _Known | None:
        """Read the row of a table in which columns may be mapped, or were added."""
        metadata, files = logged.metadata(), logged.files()
        if metadata is None or files is None or len(files) != 1 or obstacle_in(metadata) is not None:
            return None
        columns, name = columns_in(metadata, self._schema), whole_file(files[0])
        if columns is None or name is None:
            return None
        rows = pq.ParquetFile(self._folder.open(name)).read()
        if rows.num_rows != 1:
            return None
        values = {}
        for column in columns:
            # A column that was added after the file was written is not in it.
            there = column.physical in rows.column_names
            values[column.name] = rows[column.physical].cast(column.type, safe=False)[0].as_py() if there else None
        return _Known(version, logged.made_by, files, values)

    def _begin(self, create: pa.Schema | None) -> Transaction | None:
        """Begin a transaction, which creates the table if columns are given; None if statements have to be used."""
        own = self._table, self._folder, self._internals
        return begin(self._spark, *own, create=create, properties=self._properties)

    def _replace(self, known: _Known, values: Mapping[str, Any]) -> _Known | None:
        """Replace a row; None, and nothing is written, if the table no longer has it."""
        at = known.version, known.made_by
        transaction = begin_at(self._spark, self._table, self._folder, self._internals, *at)
        transaction = self._begin(None) if transaction is None else transaction
        if transaction is None or transaction.version != known.version:
            return None
        return self._write(transaction, values, known.files)

    def _write(
        self, transaction: Transaction, values: Mapping[str, Any], before: Sequence[Mapping[str, Any]]
    ) -> _Known | None:
        columns = transaction.columns(self._schema)
        if columns is None:
            return None
        with DataFileWriter(transaction.folder, columns, written_by=pyspark.__version__) as writer:
            writer.write(pa.RecordBatch.from_pylist([dict(values)], self._schema))
            file = writer.close()
        assert file is not None
        version = transaction.commit([file], instead_of=before)
        assert version is not None
        return _Known(version, transaction.id, [log_entry(file)], values)
