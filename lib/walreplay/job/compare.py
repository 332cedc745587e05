"""Compare a table with one that is known to be right: if both are equal, the table need not be touched."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from pyspark.sql import functions as f
from pyspark.sql.types import ArrayType, DoubleType, FloatType, StructType

from walreplay.delta import statements as delta
from walreplay.delta.local import DamagedLogError
from walreplay.delta.opened import OpenedTable
from walreplay.delta.target import quote
from walreplay.errors import TargetError, WalReplayError
from walreplay.names import RowKind, output_of
from walreplay.session.failures import failure_of
from walreplay.table.registry import MirrorEntry

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession
    from pyspark.sql.types import StructField


from walreplay.job.standing import KnownTable, standing_of

_SEEDS: Final = (1, 2)


@dataclass(frozen=True, slots=True)
class Rightness:
    """What the comparison of two tables has found.

    Attributes:
        why: what of the table is not right; empty if all is.
        rows: how many the right table has.
    """

    why: str
    rows: int


def rightness_of(
    spark: SparkSession, ledger: str, entry: MirrorEntry | None, right: MirrorEntry, commit_columns: tuple[str, ...]
) -> Rightness:
    """Compare a table with one that has the rows, the columns and the names that it should have.

    Args:
        spark: a session that only the caller uses.
        ledger: the ledger's id.
        entry: what the ledger knows of the table; None for none.
        right: the ledger's entry of the other table.
        commit_columns: of a mirror, the columns that say by which commit a row was written last: where nothing
            identifies equal rows, they depend on where runs have ended.
    """
    rows = delta.read(spark, right.table)
    left_out = commit_columns if output_of(right.oid).rows is RowKind.CURRENT else ()
    sums = _sums(rows.drop(*left_out))
    why = "it is new" if entry is None else _difference(spark, ledger, entry, right, rows, sums, left_out)
    return Rightness(why, sums[0])


def _difference(
    spark: SparkSession,
    ledger: str,
    entry: MirrorEntry,
    right: MirrorEntry,
    rows: DataFrame,
    right_sums: tuple[int, ...],
    left_out: tuple[str, ...],
) -> str:
    if entry.paused:
        return "it lacks what changed while it was switched off"
    shapes = [[(c.source, c.name, c.type, c.dropped) for c in compared.shape.columns] for compared in (entry, right)]
    if shapes[0] != shapes[1]:
        return "its columns are others"
    try:
        opened = OpenedTable(spark, entry.table)
        if not opened.exists:
            return "it is gone"
        standing = standing_of(opened, KnownTable(entry.table, entry.name, ledger, entry))
        if standing is None or not standing.is_sound:  # not as a run has left it
            return "somebody else has changed it"
        present_rows = delta.read(spark, entry.table)
        if _declared(present_rows.schema) != _declared(rows.schema):
            return "its columns were changed"
        return "" if _sums(present_rows.drop(*left_out)) == right_sums else "its rows are others"
    except TargetError as error:
        return error.problem
    except WalReplayError:
        raise
    except Exception:
        # Whatever Spark has met there: the table is made again.
        return "it cannot be read"


def check_readable(spark: SparkSession, entry: MirrorEntry) -> None:
    """Refuse a table whose log is damaged, before anything is put in its place.

    Raises:
        TargetError: it cannot be opened, so nothing can be committed to it.
    """
    try:
        if OpenedTable(spark, entry.table).schema is not None:
            # A commit depends on the whole log: `inputFiles` has Spark read all of it.
            delta.read(spark, entry.table).inputFiles()
    except Exception as error:
        failure = None if isinstance(error, DamagedLogError) else failure_of(error)
        if failure is None and not isinstance(error, DamagedLogError):
            raise
        raise TargetError(
            f"nothing can be committed to the table, as its log is damaged: {failure.problem if failure else error}",
            table=entry.name,
            path=(failure.path if failure else None) or entry.table.text,
            remedy=f"Move {entry.table.text} away, and run walreplay rebuild again: it is made anew",
        ) from None


def _declared(schema: StructType) -> list[tuple[str, str]]:
    return [(field.name, field.dataType.simpleString()) for field in schema.fields]


def _sums(rows: DataFrame) -> tuple[int, ...]:
    """Return how many rows there are, and sums over hashes of them, in whatever order they lie."""
    parts = [part for field in rows.schema.fields for part in _hashed(field)]
    # A sum of 64-bit hashes overflows a bigint; two seeds make equal sums of unequal rows improbable.
    hashes = (f.sum(f.xxhash64(f.lit(seed), *parts).cast("decimal(20,0)")) for seed in _SEEDS)
    (row,) = rows.agg(f.count(f.lit(1)), *hashes).collect()
    return tuple(int(value or 0) for value in row)


def _hashed(field: StructField) -> list[Column]:
    """Return what of a column is hashed: NULL leaves a hash as it is, and 0.0 is like -0.0."""
    column = f.col(quote(field.name))
    if isinstance(field.dataType, (ArrayType, StructType)):
        column = f.to_json(f.struct(column), {"ignoreNullFields": "false"})
    elif isinstance(field.dataType, (FloatType, DoubleType)):
        column = column.cast("string")  # xxhash64 normalizes -0.0
    return [column, column.isNull()]
