"""Write a small file wherever Spark can."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence

from walreplay.errors import TargetError
from walreplay.session.isolation import mounted_path


def write_text(place: str, text: str, what: str = "the report") -> None:
    """Write a text to a file; what was there is replaced.

    Args:
        place: a path, whose folders are made if they are not there, or a URI.  The active session's Hadoop knows its
            scheme; a session without one (Spark Connect) leaves it to Arrow's file systems and the environment.
        what: what the text is, for the error.

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
            f"{what} cannot be written ({reason})",
            path=place,
            remedy="All else is done; see that the place is there and may be written to, or give another one",
        ) from error


def append_lines(place: str, lines: Sequence[str], name: str) -> None:
    """Add lines to a file; or, where files cannot be added to, write them as a file of its own.

    Args:
        place: a path to a file; or a folder, which is a path with a slash at its end or one that is a folder, and any
            URI that Python cannot reach itself: objects of object stores cannot be added to.
        name: of the file in a folder.

    Raises:
        TargetError: it cannot be written.
    """
    path = mounted_path(place)
    text = "".join(f"{line}\n" for line in lines)
    if path is None or place.endswith("/") or path.is_dir():
        write_text(f"{place.rstrip('/')}/{name}", text, "the metrics")
        return
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("a", encoding="utf-8") as file:
            file.write(text)
    except OSError as error:
        raise TargetError(
            f"the metrics cannot be added to the file ({os.strerror(error.errno or 0)})",
            path=place,
            remedy="All else is done; where files cannot be added to, give a folder (a / at its end): each run writes "
            "a file there",
        ) from error


def _by_hadoop(place: str, data: bytes) -> bool:
    """Write by the active session's Hadoop; return whether there is one."""
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
