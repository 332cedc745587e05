"""Decoded and folded events between the pass over the files and the tables' merges.

The files are decoded once, whatever the number of tables; what comes out lies in a folder (or table) of the
ledger's until the run ends.  Each row is an Arrow IPC stream: the events of one table and key bucket of one file.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial, reduce
from itertools import pairwise
from typing import TYPE_CHECKING, Final, NamedTuple, TypeAlias

import pyarrow as pa

from wal2delta.errors import from_dict
from wal2delta.spark import delta
from wal2delta.spark.isolation import settings
from wal2delta.spark.source import ONE_FILE_A_BATCH, number_files, read_files
from wal2delta.spark.target import Target
from wal2delta.spark.workers import (
    ERROR_TABLE,
    NO_BUCKET,
    ROUTE_SCHEMA,
    SCANS_TABLE,
    STAGE_SCHEMA,
    DecodeTask,
    FoldTask,
    decode_batches,
    decode_carried,
    link_batches,
    links_table,
    route_batches,
    unpack_batches,
)
from wal2delta.transactions.ahead import Confirmation

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, Row, SparkSession

Work: TypeAlias = Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]

_NAME: Final = "staging"

_FEW_LARGE_ROWS: Final = {
    # Parquet looks at how much it holds after 100 rows at first, which may be all that a file has, and then after as
    # many as it guesses from the rows so far: behind a small row thousands of large ones would come into one group.
    "parquet.page.size.row.check.min": "1",
    "parquet.page.size.row.check.max": "1",
    "parquet.block.size": str(16 << 20),
    "parquet.enable.dictionary": "false",
}
"""How staged events are written: a row is all that a table has in one file and bucket."""

FEW_PARTS_A_BATCH: Final = {"spark.sql.execution.arrow.maxRecordsPerBatch": "4"}
"""How staged events come to the workers that fold them: a row may have megabytes, and all of a task's rows would come
at once else.  It is set around those jobs alone: with it every other mapInArrow would crawl."""

_SUMMARISED: Final = ("table", "relation", "sequence", "rows", "first_lsn", "last_lsn", "info", "size")


@dataclass(frozen=True, slots=True)
class StagedVersion:
    """What is staged of one relation version.

    Attributes:
        rows: row changes decoded.
        tracked: the version's columns that some change leaves unchanged.
        moves: some key changes have to be followed.
        deletes: some rows are deleted.
        first, last: the sequence numbers between which its rows, or its truncates, lie.
        first_lsn, last_lsn: the commits that have used it first and last.
    """

    rows: int
    tracked: tuple[int, ...]
    moves: bool
    deletes: bool
    first: int
    last: int
    first_lsn: int
    last_lsn: int


class Segment(NamedTuple):
    """A table's rows of one relation version, up to those of another.

    Attributes:
        start: their first sequence number.
        version: the relation version's number.
        first_lsn, last_lsn: of the first and the last commit among them.
    """

    start: int
    version: int
    first_lsn: int
    last_lsn: int


@dataclass(frozen=True, slots=True)
class Staged:
    """What is staged for one table.

    Attributes:
        versions: by the relation versions' numbers.
        segments: in commit order.
        size: bytes.
    """

    versions: Mapping[int, StagedVersion]
    segments: tuple[Segment, ...]
    size: int = 0


@dataclass(frozen=True, slots=True)
class StagedRows:
    """Which of a table's rows are meant.

    Attributes:
        start, stop: sequence numbers; ``stop`` None for all that follow.
        moves: keys that are linked have to be brought together.
        together: all rows have to come to one task.
        buckets: how many there are, and ``tasks`` to read them.
    """

    table: int
    start: int
    stop: int | None
    moves: bool
    together: bool
    buckets: int
    tasks: int


def decoded(spark: SparkSession, task: DecodeTask, confirmed: Confirmation | None = None) -> DataFrame | None:
    """Give what is to be staged of files that are decoded by a plan; None where that is nothing.

    Args:
        confirmed: what holds of the files that were decoded ahead, which are not among the task's.
    """
    frames = []
    if task.files:
        files = read_files(spark, list(task.files), sum(file.length for file in task.files.values()))
        frames.append(files.mapInArrow(partial(decode_batches, task=task), STAGE_SCHEMA))
    if confirmed is not None and confirmed.rest:
        carried = replace(task, files={file.path: file for file in confirmed.rest})
        numbers = number_files(spark, len(confirmed.rest), 0)
        frames.append(numbers.mapInArrow(partial(decode_carried, task=carried), STAGE_SCHEMA))
    return reduce(lambda one, other: one.unionByName(other), frames) if frames else None


class Staging:
    """The staged events of a run.

    Args:
        turn: which of several places to use, so that a run that was taken over from does not write to this one's.
    """

    def __init__(self, target: Target, turn: int = 0) -> None:
        self._table = target.ledger(_NAME if turn == 0 else f"{_NAME}_{turn}")
        self._written = self._decoded = False
        self._tables: frozenset[int] = frozenset()
        self._void: tuple[int, ...] = ()

    @property
    def kept_rows_path(self) -> str | None:
        """Where a folder can be for rows that are folded already; gone with the rest.  None in a catalog.

        Spark takes it for none of the staged tables' folders, as its name begins with an underscore.
        """
        return None if self._table.path is None else f"{self._table.path}/_rows"

    @property
    def written(self) -> bool:
        """Whether there is something to throw away."""
        return self._written

    @property
    def decoded(self) -> bool:
        """Whether a plan's events were staged."""
        return self._decoded

    def scan(self, spark: SparkSession, paths: Sequence[str], work: Work) -> list[Row]:
        """Scan files in parallel and stage what is decoded ahead; give the rows of `SCANS_TABLE`, of earlier calls too.

        Args:
            work: what a task does with its files.
        """
        self._write_files(read_files(spark, paths, 0).mapInArrow(work, STAGE_SCHEMA))
        return self._of_table(spark, SCANS_TABLE).select("ahead", "info", "data").collect()

    def decode(self, spark: SparkSession, task: DecodeTask, confirmed: Confirmation | None = None) -> dict[int, Staged]:
        """Decode files in parallel and stage their events (see `decoded`); give what each table has.

        Raises:
            Wal2DeltaError: what the first file in the stream's order has against it.
        """
        if confirmed is None:
            self._written = False
        else:
            self._void = tuple(confirmed.void)
        events = decoded(spark, task, confirmed)
        if events is not None:
            self._write_files(events)
        self._decoded = True
        frame = self._frame(spark).select(*_SUMMARISED)
        rows = _totals(frame)
        self._tables = frozenset(row.table for row in rows)
        return _summarise(frame, rows)

    def _write_files(self, frame: DataFrame) -> None:
        """Stage what comes of whole files: in place of what an earlier run may have left, then beside what is there."""
        mode = "append" if self._written else "overwrite"
        self._written = True
        with settings(frame.sparkSession, ONE_FILE_A_BATCH):
            self._write(frame, mode)

    def has(self, table: int) -> bool:
        """Say whether something was staged under a table's number."""
        return table in self._tables

    def read(self, spark: SparkSession, rows: StagedRows, task: FoldTask) -> DataFrame:
        """Give a table's events by bucket, each bucket's in commit order and in one task.

        Args:
            task: how they are folded.
        """
        frame = self._within(spark, rows.table, rows)
        events = frame.where(f"bucket <> {NO_BUCKET}").select("bucket", "sequence", "data")
        if rows.tasks == 1 or rows.together:
            events = events.selectExpr("0 AS bucket", "sequence", "data").coalesce(1)
            return events.sortWithinPartitions("bucket", "sequence")
        if rows.moves:
            links = self._within(spark, links_table(rows.table), rows).select("data").coalesce(1)
            routes = links.mapInArrow(partial(link_batches, buckets=rows.buckets), ROUTE_SCHEMA)
            events = _by_bucket(events.unionByName(routes), rows.tasks).mapInArrow(
                partial(route_batches, task=task, buckets=rows.buckets), ROUTE_SCHEMA
            )
        return _by_bucket(events, rows.tasks)

    def _within(self, spark: SparkSession, table: int, rows: StagedRows) -> DataFrame:
        frame = self._of_table(spark, table).where(f"sequence >= {rows.start}")
        return frame if rows.stop is None else frame.where(f"sequence < {rows.stop}")

    def records(self, spark: SparkSession, table: int, schema: str) -> DataFrame:
        """Give what was recorded of transactions or messages.

        Args:
            table: `TRANSACTIONS_TABLE`, `PARTS_TABLE` or `MESSAGES_TABLE`; ``schema`` is its rows'.
        """
        if not self.has(table):
            return spark.createDataFrame([], schema)
        return self.staged(spark, table).mapInArrow(unpack_batches, schema)

    def staged(self, spark: SparkSession, table: int) -> DataFrame:
        """Give what was staged under a table's number, as `wal2delta.spark.workers.unpack_batches` takes it."""
        return self._of_table(spark, table).select("data")

    def clear(self, spark: SparkSession) -> None:
        """Throw the staged events away."""
        if not self._written:
            return
        self._written = False
        if self._table.path is not None:
            # There is no way to delete a folder that every platform has; an empty overwrite empties it.
            self._write(spark.createDataFrame([], STAGE_SCHEMA).coalesce(1), "overwrite")
        else:
            spark.sql(f"DROP TABLE IF EXISTS {self._table.sql}")

    def _write(self, frame: DataFrame, mode: str) -> None:
        if self._table.path is not None:
            # Whatever the session says of overwriting: of an earlier run's tables nothing may stay.
            writer = frame.write.mode(mode).options(partitionOverwriteMode="static", **_FEW_LARGE_ROWS)
            writer = writer.partitionBy("table")
            writer.parquet(self._table.path)
        else:
            # A catalog's tables do not take these as options.
            with settings(frame.sparkSession, _FEW_LARGE_ROWS):
                delta.write(frame, self._table, mode, create=mode == "overwrite")

    def _frame(self, spark: SparkSession) -> DataFrame:
        if self._table.path is not None:
            return self._valid(spark.read.schema(STAGE_SCHEMA).parquet(self._table.path))
        return self._valid(spark.read.table(self._table.sql))

    def _of_table(self, spark: SparkSession, table: int) -> DataFrame:
        if self._table.path is None or not (self.has(table) or table == SCANS_TABLE):
            return self._frame(spark).where(f"table = {table}")
        # Only its own folder is listed: of more than 32 Spark lists each by a task, and would do so for every table.
        reader = spark.read.schema(STAGE_SCHEMA).option("basePath", self._table.path)
        return self._valid(reader.parquet(f"{self._table.path}/table={table}"))

    def _valid(self, frame: DataFrame) -> DataFrame:
        """Leave out what was decoded ahead by a guess that did not hold."""
        return frame.where(f"ahead NOT IN ({', '.join(map(str, self._void))})") if self._void else frame


def _by_bucket(frame: DataFrame, tasks: int) -> DataFrame:
    return frame.repartition(tasks, "bucket").sortWithinPartitions("bucket", "sequence")


def _totals(frame: DataFrame) -> list[Row]:
    """Gather what the staged rows say of themselves, their contents unread."""
    from pyspark.sql import functions as f

    totals = frame.groupBy("table", "relation", "info").agg(
        f.sum("rows").alias("rows"),
        f.sum("size").alias("size"),
        f.min("sequence").alias("first"),
        f.max("sequence").alias("last"),
        f.min("first_lsn").alias("first_lsn"),
        f.max("last_lsn").alias("last_lsn"),
    )
    return totals.collect()


def _summarise(frame: DataFrame, rows: Sequence[Row]) -> dict[int, Staged]:
    """Sum up each table's versions, or raise the first error."""
    failed = [row for row in rows if row.table == ERROR_TABLE]
    if failed:
        raise from_dict(json.loads(min(failed, key=lambda row: row.first).info))
    found: dict[int, dict[int, StagedVersion]] = {}
    sizes: Counter[int] = Counter()
    for row in rows:
        if row.table < 0:
            continue
        info = json.loads(row.info)
        sizes[row.table] += row.size
        versions = found.setdefault(row.table, {})
        unknown = StagedVersion(0, (), False, False, row.first, row.last, row.first_lsn, row.last_lsn)
        before = versions.get(row.relation, unknown)
        versions[row.relation] = StagedVersion(
            rows=before.rows + row.rows,
            tracked=tuple(sorted({*before.tracked, *info["tracked"]})),
            moves=before.moves or info["moves"],
            deletes=before.deletes or info["deletes"],
            first=min(before.first, row.first),
            last=max(before.last, row.last),
            first_lsn=min(before.first_lsn, row.first_lsn),
            last_lsn=max(before.last_lsn, row.last_lsn),
        )
    return {
        table: Staged(versions, _segments(frame, table, versions), sizes[table]) for table, versions in found.items()
    }


def _segments(frame: DataFrame, table: int, versions: Mapping[int, StagedVersion]) -> tuple[Segment, ...]:
    """Give the versions in the order in which they were used."""
    ranges = sorted((found.first, found.last, number) for number, found in versions.items())
    if all(one[1] < other[0] for one, other in pairwise(ranges)):
        return tuple(
            Segment(first, number, versions[number].first_lsn, versions[number].last_lsn) for first, _, number in ranges
        )
    # A version may come back: what a table has become, it may have been before.
    columns = ("sequence", "relation", "first_lsn", "last_lsn")
    places = frame.where(f"table = {table}").select(*columns).distinct().orderBy("sequence")
    segments: list[Segment] = []
    for row in places.collect():
        if segments and segments[-1].version == row.relation:
            segments[-1] = segments[-1]._replace(last_lsn=row.last_lsn)
        else:
            segments.append(Segment(row.sequence, row.relation, row.first_lsn, row.last_lsn))
    return tuple(segments)
