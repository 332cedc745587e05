"""Capture files in an object store that driver and workers reach by themselves: listed and read without Spark."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import partial
from typing import TYPE_CHECKING, Final

import pyarrow as pa

from walreplay.settings import CaptureSettings
from walreplay.sink.folders import Options, StoreFolder
from walreplay.spark.delta.reach import folder_of
from walreplay.spark.session.isolation import has_own_sessions
from walreplay.spark.session.session import local_cores
from walreplay.spark.workers.contents import with_contents
from walreplay.spark.workers.reaching import REACHED, reach_file
from walreplay.spark.workers.rows import Work

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_OTHERWISE: Final = re.compile(r"[{\[\\]")
"""What means something else to Hadoop in a pattern than to Python."""

_NOT_HIDDEN: Final = ("_metadata", "_common_metadata")
"""Folders whose names begin so Spark does list."""


@dataclass(frozen=True, slots=True)
class StoredFiles:
    """Files that the workers read from a store, on which a function can be run.

    Attributes:
        numbers: a row for each file: its number (`walreplay.spark.captures.files.number_files`).
        bucket: where they are; ``paths`` are their URIs.
    """

    numbers: DataFrame
    bucket: StoreFolder
    paths: tuple[str, ...]

    def mapInArrow(self, func: Work, schema: str, /) -> DataFrame:  # noqa: N802
        """Give what a function makes of the files' rows (`walreplay.spark.workers.contents.CONTENTS`)."""
        return self.numbers.mapInArrow(partial(with_contents, work=func, bucket=self.bucket, paths=self.paths), schema)


def bucket_of(spark: SparkSession, paths: Sequence[str]) -> StoreFolder | None:
    """Give the bucket that all files are in, if driver and workers reach it by themselves; None otherwise."""
    found = re.match(r"[^:/]+://[^/]+", paths[0]) if paths else None
    if found is None or not all(path.startswith(f"{found[0]}/") for path in paths):
        return None
    folder = folder_of(spark, f"{found[0]}/")
    if not isinstance(folder, StoreFolder) or not _workers_reach(spark, folder, paths[0]):
        return None
    return folder


_REACHED: Final[dict[tuple[str, str, Options, str], bool]] = {}
"""Whether the workers of an application reach a bucket, by its client's options."""


def _workers_reach(spark: SparkSession, bucket: StoreFolder, path: str) -> bool:
    """Say whether a worker can read a file: tried once for each bucket.

    In local mode the workers are where the driver is.  Elsewhere they may lack the keys of its environment, the way to
    the store, or an Arrow that has its client.
    """
    if local_cores(spark) is not None and has_own_sessions(spark):
        return True
    application = spark.sparkContext.applicationId if has_own_sessions(spark) else spark.session_id  # type: ignore[attr-defined]
    key = application, bucket.kind, bucket.options, bucket.bucket
    if key not in _REACHED:
        task = partial(reach_file, bucket=bucket, name=path.removeprefix(f"{bucket.uri}/"))
        try:
            _REACHED[key] = bool(spark.range(0, 1, 1, 1).mapInArrow(task, REACHED).collect()[0].reached)
        except Exception:
            # Whatever is the matter: Spark's own way is there.
            _REACHED[key] = False
    return _REACHED[key]


def listed(spark: SparkSession, root: str, wanted: CaptureSettings) -> list[tuple[str, int, int]] | None:
    """List the files of a folder in a store as Spark would; None if it is left to Spark.

    Returns:
        of each its URI, its bytes, and when it was changed (µs since 1970).  Files without any byte, and hidden ones,
        are left out.
    """
    from pyarrow import fs

    if _OTHERWISE.search(wanted.pattern or "") or any(sign in root for sign in "*?[{"):
        return None
    folder = folder_of(spark, root)
    if not isinstance(folder, StoreFolder):
        return None
    try:
        found = folder.system.get_file_info(fs.FileSelector(folder.path, recursive=wanted.recursive))
    except (OSError, pa.ArrowException):
        # It is a file, or is not there, or may not be read: Spark says which.
        return None
    files = []
    for one in found:
        name = one.path.removeprefix(f"{folder.path}/")
        if not wanted.recursive and not one.is_file and "=" in name:
            # Spark takes it for a partition.
            return None
        *folders, own = name.split("/")
        if not one.is_file or not one.size or _is_hidden(own):
            continue
        if any(_is_hidden(name) and not name.startswith(_NOT_HIDDEN) for name in folders):
            continue
        if wanted.pattern is None or fnmatchcase(one.base_name, wanted.pattern):
            files.append((folder.uri_of(name), int(one.size), int(one.mtime_ns or 0) // 1_000_000 * 1000))
    return files


def _is_hidden(name: str) -> bool:
    """Say whether Spark leaves out a file or folder."""
    return name.startswith(".") or name.endswith("._COPYING_") or (name.startswith("_") and "=" not in name)


__all__ = ["StoredFiles", "bucket_of", "listed"]
