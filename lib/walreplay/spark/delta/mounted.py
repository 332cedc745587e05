"""Folders that driver and executors have mounted at the same path: there Python can read and write files itself."""

from __future__ import annotations

from typing import TYPE_CHECKING

from walreplay.spark.session.isolation import has_own_sessions

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def local_folder(spark: SparkSession, path: str | None) -> str | None:
    """Give the folder of a path that the driver has mounted; None for any other place.

    Args:
        path: None (a table in a catalog) is no folder.
    """
    if path is None or not has_own_sessions(spark):
        return None
    hadoop = spark._jvm.org.apache.hadoop.fs  # type: ignore[union-attr]
    place = hadoop.Path(path)
    if place.toUri().getScheme() is None:
        # What a path without a scheme means depends on the cluster.
        place = place.makeQualified(hadoop.FileSystem.getDefaultUri(spark._jsc.hadoopConfiguration()), place)
    where = place.toUri()
    return str(where.getPath()) if where.getScheme() == "file" else None
