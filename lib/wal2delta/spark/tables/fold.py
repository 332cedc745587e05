"""Folds to files that Python writes: of one table, or of many in one job of Spark's.

What is folded depends on what is staged alone, and not on the table.  So the folds of many tables, which take next to
no time each, can share a job and its tasks, before each table gets its commit.
"""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from wal2delta.sink.events import Mode
from wal2delta.spark.delta import statements as delta
from wal2delta.spark.delta.sql_types import sql_schema
from wal2delta.spark.planning.table_run import Merge, TableRun
from wal2delta.spark.session.isolation import session_with, settings
from wal2delta.spark.staging.base import Rows, Staging
from wal2delta.spark.staging.files import FileRows
from wal2delta.spark.tables.alter import alters
from wal2delta.spark.tables.merge import Written, append_written, keeping, merge_written
from wal2delta.spark.tables.rewrite import Rewrite, begin_rewrite
from wal2delta.spark.tables.shared_job import Together
from wal2delta.spark.workers.fold import FoldTask
from wal2delta.spark.workers.refusals import refusals_told
from wal2delta.spark.workers.rows import Work
from wal2delta.spark.workers.write import FILES, FilesWritten
from wal2delta.spark.writing.append import Append, begin_append

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_MOST_TOGETHER: Final = 64
"""How many tables share a job: each has a session and a transaction until its commit."""

_MOST_BYTES: Final = 512 << 20
_MOST_BYTES_OF_ONE: Final = 128 << 20
"""So much is staged at most of tables that share a job, together and each: they all wait for its end."""


@dataclass(frozen=True, slots=True)
class Fold:
    """The fold of an epoch to files.

    Attributes:
        rows: what is staged of it; None for no rows.
        work: folds a share of them, and writes what comes of it.
        append: what the files are added to; None where they are merged, and kept in a ``folder`` until then.
        rewrite: the table that is written anew, if that proves to be possible, so that nothing has to be merged.
    """

    rows: Rows | None
    work: Work
    task: FoldTask
    merge: Merge
    append: Append | None
    folder: str
    rewrite: Rewrite | None = None

    def run(self, spark: SparkSession) -> FilesWritten | None:
        """Fold and write in a job of its own."""
        if self.rows is None:
            return None
        # What comes to Java are few rows, if large ones.
        with settings(spark, delta.FEW_ROWS):
            return FilesWritten.of(self.rows.mapInArrow(self.work, sql_schema(FILES)).collect())

    def commit(self, spark: SparkSession, written: FilesWritten | None) -> Written:
        """Make the table's commit of what is written, if that is not the table (see `Rewrite.commit`)."""
        if self.append is not None:
            return append_written(self.append, self.merge, written)
        assert written is not None
        return merge_written(spark, written, self.task, self.folder, self.merge)


@dataclass(frozen=True, slots=True)
class Folded:
    """A table's only epoch, folded with other tables; its commit is made in the same session."""

    spark: SparkSession
    fold: Fold
    written: FilesWritten


def begin_fold(
    spark: SparkSession, staging: Staging, run: TableRun, number: int, *, exists: bool, may_rewrite: bool = True
) -> Fold | None:
    """Say how an epoch is folded to files; None where Spark has to write them, or nothing is to be written.

    Args:
        run: of a table whose rows stay, if it holds any.
        exists: the table is there.
        may_rewrite: a small table may be written anew.
    """
    epoch, merge = run.plan.epochs[number], run.merge(number)
    task = run.fold_task(epoch)
    folder = staging.kept_rows_folder
    append: Append | None = None
    rewrite: Rewrite | None = None
    if run.needs_statements:
        return None
    if not exists or epoch.identity.mode is Mode.APPEND:
        append = begin_append(spark, merge.table, merge.schema, create=not exists, properties=dict(merge.properties))
        if append is None:
            return None
        work = append.folding(task, [source for _, source in merge.pairs])
    elif epoch.identity.mode is Mode.KEYED and epoch.rows and folder is not None:
        if may_rewrite and run.tasks == 1 and not run.plan.truncated and not alters(epoch.evolution):
            rewrite = begin_rewrite(spark, merge, run.size)
        work = keeping(task, folder) if rewrite is None else rewrite.folding(task, merge, folder)
    else:
        return None
    rows = run.events(spark, staging, epoch, task) if epoch.rows else None
    return Fold(rows, work, task, merge, append, folder or "", rewrite)


def groups_of(runs: Sequence[TableRun], staging: Staging) -> list[list[TableRun]]:
    """Give the tables whose folds share a job, group by group, behind a first group of those that share none."""
    alone: list[TableRun] = []
    groups: list[list[TableRun]] = [[]]
    size = 0
    for run in runs:
        if not _can_share(run, staging):
            alone.append(run)
            continue
        if groups[-1] and (len(groups[-1]) == _MOST_TOGETHER or size + run.size > _MOST_BYTES):
            groups.append([])
            size = 0
        groups[-1].append(run)
        size += run.size
    return [alone, *filter(None, groups)]


def _can_share(run: TableRun, staging: Staging) -> bool:
    """Say whether a table is folded to files by a fold that can be done before all else, in a job with others'."""
    plan = run.plan
    if staging.kept_rows_folder is None or run.resumed or len(plan.epochs) > 1 or run.size > _MOST_BYTES_OF_ONE:
        return False
    (epoch,) = plan.epochs
    if not epoch.rows or (epoch.moves and run.tasks > 1):
        return False
    if not run.exists:
        return True
    if run.anew or (plan.before is not None and plan.before.layout != plan.layout):
        # What is begun now would meet a change of the table's properties.
        return False
    if epoch.identity.mode is Mode.APPEND:
        # Rows are added to a table as its columns are once they have been changed.
        return not plan.truncated and not alters(epoch.evolution)
    return epoch.identity.mode is Mode.KEYED and (not plan.truncated or plan.soft_deletes)


def fold_together(spark: SparkSession, staging: Staging, runs: Sequence[TableRun], at_once: int) -> dict[int, Folded]:
    """Fold tables in one job; give those of which that could be done, by their numbers.

    Args:
        runs: of tables that can share one.
        at_once: how many tables are worked on at a time.

    Raises:
        Wal2DeltaError: what a fold has against its events.
    """

    def begin(run: TableRun) -> tuple[SparkSession, Fold | None]:
        with session_with(spark, delta.SMALL_STATE) as own:
            return own, begin_fold(own, staging, run, 0, exists=run.exists)

    with ThreadPoolExecutor(at_once) as pool:
        begun = list(pool.map(begin, runs))
    together = Together(spark)
    slots = {}
    for run, (own, fold) in zip(runs, begun, strict=True):
        if fold is not None and isinstance(fold.rows, FileRows):
            slots[run.plan.number] = own, fold, together.add(fold.rows, fold.work, run.size)
    with refusals_told():
        found = together.run()
    return {number: Folded(own, fold, FilesWritten.of(found[slot])) for number, (own, fold, slot) in slots.items()}
