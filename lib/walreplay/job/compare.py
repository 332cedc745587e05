"""Compare tables with those that are known to be right, value for value.

`RowComparison` compares rows.  Sums over hashes come first, in buckets of keys, so nothing is shuffled but these; rows
of buckets that differ are matched then.  Values are compared as they are: NULL is like NULL and NaN like NaN, but 0.0
is not like -0.0.  Equal rows count by their number.

To open a small table takes Spark longer than to compare it.  `equal_tables` has tasks read all small ones' files by
themselves; what they do not find equal, Spark compares.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Final

import pyarrow as pa
from pyspark.sql import functions as f
from pyspark.sql.types import ArrayType, DataType, DoubleType, FloatType, StructType
from pyspark.sql.window import Window

from walreplay.config.keys import HISTORY_COLUMNS
from walreplay.config.selection import MetadataNames
from walreplay.delta import statements as delta
from walreplay.delta.commits import CommitId
from walreplay.delta.local import DamagedLogError, LeftToSpark, NotReadError
from walreplay.delta.opened import OpenedTable
from walreplay.delta.small_table import TableFiles
from walreplay.delta.statements import sql_schema
from walreplay.delta.target import quote
from walreplay.errors import TargetError, WalReplayError, listed
from walreplay.evolution.shapes import OWN
from walreplay.job.context import RunContext
from walreplay.job.standing import KnownTable, standing_of
from walreplay.names import RowKind
from walreplay.session.failures import failure_of, spark_errors
from walreplay.session.isolation import cached_attribute, session_with
from walreplay.spark.workers.compare import PAIRS, compare_pairs
from walreplay.table.registry import MirrorEntry
from walreplay.table.table_run import is_own
from walreplay.writing.by_statements import TableWriter
from walreplay.writing.rewrite import small_files

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

_BUCKETS: Final = 1024

_PAIRS_A_JOB: Final = 256  # each of its tasks is sent the names of all their files
_MOST_TASKS: Final = 16
_OTHER_COLUMNS: Final = "the columns of the one table are not those of the other"

# Beside columns `c0`, `c1` and so on, which no table's name can be mistaken for here.
_BUCKET: Final = "bucket"
_HASH: Final = "hash"
_SIDE: Final = "side"
_COUNT: Final = "count"
_NUMBER: Final = "number"
_SIDES: Final = ("expected", "found")

MISSING, EXTRA, CHANGED = "missing", "extra", "changed"

# Spark's own form of JSON has no microseconds.
_JSON: Final = {
    "ignoreNullFields": "false",
    "timestampFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSSXXX",
    "timestampNTZFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSS",
}


@dataclass(frozen=True)
class RowComparison:
    """The rows of two tables.

    Attributes:
        expected: the right rows.
        present: the rows that are to be like them, with the same columns.
        key: the columns by which rows that differ are matched; none if nothing but all of a row tells it from others.
    """

    expected: DataFrame
    present: DataFrame
    key: tuple[str, ...] = ()

    @property
    def rows(self) -> int:
        """How many right rows there are."""
        return sum(sums[0] for sums in self._sums[0].values())

    @property
    def is_equal(self) -> bool:
        """Whether both have the same rows, each the same number of times."""
        return self._sums[0] == self._sums[1]

    @cached_attribute
    def _sums(self) -> tuple[dict[int, tuple[int, ...]], ...]:
        """By bucket, how many rows each side has, and sums over hashes of them, in whatever order they lie."""
        # In one job, so that tasks of both sides share the machine.
        hashes = self._hashes(self.expected, 0).union(self._hashes(self.present, 1))
        # A sum of 64-bit hashes overflows a bigint; those of their halves do not.
        halves = (f.col(_HASH).bitwiseAND(f.lit(0xFFFFFFFF)), f.shiftrightunsigned(_HASH, 32))
        sums = hashes.groupBy(_SIDE, _BUCKET).agg(f.count(f.lit(1)), *map(f.sum, halves))
        sides: tuple[dict[int, tuple[int, ...]], ...] = ({}, {})
        for side, bucket, *of_bucket in sums.collect():
            sides[side][bucket] = tuple(of_bucket)
        return sides

    @cached_attribute
    def _names(self) -> tuple[str, ...]:
        return tuple(self.expected.columns)

    @cached_attribute
    def _key(self) -> tuple[int, ...]:
        """The numbers of the columns by which a row is found."""
        names = self._names
        return tuple(names.index(name) for name in self.key if name in names) or tuple(range(len(names)))

    def _hashes(self, rows: DataFrame, side: int) -> DataFrame:
        parts = [part for field in rows.schema.fields for part in _hashed(f.col(quote(field.name)), field.dataType)]
        hashed = f.xxhash64(f.lit(1), *parts)
        return rows.select(f.lit(side).alias(_SIDE), self._bucket(rows).alias(_BUCKET), hashed.alias(_HASH))

    def _bucket(self, rows: DataFrame) -> Column:
        """Return the bucket of a row, by its key."""
        fields = [rows.schema.fields[number] for number in self._key]
        parts = [part for field in fields for part in _hashed(f.col(quote(field.name)), field.dataType)]
        return f.pmod(f.xxhash64(f.lit(0), *parts), f.lit(_BUCKETS))

    def differences(self) -> DataFrame:
        """Return the rows that differ, one for each row of the source.

        Returns:
            ``kind``: `MISSING`, `EXTRA` or `CHANGED`; ``key``, ``expected`` and ``found``: values by their columns, as
            JSON, NULL where there is no such row; ``columns``: the names of those that differ.
        """
        expected, present = self._sums
        buckets = [bucket for bucket in expected.keys() | present.keys() if expected.get(bucket) != present.get(bucket)]
        sides = [
            rows.where(self._bucket(rows).isin(buckets)).select(*self._comparable(rows), f.lit(sign).alias(_COUNT))
            for rows, sign in ((self.expected, 1), (self.present, -1))
        ]
        values = [f.col(f"c{number}") for number in range(len(self._names))]
        # What both have as often cancels out; what is left is on one side alone.
        unmatched = sides[0].union(sides[1]).groupBy(*values).agg(f.sum(_COUNT).alias(_COUNT)).where(f"{_COUNT} != 0")
        copies = unmatched.select("*", f.explode(f.sequence(f.lit(1), f.abs(_COUNT))).alias(_NUMBER))
        return self._matched(copies.drop(_NUMBER))

    def _comparable(self, rows: DataFrame) -> list[Column]:
        fields = enumerate(rows.schema.fields)
        return [_comparable(f.col(quote(field.name)), field.dataType).alias(f"c{number}") for number, field in fields]

    def _matched(self, unmatched: DataFrame) -> DataFrame:
        """Match the rows of both sides by their keys; a key may have several."""
        names = [f"c{number}" for number in range(len(self._names))]
        key = [f.col(names[number]) for number in self._key]
        is_expected = f.col(_COUNT) > 0
        number = f.row_number().over(Window.partitionBy(*key, is_expected).orderBy(f.xxhash64(*names)))
        numbered = unmatched.withColumn(_NUMBER, number)
        pairs = numbered.groupBy(*key, _NUMBER).agg(
            *(
                f.first(f.when(is_expected if side == _SIDES[0] else ~is_expected, f.struct(*names)), True).alias(side)
                for side in _SIDES
            )
        )
        expected, present = (f.col(side) for side in _SIDES)
        kind = f.when(present.isNull(), MISSING).when(expected.isNull(), EXTRA).otherwise(CHANGED)
        differing = [
            f.when(~expected[column].eqNullSafe(present[column]), f.lit(name))
            for column, name in zip(names, self._names, strict=True)
        ]
        columns = f.filter(f.array(*differing), lambda name: name.isNotNull())
        either = f.coalesce(expected, present)
        return pairs.select(
            kind.alias("kind"),
            _json(either, [(names[number], self._names[number]) for number in self._key]).alias("key"),
            f.when(kind == CHANGED, columns).otherwise(f.array().cast("array<string>")).alias("columns"),
            *(_json(f.col(side), list(zip(names, self._names, strict=True))).alias(side) for side in _SIDES),
        )


def _json(row: Column, columns: Sequence[tuple[str, str]]) -> Column:
    """Write values of a row by their columns' names; NULL for no row."""
    return f.when(row.isNotNull(), f.to_json(f.struct(*(row[column].alias(name) for column, name in columns)), _JSON))


def _hashed(value: Column, kind: DataType) -> list[Column]:
    """Return what of a value is hashed: NULL leaves a hash as it is, and so does an empty array."""
    if isinstance(kind, ArrayType):
        element = kind.elementType
        parts = [f.size(value), f.transform(value, lambda inner: f.struct(*_hashed(inner, element)))]
    elif isinstance(kind, StructType):
        parts = [part for field in kind.fields for part in _hashed(value.getField(field.name), field.dataType)]
    elif isinstance(kind, (FloatType, DoubleType)):
        parts = [value, f.when(value == 0, value.cast("string"))]  # both zeros have one hash; to write all takes longer
    else:
        parts = [value]
    return [*parts, value.isNull()]


def _comparable(value: Column, kind: DataType) -> Column:
    """Return a value that is equal to another one just where both are the same: for Spark 0.0 is like -0.0."""
    if isinstance(kind, (FloatType, DoubleType)):
        return value.cast("string")
    if isinstance(kind, ArrayType):
        element = kind.elementType
        return f.transform(value, lambda inner: _comparable(inner, element))
    if isinstance(kind, StructType):
        fields = (_comparable(value.getField(field.name), field.dataType).alias(field.name) for field in kind.fields)
        return f.when(value.isNotNull(), f.struct(*fields))
    return value


# Tables


@dataclass(frozen=True, slots=True)
class Verdict:
    """A table held against the right one.

    Attributes:
        why: what of it is not as it should be, or who has changed it; empty for nothing.
        rows: how many the right table has.
        has_right_rows: its rows are right, whoever has written them.
        comparison: of the rows, by Spark; None where these cannot be compared, or need not be.
        is_read: nothing of Spark's has failed.
    """

    why: str
    rows: int
    has_right_rows: bool = False
    comparison: RowComparison | None = None
    is_read: bool = True


@dataclass(frozen=True, slots=True)
class TablePair:
    """A table, and one that has the rows, the columns and the names that it should have.

    Attributes:
        entry: what the ledger knows of the table; None for none.
        right: the ledger's entry of the other table.
        metadata: the names of both tables' own columns.
        key: the columns that identify its rows, by their names in the other table; none if nothing does.
        left_out: columns that are not compared.
        is_siblings: see `KnownTable`.
        of_source: the other table has what the source has now, loaded at a time of its own: the source's columns are
            compared, of rows that it has.
    """

    entry: MirrorEntry | None
    right: MirrorEntry
    metadata: MetadataNames
    key: tuple[str, ...] = ()
    left_out: tuple[str, ...] = ()
    is_siblings: Callable[[CommitId], bool] | None = None
    of_source: bool = False

    def verdict(self, spark: SparkSession, ledger: str, equal_rows: int | None = None) -> Verdict:
        """Compare them.

        Args:
            spark: a session that only the caller uses.
            ledger: the ledger's id.
            equal_rows: how many rows both have, if they were found to be equal (`equal_tables`).
        """
        if self.entry is not None and equal_rows is not None:
            with suppress(TargetError):  # which is met below, too
                opened = OpenedTable(spark, self.entry.table)
                return Verdict(self._reason(opened, ledger, self.entry), equal_rows, has_right_rows=True)
        rows = delta.read(spark, self.right.table)
        if self.entry is None:
            return Verdict("it is new", rows.count())
        try:
            why, comparison = self._compared(spark, ledger, self.entry, rows)
            if comparison is not None:
                differs = "" if comparison.is_equal else "its rows are others"
                return Verdict(why or differs, comparison.rows, comparison.is_equal, comparison)
        except TargetError as error:
            why = error.problem
        except WalReplayError:
            raise
        except Exception:
            # Whatever Spark has met there: a rebuild makes the table again.
            return Verdict("it cannot be read", rows.count(), is_read=False)
        return Verdict(why, rows.count())

    def _compared(
        self, spark: SparkSession, ledger: str, entry: MirrorEntry, rows: DataFrame
    ) -> tuple[str, RowComparison | None]:
        """Return what is wrong with the table but for its rows, and the comparison of these; None if it is in vain."""
        if not self.of_source and not self._has_right_shape(entry):
            return "its columns are others", None
        opened = OpenedTable(spark, entry.table)
        if not opened.exists:
            return "it is gone", None
        reason = self._reason(opened, ledger, entry)
        present_rows = delta.read(spark, entry.table)
        if entry.share is not None:  # the other sources' rows have columns, and types, of their own
            own_values = _in_types(present_rows.schema, rows.schema, lambda name: f.col(quote(name)))
            present_rows = present_rows.where(is_own(entry.share)).select(*own_values)
        unknown = ""
        if self.of_source:
            names = {column.source for column in entry.shape.present}
            lacking = [column.source for column in self.right.shape.present if column.source not in names]
            # The source announces columns, and their new names, with the next row that it sends.
            unknown = f"not compared: {listed(lacking)}, which no row was sent of yet" if lacking else ""
            rows, present_rows = self._of_source(rows, self.right, entry), self._of_source(present_rows, entry, entry)
        if _declared(present_rows.schema) != _declared(rows.schema):
            return "its columns were changed", None
        rows, present_rows = rows.drop(*self.left_out), present_rows.drop(*self.left_out)
        return reason or unknown, RowComparison(rows, present_rows, self.key)

    def _has_right_shape(self, entry: MirrorEntry) -> bool:
        shapes = (
            [(column.source, column.name, column.type, column.dropped) for column in compared.shape.columns]
            for compared in (entry, self.right)
        )
        return next(shapes) == next(shapes)

    def _reason(self, opened: OpenedTable, ledger: str, entry: MirrorEntry) -> str:
        """Return why the table waits, or that somebody has changed it; empty for nothing.

        Raises:
            TargetError: it is not the ledger's table.
        """
        standing = standing_of(opened, KnownTable(entry.table, entry.name, ledger, entry, None, self.is_siblings))
        is_sound = standing is not None and standing.is_sound
        return entry.paused or ("" if is_sound else "somebody else has changed it")

    def small_files(self, spark: SparkSession, writer: TableWriter) -> tuple[TableFiles, TableFiles]:
        """Return the files of the right table, and of the other one, with the columns that are compared.

        Raises:
            LeftToSpark: rows of these alone do not say whether the tables are equal; or only Spark can read them.
        """
        entry = self.entry
        if entry is None or entry.share is not None or not (self.of_source or self._has_right_shape(entry)):
            raise LeftToSpark("more than rows has to be compared")
        right, present = (writer.opened(spark, compared.table) for compared in (self.right, entry))
        names, present_names = ([field["name"] for field in table.fields] for table in (right, present))
        if self.of_source:
            names = self._names_of_source(entry)
        elif names != present_names:
            raise LeftToSpark(_OTHER_COLUMNS)
        # By the right table's types alone: what somebody has changed in the other one may have any.
        schema = pa.schema([right.arrow_schema.field(name) for name in names if name not in self.left_out])
        right_columns, present_columns = right.columns(schema), present.columns(schema)
        if right_columns is None or present_columns is None:
            raise LeftToSpark(_OTHER_COLUMNS)
        return small_files(right, right_columns), small_files(present, present_columns)

    def _names_of_source(self, entry: MirrorEntry) -> list[str]:
        """Return the columns that are compared with a source's, if both tables have the same ones, and only open rows.

        Raises:
            LeftToSpark: they do not.
        """
        shapes = (self.right.shape, entry.shape)
        names = [[(column.source, column.name) for column in shape.present] for shape in shapes]
        sources = [{column.source for column in shape.columns} for shape in shapes]
        if self.metadata.rows is RowKind.VERSION or OWN in sources[0] | sources[1]:
            raise LeftToSpark("some rows are not the source's any more")
        if names[0] != names[1] or sources[0] != sources[1]:
            raise LeftToSpark(_OTHER_COLUMNS)
        rescued = self.metadata.rescued_data
        return [name for _, name in names[0]] + ([] if rescued is None else [rescued])

    def _of_source(self, rows: DataFrame, compared: MirrorEntry, entry: MirrorEntry) -> DataFrame:
        """Return the rows of one of the tables that the source has now, by the columns that both tables have of it.

        Args:
            compared: the ledger's entry of the one; ``entry`` is that of the table under test, whose types both get.
        """
        marks = [column.name for column in compared.shape.columns if column.source == OWN]
        if self.metadata.rows is RowKind.VERSION:
            marks = [HISTORY_COLUMNS["end_lsn"]]
        for mark in marks:  # versions that have ended, and rows that are marked as deleted
            rows = rows.where(f.col(quote(mark)).isNull() | (f.col(quote(mark)).cast("string") == "false"))
        names = {column.source: column.name for column in compared.shape.present}
        types = {column.source: delta.sql_type(column.type.arrow) for column in entry.shape.present}
        values = [
            f.col(quote(names[column.source])).try_cast(types[column.source]).alias(column.name)
            for column in self.right.shape.present
            if column.source != OWN and column.source in types
        ]
        sources = [{column.source for column in shape.columns} for shape in (entry.shape, self.right.shape)]
        rescued = self.metadata.rescued_data
        # What one table alone has a column for may be among the rescued values of that one alone.
        return rows.select(*values, *([quote(rescued)] if rescued is not None and sources[0] == sources[1] else []))


def equal_tables(context: RunContext, pairs: Sequence[TablePair]) -> dict[int, int]:
    """Find small tables that have the rows that they should have, in one job for all of them.

    Returns:
        their numbers of rows by their oids.  Whether others are equal, Spark has to say.
    """

    def files_of(pair: TablePair) -> tuple[TableFiles, TableFiles] | None:
        with suppress(LeftToSpark, NotReadError, DamagedLogError, OSError):
            return pair.small_files(context.session, context.writer)
        return None

    both = zip(pairs, context.each(files_of, pairs), strict=True)
    files = {pair.right.oid: pair_files for pair, pair_files in both if pair_files is not None}
    counts, oids = dict[int, int](), list(files)
    for begin in range(0, len(oids), _PAIRS_A_JOB):
        chosen = oids[begin : begin + _PAIRS_A_JOB]
        work = partial(compare_pairs, pairs=[files[oid] for oid in chosen])
        numbers = context.session.range(0, len(chosen), 1, min(len(chosen), _MOST_TASKS))
        rows = numbers.mapInArrow(work, sql_schema(PAIRS)).where("rows IS NOT NULL").collect()
        counts |= {chosen[row.pair]: row.rows for row in rows}
    return counts


@contextmanager
def comparing(context: RunContext, name: str, place: str) -> Iterator[SparkSession]:
    """Provide a session in which a table is compared; Spark's errors name it, and its place."""
    with spark_errors(table=name, path=place), session_with(context.spark, delta.SMALL_STATE) as session:
        yield session


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


def _in_type(value: Column, kind: DataType, wanted_kind: DataType) -> Column:
    """Return a value of a table with other columns in the type that one source's rows have, of which it was made."""
    if kind == wanted_kind:
        return value
    if not isinstance(kind, StructType) or not isinstance(wanted_kind, StructType):
        cast = value.try_cast(wanted_kind)
        return f.when(cast.cast(kind).eqNullSafe(value), cast)  # what is rounded was not the source's
    return f.when(value.isNotNull(), f.struct(*_in_types(kind, wanted_kind, value.getField)))


def _in_types(held: StructType, wanted_kind: StructType, value_of: Callable[[str], Column]) -> Iterator[Column]:
    kinds = {field.name: field.dataType for field in held.fields}
    for field in wanted_kind.fields:
        if field.name in kinds:
            yield _in_type(value_of(field.name), kinds[field.name], field.dataType).alias(field.name)


def _declared(schema: StructType) -> list[tuple[str, str]]:
    return [(field.name, field.dataType.simpleString()) for field in schema.fields]
