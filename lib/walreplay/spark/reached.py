"""Where a target's tables lie, and where a run's events wait, as far as driver and workers reach these by themselves.

What the driver reaches, `walreplay.session.reach` says.  Whether the workers reach it, too, is tried by a task of one
row, once for each place.
"""

from __future__ import annotations

import threading
import uuid
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final

from walreplay.delta.stores import taken
from walreplay.delta.target import TableName, Target, folder_at, schema_folder
from walreplay.errors import ConfigError
from walreplay.listing import escape_glob
from walreplay.session.folders import Folder, MountedFolder, StoreFolder
from walreplay.session.isolation import has_own_sessions
from walreplay.session.session import local_cores
from walreplay.spark.workers.process import REACH_PROBLEM, reach

if TYPE_CHECKING:
    from collections.abc import Hashable

    from pyspark.sql import SparkSession


_STAGING: Final = "_walreplay_staging"


class Reached:
    """What driver and workers reach by themselves of a target, and the folder for its runs' events.

    Args:
        staged: a folder that the user has named for events, which the driver may reach.  What is in it may be anything,
            so events go to a folder inside.
    """

    def __init__(self, spark: SparkSession, staged: Folder | None = None) -> None:
        self._spark = spark
        self._staged = None if staged is None else staged.inside(_STAGING)
        self._problems: dict[Hashable, str | None] = {}
        self._trying = threading.Lock()

    def located(self, spark: SparkSession, table: TableName) -> Folder | None:
        """Return the folder of a table; None if the driver or delta-rs does not reach it, or a catalog has no table."""
        return folder_at(spark, table)

    def by_workers(self, folder: Folder) -> bool:
        """Return whether the workers reach a table's folder by themselves, too."""
        return self._problem(self._key(folder), self._tried(folder), passing=True) is None

    def staging(self, target: Target, run_id: str) -> Folder:
        """Return the folder where a target's runs stage events: the user's, if it is reached; else in the target.

        Args:
            run_id: the name of the run's folder inside, which is deleted at the end.

        Raises:
            ConfigError: none is reached.
        """
        problems = []
        if self._staged is not None:
            problem = self._problem(None, self._staged.inside(run_id))
            if problem is None:
                return self._staged
            problems.append(f"staging ({self._staged.uri}): {problem}")
        folder = self._beside(target.ledger("staging"))
        if folder is not None:
            problem = self._problem(self._key(folder), folder.inside(run_id))
            if problem is None:
                return folder
            problems.append(f"the target's own place ({folder.uri}): {problem}")
        raise ConfigError(
            f"driver and executors share no folder for the run's events{': ' if problems else ''}{'; '.join(problems)}",
            path=target.text,
            remedy="Name one in the configuration which all of them, and Spark, reach under this name: a mounted "
            "folder, an object store whose keys Spark's settings have, or on Databricks a volume (staging: "
            "/Volumes/main/archive/staging)",
        )

    def _beside(self, table: TableName) -> Folder | None:
        """Return a folder for events at the place of one of the ledger's tables; None if the driver reaches none."""
        return None

    def _key(self, folder: Folder) -> Hashable:
        """Return what a folder shares with those that are reached as it is."""
        return folder

    def _tried(self, folder: Folder) -> Folder:
        """Return where it is tried whether a folder is reached."""
        return folder.inside(f".reached-{uuid.uuid4()}")

    def _problem(self, key: Hashable, folder: Folder, *, passing: bool = False) -> str | None:
        """Return why a place is not reached, which is tried once; None if it is.

        Args:
            folder: where it is tried; ``passing``: this is deleted.
        """
        with self._trying:  # tables are written by several threads
            if key not in self._problems:
                self._problems[key] = reach_problem(self._spark, folder)
                if passing:
                    folder.delete_all()
            return self._problems[key]


class ReachedRoot(Reached):
    """A folder that has all tables of a target; ``root`` is its name."""

    def __init__(self, spark: SparkSession, root: str, folder: Folder, staged: Folder | None = None) -> None:
        super().__init__(spark, staged)
        self._root = root
        self._folder = folder

    def located(self, spark: SparkSession, table: TableName) -> Folder | None:
        """Return the folder of a table, usually below the root."""
        if table.path is not None and table.path.startswith(f"{self._root}/"):
            return taken(self._below(table.path))
        return super().located(spark, table)

    def _beside(self, table: TableName) -> Folder:
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

    def _beside(self, table: TableName) -> Folder | None:
        # No table of a catalog has a name that begins so.
        schema = schema_folder(self._spark, table)
        return None if schema is None else schema.inside(f".{table.parts[-1].lower()}")

    def _key(self, folder: Folder) -> Hashable:
        if isinstance(folder, StoreFolder):
            return folder.kind, folder.options, folder.bucket  # one client and its keys reach all of a bucket
        return str(Path(folder.path).parent) if isinstance(folder, MountedFolder) else folder


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
            (line,) = spark.read.text(escape_glob(f"{folder.uri}/{name}")).collect()
            return None if line.value == "1" else "Spark reads something else there than an executor has written"
        path = spark._jvm.org.apache.hadoop.fs.Path(f"{folder.uri}/{name}")  # type: ignore[union-attr]
        if is_mounted or path.getFileSystem(spark._jsc.hadoopConfiguration()).exists(path):
            return None
    return "the driver, or Spark itself, does not find there what an executor has written"
