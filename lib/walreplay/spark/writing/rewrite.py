"""Rewrite a small table together with the rows to merge, instead of a MERGE.

A MERGE of a few rows takes Spark a dozen jobs and plans, however small the table is.  If driver and executors reach the
table's folder, the task that folds its changes can also read the table and rewrite it.  Delta's own transaction
commits the new files.  Tables with anything unusual are merged.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, Final

import pyspark

from walreplay.errors import MissingRow
from walreplay.sink.data_files import FileColumn
from walreplay.sink.events import Mode
from walreplay.sink.folders import Folder
from walreplay.sink.small_table import Before, Images, Keys, Versions, key_is_plain
from walreplay.sink.table_log import whole_file
from walreplay.spark.delta import statements as delta
from walreplay.spark.delta.transaction import Transaction
from walreplay.spark.planning.table_run import Merge
from walreplay.spark.workers.fold import FoldTask
from walreplay.spark.workers.rows import Work
from walreplay.spark.workers.write import FilesWritten, FileTask, write_rewritten
from walreplay.spark.writing.kept_rows import keeping_files
from walreplay.spark.writing.merge import Counts, Written, key_may_be_rescued
from walreplay.spark.writing.multiset import added_ids, image_of_rows

_MOST_BYTES: Final = 16 << 20
"""The limit of the table's files, and of its staged changes."""

_MOST_FILES: Final = 64

OTHER_COLUMNS: Final = "its columns differ from the ledger's"

_NOTHING: Final = (
    "numTargetChangeFilesAdded",
    "numTargetDeletionVectorsAdded",
    "numTargetDeletionVectorsRemoved",
    "numTargetDeletionVectorsUpdated",
    "numTargetRowsNotMatchedBySourceDeleted",
    "numTargetRowsNotMatchedBySourceUpdated",
)
"""Metrics that the history has of every MERGE, and that are 0 here."""


class Rewrite:
    """A table that may be rewritten, as it was when the transaction began.

    Args:
        transaction: commits the new files.
        columns: of the table's files.
        files: the table's files, as its log's entries.
        names: the names of the same files in the table's folder.
    """

    def __init__(
        self,
        transaction: Transaction,
        columns: tuple[FileColumn, ...],
        files: Sequence[Mapping[str, Any]],
        names: tuple[str, ...],
    ) -> None:
        self._transaction = transaction
        self._columns = columns
        self._files = files
        self._names = names

    def folding(self, task: FoldTask, merge: Merge, folder: Folder) -> Work:
        """Give the function that folds a table's events and rewrites it, or else keeps the rows for a MERGE."""
        sources = [source for _, source in merge.pairs]
        before = Before(
            folder=self._transaction.folder,
            files=self._names,
            columns=self._columns,
            sources=tuple(sources),
            rescued=sources.index("rescued") if "rescued" in sources else None,
            rows=_rows_of(merge, sources),
        )
        files = FileTask(self._transaction.folder, self._columns, tuple(sources), pyspark.__version__)
        return partial(write_rewritten, task=task, before=before, files=files, kept=keeping_files(task, folder))

    def commit(self, written: FilesWritten, merge: Merge) -> Written | None:
        """Commit files in place of those of the table (`FilesWritten.replaced`); None if somebody has changed it since.

        Raises:
            MissingRow: see `Counts.check`.
        """
        counts = written.counts
        found = Counts(
            unknown=counts["unknown"],
            without_base=counts["without_base"],
            deletes_without_row=counts["deletes_without_row"],
        )
        try:
            found.check(merge)
        except MissingRow:
            self._discard(written)
            raise
        changed = {name: counts[name] for name in ("inserted", "updated", "deleted")}
        gone = [self._files[number] for number in written.replaced or ()] if any(changed.values()) else []
        source_rows = sum(changed.values())
        metrics = {
            # Delta 4.4 reads the first and shows the second.
            "operationNumSourceRows": source_rows,
            "numSourceRows": source_rows,
            "numOutputRows": sum(file.rows for file in written.files),
            "numTargetRowsCopied": counts["copied"] if gone else 0,
            **{f"numTargetRows{name.capitalize()}": count for name, count in changed.items()},
            "numTargetRowsMatchedUpdated": counts["updated"],
            "numTargetRowsMatchedDeleted": counts["deleted"],
            "numTargetFilesAdded": len(written.files),
            "numTargetFilesRemoved": len(gone),
            "numTargetBytesAdded": sum(file.size for file in written.files),
            "numTargetBytesRemoved": sum(file["size"] for file in gone),
            **dict.fromkeys(_NOTHING, 0),
        }
        try:
            version = self._transaction.commit(written.files, found.counted(merge), instead_of=gone, merged=metrics)
        except Exception as error:
            # After any other error the commit may have been made, so the files must stay.
            if not delta.is_conflict(error):
                raise
            self._discard(written)
            return None
        return Written(found, {name: str(count) for name, count in metrics.items()}, version, "files")

    def _discard(self, written: FilesWritten) -> None:
        for file in written.files:
            self._transaction.folder.delete(file.name)


def begin_rewrite(merge: Merge, staged: int, begin: Callable[[], Transaction | str]) -> Rewrite | str:
    """Begin to rewrite a table, or give the reason why it has to be merged.

    Args:
        staged: bytes of the staged events that its rows are folded from.
        begin: begins a transaction on the table, or gives the reason why no files may be written to it.
    """
    if staged > _MOST_BYTES:
        return "its changes are many"
    obstacle = _obstacle_of_rows(merge)
    if obstacle is not None:
        return obstacle
    transaction = begin()
    if isinstance(transaction, str):
        return transaction
    if not transaction.may_be_rewritten:
        return "it has a change data feed, or is append-only"
    columns = transaction.columns(merge.schema) if transaction.has_only(merge.schema) else None
    if columns is None:
        return OTHER_COLUMNS
    size = transaction.logged.size()
    if size is None:
        return "its log does not say how large it is"
    count, length = size
    if count > _MOST_FILES or length > _MOST_BYTES:
        return "it is too large to be written anew"
    files = transaction.files()
    names = tuple(name for file in files if (name := whole_file(file)) is not None)
    if len(names) < len(files):
        return "rows of it are marked as deleted, or its files lie elsewhere"
    return Rewrite(transaction, columns, files, names)


def _rows_of(merge: Merge, sources: Sequence[str]) -> Keys | Images | Versions:
    """Say how folded rows match those of the table."""
    apart = _told_apart(merge, sources)
    if merge.metadata.history is None:
        assert apart is not None
        return apart
    start_lsn, ordinal, end_lsn, end_at = (
        sources.index(name) for name in ("start_lsn", "ordinal", "end_lsn", "end_at")
    )
    return Versions(apart, start_lsn, ordinal, end_lsn, end_at, merge.empties)


def _told_apart(merge: Merge, sources: Sequence[str]) -> Keys | Images | None:
    if merge.identity.mode is Mode.APPEND:
        return None
    if merge.identity.mode is Mode.MULTISET:
        image = tuple(sources.index(source) for _, source in image_of_rows(merge))
        lsn = sources.index("lsn") if "lsn" in sources else None
        return Images(image, lsn, has_younger=bool(added_ids(merge)))
    return Keys(
        columns=merge.identity.key,
        tracked=merge.tracked,
        marks_deleted=merge.marks_deleted,
        claims=merge.configured or merge.identity.claims,
        forms=merge.key_forms,
        moved=merge.moves,
        with_null=merge.configured,
    )


def _obstacle_of_rows(merge: Merge) -> str | None:
    """Give the reason why these rows have to be merged; None if there is none."""
    if merge.watched is not None:
        return "whether a version begins hangs on the one that the table has"
    if merge.identity.mode is Mode.MULTISET:
        return "values of its rows may be written in several ways" if merge.identity.forms else None
    if merge.identity.evicts:
        return "a row may take over the key of another: deletes are soft, changes are skipped, or gaps are allowed"
    if merge.converts_key or any(
        key_may_be_rescued(merge, number) or not key_is_plain(merge.type_of(number).arrow)
        for number in merge.identity.key
    ):
        return "its key is of a type whose values are not equal by their bytes"
    return None
