"""Fold a table's events: within a file to fewer events, then across all files to the rows to merge."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Final

import numpy as np
import pyarrow as pa

from walreplay.errors import CaptureError
from walreplay.sink.assembly import assembled, bases_of, batch_of, choose
from walreplay.sink.events import (
    ADD,
    PARTITIONS_REMEDY,
    REMOVE,
    Events,
    Identity,
    Marks,
    Mode,
    bucket_of,
    concat,
    image_hashes,
    interleave,
    key_hashes,
    narrow,
)
from walreplay.sink.fold import (
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
from walreplay.sink.identity import contiguous, hash_rows, rescued_of
from walreplay.sink.images import count_images, settle, unmatched
from walreplay.sink.slots import Hashes
from walreplay.sink.version_fold import TRANSIENT

if TYPE_CHECKING:
    from numpy.typing import NDArray

TIMESTAMP: Final = pa.timestamp("us", "UTC")

_OUTPUT_ROWS: Final = 1 << 16


def fold_events(
    events: Events, identity: Identity, names: Sequence[str], table: str | None = None, *, buckets: int = 1
) -> Events:
    """Fold the events of a part of the stream to fewer events with the same effect.

    The result is a few events for each key of the part: all `MOVE`s, and one for each run of a key's events between
    them.  If old rows are sent whole, what is left of the part's first and last transaction is kept too, because these
    may continue in other parts.

    Args:
        table: the table's name, for errors.
        buckets: the number of buckets.  If the order of events does not matter, they are sorted by their keys' buckets,
            so that they can be divided without a copy.

    Raises:
        CaptureError: the key is not unique.
    """
    if identity.mode is Mode.APPEND or events.rows == 0:
        return events
    if identity.mode is Mode.MULTISET:
        at, net, needed = _count_images(events, identity)
        folded = events.take(at)
        folded.action, folded.expected = net, needed
        return folded
    if (events.action >= REMOVE).any():
        return _fold_whole(events, identity, names, table)
    hashes = key_hashes(events, identity, names)
    result, tracked = _fold(events, hashes, identity, table, between_moves=events.has_moves)
    if buckets > 1 and not events.has_moves:
        # A key that is only deleted is taken from its base's event.
        result = result.take(np.argsort(bucket_of(hashes[0][result.content], buckets), kind="stable"))
    gone, content = result.row < 0, result.content
    action = np.where(gone, DELETE, np.where(result.reset == 1, INSERT, UPDATE))
    moves = events.action[content] == MOVE
    action[moves] = MOVE
    masks = {number: ((result.source[:, t] < 0) & ~gone).astype(np.uint8) for t, number in enumerate(tracked)}
    folded = assembled(events, content, result.source, result.row >= 0, tracked, names)
    folded = replace(folded, action=action, expected=result.expected, unchanged=_without_empty(masks))
    if not events.has_moves:
        return folded
    # A folded run of events may stand anywhere between the run's first and last event.
    return folded.take(np.argsort(content, kind="stable"))


def _count_images(events: Events, identity: Identity) -> tuple[NDArray[np.int32], NDArray[np.int64], NDArray[np.int64]]:
    """Count the rows of a multiset's images (`count_images`)."""
    lsn = contiguous(events.lsn).to_numpy(zero_copy_only=False)
    return count_images(events.action, events.expected, lsn, image_hashes(events, identity))


def settled(
    events: Events,
    identity: Identity,
    names: Sequence[str],
    table: str | None = None,
    *,
    keep: bool = False,
) -> Events:
    """Turn added and removed rows (`REMOVE`, `ADD`) into what their transactions do to their keys.

    Call it for events of whole transactions.  If a table's columns change, call it separately for the events before and
    after, because an image is only comparable with one of the same columns.

    Args:
        keep: rows that come and go within a transaction are kept: their events become `TRANSIENT`.

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
    if result.several.any():
        raise not_unique(table, int(result.several.sum()), identity)
    some = (result.row >= 0) | (result.base >= 0)
    row, base = result.row[some], result.base[some]
    content = np.where(row >= 0, row, base)
    ended = rows.take(content)
    partial = np.zeros(len(content), np.bool_)
    for mask in ended.unchanged.values():
        partial |= mask == 1
    # Values that the final row leaves unchanged are not those of the row that it replaces, so it is an insert.
    action = np.where(row < 0, DELETE, np.where((base >= 0) & ~partial, UPDATE, INSERT))
    expected = np.where(base >= 0, EXPECTED, CLAIMED).astype(np.uint8)
    ended = replace(ended, action=action, expected=expected, image=None)
    stays = ~whole
    action = events.action
    if keep:
        # The added rows that are not there at the end.
        stays = stays | (action == ADD)
        stays[rows_at[row[row >= 0]]] = False
        action = np.where(whole, TRANSIENT, action)
    elif events.marks is not None and len(rows_at) < len(whole_at):
        ended.marks = _as_inserted(ended.marks, hashes[0][content], events.take(whole_at), identity, names)
    others = np.nonzero(stays)[0]
    if not len(others):
        return ended.take(np.argsort(rows_at[content], kind="stable"))
    remaining = replace(events, action=action, image=None).take(others)
    return interleave([(remaining, others), (ended, rows_at[content])])


def _as_inserted(
    marks: Marks | None, keys: NDArray[np.uint64], whole: Events, identity: Identity, names: Sequence[str]
) -> Marks | None:
    """Say of rows that were inserted, and then changed in the same transaction, that they were inserted."""
    assert marks is not None
    assert whole.marks is not None
    inserted = whole.take(np.nonzero((whole.action == ADD) & (whole.marks.operation == 0))[0])
    first, _ = _by_transaction(key_hashes(inserted, identity, names), inserted.lsn)
    return replace(marks, operation=np.where(np.isin(keys, first), 0, marks.operation).astype(np.uint8))


def _by_transaction(hashes: Hashes, lsn: pa.Array) -> Hashes:
    """Give hashes that differ between transactions."""
    salt = contiguous(lsn).to_numpy(zero_copy_only=False).astype(np.uint64)
    return hashes[0] ^ (salt * np.uint64(0x9E3779B97F4A7C15)), hashes[1] + salt * np.uint64(0xD6E8FEB86659FD93)


def _left(events: Events, at: NDArray[np.int64]) -> NDArray[np.int64]:
    """Give the `REMOVE` and `ADD` that their transactions do not cancel themselves."""
    assert events.image is not None
    image = _by_transaction((events.image[0][at], events.image[1][at]), events.lsn.take(pa.array(at)))
    return at[unmatched(events.action[at] == ADD, image)]


def _fold_whole(events: Events, identity: Identity, names: Sequence[str], table: str | None) -> Events:
    """Fold events with whole old rows: the first and the last transaction by image, all others by key.

    The first and the last one may be parts of transactions.
    """
    whole = events.action >= REMOVE
    lsn = contiguous(events.lsn).to_numpy(zero_copy_only=False)
    # Runs of events of one transaction and one kind of action.
    stretch = np.concatenate([[0], np.cumsum((lsn[1:] != lsn[:-1]) | (whole[1:] != whole[:-1]))])
    first, last = stretch == 0, stretch == stretch[-1]
    inner = np.nonzero(~(whole & (first | last)))[0]
    parts: list[Events] = []
    for edge in (first, last & ~first):
        at = np.nonzero(whole & edge)[0]
        parts.append(_bare(events.take(_left(events, at)), identity, names))
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
    """Make the error for a key that tells rows not apart.

    Args:
        keys: how many of its values have several rows at one time.
    """
    if identity.claims:
        return CaptureError(
            "the replica identity of the table's partitions is not unique in the whole table: "
            f"{keys:,} of its values have several rows at one time",
            table=table,
            remedy=PARTITIONS_REMEDY,
        )
    return CaptureError(
        f"the configured key is not unique: {keys:,} of its values have several rows at one time",
        table=table,
        remedy="Configure keys that are unique in the source, or none, which counts equal rows; if the publication "
        "leaves deletes or updates out, name them in skipped_operations",
    )


def _fold(
    events: Events, hashes: Hashes, identity: Identity, table: str | None, *, between_moves: bool = False
) -> tuple[Folded, list[int]]:
    """Fold keyed events by their keys' hashes; give the result, and the numbers of the tracked columns."""
    tracked = sorted(events.unchanged)
    unchanged = np.zeros((events.rows, len(tracked)), np.uint8)
    for t, number in enumerate(tracked):
        unchanged[:, t] = events.unchanged[number]
    old_hashes = None
    if events.old_key is not None:
        old_hashes = hash_rows(identity.compared(events.old_key, identity.key), events.rows, events.old_rescued)
    action = events.action.astype(np.uint8)
    if between_moves:
        assert old_hashes is not None
        folded = fold_between_moves(action, events.expected, hashes, old_hashes, unchanged)
    else:
        folded = fold_keys(action, events.expected, hashes, old_hashes, unchanged)
    if folded.conflicts:
        raise not_unique(table, folded.conflicts, identity)
    return folded, tracked


def _without_empty(masks: dict[int, NDArray[np.uint8]]) -> dict[int, NDArray[np.uint8]]:
    return {number: mask for number, mask in masks.items() if mask.any()}


def merge_schema(types: Sequence[pa.DataType], identity: Identity, tracked: Sequence[int], *, moves: bool) -> pa.Schema:
    """Give the columns of the rows to merge.

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
    """Fold all events of some row identities; give the rows to merge (`merge_schema`), some at a time.

    Args:
        tracked: the numbers of the columns that have unchanged values anywhere in the run.
        moves: key changes have to be followed somewhere in the run.
        table: the table's name, for errors.

    Raises:
        CaptureError: the key is not unique.
    """
    schema = merge_schema([narrow(column.type) for column in events.columns], identity, tracked, moves=moves)
    if identity.mode is Mode.APPEND:
        for start in range(0, events.rows, _OUTPUT_ROWS):
            rows = events.take(np.arange(start, min(start + _OUTPUT_ROWS, events.rows)))
            yield batch_of([*rows.columns, rows.lsn, rows.ts, rows.rescued, _unknown(rows)], schema)
        return
    if identity.mode is Mode.MULTISET:
        at, net, needed = _count_images(events, identity)
        for start in range(0, len(at), _OUTPUT_ROWS):
            part = slice(start, start + _OUTPUT_ROWS)
            rows = events.take(at[part])
            arrays = [*rows.columns, rows.lsn, rows.ts, rows.rescued, _unknown(rows)]
            yield batch_of([*arrays, pa.array(net[part]), pa.array(needed[part])], schema)
        return
    events = settled(events, identity, names, table)
    if events.rows == 0:
        return
    folded, here = _fold(events, key_hashes(events, identity, names), identity, table)
    for start in range(0, len(folded.row), _OUTPUT_ROWS):
        some = folded.take(slice(start, start + _OUTPUT_ROWS))
        yield batch_of(_keyed_arrays(events, identity, names, some, here, tracked, moves=moves), schema)


def _unknown(rows: Events) -> pa.Array:
    unknown = np.zeros(rows.rows, np.bool_)
    for mask in rows.unchanged.values():
        unknown |= mask == 1
    return pa.array(unknown)


def _keyed_arrays(
    events: Events,
    identity: Identity,
    names: Sequence[str],
    folded: Folded,
    here: list[int],
    tracked: Sequence[int],
    *,
    moves: bool,
) -> list[pa.Array]:
    gone, content = folded.row < 0, folded.content
    rows = assembled(events, content, folded.source, ~gone, here, names)
    if events.old_key is not None:
        # For a base that is only deleted, the key may be known only as the old key of an event.
        by_old = gone & (folded.base_is_old == 1)
        if by_old.any():
            for k, number in enumerate(identity.key):
                rows.columns[number] = choose(by_old, events.old_key[k].take(pa.array(content)), rows.columns[number])
    unknown = (folded.source == UNKNOWN).any(axis=1) & ~gone
    arrays = [*rows.columns, rows.lsn, rows.ts, rows.rescued, pa.array(unknown), pa.array(gone)]
    arrays += [pa.array(folded.expected == EXPECTED), pa.array(folded.expected == CLAIMED)]
    for number in tracked:
        keep = np.zeros(len(content), np.bool_)
        if number in here:
            keep = (folded.source[:, here.index(number)] == KEEP) & ~gone
        arrays.append(pa.array(keep))
    if not moves:
        return arrays
    bases = bases_of(events, identity, names, folded.base, folded.base_is_old == 1)
    return [*arrays, pa.array(folded.base >= 0), *bases]
