"""Compare rows to merge with a table's, where Spark's statements cannot: texts by value, and watched columns."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Final

import pyarrow as pa

from walreplay.sink.by_value import by_value
from walreplay.sink.events import Identity
from walreplay.sink.watched import continue_bases
from walreplay.spark.workers.process import spark_task
from walreplay.types.by_value import Form

TEXT: Final = "text"
FORMED: Final = "form"


@spark_task
def form_batches(batches: Iterable[pa.RecordBatch], *, form: Form) -> Iterator[pa.RecordBatch]:
    """Return each text with its form, which is the same for all texts of one value."""
    for batch in batches:
        texts = batch.column(0)
        yield pa.RecordBatch.from_arrays([texts, by_value(texts, form)], names=[TEXT, FORMED])


@spark_task
def continue_batches(
    batches: Iterable[pa.RecordBatch], *, identity: Identity, names: Sequence[str], watched: Sequence[int]
) -> Iterator[pa.RecordBatch]:
    """Find the versions that go on in a table's open ones (`walreplay.sink.watched.continue_bases`)."""
    yield from continue_bases(batches, identity, names, watched)


__all__ = ["FORMED", "TEXT", "continue_batches", "form_batches"]
