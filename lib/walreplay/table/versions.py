"""The relation versions of a run: which mirror table each belongs to, and what identifies its rows.

`labelled` returns a column's type with its enum's labels, those of the run's end in rows of all versions, and how its
values are sent.  Loaded rows have the labels of their description.  `with_whole_keys` converts renamed enum labels in
key columns only in the run that renames them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import takewhile
from typing import Final

import pyarrow as pa

from walreplay.config import Settings, same_columns
from walreplay.config.hidden import attnum
from walreplay.config.selection import Selection, check_destinations, key_columns, select, unmatched_tables
from walreplay.decode.announcements import EnumLabels, Layout, Layouts
from walreplay.decode.change_batch import column_types, type_names
from walreplay.decode.masking import Shown, masked_type
from walreplay.decode.partitions import Sent, as_sent
from walreplay.errors import ConfigError
from walreplay.evolution.comments import DELETED, column_comments
from walreplay.evolution.convert import labels_as_sent, with_labels
from walreplay.evolution.shapes import OWN, SourceColumn, TableShape
from walreplay.fold.change_log import hashed
from walreplay.fold.events import IN_PARTITIONS, Claim, Identity, Mode
from walreplay.names import COUNT, Output, RowKind, relation_of, source_oid
from walreplay.protocol.messages import Column, Relation
from walreplay.spark.workers.decode import Assigned, Assignment
from walreplay.stream.plan import Plan
from walreplay.table.identities import OF_REUSED, Identities
from walreplay.table.registry import MirrorEntry, made_again
from walreplay.types.base import ColumnType, Label
from walreplay.types.families import BOOLEAN, keeps_values_apart


def labelled(
    column: Column, kind: ColumnType, layouts: Layouts, salt: bytes | None
) -> tuple[ColumnType, ColumnType | None]:
    """Return the type that a column has in the mirror, and how its values are sent, if that may be otherwise.

    Args:
        column: of a relation version, with the labels as they were announced where it stands.
        kind: its type in the source.
        layouts: what is announced by the run's end.
        salt: of masks; None where the column is not masked.
    """
    enum = layouts.enum_of(column.type_oid)
    shown = kind if salt is None else masked_type(kind)
    described = _described(column, enum)
    labels = described or (() if enum is None else enum.renamed)
    in_array = enum is not None and column.type_oid == enum.array  # the labels are the elements' texts
    typed = with_labels(kind, labels, in_array=in_array)
    if typed is kind or (salt is not None and in_array):
        # A hash of a whole array does not tell its elements.
        return shown, None
    as_announced = column.labels
    if salt is not None:
        typed = with_labels(shown, _hashed(labels, kind, salt), in_array=in_array)
        as_announced = _hashed(as_announced, kind, salt)
    return typed, None if described else labels_as_sent(typed, as_announced)


def _described(column: Column, enum: EnumLabels | None) -> tuple[Label, ...]:
    """Return the labels that loaded rows have, each behind the texts that older rows of the table have for it."""
    now = dict(column.described_labels)  # a base load's description has the labels of its time
    announced, renamed = ((), {}) if enum is None else (enum.labels, dict(enum.renamed))
    # Of two that had one text, the one that was announced first had it first.
    texts_by_oid = renamed | {oid: (text,) for oid, text in announced if oid not in renamed}
    texts = ((oid, texts_by_oid.get(oid, ())) for oid in dict.fromkeys((*texts_by_oid, *now)) if oid in now)
    return tuple((oid, was if was[-1:] == (now[oid],) else (*was, now[oid])) for oid, was in texts)


def _hashed(labels: Sequence[Label], kind: ColumnType, salt: bytes) -> tuple[Label, ...]:
    return tuple((oid, tuple(hashed(text, kind, salt) for text in texts)) for oid, texts in labels)


# Versions

_NO_LAYOUTS: Final = Layouts()

_BOOLEAN: Final = ColumnType(pa.bool_(), BOOLEAN, "boolean")

_NOTHING: Final = (
    "the table has no columns, and the configuration leaves out those that all tables have (commit_lsn_column …): "
    "nothing of its rows can be written, they are left out"
)

IGNORED_KEY: Final = (
    "the configured key is not among what the replica identity sends of old rows, which is used instead"
)

LEFT_OUT: Final = "the configuration leaves it out now: its tables stay as they are, and lack what changes from here on"

OWN_IDENTITY: Final = "its partitions have a replica identity of their own, which tells its rows apart: {}"


def identity_of(relation: Relation, keys: Sequence[str] | None) -> Identity:
    """Return what identifies a relation's rows: the configured key, or the replica identity.

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
    key_names = key_columns(relation, keys)
    if key_names:
        return Identity(Mode.KEYED, tuple(map(names.index, key_names)))
    # Replica identity full flags every column as key, though equal rows may exist.
    return Identity(Mode.MULTISET if relation.replica_identity == "f" else Mode.APPEND)


def ignores_key(relation: Relation, keys: Sequence[str] | None) -> bool:
    """Return whether a configured key cannot be used: the replica identity's old tuples lack some of its columns."""
    return bool(keys) and key_columns(relation, keys) != list(keys or ())


@dataclass(frozen=True, slots=True)
class Version:
    """A relation version as one of its tables takes it.

    Attributes:
        number: unique among the versions of all tables; those of one table rise as their relation versions came.
        table: the number of its table.
        output: what of the relation the table is.
        relation: as it was announced; ``shown`` has only the wanted columns, under the mirror's names, and the replica
            identity that old rows are really sent by.
        types: of the relation's columns, as they are decoded; ``columns`` has those of the mirror's.
        configured: the key comes from the configuration, so that it may hold NULLs.
        follows, floor: see `Assignment`.
        comment: the source's own comment on the table, if it is announced.
        source: stands for the table (`walreplay.table.identities`); ``doubt`` says what is not clear about that.
    """

    number: int
    table: int
    output: Output
    relation: Relation
    shown: Relation
    selection: Selection
    types: tuple[ColumnType, ...]
    columns: tuple[SourceColumn, ...]
    identity: Identity
    configured: bool
    notes: tuple[str, ...] = ()
    follows: bool = False
    floor: int = -1
    comment: str = ""
    source: int = 0
    doubt: str = ""

    @property
    def oid(self) -> int:
        """What stands for the output of the relation; see `walreplay.names`."""
        return self.output.oid_of(self.source or self.relation.oid)

    @property
    def name(self) -> str:
        """The name for people: the source's, or of another output the one that follows from it."""
        return self.relation.qualified_name + self.output.suffix

    @property
    def names(self) -> tuple[str, ...]:
        """The columns' names in the table."""
        return tuple(column.target for column in self.columns)


@dataclass(frozen=True, slots=True)
class Catalogue:
    """The wanted relation versions that a run's rows may have.

    Attributes:
        relations: all that are known, by their numbers.
        versions: what is wanted of them, one or more of each that is wanted.
        filled_since: the relations (by oid) that were loaded after the run's last truncate of them.
        left_out: what stands for the relations that have changes under names that are left out.
    """

    relations: tuple[Relation, ...]
    versions: Mapping[Relation, tuple[Version, ...]]
    warnings: tuple[str, ...] = field(default=(), compare=False)
    filled_since: frozenset[int] = frozenset()
    left_out: frozenset[int] = frozenset()

    @classmethod
    def of(cls, plan: Plan, settings: Settings, entries: Sequence[MirrorEntry]) -> Catalogue:
        """Collect everything that a plan's rows may belong to; ``entries`` are the tables that the ledger knows."""
        entries_by_oid = {entry.oid: entry for entry in entries}
        bases = [(entry.oid, entry.base_lsn) for entry in entries if entry.base_lsn is not None]
        identities = Identities.find(plan.relations, entries, settings)
        collected = _Collected(plan, settings, entries_by_oid, identities)
        for number, relation in enumerate(plan.relations):
            for output in Output:
                collected.add(number, relation, output)
        names = [entry.source_name for entry in entries]
        collected.warnings.update(dict.fromkeys(unmatched_tables(settings, plan.relations, names)))
        # A base load has tables, and no changes of them.
        left_out = collected.left_out() if plan.transactions else frozenset()
        collected.warnings.update(
            (f"{entry.source_name}: {LEFT_OUT}", None)
            for entry in entries
            if not entry.paused and relation_of(entry.oid) in left_out - collected.held
        )
        versions = {relation: tuple(of_outputs) for relation, of_outputs in collected.versions.items()}
        ends = {item.oid: item.lsn for item in plan.truncates}
        # The load is younger than the last truncate.
        filled = frozenset(oid for oid, base_lsn in bases if ends.get(source_oid(oid), base_lsn) < base_lsn)
        return cls(plan.relations, versions, tuple(collected.warnings), filled, left_out)

    @property
    def assignments(self) -> dict[Relation, Assigned]:
        """Return for the decoding tasks where the rows of each version go."""
        numbers = {relation: number for number, relation in enumerate(self.relations)}
        assigned = {}
        for relation, versions in self.versions.items():
            tables = {version.output: _assignment(version) for version in versions}
            assigned[relation] = Assigned(numbers[relation], versions[0].types, tables)
        return assigned

    @property
    def by_number(self) -> Mapping[int, Version]:
        """The versions by their numbers."""
        return {version.number: version for versions in self.versions.values() for version in versions}

    def used(self, uses: Iterable[tuple[int, int | None]]) -> Iterator[tuple[Version, int | None]]:
        """Yield what is wanted of relation versions each time that one is used, with the LSN (see `Staging.uses`)."""
        for number, lsn in uses:
            yield from ((version, lsn) for version in self.versions.get(self.relations[number], ()))


class _Collected:
    """What is collected for a `Catalogue`, version by version."""

    def __init__(
        self, plan: Plan, settings: Settings, entries: Mapping[int, MirrorEntry], identities: Identities
    ) -> None:
        self._settings = settings
        self._has_gaps = settings.allow_gaps or plan.resume.gap is not None
        self._after_lsn = plan.after_lsn
        self._entries = entries
        # A base load makes them again.
        self.held = {relation_of(entry.oid) for entry in entries.values() if entry.held and plan.transactions}
        self._types = {type_.oid: type_ for type_ in plan.types}
        # What the source says at the run's end: a comment, or a label, comes without a Relation message.
        self._layouts = Layouts(layouts=plan.resume.layouts)
        self._histories: dict[int, list[Relation]] = {}
        for relation in plan.relations:
            self._histories.setdefault(identities.of[relation], []).append(relation)
        self._identities = identities
        self._tables = {identity: number for number, identity in enumerate(self._histories)}
        self._in_force = {relation.oid for relation in plan.before}  # the stream has sent these before the run
        self._needed = {*plan.announced, *plan.versions}
        # A truncate needs no Relation message where the relation is known.
        truncated = {item.oid for item in plan.truncates}
        self._changed = {*self._needed, *(relation for relation in plan.before if relation.oid in truncated)}
        self._partitions: dict[int, dict[Relation, None]] = {}
        for partition in plan.partitions:
            self._partitions.setdefault(partition.root, {})[partition.relation] = None
        self.versions: dict[Relation, list[Version]] = {}
        self.warnings: dict[str, None] = {}

    def add(self, number: int, relation: Relation, output: Output) -> None:
        """Add what is wanted of a relation version for an output."""
        try:
            version = self._version(number, relation, output)
        except ConfigError:
            if relation in self._needed:
                raise
            # It is over, and the configuration is for what came then.
            return
        if version is not None:
            self.versions.setdefault(relation, []).append(version)
            texts = (f"{relation.qualified_name}: {text}" for text in version.selection.warnings)
            self.warnings.update(dict.fromkeys(texts))

    def _history(self, relation: Relation, entry: MirrorEntry | None) -> list[Relation]:
        """Return the versions of what a relation stands for, in the stream's order."""
        history = self._histories[self._identities.of[relation]]
        if entry is None or relation.oid in self._in_force:
            return history
        # Its rows were loaded.
        columns = (Column(name, 0, -1, False) for name, _ in entry.names)
        return [replace(relation, columns=tuple(columns)), *history]

    def left_out(self) -> frozenset[int]:
        """Return what stands for the relations that have rows or a truncate under names that are left out."""
        identities, leaves_out = self._identities.of, self._settings.leaves_out
        left = (each for each in self._changed if leaves_out(_schema(each), each.name) or identities[each] in self.held)
        return frozenset(identities[relation] for relation in left)

    def _version(self, number: int, relation: Relation, output: Output) -> Version | None:
        outputs = self._settings.outputs_of(_schema(relation), relation.name)
        identity = self._identities.of[relation]
        if not self._settings.wants_relation(relation.oid) or output not in outputs or identity in self.held:
            return None
        sent = as_sent(relation, tuple(self._partitions.get(relation.oid, ())))
        entry = self._entries.get(output.oid_of(identity))
        history = self._history(relation, entry)
        layouts = (each for each in self._layouts.of([relation.oid]) if each.formers == relation.formers)
        layout = next((each for each in layouts if not each.is_dropped), None)
        selection = select(
            self._settings,
            relation,
            history,
            given=None if entry is None else dict(entry.names),
            sent=sent.relation,
            output=output,
            formerly=None if entry is None else entry.source_name,
            announced=None if layout is None else dict(layout.names),
        )
        if selection is None:
            return None
        if entry is not None:
            self._check_left_out(relation, selection, entry)
        is_mirror = output.rows is RowKind.CURRENT
        if not selection.columns and not (is_mirror and selection.metadata.names):
            problem = _NOTHING if is_mirror else f"the table has no columns: nothing is written to its {output.label}"
            self.warnings[f"{relation.qualified_name}: {problem}"] = None
            return None
        options = self._settings.type_options(_schema(relation), relation.name)
        resolved = tuple(column_types(relation, self._types, options))
        version = Version(
            number * COUNT + output.number,
            self._tables[identity] * COUNT + output.number,
            output,
            relation,
            _shown(sent, selection),
            selection,
            resolved,
            # An output that is not whole has everything as it was sent.
            self._columns(relation, selection, resolved, _announced_comments(relation, layout), not output.is_whole),
            # What is not whole is appended to, whatever identifies the source's rows.
            Identity(Mode.APPEND),
            configured=False,
            follows=selection.soft_deletes or _lacks_columns(relation, history, entry),
            comment="" if layout is None else layout.comment,
            source=identity,
            doubt=self._identities.doubts.get(relation, ""),
        )
        base = self._settings.from_lsn
        if output.is_whole:
            # What is announced is clear.
            renamed = self._identities.renamed.get(relation) if layout is None else None
            has_gaps = self._has_gaps or (entry is not None and entry.gap is not None)
            version = _identified(version, sent, self._settings, renamed, has_gaps=has_gaps)
            version = replace(version, notes=(*version.notes, *_conflicts(relation, selection)))
            base = max(base, -1 if entry is None or entry.base_lsn is None else entry.base_lsn)
        # Where all that the run has comes later, nothing has to be looked at.
        return replace(version, floor=base) if base > self._after_lsn + 1 else version

    def _check_left_out(self, relation: Relation, selection: Selection, entry: MirrorEntry) -> None:
        """Refuse to leave out a column that the table has values of, for a name that it did not have then."""
        table = self._settings.options_of(_schema(relation), relation.name)
        left = {attnum(column) for n, column in enumerate(relation.columns) if n not in selection.columns}
        for column in entry.shape.present if table.exclude_columns else ():
            if column.known_number > 0 and column.known_number in left and table.wants_column(column.source):
                raise ConfigError(
                    f"exclude_columns leaves out the column {column.source!r}, which has another name now, but the "
                    "table has its values",
                    table=relation.qualified_name,
                    remedy=f"Nothing was applied; add {column.source!r} to exclude_columns, and {made_again(entry)}",
                )

    def _columns(
        self, relation: Relation, selection: Selection, types: Sequence[ColumnType], remarks: list[str], as_sent: bool
    ) -> tuple[SourceColumn, ...]:
        salt = self._settings.mask_salt
        comments = column_comments(relation, type_names(self._types), selection.masked, remarks)
        layouts = _NO_LAYOUTS if as_sent else self._layouts
        columns = []
        named = zip(selection.columns, selection.sources, selection.names, selection.missing, strict=True)
        for n, source, name, missing in named:
            announced, is_masked = relation.columns[n], n in selection.masked
            is_said = missing is not None
            if not is_said and not as_sent:
                missing = announced.missing
            if is_masked and missing is not None:  # older rows get the hash, as new ones do
                missing = hashed(missing, types[n], salt)
            # Masked labels are renamed, too: from the hash of the old text to that of the new one.
            kind, sent = labelled(announced, types[n], layouts, salt if is_masked else None)
            followed = announced.number, is_said, announced.first, sent, 0 if as_sent else announced.rewritten
            columns.append(
                SourceColumn(source, name, kind, comments[n], missing, *followed, announced.described_number)
            )
        return tuple(columns)


def _assignment(version: Version) -> Assignment:
    selection = version.selection
    masked = tuple((number, version.types[number]) for number in selection.masked)
    rescues = selection.metadata.rescued_data is not None
    shown = Shown(version.shown, selection.columns, masked, rescues=rescues)
    return Assignment(
        version.table, version.number, version.identity, shown,
        follows=version.follows, marks_deleted=selection.soft_deletes, floor=version.floor,
    )  # fmt: skip


def _lacks_columns(relation: Relation, history: Sequence[Relation], entry: MirrorEntry | None) -> bool:
    """Return whether the table has columns that a version's rows do not bring: they are not published, or dropped."""
    names = {OWN, *(column.name for column in relation.columns)}
    if entry is not None and any(column.source not in names for column in entry.shape.columns):
        return True
    earlier = takewhile(lambda version: version is not relation, history)  # later versions have no rows yet
    return any(column.name not in names for version in earlier for column in version.columns)


def _announced_comments(relation: Relation, layout: Layout | None) -> list[str]:
    """Return what the source itself says of a relation's columns, by the newest announcement of its table."""
    if layout is None:
        return []
    by_number = {column.number: column.comment for column in layout.columns}
    # A base load's relations, and those before the first announcement, have no numbers.
    by_name = {(column.name, column.type_oid): column.comment for column in layout.columns}
    return [
        by_number.get(column.number, "") if column.number else by_name.get((column.name, column.type_oid), "")
        for column in relation.columns
    ]


def _conflicts(relation: Relation, selection: Selection) -> Iterator[str]:
    """Yield warnings where configuration and source disagree about older rows."""
    for n, missing in zip(selection.columns, selection.missing, strict=True):
        announced = relation.columns[n]
        if missing is not None and announced.missing not in (None, missing):
            yield f"added_defaults: the source announced another default of {announced.name}; the configuration's holds"


def _shown(sent: Sent, selection: Selection) -> Relation:
    named = zip(selection.columns, selection.names, strict=True)
    return replace(sent.relation, columns=tuple(replace(sent.relation.columns[n], name=name) for n, name in named))


def _schema(relation: Relation) -> str:
    return relation.namespace or "pg_catalog"


def _identified(version: Version, sent: Sent, settings: Settings, renamed: str | None, *, has_gaps: bool) -> Version:
    """Return a mirror's version, or a history's, with what identifies its rows; `Identities.renamed` for it."""
    relation, selection, resolved, columns = version.relation, version.selection, version.types, version.columns
    schema = _schema(relation)
    keys = _keys(relation, settings.keys_of(schema, relation.name), selection.renames)  # by the names of this version
    if not relation.columns:
        # Its columns were dropped, and others may come; by then no key tells its rows apart.
        keys = None
    ignored = ignores_key(sent.relation, keys)
    identity = identity_of(sent.relation, keys)
    if sent.differing is not None and (keys is None or ignored):
        identity = Identity(Mode.APPEND, obstacle=sent.differing)
    _check_exact(relation, identity, resolved)
    places = {n: place for place, n in enumerate(selection.columns)}  # a key goes by the columns that are kept
    # Where changes are left out, whole old rows cannot be relied on to find their rows.
    skips = any(settings.skips(operation) for operation in ("c", "u", "d"))
    evicts = selection.soft_deletes or skips or has_gaps
    claims = IN_PARTITIONS if sent.claims else _free_if_renamed(relation, renamed, settings)
    identity = replace(
        identity,
        key=tuple(places[n] for n in identity.key),
        evicts=evicts,
        claims=claims if identity.mode is Mode.KEYED else None,
    )
    if selection.soft_deletes:
        if identity.mode is not Mode.KEYED:
            raise ConfigError(
                "soft deletes need a key, and the table has none",
                table=relation.qualified_name,
                remedy="Name its key under objects: - table: {…, keys}, or set soft_deletes: false for it",
            )
        columns = (*columns, SourceColumn(OWN, selection.metadata.deleted or "", _BOOLEAN, DELETED))
    notes = [IGNORED_KEY] if ignored else []
    if sent.relation != relation and identity.mode is Mode.KEYED:
        notes.append(OWN_IDENTITY.format(", ".join(relation.columns[selection.columns[n]].name for n in identity.key)))
    configured = keys is not None and not ignored
    return replace(version, columns=columns, identity=identity, configured=configured, notes=tuple(notes))


def _free_if_renamed(relation: Relation, former: str | None, settings: Settings) -> Claim | None:
    """Return what refutes that a relation is renamed: it inserts a row whose key the table has already."""
    options = settings.options_of(_schema(relation), relation.name)
    if former is None or options.on_recreate == "keep":
        return None
    problem = f"it has the oid of {former}, and is not this table renamed, but another one"
    remedy = f"Nothing was applied to it; {OF_REUSED.format(relation.qualified_name)}"
    return Claim(problem, remedy)


def _check_exact(relation: Relation, identity: Identity, types: Sequence[ColumnType]) -> None:
    """Refuse keys that are read so that two may become one: one row would replace the other.

    Rows without a key need no check: rows that become equal are counted, and as many are deleted again.
    """
    for number in identity.key:
        kind, column = types[number], relation.columns[number].name
        inner = kind.element or kind  # arrays are as exact as their elements
        if keeps_values_apart(kind) and keeps_values_apart(inner):
            continue
        inexact = None if kind.overridden else kind.family.inexact or inner.family.inexact
        reading, remedy = inexact or (
            f"read as {kind.postgres_name}",
            "Leave {} out of the table's type_overrides, or name other keys",
        )
        raise ConfigError(
            f"the key column is {reading}, by which different keys may become the same",
            table=f"{relation.qualified_name}.{column}",
            remedy=remedy.format(column),
        )


def _keys(relation: Relation, keys: Sequence[str] | None, renames: Sequence[tuple[str, str]]) -> tuple[str, ...] | None:
    """Return the configured key by the names that its columns have in a version."""
    if keys is None:
        return None
    here = {column.name for column in relation.columns}
    return tuple(key if key in here else next(iter(sorted(same_columns(key, renames) & here)), key) for key in keys)


def check_distinct(names: Sequence[tuple[str, str, Version]]) -> None:
    """Refuse two source tables (name, place as the target compares it, version) that would be the same mirror table."""
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


# Enum labels in keys


def with_whole_keys(segments: Sequence[tuple[int, Version]], shape: TableShape | None) -> list[tuple[int, Version]]:
    """Take the columns that tell rows apart as they are sent, if no label of theirs is renamed in the run.

    Where they may have to be converted, all rows of the table come to one task.  Rows that have an old label behind the
    run of its rename are not worth that in every run.

    Args:
        segments: the versions of the rows, each with the number of its first one.
        shape: the table's before the run.
    """
    types_before = {} if shape is None else {column.source: column.type for column in shape.present}
    for _, version in segments:
        for n in _telling(version):
            column = version.columns[n]
            before = types_before.get(column.name, column.type)
            if column.type.labels != before.labels or (column.sent and column.sent.labels != column.type.labels):
                return list(segments)
    return [(start, _exact(version)) for start, version in segments]


def _telling(version: Version) -> Sequence[int]:
    identity = version.identity
    return range(len(version.columns)) if identity.mode is Mode.MULTISET else identity.key


def _exact(version: Version) -> Version:
    telling = set(_telling(version))
    if all(version.columns[n].sent is None for n in telling):  # nothing to change
        return version
    columns = (replace(column, sent=None) if n in telling else column for n, column in enumerate(version.columns))
    return replace(version, columns=tuple(columns))
