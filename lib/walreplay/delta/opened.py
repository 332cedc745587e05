"""A table as it was when it was opened: whether it is there, its columns, and who has made which commit.

`OpenedTable` asks once for each, by delta-rs where it reads the log, else by Spark.  Open a table again after whatever
may have changed it: a statement, a move, a conflict, a pause.  What proves that a table is still the same is the
condition of the commit itself, never what was opened before.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from pyspark.errors import AnalysisException
from pyspark.sql import SparkSession
from pyspark.sql.types import StructType

from walreplay.delta.commits import CommitId, LoggedCommit
from walreplay.delta.local import LocalTable, dropped, newest_version
from walreplay.delta.target import TableName, folder_at, opened_in
from walreplay.session.folders import Folder
from walreplay.session.isolation import cached_attribute

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, Row


FEW_COMMITS: Final = 20  # How far back a run looks for a commit that it has just made

WHOLE_HISTORY: Final = 10_000  # How far back an interrupted run looks for its own commits

# The conditions under which there is no table at a path.
_MISSING: Final = ("PATH_NOT_FOUND", "DELTA_TABLE_NOT_FOUND", "DELTA_PATH_DOES_NOT_EXIST", "DELTA_MISSING_DELTA_TABLE")


def read(spark: SparkSession, table: TableName) -> DataFrame:
    """Return a table's rows as a DataFrame."""
    return spark.read.format("delta").load(table.path) if table.path is not None else spark.read.table(table.sql)


def exists(spark: SparkSession, table: TableName) -> bool:
    """Return whether a Delta table exists."""
    return OpenedTable(spark, table).exists


@dataclass(frozen=True)
class OpenedTable:
    """A table, which need not exist.

    Raises:
        DamagedLogError: at whatever is asked: the table's log is not whole.
    """

    spark: SparkSession
    name: TableName

    @cached_attribute
    def _folder(self) -> Folder | None:
        return folder_at(self.spark, self.name)

    @cached_attribute
    def exists(self) -> bool:
        """Whether there is a table, by the names of its log's files where its folder is reached."""
        return self.is_known if self._folder is None else newest_version(self._folder) >= 0

    @property
    def is_known(self) -> bool:
        """Whether Spark finds the table, without a look into its folder."""
        return self._schema_in_spark is not None

    @cached_attribute
    def log(self) -> LocalTable | None:
        """The table as delta-rs has it; None if Spark has to be asked."""
        return None if self._folder is None else opened_in(self._folder)

    @cached_attribute
    def _schema_in_spark(self) -> StructType | None:
        try:
            is_missing = self.name.path is None and not self.spark.catalog.tableExists(self.name.sql)
            return None if is_missing else read(self.spark, self.name).schema
        except AnalysisException as error:
            if error.getCondition() in _MISSING:
                return None
            raise

    @cached_attribute
    def schema(self) -> StructType | None:
        """The columns as Spark has them, without what is Delta's own in them; None if there is no table."""
        # Spark needs a tenth of a second, and in an object store some requests more, also to say that there is none.
        if self.log is None:
            return self._schema_in_spark
        if self.log.version < 0:
            return None
        schema = StructType.fromJson({"type": "struct", "fields": self.log.fields})
        for field in schema.fields:
            field.metadata = {key: value for key, value in field.metadata.items() if not key.startswith("delta.")}
        return schema

    @property
    def columns(self) -> StructType:
        """The columns of a table that is to be there.

        Raises:
            DroppedError: it is not.
        """
        if self.schema is None:
            raise dropped(self.name.text)
        return self.schema

    @property
    def comments(self) -> dict[str, str]:
        """What the columns say, by name; empty for nothing."""
        return {field.name: field.metadata.get("comment") or "" for field in self.columns.fields}

    @property
    def detail(self) -> Row:
        """What DESCRIBE DETAIL says of an existing table."""
        rows = self.spark.sql(f"DESCRIBE DETAIL {self.name.sql}")
        (row,) = rows.select("description", "numFiles", "sizeInBytes").collect()
        return row

    @property
    def comment(self) -> str:
        """What an existing table says of itself; empty for nothing."""
        return self.detail.description or ""

    def checkpoint(self) -> None:
        """Write a checkpoint of the log, after columns of the same names have got other types.

        Until then the log contains files that the table no longer has, with least and greatest values of the old types.
        DuckDB's reader reads these as the new types, and fails.
        """
        # Delta writes one by itself before long.
        with suppress(Exception):
            if self.log is not None:
                self.log.checkpoint()

    def newest_commits(self, count: int) -> list[LoggedCommit]:
        """Return the newest commits of an existing table, the newest first."""
        if self.log is not None:
            return list(self.log.history(count))
        commits = []
        for row in self.spark.sql(f"DESCRIBE HISTORY {self.name.sql} LIMIT {count}").collect():
            parameters, millis = row.operationParameters or {}, int(row.timestamp.timestamp() * 1000)
            commit_id = CommitId.logged(row.userMetadata, parameters)
            metrics = dict(row.operationMetrics or {})
            commits.append(LoggedCommit(int(row.version), str(row.operation), parameters, commit_id, millis, metrics))
        return commits

    def commits_since(self, version: int) -> tuple[int, list[LoggedCommit]]:
        """Return the newest version, and the commits from a version on, in their order, as far as the log has them."""
        commits = self.newest_commits(1) if self.log is None else []
        newest = self.log.version if self.log is not None else commits[0].version if commits else -1
        if not commits or newest > version:
            commits = self.newest_commits(max(newest - max(version, 0) + 1, 1))
        return newest, [commit for commit in reversed(commits) if commit.version >= version]

    @cached_attribute
    def made(self) -> Mapping[CommitId, LoggedCommit]:
        """The commits of an existing table that have an id."""
        commits = reversed(self.newest_commits(WHOLE_HISTORY))
        return {commit.id: commit for commit in commits if commit.id is not None}

    def find(self, commit: CommitId, depth: int = WHOLE_HISTORY) -> LoggedCommit | None:
        """Find a commit among the newest ones of an existing table."""
        return next((other for other in self.newest_commits(depth) if other.id == commit), None)
