"""One commit of a table whose rows have no key: the net count of each distinct row is applied.

A row's *image* is all its values but the commit's LSN and time.  Rows with equal images are copies of each other.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import pyarrow as pa

from walreplay.config.keys import HISTORY_COLUMNS
from walreplay.delta import statements as delta
from walreplay.delta.statements import sql_type
from walreplay.delta.target import quote
from walreplay.table.cases import CommitKind
from walreplay.table.table_run import Merge
from walreplay.writing import merge as merging

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_ROWS: Final = "walreplay_rows"
_COUNTED: Final = "walreplay_counted"
_OLDER: Final = "walreplay_older"

_COPIES: Final = "needed + net"

_COUNTS: Final = ("image", "copies", "stay")  # The columns that `ImageSql.counted` adds to the rows


def merge_multiset(spark: SparkSession, rows: DataFrame, totals: Mapping[str, int], merge: Merge) -> merging.Written:
    """Apply net counts of equal rows.

    A MERGE cannot delete some of several equal rows.  So if copies of an image are deleted, which are the newest, the
    MERGE deletes all of them, and inserts those that remain again as they were.  A query asks the target for their
    number first.

    A row that is older than a column has NULL in that column of the mirror, but the source sends it with the column's
    default.  So a delete that finds no equal row takes one that is equal except for columns added since.

    If more copies are deleted than the table has, the result is as if the missing copies had been there.  The deletes
    that found no row are counted.

    Args:
        rows: see `walreplay.fold.net_changes.merge_schema`; a statement can read them several times.
        totals: ``gone`` (copies that deletes need), ``unknown`` and ``copies`` over the rows.
    """
    unknown = merging.RowCounts(unknown=totals.get("unknown", 0))
    if not totals.get("gone"):
        # No copies are deleted, so the target need not be asked.
        copies = rows.where(f"{_COPIES} > 0").selectExpr("*", f"explode(sequence(1L, {_COPIES})) AS copy")
        merging.write_rows(spark, copies, merge, unknown.counted(merge), CommitKind.APPEND)
        return merging.Written(unknown, {merging.APPENDED: str(totals.get("copies", 0))})
    images = ImageSql(spark, merge, image_of_rows(merge))
    return _apply(images, images.counted(rows), added_ids(merge), unknown)


def added_ids(merge: Merge) -> list[int]:
    """Return the ids of the columns that were added while the table had rows; a later column has a higher id."""
    return [column.id for column in merge.shape.present if column.added]


def _apply(images: ImageSql, counted: DataFrame, added: list[int], unknown: merging.RowCounts) -> merging.Written:
    """Commit counted rows; their counts then say how many deletes found no row.

    Args:
        counted: see `ImageSql.counted`.
        added: the ids of the columns that were added while the table had rows; a later column has a higher id.
        unknown: the other counts of the rows.
    """
    with merging.kept_rows(images.spark, counted) as kept:
        missing = kept.selectExpr("sum(greatest(needed - copies, 0L))").collect()[0][0] or 0
        if missing and added:
            newest = max(added)
            older = images.counted(images.older(kept, newest))  # again, for rows older than the newest column
            return _apply(images, older, [id_ for id_ in added if id_ < newest], unknown)
        counts = unknown + merging.RowCounts(deletes_without_row=int(missing))
        kept.createOrReplaceTempView(_COUNTED)
        return images.merged(counts)


def image_of_rows(merge: Merge) -> list[tuple[str, str]]:
    """Return a table's columns (`Merge.pairs`) that are in an image: not dropped ones, and those of commits."""
    dropped = {quote(column.name) for column in merge.shape.columns if column.dropped}
    of_commits = {"lsn", "ts", *HISTORY_COLUMNS}  # equal rows of two commits differ in these
    return [(name, source) for name, source in merge.pairs if name not in dropped and source not in of_commits]


@dataclass(frozen=True, slots=True)
class ImageSql:
    """Write the SQL for one table's images.

    Attributes:
        image: the columns of an image (`image_of_rows`): the quoted name in the target, and the name in the source.
    """

    spark: SparkSession
    merge: Merge
    image: Sequence[tuple[str, str]]

    def same(self, row: str, source_row: str) -> str:
        """Write the condition that two rows are equal.

        Args:
            row: the alias of a row; ``t`` is one of the target's.
            source_row: the alias of one of the source's rows.
        """
        terms = []
        for target, source in self.image:
            first, second = f"{row}.{target if row == 't' else source}", f"{source_row}.{source}"
            if source == "rescued":  # JSON: equal values may be texts in another order
                first, second = self._rescued(first), self._rescued(second)
            terms.append(merging.same_image(first, second, self._kind(source)))
        return " AND ".join(terms)

    def alike(self) -> list[str]:
        """Write the expressions that are the same for equal images of the source's rows."""
        types = ((name, self._kind(name)) for _, name in self.image)
        return [self._rescued(name) if name == "rescued" else merging.image_of(name, kind) for name, kind in types]

    def _rescued(self, text: str, without: Sequence[str] = ()) -> str:
        """Write rescued values in one form, without those of dropped columns and of the given ones."""
        names = [*(column.name for column in self.merge.shape.columns if column.dropped), *without]
        values = f"from_json({text}, 'map<string,string>')"
        if names:
            listed = ", ".join(map(delta.literal, names))
            values = f"map_filter({values}, (k, v) -> NOT array_contains(array({listed}), k))"
        return f"CASE WHEN {text} IS NOT NULL THEN {merging.rescued_json(values)} END"

    def _kind(self, source: str) -> pa.DataType | None:
        return self.merge.type_of(int(source[1:])).arrow if source[0] == "c" else None

    def counted(self, rows: DataFrame) -> DataFrame:
        """Add ``copies``, the number that the table has (0 if none are needed), and ``stay``, how many of them stay."""
        rows.selectExpr("*", "monotonically_increasing_id() AS image").createOrReplaceTempView(_ROWS)
        return self.spark.sql(
            f"SELECT s.*, coalesce(c.copies, 0L) AS copies FROM {_ROWS} AS s LEFT JOIN "
            f"(SELECT s.image, count(*) AS copies FROM {_ROWS} AS s JOIN {self.merge.own_rows} AS t "
            f"ON {self.same('t', 's')} WHERE s.needed > 0 GROUP BY s.image) AS c ON s.image = c.image"
        ).selectExpr("*", "greatest(copies - needed, 0L) AS stay")

    def older(self, counted: DataFrame, since: int) -> DataFrame:
        """Let deletes that found no row take rows that are older than some columns.

        Args:
            since: the id of the first of these columns.

        Returns:
            the rows, to be counted again.
        """
        counted.createOrReplaceTempView(_COUNTED)
        columns = self.merge.shape.columns
        newer = [number for number, column in enumerate(columns) if column.id >= since and not column.dropped]
        nothing = {f"c{number}": f"CAST(NULL AS {sql_type(columns[number].type.arrow)})" for number in newer}
        nothing["rescued"] = self._rescued("rescued", [columns[number].name for number in newer])
        sources = [source for _, source in self.image]
        before = ", ".join(f"{nothing.get(source, source)} AS {source}" for source in sources)
        rescues_newer = f"NOT ({self._rescued('rescued')} <=> {nothing['rescued']})"
        has_newer = " OR ".join([*(f"c{number} IS NOT NULL" for number in newer), rescues_newer])
        alike = ", ".join(merging.image_of(source, self._kind(source)) for source in sources)
        # `place`, the first of equal images, names all of them; `prior` counts the rows that images before one take.
        self.spark.sql(
            f"SELECT *, min(image) OVER (PARTITION BY {alike}) AS place, "
            f"sum(missing) OVER (PARTITION BY {alike} ORDER BY image) - missing AS prior FROM "
            f"(SELECT image, needed - copies AS missing, {before} FROM {_COUNTED} "
            f"WHERE needed > copies AND ({has_newer}))"
        ).createOrReplaceTempView(_OLDER)
        first = f"(SELECT * FROM {_OLDER} WHERE image = place)"
        older_copies = (
            f"SELECT o.place, count(*) AS copies FROM {first} AS o JOIN {self.merge.own_rows} AS t "
            f"ON {self.same('t', 'o')} GROUP BY o.place"
        )
        equal_rows = (
            f"SELECT o.place, n.image, n.needed, n.net FROM {first} AS o JOIN {_COUNTED} AS n "
            f"ON n.needed > 0 AND {self.same('n', 'o')}"
        )
        taken_rows = (
            "SELECT o.*, k.image AS known, "
            "greatest(0L, least(o.missing, t.copies - coalesce(k.needed, 0L) - o.prior)) AS taken "
            f"FROM {_OLDER} AS o JOIN ({older_copies}) AS t ON o.place = t.place "
            f"LEFT JOIN ({equal_rows}) AS k ON o.place = k.place"
        )
        given_rows = f"SELECT known, sum(taken) AS taken FROM ({taken_rows}) WHERE known IS NOT NULL GROUP BY known"
        changed_columns = {
            "net": "n.net + coalesce(o.taken, 0L) - coalesce(g.taken, 0L)",
            "needed": "n.needed - coalesce(o.taken, 0L) + coalesce(g.taken, 0L)",
        }
        new = {**{source: source for source in sources}, "net": "-all_taken", "needed": "all_taken", "unknown": "false"}
        kinds = {field.name: field.dataType.simpleString() for field in counted.schema.fields}
        rows = [name for name in counted.columns if name not in _COUNTS]
        changed_rows = ", ".join(f"{changed_columns.get(name, f'n.{name}')} AS {name}" for name in rows)
        new_rows = ", ".join(f"CAST({new.get(name, 'NULL')} AS {kinds[name]}) AS {name}" for name in rows)
        return self.spark.sql(
            f"SELECT {changed_rows} FROM {_COUNTED} AS n LEFT JOIN ({taken_rows}) AS o ON n.image = o.image "
            f"LEFT JOIN ({given_rows}) AS g ON n.image = g.known UNION ALL "
            f"SELECT {new_rows} FROM (SELECT *, sum(taken) OVER (PARTITION BY place) AS all_taken FROM ({taken_rows})) "
            "WHERE known IS NULL AND image = place AND all_taken > 0"
        )

    def merged(self, counts: merging.RowCounts) -> merging.Written:
        """MERGE the counted rows."""
        pairs = self.merge.pairs
        # Each name has its alias in front, because the table may have a column of the same name.
        loses = "s.needed > 0 AND s.copies > 0"  # images of which the table has copies, and some are deleted
        targets = ", ".join(f"t.{target} AS {source}" for target, source in pairs)
        newest_first = next((f"t.{target} DESC, " for target, source in pairs if source == "lsn"), "")
        staying = (
            f"SELECT {targets}, s.copies - s.stay AS lost, "
            f"row_number() OVER (PARTITION BY s.image ORDER BY {newest_first}1) AS place "
            f"FROM {_COUNTED} AS s JOIN {self.merge.own_rows} AS t ON {self.same('t', 's')} "
            f"WHERE {loses} AND s.stay > 0"
        )
        listed = ", ".join(source for _, source in pairs)
        source = (
            f"SELECT true AS gone, {listed} FROM {_COUNTED} AS s WHERE {loses} UNION ALL "  # deletes all copies
            f"SELECT false AS gone, {listed} FROM ({staying}) WHERE place > lost UNION ALL "
            f"SELECT false AS gone, {listed} FROM "
            f"(SELECT *, explode(sequence(1L, {_COPIES})) FROM {_COUNTED} WHERE {_COPIES} > 0)"
        )
        clauses = f"WHEN MATCHED THEN DELETE WHEN NOT MATCHED AND NOT s.gone THEN {merging.inserting(self.merge)}"
        match = f"s.gone AND {self.same('t', 's')}"
        return merging.merged(self.spark, self.merge, counts, f"({source})", match, clauses, marked="s.gone")
