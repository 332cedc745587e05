"""Bring one mirror table up to date: its columns, then one commit for each of its epochs."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Final

import pyarrow as pa

from wal2delta.errors import TargetError
from wal2delta.report import Action, TableReport
from wal2delta.selection import MetadataNames
from wal2delta.sink.events import Mode
from wal2delta.sink.evolution import OWN, TableShape
from wal2delta.spark import delta, steps
from wal2delta.spark.altering import alter
from wal2delta.spark.appending import begin_append
from wal2delta.spark.arrow_types import sql_schema
from wal2delta.spark.commits import mounted_folder
from wal2delta.spark.isolation import own_session, settings
from wal2delta.spark.merging import (
    Counts,
    Merge,
    Written,
    append_folded,
    append_rows,
    kept_files,
    merge_kept,
    merge_keyed,
)
from wal2delta.spark.multisets import merge_multiset
from wal2delta.spark.staging import FEW_PARTS_A_BATCH, StagedRows, Staging
from wal2delta.spark.tables import Epoch, TablePlan
from wal2delta.spark.target import quote
from wal2delta.spark.workers import FoldTask, fold_batches, refusal_in

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_SLOTS: Final = 3
_ALTER, _TRUNCATE, _MERGE = range(_SLOTS)
"""The commits of an epoch: each has a number of its own."""
_RUN_BITS: Final = 16

_SHUFFLED: Final = "spark.sql.shuffle.partitions"

_FEW_CHANGES: Final = 10_000
_SMALL_TABLE: Final = 16 << 20

_EPOCHS: Final = 1 << 14
"""The epochs' steps have numbers from here on; those before are the moves of tables, which come first."""


@dataclass(frozen=True, slots=True)
class TableRun:
    """What a run does to one table, and how.

    Attributes:
        commit: the run's; its steps have numbers made of it (`step_of`).
        resumed: the run was begun before: the table may have some of its commits already.
        buckets: how many parts its changes were split into; ``tasks`` fold them.
        exists: the table is there; `check_table` has found it right.
    """

    plan: TablePlan
    commit: delta.CommitId
    resumed: bool
    buckets: int
    tasks: int
    exists: bool

    def step(self, epoch: int, slot: int) -> delta.CommitId:
        """Give the commit of a step."""
        return step_of(self.commit, _EPOCHS + epoch * _SLOTS + slot)


def step_of(commit: delta.CommitId, step: int) -> delta.CommitId:
    """Give the number of one of a run's steps on a table; those of later runs are higher."""
    return replace(commit, number=commit.number << _RUN_BITS | step)


def metadata_fields(metadata: MetadataNames) -> list[pa.Field]:
    """Give the columns that a table has behind its own."""
    fields = [
        (metadata.commit_lsn, pa.int64()),
        (metadata.commit_ts, pa.timestamp("us", "UTC")),
        (metadata.rescued_data, pa.string()),
    ]
    return [pa.field(name, kind) for name, kind in fields if name is not None]


def table_schema(shape: TableShape, metadata: MetadataNames) -> pa.Schema:
    """Give the Delta table's columns: the source's, in their order, then the metadata."""
    own = [pa.field(column.name, column.type.arrow) for column in shape.columns]
    return pa.schema([*own, *metadata_fields(metadata)])


def check_table(spark: SparkSession, plan: TablePlan, *, resumed: bool, moves_in: bool) -> bool:
    """Say whether a table is there, before anything is applied.

    Args:
        resumed: the run may have written to it already.
        moves_in: it will have come from elsewhere, or its place will have been left.

    Raises:
        TargetError: when it is there, but is somebody else's, or has been changed by somebody else.
    """
    table = plan.before.table if plan.before is not None and not resumed else plan.table
    if moves_in and (resumed or plan.before is None):
        # Where it lies just now depends on how far the moves have come.
        return plan.before is not None
    own = own_session(spark)
    with settings(own, delta.SMALL_STATE):
        found = delta.columns_of(own, table)
        if found is None:
            if plan.before is not None and not resumed:
                raise TargetError(
                    "the table is gone, though the ledger has written to it",
                    table=plan.name,
                    path=table.text,
                    remedy="Restore it, or apply to a new target",
                )
            return False
        if plan.before is None and not resumed:
            raise TargetError(
                "the table is there already, but was not made by this target's ledger",
                table=plan.name,
                path=table.text,
                remedy="Nothing was applied; move the table away, or apply to another target",
            )
        if plan.before is not None and not resumed:
            _check_columns(own, plan, found)
    return True


def _check_columns(spark: SparkSession, plan: TablePlan, found: Sequence[tuple[str, str]]) -> None:
    """Refuse a table whose columns are not what the last run has left."""
    assert plan.before is not None
    schema = spark.createDataFrame([], sql_schema(table_schema(plan.before.shape, plan.metadata))).schema
    expected = [(item.name, item.dataType.simpleString()) for item in schema.fields]
    if list(found) == expected:
        return
    there, wanted = dict(found), dict(expected)
    differing = [name for name in [*wanted, *there] if there.get(name) != wanted.get(name)]
    raise TargetError(
        "the table's columns are not those that its last run has left"
        + (f" ({', '.join(dict.fromkeys(differing))})" if differing else ", in their order"),
        table=plan.name,
        path=plan.before.table.text,
        remedy="A mirror must have no other writer; undo the change, or apply to a new target. Names of metadata "
        "columns and soft deletes cannot be changed for a table that is there",
    )


def apply_table(spark: SparkSession, staging: Staging, run: TableRun) -> TableReport:
    """Bring one table up to date; every commit is made once, whatever happened before."""
    began = time.monotonic()
    own = own_session(spark)
    plan = run.plan
    action: Action = "unchanged"
    counts = Counts()
    done: delta.Commit | None = None
    values = delta.SMALL_STATE | _shuffled(own, run)
    depth = delta.WHOLE_HISTORY if run.resumed else len(plan.epochs) * _SLOTS + 20
    with settings(own, values):
        exists = run.exists
        for number, epoch in enumerate(plan.epochs):
            commit = run.step(number, _MERGE)
            truncated = plan.truncated and number == 0
            if run.resumed and not exists:
                exists = delta.exists(own, plan.table)
            found = delta.find_commit(own, plan.table, commit, depth=depth) if run.resumed and exists else None
            if found is None:
                if exists and not (truncated and not plan.soft_deletes):
                    _alter(own, run, number, epoch)
                if exists and truncated and plan.soft_deletes:
                    _mark_deleted(own, run, number)
                delta.forget_version(own)
                action, written = _commit(own, staging, run, epoch, commit, exists=exists, truncated=truncated)
                more = written.counts
                counts += more
                version = written.version if written.version is not None else delta.last_version(own)
                if version is not None:
                    found = delta.Commit(version, written.metrics)
                else:
                    # It was skipped as made already, or the platform does not tell.
                    found = delta.find_commit(own, plan.table, commit, depth=depth)
                if found is None:
                    raise TargetError(
                        "the table's commit was made, but is not in its history",
                        table=plan.name,
                        path=plan.table.text,
                        remedy="Something else writes to this table; a mirror must have no other writer",
                    )
                counts = counts.against(found, more)
            done = found if done is None else done.joined(found)
            exists = True
    assert done is not None
    return TableReport(
        name=plan.name,
        location=plan.table.text,
        action=action,
        changes=plan.rows,
        inserted=done.rows("numTargetRowsInserted", "numOutputRows"),
        updated=done.rows("numTargetRowsUpdated"),
        deleted=done.rows("numTargetRowsDeleted"),
        truncated=plan.truncated,
        version=done.version,
        seconds=time.monotonic() - began,
        without_base=counts.without_base,
        deletes_without_row=counts.deletes_without_row,
        unknown=counts.unknown,
        oid=plan.oid,
        set_aside=plan.set_aside,
        notes=(*plan.notes, *counts.notes),
    )


def _shuffled(spark: SparkSession, run: TableRun) -> dict[str, str]:
    """Have a MERGE shuffle into as many parts as fold its rows, if that is more than is usual.

    It is not for fewer: what is merged into may be large.  Spark puts small parts together again by itself.
    """
    usual = spark.conf.get(_SHUFFLED, None) or ""
    # Databricks has "auto" there.
    return {_SHUFFLED: str(run.tasks)} if usual.isdigit() and int(usual) < run.tasks else {}


def _alter(spark: SparkSession, run: TableRun, number: int, epoch: Epoch) -> None:
    plan = run.plan
    changed = alter(
        spark,
        plan.table,
        epoch.evolution,
        metadata_fields(plan.metadata),
        plan.metadata.rescued_data,
        run.step(number, _ALTER),
        resumed=run.resumed,
    )
    if changed:
        steps.reached(f"columns changed: {plan.name}")


def _mark_deleted(spark: SparkSession, run: TableRun, number: int) -> None:
    """Mark all rows as deleted, where a truncate deletes softly."""
    name = next(column.name for column in run.plan.epochs[number].shape.columns if column.source == OWN)
    commit = run.step(number, _TRUNCATE)
    if run.resumed and delta.find_commit(spark, run.plan.table, commit, depth=delta.WHOLE_HISTORY) is not None:
        return
    with delta.committing(spark, commit):
        spark.sql(f"UPDATE {run.plan.table.sql} SET {quote(name)} = true WHERE NOT {quote(name)}")


def _commit(
    spark: SparkSession,
    staging: Staging,
    run: TableRun,
    epoch: Epoch,
    commit: delta.CommitId,
    *,
    exists: bool,
    truncated: bool,
) -> tuple[Action, Written]:
    plan = run.plan
    merge = Merge(
        table=plan.table,
        name=plan.name,
        shape=epoch.shape,
        metadata=plan.metadata,
        identity=epoch.identity,
        configured=epoch.configured,
        tracked=epoch.tracked,
        moves=epoch.moves,
        deletes=epoch.deletes,
        schema=table_schema(epoch.shape, plan.metadata),
        commit=commit,
        converts_key=epoch.converts_key,
    )
    overwrite = truncated and exists and not plan.soft_deletes
    with settings(spark, FEW_PARTS_A_BATCH):
        return _commit_folded(spark, staging, run, epoch, merge, exists=exists, overwrite=overwrite)


def _commit_folded(
    spark: SparkSession,
    staging: Staging,
    run: TableRun,
    epoch: Epoch,
    merge: Merge,
    *,
    exists: bool,
    overwrite: bool,
) -> tuple[Action, Written]:
    plan = run.plan
    try:
        few = epoch.rows <= _FEW_CHANGES
        if not exists or overwrite or epoch.identity.mode is Mode.APPEND:
            with settings(spark, delta.FEW_ROWS if few and not exists else {}):
                written = _write_rows(spark, staging, run, epoch, merge, create=not exists, overwrite=overwrite)
            return "created" if not exists else "overwritten" if overwrite else "appended", written
        if epoch.rows == 0:
            # Only the columns change: an empty commit stands for it.
            return "merged", append_rows(spark, None, merge, "append", create=False)
        with settings(spark, delta.FEW_ROWS if few else {}):
            is_small = few and delta.size_of(spark, plan.table) <= _SMALL_TABLE
        with settings(spark, delta.FEW_ROWS_REWRITTEN if is_small else {}):
            return "merged", _merge_rows(spark, staging, run, epoch, merge)
    except Exception as error:
        refusal = refusal_in(str(error))
        if refusal is not None:
            raise refusal from None
        raise


def _write_rows(
    spark: SparkSession,
    staging: Staging,
    run: TableRun,
    epoch: Epoch,
    merge: Merge,
    *,
    create: bool,
    overwrite: bool,
) -> Written:
    """Write rows in front of which the table holds none, or to which it is open."""
    if not overwrite:
        append = begin_append(spark, merge.table, merge.schema, create=create)
        if append is not None:
            task = _fold_task(run, epoch)
            return append_folded(append, _events(spark, staging, run, epoch, task) if epoch.rows else None, task, merge)
    rows = _folded(spark, staging, run, epoch) if epoch.rows else None
    return append_rows(spark, rows, merge, "overwrite" if overwrite else "append", create=create)


def _merge_rows(spark: SparkSession, staging: Staging, run: TableRun, epoch: Epoch, merge: Merge) -> Written:
    if epoch.identity.mode is Mode.MULTISET:
        return merge_multiset(spark, _folded(spark, staging, run, epoch), merge)
    path = staging.kept_rows_path
    folder = None if path is None else mounted_folder(spark, path)
    if folder is None:
        return merge_keyed(spark, _folded(spark, staging, run, epoch), merge)
    task = _fold_task(run, epoch)
    with kept_files(spark, _events(spark, staging, run, epoch, task), task, folder) as (kept, found):
        return merge_kept(spark, kept, found, merge)


def _folded(spark: SparkSession, staging: Staging, run: TableRun, epoch: Epoch) -> DataFrame:
    """Give the rows to merge; see `wal2delta.sink.merge.merge_schema`."""
    task = _fold_task(run, epoch)
    events = _events(spark, staging, run, epoch, task)
    return events.mapInArrow(partial(fold_batches, task=task), sql_schema(task.schema))


def _fold_task(run: TableRun, epoch: Epoch) -> FoldTask:
    return FoldTask(
        types=tuple(column.type.arrow for column in epoch.shape.columns),
        names=tuple(column.name for column in epoch.shape.columns),
        identity=epoch.identity,
        tracked=epoch.tracked,
        moves=epoch.moves,
        projections=epoch.projections,
        table=run.plan.name,
    )


def _events(spark: SparkSession, staging: Staging, run: TableRun, epoch: Epoch, task: FoldTask) -> DataFrame:
    rows = StagedRows(
        run.plan.number,
        epoch.start,
        epoch.stop,
        epoch.moves,
        together=epoch.converts_key,
        buckets=run.buckets,
        tasks=run.tasks,
    )
    return staging.read(spark, rows, task)


__all__ = ["TableRun", "apply_table", "check_table", "metadata_fields", "step_of", "table_schema"]
