"""Scan files: which sessions, transactions and relation versions each one holds."""

from __future__ import annotations

import json
import pickle
import zlib
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

import pyarrow as pa

from walreplay.decode.files import ScanTask, scan_file
from walreplay.decode.summary import FileScan
from walreplay.errors import CaptureError, WalReplayError, from_dict
from walreplay.listing import map_file
from walreplay.spark.workers.process import spark_task
from walreplay.spark.workers.rows import SCAN

LOCAL_SCHEME: Final = "file:"

_SCANS_A_BATCH: Final = 256

_BYTES_A_BATCH: Final = 1 << 20
"""Scans are told some at a time: each batch costs Spark as much as the scan of a small file."""


def capture_files(
    batches: Iterable[pa.RecordBatch], paths: Iterable[str]
) -> Iterator[tuple[str, pa.Buffer | memoryview | WalReplayError]]:
    """Yield each file's path and bytes, without copying them, or the error of reading it.

    Args:
        batches: of files by path, with their content; or by number, and they are read here.
        paths: the paths behind the numbers.
    """
    numbered = list(paths)
    for batch in batches:
        if "content" not in batch.schema.names:
            for number in batch.column("file").to_pylist():
                yield numbered[number], map_capture(numbered[number])
            continue
        errors = batch.column("error") if "error" in batch.schema.names else None
        for row, (path, content) in enumerate(zip(batch.column("path"), batch.column("content"), strict=True)):
            if errors is not None and errors[row].is_valid:
                yield path.as_py(), from_dict(json.loads(errors[row].as_py()))
            else:
                yield path.as_py(), content.as_buffer()


def map_capture(path: str) -> memoryview | WalReplayError:
    """Map a file of a mounted file system into memory, or give the error of reading it."""
    name = path.removeprefix(LOCAL_SCHEME)
    try:
        # A path has one slash in front, or three.
        return map_file("/" + name.lstrip("/"))
    except OSError as error:
        return CaptureError(
            f"the file cannot be read: {error.strerror or 'an error of the file system'}",
            path=path,
            remedy="A file: path has to be mounted at the same place on every executor",
        )


@spark_task
def scan_batches(batches: Iterable[pa.RecordBatch], *, tasks: Mapping[str, ScanTask]) -> Iterator[pa.RecordBatch]:
    """Scan whole files; one row per file, with its pickled `FileScan` or its error."""
    told: list[dict[str, Any]] = []
    size = 0
    for path, content in capture_files(batches, tasks):
        scan, error = None, None
        try:
            if isinstance(content, WalReplayError):
                raise content
            scan = pickle.dumps(scan_of(path, memoryview(content), tasks[path]))
        except WalReplayError as problem:
            error = json.dumps(problem.to_dict())
        told.append({"scan": scan, "error": error})
        size += len(scan or "")
        if len(told) >= _SCANS_A_BATCH or size >= _BYTES_A_BATCH:
            yield pa.RecordBatch.from_pylist(told, schema=SCAN)
            told, size = [], 0
    if told:
        yield pa.RecordBatch.from_pylist(told, schema=SCAN)


def scan_of(path: str, content: memoryview, task: ScanTask) -> FileScan:
    """Scan a file for a run; a scan of the whole file has its checksum."""
    scan = scan_file(path, content, task)
    if not task.start:
        scan.checksum = zlib.crc32(content)
    return scan
