"""Bring one mirror table up to date: its columns, then one commit for each of its epochs.

Its configured properties and clustering, and its comment, are set only when they have changed.  The ledger has what was
set last, so an unchanged table is not asked.  None of this changes rows or columns: after a killed run it is repeated.

Many tables are folded in one Spark job, before each gets its own commit (`fold_together`).  A fold depends only on the
staged events, not on the table, and for most tables takes next to no time.  A job takes some tens of milliseconds
however little it does, and so does each of its tasks.  Tasks that read staged rows and write files themselves need
nothing that Spark has to bring together, so all tables can share a job.
"""

from __future__ import annotations

import heapq
import time
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Final

from pyspark.sql import functions as f

from walreplay.config.keys import HISTORY_COLUMNS
from walreplay.delta import statements as delta
from walreplay.delta.commits import LoggedCommit
from walreplay.delta.opened import FEW_COMMITS, WHOLE_HISTORY, OpenedTable
from walreplay.delta.statements import sql_schema
from walreplay.delta.target import quote
from walreplay.errors import LedgerConflict
from walreplay.fold.events import IN_PARTITIONS
from walreplay.names import RowKind
from walreplay.report import Action, TableReport, WriterKind
from walreplay.session import steps
from walreplay.session.isolation import has_own_sessions, session_with, settings
from walreplay.spark.staging import FileRows, Staging
from walreplay.spark.workers.rows import Work, refusals_told
from walreplay.spark.workers.write import FILES, FilesWritten, Shares, TableShare, work_together
from walreplay.table.cases import ACTIONS, CommitKind
from walreplay.table.plan import TablePlan
from walreplay.table.table_run import TRUNCATE, Merge, TableRun, is_own, own_rows
from walreplay.writing.alter import alter, alters, alters_columns
from walreplay.writing.by_statements import Fold, TableWriter, merge_fold
from walreplay.writing.merge import APPENDED, RowCounts, Written, claim_refuted, write_rows
from walreplay.writing.move import not_in_history
from walreplay.writing.shared_table import alter_own, make_ready

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, Row, SparkSession


_BYTES_A_TASK: Final = 8 << 20
_SHARE_COST_BYTES: Final = 256 << 10  # The fixed cost of a share, as the number of bytes that take as long to process


def parts_of(table: int, size: int, shares: Shares, work: Work) -> list[tuple[int, TableShare]]:
    """Return the parts of a table's fold, each with its weight.

    Args:
        table: the table's number.
        size: bytes of all shares.
    """
    weight = _SHARE_COST_BYTES + size // shares.count  # even a share without rows costs something
    return [(weight, TableShare(table, work, shares, number)) for number in range(shares.count)]


def bins_of(parts: Sequence[tuple[int, TableShare]]) -> list[list[TableShare]]:
    """Divide parts among tasks: the largest first, each to the task that has least to do."""
    total = sum(weight for weight, _ in parts)
    bins: list[list[TableShare]] = [[] for _ in range(min(len(parts), -(-total // _BYTES_A_TASK)))]
    bins_by_load = [(0, number) for number in range(len(bins))]
    for weight, part in sorted(parts, key=lambda item: -item[0]):
        load, number = bins_by_load[0]
        bins[number].append(part)
        heapq.heapreplace(bins_by_load, (load + weight, number))  # the heap's first bin has the least to do
    return bins


_MAX_SHARED_TABLES: Final = 64
"""So many tables share a job at most: each holds a session and a transaction until its commit."""

_MAX_SHARED_BYTES: Final = 512 << 20
"""Tables that share a job have so many bytes of staged events together, at most: all wait for the end of the job."""
_MAX_TABLE_BYTES: Final = 128 << 20  # A table with more staged events has a job of its own


@dataclass(frozen=True, slots=True)
class FoldedTable:
    """A table's only epoch, folded in a job with other tables; ``spark`` is the session for its commit."""

    spark: SparkSession
    fold: Fold
    written: FilesWritten


def groups_of(spark: SparkSession, runs: Sequence[TableRun]) -> list[list[TableRun]]:
    """Divide tables into groups: the first is of tables that share no job, each other one of tables that share one."""
    has_sessions = has_own_sessions(spark)  # each folded table holds one until its commit
    alone: list[TableRun] = []
    groups: list[list[TableRun]] = [[]]
    size = 0
    for run in runs:
        if not has_sessions or not _can_share(run):
            alone.append(run)
            continue
        if groups[-1] and (len(groups[-1]) == _MAX_SHARED_TABLES or size + run.size > _MAX_SHARED_BYTES):
            groups.append([])
            size = 0
        groups[-1].append(run)
        size += run.size
    return [alone, *filter(None, groups)]


def _can_share(run: TableRun) -> bool:
    """Return whether a table can be folded before anything else is done with it, in a job with other tables."""
    plan = run.plan
    if plan.metadata.share is not None and plan.before is None:  # make_ready has still to create it or add columns
        return False
    if run.resumed or len(plan.epochs) > 1 or run.size > _MAX_TABLE_BYTES:  # some epochs may be committed already
        return False
    (merge,) = run.merges
    if not merge.epoch.rows or (merge.epoch.moves and run.tasks > 1):  # linked keys are brought together by a shuffle
        return False
    if merge.case.commit not in (CommitKind.APPEND, CommitKind.MERGE):
        return merge.case.commit is CommitKind.CREATE
    # A transaction that begins now would conflict with a change of the table's properties or columns, or a truncate.
    is_laid_out = not plan.changes_comment and (plan.before is None or plan.before.layout == plan.layout)
    return is_laid_out and not plan.truncated and not alters(merge.epoch.evolution)


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
        # Settings of a session of its own stay until the commit; without such sessions no folds are shared.
        with session_with(spark, delta.SMALL_STATE) as session:
            return session, writer.fold(session, staging, run.merges[0])

    with ThreadPoolExecutor(at_once) as pool:
        folds = list(pool.map(begin, runs))
    bins = bins_of(
        [
            part
            for run, (_, fold) in zip(runs, folds, strict=True)
            if isinstance(fold.rows, FileRows)  # tasks read the rows themselves
            for part in parts_of(run.plan.number, run.size, fold.rows.shares, fold.work)
        ]
    )
    written = defaultdict[int, list["Row"]](list)
    if bins:
        with refusals_told(), session_with(spark, delta.FEW_ROWS) as job_session:
            numbers = job_session.range(0, len(bins), 1, len(bins))  # one task for each bin
            frame = numbers.mapInArrow(partial(work_together, bins=bins), f"table INT, {sql_schema(FILES)}")
            for row in frame.collect():
                written[row.table].append(row)
    return {
        run.plan.number: FoldedTable(session, fold, FilesWritten.of(written[run.plan.number]))
        for run, (session, fold) in zip(runs, folds, strict=True)
        if run.plan.number in written
    }


def _set_properties(spark: SparkSession, merge: Merge) -> None:
    """Set an existing table's properties and comment, and unset properties that are no longer configured."""
    plan, before = merge.plan, merge.plan.before
    if merge.number > 0:  # later epochs find them set
        return
    layout, properties = merge.run.layout(spark), dict(plan.layout.properties)
    old_properties = {} if before is None else dict(before.layout.properties)
    layout.unset(old_properties, properties)
    if properties != old_properties:
        layout.ensure(properties)
    if before is not None and plan.changes_comment:
        layout.say(before.comment, plan.comment)
    # Delta does not drop a column that clusters; `set_layout` puts the clustering back.
    if before is not None and before.layout.cluster_by and _changes(plan):
        layout.cluster(())


def set_layout(spark: SparkSession, run: TableRun, writer_kind: WriterKind | None) -> None:
    """Set what a table can only have once it exists with all its columns.

    That is its clustering.  If a DataFrame's write has created the table at a path, it is also its comment and the
    properties that are not Delta's own.

    Args:
        writer_kind: how this run has made the table's commits; None if it has made none itself.
    """
    plan, layout = run.plan, run.layout(spark)
    if plan.before is None and plan.table.path is not None and writer_kind != "files":
        is_new = writer_kind is not None and not run.resumed and plan.metadata.share is None
        layout.say("", plan.comment, is_new=is_new)
    if plan.before is None and any(not name.startswith("delta.") for name, _ in plan.layout.properties):
        layout.ensure(dict(plan.layout.properties))
    old_columns = () if plan.before is None else plan.before.layout.cluster_by
    columns = plan.layout.cluster_by
    # A change of columns, a truncate or an interrupted run may have removed the clustering.
    if columns != old_columns or (columns and (_changes(plan) or plan.truncated or run.resumed)):
        layout.cluster(columns)


def _changes(plan: TablePlan) -> bool:
    return any(alters_columns(epoch.evolution) for epoch in plan.epochs)


_SHUFFLE_PARTITIONS: Final = "spark.sql.shuffle.partitions"


def apply_table(
    spark: SparkSession, writer: TableWriter, staging: Staging, run: TableRun, folded: FoldedTable | None = None
) -> TableReport:
    """Bring one table up to date; no commit is made twice, whatever an interrupted run has done before.

    Args:
        folded: the table's fold, if it was done in a job with other tables.

    Raises:
        WalReplayError: the events cannot be applied, or somebody else has written to the table.
    """
    began = time.monotonic()
    plan = run.plan
    action: Action = "unchanged"
    counts = RowCounts()
    commits: list[LoggedCommit] = []
    writes: list[Written] = []
    context = session_with(spark, delta.SMALL_STATE) if folded is None else nullcontext(folded.spark)
    with context as session, settings(session, _shuffle_settings(session, run)):
        if run.resumed:
            run = _with_steps(session, run)
        for merge in run.merges:
            applied = run.steps.get(merge.commit)
            if applied is None:
                if plan.metadata.share is not None:
                    run = make_ready(session, merge)
                    merge = run.merges[merge.number]
                if action == "unchanged":
                    action = action_of(run)  # of all epochs, so it is asked for the first that is made
                written = _apply_epoch(session, writer, staging, merge, folded)
                epoch_counts = written.counts
                writes += [written] if written.writer_kind is not None else []  # an empty commit has no writer
                applied = _committed(session, merge, written)
            else:
                _check_form(merge, applied)  # it must be what this plan would write
                epoch_counts = RowCounts(**(applied.id.counts or {})) if applied.id is not None else RowCounts()
            # A MERGE's metrics show how many of the rows that it should have updated or deleted were there.
            counts = (counts + epoch_counts).against(applied, epoch_counts)
            commits.append(applied)
        set_layout(session, run, writes[0].writer_kind if writes else None)
    return replace(_reported(run, action, commits, writes, counts), seconds=time.monotonic() - began)


def _with_steps(spark: SparkSession, run: TableRun) -> TableRun:
    """Return a run that was begun before, with what it has done to its table already."""
    opened, standing = OpenedTable(spark, run.plan.table), run.standing
    if not opened.exists or (standing is not None and not standing.steps):
        return replace(run, exists=opened.exists)
    # The history also has what a RESTORE has undone; the comparison with the ledger has not.
    made = {id_: commit for id_, commit in opened.made.items() if standing is None or id_.number in standing.steps}
    return replace(run, exists=True, steps=made)


def planned_report(run: TableRun) -> TableReport:
    """Report what is known of a table before it is written to."""
    plan = run.plan
    report = TableReport(plan.name, plan.table.text, action_of(run), plan.rows, truncated=plan.truncated)
    return replace(report, oid=plan.oid, set_aside=plan.set_aside, notes=plan.notes)


def _reported(
    run: TableRun, action: Action, commits: Sequence[LoggedCommit], writes: Sequence[Written], counts: RowCounts
) -> TableReport:
    """Report what the commits of a table's epochs have done to it.

    Args:
        writes: those of them that this run has written itself; an interrupted one may have made the others.
    """
    kinds = {write.writer_kind for write in writes}
    return replace(
        planned_report(run),
        action=action,
        # A MERGE's metrics have both, and its output holds rows that it has only copied.
        inserted=sum(commit.count("numTargetRowsInserted", "numOutputRows") for commit in commits),
        updated=sum(commit.count("numTargetRowsUpdated") for commit in commits),
        deleted=sum(commit.count("numTargetRowsDeleted") for commit in commits),
        version=commits[-1].version,
        without_base=counts.without_base,
        deletes_without_row=counts.deletes_without_row,
        unknown=counts.unknown,
        notes=(*run.plan.notes, *counts.notes),
        writer=None if not kinds else "files" if kinds == {"files"} else "statements",
        writer_reason=next((write.reason for write in writes if write.reason), None),
    )


def check_not_another_table(spark: SparkSession, staging: Staging, run: TableRun) -> None:
    """Fold a table's first rows, if it must be renamed to take them, before it is moved.

    Raises:
        CaptureError: they show that they are another table's (`Identity.claims`).
    """
    merge = run.merges[0]
    claim = merge.identity.claims
    if claim is None or claim == IN_PARTITIONS or merge.identity.evicts or not merge.epoch.rows:
        return
    with session_with(spark, delta.SMALL_STATE) as session, refusals_told():
        fold = merge_fold(session, staging, merge)
        with fold.read(session, fold.run(session)) as folded:
            if _meets_old_rows(session, merge, folded.where("claimed")):
                raise claim_refuted(claim, run.plan.name)


def _meets_old_rows(spark: SparkSession, merge: Merge, claimed: DataFrame) -> bool:
    """Return whether a table that is to be renamed has a row under a key that is claimed to be free.

    Then the key's rows are another table's.
    """
    plan = merge.plan
    if claimed.isEmpty() or plan.before is None or plan.truncated:  # after a truncate the key is free
        return False
    old_columns = {column.id: column for column in plan.before.shape.columns}
    keys = [(number, merge.shape.columns[number]) for number in merge.identity.key]
    # The keys can only be compared with the old rows if the old table has them with the same types.
    if any(column.id not in old_columns or column.type != old_columns[column.id].type for _, column in keys):
        return False
    rows = spark.sql(f"SELECT * FROM {own_rows(plan.before.table, plan.metadata.share)}").alias("t")
    has_versions = plan.metadata.rows is RowKind.VERSION
    if has_versions:
        rows = rows.where(f"{quote(HISTORY_COLUMNS['end_lsn'])} IS NULL")
    pairs = [
        f"t.{quote(old_columns[column.id].name)} = s.{f'b{k}' if has_versions or merge.epoch.moves else f'c{number}'}"
        for k, (number, column) in enumerate(keys)
    ]
    return not claimed.alias("s").join(rows, f.expr(" AND ".join(pairs)), "left_semi").isEmpty()


def action_of(run: TableRun) -> Action:
    """Return what a run's commits are for a table; its first epoch alone may create it or replace its rows."""
    return max((merge.case.action for merge in run.merges), key=ACTIONS.index)


def _apply_epoch(
    spark: SparkSession, writer: TableWriter, staging: Staging, merge: Merge, folded: FoldedTable | None
) -> Written:
    """Do what an epoch's case needs first; fold its rows, unless that was done before; and make the commit."""
    kind = merge.case.commit
    if kind is CommitKind.REFUSED:
        raise merge.run.gone
    for prepare in _PREPARATIONS[kind]:
        prepare(spark, merge)
    delta.forget_version(spark)  # Delta does not set it for a commit that it skips as made before
    if kind is CommitKind.EMPTY:
        write_rows(spark, None, merge, merge.commit, CommitKind.APPEND)
        return Written(RowCounts(), {APPENDED: "0"}, writer_kind=None)
    with refusals_told():
        if folded is not None:
            fold, files = folded.fold, folded.written
        else:
            fold = writer.fold(spark, staging, merge)
            files = fold.run(spark)  # the long part, before the lock is checked once more
        merge.run.check_lock()
        written = fold.commit(spark, files)
    if kind is CommitKind.OVERWRITE and _changes_types(merge):  # else readers fail on statistics of the old types
        OpenedTable(spark, merge.plan.table).checkpoint()
    return written if written.reason else replace(written, reason=fold.reason)


def _check_form(merge: Merge, commit: LoggedCommit) -> None:
    """Refuse to take a commit of an interrupted run for an epoch that has become another one.

    Raises:
        LedgerConflict: the configuration has changed in between.
    """
    if commit.id is None or commit.id.form in (None, merge.form):
        return
    raise LedgerConflict(
        "the run was interrupted behind its commit of the table, and the configuration has changed since: the table's "
        "columns, or what tells its rows apart, would be others now",
        table=merge.plan.name,
        path=merge.plan.table.text,
        remedy="Run again with the configuration that the run was begun with, which finishes it; then change it",
    )


def _committed(spark: SparkSession, merge: Merge, written: Written) -> LoggedCommit:
    """Return the commit that was just made; if it is not in the table's history, raise a TargetError."""
    plan, run = merge.plan, merge.run
    version = written.version if written.version is not None else delta.last_version(spark)
    if version is not None:
        return LoggedCommit(version, "", metrics=written.metrics)  # its counts are known: no look into the history
    # Delta skipped it because it was made before, or the platform does not report versions.
    is_near = not run.resumed and plan.metadata.share is None
    commit = OpenedTable(spark, plan.table).find(merge.commit, FEW_COMMITS if is_near else WHOLE_HISTORY)
    # One from before a resumed run would mean that the ledger was set back; of others a moved copy has new versions.
    latest = run.standing.latest if run.resumed and run.standing is not None else -1
    if commit is None or commit.version <= latest:
        raise not_in_history(plan.name, plan.table, "run again, which looks at both")
    return commit


def _shuffle_settings(spark: SparkSession, run: TableRun) -> dict[str, str]:
    """Return the setting with which a MERGE shuffles into as many parts as there are folding tasks, if these are more.

    The number is never lowered, because the table may be large.  Spark joins small parts by itself.
    """
    configured = spark.conf.get(_SHUFFLE_PARTITIONS, None) or ""
    # Databricks has "auto" there.
    return {_SHUFFLE_PARTITIONS: str(run.tasks)} if configured.isdigit() and int(configured) < run.tasks else {}


def _alter(spark: SparkSession, merge: Merge) -> None:
    """Change the table's columns to the epoch's."""
    if (alter if merge.plan.metadata.share is None else alter_own)(spark, merge):
        steps.reached(f"columns changed: {merge.plan.name}")


def _mark_deleted(spark: SparkSession, merge: Merge) -> None:
    """Mark all rows as deleted, where a truncate deletes softly."""
    share, commit, table = merge.plan.metadata.share, merge.step(TRUNCATE), merge.plan.table
    is_truncated = merge.number == 0 and merge.plan.truncated
    if not is_truncated or merge.marks_deleted is None or commit in merge.run.steps:
        return
    name = quote(merge.shape.columns[merge.marks_deleted].name)
    source = "" if share is None else f"{is_own(share)} AND "
    with delta.committing(spark, commit) as marking:
        spark.sql(f"UPDATE {table.sql} SET {name} = true WHERE {source}NOT {name}{marking(name)}")


_BEFORE_ROWS: Final = (_set_properties, _alter, _mark_deleted)

_PREPARATIONS: Final[Mapping[CommitKind, Sequence[Callable[[SparkSession, Merge], None]]]] = {
    CommitKind.CREATE: (),
    CommitKind.OVERWRITE: (_set_properties,),
    CommitKind.APPEND: _BEFORE_ROWS,
    CommitKind.EMPTY: _BEFORE_ROWS,
    CommitKind.MERGE: _BEFORE_ROWS,
}
"""What comes before each kind of commit; each may make a commit of its own, and does nothing that was done before."""


def _changes_types(merge: Merge) -> bool:
    """Return whether a table that is overwritten may have had columns of the same names with other types."""
    before = merge.plan.before
    if before is None:
        return True
    types = {column.name: column.type.arrow for column in before.shape.columns}
    new = ((column.name, column.type.arrow) for column in merge.shape.columns)
    return any(types.get(name, kind) != kind for name, kind in new)
