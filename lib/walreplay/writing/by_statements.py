"""The one interface through which rows reach Delta tables, by Spark's own statements, which work everywhere.

`OneRow` is a table of one row; `TableWriter` writes all other tables.  Where files can be written,
`walreplay.writing.by_files` overrides both; it chooses the writer, once for a target.  All other modules are handed the
writer, and do not ask which one it is.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta, timezone
from functools import partial, reduce
from typing import TYPE_CHECKING, Any, ClassVar, Final

import pyarrow as pa

from walreplay.delta import statements as delta
from walreplay.delta.statements import sql_schema
from walreplay.delta.target import TableName, Target, quote
from walreplay.fold.events import Mode
from walreplay.names import RowKind
from walreplay.report import WriterKind
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
from walreplay.writing.writer import Append, Condition, Fold, Ready

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


_SOURCE: Final = "walreplay_row"

_MAX_LITERAL_CHARS: Final = 1 << 17
"""A row with more characters is not written as literals, because a statement's text must not grow without limit."""

_UNIX_EPOCH: Final = datetime(1970, 1, 1, tzinfo=timezone.utc)


class OneRow:
    """A table of one row, which is changed on a condition: if two runs try at the same time, one succeeds."""

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
        # Spark returns times without a zone, in this machine's local time.
        return {
            name: value.astimezone(timezone.utc) if isinstance(value, datetime) else value
            for name, value in row.asDict().items()
        }

    def create(self, values: Mapping[str, Any], *, exists: bool) -> bool:
        """Create the table with its row, or insert the row into an empty table; return whether that was done.

        Raises:
            Exception: Delta's, if somebody else has created it at the same time.
        """
        frame = self._frame(values)
        if not exists and self._table.path is not None:
            # Mode `error`: if two runs create the table at once, one of them fails.
            delta.write(frame, self._table, "error", create=delta.NewTable(self._properties))
            return True
        if not exists:
            # A table in a catalog is created empty first.
            delta.write(frame.limit(0), self._table, "append", create=delta.NewTable(self._properties))
        frame.createOrReplaceTempView(_SOURCE)
        return self._changed(
            f"MERGE INTO {self._table.sql} AS t USING {_SOURCE} AS s ON true WHEN NOT MATCHED THEN INSERT *"
        )

    def change(self, values: Mapping[str, Any], condition: Condition) -> bool:
        """Change some of the row's values; return whether the condition held.

        Raises:
            Exception: Delta's, if somebody else has committed at the same time.
        """
        if sum(len(value) for value in values.values() if isinstance(value, str)) <= _MAX_LITERAL_CHARS:
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
        return bool(counts[0])  # num_affected_rows, the first column of a result of UPDATE or MERGE

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


STAGING: Final = "staging"  # The ledger's table or folder in which events are staged


class TableWriter:
    """How rows reach the tables of one target: by Spark's statements.

    Each call is given a session, because a session's settings mark a commit as the run's.

    Args:
        reached: the tables' places, if driver and workers may reach them: then events are staged in files.
        staged: the user's own folder for that, if the driver may reach it; where it is reached, it comes first.

    Attributes:
        kind: its name in reports.
        shares_folds: several tables can be folded in one job before each gets its commit (`Fold.shared`).
    """

    kind: ClassVar[WriterKind] = "statements"
    shares_folds: ClassVar[bool] = False

    def __init__(self, reached: Reached | None = None, staged: ReachedStaging | None = None) -> None:
        self._reached = reached
        self._staged = staged

    def staging(self, target: Target, run_id: str, previous_run_id: str | None, turn: int) -> Staging:
        """Return the place where a run stages its events; if it has lost the lock, it must leave the place alone.

        Args:
            run_id: the id of the run.
            previous_run_id: the id of the run from which it has taken over; None if there is none.
            turn: the number of the run's place, if places have numbers instead of ids.
        """
        folder = None if self._staged is None else self._staged.folder(run_id)
        if folder is None and self._reached is not None:
            folder = self._reached.staging(target.ledger(STAGING), run_id)
        if folder is not None:
            return FileStaging(folder, run_id, previous_run_id)
        # A run that has lost the lock may still write to the last turn's table.
        return TableStaging(target.ledger(STAGING if turn == 0 else f"{STAGING}_{turn}"))

    def one_row(
        self,
        spark: SparkSession,
        table: TableName,
        schema: pa.Schema,
        properties: Mapping[str, str] = delta.NO_PROPERTIES,
    ) -> OneRow:
        """Return a table of one row, which need not exist yet.

        Args:
            properties: what it is created with.
        """
        return OneRow(spark, table, schema, properties)

    def begin_append(
        self,
        spark: SparkSession,
        table: TableName,
        schema: pa.Schema,
        *,
        create: bool,
        properties: Mapping[str, str] = delta.NO_PROPERTIES,
    ) -> Append:
        """Begin to append to a table.

        Args:
            schema: the columns that are written.
            create: the table does not exist yet.
        """
        return StatementAppend(spark, table, schema, create, properties)

    def fold(
        self,
        spark: SparkSession,
        staging: Staging,
        run: TableRun,
        epoch_number: int,
        *,
        exists: bool,
        overwrite: bool,
        merge_reason: str,
    ) -> Fold:
        """Begin to bring an epoch's rows to their table.

        Args:
            epoch_number: if the epoch has no rows, the table is new, overwritten or only appended to.
            exists: the table exists.
            overwrite: the epoch's rows replace the table's.
            merge_reason: why the table must not be rewritten even if it is small; empty if it may be.
        """
        return StatementFold(staging, run, epoch_number, exists=exists, overwrite=overwrite)


@dataclass
class StatementAppend(Append):
    """An append of rows that are gathered as queries, and written by the one statement that commits them."""

    spark: SparkSession
    table: TableName
    schema: pa.Schema
    create: bool
    properties: Mapping[str, str]
    _frames: list[DataFrame] = field(default_factory=list)

    def write_rows(self, rows: Sequence[Sequence[Any]]) -> None:
        """Write a few rows that the driver has."""
        self.write_frame(self.spark.createDataFrame(list(rows), sql_schema(self.schema)).coalesce(1))

    def write_staged(self, staged: Rows, schema: pa.Schema, constants: Mapping[str, pa.Array]) -> None:
        """Have executors write staged records."""
        all_columns = pa.schema([*schema, *(pa.field(name, value.type) for name, value in constants.items())])
        self.write_frame(staged.mapInArrow(partial(unpack_with, constants=dict(constants)), sql_schema(all_columns)))

    def write_frame(self, frame: DataFrame) -> None:
        """Have executors write the rows of a query, whose columns are the table's."""
        self._frames.append(frame.select(*self.schema.names))

    def commit(self, commit: delta.CommitId, *, follows: bool = True) -> int | None:
        """Commit what was written; to Delta two commits of one application at a time are in conflict anyway."""
        # Without rows, too, there is a commit: its number shows that it was made.
        frames = self._frames or [self.spark.createDataFrame([], sql_schema(self.schema))]
        frame = reduce(lambda left, right: left.unionByName(right), frames)
        delta.forget_version(self.spark)  # Delta leaves the last version there if it skips the commit
        new = delta.NewTable(self.properties) if self.create else None
        delta.write(frame, self.table, "append", commit, create=new)
        return delta.last_version(self.spark)


@dataclass(frozen=True, slots=True)
class StatementFold(Fold):
    """The fold of an epoch within the statement that commits it.

    Attributes:
        exists: the table exists.
        overwrite: the epoch's rows replace the table's.
        reason: see `Fold`.
    """

    staging: Staging
    table: TableRun
    epoch_number: int
    exists: bool
    overwrite: bool
    reason: str = ""

    def commit(self, spark: SparkSession, written: FilesWritten | None, ready: Ready) -> Written:
        """Make the table's commit."""
        epoch, merge = self.table.plan.epochs[self.epoch_number], self.table.merge(self.epoch_number)
        with settings(spark, ready()):
            fresh = not self.exists or self.overwrite or merge.appends  # no rows that a fold could continue
            has_rows = epoch.rows or merge.empties is not None
            rows = folded_rows(spark, self.staging, self.table, epoch, fresh=fresh) if has_rows else None
            if not self.exists or self.overwrite or merge.only_adds:
                how = "overwrite" if self.overwrite else "append"
                return append_rows(spark, rows, merge, how, create=not self.exists)
            assert rows is not None
            if merge.metadata.rows is RowKind.VERSION:
                return merge_versions(spark, rows, merge)
            return (merge_multiset if merge.identity.mode is Mode.MULTISET else merge_keyed)(spark, rows, merge)


def folded_rows(spark: SparkSession, staging: Staging, run: TableRun, epoch: Epoch, *, fresh: bool) -> DataFrame:
    """Return the rows to merge; see `walreplay.fold.net_changes.merge_schema`.

    Args:
        fresh: see `TableRun.fold_task`.
    """
    task = run.fold_task(epoch, fresh=fresh)
    return run.events(spark, staging, epoch, task).mapInArrow(partial(fold_batches, task=task), sql_schema(task.schema))
