"""Select, from the configuration: is a table wanted, where does it go, which of its columns, under which names.

Everything here is decided by names, before a row is read.  A name in the configuration that no version of the relation
has ever had is an error: because of a typo, a column could be let through that should be left out or masked.  A name
that only this version lacks, because it is older or newer, is a warning.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from walreplay.config import Settings, TableSettings, same_columns
from walreplay.config import keys as k
from walreplay.config.hidden import HIDING, HiddenColumns, check_renamed
from walreplay.errors import ConfigError
from walreplay.names import Output, RowKind, column_names
from walreplay.protocol.messages import Relation

_CATALOG_NAMESPACE: Final = "pg_catalog"

_NEAR: Final = (0.6, 1, 0.8)
"""From these ratios on schemas and tables have similar names; orders and order_items have not."""


@dataclass(frozen=True, slots=True)
class Share:
    """The part that a source has of a table with rows of several sources.

    Attributes:
        column: the metadata column that holds each row's source.
        source: its value in the rows that are the source's own.
    """

    column: str
    source: str


@dataclass(frozen=True, slots=True)
class MetadataNames:
    """The names of a table's metadata columns; None is a column that the table does not have.

    Attributes:
        share: None for a table of one source.
        rescued_data: if None, a value that its column cannot hold stops the run.
        deleted: None unless deleted rows are kept (soft deletes).
        rows: versions have `HISTORY_COLUMNS` in place of the commit's LSN and time, changes have `LOG_COLUMNS`, too.
    """

    commit_lsn: str | None
    commit_ts: str | None
    rescued_data: str | None
    deleted: str | None
    rows: RowKind
    share: Share | None = None

    @property
    def commit_columns(self) -> tuple[str, ...]:
        """Those that say by which commit a row was written last."""
        return tuple(name for name in (self.commit_lsn, self.commit_ts) if name is not None)

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the metadata columns that the table has."""
        source = None if self.share is None else self.share.column
        common = (source, self.commit_lsn, self.commit_ts, self.rescued_data, self.deleted)
        match self.rows:
            case RowKind.CURRENT:
                of_kind = dict[str, str]()
            case RowKind.VERSION:
                of_kind = k.HISTORY_COLUMNS
            case RowKind.CHANGE:
                of_kind = k.LOG_COLUMNS
        return tuple(name for name in (*common, *of_kind.values()) if name is not None)


@dataclass(frozen=True, slots=True)
class TableLayout:
    """A mirror table's properties and clustering.

    Attributes:
        properties: Delta's, or the user's own.
        cluster_by: the mirror's names of the columns that it is clustered by.
    """

    properties: tuple[tuple[str, str], ...] = ()
    cluster_by: tuple[str, ...] = ()

    @property
    def marks_rows(self) -> bool:
        """Whether a MERGE may write deletion vectors, which not all readers know."""
        return dict(self.properties).get("delta.enableDeletionVectors", "true").lower() == "true"


NO_LAYOUT: Final = TableLayout()


@dataclass(frozen=True, slots=True)
class Tracked:
    """The columns whose changes begin versions in a history; other changes are made in the open version.

    Attributes:
        names: the source's, as the configuration lists them.
        excepted: all columns but these.
        of_all_tables: the list is one for all tables, of which some may have none of its columns.
        renames: see `Selection`.
    """

    names: tuple[str, ...]
    excepted: bool
    of_all_tables: bool = False
    renames: tuple[tuple[str, str], ...] = ()

    @property
    def key(self) -> str:
        """The list's key in the configuration."""
        return "track_history_except_column_list" if self.excepted else "track_history_column_list"


@dataclass(frozen=True, slots=True)
class Selection:
    """What is wanted of one version of a relation.

    Attributes:
        namespace, name: the mirror table's, before the target encodes them
            (`walreplay.delta.target.Target.table`).
        columns: the numbers of the wanted columns in the relation, in its order.
        sources: their source names.
        names: their names in the mirror table.
        masked: the numbers, in the relation, of those whose values are replaced by hashes; they are strings.
        renames: columns renamed at the source, (old source name, new source name) each; see
            `walreplay.names.renamed_columns`.
        tracked: the columns whose changes begin its versions; None if each change does.
        recreate_is_explicit: the configuration says what ``on_recreate`` is.
        given: the mirror's names of all columns that the relation has had up to this version, wanted or not, by the
            source's.
        missing: what rows that are older than a wanted column have in it, as the configuration says it, in PostgreSQL's
            text; None where it says nothing.
        warnings: what a person should know.
    """

    namespace: str
    name: str
    columns: tuple[int, ...]
    sources: tuple[str, ...]
    names: tuple[str, ...]
    masked: tuple[int, ...]
    renames: tuple[tuple[str, str], ...]
    metadata: MetadataNames
    on_type_change: k.TypeChangePolicy
    on_recreate: k.RecreatePolicy
    on_drop_column: k.DropColumnPolicy
    recreate_is_explicit: bool = False
    tracked: Tracked | None = None
    layout: TableLayout = NO_LAYOUT
    given: tuple[tuple[str, str], ...] = ()
    missing: tuple[str | None, ...] = ()
    warnings: tuple[str, ...] = ()

    @property
    def soft_deletes(self) -> bool:
        """Whether deleted rows are kept, marked."""
        return self.metadata.deleted is not None


def select(
    settings: Settings,
    relation: Relation,
    versions: Sequence[Relation] = (),
    *,
    given: Mapping[str, str] | None = None,
    sent: Relation | None = None,
    output: Output = Output.MIRROR,
    formerly: str | None = None,
    announced: Mapping[int, Sequence[str]] | None = None,
) -> Selection | None:
    """Return what is wanted of a relation's version; None if the table is not wanted.

    Args:
        output: the table that it is wanted for.
        versions: all known versions of the table's relation, in the stream's order; ``relation`` is one of them, or
            the newest if it is not there.
        given: the target names of source columns that were given before (`names_of`), where they are kept.
        sent: the relation with the replica identity that its old rows are really sent by, if that is another.
        formerly: what the table was called in the run before, as ``schema.table``; None if it was not there.
        announced: all names that a column has had, by its number.

    Raises:
        ConfigError: a column is named that never was, none is left, or not the key, or what is hidden may be seen.
    """
    source = relation.namespace or _CATALOG_NAMESPACE, relation.name
    if not settings.wants_table(*source) or output not in settings.outputs_of(*source):
        return None
    table = settings.options_of(*source)
    history = versions if relation in versions else (*versions, relation)
    metadata = replace(metadata_of(settings, output, soft_deletes=table.soft_deletes), share=_share(settings, table))
    clustering = table.cluster_by if output.rows is RowKind.CURRENT else ()  # others grow by commit
    tracked = _tracked(settings, table) if output.rows is RowKind.VERSION else None
    columns = HiddenColumns(table, history, announced or {})
    warnings = _check_names(columns, _listed(table, clustering, metadata), tracked, relation, given or {})
    warnings += _check_renamed(settings, relation, history, formerly)
    earlier = history[: history.index(relation)]  # later ones may have renamed a column, which has its old name here
    check_renamed(columns, relation, earlier, given or ())
    numbers = _wanted_columns(columns, relation, sent or relation)
    targets = names_of(settings, table, (*earlier, relation), given, output=output)
    chosen = {name: targets[name] for name in (relation.columns[n].name for n in numbers)}
    return Selection(
        namespace=table.destination[0],
        name=table.name_of(output),
        columns=numbers,
        sources=tuple(chosen),
        names=tuple(chosen.values()),
        masked=tuple(n for n in numbers if columns.hidden_by(relation.columns[n])),
        renames=table.renames,
        metadata=metadata,
        on_type_change=table.on_type_change,
        on_recreate=table.on_recreate,
        on_drop_column=table.on_drop_column,
        recreate_is_explicit="on_recreate" in table.explicit,
        tracked=tracked,
        layout=_layout(table, clustering, metadata, relation, chosen),
        given=tuple(targets.items()),
        # An output that is not whole says nothing of rows that were there.
        missing=tuple(table.added_default(name) if output.is_whole else None for name in chosen),
        warnings=tuple(warnings),
    )


def _listed(table: TableSettings, clustering: Sequence[str], metadata: MetadataNames) -> dict[str, Sequence[str]]:
    """Return the columns that keys of the configuration name, by key."""
    return {
        "include_columns": table.include_columns or (),
        "exclude_columns": table.exclude_columns or (),
        "column_mask_hash": table.column_mask_hash or (),
        "cluster_by": [name for name in clustering if name not in metadata.names],
    }


def _wanted_columns(columns: HiddenColumns, relation: Relation, sent: Relation) -> tuple[int, ...]:
    """Return the numbers of the columns that are wanted of a relation; a relation may have none by itself."""
    _check_key(columns, sent)  # a partition's identity may have other columns than the root's
    numbers = tuple(n for n, column in enumerate(relation.columns) if columns.wants(column))
    if not numbers and relation.columns:
        raise ConfigError(
            "no column is left of the table",
            table=relation.qualified_name,
            remedy="Correct include_columns or exclude_columns, or leave the table out with table_exclude_list",
        )
    return numbers


def metadata_of(settings: Settings, output: Output, *, soft_deletes: bool = False) -> MetadataNames:
    """Return the names of an output's own columns."""
    rescued = settings.rescued_data_column
    match output.rows:
        case RowKind.CURRENT:
            deleted = k.DELETED if soft_deletes else None
            return MetadataNames(settings.commit_lsn_column, settings.commit_ts_column, rescued, deleted, output.rows)
        case RowKind.VERSION:
            return MetadataNames(None, None, rescued, None, output.rows)
        case RowKind.CHANGE:
            # It cannot do without the commit's LSN and time.
            lsn, ts = settings.commit_lsn_column or k.COMMIT_LSN, settings.commit_ts_column or k.COMMIT_TS
            return MetadataNames(lsn, ts, rescued, None, output.rows)


def _share(settings: Settings, table: TableSettings) -> Share | None:
    """Return the part of a table that is the source's own; None if the table is of one source.

    What is shared under the mirror's name is shared in all its outputs.
    """
    if settings.ledger_name is None or not settings.shares_table(*table.destination):  # a single source shares nothing
        return None
    return Share(k.SOURCE, settings.ledger_name)


def names_of(
    settings: Settings,
    table: TableSettings,
    versions: Sequence[Relation],
    given: Mapping[str, str] | None = None,
    *,
    output: Output = Output.MIRROR,
) -> dict[str, str]:
    """Return the target's name of every column, wanted or not, that a table's relation has had.

    The metadata columns' names are kept free also where a table has no such column yet, so that soft deletes can be
    switched on later.

    Raises:
        ConfigError: a metadata column has the name of a known column.
    """
    history = ([column.name for column in version.columns] for version in versions)
    reserved = [*metadata_of(settings, output).names, *metadata_of(settings, Output.MIRROR, soft_deletes=True).names]
    if settings.shares_table(*table.destination):
        reserved.append(k.SOURCE)
    try:
        return column_names(history, reserved, renames=table.renames, earlier=given)
    except ConfigError as error:
        error.table = f"{table.source_schema}.{table.source_table}"
        raise


def check_destinations(selections: Iterable[tuple[str, Selection]]) -> None:
    """Refuse two source tables that would be written to one mirror table.

    Whether two names are one in the target's catalog is for the target to say.

    Args:
        selections: each source table's name with what is wanted of it.

    Raises:
        ConfigError: naming both.
    """
    places: dict[tuple[str, str], str] = {}
    for source, selection in selections:
        place = (selection.namespace, selection.name)
        other = places.setdefault(place, source)
        if other != source:
            raise ConfigError(
                f"{other} and {source} have the same destination, {'.'.join(place)}",
                table=source,
                remedy="Give one of them another destination_table, or leave it out with table_exclude_list",
            )


def unmatched_tables(settings: Settings, relations: Iterable[Relation], ledger_names: Iterable[str] = ()) -> list[str]:
    """Name the tables under ``objects`` that match no relation, and that the ledger does not know.

    Raises:
        ConfigError: it may be a typo for a table of which nothing else is said, and hides columns.
    """
    names, warnings = {relation.qualified_name for relation in relations}, []
    # Tables that nothing under objects names.
    others = {name for name in names if settings.wants_table(*name.split(".", 1))} - {
        item.name for item in settings.objects
    }
    for item in settings.objects:
        if item.name in names.union(ledger_names):
            continue  # what is in neither may be a typo, or be still to come
        close = difflib.get_close_matches(item.name, names, n=1)
        problem = f"objects names {item.name}, which is none of the captures' tables"
        hiding = [key for key in HIDING if getattr(item.table, key)]
        # With a typo, columns would be written that were to be hidden.
        if hiding and (meant := next((name for name in others if _is_near(item.name, name)), None)):
            raise ConfigError(
                f"{problem}, and hides columns by {' and '.join(hiding)}; the nearest is {meant}",
                table=meant,
                remedy=f"Nothing was applied; correct the name; or name {meant} under objects, too, with nothing else",
            )
        warnings.append(problem + (f"; the nearest is {close[0]}" if close else ""))
    return warnings


def _is_near(name: str, other: str) -> bool:
    """Return whether a name (``schema.table``) may be a typo for another one, in each of its parts."""
    parts = zip(name.lower().partition("."), other.lower().partition("."), _NEAR, strict=True)
    return all(difflib.SequenceMatcher(None, part, other_part).ratio() >= ratio for part, other_part, ratio in parts)


def _check_renamed(
    settings: Settings, relation: Relation, history: Sequence[Relation], formerly: str | None
) -> list[str]:
    """Return warnings about options that a table has under a former name alone.

    Raises:
        ConfigError: they hide columns, which would be seen from now on.
    """
    options = {item.name: item.table for item in settings.objects}
    if relation.qualified_name in options:
        return []
    before = (version.qualified_name for version in history[: history.index(relation)])
    warnings = []
    for name in dict.fromkeys(filter(None, (formerly, *before))):
        table = options.get(name)
        if table is None:
            continue
        hiding = [key for key in HIDING if getattr(table, key)]
        if hiding:
            raise ConfigError(
                f"the table was called {name} before, and the configuration has its {' and '.join(hiding)} under that "
                "name alone: columns would be written that were hidden so far",
                table=relation.qualified_name,
                remedy=f"Name {relation.qualified_name} under objects, too, with the options that it is to have; and "
                f"keep those of {name}",
            )
        warnings.append(f"its options under objects are those of {name}, as it was called before, and hold no more")
    return warnings


def _tracked(settings: Settings, table: TableSettings) -> Tracked | None:
    """Return the list of the columns whose changes begin versions: the table's own, or the one for all tables."""
    names, others = table.track_history_column_list, table.track_history_except_column_list
    listed = others if names is None else names  # the model allows one of the two
    if listed is None:
        return None
    own_entry = settings.table(table.source_schema, table.source_table)
    lists = own_entry and (own_entry.track_history_column_list, own_entry.track_history_except_column_list)
    of_all_tables = lists in (None, (None, None))
    return Tracked(listed, names is None, of_all_tables, table.renames)


def _layout(
    table: TableSettings, names: Iterable[str], metadata: MetadataNames, relation: Relation, targets: Mapping[str, str]
) -> TableLayout:
    """Return a table's properties and clustering: the mirror's names of columns, as far as this version has them.

    Args:
        targets: the mirror's names of the version's columns that are wanted, by the source's.
    """
    cluster_columns: list[str] = []
    for name in names:
        if name in metadata.names:
            cluster_columns.append(name)
            continue
        same = same_columns(name, table.renames)
        here = [column.name for column in relation.columns if column.name in same]
        if any(column not in targets for column in here):
            raise ConfigError(
                f"cluster_by names {name!r}, which is left out of the table",
                table=relation.qualified_name,
                remedy="Correct cluster_by, include_columns or exclude_columns",
            )
        cluster_columns += [targets[column] for column in here]
    return TableLayout(tuple(sorted(table.table_properties.items())), tuple(cluster_columns))


def _check_names(
    columns: HiddenColumns,
    listed: Mapping[str, Sequence[str]],
    tracked: Tracked | None,
    relation: Relation,
    given: Iterable[str],
) -> list[str]:
    """Compare the configured names with all columns that exist or have existed; give the warnings.

    Args:
        tracked: columns that are followed under other names, too.
    """
    table, here = columns.table, {name for column in relation.columns for name in columns.names_of(column)}
    ever = columns.ever | dict.fromkeys(given)  # the ledger may know columns of older versions
    warnings = []
    followed = {} if tracked is None or tracked.of_all_tables else {tracked.key: tracked.names}
    for key, names in (*listed.items(), *followed.items()):
        for name in names:
            same = same_columns(name, table.renames)
            if same.isdisjoint(ever):
                raise _unknown_column(key, name, relation, ever)
            if same.isdisjoint(here) and key in listed:
                warnings.append(
                    f"{key} names {name!r}, which the table has in another version, but not in this one; if it was "
                    "renamed at the source, say so in rename_columns"
                )
    warnings += [
        f"added_defaults names {name!r}, which is none of the table's columns, or not yet"
        for name in table.added_defaults or ()
        if same_columns(name, table.renames).isdisjoint(ever)
    ]
    for old, new in table.renames:
        if same_columns(old, table.renames).isdisjoint(ever):
            raise _unknown_column("rename_columns", f"{old}: {new}", relation, ever)
    return warnings


def _unknown_column(key: str, name: str, relation: Relation, columns: Iterable[str]) -> ConfigError:
    names = list(columns)
    close = difflib.get_close_matches(name, names, n=1)
    nearest = f"; the nearest column is {close[0]!r}" if close else ""
    return ConfigError(
        f"{key} names {name!r}, which is none of the table's columns ({', '.join(names)})",
        table=relation.qualified_name,
        remedy=f"Correct {key} in the configuration{nearest}",
    )


def _check_key(columns: HiddenColumns, relation: Relation) -> None:
    """Refuse a table without a column that tells its rows apart."""
    table, is_wanted = columns.table, {column.name: columns.wants(column) for column in relation.columns}
    for name in key_columns(relation, table.keys):
        if not is_wanted.get(name, True):
            remedy = (
                f"Add {name!r} to include_columns" if table.include_columns else f"Take {name!r} out of exclude_columns"
            )
            raise ConfigError(
                f"the column {name!r} is left out, but belongs to the key that tells the table's rows apart",
                table=relation.qualified_name,
                remedy=f"{remedy}; column_mask_hash hides a key's values and still tells rows apart",
            )


def key_columns(relation: Relation, keys: Sequence[str] | None) -> list[str]:
    """Name the columns that identify a relation's rows; none if nothing or the whole row does.

    A configured key counts, unless old rows lack some of its columns.  Then the replica identity's columns count.
    """
    sent = [] if relation.replica_identity == "n" else [column.name for column in relation.columns if column.key]
    # Without a replica identity PostgreSQL refuses updates and deletes: no old row has to be found.
    if keys and (not sent or set(keys) <= set(sent)):
        return list(keys)
    return [] if relation.replica_identity == "f" else sent  # full flags all columns, but equal rows may exist
