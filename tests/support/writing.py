"""Writers of both ways for the tests."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
import pytest

from walreplay.delta import statements as delta
from walreplay.delta.local import LeftToSpark, LocalTable
from walreplay.delta.target import TableName, Target
from walreplay.report import WriterKind
from walreplay.spark.reached import Reached
from walreplay.table.table_run import Merge
from walreplay.writing import by_files
from walreplay.writing.by_files import FileAppend, FileWriter, choose_writer
from walreplay.writing.by_statements import TableWriter

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

WAYS: Final[tuple[WriterKind, ...]] = ("files", "statements")


@dataclass(frozen=True)
class N:
    """The condition that a row's column ``n`` has a value."""

    value: int

    def is_in(self, row: Mapping[str, Any]) -> bool:
        return bool(row["n"] == self.value)

    def sql(self, row: str = "") -> str:
        return f"{row}n = {self.value}"


def writer_of(spark: SparkSession, target: Path, way: WriterKind) -> TableWriter:
    """Return the writer of a folder's tables that goes one way."""
    return file_writer(spark, target) if way == "files" else TableWriter(Reached(spark))


def file_writer(spark: SparkSession, target: Path) -> FileWriter:
    """Return the writer of a folder's tables that writes files."""
    writer = choose_writer(spark, Target.parse(str(target)))
    assert isinstance(writer, FileWriter)
    return writer


def opened(spark: SparkSession, table: TableName) -> LocalTable | None:
    """Open a table; None where statements have to write to it."""
    with suppress(LeftToSpark):
        return file_writer(spark, Path(table.path or "").parent).opened(spark, table)
    return None


def only_merge(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rewrite no table: all are merged."""

    def refuse(_: Merge) -> None:
        raise LeftToSpark("it is to be merged")

    monkeypatch.setattr(by_files, "check_rewritable", refuse)


def begin_append(
    spark: SparkSession,
    table: TableName,
    schema: pa.Schema,
    *,
    create: bool,
    properties: Mapping[str, str] = delta.NO_PROPERTIES,
) -> FileAppend | None:
    """Begin to append files to a table; None where statements have to write to it."""
    writer = file_writer(spark, Path(table.path or "").parent)
    append = writer.begin_append(spark, delta.TableDefinition(table, schema, properties), create=create)
    return append if isinstance(append, FileAppend) else None
