"""Staged events in files, which tasks write and read themselves: in a mounted folder, or an object store.

If Spark stages events (`walreplay.spark.staging.by_spark`), every byte passes through the JVM four times: from a worker
into a shuffle, and from the shuffle into another worker.  Here a decoding task writes its events to one file
(`walreplay.sink.staged_file`) and returns the totals.  A folding task is given a number, and reads its share.  The file
of a failed task is never read, and is deleted with the folder.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import chain
from typing import TYPE_CHECKING, Final

import pyarrow as pa
import pyarrow.compute as pc

from walreplay.sink.events import batch_from_ipc
from walreplay.sink.folders import Folder
from walreplay.sink.staged_file import Sharing, Wanted, read_columns
from walreplay.spark.delta import statements as delta
from walreplay.spark.delta.sql_types import sql_schema
from walreplay.spark.session.isolation import settings
from walreplay.spark.staging.base import Rows, StagedRows, Staging, together
from walreplay.spark.staging.tasks import (
    WRITTEN,
    Shares,
    as_they_are,
    over_shares,
    refused,
    stage_into_file,
    summed,
)
from walreplay.spark.workers.refusals import refusals_told
from walreplay.spark.workers.rows import NO_BUCKET, ROUTE, Total, Work

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, Row, SparkSession

_BYTES_A_TASK: Final = 4 << 20

_OLD: Final = 7 * 24 * 3600.0
"""Nothing is at work still in a folder that has not changed for so many seconds."""


@dataclass(frozen=True, slots=True)
class FileRows:
    """Shares of staged rows, on which a function can be run."""

    spark: SparkSession
    shares: Shares

    def mapInArrow(self, func: Work, schema: str, /) -> DataFrame:  # noqa: N802
        """Give what a function makes of each share."""
        numbers = self.spark.range(0, self.shares.count, 1, self.shares.count)
        return numbers.mapInArrow(partial(over_shares, work=func, shares=self.shares), schema)


class FileStaging(Staging):
    """Staged events in files.

    Each run has a folder of its own inside.  So a paused run that wakes up after another one has taken over does not
    touch the other one's files.

    Args:
        folder: for those of all runs.
        own: the name of the run's folder; ``before`` is that of the run from which it has taken over.
    """

    def __init__(self, folder: Folder, own: str = "", before: str | None = None) -> None:
        super().__init__()
        self._runs = folder
        self._folder = folder.inside(own)
        self._is_own = bool(own)
        self._before = before
        self._names: dict[int, list[str]] = {}
        self._found: list[pa.RecordBatch] = []

    @property
    def kept_rows_folder(self) -> Folder:
        """A folder for rows that are already folded, deleted with the rest."""
        return self._folder

    def staged(self, spark: SparkSession, table: int) -> Rows:
        """Give what was staged under a table's number, as `walreplay.spark.workers.records.unpack_batches` takes it."""
        tasks = 1 + self._sizes[table] // _BYTES_A_TASK
        return self._rows(spark, Wanted(table, least_bucket=NO_BUCKET), tasks, Sharing.IN_TURN)

    def clear(self, spark: SparkSession | None = None) -> None:
        """Delete the staged events."""
        self._written = False
        self._names = {}
        self._found = []
        _remove(self._folder)
        if self._is_own:
            self._runs.delete_empty()

    def _clear_before(self) -> None:
        """Delete what ended runs have left behind."""
        if not self._is_own:
            self.clear()
        for name in self._runs.names() if self._is_own else ():
            changed = self._runs.changed_at(name)
            if changed is not None and (name == self._before or time.time() - changed > _OLD):
                _remove(self._runs.inside(name))

    def _stage(
        self,
        spark: SparkSession,
        works: Sequence[tuple[Rows, Work]],
        values: Mapping[str, str],
        tasks: int | None,
    ) -> None:
        self._clear_before()
        self._written = True
        frames = [
            rows.mapInArrow(partial(stage_into_file, work=work, folder=self._folder), sql_schema(WRITTEN))
            for rows, work in works
        ]
        frame = together(frames, tasks)
        with settings(spark, {**delta.FEW_ROWS, **values}), refusals_told():
            self._take(frame.collect())

    def _take(self, written: Sequence[Row]) -> None:
        """Take in the names and totals of the files that tasks have written (see `stage_into_file`)."""
        for row in written:
            totals = batch_from_ipc(row.totals)
            self._found.append(totals)
            for table in pc.unique(totals.column("table")).to_pylist():
                self._names.setdefault(table, []).append(row.name)

    def _totals(self, spark: SparkSession) -> list[Total]:
        if not self._found:
            return []
        found = pa.Table.from_batches(self._found)
        self._found = []
        return [Total(**row) for row in summed(found).to_pylist()]

    def _places(self, spark: SparkSession, table: int) -> list[tuple[int, int]]:
        wanted = Wanted(table, least_bucket=NO_BUCKET)
        columns = ("sequence", "relation")
        found = (read_columns(self._folder, name, wanted, columns) for name in self._names.get(table, ()))
        return sorted(set(chain.from_iterable(found)))

    def _events(self, spark: SparkSession, rows: StagedRows) -> Rows:
        wanted = self._wanted(rows, least_bucket=0)
        if rows.together:
            return self._rows(spark, wanted, 1, Sharing.TOGETHER)
        return self._rows(spark, wanted, rows.tasks, Sharing.BY_BUCKET)

    def _frame_of_events(self, spark: SparkSession, rows: StagedRows) -> DataFrame:
        return self._events(spark, rows).mapInArrow(as_they_are, sql_schema(ROUTE))

    def _links(self, spark: SparkSession, rows: StagedRows) -> Rows:
        return self._rows(spark, self._wanted(rows, least_bucket=NO_BUCKET), 1, Sharing.TOGETHER)

    def _wanted(self, rows: StagedRows, *, least_bucket: int) -> Wanted:
        return Wanted(rows.table, rows.start, rows.stop, least_bucket)

    def _rows(self, spark: SparkSession, wanted: Wanted, tasks: int, sharing: Sharing) -> FileRows:
        names = tuple(self._names.get(wanted.table, ()))
        return FileRows(spark, Shares(self._folder, names, wanted, tasks, sharing))


def _remove(folder: Folder) -> None:
    try:
        folder.delete_all()
    except OSError as error:
        raise refused("cannot be deleted", error, folder) from None
