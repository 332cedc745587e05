"""What a writer has begun: an append, or an epoch's fold; and the condition of a change.

Spark's own statements write everywhere (`walreplay.writing.by_statements.TableWriter`).  Where files that Python writes
and delta-rs commits are possible, `walreplay.writing.by_files.FileWriter` overrides them.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

import pyarrow as pa

from walreplay.delta import statements as delta
from walreplay.spark.staged_rows import FileRows
from walreplay.spark.staging import Rows
from walreplay.spark.workers.rows import Work
from walreplay.spark.workers.write import FilesWritten
from walreplay.writing.merge import Written

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


Ready: TypeAlias = Callable[[], Mapping[str, str]]
"""Prepares a table for a statement, and returns the settings for it; it may make a commit of its own."""


class Append(ABC):
    """An append that has begun: what is written becomes part of the table by `commit`."""

    @abstractmethod
    def write_rows(self, rows: Sequence[Sequence[Any]]) -> None:
        """Write a few rows that the driver has, each with one value a column."""

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
    def commit(self, spark: SparkSession, written: FilesWritten | None, ready: Ready) -> Written:
        """Make the table's commit.

        Args:
            written: the result of the work before the commit.
        """
