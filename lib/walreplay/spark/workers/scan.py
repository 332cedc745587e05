"""Scan files: which sessions, transactions and relation versions each one holds.

Read capture files from an object store in the workers, so that their bytes do not pass through the JVM.
"""

from __future__ import annotations

import json
import pickle
from collections import deque
from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing
from typing import Any, Final, TypeAlias

import pyarrow as pa

from walreplay.decode.files import ScanTask, scan_file
from walreplay.decode.proof import other_bytes
from walreplay.decode.summary import FileScan
from walreplay.errors import CaptureError, WalReplayError, from_dict
from walreplay.listing import map_file
from walreplay.session.folders import StoreFolder, reason_of
from walreplay.spark.workers.process import spark_task
from walreplay.spark.workers.rows import SCAN, Work, one_binary

LOCAL_SCHEME: Final = "file:"

_SCANS_A_BATCH: Final = 256

_BYTES_A_BATCH: Final = 1 << 20
"""Scans are returned several at a time: a batch costs Spark as much as the scan of a small file."""


Content: TypeAlias = pa.Buffer | memoryview | WalReplayError
"""A file's bytes, or the error of reading it."""


def view_of(content: Content) -> memoryview:
    """Return a file's bytes, or raise the error."""
    if isinstance(content, WalReplayError):
        raise content
    return memoryview(content)


def capture_files(batches: Iterable[pa.RecordBatch], paths: Iterable[str]) -> Iterator[tuple[str, Content]]:
    """Yield each file's path and bytes, without copying them, or the error of reading it.

    Args:
        batches: of files by path, with their content; or by number, and they are read here.
        paths: the paths behind the numbers.
    """
    numbered = list(paths)
    for batch in batches:
        if "content" not in batch.schema.names:  # the file is mounted: only its number comes from Spark
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
    """Map a file of a mounted file system into memory, or return the error of reading it."""
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
    rows: list[dict[str, Any]] = []
    size = 0
    for path, content in capture_files(batches, tasks):
        scan, error = None, None
        try:
            scan = pickle.dumps(scan_of(path, view_of(content), tasks[path]))
        except WalReplayError as problem:
            error = json.dumps(problem.to_dict())
        rows.append({"scan": scan, "error": error})
        size += len(scan or "")
        if len(rows) >= _SCANS_A_BATCH or size >= _BYTES_A_BATCH:
            yield pa.RecordBatch.from_pylist(rows, schema=SCAN)
            rows, size = [], 0
    if rows:
        yield pa.RecordBatch.from_pylist(rows, schema=SCAN)


def scan_of(path: str, content: memoryview, task: ScanTask) -> FileScan:
    """Scan a file for a run, and beside an index prove the bytes that are read: an error of others says that first."""
    try:
        scan = scan_file(path, content, task)
    except CaptureError as error:
        if task.proof is not None and not task.proof.begins(content):
            raise other_bytes(path) from error
        raise
    # Of a file that has grown, what an index does not have yet may be all that is read.
    if task.proof is not None and (not task.start or scan.compression or task.start < task.proof.length):
        is_same, checksum = task.proof.compared(content)
        scan.checksum, scan.differs = checksum if not task.start else "", not is_same
    return scan


_PART: Final = 16 << 20
_AT_ONCE: Final = 8
"""A store sends some 50 to 100 MB a second for one request, and several at once: files are read in parts of so many
bytes, so many at a time."""

_SMALL: Final = 1 << 20
_FILES_AT_ONCE: Final = 24
"""Of small files it is the requests that take time, two for each, so a task asks for so many files at once.  Arrow's
client has 25 connections at least."""

_SHORT: Final = "the store has sent less than the file has"

CONTENTS: Final = pa.schema([("path", pa.string()), ("content", pa.binary()), ("error", pa.string())])
"""A file: its bytes, or the error of reading it (JSON)."""


@spark_task
def with_contents(
    batches: Iterable[pa.RecordBatch], *, work: Work, bucket: StoreFolder, paths: Sequence[str]
) -> Iterator[pa.RecordBatch]:
    """Do some work on files that come from Spark as numbers: it gets rows of `CONTENTS`, one at a time."""
    chosen = (paths[number] for batch in batches for number in batch.column("file").to_pylist())
    with closing(_files(bucket, chosen)) as files:
        yield from work(files)


def _files(bucket: StoreFolder, paths: Iterable[str]) -> Generator[pa.RecordBatch, None, None]:
    """Read files in their order.  Those that come next are opened meanwhile, and read if they are small."""
    coming = deque[tuple[str, "Future[StoredFile]"]]()
    with ThreadPoolExecutor(_FILES_AT_ONCE) as pool:
        try:
            for path in paths:
                coming.append((path, pool.submit(StoredFile, bucket, path.removeprefix(f"{bucket.uri}/"))))
                if len(coming) == _FILES_AT_ONCE:
                    yield _row(*coming.popleft())
            while coming:
                yield _row(*coming.popleft())
        finally:
            for _, opened in coming:
                opened.cancel()  # the work has raised, or has enough


def _row(path: str, opened: Future[StoredFile]) -> pa.RecordBatch:
    content, error = None, None
    try:
        content = opened.result().read()
    except OSError as problem:
        what = "it is not there" if isinstance(problem, FileNotFoundError) else reason_of(problem)
        refusal = CaptureError(
            f"the file cannot be read: {what}",
            path=path,
            remedy="See that it is there and that the executors may read it, and run again",
        )
        error = json.dumps(refusal.to_dict())
    bytes_ = pa.nulls(1, pa.binary()) if content is None else one_binary(content)
    return pa.RecordBatch.from_arrays([pa.array([path]), bytes_, pa.array([error], pa.string())], schema=CONTENTS)


class StoredFile:
    """A file of at most 2 GiB that is opened, and has been read if it is small."""

    def __init__(self, bucket: StoreFolder, name: str) -> None:
        self._file = bucket.system.open_input_file(f"{bucket.path}/{name}")
        self._size = self._file.size()
        self._whole = self._read_at_once() if self._size <= _SMALL else None

    def read(self) -> pa.Buffer:
        """Return the file's bytes, once; those of a large one are read now, several parts at a time."""
        if self._whole is not None:
            return self._whole
        if self._size <= _PART:
            return self._read_at_once()
        whole = pa.allocate_buffer(self._size)
        into = memoryview(whole).cast("B")

        def fill(start: int) -> None:
            length = min(_PART, self._size - start)
            read = self._file.read_at(length, start)
            if len(read) < length:  # to Arrow's client a short answer is no error
                raise OSError(_SHORT)
            into[start : start + length] = read

        with self._file, ThreadPoolExecutor(_AT_ONCE) as pool:
            list(pool.map(fill, range(0, self._size, _PART)))
        return whole

    def _read_at_once(self) -> pa.Buffer:
        with self._file:
            read = self._file.read_buffer()
        if read.size < self._size:
            raise OSError(_SHORT)
        return read
