"""A change log's rows: one for each row change, as it was sent.

A decoding task stages what it has decoded as it is (`staged_changes`), and the task that writes the table's files gives
the rows the table's columns (`log_batches`).  Nothing is folded, and no row has to meet another.

- A row has the new values.  A delete has what was sent of its old row there: its key, or all of it.
- ``before`` is what was sent of the old row.  Its fields are the table's columns, and change as those do.
- ``unchanged`` names the columns whose values were not sent because they have not changed (TOAST).  They are NULL.
- Rescued texts of ``before`` stand in the rescued data under that column's name, in an object of their own.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from walreplay.decode.change_batch import METADATA_COLUMNS, ChangeBatch
from walreplay.decode.rescued import rescued_json
from walreplay.sink.events import join_arrays, write_ipc
from walreplay.sink.identity import contiguous
from walreplay.sink.projection import Projection, project_columns

if TYPE_CHECKING:
    from numpy.typing import NDArray

UNCHANGED: Final = pa.list_(pa.string())

OWN: Final = (
    ("op", pa.string()),
    ("lsn", pa.int64()),
    ("ts", pa.timestamp("us", "UTC")),
    ("xid", pa.int64()),
    ("ordinal", pa.int64()),
    ("origin", pa.string()),
    ("file", pa.string()),
    ("offset", pa.int64()),
)
"""What a row has beside its values."""

_OUTPUT_ROWS: Final = 1 << 16


def staged_changes(batch: ChangeBatch) -> pa.Buffer:
    """Write decoded changes as Arrow IPC streams: the rows, and behind them the old rows of updates if there are any.

    Args:
        batch: what the table takes of them, with their places.
    """
    assert batch.places is not None
    places = batch.places
    own = [*batch.data.columns[:METADATA_COLUMNS], places.origin, places.path, places.offset]
    arrays: dict[str, Any] = {f"c{number}": column for number, column in enumerate(batch.columns)}
    arrays |= {name: column for (name, _), column in zip(OWN, own, strict=True)}
    if batch.rescued is not None:
        arrays["rescued"] = batch.rescued
    if batch.unchanged:
        arrays["unchanged"] = _numbers_of_unchanged(batch)
    sink = pa.BufferOutputStream()
    _write(sink, arrays)
    if batch.before is not None:
        olds: dict[str, Any] = {f"c{number}": column for number, column in enumerate(batch.before_columns)}
        olds["row"] = batch.before_rows
        if batch.before_rescued is not None:
            olds["rescued"] = batch.before_rescued
        _write(sink, olds)
    return sink.getvalue()


def _write(sink: pa.BufferOutputStream, arrays: Mapping[str, Any]) -> None:
    batch = pa.RecordBatch.from_arrays([contiguous(array) for array in arrays.values()], names=list(arrays))
    write_ipc(sink, batch)


def _read(data: pa.Buffer) -> list[pa.RecordBatch]:
    source, batches = pa.BufferReader(data), []
    while source.tell() < source.size():
        with pa.ipc.open_stream(source) as reader:
            batches += list(reader)
    return batches


def _numbers_of_unchanged(batch: ChangeBatch) -> pa.Array:
    """Give for each row the numbers of the columns that it leaves unchanged."""
    numbers = {column.name: number for number, column in enumerate(batch.relation.columns)}
    # Which of them comes first in a batch depends on the file's rows.
    names = sorted(batch.unchanged, key=numbers.__getitem__)
    own = np.array([numbers[name] for name in names], np.int32)
    masks = np.stack([batch.unchanged[name].to_numpy(zero_copy_only=False) for name in names], axis=1)
    offsets = np.concatenate([[0], np.cumsum(masks.sum(axis=1))]).astype(np.int32)
    return pa.ListArray.from_arrays(pa.array(offsets), pa.array(own[np.nonzero(masks)[1]]))


@dataclass(frozen=True, slots=True)
class LogTask:
    """What a change log's table has.

    Attributes:
        names, types: the columns that it has of its source, or has had.
        before: the name of the column with old rows; None where it has none.
    """

    names: tuple[str, ...]
    types: tuple[pa.DataType, ...]
    before: str | None

    @property
    def old_row(self) -> pa.StructType:
        """The type of ``before``."""
        return old_row_type(self.names, self.types)

    @property
    def schema(self) -> pa.Schema:
        """The rows' columns: ``c0`` and so on are the source's; ``unknown`` is for those who count such rows."""
        fields = [pa.field(f"c{number}", kind) for number, kind in enumerate(self.types)]
        fields += [pa.field(name, kind) for name, kind in OWN]
        if self.before is not None:
            fields.append(pa.field("before", self.old_row))
        fields += [pa.field("unchanged", UNCHANGED), pa.field("rescued", pa.string())]
        return pa.schema([*fields, pa.field("unknown", pa.bool_())])


def old_row_type(names: Sequence[str], types: Sequence[pa.DataType]) -> pa.StructType:
    """Give the type of old rows: their fields are the table's columns."""
    return pa.struct([pa.field(name, kind) for name, kind in zip(names, types, strict=True)])


def log_batches(data: pa.Buffer, task: LogTask, projection: Projection) -> Iterator[pa.RecordBatch]:
    """Give staged changes the table's columns, some rows at a time.

    Args:
        data: what `staged_changes` has written.
        projection: from the columns of their relation version.

    Raises:
        CaptureError: see `project_columns`.
    """
    news, *olds = _read(data)
    rows, width = news.num_rows, len(projection.before)
    names = set(news.schema.names)
    values = [news.column(f"c{number}") for number in range(width)]
    rescued = news.column("rescued") if "rescued" in names else pa.nulls(rows, pa.string())
    columns, texts = _projected(values, rescued, projection)
    unchanged = _none_unchanged(rows)
    if "unchanged" in names:
        unchanged = _named(news.column("unchanged"), labels_of(projection))
    arrays = {f"c{number}": column for number, column in enumerate(columns)}
    arrays |= {name: news.column(name) for name, _ in OWN}
    if task.before is not None:
        deleted = np.nonzero(pc.equal(news.column("op"), "d").to_numpy(zero_copy_only=False))[0]
        old, old_texts = _old_rows(columns, texts, deleted, olds, task, projection)
        arrays["before"] = old
        texts = with_old_texts(texts, old_texts, task.before)
    arrays |= {"unchanged": unchanged, "rescued": texts, "unknown": pa.array(np.zeros(rows, np.bool_))}
    schema = task.schema
    cast = [_as(arrays[field.name], field.type) for field in schema]
    whole = pa.RecordBatch.from_arrays(cast, schema=schema)
    for start in range(0, rows, _OUTPUT_ROWS):
        yield whole.slice(start, _OUTPUT_ROWS)


def _as(array: Any, kind: pa.DataType) -> pa.Array:
    array = contiguous(array)
    return array if array.type == kind else array.cast(kind)


def _projected(columns: list[pa.Array], rescued: pa.Array, projection: Projection) -> tuple[list[pa.Array], pa.Array]:
    if projection.is_identity:
        return columns, rescued
    return project_columns(columns, rescued, len(rescued), projection)


def _old_rows(
    columns: Sequence[pa.Array],
    texts: pa.Array,
    deleted: NDArray[np.int64],
    olds: Sequence[pa.RecordBatch],
    task: LogTask,
    projection: Projection,
) -> tuple[pa.Array, pa.Array]:
    """Give the old row of each change, NULL where none was sent, and the rescued texts of it.

    Args:
        columns, texts: the changes' own: a delete has its old row there.
        deleted: which changes are deletes.
        olds: the old rows of updates, if there are any.
    """
    rows = len(texts)
    index = np.full(rows, -1, np.int64)
    index[deleted] = deleted
    sources, source_texts = [list(columns)], [texts]
    if olds:
        (old,) = olds
        values = [old.column(f"c{number}") for number in range(len(projection.before))]
        has_texts = "rescued" in old.schema.names
        rescued = old.column("rescued") if has_texts else pa.nulls(old.num_rows, pa.string())
        before, before_texts = _projected(values, rescued, projection)
        first = rows if len(deleted) else 0
        index[old.column("row").to_numpy()] = first + np.arange(old.num_rows)
        if len(deleted):
            sources, source_texts = [*sources, before], [*source_texts, before_texts]
        else:
            sources, source_texts = [before], [before_texts]
    at = pa.array(index, mask=index < 0)
    fields = [join_arrays([source[number] for source in sources]).take(at) for number in range(len(task.names))]
    kind = task.old_row
    cast = [_as(array, field.type) for array, field in zip(fields, kind, strict=True)]
    struct = pa.StructArray.from_arrays(cast, fields=list(kind), mask=pa.array(index < 0))
    return struct, join_arrays(source_texts).take(at)


# What is unchanged.


def labels_of(projection: Projection) -> list[str | None]:
    """Give the name in the table of each of the projected columns; None for those that it has no longer."""
    found: list[str | None] = [None] * len(projection.before)
    for number, name in zip(projection.numbers, projection.after, strict=True):
        if number is not None:
            found[number] = name
    return found


def _none_unchanged(rows: int) -> pa.Array:
    return pa.ListArray.from_arrays(pa.array(np.zeros(rows + 1, np.int32)), pa.array([], pa.string()))


def _named(lists: pa.Array, labels: Sequence[str | None]) -> pa.Array:
    """Give lists of names in place of lists of numbers, without the numbers that have none."""
    numbers = lists.flatten().to_numpy(zero_copy_only=False)
    lengths = pc.fill_null(pc.list_value_length(lists), 0).to_numpy(zero_copy_only=False)
    if any(label is None for label in labels):
        kept = np.array([label is not None for label in labels])[numbers]
        row_of = np.repeat(np.arange(len(lists)), lengths)
        lengths, numbers = np.bincount(row_of[kept], minlength=len(lists)), numbers[kept]
    offsets = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int32)
    return pa.ListArray.from_arrays(pa.array(offsets), pa.array(labels, pa.string()).take(pa.array(numbers)))


def _renamed(lists: pa.Array, projection: Projection) -> pa.Array:
    """Give the names that columns have now in place of those that they had, without those of columns that are gone."""
    flat = lists.flatten().dictionary_encode()
    names = dict(zip(projection.before, labels_of(projection), strict=True))
    labels = [names.get(name) for name in flat.dictionary.to_pylist()]
    lengths = pc.fill_null(pc.list_value_length(lists), 0).to_numpy(zero_copy_only=False)
    offsets = pa.array(np.concatenate([[0], np.cumsum(lengths)]).astype(np.int32))
    return _named(pa.ListArray.from_arrays(offsets, flat.indices), labels) if labels else _none_unchanged(len(lists))


# What is rescued of old rows stands beside what is rescued of new ones.


def with_old_texts(rescued: pa.Array, old: pa.Array, name: str) -> pa.Array:
    """Put the rescued texts of old rows, JSON or NULL, to those of the rows, under the name of the column."""
    if old.null_count == len(old):
        return rescued
    texts = zip(rescued.to_pylist(), old.to_pylist(), strict=True)
    return pa.array([text if more is None else _with_old(text, more, name) for text, more in texts], pa.string())


def _with_old(text: str | None, old: str, name: str) -> str:
    values = {} if text is None else json.loads(text)
    return rescued_json({**values, name: json.loads(old)})


def without_old_texts(rescued: pa.Array, name: str) -> tuple[pa.Array, pa.Array]:
    """Take apart what `with_old_texts` has put together."""
    if rescued.null_count == len(rescued):
        return rescued, rescued
    news: list[str | None] = []
    olds: list[str | None] = []
    for text in rescued.to_pylist():
        values = {} if text is None else json.loads(text)
        old = values.pop(name, None)
        news.append(rescued_json(values) if values else None)
        olds.append(None if old is None else rescued_json(old))
    return pa.array(news, pa.string()), pa.array(olds, pa.string())


# Rows that are in the table already.


@dataclass(frozen=True, slots=True)
class OldLogRows:
    """What becomes of rows of a change log whose columns change in a way that rewrites the table.

    Attributes:
        before, unchanged: where these columns stand; None where the table has no old rows.
        name: of the column with old rows.
    """

    task: LogTask
    unchanged: int
    before: int | None

    def project(
        self, batch: pa.RecordBatch, rescued: pa.Array, projection: Projection
    ) -> tuple[dict[int, pa.Array], pa.Array, pa.Array]:
        """Give the new values of those columns by their places, and the rescued texts of the rows and of old rows."""
        found = {self.unchanged: _renamed(contiguous(batch.column(self.unchanged)), projection)}
        if self.before is None or self.task.before is None:
            return found, rescued, pa.nulls(len(rescued), pa.string())
        rescued, old_texts = without_old_texts(contiguous(rescued), self.task.before)
        old = contiguous(batch.column(self.before))
        fields = {field.name: part for field, part in zip(old.type, old.flatten(), strict=True)}
        columns, old_texts = _projected([fields[name] for name in projection.before], old_texts, projection)
        kind = self.task.old_row
        cast = [_as(array, field.type) for array, field in zip(columns, kind, strict=True)]
        found[self.before] = pa.StructArray.from_arrays(cast, fields=list(kind), mask=old.is_null())
        return found, rescued, old_texts


__all__ = ["LogTask", "OldLogRows", "log_batches", "old_row_type", "staged_changes", "with_old_texts"]
