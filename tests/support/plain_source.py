"""What one source makes of a table, in the plainest form: its changes are played one by one.

Rows are texts: the values that are not NULL, each with its column's name in front.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from walreplay.protocol import messages as m

Row = dict[str, str]


def text_of(values: Mapping[str, Any]) -> str:
    """Give a row as a text."""
    return " ".join(f"{name}={value}" for name, value in sorted(values.items()) if value is not None)


@dataclass(eq=False)
class PlainVersion:
    """A version of a row; ``start`` and ``end`` are commit LSNs."""

    row: Row
    start: int
    op: str
    end: int | None = None

    @property
    def text(self) -> str:
        return f"{self.start}-{self.end} {self.op}: {text_of(self.row)}"


@dataclass
class PlainTable:
    """A table of one source.

    Attributes:
        columns: their names; ``key`` is one of them, or None where equal rows are copies.
        open: the versions that are there now.
        log: a text for each change, in their order.
    """

    oid: int
    columns: Sequence[str]
    key: str | None = None
    open: list[PlainVersion] = field(default_factory=list)
    ended: list[PlainVersion] = field(default_factory=list)
    log: list[str] = field(default_factory=list)

    @property
    def rows(self) -> list[str]:
        """The rows that are there now, in an order."""
        return sorted(text_of(one.row) for one in self.open)

    @property
    def versions(self) -> list[str]:
        """All versions, in an order."""
        return sorted(one.text for one in (*self.open, *self.ended))

    def held_at(self, lsn: int) -> list[str]:
        """Give the rows as of an LSN."""
        seen = (one for one in (*self.open, *self.ended) if one.start <= lsn and (one.end is None or one.end > lsn))
        return sorted(text_of(one.row) for one in seen)

    def play(self, lsn: int, change: m.AnyMessage) -> None:
        """Make a change, if it is one of this table."""
        match change:
            case m.Truncate(oids) if self.oid in oids:
                self._log(lsn, "t", {}, None, ())
                for one in list(self.open):
                    self._end(one, lsn)
            case m.Insert(self.oid, new):
                self._log(lsn, "c", self._row(new), None, ())
                self.open.append(PlainVersion(self._row(new), lsn, "c"))
            case m.Update(self.oid):
                old = change.key or change.old
                kept = [n for n, cell in zip(self.columns, change.new.cells, strict=True) if cell.kind == "u"]
                row = self._row(change.new)
                self._log(lsn, "u", row, None if old is None else self._row(old), kept)
                before = self._find(row if old is None else self._row(old))
                self._end(before, lsn)
                row |= {name: before.row[name] for name in kept if name in before.row}
                self.open.append(PlainVersion(row, lsn, "u"))
            case m.Delete(self.oid):
                old = self._row(change.key or change.old)
                self._log(lsn, "d", old, old, ())
                self._end(self._find(old), lsn)
            case _:
                pass

    def _row(self, data: m.TupleData) -> Row:
        cells = zip(self.columns, data.cells, strict=True)
        return {name: cell.value.decode() for name, cell in cells if cell.value is not None}

    def _find(self, old: Row) -> PlainVersion:
        """Give the row that is meant: of copies, the newest."""
        names = (self.key,) if self.key else self.columns
        return [one for one in self.open if all(one.row.get(name) == old.get(name) for name in names)][-1]

    def _end(self, one: PlainVersion, lsn: int) -> None:
        self.open.remove(one)
        one.end = lsn
        if one.start != lsn:
            self.ended.append(one)

    def _log(self, lsn: int, op: str, row: Row, before: Row | None, kept: Sequence[str]) -> None:
        old = "" if before is None else text_of(before)
        self.log.append(f"{lsn} {op}: {text_of(row)} | {old} | {','.join(kept)}")


@dataclass
class Changing:
    """Makes changes of a table by chance, as a source might send them."""

    chance: random.Random
    table: PlainTable

    def some(self, count: int) -> Iterator[m.AnyMessage]:
        """Give a transaction's changes, each of another row.

        Args:
            count: how many rows.
        """
        table, chance = self.table, self.chance
        if chance.random() < 0.2:
            yield m.Truncate((table.oid,), 0)
        elif table.key is None:
            yield from self._of_copies(count)
            return
        else:
            yield from self._of_rows(count)

    def _cells(self, *values: Any) -> m.TupleData:
        more = (None,) * (len(self.table.columns) - len(values))
        cells = (m.NULL_CELL if one is None else m.Cell("t", str(one).encode()) for one in (*values, *more))
        return m.TupleData(tuple(cells))

    def _of_rows(self, count: int) -> Iterator[m.AnyMessage]:
        oid, chance = self.table.oid, self.chance
        there = {int(one.row["id"]) for one in self.table.open}
        keys = chance.sample(range(8), min(count * 2, 8))
        for key, other in zip(keys[::2], keys[1::2], strict=True):
            value = chance.choice("abcd")
            if key not in there:
                yield m.Insert(oid, self._cells(key, value))
            elif chance.random() < 0.3:
                yield m.Delete(oid, key=self._cells(key))
            elif other not in there:
                yield m.Update(oid, self._cells(other, value), key=self._cells(key))
            elif chance.random() < 0.5:
                id_, _, *rest = self._cells(key, value).cells
                yield m.Update(oid, m.TupleData((id_, m.UNCHANGED_CELL, *rest)))
            else:
                yield m.Update(oid, self._cells(key, value))

    def _of_copies(self, count: int) -> Iterator[m.AnyMessage]:
        oid, chance = self.table.oid, self.chance
        gone = chance.sample(self.table.open, min(count, len(self.table.open)))
        for one in gone:
            old = self._cells(*(one.row.get(name) for name in self.table.columns))
            if chance.random() < 0.5:
                yield m.Delete(oid, old=old)
            else:
                yield m.Update(oid, self._cells(chance.randrange(10, 12), "u"), old=old)
        for _ in range(count):
            yield m.Insert(oid, self._cells(chance.randrange(3), "x"))
