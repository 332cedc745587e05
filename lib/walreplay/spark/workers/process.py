"""Prepare the process of a Python worker for this package's tasks, and let go of its memory.

`reach` and `reach_file` try, in a worker, whether it reaches a folder or a file by itself.
"""

from __future__ import annotations

import gc
import mmap
import os
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from functools import cache, wraps
from io import BufferedReader
from types import ModuleType
from typing import Any, Final, ParamSpec, TypeVar

import pyarrow as pa

from walreplay.session.folders import Folder, StoreFolder, reason_of

_P = ParamSpec("_P")
_R = TypeVar("_R")


def spark_task(function: Callable[_P, Iterator[_R]]) -> Callable[_P, Iterator[_R]]:
    """Declare a function as a task of Spark's."""

    @wraps(function)
    def run(*args: _P.args, **kwargs: _P.kwargs) -> Iterator[_R]:
        _prepare()
        return function(*args, **kwargs)

    return run


def _prepare() -> None:
    from pyspark import TaskContext

    # Only in a worker's process: the driver's belongs to the user.
    if TaskContext.get() is not None:
        _freeze(len(sys.modules))
        end_quietly(sys.modules.get("pyspark.worker"))


@cache
def _freeze(modules: int) -> None:
    """Let the collector pass over what is there, which is the modules: between tasks Spark has collected the rest.

    Spark has it run after every task, and the worker takes no other until each object was looked at: 15 to 40 ms.

    Args:
        modules: how many are imported; pandas, for example, is by the second task, so once is not enough.
    """
    gc.freeze()


@cache
def end_quietly(worker: ModuleType | None) -> None:
    """Let the process end without a message once Spark lets go of it.

    Spark closes the socket of a worker that has been idle for a minute, and of all workers when it ends. pyspark takes
    that for an error, and writes a traceback to the closed socket.  That fails, so it writes another one to standard
    error, among the program's own output.

    Args:
        worker: pyspark's module, whose ``main`` is called for each task.
    """
    main: Callable[[BufferedReader, Any], None] | None = getattr(worker, "main", None)
    if main is None:
        return

    def main_unless_closed(infile: BufferedReader, outfile: Any) -> None:
        try:
            is_closed = not infile.peek(1)
        except OSError:
            is_closed = True
        if is_closed:
            os._exit(0)
        main(infile, outfile)

    setattr(worker, "main", main_unless_closed)  # noqa: B010


def release_pages(content: memoryview) -> None:
    """Release the memory of a mapped file in this process; pages that are read again are loaded again."""
    if isinstance(content.obj, mmap.mmap) and hasattr(mmap, "MADV_DONTNEED"):
        content.obj.madvise(mmap.MADV_DONTNEED)


REACH_PROBLEM: Final = "problem string"


@spark_task
def reach(batches: Iterable[pa.RecordBatch], *, folder: Folder, name: str) -> Iterator[pa.RecordBatch]:
    """Write a byte to a file in a folder, and read it; yield for each batch what keeps that from being possible."""
    for _ in batches:
        problem: str | None = "it reads something else than it has written"
        try:
            folder.make()
            folder.put(name, b"1")
            if folder.read(name) == b"1":
                problem = None
        except OSError as error:
            problem = reason_of(error)
        except Exception as error:  # an Arrow without the store's client, for example
            problem = type(error).__name__
        yield pa.RecordBatch.from_pydict({"problem": pa.array([problem], pa.string())})


REACHED: Final = "reached boolean"


@spark_task
def reach_file(batches: Iterable[pa.RecordBatch], *, bucket: StoreFolder, name: str) -> Iterator[pa.RecordBatch]:
    """Read a byte of a file that is somewhere in a bucket; yield for each batch whether the store returned it."""
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
