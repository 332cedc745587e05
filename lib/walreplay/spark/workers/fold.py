"""Fold a table's staged events, of all files, to the rows to merge.

Also compare these with a table's rows where Spark's statements cannot: watched columns.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from typing import TYPE_CHECKING, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from walreplay.delta.small_table import longest_text
from walreplay.errors import WalReplayError
from walreplay.fold.change_log import LogTask, Projection, log_batches, project
from walreplay.fold.events import Events, Identity, Mode, concat, from_ipc, rejoin, to_ipc
from walreplay.fold.net_changes import NO_ROUTES, Routes, components, merge_schema, route, rows_to_merge, settled
from walreplay.fold.versions import Axis, Emptied, continue_bases, settled_versions, version_rows, version_schema
from walreplay.spark.workers.process import spark_task
from walreplay.spark.workers.rows import PARTS, ROUTES_SEQUENCE, refusal_text, route_batch, staged_events

if TYPE_CHECKING:
    from numpy.typing import NDArray


_ROWS_AT_ONCE: Final = 1 << 16
_BYTES_AT_ONCE: Final = 64 << 20

_SOURCE: Final = pa.field("source", pa.string())


@dataclass(frozen=True, slots=True)
class FoldTask(ABC):
    """How one table's staged events become its rows: a class for each kind of rows (`walreplay.names.RowKind`).

    Attributes:
        projections: how rows of each relation version get the table's columns, with the numbers of its key columns: by
            the sequence number that it begins at, in order.
        table: the source's name, for errors.
        source: what all rows have in the column ``source``; None if there is no such column.
    """

    types: tuple[pa.DataType, ...]
    names: tuple[str, ...]
    identity: Identity
    tracked: tuple[int, ...]
    moves: bool
    projections: tuple[tuple[int, Projection, tuple[int, ...]], ...]
    table: str | None = None
    source: str | None = None

    @property
    def schema(self) -> pa.Schema:
        """The rows' columns."""
        return self._folded if self.source is None else self._folded.append(_SOURCE)

    @property
    @abstractmethod
    def _folded(self) -> pa.Schema:
        """The rows' columns without the source's name."""

    @abstractmethod
    def rows(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yield the rows of staged events, which are sorted by bucket and sequence."""

    def final_rows(self, batch: pa.RecordBatch) -> Iterable[pa.RecordBatch]:
        """Return the rows that a table without rows gets: all, where they are only added."""
        return [batch]

    def counts_of(self, batch: pa.RecordBatch, *, is_new: bool = False) -> dict[str, int]:
        """Count what does not depend on the table's own rows (`walreplay.writing.merge.RowCounts`).

        Args:
            is_new: the table has no rows that folded ones could close.
        """
        return {"unknown": _true(batch.column("unknown"))}

    def version_of(self, sequence: int) -> int:
        """Return the number of the projection that applies to some events."""
        return bisect_right(self.projections, sequence, key=lambda item: item[0]) - 1

    def named(self, version: int) -> tuple[Identity, tuple[str, ...]]:
        """Return the identity and the columns' names that a version's events have."""
        _, projection, key = self.projections[version]
        return replace(self.identity, key=key), projection.before

    def _units(self, batches: Iterable[pa.RecordBatch]) -> Iterator[list[tuple[int, Events]]]:
        """Yield the staged events that have to meet, each with its sequence: those of a bucket.

        Rows that are only added need not meet.  There may be as many as in the whole archive.
        """
        if self.identity.mode is Mode.APPEND:
            yield from ([(sequence, from_ipc(data))] for _, sequence, data in staged_events(batches))
            return
        for _, staged in groupby(staged_events(batches), key=lambda item: item[0]):
            yield [(sequence, from_ipc(data)) for _, sequence, data in staged]

    def _joined(self, parts: list[tuple[int, Events]], settle: Callable[[int, Events], Events]) -> Events:
        """Put a unit's events together, with the table's columns, and empty the list: rows need the memory.

        Args:
            settle: completes events of one version, of whole transactions, from each other.
        """
        projected = []
        for version, run in groupby(parts, key=lambda item: self.version_of(item[0])):
            # One file's events of a bucket may be staged in several pieces.
            files = [[part for _, part in group] for _, group in groupby(run, key=lambda item: item[0])]
            _, projection, key = self.projections[version]
            # A whole row can only be compared with rows of the same columns, so it is settled before the projection.
            events = settle(version, concat([rejoin(group) for group in files]))
            projected.append(project(events, key, projection, keyed=self.identity.mode is Mode.KEYED))
        events = concat(projected)
        parts.clear()
        return events


@dataclass(frozen=True, slots=True)
class NetFold(FoldTask):
    """A mirror's rows: what each key, or each row without one, comes to."""

    @property
    def _folded(self) -> pa.Schema:
        return merge_schema(self.types, self.identity, self.tracked, moves=self.moves)

    def rows(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yield the rows of staged events (`walreplay.fold.net_changes`)."""

        def settle(version: int, events: Events) -> Events:
            return settled(events, *self.named(version), self.table)

        for parts in self._units(batches):
            folding = self.identity, self.names, self.tracked
            # No name for the events: they would be there still while the next ones are read.
            yield from rows_to_merge(self._joined(parts, settle), *folding, moves=self.moves, table=self.table)

    def final_rows(self, batch: pa.RecordBatch) -> Iterable[pa.RecordBatch]:
        """Return the rows that a table without rows gets."""
        if self.identity.mode is Mode.KEYED:
            deleted = batch.column("deleted")
            return [batch.filter(pc.invert(deleted)) if _true(deleted) else batch]
        if self.identity.mode is Mode.MULTISET:
            copies = batch.column("needed").to_numpy() + batch.column("net").to_numpy()
            return [batch] if (copies == 1).all() else _repeated(batch, np.cumsum(copies))
        return FoldTask.final_rows(self, batch)

    def counts_of(self, batch: pa.RecordBatch, *, is_new: bool = False) -> dict[str, int]:
        """Count what does not depend on the table's own rows."""
        if self.identity.mode is Mode.APPEND:
            return FoldTask.counts_of(self, batch)
        if self.identity.mode is Mode.MULTISET:
            net, needed = (batch.column(name).to_numpy() for name in ("net", "needed"))
            copies = needed + net
            remaining = pc.and_(batch.column("unknown"), pa.array(copies > 0))
            return {"unknown": _true(remaining), "gone": int(needed.sum()), "copies": int(copies.sum())}
        return _counts(batch, batch.column("expected"), pc.invert(batch.column("deleted")))


@dataclass(frozen=True, slots=True, kw_only=True)
class VersionFold(FoldTask):
    """A history's rows: each version of a row is one.

    Attributes:
        emptied: the truncates, with their times on the axis.
        watched: the columns whose changes begin versions; None if each change begins one.
        fresh: the table has no rows before.
    """

    axis: Axis
    emptied: Emptied
    watched: tuple[int, ...] | None = None
    fresh: bool = False

    @property
    def _folded(self) -> pa.Schema:
        return version_schema(self.types, self.identity, self.tracked, watched=self.watched is not None)

    def rows(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yield the rows of staged events (`walreplay.fold.versions`)."""
        emptied = self.emptied.with_first() if self.fresh else self.emptied

        def settle(version: int, events: Events) -> Events:
            return settled_versions(events, *self.named(version), self.table, self.emptied)

        for parts in self._units(batches):
            parts[:] = [(sequence, timed(events, sequence, self.axis)) for sequence, events in parts]
            rest = emptied, self.identity, self.names, self.tracked
            yield from version_rows(self._joined(parts, settle), *rest, watched=self.watched, table=self.table)

    def final_rows(self, batch: pa.RecordBatch) -> Iterable[pa.RecordBatch]:
        """Return the rows that a table without rows gets."""
        return [batch.filter(batch.column("opens"))]

    def counts_of(self, batch: pa.RecordBatch, *, is_new: bool = False) -> dict[str, int]:
        """Count what does not depend on the table's own rows."""
        expected = batch.column("expected")
        if not is_new:
            expected = pc.and_(expected, pc.invert(batch.column("closes")))
        return _counts(batch, expected, batch.column("opens"))


@dataclass(frozen=True, slots=True, kw_only=True)
class LogFold(FoldTask):
    """A change log's rows: each change is one, so nothing is folded, and none has to meet another."""

    log: LogTask

    @property
    def _folded(self) -> pa.Schema:
        return self.log.schema

    def rows(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yield the rows of staged changes (`walreplay.fold.change_log`)."""
        for _, sequence, data in staged_events(batches):
            _, projection, _ = self.projections[self.version_of(sequence)]
            yield from log_batches(data, self.log, projection)


def timed(events: Events, sequence: int, axis: Axis) -> Events:
    """Return staged events with their times on the axis of histories."""
    assert events.marks is not None
    times = axis.times(sequence // PARTS, events.lsns, events.marks.top)
    return replace(events, marks=replace(events.marks, top=times))


def _true(mask: pa.Array) -> int:
    return int(pc.sum(mask).as_py() or 0)  # the sum over no rows is NULL


def _counts(batch: pa.RecordBatch, expected: pa.Array, remains: pa.Array) -> dict[str, int]:
    """Count rows with a key: those that the table should have, deleted or not, and those with unknown values."""
    deleted = batch.column("deleted")
    live, gone = pc.and_(expected, pc.invert(deleted)), pc.and_(expected, deleted)
    return {"live": _true(live), "gone": _true(gone), "unknown": _true(pc.and_(batch.column("unknown"), remains))}


def _repeated(batch: pa.RecordBatch, ends: NDArray[np.int64]) -> Iterator[pa.RecordBatch]:
    """Repeat each row as often as its count says, in batches: a few rows may have millions of copies, or be long."""
    total = int(ends[-1])
    at_once = max(1, min(_ROWS_AT_ONCE, _BYTES_AT_ONCE // max(1, sum(map(longest_text, batch.columns)))))
    for start in range(0, total, at_once):
        # Numbers among all copies; `ends` says which row each of them is a copy of.
        places = np.arange(start, min(start + at_once, total))
        yield batch.take(pa.array(np.searchsorted(ends, places, side="right")))


@spark_task
def link_batches(batches: Iterable[pa.RecordBatch], *, buckets: int) -> Iterator[pa.RecordBatch]:
    """Compute the routes of each bucket from all links between a table's keys.

    Args:
        batches: the data of all staged rows of the table's `links_table`, in one task.
        buckets: as many as the events were divided into.
    """
    links = [Routes.from_ipc(value.as_buffer()) for batch in batches for value in batch.column("data")]
    for bucket, routes in components(links).split(buckets):
        yield route_batch(bucket, ROUTES_SEQUENCE, routes.to_ipc())


@spark_task
def route_batches(batches: Iterable[pa.RecordBatch], *, task: FoldTask, buckets: int) -> Iterator[pa.RecordBatch]:
    """Bring the staged events of linked keys to one bucket.

    Args:
        batches: bucket, sequence and data, sorted by bucket and sequence: each bucket's routes, if it has any, then
            its events, none of a bucket in another task.
        buckets: as many as the events were parted into.
    """
    current: int | None = None
    routes = NO_ROUTES
    for bucket, sequence, data in staged_events(batches):
        if bucket != current:
            current, routes = bucket, NO_ROUTES  # a bucket need not have any
        if sequence == ROUTES_SEQUENCE:
            routes = Routes.from_ipc(data)
        elif not len(routes.key):  # no key of the bucket has to go to another one
            yield route_batch(bucket, sequence, data)
        else:
            identity_and_names = task.named(task.version_of(sequence))
            for to, part in route(from_ipc(data), *identity_and_names, routes, buckets):
                yield route_batch(to, sequence, to_ipc(part))


@spark_task
def fold_batches(batches: Iterable[pa.RecordBatch], *, task: FoldTask) -> Iterator[pa.RecordBatch]:
    """Fold staged events, sorted by bucket and sequence, to a table's rows.

    Raises:
        RuntimeError: an error that the driver reads by `refusal_in`.
    """
    try:
        for rows in task.rows(batches):
            yield rows if task.source is None else rows.append_column(_SOURCE, pa.repeat(task.source, rows.num_rows))
    except WalReplayError as problem:
        problem.table = problem.table or task.table
        # No row can carry the error, because the rows go into the table.
        raise RuntimeError(refusal_text(problem)) from None


@spark_task
def continue_batches(
    batches: Iterable[pa.RecordBatch], *, identity: Identity, names: Sequence[str], watched: Sequence[int]
) -> Iterator[pa.RecordBatch]:
    """Find the versions that go on in a table's open ones (`walreplay.fold.versions.continue_bases`)."""
    yield from continue_bases(batches, identity, names, watched)
