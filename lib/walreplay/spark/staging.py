"""Staged events: decoded and folded per file, kept until the tables are merged.

The files are decoded once, whatever the number of tables.  A decoding task writes its events to one file
(`walreplay.delta.staged_file`) in a folder that driver and workers reach, and returns the totals.  Each row of the file
is an Arrow IPC stream: the events of one table and key bucket in one capture file.  A folding task gets a number, and
reads its share.  A failed task's file is never read, and is deleted with the folder.
"""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial, reduce
from itertools import chain, groupby, pairwise
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol, TypeAlias

import pyarrow as pa
import pyarrow.compute as pc

from walreplay.delta import statements as delta
from walreplay.delta.staged_file import RowSelection, Sharing, read_columns
from walreplay.delta.statements import sql_schema
from walreplay.errors import from_dict
from walreplay.fold.batches import batch_from_ipc
from walreplay.session.folders import Folder, MountedFolder
from walreplay.session.isolation import settings
from walreplay.spark.captures import files_a_batch, read_files
from walreplay.spark.workers import rows as worker_rows
from walreplay.spark.workers import write
from walreplay.spark.workers.decode import DecodeTask, decode_batches
from walreplay.spark.workers.fold import FoldTask, link_batches, route_batches
from walreplay.spark.workers.process import spark_task

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


class Rows(Protocol):
    """Rows that tasks work on: a DataFrame, or shares that tasks read themselves."""

    def mapInArrow(self, func: worker_rows.Work, schema: str, /) -> DataFrame:  # noqa: N802
        """Return what a function makes of each task's rows."""


TaskWorks: TypeAlias = Sequence[tuple[Rows, worker_rows.Work]]
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
    """A table's rows of one relation version, by its number: from a first sequence number up to those of another."""

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
class FileRows:
    """Shares of staged rows, on which a function can be run."""

    spark: SparkSession
    shares: write.Shares

    def mapInArrow(self, func: worker_rows.Work, schema: str, /) -> DataFrame:  # noqa: N802
        """Return what a function makes of each share."""
        # Spark brings a task its number, and nothing else.
        numbers = self.spark.range(0, self.shares.count, 1, self.shares.count)
        return numbers.mapInArrow(partial(write.over_shares, work=func, shares=self.shares), schema)


_BYTES_A_TASK: Final = 4 << 20

_OLD: Final = 7 * 24 * 3600.0  # Nothing is at work still in a folder that has not changed for so many seconds


class Staging:
    """The staged events of a run.

    Each run has a folder of its own inside.  So a paused run that wakes up after another one has taken over does not
    touch the other one's files.

    Args:
        folder: for those of all runs.
        run_id: the name of the run's folder; ``previous_run_id`` is that of the run from which it has taken over.

    Attributes:
        folder: the run's own, for rows that are already folded, too; all is deleted together.
        written: there is something to delete.
        decoded: a plan's events were staged.
        uses: the numbers of the relation versions that committed rows and truncates use, in commit order.  Each comes
            with the commit LSN up to which the name is used there; None if that is not known.  Rows that are left out
            count too.
        tops: the sequence of each unit of a file (see `workers.decode`), and the greatest commit time in it.
    """

    def __init__(self, folder: Folder, run_id: str = "", previous_run_id: str | None = None) -> None:
        self.folder = folder.inside(run_id)
        self.written = self.decoded = False
        self.uses: tuple[tuple[int, int | None], ...] = ()
        self.tops: tuple[tuple[int, int], ...] = ()
        self._runs = folder
        self._previous_run_id = previous_run_id
        self._names: dict[int, list[str]] = {}
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
        totals = [worker_rows.Total(**row) for row in self._stage(spark, works, values, tasks).to_pylist()]
        for total in totals:
            self._sizes[total.table] += total.size
        return self._summarise(totals)

    def has(self, table: int) -> bool:
        """Return whether something was staged under a table's number."""
        return table in self._sizes

    def read(
        self, spark: SparkSession, rows: RowSelection, task: FoldTask, *, together: bool, buckets: int, tasks: int
    ) -> Rows:
        """Return a table's events: bucket, sequence, data.  Each bucket is in commit order and in one task.

        Args:
            together: all rows have to come to one task.
            buckets: how many there are, and ``tasks`` to read them.
        """
        if together or (tasks == 1 and task.moves):  # in one task linked keys meet anyway
            return self._rows(spark, rows, 1, Sharing.TOGETHER)
        events = self._rows(spark, rows, tasks, Sharing.BY_BUCKET)
        if not task.moves:
            return events
        of_links = replace(rows, table=worker_rows.links_table(rows.table), least_bucket=worker_rows.NO_BUCKET)
        links = self._rows(spark, of_links, 1, Sharing.TOGETHER)  # one task finds which keys are linked
        routes = links.mapInArrow(partial(link_batches, buckets=buckets), sql_schema(worker_rows.ROUTE))
        # Spark needs the rows themselves.
        unchanged = events.mapInArrow(spark_task(iter), sql_schema(worker_rows.ROUTE))
        joined = by_bucket(unchanged.unionByName(routes), tasks)
        # The second shuffle: events of linked keys go to the bucket that their route names.
        routed = joined.mapInArrow(partial(route_batches, task=task, buckets=buckets), sql_schema(worker_rows.ROUTE))
        return by_bucket(routed, tasks)

    def records(self, spark: SparkSession, table: int, schema: pa.Schema) -> DataFrame:
        """Return the records of `TRANSACTIONS_TABLE`, `PARTS_TABLE` or `MESSAGES_TABLE`, whose rows have the schema."""
        columns = sql_schema(schema)
        if not self.has(table):
            return spark.createDataFrame([], columns)
        return self.staged(spark, table).mapInArrow(worker_rows.unpack_batches, columns)

    def staged(self, spark: SparkSession, table: int) -> Rows:
        """Return what was staged under a table's number, as `walreplay.spark.workers.rows.unpack_batches` takes it."""
        tasks = 1 + self._sizes[table] // _BYTES_A_TASK
        return self._rows(spark, RowSelection(table, least_bucket=worker_rows.NO_BUCKET), tasks, Sharing.IN_TURN)

    def clear(self) -> None:
        """Delete the staged events.

        Raises:
            TargetError: they cannot be deleted.
        """
        self.written = False
        self._names = {}
        self._sizes.clear()
        _remove(self.folder)  # with files of failed tasks, whose names nobody has
        self._runs.delete_empty()

    def _clear_before(self) -> None:
        """Delete what ended runs have left behind."""
        for name in self._runs.names():
            changed = self._runs.changed_at(name)
            # Other folders may be those of runs that are at work, or paused.
            if changed is not None and (name == self._previous_run_id or time.time() - changed > _OLD):
                _remove(self._runs.inside(name))

    def _stage(self, spark: SparkSession, works: TaskWorks, values: Mapping[str, str], tasks: int | None) -> pa.Table:
        """Stage the results of whole files in place of what an earlier run left; return their totals (`Total`)."""
        self._clear_before()
        self.written = True
        frames = [
            rows.mapInArrow(partial(write.stage_into_file, work=work, folder=self.folder), sql_schema(write.WRITTEN))
            for rows, work in works
        ]
        with settings(spark, {**delta.FEW_ROWS, **values}), worker_rows.refusals_told():
            written = together(frames, tasks).collect()
        return self._add_files((row.name, batch_from_ipc(row.totals)) for row in written)

    def _add_files(self, written: Iterable[tuple[str, pa.RecordBatch]]) -> pa.Table:
        """Add the names of files that tasks have written; return the sums of their totals (see `stage_into_file`)."""
        batches = []
        for name, totals in written:
            batches.append(totals)
            # Tasks then open only the files that have rows of their table.
            for table in pc.unique(totals.column("table")).to_pylist():
                self._names.setdefault(table, []).append(name)
        return write.summed(pa.Table.from_batches(batches)) if batches else pa.table({})

    def _places(self, table: int) -> list[tuple[int, int]]:
        """Return sequence and relation of a table's rows, once each, in order."""
        selection = RowSelection(table, least_bucket=worker_rows.NO_BUCKET)
        columns = ("sequence", "relation")
        places = (read_columns(self.folder, name, selection, columns) for name in self._names.get(table, ()))
        return sorted(set(chain.from_iterable(places)))

    def _rows(self, spark: SparkSession, selection: RowSelection, tasks: int, sharing: Sharing) -> FileRows:
        names = tuple(self._names.get(selection.table, ()))
        return FileRows(spark, write.Shares(self.folder, names, selection, tasks, sharing))

    def _summarise(self, totals: Sequence[worker_rows.Total]) -> dict[int, Staged]:
        """Sum up each table's versions, or raise the first error."""
        failed = [row for row in totals if row.table == worker_rows.ERROR_TABLE]
        if failed:
            # The first in the stream, whichever task failed first.
            raise from_dict(json.loads(min(failed, key=lambda row: row.first).info))
        # Each begins with its unit's sequence, so they are in commit order.
        units = sorted(json.loads(row.info) for row in totals if row.table == worker_rows.USES_TABLE)
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
            table: Staged(versions, self._segments(table, versions), self._sizes[table], tuple(sorted(emptied[table])))
            for table, versions in versions_by_table.items()
        }

    def _segments(self, table: int, versions: Mapping[int, StagedVersion]) -> tuple[VersionSegment, ...]:
        """Return the versions in the order in which they were used."""
        ranges = sorted((version.first, version.last, number) for number, version in versions.items())
        if all(earlier[1] < later[0] for earlier, later in pairwise(ranges)):
            return tuple(VersionSegment(first, number) for first, _, number in ranges)
        # A version may be used again: a table may return to an earlier definition.
        by_version = groupby(self._places(table), key=lambda place: place[1])
        return tuple(VersionSegment(next(places)[0], number) for number, places in by_version)


class CountedStaging(Staging):
    """What would be staged, for a forecast: the driver gets what rows say of themselves, and nothing is written."""

    def __init__(self) -> None:
        super().__init__(MountedFolder(""))
        self._index = _INDEX.empty_table()

    def _stage(self, spark: SparkSession, works: TaskWorks, values: Mapping[str, str], tasks: int | None) -> pa.Table:
        frames = [rows.mapInArrow(partial(write.without_data, work=work), sql_schema(_INDEX)) for rows, work in works]
        with settings(spark, values):
            staged = [row.asDict() for row in together(frames, tasks).collect()]
        self._index = pa.Table.from_pylist(staged, _INDEX)
        return write.totals_of(self._index)

    def _places(self, table: int) -> list[tuple[int, int]]:
        rows = self._index.filter(pc.field("table") == table).select(["sequence", "relation"]).to_pylist()
        return sorted({(row["sequence"], row["relation"]) for row in rows})


_INDEX: Final = worker_rows.STAGE.remove(worker_rows.STAGE.get_field_index("data"))


def _remove(folder: Folder) -> None:
    try:
        folder.delete_all()
    except OSError as error:
        raise write.refused("cannot be deleted", error, folder) from None


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
