"""Capture files in an object store that driver and workers reach by themselves: listed and read without Spark."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import partial
from typing import TYPE_CHECKING, Final

from walreplay.settings import CaptureSettings
from walreplay.sink.folders import StoreFolder
from walreplay.spark.delta.reach import folder_of
from walreplay.spark.workers.contents import with_contents
from walreplay.spark.workers.rows import Work

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_OTHERWISE: Final = re.compile(r"[{\[\\]")
"""What means something else to Hadoop in a pattern than to Python."""


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
    """Give the bucket that all files are in, if it is reached; None otherwise."""
    found = re.match(r"[^:/]+://[^/]+", paths[0]) if paths else None
    if found is None or not all(path.startswith(f"{found[0]}/") for path in paths):
        return None
    folder = folder_of(spark, f"{found[0]}/")
    return folder if isinstance(folder, StoreFolder) else None


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
    except OSError:
        # It is a file, or is not there, or may not be read: Spark says which.
        return None
    files = []
    for one in found:
        name = one.path.removeprefix(f"{folder.path}/")
        if not wanted.recursive and not one.is_file and "=" in name:
            # Spark takes it for a partition.
            return None
        if not one.is_file or not one.size or any(map(_is_hidden, name.split("/"))):
            continue
        if wanted.pattern is None or fnmatchcase(one.base_name, wanted.pattern):
            files.append((folder.uri_of(name), int(one.size), int(one.mtime_ns or 0) // 1_000_000 * 1000))
    return files


def _is_hidden(name: str) -> bool:
    """Say whether Spark leaves out a file or folder."""
    return name.startswith(".") or name.endswith("._COPYING_") or (name.startswith("_") and "=" not in name)


__all__ = ["StoredFiles", "bucket_of", "listed"]
