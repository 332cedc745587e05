"""The relation versions of a run: which mirror table each belongs to, and what identifies its rows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

import pyarrow as pa

from walreplay.decode.change_batch import column_types, type_names
from walreplay.decode.partitions import Sent, as_sent
from walreplay.errors import ConfigError
from walreplay.protocol.messages import Relation, Type
from walreplay.selection import Selection, check_destinations, key_columns, select, unmatched_tables
from walreplay.settings import Settings, same_columns
from walreplay.sink.comments import DELETED, column_comments
from walreplay.sink.events import Identity, Mode
from walreplay.sink.evolution import OWN, SourceColumn
from walreplay.sink.masking import masked_type
from walreplay.sink.showing import Shown
from walreplay.spark.planning.registry import MirrorEntry
from walreplay.spark.workers.decode import Assignment
from walreplay.transactions.plan import Plan
from walreplay.types.base import ColumnType, Family
from walreplay.types.by_value import Form, form_of
from walreplay.types.overrides import keeps_values_apart

_BOOLEAN: Final = ColumnType(pa.bool_(), Family.BOOLEAN, "boolean")

_NOTHING: Final = (
    "the table has no columns, and the configuration leaves out those that all tables have (metadata_columns): nothing "
    "of its rows can be written, they are left out"
)

IGNORED_KEY: Final = (
    "the configured key is not among what the replica identity sends of old rows, which is used instead"
)

OWN_IDENTITY: Final = "its partitions have a replica identity of their own, which tells its rows apart: {}"


def identity_of(relation: Relation, keys: Sequence[str] | None) -> Identity:
    """Give what identifies a relation's rows: the configured key, or the replica identity.

    If old tuples lack a column of the configured key, it cannot find the rows.  Then the replica identity is used,
    which names the same rows (`ignores_key` tells).

    Raises:
        ConfigError: a configured key column is not in the relation.
    """
    names = [column.name for column in relation.columns]
    missing = [key for key in keys or () if key not in names]
    if missing:
        raise ConfigError(
            f"the configured key column {missing[0]!r} is none of the table's columns ({', '.join(names)})",
            table=relation.qualified_name,
            remedy="Correct keys in the configuration",
        )
    found = key_columns(relation, keys)
    if found:
        return Identity(Mode.KEYED, tuple(map(names.index, found)))
    # Replica identity full flags every column as key, though equal rows may exist.
    return Identity(Mode.MULTISET if relation.replica_identity == "f" else Mode.APPEND)


def ignores_key(relation: Relation, keys: Sequence[str] | None) -> bool:
    """Say whether a configured key cannot be used: the replica identity's old tuples lack some of its columns."""
    return bool(keys) and key_columns(relation, keys) != list(keys or ())


@dataclass(frozen=True, slots=True)
class Version:
    """A relation version as its table takes it.

    Attributes:
        number: its position in the run's list of versions.
        table: the number of its table.
        relation: as it was announced; ``shown`` has only the wanted columns, under the mirror's names, and the replica
            identity that old rows are really sent by.
        types: of the relation's columns, as they are decoded; ``columns`` has those of the mirror's.
        configured: the key comes from the configuration, so that it may hold NULLs.
        floor: see `Assignment`.
    """

    number: int
    table: int
    relation: Relation
    shown: Relation
    selection: Selection
    types: tuple[ColumnType, ...]
    columns: tuple[SourceColumn, ...]
    identity: Identity
    configured: bool
    notes: tuple[str, ...] = ()
    floor: int = -1

    @property
    def names(self) -> tuple[str, ...]:
        """The columns' names in the mirror."""
        return tuple(column.target for column in self.columns)


@dataclass(frozen=True, slots=True)
class Catalogue:
    """The wanted relation versions that a run's rows may have.

    Attributes:
        versions: by relation.
        oids: of each table, by the table's number.
        filled_since: the relations (by oid) that were loaded after the run's last truncate of them.
    """

    versions: Mapping[Relation, Version]
    oids: tuple[int, ...]
    warnings: tuple[str, ...] = field(default=(), compare=False)
    filled_since: frozenset[int] = frozenset()

    @classmethod
    def of(cls, plan: Plan, settings: Settings, entries: Sequence[MirrorEntry]) -> Catalogue:
        """Collect everything that a plan's rows may belong to.

        Args:
            entries: the tables that the ledger knows.
        """
        types = {type_.oid: type_ for type_ in plan.types}
        known = {entry.oid: dict(entry.names) for entry in entries}
        bases = {entry.oid: entry.base_lsn for entry in entries if entry.base_lsn is not None}
        histories: dict[int, list[Relation]] = {}
        for relation in plan.relations:
            histories.setdefault(relation.oid, []).append(relation)
        tables = {oid: number for number, oid in enumerate(histories)}
        needed = {*plan.announced, *plan.versions}
        partitions: dict[int, dict[Relation, None]] = {}
        for partition in plan.partitions:
            partitions.setdefault(partition.root, {})[partition.relation] = None
        versions: dict[Relation, Version] = {}
        warnings: dict[str, None] = {}
        for number, relation in enumerate(plan.relations):
            try:
                sent = as_sent(relation, tuple(partitions.get(relation.oid, ())))
                own = known.get(relation.oid)
                selection = select(settings, relation, histories[relation.oid], known=own, sent=sent.relation)
                if selection is None:
                    continue
                if not selection.columns and not selection.metadata.has_any:
                    warnings[f"{relation.qualified_name}: {_NOTHING}"] = None
                    continue
                version = _version(number, tables[relation.oid], relation, sent, selection, types, settings)
            except ConfigError:
                if relation in needed:
                    raise
                # It is over, and the configuration is for what came then.
                continue
            base = bases.get(relation.oid, -1)
            # Where all that the run has comes later, nothing has to be looked at.
            versions[relation] = replace(version, floor=base if base > plan.after_lsn + 1 else -1)
            warnings.update(dict.fromkeys(f"{relation.qualified_name}: {text}" for text in selection.warnings))
        warnings.update(dict.fromkeys(unmatched_tables(settings, plan.relations)))
        filled = frozenset(item.oid for item in plan.truncates if item.lsn < bases.get(item.oid, -1))
        return cls(versions, tuple(tables), tuple(warnings), filled)

    @property
    def assignments(self) -> dict[Relation, Assignment]:
        """Say for the decoding tasks where the rows of each version go."""
        return {
            relation: Assignment(
                version.table,
                version.number,
                version.identity,
                version.types,
                Shown(
                    version.shown,
                    version.selection.columns,
                    tuple((number, version.types[number]) for number in version.selection.masked),
                    rescues=version.selection.metadata.rescued_data is not None,
                ),
                marks_deleted=version.selection.soft_deletes,
                floor=version.floor,
            )
            for relation, version in self.versions.items()
        }

    @property
    def by_number(self) -> Mapping[int, Version]:
        """The versions by their numbers."""
        return {version.number: version for version in self.versions.values()}


def _version(
    number: int,
    table: int,
    relation: Relation,
    sent: Sent,
    selection: Selection,
    types: Mapping[int, Type],
    settings: Settings,
) -> Version:
    schema = relation.namespace or "pg_catalog"
    options = settings.type_options(schema, relation.name)
    resolved = tuple(column_types(relation, types, options))
    masked = set(selection.masked)
    comments = column_comments(relation, type_names(types), selection.masked)
    columns = tuple(
        SourceColumn(source, name, masked_type(resolved[n]) if n in masked else resolved[n], comments[n])
        for n, source, name in zip(selection.columns, selection.sources, selection.names, strict=True)
    )
    shown = replace(
        sent.relation,
        columns=tuple(
            replace(sent.relation.columns[n], name=name)
            for n, name in zip(selection.columns, selection.names, strict=True)
        ),
    )
    keys = _keys(relation, settings.keys_of(schema, relation.name), selection.renames)
    if not relation.columns:
        # Its columns were dropped, and others may come; by then no key tells its rows apart.
        keys = None
    ignored = ignores_key(sent.relation, keys)
    identity = identity_of(sent.relation, keys)
    if sent.differing is not None and (keys is None or ignored):
        identity = Identity(Mode.APPEND, obstacle=sent.differing)
    _check_exact(relation, identity, resolved)
    places = {n: place for place, n in enumerate(selection.columns)}
    # Where changes are left out, whole old rows cannot be relied on to find their rows.
    skips = any(settings.skips(operation) for operation in ("c", "u", "d"))
    evicts = selection.soft_deletes or skips or settings.captures.allow_gaps
    identity = replace(
        identity,
        key=tuple(places[n] for n in identity.key),
        evicts=evicts,
        claims=sent.claims and identity.mode is Mode.KEYED,
        forms=() if identity.mode is Mode.APPEND else _forms(resolved, selection),
    )
    if selection.soft_deletes:
        if identity.mode is Mode.MULTISET:
            raise ConfigError(
                "soft deletes need a key, and the table has none",
                table=relation.qualified_name,
                remedy="Name its key under objects: - table: {…, keys}, or set soft_deletes: false for it",
            )
        columns = (*columns, SourceColumn(OWN, selection.metadata.deleted or "", _BOOLEAN, DELETED))
    notes = [IGNORED_KEY] if ignored else []
    if sent.relation != relation and identity.mode is Mode.KEYED:
        notes.append(OWN_IDENTITY.format(", ".join(relation.columns[selection.columns[n]].name for n in identity.key)))
    return Version(
        number,
        table,
        relation,
        shown,
        selection,
        resolved,
        columns,
        identity,
        keys is not None and not ignored,
        tuple(notes),
    )


def _forms(types: Sequence[ColumnType], selection: Selection) -> tuple[tuple[int, Form], ...]:
    """Give the forms by which wanted columns are compared; the hash of a masked one says nothing of its value."""
    forms = ((place, form_of(types[n])) for place, n in enumerate(selection.columns) if n not in selection.masked)
    return tuple((place, form) for place, form in forms if form is not None)


def _check_exact(relation: Relation, identity: Identity, types: Sequence[ColumnType]) -> None:
    """Refuse keys that are read so that two may become one: one row would replace the other.

    Rows without a key need no check: rows that become equal are counted, and as many are deleted again.
    """
    for number in identity.key:
        kind, column = types[number], relation.columns[number].name
        if keeps_values_apart(kind) and (kind.element is None or keeps_values_apart(kind.element)):
            continue
        if kind.overridden:
            reading = f"read as {kind.postgres_name}"
            remedy = f"Leave {column} out of the table's type_overrides, or name other keys"
        else:
            reading = "a numeric that is read as a double"
            remedy = f"Give {column} a type of its own by type_overrides, such as numeric(38,10) or text; or set "
            remedy += "decimal_handling_mode to precise"
        raise ConfigError(
            f"the key column is {reading}, by which different keys may become the same",
            table=f"{relation.qualified_name}.{column}",
            remedy=remedy,
        )


def _keys(relation: Relation, keys: Sequence[str] | None, renames: Sequence[tuple[str, str]]) -> tuple[str, ...] | None:
    """Give the configured key by the names that its columns have in a version."""
    if keys is None:
        return None
    here = {column.name for column in relation.columns}
    return tuple(key if key in here else next(iter(sorted(same_columns(key, renames) & here)), key) for key in keys)


def check_distinct(names: Sequence[tuple[str, str, Version]]) -> None:
    """Refuse two source tables that would be written to one mirror table.

    Args:
        names: each table's source name, its place as the target compares places, and its version.
    """
    check_destinations([(name, version.selection) for name, _, version in names])
    places: dict[str, str] = {}
    for name, place, _ in names:
        other = places.setdefault(place, name)
        if other != name:
            raise ConfigError(
                f"{other} and {name} would be the same table of the target, {place}",
                table=name,
                remedy="Apply to a catalog without a schema, or to a folder; or give one of them a destination_table",
            )
