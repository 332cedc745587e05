"""Keep a table's folder small: decide what it needs, and run OPTIMIZE, REORG and VACUUM.

`needs_of` decides from the log or the history: small files are to be written together, rows marked as deleted to be
removed, old files to be deleted.  None of these changes a row, and none needs a setting.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias

from walreplay.delta import statements as delta
from walreplay.delta.commits import LoggedCommit
from walreplay.delta.local import NotReadError
from walreplay.delta.opened import OpenedTable
from walreplay.delta.target import TableName
from walreplay.session.isolation import has_own_sessions, session_with

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


SMALL: Final = 64 << 20  # A file with fewer bytes is small

LEAST: Final = 10  # So few small files, or files with deletion vectors, are left as they are

Action: TypeAlias = Literal["optimize", "purge", "vacuum", "forget"]
"""``optimize``: small files are written together; ``purge``: files with deletion vectors are rewritten; ``vacuum``:
files that no version needs any more are removed; ``forget``: the ledger's rows of old runs are removed."""

_ADDED: Final = ("numAddedFiles", "numTargetFilesAdded", "numFiles")
_BYTES: Final = ("numAddedBytes", "numTargetBytesAdded", "numOutputBytes")
_MARKED: Final = ("numDeletionVectorsAdded", "numTargetDeletionVectorsAdded")
_TOGETHER: Final = ("OPTIMIZE", "REORG")


@dataclass(frozen=True, slots=True)
class FilesOfTable:
    """A table's files.

    Attributes:
        size: bytes of all of them.
        small: those of fewer than `SMALL` bytes.
        marked: those with a deletion vector.
    """

    count: int
    size: int
    small: int
    marked: int


def from_log(files: Sequence[tuple[int, bool]]) -> FilesOfTable:
    """Count the files that a log has: bytes of each, and whether it has a deletion vector."""
    sizes, marked = [size for size, _ in files], sum(is_marked for _, is_marked in files)
    return FilesOfTable(len(sizes), sum(sizes), sum(size < SMALL for size in sizes), marked)


def from_history(count: int, size: int, commits: Iterable[LoggedCommit]) -> FilesOfTable:
    """Estimate the same from a table's history.

    A commit's files are small if they are so on an average; what came before an OPTIMIZE was written together by it.

    Args:
        count: the table's files, and ``size`` their bytes.
        commits: the newest first.
    """
    small = marked = 0
    together = purged = False
    for commit in commits:
        together, purged = together or commit.operation in _TOGETHER, purged or commit.operation == "REORG"
        added = commit.count(*_ADDED)
        if not together and commit.count(*_BYTES) < SMALL * added:
            small += added
        if not purged:
            marked += commit.count(*_MARKED)
    if not together and size < SMALL * count:
        # None of the commits says that they were ever written together.
        small = max(small, count - size // SMALL)
    return FilesOfTable(count, size, min(small, count), min(marked, count))


def needs_of(files: FilesOfTable, unreferenced: int) -> dict[Action, str]:
    """Return what a table needs, and why; ``unreferenced``: how many files are kept that no version needs any more."""
    needs: dict[Action, str] = {}
    if files.marked >= LEAST:
        needs["purge"] = f"{_counted(files.marked)} of {files.count:,} with deletion vectors"
    if files.small >= LEAST:
        needs["optimize"] = f"{_counted(files.small)} of {files.count:,} below {SMALL >> 20} MiB"
    if unreferenced:
        needs["vacuum"] = f"{_counted(unreferenced)} unreferenced for longer than the table's retention"
    return needs


def _counted(number: int) -> str:
    return f"{number:,} file{'' if number == 1 else 's'}"


# The newest commits from which small files are estimated, where the log cannot be read here.
_COMMITS: Final = 100

_SETTINGS: Final = delta.FEW_ROWS | {
    # Files that are large enough are not written anew each time that there are some small ones.
    "spark.databricks.delta.optimize.minFileSize": str(SMALL),
    # VACUUM lists the folders of a table in so many tasks, 10,000 where nothing is set: minutes for a few files.
    "spark.sql.sources.parallelPartitionDiscovery.parallelism": "4",
}


def upkeep_session(
    spark: SparkSession, extra_settings: Mapping[str, str] = delta.NO_PROPERTIES
) -> AbstractContextManager[SparkSession]:
    """Return a session for the statements here."""
    return session_with(spark, {**_SETTINGS, **extra_settings})


def files_of(spark: SparkSession, table: TableName) -> FilesOfTable:
    """Return how many files a table has, how many are small, and how many have rows that are only marked deleted.

    The log has exact numbers, where the driver reaches it by itself.  Elsewhere they are estimated from the newest
    commits of the table's history.
    """
    opened = OpenedTable(spark, table)
    if opened.log is not None and opened.log.obstacle is None:
        return from_log([(file.size, file.has_deletion_vector) for file in opened.log.files])
    detail = opened.detail
    return from_history(int(detail.numFiles), int(detail.sizeInBytes), opened.newest_commits(_COMMITS))


def optimize(spark: SparkSession, table: TableName) -> tuple[int, int]:
    """Write small files together, in a commit that changes no row, if any; return how many were removed, and added."""
    return _rewritten(spark, f"OPTIMIZE {table.sql}")


def purge(spark: SparkSession, table: TableName) -> tuple[int, int]:
    """Rewrite the files with rows that are only marked as deleted; see `optimize`."""
    return _rewritten(spark, f"REORG TABLE {table.sql} APPLY (PURGE)")


def _rewritten(spark: SparkSession, statement: str) -> tuple[int, int]:
    rows = spark.sql(statement).select("metrics.numFilesRemoved", "metrics.numFilesAdded").collect()
    return sum(int(row[0] or 0) for row in rows), sum(int(row[1] or 0) for row in rows)


def unreferenced(spark: SparkSession, table: TableName) -> int:
    """Count the files that no version needs any more which the table's retention still keeps.

    VACUUM takes seconds to list them, even those of a small table; the log and the folder milliseconds.
    """
    log = OpenedTable(spark, table).log
    with suppress(NotReadError):
        count = None if log is None else log.unreferenced()
        if count is not None:
            return count
    with _silent(spark):
        return spark.sql(f"VACUUM {table.sql} DRY RUN").count()


def vacuum(spark: SparkSession, table: TableName) -> None:
    """Remove these files: what the table's retention (``delta.deletedFileRetentionDuration``) keeps, stays."""
    with _silent(spark):
        spark.sql(f"VACUUM {table.sql}").collect()


@contextmanager
def _silent(spark: SparkSession) -> Iterator[None]:
    """Keep VACUUM's report off Java's standard output, which is for a command's result alone."""
    if not has_own_sessions(spark):
        yield
        return
    java: Any = spark._jvm
    console = getattr(getattr(java.scala, "Console$"), "MODULE$")
    before = console.out()
    # Of this thread alone.
    console.setOutDirect(java.java.io.PrintStream(java.java.io.OutputStream.nullOutputStream()))
    try:
        yield
    finally:
        console.setOutDirect(before)
