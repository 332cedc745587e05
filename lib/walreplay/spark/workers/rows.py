"""The rows that workers return: their schemas, and the special table numbers in them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Final, NamedTuple, TypeAlias

import pyarrow as pa

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

NO_BUCKET: Final = -1
"""The bucket of staged rows that only say of a relation version that a truncate has used it."""

NO_RELATION: Final = -1

PARTS: Final = 1 << 20
"""A step's rows of one table are so many parts at most: of relation versions that followed each other."""

_TIMESTAMP: Final = pa.timestamp("us", "UTC")

TRANSACTION: Final = pa.schema(
    [
        ("commit_lsn", pa.int64()),
        ("commit_ts", _TIMESTAMP),
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
        ("commit_ts", _TIMESTAMP),
        ("xid", pa.int64()),
        ("ordinal", pa.int64()),
    ]
)

ROUTE: Final = pa.schema([("bucket", pa.int32()), ("sequence", pa.int64()), ("data", pa.binary())])

ROUTES_SEQUENCE: Final = -1
"""The sequence of a bucket's routes: in front of its events."""


def links_table(table: int) -> int:
    """Give the table number of staged rows that hold the links between a table's keys."""
    return -16 - table


class Total(NamedTuple):
    """The totals of staged rows of one relation version with the same ``info``.

    Attributes:
        first, last: sequence numbers.
    """

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
    """Give a staged row as an Arrow batch."""
    arrays = [
        pa.array([row[field.name]], field.type) if field.name != "data" else _one_binary(row["data"]) for field in STAGE
    ]
    return pa.RecordBatch.from_arrays(arrays, schema=STAGE)


def _one_binary(data: bytes | pa.Buffer) -> pa.Array:
    """Give a binary column of one value without copying it."""
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
    """Give the values of a staged row."""
    values = (table, relation, bucket, sequence, rows, info, len(data), data)
    return dict(zip(STAGE.names, values, strict=True))


def route_batch(bucket: int, sequence: int, data: bytes | pa.Buffer) -> pa.RecordBatch:
    """Give staged events, or routes, of a bucket as an Arrow batch."""
    arrays = [pa.array([bucket], pa.int32()), pa.array([sequence], pa.int64()), _one_binary(data)]
    return pa.RecordBatch.from_arrays(arrays, schema=ROUTE)
