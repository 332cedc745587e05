"""Fold a table's staged events, of all files, to the rows to merge.

Also compare these with a table's rows where Spark's statements cannot: watched columns.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from typing import Final

import pyarrow as pa

from walreplay.errors import WalReplayError
from walreplay.fold.change_log import LogTask, Projection, log_batches, project
from walreplay.fold.events import Events, Identity, Mode, concat, from_ipc, rejoin, to_ipc
from walreplay.fold.net_changes import NO_ROUTES, Routes, components, merge_schema, route, rows_to_merge, settled
from walreplay.fold.versions import Axis, Emptied, continue_bases, settled_versions, version_rows, version_schema
from walreplay.spark.workers.process import spark_task
from walreplay.spark.workers.rows import PARTS, ROUTES_SEQUENCE, refusal_text, route_batch, staged_events

_SOURCE: Final = pa.field("source", pa.string())


@dataclass(frozen=True, slots=True)
class HistoryTask:
    """What a history's rows need besides their events.

    Attributes:
        emptied: the truncates, with their times on the axis.
        watched: the columns whose changes begin versions; None if each change begins one.
        fresh: the table has no rows before.
    """

    axis: Axis
    emptied: Emptied
    watched: tuple[int, ...] | None = None
    fresh: bool = False

    def timed(self, sequence: int, events: Events) -> Events:
        """Return staged events with their times on the axis."""
        assert events.marks is not None
        times = self.axis.times(sequence // PARTS, events.lsns, events.marks.top)
        return replace(events, marks=replace(events.marks, top=times))


@dataclass(frozen=True, slots=True)
class FoldTask:
    """How one table's staged events become rows to merge.

    Attributes:
        projections: how rows of each relation version get the table's columns, with the numbers of its key columns: by
            the sequence number that it begins at, in order.
        table: the source's name, for errors.
        log: the table is a change log: its rows are not folded.
        history: the table is a history: each version of a row is a row.
        source: what all rows have in the column ``source``; None if there is no such column.
    """

    types: tuple[pa.DataType, ...]
    names: tuple[str, ...]
    identity: Identity
    tracked: tuple[int, ...]
    moves: bool
    projections: tuple[tuple[int, Projection, tuple[int, ...]], ...]
    table: str | None = None
    log: LogTask | None = None
    history: HistoryTask | None = None
    source: str | None = None

    @property
    def schema(self) -> pa.Schema:
        """The rows' columns."""
        return self._folded if self.source is None else self._folded.append(_SOURCE)

    @property
    def _folded(self) -> pa.Schema:
        if self.log is not None:
            return self.log.schema
        if self.history is not None:
            watched = self.history.watched is not None
            return version_schema(self.types, self.identity, self.tracked, watched=watched)
        return merge_schema(self.types, self.identity, self.tracked, moves=self.moves)

    def version_of(self, sequence: int) -> int:
        """Return the number of the projection that applies to some events."""
        return bisect_right(self.projections, sequence, key=lambda item: item[0]) - 1

    def named(self, version: int) -> tuple[Identity, tuple[str, ...]]:
        """Return the identity and the columns' names that a version's events have."""
        _, projection, key = self.projections[version]
        return replace(self.identity, key=key), projection.before

    def project(self, version: int, events: Events) -> Events:
        """Return events of one version, of whole transactions, with the table's columns."""
        _, projection, key = self.projections[version]
        # A whole row can only be compared with rows of the same columns.
        if self.history is None:
            events = settled(events, *self.named(version), self.table)
        else:
            events = settled_versions(events, *self.named(version), self.table, self.history.emptied)
        return project(events, key, projection, keyed=self.identity.mode is Mode.KEYED)


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
    """Fold staged events, sorted by bucket and sequence, to rows to merge.

    Raises:
        RuntimeError: an error that the driver reads by `refusal_in`.
    """
    for rows in _folded(batches, task):
        yield rows if task.source is None else rows.append_column(_SOURCE, pa.repeat(task.source, rows.num_rows))


def _folded(batches: Iterable[pa.RecordBatch], task: FoldTask) -> Iterator[pa.RecordBatch]:
    if task.log is not None:
        yield from _log_rows(batches, task.log, task)
        return
    current: int | None = None
    parts: list[tuple[int, Events]] = []
    # Rows that are only added need not meet.  There may be as many as in the whole archive.
    is_alone = task.identity.mode is Mode.APPEND
    for bucket, sequence, data in staged_events(batches):
        if (is_alone or bucket != current) and parts:  # the bucket is complete, or its events need not meet
            yield from _merge_rows(parts, task)
            parts = []
        current = bucket
        events = from_ipc(data)
        if task.history is not None:
            events = task.history.timed(sequence, events)
        parts.append((sequence, events))
    if parts:
        yield from _merge_rows(parts, task)


def _log_rows(batches: Iterable[pa.RecordBatch], log: LogTask, task: FoldTask) -> Iterator[pa.RecordBatch]:
    for _, sequence, data in staged_events(batches):
        _, projection, _ = task.projections[task.version_of(sequence)]
        try:
            yield from log_batches(data, log, projection)
        except WalReplayError as problem:
            problem.table = problem.table or task.table
            raise RuntimeError(refusal_text(problem)) from None


def _merge_rows(parts: list[tuple[int, Events]], task: FoldTask) -> Iterator[pa.RecordBatch]:
    try:
        events = concat([task.project(version, run) for version, run in _runs(parts, task)])
        parts.clear()  # their memory is needed for the rows
        if task.history is not None:
            history, folding = task.history, (task.identity, task.names, task.tracked)
            emptied = history.emptied.with_first() if history.fresh else history.emptied
            yield from version_rows(events, emptied, *folding, watched=history.watched, table=task.table)
            return
        yield from rows_to_merge(events, task.identity, task.names, task.tracked, moves=task.moves, table=task.table)
    except WalReplayError as problem:
        problem.table = problem.table or task.table
        # No row can carry the error, because the rows go into the table.
        raise RuntimeError(refusal_text(problem)) from None


def _runs(parts: list[tuple[int, Events]], task: FoldTask) -> Iterator[tuple[int, Events]]:
    """Put together what is of one version, file by file."""
    for version, run in groupby(parts, key=lambda item: task.version_of(item[0])):
        # One file's events of a bucket may be staged in several pieces.
        files = [[part for _, part in group] for _, group in groupby(run, key=lambda item: item[0])]
        yield version, concat([rejoin(group) for group in files])


@spark_task
def continue_batches(
    batches: Iterable[pa.RecordBatch], *, identity: Identity, names: Sequence[str], watched: Sequence[int]
) -> Iterator[pa.RecordBatch]:
    """Find the versions that go on in a table's open ones (`walreplay.fold.versions.continue_bases`)."""
    yield from continue_bases(batches, identity, names, watched)
