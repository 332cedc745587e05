"""Fold many tables in one Spark job, before each gets its own commit.

A fold depends only on the staged events, not on the table, and for most tables takes next to no time.  A job takes some
tens of milliseconds however little it does, and so does each of its tasks.  Tasks that read staged rows and write files
themselves need nothing that Spark has to bring together, so all tables can share a job (`Together`).
"""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Final

from walreplay.delta import statements as delta
from walreplay.delta.statements import sql_schema
from walreplay.session.isolation import session_with
from walreplay.spark.staged_rows import FileRows
from walreplay.spark.staging import Staging
from walreplay.spark.staging_tasks import TableShare, work_together
from walreplay.spark.workers.rows import Work, refusals_told
from walreplay.spark.workers.write import FILES, FilesWritten
from walreplay.table.table_run import TableRun
from walreplay.writing.alter import alters
from walreplay.writing.writer import Fold, TableWriter

if TYPE_CHECKING:
    from pyspark.sql import Row, SparkSession


_BYTES_A_TASK: Final = 8 << 20
_LEAST_BYTES: Final = 256 << 10
"""The fixed cost of a share, as the number of bytes that take as long to process."""


@dataclass
class Together:
    """Functions that are run in one job; each gives rows of `walreplay.spark.workers.write.FILES`."""

    spark: SparkSession
    _parts: list[tuple[int, TableShare]] = field(default_factory=list)
    _slots: int = 0

    def add(self, rows: FileRows, work: Work, size: int) -> int:
        """Add a function; return the position of its rows in the result of `run`.

        Args:
            rows: the staged rows that it works on.
            work: the function.
            size: bytes of the rows.
        """
        slot, count = self._slots, rows.shares.count
        self._slots += 1
        weight = _LEAST_BYTES + size // count
        self._parts += [(weight, TableShare(slot, work, rows.shares, number)) for number in range(count)]
        return slot

    def run(self) -> list[list[Row]]:
        """Run all functions; return the rows of each, in the order in which they were added."""
        found: list[list[Row]] = [[] for _ in range(self._slots)]
        bins = self._bins()
        if bins:
            with session_with(self.spark, delta.FEW_ROWS) as own:
                numbers = own.range(0, len(bins), 1, len(bins))
                frame = numbers.mapInArrow(partial(work_together, bins=bins), f"slot INT, {sql_schema(FILES)}")
                for row in frame.collect():
                    found[row.slot].append(row)
        return found

    def _bins(self) -> list[list[TableShare]]:
        """Divide the parts among tasks: the largest first, each to the task that has least to do."""
        total = sum(weight for weight, _ in self._parts)
        bins: list[list[TableShare]] = [[] for _ in range(min(len(self._parts), -(-total // _BYTES_A_TASK)))]
        least = [(0, number) for number in range(len(bins))]
        for weight, part in sorted(self._parts, key=lambda item: -item[0]):
            taken, number = least[0]
            bins[number].append(part)
            heapq.heapreplace(least, (taken + weight, number))
        return bins


_MOST_TOGETHER: Final = 64
"""So many tables share a job at most: each holds a session and a transaction until its commit."""

_MOST_BYTES: Final = 512 << 20
"""Tables that share a job have so many bytes of staged events together, at most: all wait for the end of the job."""
_MOST_BYTES_OF_ONE: Final = 128 << 20
"""A table with more staged events has a job of its own."""


@dataclass(frozen=True, slots=True)
class FoldedTable:
    """A table's only epoch, folded in a job with other tables; ``spark`` is the session for its commit."""

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
    """Begin to bring an epoch's rows to their table; see `walreplay.writing.writer.TableWriter.fold`."""
    stays = "its changes are many" if run.tasks > 1 else ""
    if run.plan.metadata.share is not None:
        stays = "several sources share it"
    return writer.fold(spark, staging, run, number, exists=exists, overwrite=overwrite, stays=stays)


def groups_of(runs: Sequence[TableRun], writer: TableWriter) -> list[list[TableRun]]:
    """Divide tables into groups: the first is of tables that share no job, each other one of tables that share one."""
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
    """Return whether a table can be folded before anything else is done with it, in a job with other tables."""
    plan = run.plan
    if plan.metadata.share is not None and plan.before is None:
        # The table is not ready yet.
        return False
    if run.resumed or len(plan.epochs) > 1 or run.size > _MOST_BYTES_OF_ONE:
        return False
    (epoch,) = plan.epochs
    if not epoch.rows or (epoch.moves and run.tasks > 1):
        return False
    if not run.exists:
        return True
    if run.anew or plan.changes_comment or (plan.before is not None and plan.before.layout != plan.layout):
        # A transaction that begins now would conflict with the change of the table's properties.
        return False
    # Nor may the table be truncated or its columns change in between.
    return not plan.truncated and not alters(epoch.evolution)


def fold_together(
    spark: SparkSession, writer: TableWriter, staging: Staging, runs: Sequence[TableRun], at_once: int
) -> dict[int, FoldedTable]:
    """Fold tables in one job.

    Args:
        runs: a group of tables that can share a job (`groups_of`).
        at_once: how many threads begin folds.

    Returns:
        the tables that were folded, by their plans' numbers.  The others have to be folded by themselves.

    Raises:
        WalReplayError: a table's events cannot be folded, for example because its key is not unique.
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
    return {number: FoldedTable(own, fold, FilesWritten.of(found[slot])) for number, (own, fold, slot) in slots.items()}
