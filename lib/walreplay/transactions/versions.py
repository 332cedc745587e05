"""The relation versions and types that are in force at a place of the stream."""

from __future__ import annotations

from collections.abc import Iterable

from walreplay.protocol import messages as m
from walreplay.transactions.deferred import Announced, Deferred
from walreplay.transactions.plan import Resume


class Versions:
    """The relation versions and types in force outside of streamed transactions, and all versions that a run has seen.

    Versions are numbered in stream order.  A streamed transaction's versions come into force when it commits, but not
    if a version with a higher number is in force then.

    Attributes:
        types: by oid.
        announced: all relation versions that this run has seen, in order.
    """

    def __init__(self) -> None:
        self.types: dict[int, m.Type] = {}
        self.announced: dict[m.Relation, None] = {}
        self._in_force: dict[int, Announced] = {}
        self._number = 0

    def take_up(self, resume: Resume) -> None:
        """Continue where the last run ended."""
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
        """Copy what is in force now: relation versions and types, each by oid."""
        return dict(self._in_force), dict(self.types)

    def known(self, oid: int) -> Announced | None:
        """Give the version of a relation that is in force; None if nothing has announced it."""
        return self._in_force.get(oid)

    def view_of(self, oids: Iterable[int]) -> tuple[m.Relation, ...]:
        """Give the versions in force of some relations; relations that nothing has announced are left out."""
        return tuple(self._in_force[oid].relation for oid in oids if oid in self._in_force)

    def next_number(self) -> int:
        """Take the number for the next version."""
        self._number += 1
        return self._number

    def announce(self, relation: m.Relation) -> None:
        """Put a relation version in force from here on."""
        self._in_force[relation.oid] = Announced(relation, self.next_number())
        self.announced[relation] = None

    def take_over(self, decided: Deferred, *, holds_outside: bool) -> None:
        """Take over the versions and types that a committing transaction has announced.

        Args:
            holds_outside: the transaction was streamed, so its versions come into force outside of it now.
        """
        self.announced.update(dict.fromkeys(decided.former))
        for known in decided.view.values():
            now = self._in_force.get(known.relation.oid)
            if holds_outside and (now is None or now.number < known.number):
                self._in_force[known.relation.oid] = known
            self.announced[known.relation] = None
        self.types.update(decided.types)


__all__ = ["Versions"]
