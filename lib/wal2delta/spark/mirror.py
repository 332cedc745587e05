"""Mirror tables: which there are, and the one commit that brings one up to date."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Final

import pyarrow as pa

from wal2delta.errors import NotSupported, TargetError
from wal2delta.report import Action, TableReport
from wal2delta.sink.events import Identity, Mode
from wal2delta.spark import delta
from wal2delta.spark.arrow_types import sql_schema
from wal2delta.spark.isolation import own_session, settings
from wal2delta.spark.staging import Staged, Staging
from wal2delta.spark.target import TableName, quote
from wal2delta.spark.workers import FoldTask, fold_batches
from wal2delta.types.base import ColumnType

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

COMMIT_LSN: Final = "__commit_lsn"
COMMIT_TS: Final = "__commit_ts"
RESCUED: Final = "_rescued_data"
_METADATA: Final = ((COMMIT_LSN, pa.int64()), (COMMIT_TS, pa.timestamp("us", "UTC")), (RESCUED, pa.string()))

_SOURCE: Final = "wal2delta_source"


@dataclass(frozen=True, slots=True)
class MirrorTable:
    """A mirror table and what identifies its rows.

    Attributes:
        number: what the staged rows call it.
        configured: its key comes from the configuration, so that it may hold NULLs.
        relations: the numbers of the relation versions that it is written from.
        oids: the relations' oids.
    """

    number: int
    name: str
    table: TableName
    columns: tuple[str, ...]
    types: tuple[ColumnType, ...]
    identity: Identity
    configured: bool
    relations: tuple[int, ...] = ()
    oids: frozenset[int] = frozenset()
    notes: tuple[str, ...] = ()
    """What a person should know of it."""

    @property
    def schema(self) -> pa.Schema:
        """The Delta table's columns: the source's, in their order, then the metadata."""
        fields = [(name, type_.arrow) for name, type_ in zip(self.columns, self.types, strict=True)]
        return pa.schema(fields + list(_METADATA))


@dataclass(frozen=True, slots=True)
class TableRun:
    """What a run does to one table."""

    mirror: MirrorTable
    staged: Staged
    truncated: bool
    commit: delta.CommitId
    resumed: bool
    """The run was begun before: the table may have its commit already."""
    partitions: int
    exists: bool
    """The table is there; `check_table` has found it right."""


def check_table(spark: SparkSession, mirror: MirrorTable, *, known: bool) -> bool:
    """Say whether a table is there, before anything is applied.

    Args:
        known: a run of this ledger may have written to it.

    Raises:
        TargetError: when it is there, but is somebody else's.
        NotSupported: when its columns are not what the relation says.
    """
    own = own_session(spark)
    with settings(own, delta.SMALL_STATE):
        found = delta.columns_of(own, mirror.table)
        if found is None:
            return False
        if not known:
            raise TargetError(
                "the table is there already, but was not made by this target's ledger",
                table=mirror.name,
                path=mirror.table.text,
                remedy="Nothing was applied; move the table away, or apply to another target",
            )
        _check_columns(own, mirror, found)
    return True


def apply_table(spark: SparkSession, staging: Staging, run: TableRun) -> TableReport:
    """Bring one table up to date by one Delta commit, made once whatever happened before."""
    began = time.monotonic()
    own = own_session(spark)
    mirror = run.mirror
    values = delta.SMALL_STATE | {"spark.sql.shuffle.partitions": str(run.partitions)}
    with settings(own, values):
        done = delta.find_commit(own, mirror.table, run.commit) if run.resumed and run.exists else None
        action: Action = "unchanged"
        if done is None:
            action = _commit(own, staging, run, create=not run.exists)
            done = delta.find_commit(own, mirror.table, run.commit)
        if done is None:
            raise TargetError(
                "the table's commit was made, but is not in its history",
                table=mirror.name,
                path=mirror.table.text,
                remedy="Something else writes to this table; a mirror must have no other writer",
            )
    return TableReport(
        name=mirror.name,
        location=mirror.table.text,
        action=action,
        changes=run.staged.rows,
        inserted=done.rows("numTargetRowsInserted", "numOutputRows"),
        updated=done.rows("numTargetRowsUpdated"),
        deleted=done.rows("numTargetRowsDeleted"),
        truncated=run.truncated,
        version=done.version,
        seconds=time.monotonic() - began,
        notes=mirror.notes,
    )


def _check_columns(spark: SparkSession, mirror: MirrorTable, found: Sequence[tuple[str, str]]) -> None:
    """Refuse a table whose columns are not what the relation says."""
    schema = spark.createDataFrame([], sql_schema(mirror.schema)).schema
    expected = [(item.name, item.dataType.simpleString()) for item in schema.fields]
    if list(found) == expected:
        return
    there, wanted = dict(found), dict(expected)
    differing = [name for name in [*wanted, *there] if there.get(name) != wanted.get(name)]
    raise NotSupported(
        "the relation's columns differ from the table's"
        + (f" ({', '.join(dict.fromkeys(differing))})" if differing else " in their order")
        + "; schema changes cannot be applied yet",
        table=mirror.name,
        path=mirror.table.text,
        remedy="Apply the captures to a new target",
    )


def _commit(spark: SparkSession, staging: Staging, run: TableRun, *, create: bool) -> Action:
    mirror = run.mirror
    if create or run.truncated or mirror.identity.mode is Mode.APPEND:
        rows = _final_rows(spark, staging, run)
        overwrite = run.truncated and not create
        delta.write(rows, mirror.table, "overwrite" if overwrite else "append", run.commit, create=create)
        return "created" if create else "overwritten" if overwrite else "appended"
    folded = _folded(spark, staging, run)
    if mirror.identity.mode is Mode.MULTISET:
        _merge_multiset(spark, folded, run)
    else:
        _merge_keyed(spark, folded, run)
    return "merged"


def _folded(spark: SparkSession, staging: Staging, run: TableRun) -> DataFrame:
    """Give the rows to merge; see `wal2delta.sink.events.merge_schema`."""
    mirror, staged = run.mirror, run.staged
    task = FoldTask(
        types=tuple(type_.arrow for type_ in mirror.types),
        names=mirror.columns,
        identity=mirror.identity,
        tracked=staged.tracked,
        moves=staged.moves,
    )
    frame = staging.read(spark, mirror.number, together=staged.moves, partitions=run.partitions)
    return frame.mapInArrow(partial(fold_batches, task=task), sql_schema(task.schema))


def _column_list(mirror: MirrorTable) -> list[tuple[str, str]]:
    """Pair each target column (quoted) with the source's."""
    pairs = [(quote(name), f"c{number}") for number, name in enumerate(mirror.columns)]
    return [*pairs, (quote(COMMIT_LSN), "lsn"), (quote(COMMIT_TS), "ts"), (quote(RESCUED), "rescued")]


def _final_rows(spark: SparkSession, staging: Staging, run: TableRun) -> DataFrame:
    """Give the rows of a table that holds none before them."""
    mirror = run.mirror
    if run.staged.rows == 0:
        return spark.createDataFrame([], sql_schema(mirror.schema))
    frame = _folded(spark, staging, run)
    if mirror.identity.mode is Mode.KEYED:
        frame = frame.where("NOT deleted")
    selected = [f"{source} AS {target}" for target, source in _column_list(mirror)]
    if mirror.identity.mode is Mode.MULTISET:
        frame = frame.where("net > 0").selectExpr("*", "explode(sequence(1L, net)) AS copy")
    return frame.selectExpr(*selected)


def _rescuable(kind: pa.DataType) -> bool:
    """Say whether a column's value may stand in ``_rescued_data`` instead."""
    return bool(pa.types.is_decimal(kind) or pa.types.is_temporal(kind) or pa.types.is_list(kind))


def _literal(text: str) -> str:
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"


def _rescued_text(row: str, column: str) -> str:
    return f"from_json({row}, 'map<string,string>')[{_literal(column)}]"


def _match(mirror: MirrorTable, moves: bool) -> str:
    """Give the ON clause: the target's key is the base's."""
    terms = ["s.matches"] if moves else []
    base_rescued = "s.base_rescued" if moves else "s.rescued"
    for k, number in enumerate(mirror.identity.key):
        name, kind = mirror.columns[number], mirror.types[number].arrow
        source = f"s.b{k}" if moves else f"s.c{number}"
        target = f"t.{quote(name)}"
        if not mirror.configured and not _rescuable(kind) and not pa.types.is_floating(kind):
            terms.append(f"{target} = {source}")
            continue
        terms.append(_same(target, source, kind))
        if _rescuable(kind):
            rescued = _rescued_text(f"t.{quote(RESCUED)}", name)
            terms.append(f"({source} IS NOT NULL OR {rescued} <=> {_rescued_text(base_rescued, name)})")
    return " AND ".join(terms)


def _merge_keyed(spark: SparkSession, folded: DataFrame, run: TableRun) -> None:
    mirror, staged = run.mirror, run.staged
    pairs = _column_list(mirror)
    values = {target: f"s.{source}" for target, source in pairs}
    for number in staged.tracked:
        target = quote(mirror.columns[number])
        values[target] = f"CASE WHEN s.k{number} THEN t.{target} ELSE s.c{number} END"
    if any(_rescuable(mirror.types[number].arrow) for number in staged.tracked):
        values[quote(RESCUED)] = _merged_rescued(mirror, staged.tracked)
    updates = ", ".join(f"t.{target} = {value}" for target, value in values.items())
    columns = ", ".join(target for target, _ in pairs)
    inserts = ", ".join(f"s.{source}" for _, source in pairs)
    deletes = "WHEN MATCHED AND s.deleted THEN DELETE " if staged.deletes or staged.moves else ""
    live = "AND NOT s.deleted " if deletes else ""
    folded.createOrReplaceTempView(_SOURCE)
    statement = (
        f"MERGE INTO {mirror.table.sql} AS t USING {_SOURCE} AS s ON {_match(mirror, staged.moves)} "
        f"{deletes}WHEN MATCHED THEN UPDATE SET {updates} "
        f"WHEN NOT MATCHED {live}THEN INSERT ({columns}) VALUES ({inserts})"
    )
    with delta.committing(spark, run.commit):
        spark.sql(statement)


def _merged_rescued(mirror: MirrorTable, tracked: Sequence[int]) -> str:
    """Keep the target's rescued values of those columns that are left unchanged."""
    kept = ", ".join(f"CASE WHEN s.k{number} THEN {_literal(mirror.columns[number])} END" for number in tracked)
    old = f"map_filter(from_json(t.{quote(RESCUED)}, 'map<string,string>'), (k, v) -> array_contains(array({kept}), k))"
    new = "from_json(s.rescued, 'map<string,string>')"
    return (
        f"CASE WHEN t.{quote(RESCUED)} IS NULL THEN s.rescued ELSE "
        f"nullif(to_json(map_concat(coalesce({new}, map()), coalesce({old}, map()))), '{{}}') END"
    )


def _merge_multiset(spark: SparkSession, folded: DataFrame, run: TableRun) -> None:
    """Apply net counts of equal rows.

    A MERGE cannot delete some of several equal rows.  So all copies of an image that loses some are deleted, and
    those that stay are inserted again: how many that are, the target is asked before.
    """
    mirror = run.mirror
    pairs = _column_list(mirror)
    image = [pair for pair in pairs if pair[0] not in (quote(COMMIT_LSN), quote(COMMIT_TS))]
    kinds = {f"c{number}": type_.arrow for number, type_ in enumerate(mirror.types)}
    same = " AND ".join(_same(f"t.{target}", f"s.{source}", kinds.get(source)) for target, source in image)
    # Both queries read the source; it has to be one and the same.
    folded.createOrReplaceTempView(_SOURCE)
    groups = ", ".join(_image(f"s.{source}", kinds.get(source)) for _, source in image)
    left = (
        f"SELECT {', '.join(f'first(s.{source}) AS {source}' for _, source in image)}, "
        f"min(t.{quote(COMMIT_LSN)}) AS lsn, min(t.{quote(COMMIT_TS)}) AS ts, "
        f"greatest(count(t.{quote(COMMIT_LSN)}) + min(s.net), 0) AS copies "
        f"FROM {_SOURCE} s JOIN {mirror.table.sql} t ON {same} WHERE s.net < 0 GROUP BY {groups}"
    )
    columns = ", ".join(source for _, source in pairs)
    source = (
        f"SELECT true AS gone, {columns} FROM {_SOURCE} WHERE net < 0 UNION ALL "
        f"SELECT false AS gone, {columns} FROM (SELECT *, explode(sequence(1L, net)) FROM {_SOURCE} WHERE net > 0) "
        f"UNION ALL SELECT false AS gone, {columns} FROM "
        f"(SELECT *, explode(sequence(1L, copies)) FROM ({left}) WHERE copies > 0)"
    )
    targets = ", ".join(target for target, _ in pairs)
    inserts = ", ".join(f"s.{name}" for _, name in pairs)
    statement = (
        f"MERGE INTO {mirror.table.sql} AS t USING ({source}) AS s ON s.gone AND {same} "
        "WHEN MATCHED THEN DELETE "
        f"WHEN NOT MATCHED AND NOT s.gone THEN INSERT ({targets}) VALUES ({inserts})"
    )
    with delta.committing(spark, run.commit):
        spark.sql(statement)


def _same(target: str, source: str, kind: pa.DataType | None) -> str:
    """Compare two values by their exact image."""
    return f"{_image(target, kind)} <=> {_image(source, kind)}"


def _image(value: str, kind: pa.DataType | None) -> str:
    """Give what differs where the value does; SQL itself takes -0 for 0, in lists too."""
    if kind is not None and pa.types.is_floating(kind):
        return f"CAST({value} AS STRING)"
    if kind is not None and pa.types.is_list(kind) and pa.types.is_floating(kind.value_type):
        return f"CAST({value} AS ARRAY<STRING>)"
    return value


__all__ = ["MirrorTable", "TableRun", "apply_table", "check_table"]
