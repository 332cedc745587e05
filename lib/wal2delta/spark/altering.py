"""Give a mirror table the columns that its relation has by now.

What Delta can do by its metadata alone is done by ALTER TABLE, statement by statement, each of which is left out where
the table shows that it was made already.  All else, such as a type that Delta cannot widen or a column that was
dropped and added again, rewrites the table in one commit: by the same conversions that the run's own rows of earlier
versions go through, so that nothing hangs on where runs end.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

import pyarrow as pa

from wal2delta.errors import TargetError
from wal2delta.sink.convert import is_widening
from wal2delta.sink.evolution import Evolution, MirrorColumn, Source, TableShape
from wal2delta.sink.projection import Projection, project_columns
from wal2delta.spark import delta
from wal2delta.spark.arrow_types import sql_schema, sql_type
from wal2delta.spark.target import TableName, quote
from wal2delta.types.base import ColumnType

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@dataclass(frozen=True, slots=True)
class _Statements:
    """What the table's metadata has to learn; no statement undoes another."""

    drops: tuple[str, ...]
    renames: tuple[tuple[str, str], ...]
    types: tuple[tuple[str, ColumnType], ...]
    adds: tuple[MirrorColumn, ...]

    @property
    def any(self) -> bool:
        return bool(self.drops or self.renames or self.types or self.adds)


def alter(
    spark: SparkSession,
    table: TableName,
    evolution: Evolution,
    metadata: Sequence[pa.Field],
    rescued: str | None,
    commit: delta.CommitId,
    *,
    resumed: bool,
) -> bool:
    """Bring a table's columns up to date; say whether anything had to be done.

    Args:
        spark: a session of the caller's own.
        evolution: from the columns that the table has to those that it shall have.
        metadata: the table's columns behind the source's, and ``rescued`` the name of the one with what others
            cannot hold.
        commit: the rewrite's commit, if there is one.
        resumed: some of it, or all, may be done already.
    """
    before = evolution.before
    if before is None or before.columns == evolution.shape.columns or not _differs(before, evolution.shape):
        return False
    statements = _statements(before, evolution)
    if statements is not None and rescued is not None and _renames_rescued(evolution):
        # The texts of what a column cannot hold go by its name, and are tried again under its new type.
        statements = None if _has_rescued(spark, table, rescued) else statements
    if statements is None:
        if not resumed or delta.find_commit(spark, table, commit, depth=1000) is None:
            _rewrite(spark, table, evolution, metadata, rescued, commit)
        return True
    _run(spark, table, statements, before, evolution.shape)
    return statements.any


def _differs(before: TableShape, after: TableShape) -> bool:
    """Say whether the Delta table itself changes: a column that is merely kept does not change it."""
    return [(c.id, c.name, c.type.arrow) for c in before.columns] != [
        (c.id, c.name, c.type.arrow) for c in after.columns
    ]


def _statements(before: TableShape, evolution: Evolution) -> _Statements | None:
    """Give the statements; None where the table has to be rewritten."""
    after = evolution.shape
    old = {column.id: column for column in before.columns}
    new = {column.id: column for column in after.columns}
    drops = tuple(column.name for column in before.columns if column.id not in new)
    renames = tuple((old[id_].name, new[id_].name) for id_ in old if id_ in new and old[id_].name != new[id_].name)
    adds = tuple(column for column in after.columns if column.id not in old)
    types = []
    for source, column in zip(evolution.of_table(), after.columns, strict=True):
        if column.id not in old or len(source.chain) == 1 or source.chain[0].arrow == source.chain[-1].arrow:
            continue
        if not all(is_widening(one, other) for one, other in zip(source.chain, source.chain[1:], strict=False)):
            return None
        types.append((column.name, column.type))
    gone = {name.casefold() for name in (*drops, *(name for name, _ in renames))}
    come = {name.casefold() for name in (*(column.name for column in adds), *(name for _, name in renames))}
    kept = [column.id for column in before.columns if column.id in new]
    in_order = [column.id for column in after.columns if column.id in old] == kept
    if gone & come or not in_order or any(len(source.chain) > 1 for source in _same_arrow(evolution)):
        return None
    return _Statements(drops, renames, tuple(types), adds)


def _same_arrow(evolution: Evolution) -> Iterator[Source]:
    """Give the columns whose values change though their Arrow type is the same in the end."""
    for source in evolution.of_table():
        if source.column is not None and len(source.chain) > 1 and source.chain[0].arrow == source.chain[-1].arrow:
            yield source


def _renames_rescued(evolution: Evolution) -> bool:
    return any(
        source.column is not None
        and (source.column != column.name or len(source.chain) > 1)
        and may_be_rescued(source.chain[0])
        for source, column in zip(evolution.of_table(), evolution.shape.columns, strict=True)
    ) or bool(
        evolution.before
        and {column.id for column in evolution.before.columns} - {column.id for column in evolution.shape.columns}
    )


def may_be_rescued(column_type: ColumnType) -> bool:
    """Say whether a value of the type may stand in the rescued data instead of its column."""
    kind = column_type.arrow
    return bool(
        column_type.overridden or pa.types.is_decimal(kind) or pa.types.is_temporal(kind) or pa.types.is_list(kind)
    )


def _has_rescued(spark: SparkSession, table: TableName, rescued: str) -> bool:
    return bool(delta.read(spark, table).where(f"{quote(rescued)} IS NOT NULL").limit(1).collect())


def _run(spark: SparkSession, table: TableName, statements: _Statements, before: TableShape, after: TableShape) -> None:
    """Run the statements that the table does not show to be done."""
    found = delta.columns_of(spark, table)
    if found is None:
        raise TargetError("the table is gone", path=table.text, remedy="Restore it, or apply to a new target")
    there = dict(found)
    drops = [name for name in statements.drops if name in there]
    if drops:
        spark.sql(f"ALTER TABLE {table.sql} DROP COLUMNS ({', '.join(map(quote, drops))})")
    for old, new in statements.renames:
        if old in there:
            spark.sql(f"ALTER TABLE {table.sql} RENAME COLUMN {quote(old)} TO {quote(new)}")
            there[new] = there.pop(old)
    for name, kind in statements.types:
        if there.get(name, "").upper() != sql_type(kind.arrow).upper():
            spark.sql(f"ALTER TABLE {table.sql} ALTER COLUMN {quote(name)} TYPE {sql_type(kind.arrow)}")
    previous: str | None = None
    adds = []
    new_names = {column.name for column in statements.adds}
    for column in after.columns:
        if column.name in new_names and column.name not in there:
            place = f"AFTER {quote(previous)}" if previous is not None else "FIRST"
            adds.append(f"{quote(column.name)} {sql_type(column.type.arrow)} {place}")
        previous = column.name
    if adds:
        spark.sql(f"ALTER TABLE {table.sql} ADD COLUMNS ({', '.join(adds)})")


@dataclass(frozen=True, slots=True)
class RewriteTask:
    """How a table's rows get its new columns; names are the old and the new ones, metadata columns left out."""

    projection: Projection
    schema: pa.Schema
    rescued: str | None


def rewrite_batches(batches: Iterable[pa.RecordBatch], *, task: RewriteTask) -> Iterator[pa.RecordBatch]:
    """Give rows their table's new columns."""
    for batch in batches:
        rows = batch.num_rows
        rescued = batch.column(task.rescued) if task.rescued is not None else pa.nulls(rows, pa.string())
        old = [batch.column(name) for name in task.projection.before]
        columns, rescued = project_columns(old, rescued, rows, task.projection)
        found = dict(zip(task.projection.after, columns, strict=True))
        arrays = [
            found[field.name]
            if field.name in found
            else rescued
            if field.name == task.rescued
            else batch.column(field.name)
            for field in task.schema
        ]
        yield pa.RecordBatch.from_arrays(
            [array.cast(field.type) for array, field in zip(arrays, task.schema, strict=True)], schema=task.schema
        )


def _rewrite(
    spark: SparkSession,
    table: TableName,
    evolution: Evolution,
    metadata: Sequence[pa.Field],
    rescued: str | None,
    commit: delta.CommitId,
) -> None:
    before = evolution.before
    assert before is not None
    names = [column.name for column in before.columns]
    after = [column.name for column in evolution.shape.columns]
    projection = Projection.of(evolution.of_table(), names, after)
    fields = [pa.field(column.name, column.type.arrow) for column in evolution.shape.columns]
    task = RewriteTask(projection, pa.schema([*fields, *metadata]), rescued)
    frame = delta.read(spark, table).mapInArrow(partial(rewrite_batches, task=task), sql_schema(task.schema))
    delta.write(frame, table, "overwrite", commit, new_schema=True)
