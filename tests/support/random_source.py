"""A source of small tables at random work, with what it held behind each transaction."""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator
from itertools import chain
from typing import Any

from support.plain_source import Changing, PlainTable
from support.small_mirror import INT4, TEXT, SmallMirror, relation
from walreplay.protocol import messages as m

Held = dict[str, tuple[list[str], list[tuple[Any, ...]]]]
"""Columns and rows of each table, by its name."""


class Source:
    """A source of small tables.

    Attributes:
        names: of the tables that are there, by oid.
        held: what these held behind each commit LSN.
    """

    def __init__(self, chance: random.Random, mirror: SmallMirror) -> None:
        self.chance, self.mirror = chance, mirror
        self.names: dict[int, str] = {}
        self.held: dict[int, Held] = {0: {}}
        self._tables: dict[int, PlainTable] = {}

    @property
    def lsn(self) -> int:
        return 100 * self.mirror.files

    def relation(self, oid: int, *more: str) -> m.Relation:
        """Return a table as it is announced, with more columns at its end."""
        columns = [*(self.columns(oid) if oid in self._tables else ("id", "v")), *more]
        return relation(oid, self.names[oid], {name: INT4 if name == "id" else TEXT for name in columns})

    def columns(self, oid: int) -> list[str]:
        return self._tables[oid].names

    def rows(self, oid: int) -> list[tuple[Any, ...]]:
        """Return a table's rows, in an order."""
        rows = (row.values for row in self._tables[oid].rows)
        return sorted(((int(key or 0), *others) for key, *others in rows), key=repr)

    def commit(self, changes: Iterable[m.AnyMessage]) -> None:
        """Make a transaction of changes, each of which is made of what those before it have left."""
        made = []
        for change in changes:
            made.append(change)
            for table in self._tables.values():
                table.play(self.lsn + 100, change)
        self.mirror.write(*made)
        self.held[self.lsn] = {f"s.{name}": (self.columns(oid), self.rows(oid)) for oid, name in self.names.items()}

    def created(self, name: str) -> Iterator[m.AnyMessage]:
        """Yield the first changes of a table; another one of its name is gone."""
        oid = max(self._tables, default=0) + 1
        self.names = {other: own for other, own in self.names.items() if own != name} | {oid: name}
        self._tables[oid] = PlainTable(self.relation(oid))
        return self._changed(oid)

    def _changed(self, oid: int, *before: m.AnyMessage) -> Iterator[m.AnyMessage]:
        changing = Changing(self.chance, self._tables[oid], filler="x")
        return chain(before or (self.relation(oid),), changing.of_rows(3))

    def work(self) -> None:
        """Make a transaction, mostly of plain changes."""
        chance, oids = self.chance, list(self.names)
        kind = chance.random()
        oid = chance.choice(oids)
        if kind < 0.65:
            self.commit(chain.from_iterable(map(self._changed, chance.sample(oids, min(2, len(oids))))))
        elif kind < 0.72:
            self.commit(self._changed(oid, self.relation(oid), m.Truncate((oid,), 0)))
        elif kind < 0.8:
            self.commit(self.created(self.names[oid]))
        elif kind < 0.87 and len(oids) > 1:
            other = next(one for one in oids if one != oid)
            self.names[oid], self.names[other] = self.names[other], self.names[oid]
            self.commit(chain(self._changed(oid), self._changed(other)))
        elif kind < 0.94:
            self.names[oid] = f"t{self.mirror.files}"
            self.commit(self._changed(oid))
        else:
            self.commit(self._changed(oid, self.relation(oid, f"c{self.mirror.files}")))
