"""The writer that uses Spark's own statements, which work everywhere."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial, reduce
from typing import TYPE_CHECKING, Any, ClassVar, Final

import pyarrow as pa

from walreplay.report import Way
from walreplay.sink.events import Mode
from walreplay.spark.delta import statements as delta
from walreplay.spark.delta.sql_types import sql_schema
from walreplay.spark.delta.target import TableName, Target
from walreplay.spark.planning.plan import Epoch
from walreplay.spark.planning.table_run import TableRun
from walreplay.spark.session.isolation import settings
from walreplay.spark.staging.base import Rows, Staging
from walreplay.spark.staging.by_spark import TableStaging
from walreplay.spark.staging.files import FileStaging
from walreplay.spark.staging.reached import Reached, ReachedStaging
from walreplay.spark.workers.fold import fold_batches
from walreplay.spark.workers.write import FilesWritten, unpack_with
from walreplay.spark.writing.base import Append, Fold, OneRow, TableWriter
from walreplay.spark.writing.history import merge_versions
from walreplay.spark.writing.merge import Written, append_rows, merge_keyed
from walreplay.spark.writing.multiset import merge_multiset
from walreplay.spark.writing.row_statements import StatementRow

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

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
        """Give a run's place for staged events."""
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
        """Give a table of one row, which need not exist yet."""
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

    def commit(self, commit: delta.CommitId) -> int | None:
        """Commit what was written."""
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
    """Give the rows to merge; see `walreplay.sink.merge.merge_schema`.

    Args:
        fresh: see `TableRun.fold_task`.
    """
    task = run.fold_task(epoch, fresh=fresh)
    return run.events(spark, staging, epoch, task).mapInArrow(partial(fold_batches, task=task), sql_schema(task.schema))
