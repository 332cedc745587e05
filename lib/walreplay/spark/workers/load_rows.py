"""Take rows of a base load as Spark has them, and stage them as inserts."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import pyarrow as pa

from walreplay.decode.change_batch import ChangeBatch
from walreplay.loading.typed_rows import TypedRows
from walreplay.protocol.messages import Relation
from walreplay.spark.workers.load import LoadTask, made_table, staged_batches
from walreplay.spark.workers.process import spark_task
from walreplay.spark.workers.rows import stage_batch


@dataclass(frozen=True, slots=True)
class RowsTask:
    """What every task needs that takes rows of one table.

    Attributes:
        order: which of the rows' columns each of the relation's is.
        path: where they are from, for errors.
    """

    load: LoadTask
    relation: Relation
    order: tuple[int, ...]
    path: str


@spark_task
def load_rows(batches: Iterable[pa.RecordBatch], *, task: RowsTask) -> Iterator[pa.RecordBatch]:
    """Stage a partition's rows; an error becomes a row of `ERROR_TABLE`."""
    yield from staged_batches(_inserts(batches, task), task.relation, _partition(), task.path, task.load)


def _inserts(batches: Iterable[pa.RecordBatch], task: RowsTask) -> Iterator[ChangeBatch]:
    load = task.load
    rows = TypedRows(task.relation, load.relations[task.relation].types, load.names, task.order, load.lsn, task.path)
    for batch in batches:
        yield from rows.inserts(batch)


def _partition() -> int:
    """Give the partition's number; without Spark there is one."""
    from pyspark import TaskContext

    context = TaskContext.get()
    return 0 if context is None else context.partitionId()


@spark_task
def make_tables(batches: Iterable[pa.RecordBatch], *, task: LoadTask) -> Iterator[pa.RecordBatch]:
    """Stage that all tables are there, so that those without rows are made, too."""
    for _ in batches:
        for relation in task.relations:
            yield stage_batch(made_table(relation, 0, task))


__all__ = ["RowsTask", "load_rows", "make_tables"]
