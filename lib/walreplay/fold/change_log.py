"""A change log's rows: one for each row change, as it was sent; and the projection of older rows to new columns.

`project` turns rows of a relation version, or of the table before the run, into rows with the table's new columns:
columns are taken, converted, or filled with NULL, as `walreplay.evolution.shapes` says.  Rescued texts move with their
columns, and are tried again if the column's type has changed.

A decoding task stages what it has decoded as it is (`staged_changes`), and the task that writes the table's files
makes rows with the table's columns of it (`log_batches`).  Nothing is folded, and no row has to meet another.

- A row has the new values.  A delete has what was sent of its old row instead: its key, or all of it.
- ``before`` is what was sent of the old row.  Its fields are the table's columns, and change as those do.
- ``unchanged`` names the columns whose values were not sent because they have not changed (TOAST).  They are NULL.
- Rescued texts of ``before`` are in the rescued data under that column's name, in an object of their own.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from walreplay.decode.change_batch import (
    METADATA_COLUMNS,
    TIMESTAMP,
    ChangeBatch,
    read_rescued,
    rescued_array,
    rescued_json,
)
from walreplay.decode.masking import mask
from walreplay.errors import CaptureError
from walreplay.evolution.convert import convert
from walreplay.evolution.shapes import TEXT, ValueSource, conversions, converts
from walreplay.fold.batches import (
    OUTPUT_ROWS,
    batch_of,
    batch_to_ipc,
    batches_from_ipc,
    contiguous,
    fitted,
    join_arrays,
    named,
    numbered,
)
from walreplay.types.families import lengths_of, offsets_of

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from walreplay.fold.events import Events
    from walreplay.types.base import ColumnType


@dataclass(frozen=True, slots=True)
class Projection:
    """How rows get the columns of the table.

    Attributes:
        numbers: for each new column, the number of the old column with its values; None for NULL.
        chains: for each new column, the types that its values go through (`walreplay.evolution.shapes.conversions`).
        before: the old columns' names, under which `_rescued_data` has their texts.
        after: the new columns' names.
        rescues: the table has a column for rescued texts.
        fills: for each new column, the text that all rows have in it (`walreplay.evolution.shapes.ValueSource.fill`);
            empty if there is none for any.
    """

    numbers: tuple[int | None, ...]
    chains: tuple[tuple[ColumnType, ...], ...]
    before: tuple[str, ...]
    after: tuple[str, ...]
    rescues: bool = True
    fills: tuple[str | None, ...] = ()

    @classmethod
    def of(
        cls, sources: Sequence[ValueSource], before: Sequence[str], after: Sequence[str], *, rescues: bool = True
    ) -> Projection:
        """Make a projection from sources that name the old columns by number, or by name in ``before``."""
        places = {name: number for number, name in enumerate(before)}  # names are data, so columns go by number
        columns = [source.column for source in sources]
        numbers = tuple(places[column] if isinstance(column, str) else column for column in columns)
        chains, fills = tuple(source.chain for source in sources), tuple(source.fill for source in sources)
        is_filled = any(fill is not None for fill in fills)
        return cls(numbers, chains, tuple(before), tuple(after), rescues, fills if is_filled else ())

    @property
    def given(self) -> tuple[str | None, ...]:
        """What older rows are given in each column, as text; None for nothing."""
        return self.fills or (None,) * len(self.numbers)

    @property
    def is_identity(self) -> bool:
        """Whether nothing changes."""
        return (
            self.numbers == tuple(range(len(self.before)))
            and self.before == self.after
            and not any(map(converts, self.chains))
        )


def project_columns(
    columns: Sequence[pa.Array], rescued: pa.Array, rows: int, projection: Projection
) -> tuple[list[pa.Array], pa.Array]:
    """Return the new columns, and the rescued texts that belong to them (JSON, or NULL).

    Raises:
        CaptureError: a column's new type cannot hold a value, and the table has no column for rescued texts.
    """
    if projection.is_identity:
        return [contiguous(column) for column in columns], rescued
    texts = _texts(rescued)
    result, texts_by_column = [], dict[str, pa.Array]()
    each = zip(projection.numbers, projection.chains, projection.after, projection.given, strict=True)
    for number, chain, name, fill in each:
        if number is None and fill is None:  # the version does not have the column
            result.append(pa.nulls(rows, chain[-1].arrow))
            continue
        if number is None:
            column, old = filled_column(str(fill), chain, rows)
        else:
            old = _of_column(texts, projection.before[number])
            column = contiguous(columns[number])
            for change in conversions(chain):
                column, old = convert(column, old, change)
        result.append(column)
        if old is not None and old.null_count < rows:  # texts of values that the new type does not hold
            if not projection.rescues:
                raise CaptureError(
                    f"the column {name!r} has another type now, which does not hold all of its values, and the table "
                    "has no column for such",
                    remedy="Give rescued_data_column a name, and apply to a new target; or keep the "
                    "column's type by type_overrides",
                )
            texts_by_column[name] = old
    return result, _joined(texts_by_column, rows)


def filled_column(text: str, chain: Sequence[ColumnType], rows: int) -> tuple[pa.Array, pa.Array | None]:
    """Return a column with one value in all rows, whose chain begins with text, and the text if it cannot hold it."""
    column, left = convert(pa.array([text], pa.string()), None, chain)  # converted once, then repeated
    every = pa.array(np.zeros(rows, np.int64))
    return column.take(every), None if left is None else left.take(every)


def hashed(text: str, column_type: ColumnType, salt: bytes) -> str:
    """Return what a masked column has for a value, from its text."""
    column, left = filled_column(text, (TEXT, column_type), 1)
    return str(mask(column, column_type, left, salt)[0].as_py())


def project(events: Events, key: Sequence[int], projection: Projection, *, keyed: bool) -> Events:
    """Return events with the table's columns.

    Args:
        key: the numbers of the key's columns among the events' own, in the order of ``old_key``.
        keyed: the table has a key.  Then a change leaves columns that its version does not have unchanged; otherwise
            they are NULL.  A column that is added behind the change has in its row what all older rows are given.
    """
    if projection.is_identity:
        return events
    columns, rescued = project_columns(events.columns, events.rescued, events.rows, projection)
    untouched = np.zeros(0, np.uint8)
    if keyed and None in projection.numbers:  # without a key there is no row whose values could stay
        untouched = events.leaves_alone()
    unchanged = {}
    for number, (before, fill) in enumerate(zip(projection.numbers, projection.given, strict=True)):
        if before is None and fill is None and untouched.any():
            unchanged[number] = untouched
        elif before is not None and before in events.unchanged:
            unchanged[number] = events.unchanged[before]
    result = replace(events, columns=columns, rescued=rescued, unchanged=unchanged)
    if events.old_key is not None:
        chains = dict(zip(projection.numbers, projection.chains, strict=True))  # old and new keys have to compare
        old_names = tuple(projection.before[number] for number in key)
        names = dict(zip(projection.numbers, projection.after, strict=True))
        old = Projection(
            tuple(range(len(key))),
            tuple(chains[number] for number in key),
            old_names,
            tuple(names[number] for number in key),
            projection.rescues,
        )
        assert events.old_rescued is not None
        result.old_key, result.old_rescued = project_columns(events.old_key, events.old_rescued, events.rows, old)
    return result


def _texts(rescued: pa.Array) -> list[dict[str, str]] | None:
    """Parse the rescued texts of each row; None if no row has any."""
    return None if rescued.null_count == len(rescued) else read_rescued(rescued)  # the usual case: no JSON is parsed


def _of_column(texts: list[dict[str, str]] | None, name: str) -> pa.Array | None:
    if texts is None:
        return None
    column_texts = pa.array([values.get(name) for values in texts], pa.string())
    return None if column_texts.null_count == len(column_texts) else column_texts


def _joined(texts: dict[str, pa.Array], rows: int) -> pa.Array:
    if not texts:
        return pa.nulls(rows, pa.string())
    lists = {name: column.to_pylist() for name, column in texts.items()}
    return rescued_array(
        {name: column[row] for name, column in lists.items() if column[row] is not None} for row in range(rows)
    )


UNCHANGED: Final = pa.list_(pa.string())

OWN: Final = (
    ("op", pa.string()),
    ("lsn", pa.int64()),
    ("ts", TIMESTAMP),
    ("xid", pa.int64()),
    ("ordinal", pa.int64()),
    ("origin", pa.string()),
    ("file", pa.string()),
    ("offset", pa.int64()),
)
"""What a row has beside its values."""


def staged_changes(batch: ChangeBatch) -> pa.Buffer:
    """Write decoded changes as Arrow IPC streams: the rows, and behind them the old rows of updates if there are any.

    Args:
        batch: what the table takes of them, with their places.
    """
    assert batch.places is not None
    places = batch.places
    provenance = [*batch.data.columns[:METADATA_COLUMNS], places.origin, places.path, places.offset]
    columns = numbered("c", batch.columns)
    columns |= {name: column for (name, _), column in zip(OWN, provenance, strict=True)}
    if batch.rescued is not None:
        columns["rescued"] = batch.rescued
    if batch.unchanged:
        columns["unchanged"] = _numbers_of_unchanged(batch)
    if batch.before is None:
        return batch_to_ipc(named(columns))
    olds = numbered("c", batch.before_columns) | {"row": batch.before_rows}
    if batch.before_rescued is not None:
        olds["rescued"] = batch.before_rescued
    return batch_to_ipc(named(columns), named(olds))


def _numbers_of_unchanged(batch: ChangeBatch) -> pa.Array:
    """Return for each row the numbers of the columns that it leaves unchanged."""
    numbers = {column.name: number for number, column in enumerate(batch.relation.columns)}
    # Which of them comes first in a batch depends on the file's rows.
    names = sorted(batch.unchanged, key=numbers.__getitem__)
    column_numbers = np.array([numbers[name] for name in names], np.int32)
    masks = np.stack([batch.unchanged[name].to_numpy(zero_copy_only=False) for name in names], axis=1)
    return pa.ListArray.from_arrays(offsets_of(masks.sum(axis=1)), pa.array(column_numbers[np.nonzero(masks)[1]]))


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
        """The type of ``before``: its fields are the table's columns."""
        return pa.struct([pa.field(name, kind) for name, kind in zip(self.names, self.types, strict=True)])

    @property
    def schema(self) -> pa.Schema:
        """The rows' columns: ``c0`` and so on are the source's; ``unknown`` is for those who count such rows."""
        fields = [pa.field(f"c{number}", kind) for number, kind in enumerate(self.types)]
        fields += [pa.field(name, kind) for name, kind in OWN]
        if self.before is not None:
            fields.append(pa.field("before", self.old_row))
        fields += [pa.field("unchanged", UNCHANGED), pa.field("rescued", pa.string())]
        return pa.schema([*fields, pa.field("unknown", pa.bool_())])


def log_batches(data: pa.Buffer, task: LogTask, projection: Projection) -> Iterator[pa.RecordBatch]:
    """Yield staged changes with the table's columns, some rows at a time.

    Raises:
        CaptureError: see `project_columns`.
    """
    news, *olds = batches_from_ipc(data)  # a batch without updates, or without old rows sent, has no second stream
    rows, width = news.num_rows, len(projection.before)
    names = set(news.schema.names)
    values = [news.column(f"c{number}") for number in range(width)]
    rescued = news.column("rescued") if "rescued" in names else pa.nulls(rows, pa.string())
    columns, texts = project_columns(values, rescued, rows, projection)
    unchanged = _none_unchanged(rows)
    if "unchanged" in names:
        unchanged = _named(news.column("unchanged"), labels_of(projection))
    arrays = numbered("c", columns) | {name: news.column(name) for name, _ in OWN}
    if task.before is not None:
        deleted = np.nonzero(pc.equal(news.column("op"), "d").to_numpy(zero_copy_only=False))[0]
        old, old_texts = _old_rows(columns, texts, deleted, olds, task, projection)
        arrays["before"] = old
        texts = with_old_texts(texts, old_texts, task.before)
    whole = batch_of(arrays | {"unchanged": unchanged, "rescued": texts}, task.schema)
    for start in range(0, rows, OUTPUT_ROWS):
        yield whole.slice(start, OUTPUT_ROWS)


def _old_rows(
    columns: Sequence[pa.Array],
    texts: pa.Array,
    deleted: NDArray[np.int64],
    olds: Sequence[pa.RecordBatch],
    task: LogTask,
    projection: Projection,
) -> tuple[pa.Array, pa.Array]:
    """Return the old row of each change, NULL where none was sent, and the rescued texts of it.

    Args:
        columns, texts: the changes' own: a delete has its old row there.
        deleted: which changes are deletes.
        olds: the old rows of updates, if there are any.
    """
    rows = len(texts)
    index = np.full(rows, -1, np.int64)
    index[deleted] = deleted  # a delete's own columns are its old row
    sources, source_texts = [list(columns)], [texts]
    if olds:
        (old,) = olds
        values = [old.column(f"c{number}") for number in range(len(projection.before))]
        has_texts = "rescued" in old.schema.names
        rescued = old.column("rescued") if has_texts else pa.nulls(old.num_rows, pa.string())
        before, before_texts = project_columns(values, rescued, old.num_rows, projection)
        first = rows if len(deleted) else 0  # old rows of updates come behind the rows of deletes
        index[old.column("row").to_numpy()] = first + np.arange(old.num_rows)
        if len(deleted):
            sources, source_texts = [*sources, before], [*source_texts, before_texts]
        else:
            sources, source_texts = [before], [before_texts]
    old_places = pa.array(index, mask=index < 0)  # no old row was sent
    fields = [join_arrays([source[number] for source in sources]).take(old_places) for number in range(len(task.names))]
    struct = _rows_of(fields, task, pa.array(index < 0))
    return struct, join_arrays(source_texts).take(old_places)


def _rows_of(columns: Sequence[Any], task: LogTask, is_null: pa.Array) -> pa.StructArray:
    return pa.StructArray.from_arrays(fitted(columns, task.old_row), fields=list(task.old_row), mask=is_null)


# What is unchanged.


def labels_of(projection: Projection) -> list[str | None]:
    """Return the name in the table of each of the projected columns; None for those that it has no longer."""
    labels: list[str | None] = [None] * len(projection.before)
    for number, name in zip(projection.numbers, projection.after, strict=True):
        if number is not None:
            labels[number] = name
    return labels


def _none_unchanged(rows: int) -> pa.Array:
    return pa.ListArray.from_arrays(offsets_of(np.zeros(rows, np.int64)), pa.array([], pa.string()))


def _named(lists: pa.Array, labels: Sequence[str | None]) -> pa.Array:
    """Return lists of names in place of lists of numbers, without the numbers that have none."""
    numbers = lists.flatten().to_numpy(zero_copy_only=False)
    lengths = lengths_of(lists)
    if any(label is None for label in labels):
        kept = np.array([label is not None for label in labels])[numbers]  # the table has lost columns
        row_of = np.repeat(np.arange(len(lists)), lengths)
        lengths, numbers = np.bincount(row_of[kept], minlength=len(lists)), numbers[kept]
    return pa.ListArray.from_arrays(offsets_of(lengths), pa.array(labels, pa.string()).take(pa.array(numbers)))


def _renamed(lists: pa.Array, projection: Projection) -> pa.Array:
    """Return the names that columns have now in place of those they had, without those of columns that are gone."""
    flat = lists.flatten().dictionary_encode()  # few names in many rows: each is looked up once
    names = dict(zip(projection.before, labels_of(projection), strict=True))
    labels = [names.get(name) for name in flat.dictionary.to_pylist()]
    numbers = pa.ListArray.from_arrays(offsets_of(lengths_of(lists)), flat.indices)
    return _named(numbers, labels) if labels else _none_unchanged(len(lists))


# What is rescued of old rows stands beside what is rescued of new ones.


def with_old_texts(rescued: pa.Array, old: pa.Array, name: str) -> pa.Array:
    """Put the rescued texts of old rows, JSON or NULL, to those of the rows, under the name of the column."""
    if old.null_count == len(old):  # no old row has rescued texts
        return rescued
    texts = zip(rescued.to_pylist(), old.to_pylist(), strict=True)
    return pa.array([text if old_ is None else _with_old(text, old_, name) for text, old_ in texts], pa.string())


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
        old = values.pop(name, None)  # the texts of old rows are an object under this name
        news.append(rescued_json(values) if values else None)
        olds.append(None if old is None else rescued_json(old))
    return pa.array(news, pa.string()), pa.array(olds, pa.string())


# Rows that are in the table already.


@dataclass(frozen=True, slots=True)
class OldLogRows:
    """What becomes of rows of a change log whose columns change in a way that rewrites the table.

    Attributes:
        before, unchanged: where these columns stand; None where the table has no old rows.
    """

    task: LogTask
    unchanged: int
    before: int | None

    def project(
        self, batch: pa.RecordBatch, rescued: pa.Array, projection: Projection
    ) -> tuple[dict[int, pa.Array], pa.Array, pa.Array]:
        """Return the new values of those columns by their places, and the rescued texts of the rows and of old rows."""
        columns_by_place = {self.unchanged: _renamed(contiguous(batch.column(self.unchanged)), projection)}
        if self.before is None or self.task.before is None:
            return columns_by_place, rescued, pa.nulls(len(rescued), pa.string())
        rescued, old_texts = without_old_texts(contiguous(rescued), self.task.before)
        old = contiguous(batch.column(self.before))
        fields = {field.name: part for field, part in zip(old.type, old.flatten(), strict=True)}
        values = [fields[name] for name in projection.before]
        columns, old_texts = project_columns(values, old_texts, batch.num_rows, projection)
        columns_by_place[self.before] = _rows_of(columns, self.task, old.is_null())
        return columns_by_place, rescued, old_texts
