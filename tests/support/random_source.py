"""A source of small tables at random work, with what it held behind each transaction."""

from __future__ import annotations

import random
from typing import Any

from support.small_mirror import INT4, TEXT, SmallMirror, relation, row
from walreplay.protocol import messages as m

Held = dict[str, tuple[list[str], list[tuple[Any, ...]]]]
"""Columns and rows of each table, by its name."""


class Source:
    """A source of small tables, with what it held behind each transaction."""

    def __init__(self, chance: random.Random, mirror: SmallMirror) -> None:
        self.chance, self.mirror = chance, mirror
        self.names: dict[int, str] = {}
        self.columns: dict[int, list[str]] = {}
        self.rows: dict[int, dict[int, tuple[Any, ...]]] = {}
        self.held: dict[int, Held] = {0: {}}

    @property
    def lsn(self) -> int:
        return 100 * self.mirror.files

    def relation(self, oid: int) -> m.Relation:
        kinds = {name: INT4 if name == "id" else TEXT for name in self.columns[oid]}
        return relation(oid, self.names[oid], kinds)

    def commit(self, *changes: m.AnyMessage) -> None:
        self.mirror.write(*changes)
        self.held[self.lsn] = {
            f"s.{name}": (list(self.columns[oid]), sorted(self.rows[oid].values(), key=repr))
            for oid, name in self.names.items()
        }

    def created(self, name: str) -> list[m.AnyMessage]:
        oid = max(self.rows, default=0) + 1
        self.names = {other: own for other, own in self.names.items() if own != name} | {oid: name}
        self.columns[oid], self.rows[oid] = ["id", "v"], {}
        return self.changed(oid)

    def changed(self, oid: int) -> list[m.AnyMessage]:
        chance, rows = self.chance, self.rows[oid]
        changes: list[m.AnyMessage] = [self.relation(oid)]
        for key in chance.sample(range(8), 3):
            values = (chance.choice("abcd"), *("x" for _ in self.columns[oid][2:]))
            if key not in rows:
                changes.append(m.Insert(oid, row(key, *values)))
            elif chance.random() < 0.3:
                changes.append(m.Delete(oid, key=row(key, *(None for _ in values))))
                del rows[key]
                continue
            else:
                changes.append(m.Update(oid, row(key, *values)))
            rows[key] = (key, *values)
        return changes

    def work(self) -> None:
        """Make a transaction, mostly of plain changes."""
        chance, oids = self.chance, list(self.names)
        kind = chance.random()
        oid = chance.choice(oids)
        if kind < 0.65:
            self.commit(*(change for one in chance.sample(oids, min(2, len(oids))) for change in self.changed(one)))
        elif kind < 0.72:
            self.rows[oid].clear()
            self.commit(self.relation(oid), m.Truncate((oid,), 0), *self.changed(oid)[1:])
        elif kind < 0.8:
            self.commit(*self.created(self.names[oid]))
        elif kind < 0.87 and len(oids) > 1:
            other = next(one for one in oids if one != oid)
            self.names[oid], self.names[other] = self.names[other], self.names[oid]
            self.commit(*self.changed(oid), *self.changed(other))
        elif kind < 0.94:
            self.names[oid] = f"t{self.mirror.files}"
            self.commit(*self.changed(oid))
        else:
            self.columns[oid].append(f"c{self.mirror.files}")
            self.rows[oid] = {key: (*values, None) for key, values in self.rows[oid].items()}
            self.commit(*self.changed(oid))
