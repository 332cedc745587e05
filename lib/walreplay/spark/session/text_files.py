"""Write a small file wherever Spark can."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Final

from walreplay.errors import TargetError

_SCHEME: Final = re.compile(r"([A-Za-z][A-Za-z0-9+.-]+):")
_MOUNTED: Final = re.compile(r"(?:file|dbfs):/*(/.*)")
"""Paths that the driver has mounted: ``file:/x``, and Databricks' volumes, which all have ``/Volumes`` in front."""


def write_text(place: str, text: str) -> None:
    """Write a text to a file; what was there is replaced.

    Args:
        place: a path, whose folders are made if they are not there, or a URI.  The active session's Hadoop knows its
            scheme; a session without one (Spark Connect) leaves it to Arrow's file systems and the environment.

    Raises:
        TargetError: it cannot be written.
    """
    try:
        path = mounted_path(place)
        if path is not None:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
        elif not _by_hadoop(place, text.encode()):
            _by_arrow(place, text.encode())
    except Exception as error:
        reason = os.strerror(error.errno) if isinstance(error, OSError) and error.errno else type(error).__name__
        raise TargetError(
            f"the report cannot be written ({reason})",
            path=place,
            remedy="All else is done; see that the place is there and may be written to, or give another one",
        ) from error


def mounted_path(place: str) -> Path | None:
    """Give a place as a path, if it is one that Python can reach itself; None for any other URI."""
    if _SCHEME.match(place) is None:
        return Path(place)
    found = _MOUNTED.fullmatch(place)
    if found is None or (place.startswith("dbfs:") and not found[1].startswith("/Volumes/")):
        return None
    return Path(found[1])


def _by_hadoop(place: str, data: bytes) -> bool:
    """Write by the active session's Hadoop; say whether there is one."""
    from pyspark.sql import SparkSession

    spark = SparkSession.getActiveSession()
    if spark is None or not hasattr(spark, "_jsparkSession"):
        return False
    path = spark._jvm.org.apache.hadoop.fs.Path(place)  # type: ignore[union-attr]
    stream = path.getFileSystem(spark._jsc.hadoopConfiguration()).create(path, True)
    try:
        stream.write(data)
    finally:
        stream.close()
    return True


def _by_arrow(place: str, data: bytes) -> None:
    from pyarrow import fs

    system, path = fs.FileSystem.from_uri(re.sub(r"^s3[an]:", "s3:", place))
    with system.open_output_stream(path) as stream:
        stream.write(data)


__all__ = ["mounted_path", "write_text"]
