"""Rewrite a small table together with the rows to merge, instead of a MERGE.

A MERGE of a few rows takes Spark a dozen jobs and plans, however small the table is.  If driver and executors reach the
table's folder, the task that folds its changes can also read the table and rewrite it.  Delta's own transaction
commits the new files.  Tables with anything unusual are merged: `keeping` has their folded rows in files until then.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final

import pyarrow as pa
import pyspark

from walreplay.delta import statements as delta
from walreplay.delta.data_files import FileColumn
from walreplay.delta.local import LocalTable
from walreplay.delta.small_table import Before, Images, Keys
from walreplay.fold.events import Mode
from walreplay.session.folders import Folder
from walreplay.spark.workers.fold import FoldTask
from walreplay.spark.workers.rows import Work
from walreplay.spark.workers.write import FilesWritten, FileTask, write_kept, write_rewritten
from walreplay.table.table_run import Merge
from walreplay.writing.merge import RowCounts, Written, key_may_be_rescued
from walreplay.writing.multiset import added_ids, image_of_rows


def keeping(task: FoldTask, folder: Folder) -> Work:
    """Return the function that folds a share of a keyed table's events and keeps the rows for a MERGE.

    Args:
        folder: for the files.  If the run is killed, the next one has to delete what is left there.
    """
    return partial(write_kept, task=task, files=keeping_files(task.schema, folder))


def keeping_files(schema: pa.Schema, folder: Folder) -> FileTask:
    """Return where and how rows with some of the fold's columns are written for a statement."""
    columns = tuple(FileColumn(field.name, field.name, field.type, indexed=False) for field in schema)
    return FileTask(folder, columns, tuple(schema.names), pyspark.__version__)


_MAX_BYTES: Final = 16 << 20  # The limit of the table's files, and of its staged changes

_MAX_FILES: Final = 64

OTHER_COLUMNS: Final = "its columns differ from the ledger's"


@dataclass(frozen=True, slots=True)
class Rewrite:
    """A table that may be rewritten, as it was when it was opened.

    Attributes:
        columns: of the table's files.
        names: the names of the table's files in its folder.
    """

    table: LocalTable
    columns: tuple[FileColumn, ...]
    names: tuple[str, ...]

    def folding(self, merge: Merge, folder: Folder) -> Work:
        """Return the function that folds a table's events and rewrites it, or else keeps the rows for a MERGE."""
        sources, task = [source for _, source in merge.pairs], merge.fold_task
        before = Before(
            folder=self.table.folder,
            files=self.names,
            columns=self.columns,
            sources=tuple(sources),
            rows=_row_identity(merge, sources),
            emptied=merge.empties,
        )
        files = FileTask(self.table.folder, self.columns, tuple(sources), pyspark.__version__)
        return partial(write_rewritten, task=task, before=before, files=files, kept=keeping_files(task.schema, folder))

    def commit(self, written: FilesWritten, merge: Merge) -> Written | None:
        """Commit files in place of those of the table (`FilesWritten.replaced`); None if it has changed since."""
        counts = written.counts
        row_counts = RowCounts(**{name: counts[name] for name in ("unknown", "without_base", "deletes_without_row")})
        changed = {name: counts[name] for name in ("inserted", "updated", "deleted")}
        replaced = (written.replaced or ()) if any(changed.values()) else ()
        removed = [self.table.files[number] for number in replaced]
        # The names are those of a MERGE's metrics, so that a table's history reads alike whoever wrote.
        metrics = {
            "numSourceRows": sum(changed.values()),
            "numOutputRows": sum(file.rows for file in written.files),
            "numTargetRowsCopied": counts["copied"] if removed else 0,
            **{f"numTargetRows{name.capitalize()}": count for name, count in changed.items()},
            "numTargetRowsMatchedUpdated": counts["updated"],
            "numTargetRowsMatchedDeleted": counts["deleted"],
            "numTargetFilesAdded": len(written.files),
            "numTargetFilesRemoved": len(removed),
            "numTargetBytesAdded": sum(file.size for file in written.files),
            "numTargetBytesRemoved": sum(file.size for file in removed),
        }
        try:
            version = self.table.commit(written.files, row_counts.counted(merge), instead_of=removed, metrics=metrics)
        except Exception as error:
            # After any other error the commit may have been made, so the files must stay.
            if not delta.is_conflict(error):
                raise
            # It was a conflict, so no commit has these files.
            self.table.folder.delete(*(file.name for file in written.files))
            return None
        return Written(row_counts, {name: str(count) for name, count in metrics.items()}, version, "files")


def begin_rewrite(merge: Merge, begin: Callable[[], LocalTable | str]) -> Rewrite | str:
    """Begin to rewrite a table, or return the reason why it has to be merged.

    Args:
        begin: opens the table, or returns the reason why no files may be written to it.
    """
    if merge.run.size > _MAX_BYTES:
        return "its changes are many"
    if merge.epoch.watched is not None:
        return "whether a version begins hangs on the one that the table has"
    if merge.identity.evicts and merge.identity.mode is not Mode.MULTISET:
        return "a row may take over the key of another: deletes are soft, changes are skipped, or gaps are allowed"
    table = begin()
    if isinstance(table, str):
        return table
    if not table.may_be_rewritten:
        return "it has a change data feed, or is append-only"
    columns = table.columns(merge.schema) if table.has_only(merge.schema) else None
    if columns is None:
        return OTHER_COLUMNS
    if len(table.files) > _MAX_FILES or sum(file.size for file in table.files) > _MAX_BYTES:
        return "it is too large to be written anew"
    names = tuple(name for file in table.files if (name := file.name) is not None)
    if len(names) < len(table.files):
        return "rows of it are marked as deleted, or its files lie elsewhere"
    return Rewrite(table, columns, names)


def _row_identity(merge: Merge, sources: Sequence[str]) -> Keys | Images | None:
    if merge.identity.mode is Mode.APPEND:
        return None
    if merge.identity.mode is Mode.MULTISET:
        image = tuple(sources.index(source) for _, source in image_of_rows(merge))
        lsn = sources.index("lsn") if "lsn" in sources else None  # of equal rows the newest is deleted first
        return Images(image, lsn, has_younger=bool(added_ids(merge)))
    return Keys(
        columns=merge.identity.key,
        tracked=merge.epoch.tracked,
        marks_deleted=merge.marks_deleted,
        claims=merge.epoch.configured or merge.identity.claims is not None,
        with_null=merge.epoch.configured,  # a configured key may hold NULL
        rescuable=tuple(
            (place, merge.shape.columns[number].name)
            for place, number in enumerate(merge.identity.key)
            if key_may_be_rescued(merge, number)
        ),
    )
