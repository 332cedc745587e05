"""Folders that driver and executors have mounted at one place: there Python reads and writes files by itself."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Final

from wal2delta.spark.session.isolation import has_own_sessions

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_SWITCH: Final = "WAL2DELTA_COMMITS"
"""An environment variable: ``spark`` has all that is written be written by Spark's own statements."""


def _writes_files(spark: SparkSession) -> bool:
    """Say whether this program may write files by itself, where folders are mounted."""
    return has_own_sessions(spark) and os.environ.get(_SWITCH) != "spark"


def local_folder(spark: SparkSession, path: str | None) -> str | None:
    """Give the folder that a path is where the driver has it mounted; None for any other place.

    Args:
        path: None, as of a catalog's table, is no folder.
    """
    if path is None or not has_own_sessions(spark):
        return None
    hadoop = spark._jvm.org.apache.hadoop.fs  # type: ignore[union-attr]
    place = hadoop.Path(path)
    if place.toUri().getScheme() is None:
        # What a path alone means says the cluster.
        place = place.makeQualified(hadoop.FileSystem.getDefaultUri(spark._jsc.hadoopConfiguration()), place)
    where = place.toUri()
    return str(where.getPath()) if where.getScheme() == "file" else None


def mounted_folder(spark: SparkSession, path: str | None) -> str | None:
    """Give the folder that a path is where driver and executors have it mounted; None where Spark has to write.

    Args:
        path: None, as of a catalog's table, is no folder.
    """
    return local_folder(spark, path) if _writes_files(spark) else None
