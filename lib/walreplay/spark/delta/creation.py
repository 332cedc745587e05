"""Create a catalog's table by a statement, without rows."""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Final

import pyarrow as pa
from pyspark.errors import AnalysisException, PySparkException

from walreplay.delta.local import LOG, declared, newest_version
from walreplay.errors import TargetError
from walreplay.sink.comments import comment_in
from walreplay.sink.features import needed_by, of_new
from walreplay.sink.folders import forget_files
from walreplay.sink.lineage import CommitId, in_statement
from walreplay.spark.delta.located import folder_of_new, opened_in
from walreplay.spark.delta.sql_types import sql_type
from walreplay.spark.delta.target import TableName, quote
from walreplay.spark.session.isolation import settings

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_one_schema: Final = threading.Lock()
"""Tables are made at the same time, and a Hive metastore logs an error if a schema is made twice."""

_NOT_EMPTY: Final = ("DELTA_CREATE_TABLE_WITH_NON_EMPTY_LOCATION", "LOCATION_ALREADY_EXISTS")

_A_WHILE: Final = 60.0
"""Between its commit and the catalog a statement takes less than so many seconds."""

NO_PROPERTIES: Final[Mapping[str, str]] = {}
"""A table has none but those that its columns need."""

USER_METADATA: Final = "spark.databricks.delta.commitInfo.userMetadata"
"""What a session's commits have as their user's metadata."""

MADE_BY: Final = "walreplay.made_by"
"""The property of a table that says which run has created it, where the platform refuses to have it in the history."""


def create_table(
    spark: SparkSession,
    table: TableName,
    schema: pa.Schema,
    properties: Mapping[str, str] = NO_PROPERTIES,
    *,
    commit: CommitId | None = None,
) -> None:
    """Create a catalog's table without rows, if it is not there; it has the properties that its columns need, too.

    Args:
        schema: with the comments of the columns and of the table (`comment_in`).
        commit: the one that will bring its rows; None if it does not matter whose table it is.
    """
    fields = declared(schema)
    columns = ", ".join(f"{quote(field.name)} {sql_type(field.type)}{commented(comment_in(field))}" for field in schema)
    given = of_new({**properties, **needed_by(fields)})
    create_by_sql(spark, table, columns, given, comment_in(schema) or "", commit)


def create_by_sql(
    spark: SparkSession,
    table: TableName,
    columns: str,
    properties: Mapping[str, str],
    comment: str,
    commit: CommitId | None,
) -> None:
    """Create a table without rows.

    Args:
        columns: SQL.
        commit: see `create_table`.
    """
    # The table is created by the run, too, but this is not yet the commit with the rows.
    mark = None if commit is None else replace(commit, number=0).mark
    try:
        namespace = TableName(parts=table.parts[:-1]).sql
        # Who may not create schemas can be given them; the statement would ask for the privilege all the same.
        with _one_schema:
            if not spark.catalog.databaseExists(namespace):
                spark.sql(f"CREATE SCHEMA IF NOT EXISTS {namespace}")
        with settings(spark, {} if mark is None else {USER_METADATA: mark}) as refused:
            if mark is not None and refused:
                properties = {**properties, MADE_BY: in_statement(mark)}
            given = f"{commented(comment)}{f' TBLPROPERTIES ({listed(properties)})' if properties else ''}"
            statement = f"CREATE TABLE IF NOT EXISTS {table.sql} ({columns}) USING delta{given}"
            try:
                spark.sql(statement)
            except PySparkException as error:
                if error.getCondition() not in _NOT_EMPTY or not _remove_rest(spark, table, commit):
                    raise
                spark.sql(statement)
    except AnalysisException as error:
        if error.getCondition() != "INVALID_SCHEMA_OR_RELATION_NAME":
            raise
        raise TargetError(
            "the catalog does not take a table or schema of this name",
            table=table.text,
            remedy="Apply to a folder instead, where every name is possible",
        ) from None


def _remove_rest(spark: SparkSession, table: TableName, commit: CommitId | None) -> bool:
    """Remove what a statement has left that was killed between its commit and the catalog; say whether that was done.

    Delta refuses a folder that is not empty, and the table would never be made.  What is left is a log of one version
    without rows, of a table that no catalog knows.  A statement that is at work still is not disturbed.

    Args:
        commit: of the same ledger as the statement; None for a table of the ledger's, whose places are its own.
    """
    folder = folder_of_new(spark, table)
    if folder is None or set(folder.names()) != {LOG} or newest_version(folder) != 0:
        return False
    changed = folder.changed_at(LOG)
    opened = opened_in(folder)
    first = None if opened is None else next(opened.history(), None)
    made_by = None if first is None else CommitId.of_mark(first.mark)
    is_own = commit is None or (made_by is not None and made_by.application == commit.application)
    if (
        opened is None
        or first is None
        or not is_own
        or not opened.is_empty
        or changed is None
        or time.time() - changed < _A_WHILE
    ):
        return False
    folder.delete_all()
    forget_files()
    return True


def listed(properties: Mapping[str, str]) -> str:
    """Write properties as a SQL list."""
    return ", ".join(f"{literal(key)} = {literal(value)}" for key, value in properties.items())


def commented(comment: str | None) -> str:
    """Give a comment as it stands in a statement that declares something; empty for none."""
    return f" COMMENT {literal(comment)}" if comment else ""


def literal(text: str) -> str:
    """Write a text as a SQL literal."""
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"
