"""Names that pass from table to table: histories, the bytes that a server would send of them, and runs over these.

Runs do all that `walreplay.job.apply` does but to write rows: files are scanned, stitched and decoded, tables are
placed and moved.  What is right says `expected`: the relation that was used last under a name has it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from support.runs import plan_run, staged_rows
from walreplay.config import Settings
from walreplay.delta.target import Target
from walreplay.ledger.state import resume_to_json
from walreplay.protocol import messages as m
from walreplay.protocol.writer import encode
from walreplay.spark.staging import Rows, Staged, StagedRows, Staging
from walreplay.spark.workers.rows import Total
from walreplay.table.placement import Move
from walreplay.table.plan import RunPlan, plan_tables
from walreplay.table.registry import MirrorEntry
from walreplay.table.versions import Catalogue

SCHEMA = "n"
NAMES = ("red", "green", "blue", "grey")
FAR = "far"
"""The origin that the configuration may leave out."""
TARGET = Target.parse("/mirror")
STILL = 99
"""A relation that nobody renames: its transactions come between the parts of others."""

Step = tuple[str, ...]


@dataclass(frozen=True)
class Op:
    """A change, or a truncate, in a transaction.

    Attributes:
        serial: of the relation's version: whatever is done to a relation, it is announced anew.
        sub: the subtransaction; ``undone``: that one rolls back.
    """

    kind: str
    relation: m.Relation
    serial: int
    sub: int
    row: int
    undone: bool = False


@dataclass
class Txn:
    """A transaction; how it is sent is one of ``ordinary, far, streamed, prepared``."""

    how: str
    xid: int
    commits: bool
    lsn: int = 0
    ops: list[Op] = field(default_factory=list)
    altered: set[int] = field(default_factory=set)

    @property
    def kept(self) -> list[Op]:
        """The changes that have committed."""
        return [op for op in self.ops if not op.undone] if self.commits else []


class Server:
    """Relations, their names and shapes, and what transactions do to them."""

    def __init__(self) -> None:
        self.names: dict[int, str] = {STILL: "still"}
        self.wide: set[int] = set()
        self.txns: list[Txn] = []
        self._serials: dict[int, int] = {}
        self._oid = 100
        self._row = 0
        for name in NAMES[:3]:
            self._create(name)

    def play(self, how: str, commits: bool, steps: Iterable[Step]) -> Txn:
        """Run a transaction."""
        before = dict(self.names), set(self.wide)
        txn = Txn(how, 700 + 4 * len(self.txns), commits)
        sub, saved = 0, None
        for what, *arguments in steps:
            if what == "savepoint" and sub < 3:
                sub, saved = sub + 1, (dict(self.names), set(self.wide), len(txn.ops))
            elif what == "undo" and saved is not None:
                self.names, self.wide = dict(saved[0]), set(saved[1])
                undone = [Op(op.kind, op.relation, op.serial, op.sub, op.row, True) for op in txn.ops[saved[2] :]]
                txn.ops[saved[2] :] = undone
                self._touch(txn, self.names)
                # What follows is the upper transaction's.
                sub, saved = sub + 1, None
            elif what in ("write", "truncate"):
                self._change(txn, what, sub if saved is not None else 0, *arguments)
            elif what not in ("savepoint", "undo"):
                known = set(self.names)
                getattr(self, f"_{what}")(*arguments)
                self._touch(txn, known | set(self.names))
        if not commits:
            self.names, self.wide = before
            self._touch(txn, self.names)
        self.txns.append(txn)
        return txn

    def _touch(self, txn: Txn, oids: Iterable[int]) -> None:
        for oid in set(oids) - {STILL}:
            self._serials[oid] = self._serials.get(oid, 0) + 1
            txn.altered.add(oid)

    def relation(self, oid: int) -> m.Relation:
        """Return a relation as it is announced: every third has no key, every third only takes rows in."""
        identity = "dfn"[oid % 3]
        columns = ["id", "v", *(["x"] if oid in self.wide else [])]
        listed = tuple(
            m.Column(name, 23, -1, identity == "f" or (identity == "d" and name == "id")) for name in columns
        )
        return m.Relation(oid, SCHEMA, self.names[oid], identity, listed)

    def _change(self, txn: Txn, what: str, sub: int, name: str, kind: str = "") -> None:
        for oid in [oid for oid, own in self.names.items() if own == name]:
            relation = self.relation(oid)
            kind = "truncate" if what == "truncate" else "insert" if relation.replica_identity == "n" else kind
            self._row += 1
            txn.ops.append(Op(kind, relation, self._serials.get(oid, 0), sub, self._row))

    def _create(self, name: str) -> None:
        if name not in self.names.values():
            self._oid += 1
            self.names[self._oid] = name

    def _drop(self, name: str) -> None:
        self.names = {oid: own for oid, own in self.names.items() if own != name}

    def _alter(self, name: str) -> None:
        self.wide ^= {oid for oid, own in self.names.items() if own == name}

    def _rename(self, name: str, to: str) -> None:
        if to not in self.names.values():
            self._pass({name: to})

    def _swap(self, name: str, to: str) -> None:
        self._pass({name: to, to: name})

    def _rotate(self) -> None:
        self._pass({name: NAMES[(number + 1) % len(NAMES)] for number, name in enumerate(NAMES)})

    def _pass(self, names: Mapping[str, str]) -> None:
        self.names = {oid: names.get(own, own) for oid, own in self.names.items()}


class Sender:
    """A walsender: the bytes of transactions, in pieces between which files may end."""

    def __init__(self) -> None:
        self._announced: dict[int, int] = {}
        self._lsn = 1000
        self._still = m.Relation(STILL, SCHEMA, "still", "n", (m.Column("id", 23, -1, key=False),))

    def reconnect(self) -> None:
        """Begin a session."""
        self._announced = {}

    def begin(self) -> bytes:
        """Send so much that what it is can be told."""
        return b"".join(map(encode, self._bystander()))

    def send(self, txn: Txn) -> Iterator[bytes]:
        """Yield a transaction's pieces; one that comes again has the LSN that it had."""
        if txn.how in ("ordinary", "far"):
            if txn.commits:
                yield b"".join(map(encode, self._ordinary(txn)))
            return
        body = self._streamed(txn) if txn.how == "streamed" else self._prepared(txn)
        yield b"".join(map(encode, body))
        if not txn.lsn:
            # Its commit comes behind that of another one that has begun since.
            yield b"".join(map(encode, self._bystander()))
        yield b"".join(map(encode, self._decision(txn)))

    def _commit_lsn(self, txn: Txn) -> int:
        if not txn.lsn:
            self._lsn += 100
            txn.lsn = self._lsn
        return txn.lsn

    def _bystander(self) -> Iterator[m.AnyMessage]:
        self._lsn += 100
        yield m.Begin(self._lsn, self._lsn, 7)
        if STILL not in self._announced:
            self._announced[STILL] = 0
            yield self._still
        yield m.Insert(STILL, m.TupleData((m.Cell("t", b"%d" % self._lsn),)))
        yield m.Commit(0, self._lsn, self._lsn + 8, self._lsn)

    def _ordinary(self, txn: Txn) -> Iterator[m.AnyMessage]:
        lsn = self._commit_lsn(txn)
        yield m.Begin(lsn, lsn, txn.xid)
        if txn.how == "far":
            yield m.Origin(lsn - 50, FAR)
        yield from self._changes(txn.kept, self._announced)
        self._invalidate(txn)
        yield m.Commit(0, lsn, lsn + 8, lsn)

    def _prepared(self, txn: Txn) -> Iterator[m.AnyMessage]:
        at = txn.lsn - 150 if txn.lsn else self._lsn + 50
        yield m.BeginPrepare(at, at + 8, at, txn.xid, f"g{txn.xid}")
        yield from self._changes([op for op in txn.ops if not op.undone], self._announced)
        yield m.Prepare(0, at, at + 8, at, txn.xid, f"g{txn.xid}")

    def _streamed(self, txn: Txn) -> Iterator[m.AnyMessage]:
        inner: dict[int, int] = {}
        half = len(txn.ops) // 2
        for number, ops in enumerate((txn.ops[:half], txn.ops[half:])):
            yield m.StreamStart(txn.xid, number == 0)
            yield from self._changes(ops, inner, txn.xid)
            yield m.StreamStop()
        for sub in sorted({op.sub for op in txn.ops if op.undone}):
            yield m.StreamAbort(txn.xid, txn.xid + sub)

    def _decision(self, txn: Txn) -> Iterator[m.AnyMessage]:
        lsn = self._commit_lsn(txn)
        gid = f"g{txn.xid}"
        if txn.how == "streamed":
            yield m.StreamCommit(txn.xid, 0, lsn, lsn + 8, lsn) if txn.commits else m.StreamAbort(txn.xid, txn.xid)
        elif txn.commits:
            yield m.CommitPrepared(0, lsn, lsn + 8, lsn, txn.xid, gid)
        else:
            yield m.RollbackPrepared(0, lsn, lsn, lsn, lsn, txn.xid, gid)
        self._invalidate(txn)

    def _invalidate(self, txn: Txn) -> None:
        for oid in txn.altered:
            self._announced.pop(oid, None)

    def _changes(self, ops: Iterable[Op], announced: dict[int, int], xid: int | None = None) -> Iterator[m.AnyMessage]:
        for op in ops:
            relation, own = op.relation, None if xid is None else xid + op.sub
            oid = relation.oid
            if announced.get(oid) != op.serial:
                announced[oid] = op.serial
                yield m.Relation(oid, relation.namespace, relation.name, *_shape(relation), own)
            row = m.TupleData(tuple(m.Cell("t", b"%d" % op.row) for _ in relation.columns))
            old = row if relation.replica_identity == "f" else None
            key = None if old else m.TupleData((row.cells[0], *(m.NULL_CELL for _ in relation.columns[1:])))
            if op.kind == "truncate":
                yield m.Truncate((oid,), 0, own)
            elif op.kind == "insert":
                yield m.Insert(oid, row, own)
            elif op.kind == "update":
                yield m.Update(oid, row, old=old, xid=own)
            else:
                yield m.Delete(oid, old=old, key=key, xid=own)


def _shape(relation: m.Relation) -> tuple[str, tuple[m.Column, ...]]:
    return relation.replica_identity, relation.columns


class InMemory(Staging):
    """Staged events that nobody folds."""

    def of(self, rows: Sequence[Mapping[str, Any]]) -> dict[int, Staged]:
        """Sum up what decoding has staged."""
        self._rows = rows
        return self._summarise(None, self._totals(None))  # type: ignore[arg-type]

    def _totals(self, spark: object) -> list[Total]:
        found: dict[tuple[int, int, str], Total] = {}
        for row in self._rows:
            key, at = (row["table"], row["relation"], row["info"]), row["sequence"]
            was = found.get(key, Total(*key, 0, 0, at, at))
            rows, first, last = was.rows + row["rows"], min(was.first, at), max(was.last, at)
            found[key] = was._replace(rows=rows, first=first, last=last)
        # In whatever order tasks end.
        return list(found.values())[::-1]

    def _places(self, spark: object, table: int) -> list[tuple[int, int]]:
        return sorted({(row["sequence"], row["relation"]) for row in self._rows if row["table"] == table})

    def staged(self, spark: object, table: int) -> Rows:
        raise NotImplementedError

    def clear(self, spark: object) -> None:
        raise NotImplementedError

    def _stage(self, *arguments: Any, **named: Any) -> Any:
        raise NotImplementedError

    def _events(self, spark: object, rows: StagedRows) -> Rows:
        raise NotImplementedError

    def _frame_of_events(self, spark: object, rows: StagedRows) -> Any:
        raise NotImplementedError

    def _links(self, spark: object, rows: StagedRows) -> Rows:
        raise NotImplementedError


@dataclass
class Mirror:
    """A target: its tables' places, each with the oid whose rows it has, and the ledger's entries."""

    settings: Settings
    target: Target = TARGET
    tables: dict[str, int] = field(default_factory=dict)
    entries: tuple[MirrorEntry, ...] = ()
    stored: str | None = None

    def run(self, files: Mapping[str, bytes]) -> None:
        """Apply what is new."""
        planned = plan_run(files, self.stored, wants_origin=self.settings.wants_origin)
        if planned is None:
            return
        plan = planned.plan
        catalogue = Catalogue.of(plan, self.settings, self.entries)
        skips = self.settings.skips("t")
        truncates = {} if skips else {item.oid: (item.lsn, item.ordinal) for item in plan.truncates}
        rows = staged_rows(
            plan,
            files,
            catalogue.assignments,
            settings=self.settings.of_tasks,
            truncates=truncates,
            buckets=2,
        )
        staging = InMemory()
        staged = staging.of(rows)
        truncated = tuple(truncates)
        self._take(plan_tables(catalogue, staged, staging.uses, truncated, self.entries, self.settings, self.target))
        self.stored = resume_to_json(planned.plan.resume)

    def _take(self, run: RunPlan) -> None:
        for step in run.placement.moves:
            self._move(step)
        for table in run.tables:
            if table.before is None:
                assert table.table.place not in self.tables, "a new table would be written into another one"
                self.tables[table.table.place] = table.oid
            assert self.tables[table.table.place] == table.oid
        self.entries = run.entries
        assert {entry.table.place: entry.oid for entry in self.entries} == self.tables

    def _move(self, step: Move) -> None:
        assert step.destination.place not in self.tables, "another table would be overwritten"
        self.tables[step.destination.place] = self.tables.pop(step.source.place)

    @property
    def places(self) -> Places:
        """Who is where."""
        entries = [entry for entry in self.entries if entry.oid != STILL]
        for entry in entries:
            assert entry.set_aside == (entry.table == self.target.set_aside(entry.oid))
            assert entry.set_aside or entry.table == self.target.table(*entry.name.split("."))
        return Places(
            {entry.name.partition(".")[2]: entry.oid for entry in entries if not entry.set_aside},
            {entry.oid for entry in entries if entry.set_aside},
        )


@dataclass
class Places:
    """The relations (by oid) that have the places of their names, and those that are set aside."""

    shown: dict[str, int]
    aside: set[int]


def expected(txns: Iterable[Txn], settings: Settings) -> Places:
    """Say who has each name: whoever was used last under it, if it has a table and has gone by no other since."""
    holders: dict[str, int] = {}
    last: dict[int, str] = {}
    written: set[int] = set()
    for txn in txns:
        for op in txn.kept:
            oid, name = op.relation.oid, op.relation.name
            if not settings.wants_table(SCHEMA, name):
                continue
            holders[name], last[oid] = oid, name
            is_left_out = txn.how == "far" and not settings.wants_origin(FAR)
            if not is_left_out and not settings.skips(op.kind[0].replace("i", "c")):
                written.add(oid)
    shown = {name: oid for name, oid in holders.items() if oid in written and last[oid] == name}
    return Places(shown, written - set(shown.values()))


def pieces_of(server: Server, back: Sequence[int]) -> list[bytes]:
    """Send all transactions; where ``back`` says so, a session begins that sends some of the last ones again."""
    sender = Sender()
    pieces = [sender.begin()]
    for number, txn in enumerate(server.txns):
        again = back[number % len(back)] if back else 0
        if again:
            sender.reconnect()
            for other in server.txns[max(0, number - again + 1) : number]:
                # The Prepare of one that is decided does not come again alone; all of it does.
                pieces += sender.send(other)
        pieces += sender.send(txn)
    return [piece for piece in pieces if piece]


def grouped(pieces: Sequence[bytes], ends: Iterable[int]) -> Iterator[dict[str, bytes]]:
    """Yield the files that are there at each run: a file a piece."""
    names = [f"{number:04}" for number in range(len(pieces))]
    for end in [*sorted({end for end in ends if 0 < end < len(pieces)}), len(pieces)]:
        yield dict(zip(names[:end], pieces[:end], strict=True))


__all__ = ["NAMES", "Mirror", "Places", "Server", "Step", "expected", "grouped", "pieces_of"]
