"""Folds to files that Python writes, each on its way to one table.

What is folded depends on what is staged alone, and not on the table.  So it may be done before all else, in a job that
tables share (`walreplay.spark.tables.fold`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Final

from walreplay.errors import MissingRow
from walreplay.listing import escape_glob
from walreplay.spark.delta import statements as delta
from walreplay.spark.delta.sql_types import sql_schema
from walreplay.spark.planning.table_run import Merge
from walreplay.spark.session.isolation import settings
from walreplay.spark.staging.base import Rows
from walreplay.spark.staging.files import FileRows
from walreplay.spark.workers.fold import FoldTask
from walreplay.spark.workers.rows import Work
from walreplay.spark.workers.write import FILES, FilesWritten
from walreplay.spark.writing.append import FileAppend
from walreplay.spark.writing.base import Fold
from walreplay.spark.writing.kept_rows import keeping
from walreplay.spark.writing.merge import APPENDED, MATERIALIZE, Written, appended, merge_kept
from walreplay.spark.writing.rewrite import Rewrite

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


_NOT_PLAIN: Final = "it is too large once it is read, or its rows are not plain"
_CHANGED: Final = "somebody has changed it meanwhile"


@dataclass(frozen=True, slots=True)
class FileFold(Fold):
    """The fold of an epoch to files.

    Attributes:
        rows: what is staged of it; None for no rows.
        work: folds a share of them, and writes what comes of it.
        reason: see `Fold`.
    """

    rows: Rows | None
    work: Work
    merge: Merge
    reason: str = field(default="", kw_only=True)

    @property
    def shared(self) -> tuple[FileRows, Work] | None:
        """What can be done before the commit in a job that other tables share."""
        return (self.rows, self.work) if isinstance(self.rows, FileRows) else None

    def run(self, spark: SparkSession) -> FilesWritten | None:
        """Fold and write in a job of its own."""
        if self.rows is None:
            return None
        # What comes to Java are few rows, if large ones.
        with settings(spark, delta.FEW_ROWS):
            return FilesWritten.of(self.rows.mapInArrow(self.work, sql_schema(FILES)).collect())


@dataclass(frozen=True, slots=True)
class AppendFold(FileFold):
    """Rows whose files become the table's."""

    append: FileAppend

    def commit(
        self, spark: SparkSession, written: FilesWritten | None, ready: Callable[[], Mapping[str, str]]
    ) -> Written:
        """Commit the same rows as `walreplay.spark.writing.merge.append_rows`."""
        counts = appended(self.merge.identity.mode, {} if written is None else written.counts)
        if written is not None:
            self.append.add(written)
        try:
            counts.check(self.merge)
        except MissingRow:
            self.append.discard()
            raise
        with settings(spark, ready()):
            version = self.append.commit(counts.counted(self.merge))
        return Written(counts, {APPENDED: str(self.append.rows)}, version, "files")


@dataclass(frozen=True, slots=True)
class MergeFold(FileFold):
    """Rows that are kept in files of a folder until a MERGE takes them in."""

    task: FoldTask
    folder: str

    def commit(
        self, spark: SparkSession, written: FilesWritten | None, ready: Callable[[], Mapping[str, str]]
    ) -> Written:
        """MERGE the rows, as `walreplay.spark.writing.merge.merge_keyed` does, and delete their files."""
        assert written is not None
        with settings(spark, ready()):
            paths = [Path(self.folder, file.name) for file in written.files]
            schema = sql_schema(self.task.schema)
            if paths:
                kept = spark.read.schema(schema).parquet(*(escape_glob(f"file:{path}") for path in paths))
            else:
                kept = spark.createDataFrame([], schema)
            with settings(spark, {MATERIALIZE: "none"}):
                merged = merge_kept(spark, kept, written.counts, self.merge)
        for path in paths:
            path.unlink(missing_ok=True)
        return merged


@dataclass(frozen=True, slots=True)
class RewriteFold(MergeFold):
    """Rows that the task which folds them writes together with the table's, or keeps where that proves impossible."""

    rewrite: Rewrite

    def commit(
        self, spark: SparkSession, written: FilesWritten | None, ready: Callable[[], Mapping[str, str]]
    ) -> Written:
        """Commit the table as it was written, or MERGE rows that are kept."""
        assert written is not None
        if not written.anew:
            return replace(MergeFold.commit(self, spark, written, ready), reason=_NOT_PLAIN)
        # To ask for a table's size, as the settings for few rows do, takes longer than to write a small one anew.
        done = self.rewrite.commit(written, self.merge)
        if done is not None:
            return done
        # Somebody has changed the table meanwhile.
        kept = MergeFold(self.rows, keeping(self.task, self.folder), self.merge, self.task, self.folder)
        return replace(kept.commit(spark, kept.run(spark), ready), reason=_CHANGED)
