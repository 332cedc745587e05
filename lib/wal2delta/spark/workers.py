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

from wal2delta.changes import decode_file
from wal2delta.decode.scan import scan_file
from wal2delta.decode.stream import Place
from wal2delta.errors import Wal2DeltaError
from wal2delta.protocol.framing import Framing
from wal2delta.protocol.messages import Relation
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
from wal2delta.transactions.plan import FilePlan

SCAN_SCHEMA: Final = "scan BINARY, error STRING"
_SCAN: Final = pa.schema([("scan", pa.binary()), ("error", pa.string())])

STAGE_SCHEMA: Final = "table INT, bucket INT, file INT, rows BIGINT, info STRING, data BINARY"
_STAGE: Final = pa.schema(
    [
        ("table", pa.int32()),
        ("bucket", pa.int32()),
        ("file", pa.int32()),
        ("rows", pa.int64()),
        ("info", pa.string()),
        ("data", pa.binary()),
    ]
)
ERROR_TABLE: Final = -1
"""The table number of a staged row that holds an error."""

_OUTPUT_ROWS: Final = 1 << 16


@dataclass(frozen=True, slots=True)
class ScanTask:
    """How one file is scanned; see `wal2delta.decode.scan.scan_file`."""

    framing: Framing | None
    place: Place | None
    start: int
    first: bool
    prefix: bytes = b""
    known_length: int = 0


@dataclass(frozen=True, slots=True)
class DecodeTask:
    """What every decoding task of a run has to know.

    Attributes:
        files: the plan of each file, by path, with its number in the stream's order.
        relations: which table (by number) a relation version belongs to, its own number, and the identity that
            the table's rows have; relations that are not wanted are not there.
        buckets: how many parts a table's changes are split into, by key.
    """

    files: Mapping[str, tuple[int, FilePlan]]
    relations: Mapping[Relation, tuple[int, int, Identity]]
    after_lsn: int
    upto_lsn: int
    truncates: Mapping[int, tuple[int, int]]
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


def _files(batches: Iterable[pa.RecordBatch]) -> Iterator[tuple[str, pa.Buffer]]:
    """Give each file's path and bytes, without copying them."""
    for batch in batches:
        paths, contents = batch.column("path"), batch.column("content")
        for row in range(batch.num_rows):
            yield paths[row].as_py(), contents[row].as_buffer()


def scan_batches(batches: Iterable[pa.RecordBatch], *, tasks: Mapping[str, ScanTask]) -> Iterator[pa.RecordBatch]:
    """Scan whole files; one row a file, its pickled `FileScan` or its error."""
    for path, content in _files(batches):
        task = tasks[path]
        scan, error = None, None
        try:
            scan = pickle.dumps(
                scan_file(
                    path,
                    memoryview(content),
                    framing=task.framing,
                    place=task.place,
                    start=task.start,
                    first=task.first,
                    prefix=task.prefix,
                    known_length=task.known_length,
                )
            )
        except Wal2DeltaError as problem:
            error = json.dumps(problem.to_dict())
        yield pa.RecordBatch.from_pylist([{"scan": scan, "error": error}], schema=_SCAN)


def decode_batches(batches: Iterable[pa.RecordBatch], *, task: DecodeTask) -> Iterator[pa.RecordBatch]:
    """Decode whole files and fold each table's changes; one row a file, table and bucket."""
    for path, content in _files(batches):
        number, plan = task.files[path]
        try:
            rows = list(_staged_rows(number, plan, memoryview(content), task))
        except Wal2DeltaError as problem:
            error = json.dumps(problem.at(path=path).to_dict())
            rows = [dict.fromkeys(_STAGE.names, 0) | {"table": ERROR_TABLE, "info": error, "data": b""}]
        for row in rows:
            arrays = [
                pa.array([row[field.name]], field.type) if field.name != "data" else _one_binary(row["data"])
                for field in _STAGE
            ]
            yield pa.RecordBatch.from_arrays(arrays, schema=_STAGE)


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


def _staged_rows(number: int, plan: FilePlan, content: memoryview, task: DecodeTask) -> Iterator[dict[str, Any]]:
    gathered: dict[tuple[Any, ...], _Gathered] = {}
    for batch in decode_file(
        plan,
        content,
        after_lsn=task.after_lsn,
        upto_lsn=task.upto_lsn,
        truncates=task.truncates,
        wanted=task.relations.keys(),
    ):
        table, relation, identity = task.relations[batch.relation]
        at = (table, identity, batch.relation.shape)
        if at not in gathered:
            gathered[at] = _Gathered(identity, tuple(column.name for column in batch.relation.columns))
        found = gathered[at]
        found.relations.add(relation)
        found.rows += batch.data.num_rows
        found.parts.append(events_of(batch, identity))
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
                "file": number,
                # Counted once, whatever the number of parts.
                "rows": found.rows if part_number == 0 else 0,
                "info": json.dumps(info),
                "data": to_ipc(part),
            }


def fold_batches(batches: Iterable[pa.RecordBatch], *, task: FoldTask) -> Iterator[pa.RecordBatch]:
    """Fold staged events, sorted by bucket and file, to rows to merge."""
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
