"""Try, in a worker, whether a folder or a file is reached by itself."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import suppress
from typing import Final

import pyarrow as pa

from walreplay.sink.folders import Folder, StoreFolder
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


@spark_task
def reach_file(batches: Iterable[pa.RecordBatch], *, bucket: StoreFolder, name: str) -> Iterator[pa.RecordBatch]:
    """Read a byte of a file that is somewhere in a bucket; say for each batch whether the store has given it."""
    for _ in batches:
        reached = False
        with suppress(Exception):
            try:
                with bucket.system.open_input_file(f"{bucket.path}/{name}") as file:
                    file.read_at(1, 0)
            except FileNotFoundError:
                pass  # The store has answered; who reads the file will say that it is gone.
            reached = True
        yield pa.RecordBatch.from_pydict({"reached": pa.array([reached])})


__all__ = ["REACHED", "reach", "reach_file"]
