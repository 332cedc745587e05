"""Bring one source's rows up to date in a table that several sources write to.

The table has the columns of all its sources: a column is added, or widened, and never renamed or dropped.  Rows of a
source are NULL in what that source does not have.  Everything else, such as a renamed column, is done by rewriting the
source's own rows, in one commit that leaves those of others as they are.

Others may commit at any time.  Delta refuses what conflicts with such a commit; then the table is brought up to date
once more, as by a run that resumes an interrupted one: no commit is made twice.
"""

from __future__ import annotations

import random
import re
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import TYPE_CHECKING, Final, TypeVar

from walreplay.delta import statements as delta
from walreplay.delta.commits import TIMESTAMP_NTZ, TYPE_WIDENING
from walreplay.delta.local import ConflictError
from walreplay.delta.properties import ensure
from walreplay.delta.statements import sql_schema
from walreplay.delta.target import TableName, quote
from walreplay.errors import TargetError
from walreplay.evolution.convert import is_widening
from walreplay.evolution.shapes import Evolution, TableShape, conversions
from walreplay.session import steps
from walreplay.table.placement import Move
from walreplay.table.plan import TablePlan
from walreplay.table.registry import made_again
from walreplay.table.sharing import Needed, check_output, column_conflict, columns_in, columns_there, needed
from walreplay.table.table_run import ALTER, Merge, TableRun, is_own, table_schema
from walreplay.writing.alter import has_rescued, rewritten, touches_rescued, write_rewritten
from walreplay.writing.move import MovedTable, copied, occupied, remove

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


_Result = TypeVar("_Result")

_MAX_ATTEMPTS: Final = 30
"""So often a table is brought up to date again, at most, because others have committed in between."""

_CONFLICTS: Final = re.compile(
    r"\[DELTA_(CONCURRENT_|METADATA_CHANGED|PROTOCOL_CHANGED|SCHEMA_CHANGE|FAILED_TO_MERGE_FIELDS)"
)
"""The last one: rows have a column's type of before another source widened it."""

_turns: Final[defaultdict[str, threading.Lock]] = defaultdict(threading.Lock)
"""By a table's place: in one process, one source writes to it at a time.  Between processes, Delta's commits decide."""


def in_turn(run: TableRun, apply: Callable[[TableRun, bool], _Result]) -> _Result:
    """Bring a table up to date, again if other sources have committed in between.

    Args:
        apply: applies the run; its second argument says whether this is the first attempt.

    Raises:
        Exception: what has stopped it, if that is anything else; or the conflict, if there is no end of them.
    """
    # What it has committed stands in the table's history, as for a run that was interrupted.
    resumed = replace(run, resumed=True, standing=None)
    with _turns[run.plan.table.place]:  # in one process sources take turns, so no conflict is needed to find out
        return _until_done(lambda first: apply(run if first else resumed, first), run.plan.name, run.check_lock)


def _until_done(work: Callable[[bool], _Result], name: str, check_lock: Callable[..., None]) -> _Result:
    for attempt in range(_MAX_ATTEMPTS):
        try:
            return work(attempt == 0)
        except Exception as error:
            if attempt == _MAX_ATTEMPTS - 1 or not _is_conflict(error):
                raise
        check_lock(sure=True)
        steps.reached(f"another source was faster: {name}")
        time.sleep(random.uniform(0.0, 0.2 * min(attempt + 1, 20)))  # other processes wait for other times
    raise AssertionError


def _is_conflict(error: BaseException | None) -> bool:
    while error is not None:
        if isinstance(error, ConflictError) or _CONFLICTS.search(str(error)) is not None:
            return True
        error = error.__cause__  # an error of ours may be raised from Delta's
    return False


def move_rows(spark: SparkSession, step: Move, commit: delta.CommitId, check_lock: Callable[..., None]) -> MovedTable:
    """Move the source's own rows from a shared table, to one, or both; rows that were moved before are left there.

    They are copied in one commit, and removed in another.  If the run is killed in between, the copy's commit shows it.

    Args:
        spark: a session that only the caller uses.
        commit: the id of both.

    Raises:
        TargetError: the rows cannot be moved there.
    """
    return _until_done(lambda _: _move_rows(spark, step, commit, check_lock), step.name, check_lock)


def _move_rows(spark: SparkSession, step: Move, commit: delta.CommitId, check_lock: Callable[..., None]) -> MovedTable:
    note = None
    if delta.exists(spark, step.source) and (step.leaves is None or not delta.has_commit(spark, step.source, commit)):
        rows = delta.read(spark, step.source)
        if step.leaves is not None:
            rows = rows.where(is_own(step.leaves))
        if not delta.exists(spark, step.destination) or not delta.has_commit(spark, step.destination, commit):
            check_lock()
            _copy(spark, step, rows, commit, check_lock)
        steps.reached(f"rows copied: {step.name}")
        check_lock()
        if step.leaves is None:  # the whole table was the source's
            note = remove(spark, step.source, check_lock)
        else:
            with delta.committing(spark, commit) as marking:
                condition = f"{is_own(step.leaves)}{marking(quote(step.leaves.column))}"
                spark.sql(f"DELETE FROM {step.source.sql} WHERE {condition}")
    return copied(spark, step, commit, note, depth=delta.WHOLE_HISTORY)


def _copy(
    spark: SparkSession, step: Move, rows: DataFrame, commit: delta.CommitId, check_lock: Callable[..., None]
) -> None:
    schema = delta.schema_of(spark, step.destination)
    if schema is None:
        delta.write(rows, step.destination, "append", commit, create=delta.NewTable())
        return
    if step.joins is None and not delta.read(spark, step.destination).isEmpty():
        raise occupied(step.destination.text, step.name)
    if step.joins is not None:
        made = delta.made_by(spark, step.destination)
        check_output(step.name, step.destination.text, step.oid, step.joins.source, made)
    changes = needed(columns_there(schema), columns_there(rows.schema))
    if changes.conflicts:
        raise TargetError(
            f"its rows cannot go there: the column {changes.conflicts[0][0].text!r} is of another type",
            table=step.name,
            path=step.destination.text,
            remedy="Keep its place by a destination_table under objects",
        )
    change_columns(spark, step.destination, changes, check_lock)
    only = "" if step.joins is None else is_own(step.joins)
    delta.write(delta.like_table(rows, step.destination), step.destination, "overwrite", commit, only=only)


def table_gone(plan: TablePlan) -> TargetError:
    """Make the error for a table that the ledger knows."""
    remedy = f"Bring it back as it was; or {made_again(plan.before)}"
    return TargetError("the table is gone", table=plan.name, path=plan.table.text, remedy=remedy)


def make_ready(spark: SparkSession, merge: Merge) -> TableRun:
    """Have the table there, with a column for all that an epoch's rows have; this changes no rows.

    Args:
        spark: a session that only the caller uses.

    Returns:
        the run, which knows now what is there.

    Raises:
        ConfigError: another source has a column of the same name that cannot be the same, or another output there.
    """
    run, plan = merge.run, merge.plan
    is_new = plan.before is None and merge.number == 0
    assert plan.metadata.share is not None
    schema = delta.schema_of(spark, plan.table)
    if schema is None:
        if plan.before is not None:
            raise table_gone(plan)
        _make(spark, merge)
        schema = delta.schema_of(spark, plan.table)
        assert schema is not None
    if is_new:
        # Another source may have made it since the tables were checked.
        made = delta.made_by(spark, plan.table)
        check_output(plan.name, plan.table.text, plan.oid, plan.metadata.share.source, made)
    changes = needed(columns_there(schema), columns_in(merge.schema))
    for new_column, column in changes.conflicts:
        raise column_conflict(plan, new_column, column)
    change_columns(spark, plan.table, changes, run.check_lock, merge.comments({}))
    # Of its rows, the source alone writes any, under its own lock.
    own_rows = delta.read(spark, plan.table).where(is_own(plan.metadata.share))
    return replace(run, exists=True, has_own_rows=not is_new or not own_rows.limit(1).isEmpty())


def _make(spark: SparkSession, merge: Merge) -> None:
    """Make the table without rows; another source may do so at the same time."""
    rows = spark.createDataFrame([], sql_schema(merge.schema))
    # This is the run's, but none of its steps.
    commit = replace(merge.commit, number=0, form=None)
    merge.run.check_lock()
    steps.reached(f"table is to be made: {merge.plan.name}")
    try:
        new = delta.NewTable(dict(merge.plan.layout.properties), merge.plan.comment)
        delta.write(delta.with_comments(rows, merge.comments({})), merge.plan.table, "append", commit, create=new)
    except Exception:
        if not delta.exists(spark, merge.plan.table):
            raise
    delta.forget_version(spark)


def change_columns(
    spark: SparkSession,
    table: TableName,
    changes: Needed,
    check_lock: Callable[..., None],
    comments: Mapping[str, str] = MappingProxyType({}),
) -> None:
    """Add and widen a shared table's columns; another source may do the same at the same time.

    Args:
        comments: what added columns say, by name.
    """
    if not changes.any:
        return
    types = dict.fromkeys(column.kind for column in (*changes.added, *changes.widened))
    features: dict[str, str] = TIMESTAMP_NTZ if any("timestamp_ntz" in kind.lower() for kind in types) else {}
    ensure(spark, table, features | (TYPE_WIDENING if changes.widened else {}), check_lock)
    statements = []
    if changes.added:
        # What is said of columns is said once.
        texts = {column: comments.get(column.name) if column.within is None else None for column in changes.added}
        listed = (f"{column.sql} {column.kind}{delta.commented(comment)}" for column, comment in texts.items())
        statements.append(f"ADD COLUMNS ({', '.join(listed)})")
    statements += [f"ALTER COLUMN {column.sql} TYPE {column.kind}" for column in changes.widened]
    for statement in statements:
        check_lock()
        steps.reached(f"columns are to change: {table.text}")
        try:
            spark.sql(f"ALTER TABLE {table.sql} {statement}")
        except Exception:
            # Another source may have had the same change.
            schema = delta.schema_of(spark, table)
            if schema is None or needed(columns_there(schema), [*changes.added, *changes.widened]).any:
                raise
    delta.forget_version(spark)


def alter_own(spark: SparkSession, merge: Merge) -> bool:
    """Change the source's own rows to an epoch's columns, which the table has; return whether anything was done."""
    run, plan, evolution = merge.run, merge.plan, merge.epoch.evolution
    share, before, commit = plan.metadata.share, evolution.before, merge.step(ALTER)
    assert share is not None
    if before is None:  # the ledger knows no rows of the source's
        return False
    rescued = plan.metadata.rescued_data
    rows = _own_rows(spark, plan, before)
    if not moves_values(evolution) and not (
        rescued is not None and touches_rescued(evolution) and has_rescued(rows, rescued)
    ):
        return False
    # An interrupted run has rewritten the rows; to do it again would convert them twice.
    if run.may_have(commit) and delta.has_commit(spark, plan.table, commit):
        return False
    frame = delta.like_table(rewritten(rows, evolution, plan.metadata), plan.table)
    run.check_lock()
    write_rewritten(frame, plan.table, commit, only=is_own(share))
    delta.forget_version(spark)
    return True


def _own_rows(spark: SparkSession, plan: TablePlan, shape: TableShape) -> DataFrame:
    """Return the source's own rows, with the columns and types that it wrote them with."""
    assert plan.metadata.share is not None
    rows = delta.read(spark, plan.table).where(is_own(plan.metadata.share))
    # Another source may have widened a column, or added one.
    schema = spark.createDataFrame([], sql_schema(table_schema(shape, plan.metadata))).schema
    return delta.shaped(rows, schema)


def moves_values(evolution: Evolution) -> bool:
    """Return whether values of rows that are there change, or have to go to another column."""
    before = evolution.before
    assert before is not None
    names = {column.name for column in before.columns}
    if not names <= {column.name for column in evolution.shape.columns}:
        return True
    for source, column in zip(evolution.of_table(), evolution.shape.columns, strict=True):
        if source.column is None:
            if source.fill is not None or column.name in names:
                return True
        elif source.column != column.name or any(not is_widening(*pair) for pair in conversions(source.chain)):
            return True
    return False
