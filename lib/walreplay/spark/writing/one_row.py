"""A table of one row, whose file Python reads and writes.

The new row replaces the one that was read, and only if the table still has that one.  So a commit that somebody else
has made in between is never overwritten.  If the row cannot be replaced so, a statement with the condition is run.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
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
from walreplay.spark.session import steps
from walreplay.spark.staging.reached import Located
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
    """A table of one row that is read and changed by its file; where the driver does not reach that, by statements.

    Args:
        locate: gives the table's place, as far as the driver reaches it by itself.
    """

    def __init__(
        self,
        spark: SparkSession,
        table: TableName,
        schema: pa.Schema,
        locate: Callable[[], Located | None],
        internals: Internals,
        properties: Mapping[str, str] = delta.NO_PROPERTIES,
    ) -> None:
        super().__init__(spark, table, schema, properties)
        self._locate = locate
        self._internals = internals
        self._located: Located | None = None
        self._seen: int | None = None
        self._known: _Known | None = None

    def exists(self) -> bool:
        """Say whether the table exists."""
        # A catalog may have another table of the name since it was asked last.
        self._located = self._locate()
        if self._located is None:
            return super().exists()
        self._seen = -1 if self._located.folder is None else newest_version(self._located.folder)
        return self._seen >= 0

    def read(self) -> Mapping[str, Any] | None:
        """Give the row of an existing table, by its columns' names; None if the table is empty."""
        folder = self._folder
        self._known = None if folder is None else self._read(folder)
        return super().read() if self._known is None else self._known.values

    def create(self, values: Mapping[str, Any], *, exists: bool) -> bool:
        """Create the table with its row, or insert the row into an empty table; say whether that was done."""
        transaction = None if exists else self._begin_new()
        self._known = None if transaction is None else self._write(transaction, values, ())
        if self._known is not None:
            return True
        # A catalog's table may have been made for it already.
        return super().create(values, exists=exists)

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

    @property
    def _folder(self) -> Folder | None:
        """The table's, where it was found last."""
        if self._located is None:
            self._located = self._locate()
        return None if self._located is None else self._located.folder

    def _read(self, folder: Folder) -> _Known | None:
        """Read the row by the log alone: to ask Delta takes several times as long, and as many requests of a store."""
        version = newest_version(folder) if self._seen is None else self._seen
        self._seen = None
        logged = LoggedVersion(folder, version)
        return self._by_commit(folder, logged, version) or self._by_log(folder, logged, version)

    def _by_commit(self, folder: Folder, logged: LoggedVersion, version: int) -> _Known | None:
        """Read the row by the commit that has written it, if the file says itself that it has all columns."""
        file = logged.replaced_by()
        name = None if file is None else whole_file(file)
        if file is None or name is None:
            return None
        rows = pq.ParquetFile(folder.open(name)).read()
        if rows.num_rows != 1 or rows.column_names != self._schema.names:
            return None
        values = {field.name: rows[field.name].cast(field.type, safe=False)[0].as_py() for field in self._schema}
        return _Known(version, logged.made_by, [file], values)

    def _by_log(self, folder: Folder, logged: LoggedVersion, version: int) -> _Known | None:
        """Read the row of a table in which columns may be mapped, or were added."""
        metadata, files = logged.metadata(), logged.files()
        if metadata is None or files is None or len(files) != 1 or obstacle_in(metadata) is not None:
            return None
        columns, name = columns_in(metadata, self._schema), whole_file(files[0])
        if columns is None or name is None:
            return None
        rows = pq.ParquetFile(folder.open(name)).read()
        if rows.num_rows != 1:
            return None
        values = {}
        for column in columns:
            # A column that was added after the file was written is not in it.
            there = column.physical in rows.column_names
            values[column.name] = rows[column.physical].cast(column.type, safe=False)[0].as_py() if there else None
        return _Known(version, logged.made_by, files, values)

    def _begin_new(self) -> Transaction | None:
        """Begin the transaction that brings a new table its row; None if statements have to do it."""
        if self._table.path is not None:
            return self._begin(self._schema)
        if self._locate() is None:
            return None
        delta.create_table(self._spark, self._table, self._schema, self._properties)
        steps.reached(f"table made: {self._table.text}")
        self._located = self._locate()
        transaction = self._begin(None)
        # Another run may have made it, and brought its row; if it does so now, the commit fails.
        return transaction if transaction is not None and transaction.version == 0 else None

    def _begin(self, create: pa.Schema | None) -> Transaction | None:
        """Begin a transaction, which creates the table if columns are given; None if statements have to be used."""
        folder = self._folder
        if self._located is None or folder is None:
            return None
        own = self._located.place, folder, self._internals
        return begin(self._spark, *own, create=create, properties=self._properties)

    def _replace(self, known: _Known, values: Mapping[str, Any]) -> _Known | None:
        """Replace a row; None, and nothing is written, if the table no longer has it."""
        at = known.version, known.made_by
        folder = self._folder
        if self._located is None or folder is None:
            return None
        transaction = begin_at(self._spark, self._located.place, folder, self._internals, *at)
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
