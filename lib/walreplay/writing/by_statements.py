"""The one interface through which rows reach Delta tables, by Spark's own statements, which work everywhere.

`OneRow` is a table of one row; `TableWriter` writes all other tables: what it begins is an `Append`, or an epoch's
`Fold`.  Where files can be written, `walreplay.writing.by_files` overrides these; it chooses the writer, once for a
target.  All other modules are handed the writer, and do not ask which one it is.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime, timedelta, timezone
from functools import partial, reduce
from typing import TYPE_CHECKING, Any, ClassVar, Final, Protocol

import pyarrow as pa

from walreplay.delta import statements as delta
from walreplay.delta.commits import DELETION_VECTORS, needed_by
from walreplay.delta.local import LeftToSpark, LocalTable, declared, dropped
from walreplay.delta.opened import OpenedTable
from walreplay.delta.statements import TableDefinition, sql_schema
from walreplay.delta.target import TableName, Target, quote
from walreplay.fold.events import Mode
from walreplay.listing import escape_glob
from walreplay.names import RowKind
from walreplay.report import WriterKind
from walreplay.session.isolation import settings
from walreplay.spark.reached import Reached
from walreplay.spark.staging import Rows, Staging
from walreplay.spark.workers.rows import Work, unpack_batches
from walreplay.spark.workers.write import FILES, FilesWritten, FileTask, write_folded
from walreplay.table.cases import CommitKind
from walreplay.table.table_run import Merge
from walreplay.writing.history import merge_versions
from walreplay.writing.merge import APPENDED, MATERIALIZE, Written, lost_counts, merge_keyed, write_rows
from walreplay.writing.multiset import merge_multiset

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


_SOURCE: Final = "walreplay_row"

_MAX_LITERAL_CHARS: Final = 1 << 17
"""A row with more characters is not written as literals, because a statement's text must not grow without limit."""

_UNIX_EPOCH: Final = datetime(1970, 1, 1, tzinfo=timezone.utc)


class Condition(Protocol):
    """What a row must satisfy to be changed."""

    def is_in(self, row: Mapping[str, Any]) -> bool:
        """Return whether a row, by its columns' names, satisfies it."""

    def sql(self, row: str = "") -> str:
        """Write it in SQL.

        Args:
            row: the row's alias in the statement with a dot (``t.``); empty for none.
        """


class OneRow:
    """A table of one row, which is changed on a condition: if two runs try at the same time, one succeeds."""

    def __init__(self, spark: SparkSession, definition: TableDefinition) -> None:
        self._definition = definition
        self._spark = spark
        self._table = definition.name

    def exists(self) -> bool:
        """Return whether the table exists."""
        return delta.exists(self._spark, self._table)

    def read(self) -> Mapping[str, Any] | None:
        """Return the row of an existing table, by its columns' names; None if the table is empty."""
        rows = delta.read(self._spark, self._table).collect()
        if not rows:
            return None
        (row,) = rows
        # Spark returns times without a zone, in this machine's local time.
        return {
            name: value.astimezone(timezone.utc) if isinstance(value, datetime) else value
            for name, value in row.asDict().items()
        }

    def create(self, values: Mapping[str, Any], *, exists: bool) -> bool:
        """Create the table with its row, or insert the row into an empty table; return whether that was done.

        Raises:
            Exception: Delta's, if somebody else has created it at the same time.
        """
        frame = self._frame(values)
        if not exists and self._table.path is not None:
            # Mode `error`: if two runs create the table at once, one of them fails.
            delta.write(frame, self._table, "error", create=delta.NewTable(self._definition.properties))
            return True
        if not exists:
            delta.create_table(self._spark, self._definition)  # a table in a catalog is created empty first
        frame.createOrReplaceTempView(_SOURCE)
        return self._changed(
            f"MERGE INTO {self._table.sql} AS t USING {_SOURCE} AS s ON true WHEN NOT MATCHED THEN INSERT *"
        )

    def change(self, values: Mapping[str, Any], condition: Condition) -> bool:
        """Change some of the row's values; return whether the condition held.

        Raises:
            Exception: Delta's, if somebody else has committed at the same time.
        """
        if sum(len(value) for value in values.values() if isinstance(value, str)) <= _MAX_LITERAL_CHARS:
            # An UPDATE of one row takes half the time of a MERGE.
            assignments = ", ".join(f"{quote(name)} = {_literal(value)}" for name, value in values.items())
            return self._changed(f"UPDATE {self._table.sql} SET {assignments} WHERE {condition.sql()}")
        self._frame(values).createOrReplaceTempView(_SOURCE)
        assignments = ", ".join(f"t.{quote(name)} = s.{quote(name)}" for name in values)
        return self._changed(
            f"MERGE INTO {self._table.sql} AS t USING {_SOURCE} AS s ON {condition.sql('t.')} "
            f"WHEN MATCHED THEN UPDATE SET {assignments}"
        )

    def _changed(self, statement: str) -> bool:
        """Run a statement, and return whether it found the row."""
        (counts,) = self._spark.sql(statement).collect()
        return bool(counts[0])  # num_affected_rows, the first column of a result of UPDATE or MERGE

    def _frame(self, values: Mapping[str, Any]) -> DataFrame:
        schema = pa.schema([self._definition.schema.field(name) for name in values])
        return delta.local_rows(self._spark, [tuple(values.values())], schema)


def _literal(value: str | bool | int | datetime | list[str] | None) -> str:
    """Write a value in SQL; text in hexadecimal, because the meaning of a backslash in SQL can be configured."""
    if value is None:
        return "NULL"
    if isinstance(value, str):
        return f"CAST(X'{value.encode().hex()}' AS STRING)"
    if isinstance(value, datetime):
        return f"timestamp_micros({(value - _UNIX_EPOCH) // timedelta(microseconds=1)})"
    if isinstance(value, list):
        return f"CAST(array({', '.join(map(_literal, value))}) AS ARRAY<STRING>)"
    return str(value)


@dataclass
class Append:
    """An append that has begun: what is written becomes part of the table by `commit`.

    Here its rows are gathered as queries, and written by the one statement that commits them.
    """

    spark: SparkSession
    definition: TableDefinition
    create: bool
    _frames: list[DataFrame] = field(default_factory=list)

    def write_rows(self, rows: Sequence[Sequence[Any]]) -> None:
        """Write a few rows that the driver has, each with one value a column."""
        self.write_frame(delta.local_rows(self.spark, rows, self.definition.schema))

    def write_staged(self, staged: Rows, constants: Mapping[str, pa.Array]) -> None:
        """Have executors write staged records.

        Args:
            constants: the columns of the table that the records lack; each has one value for all rows.
        """
        schema = self.definition.schema
        work = partial(unpack_batches, constants=constants, names=schema.names)
        self.write_frame(staged.mapInArrow(work, sql_schema(schema)))

    def write_frame(self, frame: DataFrame) -> None:
        """Have executors write the rows of a query, whose columns are the table's."""
        self._frames.append(frame.select(*self.definition.schema.names))

    def commit(self, commit: delta.CommitId, *, follows: bool = True) -> int | None:
        """Commit what was written.

        Args:
            follows: it may follow what somebody else has appended since it began; else that is a conflict.  To Delta
                two commits of one application at a time are in conflict anyway.

        Returns:
            the table's new version; None if the same commit was made before, or if the platform does not report it.
        """
        # Without rows, too, there is a commit: its number shows that it was made.
        frames = self._frames or [delta.local_rows(self.spark, (), self.definition.schema)]
        frame = reduce(lambda left, right: left.unionByName(right), frames)
        delta.forget_version(self.spark)  # Delta leaves the last version there if it skips the commit
        new = delta.NewTable(self.definition.properties) if self.create else None
        delta.write(frame, self.definition.name, "append", commit, create=new)
        return delta.last_version(self.spark)


# Folds

_FOLDING: Final = delta.FEW_ROWS | {
    # A staged row may have megabytes.  Where linked keys are brought together, Spark brings rows to the tasks that fold
    # them: without this, all of a task's rows at once.
    "spark.sql.execution.arrow.maxRecordsPerBatch": "4"
}


@dataclass(frozen=True, slots=True)
class Fold(ABC):
    """An epoch's rows on their way to a table: tasks fold them and write files; then one commit reads or adds these.

    Files of tasks that failed, or that ran twice, are named to nobody.

    Attributes:
        rows: the epoch's staged events; None if there are none.
        work: folds a share of them and writes the resulting rows.
        reason: why statements write the rows, although the writer writes files; otherwise empty.
    """

    rows: Rows | None
    work: Work
    merge: Merge
    reason: str = field(default="", kw_only=True)

    def run(self, spark: SparkSession) -> FilesWritten:
        """Fold and write in a job of its own."""
        if self.rows is None:  # the epoch has no rows, but it has a commit
            return FilesWritten((), {})
        with settings(spark, _FOLDING):
            return FilesWritten.of(self.rows.mapInArrow(self.work, sql_schema(FILES)).collect())

    @abstractmethod
    def commit(self, spark: SparkSession, written: FilesWritten) -> Written:
        """Make the table's commit of what the work before it has written."""


_FEW_CHANGES: Final = 10_000
_SMALL_TABLE: Final = 16 << 20


@dataclass(frozen=True, slots=True)
class _StagedFold(Fold):
    """Rows in files of the run's own folder, until a statement has read them.

    Attributes:
        kept: how they are written.  If the run is killed, the next one has to delete what is left in the folder.
    """

    kept: FileTask

    @contextmanager
    def read(self, spark: SparkSession, written: FilesWritten) -> Iterator[DataFrame]:
        """Read the rows; then delete the files.  Those in an object store go with the folder, by one request."""
        names, schema = [file.name for file in written.files], sql_schema(self.kept.schema)
        paths = [escape_glob(f"{self.kept.folder.uri}/{name}") for name in names]
        # Spark reads no empty list of paths.
        yield spark.read.schema(schema).parquet(*paths) if paths else spark.createDataFrame([], schema)
        if not self.kept.folder.is_far:
            self.kept.folder.delete(*names)


@dataclass(frozen=True, slots=True)
class WriteFold(_StagedFold):
    """Rows that a statement creates a table with, adds to it, or puts in the place of its rows."""

    def commit(self, spark: SparkSession, written: FilesWritten) -> Written:
        """Make the table's commit."""
        counts = lost_counts(written.counts)
        merge, kind = self.merge, self.merge.case.commit
        if kind is CommitKind.OVERWRITE:  # its columns may be new
            merge.run.layout(spark).ensure(needed_by(declared(merge.schema)))
        few = delta.FEW_ROWS if kind is CommitKind.CREATE and merge.epoch.rows <= _FEW_CHANGES else {}
        with settings(spark, few), self.read(spark, written) as rows:
            write_rows(spark, rows, merge, counts.counted(merge), kind)
        return Written(counts, {APPENDED: str(written.rows)})


@dataclass(frozen=True, slots=True)
class MergeFold(_StagedFold):
    """Rows that are merged into a table."""

    def commit(self, spark: SparkSession, written: FilesWritten) -> Written:
        """MERGE the rows."""
        merge, is_small = self.merge, _is_small(spark, self.merge.plan.table)
        if not is_small and merge.plan.layout.marks_rows:
            merge.run.layout(spark).ensure(DELETION_VECTORS)
        few = delta.FEW_ROWS_REWRITTEN if is_small and merge.epoch.rows <= _FEW_CHANGES else {}
        # The source is in files already, which do not change: Delta needs no copy of it.
        with settings(spark, few), settings(spark, {MATERIALIZE: "none"}), self.read(spark, written) as rows:
            if merge.plan.metadata.rows is RowKind.VERSION:
                return merge_versions(spark, rows, written.counts, merge)
            merge_rows = merge_multiset if merge.identity.mode is Mode.MULTISET else merge_keyed
            return merge_rows(spark, rows, written.counts, merge)


def _is_small(spark: SparkSession, table: TableName) -> bool:
    """Return whether a table is so small that a MERGE may rewrite its files."""
    opened = OpenedTable(spark, table)
    if opened.log is not None and opened.log.version < 0:
        raise dropped(table.text)
    if opened.log is not None and opened.log.obstacle is None:
        return sum(file.size for file in opened.log.files) <= _SMALL_TABLE
    with settings(spark, delta.FEW_ROWS):
        return int(opened.detail.sizeInBytes) <= _SMALL_TABLE


def merge_fold(spark: SparkSession, staging: Staging, merge: Merge, reason: str = "") -> MergeFold:
    """Begin to fold an epoch's rows for a MERGE."""
    kept = FileTask.keeping(staging.folder, merge.fold_task.schema)
    work = partial(write_folded, task=merge.fold_task, files=kept)
    return MergeFold(merge.events(spark, staging), work, merge, kept, reason=reason)


class TableWriter:
    """How rows reach the tables of one target: by Spark's statements.

    Each call is given a session, because a session's settings mark a commit as the run's.

    Args:
        reached: the tables' places, as far as driver and workers reach them, and the folder for events.

    Attributes:
        kind: its name in reports.
    """

    kind: ClassVar[WriterKind] = "statements"

    def __init__(self, reached: Reached) -> None:
        self._reached = reached

    def staging(self, target: Target, run_id: str, previous_run_id: str | None) -> Staging:
        """Return the place where a run stages its events.

        Args:
            run_id: the id of the run.
            previous_run_id: the id of the run from which it has taken over; None if there is none.

        Raises:
            ConfigError: driver and workers reach no folder for them.
        """
        return Staging(self._reached.staging(target, run_id), run_id, previous_run_id)

    def opened(self, spark: SparkSession, table: TableName) -> LocalTable:
        """Return an existing table whose files driver and workers read by themselves.

        Raises:
            LeftToSpark: they do not reach it, or it has something that Python does not know.
        """
        raise LeftToSpark("statements alone reach it")

    def one_row(self, spark: SparkSession, definition: TableDefinition) -> OneRow:
        """Return a table of one row, which need not exist yet."""
        return OneRow(spark, definition)

    def begin_append(self, spark: SparkSession, definition: TableDefinition, *, create: bool) -> Append:
        """Begin to append to a table.

        Args:
            definition: with the columns that are written.
            create: the table does not exist yet.
        """
        return Append(spark, definition, create)

    def fold(self, spark: SparkSession, staging: Staging, merge: Merge, reason: str = "") -> Fold:
        """Begin to bring an epoch's rows to their table; ``reason``: see `Fold`."""
        if merge.case.commit is CommitKind.MERGE:
            return merge_fold(spark, staging, merge, reason)
        task = merge.fold_task
        schema = pa.schema([task.schema.field(source) for _, source in merge.pairs])
        kept = FileTask.keeping(staging.folder, schema)
        work = partial(write_folded, task=task, files=kept, is_new=True)
        return WriteFold(merge.events(spark, staging), work, merge, kept, reason=reason)
