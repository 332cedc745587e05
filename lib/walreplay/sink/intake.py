"""Turn decoded row changes into a table's events."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from walreplay.decode.change_batch import ChangeBatch
from walreplay.decode.rescued import read_rescued
from walreplay.errors import CaptureError
from walreplay.sink.events import (
    ADD,
    PARTITIONS_REMEDY,
    REMOVE,
    Events,
    Identity,
    Marks,
    Mode,
    image_hashes,
    interleave,
)
from walreplay.sink.fold import CLAIMED, DELETE, EXPECTED, INSERT, MOVE, UPDATE
from walreplay.sink.identity import hash_rows, rescued_of

if TYPE_CHECKING:
    from numpy.typing import NDArray


def events_of(batch: ChangeBatch, identity: Identity, *, follow: bool = False, marks: Marks | None = None) -> Events:
    """Make events of decoded changes.  Truncates are not among them: the plan has those.

    If old rows are sent whole, an update is an image that is removed and one that is added.  Otherwise a key change
    whose new row is complete becomes a delete of the old key and an insert of the new one, which need not meet.  A key
    change that leaves values unchanged has to be followed (`MOVE`).

    Args:
        follow: every key change is followed: a delete means that the row is gone.
        marks: of each change, for a history.

    Raises:
        CaptureError: an update or delete lacks what identifies its row, or nothing identifies the table's rows.
    """
    kind = pc.index_in(batch.ops, pa.array(["c", "u", "d"])).to_numpy().astype(np.int64)
    rows = batch.data.num_rows
    numbers = {column.name: number for number, column in enumerate(batch.relation.columns)}
    unchanged = {
        numbers[name]: mask.to_numpy(zero_copy_only=False).astype(np.uint8) for name, mask in batch.unchanged.items()
    }
    events = Events(
        columns=batch.columns,
        lsn=batch.commit_lsns,
        ts=batch.commit_times,
        rescued=batch.rescued if batch.rescued is not None else pa.nulls(rows, pa.string()),
        action=kind,
        expected=np.where(kind != INSERT, EXPECTED, _taken(identity)).astype(np.uint8),
        unchanged=unchanged,
        marks=marks,
    )
    if identity.mode is Mode.MULTISET:
        events = _as_images(events, batch, goes=-1, comes=1)
        # Counts are added up.
        events.expected = events.expected.astype(np.int64)
        return events
    if identity.mode is Mode.APPEND:
        if ((kind == UPDATE) | (kind == DELETE)).any():
            raise _not_told_apart(batch, identity)
        return events
    _check_key(events, batch, identity)
    if sends_whole_rows(batch, identity):
        events = _as_images(events, batch, goes=REMOVE, comes=ADD)
        events.image = image_hashes(events, identity)
        return events
    return events if batch.before is None else _with_key_changes(events, batch, identity, follow=follow)


def sends_whole_rows(batch: ChangeBatch, identity: Identity) -> bool:
    """Say whether the image of an old row decides which of two rows with one key is meant."""
    return batch.relation.replica_identity == "f" and not identity.evicts


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
        if relation.replica_identity != "f" and column.key:
            values = batch.columns[number]
            if values.null_count:
                gone = pa.array(events.action == DELETE)
                _check_sent(values.filter(gone), batch.rescued, gone, batch, number)
            if batch.before is not None:
                _check_sent(batch.before_columns[number], batch.before_rescued, None, batch, number)


def _check_sent(
    values: pa.Array, rescued: pa.Array | None, chosen: pa.Array | None, batch: ChangeBatch, number: int
) -> None:
    """Refuse old rows that lack a column of the replica identity: such a column is never NULL."""
    if not values.null_count:
        return
    name = batch.relation.columns[number].name
    if rescued is not None:
        texts = rescued if chosen is None else rescued.filter(chosen)
        at = np.nonzero(values.is_null().to_numpy(zero_copy_only=False))[0]
        if all(name in found for found in read_rescued(texts.take(pa.array(at)))):
            return
    raise CaptureError(
        "updates or deletes bring NULL for a column of the replica identity, which is never NULL",
        table=f"{batch.relation.qualified_name}.{name}",
        remedy=f"So does a partition whose replica identity is not its root's. {PARTITIONS_REMEDY}",
    )


def _not_told_apart(batch: ChangeBatch, identity: Identity) -> CaptureError:
    if identity.obstacle is not None:
        return CaptureError(
            "the table has updates or deletes, but its partitions send different columns of old rows "
            f"({identity.obstacle})",
            table=batch.relation.qualified_name,
            remedy=PARTITIONS_REMEDY,
        )
    return CaptureError(
        "the table has updates or deletes, but no key tells its rows apart",
        table=batch.relation.qualified_name,
        remedy="Name its key in the configuration: objects: - table: {source_schema, source_table, keys}",
    )


def _taken(identity: Identity) -> int:
    """Say whether a key that a row takes is expected to be free."""
    return CLAIMED if identity.claims and not identity.evicts else 0


def _as_images(events: Events, batch: ChangeBatch, *, goes: int, comes: int) -> Events:
    """Divide changes into added and removed rows, with these actions."""
    kind = events.action
    position = np.arange(events.rows) * 2 + 1
    news = replace(
        events,
        action=np.where(kind == DELETE, goes, comes),
        expected=np.where(kind == DELETE, EXPECTED, 0).astype(np.uint8),
    )
    updates = np.nonzero(kind == UPDATE)[0]
    if not len(updates):
        return news
    before = batch.before
    if before is None or before.num_rows != len(updates):
        raise CaptureError(
            "an update does not bring its old row, though the table's replica identity is full",
            table=batch.relation.qualified_name,
            remedy=f"So does a partition whose replica identity is not its root's. {PARTITIONS_REMEDY}",
        )
    index = pa.array(updates)
    olds = Events(
        columns=batch.before_columns,
        lsn=events.lsn.take(index),
        ts=events.ts.take(index),
        rescued=batch.before_rescued if batch.before_rescued is not None else pa.nulls(len(updates), pa.string()),
        action=np.full(len(updates), goes, np.int64),
        expected=np.full(len(updates), EXPECTED, np.uint8),
        unchanged={},
        marks=None if events.marks is None else events.marks.at(updates),
    )
    return interleave([(news, position), (olds, updates * 2)])


def _with_key_changes(events: Events, batch: ChangeBatch, identity: Identity, *, follow: bool) -> Events:
    """Separate updates that change the key from those that were only sent with their old row."""
    at = batch.before_rows.to_numpy()
    names = [batch.relation.columns[number].name for number in identity.key]
    before = batch.before_columns
    old_key = [before[number] for number in identity.key]
    old_rescued = None if batch.before_rescued is None else rescued_of(batch.before_rescued, names)
    new = events.take(at)
    new_key = [new.columns[number] for number in identity.key]
    old_hash = hash_rows(identity.compared(old_key, identity.key), len(at), old_rescued)
    new_hash = hash_rows(identity.compared(new_key, identity.key), len(at), rescued_of(new.rescued, names))
    changed = (old_hash[0] != new_hash[0]) | (old_hash[1] != new_hash[1])
    if not changed.any():
        return events
    partial = np.full(len(at), follow)
    for mask in new.unchanged.values():
        partial |= mask.astype(np.bool_)
    action = events.action.copy()
    action[at[changed & ~partial]] = INSERT
    action[at[changed & partial]] = MOVE
    # A row that takes a key is not expected to find it there.
    expected = events.expected.copy()
    expected[at[changed]] = _taken(identity)
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
    deletes = _deletes(events.take(at[gone]), identity, [column.take(pa.array(gone)) for column in old_key])
    if old_rescued is not None:
        deletes.rescued = old_rescued.take(pa.array(gone))
    return interleave([(result, np.arange(events.rows) * 2 + 1), (deletes, at[gone] * 2)])


def _deletes(events: Events, identity: Identity, key: list[pa.Array]) -> Events:
    """Give deletes of other keys at the events' positions."""
    columns: list[pa.Array] = [pa.nulls(events.rows, column.type) for column in events.columns]
    for number, column in zip(identity.key, key, strict=True):
        columns[number] = column
    return replace(
        events,
        columns=columns,
        rescued=pa.nulls(events.rows, pa.string()),
        action=np.full(events.rows, DELETE, np.int64),
        expected=_all(events.rows, EXPECTED),
        unchanged={},
    )


def _all(rows: int, value: int) -> NDArray[np.uint8]:
    return np.full(rows, value, np.uint8)
