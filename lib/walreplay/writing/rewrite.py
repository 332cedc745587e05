"""Rewrite a small table together with the rows to merge, instead of a MERGE.

A MERGE of a few rows takes Spark a dozen jobs and plans, however small the table is.  If driver and executors reach the
table's folder, the task that folds its changes can also read the table and rewrite it.  Delta's own transaction
commits the new files.  Tables with anything unusual are merged: until it is known, their folded rows are kept in files.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Final

from walreplay.delta import statements as delta
from walreplay.delta.data_files import FileColumn
from walreplay.delta.local import LeftToSpark, LocalTable
from walreplay.delta.small_table import Before, Images, Keys, TableFiles
from walreplay.fold.events import Mode
from walreplay.spark.workers.write import FilesWritten, write_rewritten
from walreplay.table.table_run import Merge
from walreplay.writing.by_statements import Fold, MergeFold
from walreplay.writing.merge import RowCounts, Written
from walreplay.writing.multiset import added_ids, image_of_rows

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


_MAX_BYTES: Final = 16 << 20  # The limit of the table's files, and of its staged changes

_MAX_FILES: Final = 64

OTHER_COLUMNS: Final = "its columns differ from the ledger's"

_NOT_REWRITTEN: Final = "it is too large once it is read, or its rows are not plain"
_CHANGED: Final = "somebody has changed it meanwhile"


@dataclass(frozen=True, slots=True)
class RewriteFold(Fold):
    """Rows that the folding task writes together with the table's other rows, or keeps for a MERGE if it cannot.

    Attributes:
        table: as it was when it was opened.
        otherwise: the MERGE.
    """

    table: LocalTable
    otherwise: MergeFold

    def commit(self, spark: SparkSession, written: FilesWritten) -> Written:
        """Commit files in place of those of the table (`FilesWritten.replaced`), or MERGE the kept rows."""
        if written.replaced is None:  # the task has found that it cannot rewrite the table
            return replace(self.otherwise.commit(spark, written), reason=_NOT_REWRITTEN)
        counts = written.counts
        row_counts = RowCounts(**{name: counts[name] for name in ("unknown", "without_base", "deletes_without_row")})
        changed = {name: counts[name] for name in ("inserted", "updated", "deleted")}
        removed = [self.table.files[number] for number in written.replaced] if any(changed.values()) else []
        # The names are those of a MERGE's metrics, so that a table's history reads alike whoever wrote.
        metrics = {
            "numSourceRows": sum(changed.values()),
            "numOutputRows": written.rows,
            "numTargetRowsCopied": counts["copied"] if removed else 0,
            **{f"numTargetRows{name.capitalize()}": count for name, count in changed.items()},
            "numTargetRowsMatchedUpdated": counts["updated"],
            "numTargetRowsMatchedDeleted": counts["deleted"],
            "numTargetFilesAdded": len(written.files),
            "numTargetFilesRemoved": len(removed),
            "numTargetBytesAdded": sum(file.size for file in written.files),
            "numTargetBytesRemoved": sum(file.size for file in removed),
        }
        commit_id = row_counts.counted(self.merge)
        try:
            version = self.table.commit(written.files, commit_id, instead_of=removed, metrics=metrics)
        except Exception as error:
            # After any other error the commit may have been made, so the files must stay.
            if not delta.is_conflict(error):
                raise
            # It was a conflict, so no commit has these files.
            self.table.folder.delete(*(file.name for file in written.files))
            return replace(self.otherwise.commit(spark, self.otherwise.run(spark)), reason=_CHANGED)
        return Written(row_counts, {name: str(count) for name, count in metrics.items()}, version, "files")


def check_rewritable(merge: Merge) -> None:
    """Leave to Spark, by `LeftToSpark`, a table whose rows, or whose changes, need a MERGE."""
    if not merge.epoch.rows:
        raise LeftToSpark("there are no rows for it")
    if merge.plan.metadata.share is not None:
        raise LeftToSpark("several sources share it")
    if merge.run.tasks > 1 or merge.run.size > _MAX_BYTES:
        raise LeftToSpark("its changes are many")
    if merge.epoch.watched is not None:
        raise LeftToSpark("whether a version begins hangs on the one that the table has")
    if merge.identity.evicts and merge.identity.mode is not Mode.MULTISET:
        raise LeftToSpark(
            "a row may take over the key of another: deletes are soft, changes are skipped, or gaps are allowed"
        )


def rewrite_fold(table: LocalTable, otherwise: MergeFold) -> RewriteFold:
    """Begin to rewrite a table.

    Args:
        otherwise: the MERGE of the same rows.

    Raises:
        LeftToSpark: the table has to be merged.
    """
    merge = otherwise.merge
    if not table.may_be_rewritten:
        raise LeftToSpark("it has a change data feed, or is append-only")
    sources = tuple(source for _, source in merge.pairs)
    identity, columns = _row_identity(merge, sources), table.columns(merge.schema)
    if columns is None or len(columns) < len(table.fields):
        raise LeftToSpark(OTHER_COLUMNS)
    files = small_files(table, columns).files
    before = Before(table.folder, files, columns, sources, identity, merge.empties)
    work = partial(write_rewritten, task=merge.fold_task, before=before, kept=otherwise.kept)
    return RewriteFold(otherwise.rows, work, merge, table, otherwise)


def small_files(table: LocalTable, columns: tuple[FileColumn, ...]) -> TableFiles:
    """Return the files of a table that is small enough for one task to read it.

    Raises:
        LeftToSpark: it is not; or a file of it does not count as it is.
    """
    if len(table.files) > _MAX_FILES or sum(file.size for file in table.files) > _MAX_BYTES:
        raise LeftToSpark("it is too large to be written anew")
    names = tuple(name for file in table.files if (name := file.name) is not None)
    if len(names) < len(table.files):
        raise LeftToSpark("rows of it are marked as deleted, or its files lie elsewhere")
    return TableFiles(table.folder, names, columns)


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
            if number in merge.rescuable
        ),
    )
