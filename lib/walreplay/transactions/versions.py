"""The relation versions and types that are in force at a place of the stream."""

from __future__ import annotations

from collections.abc import Iterable

from walreplay.protocol import messages as m
from walreplay.transactions.deferred import Announced, Deferred
from walreplay.transactions.plan import Resume


class Versions:
    """What is in force outside of streamed transactions, and what a run has seen announced.

    Each version has a number, in the order of the stream: of two that two transactions have announced the later holds.

    Attributes:
        types: by oid.
        announced: every version that this run has seen, in order.
    """

    def __init__(self) -> None:
        self.types: dict[int, m.Type] = {}
        self.announced: dict[m.Relation, None] = {}
        self._in_force: dict[int, Announced] = {}
        self._number = 0

    def take_up(self, resume: Resume) -> None:
        """Go on where the last run ended."""
        self.types = {type_.oid: type_ for type_ in resume.types}
        numbers = resume.numbers or tuple(range(len(resume.relations)))
        for relation, number in zip(resume.relations, numbers, strict=True):
            self._in_force[relation.oid] = Announced(relation, number)
        inner = (known.number for item in resume.deferred for known in item.view.values())
        self._number = max([0, *numbers, *inner]) + 1

    @property
    def relations(self) -> tuple[m.Relation, ...]:
        """The relation versions in force."""
        return tuple(known.relation for known in self._in_force.values())

    def snapshot(self) -> tuple[dict[int, Announced], dict[int, m.Type]]:
        """Give what is in force now, by oid: relations and types."""
        return dict(self._in_force), dict(self.types)

    def known(self, oid: int) -> Announced | None:
        """Give the version of a relation that is in force."""
        return self._in_force.get(oid)

    def view_of(self, oids: Iterable[int]) -> tuple[m.Relation, ...]:
        """Give the versions in force of those relations that have any."""
        return tuple(self._in_force[oid].relation for oid in oids if oid in self._in_force)

    def next_number(self) -> int:
        """Give the number of the version that is announced next."""
        self._number += 1
        return self._number

    def announce(self, relation: m.Relation) -> None:
        """Let a relation version hold from here on."""
        self._in_force[relation.oid] = Announced(relation, self.next_number())
        self.announced[relation] = None

    def take_over(self, decided: Deferred, *, holds_outside: bool) -> None:
        """Take up what a transaction has announced that commits.

        Args:
            holds_outside: it was streamed, so that its versions hold outside of it from now on.
        """
        self.announced.update(dict.fromkeys(decided.former))
        for known in decided.view.values():
            now = self._in_force.get(known.relation.oid)
            if holds_outside and (now is None or now.number < known.number):
                self._in_force[known.relation.oid] = known
            self.announced[known.relation] = None
        self.types.update(decided.types)


__all__ = ["Versions"]
