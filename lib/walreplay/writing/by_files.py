"""The writer whose files Python writes and commits by itself (`walreplay.delta.local`), and the choice of a writer.

This is four to five times as fast as statements.  Driver and executors must reach the target by themselves.  Tables
with anything unusual are left to statements.  A table at a path is made by the commit of its first rows.  One in a
catalog is made by a statement before, so that the catalog has it; for a moment it has no rows.

`FileAppend` is an append: executors write folded rows and staged records, the driver a few rows.  The folds write
their rows to files that are appended, merged, or written with the table's other rows.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar, Final

import pyarrow as pa

from walreplay.delta import statements as delta
from walreplay.delta.data_files import DataFile, DataFileWriter, FileColumn
from walreplay.delta.local import ATTEMPTS, LeftToSpark, LocalTable, forget_tables
from walreplay.delta.statements import TableDefinition, sql_schema
from walreplay.delta.target import TableName, Target, opened_in, tells
from walreplay.errors import TargetError
from walreplay.evolution.comments import with_comments
from walreplay.report import WriterKind
from walreplay.session import steps
from walreplay.session.folders import Folder, forget_files
from walreplay.session.isolation import has_own_sessions
from walreplay.session.reach import folder_of, staging_folder
from walreplay.spark.reached import Reached, ReachedCatalog, ReachedRoot
from walreplay.spark.staging import Rows, Staging
from walreplay.spark.workers.fold import FoldTask
from walreplay.spark.workers.rows import Work, unpack_batches
from walreplay.spark.workers.write import FILES, FilesWritten, FileTask, write_batches, write_folded
from walreplay.table.cases import CommitKind
from walreplay.table.table_run import Merge
from walreplay.writing.by_statements import Append, Fold, OneRow, TableWriter, merge_fold
from walreplay.writing.merge import APPENDED, Written, lost_counts
from walreplay.writing.one_row import FileRow
from walreplay.writing.rewrite import OTHER_COLUMNS, check_rewritable, rewrite_fold

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


class FileAppend(Append):
    """An append whose rows (of ``columns``) are written to files at once, which delta-rs commits."""

    def __init__(
        self, spark: SparkSession, definition: TableDefinition, table: LocalTable, columns: tuple[FileColumn, ...]
    ) -> None:
        super().__init__(spark, definition, create=False)
        self._table = table
        self._columns = columns
        self._files: list[DataFile] = []  # no part of the table before the commit; VACUUM removes them after a kill

    def write_rows(self, rows: Sequence[Sequence[Any]]) -> None:
        """Write a few rows that the driver has."""
        columns = zip(zip(*rows, strict=True), self._columns, strict=True)
        arrays = [pa.array(values, column.type) for values, column in columns]  # Arrow takes a tuple for a struct
        with DataFileWriter(self._table.folder, self._columns) as writer:
            writer.write(pa.RecordBatch.from_arrays(arrays, names=[column.name for column in self._columns]))
            file = writer.close()  # None: there were no rows
        if file is not None:
            self._files.append(file)

    def folding(self, task: FoldTask, sources: Sequence[str]) -> Work:
        """Return the function that folds a share of a table's events and writes the rows; `add` takes its result.

        Args:
            sources: for each of the table's columns, the folded rows' column that it is filled from.
        """
        return partial(write_folded, task=task, files=self._task(sources), is_new=True)

    def add(self, written: FilesWritten) -> None:
        """Add files that executors have written."""
        self._files += written.files

    def write_staged(self, staged: Rows, constants: Mapping[str, pa.Array]) -> None:
        """Have executors write staged records."""
        self._write(staged, partial(unpack_batches, constants=constants))

    def write_frame(self, frame: DataFrame) -> None:
        """Have executors write the rows of a query, whose columns are the table's."""
        self._write(frame)

    def commit(self, commit: delta.CommitId, *, follows: bool = True) -> int | None:
        """Commit what was written."""
        # An append may follow others: delta-rs is asked again, on a newer version.
        return self._table.commit(self._files, commit, attempts=ATTEMPTS if follows else 1)

    def _task(self, sources: Sequence[str]) -> FileTask:
        return FileTask(self._table.folder, self._columns, tuple(sources))

    def _write(self, rows: Rows, work: Work | None = None) -> None:
        write = partial(write_batches, files=self._task([column.name for column in self._columns]), work=work)
        self.add(FilesWritten.of(rows.mapInArrow(write, sql_schema(FILES)).collect()))


# Folds


@dataclass(frozen=True, slots=True)
class AppendFold(Fold):
    """Rows that are appended: their files become the table's."""

    append: FileAppend

    def commit(self, spark: SparkSession, written: FilesWritten) -> Written:
        """Commit the files; the table gets the same rows as by a statement (`WriteFold`)."""
        counts = lost_counts(written.counts)
        self.append.add(written)
        version = self.append.commit(counts.counted(self.merge))
        return Written(counts, {APPENDED: str(written.rows)}, version, "files")


# The writer


class FileWriter(TableWriter):
    """Write files, and leave to statements the tables that need something that this writer does not know."""

    kind: ClassVar[WriterKind] = "files"

    def opened(self, spark: SparkSession, table: TableName) -> LocalTable:
        """Return an existing table whose files driver and workers read by themselves."""
        opened = opened_in(self._folder(spark, table))
        if opened is None:
            raise LeftToSpark("delta-rs does not read it")
        obstacle = opened.obstacle if opened.version >= 0 else "it is not there"
        if obstacle is not None:
            raise LeftToSpark(obstacle)
        return opened

    def one_row(self, spark: SparkSession, definition: TableDefinition) -> OneRow:
        """Return a table of one row, which need not exist yet."""
        return FileRow(spark, definition, partial(self._reached.located, spark, definition.name))

    def begin_append(self, spark: SparkSession, definition: TableDefinition, *, create: bool) -> Append:
        """Begin to append to a table."""
        try:
            return self._append(spark, definition, create=create)
        except LeftToSpark:
            return super().begin_append(spark, definition, create=create)

    def fold(self, spark: SparkSession, staging: Staging, merge: Merge, reason: str = "") -> Fold:
        """Begin to bring an epoch's rows to their table."""
        try:
            return self._fold(spark, staging, merge)
        except LeftToSpark as left:
            return super().fold(spark, staging, merge, str(left))

    # What follows raises `LeftToSpark` if a statement has to write the rows.

    def _fold(self, spark: SparkSession, staging: Staging, merge: Merge) -> Fold:
        """Return a fold whose files delta-rs commits."""
        run, table, kind = merge.run, merge.plan.table, merge.case.commit
        if kind is CommitKind.OVERWRITE:
            raise LeftToSpark("its rows are overwritten")
        if run.needs_statements:
            raise LeftToSpark("it is clustered by a column for which files that Python writes have no statistics")
        if kind is CommitKind.MERGE:
            check_rewritable(merge)
            return rewrite_fold(self.opened(spark, table), merge_fold(spark, staging, merge))
        creates = kind is CommitKind.CREATE
        if creates and table.path is None:
            # The statement that makes it is no commit that another run's would keep from being made.
            run.check_lock()
        schema = with_comments(merge.schema, merge.plan.comment, merge.comments({})) if creates else merge.schema
        definition = TableDefinition(table, schema, dict(merge.plan.layout.properties))
        append = self._append(spark, definition, merge.commit, create=creates)
        work = append.folding(merge.fold_task, [source for _, source in merge.pairs])
        return AppendFold(merge.events(spark, staging), work, merge, append)

    def _append(
        self, spark: SparkSession, definition: TableDefinition, commit: delta.CommitId | None = None, *, create: bool
    ) -> FileAppend:
        table = self._made(spark, definition, commit) if create else self.opened(spark, definition.name)
        columns = table.columns(definition.schema)
        if columns is None:
            raise LeftToSpark(OTHER_COLUMNS)
        return FileAppend(spark, definition, table, columns)

    def _folder(self, spark: SparkSession, table: TableName) -> Folder:
        folder = self._reached.located(spark, table)
        if folder is None or not self._reached.by_workers(folder):
            raise LeftToSpark("driver and workers do not reach its folder")
        return folder

    def _made(self, spark: SparkSession, new: TableDefinition, commit: delta.CommitId | None) -> LocalTable:
        """Begin a table; a catalog's is made now, and has no rows yet.

        Args:
            commit: the one that will bring the rows; None if it does not matter who has made the table.

        Raises:
            TargetError: somebody else has made the table, or written to it, since it was found not to be there.
        """
        if new.name.path is not None:
            return LocalTable.new(self._folder(spark, new.name), new.schema, new.properties)
        delta.create_table(spark, new, commit)  # so that the catalog knows it
        steps.reached(f"table made: {new.name.text}")
        opened = self.opened(spark, new.name)
        first_id = next((first.id for first in opened.history(1)), None)
        # Version 0 is the statement's own: somebody else's table has another mark, or rows already.
        if opened.version == 0 and (commit is None or first_id == replace(commit, number=0)):
            return opened
        if commit is None:
            raise LeftToSpark("somebody else has written to it since it was made")
        raise TargetError(
            "somebody else has made the table, or has written to it, while the run was at work",
            path=new.name.text,
            remedy="Nothing was written to it; run again, which says whose the table is",
        )


_SWITCH: Final = "WALREPLAY_COMMITS"
"""An environment variable: with ``spark``, only Spark's statements commit."""


def choose_writer(spark: SparkSession, target: Target, staging: str | None = None) -> TableWriter:
    """Return the writer of all of a target's tables.

    Python writes files if driver and executors reach the target by themselves.  Of a catalog's tables each is asked for
    by itself.

    Args:
        staging: a folder of the user's for staged events; None: in the target's own place.
    """
    folder = folder_of(spark, target.root)
    # Since this process's last run somebody may have removed the target and begun a new one.
    forget_files(folder)
    forget_tables()
    staged = None if staging is None else staging_folder(spark, staging)
    reached: Reached | None = None
    if target.root is None:
        reached = ReachedCatalog(spark, staged) if tells(spark, target.catalog) else None
    elif folder is not None:
        reached = ReachedRoot(spark, target.root, folder, staged)
    if reached is not None and os.environ.get(_SWITCH) != "spark":
        return FileWriter(reached)
    if reached is None and target.root is not None and not has_own_sessions(spark):
        # A client of Spark Connect reaches no mounted table, but may share a folder with the server's workers.
        folder = staging_folder(spark, target.root)
        reached = None if folder is None else ReachedRoot(spark, target.root, folder, staged)
    return TableWriter(reached or Reached(spark, staged))
