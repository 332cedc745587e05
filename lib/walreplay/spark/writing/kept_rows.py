"""Folded rows that are kept in files of a folder, where they wait for a MERGE."""

from __future__ import annotations

from functools import partial

import pyspark

from walreplay.sink.data_files import FileColumn
from walreplay.spark.workers.fold import FoldTask
from walreplay.spark.workers.rows import Work
from walreplay.spark.workers.write import FileTask, write_kept


def keeping(task: FoldTask, folder: str) -> Work:
    """Give what folds a share of a keyed table's events and writes all rows, to be merged.

    Args:
        folder: what a run that is killed leaves there has to be thrown away by another.
    """
    return partial(write_kept, task=task, files=keeping_files(task, folder))


def keeping_files(task: FoldTask, folder: str) -> FileTask:
    """Say where and how such rows are written."""
    columns = tuple(FileColumn(field.name, field.name, field.type, indexed=False) for field in task.schema)
    return FileTask(folder, columns, tuple(task.schema.names), pyspark.__version__)
