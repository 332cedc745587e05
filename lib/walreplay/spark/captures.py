"""Capture files: listed by Spark, and scanned in parallel; without Spark in an object store that Python reaches.

`StoredFiles` are in a store that driver and workers reach by themselves, so their bytes do not pass through the JVM.
"""

from __future__ import annotations

import json
import os
import pickle
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from fnmatch import fnmatch, fnmatchcase
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pyarrow as pa
from pyspark.errors import AnalysisException
from pyspark.sql import functions as f

from walreplay.config import Settings
from walreplay.decode.files import ScanTask
from walreplay.decode.summary import FileScan
from walreplay.delta.statements import sql_schema
from walreplay.errors import CaptureError, ConfigError, WalReplayError, from_dict
from walreplay.listing import HIDDEN, Hole, escape_glob, refuse_endless, sort_key
from walreplay.session.folders import Options, StoreFolder
from walreplay.session.isolation import absolute, has_own_sessions, mounted_path, one_name, settings
from walreplay.session.reach import folder_of
from walreplay.session.session import local_cores
from walreplay.spark.workers.process import REACHED, reach_file
from walreplay.spark.workers.rows import SCAN, Work
from walreplay.spark.workers.scan import LOCAL_SCHEME, scan_batches, with_contents

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


_SPECIAL_IN_HADOOP: Final = re.compile(r"[{\[\\]")  # What means something else to Hadoop in a pattern than to Python

_NOT_HIDDEN: Final = ("_metadata", "_common_metadata")  # Folders whose names begin so Spark does list


@dataclass(frozen=True, slots=True)
class StoredFiles:
    """Files that the workers read from a store, on which a function can be run.

    Attributes:
        numbers: a row for each file: its number (`walreplay.spark.captures.number_files`).
        bucket: where they are; ``paths`` are their URIs.
    """

    numbers: DataFrame
    bucket: StoreFolder
    paths: tuple[str, ...]

    def mapInArrow(self, func: Work, schema: str, /) -> DataFrame:  # noqa: N802
        """Return what a function makes of the files' rows (`walreplay.spark.workers.scan.CONTENTS`)."""
        return self.numbers.mapInArrow(partial(with_contents, work=func, bucket=self.bucket, paths=self.paths), schema)


def bucket_of(spark: SparkSession, paths: Sequence[str]) -> StoreFolder | None:
    """Return the bucket that all files are in, if driver and workers reach it by themselves; None otherwise."""
    root = re.match(r"[^:/]+://[^/]+", paths[0]) if paths else None
    if root is None or not all(path.startswith(f"{root[0]}/") for path in paths):
        return None
    folder = folder_of(spark, f"{root[0]}/")
    if not isinstance(folder, StoreFolder) or not _workers_reach(spark, folder, paths[0]):
        return None
    return folder


_REACHED: Final[dict[tuple[str, str, Options, str], bool]] = {}
"""Whether the workers of an application reach a bucket, by its client's options."""


def _workers_reach(spark: SparkSession, bucket: StoreFolder, path: str) -> bool:
    """Return whether a worker can read a file: tried once for each bucket.

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


def list_in_store(spark: SparkSession, root: str, config: Settings) -> list[CaptureFile] | None:
    """List the files of a folder in a store as Spark would, without empty and hidden ones; None leaves it to Spark."""
    from pyarrow import fs

    if _SPECIAL_IN_HADOOP.search(config.file_pattern or "") or any(sign in root for sign in "*?[{"):
        return None
    folder = folder_of(spark, root)
    if not isinstance(folder, StoreFolder):
        return None
    try:
        entries = folder.system.get_file_info(fs.FileSelector(folder.path, recursive=True))
    except (OSError, pa.ArrowException):
        # It is a file, or is not there, or may not be read: Spark says which.
        return None
    files = []
    for entry in entries:
        name = entry.path.removeprefix(f"{folder.path}/")
        *folders, file_name = name.split("/")
        if not entry.is_file or not entry.size or _is_hidden(file_name):
            continue
        if any(_is_hidden(name) and not name.startswith(_NOT_HIDDEN) for name in folders):
            continue
        if config.file_pattern is None or fnmatchcase(entry.base_name, config.file_pattern):
            # Spark, too, knows times of change to the millisecond: both ways the ledger has the same.
            modified = int(entry.mtime_ns or 0) // 1_000_000 * 1000
            files.append(CaptureFile(f"{folder.uri}/{name}", int(entry.size), modified))
    return files


def _is_hidden(name: str) -> bool:
    """Return whether Spark leaves out a file or folder."""
    return name.startswith(".") or name.endswith("._COPYING_") or (name.startswith("_") and "=" not in name)


MAX_FILE_BYTES: Final = 2**31 - 1

ONE_FILE_A_BATCH: Final = {"spark.sql.execution.arrow.maxRecordsPerBatch": "1"}
"""How many records an Arrow batch has is set for the session; set to 1 it would make every later mapInArrow crawl,
so it is set around the jobs alone whose files' bytes come from Spark."""

_FEW_FILES: Final = 32
_MANY_TASKS: Final = 64
_FILES_A_TASK: Final = 4
_BYTES_A_TASK: Final = 32 << 20
_TASKS_A_CORE: Final = 4

GLOB: Final = re.compile(r"[\[\]{}*?\\]")
_SURROGATE = re.compile("[\ud800-\udfff]")

INDEX_FOLDER: Final = "_walreplay_index"
"""Where an archive's index lies, in the archive's own folder (`walreplay.archive`)."""


@dataclass(frozen=True, slots=True)
class CaptureFile:
    """A file of the captures' listing: its path as Spark writes it, its bytes, its modification in µs since 1970."""

    path: str
    length: int
    modified: int


def in_parts(files: Iterable[CaptureFile], is_full: Callable[[int, int], bool]) -> Iterator[list[CaptureFile]]:
    """Divide files into parts, each of as few as are enough by their number and their bytes."""
    part, size = list[CaptureFile](), 0
    for file in files:
        part.append(file)
        size += file.length
        if is_full(len(part), size):
            yield part
            part, size = [], 0
    if part:
        yield part


def root_of(captures: str) -> str:
    """Return the captures' root as the ledger names it: absolute, without a trailing slash, by one of its names."""
    return one_name(absolute(captures))


def name_in(root: str, path: str) -> str:
    """Return a file's name below the captures' root; it stays the same if the captures are moved as a whole."""
    path = one_name(path)
    _, separator, name = path.partition(root)
    return name if separator else path


def list_captures(spark: SparkSession, captures: str, config: Settings) -> list[CaptureFile]:
    """List the capture files in the configured order, without reading them; none if no file has a byte yet.

    Raises:
        ConfigError: the place does not exist, or has no file.
        CaptureError: a file is too large.
    """
    files = _listed(spark, captures, config)
    if not files and not _has_empty_files(spark, absolute(captures), config):
        remedy = "Check --captures and, in the configuration, file_pattern"
        raise ConfigError("there are no capture files", path=captures, remedy=remedy)
    for file in files:
        if file.length > MAX_FILE_BYTES:
            raise CaptureError(
                f"the file has {file.length:,} bytes, and Spark reads at most {MAX_FILE_BYTES:,} as one",
                path=file.path,
                remedy="Decompress it, if it is compressed; split it anywhere, by `split -b 1G -d FILE FILE.`; "
                "and take it away, as its parts stand for it",
            )
    return sorted(files, key=lambda file: sort_key(config.file_order, file.path, file.modified))


def _listed(spark: SparkSession, captures: str, config: Settings) -> list[CaptureFile]:
    root = absolute(captures)
    in_store = list_in_store(spark, root, config)
    if in_store:  # an empty list is left to Spark, too, which says what is wrong
        return in_store
    reader = spark.read.format("binaryFile").option("recursiveFileLookup", "true")
    if config.file_pattern is not None:
        reader = reader.option("pathGlobFilter", config.file_pattern)
    if root.startswith((LOCAL_SCHEME, "/")):
        refuse_endless(Path(re.sub(r"^file:/+", "/", root)), pattern=config.file_pattern)
    try:
        listing = reader.load(escape_glob(root) if not _is_glob(root) else root)
        # As a number: timestamps are collected in local time, where one hour of autumn is ambiguous.
        rows = listing.select("path", "length", f.unix_micros("modificationTime").alias("modified")).collect()
    except AnalysisException as error:
        if is_not_found(error):
            raise ConfigError("no such file or folder", path=captures, remedy="Check --captures") from None
        raise
    _refuse_unread_names(root, config)
    # A glob finds what is hidden, too.
    return [CaptureFile(*row) for row in rows if f"/{INDEX_FOLDER}/" not in row.path]


def _refuse_unread_names(root: str, config: Settings) -> None:
    """Refuse local files whose names are not UTF-8: Java does not list them, and does not say so."""
    if not Path(root).is_dir():
        return
    for folder, folders, files in os.walk(root):
        folders[:] = [name for name in folders if not name.startswith(HIDDEN)]  # os.walk does not go into the others
        for name in (*folders, *files):
            # Python decodes bytes that are no UTF-8 to halves of surrogate pairs.
            if name.isascii() or not _SURROGATE.search(name) or name.startswith(HIDDEN):
                continue
            if name in folders or config.file_pattern is None or fnmatch(name, config.file_pattern):
                problem = "the name is not UTF-8, and Spark does not see the file"
                raise ConfigError(problem, path=str(Path(folder, name)), remedy="Rename it")


def confirm_holes(spark: SparkSession, holes: Sequence[Hole]) -> list[Hole]:
    """Remove holes whose file exists but is empty: Spark's listing leaves out empty files."""
    confirmed = []
    for hole in holes:
        # Only these names are looked for; anything else counts as missing.
        absent = [name for name, glob in hole.names if not _is_empty_file(spark, glob)]
        unnamed = hole.missing - len(hole.names)
        if absent or unnamed:
            confirmed.append(replace(hole, missing=len(absent) + unnamed, example=(absent or [hole.example])[0]))
    return confirmed


def _has_empty_files(spark: SparkSession, root: str, config: Settings) -> bool:
    """Return whether the captures, of which Spark lists none, are files without a byte: pg_recvlogical begins so."""
    inside = f"{escape_glob(root)}/{config.file_pattern or '[^_.]*'}"
    path = mounted_path(root)
    return _is_glob(root) or (path is not None and path.is_file()) or _is_empty_file(spark, inside)


def _is_empty_file(spark: SparkSession, glob: str) -> bool:
    try:
        return not spark.read.format("binaryFile").load(glob).select("length").take(1)
    except AnalysisException as error:
        if is_not_found(error):
            return False
        raise


def is_not_found(error: Exception) -> bool:
    """Return whether Spark has found nothing at a path."""
    return "PATH_NOT_FOUND" in str(error) or "does not exist" in str(error)


def _is_glob(path: str) -> bool:
    return not Path(path).exists() and GLOB.search(path) is not None


def read_files(spark: SparkSession, paths: Sequence[str], size: int) -> DataFrame | StoredFiles:
    """Return one row per file: its path and content; or only its number in the list.

    Files in a file system that the executors have mounted (``file:``) go by number, and Python workers map them into
    memory.  So Spark need not list them, and the bytes do not pass through the JVM, which would hold several copies.
    Those in an object store that is reached go by number, too, and the workers read them.

    Args:
        size: bytes of all files, about.
    """
    bucket = None if are_mapped(paths) else bucket_of(spark, paths)
    if are_mapped(paths) or bucket is not None:
        numbers = number_files(spark, len(paths), tasks_for(len(paths), size, local_cores(spark)))
        return numbers if bucket is None else StoredFiles(numbers, bucket, tuple(paths))
    return spark.read.format("binaryFile").load([escape_glob(path) for path in paths]).select("path", "content")


def are_mapped(paths: Iterable[str]) -> bool:
    """Return whether the workers can map the files; otherwise the bytes come through Spark, which is expensive."""
    return all(path.startswith(LOCAL_SCHEME) for path in paths)


def files_a_batch(paths: Iterable[str]) -> Mapping[str, str]:
    """Return the settings for a job that reads files; files that go by number may share a batch."""
    return {} if are_mapped(paths) else ONE_FILE_A_BATCH


def number_files(spark: SparkSession, files: int, tasks: int | None = None) -> DataFrame:
    """Return one row per file, its number in some list; ``tasks`` share the files, None for one per core."""
    return spark.range(0, files, 1, tasks).withColumnRenamed("id", "file")


def tasks_for(files: int, size: int, cores: int | None) -> int | None:
    """Return how many tasks share the files, by their total size; None for one per core.

    A failed task is repeated as a whole, and each task gets the names of all files.  So a few files go into one task if
    there are many, and more if they are small, as each task costs time and writes files of its own.  In local mode no
    task is repeated: there are as many as share the work evenly.

    Args:
        cores: in local mode, how many there are.
    """
    if files <= _FEW_FILES:
        return None
    if cores is not None:
        return min(files, _TASKS_A_CORE * cores)
    return min(files, max(_MANY_TASKS, min(files // _FILES_A_TASK, size // _BYTES_A_TASK)))


def scan_each(spark: SparkSession, tasks: Mapping[str, ScanTask]) -> dict[str, FileScan | WalReplayError]:
    """Scan files in parallel; return for each its scan or its error, in the order of the tasks.

    Raises:
        WalReplayError: one that is of none of the files.
    """
    files = read_files(spark, list(tasks), sum(task.length for task in tasks.values()))
    frame = files.mapInArrow(partial(scan_batches, tasks=dict(tasks)), sql_schema(SCAN))
    with settings(spark, files_a_batch(tasks)):
        rows = frame.collect()
    scans: dict[str, FileScan | WalReplayError] = {}
    for row in rows:
        if row.error is None:
            scan: FileScan = pickle.loads(row.scan)  # written by this package's own tasks
            scans[scan.path] = scan
            continue
        error = from_dict(json.loads(row.error))
        if error.path is None or error.path not in tasks:
            raise error
        scans[error.path] = error
    problem = "the file was there when the run began, and has vanished since"
    remedy = "Bring it back if it has transactions that are wanted, and run again; move files away only between runs"
    # A task may bring no row of a file: Spark's listing for the job leaves out what is gone by then.
    return {path: scans[path] if path in scans else CaptureError(problem, path=path, remedy=remedy) for path in tasks}
