"""Compare small tables in Spark's Python workers, which reach their folders by themselves."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Final

import pyarrow as pa

from walreplay.delta.small_table import TableFiles, equal_rows
from walreplay.spark.workers.process import spark_task

PAIRS: Final = pa.schema([("pair", pa.int64()), ("rows", pa.int64())])
"""What a task returns: of each pair its rows, if both tables have the same ones; NULL if not, or only Spark knows."""


@spark_task
def compare_pairs(
    batches: Iterable[pa.RecordBatch], *, pairs: Sequence[tuple[TableFiles, TableFiles]]
) -> Iterator[pa.RecordBatch]:
    """Compare the tables of some pairs, of which the rows have the numbers."""
    for batch in batches:
        numbers = batch.column("id").to_pylist()
        rows = [equal_rows(pairs[number]) for number in numbers]
        yield pa.RecordBatch.from_pydict({"pair": numbers, "rows": rows}, PAIRS)
