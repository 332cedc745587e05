"""Decode files for an audit, which keeps no rows: what their transactions come to, and which values are rescued."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import pyarrow as pa

from walreplay.decode.change_batch import ChangeBatch, read_rescued
from walreplay.decode.decoder import Decoder
from walreplay.errors import WalReplayError
from walreplay.listing import release_pages
from walreplay.protocol.messages import Relation, Type
from walreplay.spark.workers.process import spark_task
from walreplay.spark.workers.rows import transactions_of
from walreplay.spark.workers.scan import capture_files
from walreplay.stream.plan import FilePlan
from walreplay.stream.planned import PlannedBytes
from walreplay.task_settings import TaskSettings
from walreplay.types.base import ColumnType

RECORDED: Final = pa.schema(
    [
        ("commit_lsn", pa.int64()),
        ("commit_ts", pa.timestamp("us", "UTC")),
        ("xid", pa.int64()),
        ("changes", pa.int64()),
        ("digest", pa.int64()),
        ("session", pa.int32()),
        ("path", pa.string()),
        ("offset", pa.int64()),
        ("complete", pa.bool_()),
        ("error", pa.string()),
    ]
)
"""A transaction, or a part of one (with an ``offset`` below zero unless it begins there); or a file's error."""

COUNTED: Final = pa.schema([("told", pa.string()), ("error", pa.string())])
"""A file's `counted`, as JSON: for each relation's number its rows, their bytes, and rescued values by column."""


@dataclass(frozen=True, slots=True)
class AuditTask:
    """What a task needs to decode files.

    Attributes:
        files: the plan of each file, by path.
        versions, types: what the steps' numbers mean.
        column_types: of the relation versions whose values are wanted.
    """

    files: Mapping[str, FilePlan]
    versions: tuple[Relation, ...]
    types: tuple[Type, ...]
    column_types: Mapping[Relation, tuple[ColumnType, ...]]
    settings: TaskSettings


@spark_task
def record_batches(batches: Iterable[pa.RecordBatch], *, task: AuditTask) -> Iterator[pa.RecordBatch]:
    """Yield what each transaction of some files comes to; of what cannot be decoded its error."""
    for path, content in capture_files(batches, task.files):
        plan, error = task.files[path], None
        decoder = _decoder(plan, task, recording=True)
        try:
            for _ in _decoded(plan, content, decoder, task):
                pass
        except WalReplayError as problem:
            error = json.dumps(problem.at(path=path).to_dict())
        recorded, _ = decoder.take_recorded()
        for batch in transactions_of(recorded, task.settings):
            if batch.num_rows:
                yield _as_recorded(batch)
        if error is not None:
            yield pa.RecordBatch.from_pylist([{"error": error}], schema=RECORDED)


def _as_recorded(batch: pa.RecordBatch) -> pa.RecordBatch:
    rows = batch.num_rows
    given = {"complete": pa.array([True]).take(pa.array([0] * rows)), "error": pa.nulls(rows, pa.string())}
    columns = []
    for column in RECORDED:
        values = given[column.name] if column.name in given else batch.column(column.name)
        columns.append(values.dictionary_decode() if pa.types.is_dictionary(values.type) else values)
    return pa.RecordBatch.from_arrays(columns, schema=RECORDED)


@dataclass(slots=True)
class _Count:
    rows: int = 0
    size: int = 0
    rescued: Counter[str] = field(default_factory=Counter)


@spark_task
def count_batches(batches: Iterable[pa.RecordBatch], *, task: AuditTask) -> Iterator[pa.RecordBatch]:
    """Count rows, bytes and rescued values of some files; no value leaves the task."""
    numbers = {relation: number for number, relation in enumerate(task.column_types)}
    for path, content in capture_files(batches, task.files):
        plan, error = task.files[path], None
        counts: dict[int, _Count] = {}
        try:
            for batch in _decoded(plan, content, _decoder(plan, task, recording=False), task):
                _count(counts.setdefault(numbers[batch.relation], _Count()), batch)
        except WalReplayError as problem:
            error = json.dumps(problem.at(path=path).to_dict())
        told: dict[int, Any] = {number: [one.rows, one.size, one.rescued] for number, one in counts.items()}
        yield pa.RecordBatch.from_pylist([{"told": json.dumps(told), "error": error}], schema=COUNTED)


def _count(count: _Count, batch: ChangeBatch) -> None:
    count.rows += batch.data.num_rows
    count.size += batch.data.nbytes
    if batch.rescued is not None:
        for values in read_rescued(batch.rescued.drop_null()):
            count.rescued.update(values.keys())


def _decoder(plan: FilePlan, task: AuditTask, *, recording: bool) -> Decoder:
    settings = task.settings
    return Decoder(
        plan.steps[0].place.framing,
        wanted=task.column_types.keys(),
        wants_origin=settings.origins.wants,
        recording=recording,
        column_types=task.column_types,
        codec=settings.codec,
    )


def _decoded(
    plan: FilePlan, content: pa.Buffer | memoryview | WalReplayError, decoder: Decoder, task: AuditTask
) -> Iterator[ChangeBatch]:
    if isinstance(content, WalReplayError):
        raise content
    view = memoryview(content)
    planned = PlannedBytes.of(plan, view)
    for step in plan.steps:
        yield from planned.decode(decoder, step, task.versions, task.types)
    yield from decoder.rest()
    release_pages(view)
