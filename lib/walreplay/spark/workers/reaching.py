"""Try, in a worker, whether a folder is reached by itself."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import suppress
from typing import Final

import pyarrow as pa

from walreplay.sink.folders import Folder
from walreplay.spark.workers.process import spark_task

REACHED: Final = "reached boolean"


@spark_task
def reach(batches: Iterable[pa.RecordBatch], *, folder: Folder, name: str) -> Iterator[pa.RecordBatch]:
    """Write a byte to a file in a folder, and read it; say for each batch whether that was possible."""
    for _ in batches:
        reached = False
        # Whatever is the matter, an Arrow without the store's client among it: Spark's own way is there.
        with suppress(Exception):
            folder.make()
            folder.put(name, b"1")
            reached = folder.read(name) == b"1"
        yield pa.RecordBatch.from_pydict({"reached": pa.array([reached])})


__all__ = ["REACHED", "reach"]
