"""Which relations the rows of a walk use under which names, in order: that tells who has a name when it is passed on.

Every row counts that has committed, whatever becomes of it: also one that a truncate has taken away, or that the
configuration leaves out.  Only what has come before does not count again, nor what has rolled back.

A relation is announced anew before a row may name it under another name.  So one use of each announcement is enough,
and nothing has to be known but which comes first of two that are of one name, or of one relation.  The walk tells which
slot a row is the first to name (`named`); whether such a row counts, the slot's counts say later.

Invariant: ``_waiting`` has the slots that were named but whose rows have not counted yet, as far as was looked, by oid.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

from walreplay.protocol import messages as m

if TYPE_CHECKING:
    from collections.abc import Collection

    from walreplay.decode.walk import RelationSlots


_Name: TypeAlias = tuple[str, str]


class Uses:
    """The uses of relations that a walk comes by.

    Args:
        wanted: the relation versions whose uses are told; None for all.
    """

    def __init__(self, wanted: Collection[m.Relation] | None) -> None:
        self._wanted = wanted
        self._found: list[m.Relation] = []
        self._names: dict[int, _Name] = {}
        self._holders: dict[_Name, int] = {}
        self.start()

    def start(self) -> None:
        """Begin with a stretch: slots mean something else now."""
        self._waiting: dict[int, tuple[int, int, m.Relation]] = {}
        self._outer: list[dict[int, tuple[int, int, m.Relation]]] = []
        self._waiting_for: dict[_Name, dict[int, None]] = {}

    def take(self) -> list[m.Relation]:
        """Give the relation versions that were used since the last call, in order, but what says nothing new."""
        taken = self._found
        self._found, self._names, self._holders = [], {}, {}
        return taken

    def named(self, slot: int, relation: m.Relation, slots: RelationSlots) -> None:
        """Take note of a slot that a row names, which is not counted yet."""
        if self._wanted is None or relation in self._wanted:
            self._waiting.pop(relation.oid, None)
            self._waiting[relation.oid] = slot, _count(slot, slots), relation
            self._waiting_for.setdefault(_name(relation), {})[relation.oid] = None

    def announced(self, relation: m.Relation, slots: RelationSlots) -> None:
        """Settle what uses a relation, or a name, before it is announced."""
        for oid in (*self._waiting_for.pop(_name(relation), ()), relation.oid):
            self._settle(oid, slots)
        self._waiting.pop(relation.oid, None)

    def enter(self, slots: RelationSlots) -> None:
        """Go into a transaction that has slots of its own."""
        self.settle(slots)
        self._outer.append(self._waiting)
        self._waiting = {}

    def leave(self, slots: RelationSlots) -> None:
        """Come out again."""
        self.settle(slots)
        self._waiting = self._outer.pop()

    def settle(self, slots: RelationSlots) -> None:
        """Take up all that was used so far."""
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
