"""Whether a table holds what it should, compared with one that is known to: then nobody has to touch it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from pyspark.sql import functions as f
from pyspark.sql.types import ArrayType, DoubleType, FloatType, StructType

from walreplay.delta.local import DamagedLogError
from walreplay.errors import TargetError, WalReplayError
from walreplay.outputs import Output, output_of
from walreplay.spark.checks.standing import Known, standing_of
from walreplay.spark.delta import statements as delta
from walreplay.spark.delta.located import opened_at
from walreplay.spark.delta.target import quote
from walreplay.spark.planning.registry import MirrorEntry
from walreplay.spark.session.failures import failure_of

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession
    from pyspark.sql.types import StructField

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
        commit_columns: of a mirror, the columns that say by which commit a row was written last: where equal rows
            cannot be told apart, they hang on where runs have ended.
    """
    rows = delta.read(spark, right.table)
    left_out = commit_columns if output_of(right.oid) is Output.MIRROR else ()
    told = _sums(rows.drop(*left_out))
    why = "it is new" if entry is None else _why_not(spark, ledger, entry, right, rows, told, left_out)
    return Rightness(why, told[0])


def _why_not(
    spark: SparkSession,
    ledger: str,
    entry: MirrorEntry,
    right: MirrorEntry,
    rows: DataFrame,
    told: tuple[int, ...],
    left_out: tuple[str, ...],
) -> str:
    if entry.paused:
        return "it lacks what changed while it was switched off"
    shapes = [[(c.source, c.name, c.type, c.dropped) for c in one.shape.columns] for one in (entry, right)]
    if shapes[0] != shapes[1]:
        return "its columns are others"
    try:
        if not delta.exists(spark, entry.table):
            return "it is gone"
        standing = standing_of(spark, entry.table, Known(entry.name, ledger, entry))
        if standing is None or not standing.is_sound:
            return "somebody else has changed it"
        there = delta.read(spark, entry.table)
        if _declared(there.schema) != _declared(rows.schema):
            return "its columns were changed"
        return "" if _sums(there.drop(*left_out)) == told else "its rows are others"
    except TargetError as error:
        return error.problem
    except WalReplayError:
        raise
    except Exception:
        # Whatever is the matter with it: it is made again.
        return "it cannot be read"


def check_readable(spark: SparkSession, entry: MirrorEntry) -> None:
    """Refuse a table whose log is damaged, before anything is put in its place.

    Raises:
        TargetError: it cannot be opened, so nothing can be committed to it.
    """
    try:
        opened_at(spark, entry.table)
        if delta.exists(spark, entry.table):
            # What is committed to a table depends on all of its log.
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
    """Give how many rows there are, and sums over hashes of them, in whatever order they lie."""
    parts = [part for field in rows.schema.fields for part in _hashed(field)]
    hashes = (f.sum(f.xxhash64(f.lit(seed), *parts).cast("decimal(20,0)")) for seed in _SEEDS)
    (row,) = rows.agg(f.count(f.lit(1)), *hashes).collect()
    return tuple(int(value or 0) for value in row)


def _hashed(field: StructField) -> list[Column]:
    """Give what of a column is hashed: NULL leaves a hash as it is, and 0.0 is like -0.0."""
    column = f.col(quote(field.name))
    if isinstance(field.dataType, (ArrayType, StructType)):
        column = f.to_json(f.struct(column), {"ignoreNullFields": "false"})
    elif isinstance(field.dataType, (FloatType, DoubleType)):
        column = column.cast("string")
    return [column, column.isNull()]


__all__ = ["Rightness", "check_readable", "rightness_of"]
