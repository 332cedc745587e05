"""The writer whose files Python writes and commits by itself (`walreplay.delta.local`).

This is four to five times as fast as statements.  Driver and executors must reach the target by themselves.  Tables
with anything unusual are left to statements.

A table at a path is made by the commit of its first rows.  One in a catalog is made by a statement before, so that the
catalog has it; for a moment it has no rows.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, ClassVar

import pyarrow as pa

from walreplay.delta.local import LocalTable
from walreplay.errors import TargetError
from walreplay.report import Way
from walreplay.sink.events import Mode
from walreplay.sink.lineage import CommitId
from walreplay.spark.delta import statements as delta
from walreplay.spark.delta.located import opened_in
from walreplay.spark.delta.target import TableName
from walreplay.spark.planning.table_run import TableRun
from walreplay.spark.session import steps
from walreplay.spark.staging.base import Staging
from walreplay.spark.staging.files import FileStaging
from walreplay.spark.staging.reached import Reached, ReachedStaging
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
        reached: the places of its tables.
    """

    way: ClassVar[Way] = "files"
    shares_folds: ClassVar[bool] = True

    def __init__(self, reached: Reached, staged: ReachedStaging | None = None) -> None:
        super().__init__((), reached, staged)
        self._places = reached

    def one_row(
        self,
        spark: SparkSession,
        table: TableName,
        schema: pa.Schema,
        *,
        properties: Mapping[str, str] = delta.NO_PROPERTIES,
    ) -> OneRow:
        """Give a table of one row, which need not exist yet."""
        locate = partial(self._places.located, spark, table)
        return FileRow(spark, table, schema, locate, properties)

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

    def _open_or_say(
        self,
        spark: SparkSession,
        table: TableName,
        *,
        create: pa.Schema | None = None,
        properties: Mapping[str, str] = delta.NO_PROPERTIES,
        commit: delta.CommitId | None = None,
    ) -> LocalTable | str:
        """Open a table, or return the reason why that is not possible; `_make` tells of the rest.

        Args:
            create: the columns of a table that does not exist yet.
        """
        if create is not None and table.path is None:
            return self._make(spark, table, create, properties, commit)
        folder = self._places.located(spark, table)
        if folder is None or not self._places.by_workers(folder):
            return "driver and workers do not reach its folder"
        if create is not None:
            return LocalTable.new(folder, create, properties)
        opened = opened_in(folder)
        if opened is None:
            return "delta-rs does not read it"
        return opened.obstacle or opened if opened.version >= 0 else "it is not there"

    def _make(
        self,
        spark: SparkSession,
        table: TableName,
        columns: pa.Schema,
        properties: Mapping[str, str],
        commit: delta.CommitId | None,
    ) -> LocalTable | str:
        """Have a catalog make a table without rows, and open it.

        Args:
            columns: with the comments of the columns and of the table.
            commit: the one that will bring the rows; None if it does not matter who has made the table.

        Raises:
            TargetError: somebody else has made the table, or written to it, since it was found not to be there.
        """
        delta.create_table(spark, table, columns, properties, commit=commit)
        steps.reached(f"table made: {table.text}")
        begun = self._open_or_say(spark, table)
        if isinstance(begun, str):
            return begun
        first = next(begun.history(), None)
        made_by = None if first is None else CommitId.of_mark(first.mark)
        if begun.version == 0 and (commit is None or made_by == replace(commit, number=0)):
            return begun
        if commit is None:
            return "somebody else has written to it since it was made"
        raise TargetError(
            "somebody else has made the table, or has written to it, while the run was at work",
            path=table.text,
            remedy="Nothing was written to it; run again, which says whose the table is",
        )

    def _append(
        self,
        spark: SparkSession,
        table: TableName,
        schema: pa.Schema,
        *,
        create: bool,
        properties: Mapping[str, str],
        commit: delta.CommitId | None = None,
    ) -> FileAppend | str:
        new = schema if create else None
        begun = self._open_or_say(spark, table, create=new, properties=properties, commit=commit)
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
        if not isinstance(staging, FileStaging):
            return "driver and workers do not reach a folder for its staged events"
        epoch, merge = run.plan.epochs[number], run.merge(number)
        task, folder = run.fold_task(epoch, fresh=not exists or merge.appends), staging.kept_rows_folder
        if not exists or merge.only_adds:
            if not exists and merge.table.path is None:
                # The statement that makes it is no commit that another run's would keep from being made.
                run.check_lock()
            schema, own = merge.schema if exists else merge.commented_schema, dict(merge.properties)
            append = self._append(spark, merge.table, schema, create=not exists, properties=own, commit=merge.commit)
            if isinstance(append, str):
                return append
            work = append.folding(task, [source for _, source in merge.pairs])
            rows = run.events(spark, staging, epoch, task) if epoch.rows else None
            return AppendFold(rows, work, merge, append)
        if merge.metadata.history is None and epoch.identity.mode is Mode.APPEND:
            return "nothing tells its rows apart"
        if not epoch.rows:
            return "there are no rows for it"
        rewrite = stays or begin_rewrite(merge, run.size, partial(self._open_or_say, spark, merge.table))
        rows = run.events(spark, staging, epoch, task)
        if isinstance(rewrite, str):
            return MergeFold(rows, keeping(task, folder), merge, task, folder, reason=rewrite)
        return RewriteFold(rows, rewrite.folding(task, merge, folder), merge, task, folder, rewrite)
