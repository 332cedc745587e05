"""What one source makes of a table: its mirror, its history and its change log, as texts.

Rows are texts: the values that are not NULL, each with its column's name in front.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from support.reference import ReplayedTable, Value
from support.row_states import State
from walreplay.protocol import messages as m


def text_of(values: Mapping[str, Any]) -> str:
    """Return a row as a text."""
    return " ".join(f"{name}={value}" for name, value in sorted(values.items()) if value is not None)


class PlainTable(ReplayedTable):
    """A table of one source; ``log`` has a text for each change, in their order."""

    def __init__(self, relation: m.Relation) -> None:
        super().__init__(relation)
        self.log: list[str] = []

    @property
    def oid(self) -> int:
        return self.relation.oid

    @property
    def names(self) -> list[str]:
        return [column.name for column in self.relation.columns]

    @property
    def held(self) -> list[str]:
        """The rows that are there now, in an order."""
        return self.texts(self.rows)

    @property
    def versions(self) -> list[str]:
        """All versions, in an order."""

        return sorted(f"{one.lsn}-{one.end} {one.op}: {self._text(one.values)}" for one in self.history)

    def texts(self, rows: Iterable[State]) -> list[str]:
        """Return rows as texts, in an order."""
        return sorted(self._text(row.values) for row in rows)

    def play(self, lsn: int, message: m.AnyMessage) -> None:
        """Take a message, if it is about this table."""
        if isinstance(message, m.Relation) and message.oid == self.oid:
            self.announce(message)
        elif isinstance(message, m.Truncate) and self.oid in message.relation_oids:
            self.log.append(f"{lsn} t:  |  | ")
            self.apply(message, lsn, lsn)
        elif isinstance(message, (m.Insert, m.Update, m.Delete)) and message.relation_oid == self.oid:
            self._log(lsn, message)
            self.apply(message, lsn, lsn)

    def _log(self, lsn: int, change: m.RowChange) -> None:
        old = None if isinstance(change, m.Insert) else change.key or change.old
        new = old if isinstance(change, m.Delete) else change.new
        assert new is not None
        kept = [name for name, cell in zip(self.names, new.cells, strict=True) if cell.kind == "u"]
        op = {m.Insert: "c", m.Update: "u", m.Delete: "d"}[type(change)]
        before = "" if old is None else self._text(_values(old))
        self.log.append(f"{lsn} {op}: {self._text(_values(new))} | {before} | {','.join(kept)}")

    def _text(self, values: Sequence[Value]) -> str:
        return text_of(dict(zip(self.names, values, strict=False)))


def _values(data: m.TupleData) -> list[Value]:
    return [None if cell.value is None else cell.value.decode() for cell in data.cells]


@dataclass
class Changing:
    """Makes changes of a table by chance, as a source might send them.

    Attributes:
        filler: what new rows have behind their first two columns.
    """

    chance: random.Random
    table: PlainTable
    filler: str | None = None

    def some(self, count: int) -> Iterator[m.AnyMessage]:
        """Yield a transaction's changes, each of another row.

        Args:
            count: how many rows.
        """
        table, chance = self.table, self.chance
        if chance.random() < 0.2:
            yield m.Truncate((table.oid,), 0)
        else:
            yield from self.rows(count)

    def rows(self, count: int) -> Iterator[m.AnyMessage]:
        """Yield the same without a truncate."""
        return self._of_copies(count) if self.table.relation.replica_identity == "f" else self._of_rows(count)

    def _key(self, key: int) -> m.TupleData:
        return self._cells(key, *[None] * (len(self.table.names) - 1))

    def _cells(self, *values: Any) -> m.TupleData:
        more = (self.filler,) * (len(self.table.names) - len(values))
        cells = (m.NULL_CELL if one is None else m.Cell("t", str(one).encode()) for one in (*values, *more))
        return m.TupleData(tuple(cells))

    def _of_rows(self, count: int) -> Iterator[m.AnyMessage]:
        oid, chance = self.table.oid, self.chance
        there = {int(one.values[0] or "") for one in self.table.rows}
        keys = chance.sample(range(8), min(count * 2, 8))
        for key, other in zip(keys[::2], keys[1::2], strict=True):
            value = chance.choice("abcd")
            if key not in there:
                yield m.Insert(oid, self._cells(key, value))
            elif chance.random() < 0.3:
                yield m.Delete(oid, key=self._key(key))
            elif other not in there:
                yield m.Update(oid, self._cells(other, value), key=self._key(key))
            elif chance.random() < 0.5:
                id_, _, *rest = self._cells(key, value).cells
                yield m.Update(oid, m.TupleData((id_, m.UNCHANGED_CELL, *rest)))
            else:
                yield m.Update(oid, self._cells(key, value))

    def _of_copies(self, count: int) -> Iterator[m.AnyMessage]:
        oid, chance = self.table.oid, self.chance
        rows = self.table.rows
        for one in chance.sample(rows, min(count, len(rows))):
            old = self._cells(*one.values)
            if chance.random() < 0.5:
                yield m.Delete(oid, old=old)
            else:
                yield m.Update(oid, self._cells(chance.randrange(10, 12), "u"), old=old)
        for _ in range(count):
            yield m.Insert(oid, self._cells(chance.randrange(3), "x"))
