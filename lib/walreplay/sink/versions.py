"""Turn a table's events into versions of its rows: what a history says (SCD type 2).

Each row here either opens a version of a row, or closes one that the table had before the run (a *base*); so one MERGE
on the bases' keys applies them.  Versions that begin and end within the events come with both ends.  Where the events
are divided into runs makes no difference: what one run leaves open, the next one closes.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa

from walreplay.sink.assembly import assembled, bases_of, batch_of
from walreplay.sink.events import (
    ADD,
    OPERATIONS,
    REMOVE,
    Events,
    Identity,
    Mode,
    concat,
    image_hashes,
    key_hashes,
    narrow,
)
from walreplay.sink.fold import CLAIMED, DELETE, EXPECTED, KEEP, UNKNOWN
from walreplay.sink.identity import contiguous, hash_rows
from walreplay.sink.merge import TIMESTAMP, not_unique, settled
from walreplay.sink.version_fold import TRANSIENT, Followed, follow_images, follow_keys

if TYPE_CHECKING:
    from numpy.typing import NDArray

_OUTPUT_ROWS: Final = 1 << 16
_OPEN: Final = -1


@dataclass(frozen=True, slots=True)
class Emptied:
    """A table's truncates, in commit order; all arrays have one entry per truncate.

    Attributes:
        lsn: its commit LSN.
        ordinal: its place in its transaction.
        top: its time, see `Marks`.
    """

    lsn: NDArray[np.int64]
    ordinal: NDArray[np.int64]
    top: NDArray[np.int64]

    def before(self, events: Events) -> NDArray[np.int32]:
        """Count the truncates before each event.

        Events of different keys may come in any order: `routes.route` puts them together as they were divided.
        """
        lsn = _lsn(events)
        count, through = (np.searchsorted(self.lsn, lsn, side) for side in ("left", "right"))
        within = np.nonzero(count != through)[0]
        if len(within):
            # The event's transaction has truncates, before the event or behind it.
            is_event = np.arange(len(self.lsn) + len(within)) >= len(self.lsn)
            ordinal = np.concatenate([self.ordinal, _marks(events).ordinal[within]])
            order = np.lexsort((is_event, ordinal, np.concatenate([self.lsn, lsn[within]])))
            counted = np.empty(len(order), np.intp)
            counted[order] = np.cumsum(~is_event[order])
            count[within] = counted[len(self.lsn) :]
        return count.astype(np.int32)


NOTHING_EMPTIED: Final = Emptied(*(np.zeros(0, np.int64) for _ in range(3)))


def version_schema(types: Sequence[pa.DataType], identity: Identity, tracked: Sequence[int]) -> pa.Schema:
    """Give the columns of the rows that `version_rows` makes.

    All tables:

    - ``opens``: the row is a version.  Otherwise it closes a base, or does nothing.
    - ``c0`` …: the version's values; NULL if the row closes a base, except in a multiset: then it is the base's image.
    - ``start_lsn``, ``start_at``, ``op``, ``rescued``: the version's.
    - ``ordinal``: of the change that opens the version, or closes the base.
    - ``end_lsn``, ``end_at``: NULL if the version stays open.
    - ``unknown``: a value of the version is not known, and NULL stands for it.
    - ``closes``: the row closes a base, if there is one, at ``closes_lsn`` and ``closes_at``.
    - ``deleted``: what closes the base is a delete.
    - ``expected``: the table should have the base.  If ``closes`` is false, a truncate has taken it.
    - ``claimed``: the table should not have the base, because whole old rows prove that the key was free.

    Keyed tables:

    - ``b0`` … and ``base_rescued``: the base's key, where ``closes`` or some ``k<n>`` is true.
    - ``k<n>`` for each tracked column: the version's value is the base's.
    """
    fields = [pa.field(f"c{number}", kind) for number, kind in enumerate(types)]
    fields += [pa.field("start_lsn", pa.int64()), pa.field("start_at", TIMESTAMP)]
    fields += [pa.field("ordinal", pa.int64()), pa.field("op", pa.string()), pa.field("rescued", pa.string())]
    fields += [pa.field("end_lsn", pa.int64()), pa.field("end_at", TIMESTAMP)]
    fields += [pa.field(name, pa.bool_()) for name in ("opens", "closes")]
    fields += [pa.field("closes_lsn", pa.int64()), pa.field("closes_at", TIMESTAMP)]
    fields += [pa.field(name, pa.bool_()) for name in ("deleted", "expected", "claimed", "unknown")]
    if identity.mode is Mode.KEYED:
        fields += [pa.field(f"b{k}", types[number]) for k, number in enumerate(identity.key)]
        fields.append(pa.field("base_rescued", pa.string()))
        fields += [pa.field(f"k{number}", pa.bool_()) for number in tracked]
    return pa.schema(fields)


def settled_versions(
    events: Events, identity: Identity, names: Sequence[str], table: str | None, emptied: Emptied, *, keep: bool
) -> Events:
    """Turn added and removed rows into what their transactions do to their keys; see `merge.settled`.

    What a transaction does to a table before it truncates it is left out: nothing of it is there at its end.

    Args:
        keep: rows that come and go within a transaction are kept, as events of their own (`TRANSIENT`).
    """
    through = np.searchsorted(emptied.lsn, _lsn(events), side="right")
    doomed = (events.action >= REMOVE) & (emptied.before(events) < through)
    if identity.mode is not Mode.KEYED or not doomed.any():
        return settled(events, identity, names, table, keep=keep)
    # Inside of a transaction a key may have several rows, so these are not settled.
    rest = settled(events.take(np.nonzero(~doomed)[0]), identity, names, table, keep=keep)
    comes = events.take(np.nonzero(doomed & (events.action == ADD) & keep)[0])
    return concat([rest, replace(comes, action=np.full(comes.rows, TRANSIENT, np.int64), image=None)])


def version_rows(
    events: Events,
    emptied: Emptied,
    identity: Identity,
    names: Sequence[str],
    tracked: Sequence[int],
    *,
    keep: bool,
    table: str | None = None,
) -> Iterator[pa.RecordBatch]:
    """Fold all events of some row identities to rows of a history (`version_schema`), some at a time.

    The first truncate closes all bases that no row here closes: for that there are no rows.

    Args:
        events: with marks, and without `REMOVE` and `ADD`: see `settled_versions`.
        emptied: all of the table's truncates.
        tracked: the numbers of the columns that have unchanged values anywhere in the run.
        keep: a version that ends in the transaction that opens it is kept; otherwise a transaction leaves one version
            of a row at most.
        table: the table's name, for errors.

    Raises:
        CaptureError: the key is not unique.
    """
    if events.rows == 0:
        return
    schema = version_schema([narrow(column.type) for column in events.columns], identity, tracked)
    epoch = emptied.before(events)
    if identity.mode is Mode.KEYED:
        yield from _keyed(events, epoch, emptied, identity, names, tracked, schema, keep=keep, table=table)
        return
    if identity.mode is Mode.APPEND:
        end = np.full(events.rows, -1, np.int32)
    else:
        end = follow_images(events.action, epoch, image_hashes(events, identity))
    span = _Span.of(events, end, epoch, emptied)
    gone = events.action < 0 if identity.mode is Mode.MULTISET else np.zeros(events.rows, np.bool_)
    yield from _images_closed(events, np.nonzero(gone & (end < 0))[0], epoch, schema)
    for at in _parts(span.lasting(~gone, keep=keep)):
        rows = events.take(at)
        yield batch_of([*rows.columns, *_opened(rows, span, at, _marks(rows).operation), _unknown(rows)], schema)


@dataclass(frozen=True, slots=True)
class _Span:
    """Where each event's version ends, if it has one: commit LSN, `_OPEN` for never, and time."""

    start: NDArray[np.int64]
    lsn: NDArray[np.int64]
    top: NDArray[np.int64]

    @classmethod
    def of(cls, events: Events, end: NDArray[np.int32], epoch: NDArray[np.int32], emptied: Emptied) -> _Span:
        start, top = _lsn(events), _marks(events).top
        ended, at = end >= 0, np.maximum(end, 0)
        lsn, time = np.where(ended, start[at], _OPEN), np.where(ended, top[at], 0)
        taken = ~ended & (epoch < len(emptied.lsn))
        if taken.any():
            lsn[taken], time[taken] = emptied.lsn[epoch[taken]], emptied.top[epoch[taken]]
        return cls(start, lsn, time)

    def lasting(self, versions: NDArray[np.bool_], *, keep: bool) -> NDArray[np.intp]:
        """Give the events whose versions are to be written."""
        return np.nonzero(versions if keep else versions & (self.start != self.lsn))[0]


def _keyed(
    events: Events,
    epoch: NDArray[np.int32],
    emptied: Emptied,
    identity: Identity,
    names: Sequence[str],
    tracked: Sequence[int],
    schema: pa.Schema,
    *,
    keep: bool,
    table: str | None,
) -> Iterator[pa.RecordBatch]:
    here = sorted(events.unchanged)
    followed = _followed(events, epoch, identity, names, here)
    if followed.conflicts:
        raise not_unique(table, followed.conflicts, identity)
    yield from _bases_closed(events, followed, epoch, identity, names, tracked, schema)
    span = _Span.of(events, followed.end, epoch, emptied)
    for at in _parts(span.lasting(events.action != DELETE, keep=keep)):
        source = followed.source[at]
        rows = assembled(events, at.astype(np.int32), source, np.ones(len(at), np.bool_), here, names)
        operation = _marks(events).operation[at if keep else followed.opener[at]]
        keeps = source == KEEP
        # Only where values are the base's it matters which one it is.
        is_based = keeps.any(axis=1)
        slot = followed.base[at[is_based]]
        base, is_old = np.full(len(at), -1, np.int32), np.zeros(len(at), np.bool_)
        base[is_based], is_old[is_based] = followed.key_event[slot], followed.key_is_old[slot] == 1
        arrays = [*rows.columns, *_opened(rows, span, at, operation), pa.array((source == UNKNOWN).any(axis=1))]
        arrays += bases_of(events, identity, names, base, is_old)
        none = np.zeros(len(at), np.bool_)
        arrays += [pa.array(keeps[:, here.index(number)] if number in here else none) for number in tracked]
        yield batch_of(arrays, schema)


def _followed(
    events: Events, epoch: NDArray[np.int32], identity: Identity, names: Sequence[str], here: Sequence[int]
) -> Followed:
    unchanged = np.zeros((events.rows, len(here)), np.uint8)
    for t, number in enumerate(here):
        unchanged[:, t] = events.unchanged[number]
    old_hashes = None
    if events.old_key is not None:
        old_hashes = hash_rows(identity.compared(events.old_key, identity.key), events.rows, events.old_rescued)
    hashes, action = key_hashes(events, identity, names), events.action.astype(np.uint8)
    return follow_keys(action, events.expected, epoch, _lsn(events), hashes, old_hashes, unchanged)


def _bases_closed(
    events: Events,
    followed: Followed,
    epoch: NDArray[np.int32],
    identity: Identity,
    names: Sequence[str],
    tracked: Sequence[int],
    schema: pa.Schema,
) -> Iterator[pa.RecordBatch]:
    closes = epoch[followed.key_event] == 0
    for at in _parts(np.nonzero(closes | (followed.expected == EXPECTED))[0]):
        event, expected = followed.key_event[at], followed.expected[at]
        arrays = [pa.nulls(len(at), field.type) for field in schema][: len(events.columns)]
        arrays += _closed(events, event, closes[at], expected)
        arrays += bases_of(
            events, identity, names, np.where(closes[at], event, np.int32(-1)), followed.key_is_old[at] == 1
        )
        yield batch_of([*arrays, *(_all(False, at) for _ in tracked)], schema)


def _images_closed(
    events: Events, gone: NDArray[np.intp], epoch: NDArray[np.int32], schema: pa.Schema
) -> Iterator[pa.RecordBatch]:
    for at in _parts(gone):
        closes = epoch[at] == 0
        expected = np.where(events.expected[at] > 0, EXPECTED, 0).astype(np.uint8)
        rows = events.take(at)
        closed = _closed(events, at, closes, expected)
        closed[_RESCUED] = rows.rescued
        yield batch_of([*rows.columns, *closed], schema)


_RESCUED: Final = 4
"""The place of ``rescued`` behind the values."""


def _closed(
    events: Events, event: NDArray[Any], closes: NDArray[np.bool_], expected: NDArray[np.uint8]
) -> list[pa.Array]:
    """Give the columns behind the values for rows that close bases by these events."""
    rows, marks = len(event), _marks(events).at(event)
    lsn = pa.array(_lsn(events)[event], mask=~closes)
    return [
        pa.nulls(rows, pa.int64()),
        pa.nulls(rows, TIMESTAMP),
        pa.array(marks.ordinal),
        pa.nulls(rows, pa.string()),
        pa.nulls(rows, pa.string()),
        pa.nulls(rows, pa.int64()),
        pa.nulls(rows, TIMESTAMP),
        _all(False, event),
        pa.array(closes),
        lsn,
        pa.array(marks.top, mask=~closes).cast(TIMESTAMP),
        pa.array(events.action[event] == DELETE),
        pa.array(expected == EXPECTED),
        pa.array(expected == CLAIMED),
        _all(False, event),
    ]


def _opened(rows: Events, span: _Span, at: NDArray[np.intp], operation: NDArray[np.uint8]) -> list[pa.Array]:
    """Give the columns behind the values for versions, up to ``unknown``."""
    marks, end, top = _marks(rows), span.lsn[at], span.top[at]
    is_open = end == _OPEN
    no = _all(False, at)
    return [
        rows.lsn,
        pa.array(marks.top).cast(TIMESTAMP),
        pa.array(marks.ordinal),
        pa.array(OPERATIONS, pa.string()).take(pa.array(operation)),
        rows.rescued,
        pa.array(end, mask=is_open),
        pa.array(top, mask=is_open).cast(TIMESTAMP),
        _all(True, at),
        no,
        pa.nulls(len(at), pa.int64()),
        pa.nulls(len(at), TIMESTAMP),
        no,
        no,
        no,
    ]


def _unknown(rows: Events) -> pa.Array:
    unknown = np.zeros(rows.rows, np.bool_)
    for mask in rows.unchanged.values():
        unknown |= mask == 1
    return pa.array(unknown)


def _parts(at: NDArray[np.intp]) -> Iterator[NDArray[np.intp]]:
    for start in range(0, len(at), _OUTPUT_ROWS):
        yield at[start : start + _OUTPUT_ROWS]


def _all(value: bool, rows: NDArray[Any]) -> pa.Array:
    return pa.array(np.full(len(rows), value))


def _lsn(events: Events) -> NDArray[np.int64]:
    lsn: NDArray[np.int64] = contiguous(events.lsn).to_numpy(zero_copy_only=False)
    return lsn


def _marks(events: Events) -> Any:
    assert events.marks is not None, "a history's events have marks"
    return events.marks


__all__ = ["NOTHING_EMPTIED", "Emptied", "settled_versions", "version_rows", "version_schema"]
