"""Stage the rows of a base load as inserts: from files, or as Spark has them.

`load_batches` reads files; `load_rows` takes the rows of one table that Spark hands to it.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache, partial
from itertools import chain, groupby, islice
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa

from walreplay.decode.change_batch import ChangeBatch
from walreplay.decode.gathered import CopiedRows
from walreplay.decode.masking import show
from walreplay.errors import WalReplayError
from walreplay.fold.events import (
    OPERATIONS,
    Events,
    Marks,
    concat,
    events_of,
    from_ipc,
    key_hashes,
    to_ipc,
    with_deleted_column,
)
from walreplay.fold.net_changes import split
from walreplay.loading.copy_files import range_of, read_cells
from walreplay.loading.formats import CopyOptions, head_of, header_of
from walreplay.loading.typed_rows import ENDING as PARQUET
from walreplay.loading.typed_rows import TypedRows, columns_of, order_of, read_batches
from walreplay.names import RowKind
from walreplay.protocol.messages import Relation
from walreplay.spark.workers.decode import Assigned, Assignment, info_of
from walreplay.spark.workers.fold import FoldTask
from walreplay.spark.workers.process import release_pages, spark_task
from walreplay.spark.workers.rows import ERROR_TABLE, NO_RELATION, stage_batch, staged_events, staged_row
from walreplay.spark.workers.scan import Content, map_capture, view_of
from walreplay.stream.schedule import sequence_of
from walreplay.task_settings import TaskSettings

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


_FLUSH_BYTES: Final = 64 << 20  # So much of a part's rows is staged at a time

_PLACES: Final = 1 << 20
"""Sequence numbers of staged rows are so far apart for one of the steps that `sequence_of` counts."""

_ROWS: Final = 1 << 40  # A part has fewer rows: by it and their place in it, the rows of a table are numbered

_LOADED: Final = OPERATIONS.index("r")

COUNTED: Final = pa.schema([("keys", pa.int64())])


@dataclass(frozen=True, slots=True)
class LoadPart:
    """What one task reads at a time: a file, or a range of one.

    Attributes:
        start, stop: the rows that begin between these places; ``stop`` is None for all of a file.
        columns: of its rows, where the file's header, or the table, does not say it: those of a dump.
        number: among the parts of its table, by which rows of histories are numbered: the same in each load of them.
    """

    path: str
    relation: Relation
    start: int = 0
    stop: int | None = None
    columns: tuple[str, ...] | None = None
    number: int = 0


@dataclass(frozen=True, slots=True)
class LoadTask:
    """What every task of a base load needs.

    Attributes:
        relations: where the rows of each relation go.
        names: of types, by oid.
        lsn: the commit LSN that all rows get.
        buckets: how many parts a table's rows are split into, by key.
        top: of histories: the time that the rows' versions begin at, in microseconds since 1970-01-01 UTC.
        by_captures: see `walreplay.loading.description.Description`.
    """

    relations: Mapping[Relation, Assigned]
    names: Mapping[int, tuple[str, str]]
    settings: TaskSettings
    lsn: int
    buckets: int
    top: int = 0
    by_captures: bool = False

    def outputs(self, relation: Relation) -> list[_Output]:
        """Return the tables that a relation's rows go to; only whole ones have them, as they are no changes."""
        tables = self.relations[relation].tables
        return [_Output(to, output.rows is RowKind.VERSION) for output, to in tables.items() if output.is_whole]


@dataclass(slots=True)
class _Output:
    """One of the tables that a part's rows go to.

    Attributes:
        parts: rows that are not staged yet, as events; ``size`` is their bytes.
        turn: how often rows were staged.
    """

    to: Assignment
    is_history: bool
    parts: list[Events] = field(default_factory=list)
    size: int = 0
    turn: int = 0

    def add(self, shown: ChangeBatch, first: int, top: int) -> None:
        """Add rows as inserts; ``first`` is the number of the first of them among all rows of the load."""
        # There are no old rows to be relied on.
        to, rows, marks = self.to, shown.data.num_rows, None
        if self.is_history:
            numbers = np.arange(first, first + rows, dtype=np.int64)
            marks = Marks(numbers, np.full(rows, _LOADED, np.uint8), np.full(rows, top, np.int64))
        events = events_of(shown, replace(to.identity, evicts=True), marks=marks)
        self.parts.append(with_deleted_column(events, to.identity) if to.marks_deleted else events)
        self.size += sum(column.nbytes for column in self.parts[-1].columns)

    def staged(self, number: int, buckets: int) -> Iterator[Mapping[str, Any]]:
        """Yield the rows to be staged of what was added."""
        events, to = concat(self.parts), self.to
        self.parts, self.size, self.turn = [], 0, self.turn + 1
        shown = tuple(column.name for column in to.shown.relation.columns)
        names = (*shown, "") if to.marks_deleted else shown
        rows, sequence = events.rows, sequence_of(number) * _PLACES + self.turn
        for bucket, piece in split(events, to.identity, names, buckets, number + self.turn):
            yield staged_row(to.table, to.relation, sequence, info_of(), bucket=bucket, rows=rows, data=to_ipc(piece))
            rows = 0  # counted once, whatever the number of pieces


@spark_task
def load_batches(
    batches: Iterable[pa.RecordBatch], *, task: LoadTask, parts: Sequence[LoadPart], options: CopyOptions
) -> Iterator[pa.RecordBatch]:
    """Read parts of files and stage their rows; an error becomes a row of `ERROR_TABLE`.

    Args:
        parts: by their numbers; or, where Spark brings the bytes, each file's, by path.
    """
    by_path = {part.path: number for number, part in enumerate(parts)}  # files that Spark reads are not divided
    for batch in batches:
        contents: Iterable[tuple[int, Any]]
        if "content" in batch.schema.names:
            columns = batch.column("path").to_pylist(), batch.column("content")
            contents = ((by_path[path], content.as_buffer()) for path, content in zip(*columns, strict=True))
        else:
            contents = ((number, map_capture(parts[number].path)) for number in batch.column("file").to_pylist())
        for number, content in contents:
            part = parts[number]
            changes = _part(content, part, options, task)
            yield from staged_batches(changes, part.relation, number, part.path, task, first=part.number * _ROWS)


def _part(content: Content, part: LoadPart, options: CopyOptions, task: LoadTask) -> Iterator[ChangeBatch]:
    """Read a part's rows; pages that were read are let go."""
    view, size = view_of(content), 0
    for batch in _batches(view, part, options, task):
        size += batch.data.nbytes
        if size >= _FLUSH_BYTES:
            release_pages(view)
            size = 0
        yield batch


def staged_batches(
    batches: Iterable[ChangeBatch],
    relation: Relation,
    number: int,
    path: str,
    task: LoadTask,
    *,
    first: int | None = None,
) -> Iterator[pa.RecordBatch]:
    """Yield rows to be staged, some at a time; an error becomes a row of `ERROR_TABLE`.

    Args:
        number: of the part that they are.
        first: the number of the first row in a history; None to follow the part's.
    """
    sequence = sequence_of(number) * _PLACES
    try:
        for row in _staged(batches, relation, number, task, number * _ROWS if first is None else first):
            yield stage_batch(row)
    except WalReplayError as problem:
        problem.table = problem.table or relation.qualified_name
        yield stage_batch(staged_row(ERROR_TABLE, NO_RELATION, sequence, json.dumps(problem.at(path=path).to_dict())))


def made_tables(relation: Relation, number: int, task: LoadTask) -> Iterator[Mapping[str, Any]]:
    """Yield what is staged of tables without rows, so that they are made, too."""
    for output in task.outputs(relation):
        yield staged_row(output.to.table, output.to.relation, sequence_of(number) * _PLACES, info_of())


def _staged(
    batches: Iterable[ChangeBatch], relation: Relation, number: int, task: LoadTask, first: int
) -> Iterator[Mapping[str, Any]]:
    """Stage rows for all of their tables, as many at a time as are worth it."""
    yield from made_tables(relation, number, task)
    outputs = task.outputs(relation)
    for batch in batches:
        # As a rule all tables show the same, and to mask values takes time.
        shown_as = cache(partial(show, batch, salt=task.settings.mask_salt))
        for output in outputs:
            output.add(shown_as(output.to.shown), first, task.top)
            if output.size >= _FLUSH_BYTES:
                yield from output.staged(number, task.buckets)
        first += batch.data.num_rows
    for output in outputs:
        if output.parts:
            yield from output.staged(number, task.buckets)


def _batches(content: memoryview, part: LoadPart, options: CopyOptions, task: LoadTask) -> Iterator[ChangeBatch]:
    """Read a part's rows."""
    relation, codec = part.relation, task.settings.codec
    types = task.relations[relation].types
    if part.path.endswith(PARQUET):
        column_order = order_of(relation, columns_of(content, part.path), part.path, by_captures=task.by_captures)
        yield from read_batches(content, TypedRows(relation, types, task.names, column_order, task.lsn, part.path))
        return
    # pg_dump writes COPY's text format, with its defaults.
    given_options = options if part.columns is None else CopyOptions("text")
    form = given_options.format_of(part.path, head_of(content), codec)
    names: Sequence[str] | None = part.columns
    low, high = 0, None
    if names is None and form.header and form.kind != "binary":
        names, low = header_of(head_of(content), form, codec, part.path)
    if part.stop is not None:
        # The parts of a file meet at rows' beginnings.
        start, stop = range_of(content, part.start, part.stop)
        low, high = max(start, low), max(stop, low)  # the first range begins behind the header
    order = None
    if names is not None and list(names) != [column.name for column in relation.columns]:
        order = order_of(relation, names, part.path, by_captures=task.by_captures)
    fields = len(relation.columns) if names is None else len(names)
    rows = CopiedRows(relation, types, task.names, codec, order, task.lsn)
    # In a plain dump the marker of the end stands behind the section.
    is_marked = part.columns is not None and (high is None or high == len(content))
    for cells in read_cells(content, form, fields, part.path, start=low, stop=high, is_marked=is_marked):
        rows.take(cells)
        if rows.full:
            yield rows.finish()
    if rows.rows:
        yield rows.finish()


@spark_task
def count_keys(batches: Iterable[pa.RecordBatch], *, task: FoldTask) -> Iterator[pa.RecordBatch]:
    """Count the different keys of each bucket of staged events; all of a bucket's come to one task, in order."""
    for _, staged in groupby(staged_events(batches), key=lambda item: item[0]):
        parts = [key_hashes(from_ipc(data), *task.named(task.version_of(sequence))) for _, sequence, data in staged]
        first, second = (np.concatenate([part[half] for part in parts]) for half in (0, 1))
        order = np.lexsort((second, first))
        differs = (np.diff(first[order]) != 0) | (np.diff(second[order]) != 0)
        keys = np.count_nonzero(differs) + bool(len(first))  # one more than the places where sorted keys differ
        yield pa.RecordBatch.from_arrays([pa.array([keys], pa.int64())], schema=COUNTED)


def with_part(rows: DataFrame) -> DataFrame:
    """Add each row's partition, as `load_rows` takes it: a task may have several partitions, one after the other."""
    from pyspark.sql import functions as f

    # Spark would look for a column ``a.b`` in a column ``a``.
    numbered = rows.toDF(*(f"c{number}" for number in range(len(rows.columns))))
    return numbered.select("*", f.spark_partition_id().alias("part"))


@spark_task
def load_rows(
    batches: Iterable[pa.RecordBatch],
    *,
    task: LoadTask,
    relation: Relation,
    order: tuple[int, ...],
    path: str,
    first: int = 0,
) -> Iterator[pa.RecordBatch]:
    """Stage a partition's rows of one table; an error becomes a row of `ERROR_TABLE`.

    Args:
        batches: see `with_part`.
        order: which of the rows' columns each of the relation's is.
        first: the number of the rows' first part among those of the load.
    """
    rest = iter(batches)
    begun = list(islice((batch for batch in rest if batch.num_rows), 1))  # the partition's number is in its rows alone
    part = begun[0].column(begun[0].num_columns - 1)[0].as_py() if begun else 0
    rows = TypedRows(relation, task.relations[relation].types, task.names, order, task.lsn, path)
    inserts = chain.from_iterable(map(rows.inserts, chain(begun, rest)))
    yield from staged_batches(inserts, relation, first + part, path, task)


@spark_task
def make_tables(batches: Iterable[pa.RecordBatch], *, task: LoadTask) -> Iterator[pa.RecordBatch]:
    """Stage that all tables are there, so that those without rows are made, too."""
    for _ in batches:  # one row comes, so that the task runs
        for relation in task.relations:
            yield from map(stage_batch, made_tables(relation, 0, task))
