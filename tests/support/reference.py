"""Replays messages row by row into plain lists: what a capture means, with nothing done for speed.

It is written from the protocol's documents alone, on top of the scalar reader, to show that the truth and the
live harness are right, and to give what the truth's CSV does not have: the commit that wrote a row last.
Text values only, and no relation that changes its columns.

What a session leaves open is void at its end; completed Prepares alone outlive it.  A transaction that comes again
is known by commit LSN, xid and commit time, and has to hold the same changes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from walreplay.errors import TruncatedMessage
from walreplay.protocol import messages as m
from walreplay.protocol.framing import Framing
from walreplay.protocol.reader import read_stream

Value = str | None
Change = m.RowChange | m.Truncate
Identity = tuple[int, int, int]
"""Commit LSN, xid and commit time."""


@dataclass(slots=True)
class ReplayedRow:
    """A row and the transaction that wrote it last (commit time in µs since 2000-01-01)."""

    values: list[Value]
    commit_lsn: int
    commit_time: int


class ReplayedTable:
    """A relation's rows, in no order that means anything, found by the image of their replica identity."""

    def __init__(self, relation: m.Relation) -> None:
        self.relation = relation
        self._rows: dict[int, ReplayedRow] = {}
        self._numbers: dict[tuple[Value, ...], list[int]] = {}
        self._next = 0

    @property
    def rows(self) -> list[ReplayedRow]:
        """The rows."""
        return list(self._rows.values())

    @property
    def key(self) -> list[int]:
        """The places of the replica identity's columns; all of them, if it is full."""
        return [place for place, column in enumerate(self.relation.columns) if column.key]

    def announce(self, relation: m.Relation) -> None:
        """Take over another version of the relation, which must not have other columns."""
        if relation.columns == self.relation.columns:
            self.relation = relation
            return
        if [c.name for c in relation.columns] != [c.name for c in self.relation.columns]:
            raise NotImplementedError("a relation that changes its columns")
        self.relation, self._numbers = relation, {}
        for number, row in self._rows.items():
            self._numbers.setdefault(self._image(row.values), []).append(number)

    def truncate(self) -> None:
        """Forget all rows."""
        self._rows.clear()
        self._numbers.clear()

    def apply(self, change: m.RowChange, lsn: int, time: int) -> None:
        """Insert, update or delete one row."""
        if isinstance(change, m.Insert):
            number, known = self._next, None
            self._next += 1
        else:
            number = self._take(change)
            known = self._rows[number].values
        if isinstance(change, m.Delete):
            del self._rows[number]
            return
        values = [
            _text(cell, None if known is None else known[i], hidden=known is None)
            for i, cell in enumerate(change.new.cells)
        ]
        self._rows[number] = ReplayedRow(values, lsn, time)
        self._numbers.setdefault(self._image(values), []).append(number)

    def _take(self, change: m.Update | m.Delete) -> int:
        """Find the row that a change is about, by its old image or its key, and take it out of the index."""
        named = change.old or change.key or change.new  # type: ignore[union-attr]
        assert (change.old is not None) == (self.relation.replica_identity == "f")
        image = tuple(_text(named.cells[place], None, hidden=change.old is None) for place in self.key)
        numbers = self._numbers.get(image)
        assert numbers, f"{self.relation.qualified_name}: a change names a row that is not there"
        number = numbers.pop(0)
        if not numbers:
            del self._numbers[image]
        return number

    def _image(self, values: list[Value]) -> tuple[Value, ...]:
        return tuple(values[place] for place in self.key)


def replay(
    streams: Iterable[bytes], framing: Framing, is_too_late: Callable[[Identity], bool] = lambda _: False
) -> dict[str, ReplayedTable]:
    """Apply whole sessions, one after the other; give the tables by ``schema.table``.

    Only committed transactions count, each once, however often the sessions repeat it.

    Args:
        is_too_late: nothing counts from the first transaction on of which this is true.
    """
    replayed = Replay(is_too_late)
    for stream in streams:
        replayed.session(stream, framing)
    return replayed.by_name()


@dataclass
class _Open:
    """A transaction whose end has not come yet: its changes, each with its subtransaction and its relations.

    Attributes:
        begin: what announced it.
        relations: what was announced inside, if it is streamed.
    """

    begin: m.Begin | m.BeginPrepare | m.StreamStart
    relations: dict[int, m.Relation] = field(default_factory=dict)
    changes: list[tuple[int | None, Change, tuple[m.Relation, ...]]] = field(default_factory=list)


class Replay:
    """Sessions replayed so far.

    Attributes:
        tables: by OID; those that a committed transaction has changed.
        applied: the committed transactions in their order, each with the hash of its changes.
        resent: how many transactions came again.
        prepared: the completed Prepares that are not decided, by xid and gid.
        unprepared: the Commit Prepared messages without a Prepare: of empty transactions, or in a file that is missing.
        aborts_of_nothing: how many Stream Aborts named a transaction that their session had not streamed.
        empty_and_late: how many transactions without changes came for the first time behind later ones.
        left_open: for each session the xids of what was open at its end.
    """

    def __init__(self, is_too_late: Callable[[Identity], bool] = lambda _: False) -> None:
        self._is_too_late, self._ended = is_too_late, False
        self.tables: dict[int, ReplayedTable] = {}
        self.applied: dict[Identity, int] = {}
        self.resent = 0
        self.prepared: dict[tuple[int, str], _Open] = {}
        self.unprepared: list[m.CommitPrepared] = []
        self.aborts_of_nothing = 0
        self.empty_and_late = 0
        self.left_open: list[list[int]] = []

    def by_name(self) -> dict[str, ReplayedTable]:
        """Give the tables by ``schema.table``."""
        return {table.relation.qualified_name: table for table in self.tables.values()}

    def session(self, stream: bytes, framing: Framing) -> None:
        """Apply one session; it may end anywhere."""
        session = _Session(self)
        for message in _until_torn(stream, framing):
            session.read(message)
        self.left_open.append(session.open_xids())

    def commit(self, transaction: _Open | None, identity: Identity) -> None:
        """Apply a transaction unless it is known; None stands for one whose changes came in no session."""
        changes = [] if transaction is None else transaction.changes
        digest = hash(tuple(replace(change, xid=None) for _, change, _ in changes))
        if identity in self.applied:
            assert transaction is None or self.applied[identity] == digest, f"two copies of {identity} differ"
            self.resent += 1
            return
        self._ended = self._ended or self._is_too_late(identity)
        if self._ended:
            return
        lsn, _, time = identity
        if lsn < max((known[0] for known in self._newest()), default=0):
            # A session sends a transaction of which nothing is left only if it has begun to stream it.
            assert not changes, f"{identity} comes too late"
            self.empty_and_late += 1
            return
        self.applied[identity] = digest
        for _, change, relations in changes:
            self._apply(change, relations, lsn, time)

    def _newest(self) -> Iterable[Identity]:
        return [next(reversed(self.applied))] if self.applied else []

    def _apply(self, change: Change, relations: tuple[m.Relation, ...], lsn: int, time: int) -> None:
        for relation in relations:
            self.tables.setdefault(relation.oid, ReplayedTable(relation)).announce(relation)
            if isinstance(change, m.Truncate):
                self.tables[relation.oid].truncate()
            else:
                self.tables[relation.oid].apply(change, lsn, time)


class _Session:
    """One connection's messages; a new one knows no relation and no stream of the one before."""

    def __init__(self, replayed: Replay) -> None:
        self._replayed = replayed
        self._relations: dict[int, m.Relation] = {}
        self._streams: dict[int, _Open] = {}
        self._current: _Open | None = None  # an ordinary transaction, or the stream whose block is open

    def read(self, message: m.AnyMessage) -> None:
        """Take the next message."""
        _READERS[type(message)](self, message)

    def open_xids(self) -> list[int]:
        """Name what is open."""
        current = [] if self._current is None else [self._current.begin.xid]
        return list(dict.fromkeys([*current, *self._streams]))

    def begin(self, message: m.Begin | m.BeginPrepare) -> None:
        assert self._current is None
        self._current = _Open(message)

    def stream_start(self, message: m.StreamStart) -> None:
        assert self._current is None
        assert message.first_segment or message.xid in self._streams
        if message.first_segment:
            self._streams[message.xid] = _Open(message)
        self._current = self._streams[message.xid]

    def stream_stop(self, message: m.StreamStop) -> None:
        assert self._current is not None
        assert isinstance(self._current.begin, m.StreamStart)
        self._current = None

    def announce(self, message: m.Relation) -> None:
        if self._current is not None and isinstance(self._current.begin, m.StreamStart):
            self._current.relations[message.oid] = message
        else:
            self._relations[message.oid] = message

    def change(self, message: Change) -> None:
        assert self._current is not None
        oids = message.relation_oids if isinstance(message, m.Truncate) else (message.relation_oid,)
        known = {**self._relations, **self._current.relations}
        self._current.changes.append((message.xid, message, tuple(known[oid] for oid in oids)))

    def commit(self, message: m.Commit) -> None:
        begin = self._end(m.Begin)
        assert begin.begin.final_lsn == message.commit_lsn
        self._replayed.commit(begin, (message.commit_lsn, begin.begin.xid, message.commit_time))

    def stream_commit(self, message: m.StreamCommit) -> None:
        assert self._current is None
        stream = self._streams.pop(message.xid)
        self._relations.update(stream.relations)
        self._replayed.commit(stream, (message.commit_lsn, message.xid, message.commit_time))

    def stream_abort(self, message: m.StreamAbort) -> None:
        assert self._current is None
        stream = self._streams.get(message.xid)
        if stream is None:
            # PostgreSQL 18 forgets a transaction that it finds aborted, but tells of its subtransactions' aborts.
            self._replayed.aborts_of_nothing += 1
        elif message.subxid == message.xid:
            del self._streams[message.xid]
        else:
            stream.changes = [change for change in stream.changes if change[0] != message.subxid]

    def prepare(self, message: m.Prepare) -> None:
        if self._current is None:
            # So is a transaction sent of which nothing is to be sent.
            fields = (message.prepare_lsn, message.end_lsn, message.prepare_time, message.xid, message.gid)
            self.begin(m.BeginPrepare(*fields))
        begin = self._end(m.BeginPrepare)
        assert (begin.begin.xid, begin.begin.gid) == (message.xid, message.gid)
        self._replayed.prepared[message.xid, message.gid] = begin

    def stream_prepare(self, message: m.StreamPrepare) -> None:
        assert self._current is None
        self._replayed.prepared[message.xid, message.gid] = self._streams.pop(message.xid)

    def commit_prepared(self, message: m.CommitPrepared) -> None:
        assert self._current is None
        transaction = self._replayed.prepared.pop((message.xid, message.gid), None)
        identity = (message.commit_lsn, message.xid, message.commit_time)
        if transaction is None and identity not in self._replayed.applied:
            self._replayed.unprepared.append(message)
        self._replayed.commit(transaction, identity)

    def rollback_prepared(self, message: m.RollbackPrepared) -> None:
        assert self._current is None
        self._replayed.prepared.pop((message.xid, message.gid), None)

    def nothing(self, message: m.AnyMessage) -> None:
        pass

    def _end(self, kind: type[m.Begin | m.BeginPrepare]) -> Any:
        ended, self._current = self._current, None
        assert ended is not None
        assert isinstance(ended.begin, kind)
        return ended


_READERS: Mapping[type, Callable[[_Session, Any], None]] = {
    m.Begin: _Session.begin,
    m.Commit: _Session.commit,
    m.Origin: _Session.nothing,
    m.Message: _Session.nothing,
    m.Type: _Session.nothing,
    m.Relation: _Session.announce,
    m.Insert: _Session.change,
    m.Update: _Session.change,
    m.Delete: _Session.change,
    m.Truncate: _Session.change,
    m.StreamStart: _Session.stream_start,
    m.StreamStop: _Session.stream_stop,
    m.StreamCommit: _Session.stream_commit,
    m.StreamAbort: _Session.stream_abort,
    m.BeginPrepare: _Session.begin,
    m.Prepare: _Session.prepare,
    m.StreamPrepare: _Session.stream_prepare,
    m.CommitPrepared: _Session.commit_prepared,
    m.RollbackPrepared: _Session.rollback_prepared,
}


def _until_torn(stream: bytes, framing: Framing) -> Iterable[m.AnyMessage]:
    """A session may end inside a message; what is whole before it counts."""
    try:
        for _, message in read_stream(stream, framing=framing):
            yield message
    except TruncatedMessage:
        return


def _text(cell: m.Cell, known: Value, *, hidden: bool = False) -> Value:
    if cell.kind == "t":
        assert cell.value is not None
        return cell.value.decode()
    if cell.kind == "u" and not hidden:
        return known
    if cell.kind == "n":
        return None
    raise NotImplementedError(f"a cell of kind {cell.kind}")
