"""Delta's statements: create a table, make a commit exactly once, MERGE.

First the Spark SQL type of each Arrow type, and how a catalog's table is created by a statement, without rows.  Then
the commits: `committing` makes one exactly once.  What is asked of a table is in `walreplay.delta.opened`.
"""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass, replace
from dataclasses import field as dataclass_field
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import pyarrow as pa
from pyspark.errors import AnalysisException, PySparkException
from pyspark.sql import SparkSession
from pyspark.sql import functions as f
from pyspark.sql.types import StructType

from walreplay.delta.commits import CommitId as CommitId
from walreplay.delta.commits import in_statement, with_needed
from walreplay.delta.local import LOG, ConflictError, declared, dropped, newest_version, touch
from walreplay.delta.opened import OpenedTable
from walreplay.delta.opened import exists as exists
from walreplay.delta.opened import read as read
from walreplay.delta.target import TableName, folder_at, folder_of_new, opened_in, quote
from walreplay.errors import TargetError
from walreplay.evolution.comments import comment_in
from walreplay.session.folders import MountedFolder, forget_files
from walreplay.session.isolation import has_own_sessions, settings

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame
    from pyspark.sql.types import DataType


# SQL's names of types that have other names in Delta's log.
_SQL: Final = {"byte": "TINYINT", "short": "SMALLINT", "integer": "INT", "long": "BIGINT"}


def sql_type(kind: pa.DataType) -> str:
    """Return the Spark SQL type that holds an Arrow type's values exactly.

    Raises:
        TypeError: for a type that no column has.
    """
    (column,) = declared(pa.schema([("", kind)]))
    return sql_of(column["type"])


def sql_of(declared: Any) -> str:
    """Return the Spark SQL type of a type as Delta's log declares it."""
    if isinstance(declared, str):
        return _SQL.get(declared, declared.upper())
    if declared["type"] == "array":
        return f"ARRAY<{sql_of(declared['elementType'])}>"
    if declared["type"] == "map":  # in a table that others have changed
        return f"MAP<{sql_of(declared['keyType'])}, {sql_of(declared['valueType'])}>"
    fields = (f"{quote(field['name'])}: {sql_of(field['type'])}" for field in declared["fields"])
    return f"STRUCT<{', '.join(fields)}>"


def sql_schema(schema: pa.Schema) -> str:
    """Return a whole schema, as mapInArrow takes it."""
    return ", ".join(f"{quote(field['name'])} {sql_of(field['type'])}" for field in declared(schema))


def spark_schema(schema: pa.Schema) -> StructType:
    """Return a whole schema as Spark has it."""
    return StructType.fromJson({"type": "struct", "fields": declared(schema)})


# Tables are made at the same time, and a Hive metastore logs an error if a schema is made twice.
_one_schema: Final = threading.Lock()

_NOT_EMPTY: Final = ("DELTA_CREATE_TABLE_WITH_NON_EMPTY_LOCATION", "LOCATION_ALREADY_EXISTS")

_A_WHILE: Final = 60.0  # seconds; a statement takes fewer from its commit to the catalog

NO_PROPERTIES: Final[Mapping[str, str]] = {}  # A table has none but those that its columns need

USER_METADATA: Final = "spark.databricks.delta.commitInfo.userMetadata"
"""What a session's commits have as their user's metadata."""

MADE_BY: Final = "walreplay.made_by"
"""The property of a table that says which run has created it, where the platform refuses to have it in the history."""


@dataclass(frozen=True, slots=True)
class TableDefinition:
    """A table that may have yet to be created; its schema has its own comment and the columns' (`comment_in`)."""

    name: TableName
    schema: pa.Schema
    properties: Mapping[str, str] = dataclass_field(default_factory=dict)


def create_table(spark: SparkSession, new: TableDefinition, commit: CommitId | None = None) -> None:
    """Create a catalog's table without rows, if it is not there; it has the properties that its columns need, too.

    Args:
        commit: the one that will bring its rows; None if it does not matter whose table it is.
    """
    _create(spark, new.name, declared(new.schema), NewTable(new.properties, comment_in(new.schema)), commit)


def _create(
    spark: SparkSession, table: TableName, fields: Sequence[Mapping[str, Any]], new: NewTable, commit: CommitId | None
) -> None:
    columns = ", ".join(
        f"{quote(field['name'])} {sql_of(field['type'])}{commented(field['metadata'].get('comment'))}"
        for field in fields
    )
    properties = with_needed(new.properties, fields)
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
            given = f"{commented(new.comment)}{f' TBLPROPERTIES ({listed(properties)})' if properties else ''}"
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
    """Remove the rest of a statement that was killed between its commit and the catalog; return whether that was done.

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
    made_by = None if first is None else first.id
    is_own = commit is None or (made_by is not None and made_by.application == commit.application)
    if opened is None or first is None or not is_own or opened.files:
        return False
    if changed is None or time.time() - changed < _A_WHILE:  # the statement may be at work still
        return False
    folder.delete_all()
    forget_files()
    return True


def listed(properties: Mapping[str, str]) -> str:
    """Write properties as a SQL list."""
    return ", ".join(f"{literal(key)} = {literal(value)}" for key, value in properties.items())


def commented(comment: str | None) -> str:
    """Return the COMMENT clause of a declaration; empty for no comment."""
    return f" COMMENT {literal(comment)}" if comment else ""


def literal(text: str) -> str:
    """Write a text as a SQL literal."""
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"


# The setting in which Delta notes the version of the session's last commit.
_LAST_VERSION: Final = "spark.databricks.delta.lastCommitVersionInSession"

_CONFLICT: Final = re.compile(r"\[DELTA_(CONCURRENT_|METADATA_CHANGED|PROTOCOL_CHANGED)")

SMALL_STATE: Final = {
    # Delta reads a table's state in 50 tasks by default, whatever its size.
    "spark.databricks.delta.snapshotPartitions": "2",
    # To write a table's files into its checksum Delta runs a query, for a new table too.  Nothing reads them there.
    "spark.databricks.delta.allFilesInCrc.enabled": "false",
    # What Spark generates for a table's statistics is else ordered by hashes of its columns' random names: every table
    # gets code of its own, which Java compiles anew, where tables of one shape could share it.
    "spark.sql.subexpressionElimination.enabled": "false",
}

FEW_ROWS: Final = SMALL_STATE | {
    # For a row or two, to compile a plan and to look at it again between its stages takes longer than to run it.
    "spark.databricks.delta.snapshotPartitions": "1",
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.shuffle.partitions": "1",
}


FEW_ROWS_REWRITTEN: Final = FEW_ROWS | {
    # To write a small file anew takes fewer steps than to mark rows in it.
    "spark.databricks.delta.merge.deletionVectors.persistent": "false",
    "spark.databricks.delta.update.deletionVectors.persistent": "false",
}


Marking: TypeAlias = Callable[[str], str]
"""Writes the end of a statement's condition, which is true of every row and holds the commit's mark; nothing if a
setting says it.  Its argument is SQL for a column whose texts are none of walreplay's marks: the optimizer would leave
out what does not depend on rows.  The history has the condition as it was optimized."""


@contextmanager
def committing(spark: SparkSession, commit: CommitId) -> Iterator[Marking]:
    """Make the one statement inside this very commit (application and number).

    On Spark Connect there is only the caller's session, and Delta's settings for it would reach commits of other
    tables.  So only the mark for the history is set there, and the history, which is read before, prevents a second
    commit.  Where the platform refuses that setting, too, the statement has to hold the mark.

    Yields:
        what the statement has to hold.
    """
    values = {USER_METADATA: commit.mark}
    if has_own_sessions(spark):
        # The mark in the history does no harm to another commit, these would.
        values |= {
            "spark.databricks.delta.write.txnAppId": commit.application,
            "spark.databricks.delta.write.txnVersion": str(commit.number),
        }
    with settings(spark, values) as refused:
        mark = f"'{in_statement(commit.mark)}'" if USER_METADATA in refused else None
        yield lambda column: "" if mark is None else f" AND NOT (CAST({column} AS STRING) <=> {mark})"


def say_in_front(spark: SparkSession, table: TableName, commit: CommitId) -> None:
    """Note in a separate commit which run makes the next one, if the platform lets the next commit hold no mark."""
    spark.sql(f"ALTER TABLE {table.sql} SET TBLPROPERTIES ({listed({MADE_BY: in_statement(commit.mark)})})")


def is_conflict(error: BaseException) -> bool:
    """Return whether a commit failed because somebody else has committed in between."""
    return isinstance(error, ConflictError) or _CONFLICT.search(str(error)) is not None


def last_version(spark: SparkSession) -> int | None:
    """Return the version of the session's last commit, if known; see `forget_version`."""
    try:
        version = spark.conf.get(_LAST_VERSION, None)
    except Exception:
        # Not every platform has it.
        return None
    return None if version is None else int(version)


def forget_version(spark: SparkSession) -> None:
    """Reset `last_version`, because a commit that is skipped does not set it."""
    with suppress(Exception):
        spark.conf.unset(_LAST_VERSION)


def local_rows(spark: SparkSession, rows: Sequence[Sequence[Any]], schema: pa.Schema) -> DataFrame:
    """Return a few rows that the driver has; to write them makes one file."""
    # Rows of Arrow come to Spark as they are, rows of Python's values through a Python worker.
    table = pa.Table.from_pylist([dict(zip(schema.names, row, strict=True)) for row in rows], schema)
    return spark.createDataFrame(table).coalesce(1)


@dataclass(frozen=True, slots=True)
class NewTable:
    """What a table is created with, besides the properties that its columns need.

    Attributes:
        comment: what a catalog's table says of itself; at a path a DataFrame can make none that does.
    """

    properties: Mapping[str, str] = dataclass_field(default_factory=dict)
    comment: str = ""


def write(
    frame: DataFrame,
    table: TableName,
    mode: str,
    commit: CommitId | None = None,
    *,
    create: NewTable | None = None,
    new_schema: bool = False,
    only: str = "",
) -> None:
    """Append to a table or overwrite its rows, in one commit.

    Args:
        mode: ``append`` or ``overwrite``.
        commit: the commit that this is, if it must be made exactly once.
        create: what the table, which does not exist yet, is created with; None for a table that exists.
        new_schema: an overwritten table gets the frame's columns.
        only: SQL for the rows that are overwritten, which all new rows satisfy too; empty for all.

    Raises:
        DroppedError: a table that is not to be created is not there: Spark would make it anew, of these rows alone.
    """
    spark = frame.sparkSession
    if create is None and not OpenedTable(spark, table).exists:
        raise dropped(table.text)
    writer = frame.write.format("delta").mode(mode)
    if new_schema:
        writer = writer.option("overwriteSchema", "true")
    if only:
        writer = writer.option("replaceWhere", only)
    options = {} if commit is None else commit.options
    if table.path is not None:
        properties = {} if create is None else with_needed(create.properties, frame.schema.jsonValue()["fields"])
        writer.options(**properties, **options).save(table.path)
        return
    if create is not None:
        # A catalog's table does not take properties as options, so it is made first.
        _create(spark, table, frame.schema.jsonValue()["fields"], create, commit)
    # Delta's own catalog heeds the options.  Others may heed the settings alone.
    with nullcontext() if commit is None else committing(spark, commit):
        if only or (mode == "overwrite" and not new_schema):
            # saveAsTable would replace the whole table, and alter what the catalog has of it: a Hive metastore refuses
            # that, which Delta bears and Hive logs as an error.
            frame.writeTo(table.sql).options(**options).overwrite(f.expr(only or "true"))
        else:
            writer.options(**options).saveAsTable(table.sql)


def shaped(frame: DataFrame, schema: StructType) -> DataFrame:
    """Return rows with these columns, and these fields inside structs: NULL in those that the rows lack."""
    return frame.select(*_all_shaped(frame.schema, schema, lambda name: f.col(quote(name))))


def _all_shaped(present: StructType, target: StructType, value_of: Callable[[str], Column]) -> Iterator[Column]:
    types_by_name = {field.name: field.dataType for field in present.fields}
    for field in target.fields:
        kind = types_by_name.get(field.name)
        value = f.lit(None) if kind is None else value_of(field.name)
        yield _shaped(value, kind, field.dataType).alias(field.name)


def _shaped(column: Column, kind: DataType | None, target_type: DataType) -> Column:
    # A cast goes by place.
    if not (isinstance(kind, StructType) and isinstance(target_type, StructType)) or kind.names == target_type.names:
        return column.cast(target_type)
    return f.when(column.isNotNull(), f.struct(*_all_shaped(kind, target_type, column.getField)))


def with_comments(frame: DataFrame, comments: Mapping[str, str]) -> DataFrame:
    """Return rows whose columns have the comments that the columns of the new table are to have."""
    columns = (
        f.col(quote(name)).alias(name, metadata={"comment": comments[name]})
        if comments.get(name)
        else f.col(quote(name))
        for name in frame.columns
    )
    return frame.select(*columns)


def drop(spark: SparkSession, table: TableName) -> None:
    """Remove a catalog's table, if it exists; the next table of its name may lie at the same place."""
    spark.sql(f"DROP TABLE IF EXISTS {table.sql}")
    forget_files()


def forget(spark: SparkSession, table: TableName) -> None:
    """Make Delta read a path's log again, after a folder has been moved without Delta.

    The logs of two tables that swap places may have the same versions, committed in the same millisecond.  Then Delta
    would read one table as the other.
    """
    forget_files()
    folder = folder_at(spark, table)
    if isinstance(folder, MountedFolder):
        touch(folder)
