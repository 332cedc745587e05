"""Replays messages row by row into plain lists: what a capture means, with nothing done for speed.

It is written from the protocol's documents alone, on top of the scalar reader.  What the tables hold now, what they
held behind each commit, and which commit wrote a row last all follow from it.  Text values only.

What a session leaves open is void at its end; completed Prepares alone outlive it.  A transaction that comes again
is known by commit LSN, xid and commit time, and has to hold the same changes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from walreplay.errors import TruncatedMessage
from walreplay.protocol import messages as m
from walreplay.protocol.framing import Framing
from walreplay.protocol.reader import read_stream

if TYPE_CHECKING:
    from support.captures import Case
    from support.truth import SourceTable

Value = str | None
Change = m.RowChange | m.Truncate
Identity = tuple[int, int, int]
"""Commit LSN, xid and commit time."""


@dataclass(slots=True, eq=False)
class Version:
    """A version of a row, and the transaction that wrote it (commit time in µs since 2000-01-01).

    Attributes:
        op: how it came: c(reate) or u(pdate).
        end: the commit LSN of the transaction that ended it.
    """

    values: list[Value]
    commit_lsn: int
    commit_time: int
    op: str = "c"
    end: int | None = None


class ReplayedTable:
    """A table's rows, in no order that means anything, and the versions that they had before.

    Args:
        key: the places of the columns that tell rows apart; None for those of the replica identity.
        partial: not all changes are sent: the row that a change names may be missing (``missed`` counts them), and
            another may have the key of a new one, which then goes.
    """

    def __init__(self, relation: m.Relation, key: Sequence[int] | None = None, *, partial: bool = False) -> None:
        self.relation = relation
        self.first_lsn: int | None = None
        self.ended: list[Version] = []
        self.missed = 0
        self._key, self._partial = key, partial
        self._open: dict[tuple[Value, ...], list[Version]] = {}

    @property
    def rows(self) -> list[Version]:
        """The rows."""
        return [row for rows in self._open.values() for row in rows]

    @property
    def key(self) -> Sequence[int]:
        """The places of the columns that tell rows apart; all of them, if the replica identity is full."""
        if self._key is not None:
            return self._key
        return [place for place, column in enumerate(self.relation.columns) if column.key]

    def held_at(self, lsn: int) -> list[list[Value]]:
        """Return the rows as of a commit LSN."""
        return [
            one.values
            for one in (*self.ended, *self.rows)
            if one.commit_lsn <= lsn and (one.end is None or one.end > lsn)
        ]

    def announce(self, relation: m.Relation) -> None:
        """Take over another version of the relation, which may only have more columns at its end."""
        if relation.columns == self.relation.columns:
            self.relation = relation
            return
        known = [column.name for column in self.relation.columns]
        if [column.name for column in relation.columns][: len(known)] != known:
            raise NotImplementedError("a relation that drops or renames columns")
        self.relation, rows, self._open = relation, self.rows, {}
        for row in rows:
            row.values += [None] * (len(relation.columns) - len(known))
            self._open.setdefault(self._image(row.values), []).append(row)

    def apply(self, change: Change, lsn: int, time: int) -> None:
        """Make a change."""
        if self.first_lsn is None:
            self.first_lsn = lsn
        if isinstance(change, m.Truncate):
            for row in self.rows:
                self._end(row, lsn)
            self._open.clear()
            return
        named = None if isinstance(change, m.Insert) else _named(change)
        known = None if named is None else self._take(change, named, lsn)
        if isinstance(change, m.Delete):
            return
        values = [_text(cell) if cell.kind != "u" else None for cell in change.new.cells]
        for place, cell in enumerate(change.new.cells):
            if cell.kind == "u":
                assert self._partial or known is not None
                sent = named is not None and named.cells[place].kind == "t"
                values[place] = _text(named.cells[place]) if sent else known and known.values[place]
        image = self._image(values)
        if self._partial and self._key is not None:
            for row in self._open.pop(image, ()):
                self._end(row, lsn)
        op = "c" if isinstance(change, m.Insert) else "u"
        self._open.setdefault(image, []).append(Version(values, lsn, time, op))

    def _take(self, change: m.RowChange, named: m.TupleData, lsn: int) -> Version | None:
        """Find the row that a change is about, and end it: of equal rows the newest."""
        assert self._partial or (change.old is not None) == (self.relation.replica_identity == "f")
        image = tuple(_text(named.cells[place]) for place in self.key)
        rows = self._open.get(image)
        if not rows:
            assert self._partial, f"{self.relation.qualified_name}: a change names a row that is not there"
            self.missed += 1
            return None
        row = rows.pop()
        if not rows:
            del self._open[image]
        self._end(row, lsn)
        return row

    def _end(self, row: Version, lsn: int) -> None:
        row.end = lsn
        if row.commit_lsn != lsn:
            self.ended.append(row)

    def _image(self, values: list[Value]) -> tuple[Value, ...]:
        return tuple(values[place] for place in self.key)


def replay(streams: Iterable[bytes], framing: Framing) -> Replay:
    """Apply whole sessions, one after the other.

    Only committed transactions count, each once, however often the sessions repeat it.
    """
    replayed = Replay()
    for stream in streams:
        replayed.session(stream, framing)
    return replayed


def replay_of(recorded: Case) -> Replay:
    """Replay all sessions of a recorded capture."""
    return replay(recorded.streams(), recorded.framing)


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
        prepared: the completed Prepares that are not decided, by xid and gid.
    """

    def __init__(self) -> None:
        self.tables: dict[int, ReplayedTable] = {}
        self.applied: dict[Identity, int] = {}
        self.prepared: dict[tuple[int, str], _Open] = {}

    def by_name(self) -> dict[str, ReplayedTable]:
        """Return the tables by ``schema.table``."""
        return {table.relation.qualified_name: table for table in self.tables.values()}

    def sources(self, sources: Iterable[SourceTable], lsn: int | None = None) -> list[SourceTable]:
        """Return those of a source's tables that a committed transaction has changed, with the rows of this replay.

        Args:
            lsn: the commit as of which; None for the last one.
        """
        at = max((known[0] for known in self._newest()), default=0) if lsn is None else lsn
        tables = {name: table for name, table in self.by_name().items() if (table.first_lsn or 0) <= at}
        return [
            replace(source, rows=tables[source.qualified_name].held_at(at))
            for source in sources
            if source.qualified_name in tables
        ]

    def session(self, stream: bytes, framing: Framing) -> None:
        """Apply one session; it may end anywhere."""
        session = _Session(self)
        for message in _until_torn(stream, framing):
            session.read(message)

    def commit(self, transaction: _Open | None, identity: Identity) -> None:
        """Apply a transaction unless it is known; None stands for one whose changes came in no session."""
        changes = [] if transaction is None else transaction.changes
        digest = hash(tuple(replace(change, xid=None) for _, change, _ in changes))
        if identity in self.applied:
            assert transaction is None or self.applied[identity] == digest, f"two copies of {identity} differ"
            return
        lsn, _, time = identity
        if lsn < max((known[0] for known in self._newest()), default=0):
            # A session sends a transaction of which nothing is left only if it has begun to stream it.
            assert not changes, f"{identity} comes too late"
            return
        self.applied[identity] = digest
        for _, change, relations in changes:
            self._apply(change, relations, lsn, time)

    def _newest(self) -> Iterable[Identity]:
        return [next(reversed(self.applied))] if self.applied else []

    def _apply(self, change: Change, relations: tuple[m.Relation, ...], lsn: int, time: int) -> None:
        for relation in relations:
            table = self.tables.setdefault(relation.oid, ReplayedTable(relation))
            table.announce(relation)
            table.apply(change, lsn, time)


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
            return
        if message.subxid == message.xid:
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
        self._replayed.commit(transaction, (message.commit_lsn, message.xid, message.commit_time))

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


def _named(change: m.Update | m.Delete) -> m.TupleData:
    """Return what names the row that a change is about: its old image, its key, or the new row's."""
    found = change.old or change.key or getattr(change, "new", None)
    assert found is not None
    return found


def _text(cell: m.Cell) -> Value:
    if cell.kind == "t":
        assert cell.value is not None
        return cell.value.decode()
    if cell.kind == "n":
        return None
    raise NotImplementedError(f"a cell of kind {cell.kind}")
