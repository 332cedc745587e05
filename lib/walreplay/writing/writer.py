"""The one interface through which rows reach Delta tables.

There are two implementations: Spark's own statements (`walreplay.writing.by_statements`), which work everywhere, and
files that Python writes and delta-rs commits (`walreplay.writing.by_files`, which also chooses one, once for a target).
All other modules are handed the writer, and do not ask which one it is.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Protocol

import pyarrow as pa

from walreplay.delta import statements as delta
from walreplay.delta.target import TableName, Target
from walreplay.report import Way
from walreplay.spark.staged_rows import FileRows
from walreplay.spark.staging import Rows, Staging
from walreplay.spark.workers.rows import Work
from walreplay.spark.workers.write import FilesWritten
from walreplay.table.table_run import TableRun
from walreplay.writing.merge import Written

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


class Append(ABC):
    """An append that has begun: what is written becomes part of the table by `commit`."""

    @abstractmethod
    def write_rows(self, rows: Sequence[Sequence[Any]], schema: pa.Schema) -> None:
        """Write a few rows that the driver has.

        Args:
            rows: one value a column, each.
            schema: the table's columns, in the order of a row's values.
        """

    @abstractmethod
    def write_staged(self, staged: Rows, schema: pa.Schema, constants: Mapping[str, pa.Array]) -> None:
        """Have executors write staged records.

        Args:
            schema: of the records.
            constants: the table's other columns; each has one value for all rows.
        """

    @abstractmethod
    def write_frame(self, frame: DataFrame) -> None:
        """Have executors write the rows of a query, whose columns are the table's."""

    @abstractmethod
    def commit(self, commit: delta.CommitId, *, follows: bool = True) -> int | None:
        """Commit what was written.

        Args:
            follows: it may follow what somebody else has appended since it began; else that is a conflict.

        Returns:
            the table's new version; None if the same commit was made before, or if the platform does not report it.
        """


class Condition(Protocol):
    """What a row must satisfy to be changed."""

    def is_in(self, row: Mapping[str, Any]) -> bool:
        """Return whether a row, by its columns' names, satisfies it."""
        ...

    def sql(self, row: str = "") -> str:
        """Write it in SQL.

        Args:
            row: the row's alias in the statement with a dot (``t.``); empty for none.
        """
        ...


class OneRow(ABC):
    """A table of one row, which is changed on a condition: if two runs try at the same time, one succeeds."""

    @abstractmethod
    def exists(self) -> bool:
        """Return whether the table exists."""

    @abstractmethod
    def read(self) -> Mapping[str, Any] | None:
        """Return the row of an existing table, by its columns' names; None if the table is empty."""

    @abstractmethod
    def create(self, values: Mapping[str, Any], *, exists: bool) -> bool:
        """Create the table with its row, or insert the row into an empty table; return whether that was done.

        Raises:
            Exception: Delta's, if somebody else has created it at the same time.
        """

    @abstractmethod
    def change(self, values: Mapping[str, Any], condition: Condition) -> bool:
        """Change some of the row's values; return whether the condition held.

        Raises:
            Exception: Delta's, if somebody else has committed at the same time.
        """


class Fold(ABC):
    """An epoch's rows on their way to a table: the work before the commit, and the commit.

    Attributes:
        reason: why statements write the rows, although the writer writes files; otherwise empty.
    """

    reason: str

    @property
    def shared(self) -> tuple[FileRows, Work] | None:
        """The work before the commit that can be done in a job shared with other tables; None if there is none."""
        return None

    def run(self, spark: SparkSession) -> FilesWritten | None:
        """Do the work before the commit, in a job of its own; None if there is none."""
        return None

    @abstractmethod
    def commit(
        self, spark: SparkSession, written: FilesWritten | None, ready: Callable[[], Mapping[str, str]]
    ) -> Written:
        """Make the table's commit.

        Args:
            written: the result of the work before the commit.
            ready: prepares the table for a statement, and gives the settings for it; it may make a commit of its own.
        """


class TableWriter(ABC):
    """How rows reach the tables of one target.

    Each call is given a session, because a session's settings mark a commit as the run's.

    Attributes:
        way: its name in reports.
        warnings: why a faster writer could not be used, if a person should know.
        shares_folds: several tables can be folded in one job before each gets its commit (`Fold.shared`).
    """

    way: ClassVar[Way]
    shares_folds: ClassVar[bool] = False

    def __init__(self, warnings: Sequence[str] = ()) -> None:
        self.warnings = tuple(warnings)

    @abstractmethod
    def staging(self, target: Target, own: str, before: str | None, turn: int) -> Staging:
        """Return the place where a run stages its events.

        A run that has lost the lock must neither write to this place nor clear it.

        Args:
            own: the id of the run.
            before: the id of the run from which it has taken over; None if there is none.
            turn: the number of the run's place, if places have numbers instead of ids.
        """

    @abstractmethod
    def one_row(
        self,
        spark: SparkSession,
        table: TableName,
        schema: pa.Schema,
        *,
        properties: Mapping[str, str] = delta.NO_PROPERTIES,
    ) -> OneRow:
        """Return a table of one row, which need not exist yet.

        Args:
            properties: what it is created with.
        """

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
            create: the table does not exist yet.
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
            number: the epoch's.  If it has no rows, the table is new, overwritten or only appended to.
            exists: the table exists.
            overwrite: the epoch's rows replace the table's.
            stays: why the table must not be rewritten even if it is small; empty if it may be.
        """
