"""Histories of one table as PostgreSQL could produce them, as messages and as the rows that are true in the end.

An operation is drawn as a few small numbers and made to fit the rows that there are: a key is never taken twice,
so the history is valid whatever is drawn, and shrinks well.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from decimal import Decimal
from random import Random
from typing import Any, Final

import pyarrow as pa
from hypothesis import strategies as st

from support.reference import ReplayedTable
from support.row_states import State
from walreplay.protocol import messages as m

OID: Final = 4711
OTHER_OID: Final = 4712

RESCUED: Final = object()
"""Stands for a value that the column's type cannot hold."""

Text = str | None


@dataclass(frozen=True)
class Kind:
    """A column's type and the values that are drawn for it: PostgreSQL's text and the typed value.

    Attributes:
        same: texts that a unique index takes for another.
        long: it can be unchanged TOAST.
    """

    name: str
    oid: int
    typmod: int
    arrow: pa.DataType = field(repr=False)
    values: dict[str, Any] = field(repr=False)
    same: dict[str, str] = field(default_factory=dict, repr=False)
    long: bool = False


INT4 = Kind("int4", 23, -1, pa.int32(), {str(n): n for n in range(4)})
TEXT = Kind("text", 25, -1, pa.string(), {text: text for text in ("", "a", "b", "é\\{")}, long=True)
NUMERIC = Kind(
    "numeric",
    1700,
    (10 << 16 | 2) + 4,
    pa.decimal128(10, 2),
    {"1.50": Decimal("1.50"), "-2.00": Decimal("-2.00"), "NaN": RESCUED},
)
TIMESTAMP = Kind(
    "timestamp",
    1114,
    -1,
    pa.timestamp("us"),
    {"2000-01-01 00:00:00": dt.datetime(2000, 1, 1), "infinity": RESCUED, "-infinity": RESCUED},
)
FLOAT8 = Kind(
    "float8", 701, -1, pa.float64(), {"0": 0.0, "-0": -0.0, "NaN": float("nan"), "1.5": 1.5}, same={"-0": "0"}
)
INTS = Kind(
    "int4[]",
    1007,
    -1,
    pa.list_(pa.int32()),
    {"{}": [], "{1,NULL}": [1, None], "{{1},{2}}": RESCUED, "[2:3]={1,2}": RESCUED},
    long=True,
)
BYTEA = Kind(
    "bytea", 17, -1, pa.binary(), {"\\x": b"", "\\x00": b"\0", "\\x0000": b"\0\0", "\\x5c27": b"\\'"}, long=True
)
TIMESTAMPTZ = Kind(
    "timestamptz",
    1184,
    -1,
    pa.timestamp("us", "UTC"),
    {
        "2000-01-01 00:00:00+00": pa.scalar(dt.datetime(2000, 1, 1), pa.timestamp("us", "UTC")).as_py(),
        "infinity": RESCUED,
        "-infinity": RESCUED,
        "0044-03-15 12:00:00+00 BC": RESCUED,
    },
)
WILD = Kind(
    "text",
    25,
    -1,
    pa.string(),
    {text: text for text in ("null", "'\"\\u0000", "\x01\n\u2028", "\U0001d11e")},
    long=True,
)
FLOATS = Kind(
    "float8[]",
    1022,
    -1,
    pa.list_(pa.float64()),
    {"{0}": [0.0], "{-0,NaN}": [-0.0, float("nan")], "{0,NaN}": [0.0, float("nan")]},
)


@dataclass(frozen=True)
class Table:
    """A table.

    Attributes:
        key: the columns that tell its rows apart; none in a multiset, or where rows only come.
        identity: the replica identity: d, i, f or n.
        configured: the key is not the replica identity's (which is full then); it may hold NULLs, unless it is
            one at times.
        alternating: the relation is announced with another replica identity of the same key from time to time.
        deferrable: two rows may have one key inside a transaction.
        publishes: the operations that are sent: i(nsert), u(pdate), d(elete).
        filtered: rows leave a row filter and come back, with what is unchanged TOAST left out.
    """

    kinds: tuple[Kind, ...]
    key: tuple[int, ...]
    identity: str
    configured: bool = False
    alternating: bool = False
    deferrable: bool = False
    publishes: str = "iud"
    filtered: bool = False

    def __str__(self) -> str:
        kinds = ",".join(kind.name for kind in self.kinds)
        key = ",".join(map(str, self.key)) or "none"
        more = " alternating" * self.alternating + " deferrable" * self.deferrable + " filtered" * self.filtered
        return f"{kinds} key {key} {self.identity}{more}{'' if self.publishes == 'iud' else ' only ' + self.publishes}"

    @property
    def names(self) -> tuple[str, ...]:
        """The columns' names, among them one that needs care in JSON."""
        return tuple(f'c "{number}"' for number in range(len(self.kinds)))

    @property
    def relation(self) -> m.Relation:
        """Its Relation message."""
        return self._relation(self.identity)

    @property
    def relations(self) -> list[m.Relation]:
        """All its versions."""
        return [self.relation, *([self._relation(_OTHER_IDENTITY[self.identity])] if self.alternating else [])]

    def _relation(self, identity: str) -> m.Relation:
        full = identity == "f"
        columns = [
            m.Column(name, kind.oid, kind.typmod, full or number in self.key)
            for number, (name, kind) in enumerate(zip(self.names, self.kinds, strict=True))
        ]
        return m.Relation(OID, "public", "t", identity, tuple(columns))


_OTHER_IDENTITY: Final = {"d": "i", "i": "d", "f": "d"}
"""A unique index over the primary key's columns is as good as the primary key, and whole rows have them too."""


OTHER: Final = m.Relation(OTHER_OID, "public", "other", "d", (m.Column("id", 23, -1, True),))


@dataclass(frozen=True)
class Op:
    """An operation: what, on which row, with which values; numbers are taken modulo what there is."""

    what: str
    row: int = 0
    values: tuple[int, ...] = ()
    key: tuple[int, ...] = ()
    long: int = 0
    ends: bool = False
    """Whether its transaction ends behind it."""


OPS: Final = ("insert", "update", "update", "move", "move", "delete", "swap", "again", "replace")

_small = st.integers(0, 4)


def random_ops(table: Table, chance: Random, most: int) -> list[Op]:
    """Make operations for a table as `ops` draws them."""
    whats, width, key = _whats(table, truncates=True), len(table.kinds), len(table.key)

    def some(count: int) -> tuple[int, ...]:
        return tuple(chance.randrange(5) for _ in range(count))

    return [
        Op(
            # Few truncates, or little is left; and nothing of another table.
            chance.choice([one for one in whats if one != "other" and (one != "truncate" or chance.random() < 0.2)]),
            chance.randrange(5),
            some(width),
            some(key),
            chance.randrange(2**width),
            chance.random() < 0.6,
        )
        for _ in range(most)
    ]


def _whats(table: Table, *, truncates: bool) -> list[str]:
    whats = list(OPS)
    if not table.key:
        whats = ["insert", "insert", "update", "delete"] if table.identity == "f" else ["insert"]
    if truncates:
        whats.append("truncate")
    # Announcing the relation again and rows of another table change nothing.
    whats = ["nothing", *whats, "announce", "other"]
    whats += ["exchange", "exchange", "rotate", "pass"] * table.deferrable + ["filter"] * table.filtered
    return whats


def ops(table: Table, *, truncates: bool = True) -> st.SearchStrategy[list[Op]]:
    """Draw operations that make sense for a table."""
    whats = _whats(table, truncates=truncates)
    width, key = len(table.kinds), len(table.key)
    op = st.builds(
        Op,
        st.sampled_from(whats),
        _small,
        st.tuples(*[_small] * width),
        st.tuples(*[_small] * key),
        st.integers(0, 2**width - 1),
        st.booleans(),
    )
    return st.lists(op, min_size=8, max_size=40)


class History:
    """Play operations: messages come out, rows change."""

    def __init__(self, table: Table) -> None:
        self.table = table
        self.rows: list[State] = []
        self.mirror = ReplayedTable(table.relation, table.key or None, partial=True)
        self.messages: list[m.AnyMessage] = []
        self.lsn = 100
        self._open = False
        self._announced: set[int] = set()
        self._identity = table.identity

    def play(self, operations: Sequence[Op], *, leave_open: bool) -> None:
        """Play operations; ``rows`` are those after the last Commit only if nothing is left open."""
        for op in operations:
            self._begin()
            getattr(self, f"_{op.what}")(op)
            if op.ends:
                self.commit()
        if not leave_open:
            self.commit()

    def commit(self) -> None:
        """End the open transaction, if there is one."""
        if self._open:
            self.messages.append(m.Commit(0, self.lsn, self.lsn + 8, self._time))
            self._open = False

    def _written(self, texts: list[Text]) -> State:
        return State(texts, self.lsn, self._time)

    @property
    def _time(self) -> int:
        # Commit times are no order.
        return 700_000_000_000_000 - 1000 * self.lsn

    def _begin(self) -> None:
        if not self._open:
            self.lsn += 16
            self.messages.append(m.Begin(self.lsn, self._time, self.lsn & 0xFFFF))
            self._open = True

    def _send(self, message: m.AnyMessage, relation: m.Relation | None = None) -> None:
        sent = {m.Insert: "i", m.Update: "u", m.Delete: "d"}.get(type(message), "")
        if relation is None:
            if sent not in self.table.publishes:
                return
            self.mirror.apply(message, self.lsn, self._time)
        if relation is None:
            relation = next(one for one in self.table.relations if one.replica_identity == self._identity)
        if relation.oid not in self._announced:
            self._announced.add(relation.oid)
            self.messages.append(relation)
        self.messages.append(message)

    # Operations.

    def _nothing(self, op: Op) -> None:
        pass

    def _announce(self, op: Op) -> None:
        self._announced.add(OID)
        relations = self.table.relations
        self.messages.append(relations[op.row % len(relations)])
        self._identity = relations[op.row % len(relations)].replica_identity

    def _other(self, op: Op) -> None:
        self._send(m.Insert(OTHER_OID, m.TupleData((m.Cell("t", b"7"),))), OTHER)

    def _truncate(self, op: Op) -> None:
        self._send(m.Truncate((OID,), 0))
        self.rows.clear()

    def _insert(self, op: Op) -> None:
        texts = self._texts(op)
        self._set_key(texts, op)
        at = self._holder(texts)
        if at is not None:
            self._change(at, texts, op)
            return
        self._add(texts, op)

    def _add(self, texts: list[Text], op: Op) -> None:
        self._send(m.Insert(OID, _tuple(texts)))
        self.rows.append(self._written(texts))

    def _texts_with_key_of(self, at: int, op: Op) -> list[Text]:
        """Make values for a row that keeps another's key."""
        texts = self._texts(op)
        for number in self.table.key:
            texts[number] = self.rows[at].values[number]
        return texts

    def _update(self, op: Op) -> None:
        at = self._pick(op)
        if at is None:
            return
        texts = self._texts_with_key_of(at, op)
        self._change(at, texts, op)

    def _move(self, op: Op) -> None:
        """Change a row's key, if nobody has the new one."""
        at = self._pick(op)
        if at is None:
            return
        texts = self._texts(op)
        self._set_key(texts, op)
        holder = self._holder(texts)
        if holder is None or holder == at:
            self._change(at, texts, op)

    def _delete(self, op: Op) -> None:
        at = self._pick(op)
        if at is None:
            return
        texts = self.rows.pop(at).values
        if self._identity == "f":
            self._send(m.Delete(OID, old=_tuple(texts)))
        else:
            self._send(m.Delete(OID, key=self._key_tuple(texts)))

    def _swap(self, op: Op) -> None:
        """Exchange two rows' keys by way of a third that is free."""
        if len(self.rows) < 2:
            return
        one = op.row % len(self.rows)
        two = (one + 1) % len(self.rows)
        free = list(self.rows[one].values)
        self._set_key(free, op)
        if self._holder(free) is not None:
            return
        keys = [[row.values[number] for number in self.table.key] for row in (self.rows[one], self.rows[two])]
        self._rekey(one, [free[number] for number in self.table.key], op)
        self._rekey(two, keys[0], op)
        self._rekey(one, keys[1], op)

    def _rekey(self, at: int, key: Sequence[Text], op: Op) -> None:
        texts = list(self.rows[at].values)
        for number, text in zip(self.table.key, key, strict=True):
            texts[number] = text
        self._change(at, texts, op)

    def _again(self, op: Op) -> None:
        """Delete a row and insert another of the same key."""
        at = self._pick(op)
        if at is None:
            return
        texts = self._texts_with_key_of(at, op)
        self._delete(op)
        self._add(texts, op)

    def _replace(self, op: Op) -> None:
        """Move a row out of the way, its long values unchanged, and insert another of its key."""
        at = self._pick(op)
        if at is None:
            return
        moved, texts = list(self.rows[at].values), self._texts(op)
        self._set_key(moved, op)
        if self._holder(moved) is not None:
            return
        for number in self.table.key:
            texts[number] = self.rows[at].values[number]
        self._change(at, moved, replace(op, long=-1))
        self._add(texts, op)

    def _exchange(self, op: Op) -> None:
        """Exchange two rows' keys at once, under a deferrable key."""
        if len(self.rows) < 2:
            return
        one, two = op.row % len(self.rows), (op.row + 1) % len(self.rows)
        keys = [self._key_of(at) for at in (one, two)]
        self._rekey(one, keys[1], op)
        self._rekey(two, keys[0], op)

    def _rotate(self, op: Op) -> None:
        """Let each row take the next one's key, in either direction."""
        keys = [self._key_of(at) for at in range(len(self.rows))]
        step = 1 if op.long & 1 else -1
        for at in range(len(keys)):
            self._rekey(at, keys[(at + step) % len(keys)], op)

    def _pass(self, op: Op) -> None:
        """Let a row pass through another's key, with the other's values, on its way to a free one."""
        if len(self.rows) < 2:
            return
        one, two = op.row % len(self.rows), (op.row + 1) % len(self.rows)
        free = self._texts(op)
        self._set_key(free, op)
        if self._holder(free) not in (None, one):
            return
        self._change(one, list(self.rows[two].values), replace(op, long=0))
        self._change(one, free, replace(op, long=0))

    def _key_of(self, at: int) -> list[Text]:
        return [self.rows[at].values[number] for number in self.table.key]

    def _filter(self, op: Op) -> None:
        """Let a row leave the filter and come back."""
        at = self._pick(op)
        if at is None:
            return
        row = self.rows[at]
        self._send(m.Delete(OID, key=self._key_tuple(row.values)))
        cells = list(_tuple(row.values).cells)
        for number, kind in enumerate(self.table.kinds):
            if kind.long and op.long >> number & 1 and row.values[number] is not None and number not in self.table.key:
                cells[number] = m.UNCHANGED_CELL
        self._send(m.Insert(OID, m.TupleData(tuple(cells))))
        self.rows[self.rows.index(row)] = self._written(row.values)

    # What they are made of.

    def _pick(self, op: Op) -> int | None:
        return op.row % len(self.rows) if self.rows else None

    def _texts(self, op: Op) -> list[Text]:
        """Values for all columns, NULL among them where it may be."""
        texts: list[Text] = []
        for number, (kind, value) in enumerate(zip(self.table.kinds, op.values, strict=True)):
            known: list[Text] = list(kind.values)
            if number not in self.table.key:
                known.append(None)
            texts.append(known[value % len(known)])
        return texts

    def _set_key(self, texts: list[Text], op: Op) -> None:
        for number, value in zip(self.table.key, op.key, strict=True):
            known: list[Text] = list(self.table.kinds[number].values)
            if self.table.configured and not self.table.alternating:
                known.append(None)
            texts[number] = known[value % len(known)]

    def _holder(self, texts: Sequence[Text]) -> int | None:
        """Find the row that has a key already, as a unique index would."""
        if not self.table.key:
            return None
        key = self._index_key(texts)
        return next((at for at, row in enumerate(self.rows) if self._index_key(row.values) == key), None)

    def _index_key(self, texts: Sequence[Text]) -> list[Text]:
        return [
            self.table.kinds[number].same.get(text, text) if (text := texts[number]) is not None else None
            for number in self.table.key
        ]

    def _change(self, at: int, texts: list[Text], op: Op) -> None:
        """Update a row; long values that it keeps go as unchanged where the operation says so."""
        row, table = self.rows[at], self.table
        cells = list(_tuple(texts).cells)
        long_key = False
        for number, kind in enumerate(table.kinds):
            if not (kind.long and op.long >> number & 1) or row.values[number] is None:
                continue
            if number in table.key and texts[number] != row.values[number]:
                continue
            cells[number] = m.UNCHANGED_CELL
            texts[number] = row.values[number]
            long_key |= number in table.key
        new = m.TupleData(tuple(cells))
        changed = any(texts[number] != row.values[number] for number in table.key)
        if self._identity == "f":
            self._send(m.Update(OID, new, old=_tuple(row.values)))
        elif changed or long_key:
            self._send(m.Update(OID, new, key=self._key_tuple(row.values)))
        else:
            self._send(m.Update(OID, new))
        self.rows[at] = self._written(texts)

    def _key_tuple(self, texts: Sequence[Text]) -> m.TupleData:
        key = self.table.key
        return _tuple([text if number in key else None for number, text in enumerate(texts)])


def _tuple(texts: Sequence[Text]) -> m.TupleData:
    return m.TupleData(tuple(m.NULL_CELL if text is None else m.Cell("t", text.encode()) for text in texts))


def true_image(table: Table, texts: Sequence[Text]) -> str:
    """Return the exact image that the mirror's row has to have."""
    values, rescued = [], {}
    for name, kind, text in zip(table.names, table.kinds, texts, strict=True):
        value = None if text is None else kind.values[text]
        if value is RESCUED:
            assert text is not None
            value, rescued[name] = None, text
        values.append(value)
    return repr((tuple(values), tuple(sorted(rescued.items()))))
