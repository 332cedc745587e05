"""The one interface by which rows reach tables, whichever way they go.

There are two ways: Spark's own statements (`walreplay.spark.writing.statements`), which work everywhere, and files that
Python writes and Delta's own transaction commits (`walreplay.spark.writing.files`).  Which one a target is written by
is found out once, by `walreplay.spark.writing.choice`; all else is handed the writer, and asks no more.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Protocol

import pyarrow as pa

from walreplay.report import Way
from walreplay.spark.delta import statements as delta
from walreplay.spark.delta.target import TableName, Target
from walreplay.spark.delta.transaction import Transaction
from walreplay.spark.planning.table_run import TableRun
from walreplay.spark.staging.base import Rows, Staging
from walreplay.spark.staging.files import FileRows
from walreplay.spark.workers.rows import Work
from walreplay.spark.workers.write import FilesWritten
from walreplay.spark.writing.merge import Written

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


class Append(ABC):
    """An append that has begun: what is written becomes part of the table by `commit`."""

    @abstractmethod
    def write_rows(self, rows: Sequence[Sequence[Any]], schema: pa.Schema) -> None:
        """Write a few rows from here.

        Args:
            schema: the table's columns, in the rows' order.
        """

    @abstractmethod
    def write_staged(self, staged: Rows, schema: pa.Schema, constants: Mapping[str, pa.Array]) -> None:
        """Have executors write staged records.

        Args:
            schema: the records'.
            constants: the table's columns besides, each of which has one value for all.
        """

    @abstractmethod
    def write_frame(self, frame: DataFrame) -> None:
        """Have executors write rows that Spark makes, whose columns are the table's."""

    @abstractmethod
    def commit(self, commit: delta.CommitId) -> int | None:
        """Commit what is written.

        Returns:
            the table's new version; None if this very commit was made before, or where the platform does not tell.
        """


class Condition(Protocol):
    """What has to hold of a row for it to be changed."""

    def is_in(self, row: Mapping[str, Any]) -> bool:
        """Say whether it holds of a row that is known."""
        ...

    def sql(self, row: str = "") -> str:
        """Give it for a statement, in which the row has a name, with a dot behind it."""
        ...


class OneRow(ABC):
    """A table of one row, which is changed on a condition: of two who try at the same time one is let through."""

    @abstractmethod
    def read(self) -> Mapping[str, Any] | None:
        """Give the row by its columns' names, of a table that is there; None where it has none."""

    @abstractmethod
    def create(self, values: Mapping[str, Any], *, exists: bool) -> bool:
        """Make the table with its row, or give its row to one that has none; say whether that was done.

        Raises:
            Exception: Delta's, if another has made it at the same time.
        """

    @abstractmethod
    def change(self, values: Mapping[str, Any], condition: Condition) -> bool:
        """Change some of the row's values; say whether the condition held.

        Raises:
            Exception: Delta's, if another has committed at the same time.
        """


class Fold(ABC):
    """An epoch's rows on their way to a table: what comes before the commit, and the commit.

    Attributes:
        reason: why statements bring them there, where the writer writes files; else empty.
    """

    reason: str

    @property
    def shared(self) -> tuple[FileRows, Work] | None:
        """What can be done before the commit in a job that other tables share; None where that is nothing."""
        return None

    def run(self, spark: SparkSession) -> FilesWritten | None:
        """Do what comes before the commit, in a job of its own."""
        return None

    @abstractmethod
    def commit(
        self, spark: SparkSession, written: FilesWritten | None, ready: Callable[[], Mapping[str, str]]
    ) -> Written:
        """Make the table's commit.

        Args:
            written: what was done before it.
            ready: makes the table ready for a statement, and gives the settings for it; it may take a commit.

        Raises:
            MissingRow: see `walreplay.spark.writing.merge.Counts.check`.
        """


class TableWriter(ABC):
    """How rows reach the tables of one target.

    A session is given with each call: what makes a commit the run's own are the session's settings.

    Attributes:
        way: its name for people.
        warnings: why it is not a faster one, if a person should know.
        shares_folds: tables can share a job in which they are folded before each gets its commit (`Fold.shared`).
    """

    way: ClassVar[Way]
    shares_folds: ClassVar[bool] = False

    def __init__(self, warnings: Sequence[str] = ()) -> None:
        self.warnings = tuple(warnings)

    @abstractmethod
    def staging(self, target: Target, own: str, before: str | None, turn: int) -> Staging:
        """Give a run's place for staged events: a run that was taken over from must not write to it, or clear it.

        Args:
            own: the run's id, and ``before`` that of the run that it has taken over from.
            turn: which of several places is the run's, where they are not called by ids.
        """

    @abstractmethod
    def one_row(self, spark: SparkSession, table: TableName, schema: pa.Schema) -> OneRow:
        """Give a table of one row, which need not be there yet."""

    @abstractmethod
    def append(
        self,
        spark: SparkSession,
        table: TableName,
        schema: pa.Schema,
        *,
        create: bool,
        properties: Mapping[str, str] = delta.NO_PROPERTIES,
    ) -> Append:
        """Begin to append to a table.

        Args:
            schema: the columns that are written.
            create: the table is not there yet.
        """

    @abstractmethod
    def fold(
        self,
        spark: SparkSession,
        staging: Staging,
        run: TableRun,
        number: int,
        *,
        exists: bool,
        overwrite: bool,
        stays: str,
    ) -> Fold:
        """Begin to bring an epoch's rows to their table.

        Args:
            number: the epoch's, of which there are rows, or whose rows are merged with none.
            exists: the table is there; ``overwrite``: its rows go.
            stays: why it must not be written anew even if it is small; empty where it may.
        """

    @abstractmethod
    def begin_change(self, spark: SparkSession, table: TableName) -> Transaction | None:
        """Begin a commit of columns alone; None where they are changed by statements."""
