"""The writer that uses Spark's own statements, which work everywhere.

`StatementRow` is a table of one row that statements read and change; `StatementWriter` writes all other tables.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone
from functools import partial, reduce
from typing import TYPE_CHECKING, Any, ClassVar, Final

import pyarrow as pa

from walreplay.delta import statements as delta
from walreplay.delta.statements import sql_schema
from walreplay.delta.target import TableName, Target, quote
from walreplay.fold.events import Mode
from walreplay.report import Way
from walreplay.session.isolation import settings
from walreplay.spark.staged_rows import FileStaging, Reached, ReachedStaging, TableStaging
from walreplay.spark.staging import Rows, Staging
from walreplay.spark.workers.fold import fold_batches
from walreplay.spark.workers.write import FilesWritten, unpack_with
from walreplay.table.plan import Epoch
from walreplay.table.table_run import TableRun
from walreplay.writing.history import merge_versions
from walreplay.writing.merge import Written, append_rows, merge_keyed
from walreplay.writing.multiset import merge_multiset
from walreplay.writing.writer import Append, Condition, Fold, OneRow, TableWriter

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
        """Return whether the table exists."""
        return delta.exists(self._spark, self._table)

    def read(self) -> Mapping[str, Any] | None:
        """Return the row of an existing table, by its columns' names; None if the table is empty."""
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
        """Create the table with its row, or insert the row into an empty table; return whether that was done."""
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
        """Change some of the row's values; return whether the condition held."""
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
        """Run a statement, and return whether it found the row."""
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


STAGING: Final = "staging"
"""The ledger's table or folder in which events are staged."""


class StatementWriter(TableWriter):
    """Write by Spark's statements.

    Args:
        reached: the tables' places, if driver and workers may reach them: then events are staged in files.
        staged: the user's own folder for that, if the driver may reach it; where it is reached, it comes first.
    """

    way: ClassVar[Way] = "statements"

    def __init__(
        self, warnings: Sequence[str] = (), reached: Reached | None = None, staged: ReachedStaging | None = None
    ) -> None:
        super().__init__(warnings)
        self._reached = reached
        self._staged = staged

    def staging(self, target: Target, own: str, before: str | None, turn: int) -> Staging:
        """Return a run's place for staged events."""
        folder = None if self._staged is None else self._staged.folder(own)
        if folder is None and self._reached is not None:
            folder = self._reached.staging(target.ledger(STAGING), own)
        if folder is not None:
            return FileStaging(folder, own, before)
        return TableStaging(target.ledger(STAGING if turn == 0 else f"{STAGING}_{turn}"))

    def one_row(
        self,
        spark: SparkSession,
        table: TableName,
        schema: pa.Schema,
        *,
        properties: Mapping[str, str] = delta.NO_PROPERTIES,
    ) -> OneRow:
        """Return a table of one row, which need not exist yet."""
        return StatementRow(spark, table, schema, properties)

    def append(
        self,
        spark: SparkSession,
        table: TableName,
        schema: pa.Schema,
        *,
        create: bool,
        properties: Mapping[str, str] = delta.NO_PROPERTIES,
    ) -> Append:
        """Begin to append to a table."""
        return StatementAppend(spark, table, schema, create=create, properties=properties)

    def fold(
        self,
        spark: SparkSession,
        staging: Staging,
        run: TableRun,
        number: int,
        *,
        exists: bool,
        overwrite: bool,
        stays: str,
    ) -> Fold:
        """Begin to bring an epoch's rows to their table."""
        return StatementFold(staging, run, number, exists=exists, overwrite=overwrite)


class StatementAppend(Append):
    """An append of rows that are gathered as queries, and written by the one statement that commits them."""

    def __init__(
        self,
        spark: SparkSession,
        table: TableName,
        schema: pa.Schema,
        *,
        create: bool,
        properties: Mapping[str, str],
    ) -> None:
        self._spark = spark
        self._table = table
        self._schema = schema
        self._create = create
        self._properties = properties
        self._frames: list[DataFrame] = []

    def write_rows(self, rows: Sequence[Sequence[Any]], schema: pa.Schema) -> None:
        """Write a few rows that the driver has."""
        self.write_frame(self._spark.createDataFrame(list(rows), sql_schema(schema)).coalesce(1))

    def write_staged(self, staged: Rows, schema: pa.Schema, constants: Mapping[str, pa.Array]) -> None:
        """Have executors write staged records."""
        more = pa.schema([*schema, *(pa.field(name, value.type) for name, value in constants.items())])
        self.write_frame(staged.mapInArrow(partial(unpack_with, constants=dict(constants)), sql_schema(more)))

    def write_frame(self, frame: DataFrame) -> None:
        """Have executors write the rows of a query, whose columns are the table's."""
        self._frames.append(frame.select(*self._schema.names))

    def commit(self, commit: delta.CommitId, *, follows: bool = True) -> int | None:
        """Commit what was written; to Delta two commits of one application at a time are in conflict anyway."""
        frames = self._frames or [self._spark.createDataFrame([], sql_schema(self._schema))]
        frame = reduce(lambda one, other: one.unionByName(other), frames)
        delta.forget_version(self._spark)
        delta.write(frame, self._table, "append", commit, create=self._create, properties=self._properties)
        return delta.last_version(self._spark)


@dataclass(frozen=True, slots=True)
class StatementFold(Fold):
    """The fold of an epoch within the statement that commits it.

    Attributes:
        number: the epoch's.
        exists: the table exists.
        overwrite: the epoch's rows replace the table's.
        reason: see `Fold`.
    """

    staging: Staging
    table: TableRun
    number: int
    exists: bool
    overwrite: bool
    reason: str = ""

    def commit(
        self, spark: SparkSession, written: FilesWritten | None, ready: Callable[[], Mapping[str, str]]
    ) -> Written:
        """Make the table's commit."""
        epoch, merge = self.table.plan.epochs[self.number], self.table.merge(self.number)
        with settings(spark, ready()):
            fresh = not self.exists or self.overwrite or merge.appends
            has_rows = epoch.rows or merge.empties is not None
            rows = folded_rows(spark, self.staging, self.table, epoch, fresh=fresh) if has_rows else None
            if not self.exists or self.overwrite or merge.only_adds:
                how = "overwrite" if self.overwrite else "append"
                return append_rows(spark, rows, merge, how, create=not self.exists)
            assert rows is not None
            if merge.metadata.history is not None:
                return merge_versions(spark, rows, merge)
            return (merge_multiset if merge.identity.mode is Mode.MULTISET else merge_keyed)(spark, rows, merge)


def folded_rows(spark: SparkSession, staging: Staging, run: TableRun, epoch: Epoch, *, fresh: bool) -> DataFrame:
    """Return the rows to merge; see `walreplay.fold.net_changes.merge_schema`.

    Args:
        fresh: see `TableRun.fold_task`.
    """
    task = run.fold_task(epoch, fresh=fresh)
    return run.events(spark, staging, epoch, task).mapInArrow(partial(fold_batches, task=task), sql_schema(task.schema))
