"""Decode files by their plans, fold the changes of each file, and stage the result."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa

from walreplay.decode.change_batch import ChangeBatch
from walreplay.decode.decoder import Decoder, LogicalMessage, Recorded
from walreplay.errors import WalReplayError
from walreplay.listing import release_pages
from walreplay.lsn import POSTGRES_EPOCH_UNIX_MICROS
from walreplay.protocol.framing import Framing
from walreplay.protocol.messages import Relation, Type
from walreplay.sink.events import REMOVE, Events, Identity, batch_to_ipc, concat, to_ipc
from walreplay.sink.fold import DELETE
from walreplay.sink.intake import events_of
from walreplay.sink.merge import fold_events
from walreplay.sink.routes import links_of, split
from walreplay.sink.showing import Shown, show
from walreplay.sink.soft_deletes import with_deleted_column
from walreplay.spark.workers.process import spark_task
from walreplay.spark.workers.rows import (
    _TIMESTAMP,
    ERROR_TABLE,
    MESSAGE,
    MESSAGES_TABLE,
    NO_RELATION,
    PARTS_TABLE,
    TRANSACTION,
    TRANSACTIONS_TABLE,
    USES_TABLE,
    links_table,
    stage_batch,
    staged_row,
)
from walreplay.spark.workers.scan import capture_files
from walreplay.task_settings import TaskSettings
from walreplay.transactions.plan import FilePlan, Step
from walreplay.transactions.planned import PlannedBytes
from walreplay.transactions.schedule import file_of
from walreplay.types.base import ColumnType

if TYPE_CHECKING:
    from numpy.typing import NDArray


_PARTS: Final = 1 << 20
"""A step's rows of one table are so many parts at most: of relation versions that followed each other."""


@dataclass(frozen=True, slots=True)
class Assignment:
    """The table that a relation version's rows go to.

    Attributes:
        table: the mirror table's number, and ``relation`` the version's.
        types: of the version's columns.
        identity: in the columns that are shown.
        marks_deleted: soft deletes: a further column marks a deleted row.
        floor: the table was loaded as of this LSN, so that rows with a lower commit LSN are left out; -1 for none.
    """

    table: int
    relation: int
    identity: Identity
    types: tuple[ColumnType, ...]
    shown: Shown
    marks_deleted: bool = False
    floor: int = -1


@dataclass(frozen=True, slots=True)
class DecodeTask:
    """What every decoding task of a run needs.

    Attributes:
        files: the plan of each file, by path.
        versions, types: the relation versions and types behind the numbers in the steps.
        relations: where the rows of each wanted relation version go.
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


@spark_task
def decode_batches(batches: Iterable[pa.RecordBatch], *, task: DecodeTask) -> Iterator[pa.RecordBatch]:
    """Decode whole files and fold each table's changes; one row per file, unit (see `_units`), table and bucket."""
    for path, content in capture_files(batches, task.files):
        if isinstance(content, WalReplayError):
            yield _failed(task.files[path], content)
        else:
            yield from _decoded(task.files[path], memoryview(content), task)


@spark_task
def decode_carried(batches: Iterable[pa.RecordBatch], *, task: DecodeTask) -> Iterator[pa.RecordBatch]:
    """Decode steps that bring their bytes with them, in the same way as `decode_batches`.

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
    except WalReplayError as problem:
        yield _failed(plan, problem)


def _failed(plan: FilePlan, problem: WalReplayError) -> pa.RecordBatch:
    error = json.dumps(problem.at(path=plan.path).to_dict())
    return stage_batch(staged_row(ERROR_TABLE, NO_RELATION, plan.steps[0].sequence, error))


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
    """Divide a file's steps into units between which no other file's step comes.

    Only the changes of one unit may be folded before they meet those of other files.
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
    floors = {relation.oid: found.floor for relation, found in task.relations.items() if found.floor >= 0}
    return Decoder(
        framing,
        wanted=task.relations.keys(),
        truncates={oid: at for oid, at in task.truncates.items() if at[0] >= floors.get(oid, -1)},
        floors=floors,
        wants_origin=settings.origins.wants,
        recording=True,
        column_types={relation: assignment.types for relation, assignment in task.relations.items()},
        skipped=settings.skipped,
        codec=settings.codec,
    )


def staged_rows(
    planned: PlannedBytes, steps: Sequence[Step], task: DecodeTask, content: memoryview | None
) -> Iterator[dict[str, Any]]:
    """Decode steps of one file, fold each table's changes, and give the rows to be staged.

    Args:
        content: the file as stored, if it was read; its pages are released once they are no longer needed.
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
            # Folding needs the memory.  Earlier, the next unit would only read the pages again.
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


def _info(part: Events | None = None) -> str:
    """Describe a part for the driver, which does not read its rows."""
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
    parts[-1].parts.append(with_deleted_column(events, assignment.identity) if assignment.marks_deleted else events)


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
