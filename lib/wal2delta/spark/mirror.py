"""Bring one mirror table up to date: its columns, then one commit for each of its epochs."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Final

from wal2delta.errors import TargetError
from wal2delta.report import Action, TableReport
from wal2delta.sink.events import Mode
from wal2delta.sink.evolution import OWN
from wal2delta.sink.lineage import Standing
from wal2delta.spark import delta, steps
from wal2delta.spark.altering import alter
from wal2delta.spark.arrow_types import sql_schema
from wal2delta.spark.folding import Folded, begin_fold
from wal2delta.spark.isolation import session_with, settings
from wal2delta.spark.merging import Counts, Written, append_rows, merge_keyed
from wal2delta.spark.multisets import merge_multiset
from wal2delta.spark.staging import FEW_PARTS_A_BATCH, Staging
from wal2delta.spark.standing import Known, refuse_changed, standing_of
from wal2delta.spark.table_run import ALTER, MERGE, SLOTS, TRUNCATE, TableRun, metadata_fields, table_schema
from wal2delta.spark.tables import Epoch, TablePlan
from wal2delta.spark.target import quote
from wal2delta.spark.workers import fold_batches, refusals_told

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_SHUFFLED: Final = "spark.sql.shuffle.partitions"

_FEW_CHANGES: Final = 10_000
_SMALL_TABLE: Final = 16 << 20


@dataclass(frozen=True, slots=True)
class Found:
    """What a table was found to be, before anything is applied to it.

    Attributes:
        exists: it is there.
        standing: against what the ledger knows; None where that does not tell, or is told later.
    """

    exists: bool
    standing: Standing | None = None


def check_table(
    spark: SparkSession, plan: TablePlan, ledger: str, *, resumed: bool, moves_in: bool, accepts: bool
) -> Found:
    """Say whether a table is there, and how it stands, before anything is applied.

    Args:
        ledger: the ledger's id.
        resumed: the run may have written to it already: how it stands is looked at when it has its place.
        moves_in: it will have come from elsewhere, or its place will have been left.
        accepts: what others have changed is taken as it is.

    Raises:
        TargetError: when it is there, but is somebody else's, or has been changed by somebody else.
    """
    table = plan.before.table if plan.before is not None and not resumed else plan.table
    if moves_in and (resumed or plan.before is None):
        # Where it lies just now depends on how far the moves have come.
        return Found(plan.before is not None)
    with session_with(spark, delta.SMALL_STATE) as own:
        found = delta.columns_of(own, table)
        if found is None:
            if plan.before is not None and not resumed:
                raise TargetError(
                    "the table is gone, though the ledger has written to it: it was removed, or it was renamed by a "
                    "run that the ledger does not know of any more",
                    table=plan.name,
                    path=table.text,
                    remedy="Nothing was applied; bring back what is gone, or the ledger as it was; or apply to a new "
                    "target",
                )
            return Found(False)
        if resumed:
            return Found(True)
        standing = standing_of(own, table, Known(plan.name, ledger, plan.before))
        if plan.before is None:
            if standing is None or not _is_of_ledger(standing, plan.oid):
                raise _not_made(plan)
            return Found(True, standing)
        if standing is not None and standing.changed is not None and (standing.ahead or not accepts):
            raise refuse_changed(table, plan.name, standing)
        if standing is None or not standing.ahead:
            _check_columns(own, plan, found)
    return Found(True, standing)


def check_again(spark: SparkSession, run: TableRun, run_id: str, *, accepts: bool) -> Standing | None:
    """Say how a table stands that an interrupted run goes on with; None if it is not there yet.

    Args:
        run_id: of that run.

    Raises:
        TargetError: when somebody else has changed it meanwhile.
    """
    plan = run.plan
    with session_with(spark, delta.SMALL_STATE) as own:
        if not delta.exists(own, plan.table):
            return None
        standing = standing_of(own, plan.table, Known(plan.name, run.commit.application, plan.before, run_id))
    if standing is None or standing.changed is None or accepts:
        return standing
    if plan.before is None and not standing.steps:
        raise _not_made(plan)
    raise refuse_changed(plan.table, plan.name, standing)


def _is_of_ledger(standing: Standing, oid: int) -> bool:
    """Say whether a table that the ledger does not know was made by it for a relation all the same."""
    ahead = standing.ahead
    return standing.changed is None and bool(ahead) and all(commit.oid == oid for commit in ahead)


def _not_made(plan: TablePlan) -> TargetError:
    return TargetError(
        "the table is there already, but was not made by this target's ledger",
        table=plan.name,
        path=plan.table.text,
        remedy="Nothing was applied; move the table away, or apply to another target",
    )


def _check_columns(spark: SparkSession, plan: TablePlan, found: Sequence[tuple[str, str]]) -> None:
    """Refuse a table whose columns are not what the last run has left."""
    assert plan.before is not None
    schema = spark.createDataFrame([], sql_schema(table_schema(plan.before.shape, plan.metadata))).schema
    expected = [(item.name, item.dataType.simpleString()) for item in schema.fields]
    if list(found) == expected:
        return
    there, wanted = dict(found), dict(expected)
    before = plan.before
    restore = f" (RESTORE TABLE {before.table.sql} TO VERSION AS OF {before.left})" if before.left is not None else ""
    differing = [name for name in [*wanted, *there] if there.get(name) != wanted.get(name)]
    raise TargetError(
        "the table's columns are not those that its last run has left"
        + (f" ({', '.join(dict.fromkeys(differing))})" if differing else ", in their order"),
        table=plan.name,
        path=plan.before.table.text,
        remedy=f"A mirror must have no other writer; undo the change{restore}, or apply to a new target. Names of "
        "metadata columns and soft deletes cannot be changed for a table that is there",
    )


def apply_table(spark: SparkSession, staging: Staging, run: TableRun, folded: Folded | None = None) -> TableReport:
    """Bring one table up to date; every commit is made once, whatever happened before.

    Args:
        folded: what was folded of it with other tables.
    """
    began = time.monotonic()
    plan = run.plan
    action: Action = "unchanged"
    counts = Counts()
    done: delta.Commit | None = None
    depth = delta.WHOLE_HISTORY if run.resumed else len(plan.epochs) * SLOTS + 20
    session = session_with(spark, delta.SMALL_STATE) if folded is None else nullcontext(folded.spark)
    with session as own, settings(own, _shuffled(own, run)):
        exists = run.exists
        for number, epoch in enumerate(plan.epochs):
            commit = run.step(number, MERGE)
            truncated = plan.truncated and number == 0
            if run.resumed and not exists:
                exists = delta.exists(own, plan.table)
            found = delta.find_commit(own, plan.table, commit, depth=depth) if run.may_have(commit) and exists else None
            if found is None:
                overwrite = exists and number == 0 and (plan.before is None or (truncated and not plan.soft_deletes))
                if exists and not overwrite:
                    _alter(own, run, number, epoch)
                    if truncated:
                        _mark_deleted(own, run, number)
                delta.forget_version(own)
                action, written = _commit(own, staging, run, number, folded, exists=exists, overwrite=overwrite)
                more = written.counts
                counts += more
                version = written.version if written.version is not None else delta.last_version(own)
                if version is not None:
                    found = delta.Commit(version, written.metrics)
                else:
                    # It was skipped as made already, or the platform does not tell.
                    found = delta.find_commit(own, plan.table, commit, depth=depth)
                if found is None or (run.standing is not None and found.version <= run.standing.latest):
                    raise _not_in_history(plan)
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


def _not_in_history(plan: TablePlan) -> TargetError:
    return TargetError(
        "the table's commit is not in its history: another one has its number, or something else writes to the table",
        table=plan.name,
        path=plan.table.text,
        remedy="A mirror must have no other writer, and its ledger must not be set back while a run is at work; run "
        "again, which looks at both",
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
        run.step(number, ALTER),
        run.check_lock,
        resumed=run.may_have(run.step(number, ALTER)),
    )
    if changed:
        steps.reached(f"columns changed: {plan.name}")


def _mark_deleted(spark: SparkSession, run: TableRun, number: int) -> None:
    """Mark all rows as deleted, where a truncate deletes softly."""
    name = next(column.name for column in run.plan.epochs[number].shape.columns if column.source == OWN)
    commit = run.step(number, TRUNCATE)
    if run.may_have(commit) and delta.find_commit(spark, run.plan.table, commit, depth=delta.WHOLE_HISTORY) is not None:
        return
    with delta.committing(spark, commit):
        spark.sql(f"UPDATE {run.plan.table.sql} SET {quote(name)} = true WHERE NOT {quote(name)}")


def _commit(
    spark: SparkSession,
    staging: Staging,
    run: TableRun,
    number: int,
    folded: Folded | None,
    *,
    exists: bool,
    overwrite: bool,
) -> tuple[Action, Written]:
    """Fold an epoch's rows, if they are not folded yet, and make its commit."""
    epoch, merge = run.plan.epochs[number], run.merge(number)
    is_merged = exists and not overwrite and epoch.identity.mode is not Mode.APPEND
    action: Action = "created" if not exists else "overwritten" if overwrite else "merged" if is_merged else "appended"
    if is_merged and epoch.rows == 0:
        # Only the columns change: an empty commit stands for it.
        return action, append_rows(spark, None, merge, "append", create=False)
    fold = folded.fold if folded is not None else None
    files = folded.written if folded is not None else None
    with settings(spark, FEW_PARTS_A_BATCH), refusals_told():
        if fold is None and not overwrite:
            fold = begin_fold(spark, staging, run, number, exists=exists)
            files = fold.run(spark) if fold is not None else None
        run.check_lock()
        if fold is not None and fold.rewrite is not None and files is not None and files.anew:
            written = fold.rewrite.commit(files, merge)
            if written is not None:
                return action, written
            fold = begin_fold(spark, staging, run, number, exists=exists, may_rewrite=False)
            files = fold.run(spark) if fold is not None else None
        # To ask for a table's size takes longer than to write a small one anew.
        with settings(spark, _few_rows(spark, run, epoch, exists=exists, is_merged=is_merged)):
            if fold is not None:
                return action, fold.commit(spark, files)
            rows = _folded_rows(spark, staging, run, epoch) if epoch.rows else None
            if not is_merged:
                mode = "overwrite" if overwrite else "append"
                return action, append_rows(spark, rows, merge, mode, create=not exists)
            assert rows is not None
            merge_rows = merge_multiset if epoch.identity.mode is Mode.MULTISET else merge_keyed
            return action, merge_rows(spark, rows, merge)


def _few_rows(spark: SparkSession, run: TableRun, epoch: Epoch, *, exists: bool, is_merged: bool) -> Mapping[str, str]:
    """Give the settings for a commit of few rows to a new or a small table; none for others."""
    if epoch.rows > _FEW_CHANGES:
        return {}
    if not is_merged:
        return {} if exists else delta.FEW_ROWS
    with settings(spark, delta.FEW_ROWS):
        return delta.FEW_ROWS_REWRITTEN if delta.size_of(spark, run.plan.table) <= _SMALL_TABLE else {}


def _folded_rows(spark: SparkSession, staging: Staging, run: TableRun, epoch: Epoch) -> DataFrame:
    """Give the rows to merge; see `wal2delta.sink.merge.merge_schema`."""
    task = run.fold_task(epoch)
    return run.events(spark, staging, epoch, task).mapInArrow(partial(fold_batches, task=task), sql_schema(task.schema))


__all__ = ["Found", "apply_table", "check_again", "check_table"]
