"""Change a mirror table's columns to those that its relation has now.

What Delta can change by metadata alone ALTER TABLE statements change, one by one; a statement is skipped if the table's
columns show that it was run before.  Everything else rewrites the table in one commit, for example a type that Delta
cannot widen, or a column that was dropped and added again.  Old values are converted in the same way as the rows of
earlier relation versions within a run, so it makes no difference where a run ends.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING

import pyarrow as pa
from pyspark.sql import functions as f
from pyspark.sql.types import StructType

from walreplay.config.keys import LOG_COLUMNS
from walreplay.config.selection import MetadataNames
from walreplay.delta import statements as delta
from walreplay.delta.commits import COLUMN_MAPPING, TYPE_WIDENING, needed_by
from walreplay.delta.local import declared
from walreplay.delta.opened import OpenedTable
from walreplay.delta.statements import sql_schema, sql_type
from walreplay.delta.target import TableName, quote
from walreplay.errors import WalReplayError
from walreplay.evolution.comments import followed
from walreplay.evolution.shapes import Evolution, MirrorColumn, TableShape, converts
from walreplay.fold.change_log import OldLogRows, Projection, project_columns, with_old_texts
from walreplay.names import fold
from walreplay.session import steps
from walreplay.session.isolation import settings
from walreplay.spark.workers.process import spark_task
from walreplay.spark.workers.rows import refusal_in, refusal_text
from walreplay.table.table_run import ALTER, Merge, log_task, own_columns
from walreplay.types.base import ColumnType

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


@dataclass(frozen=True, slots=True)
class _Statements:
    """Changes of a table's metadata, of which none undoes another.

    Attributes:
        drops: names of columns.
        renames: old and new name of columns.
        types: names of columns in the end, and their new types.
        comments: names of columns in the end, each with the comment that walreplay wrote last and the new one.
    """

    drops: tuple[str, ...]
    renames: tuple[tuple[str, str], ...]
    types: tuple[tuple[str, ColumnType], ...]
    adds: tuple[MirrorColumn, ...]
    comments: tuple[tuple[str, tuple[str, str]], ...] = ()

    @property
    def any(self) -> bool:
        return bool(self.drops or self.renames or self.types or self.adds or self.comments)


def alter(spark: SparkSession, merge: Merge) -> bool:
    """Bring a table's columns to those of an epoch; return whether anything had to be done.

    Raises:
        CaptureError: a column's new type cannot hold a value, and the table has no column for rescued texts.
        TargetError: somebody else has written to the table at the same time, or it is gone.
    """
    evolution, table = merge.epoch.evolution, merge.plan.table
    if not alters(evolution):
        return False
    statements = _statements(evolution)
    # ALTER TABLE leaves names that stand in rows: in rescued data, or in a change log's lists of columns.
    if statements is None or _has_texts_by_name(spark, merge, statements):
        # A rewrite is one commit, so an interrupted run has made all of it or nothing.
        if merge.step(ALTER) not in merge.run.steps:
            frame = rewritten(delta.read(spark, table), merge)
            merge.run.layout(spark).ensure(needed_by(frame.schema.jsonValue()["fields"]))
            frame = delta.with_comments(frame, merge.comments(OpenedTable(spark, table).comments))
            write_rewritten(frame, table, merge.step(ALTER))
        OpenedTable(spark, table).checkpoint()
        return True
    merge.run.layout(spark).ensure(_needed(statements))
    _run(spark, merge, _levels(statements, evolution.shape, merge.plan.metadata))
    return statements.any


@dataclass(frozen=True, slots=True)
class _Level:
    """The columns of a table, or the fields of a column of it, that change.

    Attributes:
        within: the column; None for the table's own columns.
        first: what stands in front of them.
    """

    statements: _Statements
    after: TableShape
    within: str | None = None
    first: str | None = None

    def sql(self, name: str) -> str:
        """Return the quoted name of one of them."""
        return quote(name) if self.within is None else f"{quote(self.within)}.{quote(name)}"


def _levels(statements: _Statements, after: TableShape, metadata: MetadataNames) -> list[_Level]:
    """Return what changes: the table's columns, and with them the fields of its old rows."""
    first = own_columns(metadata, after).first
    levels = [_Level(statements, after, first=first[-1][0].name if first else None)]
    if LOG_COLUMNS["before"] in metadata.names:
        # What is said of columns is said once.
        plain = replace(statements, adds=tuple(replace(column, comment="") for column in statements.adds), comments=())
        levels.append(_Level(plain, after, LOG_COLUMNS["before"]))
    return levels


def _needed(statements: _Statements) -> dict[str, str]:
    """Return the table properties that the changes require."""
    columns = [*((column.name, column.type) for column in statements.adds), *statements.types]
    needed = needed_by(declared(pa.schema([(name, kind.arrow) for name, kind in columns])))
    if statements.drops or statements.renames:
        needed |= COLUMN_MAPPING
    if statements.types:
        needed |= TYPE_WIDENING
    return needed


def alters(evolution: Evolution) -> bool:
    """Return whether the Delta table's columns or their comments change.

    A column that the source has dropped and the mirror keeps is no change.
    """
    before = evolution.before
    if before is None:
        return False
    comments = [[column.comment for column in shape.columns] for shape in (before, evolution.shape)]
    return alters_columns(evolution) or comments[0] != comments[1]


def alters_columns(evolution: Evolution) -> bool:
    """Return whether the Delta table's columns change: their names, order or types."""
    before = evolution.before
    return before is not None and (
        [(column.id, column.name) for column in before.columns]
        != [(column.id, column.name) for column in evolution.shape.columns]
        or any(converts(source.chain) for source in evolution.of_table())
    )


def _statements(evolution: Evolution) -> _Statements | None:
    """Return the changes of metadata; None if the table has to be rewritten."""
    before, after = evolution.before, evolution.shape
    assert before is not None
    if evolution.rewritten or evolution.fills:
        return None
    old = {column.id: column for column in before.columns}
    new = {column.id: column for column in after.columns}
    drops = tuple(column.name for column in before.columns if column.id not in new)
    kept = [(old[id_], new[id_]) for id_ in old if id_ in new]
    renames = tuple((was.name, now.name) for was, now in kept if was.name != now.name)
    adds = tuple(column for column in after.columns if column.id not in old)
    types = tuple(
        (column.name, column.type)
        for source, column in zip(evolution.of_table(), after.columns, strict=True)
        if converts(source.chain)
    )
    comments = tuple((now.name, (was.comment, now.comment)) for was, now in kept if was.comment != now.comment)
    # If a name is removed and also given to another column, the table does not show which statements were run.
    removed_names = {fold(name) for name in (*drops, *(name for name, _ in renames))}
    given_names = {fold(name) for name in (*(column.name for column in adds), *(name for _, name in renames))}
    in_order = [column.id for column in after.columns if column.id in old] == [was.id for was, _ in kept]
    if removed_names & given_names or not in_order:
        return None
    return _Statements(drops, renames, types, adds, comments)


def _has_texts_by_name(spark: SparkSession, merge: Merge, statements: _Statements) -> bool:
    """Return whether some row has texts that go by names of columns that change."""
    table, metadata = merge.plan.table, merge.plan.metadata
    rescued = metadata.rescued_data if touches_rescued(merge.epoch.evolution) else None
    if rescued is not None and has_rescued(delta.read(spark, table), rescued):
        return True
    names, unchanged = [old for old, _ in statements.renames], LOG_COLUMNS["unchanged"]
    if unchanged not in metadata.names or not names:
        return False
    renamed = f.array(*map(f.lit, names))
    return bool(delta.read(spark, table).where(f.arrays_overlap(f.col(quote(unchanged)), renamed)).limit(1).collect())


def touches_rescued(evolution: Evolution) -> bool:
    """Return whether rescued texts, if there are any, have to change.

    They are stored under their columns' names, and read again when the type changes.  Any column may have them,
    whatever its type, because an earlier type may have left them.
    """
    assert evolution.before is not None
    kept_ids = {column.id for column in evolution.shape.columns}
    return any(column.id not in kept_ids for column in evolution.before.columns) or any(
        source.column is not None and (source.column != column.name or converts(source.chain))
        for source, column in zip(evolution.of_table(), evolution.shape.columns, strict=True)
    )


def has_rescued(rows: DataFrame, rescued: str) -> bool:
    """Return whether any row has a text in ``rescued``, the column of rescued texts."""
    return bool(rows.where(f"{quote(rescued)} IS NOT NULL").limit(1).collect())


def _run(spark: SparkSession, merge: Merge, levels: Sequence[_Level]) -> None:
    """Run the statements that the table's columns do not show to have been run.

    Each says that it is the run's, but none of its steps: who finishes the run would take a dropped column for a change
    by somebody else.
    """
    without_step, table = replace(merge.step(ALTER), number=0), merge.plan.table
    for level in levels:
        schema = OpenedTable(spark, table).schema
        if schema is None:
            raise merge.run.gone
        if level.within is not None:
            column_type = schema[level.within].dataType  # the fields of the old row's struct
            assert isinstance(column_type, StructType)
            schema = column_type
        types = {field.name: field.dataType.simpleString() for field in schema.fields}
        comments = {field.name: field.metadata.get("comment") or "" for field in schema.fields}
        for statement in _pending(table, level, types, comments):
            # Spark's statement does not say which version it follows, so it may come late.
            merge.run.check_lock(sure=True)
            steps.reached(f"columns are to change: {table.text}")
            with settings(spark, {delta.USER_METADATA: without_step.mark}) as refused:
                if refused and statement.startswith(_dropping(table)):
                    # The other statements keep the rows, whoever runs them.
                    delta.say_in_front(spark, table, without_step)
                spark.sql(statement)


def _dropping(table: TableName) -> str:
    """Write the beginning of the statement that drops columns."""
    return f"ALTER TABLE {table.sql} DROP COLUMNS"


def _pending(table: TableName, level: _Level, types: Mapping[str, str], comments: Mapping[str, str]) -> Iterator[str]:
    """Write the statements that are still to be run, by the table's columns: their SQL types and comments, by name."""
    statements, types, comments = level.statements, dict(types), dict(comments)
    dropped = [level.sql(name) for name in statements.drops if name in types]
    drop_statement = f"{_dropping(table)} ({', '.join(dropped)})"
    if dropped and level.within is None:
        yield drop_statement
    for old, new in statements.renames:
        if old in types:  # else an interrupted run has renamed it
            yield f"ALTER TABLE {table.sql} RENAME COLUMN {level.sql(old)} TO {quote(new)}"
            types[new] = types.pop(old)
            comments[new] = comments.pop(old, "")
    for name, kind in statements.types:
        if types.get(name, "").upper() != sql_type(kind.arrow).upper():  # else an interrupted run has widened it
            yield f"ALTER TABLE {table.sql} ALTER COLUMN {level.sql(name)} TYPE {sql_type(kind.arrow)}"
    if adds := _added(level, types):
        yield f"ALTER TABLE {table.sql} ADD COLUMNS ({', '.join(adds)})"
    if dropped and level.within is not None:
        # A column keeps a field at least.
        yield drop_statement
    for name, (old_comment, new_comment) in statements.comments:
        comment_now = comments.get(name, "")
        if (comment := followed(comment_now, old_comment, new_comment)) != comment_now:
            yield f"ALTER TABLE {table.sql} ALTER COLUMN {quote(name)} COMMENT {delta.literal(comment)}"


def _added(level: _Level, existing: Collection[str]) -> list[str]:
    """Return the columns that are still to be added, each with its place."""
    previous, columns = level.first, []
    new = {column.name: column.comment for column in level.statements.adds}
    for column in level.after.columns:
        if column.name in new and column.name not in existing:  # else an interrupted run has added it
            place = f"AFTER {quote(previous)}" if previous is not None else "FIRST"
            comment = delta.commented(new[column.name])
            columns.append(f"{level.sql(column.name)} {sql_type(column.type.arrow)}{comment} {place}")
        previous = column.name  # each column is added behind the one that it follows in the source
    return columns


@dataclass(frozen=True, slots=True)
class RewriteTask:
    """How a table's rows get its new columns.

    Columns go by number, because Spark takes names for expressions and a table's names can be anything.

    Attributes:
        before: the numbers, in the old rows, of the columns that the projection takes.
        metadata: the numbers, in the old rows, of the columns that follow the source's.
        rescued: the number, in the old rows, of the column with rescued texts; None if there is none.
        schema: of the new rows.
        log: what else becomes of a change log's rows.
    """

    projection: Projection
    before: tuple[int, ...]
    metadata: tuple[int, ...]
    rescued: int | None
    schema: pa.Schema
    log: OldLogRows | None = None


@spark_task
def rewrite_batches(batches: Iterable[pa.RecordBatch], *, task: RewriteTask) -> Iterator[pa.RecordBatch]:
    """Yield rows with their table's new columns.

    Raises:
        RuntimeError: a value cannot be kept; the driver finds the reason with `refusal_in`.
    """
    for batch in batches:
        rows = batch.num_rows
        rescued = batch.column(task.rescued) if task.rescued is not None else pa.nulls(rows, pa.string())
        changed: dict[int, pa.Array] = {}
        try:
            if task.log is not None:
                changed, rescued, old_texts = task.log.project(batch, rescued, task.projection)
            columns, rescued = project_columns(
                [batch.column(number) for number in task.before], rescued, rows, task.projection
            )
        except WalReplayError as problem:
            raise RuntimeError(refusal_text(problem)) from None  # an exception's text is all that reaches the driver
        if task.log is not None and task.log.task.before is not None:
            rescued = with_old_texts(rescued, old_texts, task.log.task.before)
        if task.rescued is not None:
            changed[task.rescued] = rescued
        metadata = [changed.get(number, batch.column(number)) for number in task.metadata]
        arrays = zip([*columns, *metadata], task.schema.types, strict=True)
        yield pa.RecordBatch.from_arrays([array.cast(kind) for array, kind in arrays], schema=task.schema)


def rewritten(rows: DataFrame, merge: Merge) -> DataFrame:
    """Return a table's rows, which come with its columns and the metadata, with the columns that it is to have."""
    evolution, metadata = merge.epoch.evolution, merge.plan.metadata
    before = evolution.before
    assert before is not None
    numbers = {name: number for number, name in enumerate(rows.columns)}
    names = [column.name for column in before.columns]
    after = [column.name for column in evolution.shape.columns]
    metadata_fields = own_columns(metadata, evolution.shape).fields
    rescued = metadata.rescued_data
    types = [*(column.type.arrow for column in evolution.shape.columns), *(field.type for field in metadata_fields)]
    log = None
    if LOG_COLUMNS["before"] in metadata.names:
        log = OldLogRows(log_task(evolution.shape), numbers[LOG_COLUMNS["unchanged"]], numbers[LOG_COLUMNS["before"]])
    task = RewriteTask(
        projection=Projection.of(evolution.of_table(), names, after, rescues=rescued is not None),
        before=tuple(numbers[name] for name in names),
        metadata=tuple(numbers[field.name] for field in metadata_fields),
        rescued=None if rescued is None else numbers[rescued],
        schema=pa.schema([pa.field(f"c{number}", kind) for number, kind in enumerate(types)]),
        log=log,
    )
    # A name like `a.b` would be an expression to Spark.
    numbered = rows.toDF(*(f"c{number}" for number in range(len(numbers))))
    rewritten = numbered.mapInArrow(partial(rewrite_batches, task=task), sql_schema(task.schema))
    frame = rewritten.toDF(*after, *(field.name for field in metadata_fields))  # by names again, as tables are written
    return frame.select(*(quote(name) for name in merge.schema.names))


def write_rewritten(frame: DataFrame, table: TableName, commit: delta.CommitId, *, only: str = "") -> None:
    """Overwrite a table's rows.

    Args:
        only: see `walreplay.delta.statements.write`; if all are overwritten, the table gets the frame's columns.

    Raises:
        CaptureError: a value has nowhere to go.
    """
    try:
        delta.write(frame, table, "overwrite", commit, new_schema=not only, only=only)
    except Exception as error:
        refusal = refusal_in(str(error))
        if refusal is None:  # Spark's own error, and no worker's
            raise
        refusal.table = table.text
        raise refusal from None
