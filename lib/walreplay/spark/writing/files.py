"""The writer whose files Python writes and Delta's own transaction commits.

This is four to five times as fast as statements.  Driver and executors must reach the target by themselves, and
Delta's private classes must be as expected (`walreplay.spark.delta.internals`).  Tables with anything unusual are left
to statements.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import TYPE_CHECKING, ClassVar

import pyarrow as pa

from walreplay.report import Way
from walreplay.sink.events import Mode
from walreplay.sink.folders import Folder
from walreplay.spark.delta import statements as delta
from walreplay.spark.delta import transaction
from walreplay.spark.delta.internals import Internals
from walreplay.spark.delta.reach import folder_of
from walreplay.spark.delta.target import TableName
from walreplay.spark.delta.transaction import Transaction
from walreplay.spark.planning.table_run import TableRun
from walreplay.spark.staging.base import Staging
from walreplay.spark.staging.files import FileStaging
from walreplay.spark.staging.reached import Reached
from walreplay.spark.writing.append import FileAppend
from walreplay.spark.writing.base import Append, Fold, OneRow
from walreplay.spark.writing.fold import AppendFold, FileFold, MergeFold, RewriteFold
from walreplay.spark.writing.kept_rows import keeping
from walreplay.spark.writing.one_row import FileRow
from walreplay.spark.writing.rewrite import OTHER_COLUMNS, begin_rewrite
from walreplay.spark.writing.statements import StatementFold, StatementWriter

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class FileWriter(StatementWriter):
    """Write files, and leave to statements the tables that need something that this writer does not know.

    Args:
        reached: the target's root.
    """

    way: ClassVar[Way] = "files"
    shares_folds: ClassVar[bool] = True

    def __init__(self, reached: Reached, internals: Internals) -> None:
        super().__init__(internals.warnings, reached)
        self._root = reached
        self._internals = internals

    def one_row(
        self,
        spark: SparkSession,
        table: TableName,
        schema: pa.Schema,
        *,
        properties: Mapping[str, str] = delta.NO_PROPERTIES,
    ) -> OneRow:
        """Give a table of one row, which need not exist yet."""
        folder = self._folder_of(spark, table)
        if folder is None:
            return super().one_row(spark, table, schema, properties=properties)
        return FileRow(spark, table, schema, folder, self._internals, properties)

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
        append = self._append(spark, table, schema, create=create, properties=properties)
        if isinstance(append, str):
            return super().append(spark, table, schema, create=create, properties=properties)
        return append

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
        fold: Fold | str = "its rows are overwritten"
        if not overwrite:
            fold = self._fold(spark, staging, run, number, exists=exists, stays=stays)
        if isinstance(fold, Fold):
            return fold
        return StatementFold(staging, run, number, exists=exists, overwrite=overwrite, reason=fold)

    def begin_change(self, spark: SparkSession, table: TableName) -> Transaction | None:
        """Begin a commit that changes only the table's metadata; None if statements have to change it."""
        return self.begin(spark, table)

    def begin(
        self,
        spark: SparkSession,
        table: TableName,
        *,
        create: pa.Schema | None = None,
        properties: Mapping[str, str] = delta.NO_PROPERTIES,
    ) -> Transaction | None:
        """Begin a transaction on a table; None if the table needs something that this writer does not know.

        Args:
            create: the columns of a table that does not exist yet.
        """
        begun = self._begin_or_say(spark, table, create=create, properties=properties)
        return None if isinstance(begun, str) else begun

    def _begin_or_say(
        self,
        spark: SparkSession,
        table: TableName,
        *,
        create: pa.Schema | None = None,
        properties: Mapping[str, str] = delta.NO_PROPERTIES,
    ) -> Transaction | str:
        """Begin a transaction on a table, or give the reason why that is not possible."""
        folder = self._folder_of(spark, table)
        if folder is None or not self._root.by_workers():
            return "driver and workers do not reach its folder"
        return transaction.begin_or_say(spark, table, folder, self._internals, create=create, properties=properties)

    def _folder_of(self, spark: SparkSession, table: TableName) -> Folder | None:
        """Give a table's folder, usually below the target's; None if it is not reached."""
        if table.path is not None and self._root.holds(table.path):
            return self._root.below(table.path)
        return folder_of(spark, table.path)

    def _append(
        self,
        spark: SparkSession,
        table: TableName,
        schema: pa.Schema,
        *,
        create: bool,
        properties: Mapping[str, str],
    ) -> FileAppend | str:
        begun = self._begin_or_say(spark, table, create=schema if create else None, properties=properties)
        if isinstance(begun, str):
            return begun
        columns = begun.columns(schema)
        return OTHER_COLUMNS if columns is None else FileAppend(begun, columns)

    def _fold(
        self, spark: SparkSession, staging: Staging, run: TableRun, number: int, *, exists: bool, stays: str
    ) -> FileFold | str:
        """Say how an epoch is folded to files, or give the reason why statements have to write its rows.

        The table's rows, if it has any, are not overwritten.
        """
        if run.needs_statements:
            return "it is clustered by a column for which files that Python writes have no statistics"
        assert isinstance(staging, FileStaging)
        epoch, merge = run.plan.epochs[number], run.merge(number)
        task, folder = run.fold_task(epoch, fresh=not exists or merge.appends), staging.kept_rows_folder
        if not exists or merge.only_adds:
            schema = merge.schema if exists else merge.commented_schema
            append = self._append(spark, merge.table, schema, create=not exists, properties=dict(merge.properties))
            if isinstance(append, str):
                return append
            work = append.folding(task, [source for _, source in merge.pairs])
            rows = run.events(spark, staging, epoch, task) if epoch.rows else None
            return AppendFold(rows, work, merge, append)
        if merge.metadata.history is None and epoch.identity.mode is Mode.APPEND:
            return "nothing tells its rows apart"
        if not epoch.rows:
            return "there are no rows for it"
        rewrite = stays or begin_rewrite(merge, run.size, partial(self._begin_or_say, spark, merge.table))
        rows = run.events(spark, staging, epoch, task)
        if isinstance(rewrite, str):
            return MergeFold(rows, keeping(task, folder), merge, task, folder, reason=rewrite)
        return RewriteFold(rows, rewrite.folding(task, merge, folder), merge, task, folder, rewrite)
