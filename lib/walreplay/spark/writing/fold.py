"""Folds whose rows Python writes to files: appended, merged, or written with the table's other rows.

A fold depends only on the staged events, not on the table.  So many tables can be folded in one job before anything
else is done (`walreplay.spark.tables.fold`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final

from walreplay.errors import MissingRow
from walreplay.listing import escape_glob
from walreplay.sink.events import Mode
from walreplay.sink.folders import Folder
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
from walreplay.spark.writing.history import merge_kept_versions
from walreplay.spark.writing.kept_rows import keeping
from walreplay.spark.writing.merge import APPENDED, MATERIALIZE, Written, appended, merge_kept
from walreplay.spark.writing.multiset import merge_kept_images
from walreplay.spark.writing.rewrite import Rewrite

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


_NOT_PLAIN: Final = "it is too large once it is read, or its rows are not plain"
_CHANGED: Final = "somebody has changed it meanwhile"


@dataclass(frozen=True, slots=True)
class FileFold(Fold):
    """The fold of an epoch to files.

    Attributes:
        rows: the epoch's staged events; None if there are none.
        work: folds a share of them and writes the resulting rows.
        reason: see `Fold`.
    """

    rows: Rows | None
    work: Work
    merge: Merge
    reason: str = field(default="", kw_only=True)

    @property
    def shared(self) -> tuple[FileRows, Work] | None:
        """The work before the commit that can be done in a job shared with other tables; None if there is none."""
        return (self.rows, self.work) if isinstance(self.rows, FileRows) else None

    def run(self, spark: SparkSession) -> FilesWritten | None:
        """Fold and write in a job of its own."""
        if self.rows is None:
            return None
        # Java gets few rows, but large ones.
        with settings(spark, delta.FEW_ROWS):
            return FilesWritten.of(self.rows.mapInArrow(self.work, sql_schema(FILES)).collect())


@dataclass(frozen=True, slots=True)
class AppendFold(FileFold):
    """Rows that are appended: their files become the table's."""

    append: FileAppend

    def commit(
        self, spark: SparkSession, written: FilesWritten | None, ready: Callable[[], Mapping[str, str]]
    ) -> Written:
        """Commit the files; the table gets the same rows as by `walreplay.spark.writing.merge.append_rows`."""
        counts = appended(self.merge.counted_as, {} if written is None else written.counts)
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
    """Rows that are kept in files until a MERGE reads them."""

    task: FoldTask
    folder: Folder

    def commit(
        self, spark: SparkSession, written: FilesWritten | None, ready: Callable[[], Mapping[str, str]]
    ) -> Written:
        """MERGE the rows, as statements do that have folded them themselves.

        Their files are deleted; those in an object store with the folder, by one request.
        """
        assert written is not None
        with settings(spark, ready()):
            names = [file.name for file in written.files]
            schema = sql_schema(self.task.schema)
            if names:
                kept = spark.read.schema(schema).parquet(*(escape_glob(self.folder.uri_of(name)) for name in names))
            else:
                kept = spark.createDataFrame([], schema)
            with settings(spark, {MATERIALIZE: "none"}):
                if self.merge.metadata.history is not None:
                    merged = merge_kept_versions(spark, kept, written.counts, self.merge)
                elif self.merge.identity.mode is Mode.MULTISET:
                    totals = {"needed": written.counts["missing"], "unknown": written.counts["unknown"]}
                    merged = merge_kept_images(spark, kept, totals, self.merge)
                else:
                    merged = merge_kept(spark, kept, written.counts, self.merge)
        if not self.folder.is_far:
            self.folder.delete(*names)
        return merged


@dataclass(frozen=True, slots=True)
class RewriteFold(MergeFold):
    """Rows that the folding task writes together with the table's other rows, or keeps for a MERGE if it cannot."""

    rewrite: Rewrite

    def commit(
        self, spark: SparkSession, written: FilesWritten | None, ready: Callable[[], Mapping[str, str]]
    ) -> Written:
        """Commit the rewritten table, or MERGE the kept rows."""
        assert written is not None
        if written.replaced is None:
            return replace(MergeFold.commit(self, spark, written, ready), reason=_NOT_PLAIN)
        # `ready` is not called: it asks for the table's size, which takes longer than to rewrite a small table.
        done = self.rewrite.commit(written, self.merge)
        if done is not None:
            return done
        # Somebody has changed the table in between.
        kept = MergeFold(self.rows, keeping(self.task, self.folder), self.merge, self.task, self.folder)
        return replace(kept.commit(spark, kept.run(spark), ready), reason=_CHANGED)
