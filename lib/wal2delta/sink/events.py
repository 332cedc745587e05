"""What a fold takes in: a table's row changes as events, in commit order, and what comes out of it.

`Events` is made per file (`events_of`), folded there (`fold_events`), parted by key (`split`), carried to the task
that folds the key's events of all files, and turned into rows to merge (`rows_to_merge`).  Columns go by number:
names are the source's and may be anything.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import Enum
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from wal2delta.decode.batches import COMMIT_LSN, COMMIT_TS, OP, ROW, ChangeBatch
from wal2delta.errors import CaptureError
from wal2delta.sink.fold import DELETE, INSERT, KEEP, MOVE, UPDATE, Folded, fold_images, fold_keys
from wal2delta.sink.identity import contiguous, hash_rows

if TYPE_CHECKING:
    from numpy.typing import NDArray

TIMESTAMP: Final = pa.timestamp("us", "UTC")


class Mode(str, Enum):
    """How a table's rows are told apart."""

    KEYED = "keyed"
    MULTISET = "multiset"
    """Replica identity full without a key: equal rows are counted."""
    APPEND = "append"
    """Nothing tells rows apart: they can only be inserted."""


@dataclass(frozen=True, slots=True)
class Identity:
    """A table's row identity: the mode, and the numbers of the key columns."""

    mode: Mode
    key: tuple[int, ...] = ()


@dataclass(slots=True)
class Events:
    """Row changes of one table, in commit order.

    Attributes:
        columns: the table's columns, by number.
        lsn, ts: commit LSN and commit time of each.
        rescued: JSON of the values that the columns cannot hold, or NULL.
        action: `INSERT`, `UPDATE`, `DELETE` or `MOVE`; in a multiset the rows that come (+n) or go (-n).
        expected: the key should exist before the event.
        unchanged: for each column (by number) that has any: which events do not bring its value.
        old_key, old_rescued: where there are `MOVE`s: the key columns before.
    """

    columns: list[pa.Array]
    lsn: pa.Array
    ts: pa.Array
    rescued: pa.Array
    action: NDArray[np.int64]
    expected: NDArray[np.uint8]
    unchanged: dict[int, NDArray[np.uint8]]
    old_key: list[pa.Array] | None = None
    old_rescued: pa.Array | None = None

    @property
    def rows(self) -> int:
        """How many there are."""
        return len(self.action)

    @property
    def has_moves(self) -> bool:
        """Whether a key's change has to be followed."""
        return self.old_key is not None

    def take(self, at: NDArray[np.intp]) -> Events:
        """Give some of the events, in another order perhaps."""
        index = pa.array(at)
        return Events(
            columns=[column.take(index) for column in self.columns],
            lsn=self.lsn.take(index),
            ts=self.ts.take(index),
            rescued=self.rescued.take(index),
            action=self.action[at],
            expected=self.expected[at],
            unchanged={number: mask[at] for number, mask in self.unchanged.items()},
            old_key=None if self.old_key is None else [column.take(index) for column in self.old_key],
            old_rescued=None if self.old_rescued is None else self.old_rescued.take(index),
        )


def events_of(batch: ChangeBatch, identity: Identity) -> Events:
    """Make events of decoded changes without truncates, which the plan has.

    A key change whose new row is known as a whole is the old key's delete and the new one's insert, which need
    not meet; one that leaves values unchanged has to be followed (`MOVE`).

    Raises:
        CaptureError: for an update or delete where nothing tells rows apart.
    """
    ops = batch.data.column(OP)
    kind = pc.index_in(ops, pa.array(["c", "u", "d"])).to_numpy().astype(np.int64)
    columns = batch.data.columns[5:]
    rows = batch.data.num_rows
    rescued = batch.rescued if batch.rescued is not None else pa.nulls(rows, pa.string())
    numbers = {column.name: number for number, column in enumerate(batch.relation.columns)}
    unchanged = {
        numbers[name]: mask.to_numpy(zero_copy_only=False).astype(np.uint8) for name, mask in batch.unchanged.items()
    }
    events = Events(
        columns=list(columns),
        lsn=batch.data.column(COMMIT_LSN),
        ts=batch.data.column(COMMIT_TS),
        rescued=rescued,
        action=kind,
        expected=(kind != INSERT).astype(np.uint8),
        unchanged=unchanged,
    )
    if identity.mode is Mode.MULTISET:
        events = _as_images(events, batch)
    elif identity.mode is Mode.APPEND:
        if ((kind == UPDATE) | (kind == DELETE)).any():
            raise CaptureError(
                "the table has updates or deletes, but no key tells its rows apart",
                table=batch.relation.qualified_name,
                remedy="Name its key in the configuration: objects: - table: {source_schema, source_table, keys}",
            )
    else:
        _check_key(events, batch, identity)
        if batch.before is not None:
            events = _with_key_changes(events, batch, identity)
    return events


def _check_key(events: Events, batch: ChangeBatch, identity: Identity) -> None:
    """Refuse changes that do not say which row they are about."""
    relation = batch.relation
    for number in identity.key:
        column = relation.columns[number]
        # Only under replica identity full do old rows have columns that are not flagged.
        hidden = relation.replica_identity != "f" and not column.key and (events.action != INSERT).any()
        if hidden or number in events.unchanged:
            raise CaptureError(
                "updates or deletes do not bring the key column's "
                + ("old value: it is not in the replica identity" if hidden else "unchanged TOAST value"),
                table=f"{relation.qualified_name}.{column.name}",
                remedy="Name other keys in the configuration, or set the source table's REPLICA IDENTITY to FULL "
                "and apply what is captured from then on",
            )


def _interleave(parts: Sequence[tuple[Events, NDArray[np.int64]]]) -> Events:
    """Join events by their positions."""
    order = np.argsort(np.concatenate([position for _, position in parts]), kind="stable")
    return concat([events for events, _ in parts]).take(order)


def _as_images(events: Events, batch: ChangeBatch) -> Events:
    """Rows that come (+1) and rows that go (-1)."""
    kind = events.action
    position = np.arange(events.rows) * 2 + 1
    count = np.where(kind == DELETE, -1, 1)
    news = replace(events, action=count, unchanged={})
    updates = np.nonzero(kind == UPDATE)[0]
    if not len(updates):
        return news
    before = batch.before
    if before is None or before.num_rows != len(updates):
        raise CaptureError(
            "an update does not bring its old row, though the table's replica identity is full",
            table=batch.relation.qualified_name,
            remedy="Name the table's key in the configuration: objects: - table: {…, keys}",
        )
    index = pa.array(updates)
    goes = Events(
        columns=list(before.columns[1:]),
        lsn=events.lsn.take(index),
        ts=events.ts.take(index),
        rescued=batch.before_rescued if batch.before_rescued is not None else pa.nulls(len(updates), pa.string()),
        action=np.full(len(updates), -1, np.int64),
        expected=np.ones(len(updates), np.uint8),
        unchanged={},
    )
    return _interleave([(news, position), (goes, updates * 2)])


def _key_rescued(rescued: pa.Array, names: Sequence[str]) -> pa.Array | None:
    """Give the rescued texts of the key's columns alone."""
    if rescued.null_count == len(rescued):
        return None
    texts: list[str | None] = []
    for text in rescued.to_pylist():
        values = {} if text is None else json.loads(text)
        key = {name: values[name] for name in names if name in values}
        texts.append(json.dumps(key, ensure_ascii=False) if key else None)
    return pa.array(texts, pa.string())


def _with_key_changes(events: Events, batch: ChangeBatch, identity: Identity) -> Events:
    """Part the updates that change the key from those that were merely sent with their old row."""
    before = batch.before
    assert before is not None
    at = before.column(ROW).to_numpy()
    names = [batch.relation.columns[number].name for number in identity.key]
    old_key = [before.columns[1 + number] for number in identity.key]
    before_rescued = batch.before_rescued
    old_rescued = None if before_rescued is None else _key_rescued(before_rescued, names)
    new = events.take(at)
    new_key = [new.columns[number] for number in identity.key]
    old_hash = hash_rows(old_key, len(at), old_rescued)
    new_hash = hash_rows(new_key, len(at), _key_rescued(new.rescued, names))
    changed = (old_hash[0] != new_hash[0]) | (old_hash[1] != new_hash[1])
    if not changed.any():
        return events
    partial = np.zeros(len(at), np.bool_)
    for mask in new.unchanged.values():
        partial |= mask.astype(np.bool_)
    action = events.action.copy()
    action[at[changed & ~partial]] = INSERT
    action[at[changed & partial]] = MOVE
    # A row that takes a key is not expected to find it there.
    expected = events.expected.copy()
    expected[at[changed]] = 0
    result = replace(events, action=action, expected=expected)
    if (changed & partial).any():
        moved = changed & partial
        index = np.full(events.rows, -1, np.int64)
        index[at[moved]] = np.nonzero(moved)[0]
        where = pa.array(index, mask=index < 0)
        result.old_key = [column.take(where) for column in old_key]
        texts = old_rescued if old_rescued is not None else pa.nulls(len(at), pa.string())
        result.old_rescued = texts.take(where)
    gone = np.nonzero(changed & ~partial)[0]
    if not len(gone):
        return result
    deletes = events.take(at[gone])
    index = pa.array(gone)
    columns = [pa.nulls(len(gone), column.type) for column in deletes.columns]
    for number, column in zip(identity.key, old_key, strict=True):
        columns[number] = column.take(index)
    deletes = replace(
        deletes,
        columns=columns,
        rescued=pa.nulls(len(gone), pa.string()) if old_rescued is None else old_rescued.take(index),
        action=np.full(len(gone), DELETE, np.int64),
        expected=np.ones(len(gone), np.uint8),
        unchanged={},
    )
    return _interleave([(result, np.arange(events.rows) * 2 + 1), (deletes, at[gone] * 2)])


def concat(parts: Sequence[Events]) -> Events:
    """Put events one behind the other."""
    if len(parts) == 1:
        return parts[0]

    def join(arrays: list[Any]) -> pa.Array:
        return pa.concat_arrays([contiguous(array) for array in arrays])

    first = parts[0]
    numbers = sorted({number for part in parts for number in part.unchanged})
    none = [np.zeros(part.rows, np.uint8) for part in parts]
    old_key = old_rescued = None
    template = next((part.old_key for part in parts if part.old_key is not None), None)
    if template is not None:
        old_key = [
            join([part.old_key[k] if part.old_key is not None else pa.nulls(part.rows, column.type) for part in parts])
            for k, column in enumerate(template)
        ]
        old_rescued = join(
            [part.old_rescued if part.old_rescued is not None else pa.nulls(part.rows, pa.string()) for part in parts]
        )
    return Events(
        columns=[join([part.columns[n] for part in parts]) for n in range(len(first.columns))],
        lsn=join([part.lsn for part in parts]),
        ts=join([part.ts for part in parts]),
        rescued=join([part.rescued for part in parts]),
        action=np.concatenate([part.action for part in parts]),
        expected=np.concatenate([part.expected for part in parts]),
        unchanged={
            number: np.concatenate([part.unchanged.get(number, zeros) for part, zeros in zip(parts, none, strict=True)])
            for number in numbers
        },
        old_key=old_key,
        old_rescued=old_rescued,
    )


def key_hashes(
    events: Events, identity: Identity, names: Sequence[str]
) -> tuple[NDArray[np.uint64], NDArray[np.uint64]]:
    """Give the hashes of the events' row identities: the key, or in a multiset the whole row."""
    if identity.mode is Mode.KEYED:
        key_names = [names[number] for number in identity.key]
        rescued = _key_rescued(events.rescued, key_names)
        return hash_rows([events.columns[number] for number in identity.key], events.rows, rescued)
    return hash_rows(events.columns, events.rows, events.rescued)


def fold_events(events: Events, identity: Identity, names: Sequence[str]) -> Events:
    """Fold a file's events to fewer that mean the same to the fold behind it.

    Events with key changes to be followed are given back as they are: their order matters.
    """
    if identity.mode is Mode.APPEND or events.has_moves:
        return events
    hashes = key_hashes(events, identity, names)
    if identity.mode is Mode.MULTISET:
        last, net = fold_images(events.action, hashes)
        folded = events.take(last)
        folded.action = net
        return folded
    result, tracked = _fold(events, hashes, None)
    gone = result.row < 0
    content = np.where(gone, result.base, result.row)
    action = np.where(gone, DELETE, np.where(result.reset == 1, INSERT, UPDATE))
    folded = _assemble(events, content, result, tracked, names)
    folded.action = action
    folded.expected = result.expected
    folded.unchanged = {
        number: ((result.source[:, t] < 0) & ~gone).astype(np.uint8) for t, number in enumerate(tracked)
    }
    folded.unchanged = {number: mask for number, mask in folded.unchanged.items() if mask.any()}
    return folded


def _fold(
    events: Events,
    hashes: tuple[NDArray[np.uint64], NDArray[np.uint64]],
    old_hashes: tuple[NDArray[np.uint64], NDArray[np.uint64]] | None,
) -> tuple[Folded, list[int]]:
    tracked = sorted(events.unchanged)
    unchanged = np.zeros((events.rows, len(tracked)), np.uint8)
    for t, number in enumerate(tracked):
        unchanged[:, t] = events.unchanged[number]
    folded = fold_keys(events.action.astype(np.uint8), events.expected, hashes, old_hashes, unchanged)
    return folded, tracked


def _assemble(
    events: Events, content: NDArray[np.int64], folded: Folded, tracked: list[int], names: Sequence[str]
) -> Events:
    """Take each row from its event, and its tracked columns from theirs."""
    rows = events.take(content)
    for t, number in enumerate(tracked):
        source = folded.source[:, t]
        live = folded.row >= 0
        if (source[live] != content[live]).any():
            rows.columns[number] = events.columns[number].take(pa.array(source, mask=source < 0))
    if tracked and events.rescued.null_count < events.rows:
        rows.rescued = _assemble_rescued(events, content, folded, tracked, names)
    return rows


def _assemble_rescued(
    events: Events, content: NDArray[np.int64], folded: Folded, tracked: list[int], names: Sequence[str]
) -> pa.Array:
    """Let rescued values go along with the columns that they were rescued from."""
    texts = events.rescued.to_pylist()
    result: list[str | None] = []
    for i, at in enumerate(content):
        values = json.loads(texts[at]) if texts[at] is not None else {}
        for t, number in enumerate(tracked):
            source, name = folded.source[i, t], names[number]
            if source == at or folded.row[i] < 0:
                continue
            values.pop(name, None)
            origin = texts[source] if source >= 0 else None
            if origin is not None and name in (other := json.loads(origin)):
                values[name] = other[name]
        result.append(json.dumps(values, ensure_ascii=False) if values else None)
    return pa.array(result, pa.string())


def split(events: Events, identity: Identity, names: Sequence[str], buckets: int) -> list[tuple[int, Events]]:
    """Part events by row identity, so that all events of one row come to one task."""
    if buckets == 1 or identity.mode is Mode.APPEND or events.has_moves or events.rows == 0:
        return [(0, events)]
    bucket = (key_hashes(events, identity, names)[0] % np.uint64(buckets)).astype(np.int64)
    order = np.argsort(bucket, kind="stable")
    numbers, starts = np.unique(bucket[order], return_index=True)
    ends = [*starts[1:].tolist(), len(order)]
    return [
        (int(number), events.take(order[start:end]))
        for number, start, end in zip(numbers.tolist(), starts.tolist(), ends, strict=True)
    ]


def merge_schema(types: Sequence[pa.DataType], identity: Identity, tracked: Sequence[int], *, moves: bool) -> pa.Schema:
    """Give the columns of the rows to merge.

    ``c0`` … are the table's columns, ``lsn``, ``ts`` and ``rescued`` its metadata.  Keyed tables have ``deleted``,
    ``expected`` (see `Folded`), ``k<n>`` for each tracked column (true: the target's value stays), and where keys
    have moved ``matches`` (false: a new row, whatever the target holds) and the base's key, ``b0`` … and
    ``base_rescued``.  Multisets have ``net``.
    """
    fields = [pa.field(f"c{number}", kind) for number, kind in enumerate(types)]
    fields += [pa.field("lsn", pa.int64()), pa.field("ts", TIMESTAMP), pa.field("rescued", pa.string())]
    if identity.mode is Mode.MULTISET:
        fields.append(pa.field("net", pa.int64()))
    if identity.mode is Mode.KEYED:
        fields += [pa.field("deleted", pa.bool_()), pa.field("expected", pa.bool_())]
        fields += [pa.field(f"k{number}", pa.bool_()) for number in tracked]
        if moves:
            fields.append(pa.field("matches", pa.bool_()))
            fields += [pa.field(f"b{k}", types[number]) for k, number in enumerate(identity.key)]
            fields.append(pa.field("base_rescued", pa.string()))
    return pa.schema(fields)


def rows_to_merge(
    events: Events,
    identity: Identity,
    names: Sequence[str],
    tracked: Sequence[int],
    *,
    moves: bool,
) -> pa.RecordBatch:
    """Fold all events of some row identities; see `merge_schema` for what comes out.

    Args:
        tracked: the columns that have unchanged values anywhere in the run.
        moves: key changes have to be followed somewhere in the run.
    """
    schema = merge_schema([column.type for column in events.columns], identity, tracked, moves=moves)
    if identity.mode is Mode.APPEND:
        arrays = [*events.columns, events.lsn, events.ts, events.rescued]
        return pa.RecordBatch.from_arrays(arrays, schema=schema)
    hashes = key_hashes(events, identity, names)
    if identity.mode is Mode.MULTISET:
        last, net = fold_images(events.action, hashes)
        rows = events.take(last)
        arrays = [*rows.columns, rows.lsn, rows.ts, rows.rescued, pa.array(net)]
        return pa.RecordBatch.from_arrays(arrays, schema=schema)
    old_hashes = None
    if events.old_key is not None:
        old_hashes = hash_rows(events.old_key, events.rows, events.old_rescued)
    folded, here = _fold(events, hashes, old_hashes)
    gone = folded.row < 0
    content = np.where(gone, folded.base, folded.row)
    rows = _assemble(events, content, folded, here, names)
    if events.old_key is not None:
        # A base that is only deleted may be known by an old key alone.
        by_old = gone & (folded.base_is_old == 1)
        if by_old.any():
            for k, number in enumerate(identity.key):
                rows.columns[number] = _choose(by_old, events.old_key[k].take(pa.array(content)), rows.columns[number])
    arrays = [*rows.columns, rows.lsn, rows.ts, rows.rescued, pa.array(gone), pa.array(folded.expected == 1)]
    for number in tracked:
        keep = np.zeros(len(content), np.bool_)
        if number in here:
            keep = (folded.source[:, here.index(number)] == KEEP) & ~gone
        arrays.append(pa.array(keep))
    if moves:
        arrays += _bases(events, identity, names, folded, gone, rows)
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def _bases(
    events: Events,
    identity: Identity,
    names: Sequence[str],
    folded: Folded,
    gone: NDArray[np.bool_],
    rows: Events,
) -> list[pa.Array]:
    """Give ``matches``, the base's key and its rescued texts."""
    has_base = folded.base >= 0
    index = pa.array(folded.base, mask=~has_base)
    by_old = folded.base_is_old == 1
    key_names = [names[number] for number in identity.key]
    texts = _key_rescued(events.rescued, key_names) or pa.nulls(events.rows, pa.string())
    result = [pa.array(has_base)]
    for k, number in enumerate(identity.key):
        column = events.columns[number].take(index)
        if events.old_key is not None:
            column = _choose(by_old, events.old_key[k].take(index), column)
        result.append(column)
    rescued = texts.take(index)
    if events.old_rescued is not None:
        rescued = _choose(by_old, events.old_rescued.take(index), rescued)
    return [*result, rescued]


def _choose(mask: NDArray[np.bool_], yes: pa.Array, no: pa.Array) -> pa.Array:
    return pc.if_else(pa.array(mask), contiguous(yes), contiguous(no))


# How events travel between tasks: one Arrow IPC stream, columns by number, so that no name can collide.
_META: Final = ("lsn", "ts", "rescued", "action", "expected")


def to_ipc(events: Events) -> pa.Buffer:
    """Write events as a compressed Arrow IPC stream."""
    arrays = [*events.columns, events.lsn, events.ts, events.rescued]
    arrays += [pa.array(events.action), pa.array(events.expected)]
    names = [f"c{n}" for n in range(len(events.columns))] + list(_META)
    for number, mask in sorted(events.unchanged.items()):
        arrays.append(pa.array(mask))
        names.append(f"u{number}")
    if events.old_key is not None:
        arrays += [*events.old_key, events.old_rescued]
        names += [f"o{k}" for k in range(len(events.old_key))] + ["old_rescued"]
    batch = pa.RecordBatch.from_arrays([contiguous(array) for array in arrays], names=names)
    sink = pa.BufferOutputStream()
    options = pa.ipc.IpcWriteOptions(compression="lz4")
    with pa.ipc.new_stream(sink, batch.schema, options=options) as writer:
        writer.write_batch(batch)
    return sink.getvalue()


def from_ipc(data: pa.Buffer | bytes) -> Events:
    """Read what `to_ipc` wrote."""
    with pa.ipc.open_stream(data) as reader:
        batch = reader.read_next_batch()
    columns, unchanged, old_key = [], {}, []
    for name, array in zip(batch.schema.names, batch.columns, strict=True):
        if name in _META or name == "old_rescued":
            continue
        number = int(name[1:])
        if name[0] == "c":
            columns.append(array)
        elif name[0] == "u":
            unchanged[number] = array.to_numpy()
        else:
            old_key.append(array)
    return Events(
        columns=columns,
        lsn=batch.column("lsn"),
        ts=batch.column("ts"),
        rescued=batch.column("rescued"),
        action=batch.column("action").to_numpy(),
        expected=batch.column("expected").to_numpy(),
        unchanged=unchanged,
        old_key=old_key or None,
        old_rescued=batch.column("old_rescued") if old_key else None,
    )
