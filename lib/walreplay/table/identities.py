"""Which relation versions are versions of one table: PostgreSQL gives an oid again once its counter has wrapped.

An announced DROP TABLE ends a table: `Relation.formers` counts those that have ended.  Otherwise another name under a
known oid is a rename, unless most columns, or the key, are others too.  Each further table of an oid gets an identity
of its own (`walreplay.names.successor_of`), which stands for it wherever else the oid does; the tables before it stay.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final

from walreplay.config import Settings
from walreplay.names import former_tables, relation_of, source_oid, successor_of
from walreplay.protocol.messages import Relation
from walreplay.table.registry import MirrorEntry

OF_REUSED: Final = (
    "if it is another table, set on_recreate: replace for {0} under objects; if it was renamed, on_recreate: keep"
)
_AFTER: Final = f"To correct that: {OF_REUSED}; and apply to a new target"


@dataclass(frozen=True, slots=True)
class _Newest:
    """The newest table of an oid, as it was seen last: columns by name and type; no key where none is known."""

    identity: int
    name: str
    columns: tuple[tuple[str, int], ...]
    key: frozenset[str] = frozenset()

    def is_renamed(self, relation: Relation) -> bool:
        """Return whether a relation of another name may be this table: it has most of its columns, and its key."""
        columns, key = _columns(relation), frozenset(relation.identity[1:])
        if not columns or not self.columns:  # nothing refutes a rename
            return True
        common = {*dict(columns)} & {*dict(self.columns)}
        # A column that is renamed keeps its place and its type.
        pairs = zip(columns, self.columns, strict=False)
        alike = sum(new[1] == old[1] and common.isdisjoint((new[0], old[0])) for new, old in pairs)
        has_key = not key or not self.key or key == self.key  # a key that is not known refutes nothing
        # More than half of the narrower one's columns.
        return has_key and bool(common) and 2 * (len(common) + alike) > min(len(columns), len(self.columns))


def _columns(relation: Relation) -> tuple[tuple[str, int], ...]:
    return tuple((column.name, column.type_oid) for column in relation.columns)


@dataclass(slots=True)
class Identities:
    """The identity of each relation version, and what is not clear about it.

    Attributes:
        of: the identities.
        doubts: by the version that has another name first.
        renamed: the names that the tables of renamed versions had first.
    """

    of: dict[Relation, int] = field(default_factory=dict)
    doubts: dict[Relation, str] = field(default_factory=dict)
    renamed: dict[Relation, str] = field(default_factory=dict)
    _newest: dict[tuple[int, int], _Newest] = field(default_factory=dict)
    _named: dict[tuple[int, int, str], int] = field(default_factory=dict)
    _first: dict[int, str] = field(default_factory=dict)

    @classmethod
    def find(cls, relations: Iterable[Relation], entries: Iterable[MirrorEntry], settings: Settings) -> Identities:
        """Find the identities of relation versions, which come in stream order, behind what the ledger knows."""
        identities = cls()
        # Later tables of an oid have higher numbers, so the newest stays.
        for entry in sorted(entries, key=lambda entry: relation_of(entry.oid)):
            columns = tuple((column.source, column.type.oid) for column in entry.shape.present)
            newest = _Newest(relation_of(entry.oid), entry.source_name, columns, frozenset(entry.identity[1:]))
            identities._newest[source_oid(entry.oid), former_tables(entry.oid)] = newest
            identities._named[source_oid(entry.oid), former_tables(entry.oid), entry.source_name] = newest.identity
            identities._first[newest.identity] = entry.source_name
        for relation in relations:
            identities._add(relation, settings)
        return identities

    def _add(self, relation: Relation, settings: Settings) -> None:
        name, base = relation.qualified_name, (relation.oid, relation.formers)
        newest = self._newest.get(base)
        # A session sends versions again that are older than the newest table.
        named = (*base, name)
        identity = self._named.get(named)
        if identity is None:
            # The first table of the oid that is seen.
            identity = successor_of(*base) if newest is None else self._next(relation, newest, settings)
        self.of[relation] = self._named[named] = identity
        first = self._first.setdefault(identity, name)
        if first != name:
            self.renamed[relation] = first
        if newest is None or identity >= newest.identity:
            if newest is not None and newest.identity == identity and newest.name != name:
                # The name it had is free: the ledger does not know it either, where a run ends here.
                self._named.pop((*base, newest.name), None)
            key = frozenset(relation.identity[1:])
            self._newest[base] = _Newest(identity, name, _columns(relation), key)

    def _next(self, relation: Relation, newest: _Newest, settings: Settings) -> int:
        """Return whose version one is that has another name than the newest table of its oid."""
        name, schema = relation.qualified_name, relation.namespace or "pg_catalog"
        table_settings = settings.table(schema, relation.name)
        forced = table_settings is not None and table_settings.explicit.get("on_recreate") == "replace"
        if settings.options_of(schema, relation.name).on_recreate == "keep":
            return newest.identity  # whatever has the oid goes on with the rows
        if forced:  # set for this table, not for all: the user knows that it is another one
            return successor_of(newest.identity)
        is_renamed = newest.is_renamed(relation)
        doubt = "not the same columns: it is taken to be renamed"
        if not is_renamed:
            doubt = "other columns, or another key: it is taken for another table, and the rows of "
            doubt += f"{newest.name} stay where they are"
        if not is_renamed or {*dict(newest.columns)} != {*dict(_columns(relation))}:
            self.doubts[relation] = f"it has the oid of {newest.name}, but {doubt}. {_AFTER.format(name)}"
        return newest.identity if is_renamed else successor_of(newest.identity)
