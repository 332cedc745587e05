"""Replays messages row by row into plain lists: what a capture means, with nothing done for speed.

It is written from the protocol's documents alone, on top of the scalar reader.  What the tables hold now, what they
held behind each commit, and which commit wrote a row last all follow from it.  Text values only.

What a session leaves open is void at its end; completed Prepares alone outlive it.  A transaction that comes again
is known by commit LSN, xid and commit time, and has to hold the same changes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from support.row_states import RowStates, State
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


class ReplayedTable(RowStates):
    """A table's rows, which the messages of a relation change.

    Args:
        key: the places of the columns that tell rows apart; None for those of the replica identity.
        partial: not all changes are sent: the row that a change names may be missing, and another may have the key of
            a new one, which then goes.
    """

    def __init__(self, relation: m.Relation, key: Sequence[int] | None = None, *, partial: bool = False) -> None:
        super().__init__(lambda values: tuple(values[place] for place in self.key))
        self.relation = relation
        self.first_lsn: int | None = None
        self._key, self._partial = key, partial

    @property
    def key(self) -> Sequence[int]:
        """The places of the columns that tell rows apart; all of them, if the replica identity is full."""
        if self._key is not None:
            return self._key
        return [place for place, column in enumerate(self.relation.columns) if column.key]

    def announce(self, relation: m.Relation) -> None:
        """Take over another version of the relation, which may only have more or fewer columns at its end."""
        names, known = ([column.name for column in one.columns] for one in (relation, self.relation))
        size = min(len(names), len(known))
        if names[:size] != known[:size]:
            raise NotImplementedError("a relation that drops or renames columns")
        self.relation = relation
        if len(names) != len(known):
            self.rewrite(lambda values: [*values[:size], *[None] * (len(names) - size)])

    def rewrite(self, change: Callable[[list[Value]], list[Value]]) -> None:
        """Change all rows, as an ALTER TABLE does, of which nothing is sent."""
        rows, self._open = self.rows, {}
        for row in rows:
            row.values = change(row.values)
            self._open.setdefault(self.image(row.values), []).append(row)

    def apply(self, change: Change, lsn: int, time: int, ordinal: int = 0) -> None:
        """Make a change."""
        if self.first_lsn is None:
            self.first_lsn = lsn
        if isinstance(change, m.Truncate):
            self.empty(lsn)
            return
        named = None if isinstance(change, m.Insert) else _named(change)
        former = None if named is None else self._take(change, named, lsn)
        if isinstance(change, m.Delete):
            return
        values = [_text(cell) if cell.kind != "u" else None for cell in change.new.cells]
        for place, cell in enumerate(change.new.cells):
            if cell.kind == "u":
                assert self._partial or former is not None
                sent = named is not None and named.cells[place].kind == "t"
                values[place] = _text(named.cells[place]) if sent else former and former.values[place]
        if self._partial and self._key is not None:
            self.evict(self.image(values), lsn)
        op = "c" if isinstance(change, m.Insert) else "u"
        self.begin(State(values, lsn, time, ordinal, op), former)

    def _take(self, change: m.RowChange, named: m.TupleData, lsn: int) -> State | None:
        """Find the row that a change is about, and end it."""
        assert self._partial or (change.old is not None) == (self.relation.replica_identity == "f")
        row = self.end(tuple(_text(named.cells[place]) for place in self.key), lsn)
        assert self._partial or row is not None, (
            f"{self.relation.qualified_name}: a change names a row that is not there"
        )
        return row


def replay(streams: Iterable[bytes], framing: Framing) -> Replay:
    """Apply whole sessions, one after the other.

    Only committed transactions count, each once, however often the sessions repeat it.
    """
    replayed = Replay()
    for stream in streams:
        replayed.begin_session()
        # A session may end inside a message; what is whole before it counts.
        with suppress(TruncatedMessage):
            for _, message in read_stream(stream, framing=framing):
                replayed.session.read(message)
    return replayed


def replay_of(recorded: Case) -> Replay:
    """Replay all sessions of a recorded capture."""
    return replay(recorded.streams(), recorded.framing)


@dataclass
class Open:
    """A transaction whose end has not come yet: its changes, each with its subtransaction and its relations.

    Attributes:
        begin: what announced it.
        relations: what was announced inside, if it is streamed.
        prepare_lsn: once it is prepared.
    """

    begin: m.Begin | m.BeginPrepare | m.StreamStart
    relations: dict[int, m.Relation] = field(default_factory=dict)
    changes: list[tuple[int | None, Change, tuple[m.Relation, ...]]] = field(default_factory=list)
    prepare_lsn: int | None = None


class Transactions:
    """Transactions of the sessions read so far.

    Attributes:
        session: the one that is read.
        applied: the committed transactions in their order, each with the hash of its changes.
        prepared: the completed Prepares that are not decided, by xid and gid.
        messages: the logical messages outside of transactions.
    """

    def __init__(self) -> None:
        self.session = Session(self)
        self.applied: dict[Identity, int] = {}
        self.prepared: dict[tuple[int, str], Open] = {}
        self.messages: list[m.Message] = []
        self._newest = 0

    def begin_session(self) -> None:
        """Begin another session: what the one before has left open is void."""
        self.session = Session(self)

    def commit(self, transaction: Open | None, identity: Identity) -> None:
        """Apply a transaction unless it is known; None stands for one whose changes came in no session."""
        changes = [] if transaction is None else transaction.changes
        digest = hash(tuple(replace(change, xid=None) for _, change, _ in changes))
        if identity in self.applied:
            assert transaction is None or self.applied[identity] == digest, f"two copies of {identity} differ"
            return
        # A session sends a late transaction, of which nothing is left, only if it has begun to stream it.
        assert not changes or identity[0] >= self._newest, f"{identity} comes too late"
        self._newest = max(self._newest, identity[0])
        self.applied[identity] = digest
        for ordinal, (_, change, relations) in enumerate(changes):
            self.apply(change, relations, identity, ordinal)

    def apply(self, change: Change, relations: tuple[m.Relation, ...], identity: Identity, ordinal: int) -> None:
        """Take a change of a committed transaction."""


class Replay(Transactions):
    """Sessions replayed so far.

    Attributes:
        tables: by OID; those that a committed transaction has changed.
    """

    def __init__(self) -> None:
        super().__init__()
        self.tables: dict[int, ReplayedTable] = {}

    def by_name(self) -> dict[str, ReplayedTable]:
        """Return the tables by ``schema.table``."""
        return {table.relation.qualified_name: table for table in self.tables.values()}

    def sources(self, sources: Iterable[SourceTable], lsn: int | None = None) -> list[SourceTable]:
        """Return those of a source's tables that a committed transaction has changed, with the rows of this replay.

        Args:
            lsn: the commit as of which; None for the last one.
        """
        at = self._newest if lsn is None else lsn
        tables = {name: table for name, table in self.by_name().items() if (table.first_lsn or 0) <= at}
        return [
            replace(source, rows=[row.values for row in tables[source.qualified_name].held_at(at)])
            for source in sources
            if source.qualified_name in tables
        ]

    def apply(self, change: Change, relations: tuple[m.Relation, ...], identity: Identity, ordinal: int) -> None:
        lsn, _, time = identity
        for relation in relations:
            table = self.tables.setdefault(relation.oid, ReplayedTable(relation))
            table.announce(relation)
            table.apply(change, lsn, time, ordinal)


class Session:
    """One connection's messages; a new one knows no relation and no stream of the one before."""

    def __init__(self, known: Transactions) -> None:
        self.streams: dict[int, Open] = {}
        self.current: Open | None = None  # an ordinary transaction, or the stream whose block is open
        self._known = known
        self._relations: dict[int, m.Relation] = {}

    def read(self, message: m.AnyMessage) -> None:
        """Take the next message."""
        _READERS[type(message)](self, message)

    def begin(self, message: m.Begin | m.BeginPrepare) -> None:
        assert self.current is None
        self.current = Open(message)

    def stream_start(self, message: m.StreamStart) -> None:
        assert self.current is None
        assert message.first_segment or message.xid in self.streams
        if message.first_segment:
            self.streams[message.xid] = Open(message)
        self.current = self.streams[message.xid]

    def stream_stop(self, message: m.StreamStop) -> None:
        assert self.current is not None
        assert isinstance(self.current.begin, m.StreamStart)
        self.current = None

    def announce(self, message: m.Relation) -> None:
        if self.current is not None and isinstance(self.current.begin, m.StreamStart):
            self.current.relations[message.oid] = message
        else:
            self._relations[message.oid] = message

    def change(self, message: Change) -> None:
        assert self.current is not None
        oids = message.relation_oids if isinstance(message, m.Truncate) else (message.relation_oid,)
        known = {**self._relations, **self.current.relations}
        self.current.changes.append((message.xid, message, tuple(known[oid] for oid in oids)))

    def commit(self, message: m.Commit) -> None:
        begin = self._end(m.Begin)
        assert begin.begin.final_lsn == message.commit_lsn
        self._known.commit(begin, (message.commit_lsn, begin.begin.xid, message.commit_time))

    def stream_commit(self, message: m.StreamCommit) -> None:
        assert self.current is None
        stream = self.streams.pop(message.xid)
        self._relations.update(stream.relations)
        self._known.commit(stream, (message.commit_lsn, message.xid, message.commit_time))

    def stream_abort(self, message: m.StreamAbort) -> None:
        assert self.current is None
        stream = self.streams.get(message.xid)
        if stream is None:
            # PostgreSQL 18 forgets a transaction that it finds aborted, but tells of its subtransactions' aborts.
            return
        if message.subxid == message.xid:
            del self.streams[message.xid]
        else:
            stream.changes = [change for change in stream.changes if change[0] != message.subxid]

    def prepare(self, message: m.Prepare) -> None:
        if self.current is None:
            # So is a transaction sent of which nothing is to be sent.
            fields = (message.prepare_lsn, message.end_lsn, message.prepare_time, message.xid, message.gid)
            self.begin(m.BeginPrepare(*fields))
        begin = self._end(m.BeginPrepare)
        assert (begin.begin.xid, begin.begin.gid) == (message.xid, message.gid)
        self._known.prepared[message.xid, message.gid] = replace(begin, prepare_lsn=message.prepare_lsn)

    def stream_prepare(self, message: m.StreamPrepare) -> None:
        assert self.current is None
        stream = replace(self.streams.pop(message.xid), prepare_lsn=message.prepare_lsn)
        self._known.prepared[message.xid, message.gid] = stream

    def commit_prepared(self, message: m.CommitPrepared) -> None:
        assert self.current is None
        transaction = self._known.prepared.pop((message.xid, message.gid), None)
        self._known.commit(transaction, (message.commit_lsn, message.xid, message.commit_time))

    def rollback_prepared(self, message: m.RollbackPrepared) -> None:
        assert self.current is None
        self._known.prepared.pop((message.xid, message.gid), None)

    def logical(self, message: m.Message) -> None:
        assert (self.current is not None) == message.transactional
        if not message.transactional:
            self._known.messages.append(message)

    def nothing(self, message: m.AnyMessage) -> None:
        pass

    def _end(self, kind: type[m.Begin | m.BeginPrepare]) -> Any:
        ended, self.current = self.current, None
        assert ended is not None
        assert isinstance(ended.begin, kind)
        return ended


_READERS: Mapping[type, Callable[[Session, Any], None]] = {
    m.Begin: Session.begin,
    m.Commit: Session.commit,
    m.Origin: Session.nothing,
    m.Message: Session.logical,
    m.Type: Session.nothing,
    m.Relation: Session.announce,
    m.Insert: Session.change,
    m.Update: Session.change,
    m.Delete: Session.change,
    m.Truncate: Session.change,
    m.StreamStart: Session.stream_start,
    m.StreamStop: Session.stream_stop,
    m.StreamCommit: Session.stream_commit,
    m.StreamAbort: Session.stream_abort,
    m.BeginPrepare: Session.begin,
    m.Prepare: Session.prepare,
    m.StreamPrepare: Session.stream_prepare,
    m.CommitPrepared: Session.commit_prepared,
    m.RollbackPrepared: Session.rollback_prepared,
}


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
