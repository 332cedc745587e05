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


__all__ = ["workers_reach"]
