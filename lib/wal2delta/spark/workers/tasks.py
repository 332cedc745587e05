"""What runs in Spark's Python workers: functions over Arrow batches, shipped by name.

They never raise what a user should read: an error in the capture is given back as a row, so that the driver can
tell it in one line instead of a worker's traceback.
"""

from __future__ import annotations

import json
import pickle
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import groupby
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeAlias

import numpy as np
import pyarrow as pa

from wal2delta.decode.batches import ChangeBatch, Decoder, LogicalMessage, Recorded
from wal2delta.decode.files import scan_file
from wal2delta.decode.stream import Place
from wal2delta.decode.summary import FileScan
from wal2delta.errors import CaptureError, Wal2DeltaError, from_dict
from wal2delta.listing import map_file, release_pages
from wal2delta.lsn import POSTGRES_EPOCH_UNIX_MICROS
from wal2delta.protocol.compression import Plain
from wal2delta.protocol.framing import Framing
from wal2delta.protocol.messages import Relation, Type
from wal2delta.sink.events import REMOVE, Events, Identity, Mode, batch_to_ipc, concat, from_ipc, rejoin, to_ipc
from wal2delta.sink.fold import DELETE
from wal2delta.sink.intake import events_of
from wal2delta.sink.marks import with_marks
from wal2delta.sink.merge import fold_events, merge_schema, rows_to_merge, settled
from wal2delta.sink.projection import Projection, project
from wal2delta.sink.routes import NO_ROUTES, Routes, components, links_of, route, split
from wal2delta.sink.showing import Shown, show
from wal2delta.spark.workers.process import spark_task
from wal2delta.task_settings import TaskSettings
from wal2delta.transactions.plan import FilePlan, Step
from wal2delta.transactions.planned import PlannedBytes
from wal2delta.transactions.schedule import file_of
from wal2delta.types.base import ColumnType
from wal2delta.types.text import UTF8

if TYPE_CHECKING:
    from numpy.typing import NDArray

LOCAL_SCHEME: Final = "file:"

SCAN: Final = pa.schema([("scan", pa.binary()), ("error", pa.string())])

STAGE: Final = pa.schema(
    [
        ("table", pa.int32()),
        ("relation", pa.int32()),
        ("bucket", pa.int32()),
        ("sequence", pa.int64()),
        ("rows", pa.int64()),
        ("info", pa.string()),
        ("ahead", pa.int32()),
        ("size", pa.int64()),
        ("data", pa.binary()),
    ]
)
ERROR_TABLE: Final = -1
TRANSACTIONS_TABLE: Final = -2
MESSAGES_TABLE: Final = -3
PARTS_TABLE: Final = -4
SCANS_TABLE: Final = -5
USES_TABLE: Final = -6
"""The table numbers of staged rows that hold an error, or what the ledger keeps of transactions (whole ones, and parts
of such whose others lie elsewhere) and messages, or files' scans, or (as ``info``) which relation versions are used."""

BY_PLAN: Final = -1
"""What staged rows have as ``ahead`` that were decoded by a plan; others have the number of their file."""

NO_BUCKET: Final = -1
"""The bucket of staged rows that only say of a relation version that a truncate has used it."""

NO_RELATION: Final = -1

_PARTS: Final = 1 << 20
"""A step's rows of one table are so many parts at most: of relation versions that followed each other."""

_SCANS_A_BATCH: Final = 256
_BYTES_A_BATCH: Final = 1 << 20
"""Scans are told some at a time: each batch costs Spark as much as the scan of a small file."""

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
    """What staged rows of one relation version, all with the same ``info``, come to.

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


class Scanned(NamedTuple):
    """A staged row of `SCANS_TABLE`."""

    ahead: int
    info: str
    data: bytes


Work: TypeAlias = Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]
"""What a task does."""

_REFUSED: Final = "wal2delta refuses: "


@dataclass(frozen=True, slots=True)
class ScanTask:
    """How one file is scanned; see `wal2delta.decode.files.scan_file`.

    Attributes:
        length: the file's bytes, where they were listed.
    """

    framing: Framing | None
    place: Place | None = None
    start: int = 0
    first: bool = False
    prefix: bytes = b""
    edges: tuple[int, ...] = ()
    origins: tuple[tuple[str, int], ...] = ()
    gap: bool = False
    known_length: int = 0
    codec: str = UTF8
    length: int = 0
    before: str = ""


@dataclass(frozen=True, slots=True)
class Assignment:
    """Where the rows of a relation version go.

    Attributes:
        table: the mirror table's number, and ``relation`` the version's.
        types: of the version's columns.
        identity: in the columns that are shown.
        marks_deleted: a deleted row stays, and says so in a column behind the others.
    """

    table: int
    relation: int
    identity: Identity
    types: tuple[ColumnType, ...]
    shown: Shown
    marks_deleted: bool = False


@dataclass(frozen=True, slots=True)
class DecodeTask:
    """What every decoding task of a run has to know.

    Attributes:
        files: the plan of each file, by path.
        versions, types: what the steps' numbers mean.
        relations: where each relation version goes; those that are not wanted are not there.
        truncates: the last truncate of each relation (by oid), as commit LSN and ordinal.
        buckets: how many parts a table's changes are split into, by key.
    """

    files: Mapping[str, FilePlan]
    versions: tuple[Relation, ...]
    types: tuple[Type, ...]
    relations: Mapping[Relation, Assignment]
    truncates: Mapping[int, tuple[int, int]]
    settings: TaskSettings
    buckets: int


@dataclass(frozen=True, slots=True)
class FoldTask:
    """How one table's staged events become rows to merge.

    Attributes:
        projections: how the rows of each relation version get the table's columns, and the numbers of its key's: by
            the sequence number that it begins at, in order.
        table: the source's name, for errors.
    """

    types: tuple[pa.DataType, ...]
    names: tuple[str, ...]
    identity: Identity
    tracked: tuple[int, ...]
    moves: bool
    projections: tuple[tuple[int, Projection, tuple[int, ...]], ...]
    table: str | None = None

    @property
    def schema(self) -> pa.Schema:
        """The rows' columns."""
        return merge_schema(self.types, self.identity, self.tracked, moves=self.moves)

    def version_of(self, sequence: int) -> int:
        """Give the number of the projection that events are due."""
        return bisect_right(self.projections, sequence, key=lambda item: item[0]) - 1

    def named(self, version: int) -> tuple[Identity, tuple[str, ...]]:
        """Give the identity and the columns' names that a version's events have."""
        _, projection, key = self.projections[version]
        return self.identity.renumbered(dict(enumerate(projection.numbers)), key), projection.before

    def project(self, version: int, events: Events) -> Events:
        """Give the events of one version, of whole transactions, the table's columns."""
        _, projection, key = self.projections[version]
        # An image holds for the columns that it was taken of.
        events = settled(events, *self.named(version), self.table)
        return project(events, key, projection, keyed=self.identity.mode is Mode.KEYED)


def capture_files(
    batches: Iterable[pa.RecordBatch], paths: Iterable[str]
) -> Iterator[tuple[str, pa.Buffer | memoryview | Wal2DeltaError]]:
    """Give each file's path and bytes, without copying them, or why they cannot be had.

    Args:
        batches: of files by path, with their content; or by number, and they are read here.
        paths: what these numbers mean.
    """
    numbered = list(paths)
    for batch in batches:
        if "content" not in batch.schema.names:
            for number in batch.column("file").to_pylist():
                yield numbered[number], _map(numbered[number])
            continue
        for path, content in zip(batch.column("path"), batch.column("content"), strict=True):
            yield path.as_py(), content.as_buffer()


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


@spark_task
def scan_batches(batches: Iterable[pa.RecordBatch], *, tasks: Mapping[str, ScanTask]) -> Iterator[pa.RecordBatch]:
    """Scan whole files; one row a file, its pickled `FileScan` or its error."""
    told: list[dict[str, Any]] = []
    size = 0
    for path, content in capture_files(batches, tasks):
        scan, error = None, None
        try:
            if isinstance(content, Wal2DeltaError):
                raise content
            scan = pickle.dumps(scan_of(path, memoryview(content), tasks[path]))
        except Wal2DeltaError as problem:
            error = json.dumps(problem.to_dict())
        told.append({"scan": scan, "error": error})
        size += len(scan or "")
        if len(told) >= _SCANS_A_BATCH or size >= _BYTES_A_BATCH:
            yield pa.RecordBatch.from_pylist(told, schema=SCAN)
            told, size = [], 0
    if told:
        yield pa.RecordBatch.from_pylist(told, schema=SCAN)


def scan_of(path: str, content: memoryview, task: ScanTask, opened: Plain | None = None) -> FileScan:
    """Scan a file as a task says."""
    return scan_file(
        path,
        content,
        framing=task.framing,
        place=task.place,
        start=task.start,
        first=task.first,
        prefix=task.prefix,
        edges=task.edges,
        origins=task.origins,
        gap=task.gap,
        known_length=task.known_length,
        codec=task.codec,
        opened=opened,
        before=task.before,
    )


@spark_task
def decode_batches(batches: Iterable[pa.RecordBatch], *, task: DecodeTask) -> Iterator[pa.RecordBatch]:
    """Decode whole files and fold each table's changes; one row a file, unit (see `_units`), table and bucket."""
    for path, content in capture_files(batches, task.files):
        if isinstance(content, Wal2DeltaError):
            yield _failed(task.files[path], content)
        else:
            yield from _decoded(task.files[path], memoryview(content), task)


@spark_task
def decode_carried(batches: Iterable[pa.RecordBatch], *, task: DecodeTask) -> Iterator[pa.RecordBatch]:
    """Decode, as `decode_batches` does, what of files is left whose steps all bring their bytes.

    Args:
        batches: of numbers of the task's files.
    """
    plans = list(task.files.values())
    for batch in batches:
        for number in batch.column("file").to_pylist():
            yield from _decoded(plans[number], None, task)


def _decoded(plan: FilePlan, content: memoryview | None, task: DecodeTask) -> Iterator[pa.RecordBatch]:
    try:
        planned = PlannedBytes(plan.path, None) if content is None else PlannedBytes.of(plan, content)
        for row in staged_rows(planned, plan.steps, task, content):
            yield stage_batch(row)
    except Wal2DeltaError as problem:
        yield _failed(plan, problem)


def _failed(plan: FilePlan, problem: Wal2DeltaError) -> pa.RecordBatch:
    error = json.dumps(problem.at(path=plan.path).to_dict())
    return stage_batch(staged_row(ERROR_TABLE, NO_RELATION, plan.steps[0].sequence, error))


def stage_batch(row: Mapping[str, Any]) -> pa.RecordBatch:
    """Give a row as Spark takes it."""
    arrays = [
        pa.array([row[field.name]], field.type) if field.name != "data" else _one_binary(row["data"]) for field in STAGE
    ]
    return pa.RecordBatch.from_arrays(arrays, schema=STAGE)


def _one_binary(data: bytes | pa.Buffer) -> pa.Array:
    """Give a binary column of one value without copying it."""
    offsets = pa.py_buffer(pa.array([0, len(data)], pa.int32()).buffers()[1])
    return pa.Array.from_buffers(pa.binary(), 1, [None, offsets, pa.py_buffer(data)])


@dataclass(slots=True)
class _Gathered:
    """One table's events in one file, in their order: of one relation version."""

    relation: int
    identity: Identity
    names: tuple[str, ...]
    table: str
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


def decoder_of(framing: Framing, task: DecodeTask) -> Decoder:
    """Give the decoder of one file, which decodes and records what the task wants of it."""
    settings = task.settings
    return Decoder(
        framing,
        wanted=task.relations.keys(),
        truncates=task.truncates,
        wants_origin=settings.origins.wants,
        recording=True,
        column_types={relation: assignment.types for relation, assignment in task.relations.items()},
        skipped=settings.skipped,
        codec=settings.codec,
    )


def staged_rows(
    planned: PlannedBytes, steps: Sequence[Step], task: DecodeTask, content: memoryview | None
) -> Iterator[dict[str, Any]]:
    """Decode steps of one file, fold each table's changes, and give them as they are staged.

    Args:
        content: the file as stored, if it was read; its pages are let go of once they are not needed any more.
    """
    decoder = decoder_of(steps[0].place.framing, task)
    recorded: list[Recorded] = []
    messages: list[LogicalMessage] = []
    units = list(_units(steps))
    for unit in units:
        # The parts of each table, a new one for every version that follows another.
        gathered: dict[int, list[_Gathered]] = {}
        for step in unit:
            for batch in planned.decode(decoder, step, task.versions, task.types):
                _gather(gathered, batch, task)
            found, told = decoder.take_recorded()
            recorded += found
            messages += told
        for batch in decoder.rest():
            _gather(gathered, batch, task)
        if content is not None and unit is units[-1]:
            # What is folded now needs the room; before, the pages would only have to come back for the next unit.
            release_pages(content)
        # A relation's last truncate stands before all of its rows that are left.
        for number, relation in enumerate(decoder.take_truncated()):
            assignment = task.relations.get(relation)
            if assignment is not None:
                at = unit[0].sequence * _PARTS + number
                yield staged_row(assignment.table, assignment.relation, at, _info())
        yield from _folded_rows(gathered, unit[0].sequence, task)
        used = [task.relations[relation].relation for relation in decoder.take_uses()]
        if used:
            # Rows of one ``info`` are told as one: no two are equal.
            info = json.dumps([unit[0].sequence, *used])
            yield staged_row(USES_TABLE, NO_RELATION, unit[0].sequence, info)
    whole, parts = _transactions(recorded, task.settings)
    for table, rows in ((TRANSACTIONS_TABLE, whole), (PARTS_TABLE, parts), (MESSAGES_TABLE, _messages(messages))):
        if rows.num_rows:
            yield staged_row(table, NO_RELATION, steps[0].sequence, "", data=batch_to_ipc(rows))


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
    """Give a row as it is staged."""
    values = (table, relation, bucket, sequence, rows, info, BY_PLAN, len(data), data)
    return dict(zip(STAGE.names, values, strict=True))


def _info(part: Events | None = None) -> str:
    """Say what the driver has to know of a part without reading it."""
    if part is None:
        return json.dumps({"tracked": [], "moves": False, "deletes": False})
    deletes = bool(((part.action == DELETE) | (part.action == REMOVE)).any())
    return json.dumps({"tracked": sorted(part.unchanged), "moves": part.has_moves, "deletes": deletes})


def _gather(gathered: dict[int, list[_Gathered]], batch: ChangeBatch, task: DecodeTask) -> None:
    assignment = task.relations[batch.relation]
    parts = gathered.setdefault(assignment.table, [])
    shown = show(batch, assignment.shown, task.settings.mask_salt if assignment.shown.masked else b"")
    if not parts or parts[-1].relation != assignment.relation:
        names = tuple(column.name for column in shown.relation.columns)
        if assignment.marks_deleted:
            names = (*names, "")
        parts.append(_Gathered(assignment.relation, assignment.identity, names, shown.relation.qualified_name))
    events = events_of(shown, assignment.identity, follow=assignment.marks_deleted)
    parts[-1].rows += shown.data.num_rows
    parts[-1].parts.append(with_marks(events, assignment.identity) if assignment.marks_deleted else events)


def _folded_rows(gathered: dict[int, list[_Gathered]], sequence: int, task: DecodeTask) -> Iterator[dict[str, Any]]:
    for table in list(gathered):
        # A truncate's mark, which may be of an earlier version, stands in front of what has come behind it.
        for number, found in enumerate(gathered.pop(table), start=1):
            at = sequence * _PARTS + _PARTS // 2 + number
            events = concat(found.parts)
            found.parts.clear()  # their memory is needed for what they are folded to
            events = fold_events(events, found.identity, found.names, found.table, buckets=task.buckets)
            links = links_of(events, found.identity, found.names)
            if links is not None:
                yield staged_row(links_table(table), found.relation, at, "", data=links.to_ipc())
            parts = split(events, found.identity, found.names, task.buckets, file_of(sequence))
            if not parts:
                yield staged_row(table, found.relation, at, _info(), rows=found.rows)
            for part_number, (bucket, part) in enumerate(parts):
                # Counted once, whatever the number of parts.
                rows = found.rows if part_number == 0 else 0
                yield staged_row(table, found.relation, at, _info(part), bucket=bucket, rows=rows, data=to_ipc(part))


# What the ledger keeps of transactions and logical messages.


def _transactions(recorded: Sequence[Recorded], settings: TaskSettings) -> tuple[pa.RecordBatch, pa.RecordBatch]:
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


@spark_task
def link_batches(batches: Iterable[pa.RecordBatch], *, buckets: int) -> Iterator[pa.RecordBatch]:
    """Make of all the links between a table's keys the routes of each bucket, to stand in front of its events.

    Args:
        batches: the data of all staged rows of the table's `links_table`, in one task.
        buckets: as many as the events were parted into.
    """
    links = [Routes.from_ipc(value.as_buffer()) for batch in batches for value in batch.column("data")]
    for bucket, routes in components(links).split(buckets):
        yield route_batch(bucket, ROUTES_SEQUENCE, routes.to_ipc())


@spark_task
def route_batches(batches: Iterable[pa.RecordBatch], *, task: FoldTask, buckets: int) -> Iterator[pa.RecordBatch]:
    """Bring the staged events of linked keys to one bucket.

    Args:
        batches: bucket, sequence and data, sorted by bucket and sequence: each bucket's routes, if it has any, then
            its events, none of a bucket in another task.
        buckets: as many as the events were parted into.
    """
    current: int | None = None
    routes = NO_ROUTES
    for batch in batches:
        columns = batch.column("bucket"), batch.column("sequence"), batch.column("data")
        for bucket, sequence, data in zip(*columns, strict=True):
            if bucket.as_py() != current:
                current, routes = bucket.as_py(), NO_ROUTES
            if sequence.as_py() == ROUTES_SEQUENCE:
                routes = Routes.from_ipc(data.as_buffer())
            elif not len(routes.key):
                yield route_batch(bucket.as_py(), sequence.as_py(), data.as_buffer())
            else:
                events = from_ipc(data.as_buffer())
                own = task.named(task.version_of(sequence.as_py()))
                for to, part in route(events, *own, routes, buckets):
                    yield route_batch(to, sequence.as_py(), to_ipc(part))


def route_batch(bucket: int, sequence: int, data: bytes | pa.Buffer) -> pa.RecordBatch:
    """Give a row as Spark takes it: staged events, or routes, of a bucket."""
    arrays = [pa.array([bucket], pa.int32()), pa.array([sequence], pa.int64()), _one_binary(data)]
    return pa.RecordBatch.from_arrays(arrays, schema=ROUTE)


@spark_task
def fold_batches(batches: Iterable[pa.RecordBatch], *, task: FoldTask) -> Iterator[pa.RecordBatch]:
    """Fold staged events, sorted by bucket and sequence, to rows to merge.

    Raises:
        RuntimeError: what the driver tells by `refusal_in`.
    """
    current: int | None = None
    parts: list[tuple[int, Events]] = []
    # Rows that are only added need not meet: a table of such may have all of an archive's.
    is_alone = task.identity.mode is Mode.APPEND
    for batch in batches:
        columns = batch.column("bucket"), batch.column("sequence"), batch.column("data")
        for bucket, sequence, data in zip(*columns, strict=True):
            if (is_alone or bucket.as_py() != current) and parts:
                yield from _merge_rows(parts, task)
                parts = []
            current = bucket.as_py()
            parts.append((sequence.as_py(), from_ipc(data.as_buffer())))
    if parts:
        yield from _merge_rows(parts, task)


def _merge_rows(parts: list[tuple[int, Events]], task: FoldTask) -> Iterator[pa.RecordBatch]:
    try:
        events = concat([task.project(version, run) for version, run in _runs(parts, task)])
        parts.clear()
        yield from rows_to_merge(events, task.identity, task.names, task.tracked, moves=task.moves, table=task.table)
    except Wal2DeltaError as problem:
        problem.table = problem.table or task.table
        # There is no row to give it back in: the rows go into the table.
        raise RuntimeError(refusal_text(problem)) from None


def _runs(parts: list[tuple[int, Events]], task: FoldTask) -> Iterator[tuple[int, Events]]:
    """Put together what is of one version, file by file."""
    for version, run in groupby(parts, key=lambda item: task.version_of(item[0])):
        files = [[part for _, part in group] for _, group in groupby(run, key=lambda item: item[0])]
        yield version, concat([rejoin(group) for group in files])


def refusal_text(error: Wal2DeltaError) -> str:
    """Write an error into the text of an exception, where there is no row to give it back in."""
    return _REFUSED + json.dumps(error.to_dict())


@contextmanager
def refusals_told() -> Iterator[None]:
    """Raise what a worker refuses as what it is, and not as Spark tells of it."""
    try:
        yield
    except Exception as error:
        refusal = refusal_in(str(error))
        if refusal is not None:
            raise refusal from None
        raise


def refusal_in(text: str) -> Wal2DeltaError | None:
    """Give the error that a worker has put into its exception's text, wherever it stands in it."""
    _, found, rest = text.partition(_REFUSED)
    if not found:
        return None
    try:
        return from_dict(json.JSONDecoder().raw_decode(rest)[0])
    except ValueError:
        return None
