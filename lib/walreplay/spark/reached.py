"""Where a target's tables lie, and where a run's events wait, as far as driver and workers reach these by themselves.

What the driver reaches, `walreplay.session.reach` says.  Whether the workers reach it, too, is tried by a task of one
row, once for each place.
"""

from __future__ import annotations

import threading
import uuid
from abc import ABC, abstractmethod
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final

from walreplay.delta.stores import taken
from walreplay.delta.target import TableName, folder_at, schema_folder
from walreplay.listing import escape_glob
from walreplay.session.folders import Folder, MountedFolder, StoreFolder
from walreplay.session.isolation import has_own_sessions
from walreplay.session.session import local_cores
from walreplay.spark.workers.process import REACH_PROBLEM, reach

if TYPE_CHECKING:
    from collections.abc import Hashable

    from pyspark.sql import SparkSession


class Workers:
    """Which places the workers of a session reach: each is tried once."""

    def __init__(self, spark: SparkSession) -> None:
        self._spark = spark
        self._problems: dict[Hashable, str | None] = {}
        self._trying = threading.Lock()

    def problem(self, key: Hashable, folder: Folder, *, passing: bool = False) -> str | None:
        """Return why a place is not reached; None if it is.

        Args:
            key: equal for folders of which all or none are reached.
            folder: where it is tried; ``passing``: this is deleted.
        """
        with self._trying:  # tables are written by several threads
            if key not in self._problems:
                self._problems[key] = reach_problem(self._spark, folder)
                if passing:
                    folder.delete_all()
            return self._problems[key]


class Reached(ABC):
    """The places of a target's tables, which the driver reaches by itself, and maybe the workers, too."""

    def __init__(self, spark: SparkSession) -> None:
        self._spark = spark
        self._workers = Workers(spark)

    @abstractmethod
    def located(self, spark: SparkSession, table: TableName) -> Folder | None:
        """Return the folder of a table; None if the driver or delta-rs does not reach it, or a catalog has no table."""

    @abstractmethod
    def staging(self, table: TableName) -> Folder | None:
        """Return the folder where runs stage events; None if the driver does not reach it.

        Args:
            table: the ledger's table at whose place it lies.
        """

    @abstractmethod
    def _key(self, folder: Folder) -> Hashable:
        """Return what a folder shares with those that are reached as it is."""

    def by_workers(self, folder: Folder) -> bool:
        """Return whether the workers reach a table's folder by themselves, too."""
        return self._workers.problem(self._key(folder), self._tried(folder), passing=True) is None

    def staging_problem(self, folder: Folder, run_id: str) -> str | None:
        """Return why the folder for events is not reached; None if it is.

        Args:
            run_id: the name of the run's folder inside, which is deleted at the end.
        """
        return self._workers.problem(self._key(folder), folder.inside(run_id))

    def _tried(self, folder: Folder) -> Folder:
        return folder.inside(f".reached-{uuid.uuid4()}")


class ReachedRoot(Reached):
    """A folder that has all tables of a target.

    Args:
        root: the root as it is named; ``folder`` is the same.
    """

    def __init__(self, spark: SparkSession, root: str, folder: Folder) -> None:
        super().__init__(spark)
        self._root = root
        self._folder = folder

    def located(self, spark: SparkSession, table: TableName) -> Folder | None:
        """Return the folder of a table, usually below the root."""
        if table.path is not None and table.path.startswith(f"{self._root}/"):
            return taken(self._below(table.path))
        return folder_at(spark, table)

    def staging(self, table: TableName) -> Folder:
        """Return the folder at the table's path."""
        assert table.path is not None
        return self._below(table.path)

    def _key(self, folder: Folder) -> Hashable:
        return self._root

    def _tried(self, folder: Folder) -> Folder:
        return super()._tried(self._folder)

    def _below(self, path: str) -> Folder:
        return self._folder.inside(path.removeprefix(self._root).lstrip("/"))


class ReachedCatalog(Reached):
    """The tables of a catalog that says where they lie (`walreplay.delta.target`)."""

    def located(self, spark: SparkSession, table: TableName) -> Folder | None:
        """Return the folder of a table, which the catalog is asked for."""
        return folder_at(spark, table)

    def staging(self, table: TableName) -> Folder | None:
        """Return a folder in that of the ledger's schema, of a name that no table of a catalog has."""
        schema = schema_folder(self._spark, table)
        return None if schema is None else schema.inside(f".{table.parts[-1].lower()}")

    def _key(self, folder: Folder) -> Hashable:
        if isinstance(folder, StoreFolder):
            return folder.kind, folder.options, folder.bucket  # one client and its keys reach all of a bucket
        return str(Path(folder.path).parent) if isinstance(folder, MountedFolder) else folder


_STAGING: Final = "_walreplay_staging"


class ReachedStaging:
    """A folder that the user has named for staged events, which the driver may reach by itself.

    Args:
        folder: what is in it may be anything, so events go to a folder inside.
    """

    def __init__(self, spark: SparkSession, folder: Folder) -> None:
        self._workers = Workers(spark)
        self.folder = folder.inside(_STAGING)

    def problem(self, run_id: str) -> str | None:
        """Return why the folder is not reached; None if it is."""
        return self._workers.problem(None, self.folder.inside(run_id))


def reach_problem(spark: SparkSession, folder: Folder) -> str | None:
    """Return why a folder is not reached by all who have to: workers, driver, and Spark itself; None if it is.

    A task writes a byte there, and reads it; then the driver has to find it, and Spark, to which the folder's name may
    mean another place.  In local mode the workers have the disks of the driver, unless that is a client of Spark
    Connect, which may be anywhere.

    Args:
        folder: what the task writes there stays until the folder is deleted.
    """
    is_classic, is_mounted = has_own_sessions(spark), isinstance(folder, MountedFolder)
    if is_mounted and is_classic and local_cores(spark) is not None:
        return None
    name = f"reached-{uuid.uuid4()}"
    task = partial(reach, folder=folder, name=name)
    (row,) = spark.range(0, 1, 1, 1).mapInArrow(task, REACH_PROBLEM).collect()
    if row.problem is not None:
        return f"an executor cannot write and read there ({row.problem})"
    with suppress(Exception):  # whatever is the matter, the place is not the same one
        if folder.read(name) != b"1":
            return "the driver reads something else there than an executor has written"
        if not is_classic:
            (line,) = spark.read.text(escape_glob(folder.uri_of(name))).collect()
            return None if line.value == "1" else "Spark reads something else there than an executor has written"
        path = spark._jvm.org.apache.hadoop.fs.Path(folder.uri_of(name))  # type: ignore[union-attr]
        if is_mounted or path.getFileSystem(spark._jsc.hadoopConfiguration()).exists(path):
            return None
    return "the driver, or Spark itself, does not find there what an executor has written"
