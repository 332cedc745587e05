"""Turn a table's events into versions of its rows: what a history says (SCD type 2).

Each row here either opens a version of a row, or closes one that the table had before the run (a *base*); so one MERGE
on the bases' keys applies them.  Versions that begin and end within the events come with both ends.  Where the events
are divided into runs makes no difference: what one run leaves open, the next one closes.

A history may have *watched* columns: only their changes begin versions; other changes are made in the open version.
Whether a watched column has changed is known here if both values are among the events.  If one is the table's own, it
is decided when the rows are joined with the table's: `continue_bases`.

The axis of time (`Axis`) never goes back, so that a moment on it is a cut between whole transactions.  A server's
commit times may go back a little.  A change's time on the axis is the greatest commit time among all transactions of
the stream up to its own, in commit order.  So at any time t the axis has what the longest prefix of transactions wrote
that comes before the first commit later than t.  It is put together from three parts, because the transactions of a
run may be too many for one place:

- a decoding task knows the transactions of a unit of its file, and takes the greatest time among those up to each row's
  (`Commits`);
- the driver knows one number of each unit, and with it the greatest time before each;
- streamed and prepared transactions may lie in no unit, if nothing is left of them: the plan has them all.

Times are in microseconds since 1970-01-01 UTC.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from walreplay.decode.change_batch import TIMESTAMP, rescued_of
from walreplay.errors import TargetError
from walreplay.fold.batches import batch_of, choose, contiguous, is_value, named, narrow, numbered, output_parts
from walreplay.fold.events import (
    OPERATIONS,
    REMOVE,
    Events,
    Identity,
    Mode,
    image_hashes,
    key_events,
    key_hashes,
)
from walreplay.fold.identity import Hashes, follow_images, hash_rows
from walreplay.fold.net_changes import assembled, bases_of, not_unique, settled
from walreplay.fold.reducing import (
    CLAIMED,
    DELETE,
    EXPECTED,
    KEEP,
    UNKNOWN,
    Continued,
    FollowedRows,
    WatchedValues,
    continue_rows,
    follow_keys,
)

if TYPE_CHECKING:
    from numpy.typing import NDArray


def continued(
    events: Events,
    followed: FollowedRows,
    end_lsn: NDArray[np.int64],
    names: Sequence[str],
    watched: Sequence[int],
) -> Continued:
    """Find the versions that go on in later ones.

    Args:
        end_lsn: where each event's version ends.
        watched: the numbers of the watched columns.
    """
    partial = sorted(events.unchanged)
    always = [number for number in watched if number not in partial]  # brought by all events: one hash for all of them
    others = [number for number in watched if number in partial]
    rest, _ = _hashes([events.columns[number] for number in always], events.rescued, names, always)
    values, nulls = np.empty((events.rows, len(others)), np.uint64), np.empty(len(others), np.uint64)
    for index, number in enumerate(others):
        column = events.columns[number]
        values[:, index], _ = _hashes([column], events.rescued, names, [number])
        null = pa.nulls(1, contiguous(column).type)
        nulls[index] = _hashes([null], pa.nulls(1, pa.string()), names, [number])[0][0]
    tracked = np.array([partial.index(number) for number in others], np.int64)
    return continue_rows(events.action, events.lsns, end_lsn, followed, WatchedValues(rest, values, tracked, nulls))


def _hashes(columns: Sequence[Any], rescued: pa.Array, names: Sequence[str], numbers: Sequence[int]) -> Hashes:
    texts = rescued_of(rescued, [names[number] for number in numbers])
    return hash_rows(columns, len(rescued), texts)


def continue_bases(
    batches: Iterable[pa.RecordBatch], identity: Identity, names: Sequence[str], watched: Sequence[int]
) -> Iterator[pa.RecordBatch]:
    """Decide which versions go on with the one before, when the base's values are known.

    Args:
        batches: rows of `versions.version_rows` that name a base, with the columns of `versions.version_schema`.
            Values that are the base's (``k<n>``) are filled in, with their rescued texts.  More columns: ``found`` (the
            table has the base), the base's values of the watched columns, ``o<n>``, and its rescued texts,
            ``o_rescued``.  Rows of one base follow one another, sorted by ``opens``, ``start_lsn`` and ``ordinal``.

    Returns:
        rows of the same columns.  A row that closes a base may now have ``replaces``: the base's row gets the values
        of ``c0`` … and ``rescued``, and stays open if ``closes`` is false.
    """
    waiting: list[pa.RecordBatch] = []
    for batch in batches:
        if not batch.num_rows:
            continue
        waiting.append(batch)
        rows = pa.Table.from_batches(waiting).combine_chunks()
        begins = _begins(rows, identity)
        # More rows of the last base may come.
        last = int(np.nonzero(begins)[0][-1])  # where the last base's rows begin
        if last:
            yield from _continue(rows.slice(0, last), begins[:last], names, watched)
        waiting = rows.slice(last).to_batches()
    if waiting:
        rows = pa.Table.from_batches(waiting).combine_chunks()
        yield from _continue(rows, _begins(rows, identity), names, watched)


def _begins(rows: pa.Table, identity: Identity) -> NDArray[np.bool_]:
    """Return which rows are the first of a base."""
    keys = [contiguous(rows.column(f"b{k}")) for k in range(len(identity.key))]
    first, second = hash_rows(keys, rows.num_rows, contiguous(rows.column("base_rescued")))
    same = (first[1:] == first[:-1]) & (second[1:] == second[:-1])
    return np.concatenate([[True], ~same])  # rows of one base follow one another


def _continue(
    rows: pa.Table, begins: NDArray[np.bool_], names: Sequence[str], watched: Sequence[int]
) -> Iterator[pa.RecordBatch]:
    def column(name: str) -> pa.Array:
        return contiguous(rows.column(name))

    def truths(name: str) -> NDArray[np.bool_]:
        mask: NDArray[np.bool_] = pc.coalesce(column(name), pa.scalar(value=False)).to_numpy(zero_copy_only=False)
        return mask

    new_hashes = _hashes([column(f"c{n}") for n in watched], column("rescued"), names, watched)
    old_hashes = _hashes([column(f"o{n}") for n in watched], column("o_rescued"), names, watched)
    opens, goes_on = truths("opens"), truths("may_continue") & ~begins
    after = np.flatnonzero(goes_on)
    of_base = ~opens[after - 1]  # the row in front closes the base, so the base's own values count
    equal = np.ones(len(after), np.bool_)
    for new_half, old_half in zip(new_hashes, old_hashes, strict=True):
        equal &= new_half[after] == np.where(of_base, old_half[after], new_half[after - 1])
    goes_on[after] = equal & (~of_base | truths("found")[after])  # the table may lack the base
    starts = np.flatnonzero(~goes_on)  # runs of rows that become one row
    ends = np.append(starts[1:], len(begins)) - 1
    first, last = pa.array(starts), pa.array(ends)
    replaces = ~opens[starts] & (ends > starts)
    columns = {name: column(name).take(first) for name in rows.schema.names}
    lasting = [name for name in columns if name[0] == "c" and is_value(name)]
    columns |= {name: column(name).take(last) for name in (*lasting, "rescued", "unknown")}
    # A base whose row goes on ends with its last version, if that ends.
    for name, end in (("closes_lsn", "end_lsn"), ("closes_at", "end_at")):
        columns[name] = choose(replaces, column(end).take(last), columns[name])
        columns[end] = choose(replaces, pa.nulls(len(first), column(end).type), column(end).take(last))
    columns["closes"] = choose(replaces, columns["closes_lsn"].is_valid(), columns["closes"])
    yield named(columns | {"replaces": replaces})


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

    def with_first(self) -> Emptied:
        """Add a truncate before all events."""
        # -1 lies below every LSN.
        return Emptied(*(np.concatenate([[-1], values]) for values in (self.lsn, self.ordinal, self.top)))

    def before(self, events: Events) -> NDArray[np.int32]:
        """Count the truncates before each event.

        Events of different keys may come in any order: `routes.route` puts them together as they were divided.
        """
        lsn = events.lsns
        count, through = (np.searchsorted(self.lsn, lsn, side) for side in ("left", "right"))
        within = np.nonzero(count != through)[0]
        if len(within):
            # The event's transaction has truncates, before the event or behind it.
            is_event = np.arange(len(self.lsn) + len(within)) >= len(self.lsn)
            ordinal = np.concatenate([self.ordinal, _marks(events).ordinal[within]])
            order = np.lexsort((is_event, ordinal, np.concatenate([self.lsn, lsn[within]])))  # by LSN, then ordinal
            counted = np.empty(len(order), np.intp)
            counted[order] = np.cumsum(~is_event[order])
            count[within] = counted[len(self.lsn) :]
        return count.astype(np.int32)


def version_schema(
    types: Sequence[pa.DataType], identity: Identity, tracked: Sequence[int], *, watched: bool = False
) -> pa.Schema:
    """Return the columns of the rows that `version_rows` makes.

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

    - ``b0`` … and ``base_rescued``: the base's key, where ``closes``, some ``k<n>`` or ``may_continue`` is true.
    - ``k<n>`` for each tracked column: the version's value is the base's.
    - If columns are watched, ``may_continue``: no version begins if the watched columns are as before, which depends on
      the base: see `continue_bases`.
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
        fields += [pa.field("may_continue", pa.bool_())] * watched
    return pa.schema(fields)


def settled_versions(
    events: Events, identity: Identity, names: Sequence[str], table: str | None, emptied: Emptied
) -> Events:
    """Turn added and removed rows into what their transactions do to their keys; see `net_changes.settled`.

    What a transaction does to a table before it truncates it is left out: nothing of it is there at its end.
    """
    through = np.searchsorted(emptied.lsn, events.lsns, side="right")  # up to the end of the event's transaction
    doomed = (events.action >= REMOVE) & (emptied.before(events) < through)
    if identity.mode is Mode.KEYED and doomed.any():
        events = events.take(np.nonzero(~doomed)[0])  # inside of a transaction a key may have several rows
    return settled(events, identity, names, table)


def version_rows(
    events: Events,
    emptied: Emptied,
    identity: Identity,
    names: Sequence[str],
    tracked: Sequence[int],
    *,
    watched: Sequence[int] | None = None,
    table: str | None = None,
) -> Iterator[pa.RecordBatch]:
    """Fold all events of some row identities to rows of a history (`version_schema`), some at a time.

    A transaction leaves one version of a row at most: what ends in the transaction that opens it is left out.
    The first truncate closes all bases that no row here closes: for that there are no rows.

    Args:
        events: with marks, and without `REMOVE` and `ADD`: see `settled_versions`.
        emptied: all of the table's truncates; `Emptied.with_first` if the table has no bases.
        tracked: the numbers of the columns that have unchanged values anywhere in the run.
        watched: a change that leaves all of these columns (by number) as they are begins no version: it is made in the
            open one.  None if every change begins one.  Only for keyed tables.

    Raises:
        CaptureError: the key is not unique.
        TargetError: a version would end before it begins.
    """
    if events.rows == 0:
        return
    types = [narrow(column.type) for column in events.columns]
    schema = version_schema(types, identity, tracked, watched=watched is not None)
    bucket = _Bucket(events, emptied, emptied.before(events), identity, names, schema)
    if identity.mode is Mode.KEYED:
        yield from _keyed(bucket, watched, table)
        return
    if identity.mode is Mode.APPEND:
        end, gone = np.full(events.rows, -1, np.int32), np.zeros(events.rows, np.bool_)  # only truncates end rows
    else:
        gone = events.action < 0
        end = follow_images(~gone, image_hashes(events), bucket.truncates)
    yield from _images_closed(bucket, np.nonzero(gone & (end < 0))[0])
    span = _Span.of(bucket, end)
    for part in output_parts(np.nonzero(span.is_seen & ~gone)[0]):
        rows = events.take(part)
        yield batch_of(_opened(bucket, span, part, part, rows, part) | {"unknown": rows.unknown}, schema)


def ends_early(table: str | None) -> TargetError:
    """Make the error for a version that would end before it begins: no order of transactions has one."""
    remedy = (
        "Nothing was written to it. Move it away, and run again, which finishes the run without it; then make it again "
        "by walreplay rebuild with --output history. If that ends so, too, report it"
    )
    return TargetError("a version of the history would end before it begins", table=table, remedy=remedy)


@dataclass(frozen=True, slots=True)
class _Bucket:
    """What `version_rows` is given; and how many truncates come before each event."""

    events: Events
    emptied: Emptied
    truncates: NDArray[np.int32]
    identity: Identity
    names: Sequence[str]
    schema: pa.Schema


@dataclass(frozen=True, slots=True)
class _Span:
    """Where each event's version begins and ends: commit LSNs, `_OPEN` for never; and the time of its end."""

    start: NDArray[np.int64]
    lsn: NDArray[np.int64]
    top: NDArray[np.int64]

    @classmethod
    def of(cls, bucket: _Bucket, end: NDArray[np.int32]) -> _Span:
        start, top = bucket.events.lsns, _marks(bucket.events).top
        ended, end_events = end >= 0, np.maximum(end, 0)
        lsn, time = np.where(ended, start[end_events], _OPEN), np.where(ended, top[end_events], 0)
        taken = ~ended & (bucket.truncates < len(bucket.emptied.lsn))  # a truncate ends what is open
        if taken.any():
            following = bucket.truncates[taken]  # the number of the next one
            lsn[taken], time[taken] = bucket.emptied.lsn[following], bucket.emptied.top[following]
        return cls(start, lsn, time)

    @property
    def is_seen(self) -> NDArray[np.bool_]:
        """Which versions do not end in the transaction that opens them."""
        return np.not_equal(self.start, self.lsn)


def _keyed(bucket: _Bucket, watched: Sequence[int] | None, table: str | None) -> Iterator[pa.RecordBatch]:
    events, identity, names = bucket.events, bucket.identity, bucket.names
    partial = sorted(events.unchanged)
    hashes = key_hashes(events, identity, names)
    followed = follow_keys(key_events(events, hashes), bucket.truncates, events.lsns)
    if followed.conflicts:
        raise not_unique(table, followed.conflicts, identity)
    yield from _bases_closed(bucket, followed)
    span = _Span.of(bucket, followed.end)
    visible = span.is_seen & (events.action != DELETE)
    start = np.arange(events.rows, dtype=np.int32)
    goes_on = None
    if watched is not None:
        goes_on = continued(events, followed, span.lsn, names, watched)
        visible, start = visible & ~goes_on.replaced, goes_on.start
    for part in output_parts(np.nonzero(visible)[0]):
        source = followed.source[part]
        rows = assembled(events, part.astype(np.int32), source, np.ones(len(part), np.bool_), partial, names)
        begin = start[part]
        keeps = source == KEEP
        columns = _opened(bucket, span, part, begin, rows, followed.opener[begin])
        columns |= {f"k{number}": keeps[:, t] for t, number in enumerate(partial)}
        columns["unknown"] = (source == UNKNOWN).any(axis=1)
        # Only for these rows it matters which base they go on with.
        is_based = keeps.any(axis=1)
        if goes_on is not None:
            columns["may_continue"] = goes_on.may_continue[part]
            is_based |= goes_on.may_continue[part]  # the table's values decide about these
        if is_based.any():
            slot = followed.base[part[is_based]]
            base, is_old = np.full(len(part), -1, np.int32), np.zeros(len(part), np.bool_)
            base[is_based], is_old[is_based] = followed.key_event[slot], followed.key_is_old[slot] == 1
            columns |= bases_of(events, identity, names, base, is_old)
        yield batch_of(columns, bucket.schema)


def _bases_closed(bucket: _Bucket, followed: FollowedRows) -> Iterator[pa.RecordBatch]:
    closes = bucket.truncates[followed.key_event] == 0  # behind a truncate no base is left
    for part in output_parts(np.nonzero(closes | (followed.expected == EXPECTED))[0]):
        event, is_old = followed.key_event[part], followed.key_is_old[part] == 1
        base = np.where(closes[part], event, np.int32(-1))
        columns = _closed(bucket.events, event, closes[part], followed.expected[part])
        columns |= bases_of(bucket.events, bucket.identity, bucket.names, base, is_old)
        yield batch_of(columns, bucket.schema)


def _images_closed(bucket: _Bucket, gone: NDArray[np.intp]) -> Iterator[pa.RecordBatch]:
    for part in output_parts(gone):
        rows = bucket.events.take(part)
        expected = np.where(rows.expected > 0, EXPECTED, 0).astype(np.uint8)
        columns = _closed(bucket.events, part, bucket.truncates[part] == 0, expected)
        columns["deleted"] = np.ones(len(part), np.bool_)  # without a key, an update removes a row and adds another one
        yield batch_of(columns | numbered("c", rows.columns) | {"rescued": rows.rescued}, bucket.schema)


def _closed(
    events: Events, event: NDArray[Any], closes: NDArray[np.bool_], expected: NDArray[np.uint8]
) -> dict[str, Any]:
    """Return the columns, but the values, of rows that close bases by these events."""
    marks = _marks(events).take(event)
    return {
        "ordinal": marks.ordinal,
        "closes": closes,
        "closes_lsn": pa.array(events.lsns[event], mask=~closes),  # NULL where nothing is closed
        "closes_at": pa.array(marks.top, mask=~closes).cast(TIMESTAMP),
        "deleted": events.action[event] == DELETE,
        "expected": expected == EXPECTED,
        "claimed": expected == CLAIMED,
    }


def _opened(
    bucket: _Bucket, span: _Span, versions: NDArray[np.intp], begin: NDArray[Any], rows: Events, opener: NDArray[Any]
) -> dict[str, Any]:
    """Return the columns of versions.

    Args:
        begin: the events that they begin with.
        rows: their values.
        opener: the events whose kind they have.
    """
    marks, end, top = _marks(bucket.events), span.lsn[versions], span.top[versions]
    start, since = span.start[begin], marks.top[begin]
    is_open = end == _OPEN
    if (~is_open & ((end < start) | (top < since))).any():
        raise ends_early(None)
    return numbered("c", rows.columns) | {
        "opens": np.ones(len(versions), np.bool_),
        "start_lsn": start,
        "start_at": pa.array(since).cast(TIMESTAMP),
        "ordinal": marks.ordinal[begin],
        "op": pa.array(OPERATIONS, pa.string()).take(pa.array(marks.operation[opener])),
        "rescued": rows.rescued,
        "end_lsn": pa.array(end, mask=is_open),
        "end_at": pa.array(top, mask=is_open).cast(TIMESTAMP),
    }


def _marks(events: Events) -> Any:
    assert events.marks is not None, "a history's events have marks"
    return events.marks


NO_TIME: Final = np.iinfo(np.int64).min  # earlier than every commit


@dataclass(frozen=True, slots=True)
class Commits:
    """Transactions in the order of their commit LSNs, and the greatest commit time up to each."""

    lsn: NDArray[np.int64]
    top: NDArray[np.int64]

    @classmethod
    def of(cls, lsn: NDArray[np.int64], time: NDArray[np.int64]) -> Commits:
        """Sort transactions by their commit LSNs; one may come in several parts, or as copies."""
        order = np.argsort(lsn, kind="stable")
        return cls(lsn[order], np.maximum.accumulate(time[order]))  # commit times may go back; the axis does not

    @property
    def last(self) -> int:
        """The greatest time of all; `NO_TIME` if there are none."""
        return int(self.top[-1]) if len(self.top) else NO_TIME

    def up_to(self, lsn: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the greatest time among the transactions up to each LSN."""
        if not len(self.lsn):
            return np.full(len(lsn), NO_TIME)
        index = np.searchsorted(self.lsn, lsn, side="right") - 1  # the last transaction up to the LSN
        return np.where(index >= 0, self.top[np.maximum(index, 0)], NO_TIME)


@dataclass(frozen=True, slots=True)
class Axis:
    """What a run knows of the axis beyond the units of its files.

    Attributes:
        units: the sequence number of each unit, rising; ``before`` has the greatest time in front of each.
        decided: the streamed and prepared transactions.
        end: the greatest time of all, with those of earlier runs; `NO_TIME` if there are none.
    """

    units: NDArray[np.int64]
    before: NDArray[np.int64]
    decided: Commits
    end: int

    @classmethod
    def of(cls, before: int, units: Sequence[tuple[int, int]], decided: Iterable[tuple[int, int]]) -> Axis:
        """Put the axis of a run together.

        Args:
            before: the greatest time of earlier runs; `NO_TIME` if there are none.
            units: sequence number and greatest time of each.
            decided: commit LSN and time of the streamed and prepared transactions.
        """
        ordered = np.array(sorted(units), np.int64).reshape(-1, 2)
        pairs = np.array(list(decided), np.int64).reshape(-1, 2)
        commits = Commits.of(pairs[:, 0], pairs[:, 1])
        tops = np.maximum.accumulate(np.concatenate([[before], ordered[:, 1]]))  # greatest times in front of units
        return cls(ordered[:, 0], tops[:-1], commits, max(int(tops[-1]), commits.last))

    def times(self, unit: int, lsn: NDArray[np.int64], top: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the times of changes.

        Args:
            unit: the sequence number of the unit that they lie in.
            lsn: their commit LSNs; ``top`` is what is known of them in their unit.
        """
        index = int(np.searchsorted(self.units, unit, side="right")) - 1
        before = int(self.before[index]) if index >= 0 else NO_TIME
        return np.maximum(np.maximum(top, before), self.decided.up_to(lsn))


NO_AXIS: Final = Axis.of(NO_TIME, (), ())  # of a run that has no transactions
