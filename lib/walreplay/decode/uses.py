"""Which relations the rows of a walk use under which names, in order; this decides to which table a name belongs.

Every committed row counts, even if a truncate removes it or the configuration leaves it out.  Copies and rows that have
rolled back do not count.

A relation is announced again before rows use it under another name.  So one use for each announcement is enough, and
only the order of uses of the same name, or of the same relation, matters.  The walk says which slot a row is the first
to use (`named`).  Whether that row counts is seen later, from the slot's counts.

Invariant: ``_waiting`` has, by oid, the slots that were used but had no counted row when they were last looked at.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

from walreplay.protocol import messages as m

if TYPE_CHECKING:
    from collections.abc import Collection

    from walreplay.decode.walk import RelationSlots


_Name: TypeAlias = tuple[str, str]


class Uses:
    """The uses of relations in a walk.

    Args:
        wanted: the relation versions whose uses are wanted; None for all.
    """

    def __init__(self, wanted: Collection[m.Relation] | None) -> None:
        self._wanted = wanted
        self._found: list[m.Relation] = []
        self._names: dict[int, _Name] = {}
        self._holders: dict[_Name, int] = {}
        self.start()

    def start(self) -> None:
        """Begin a stretch, in which slots have another meaning."""
        self._waiting: dict[int, tuple[int, int, m.Relation]] = {}
        self._outer: list[dict[int, tuple[int, int, m.Relation]]] = []
        self._waiting_for: dict[_Name, dict[int, None]] = {}

    def take(self) -> list[m.Relation]:
        """Give the relation versions that were used since the last call, in order, without repetitions."""
        taken = self._found
        self._found, self._names, self._holders = [], {}, {}
        return taken

    def named(self, slot: int, relation: m.Relation, slots: RelationSlots) -> None:
        """Note a slot that a row uses; the row is not counted yet."""
        if self._wanted is None or relation in self._wanted:
            self._waiting.pop(relation.oid, None)
            self._waiting[relation.oid] = slot, _count(slot, slots), relation
            self._waiting_for.setdefault(_name(relation), {})[relation.oid] = None

    def announced(self, relation: m.Relation, slots: RelationSlots) -> None:
        """Before a relation is announced, settle the waiting uses of the same relation and of the same name."""
        for oid in (*self._waiting_for.pop(_name(relation), ()), relation.oid):
            self._settle(oid, slots)
        self._waiting.pop(relation.oid, None)

    def enter(self, slots: RelationSlots) -> None:
        """Enter a transaction that has its own slots."""
        self.settle(slots)
        self._outer.append(self._waiting)
        self._waiting = {}

    def leave(self, slots: RelationSlots) -> None:
        """Leave that transaction."""
        self.settle(slots)
        self._waiting = self._outer.pop()

    def settle(self, slots: RelationSlots) -> None:
        """Settle all waiting uses."""
        for oid in list(self._waiting):
            self._settle(oid, slots)

    def _settle(self, oid: int, slots: RelationSlots) -> None:
        slot, before, relation = self._waiting.get(oid, (-1, 0, None))
        if relation is None or _count(slot, slots) == before:
            return
        name = _name(relation)
        del self._waiting[oid]
        self._waiting_for.get(name, {}).pop(oid, None)
        if self._holders.get(name) == oid and self._names.get(oid) == name:
            return
        self._holders[name], self._names[oid] = oid, name
        self._found.append(relation)


def _name(relation: m.Relation) -> _Name:
    return relation.namespace, relation.name


def _count(slot: int, slots: RelationSlots) -> int:
    return int(slots.counts[slot].sum())


__all__ = ["Uses"]
