"""A source of small tables at random work, with what it held behind each transaction."""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator
from itertools import chain
from typing import Any, NamedTuple

from support.plain_source import Changing, PlainTable
from support.small_mirror import INT4, INT8, TEXT, SmallMirror, relation
from walreplay.protocol import messages as m


class Held(NamedTuple):
    """A table at some moment, with its rows in an order."""

    relation: m.Relation
    rows: list[tuple[Any, ...]]

    @property
    def columns(self) -> list[str]:
        return [column.name for column in self.relation.columns]


class Source:
    """A source of small tables.

    Attributes:
        tables: those that are there, by oid.
        held: what these held behind each commit LSN, by their names.
    """

    def __init__(self, chance: random.Random, mirror: SmallMirror) -> None:
        self.chance, self.mirror = chance, mirror
        self.tables: dict[int, PlainTable] = {}
        self.held: dict[int, dict[str, Held]] = {0: {}}
        self._oid = 0

    @property
    def lsn(self) -> int:
        return 100 * self.mirror.files

    def now(self) -> dict[str, Held]:
        """Return what the tables hold now."""
        found = {}
        for table in self.tables.values():
            rows = ((int(key or 0), *others) for key, *others in (row.values for row in table.rows))
            found[table.relation.qualified_name] = Held(table.relation, sorted(rows, key=repr))
        return found

    def commit(self, changes: Iterable[m.AnyMessage]) -> None:
        """Make a transaction of changes, each of which is made of what those before it have left."""
        made = []
        for change in changes:
            made.append(change)
            for table in self.tables.values():
                table.play(self.lsn + 100, change)
        self.mirror.write(*made)
        self.held[self.lsn] = self.now()

    def created(self, name: str, identity: str = "d") -> Iterator[m.AnyMessage]:
        """Make a table, and yield its first changes; another one of its name is gone."""
        self._oid += 1
        self.tables = {oid: one for oid, one in self.tables.items() if one.relation.name != name}
        self.tables[self._oid] = PlainTable(relation(self._oid, name, {"id": INT4, "v": TEXT}, identity))
        return self.changed(self._oid)

    def changed(self, oid: int, *before: m.AnyMessage) -> Iterator[m.AnyMessage]:
        """Yield a table's announcement, and changes behind others."""
        table = self.tables[oid]
        return chain((table.relation, *before), Changing(self.chance, table, filler="x").rows(3))

    def alter(self, oid: int, name: str = "", *, columns: Iterable[str] = (), wide: bool = False) -> None:
        """Change a table's name, its columns or its key's type, which shows with its next changes."""
        was = self.tables[oid].relation
        kinds = {column.name: INT8 if wide and column.name == "id" else column.type_oid for column in was.columns}
        kinds = {column: kinds.get(column, TEXT) for column in columns or kinds}
        self.tables[oid].announce(relation(oid, name or was.name, kinds, was.replica_identity))

    def rename(self, oid: int) -> list[int]:
        """Let a table, and perhaps another one, have other names; give them."""
        name = self.tables[oid].relation.name
        others = [other for other in self.tables if other != oid]
        if others and self.chance.random() < 0.5:
            self.alter(oid, self.tables[others[0]].relation.name)
            self.alter(others[0], name)
            return [oid, others[0]]
        self.alter(oid, f"t{self.mirror.files}")
        return [oid]

    def work(self) -> None:
        """Make a transaction, mostly of plain changes."""
        chance, oids = self.chance, list(self.tables)
        kind = chance.random()
        oid = chance.choice(oids)
        if kind < 0.65:
            self.commit(chain.from_iterable(map(self.changed, chance.sample(oids, min(2, len(oids))))))
        elif kind < 0.72:
            self.commit(self.changed(oid, m.Truncate((oid,), 0)))
        elif kind < 0.8:
            self.commit(self.created(self.tables[oid].relation.name))
        elif kind < 0.94:
            self.commit(chain.from_iterable(map(self.changed, self.rename(oid))))
        else:
            self.alter(oid, columns=[*self.tables[oid].names, f"c{self.mirror.files}"])
            self.commit(self.changed(oid))
