"""What a run does to one table, in terms of its commits and folds."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Final

import numpy as np
import pyarrow as pa

from walreplay.config.keys import HISTORY_COLUMNS, LOG_COLUMNS
from walreplay.config.selection import MetadataNames, Share
from walreplay.delta import statements as delta
from walreplay.delta.commits import LoggedCommit, Standing
from walreplay.delta.data_files import has_statistics
from walreplay.delta.properties import TableProperties
from walreplay.delta.staged_file import RowSelection
from walreplay.delta.target import TableName, quote
from walreplay.errors import TargetError
from walreplay.evolution.comments import followed_columns, metadata_comments
from walreplay.evolution.shapes import OWN, TableShape
from walreplay.fold.change_log import OWN as LOG_KINDS
from walreplay.fold.change_log import UNCHANGED, LogTask
from walreplay.fold.events import Identity, Mode
from walreplay.fold.versions import NO_AXIS, Axis, Emptied
from walreplay.names import RowKind
from walreplay.spark.staging import EmptiedAt, Rows, Staging
from walreplay.spark.workers.fold import FoldTask, LogFold, NetFold, VersionFold
from walreplay.spark.workers.rows import PARTS
from walreplay.table.cases import CASES, EpochCase, Incoming, Present
from walreplay.table.plan import Epoch, TablePlan
from walreplay.table.registry import made_again
from walreplay.types.base import ColumnType
from walreplay.types.families import may_be_rescued

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


VERSION_COLUMNS: Final = {
    "start_at": pa.timestamp("us", "UTC"),
    "end_at": pa.timestamp("us", "UTC"),
    "start_lsn": pa.int64(),
    "end_lsn": pa.int64(),
    "ordinal": pa.int64(),
    "op": pa.string(),
}
"""What a history has besides its source's columns, by the folded rows' names (`HISTORY_COLUMNS`)."""

SLOTS: Final = 3
ALTER, TRUNCATE, MERGE = range(SLOTS)
"""The commits of an epoch: each has a number of its own."""
_RUN_BITS: Final = 16  # 2**14 moves and 3 * 2**14 commits of epochs

_FIRST_EPOCH_STEP: Final = 1 << 14
"""The epochs' steps have numbers from here on; those before are the moves of tables, which come first."""


@dataclass(frozen=True)
class TableRun:
    """One table in one run: its plan, its commits, and how it is written.

    Attributes:
        commit: the run's; its steps have numbers made of it (`commit_of_step`).
        resumed: the run was begun before: the table may have some of its commits already.
        buckets: how many parts its changes were split into; ``tasks`` fold them.
        size: bytes that are staged.
        exists: the table exists, and was checked.
        check_lock: raises if the run has lost the lock.
        standing: how the table compares with the ledger; None if only its history tells.
        emptied: of a history: its truncates; ``axis`` is the run's.
        has_own_rows: of a shared table: some of its rows may be the source's.
        steps: of a resumed run: the commits that its table has, among them those of the run.
    """

    plan: TablePlan
    commit: delta.CommitId
    resumed: bool
    buckets: int
    tasks: int
    size: int
    exists: bool
    standing: Standing | None = None
    emptied: tuple[EmptiedAt, ...] = ()
    axis: Axis = NO_AXIS
    check_lock: Callable[..., None] = lambda **_: None
    has_own_rows: bool = True
    steps: Mapping[delta.CommitId, LoggedCommit] = field(default_factory=dict)

    @cached_property
    def merges(self) -> tuple[Merge, ...]:
        """What the commit of each epoch has to do."""
        return tuple(Merge(self, self.plan, epoch, number) for number, epoch in enumerate(self.plan.epochs))

    @property
    def is_done(self) -> bool:
        """The table has all of the run's steps already."""
        return self.standing is not None and self.merges[-1].commit.number in self.standing.steps

    @property
    def present(self) -> Present:
        """What is there before the first epoch."""
        if not self.exists:
            return Present.NOTHING if self.plan.before is None else Present.GONE
        if self.plan.before is not None:
            return Present.KNOWN
        if not self.has_own_rows:
            return Present.OTHERS
        # What is there may be this run's own.
        return Present.BEGUN if self.resumed or self.plan.metadata.share is not None else Present.UNKNOWN

    def layout(self, spark: SparkSession) -> TableProperties:
        """Return what the table is besides rows and columns."""
        return TableProperties(spark, self.plan.table, self.check_lock)

    @property
    def gone(self) -> TargetError:
        """The error for a table that the ledger knows, and that is not there."""
        remedy = f"Bring it back as it was; or {made_again(self.plan.before)}"
        return TargetError("the table is gone", table=self.plan.name, path=self.plan.table.text, remedy=remedy)

    @property
    def needs_statements(self) -> bool:
        """The table is clustered by a column for which files of our own have no statistics."""
        kinds = {column.name: column.type.arrow for column in self.plan.epochs[-1].shape.columns}
        return any(name in kinds and not has_statistics(kinds[name]) for name in self.plan.layout.cluster_by)


def commit_of_step(commit: delta.CommitId, step: int) -> delta.CommitId:
    """Return the number of one of a run's steps on a table; those of later runs are higher."""
    # Delta ignores a commit whose txn version is not above the application's last one.
    return replace(commit, number=commit.number << _RUN_BITS | step)


def run_of(step: int) -> int:
    """Return the run's number from the number of one of its steps."""
    return step >> _RUN_BITS


def is_own(share: Share, row: str = "") -> str:
    """Write the condition that a row of a shared table is the source's own; ``row``: its alias with a dot, or empty."""
    return f"{row}{quote(share.column)} = {delta.literal(share.source)}"


def own_rows(table: TableName, share: Share | None) -> str:
    """Write a query for a table; of a shared one, for the source's own rows."""
    return table.sql if share is None else f"(SELECT * FROM {table.sql} WHERE {is_own(share)})"


@dataclass(frozen=True, slots=True)
class OwnColumns:
    """A table's metadata columns, in front of and behind the source's, each with the folded rows' column for it."""

    first: tuple[tuple[pa.Field, str], ...]
    last: tuple[tuple[pa.Field, str], ...]

    @property
    def fields(self) -> list[pa.Field]:
        """All of them."""
        return [field for field, _ in (*self.first, *self.last)]


def own_columns(metadata: MetadataNames, shape: TableShape) -> OwnColumns:
    """Return the metadata columns of a table with some columns of its source's.

    What a change log has of its transactions stands in front: Delta keeps statistics of the first columns alone.
    """
    commit = [(metadata.commit_lsn, "lsn", pa.int64()), (metadata.commit_ts, "ts", pa.timestamp("us", "UTC"))]
    rescued = (metadata.rescued_data, "rescued", pa.string())
    # By what each file has of it, Delta leaves out the files of other sources.
    shared = () if metadata.share is None else _named([(metadata.share.column, "source", pa.string())])
    match metadata.rows:
        case RowKind.CURRENT:
            return OwnColumns(shared, _named([*commit, rescued]))
        case RowKind.VERSION:
            version_columns = [(HISTORY_COLUMNS[source], source, kind) for source, kind in VERSION_COLUMNS.items()]
            return OwnColumns(shared, _named([rescued, *version_columns]))
        case RowKind.CHANGE:
            names = {**LOG_COLUMNS, "lsn": metadata.commit_lsn, "ts": metadata.commit_ts}
            first = _named((names[source], source, kind) for source, kind in LOG_KINDS)
            old = (names["before"], "before", log_task(shape).old_row)
            return OwnColumns((*shared, *first), _named([old, (names["unchanged"], "unchanged", UNCHANGED), rescued]))


def _named(columns: Iterable[tuple[str | None, str, pa.DataType]]) -> tuple[tuple[pa.Field, str], ...]:
    return tuple((pa.field(name, kind), source) for name, source, kind in columns if name is not None)


def _names_and_types(shape: TableShape) -> tuple[tuple[str, ...], tuple[pa.DataType, ...]]:
    columns = shape.columns
    return tuple(column.name for column in columns), tuple(column.type.arrow for column in columns)


def log_task(shape: TableShape) -> LogTask:
    """Return what a change log has."""
    return LogTask(*_names_and_types(shape), LOG_COLUMNS["before"])


def table_schema(shape: TableShape, metadata: MetadataNames) -> pa.Schema:
    """Return the Delta table's columns: the source's, in their order, and the metadata (`own_columns`)."""
    columns = [pa.field(column.name, column.type.arrow) for column in shape.columns]
    metadata_columns = own_columns(metadata, shape)
    first, last = ([field for field, _ in part] for part in (metadata_columns.first, metadata_columns.last))
    return pa.schema([*first, *columns, *last])


@dataclass(frozen=True)
class Merge:
    """An epoch of a table in a run: its number and rows, and what its commit has to do; each is found out once."""

    run: TableRun
    plan: TablePlan
    epoch: Epoch
    number: int

    @property
    def shape(self) -> TableShape:
        """The table's columns behind it, without the metadata."""
        return self.epoch.shape

    @property
    def identity(self) -> Identity:
        """What tells the rows apart."""
        return self.epoch.identity

    @cached_property
    def case(self) -> EpochCase:
        """What becomes of its rows."""
        return CASES[self.run.present if self.number == 0 else Present.KNOWN][self._incoming]

    @property
    def _incoming(self) -> Incoming:
        # The plan leaves out what comes before the last truncate, so only the first epoch can follow one.
        if self.number == 0 and self.plan.truncated and not self.plan.soft_deletes:
            return Incoming.TRUNCATED
        if self.empties is not None:
            return Incoming.CHANGED
        if self.identity.mode is Mode.APPEND:
            return Incoming.ADDED
        return Incoming.CHANGED if self.epoch.rows else Incoming.COLUMNS

    def step(self, slot: int) -> delta.CommitId:
        """Return the commit of one of its steps."""
        share, number = self.plan.metadata.share, _FIRST_EPOCH_STEP + self.number * SLOTS + slot
        source = None if share is None else share.source
        return replace(commit_of_step(self.run.commit, number), oid=self.plan.oid, source=source)

    @cached_property
    def commit(self) -> delta.CommitId:
        """The commit of its rows."""
        return replace(self.step(MERGE), form=self.form)

    @property
    def form(self) -> str:
        """A digest of what the commit writes, and how.

        A run that goes on with an interrupted one plans its tables anew.  If the configuration is another one by then,
        an epoch may have other rows, and what was committed under its number would be taken for them.
        """
        columns = [(field.name, str(field.type)) for field in self.schema]
        key = [self.shape.columns[key_column].name for key_column in self.identity.key]
        # Where one epoch ends and the next begins.
        versions = [len(epoch.projections) for epoch in self.plan.epochs]
        digest_parts = [versions, self.identity.mode.value, key, self.plan.soft_deletes, columns]
        return hashlib.sha256(json.dumps(digest_parts).encode()).hexdigest()[:16]

    @cached_property
    def fold_task(self) -> FoldTask:
        """How its events become rows to merge."""
        epoch, metadata = self.epoch, self.plan.metadata
        names, types = _names_and_types(epoch.shape)
        events = types, names, epoch.identity, epoch.tracked, epoch.moves, epoch.projections
        of_table = self.plan.name, None if metadata.share is None else metadata.share.source
        match metadata.rows:
            case RowKind.CURRENT:
                return NetFold(*events, *of_table)
            case RowKind.VERSION:
                axis, emptied, watched, fresh = self.run.axis, self._emptied, epoch.watched, self.case.fresh
                return VersionFold(*events, *of_table, axis=axis, emptied=emptied, watched=watched, fresh=fresh)
            case RowKind.CHANGE:
                return LogFold(*events, *of_table, log=log_task(epoch.shape))

    def events(self, spark: SparkSession, staging: Staging) -> Rows | None:
        """Return its staged events; None if it has none."""
        epoch, run = self.epoch, self.run
        if not epoch.rows:
            return None
        rows = RowSelection(self.plan.number, epoch.start, epoch.stop)
        return staging.read(
            spark, rows, self.fold_task, together=epoch.converts_key, buckets=run.buckets, tasks=run.tasks
        )

    @cached_property
    def _emptied(self) -> Emptied:
        """Of a history: its truncates, with their times on the axis."""
        stop = float("inf") if self.epoch.stop is None else self.epoch.stop
        truncates = [truncate for truncate in self.run.emptied if self.epoch.start <= truncate.sequence < stop]
        # All of EmptiedAt but its sequence.
        lsn, ordinal, top = np.array([truncate[1:] for truncate in truncates], np.int64).reshape(-1, 3).T
        for number, truncate in enumerate(truncates):
            row = slice(number, number + 1)
            # The axis goes by units of decoding; a sequence is a unit's number and a part of it.
            top[row] = self.run.axis.times(truncate.sequence // PARTS, lsn[row], top[row])
        return Emptied(lsn, ordinal, top)

    @property
    def empties(self) -> tuple[int, int] | None:
        """Of a history: commit LSN and time of the first truncate, which ends all versions from before the run."""
        # The fold ends those of the run itself.
        return (int(self._emptied.lsn[0]), int(self._emptied.top[0])) if len(self._emptied.lsn) else None

    @cached_property
    def schema(self) -> pa.Schema:
        """The table's columns, with the metadata."""
        return table_schema(self.shape, self.plan.metadata)

    @property
    def own_rows(self) -> str:
        """The table for a query, in SQL; of a shared one, the source's own rows."""
        return own_rows(self.plan.table, self.plan.metadata.share)

    @property
    def is_own(self) -> str:
        """SQL in front of a condition that finds rows (``t``) of the table: only the source's own."""
        share = self.plan.metadata.share
        return "" if share is None else f"{is_own(share, 't.')} AND "

    def comments(self, current: Mapping[str, str]) -> dict[str, str]:
        """Return what the columns are to say if declared anew, by what the table's say now: of a new one nothing."""
        before, metadata = self.epoch.evolution.before, self.plan.metadata
        columns, texts = own_columns(metadata, self.shape), metadata_comments(metadata.rows)
        others = {field.name: texts[source] for field, source in (*columns.first, *columns.last)}
        return followed_columns(current, before, self.shape, others)

    @cached_property
    def pairs(self) -> list[tuple[str, str]]:
        """Each target column (quoted) with the source's."""
        metadata, columns = own_columns(self.plan.metadata, self.shape), self.shape.columns
        parts = (metadata.first, metadata.last)
        first, last = ([(quote(field.name), source) for field, source in part] for part in parts)
        return [*first, *((quote(column.name), f"c{number}") for number, column in enumerate(columns)), *last]

    @property
    def marks_deleted(self) -> int | None:
        """The number of the column that says that a row is deleted, where deletes are soft."""
        return next((number for number, column in enumerate(self.shape.columns) if column.source == OWN), None)

    def type_of(self, number: int) -> ColumnType:
        """Return a column's type."""
        return self.shape.columns[number].type

    @cached_property
    def rescuable(self) -> frozenset[int]:
        """The numbers of the key's columns whose values may be in the rescued data instead."""
        if self.plan.metadata.rescued_data is None:
            return frozenset()
        key, converts = self.identity.key, self.epoch.converts_key
        return frozenset(number for number in key if converts or may_be_rescued(self.type_of(number)))
