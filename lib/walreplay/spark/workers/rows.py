"""The rows that workers return: their schemas, and the special table numbers in them.

Also what the ledger keeps of a run's transactions and logical messages: decoding tasks stage it, others unpack it.
Errors are rows; if none can carry one, it travels to the driver in the text of a worker's exception.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeAlias

import numpy as np
import pyarrow as pa

from walreplay.decode.change_batch import TIMESTAMP
from walreplay.decode.decoder import LogicalMessage, Recorded
from walreplay.errors import WalReplayError, from_dict
from walreplay.lsn import POSTGRES_EPOCH_UNIX_MICROS
from walreplay.spark.workers.process import spark_task
from walreplay.task_settings import TaskSettings

if TYPE_CHECKING:
    from numpy.typing import NDArray


SCAN: Final = pa.schema([("scan", pa.binary()), ("error", pa.string())])

STAGE: Final = pa.schema(
    [
        ("table", pa.int32()),
        ("relation", pa.int32()),
        ("bucket", pa.int32()),
        ("sequence", pa.int64()),
        ("rows", pa.int64()),
        ("info", pa.string()),
        ("size", pa.int64()),
        ("data", pa.binary()),
    ]
)

ERROR_TABLE: Final = -1
TRANSACTIONS_TABLE: Final = -2
MESSAGES_TABLE: Final = -3
PARTS_TABLE: Final = -4
USES_TABLE: Final = -5
"""The table numbers of staged rows that hold an error, or what the ledger keeps of transactions (whole ones, and parts
of such whose others lie elsewhere) and messages, or (as ``info``) which relation versions are used."""

NO_BUCKET: Final = -1  # The bucket of staged rows that only say of a relation version that a truncate has used it

NO_RELATION: Final = -1

PARTS: Final = 1 << 20
"""A step's rows of one table are so many parts at most: of relation versions that followed each other."""

TRANSACTION: Final = pa.schema(
    [
        ("commit_lsn", pa.int64()),
        ("commit_ts", TIMESTAMP),
        ("xid", pa.int64()),
        ("changes", pa.int64()),
        ("digest", pa.int64()),
        # A file's transactions have one path, and few origins.
        ("origin", pa.dictionary(pa.int32(), pa.string())),
        ("applied", pa.bool_()),
        ("session", pa.int32()),
        ("path", pa.dictionary(pa.int32(), pa.string())),
        ("offset", pa.int64()),
    ]
)

MESSAGE: Final = pa.schema(
    [
        ("lsn", pa.int64()),
        ("prefix", pa.string()),
        ("content", pa.binary()),
        ("transactional", pa.bool_()),
        ("commit_lsn", pa.int64()),
        ("commit_ts", TIMESTAMP),
        ("xid", pa.int64()),
        ("ordinal", pa.int64()),
    ]
)

ROUTE: Final = pa.schema([("bucket", pa.int32()), ("sequence", pa.int64()), ("data", pa.binary())])

ROUTES_SEQUENCE: Final = -1  # The sequence of a bucket's routes: in front of its events


def links_table(table: int) -> int:
    """Return the table number of staged rows that hold the links between a table's keys."""
    return -16 - table  # below the special numbers, and no table's own


class Total(NamedTuple):
    """The totals of staged rows of one version with the same ``info``; ``first`` and ``last`` are sequence numbers."""

    table: int
    relation: int
    info: str
    rows: int
    size: int
    first: int
    last: int


Work: TypeAlias = Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]
"""What a task does."""


def stage_batch(row: Mapping[str, Any]) -> pa.RecordBatch:
    """Return a staged row as an Arrow batch."""
    *others, _ = STAGE  # `data` is last
    arrays = [pa.array([row[field.name]], field.type) for field in others]
    return pa.RecordBatch.from_arrays([*arrays, one_binary(row["data"])], schema=STAGE)


def one_binary(data: bytes | pa.Buffer) -> pa.Array:
    """Return a binary column of one value without copying it."""
    offsets = pa.py_buffer(pa.array([0, len(data)], pa.int32()).buffers()[1])
    return pa.Array.from_buffers(pa.binary(), 1, [None, offsets, pa.py_buffer(data)])


def staged_row(
    table: int,
    relation: int,
    sequence: int,
    info: str,
    *,
    bucket: int = NO_BUCKET,
    rows: int = 0,
    data: bytes | pa.Buffer = b"",
) -> dict[str, Any]:
    """Return the values of a staged row."""
    values = (table, relation, bucket, sequence, rows, info, len(data), data)
    return dict(zip(STAGE.names, values, strict=True))


def route_batch(bucket: int, sequence: int, data: bytes | pa.Buffer) -> pa.RecordBatch:
    """Return staged events, or routes, of a bucket as an Arrow batch."""
    arrays = [pa.array([bucket], pa.int32()), pa.array([sequence], pa.int64()), one_binary(data)]
    return pa.RecordBatch.from_arrays(arrays, schema=ROUTE)


def staged_events(batches: Iterable[pa.RecordBatch]) -> Iterator[tuple[int, int, pa.Buffer]]:
    """Yield bucket, sequence and data of each row of `ROUTE`; the data are not copied."""
    for batch in batches:
        columns = batch.column("bucket"), batch.column("sequence"), batch.column("data")
        for bucket, sequence, data in zip(*columns, strict=True):
            yield bucket.as_py(), sequence.as_py(), data.as_buffer()


def transactions_of(recorded: Sequence[Recorded], settings: TaskSettings) -> tuple[pa.RecordBatch, pa.RecordBatch]:
    """Return the transactions that lie in one file as a whole, and the parts of the others."""
    if not recorded:
        nothing = pa.RecordBatch.from_pylist([], schema=TRANSACTION)
        return nothing, nothing

    def joined(name: str) -> NDArray[np.int64]:
        return np.concatenate([item.records[name] for item in recorded])

    def repeated(values: Iterable[int]) -> NDArray[np.int32]:
        return np.repeat(np.array(list(values), np.int32), [len(item.records) for item in recorded])

    # One decoder has numbered them all: each list of origins begins with the one before.
    origins = max((item.origins for item in recorded), key=len)
    paths = list(dict.fromkeys(item.path for item in recorded))
    origin_numbers, offsets = joined("origin"), joined("at")
    dictionary = pa.DictionaryArray.from_arrays
    batch = pa.RecordBatch.from_arrays(
        [
            pa.array(joined("lsn")),
            pa.array(joined("commit_ts") + POSTGRES_EPOCH_UNIX_MICROS).view(TIMESTAMP),
            pa.array(joined("xid")),
            pa.array(joined("rows")),
            pa.array(joined("digest")),
            dictionary(pa.array(origin_numbers.astype(np.int32)), pa.array(origins, pa.string())),
            pa.array(np.array([settings.origins.wants(name) for name in origins])[origin_numbers]),
            pa.array(repeated(item.session for item in recorded)),
            dictionary(pa.array(repeated(paths.index(item.path) for item in recorded)), pa.array(paths)),
            pa.array(offsets),
        ],
        schema=TRANSACTION,
    )
    whole = (offsets >= 0) & (repeated(item.ended for item in recorded) == 1)
    if whole.all():
        return batch, batch.slice(batch.num_rows)
    return batch.filter(pa.array(whole)), batch.filter(pa.array(~whole))


def messages_of(messages: Iterable[LogicalMessage]) -> pa.RecordBatch:
    """Return logical messages as rows."""
    rows = [
        {
            "lsn": message.lsn,
            "prefix": message.prefix,
            "content": message.content,
            "transactional": message.commit_lsn is not None,
            "commit_lsn": message.commit_lsn,
            "commit_ts": None if message.commit_time is None else message.commit_time + POSTGRES_EPOCH_UNIX_MICROS,
            "xid": message.xid,
            "ordinal": message.ordinal,
        }
        for message in messages
    ]
    return pa.RecordBatch.from_pylist(rows, schema=MESSAGE)


@spark_task
def unpack_batches(
    batches: Iterable[pa.RecordBatch],
    *,
    constants: Mapping[str, pa.Array] = MappingProxyType({}),
    names: Sequence[str] | None = None,
) -> Iterator[pa.RecordBatch]:
    """Yield the staged records of transactions or messages as rows.

    Args:
        constants: further columns, each with one value for all rows.
        names: the columns that are wanted, in their order; None for all.
    """
    for batch in batches:
        for value in batch.column("data"):
            with pa.ipc.open_stream(value.as_buffer()) as reader:
                for rows in reader:
                    columns = dict(zip(rows.schema.names, map(without_dictionary, rows.columns), strict=True))
                    columns |= {name: pa.repeat(value[0], rows.num_rows) for name, value in constants.items()}
                    chosen = list(columns) if names is None else names
                    yield pa.RecordBatch.from_arrays([columns[name] for name in chosen], names=chosen)


def without_dictionary(column: pa.Array) -> pa.Array:
    """Return a column whose values stand in it themselves."""
    return column.dictionary_decode() if pa.types.is_dictionary(column.type) else column


_REFUSED: Final = "walreplay refuses: "


def refusal_text(error: WalReplayError) -> str:
    """Write an error as the text of an exception."""
    return _REFUSED + json.dumps(error.to_dict())


@contextmanager
def refusals_told() -> Iterator[None]:
    """Raise a worker's error as itself, and not as Spark's exception about it."""
    try:
        yield
    except Exception as error:
        refusal = refusal_in(str(error))
        if refusal is not None:
            raise refusal from None
        raise


def refusal_in(text: str) -> WalReplayError | None:
    """Find the error that a worker has put into the text of its exception."""
    _, marker, rest = text.partition(_REFUSED)
    if not marker:
        return None
    try:
        return from_dict(json.JSONDecoder().raw_decode(rest)[0])  # more of the exception's text follows the JSON
    except ValueError:
        return None
