"""Fold a table's events: within a file to fewer events, then across all files to the rows to merge.

`assembled` builds rows from events: each from its own, and the values that it leaves unchanged from others.

An event belongs to the bucket of its key.  If a row takes another key and keeps values that were not sent, the two keys
are linked: their events have to be folded together, in one bucket.  Links are only 16 bytes each, so all of them can be
brought to one place to find which keys belong together:

1. `split` divides a file's events by key, `links_of` returns its links.
2. `components` makes `Routes` of all files' links; `Routes.split` divides them as `split` does the events.
3. `route` divides each bucket's events again, by the routes of that bucket.  Events whose keys have no link stay where
   they are; a component comes together in the bucket of one of its keys.

Keys are identified by half of their hash.  If two keys share it, they merely come to the same bucket.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from walreplay.decode.change_batch import TIMESTAMP, read_rescued, rescued_array, rescued_of
from walreplay.decode.compile.kernel import helper, kernel
from walreplay.decode.compile.parameters import given, out
from walreplay.errors import CaptureError
from walreplay.fold.batches import (
    batch_from_ipc,
    batch_of,
    batch_to_ipc,
    choose,
    contiguous,
    named,
    narrow,
    numbered,
    output_parts,
)
from walreplay.fold.events import (
    ADD,
    REMOVE,
    Events,
    Identity,
    Marks,
    Mode,
    bucket_of,
    concat,
    image_hashes,
    interleave,
    key_events,
    key_hashes,
    old_key_hashes,
)
from walreplay.fold.identity import TABLE, Hashes, count_images, follow_images, new_table, settle, slot_of
from walreplay.fold.reducing import (
    CLAIMED,
    DELETE,
    EXPECTED,
    INSERT,
    KEEP,
    MOVE,
    UNKNOWN,
    UPDATE,
    Folded,
    fold_between_moves,
    fold_keys,
)
from walreplay.types.families import filled

if TYPE_CHECKING:
    from numpy.typing import NDArray


def assembled(
    events: Events,
    content: NDArray[np.int32],
    source: NDArray[np.int32],
    live: NDArray[np.bool_],
    tracked: Sequence[int],
    names: Sequence[str],
) -> Events:
    """Take each row from its event, and its tracked columns from theirs.

    Args:
        content: the event that each row is taken from.
        source: rows x tracked columns: the event that the value is taken from; below 0: NULL.
        live: the rows whose values matter.
    """
    rows = events.take(content)
    for index, number in enumerate(tracked):
        value_events = source[:, index]
        if (value_events[live] != content[live]).any():  # most columns have all of their values in the row's own event
            rows.columns[number] = events.columns[number].take(pa.array(value_events, mask=value_events < 0))
    if tracked and events.rescued.null_count < events.rows:
        rows.rescued = _rescued(events, content, source, live, tracked, names)
    return rows


def _rescued(
    events: Events,
    content: NDArray[np.int32],
    source: NDArray[np.int32],
    live: NDArray[np.bool_],
    tracked: Sequence[int],
    names: Sequence[str],
) -> pa.Array:
    """Move rescued values along with the columns that they belong to."""
    valid = events.rescued.is_valid().to_numpy(zero_copy_only=False)
    # Rows that have no rescued values, and get none, are skipped.
    concerned = valid[content]
    for index in range(len(tracked)):
        concerned |= (source[:, index] >= 0) & valid[np.maximum(source[:, index], 0)]
    concerned &= live
    result = contiguous(events.rescued).take(pa.array(content))
    if not concerned.any():
        return result
    rows_concerned = np.nonzero(concerned)[0]
    rows = read_rescued(result.take(pa.array(rows_concerned)))  # JSON is parsed for these rows only
    for row, values in zip(rows_concerned.tolist(), rows, strict=True):
        for index, number in enumerate(tracked):
            event, name = int(source[row, index]), names[number]
            if event == int(content[row]):
                continue
            values.pop(name, None)  # the text belonged to the value that is replaced
            (other,) = read_rescued(events.rescued[event : event + 1]) if event >= 0 else ({},)
            if name in other:  # else the value's column holds it
                values[name] = other[name]
    return filled(result, rows_concerned, rescued_array(rows))


def bases_of(
    events: Events, identity: Identity, names: Sequence[str], base: NDArray[np.int32], is_old: NDArray[np.bool_]
) -> dict[str, Any]:
    """Return the keys of bases (``b0`` …), and their rescued texts.

    Args:
        base: the event that each key is taken from; below 0: NULL.
        is_old: the key is that event's old key.
    """
    index = pa.array(base, mask=base < 0)  # Arrow returns NULL where an index is NULL
    keys = []
    for k, number in enumerate(identity.key):
        column = events.columns[number].take(index)
        if events.old_key is not None:
            column = choose(is_old, events.old_key[k].take(index), column)  # a MOVE has the base as its old key
        keys.append(column)
    rescued = rescued_of(events.rescued.take(index), [names[number] for number in identity.key])
    if rescued is None:
        rescued = pa.nulls(len(index), pa.string())
    if events.old_rescued is not None:
        rescued = choose(is_old, events.old_rescued.take(index), rescued)
    return numbered("b", keys) | {"base_rescued": rescued}


def fold_events(
    events: Events, identity: Identity, names: Sequence[str], table: str | None = None, *, buckets: int = 1
) -> Events:
    """Fold the events of a part of the stream to fewer events with the same effect.

    The result is a few events for each key of the part: all `MOVE`s, and one for each run of a key's events between
    them.  If old rows are sent whole, what is left of the part's first and last transaction is kept too, because these
    may continue in other parts.

    Args:
        buckets: the number of buckets.  If the order of events does not matter, they are sorted by their keys' buckets,
            so that they can be divided without a copy.

    Raises:
        CaptureError: the key is not unique.
    """
    if identity.mode is Mode.APPEND or events.rows == 0:  # nothing identifies rows, so none can be reduced
        return events
    if identity.mode is Mode.MULTISET:
        kept, net, needed = _count_images(events, identity)
        folded = events.take(kept)
        folded.action, folded.expected = net, needed  # in a multiset both are counts
        return folded
    if (events.action >= REMOVE).any():
        return _fold_whole(events, identity, names, table)
    hashes = key_hashes(events, identity, names)
    result, tracked = _fold(events, hashes, identity, table, between_moves=events.has_moves)
    if buckets > 1 and not events.has_moves:
        # A key that is only deleted is taken from its base's event.
        result = result.take(np.argsort(bucket_of(hashes[0][result.content], buckets), kind="stable"))
    gone, content = result.row < 0, result.content
    action = np.where(gone, DELETE, np.where(result.reset, INSERT, UPDATE))
    moves = events.action[content] == MOVE
    action[moves] = MOVE  # its other key may be folded in another task
    masks = {number: ((result.source[:, t] < 0) & ~gone).astype(np.uint8) for t, number in enumerate(tracked)}
    folded = assembled(events, content, result.source, result.row >= 0, tracked, names)
    folded = replace(folded, action=action, expected=result.expected, unchanged=_without_empty(masks))
    if not events.has_moves:
        return folded
    # A folded run of events may stand anywhere between the run's first and last event.
    return folded.take(np.argsort(content, kind="stable"))


def _count_images(events: Events, identity: Identity) -> tuple[NDArray[np.int32], NDArray[np.int64], NDArray[np.int64]]:
    """Count the rows of a multiset's images (`count_images`)."""
    return count_images(events.action, events.expected, events.lsns, image_hashes(events))


def settled(events: Events, identity: Identity, names: Sequence[str], table: str | None = None) -> Events:
    """Turn added and removed rows (`REMOVE`, `ADD`) into what their transactions do to their keys.

    Call it for events of whole transactions.  If a table's columns change, call it separately for the events before and
    after, because an image is only comparable with one of the same columns.

    Returns:
        events with the other actions only: `UPDATE` if a row replaces the key's row, `INSERT` (`CLAIMED`) if it is new,
            `DELETE` if the key's row is gone.

    Raises:
        CaptureError: the key is not unique.
    """
    if identity.mode is not Mode.KEYED:
        return events
    whole = events.action >= REMOVE
    if not whole.any():
        return events if events.image is None else replace(events, image=None)
    whole_at = np.nonzero(whole)[0]
    rows_at = _left(events, whole_at)
    rows = events.take(rows_at)
    hashes = _by_transaction(key_hashes(rows, identity, names), rows.lsn)
    result = settle(rows.action == ADD, hashes)
    if result.several.any():  # two rows with one key when a transaction ends: the key is not unique
        raise not_unique(table, int(result.several.sum()), identity)
    some = (result.row >= 0) | (result.base >= 0)  # keys whose rows came and went leave nothing
    row, base = result.row[some], result.base[some]
    content = np.where(row >= 0, row, base)
    ended = rows.take(content)
    # Values that the final row leaves unchanged are not those of the row that it replaces, so it is an insert.
    action = np.where(row < 0, DELETE, np.where((base >= 0) & ~ended.unknown, UPDATE, INSERT))
    expected = np.where(base >= 0, EXPECTED, CLAIMED).astype(np.uint8)
    ended = replace(ended, action=action, expected=expected, image=None)
    if events.marks is not None and len(rows_at) < len(whole_at):
        ended.marks = _as_inserted(ended.marks, hashes[0][content], events.take(whole_at), identity, names)
    others = np.nonzero(~whole)[0]
    if not len(others):
        return ended.take(np.argsort(rows_at[content], kind="stable"))
    remaining = replace(events, image=None).take(others)
    return interleave([(remaining, others), (ended, rows_at[content])])


def _as_inserted(
    marks: Marks | None, keys: NDArray[np.uint64], whole: Events, identity: Identity, names: Sequence[str]
) -> Marks | None:
    """Mark rows that were inserted, and then changed in the same transaction, as inserted."""
    assert marks is not None
    assert whole.marks is not None
    inserted = whole.take(np.nonzero((whole.action == ADD) & (whole.marks.operation == 0))[0])
    first, _ = _by_transaction(key_hashes(inserted, identity, names), inserted.lsn)
    return replace(marks, operation=np.where(np.isin(keys, first), 0, marks.operation).astype(np.uint8))


def _by_transaction(hashes: Hashes, lsn: pa.Array) -> Hashes:
    """Return hashes that differ between transactions."""
    salt = contiguous(lsn).to_numpy(zero_copy_only=False).astype(np.uint64)  # a commit LSN names one transaction
    return hashes[0] ^ (salt * np.uint64(0x9E3779B97F4A7C15)), hashes[1] + salt * np.uint64(0xD6E8FEB86659FD93)


def _left(events: Events, indices: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the `REMOVE` and `ADD` that their transactions do not cancel themselves."""
    assert events.image is not None
    image = _by_transaction((events.image[0][indices], events.image[1][indices]), events.lsn.take(pa.array(indices)))
    return indices[follow_images(events.action[indices] == ADD, image) < 0]


def _fold_whole(events: Events, identity: Identity, names: Sequence[str], table: str | None) -> Events:
    """Fold events with whole old rows: the first and the last transaction by image, all others by key.

    The first and the last one may be parts of transactions.
    """
    whole = events.action >= REMOVE
    lsn = events.lsns
    # Runs of events of one transaction and one kind of action.
    stretch = np.concatenate([[0], np.cumsum((lsn[1:] != lsn[:-1]) | (whole[1:] != whole[:-1]))])
    first, last = stretch == 0, stretch == stretch[-1]
    inner = np.nonzero(~(whole & (first | last)))[0]  # other transactions lie in this part as a whole
    parts: list[Events] = []
    for edge in (first, last & ~first):
        edge_events = np.nonzero(whole & edge)[0]
        # Their rows meet those of other parts by image.
        parts.append(_bare(events.take(_left(events, edge_events)), identity, names))
    if len(inner):
        ended = settled(events.take(inner), identity, names, table)
        parts.insert(1, fold_events(ended, identity, names, table))
    # Empty parts stay, because `concat` takes the columns' types from its parts.
    return concat(parts)


def _bare(events: Events, identity: Identity, names: Sequence[str]) -> Events:
    """Replace all columns of removed rows except the key by NULL; the hashes of their images are already known."""
    goes = events.action == REMOVE
    if not goes.any():
        return events
    index = pa.array(np.arange(events.rows), mask=goes)
    key_texts = rescued_of(events.rescued, [names[number] for number in identity.key])
    if key_texts is None:
        key_texts = pa.nulls(events.rows, pa.string())
    return replace(
        events,
        columns=[
            column if number in identity.key else column.take(index) for number, column in enumerate(events.columns)
        ],
        rescued=choose(goes, key_texts, events.rescued),
    )


def not_unique(table: str | None, keys: int, identity: Identity) -> CaptureError:
    """Make the error for a key that tells rows not apart."""
    if identity.claims is not None:
        problem = f"{identity.claims.problem}: {keys:,} of its values have several rows at one time"
        return CaptureError(problem, table=table, remedy=identity.claims.remedy)
    return CaptureError(
        f"the configured key is not unique: {keys:,} of its values have several rows at one time",
        table=table,
        remedy="Configure keys that are unique in the source, or none, which counts equal rows; if the publication "
        "leaves deletes or updates out, name them in skipped_operations",
    )


def _fold(
    events: Events, hashes: Hashes, identity: Identity, table: str | None, *, between_moves: bool = False
) -> tuple[Folded, list[int]]:
    """Fold keyed events by their keys' hashes; return the result, and the numbers of the tracked columns."""
    fold = fold_between_moves if between_moves else fold_keys
    folded = fold(key_events(events, hashes))
    if folded.conflicts:
        raise not_unique(table, folded.conflicts, identity)  # two rows had the key at one time
    return folded, sorted(events.unchanged)


def _without_empty(masks: dict[int, NDArray[np.uint8]]) -> dict[int, NDArray[np.uint8]]:
    return {number: mask for number, mask in masks.items() if mask.any()}


def merge_schema(types: Sequence[pa.DataType], identity: Identity, tracked: Sequence[int], *, moves: bool) -> pa.Schema:
    """Return the columns of the rows to merge.

    All tables:

    - ``c0`` …: the table's columns.
    - ``lsn``, ``ts``, ``rescued``: its metadata.
    - ``unknown``: a value of the row is not known, and NULL stands for it.

    Keyed tables:

    - ``deleted``: the row is deleted.
    - ``expected``: the table should have the base, because the first change of its key was no insert.
    - ``claimed``: the table should not have the base, because whole old rows prove that the key was free.
    - ``k<n>`` for each tracked column: the target's value stays.
    - If keys have moved: ``matches`` (false for a new row, whatever the target has), and the base's key in ``b0`` …
      and ``base_rescued``.

    Multisets:

    - ``needed``: how many copies the table should have before, and loses: the newest ones.  If it has fewer, the result
      is as if they had been there.
    - ``net``: how many copies there are more afterwards: ``net + needed`` are added.

    An image has a row for each commit LSN of added copies.  The first one alone has ``needed``.
    """
    fields = [pa.field(f"c{number}", kind) for number, kind in enumerate(types)]
    fields += [pa.field("lsn", pa.int64()), pa.field("ts", TIMESTAMP), pa.field("rescued", pa.string())]
    fields.append(pa.field("unknown", pa.bool_()))
    if identity.mode is Mode.MULTISET:
        fields += [pa.field("net", pa.int64()), pa.field("needed", pa.int64())]
    if identity.mode is Mode.KEYED:
        fields += [pa.field(name, pa.bool_()) for name in ("deleted", "expected", "claimed")]
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
    table: str | None = None,
) -> Iterator[pa.RecordBatch]:
    """Fold all events of some row identities; yield the rows to merge (`merge_schema`), some at a time.

    Args:
        tracked: the numbers of the columns that have unchanged values anywhere in the run.
        moves: key changes have to be followed somewhere in the run.

    Raises:
        CaptureError: the key is not unique.
    """
    schema = merge_schema([narrow(column.type) for column in events.columns], identity, tracked, moves=moves)
    if identity.mode is Mode.APPEND:
        for part in output_parts(np.arange(events.rows)):
            yield batch_of(_row_columns(events.take(part)), schema)
        return
    if identity.mode is Mode.MULTISET:
        kept, net, needed = _count_images(events, identity)
        for part in output_parts(np.arange(len(kept))):
            columns = _row_columns(events.take(kept[part]))
            yield batch_of(columns | {"net": net[part], "needed": needed[part]}, schema)
        return
    events = settled(events, identity, names, table)
    if events.rows == 0:
        return
    folded, partial = _fold(events, key_hashes(events, identity, names), identity, table)
    for part in output_parts(np.arange(len(folded.row))):
        yield batch_of(_keyed_columns(events, identity, names, folded.take(part), partial, moves=moves), schema)


def _row_columns(rows: Events) -> dict[str, Any]:
    columns = numbered("c", rows.columns)
    return columns | {"lsn": rows.lsn, "ts": rows.ts, "rescued": rows.rescued, "unknown": rows.unknown}


def _keyed_columns(
    events: Events, identity: Identity, names: Sequence[str], folded: Folded, partial: Sequence[int], *, moves: bool
) -> dict[str, Any]:
    gone, content = folded.row < 0, folded.content
    rows = assembled(events, content, folded.source, ~gone, partial, names)
    if events.old_key is not None:
        # For a base that is only deleted, the key may be known only as the old key of an event.
        by_old = gone & folded.base_is_old
        if by_old.any():
            for k, number in enumerate(identity.key):
                rows.columns[number] = choose(by_old, events.old_key[k].take(pa.array(content)), rows.columns[number])
    columns = _row_columns(rows) | {
        "unknown": (folded.source == UNKNOWN).any(axis=1) & ~gone,
        "deleted": gone,
        "expected": folded.expected == EXPECTED,
        "claimed": folded.expected == CLAIMED,
    }
    columns |= {f"k{number}": (folded.source[:, t] == KEEP) & ~gone for t, number in enumerate(partial)}
    if not moves:
        return columns
    bases = bases_of(events, identity, names, folded.base, folded.base_is_old)
    return columns | {"matches": folded.base >= 0} | bases


@dataclass(frozen=True, slots=True)
class Routes:
    """The component of each linked key; or, from `links_of`, pairs of linked keys in any order.

    Attributes:
        key: half hashes of the linked keys, sorted.
        to: for each key, the least key of its component; or the key that it is linked to.
    """

    key: NDArray[np.uint64]
    to: NDArray[np.uint64]

    def of(self, key: NDArray[np.uint64]) -> NDArray[np.uint64]:
        """Return the least key of each key's component; a key without links is its own."""
        if not len(self.key):  # no keys are linked
            return key
        index = np.minimum(np.searchsorted(self.key, key), len(self.key) - 1)
        return np.where(self.key[index] == key, self.to[index], key)

    def split(self, buckets: int) -> list[tuple[int, Routes]]:
        """Divide the routes into the buckets of their keys' events; return each bucket's number and routes."""
        bucket = bucket_of(self.key, buckets)
        order = np.argsort(bucket, kind="stable")
        key, to = self.key[order], self.to[order]
        return [(number, Routes(key[start:stop], to[start:stop])) for number, start, stop in _runs(bucket[order])]

    def to_ipc(self) -> pa.Buffer:
        """Write them as an Arrow IPC stream."""
        return batch_to_ipc(named({"key": self.key, "to": self.to}))

    @classmethod
    def from_ipc(cls, data: pa.Buffer | bytes) -> Routes:
        """Read what `to_ipc` wrote."""
        batch = batch_from_ipc(data)
        return cls(batch.column("key").to_numpy(), batch.column("to").to_numpy())


NO_ROUTES = Routes(np.zeros(0, np.uint64), np.zeros(0, np.uint64))


def links_of(events: Events, identity: Identity, names: Sequence[str]) -> Routes | None:
    """Return the pairs of keys that the events link; None if there are none."""
    old = old_key_hashes(events)  # only MOVEs link keys
    if old is None:
        return None
    moves = events.action == MOVE
    return Routes(key_hashes(events, identity, names)[0][moves], old[0][moves])


@helper
def _root(parent, s):  # type: ignore[no-untyped-def]
    while parent[s] != s:
        parent[s] = parent[parent[s]]  # halves the path, so later look-ups are short
        s = parent[s]
    return s


@kernel(given("uint64"), given("uint64"), given("uint64"), TABLE, out("int32"))
def _components(new_keys, old_keys, zero, table, parent):  # type: ignore[no-untyped-def]
    places, key, key_second = table  # half a hash is enough here: the other half is 0 in all of them
    used = 0
    for link in range(new_keys.shape[0]):
        new_slot = slot_of(new_keys, zero, link, places, key, key_second, used)
        if new_slot == used:
            parent[used] = used
            used += 1
        old_slot = slot_of(old_keys, zero, link, places, key, key_second, used)
        if old_slot == used:
            parent[used] = used
            used += 1
        new_slot = _root(parent, new_slot)
        old_slot = _root(parent, old_slot)
        # The least key stands for all, whatever the order of the links.
        if key[new_slot] < key[old_slot]:
            parent[old_slot] = new_slot
        else:
            parent[new_slot] = old_slot
    for slot in range(used):
        parent[slot] = _root(parent, slot)
    return used


def components(links: Sequence[Routes]) -> Routes:
    """Find the components of all links.  This takes about 80 bytes of memory for each link."""
    if not links:
        return NO_ROUTES
    new_keys, old_keys = (np.concatenate([getattr(part, name) for part in links]) for name in ("key", "to"))
    capacity = 2 * len(new_keys)  # each link may name two new keys
    table, parent = new_table(capacity), np.empty(capacity, np.int32)
    used = _components(new_keys, old_keys, np.zeros(len(new_keys), np.uint64), *table, parent)
    order = np.argsort(table.first[:used])
    return Routes(table.first[:used][order], table.first[parent[:used]][order])


def _runs(bucket: NDArray[np.uint16]) -> list[tuple[int, int, int]]:
    """Return the runs of equal buckets in sorted events: bucket, start and stop of each."""
    numbers, starts = np.unique(bucket, return_index=True)
    stops = np.append(starts[1:], len(bucket)) if len(starts) else starts
    return list(zip(numbers.tolist(), starts.tolist(), stops.tolist(), strict=True))


def split(
    events: Events, identity: Identity, names: Sequence[str], buckets: int, turn: int = 0
) -> list[tuple[int, Events]]:
    """Divide events by row identity, so that all events of one row come to one task.

    A `MOVE` goes to the bucket of its new key.  If there are any, the parts keep their events' positions.

    Args:
        turn: the number of this call.  Events of tables to which rows are only added go to the buckets in turn.

    Returns:
        number and events of each bucket that has any.
    """
    if buckets == 1 or events.rows == 0:
        return [(0, events)]
    if identity.mode is Mode.APPEND:
        return [(turn % buckets, events)]  # their rows meet no others, so any bucket does
    if events.has_moves:
        events = replace(events, position=np.arange(events.rows))  # `rejoin` restores the order by them
    return route(events, identity, names, NO_ROUTES, buckets)


def route(
    events: Events, identity: Identity, names: Sequence[str], routes: Routes, buckets: int
) -> list[tuple[int, Events]]:
    """Divide a bucket's events again, so that those of linked keys come together; see `split`."""
    bucket = bucket_of(routes.of(key_hashes(events, identity, names)[0]), buckets)
    if not (bucket[1:] >= bucket[:-1]).all():  # `fold_events` may have sorted them
        order = np.argsort(bucket, kind="stable")
        events, bucket = events.take(order), bucket[order]
    return [(number, _trimmed(events.slice(start, stop))) for number, start, stop in _runs(bucket)]


def _trimmed(events: Events) -> Events:
    """Leave out old keys of parts without a `MOVE`, and masks of columns without unchanged values."""
    if events.has_moves and not (events.action == MOVE).any():
        events = replace(events, old_key=None, old_rescued=None)
    return replace(events, unchanged=_without_empty(events.unchanged))
