"""Decide which versions of a history go on in the table's open ones, because no watched column has changed."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Final

from pyspark.sql import functions as f

from walreplay.spark.delta.sql_types import sql_type
from walreplay.spark.delta.target import quote
from walreplay.spark.planning.table_run import Merge
from walreplay.spark.workers.compare import continue_batches
from walreplay.spark.writing.merge import image_of, match_moved, merged_rescued

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_SOURCE: Final = "walreplay_watched"


def with_continued(spark: SparkSession, kept: DataFrame, merge: Merge, open_rows: str) -> DataFrame:
    """Add ``replaces``: the row is what becomes of the table's open version, which goes on.

    Values that are the open version's are filled in.

    Args:
        kept: rows of a table with a key; see `walreplay.sink.versions.version_schema`.
        open_rows: a query for the table's open versions.
    """
    assert merge.watched is not None
    concerned = " OR ".join(["closes", "may_continue", *(f"k{number}" for number in merge.tracked)])
    kept.where(concerned).selectExpr("*", "true AS matches").createOrReplaceTempView(_SOURCE)
    values = values_with_bases(merge)
    listed = [f"{values.get(name, f's.{name}')} AS {name}" for name in kept.columns]
    joined = spark.sql(
        f"SELECT {', '.join([*listed, *_of_bases(merge)])} FROM {_SOURCE} AS s "
        f"LEFT JOIN {open_rows} AS t ON {match_moved(merge)}"
    )
    names = tuple(column.name for column in merge.shape.columns)
    work = partial(continue_batches, identity=merge.identity, names=names, watched=merge.watched)
    kinds = [merge.type_of(number).arrow for number in merge.identity.key]
    base = [f.expr(image_of(f"b{k}", kind)) for k, kind in enumerate(kinds)] + [f.col("base_rescued")]
    in_order = joined.repartition(*base).sortWithinPartitions(*base, "opens", "start_lsn", "ordinal")
    decided = in_order.mapInArrow(work, joined.withColumn("replaces", f.lit(True)).schema)
    others = kept.where(f"NOT ({concerned})").selectExpr("*", "false AS replaces")
    return decided.select(*kept.columns, "replaces").unionByName(others)


def values_with_bases(merge: Merge) -> dict[str, str]:
    """Write, by the rows' columns, what versions have that the source did not send again: the open version's values."""
    values = {}
    for number in merge.tracked:
        values[f"c{number}"] = f"CASE WHEN s.k{number} THEN {_of_table(merge, number)} ELSE s.c{number} END"
    rescued = merge.metadata.rescued_data
    if rescued is not None and merge.tracked:
        values["rescued"] = merged_rescued(merge, quote(rescued))
    return values


def _of_bases(merge: Merge) -> list[str]:
    """Write the columns that `walreplay.sink.watched.continue_bases` needs of the table's open versions."""
    assert merge.watched is not None
    assert merge.metadata.history is not None
    rescued = merge.metadata.rescued_data
    return [
        f"t.{quote(merge.metadata.history.start_lsn)} IS NOT NULL AS found",
        f"{'CAST(NULL AS STRING)' if rescued is None else f't.{quote(rescued)}'} AS o_rescued",
        *(f"{_of_table(merge, number)} AS o{number}" for number in merge.watched),
    ]


def _of_table(merge: Merge, number: int) -> str:
    """Write a value of the table's open version, in the type that the rows have."""
    value = f"t.{quote(merge.shape.columns[number].name)}"
    # Where a table is shared, another source may have widened the column, and what is compared are hashes.
    return value if merge.metadata.share is None else f"CAST({value} AS {sql_type(merge.type_of(number).arrow)})"


__all__ = ["values_with_bases", "with_continued"]
