"""What runs in Spark's Python workers: functions over Arrow batches, shipped by name.

They never raise what a user should read: an error in the capture is given back as a row, so that the driver can
tell it in one line instead of a worker's traceback.
"""

from __future__ import annotations

import json
import pickle
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import pyarrow as pa

from wal2delta.changes import PlannedBytes
from wal2delta.decode.batches import ChangeBatch, Decoder, LogicalMessage, Recorded
from wal2delta.decode.files import scan_file
from wal2delta.decode.stream import Place
from wal2delta.errors import CaptureError, Wal2DeltaError
from wal2delta.listing import map_file
from wal2delta.lsn import POSTGRES_EPOCH_UNIX_MICROS
from wal2delta.protocol.framing import Framing
from wal2delta.protocol.messages import Relation, Type
from wal2delta.settings import Settings
from wal2delta.sink.events import (
    Events,
    Identity,
    concat,
    events_of,
    fold_events,
    from_ipc,
    merge_schema,
    rows_to_merge,
    split,
    to_ipc,
)
from wal2delta.sink.fold import DELETE
from wal2delta.transactions.plan import FilePlan, Step

LOCAL_SCHEME: Final = "file:"

SCAN_SCHEMA: Final = "scan BINARY, error STRING"
_SCAN: Final = pa.schema([("scan", pa.binary()), ("error", pa.string())])

STAGE_SCHEMA: Final = "table INT, bucket INT, sequence INT, rows BIGINT, info STRING, data BINARY"
_STAGE: Final = pa.schema(
    [
        ("table", pa.int32()),
        ("bucket", pa.int32()),
        ("sequence", pa.int32()),
        ("rows", pa.int64()),
        ("info", pa.string()),
        ("data", pa.binary()),
    ]
)
ERROR_TABLE: Final = -1
TRANSACTIONS_TABLE: Final = -2
MESSAGES_TABLE: Final = -3
"""The table numbers of staged rows that hold an error, or what the ledger keeps of transactions and messages."""

_TIMESTAMP: Final = pa.timestamp("us", "UTC")

TRANSACTION_SCHEMA: Final = (
    "commit_lsn BIGINT, commit_ts TIMESTAMP, xid BIGINT, changes BIGINT, digest BIGINT, origin STRING, "
    "applied BOOLEAN, session INT, path STRING, offset BIGINT"
)
_TRANSACTION: Final = pa.schema(
    [
        ("commit_lsn", pa.int64()),
        ("commit_ts", _TIMESTAMP),
        ("xid", pa.int64()),
        ("changes", pa.int64()),
        ("digest", pa.int64()),
        ("origin", pa.string()),
        ("applied", pa.bool_()),
        ("session", pa.int32()),
        ("path", pa.string()),
        ("offset", pa.int64()),
    ]
)

MESSAGE_SCHEMA: Final = (
    "lsn BIGINT, prefix STRING, content BINARY, transactional BOOLEAN, commit_lsn BIGINT, commit_ts TIMESTAMP, "
    "xid BIGINT, ordinal BIGINT"
)
_MESSAGE: Final = pa.schema(
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

_OUTPUT_ROWS: Final = 1 << 16


@dataclass(frozen=True, slots=True)
class ScanTask:
    """How one file is scanned; see `wal2delta.decode.files.scan_file`."""

    framing: Framing | None
    place: Place | None = None
    start: int = 0
    first: bool = False
    prefix: bytes = b""
    edges: tuple[int, ...] = ()
    gap: bool = False
    known_length: int = 0


@dataclass(frozen=True, slots=True)
class DecodeTask:
    """What every decoding task of a run has to know.

    Attributes:
        files: the plan of each file, by path.
        versions, types: what the steps' numbers mean.
        relations: which table (by number) a relation version belongs to, its own number, and the identity that
            the table's rows have; relations that are not wanted are not there.
        buckets: how many parts a table's changes are split into, by key.
    """

    files: Mapping[str, FilePlan]
    versions: tuple[Relation, ...]
    types: tuple[Type, ...]
    relations: Mapping[Relation, tuple[int, int, Identity]]
    truncates: Mapping[int, tuple[int, int]]
    settings: Settings
    buckets: int


@dataclass(frozen=True, slots=True)
class FoldTask:
    """How one table's staged events become rows to merge."""

    types: tuple[pa.DataType, ...]
    names: tuple[str, ...]
    identity: Identity
    tracked: tuple[int, ...]
    moves: bool

    @property
    def schema(self) -> pa.Schema:
        """The rows' columns."""
        return merge_schema(self.types, self.identity, self.tracked, moves=self.moves)


def _files(batches: Iterable[pa.RecordBatch]) -> Iterator[tuple[str, pa.Buffer | memoryview | Wal2DeltaError]]:
    """Give each file's path and bytes, without copying them, or why they cannot be had."""
    for batch in batches:
        paths = batch.column("path")
        for row in range(batch.num_rows):
            path = paths[row].as_py()
            yield path, batch.column("content")[row].as_buffer() if "content" in batch.schema.names else _map(path)


def _map(path: str) -> memoryview | Wal2DeltaError:
    name = path.removeprefix(LOCAL_SCHEME)
    try:
        # A path has one slash in front, or three.
        return map_file("/" + name.lstrip("/"))
    except OSError as error:
        return CaptureError(
            f"the file cannot be read: {error.strerror or 'an error of the file system'}",
            path=path,
            remedy="A file: path has to be mounted at the same place on every executor",
        )


def scan_batches(batches: Iterable[pa.RecordBatch], *, tasks: Mapping[str, ScanTask]) -> Iterator[pa.RecordBatch]:
    """Scan whole files; one row a file, its pickled `FileScan` or its error."""
    for path, content in _files(batches):
        task = tasks[path]
        scan, error = None, None
        try:
            if isinstance(content, Wal2DeltaError):
                raise content
            scan = pickle.dumps(
                scan_file(
                    path,
                    memoryview(content),
                    framing=task.framing,
                    place=task.place,
                    start=task.start,
                    first=task.first,
                    prefix=task.prefix,
                    edges=task.edges,
                    gap=task.gap,
                    known_length=task.known_length,
                )
            )
        except Wal2DeltaError as problem:
            error = json.dumps(problem.to_dict())
        yield pa.RecordBatch.from_pylist([{"scan": scan, "error": error}], schema=_SCAN)


def decode_batches(batches: Iterable[pa.RecordBatch], *, task: DecodeTask) -> Iterator[pa.RecordBatch]:
    """Decode whole files and fold each table's changes; one row a file, unit (see `_units`), table and bucket."""
    for path, content in _files(batches):
        plan = task.files[path]
        try:
            if isinstance(content, Wal2DeltaError):
                raise content
            for row in _staged_rows(plan, memoryview(content), task):
                yield _stage_batch(row)
        except Wal2DeltaError as problem:
            error = json.dumps(problem.at(path=path).to_dict())
            sequence = plan.steps[0].sequence
            yield _stage_batch(
                {"table": ERROR_TABLE, "bucket": 0, "sequence": sequence, "rows": 0, "info": error, "data": b""}
            )


def _stage_batch(row: Mapping[str, Any]) -> pa.RecordBatch:
    arrays = [
        pa.array([row[field.name]], field.type) if field.name != "data" else _one_binary(row["data"])
        for field in _STAGE
    ]
    return pa.RecordBatch.from_arrays(arrays, schema=_STAGE)


def _one_binary(data: bytes | pa.Buffer) -> pa.Array:
    """Give a binary column of one value without copying it."""
    offsets = pa.py_buffer(pa.array([0, len(data)], pa.int32()).buffers()[1])
    return pa.Array.from_buffers(pa.binary(), 1, [None, offsets, pa.py_buffer(data)])


@dataclass(slots=True)
class _Gathered:
    """One table's events in one file, in their order: of all relation versions that have the same columns and key."""

    identity: Identity
    names: tuple[str, ...]
    relations: set[int] = field(default_factory=set)
    rows: int = 0
    parts: list[Events] = field(default_factory=list)


def _units(steps: Iterable[Step]) -> Iterator[list[Step]]:
    """Part a file's steps into runs between which no step of another file comes.

    Only the changes of such a run may be folded before they meet those of other files.
    """
    unit: list[Step] = []
    for step in steps:
        if unit and step.sequence != unit[-1].sequence + 1:
            yield unit
            unit = []
        unit.append(step)
    if unit:
        yield unit


def _staged_rows(plan: FilePlan, content: memoryview, task: DecodeTask) -> Iterator[dict[str, Any]]:
    planned = PlannedBytes(plan, content)
    decoder = Decoder(
        plan.steps[0].place.framing,
        wanted=task.relations.keys(),
        truncates=task.truncates,
        wants_origin=task.settings.wants_origin,
        recording=True,
    )
    recorded: list[Recorded] = []
    messages: list[LogicalMessage] = []
    for unit in _units(plan.steps):
        gathered: dict[tuple[Any, ...], _Gathered] = {}
        for step in unit:
            for batch in planned.decode(decoder, step, task.versions, task.types):
                _gather(gathered, batch, task)
            found, told = decoder.take_recorded()
            recorded += found
            messages += told
        for batch in decoder.rest():
            _gather(gathered, batch, task)
        yield from _folded_rows(gathered, unit[0].sequence, task)
    for table, rows in (
        (TRANSACTIONS_TABLE, _transactions(recorded, task.settings)),
        (MESSAGES_TABLE, _messages(messages)),
    ):
        if rows.num_rows:
            sequence = plan.steps[0].sequence
            yield {"table": table, "bucket": 0, "sequence": sequence, "rows": 0, "info": "", "data": _to_ipc(rows)}


def _gather(gathered: dict[tuple[Any, ...], _Gathered], batch: ChangeBatch, task: DecodeTask) -> None:
    table, relation, identity = task.relations[batch.relation]
    at = (table, identity, batch.relation.shape)
    if at not in gathered:
        gathered[at] = _Gathered(identity, tuple(column.name for column in batch.relation.columns))
    found = gathered[at]
    found.relations.add(relation)
    found.rows += batch.data.num_rows
    found.parts.append(events_of(batch, identity))


def _folded_rows(
    gathered: dict[tuple[Any, ...], _Gathered], sequence: int, task: DecodeTask
) -> Iterator[dict[str, Any]]:
    for at in list(gathered):
        found = gathered.pop(at)
        events = fold_events(concat(found.parts), found.identity, found.names)
        for part_number, (bucket, part) in enumerate(split(events, found.identity, found.names, task.buckets)):
            info = {
                "relations": sorted(found.relations),
                "tracked": sorted(part.unchanged),
                "moves": part.has_moves,
                "deletes": bool((part.action == DELETE).any()),
            }
            yield {
                "table": at[0],
                "bucket": bucket,
                "sequence": sequence,
                # Counted once, whatever the number of parts.
                "rows": found.rows if part_number == 0 else 0,
                "info": json.dumps(info),
                "data": to_ipc(part),
            }


# What the ledger keeps of transactions and logical messages.


def _transactions(recorded: Iterable[Recorded], settings: Settings) -> pa.RecordBatch:
    tables = []
    for item in recorded:
        records, count = item.records, len(item.records.lsn)
        numbers = pa.array(records.origin)
        columns = [
            pa.array(records.lsn),
            pa.array(records.commit_ts + POSTGRES_EPOCH_UNIX_MICROS).cast(_TIMESTAMP),
            pa.array(records.xid),
            pa.array(records.rows),
            pa.array(records.digest),
            pa.array(item.origins, pa.string()).take(numbers),
            pa.array([settings.wants_origin(origin) for origin in item.origins]).take(numbers),
            pa.array([item.session], pa.int32()).take(pa.array([0] * count, pa.int8())),
            pa.array([item.path], pa.string()).take(pa.array([0] * count, pa.int8())),
            pa.array(records.at),
        ]
        tables.append(pa.RecordBatch.from_arrays(columns, schema=_TRANSACTION))
    if not tables:
        return pa.RecordBatch.from_pylist([], schema=_TRANSACTION)
    return pa.Table.from_batches(tables).combine_chunks().to_batches()[0]


def _messages(messages: Iterable[LogicalMessage]) -> pa.RecordBatch:
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
    return pa.RecordBatch.from_pylist(rows, schema=_MESSAGE)


def _to_ipc(batch: pa.RecordBatch) -> pa.Buffer:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batch.schema, options=pa.ipc.IpcWriteOptions(compression="lz4")) as writer:
        writer.write_batch(batch)
    return sink.getvalue()


def unpack_batches(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Give the staged records of transactions or messages as rows."""
    for batch in batches:
        for value in batch.column("data"):
            with pa.ipc.open_stream(value.as_buffer()) as reader:
                yield from reader


def fold_batches(batches: Iterable[pa.RecordBatch], *, task: FoldTask) -> Iterator[pa.RecordBatch]:
    """Fold staged events, sorted by bucket and sequence, to rows to merge."""
    current: int | None = None
    parts: list[Events] = []
    for batch in batches:
        buckets, data = batch.column("bucket"), batch.column("data")
        for row in range(batch.num_rows):
            bucket = buckets[row].as_py()
            if bucket != current and parts:
                yield from _merge_rows(parts, task)
                parts = []
            current = bucket
            parts.append(from_ipc(data[row].as_buffer()))
    if parts:
        yield from _merge_rows(parts, task)


def _merge_rows(parts: list[Events], task: FoldTask) -> Iterator[pa.RecordBatch]:
    rows = rows_to_merge(concat(parts), task.identity, task.names, task.tracked, moves=task.moves)
    for start in range(0, rows.num_rows, _OUTPUT_ROWS):
        yield rows.slice(start, _OUTPUT_ROWS)
