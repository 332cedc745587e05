"""Where tables lie, and whether driver and workers reach them by themselves: that is tried."""

from __future__ import annotations

import threading
import uuid
from abc import ABC, abstractmethod
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final

from walreplay.delta.stores import taken
from walreplay.sink.folders import Folder, MountedFolder, StoreFolder
from walreplay.spark.delta.located import folder_at, schema_folder
from walreplay.spark.delta.target import TableName
from walreplay.spark.session.isolation import has_own_sessions
from walreplay.spark.session.session import local_cores
from walreplay.spark.workers.reaching import REACHED, reach

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


_STAGING: Final = "_walreplay_staging"


class Reached(ABC):
    """The places of a target's tables, as far as the driver reaches them by itself, and maybe the workers, too."""

    @abstractmethod
    def located(self, spark: SparkSession, table: TableName) -> Folder | None:
        """Return the folder of a table; None if the driver or delta-rs does not reach it, or a catalog has no table."""

    @abstractmethod
    def by_workers(self, folder: Folder) -> bool:
        """Say whether the workers reach a table's folder by themselves, too: tried once for those beside it."""

    @abstractmethod
    def staging(self, table: TableName, own: str) -> Folder | None:
        """Give the folder where runs stage events, if driver and workers reach it.

        Args:
            table: the ledger's, that stands for it.
            own: the name of the run's folder inside, which is deleted at the end.
        """


class ReachedRoot(Reached):
    """A folder that has all tables of a target.

    Args:
        root: the root as it is named; ``folder`` is the same.
    """

    def __init__(self, spark: SparkSession, root: str, folder: Folder) -> None:
        self._spark = spark
        self._root = root
        self._folder = folder
        self._by_workers: bool | None = None

    def located(self, spark: SparkSession, table: TableName) -> Folder | None:
        """Return the folder of a table, usually below the root."""
        if table.path is not None and table.path.startswith(f"{self._root}/"):
            return taken(self._below(table.path))
        return folder_at(spark, table)

    def by_workers(self, folder: Folder) -> bool:
        """Say whether the workers reach the root by themselves, too."""
        if self._by_workers is None:
            tried = self._folder.inside(_tried())
            self._by_workers = workers_reach(self._spark, tried)
            tried.delete_all()
        return self._by_workers

    def staging(self, table: TableName, own: str) -> Folder | None:
        """Give the folder at the table's path."""
        assert table.path is not None
        folder = self._below(table.path)
        if self._by_workers is None:
            self._by_workers = workers_reach(self._spark, folder.inside(own))
        return folder if self._by_workers else None

    def _below(self, path: str) -> Folder:
        return self._folder.inside(path.removeprefix(self._root).lstrip("/"))


class ReachedCatalog(Reached):
    """The tables of a catalog that tells where they lie (`walreplay.spark.delta.located`)."""

    def __init__(self, spark: SparkSession) -> None:
        self._spark = spark
        self._tried: dict[object, bool] = {}
        self._trying = threading.Lock()

    def located(self, spark: SparkSession, table: TableName) -> Folder | None:
        """Return the folder of a table, which the catalog is asked for."""
        return folder_at(spark, table)

    def by_workers(self, folder: Folder) -> bool:
        """Say whether the workers reach a table's folder: tried once for a bucket, or for a folder of tables."""
        return self._reach(folder, folder.inside(_tried()), passing=True)

    def staging(self, table: TableName, own: str) -> Folder | None:
        """Give a folder in that of the ledger's schema, of a name that no table of a catalog has."""
        schema = schema_folder(self._spark, table)
        if schema is None:
            return None
        folder = schema.inside(f".{table.parts[-1].lower()}")
        return folder if self._reach(folder, folder.inside(own), passing=False) else None

    def _reach(self, folder: Folder, tried: Folder, *, passing: bool) -> bool:
        key = _beside(folder)
        with self._trying:
            if key not in self._tried:
                self._tried[key] = workers_reach(self._spark, tried)
                if passing:
                    tried.delete_all()
            return self._tried[key]


class ReachedStaging:
    """A folder that the user has named for staged events, which the driver may reach by itself.

    Args:
        folder: what is in it may be anything, so events go to a folder inside.
    """

    def __init__(self, spark: SparkSession, folder: Folder) -> None:
        self._spark = spark
        self._folder = folder.inside(_STAGING)
        self._by_workers: bool | None = None

    def folder(self, own: str) -> Folder | None:
        """Give the folder of all runs' events, if the workers reach it, too: that is tried once.

        Args:
            own: the name of the run's folder inside, which is deleted at the end.
        """
        if self._by_workers is None:
            self._by_workers = workers_reach(self._spark, self._folder.inside(own))
        return self._folder if self._by_workers else None


def _beside(folder: Folder) -> object:
    """Give what a folder shares with those that are reached as it is."""
    if isinstance(folder, StoreFolder):
        return folder.kind, folder.options, folder.bucket
    return str(Path(folder.path).parent) if isinstance(folder, MountedFolder) else folder


def _tried() -> str:
    return f".reached-{uuid.uuid4()}"


def workers_reach(spark: SparkSession, folder: Folder) -> bool:
    """Say whether a worker can write and read in a folder by itself, and whether that is the folder that Spark means.

    A task writes a byte there, and reads it; then the driver has to find it.  In local mode the workers have the disks
    of the driver, unless that is a client of Spark Connect, which may be anywhere.

    Args:
        folder: what the task writes there stays until the folder is deleted.
    """
    if isinstance(folder, MountedFolder) and has_own_sessions(spark) and local_cores(spark) is not None:
        return True
    name = f"reached-{uuid.uuid4()}"
    try:
        tried = spark.range(0, 1, 1, 1).mapInArrow(partial(reach, folder=folder, name=name), REACHED)
        if not tried.collect()[0].reached:
            return False
        if isinstance(folder, MountedFolder) or not has_own_sessions(spark):
            return folder.read(name) == b"1"
        found = spark._jvm.org.apache.hadoop.fs.Path(folder.uri_of(name))  # type: ignore[union-attr]
        return bool(found.getFileSystem(spark._jsc.hadoopConfiguration()).exists(found))
    except Exception:
        # Whatever is the matter: Spark's own way is there.
        return False


__all__ = ["Reached", "ReachedCatalog", "ReachedRoot", "ReachedStaging", "workers_reach"]
