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
from typing import TYPE_CHECKING, Final, TypeVar

from walreplay.delta import statements as delta
from walreplay.delta.commits import TIMESTAMP_NTZ, TYPE_WIDENING
from walreplay.delta.opened import WHOLE_HISTORY, OpenedTable
from walreplay.delta.properties import TableProperties
from walreplay.delta.statements import spark_schema
from walreplay.delta.target import quote
from walreplay.errors import TargetError
from walreplay.evolution.convert import is_widening
from walreplay.evolution.shapes import Evolution, conversions
from walreplay.session import steps
from walreplay.table.cases import CommitKind
from walreplay.table.placement import Move
from walreplay.table.sharing import Needed, check_output, column_conflict, columns_in, needed
from walreplay.table.table_run import ALTER, Merge, TableRun, is_own, table_schema
from walreplay.writing.alter import has_rescued, rewritten, touches_rescued, write_rewritten
from walreplay.writing.merge import write_rows
from walreplay.writing.move import MovedTable, copied, occupied, remove

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


_Result = TypeVar("_Result")

_MAX_ATTEMPTS: Final = 30
"""So often a table is brought up to date again, at most, because others have committed in between."""

_OTHER_COLUMNS: Final = re.compile(r"\[DELTA_(SCHEMA_CHANGE|FAILED_TO_MERGE_FIELDS)")
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
        if delta.is_conflict(error) or _OTHER_COLUMNS.search(str(error)) is not None:
            return True
        error = error.__cause__  # an error of ours may be raised from Delta's
    return False


def move_rows(spark: SparkSession, step: Move, commit: delta.CommitId, check_lock: Callable[..., None]) -> MovedTable:
    """Move the source's own rows from a shared table, to one, or both; rows that were moved before are left there.

    They are copied in one commit, and removed in another.  If the run is killed in between, the copy's commit shows it.

    Args:
        commit: the id of both.

    Raises:
        TargetError: the rows cannot be moved there.
    """
    return _until_done(lambda _: _move_rows(spark, step, commit, check_lock), step.name, check_lock)


def _move_rows(spark: SparkSession, step: Move, commit: delta.CommitId, check_lock: Callable[..., None]) -> MovedTable:
    note, source, destination = None, OpenedTable(spark, step.source), OpenedTable(spark, step.destination)
    if source.exists and (step.leaves is None or commit not in source.made):
        rows = delta.read(spark, step.source)
        if step.leaves is not None:
            rows = rows.where(is_own(step.leaves))
        if not destination.exists or commit not in destination.made:
            check_lock()
            _copy(destination, step, rows, commit, check_lock)
        steps.reached(f"rows copied: {step.name}")
        check_lock()
        if step.leaves is None:  # the whole table was the source's
            note = remove(spark, step.source, check_lock)
        else:
            with delta.committing(spark, commit) as marking:
                condition = f"{is_own(step.leaves)}{marking(quote(step.leaves.column))}"
                spark.sql(f"DELETE FROM {step.source.sql} WHERE {condition}")
    return copied(spark, step, commit, note, depth=WHOLE_HISTORY)


def _copy(
    destination: OpenedTable, step: Move, rows: DataFrame, commit: delta.CommitId, check_lock: Callable[..., None]
) -> None:
    spark, table, schema = destination.spark, destination.name, destination.schema
    if schema is None:
        delta.write(rows, table, "append", commit, create=delta.NewTable())
        return
    if step.joins is None and not delta.read(spark, table).isEmpty():
        raise occupied(table.text, step.name)
    if step.joins is not None:
        check_output(step.name, table.text, step.oid, step.joins.source, destination.made)
    changes = needed(columns_in(schema), columns_in(rows.schema))
    if changes.conflicts:
        raise TargetError(
            f"its rows cannot go there: the column {changes.conflicts[0][0].text!r} is of another type",
            table=step.name,
            path=table.text,
            remedy="Keep its place by a destination_table under objects",
        )
    _change_columns(TableProperties(spark, table, check_lock), changes, {})
    only = "" if step.joins is None else is_own(step.joins)
    delta.write(delta.shaped(rows, OpenedTable(spark, table).columns), table, "overwrite", commit, only=only)


def make_ready(spark: SparkSession, merge: Merge) -> TableRun:
    """Have the table there, with a column for all that an epoch's rows have; this changes no rows.

    Returns:
        the run, which knows now what is there.

    Raises:
        ConfigError: another source has a column of the same name that cannot be the same, or another output there.
    """
    run, plan, opened = merge.run, merge.plan, OpenedTable(spark, merge.plan.table)
    is_new = plan.before is None and merge.number == 0
    assert plan.metadata.share is not None
    if opened.schema is None:
        if plan.before is not None:
            raise run.gone
        _make(spark, merge)
        opened = OpenedTable(spark, plan.table)
    if is_new:
        # Another source may have made it since the tables were checked.
        check_output(plan.name, plan.table.text, plan.oid, plan.metadata.share.source, opened.made)
    changes = needed(columns_in(opened.columns), columns_in(merge.schema))
    for new_column, column in changes.conflicts:
        raise column_conflict(plan, new_column, column)
    _change_columns(run.layout(spark), changes, merge.comments({}))
    # Of its rows, the source alone writes any, under its own lock.
    own_rows = delta.read(spark, plan.table).where(is_own(plan.metadata.share))
    return replace(run, exists=True, has_own_rows=not is_new or not own_rows.limit(1).isEmpty())


def _make(spark: SparkSession, merge: Merge) -> None:
    """Make the table without rows; another source may do so at the same time."""
    merge.run.check_lock()
    steps.reached(f"table is to be made: {merge.plan.name}")
    try:
        # This is the run's, but none of its steps.
        write_rows(spark, None, merge, replace(merge.commit, number=0, form=None), CommitKind.CREATE)
    except Exception:
        if not delta.exists(spark, merge.plan.table):
            raise
    delta.forget_version(spark)


def _change_columns(layout: TableProperties, changes: Needed, comments: Mapping[str, str]) -> None:
    """Add and widen a shared table's columns, with comments by name; another source may do so at the same time."""
    if not changes.any:
        return
    spark, table = layout.spark, layout.table
    types = dict.fromkeys(column.kind for column in (*changes.added, *changes.widened))
    features: dict[str, str] = TIMESTAMP_NTZ if any("timestamp_ntz" in kind.lower() for kind in types) else {}
    layout.ensure(features | (TYPE_WIDENING if changes.widened else {}))
    statements = []
    if changes.added:
        # What is said of columns is said once.
        texts = {column: comments.get(column.name) if column.within is None else None for column in changes.added}
        listed = (f"{column.sql} {column.kind}{delta.commented(comment)}" for column, comment in texts.items())
        statements.append(f"ADD COLUMNS ({', '.join(listed)})")
    statements += [f"ALTER COLUMN {column.sql} TYPE {column.kind}" for column in changes.widened]
    for statement in statements:
        layout.check_lock()
        steps.reached(f"columns are to change: {table.text}")
        try:
            spark.sql(f"ALTER TABLE {table.sql} {statement}")
        except Exception:
            # Another source may have had the same change.
            schema = OpenedTable(spark, table).schema
            if schema is None or needed(columns_in(schema), [*changes.added, *changes.widened]).any:
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
    own_rows = delta.read(spark, plan.table).where(is_own(share))
    # With the columns and types that the source wrote them with: another one may have widened a column, or added one.
    rows = delta.shaped(own_rows, spark_schema(table_schema(before, plan.metadata)))
    if not moves_values(evolution) and not (
        rescued is not None and touches_rescued(evolution) and has_rescued(rows, rescued)
    ):
        return False
    # An interrupted run has rewritten the rows; to do it again would convert them twice.
    if commit in run.steps:
        return False
    frame = delta.shaped(rewritten(rows, merge), OpenedTable(spark, plan.table).columns)
    run.check_lock()
    write_rewritten(frame, plan.table, commit, only=is_own(share))
    delta.forget_version(spark)
    return True


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
