"""Move a Delta table to another place; a run that is killed at any moment can be continued.

If the file system can rename a folder in one step, the folder is renamed, and the table keeps its history.  Elsewhere
(object stores, catalogs) the rows are copied in one commit, and then the old table is removed.

In a mounted folder, a run that has lost the lock cannot rename any more (`walreplay.spark.delta.fence`).  Elsewhere,
and before a table is removed, the lock is checked immediately before.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from walreplay.errors import TargetError
from walreplay.sink.features import needed_by
from walreplay.sink.folders import forget_files
from walreplay.spark.delta import statements as delta
from walreplay.spark.delta.fence import Fence
from walreplay.spark.delta.mounted import local_folder
from walreplay.spark.delta.target import TableName, Target
from walreplay.spark.planning.placement import Move
from walreplay.spark.writing.base import TableWriter
from walreplay.spark.writing.comments import say
from walreplay.spark.writing.features import ensure

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_RENAMING: Final = ("file", "hdfs", "viewfs", "abfs", "abfss")
"""The file systems that rename a folder in one atomic step."""


@dataclass(frozen=True, slots=True)
class Moved:
    """The result of a move.

    Attributes:
        note: a note for the report; None for none.
        is_copy: the table is a copy with versions of its own; otherwise it has kept its versions.
        version: the copy's version.
    """

    note: str | None = None
    is_copy: bool = False
    version: int | None = None


def move(
    spark: SparkSession,
    writer: TableWriter,
    step: Move,
    commit: delta.CommitId,
    check_lock: Callable[..., None],
    fence: Fence | None,
) -> Moved:
    """Move a table; a table that was moved before is left as it is.

    Args:
        spark: a session that only the caller uses.
        commit: the id for the copy's commit, if rows are copied.
        check_lock: raises an error if the run has lost the lock.
        fence: the run's (`fence_of`); None if folders are not mounted.

    Raises:
        TargetError: the table cannot be moved there.
    """
    source, destination = (local_folder(spark, table.path) for table in (step.source, step.destination))
    if fence is not None and source is not None and destination is not None:
        fence.rename(source, destination)
        return _moved(spark, step)
    if step.source.path is not None and step.destination.path is not None:
        files = file_system(spark, step.source.path)
        if files is not None and files.scheme in _RENAMING:
            files.rename(step.source.path, step.destination.path, check_lock)
            return _moved(spark, step)
    note = None
    if delta.exists(spark, step.source):
        there = delta.exists(spark, step.destination)
        comment = delta.comment_of(spark, step.source)
        if not there or delta.find_commit(spark, step.destination, commit) is None:
            # What a run before could not remove is without rows.
            if there and not delta.read(spark, step.destination).isEmpty():
                raise occupied(step)
            mode, rows = "overwrite" if there else "append", delta.read(spark, step.source)
            if there:
                ensure(spark, step.destination, needed_by(rows.schema.jsonValue()["fields"]), check_lock)
            delta.write(rows, step.destination, mode, commit, create=not there, new_schema=there, comment=comment)
        say(spark, step.destination, "", comment, check_lock)
        note = remove(spark, step.source, check_lock)
    copy = delta.find_commit(spark, step.destination, commit) if delta.exists(spark, step.destination) else None
    return Moved(note, is_copy=True, version=None if copy is None else copy.version)


def occupied(step: Move) -> TargetError:
    """Give the error for a place that a table cannot move to."""
    return TargetError(
        "a table cannot be moved here, for something is there",
        table=step.name,
        path=step.destination.text,
        remedy="Move it away, and run again",
    )


def _moved(spark: SparkSession, step: Move) -> Moved:
    """Report that a folder was renamed, and make Delta forget what it has cached of both places."""
    for place in (step.source, step.destination):
        delta.forget(spark, place)
    return Moved()


def fence_of(spark: SparkSession, target: Target, run_id: str) -> Fence | None:
    """Give the fence of a run; None if folders are not mounted.

    Args:
        run_id: the id of the lock's holder.
    """
    root = local_folder(spark, target.root)
    return None if root is None else Fence(root, str(Path(root, target.ledger_folder)), run_id)


def remove(spark: SparkSession, table: TableName, check_lock: Callable[[], None]) -> str | None:
    """Remove a table; give a note if it is left behind without rows."""
    check_lock()
    if table.path is None:
        delta.drop(spark, table)
        return None
    files = file_system(spark, table.path)
    if files is not None:
        files.delete(table.path)
        return None
    # Over Spark Connect no files can be removed, so the rows are deleted instead.
    spark.sql(f"DELETE FROM {table.sql}")
    return f"{table.path} is left behind without rows, for it cannot be removed from here; remove it by hand"


class FileSystem:
    """A folder's file system, through Hadoop in the session's JVM."""

    def __init__(self, jvm: Any, configuration: Any, path: str) -> None:
        self._path = jvm.org.apache.hadoop.fs.Path
        self._files = self._path(path).getFileSystem(configuration)

    @property
    def scheme(self) -> str:
        """The file system's, such as ``s3a``."""
        return str(self._files.getUri().getScheme())

    def rename(self, source: str, destination: str, check_lock: Callable[[], None]) -> None:
        """Rename an existing folder.

        Raises:
            TargetError: something is at the destination, or the file system refuses.
        """
        here, there = self._path(source), self._path(destination)
        if not self._files.exists(here):
            return
        # If the destination exists, Hadoop would move the folder into it instead of renaming it.
        if self._files.exists(there):
            raise TargetError(
                "a table cannot be moved here, for something is there",
                path=destination,
                remedy="Move it away, and run again",
            )
        self._files.mkdirs(there.getParent())
        check_lock()
        if not self._files.rename(here, there):
            remedy = "Run again when it can"
            raise TargetError(f"the table's folder cannot be renamed to {destination}", path=source, remedy=remedy)

    def delete(self, path: str) -> None:
        """Delete a folder with all that is in it."""
        self._files.delete(self._path(path), True)
        # What is made there next may have a log with the same numbers.
        forget_files()


def file_system(spark: SparkSession, path: str) -> FileSystem | None:
    """Give the file system of a path; None if the session has no JVM of its own (Spark Connect)."""
    try:
        jvm, context = spark._jvm, spark._jsc
    except Exception:
        return None
    if jvm is None or context is None:
        return None
    return FileSystem(jvm, context.hadoopConfiguration(), path)
