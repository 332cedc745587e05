"""An append whose files Python writes: folded rows and staged records on executors, a few rows on the driver."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyspark

from walreplay.delta.local import LocalTable
from walreplay.sink.data_files import DataFile, DataFileWriter, FileColumn
from walreplay.spark.delta import statements as delta
from walreplay.spark.delta.sql_types import sql_schema
from walreplay.spark.staging.base import Rows
from walreplay.spark.workers.fold import FoldTask
from walreplay.spark.workers.rows import Work
from walreplay.spark.workers.write import (
    FILES,
    FilesWritten,
    FileTask,
    write_batches,
    write_folded,
    write_records,
)
from walreplay.spark.writing.base import Append

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


class FileAppend(Append):
    """An append that has begun: what is written becomes part of the table by `commit`."""

    def __init__(self, table: LocalTable, columns: tuple[FileColumn, ...]) -> None:
        self._table = table
        self._columns = columns
        self._files: list[DataFile] = []

    @property
    def rows(self) -> int:
        """Rows written so far."""
        return sum(file.rows for file in self._files)

    def write_rows(self, rows: Sequence[Sequence[Any]], schema: pa.Schema) -> None:
        """Write a few rows that the driver has."""
        columns = zip(*rows, strict=True)
        arrays = [_array(values, field.type) for values, field in zip(columns, schema, strict=True)]
        with DataFileWriter(self._table.folder, self._columns, written_by=pyspark.__version__) as writer:
            writer.write(pa.RecordBatch.from_arrays(arrays, schema=schema))
            file = writer.close()
        if file is not None:
            self._files.append(file)

    def folding(self, task: FoldTask, sources: Sequence[str]) -> Work:
        """Give the function that folds a share of a table's events and writes the rows; `add` takes its result.

        Args:
            sources: for each of the table's columns, the folded rows' column that it is filled from.
        """
        return partial(write_folded, task=task, files=self._task(sources))

    def add(self, written: FilesWritten) -> None:
        """Add files that executors have written."""
        self._files += written.files

    def write_staged(self, staged: Rows, schema: pa.Schema, constants: Mapping[str, pa.Array]) -> None:
        """Have executors write staged records."""
        sources = [column.name for column in self._columns]
        self._write(staged, partial(write_records, constants=dict(constants), files=self._task(sources)))

    def write_frame(self, frame: DataFrame) -> None:
        """Have executors write the rows of a query, whose columns are the table's."""
        sources = [column.name for column in self._columns]
        self._write(frame, partial(write_batches, files=self._task(sources)))

    def commit(self, commit: delta.CommitId) -> int | None:
        """Commit what was written."""
        return self._table.commit(self._files, commit)

    def discard(self) -> None:
        """Delete the written files, which will not become part of the table."""
        for file in self._files:
            self._table.folder.delete(file.name)

    def _task(self, sources: Sequence[str]) -> FileTask:
        return FileTask(self._table.folder, self._columns, tuple(sources), pyspark.__version__)

    def _write(self, rows: Rows, work: Work) -> None:
        self.add(FilesWritten.of(rows.mapInArrow(work, sql_schema(FILES)).collect()))


def _array(values: Sequence[Any], kind: pa.DataType) -> pa.Array:
    """Make a column of values whose structs are tuples."""
    return pa.array([_named(value, kind) for value in values], kind)


def _named(value: Any, kind: pa.DataType) -> Any:
    if value is None:
        return None
    if pa.types.is_list(kind):
        return [_named(item, kind.value_type) for item in value]
    if pa.types.is_struct(kind):
        return {field.name: _named(item, field.type) for field, item in zip(kind, value, strict=True)}
    return value
