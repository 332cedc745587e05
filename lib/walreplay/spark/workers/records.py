"""What the ledger keeps of a run's transactions and logical messages: staged by the decoding tasks, unpacked later."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from walreplay.decode.recorded import LogicalMessage, Recorded
from walreplay.lsn import POSTGRES_EPOCH_UNIX_MICROS
from walreplay.spark.workers.process import spark_task
from walreplay.spark.workers.rows import _TIMESTAMP, MESSAGE, TRANSACTION
from walreplay.task_settings import TaskSettings

if TYPE_CHECKING:
    from numpy.typing import NDArray


def transactions_of(recorded: Sequence[Recorded], settings: TaskSettings) -> tuple[pa.RecordBatch, pa.RecordBatch]:
    """Give the transactions that lie in one file as a whole, and the parts of the others."""
    if not recorded:
        nothing = pa.RecordBatch.from_pylist([], schema=TRANSACTION)
        return nothing, nothing

    def joined(name: str) -> NDArray[np.int64]:
        return np.concatenate([getattr(item.records, name) for item in recorded])

    def repeated(values: Iterable[int]) -> NDArray[np.int32]:
        return np.repeat(np.array(list(values), np.int32), [len(item.records.lsn) for item in recorded])

    # One decoder has numbered them all: each list of origins begins with the one before.
    origins = max((item.origins for item in recorded), key=len)
    paths = list(dict.fromkeys(item.path for item in recorded))
    origin, at = joined("origin"), joined("at")
    dictionary = pa.DictionaryArray.from_arrays
    batch = pa.RecordBatch.from_arrays(
        [
            pa.array(joined("lsn")),
            pa.array(joined("commit_ts") + POSTGRES_EPOCH_UNIX_MICROS).view(_TIMESTAMP),
            pa.array(joined("xid")),
            pa.array(joined("rows")),
            pa.array(joined("digest")),
            dictionary(pa.array(origin.astype(np.int32)), pa.array(origins, pa.string())),
            pa.array(np.array([settings.origins.wants(name) for name in origins])[origin]),
            pa.array(repeated(item.session for item in recorded)),
            dictionary(pa.array(repeated(paths.index(item.path) for item in recorded)), pa.array(paths)),
            pa.array(at),
        ],
        schema=TRANSACTION,
    )
    whole = (at >= 0) & (repeated(item.ended for item in recorded) == 1)
    if whole.all():
        return batch, batch.slice(batch.num_rows)
    return batch.filter(pa.array(whole)), batch.filter(pa.array(~whole))


def messages_of(messages: Iterable[LogicalMessage]) -> pa.RecordBatch:
    """Give logical messages as rows."""
    rows = [
        {
            "lsn": one.lsn,
            "prefix": one.prefix,
            "content": one.content,
            "transactional": one.commit_lsn is not None,
            "commit_lsn": one.commit_lsn,
            "commit_ts": None if one.commit_time is None else one.commit_time + POSTGRES_EPOCH_UNIX_MICROS,
            "xid": one.xid,
            "ordinal": one.ordinal,
        }
        for one in messages
    ]
    return pa.RecordBatch.from_pylist(rows, schema=MESSAGE)


@spark_task
def unpack_batches(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Give the staged records of transactions or messages as rows."""
    for batch in batches:
        for value in batch.column("data"):
            with pa.ipc.open_stream(value.as_buffer()) as reader:
                for rows in reader:
                    columns = [
                        column.dictionary_decode() if pa.types.is_dictionary(column.type) else column
                        for column in rows.columns
                    ]
                    yield pa.RecordBatch.from_arrays(columns, names=rows.schema.names)


__all__ = ["messages_of", "transactions_of", "unpack_batches"]
