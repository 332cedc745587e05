"""Checks of a table's columns before anything is applied, and warnings about columns whose older rows may be wrong.

The `check_…` functions refuse what a table cannot be made of, or changed into.  `doubts_of` yields, for one relation
version after another, the columns whose older rows may differ from the source's, by what it has announced.
`watched_columns` returns whose changes begin versions in a history, by the columns that its table has.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Final

import pyarrow as pa

from walreplay.config import same_columns
from walreplay.config.selection import MetadataNames, Share, TableLayout, Tracked
from walreplay.decode.masking import is_masked
from walreplay.delta.data_files import indexed_count
from walreplay.errors import ConfigError, OrderError
from walreplay.evolution.casts import is_uncertain
from walreplay.evolution.shapes import (
    OWN,
    ChangeKind,
    Evolution,
    MirrorColumn,
    SourceColumn,
    TableShape,
    by_announcement,
    is_added,
)
from walreplay.fold.change_log import filled_column
from walreplay.lsn import format_lsn
from walreplay.table.registry import MirrorEntry, made_again


def check_lasting(evolution: Evolution, name: str, before: MirrorEntry | None, share: Share | None) -> None:
    """Refuse settings that cannot change once there are rows.

    Raises:
        ConfigError: soft deletes, or masks, are switched on or off; or several sources shall write to the table from
            now on, or no longer.
    """
    if before is not None and before.share != share:
        raise ConfigError(
            f"the table is {'' if share else 'no longer '}one of several sources now, but it was made otherwise",
            table=name,
            path=before.table.text,
            remedy="Nothing was applied; set shared_tables as it was, or apply to a new target",
        )
    if evolution.before is None:
        return
    # Before the run, and after it.
    marks = [any(column.source == OWN for column in shape.present) for shape in (evolution.before, evolution.shape)]
    if marks[0] != marks[1]:
        raise ConfigError(
            f"soft deletes are switched {'on' if marks[1] else 'off'} for a table that is there",
            table=name,
            remedy=f"Nothing was applied; set soft_deletes as it was, or {made_again(before)}",
        )
    for source, column in zip(evolution.of_table(), evolution.shape.columns, strict=True):
        # A fill's chain begins with the default's text, which is no type that the column has had.
        masks = [is_masked(kind) for kind in (source.chain if source.fill is None else source.chain[-1:])]
        if masks[0] != masks[-1]:
            raise ConfigError(
                f"the column {column.source!r} is {'' if masks[-1] else 'no longer '}masked now, but the table has its "
                f"values {'as they are' if masks[-1] else 'masked'}",
                table=name,
                remedy=f"Nothing was applied; set column_mask_hash as it was, or name the column under each of its "
                f"names ({', '.join(dict.fromkeys((*column.was, column.source)))}), and {made_again(before)}",
            )


def check_clustering(layout: TableLayout, shape: TableShape, metadata: MetadataNames, name: str) -> None:
    """Refuse, by a ConfigError, columns that Delta cannot cluster by: it needs their least and greatest values."""
    indexed = indexed_count(dict(layout.properties))  # negative: statistics of all columns
    # A change log, whose own columns stand elsewhere, is not clustered.
    kinds = {column.name: column.type.arrow for column in shape.columns}
    # The source's name, where there is one, stands in front of all others.
    first = [] if metadata.share is None else [metadata.share.column]
    positions = {column: number for number, column in enumerate(dict.fromkeys([*first, *kinds, *metadata.names]))}
    for column in layout.cluster_by:
        kind = kinds.get(column)
        if kind is not None and (pa.types.is_nested(kind) or pa.types.is_boolean(kind) or pa.types.is_binary(kind)):
            reason = f"is of a type ({kind}) that has no order"
        elif 0 <= indexed <= positions.get(column, 0):
            reason = f"stands behind the first {indexed} columns, of which alone Delta keeps statistics"
        else:
            continue
        raise ConfigError(
            f"cluster_by names {column!r}, which {reason}",
            table=name,
            remedy="Nothing was applied; correct cluster_by, or raise delta.dataSkippingNumIndexedCols",
        )


def check_types(evolution: Evolution, name: str) -> None:
    """Refuse a change of a column's type that rewrites the table."""
    if not evolution.rewritten:
        return
    names = {column.name for column in evolution.rewritten}
    kinds = (ChangeKind.RETYPED, ChangeKind.RELABELLED)
    changes = [change for change in evolution.changes if change.kind in kinds and change.column in names]
    texts = ", ".join(change.text for change in changes) or f"columns retyped: {', '.join(sorted(names))}"
    raise OrderError(
        f"{texts}, which rewrites the table",
        table=name,
        remedy="Nothing was applied; set on_type_change: rewrite to have the old values converted",
    )


LOAD: Final = "Load the table's rows anew (docs/starting.md: walreplay load --replace --from COPY)"

_ANNOUNCE: Final = (
    "Announce all tables for each new slot, once it is there (SELECT walreplay.announce_all()), and record with "
    "messages=on"
)


def doubts_of(
    shape: TableShape, columns: Sequence[SourceColumn], ids: Sequence[int], base_lsn: int | None, *, announced: bool
) -> Iterator[str]:
    """Name the columns of a relation version in which the rows from before it may have other values in the source.

    Args:
        shape: the table before the version.
        ids: of the version's columns, as the table takes them.
        base_lsn: the rows were loaded as of this LSN; None if they were not.
        announced: changes of tables are to be announced.
    """
    if not shape.columns:  # no table yet, so no older rows
        return
    if announced and (unannounced := _unannounced(shape, columns, ids)):
        yield (
            f"{_listed(unannounced)}: the source has not announced the change of the table; columns are followed by "
            f"names and places, so older rows may have wrong values. {_ANNOUNCE}. {LOAD}"
        )
    columns_by_id = {column.id: column for column in shape.columns}
    pairs = [(columns_by_id.get(id_), column) for column, id_ in zip(columns, ids, strict=True)]
    yield from _returned(shape, pairs)
    uncertain = [new.target for old, new in pairs if old is not None and is_uncertain(old.type, new.type)]
    if uncertain:
        yield (
            f"{_listed(uncertain)}: what older rows have in the new type hangs on the session that changed it (its "
            f"TimeZone, for instance), or on the source's catalog; they may have other values in the source. {LOAD}"
        )
    unmatched = _unmatched(shape, columns, ids)
    unknown = [new for old, new in pairs if new.target not in unmatched and _is_unknown(shape, new, old, base_lsn)]
    if unmatched:
        yield (
            f"{_listed(unmatched)}: the table was announced only behind rows, and had other columns by then; they are "
            f"followed by names and places, so older rows may have wrong values. {_ANNOUNCE}. {LOAD}"
        )
    if unknown:
        newest = max(column.rewritten for column in unknown)
        place = f" by LSN {format_lsn(newest)}" if newest else ""
        yield (
            f"{_listed([column.target for column in unknown])}: the source has given older rows values{place} that are "
            f"not sent, and that do not follow from what is. {LOAD}"
        )


def _returned(shape: TableShape, pairs: Iterable[tuple[MirrorColumn | None, SourceColumn]]) -> Iterator[str]:
    """Name the columns that were not sent for a while, and are sent again, so far as the bytes can tell."""
    gone = {column.source: column for column in shape.columns if column.dropped}
    kept, emptied = [], []
    for same, column in pairs:
        old = same or gone.get(column.name)
        if old is None or not old.dropped:
            continue
        if same is not None:
            kept.append(column.target)  # the id says that it is the same column
        elif old.known_number < 1 or column.number < 1:  # by name alone it may be another column
            emptied.append(column.target)
    if kept:
        yield f"{_listed(kept)}: not published for a while; rows written meanwhile may have other values. {LOAD}"
    if emptied:
        yield (
            f"{_listed(emptied)}: gone for a while, and back. A column that is dropped and added again, and one that a "
            "column list of the publication leaves out for a while, look alike; rows from before have NULL now. "
            f"If it was a column list: {LOAD[0].lower()}{LOAD[1:]}; announcements (docs/announcements.md) tell the two "
            "apart"
        )


def _is_unknown(shape: TableShape, column: SourceColumn, old: MirrorColumn | None, base_lsn: int | None) -> bool:
    # Loaded rows have the new values, and an older rewrite was named in its run.
    if column.rewritten > max(base_lsn or 0, 0 if old is None else old.rewritten):
        return old is not None or column.missing is None
    # One that is not newer than the others was there before: rows have had values in it.
    return old is None and column.number > 0 and column.missing is None and not is_added(shape, column)


def _unannounced(shape: TableShape, columns: Sequence[SourceColumn], ids: Sequence[int]) -> list[str]:
    """Name the columns that are gone or new in a version of which nothing is announced, and nothing configured."""
    source_columns = [column for column in columns if column.name != OWN]
    # A version without columns has nothing by which an announcement shows.
    if not source_columns or any(column.number > 0 for column in source_columns):
        return []
    configured = {column.target for column in columns if column.missing is not None}
    return [name for name in _gone_or_new(shape, columns, ids) if name not in configured]


def _unmatched(shape: TableShape, columns: Sequence[SourceColumn], ids: Sequence[int]) -> list[str]:
    """Name the columns that are gone or new, where announcements do not say what has become of which."""
    source_columns = [column for column in columns if column.name != OWN]
    is_numbered = bool(source_columns) and all(column.number > 0 for column in source_columns)
    if not is_numbered or by_announcement(shape.present, columns) is not None:  # numbers say which column is which
        return []
    names = [column.name for column in columns]
    positions = [names.index(column.source) for column in shape.present if column.source in names]
    # All old columns are there, in their order.
    if len(positions) == len(shape.present) and positions == sorted(positions):
        return []
    return _gone_or_new(shape, columns, ids)


def _gone_or_new(shape: TableShape, columns: Sequence[SourceColumn], ids: Sequence[int]) -> list[str]:
    before, now = {column.id for column in shape.present}, set(ids)
    new = [column.target for column, id_ in zip(columns, ids, strict=True) if id_ not in before and column.name != OWN]
    gone = (column.name for column in shape.present if column.id not in now and column.source != OWN)
    return list(dict.fromkeys([*gone, *new]))


def _listed(names: Sequence[str]) -> str:
    return f"column{'s' if len(names) > 1 else ''} {', '.join(names)}"


def watched_columns(tracked: Tracked | None, shape: TableShape) -> tuple[int, ...] | None:
    """Return the numbers of the table's columns whose changes begin versions; None if each change begins one."""
    if tracked is None:
        return None
    listed = {number for name in tracked.names for number in _columns_of(name, tracked, shape)}
    if tracked.of_all_tables and tracked.names and not listed:
        # It is about other tables.
        return None
    return tuple(number for number in range(len(shape.columns)) if (number in listed) != tracked.excepted)


def tracking_warnings(tracked: Tracked | None, shape: TableShape, *, has_key: bool) -> Iterator[str]:
    """Yield warnings about what is listed and has no effect."""
    if tracked is None or watched_columns(tracked, shape) is None:
        return
    if not has_key:
        yield f"{tracked.key} says nothing here: no key tells the table's rows apart, so each change begins a version"
        return
    for name in () if tracked.of_all_tables else tracked.names:
        if all(shape.columns[number].dropped for number in _columns_of(name, tracked, shape)):
            yield f"{tracked.key} names {name!r}, which the table does not have now"


def _columns_of(name: str, tracked: Tracked, shape: TableShape) -> list[int]:
    """Return the numbers of the columns that have a name now, or else of those that had it."""
    same = same_columns(name, tracked.renames)
    now = [number for number, column in enumerate(shape.columns) if column.source in same]
    # A configured name may be one from before a rename.
    return now or [number for number, column in enumerate(shape.columns) if same & {*column.was}]


def fill_notes(evolution: Evolution) -> Iterator[str]:
    """Yield notes on what becomes of rows that are older than a column."""
    for source, column in zip(evolution.of_table(), evolution.shape.columns, strict=True):
        if source.fill is None:
            continue
        _, left = filled_column(source.fill, source.chain, 1)
        outcome = "which it cannot hold: it is rescued" if left is not None else "as in the source"
        yield f"column {column.name}: older rows have the default, {outcome}"


def late_fills(columns: Sequence[SourceColumn], shape: TableShape) -> Iterator[str]:
    """Yield notes on defaults that were configured after their columns were added, or were others then."""
    table_columns = {column.source: column for column in shape.present}
    for column in columns:
        table_column = table_columns[column.name]
        # A default fills older rows when the column is added, never later.
        if column.is_said and table_column.filled != column.missing and table_column.added:
            yield (
                f"added_defaults: the table has had the column {column.name} before, so its older rows stay as they "
                "are; the default takes effect in a new target"
            )
