"""Folded rows that are kept in files until a MERGE reads them."""

from __future__ import annotations

from functools import partial

import pyspark

from walreplay.sink.data_files import FileColumn
from walreplay.sink.folders import Folder
from walreplay.spark.workers.fold import FoldTask
from walreplay.spark.workers.rows import Work
from walreplay.spark.workers.write import FileTask, write_kept


def keeping(task: FoldTask, folder: Folder) -> Work:
    """Give the function that folds a share of a keyed table's events and keeps the rows for a MERGE.

    Args:
        folder: for the files.  If the run is killed, the next one has to delete what is left there.
    """
    return partial(write_kept, task=task, files=keeping_files(task, folder))


def keeping_files(task: FoldTask, folder: Folder) -> FileTask:
    """Say where and how the kept rows are written."""
    columns = tuple(FileColumn(field.name, field.name, field.type, indexed=False) for field in task.schema)
    return FileTask(folder, columns, tuple(task.schema.names), pyspark.__version__)
