"""Read capture files from an object store in the workers, so that their bytes do not pass through the JVM."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Final

import numpy as np
import pyarrow as pa

from walreplay.errors import CaptureError
from walreplay.sink.folders import StoreFolder, reason_of
from walreplay.spark.workers.process import spark_task
from walreplay.spark.workers.rows import Work

_PART: Final = 16 << 20
_AT_ONCE: Final = 8
"""A store sends some 50 to 100 MB a second for one request, and several at once: files are read in parts of so many
bytes, so many at a time."""

CONTENTS: Final = pa.schema([("path", pa.string()), ("content", pa.binary()), ("error", pa.string())])
"""A file: its bytes, or the error of reading it (JSON)."""


@spark_task
def with_contents(
    batches: Iterable[pa.RecordBatch], *, work: Work, bucket: StoreFolder, paths: Sequence[str]
) -> Iterator[pa.RecordBatch]:
    """Do some work on files that Spark has given by their numbers: it gets rows of `CONTENTS`, one at a time.

    Args:
        bucket: where all files are.
        paths: the files' URIs, by their numbers.
    """
    numbers = (number for batch in batches for number in batch.column("file").to_pylist())
    yield from work(_file(bucket, paths[number]) for number in numbers)


def _file(bucket: StoreFolder, path: str) -> pa.RecordBatch:
    content, error = None, None
    try:
        content = read_whole(bucket, path.removeprefix(f"{bucket.uri}/"))
    except OSError as problem:
        what = "it is not there" if isinstance(problem, FileNotFoundError) else reason_of(problem)
        refusal = CaptureError(
            f"the file cannot be read: {what}",
            path=path,
            remedy="See that it is there and that the executors may read it, and run again",
        )
        error = json.dumps(refusal.to_dict())
    bytes_ = pa.nulls(1, pa.binary()) if content is None else _one(content)
    return pa.RecordBatch.from_arrays([pa.array([path]), bytes_, pa.array([error], pa.string())], schema=CONTENTS)


def _one(content: pa.Buffer) -> pa.Array:
    """Give an array of one value without copying it."""
    offsets = pa.py_buffer(np.array([0, content.size], np.int32))
    return pa.Array.from_buffers(pa.binary(), 1, [None, offsets, content])


def read_whole(bucket: StoreFolder, name: str) -> pa.Buffer:
    """Read a file of at most 2 GiB, several parts at a time."""
    with bucket.system.open_input_file(f"{bucket.path}/{name}") as file:
        size = file.size()
        if size <= _PART:
            return file.read_buffer()
        whole = pa.allocate_buffer(size)
        into = memoryview(whole).cast("B")

        def fill(start: int) -> None:
            length = min(_PART, size - start)
            read = file.read_at(length, start)
            if len(read) < length:
                raise OSError("the store has sent less than the file has")
            into[start : start + length] = read

        with ThreadPoolExecutor(_AT_ONCE) as pool:
            list(pool.map(fill, range(0, size, _PART)))
    return whole


__all__ = ["CONTENTS", "read_whole", "with_contents"]
