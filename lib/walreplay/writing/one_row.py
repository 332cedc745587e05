"""A table of one row, whose file Python reads and writes.

The new row replaces the one that was read, and only if the table still has that one.  So a commit that somebody else
has made in between is never overwritten.  What delta-rs does not read or write, statements with the condition do.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
import pyarrow.parquet as pq

from walreplay.delta import statements as delta
from walreplay.delta.data_files import DataFileWriter
from walreplay.delta.local import ConflictError, LeftToSpark, LocalTable, newest_version, sole_file
from walreplay.delta.opened import OpenedTable
from walreplay.delta.statements import TableDefinition
from walreplay.delta.target import opened_in
from walreplay.session import steps
from walreplay.session.folders import Folder
from walreplay.writing.by_statements import Condition, OneRow

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


_ATTEMPTS: Final = 5  # So often a row is read again that somebody else has changed in between


@dataclass(frozen=True, slots=True)
class _VersionRow:
    """The row of a table's version.

    Attributes:
        values: None for an empty table.
        table: open, as of this version or the one before; None if it has yet to be opened.
        is_ours: the version is this process's own commit, and others may have followed.
    """

    version: int
    values: Mapping[str, Any] | None
    table: LocalTable | None = None
    is_ours: bool = False


class FileRow(OneRow):
    """A table of one row that is read and changed by its file; where the driver does not reach that, by statements.

    Args:
        locate: returns the table's folder, if the driver reaches it by itself.
    """

    def __init__(self, spark: SparkSession, definition: TableDefinition, locate: Callable[[], Folder | None]) -> None:
        super().__init__(spark, definition)
        self._schema = definition.schema
        self._locate = locate
        self._newest: tuple[Folder, int] | None = None
        self._row: _VersionRow | None = None

    def exists(self) -> bool:
        """Return whether the table exists."""
        # A catalog may have another table of the name since it was asked last.
        folder = self._locate()
        self._newest = None if folder is None else (folder, newest_version(folder))  # for `read`, which follows
        return OpenedTable(self._spark, self._table).is_known if self._newest is None else self._newest[1] >= 0

    def read(self) -> Mapping[str, Any] | None:
        """Return the row of an existing table, by its columns' names; None if the table is empty."""
        newest, self._newest = self._newest, None  # used once: it may be old by the next time
        self._row = (None if newest is None else self._read_commit(*newest)) or self._read_newest()
        return super().read() if self._row is None else self._row.values

    def create(self, values: Mapping[str, Any], *, exists: bool) -> bool:
        """Create the table with its row, or insert the row into an empty table; return whether that was done."""
        table = None if exists else self._new()
        if table is None:
            # A catalog's table may have been made for it already.
            return super().create(values, exists=exists)
        self._write(table, values, ())
        return True

    def change(self, values: Mapping[str, Any], condition: Condition) -> bool:
        """Change some of the row's values; return whether the condition held."""
        current, self._row = self._row, None
        for _ in range(_ATTEMPTS):
            current = self._read_newest() if current is None else current
            old_values = None if current is None else current.values
            if current is None or old_values is None:  # Spark has to do it
                break
            if not condition.is_in(old_values):
                # Our own commit may be old by now, so the newest row is read before the condition is given up.
                if not current.is_ours:
                    return False
                current = None
                continue
            table = self._open(current)
            if table is None:
                current = None
                continue
            new_values = {**old_values, **values}
            try:
                version = self._write(table, new_values, table.files)
            except ConflictError:
                current = None
            else:
                self._row = _VersionRow(version, new_values, table, is_ours=True)
                return True
        return super().change(values, condition)

    def _open(self, current: _VersionRow) -> LocalTable | None:
        """Open a version to commit the next one; None if there is a newer one, or Spark has to do it."""
        if (table := current.table) is not None:
            return table if table.version == current.version else table.followed(current.version)
        folder = self._locate()
        table = None if folder is None else opened_in(folder, use_cache=False)
        return table if table is not None and table.version == current.version and table.obstacle is None else None

    def _read_commit(self, folder: Folder, version: int) -> _VersionRow | None:
        """Read the row by the newest commit alone; None if that does not say where it is."""
        name = sole_file(folder, version)
        if name is None:
            return None
        try:
            values = _row_in(folder, name, {column.name: (column.name, column.type) for column in self._schema})
        except FileNotFoundError:
            return None
        return None if values is None else _VersionRow(version, values)

    def _read_newest(self) -> _VersionRow | None:
        """Read the row of the newest version; None if Spark has to."""
        folder = self._locate()
        table = None if folder is None else opened_in(folder, use_cache=False)
        if table is None or table.version < 0 or table.obstacle is not None:
            return None
        columns = table.columns(self._schema)
        if columns is None or len(table.files) > 1:
            return None
        if not table.files:
            return _VersionRow(table.version, None, table)
        name = table.files[0].name
        names_in_file = {column.name: (column.physical, column.type) for column in columns}
        values = None if name is None else _row_in(table.folder, name, names_in_file)
        return None if values is None else _VersionRow(table.version, values, table)

    def _new(self) -> LocalTable | None:
        """Begin the table that is created with its row; None if statements have to do it."""
        if self._table.path is not None:
            folder = self._locate()
            with suppress(LeftToSpark):
                return None if folder is None else LocalTable.new(folder, self._schema, self._definition.properties)
            return None
        delta.create_table(self._spark, self._definition)
        steps.reached(f"table made: {self._table.text}")
        folder = self._locate()
        table = None if folder is None else opened_in(folder, use_cache=False)
        # Another run may have made it, and brought its row; if it does so now, the commit fails.
        is_fresh = table is not None and table.version == 0 and table.obstacle is None
        return table if is_fresh else None

    def _write(self, table: LocalTable, values: Mapping[str, Any], before: Any) -> int:
        columns = table.columns(self._schema)
        assert columns is not None
        with DataFileWriter(table.folder, columns) as writer:
            writer.write(pa.RecordBatch.from_pylist([dict(values)], self._schema))
            file = writer.close()
        assert file is not None
        version = table.commit([file], instead_of=before)  # a conflict if the table has another version by now
        assert version is not None
        return version


def _row_in(folder: Folder, name: str, columns: Mapping[str, tuple[str, pa.DataType]]) -> dict[str, Any] | None:
    """Read the only row of a file, None for any other number; ``columns``: by name, the file's name and the type."""
    rows = pq.ParquetFile(folder.open(name)).read()
    if rows.num_rows != 1:
        return None
    # A column that was added after the file was written is not in it.
    return {
        column: rows[physical].cast(kind, safe=False)[0].as_py() if physical in rows.column_names else None
        for column, (physical, kind) in columns.items()
    }
