"""Take rows of a base load as Spark has them, and stage them as inserts."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import chain, islice
from typing import TYPE_CHECKING

import pyarrow as pa

from walreplay.decode.change_batch import ChangeBatch
from walreplay.loading.typed_rows import TypedRows
from walreplay.protocol.messages import Relation
from walreplay.spark.workers.load import LoadTask, made_tables, staged_batches
from walreplay.spark.workers.process import spark_task
from walreplay.spark.workers.rows import stage_batch

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


@dataclass(frozen=True, slots=True)
class RowsTask:
    """What every task needs that takes rows of one table.

    Attributes:
        order: which of the rows' columns each of the relation's is.
        path: where they are from, for errors.
        first: the number of the rows' first part among those of the load.
    """

    load: LoadTask
    relation: Relation
    order: tuple[int, ...]
    path: str
    first: int = 0


def with_part(rows: DataFrame) -> DataFrame:
    """Add each row's partition, as `load_rows` takes it: a task may have several partitions, one after the other."""
    from pyspark.sql import functions as f

    # Spark would look for a column ``a.b`` in a column ``a``.
    numbered = rows.toDF(*(f"c{number}" for number in range(len(rows.columns))))
    return numbered.select("*", f.spark_partition_id().alias("part"))


@spark_task
def load_rows(batches: Iterable[pa.RecordBatch], *, task: RowsTask) -> Iterator[pa.RecordBatch]:
    """Stage a partition's rows; an error becomes a row of `ERROR_TABLE`.

    Args:
        batches: see `with_part`.
    """
    rest = iter(batches)
    begun = list(islice((batch for batch in rest if batch.num_rows), 1))
    part = begun[0].column(begun[0].num_columns - 1)[0].as_py() if begun else 0
    rows = _inserts(chain(begun, rest), task)
    yield from staged_batches(rows, task.relation, task.first + part, task.path, task.load)


def _inserts(batches: Iterable[pa.RecordBatch], task: RowsTask) -> Iterator[ChangeBatch]:
    load = task.load
    rows = TypedRows(task.relation, load.relations[task.relation].types, load.names, task.order, load.lsn, task.path)
    for batch in batches:
        yield from rows.inserts(batch)


@spark_task
def make_tables(batches: Iterable[pa.RecordBatch], *, task: LoadTask) -> Iterator[pa.RecordBatch]:
    """Stage that all tables are there, so that those without rows are made, too."""
    for _ in batches:
        for relation in task.relations:
            yield from map(stage_batch, made_tables(relation, 0, task))


__all__ = ["RowsTask", "load_rows", "make_tables", "with_part"]
