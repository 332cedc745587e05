"""The two forms of staged events: in Spark's hands (`TableStaging`), or in files of the tasks' own (`FileStaging`).

Spark keeps them in Parquet files in a folder of the ledger, or in a table of a catalog.  Every byte then passes through
the JVM four times: from a worker into a shuffle, and from the shuffle into another worker.  In a mounted folder or an
object store, a decoding task writes its events to one file (`walreplay.delta.staged_file`) and returns the totals.  A
folding task gets a number, and reads its share.  A failed task's file is never read, and is deleted with the folder.

`Reached` has where a target's tables lie, and tries whether driver and workers reach them by themselves.
"""

from __future__ import annotations

import threading
import time
import uuid
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import functions as f

from walreplay.delta import statements as delta
from walreplay.delta.staged_file import RowSelection, Sharing, read_columns
from walreplay.delta.statements import sql_schema
from walreplay.delta.stores import taken
from walreplay.delta.target import TableName, folder_at, schema_folder
from walreplay.fold.batches import batch_from_ipc
from walreplay.listing import escape_glob
from walreplay.session.folders import Folder, MountedFolder, StoreFolder
from walreplay.session.isolation import has_own_sessions, settings
from walreplay.session.session import local_cores
from walreplay.spark.staging import Rows, StagedRows, Staging, TaskWorks, by_bucket, together
from walreplay.spark.workers.process import REACHED, reach
from walreplay.spark.workers.rows import NO_BUCKET, ROUTE, STAGE, Total, Work, refusals_told
from walreplay.spark.workers.write import (
    WRITTEN,
    Shares,
    as_they_are,
    over_shares,
    refused,
    stage_into_file,
    summed,
    totals_of,
    without_data,
)

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, Row, SparkSession


_FEW_LARGE_ROWS: Final = {
    # Parquet looks at how much it holds after 100 rows at first, which may be all that a file has, and then after as
    # many as it guesses from the rows so far: behind a small row thousands of large ones would come into one group.
    "parquet.page.size.row.check.min": "1",
    "parquet.page.size.row.check.max": "1",
    "parquet.block.size": str(16 << 20),
    "parquet.enable.dictionary": "false",
}
"""How staged events are written: a row is all that a table has in one file and bucket."""


class TableStaging(Staging):
    """Staged events that Spark writes and reads.

    Args:
        table: where they are staged.
    """

    def __init__(self, table: TableName) -> None:
        super().__init__()
        self._table = table

    def staged(self, spark: SparkSession, table: int) -> Rows:
        """Return what was staged under a table's number, as `walreplay.spark.workers.rows.unpack_batches` takes it."""
        return self._of_table(spark, table).select("data")

    def clear(self, spark: SparkSession) -> None:
        """Delete the staged events."""
        if not self.written:
            return
        self.written = False
        if self._table.path is not None:
            # No way to delete a folder works on every platform; an empty overwrite empties it.
            self._write(spark.createDataFrame([], sql_schema(STAGE)).coalesce(1))
        else:
            spark.sql(f"DROP TABLE IF EXISTS {self._table.sql}")

    def _stage(self, spark: SparkSession, works: TaskWorks, values: Mapping[str, str], tasks: int | None) -> None:
        frames = [rows.mapInArrow(work, sql_schema(STAGE)) for rows, work in works]
        frame = together(frames, tasks)
        self.written = True
        with settings(spark, values):
            self._write(frame)

    def _write(self, frame: DataFrame) -> None:
        if self._table.path is not None:
            # Of an earlier run's tables nothing may stay.  In capitals: a Turkish Java finds no `static`.
            writer = frame.write.mode("overwrite").options(partitionOverwriteMode="STATIC", **_FEW_LARGE_ROWS)
            writer.partitionBy("table").parquet(self._table.path)
        else:
            # A catalog's tables do not take these as options.
            with settings(frame.sparkSession, _FEW_LARGE_ROWS):
                delta.write(frame, self._table, "overwrite", create=delta.NewTable())

    def _totals(self, spark: SparkSession) -> list[Total]:
        # The column `data` is not read: Parquet keeps columns apart.
        totals = self._frame(spark).groupBy("table", "relation", "info")
        sums = totals.agg(
            f.sum("rows").alias("rows"),
            f.sum("size").alias("size"),
            f.min("sequence").alias("first"),
            f.max("sequence").alias("last"),
        )
        return [Total(*row) for row in sums.select(*Total._fields).collect()]

    def _places(self, spark: SparkSession, table: int) -> list[Row]:
        rows = self._of_table(spark, table).select("sequence", "relation")
        return rows.distinct().orderBy("sequence").collect()

    def _events(self, spark: SparkSession, rows: StagedRows) -> DataFrame:
        events = self._frame_of_events(spark, rows)
        if not rows.together and rows.tasks > 1:
            return by_bucket(events, rows.tasks)
        events = events.selectExpr("0 AS bucket", "sequence", "data").coalesce(1)  # one bucket: all is folded together
        return events.sortWithinPartitions("bucket", "sequence")

    def _frame_of_events(self, spark: SparkSession, rows: StagedRows) -> DataFrame:
        return self._within(spark, rows).where(f"bucket <> {NO_BUCKET}").select("bucket", "sequence", "data")

    def _links(self, spark: SparkSession, rows: StagedRows) -> DataFrame:
        return self._within(spark, rows).select("data").coalesce(1)

    def _within(self, spark: SparkSession, rows: StagedRows) -> DataFrame:
        frame = self._of_table(spark, rows.table).where(f"sequence >= {rows.start}")
        return frame if rows.stop is None else frame.where(f"sequence < {rows.stop}")

    def _frame(self, spark: SparkSession) -> DataFrame:
        if self._table.path is not None:
            return spark.read.schema(sql_schema(STAGE)).parquet(escape_glob(self._table.path))
        return spark.read.table(self._table.sql)

    def _of_table(self, spark: SparkSession, table: int) -> DataFrame:
        if self._table.path is None or not self.has(table):  # without rows there is no folder to read
            return self._frame(spark).where(f"table = {table}")
        # Only its own folder is listed: of more than 32 Spark lists each by a task, and would do so for every table.
        reader = spark.read.schema(sql_schema(STAGE)).option("basePath", self._table.path)
        return reader.parquet(f"{escape_glob(self._table.path)}/table={table}")


_INDEX: Final = STAGE.remove(STAGE.get_field_index("data"))


class CountedStaging(TableStaging):
    """What would be staged, for a forecast: the driver gets what rows say of themselves, and nothing is written."""

    def __init__(self) -> None:
        Staging.__init__(self)
        self._rows = _INDEX.empty_table()

    def _stage(self, spark: SparkSession, works: TaskWorks, values: Mapping[str, str], tasks: int | None) -> None:
        frames = [rows.mapInArrow(partial(without_data, work=work), sql_schema(_INDEX)) for rows, work in works]
        with settings(spark, values):
            staged = [row.asDict() for row in together(frames, tasks).collect()]
        self._rows = pa.Table.from_pylist(staged, _INDEX)

    def _totals(self, spark: SparkSession) -> list[Total]:
        return [Total(**row) for row in totals_of(self._rows).to_pylist()]

    def _places(self, spark: SparkSession, table: int) -> list[tuple[int, int]]:  # type: ignore[override]
        rows = self._rows.filter(pc.field("table") == table).select(["sequence", "relation"]).to_pylist()
        return sorted({(row["sequence"], row["relation"]) for row in rows})


_BYTES_A_TASK: Final = 4 << 20

_OLD: Final = 7 * 24 * 3600.0  # Nothing is at work still in a folder that has not changed for so many seconds


@dataclass(frozen=True, slots=True)
class FileRows:
    """Shares of staged rows, on which a function can be run."""

    spark: SparkSession
    shares: Shares

    def mapInArrow(self, func: Work, schema: str, /) -> DataFrame:  # noqa: N802
        """Return what a function makes of each share."""
        # Spark brings a task its number, and nothing else.
        numbers = self.spark.range(0, self.shares.count, 1, self.shares.count)
        return numbers.mapInArrow(partial(over_shares, work=func, shares=self.shares), schema)


class FileStaging(Staging):
    """Staged events in files.

    Each run has a folder of its own inside.  So a paused run that wakes up after another one has taken over does not
    touch the other one's files.

    Args:
        folder: for those of all runs.
        run_id: the name of the run's folder; ``previous_run_id`` is that of the run from which it has taken over.
    """

    def __init__(self, folder: Folder, run_id: str = "", previous_run_id: str | None = None) -> None:
        super().__init__()
        self._runs = folder
        self._folder = folder.inside(run_id)
        self._previous_run_id = previous_run_id
        self._names: dict[int, list[str]] = {}
        self._new_totals: list[pa.RecordBatch] = []

    @property
    def kept_rows_folder(self) -> Folder:
        """A folder for rows that are already folded, deleted with the rest."""
        return self._folder

    def staged(self, spark: SparkSession, table: int) -> Rows:
        """Return what was staged under a table's number, as `walreplay.spark.workers.rows.unpack_batches` takes it."""
        tasks = 1 + self._sizes[table] // _BYTES_A_TASK
        return self._rows(spark, RowSelection(table, least_bucket=NO_BUCKET), tasks, Sharing.IN_TURN)

    def clear(self, spark: SparkSession | None = None) -> None:
        """Delete the staged events."""
        self.written = False
        self._names = {}
        self._new_totals = []
        _remove(self._folder)  # with files of failed tasks, whose names nobody has
        self._runs.delete_empty()

    def _clear_before(self) -> None:
        """Delete what ended runs have left behind."""
        for name in self._runs.names():
            changed = self._runs.changed_at(name)
            # Other folders may be those of runs that are at work, or paused.
            if changed is not None and (name == self._previous_run_id or time.time() - changed > _OLD):
                _remove(self._runs.inside(name))

    def _stage(self, spark: SparkSession, works: TaskWorks, values: Mapping[str, str], tasks: int | None) -> None:
        self._clear_before()
        self.written = True
        frames = [
            rows.mapInArrow(partial(stage_into_file, work=work, folder=self._folder), sql_schema(WRITTEN))
            for rows, work in works
        ]
        frame = together(frames, tasks)
        with settings(spark, {**delta.FEW_ROWS, **values}), refusals_told():
            self._add_files(frame.collect())

    def _add_files(self, written: Sequence[Row]) -> None:
        """Add the names and totals of the files that tasks have written (see `stage_into_file`)."""
        for row in written:
            totals = batch_from_ipc(row.totals)
            self._new_totals.append(totals)
            # Tasks then open only the files that have rows of their table.
            for table in pc.unique(totals.column("table")).to_pylist():
                self._names.setdefault(table, []).append(row.name)

    def _totals(self, spark: SparkSession) -> list[Total]:
        if not self._new_totals:
            return []
        batches = pa.Table.from_batches(self._new_totals)
        self._new_totals = []
        return [Total(**row) for row in summed(batches).to_pylist()]

    def _places(self, spark: SparkSession, table: int) -> list[tuple[int, int]]:
        selection = RowSelection(table, least_bucket=NO_BUCKET)
        columns = ("sequence", "relation")
        places = (read_columns(self._folder, name, selection, columns) for name in self._names.get(table, ()))
        return sorted(set(chain.from_iterable(places)))

    def _events(self, spark: SparkSession, rows: StagedRows) -> Rows:
        selection = RowSelection(rows.table, rows.start, rows.stop)
        if rows.together:
            return self._rows(spark, selection, 1, Sharing.TOGETHER)
        return self._rows(spark, selection, rows.tasks, Sharing.BY_BUCKET)

    def _frame_of_events(self, spark: SparkSession, rows: StagedRows) -> DataFrame:
        return self._events(spark, rows).mapInArrow(as_they_are, sql_schema(ROUTE))

    def _links(self, spark: SparkSession, rows: StagedRows) -> Rows:
        return self._rows(spark, RowSelection(rows.table, rows.start, rows.stop, NO_BUCKET), 1, Sharing.TOGETHER)

    def _rows(self, spark: SparkSession, selection: RowSelection, tasks: int, sharing: Sharing) -> FileRows:
        names = tuple(self._names.get(selection.table, ()))
        return FileRows(spark, Shares(self._folder, names, selection, tasks, sharing))


def _remove(folder: Folder) -> None:
    try:
        folder.delete_all()
    except OSError as error:
        raise refused("cannot be deleted", error, folder) from None


_STAGING: Final = "_walreplay_staging"


class Reached(ABC):
    """The places of a target's tables, as far as the driver reaches them by itself, and maybe the workers, too."""

    @abstractmethod
    def located(self, spark: SparkSession, table: TableName) -> Folder | None:
        """Return the folder of a table; None if the driver or delta-rs does not reach it, or a catalog has no table."""

    @abstractmethod
    def by_workers(self, folder: Folder) -> bool:
        """Return whether the workers reach a table's folder by themselves, too: tried once for those beside it."""

    @abstractmethod
    def staging(self, table: TableName, run_id: str) -> Folder | None:
        """Return the folder where runs stage events, if driver and workers reach it.

        Args:
            table: the ledger's table at whose place it lies.
            run_id: the name of the run's folder inside, which is deleted at the end.
        """


class ReachedRoot(Reached):
    """A folder that has all tables of a target.

    Args:
        root: the root as it is named; ``folder`` is the same.
    """

    def __init__(self, spark: SparkSession, root: str, folder: Folder) -> None:
        self._spark = spark
        self._root = root
        self._folder = folder
        self._by_workers: bool | None = None

    def located(self, spark: SparkSession, table: TableName) -> Folder | None:
        """Return the folder of a table, usually below the root."""
        if table.path is not None and table.path.startswith(f"{self._root}/"):
            return taken(self._below(table.path))
        return folder_at(spark, table)

    def by_workers(self, folder: Folder) -> bool:
        """Return whether the workers reach the root by themselves, too."""
        if self._by_workers is None:
            tried = self._folder.inside(_probe_name())
            self._by_workers = workers_reach(self._spark, tried)
            tried.delete_all()
        return self._by_workers

    def staging(self, table: TableName, run_id: str) -> Folder | None:
        """Return the folder at the table's path."""
        assert table.path is not None
        folder = self._below(table.path)
        if self._by_workers is None:
            self._by_workers = workers_reach(self._spark, folder.inside(run_id))
        return folder if self._by_workers else None

    def _below(self, path: str) -> Folder:
        return self._folder.inside(path.removeprefix(self._root).lstrip("/"))


class ReachedCatalog(Reached):
    """The tables of a catalog that says where they lie (`walreplay.delta.target`)."""

    def __init__(self, spark: SparkSession) -> None:
        self._spark = spark
        self._probe_name: dict[object, bool] = {}
        self._trying = threading.Lock()

    def located(self, spark: SparkSession, table: TableName) -> Folder | None:
        """Return the folder of a table, which the catalog is asked for."""
        return folder_at(spark, table)

    def by_workers(self, folder: Folder) -> bool:
        """Return whether the workers reach a table's folder: tried once for a bucket, or for a folder of tables."""
        return self._reach(folder, folder.inside(_probe_name()), passing=True)

    def staging(self, table: TableName, run_id: str) -> Folder | None:
        """Return a folder in that of the ledger's schema, of a name that no table of a catalog has."""
        schema = schema_folder(self._spark, table)
        if schema is None:
            return None
        folder = schema.inside(f".{table.parts[-1].lower()}")
        return folder if self._reach(folder, folder.inside(run_id), passing=False) else None

    def _reach(self, folder: Folder, tried: Folder, *, passing: bool) -> bool:
        key = _reach_key(folder)
        with self._trying:  # tables are written by several threads
            if key not in self._probe_name:
                self._probe_name[key] = workers_reach(self._spark, tried)
                if passing:
                    tried.delete_all()
            return self._probe_name[key]


class ReachedStaging:
    """A folder that the user has named for staged events, which the driver may reach by itself.

    Args:
        folder: what is in it may be anything, so events go to a folder inside.
    """

    def __init__(self, spark: SparkSession, folder: Folder) -> None:
        self._spark = spark
        self._folder = folder.inside(_STAGING)
        self._by_workers: bool | None = None

    def folder(self, run_id: str) -> Folder | None:
        """Return the folder of all runs' events, if the workers reach it, too: that is tried once.

        Args:
            run_id: the name of the run's folder inside, which is deleted at the end.
        """
        if self._by_workers is None:
            self._by_workers = workers_reach(self._spark, self._folder.inside(run_id))
        return self._folder if self._by_workers else None


def _reach_key(folder: Folder) -> object:
    """Return what a folder shares with those that are reached as it is."""
    if isinstance(folder, StoreFolder):
        return folder.kind, folder.options, folder.bucket  # one client and its keys reach all of a bucket
    return str(Path(folder.path).parent) if isinstance(folder, MountedFolder) else folder


def _probe_name() -> str:
    return f".reached-{uuid.uuid4()}"


def workers_reach(spark: SparkSession, folder: Folder) -> bool:
    """Return whether a worker can write and read in a folder by itself, and whether it is the one that Spark means.

    A task writes a byte there, and reads it; then the driver has to find it.  In local mode the workers have the disks
    of the driver, unless that is a client of Spark Connect, which may be anywhere.

    Args:
        folder: what the task writes there stays until the folder is deleted.
    """
    if isinstance(folder, MountedFolder) and has_own_sessions(spark) and local_cores(spark) is not None:
        return True
    name = f"reached-{uuid.uuid4()}"
    try:
        tried = spark.range(0, 1, 1, 1).mapInArrow(partial(reach, folder=folder, name=name), REACHED)
        if not tried.collect()[0].reached:
            return False
        if isinstance(folder, MountedFolder) or not has_own_sessions(spark):
            return folder.read(name) == b"1"
        path = spark._jvm.org.apache.hadoop.fs.Path(folder.uri_of(name))  # type: ignore[union-attr]
        return bool(path.getFileSystem(spark._jsc.hadoopConfiguration()).exists(path))
    except Exception:
        # Whatever is the matter: Spark's own way is there.
        return False
