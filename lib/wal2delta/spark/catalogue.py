"""Which mirror table each relation version belongs to, and what a run may do with it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from wal2delta.decode.batches import column_types
from wal2delta.errors import ConfigError, NotSupported
from wal2delta.protocol.messages import Relation
from wal2delta.settings import Settings
from wal2delta.sink.events import Identity, Mode
from wal2delta.spark.mirror import MirrorTable
from wal2delta.spark.staging import Staged
from wal2delta.spark.target import Target
from wal2delta.transactions.plan import Plan

_IGNORED: Final = "the configured key is not among what the replica identity sends of old rows, which is used instead"


def identity_of(relation: Relation, keys: Sequence[str] | None) -> Identity:
    """Give what tells a relation's rows apart: the configured key, or the replica identity.

    A configured key that old tuples do not bring cannot find the rows that they mean; then the replica identity
    is taken, which names the same rows (`ignores_key` tells).

    Raises:
        ConfigError: when a configured key column is none of the relation's.
    """
    names = [column.name for column in relation.columns]
    missing = [key for key in keys or () if key not in names]
    if missing:
        raise ConfigError(
            f"the configured key column {missing[0]!r} is none of the table's columns ({', '.join(names)})",
            table=relation.qualified_name,
            remedy="Correct keys in the configuration",
        )
    if keys and not ignores_key(relation, keys):
        return Identity(Mode.KEYED, tuple(names.index(key) for key in keys))
    if relation.replica_identity == "f":
        # Replica identity full flags every column: equal rows are told apart by nothing.
        return Identity(Mode.MULTISET)
    flagged = _flagged(relation)
    return Identity(Mode.KEYED, flagged) if flagged else Identity(Mode.APPEND)


def ignores_key(relation: Relation, keys: Sequence[str] | None) -> bool:
    """Say whether a configured key is of no use: the replica identity's old tuples lack some of its columns."""
    sent = {relation.columns[number].name for number in _flagged(relation)}
    return bool(keys) and bool(sent) and not sent.issuperset(keys or ())


def _flagged(relation: Relation) -> tuple[int, ...]:
    if relation.replica_identity == "n":
        return ()
    return tuple(number for number, column in enumerate(relation.columns) if column.key)


@dataclass(frozen=True, slots=True)
class Catalogue:
    """The relation versions of a run, numbered, and their tables.

    Attributes:
        versions: the relation versions; a version's number is its index.
        tables: one for each source name; a table's number is its index.  ``tables[n].relations`` are its versions.
    """

    versions: tuple[Relation, ...]
    tables: tuple[MirrorTable, ...]

    @classmethod
    def of(cls, plan: Plan, settings: Settings, target: Target) -> Catalogue:
        """Number what a plan's rows may belong to."""
        versions = plan.relations
        types = {type_.oid: type_ for type_ in plan.types}
        tables: dict[tuple[str, str], MirrorTable] = {}
        for number, relation in enumerate(versions):
            name = (relation.namespace, relation.name)
            keys = _keys_of(settings, relation)
            before = tables.get(name)
            tables[name] = MirrorTable(
                number=before.number if before else len(tables),
                name=relation.qualified_name,
                table=target.table(*name),
                columns=tuple(column.name for column in relation.columns),
                types=tuple(column_types(relation, types)),
                identity=identity_of(relation, keys),
                configured=keys is not None,
                relations=(*(before.relations if before else ()), number),
                oids=(before.oids if before else frozenset()) | {relation.oid},
            )
        return cls(versions, tuple(sorted(tables.values(), key=lambda table: table.number)))

    def assignments(self, settings: Settings) -> dict[Relation, tuple[int, int, Identity]]:
        """Give each version's table, number and identity, for the decoding tasks."""
        found = {}
        for table in self.tables:
            for number in table.relations:
                relation = self.versions[number]
                keys = _keys_of(settings, relation)
                found[relation] = (table.number, number, identity_of(relation, keys))
        return found

    def used(
        self, staged: Mapping[int, Staged], truncated: Sequence[int], plan: Plan, settings: Settings
    ) -> list[MirrorTable]:
        """Give the tables that the run changes, as the versions that it uses define them.

        Args:
            truncated: the oids of truncated relations.

        Raises:
            NotSupported: for a change of a table's schema, name or identity inside the run.
        """
        _check_distinct([table for table in self.tables if table.number in staged or table.oids & set(truncated)])
        types = {type_.oid: type_ for type_ in plan.types}
        oid_names: dict[int, str] = {relation.oid: relation.qualified_name for relation in plan.before}
        result = []
        for table in self.tables:
            numbers = list(staged[table.number].relations) if table.number in staged else []
            if not numbers:
                numbers = [number for number in table.relations if self.versions[number].oid in truncated][-1:]
            if not numbers:
                continue
            versions = [self.versions[number] for number in numbers]
            last = versions[-1]
            for relation in versions:
                known = oid_names.setdefault(relation.oid, relation.qualified_name)
                if known != relation.qualified_name:
                    raise _unsupported(table.name, f"it was {known} before; renamed tables")
                keys = _keys_of(settings, relation)
                if identity_of(relation, keys) != identity_of(last, keys):
                    raise _unsupported(table.name, "its replica identity changes within the run; such changes")
                if relation.shape != last.shape:
                    raise _unsupported(table.name, "its columns change within the run; schema changes")
            others = {
                relation.oid
                for relation in (*plan.before, *versions)
                if relation.qualified_name == table.name and relation.oid != last.oid
            }
            if others:
                raise _unsupported(table.name, "it was dropped and created again; such tables")
            keys = _keys_of(settings, last)
            result.append(
                replace(
                    table,
                    columns=tuple(column.name for column in last.columns),
                    types=tuple(column_types(last, types)),
                    identity=identity_of(last, keys),
                    configured=keys is not None and not ignores_key(last, keys),
                    notes=(_IGNORED,) if ignores_key(last, keys) else (),
                )
            )
        return result


def _check_distinct(tables: Sequence[MirrorTable]) -> None:
    """Refuse two source tables that would be written to one; catalogs take upper case for lower."""
    places: dict[str, str] = {}
    for table in tables:
        place = table.table.path or table.table.text.casefold()
        other = places.setdefault(place, table.name)
        if other != table.name:
            raise ConfigError(
                f"{other} and {table.name} would be the same table of the target, {table.table.text}",
                table=table.name,
                remedy="Apply to a catalog without a schema, or to a folder",
            )


def _keys_of(settings: Settings, relation: Relation) -> tuple[str, ...] | None:
    # PostgreSQL sends pg_catalog as an empty name.
    return settings.keys_of(relation.namespace or "pg_catalog", relation.name)


def _unsupported(table: str, what: str) -> NotSupported:
    return NotSupported(
        f"{what} cannot be applied yet",
        table=table,
        remedy="Nothing was applied; leave the captures from here on out, or wait for the version that can",
    )
