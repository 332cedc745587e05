"""Try whether the workers reach a folder by themselves."""

from __future__ import annotations

import uuid
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from walreplay.sink.folders import Folder, MountedFolder
from walreplay.spark.session.session import local_cores
from walreplay.spark.workers.reaching import REACHED, reach

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class Reached:
    """A target's root, which the driver reaches by itself, and maybe the workers, too.

    Args:
        root: the root as it is named; ``folder`` is the same.
    """

    def __init__(self, spark: SparkSession, root: str, folder: Folder) -> None:
        self._spark = spark
        self._root = root
        self._folder = folder
        self._by_workers: bool | None = None

    def holds(self, path: str) -> bool:
        """Say whether a path is below the root."""
        return path.startswith(f"{self._root}/")

    def below(self, path: str) -> Folder:
        """Give the folder of a path below the root."""
        return self._folder.inside(path.removeprefix(self._root).lstrip("/"))

    def by_workers(self, staging: Folder | None = None) -> bool:
        """Say whether the workers reach the target by themselves, too: tried once.

        Args:
            staging: a folder that is deleted at the end; None if there is none.
        """
        if self._by_workers is None:
            folder = self._folder.inside(f".reached-{uuid.uuid4()}") if staging is None else staging
            self._by_workers = workers_reach(self._spark, folder)
            if staging is None:
                folder.delete_all()
        return self._by_workers


def workers_reach(spark: SparkSession, folder: Folder) -> bool:
    """Say whether a worker can write and read in a folder by itself, and whether that is the folder that Spark means.

    A task writes a byte there, and reads it; then the driver has to find it.  In local mode the workers have the disks
    of the driver.

    Args:
        folder: what the task writes there stays until the folder is deleted.
    """
    if isinstance(folder, MountedFolder) and local_cores(spark) is not None:
        return True
    name = f"reached-{uuid.uuid4()}"
    try:
        tried = spark.range(0, 1, 1, 1).mapInArrow(partial(reach, folder=folder, name=name), REACHED)
        if not tried.collect()[0].reached:
            return False
        if isinstance(folder, MountedFolder):
            return Path(folder.path, name).exists()
        found = spark._jvm.org.apache.hadoop.fs.Path(folder.uri_of(name))  # type: ignore[union-attr]
        return bool(found.getFileSystem(spark._jsc.hadoopConfiguration()).exists(found))
    except Exception:
        # Whatever is the matter: Spark's own way is there.
        return False


__all__ = ["Reached", "workers_reach"]
