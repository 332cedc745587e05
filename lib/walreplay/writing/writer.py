"""What a writer has begun: an append, or an epoch's fold; and the condition of a change.

Spark's own statements write everywhere (`walreplay.writing.by_statements.TableWriter`).  Where files that Python writes
and delta-rs commits are possible, `walreplay.writing.by_files.FileWriter` overrides them.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, Protocol

import pyarrow as pa

from walreplay.delta import statements as delta
from walreplay.delta.statements import sql_schema
from walreplay.session.isolation import settings
from walreplay.spark.staging import FileRows, Rows
from walreplay.spark.workers.rows import Work
from walreplay.spark.workers.write import FILES, FilesWritten
from walreplay.table.table_run import Merge
from walreplay.writing.merge import Written

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


class Append(ABC):
    """An append that has begun: what is written becomes part of the table by `commit`."""

    @abstractmethod
    def write_rows(self, rows: Sequence[Sequence[Any]]) -> None:
        """Write a few rows that the driver has, each with one value a column."""

    @abstractmethod
    def write_staged(self, staged: Rows, constants: Mapping[str, pa.Array]) -> None:
        """Have executors write staged records.

        Args:
            constants: the columns of the table that the records lack; each has one value for all rows.
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


_FOLDING: Final = delta.FEW_ROWS | {
    # A staged row may have megabytes.  Where linked keys are brought together, Spark brings rows to the tasks that fold
    # them: without this, all of a task's rows at once.
    "spark.sql.execution.arrow.maxRecordsPerBatch": "4"
}


@dataclass(frozen=True, slots=True)
class Fold(ABC):
    """An epoch's rows on their way to a table: tasks fold them and write files; then one commit reads or adds these.

    A fold depends only on the staged events, so many tables can be folded in one job before anything else is done
    (`walreplay.writing.update`).  Files of tasks that failed, or that ran twice, are named to nobody.

    Attributes:
        rows: the epoch's staged events; None if there are none.
        work: folds a share of them and writes the resulting rows.
        reason: why statements write the rows, although the writer writes files; otherwise empty.
    """

    rows: Rows | None
    work: Work
    merge: Merge
    reason: str = field(default="", kw_only=True)

    @property
    def shared(self) -> tuple[FileRows, Work] | None:
        """The work before the commit that can be done in a job shared with other tables; None if there is none."""
        return (self.rows, self.work) if isinstance(self.rows, FileRows) else None

    def run(self, spark: SparkSession) -> FilesWritten:
        """Fold and write in a job of its own."""
        if self.rows is None:  # the epoch has no rows, but it has a commit
            return FilesWritten((), {})
        with settings(spark, _FOLDING):
            return FilesWritten.of(self.rows.mapInArrow(self.work, sql_schema(FILES)).collect())

    @abstractmethod
    def commit(self, spark: SparkSession, written: FilesWritten) -> Written:
        """Make the table's commit.

        Args:
            written: the result of the work before the commit.
        """
