"""A table of one row, whose file Python reads and writes.

The new row replaces the one that was read, and only if the table still has that one.  So a commit that somebody else
has made in between is never overwritten.  What delta-rs does not read or write, statements with the condition do.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
import pyarrow.parquet as pq
import pyspark

from walreplay.delta.local import ConflictError, LocalTable
from walreplay.sink.data_files import DataFileWriter
from walreplay.sink.folders import Folder
from walreplay.spark.delta import statements as delta
from walreplay.spark.delta.located import opened_in
from walreplay.spark.delta.target import TableName
from walreplay.spark.session import steps
from walreplay.spark.writing.base import Condition
from walreplay.spark.writing.row_statements import StatementRow

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_ATTEMPTS: Final = 5
"""So often a row is read again that somebody else has changed in between."""


@dataclass(frozen=True, slots=True)
class _Known:
    """A table with its row; None for an empty table."""

    table: LocalTable
    values: Mapping[str, Any] | None


class FileRow(StatementRow):
    """A table of one row that is read and changed by its file; where the driver does not reach that, by statements.

    Args:
        locate: returns the table's folder, if the driver reaches it by itself.
    """

    def __init__(
        self,
        spark: SparkSession,
        table: TableName,
        schema: pa.Schema,
        locate: Callable[[], Folder | None],
        properties: Mapping[str, str] = delta.NO_PROPERTIES,
    ) -> None:
        super().__init__(spark, table, schema, properties)
        self._locate = locate
        self._opened: LocalTable | None = None
        self._known: _Known | None = None

    def exists(self) -> bool:
        """Return whether the table exists."""
        # A catalog may have another table of the name since it was asked last.
        folder = self._locate()
        self._opened = None if folder is None else opened_in(folder)
        return delta.is_known(self._spark, self._table) if self._opened is None else self._opened.version >= 0

    def read(self) -> Mapping[str, Any] | None:
        """Return the row of an existing table, by its columns' names; None if the table is empty."""
        self._known = self._look()
        return super().read() if self._known is None else self._known.values

    def create(self, values: Mapping[str, Any], *, exists: bool) -> bool:
        """Create the table with its row, or insert the row into an empty table; return whether that was done."""
        table, self._opened = None if exists else self._new(), None
        if table is None:
            # A catalog's table may have been made for it already.
            return super().create(values, exists=exists)
        self._write(table, values, ())
        return True

    def change(self, values: Mapping[str, Any], condition: Condition) -> bool:
        """Change some of the row's values; return whether the condition held."""
        known, self._known = self._known, None
        for _ in range(_ATTEMPTS):
            known = self._look() if known is None else known
            if known is None or known.values is None:
                break
            if not condition.is_in(known.values):
                return False
            try:
                self._write(known.table, {**known.values, **values}, known.table.files)
            except ConflictError:
                known = None
            else:
                return True
        return super().change(values, condition)

    def _look(self) -> _Known | None:
        """Read the row; None if Spark has to."""
        table, self._opened = self._opened, None
        if table is None:
            folder = self._locate()
            table = None if folder is None else opened_in(folder)
        if table is None or table.version < 0 or table.obstacle is not None:
            return None
        columns = table.columns(self._schema)
        if columns is None or len(table.files) > 1:
            return None
        if not table.files:
            return _Known(table, None)
        name = table.files[0].name
        rows = None if name is None else pq.ParquetFile(table.folder.open(name)).read()
        if rows is None or rows.num_rows != 1:
            return None
        values = {}
        for column in columns:
            # A column that was added after the file was written is not in it.
            there = column.physical in rows.column_names
            values[column.name] = rows[column.physical].cast(column.type, safe=False)[0].as_py() if there else None
        return _Known(table, values)

    def _new(self) -> LocalTable | None:
        """Begin the table that is created with its row; None if statements have to do it."""
        if self._table.path is not None:
            folder = self._locate()
            begun = None if folder is None else LocalTable.new(folder, self._schema, self._properties)
            return begun if isinstance(begun, LocalTable) else None
        delta.create_table(self._spark, self._table, self._schema, self._properties)
        steps.reached(f"table made: {self._table.text}")
        folder = self._locate()
        table = None if folder is None else opened_in(folder)
        # Another run may have made it, and brought its row; if it does so now, the commit fails.
        is_fresh = table is not None and table.version == 0 and table.obstacle is None
        return table if is_fresh else None

    def _write(self, table: LocalTable, values: Mapping[str, Any], before: Any) -> None:
        columns = table.columns(self._schema)
        assert columns is not None
        with DataFileWriter(table.folder, columns, written_by=pyspark.__version__) as writer:
            writer.write(pa.RecordBatch.from_pylist([dict(values)], self._schema))
            file = writer.close()
        assert file is not None
        table.commit([file], instead_of=before)
