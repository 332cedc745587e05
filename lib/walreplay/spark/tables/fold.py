"""Folds of many tables in one job of Spark's, before each gets its commit.

What is folded depends on what is staged alone, and not on the table.  So the folds of many tables, which take next to
no time each, can share a job and its tasks, before each table gets its commit.
"""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from walreplay.sink.events import Mode
from walreplay.spark.delta import statements as delta
from walreplay.spark.planning.table_run import TableRun
from walreplay.spark.session.isolation import session_with
from walreplay.spark.staging.base import Staging
from walreplay.spark.tables.alter import alters
from walreplay.spark.tables.shared_job import Together
from walreplay.spark.workers.refusals import refusals_told
from walreplay.spark.workers.write import FilesWritten
from walreplay.spark.writing.base import Fold, TableWriter

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_MOST_TOGETHER: Final = 64
"""How many tables share a job: each has a session and a transaction until its commit."""

_MOST_BYTES: Final = 512 << 20
_MOST_BYTES_OF_ONE: Final = 128 << 20
"""So much is staged at most of tables that share a job, together and each: they all wait for its end."""


@dataclass(frozen=True, slots=True)
class Folded:
    """A table's only epoch, folded with other tables; its commit is made in the same session."""

    spark: SparkSession
    fold: Fold
    written: FilesWritten


def begin_fold(
    spark: SparkSession,
    writer: TableWriter,
    staging: Staging,
    run: TableRun,
    number: int,
    *,
    exists: bool,
    overwrite: bool = False,
) -> Fold:
    """Begin to bring an epoch's rows to their table; see `walreplay.spark.writing.base.TableWriter.fold`."""
    plan = run.plan
    stays = ""
    if run.tasks > 1:
        stays = "its changes are many"
    elif plan.truncated:
        stays = "it was truncated"
    elif alters(plan.epochs[number].evolution):
        stays = "its columns change"
    return writer.fold(spark, staging, run, number, exists=exists, overwrite=overwrite, stays=stays)


def groups_of(runs: Sequence[TableRun], writer: TableWriter) -> list[list[TableRun]]:
    """Give the tables whose folds share a job, group by group, behind a first group of those that share none."""
    alone: list[TableRun] = []
    groups: list[list[TableRun]] = [[]]
    size = 0
    for run in runs:
        if not writer.shares_folds or not _can_share(run):
            alone.append(run)
            continue
        if groups[-1] and (len(groups[-1]) == _MOST_TOGETHER or size + run.size > _MOST_BYTES):
            groups.append([])
            size = 0
        groups[-1].append(run)
        size += run.size
    return [alone, *filter(None, groups)]


def _can_share(run: TableRun) -> bool:
    """Say whether a table is folded by a fold that can be done before all else, in a job with others'."""
    plan = run.plan
    if run.resumed or len(plan.epochs) > 1 or run.size > _MOST_BYTES_OF_ONE:
        return False
    (epoch,) = plan.epochs
    if not epoch.rows or (epoch.moves and run.tasks > 1):
        return False
    if not run.exists:
        return True
    if run.anew or plan.changes_comment or (plan.before is not None and plan.before.layout != plan.layout):
        # What is begun now would meet a change of the table's properties.
        return False
    if epoch.identity.mode is Mode.APPEND:
        # Rows are added to a table as its columns are once they have been changed.
        return not plan.truncated and not alters(epoch.evolution)
    return epoch.identity.mode is Mode.KEYED and (not plan.truncated or plan.soft_deletes)


def fold_together(
    spark: SparkSession, writer: TableWriter, staging: Staging, runs: Sequence[TableRun], at_once: int
) -> dict[int, Folded]:
    """Fold tables in one job; give those of which that could be done, by their numbers.

    Args:
        runs: of tables that can share one.
        at_once: how many tables are worked on at a time.

    Raises:
        WalReplayError: what a fold has against its events.
    """

    def begin(run: TableRun) -> tuple[SparkSession, Fold]:
        with session_with(spark, delta.SMALL_STATE) as own:
            return own, begin_fold(own, writer, staging, run, 0, exists=run.exists)

    with ThreadPoolExecutor(at_once) as pool:
        begun = list(pool.map(begin, runs))
    together = Together(spark)
    slots = {}
    for run, (own, fold) in zip(runs, begun, strict=True):
        if fold.shared is not None:
            rows, work = fold.shared
            slots[run.plan.number] = own, fold, together.add(rows, work, run.size)
    with refusals_told():
        found = together.run()
    return {number: Folded(own, fold, FilesWritten.of(found[slot])) for number, (own, fold, slot) in slots.items()}
