"""Staged events in files of a mounted folder, which tasks write and read by themselves.

Where Spark stages them (`wal2delta.spark.staged_tables`), every byte goes through the JVM four times: out of a worker,
into a shuffle, out of it, and into another worker.  Here a decoding task writes what comes of its files into one file
(`wal2delta.sink.staged_file`) and gives back what the rows come to; a task that folds is given a number alone, and
reads its share.  A file of a task that failed is named by nobody, and goes with the folder.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial, reduce
from itertools import chain
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from wal2delta.errors import TargetError
from wal2delta.sink.events import batch_from_ipc, batch_to_ipc
from wal2delta.sink.staged_file import Sharing, StagedFileWriter, Wanted, read_columns, read_rows
from wal2delta.spark import delta
from wal2delta.spark.isolation import settings
from wal2delta.spark.source import ONE_FILE_A_BATCH
from wal2delta.spark.staging import Rows, Scanned, StagedRows, Staging, Total, Work
from wal2delta.spark.worker_process import spark_task
from wal2delta.spark.workers import (
    NO_BUCKET,
    ROUTE_SCHEMA,
    SCANS_TABLE,
    refusal_text,
    refusals_told,
    route_batch,
)

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, Row, SparkSession

_BYTES_A_TASK: Final = 4 << 20

_WRITTEN_SCHEMA: Final = "name STRING, totals BINARY, ahead INT, info STRING, data BINARY"
_WRITTEN: Final = pa.schema(
    [
        ("name", pa.string()),
        ("totals", pa.binary()),
        ("ahead", pa.int32()),
        ("info", pa.string()),
        ("data", pa.binary()),
    ]
)
"""A row for each file that was scanned (see `Scanned`), then one for the file that was written."""


@contextmanager
def _refusing(problem: str, folder: str) -> Iterator[None]:
    """Have the driver tell in one line what the file system has against staged rows."""
    try:
        yield
    except OSError as error:
        raise RuntimeError(refusal_text(_refused(problem, error, folder))) from None


def _refused(problem: str, error: OSError, folder: str) -> TargetError:
    return TargetError(
        f"staged rows {problem}: {error.strerror or 'an error of the file system'}",
        path=folder,
        remedy="The driver and all executors have to have the target mounted at this place, with room, and may write "
        "there; WAL2DELTA_COMMITS=spark in the environment leaves all writing to Spark",
    )


@spark_task
def stage_into_file(batches: Iterable[pa.RecordBatch], *, work: Work, folder: str) -> Iterator[pa.RecordBatch]:
    """Write the rows that some work gives into a file of the folder's; give those of scans, and the rows' totals."""
    with _refusing("cannot be written", folder), StagedFileWriter(folder) as file:
        for rows in work(batches):
            scans = rows.column("table").to_numpy() == SCANS_TABLE
            if scans.any():
                told = rows.filter(pa.array(scans)).select(list(Scanned._fields))
                yield from (_written(row) for row in told.to_pylist())
                rows = rows.filter(pa.array(~scans))
            if rows.num_rows:
                file.add(rows)
        closed = file.close()
    if closed is not None:
        name, index = closed
        (totals,) = _totals(index).combine_chunks().to_batches()
        yield _written({"name": name, "totals": batch_to_ipc(totals).to_pybytes()})


def _written(row: dict[str, Any]) -> pa.RecordBatch:
    return pa.RecordBatch.from_pylist([row], schema=_WRITTEN)


_TOLD_APART: Final = ("table", "relation", "info")
_SUMS: Final = (
    ("rows", "sum"),
    ("size", "sum"),
    ("first", "min"),
    ("last", "max"),
    ("first_lsn", "min"),
    ("last_lsn", "max"),
)
"""How totals are added up: `Total`'s fields behind those that tell them apart."""


def _totals(index: pa.Table) -> pa.Table:
    """Sum up what the rows say of themselves: `Total`, for each value of ``ahead``."""
    sequence = index.column("sequence")
    return _summed(index.append_column("first", sequence).append_column("last", sequence), ["ahead", *_TOLD_APART])


def _summed(totals: pa.Table, keys: Sequence[str]) -> pa.Table:
    found = totals.group_by(list(keys), use_threads=False).aggregate(list(_SUMS))
    return found.select([*keys, *(f"{name}_{how}" for name, how in _SUMS)]).rename_columns(
        [*keys, *(name for name, _ in _SUMS)]
    )


@dataclass(frozen=True, slots=True)
class Shares:
    """Rows of staged files, shared out among tasks that find them by themselves."""

    folder: str
    names: tuple[str, ...]
    wanted: Wanted
    count: int
    sharing: Sharing

    def of(self, number: int) -> Iterator[pa.RecordBatch]:
        """Read a share: bucket, sequence and data."""
        with _refusing("cannot be read", self.folder):
            for row in read_rows(self.folder, self.names, self.wanted, (number, self.count), self.sharing):
                yield route_batch(*row)


@spark_task
def over_shares(batches: Iterable[pa.RecordBatch], *, work: Work, shares: Shares) -> Iterator[pa.RecordBatch]:
    """Do some work on each of some shares.

    Args:
        batches: of the shares' numbers.
    """
    for batch in batches:
        for number in batch.column("id").to_pylist():
            yield from work(shares.of(number))


def _as_they_are(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    yield from batches


@dataclass(frozen=True, slots=True)
class FileRows:
    """Shares of staged rows, and where they can be worked on."""

    spark: SparkSession
    shares: Shares

    def mapInArrow(self, func: Work, schema: str, /) -> DataFrame:  # noqa: N802
        """Give what a function makes of each share."""
        numbers = self.spark.range(0, self.shares.count, 1, self.shares.count)
        return numbers.mapInArrow(partial(over_shares, work=func, shares=self.shares), schema)


class FileStaging(Staging):
    """Staged events in files of a mounted folder.

    A run that was paused may find its folder in the hands of another: files' names are never used again, so that
    neither reads the other's.
    """

    def __init__(self, folder: str) -> None:
        super().__init__()
        self._folder = folder
        self._names: dict[int, list[str]] = {}
        self._found: list[pa.RecordBatch] = []

    @property
    def kept_rows_folder(self) -> str:
        """A mounted folder for rows that are folded already; gone with the rest."""
        return self._folder

    def staged(self, spark: SparkSession, table: int) -> Rows:
        """Give what was staged under a table's number, as `wal2delta.spark.workers.unpack_batches` takes it."""
        tasks = 1 + self._sizes[table] // _BYTES_A_TASK
        return self._rows(spark, Wanted(table, least_bucket=NO_BUCKET, void=self._void), tasks, Sharing.IN_TURN)

    def clear(self, spark: SparkSession) -> None:
        """Throw the staged events away."""
        self._written = False
        self._names = {}
        self._found = []
        try:
            shutil.rmtree(self._folder)
        except FileNotFoundError:
            pass
        except OSError as error:
            raise _refused("cannot be deleted", error, self._folder) from None

    def _stage(
        self, spark: SparkSession, works: Sequence[tuple[DataFrame, Work]], *, scans: bool = False
    ) -> list[Scanned]:
        if not self._written:
            self.clear(spark)
        self._written = True
        frames = [
            rows.mapInArrow(partial(stage_into_file, work=work, folder=self._folder), _WRITTEN_SCHEMA)
            for rows, work in works
        ]
        frame = reduce(lambda one, other: one.unionByName(other), frames)
        with settings(spark, delta.FEW_ROWS | ONE_FILE_A_BATCH), refusals_told():
            told = frame.collect()
        return self._take(told)

    def _take(self, told: Sequence[Row]) -> list[Scanned]:
        """Take in what tasks tell (see `stage_into_file`); give what is of scans."""
        for row in told:
            if row.name is not None:
                totals = batch_from_ipc(row.totals)
                self._found.append(totals)
                for table in pc.unique(totals.column("table")).to_pylist():
                    self._names.setdefault(table, []).append(row.name)
        return [Scanned(row.ahead, row.info, row.data) for row in told if row.name is None]

    def _totals(self, spark: SparkSession) -> list[Total]:
        if not self._found:
            return []
        found = pa.Table.from_batches(self._found)
        self._found = []
        if self._void:
            found = found.filter(pc.invert(pc.is_in(found.column("ahead"), pa.array(self._void, pa.int32()))))
        return [Total(**row) for row in _summed(found, _TOLD_APART).to_pylist()]

    def _places(self, spark: SparkSession, table: int) -> list[tuple[int, int, int, int]]:
        wanted = Wanted(table, least_bucket=NO_BUCKET, void=self._void)
        columns = ("sequence", "relation", "first_lsn", "last_lsn")
        found = (read_columns(self._folder, name, wanted, columns) for name in self._names.get(table, ()))
        return sorted(set(chain.from_iterable(found)))

    def _events(self, spark: SparkSession, rows: StagedRows) -> Rows:
        wanted = self._wanted(rows, least_bucket=0)
        if rows.together:
            return self._rows(spark, wanted, 1, Sharing.TOGETHER)
        return self._rows(spark, wanted, rows.tasks, Sharing.BY_BUCKET)

    def _frame_of_events(self, spark: SparkSession, rows: StagedRows) -> DataFrame:
        return self._events(spark, rows).mapInArrow(_as_they_are, ROUTE_SCHEMA)

    def _links(self, spark: SparkSession, rows: StagedRows) -> Rows:
        return self._rows(spark, self._wanted(rows, least_bucket=NO_BUCKET), 1, Sharing.TOGETHER)

    def _wanted(self, rows: StagedRows, *, least_bucket: int) -> Wanted:
        return Wanted(rows.table, rows.start, rows.stop, least_bucket, self._void)

    def _rows(self, spark: SparkSession, wanted: Wanted, tasks: int, sharing: Sharing) -> FileRows:
        names = tuple(self._names.get(wanted.table, ()))
        return FileRows(spark, Shares(self._folder, names, wanted, tasks, sharing))
