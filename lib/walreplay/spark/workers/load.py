"""Read the files of a base load, and stage their rows as inserts."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np
import pyarrow as pa

from walreplay.decode.change_batch import ChangeBatch
from walreplay.decode.copied import CopiedRows
from walreplay.errors import CaptureError, WalReplayError
from walreplay.listing import release_pages
from walreplay.loading.copy_files import range_of, read_cells
from walreplay.loading.formats import CopyOptions, head_of, header_of
from walreplay.loading.parquet_files import ENDING as PARQUET
from walreplay.loading.parquet_files import columns_of, read_batches
from walreplay.protocol.messages import Relation
from walreplay.sink.events import Events, concat, from_ipc, key_hashes, to_ipc
from walreplay.sink.intake import events_of
from walreplay.sink.routes import split
from walreplay.sink.showing import show
from walreplay.sink.slots import Hashes
from walreplay.sink.soft_deletes import with_deleted_column
from walreplay.spark.workers.decode import Assigned, Assignment
from walreplay.spark.workers.fold import FoldTask
from walreplay.spark.workers.process import spark_task
from walreplay.spark.workers.rows import ERROR_TABLE, NO_RELATION, stage_batch, staged_row
from walreplay.spark.workers.scan import map_capture
from walreplay.task_settings import TaskSettings
from walreplay.transactions.schedule import sequence_of

_FLUSH_BYTES: Final = 64 << 20
"""So much of a part's rows is staged at a time."""

_INFO: Final = json.dumps({"tracked": [], "moves": False, "deletes": False})

_PLACES: Final = 1 << 20
"""Sequence numbers of staged rows are so far apart for one of the steps that `sequence_of` counts."""

COUNTED: Final = pa.schema([("keys", pa.int64())])


@dataclass(frozen=True, slots=True)
class LoadPart:
    """What one task reads at a time: a file, or a range of one.

    Attributes:
        start, stop: the rows that begin between these places; ``stop`` is None for all of a file.
        columns: of its rows, where the file's header, or the table, does not say it: those of a dump.
    """

    path: str
    relation: Relation
    start: int = 0
    stop: int | None = None
    columns: tuple[str, ...] | None = None


@dataclass(frozen=True, slots=True)
class LoadTask:
    """What every task of a base load needs.

    Attributes:
        parts: by their numbers; or, where Spark brings the bytes, each file's, by path.
        relations: where the rows of each relation go.
        names: of types, by oid.
        lsn: the commit LSN that all rows get.
        buckets: how many parts a table's rows are split into, by key.
    """

    parts: tuple[LoadPart, ...]
    relations: Mapping[Relation, Assigned]
    names: Mapping[int, tuple[str, str]]
    options: CopyOptions
    settings: TaskSettings
    lsn: int
    buckets: int


@spark_task
def load_batches(batches: Iterable[pa.RecordBatch], *, task: LoadTask) -> Iterator[pa.RecordBatch]:
    """Read parts and stage their rows; an error becomes a row of `ERROR_TABLE`."""
    by_path = {part.path: number for number, part in enumerate(task.parts)}
    for batch in batches:
        found: Iterable[tuple[int, Any]]
        if "content" in batch.schema.names:
            columns = batch.column("path").to_pylist(), batch.column("content")
            found = ((by_path[path], content.as_buffer()) for path, content in zip(*columns, strict=True))
        else:
            found = ((number, map_capture(task.parts[number].path)) for number in batch.column("file").to_pylist())
        for number, content in found:
            part, at = task.parts[number], sequence_of(number) * _PLACES
            try:
                if isinstance(content, WalReplayError):
                    raise content
                for row in _staged(memoryview(content), part, number, task):
                    yield stage_batch(row)
            except WalReplayError as problem:
                problem.table = problem.table or part.relation.qualified_name
                yield stage_batch(
                    staged_row(ERROR_TABLE, NO_RELATION, at, json.dumps(problem.at(path=part.path).to_dict()))
                )


def _staged(content: memoryview, part: LoadPart, number: int, task: LoadTask) -> Iterator[dict[str, Any]]:
    """Give a part's rows to be staged, some at a time."""
    assignment, at = task.relations[part.relation].mirror, sequence_of(number) * _PLACES
    assert assignment is not None, "a load is for mirrors alone"
    shown = tuple(column.name for column in assignment.shown.relation.columns)
    names = (*shown, "") if assignment.marks_deleted else shown
    # So that a table without rows is made, too.
    yield staged_row(assignment.table, assignment.relation, at, _INFO)
    for turn, events in enumerate(_gathered(content, part, assignment, task), start=1):
        rows = events.rows
        for bucket, piece in split(events, assignment.identity, names, task.buckets, number + turn):
            data = to_ipc(piece)
            yield staged_row(
                assignment.table, assignment.relation, at + turn, _INFO, bucket=bucket, rows=rows, data=data
            )
            rows = 0  # counted once, whatever the number of pieces


def _gathered(content: memoryview, part: LoadPart, assignment: Assignment, task: LoadTask) -> Iterator[Events]:
    """Give a part's rows as events, as many at a time as are worth to be staged."""
    parts: list[Events] = []
    size = 0
    for batch in _batches(content, part, task):
        shown = show(batch, assignment.shown, task.settings.mask_salt if assignment.shown.masked else b"")
        # There are no old rows to be relied on.
        events = events_of(shown, replace(assignment.identity, evicts=True))
        parts.append(with_deleted_column(events, assignment.identity) if assignment.marks_deleted else events)
        size += sum(column.nbytes for column in parts[-1].columns)
        if size >= _FLUSH_BYTES:
            release_pages(content)
            yield concat(parts)
            parts, size = [], 0
    if parts:
        yield concat(parts)


def _batches(content: memoryview, part: LoadPart, task: LoadTask) -> Iterator[ChangeBatch]:
    """Read a part's rows."""
    relation, codec = part.relation, task.settings.codec
    types = task.relations[relation].types
    if part.path.endswith(PARQUET):
        at = _order(relation, columns_of(content, part.path), part.path)
        yield from read_batches(content, relation, types, at, task.lsn, part.path)
        return
    options = task.options if part.columns is None else CopyOptions("text")
    form = options.format_of(part.path, head_of(content), codec)
    names: Sequence[str] | None = part.columns
    low, high = 0, None
    if names is None and form.header and form.kind != "binary":
        names, low = header_of(head_of(content), form, codec, part.path)
    if part.stop is not None:
        # The parts of a file meet at rows' beginnings.
        start, stop = range_of(content, part.start, part.stop)
        low, high = max(start, low), max(stop, low)
    order = None if names is None else _order(relation, names, part.path)
    fields = len(relation.columns) if names is None else len(names)
    rows = CopiedRows(relation, types, task.names, codec, order, task.lsn)
    for cells in read_cells(content, form, fields, part.path, start=low, stop=high):
        rows.take(cells)
        if rows.full:
            yield rows.finish()
    if rows.rows:
        yield rows.finish()


def _order(relation: Relation, names: Sequence[str], path: str) -> list[int]:
    """Give which of a file's fields each of the relation's columns is."""
    wanted = [column.name for column in relation.columns]
    missing = [name for name in wanted if name not in names]
    if missing or len(set(names)) != len(names):
        problem = f"the file lacks the column {missing[0]}" if missing else "the file names a column twice"
        raise CaptureError(
            problem,
            path=path,
            table=relation.qualified_name,
            remedy="Copy all columns of the table, with their own names in the header",
        )
    return [names.index(name) for name in wanted]


@spark_task
def count_keys(batches: Iterable[pa.RecordBatch], *, task: FoldTask) -> Iterator[pa.RecordBatch]:
    """Count the different keys of each bucket of staged events; all of a bucket's come to one task, in order."""
    current: int | None = None
    parts: list[Hashes] = []

    def counted() -> pa.RecordBatch:
        first, second = (np.concatenate([part[half] for part in parts]) for half in (0, 1))
        order = np.lexsort((second, first))
        differs = (np.diff(first[order]) != 0) | (np.diff(second[order]) != 0)
        keys = np.count_nonzero(differs) + bool(len(first))
        return pa.RecordBatch.from_arrays([pa.array([keys], pa.int64())], schema=COUNTED)

    for batch in batches:
        columns = batch.column("bucket"), batch.column("sequence"), batch.column("data")
        for bucket, sequence, data in zip(*columns, strict=True):
            if bucket.as_py() != current and parts:
                yield counted()
                parts = []
            current = bucket.as_py()
            parts.append(key_hashes(from_ipc(data.as_buffer()), *task.named(task.version_of(sequence.as_py()))))
    if parts:
        yield counted()


__all__ = ["COUNTED", "LoadPart", "LoadTask", "count_keys", "load_batches"]
