"""Staged events: decoded and folded per file, kept until the tables are merged.

The files are decoded once, whatever the number of tables.  The results are kept in a folder (or table) of the ledger
until the run ends.  Each row is an Arrow IPC stream: the events of one table and key bucket in one file.  Two classes
implement the interface (`walreplay.spark.staged_rows`): with `FileStaging` tasks write and read files themselves, with
`TableStaging` Spark does.
"""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial, reduce
from itertools import pairwise
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol, TypeAlias

import pyarrow as pa

from walreplay.delta.statements import sql_schema
from walreplay.errors import from_dict
from walreplay.spark.captures import files_a_batch, read_files
from walreplay.spark.workers.decode import DecodeTask, decode_batches
from walreplay.spark.workers.fold import FoldTask, link_batches, route_batches
from walreplay.spark.workers.rows import ERROR_TABLE, ROUTE, USES_TABLE, Total, Work, links_table, unpack_batches

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


FEW_PARTS_A_BATCH: Final = {"spark.sql.execution.arrow.maxRecordsPerBatch": "4"}
"""How staged events come from Spark to the workers that fold them: a row may have megabytes, and all of a task's rows
would come at once else.  It is set around those jobs alone: with it every other mapInArrow would crawl."""


class Rows(Protocol):
    """Rows that tasks work on: a DataFrame, or shares that tasks read themselves."""

    def mapInArrow(self, func: Work, schema: str, /) -> DataFrame:  # noqa: N802
        """Return what a function makes of each task's rows."""
        ...


TaskWorks: TypeAlias = Sequence[tuple[Rows, Work]]
"""Rows, and what tasks make of them."""


@dataclass(frozen=True, slots=True)
class StagedVersion:
    """What is staged of one relation version.

    Attributes:
        rows: row changes decoded.
        tracked: the version's columns that some change leaves unchanged.
        moves: some key changes have to be followed.
        deletes: some rows are deleted.
        first, last: the sequence numbers between which its rows, or its truncates, lie.
    """

    rows: int
    tracked: tuple[int, ...]
    moves: bool
    deletes: bool
    first: int
    last: int


class VersionSegment(NamedTuple):
    """A table's rows of one relation version, up to those of another.

    Attributes:
        start: their first sequence number.
        version: the relation version's number.
    """

    start: int
    version: int


class EmptiedAt(NamedTuple):
    """A truncate of a table.

    Attributes:
        sequence: where it stands among the staged rows.
        lsn: the commit LSN, and ``ordinal`` the truncate's number in its transaction.
        top: the greatest commit time in its unit up to it, in microseconds since 1970-01-01 UTC.
    """

    sequence: int
    lsn: int
    ordinal: int
    top: int


@dataclass(frozen=True, slots=True)
class Staged:
    """What is staged for one table.

    Attributes:
        versions: by the relation versions' numbers.
        segments: in commit order.
        size: bytes.
        emptied: of a history: the truncates, in commit order.
    """

    versions: Mapping[int, StagedVersion]
    segments: tuple[VersionSegment, ...]
    size: int = 0
    emptied: tuple[EmptiedAt, ...] = ()


@dataclass(frozen=True, slots=True)
class StagedRows:
    """A selection of a table's staged rows.

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


class Staging(ABC):
    """The staged events of a run.

    Attributes:
        written: there is something to delete.
        decoded: a plan's events were staged.
        uses: the numbers of the relation versions that committed rows and truncates use, in commit order.  Each comes
            with the commit LSN up to which the name is used there; None if that is not known.  Rows that are left out
            count too.
        tops: the sequence of each unit of a file (see `workers.decode`), and the greatest commit time in it.
    """

    def __init__(self) -> None:
        self.written = self.decoded = False
        self.uses: tuple[tuple[int, int | None], ...] = ()
        self.tops: tuple[tuple[int, int], ...] = ()
        self._sizes: Counter[int] = Counter()

    def decode(self, spark: SparkSession, task: DecodeTask) -> dict[int, Staged]:
        """Decode files in parallel and stage their events; return what each table has.

        Raises:
            WalReplayError: the error of the first file, in the stream's order, that has one.
        """
        files = read_files(spark, list(task.files), sum(file.length for file in task.files.values()))
        staged = self.take(spark, [(files, partial(decode_batches, task=task))], files_a_batch(task.files))
        self.decoded = True
        return staged

    def take(
        self, spark: SparkSession, works: TaskWorks, values: Mapping[str, str], tasks: int | None = None
    ) -> dict[int, Staged]:
        """Stage the rows of some works, and nothing else; return what each table has.

        Args:
            values: settings for the job.
            tasks: how many are at work at a time; None for any number.

        Raises:
            WalReplayError: the first error among the rows of `ERROR_TABLE`.
        """
        self._stage(spark, works, values, tasks)
        totals = self._totals(spark)
        for total in totals:
            self._sizes[total.table] += total.size
        return self._summarise(spark, totals)

    def has(self, table: int) -> bool:
        """Return whether something was staged under a table's number."""
        return table in self._sizes

    def read(self, spark: SparkSession, rows: StagedRows, task: FoldTask) -> Rows:
        """Return a table's events: bucket, sequence, data.  Each bucket is in commit order and in one task.

        Args:
            task: how they are folded.
        """
        if rows.together or (rows.tasks == 1 and rows.moves):  # in one task linked keys meet anyway
            return self._events(spark, replace(rows, together=True))
        if not rows.moves:
            return self._events(spark, rows)
        links = self._links(spark, replace(rows, table=links_table(rows.table)))  # one task finds which keys are linked
        routes = links.mapInArrow(partial(link_batches, buckets=rows.buckets), sql_schema(ROUTE))
        together = by_bucket(self._frame_of_events(spark, rows).unionByName(routes), rows.tasks)
        # The second shuffle: events of linked keys go to the bucket that their route names.
        routed = together.mapInArrow(partial(route_batches, task=task, buckets=rows.buckets), sql_schema(ROUTE))
        return by_bucket(routed, rows.tasks)

    def records(self, spark: SparkSession, table: int, schema: pa.Schema) -> DataFrame:
        """Return the records of transactions or messages.

        Args:
            table: `TRANSACTIONS_TABLE`, `PARTS_TABLE` or `MESSAGES_TABLE`; ``schema`` is its rows'.
        """
        columns = sql_schema(schema)
        if not self.has(table):
            return spark.createDataFrame([], columns)
        return self.staged(spark, table).mapInArrow(unpack_batches, columns)

    @abstractmethod
    def staged(self, spark: SparkSession, table: int) -> Rows:
        """Return what was staged under a table's number, in the form that `workers.records.unpack_batches` takes."""

    @abstractmethod
    def clear(self, spark: SparkSession) -> None:
        """Delete the staged events.

        Raises:
            TargetError: they cannot be deleted.
        """

    @abstractmethod
    def _stage(self, spark: SparkSession, works: TaskWorks, values: Mapping[str, str], tasks: int | None) -> None:
        """Stage the results of whole files in place of what an earlier run left.

        Args:
            values: settings for the job.
            tasks: how many are at work at a time, if that is limited.
        """

    @abstractmethod
    def _totals(self, spark: SparkSession) -> Sequence[Total]:
        """Gather the totals of the staged rows, without reading their contents."""

    @abstractmethod
    def _places(self, spark: SparkSession, table: int) -> Iterable[tuple[int, int]]:
        """Return sequence and relation of a table's rows, once each, in order."""

    @abstractmethod
    def _events(self, spark: SparkSession, rows: StagedRows) -> Rows:
        """Return a table's events, sorted by bucket and sequence, each bucket's in one task."""

    @abstractmethod
    def _frame_of_events(self, spark: SparkSession, rows: StagedRows) -> DataFrame:
        """Return a table's events in any order."""

    @abstractmethod
    def _links(self, spark: SparkSession, rows: StagedRows) -> Rows:
        """Return the data of a table's links (see `walreplay.spark.workers.fold.link_batches`), in one task."""

    def _summarise(self, spark: SparkSession, totals: Sequence[Total]) -> dict[int, Staged]:
        """Sum up each table's versions, or raise the first error."""
        failed = [row for row in totals if row.table == ERROR_TABLE]
        if failed:
            # The first in the stream, whichever task failed first.
            raise from_dict(json.loads(min(failed, key=lambda row: row.first).info))
        # Each begins with its unit's sequence, so they are in commit order.
        units = sorted(json.loads(row.info) for row in totals if row.table == USES_TABLE)
        self.uses = tuple((number, lsn) for _, _, *used in units for number, lsn in used)
        self.tops = tuple((sequence, top) for sequence, top, *_ in units)
        versions_by_table: dict[int, dict[int, StagedVersion]] = {}
        emptied: dict[int, list[EmptiedAt]] = {}
        for row in totals:
            if row.table < 0:  # errors, uses, links and the ledger's records have no versions
                continue
            info = json.loads(row.info)
            emptied.setdefault(row.table, []).extend(EmptiedAt(*truncate) for truncate in info.get("emptied", ()))
            versions = versions_by_table.setdefault(row.table, {})
            nothing = StagedVersion(0, (), False, False, row.first, row.last)
            earlier = versions.get(row.relation, nothing)
            versions[row.relation] = StagedVersion(
                rows=earlier.rows + row.rows,
                tracked=tuple(sorted({*earlier.tracked, *info["tracked"]})),
                moves=earlier.moves or info["moves"],
                deletes=earlier.deletes or info["deletes"],
                first=min(earlier.first, row.first),
                last=max(earlier.last, row.last),
            )
        return {
            table: Staged(
                versions, self._segments(spark, table, versions), self._sizes[table], tuple(sorted(emptied[table]))
            )
            for table, versions in versions_by_table.items()
        }

    def _segments(
        self, spark: SparkSession, table: int, versions: Mapping[int, StagedVersion]
    ) -> tuple[VersionSegment, ...]:
        """Return the versions in the order in which they were used."""
        ranges = sorted((version.first, version.last, number) for number, version in versions.items())
        if all(earlier[1] < later[0] for earlier, later in pairwise(ranges)):
            return tuple(VersionSegment(first, number) for first, _, number in ranges)
        # A version may be used again: a table may return to an earlier definition.
        segments: list[VersionSegment] = []
        for sequence, relation in self._places(spark, table):
            if not segments or segments[-1].version != relation:
                segments.append(VersionSegment(sequence, relation))
        return tuple(segments)


def together(frames: Sequence[DataFrame], tasks: int | None) -> DataFrame:
    """Bring the results of several works together.

    Args:
        tasks: how many are at work at a time; each has some of the works' partitions, one after the other.
    """
    frame = reduce(lambda left, right: left.unionByName(right), frames)
    return frame if tasks is None else frame.coalesce(tasks)


def by_bucket(frame: DataFrame, tasks: int) -> DataFrame:
    """Bring each bucket's rows to one task, sorted."""
    # Spark's hash of a bucket decides on the task, so all of a bucket's rows meet in one.
    return frame.repartition(tasks, "bucket").sortWithinPartitions("bucket", "sequence")
