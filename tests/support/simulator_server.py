"""A PostgreSQL server, as far as its WAL matters: sessions run transactions side by side, the WAL comes out.

Every step is a record of `STEP_BYTES` small numbers, made to fit what is there: a step that makes no sense does
nothing, so every list of records is a valid history, and zeros are the simplest one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from support.wire import encode
from walreplay.protocol import messages as m

STEP_BYTES: Final = 8

UNCHANGED: Final = "<unchanged>"
"""Stands for a value that was not sent: unchanged TOAST."""

Values = tuple[str | None, ...]


def _columns(*columns: tuple[str, int, bool]) -> tuple[m.Column, ...]:
    return tuple(m.Column(name, oid, -1, key) for name, oid, key in columns)


MOOD: Final = m.Type(16500, "public", "mood")
TABLES: Final = (
    m.Relation(16401, "public", "t", "d", _columns(("id", 23, True), ("body", 25, False))),
    m.Relation(
        16402, "sales", "orders B", "d", _columns(("id", 23, True), ("note", 25, False), ("mood", MOOD.oid, False))
    ),
    m.Relation(16403, "public", "log", "f", _columns(("n", 23, True), ("body", 25, True))),
    m.Relation(16404, "sales", "events", "n", _columns(("n", 23, False), ("body", 25, False))),
)
RELATIONS: Final = {relation.oid: relation for relation in TABLES}

TEXTS: Final = ("", "a", "B", "S\n", "C\x01", "é{", "\n", "M\n\nB\x02E\n", "d" * 30, "I\n" * 50, "S\x01E" * 20, "w\nd")
CONTENTS: Final = (
    b"",
    b"plain",
    b"B\nC\n",
    encode(m.Begin(0x1000, 5, 700)),
    encode(m.StreamStart(700, True)) + b"\nE\n",
    bytes(40),
)
"""What logical messages hold: bytes, so NULs and whole messages too."""
ORIGINS: Final = ("node_a", "B\n")
GIDS: Final = ("g", "two\nB", "C" * 20)

_MOST_COLUMNS: Final = 5

_ANEW: Final = 1000
"""A table that is created again has an oid that is so much higher."""
_FREE: Final = ("public", "grey")
"""A name that no table has at first."""

_FIRST_LSNS: Final = (0x1000028, 0x16B3740, 2**32 - 900, 0xA3F_C0467E20)
_FIRST_XIDS: Final = (700, 2**31 - 8, 3_000_000_000)
_FIRST_TIME: Final = 800_000_000_000_000


@dataclass(slots=True, eq=False, repr=False)
class Sub:
    """A subtransaction; the top one is the transaction itself.

    Attributes:
        xid: 0 until something was written.
        undone: where in the WAL it rolled back; its transaction's own end is not told here.
    """

    parent: Sub | None = None
    xid: int = 0
    undone: int | None = None

    def within(self, other: Sub) -> bool:
        """Return whether it is the other one, or nested in it."""
        sub: Sub | None = self
        while sub is not None and sub is not other:
            sub = sub.parent
        return sub is other


@dataclass(slots=True, eq=False, repr=False)
class Change:
    """What a transaction wrote: row changes, truncates, logical messages.

    Attributes:
        tag, body: the message; an xid goes between the two inside a stream.  No tag: a table that is not published, or
            an ALTER TABLE.
        relations: those that have to be announced before it, as they are for it.
        altered: the oid of the table that it alters.
        op: c, u, d or t; empty where it is no change of rows.
        before: the old row or key of an update, where it is sent.
        message: prefix and content of a logical message.
    """

    sub: Sub
    lsn: int
    tag: bytes = b""
    body: bytes = b""
    relations: tuple[m.Relation, ...] = ()
    op: str = ""
    values: Values = ()
    before: Values | None = None
    message: tuple[str, bytes] | None = None
    altered: int = 0


@dataclass(slots=True, eq=False, repr=False)
class Txn:
    """A transaction, and what is true of it in the end.

    Attributes:
        empty: how an empty one is prepared: 0 Begin Prepare and Prepare, 1 Prepare alone, 2 not at all.
        versions: what it has made of tables.
        gone: where in the WAL it was aborted, by whatever means.
    """

    top: Sub
    first_lsn: int
    empty: int = 0
    origin: tuple[int, str] | None = None
    subs: list[Sub] = field(default_factory=list)
    changes: list[Change] = field(default_factory=list)
    versions: list[tuple[Sub, m.Relation]] = field(default_factory=list)
    gone: int | None = None
    gid: str | None = None
    prepare_lsn: int = 0
    prepare_end: int = 0
    prepare_time: int = 0
    commit_lsn: int = 0
    commit_end: int = 0
    commit_time: int = 0

    @property
    def xid(self) -> int:
        return self.top.xid

    @property
    def kept(self) -> Iterator[Change]:
        """What survives the rollbacks to savepoints."""
        return (change for change in self.changes if change.sub.undone is None)

    def relation(self, oid: int) -> m.Relation | None:
        """Return what it has made of a table, if it has."""
        kept = [one for sub, one in self.versions if sub.undone is None and _is_of(one, oid)]
        return kept[-1] if kept else None

    def uses(self, oid: int) -> bool:
        """Return whether it holds a lock on a table."""
        used = (one for change in self.changes for one in change.relations)
        return any(_is_of(one, oid) for one in used) or self.relation(oid) is not None


def _is_of(relation: m.Relation, oid: int) -> bool:
    """Return whether a relation is the table with this oid, or what was created again in its place."""
    return relation.oid % _ANEW == oid % _ANEW


@dataclass(slots=True, eq=False)
class Event:
    """A record of the WAL.

    Attributes:
        what: change, loose (a logical message outside of transactions), undo, abort, commit, prepare,
            commit_prepared, rollback_prepared, announce, connect (a place where a walsender's session ends).
        subs: the subtransactions that an undo or an abort names, in its order.
        dead: the transactions that a crash ended.
        step: the record it came from.
    """

    what: str
    lsn: int
    time: int
    step: bytes
    txn: Txn | None = None
    change: Change | None = None
    oid: int = 0
    content: tuple[str, bytes] | None = None
    subs: tuple[Sub, ...] = ()
    dead: tuple[Txn, ...] = ()


class Server:
    """Play steps; `wal` is the result.

    Args:
        ops: what steps may be, by their first number; without them `OPS`.
    """

    def __init__(self, tables: int, backends: int, base: int, *, origins: bool, ops: Sequence[Op] = ()) -> None:
        self.wal: list[Event] = []
        self._ops = ops or OPS
        self._tables = TABLES[:tables] if base % 2 == 0 else TABLES[-tables:]
        self._current = dict(RELATIONS)
        self._origins = origins
        self._lsn = _FIRST_LSNS[base % len(_FIRST_LSNS)]
        self._time = _FIRST_TIME
        self._xid = _FIRST_XIDS[base // 4 % len(_FIRST_XIDS)]
        self._serial = 0
        self._step = bytes(STEP_BYTES)
        self._stacks: list[list[Sub]] = [[] for _ in range(backends)]
        self._txns: list[Txn | None] = [None] * backends
        self._prepared: list[Txn] = []

    def play(self, steps: Sequence[bytes]) -> None:
        """Play steps one after the other."""
        for step in steps:
            self._step = step
            self._ops[step[0] % len(self._ops)](self)

    # Sessions of the server.

    @property
    def _backend(self) -> int:
        return self._step[1] % len(self._txns)

    def _open(self) -> tuple[Txn, list[Sub]]:
        """Return the session's transaction, begun if need be, and its open subtransactions."""
        at, step = self._backend, self._step
        txn = self._txns[at]
        if txn is None:
            top = Sub()
            txn = self._txns[at] = Txn(top, 0, empty=step[7] % 3)
            if self._origins and step[6] % 3 == 1:
                txn.origin = (self._lsn + 77, ORIGINS[step[5] % len(ORIGINS)])
            txn.subs.append(top)
            self._stacks[at] = [top]
        return txn, self._stacks[at]

    def _close(self) -> Txn | None:
        """Take the session's transaction from it; None where nothing was written."""
        txn = self._txns[self._backend]
        self._txns[self._backend] = None
        return txn if txn is not None and txn.xid else None

    def _write(self, what: str) -> Event:
        """Add a record to the WAL."""
        self._lsn += 8 * (3 + self._step[7] % 9)
        self._time += 1000 + self._step[7]
        event = Event(what, self._lsn, self._time, self._step)
        self.wal.append(event)
        return event

    def _assign(self, sub: Sub) -> None:
        """Give a subtransaction its xid, its parents theirs first: as late as PostgreSQL does."""
        if not sub.xid:
            if sub.parent is not None:
                self._assign(sub.parent)
            sub.xid = self._xid
            self._xid += 1

    # What transactions do.

    def _change(
        self,
        message: m.AnyMessage | None,
        relations: tuple[m.Relation, ...] = (),
        op: str = "",
        values: Values = (),
        before: Values | None = None,
        logical: tuple[str, bytes] | None = None,
        altered: int = 0,
    ) -> None:
        txn, stack = self._open()
        self._assign(stack[-1])
        event = self._write("change")
        wire = b""
        if isinstance(message, m.Message):
            wire = encode(m.Message(True, event.lsn, message.prefix, message.content))
        elif message is not None:
            wire = encode(message)
        txn.first_lsn = txn.first_lsn or event.lsn
        event.txn = txn
        event.change = Change(stack[-1], event.lsn, wire[:1], wire[1:], relations, op, values, before, logical, altered)
        txn.changes.append(event.change)

    def _row(self, relation: m.Relation) -> Values:
        """Make a row that no other change has."""
        self._serial += 1
        step = self._step
        texts: list[str | None] = [f"{TEXTS[step[3 + n % 3] % len(TEXTS)]}{self._serial}" for n in range(_MOST_COLUMNS)]
        if step[5] % 4 == 1:
            texts[1] = None
        return (str(self._serial), *texts[: len(relation.columns) - 1])

    def _visible(self, oid: int) -> m.Relation | None:
        """Return a table as the session's transaction has it; None where another one alters it."""
        own = self._txns[self._backend]
        others = [*self._txns, *self._prepared]
        if any(txn is not None and txn is not own and txn.relation(oid) is not None for txn in others):
            return None
        return (own.relation(oid) if own is not None else None) or self._current[oid]

    @property
    def _oid(self) -> int:
        return self._tables[self._step[2] % len(self._tables)].oid

    @property
    def _table(self) -> m.Relation | None:
        return self._visible(self._oid)

    def _insert(self) -> None:
        relation = self._table
        if relation is None:
            return
        row = self._row(relation)
        self._change(m.Insert(relation.oid, _tuple(row)), (relation,), "c", row)

    def _burst(self) -> None:
        for _ in range(2 + self._step[6] % 6):
            self._insert()

    def _update(self) -> None:
        relation = self._table
        if relation is None:
            return
        if relation.replica_identity == "n":
            self._insert()
            return
        row, full = self._row(relation), relation.replica_identity == "f"
        if full:
            old = self._row(relation)
            self._change(m.Update(relation.oid, _tuple(row), old=_tuple(old)), (relation,), "u", row, old)
            return
        if self._step[5] % 3 == 2:
            row = (row[0], UNCHANGED, *row[2:])
        self._change(m.Update(relation.oid, _tuple(row)), (relation,), "u", row)

    def _move(self) -> None:
        """Change a row's key."""
        relation = self._table
        if relation is None or relation.replica_identity in "fn":
            self._update()
            return
        key, row = _key(self._row(relation)), self._row(relation)
        self._change(m.Update(relation.oid, _tuple(row), key=_tuple(key)), (relation,), "u", row, key)

    def _delete(self) -> None:
        relation = self._table
        if relation is None:
            return
        if relation.replica_identity == "n":
            self._insert()
            return
        row = self._row(relation)
        if relation.replica_identity == "f":
            self._change(m.Delete(relation.oid, old=_tuple(row)), (relation,), "d", row)
        else:
            self._change(m.Delete(relation.oid, key=_tuple(_key(row))), (relation,), "d", _key(row))

    def _truncate(self) -> None:
        first = self._step[2] % len(self._tables)
        count = 1 + self._step[3] % (len(self._tables) - first)
        found = [self._visible(relation.oid) for relation in self._tables[first : first + count]]
        relations = tuple(relation for relation in found if relation is not None)
        if relations:
            oids = tuple(relation.oid for relation in relations)
            self._change(m.Truncate(oids, self._step[4] % 4), relations, "t")

    def _alter(self) -> None:
        """Add a column to a table, drop or rename its last one; nobody else may be at work on it."""
        relation = self._locked(self._oid)
        if relation is None:
            return
        self._serial += 1
        columns, last = relation.columns, relation.columns[-1]
        kind = self._step[3] % 3
        if kind == 2:
            columns = (*columns[:-1], replace(last, name=f"r{self._serial}"))
        elif (kind == 0 or len(columns) == 2) and len(columns) < _MOST_COLUMNS:
            columns = (*columns, m.Column(f"c{self._serial}", 25, -1, relation.replica_identity == "f"))
        elif len(columns) > 2:
            columns = columns[:-1]
        self._turn(relation, replace(relation, columns=columns))

    def _locked(self, oid: int) -> m.Relation | None:
        """Return a table as the session's transaction has it; None where another one is at work on it."""
        own = self._txns[self._backend]
        others = [txn for txn in (*self._txns, *self._prepared) if txn is not None and txn is not own]
        return None if any(txn.uses(oid) for txn in others) else self._visible(oid)

    def _turn(self, relation: m.Relation, into: m.Relation) -> None:
        """Have the session's transaction make something else of a table."""
        self._change(None, altered=relation.oid)
        txn, stack = self._open()
        txn.versions.append((stack[-1], into))

    # How names pass from table to table.

    def _swap(self) -> None:
        """Let two tables have each other's names, or more of them pass theirs on in a circle."""
        first, count = self._step[2] % len(self._tables), 2 + self._step[3] % 2
        oids = dict.fromkeys(self._tables[(first + n) % len(self._tables)].oid for n in range(count))
        found = [self._locked(oid) for oid in oids]
        relations = [relation for relation in found if relation is not None]
        if len(relations) < len(found):
            return
        for relation, other in zip(relations, (*relations[1:], relations[0]), strict=True):
            self._turn(relation, replace(relation, namespace=other.namespace, name=other.name))

    def _rename(self) -> None:
        """Give a table a name that no table has, or may come to have."""
        relation = self._locked(self._oid)
        open_ = [one for txn in (*self._txns, *self._prepared) if txn is not None for _, one in txn.versions]
        taken = {(one.namespace, one.name) for one in (*self._current.values(), *open_)}
        free = [name for name in (*((one.namespace, one.name) for one in TABLES), _FREE) if name not in taken]
        if relation is not None and free:
            namespace, name = free[self._step[3] % len(free)]
            self._turn(relation, replace(relation, namespace=namespace, name=name))

    def _recreate(self) -> None:
        """Drop a table, and create one of its name."""
        relation = self._locked(self._oid)
        if relation is not None:
            self._serial += 1
            self._turn(relation, replace(relation, oid=relation.oid % _ANEW + _ANEW * (100 + self._serial)))

    def _hidden(self) -> None:
        """Write to a table that is not published."""
        self._change(None)

    def _message(self) -> None:
        prefix, content = self._logical()
        self._change(m.Message(True, 0, prefix, content), logical=(prefix, content))

    def _logical(self) -> tuple[str, bytes]:
        self._serial += 1
        return f"p{self._serial}", CONTENTS[self._step[3] % len(CONTENTS)]

    def _loose(self) -> None:
        """Write a logical message that belongs to no transaction, whatever the session is doing."""
        self._write("loose").content = self._logical()

    def _announce(self) -> None:
        """Invalidate a relation: it is announced again, unchanged."""
        self._write("announce").oid = self._oid

    # Subtransactions.

    def _savepoint(self) -> None:
        txn, stack = self._open()
        sub = Sub(stack[-1])
        stack.append(sub)
        txn.subs.append(sub)

    def _release(self) -> None:
        _, stack = self._open()
        if len(stack) > 1:
            stack.pop()

    def _rollback_to(self) -> None:
        """Undo a savepoint and all in it, and begin it anew."""
        txn, stack = self._open()
        if len(stack) == 1:
            return
        depth = 1 + self._step[2] % (len(stack) - 1)
        undone = [sub for sub in txn.subs if sub.undone is None and sub.within(stack[depth])]
        for sub in undone:
            sub.undone = len(self.wal)
        written = [sub for sub in undone if sub.xid]
        if written:
            event = self._write("undo")
            event.txn = txn
            # Both orders have been seen: the children before their parent, and behind it.
            event.subs = tuple(written if self._step[3] % 2 else reversed(written))
        fresh = Sub(stack[depth - 1])
        stack[depth:] = [fresh]
        txn.subs.append(fresh)

    # How transactions end.

    def _commit(self) -> None:
        txn = self._close()
        if txn is not None:
            self._write("commit").txn = txn
            self._committed(txn)

    def _committed(self, txn: Txn) -> None:
        txn.commit_lsn, txn.commit_end = self._lsn, self._lsn + 16
        # A transaction that came from another server keeps its old time.
        txn.commit_time = self._time - (3_600_000_000 if txn.origin else 0)
        self._current.update((oid, found) for oid in RELATIONS if (found := txn.relation(oid)) is not None)

    def _rollback(self) -> None:
        txn = self._close()
        if txn is not None:
            txn.gone = len(self.wal)
            event = self._write("abort")
            event.txn = txn
            if self._step[3] % 2:
                event.subs = tuple(sub for sub in reversed(txn.subs[1:]) if sub.xid and sub.undone is None)

    def _prepare(self) -> None:
        free = [gid for gid in GIDS if all(txn.gid != gid for txn in self._prepared)]
        if not free:
            return
        txn, stack = self._open()
        self._assign(stack[0])
        self._close()
        self._write("prepare").txn = txn
        txn.gid = free[self._step[2] % len(free)]
        txn.first_lsn = txn.first_lsn or self._lsn
        txn.prepare_lsn, txn.prepare_end, txn.prepare_time = self._lsn, self._lsn + 16, self._time
        self._prepared.append(txn)

    def _decide(self) -> None:
        """Commit or roll back a prepared transaction."""
        if not self._prepared:
            return
        txn = self._prepared.pop(self._step[2] % len(self._prepared))
        if self._step[3] % 3 == 2:
            txn.gone = len(self.wal)
            self._write("rollback_prepared").txn = txn
        else:
            self._write("commit_prepared").txn = txn
            self._committed(txn)

    def _connect(self) -> None:
        """Let the walsender's session end here; sometimes because the server crashed."""
        dead: list[Txn] = []
        if self._step[6] % 4 == 3:
            dead = [txn for txn in self._txns if txn is not None and txn.xid]
            for txn in dead:
                txn.gone = len(self.wal)
            self._txns = [None] * len(self._txns)
        self._write("connect").dead = tuple(dead)

    def _nothing(self) -> None:
        pass


Op = Callable[[Server], None]

# How often each comes; the first is what shrinking ends at.
OPS: Final[tuple[Op, ...]] = (
    *[
        Server._nothing,
        Server._message,
        Server._loose,
        Server._announce,
        Server._hidden,
        Server._truncate,
        Server._release,
        Server._connect,
        Server._move,
    ],
    *[Server._insert] * 6,
    *[Server._alter] * 2,
    *[Server._burst] * 4,
    *[Server._update] * 2,
    *[Server._delete] * 2,
    *[Server._savepoint] * 7,
    *[Server._rollback_to] * 5,
    *[Server._commit] * 13,
    *[Server._rollback] * 2,
    *[Server._prepare] * 3,
    *[Server._decide] * 3,
)
NAMING: Final[tuple[Op, ...]] = (
    *[
        Server._nothing,
        Server._connect,
        Server._truncate,
        Server._move,
        Server._alter,
        Server._rename,
        Server._recreate,
        Server._rollback,
        Server._delete,
    ],
    *[Server._insert] * 4,
    *[Server._update, Server._swap, Server._savepoint, Server._rollback_to, Server._prepare, Server._decide] * 2,
    *[Server._commit] * 6,
)
"""What passes names from table to table."""


def _key(row: Values) -> Values:
    return (row[0], *[None] * (len(row) - 1))


def _tuple(row: Values) -> m.TupleData:
    return m.TupleData(tuple([_cell(value) for value in row]))


def _cell(value: str | None) -> m.Cell:
    if value is None:
        return m.NULL_CELL
    return m.UNCHANGED_CELL if value is UNCHANGED else m.Cell("t", value.encode())
