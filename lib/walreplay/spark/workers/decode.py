"""Decode files by their plans, fold the changes of each file, and stage the result.

Decode files for an audit, which keeps no rows: what their transactions come to, and which values are rescued.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache, cached_property, partial
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa

from walreplay.decode.announcements import Layout
from walreplay.decode.change_batch import ChangeBatch, read_rescued
from walreplay.decode.decoder import Decoder, LogicalMessage, Recorded, RowFilter
from walreplay.decode.masking import Shown, show
from walreplay.errors import WalReplayError
from walreplay.fold.batches import batch_to_ipc
from walreplay.fold.change_log import staged_changes
from walreplay.fold.events import REMOVE, Events, Identity, Marks, concat, events_of, to_ipc, with_deleted_column
from walreplay.fold.net_changes import fold_events, links_of, split
from walreplay.fold.reducing import DELETE
from walreplay.fold.versions import NO_TIME, Commits
from walreplay.lsn import POSTGRES_EPOCH_UNIX_MICROS
from walreplay.names import Output, RowKind
from walreplay.protocol.framing import Framing
from walreplay.protocol.messages import Relation, Type
from walreplay.spark.workers.process import release_pages, spark_task
from walreplay.spark.workers.rows import (
    ERROR_TABLE,
    MESSAGES_TABLE,
    NO_RELATION,
    PARTS,
    PARTS_TABLE,
    TRANSACTION,
    TRANSACTIONS_TABLE,
    USES_TABLE,
    links_table,
    messages_of,
    stage_batch,
    staged_row,
    transactions_of,
    without_dictionary,
)
from walreplay.spark.workers.scan import Content, capture_files, view_of
from walreplay.stream.plan import FilePlan, Step
from walreplay.stream.planned import PlannedBytes
from walreplay.stream.schedule import file_of
from walreplay.task_settings import TaskSettings
from walreplay.types.base import ColumnType

if TYPE_CHECKING:
    from numpy.typing import NDArray


@dataclass(frozen=True, slots=True)
class Assignment:
    """A table that a relation version's rows go to.

    Attributes:
        table: the table's number, and ``relation`` the version's among those of tables.
        identity: in the columns that are shown.
        follows: a row whose key changes keeps what its update does not bring: columns that are not sent any more; or
            it is marked where it was, if deletes only mark rows.
        marks_deleted: soft deletes: a further column marks a deleted row.
        floor: rows with a lower commit LSN are left out: the table was loaded as of it, or begins there; -1 for none.
    """

    table: int
    relation: int
    identity: Identity
    shown: Shown
    follows: bool = False
    marks_deleted: bool = False
    floor: int = -1


@dataclass(frozen=True, slots=True)
class Assigned:
    """Where a relation version's rows go: to one table at least; of an audit nowhere, they are only counted.

    Attributes:
        number: the version's among those of relations.
        types: of the version's columns.
        tables: by what each of them has of the relation.
    """

    number: int
    types: tuple[ColumnType, ...]
    tables: Mapping[Output, Assignment]

    @property
    def floor(self) -> int:
        """Rows with a lower commit LSN are left out of all its tables."""
        # One decode serves all tables, so it leaves out only what none of them wants.
        return min((to.floor for to in self.tables.values()), default=-1)

    def of(self, rows: RowKind) -> list[Assignment]:
        """Return the tables with rows of a kind."""
        return [to for output, to in self.tables.items() if output.rows is rows]


@dataclass(frozen=True, slots=True)
class DecodeTask:
    """What every decoding task of a run, or of an audit, needs.

    Attributes:
        files: the plan of each file, by path.
        versions, types: the relation versions and types behind the numbers in the steps.
        relations: where the rows of each wanted relation version go.
        truncates: the last truncate of each relation (by oid), as commit LSN and ordinal.
        buckets: how many parts a table's changes are split into, by key.
        layouts: what is announced of tables, behind the numbers in the steps.
        announcements: the plan's prefix of announcements; see `Plan`.
    """

    files: Mapping[str, FilePlan]
    versions: tuple[Relation, ...]
    types: tuple[Type, ...]
    relations: Mapping[Relation, Assigned]
    truncates: Mapping[int, tuple[int, int]]
    settings: TaskSettings
    buckets: int
    layouts: tuple[Layout, ...] = ()
    announcements: str | None = None

    @property
    def kept(self) -> frozenset[int]:
        """The relations (by oid) of which a table keeps what is before a truncate, too: all but a plain mirror."""
        return frozenset(
            relation.oid
            for relation, assigned in self.relations.items()
            for output, to in assigned.tables.items()
            if output.rows is not RowKind.CURRENT or to.marks_deleted
        )


@spark_task
def decode_batches(batches: Iterable[pa.RecordBatch], *, task: DecodeTask) -> Iterator[pa.RecordBatch]:
    """Decode whole files and fold each table's changes; one row per file, unit (see `_units`), table and bucket."""
    for path, content in capture_files(batches, task.files):
        plan = task.files[path]
        try:
            view = view_of(content)
            for row in staged_rows(plan, view, task):
                yield stage_batch(row)
        except WalReplayError as problem:
            error = json.dumps(problem.at(path=path).to_dict())
            yield stage_batch(staged_row(ERROR_TABLE, NO_RELATION, plan.steps[0].sequence, error))


@dataclass(slots=True)
class _Gathered:
    """One table's events in one file, in their order: of one relation version.

    Attributes:
        emptied: of a history: commit LSN and ordinal of each truncate.
    """

    to: Assignment
    names: tuple[str, ...]
    table: str
    rows: int = 0
    parts: list[Events] = field(default_factory=list)
    emptied: list[tuple[int, int]] = field(default_factory=list)

    def gather(self, changes: ChangeBatch, *, truncated: bool = False, marks: Marks | None = None) -> None:
        """Add changes; a truncate that comes behind them may delete what they leave."""
        events = events_of(changes, self.to.identity, follow=self.to.follows, marks=marks)
        if self.to.marks_deleted:
            events = with_deleted_column(events, self.to.identity, all_deleted=truncated)
        self.rows += changes.data.num_rows
        self.parts.append(events)


def _units(steps: Iterable[Step]) -> Iterator[list[Step]]:
    """Divide a file's steps into units between which no other file's step comes.

    Only the changes of one unit may be folded before they meet those of other files.
    """
    unit: list[Step] = []
    for step in steps:
        if unit and step.sequence != unit[-1].sequence + 1:  # another file's step has the number in between
            yield unit
            unit = []
        unit.append(step)
    if unit:
        yield unit


def decoder_of(framing: Framing, task: DecodeTask, *, recording: bool = True) -> Decoder:
    """Return the decoder of one file, which decodes and records what the task wants of it."""
    settings, kept = task.settings, task.kept
    floors = {relation.oid: floor for relation, to in task.relations.items() if (floor := to.floor) >= 0}
    # Rows before the last truncate are not decoded, unless a table keeps them; a later base load leaves out more.
    truncates = {oid: to for oid, to in task.truncates.items() if oid not in kept and to[0] >= floors.get(oid, -1)}
    return Decoder(
        framing,
        row_filter=RowFilter(task.relations.keys(), truncates, floors, settings.origins.wants, settings.skipped),
        recording=recording,
        column_types={relation: assigned.types for relation, assigned in task.relations.items()},
        codec=settings.codec,
        announcements=task.announcements,
        with_places={relation for relation, to in task.relations.items() if to.of(RowKind.CHANGE)},
    )


def staged_rows(plan: FilePlan, content: memoryview, task: DecodeTask) -> Iterator[dict[str, Any]]:
    """Decode a file, fold each table's changes, and return the rows to be staged.

    Args:
        content: the file as stored; its pages are released once they are no longer needed.
    """
    planned, steps = PlannedBytes.of(plan, content), plan.steps
    decoder = decoder_of(steps[0].place.framing, task)
    recorded: list[Recorded] = []
    messages: list[LogicalMessage] = []
    units = list(_units(steps))
    for unit_steps in units:
        unit = _Unit(task, unit_steps[0].sequence)
        for step in unit_steps:
            for batch in planned.decode(decoder, step, task.versions, task.types, task.layouts):
                yield from unit.add(batch)
            transactions, logical = decoder.take_recorded()
            unit.recorded += transactions
            messages += logical
        for batch in decoder.rest():  # batches that are not full: a unit is folded with all of its events
            yield from unit.add(batch)
        if unit_steps is units[-1]:
            # Folding needs the memory.  Earlier, the next unit would only read the pages again.
            release_pages(content)
        recorded += unit.recorded
        # A relation's last truncate stands before all of its rows that are left.
        for number, relation in enumerate([*decoder.take_truncated(), *unit.truncated]):
            for to in task.relations[relation].of(RowKind.CURRENT) if relation in task.relations else ():
                # A row without events, from which the driver knows that the version is used there.
                yield staged_row(to.table, to.relation, unit_steps[0].sequence * PARTS + number, info_of())
        yield from _folded_rows(unit, unit_steps[0].sequence, task)
        unit.leave_out(decoder.take_left_out())
        used = [(task.relations[relation].number, unit.used_at(relation)) for relation in decoder.take_uses()]
        last = unit.last_time
        if used or last != NO_TIME:
            # The driver gets one total for rows of equal ``info``, so no two may be equal.
            info = json.dumps([unit_steps[0].sequence, last, *used])
            yield staged_row(USES_TABLE, NO_RELATION, unit_steps[0].sequence, info)
    whole, parts = transactions_of(recorded, task.settings)
    for table, rows in ((TRANSACTIONS_TABLE, whole), (PARTS_TABLE, parts), (MESSAGES_TABLE, messages_of(messages))):
        if rows.num_rows:
            yield staged_row(table, NO_RELATION, steps[0].sequence, "", data=batch_to_ipc(rows))


def info_of(part: Events | None = None, emptied: Sequence[tuple[int, ...]] = ()) -> str:
    """Describe a part for the driver, which does not read its rows.

    Args:
        emptied: the truncates that a history's table has: sequence, commit LSN, ordinal, time on the axis.
    """
    if part is None:  # no events, or a change log's
        info = {"tracked": [], "moves": False, "deletes": False}
        return json.dumps(info | {"emptied": list(emptied)} if emptied else info)
    deletes = bool(((part.action == DELETE) | (part.action == REMOVE)).any())
    return json.dumps({"tracked": sorted(part.unchanged), "moves": part.has_moves, "deletes": deletes})


class _Unit:
    """What is taken of a unit's batches: rows of change logs are staged as they come, others are gathered.

    Attributes:
        gathered: the parts of each mirror table, a new one for every version that follows another.
        truncated: the relation versions, in order, of which a mirror leaves rows out that another table has.
        recorded: the transactions that were decoded, or parts of them.
    """

    def __init__(self, task: DecodeTask, sequence: int) -> None:
        self._task = task
        self._sequence = sequence
        self._kept = task.kept
        self._logs: dict[int, tuple[int, int]] = {}  # by table: its last relation version, and how many it had
        self._turn = 0
        self._lsns: dict[tuple[int, str], int] = {}  # (oid, name): the last commit LSN
        self.gathered: dict[int, list[_Gathered]] = {}
        self.truncated: dict[Relation, None] = {}
        self.recorded: list[Recorded] = []

    @cached_property
    def commits(self) -> Commits:
        """The unit's transactions in commit order, once it is at its end; histories alone ask for it."""
        return Commits.of(self._of_all("lsn"), self._of_all("commit_ts") + POSTGRES_EPOCH_UNIX_MICROS)

    @property
    def last_time(self) -> int:
        """The greatest commit time of the unit's transactions; `NO_TIME` if there are none."""
        times = self._of_all("commit_ts")
        return int(times.max()) + POSTGRES_EPOCH_UNIX_MICROS if len(times) else NO_TIME

    def _of_all(self, name: str) -> NDArray[np.int64]:
        return np.concatenate([np.zeros(0, np.int64), *(item.records[name] for item in self.recorded)])

    def used_at(self, relation: Relation) -> int | None:
        """Return the commit LSN of a relation's last rows by its name; None if origins that are left out have all."""
        return self._lsns.get((relation.oid, relation.qualified_name))

    def leave_out(self, lsns: Mapping[Relation, int]) -> None:
        """Take note of the commit LSNs of rows that the decoder has left out."""
        for relation, lsn in lsns.items():
            self._used(relation, lsn)

    def _used(self, relation: Relation, lsn: int) -> None:
        named = relation.oid, relation.qualified_name
        self._lsns[named] = max(lsn, self._lsns.get(named, -1))

    def add(self, batch: ChangeBatch) -> Iterator[dict[str, Any]]:
        """Add a batch; yield the rows that are staged at once."""
        assigned = self._task.relations[batch.relation]
        # As a rule all tables show the same, and to mask values takes time.
        shown_as = cache(partial(show, batch, salt=self._task.settings.mask_salt))
        rows = batch.data.num_rows
        self._used(batch.relation, batch.commit_lsns[-1].as_py())  # in commit order the last is the greatest
        for output, to in assigned.tables.items():
            if (below := _rows_below(batch, to, assigned)) == rows:  # the base load has them all
                continue
            shown = shown_as(to.shown)
            match output.rows:
                case RowKind.CURRENT:
                    self._gather(batch, shown, to, below)
                case RowKind.VERSION:
                    self._follow(shown.slice(below, rows), to)
                case RowKind.CHANGE:
                    yield self._log_row(shown.slice(below, rows), to)

    def _gather(self, batch: ChangeBatch, shown: ChangeBatch, mirror: Assignment, below: int) -> None:
        """Gather a mirror's events: of the last truncate on, or all where deleted rows are kept."""
        rows, gone = batch.data.num_rows, max(below, self._truncated_rows(batch))
        if gone > below:
            # At the end, also where it was there: a version may come back.
            self.truncated.pop(batch.relation, None)
            self.truncated[batch.relation] = None
        for changes in shown.slice(below, gone).between_truncates() if mirror.marks_deleted else ():
            self._part(shown, mirror).gather(changes, truncated=True)
        if gone < rows:
            self._part(shown, mirror).gather(shown.slice(gone, rows))

    def _truncated_rows(self, batch: ChangeBatch) -> int:
        """Count a batch's rows that come before the run's last truncate, which are its first ones, and the truncates.

        Where no table of the relation has them (`DecodeTask.kept`), the decoder has left them out.
        """
        oid = batch.relation.oid
        truncate = self._task.truncates.get(oid)
        if truncate is None or oid not in self._kept:
            return 0
        last_lsn, last_ordinal = truncate
        lsn, ordinal = batch.commit_lsns.to_numpy(), batch.ordinals.to_numpy()
        return int(((lsn < last_lsn) | ((lsn == last_lsn) & (ordinal <= last_ordinal))).sum())

    def _log_row(self, shown: ChangeBatch, log: Assignment) -> dict[str, Any]:
        """Stage changes as they are: there may be as many as in the whole archive."""
        relation, number = self._logs.get(log.table, (-1, 0))
        if relation != log.relation:
            number += 1
        self._logs[log.table] = log.relation, number
        bucket = (file_of(self._sequence) + self._turn) % self._task.buckets  # no key decides: batches go round
        self._turn += 1
        part_sequence = self._sequence * PARTS + PARTS // 2 + number
        rows, data = shown.data.num_rows, staged_changes(shown)
        return staged_row(log.table, log.relation, part_sequence, info_of(), bucket=bucket, rows=rows, data=data)

    def _part(self, shown: ChangeBatch, to: Assignment) -> _Gathered:
        """Return what is gathered of a relation version for a table."""
        parts = self.gathered.setdefault(to.table, [])
        if not parts or parts[-1].to.relation != to.relation:  # events of two versions have other columns
            names = tuple(column.name for column in shown.relation.columns)
            if to.marks_deleted:
                names = (*names, "")  # the column that marks deleted rows
            parts.append(_Gathered(to, names, shown.relation.qualified_name))
        return parts[-1]

    def _follow(self, shown: ChangeBatch, history: Assignment) -> None:
        """Gather a history's events, none of which may be folded before they meet all others of their rows."""
        part, truncates = self._part(shown, history), shown.truncates()
        part.rows += len(truncates)
        part.emptied += truncates
        for changes in shown.between_truncates():
            part.gather(changes, marks=Marks.of(changes))


def _rows_below(batch: ChangeBatch, to: Assignment, assigned: Assigned) -> int:
    """Count a batch's rows that one of a relation's tables has from a base load, which are its first ones."""
    if to.floor <= assigned.floor:  # the decoder has left them out already
        return 0
    return int((batch.commit_lsns.to_numpy() < to.floor).sum())


def _folded_rows(unit: _Unit, sequence: int, task: DecodeTask) -> Iterator[dict[str, Any]]:
    """Fold and stage what a unit has gathered; a history's events are staged as they are, with their times."""
    parts_by_table = unit.gathered
    for table in list(parts_by_table):
        # A truncate's mark, which may be of an earlier version, stands in front of what has come behind it.
        for number, part in enumerate(parts_by_table.pop(table), start=1):
            part_sequence = sequence * PARTS + PARTS // 2 + number
            relation, identity = part.to.relation, part.to.identity
            if part.emptied:
                tops = unit.commits.up_to(np.array([lsn for lsn, _ in part.emptied])).tolist()
                truncates = [(part_sequence, *truncate, top) for truncate, top in zip(part.emptied, tops, strict=True)]
                rows = 0 if part.parts else part.rows  # counted below, with the events
                yield staged_row(table, relation, part_sequence, info_of(emptied=truncates), rows=rows)
            if not part.parts:
                continue
            events = concat(part.parts)
            part.parts.clear()  # their memory is needed for what they are folded to
            if events.marks is None:  # a history's events alone have times
                events = fold_events(events, identity, part.names, part.table, buckets=task.buckets)
            else:
                events.marks = replace(events.marks, top=unit.commits.up_to(events.lsns))
            links = links_of(events, identity, part.names)
            if links is not None:  # keys have changed: all events of linked keys have to meet
                yield staged_row(links_table(table), relation, part_sequence, "", data=links.to_ipc())
            pieces = split(events, identity, part.names, task.buckets, file_of(sequence))
            if not pieces:  # the changes have cancelled out, but their rows count
                yield staged_row(table, relation, part_sequence, info_of(), rows=part.rows)
            for piece_number, (bucket, piece) in enumerate(pieces):
                # Counted once, whatever the number of parts.
                rows, data = part.rows if piece_number == 0 else 0, to_ipc(piece)
                yield staged_row(table, relation, part_sequence, info_of(piece), bucket=bucket, rows=rows, data=data)


RECORDED: Final = pa.schema(
    [
        *(TRANSACTION.field(name) for name in ("commit_lsn", "commit_ts", "xid", "changes", "digest", "session")),
        ("path", pa.string()),
        ("offset", pa.int64()),
        ("complete", pa.bool_()),
        ("error", pa.string()),
    ]
)
"""A transaction, or a part of one (with an ``offset`` below zero unless it begins there); or a file's error."""

COUNTED: Final = pa.schema([("counts", pa.string()), ("error", pa.string())])
"""A file's `counted`, as JSON: for each relation's number its rows, their bytes, and rescued values by column."""


@spark_task
def record_batches(batches: Iterable[pa.RecordBatch], *, task: DecodeTask) -> Iterator[pa.RecordBatch]:
    """Yield what each transaction of some files comes to; of what cannot be decoded its error."""
    for path, content in capture_files(batches, task.files):
        plan, error = task.files[path], None
        decoder = decoder_of(plan.steps[0].place.framing, task)
        try:
            for _ in _audited(plan, content, decoder, task):
                pass
        except WalReplayError as problem:
            error = json.dumps(problem.at(path=path).to_dict())
        recorded, _ = decoder.take_recorded()  # also in front of an error
        for batch in transactions_of(recorded, task.settings):
            if batch.num_rows:
                yield _as_recorded(batch)
        if error is not None:
            yield pa.RecordBatch.from_pylist([{"error": error}], schema=RECORDED)


def _as_recorded(batch: pa.RecordBatch) -> pa.RecordBatch:
    given = {"complete": pa.repeat(True, batch.num_rows), "error": pa.nulls(batch.num_rows, pa.string())}
    names = RECORDED.names
    columns = [given[name] if name in given else without_dictionary(batch.column(name)) for name in names]
    return pa.RecordBatch.from_arrays(columns, schema=RECORDED)


@dataclass(frozen=True, slots=True)
class Values:
    """What was decoded of one table.

    Attributes:
        rows: row changes of transactions that have committed, copies left out.
        size: bytes that they take in Arrow.
        rescued: how many values their columns' types cannot hold, by column.
    """

    rows: int = 0
    size: int = 0
    rescued: Counter[str] = field(default_factory=Counter)

    def __add__(self, other: Values) -> Values:
        return Values(self.rows + other.rows, self.size + other.size, self.rescued + other.rescued)


@spark_task
def count_batches(batches: Iterable[pa.RecordBatch], *, task: DecodeTask) -> Iterator[pa.RecordBatch]:
    """Count rows, bytes and rescued values of some files; no value leaves the task."""
    for path, content in capture_files(batches, task.files):
        plan, error = task.files[path], None
        counts: dict[int, Values] = {}
        try:
            decoder = decoder_of(plan.steps[0].place.framing, task, recording=False)
            for batch in _audited(plan, content, decoder, task):
                number = task.relations[batch.relation].number
                counts[number] = counts.get(number, Values()) + _counted(batch)
        except WalReplayError as problem:
            error = json.dumps(problem.at(path=path).to_dict())
        lists: dict[int, Any] = {number: [of.rows, of.size, of.rescued] for number, of in counts.items()}
        yield pa.RecordBatch.from_pylist([{"counts": json.dumps(lists), "error": error}], schema=COUNTED)


def _counted(batch: ChangeBatch) -> Values:
    rescued = [] if batch.rescued is None else read_rescued(batch.rescued.drop_null())
    return Values(batch.data.num_rows, batch.data.nbytes, Counter(name for values in rescued for name in values))


def _audited(plan: FilePlan, content: Content, decoder: Decoder, task: DecodeTask) -> Iterator[ChangeBatch]:
    view = view_of(content)
    planned = PlannedBytes.of(plan, view)
    for step in plan.steps:
        yield from planned.decode(decoder, step, task.versions, task.types)
    yield from decoder.rest()
    release_pages(view)
