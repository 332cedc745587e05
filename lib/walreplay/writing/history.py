"""One commit of a history: versions are added, and those that end get their ends.

A row of a fold either opens a version, or closes one that the table has (`walreplay.fold.versions.version_schema`).  So
one MERGE does both.  It looks at open versions alone, as what has ended does not change.

If only changes of some (watched) columns begin versions, a row may also replace the open version's values: then no
watched column has changed, and the version continues (`with_continued`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Final

from pyspark.sql import functions as f

from walreplay.config.keys import HISTORY_COLUMNS
from walreplay.delta import statements as delta
from walreplay.delta.target import quote
from walreplay.fold.events import Mode
from walreplay.fold.versions import ends_early
from walreplay.spark.workers.fold import continue_batches
from walreplay.spark.workers.rows import refusal_text
from walreplay.table.table_run import VERSION_COLUMNS, Merge
from walreplay.writing import merge as merging
from walreplay.writing.multiset import ImageSql, image_of_rows

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


_START_LSN, _START_AT, _ORDINAL, _END_LSN, _END_AT = (
    quote(HISTORY_COLUMNS[name]) for name in ("start_lsn", "start_at", "ordinal", "end_lsn", "end_at")
)


def with_continued(spark: SparkSession, kept: DataFrame, merge: Merge) -> DataFrame:
    """Add ``replaces``: the row is what becomes of the table's open version, which goes on.

    Values that are the open version's are filled in.

    Args:
        kept: rows of a table with a key; see `walreplay.fold.versions.version_schema`.
    """
    assert merge.epoch.watched is not None
    meets_base = " OR ".join(["closes", "may_continue", *(f"k{number}" for number in merge.epoch.tracked)])
    joined = _with_bases(spark, kept.where(meets_base), merge, "true", _base_columns(merge))
    names = tuple(column.name for column in merge.shape.columns)
    work = partial(continue_batches, identity=merge.identity, names=names, watched=merge.epoch.watched)
    types = [merge.type_of(number).arrow for number in merge.identity.key]
    base = [f.expr(merging.image_of(f"b{k}", kind)) for k, kind in enumerate(types)] + [f.col("base_rescued")]
    # One task gets all rows about a base: what closes it, then what opens, in commit order.
    in_order = joined.repartition(*base).sortWithinPartitions(*base, "opens", "start_lsn", "ordinal")
    decided = in_order.mapInArrow(work, joined.withColumn("replaces", f.lit(True)).schema)
    rest = kept.where(f"NOT ({meets_base})").selectExpr("*", "false AS replaces")
    return decided.select(*kept.columns, "replaces").unionByName(rest)


def _base_columns(merge: Merge) -> list[str]:
    """Write the columns that `walreplay.fold.versions.continue_bases` needs of the table's open versions."""
    assert merge.epoch.watched is not None
    rescued = merge.plan.metadata.rescued_data
    return [
        f"t.{_START_LSN} IS NOT NULL AS found",
        f"{'CAST(NULL AS STRING)' if rescued is None else f't.{quote(rescued)}'} AS o_rescued",
        *(f"{merging.table_value(merge, number)} AS o{number}" for number in merge.epoch.watched),
    ]


_SOURCE: Final = "walreplay_versions"
_BASED: Final = "walreplay_based"
_CLOSING: Final = "walreplay_closing"

_SAME_VERSION: Final = f"t.{_START_LSN} = s.base_lsn AND t.{_ORDINAL} = s.base_ordinal"
"""The condition that a row closes a version by its place."""

_OWN_PLACE: Final = ("start_lsn AS base_lsn", "ordinal AS base_ordinal")
"""What a row that opens a version has as the place of the version that it closes: to spread it, it closes none."""


def merge_versions(spark: SparkSession, rows: DataFrame, totals: Mapping[str, int], merge: Merge) -> merging.Written:
    """Add versions to a table that is there, and end those of its own that have ended.

    Args:
        rows: see `walreplay.fold.versions.version_schema`; a statement can read them several times.
        totals: ``unknown`` over the rows; ``live`` and ``gone`` of those whose base a truncate of the run has taken.
    """
    if merge.identity.mode is Mode.MULTISET:
        return _merge_images(spark, rows, totals, merge)
    if merge.identity.mode is Mode.KEYED:
        return _merge_keyed(spark, rows, totals, merge)
    rows.selectExpr("*", *_OWN_PLACE).createOrReplaceTempView(_SOURCE)  # mode APPEND: no change closes one
    return _commit(spark, merge, _SAME_VERSION, merging.lost_counts(totals))


def _open_rows(merge: Merge) -> str:
    """Write a query for the table's open versions."""
    return f"(SELECT * FROM {merge.own_rows} WHERE {_END_LSN} IS NULL)"  # an open version has no end


def _commit(spark: SparkSession, merge: Merge, match: str, counts: merging.RowCounts) -> merging.Written:
    """MERGE what the view has; ``match`` finds a closing row's version among the open ones."""
    if merge.empties is None:  # no truncate
        return _merge(spark, merge, match, counts)
    if merge.identity.mode is Mode.KEYED:
        _placed(spark, merge, match).createOrReplaceTempView(_SOURCE)
    rows = spark.table(_SOURCE).unionByName(_emptied(spark, merge, *merge.empties))
    with merging.kept_rows(spark, rows) as kept:
        kept.createOrReplaceTempView(_SOURCE)
        return _merge(spark, merge, _SAME_VERSION, counts)


def _placed(spark: SparkSession, merge: Merge, match: str) -> DataFrame:
    """Return the view's rows with the places of the versions that they are about, found by their keys.

    A truncate ends all that is open: also versions that no key finds, as those that are older than the key's column.
    """
    return spark.sql(
        f"SELECT s.*, coalesce(t.{_START_LSN}, s.start_lsn) AS base_lsn, "
        f"coalesce(t.{_ORDINAL}, s.ordinal) AS base_ordinal "
        f"FROM {_SOURCE} AS s LEFT JOIN {_open_rows(merge)} AS t ON {_touches(merge)} AND {match}"
    )


def _emptied(spark: SparkSession, merge: Merge, lsn: int, time: int) -> DataFrame:
    """Return rows that close, by a truncate, the open versions that no other row closes.

    NOT MATCHED BY SOURCE would make the MERGE rewrite every file of the table.
    """
    values = {"closes": "true", "matches": "true", "closes_lsn": f"{lsn}L", "closes_at": f"timestamp_micros({time})"}
    values |= dict.fromkeys(("opens", "replaces", "deleted", "expected", "claimed", "unknown"), "false")
    values |= {"base_lsn": f"t.{_START_LSN}", "base_ordinal": f"t.{_ORDINAL}"}
    kinds = {field.name: field.dataType.simpleString() for field in spark.table(_SOURCE).schema.fields}
    listed = ", ".join(f"CAST({values.get(name, 'NULL')} AS {kind}) AS {name}" for name, kind in kinds.items())
    return spark.sql(
        f"SELECT {listed} FROM {_open_rows(merge)} AS t LEFT ANTI JOIN {_SOURCE} AS s "
        f"ON {_touches(merge)} AND {_SAME_VERSION}"
    )


def _touches(merge: Merge) -> str:
    """Write the condition that a row is about an open version of the table."""
    return "s.closes" if merge.epoch.watched is None else "(s.closes OR s.replaces)"


def _replaces(merge: Merge, ends: str) -> str:
    """Write the clause by which an open version gets new values, and goes on unless the run has ended it."""
    if merge.epoch.watched is None:
        return ""
    assignments = [f"t.{target} = s.{source}" for target, source in merge.pairs if source not in VERSION_COLUMNS]
    return f"WHEN MATCHED AND s.replaces THEN UPDATE SET {', '.join([*assignments, ends])} "


def _merge(spark: SparkSession, merge: Merge, match: str, counts: merging.RowCounts) -> merging.Written:
    ends = f"t.{_END_AT} = s.closes_at, t.{_END_LSN} = s.closes_lsn"
    clauses = (
        f"{merging.refuse_claimed(merge) if merge.identity.mode is Mode.KEYED else ''}"
        f"WHEN MATCHED AND (t.{_START_LSN} > s.closes_lsn OR t.{_START_AT} > s.closes_at) "
        f"THEN UPDATE SET t.{_END_LSN} = raise_error({delta.literal(refusal_text(ends_early(merge.plan.name)))}) "
        f"{_replaces(merge, ends)}WHEN MATCHED THEN UPDATE SET {ends} "
        f"WHEN NOT MATCHED AND s.opens THEN {merging.inserting(merge)}"
    )
    is_ended = f"{_touches(merge)} AND t.{_END_LSN} IS NULL AND {match}"
    return merging.merged(spark, merge, counts, _SOURCE, is_ended, clauses, marked="s.opens")


# Tables with a key.


def _merge_keyed(spark: SparkSession, kept: DataFrame, totals: Mapping[str, int], merge: Merge) -> merging.Written:
    match, kept = merging.matching(merge), _spread(kept, merge)
    kept.selectExpr("*", "closes AS matches").createOrReplaceTempView(_SOURCE)
    (row,) = spark.sql(
        f"SELECT count_if(NOT s.deleted) AS updates, count_if(s.deleted) AS deletes FROM {_SOURCE} AS s "
        f"LEFT ANTI JOIN {_open_rows(merge)} AS t ON {match} WHERE s.closes AND s.expected"
    ).collect()
    counts = merging.lost_counts(totals) + merging.RowCounts(without_base=row.updates, deletes_without_row=row.deletes)
    if merge.epoch.watched is not None:
        rows, matches = with_continued(spark, kept, merge), "closes OR replaces"
    elif merge.epoch.tracked:
        keeps = " OR ".join(f"k{number}" for number in merge.epoch.tracked)
        rows, matches = _with_bases(spark, kept, merge, f"opens AND ({keeps})"), "closes"
    else:  # each change brings all values
        return _commit(spark, merge, match, counts)
    with merging.kept_rows(spark, rows) as whole:
        whole.selectExpr("*", f"{matches} AS matches").createOrReplaceTempView(_SOURCE)
        return _commit(spark, merge, match, counts)


def _spread(kept: DataFrame, merge: Merge) -> DataFrame:
    """Put the own keys of rows without a base in its place: else a join would bring all of them to one task."""
    continues = "false" if merge.epoch.watched is None else "may_continue"
    needs_base = " OR ".join([continues, *(f"k{number}" for number in merge.epoch.tracked)])
    key_columns = {
        f"b{k}": f"CASE WHEN opens AND NOT ({needs_base}) THEN c{number} ELSE b{k} END AS b{k}"
        for k, number in enumerate(merge.identity.key)
    }
    return kept.selectExpr(*(key_columns.get(name, name) for name in kept.columns))


def _with_bases(
    spark: SparkSession, rows: DataFrame, merge: Merge, matches: str, columns: Sequence[str] = ()
) -> DataFrame:
    """Return rows with the values of the table's own ones that the source did not send again.

    Args:
        matches: the condition of rows that have a base.
        columns: more of the base's.
    """
    rows.selectExpr("*", f"{matches} AS matches").createOrReplaceTempView(_BASED)
    values = merging.kept_values(merge)
    listed = ", ".join([*(f"{values.get(name, f's.{name}')} AS {name}" for name in rows.columns), *columns])
    match = merging.matching(merge)
    return spark.sql(f"SELECT {listed} FROM {_BASED} AS s LEFT JOIN {_open_rows(merge)} AS t ON {match}")


# Tables without a key.


def _merge_images(spark: SparkSession, kept: DataFrame, totals: Mapping[str, int], merge: Merge) -> merging.Written:
    """End copies of images: the newest first, so that it does not matter where runs end."""
    images = ImageSql(spark, merge, image_of_rows(merge))
    kept.where("closes").createOrReplaceTempView(_CLOSING)
    alike = ", ".join(images.alike())
    numbered = spark.sql(
        f"SELECT *, min(place) OVER (PARTITION BY {alike}) AS image, "
        f"row_number() OVER (PARTITION BY {alike} ORDER BY closes_lsn, ordinal) AS nth "
        f"FROM (SELECT *, monotonically_increasing_id() AS place FROM {_CLOSING})"
    )
    with merging.kept_rows(spark, numbered) as closing:
        closing.createOrReplaceTempView(_CLOSING)
        # Under the source's names, because the table's can be anything.
        listed = ", ".join(f"t.{place} AS {source}" for place, source in merge.pairs)
        open_copies = (
            "SELECT s.image, u.start_lsn AS base_lsn, u.ordinal AS base_ordinal, "
            # Numbered from the newest on: it is the newest copy that a delete or an update ends.
            "row_number() OVER (PARTITION BY s.image ORDER BY u.start_lsn DESC, u.ordinal DESC) AS nth "
            f"FROM (SELECT * FROM {_CLOSING} WHERE place = image) AS s "
            f"JOIN (SELECT {listed} FROM {_open_rows(merge)} AS t) AS u ON {images.same('u', 's')}"
        )
        columns = ", ".join(f"s.{name}" for name in kept.columns)
        ended = spark.sql(
            f"SELECT {columns}, o.base_lsn, o.base_ordinal FROM {_CLOSING} AS s LEFT JOIN ({open_copies}) AS o "
            "ON s.image = o.image AND s.nth = o.nth"
        )
        opened = kept.where("opens").selectExpr("*", *_OWN_PLACE)
        with merging.kept_rows(spark, opened.unionByName(ended)) as rows:
            rows.createOrReplaceTempView(_SOURCE)
            missing = rows.where("closes AND expected AND base_lsn IS NULL").count()
            counts = merging.lost_counts(totals) + merging.RowCounts(deletes_without_row=missing)
            return _commit(spark, merge, _SAME_VERSION, counts)
