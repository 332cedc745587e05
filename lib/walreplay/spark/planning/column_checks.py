"""What a table cannot be made of, or changed into: found before anything is applied."""

from __future__ import annotations

import pyarrow as pa

from walreplay.errors import ConfigError, OrderError
from walreplay.selection import Layout, MetadataNames, Share
from walreplay.sink.column_changes import ChangeKind
from walreplay.sink.data_files import indexed_count
from walreplay.sink.evolution import OWN, Evolution, TableShape
from walreplay.sink.masking import is_masked
from walreplay.spark.planning.registry import MirrorEntry, made_again


def check_marks(evolution: Evolution, name: str, before: MirrorEntry | None) -> None:
    """Refuse settings that cannot change once there are rows.

    Raises:
        ConfigError: soft deletes, or masks, are switched on or off.
    """
    if evolution.before is None:
        return
    marks = [any(column.source == OWN for column in shape.present) for shape in (evolution.before, evolution.shape)]
    if marks[0] != marks[1]:
        raise ConfigError(
            f"soft deletes are switched {'on' if marks[1] else 'off'} for a table that is there",
            table=name,
            remedy=f"Nothing was applied; set soft_deletes as it was, or {made_again(before)}",
        )
    for source, column in zip(evolution.of_table(), evolution.shape.columns, strict=True):
        masks = [is_masked(kind) for kind in (source.chain if source.fill is None else source.chain[-1:])]
        if masks[0] != masks[-1]:
            raise ConfigError(
                f"the column {column.source!r} is {'' if masks[-1] else 'no longer '}masked now, but the table has its "
                f"values {'as they are' if masks[-1] else 'masked'}",
                table=name,
                remedy=f"Nothing was applied; set column_mask_hash as it was, or {made_again(before)}",
            )


def check_shared(share: Share | None, before: MirrorEntry | None, name: str) -> None:
    """Refuse a table that is there, and that several sources shall write to from now on, or no longer.

    Raises:
        ConfigError: saying so.
    """
    if before is None or before.share == share:
        return
    if before.share is not None and share is not None:
        what, remedy = f"the column of its sources is {share.column!r} now", "metadata_columns"
    else:
        what, remedy = f"the table is {'' if share else 'no longer '}one of several sources now", "shared_tables"
    raise ConfigError(
        f"{what}, but it was made otherwise",
        table=name,
        path=before.table.text,
        remedy=f"Nothing was applied; set {remedy} as it was, or apply to a new target",
    )


def check_clustering(layout: Layout, shape: TableShape, metadata: MetadataNames, name: str) -> None:
    """Refuse columns that Delta cannot cluster by: it needs their least and greatest values.

    Raises:
        ConfigError: naming one.
    """
    indexed = indexed_count(dict(layout.properties))
    # A change log, whose own columns stand elsewhere, is not clustered.
    kinds = {column.name: column.type.arrow for column in shape.columns}
    # The source's name, where there is one, stands in front of all others.
    first = [] if metadata.share is None else [metadata.share.column]
    places = {column: number for number, column in enumerate(dict.fromkeys([*first, *kinds, *metadata.names]))}
    for column in layout.cluster_by:
        kind = kinds.get(column)
        if kind is not None and (pa.types.is_nested(kind) or pa.types.is_boolean(kind) or pa.types.is_binary(kind)):
            why = f"is of a type ({kind}) that has no order"
        elif 0 <= indexed <= places.get(column, 0):
            why = f"stands behind the first {indexed} columns, of which alone Delta keeps statistics"
        else:
            continue
        raise ConfigError(
            f"cluster_by names {column!r}, which {why}",
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
    told = ", ".join(change.text for change in changes) or f"columns retyped: {', '.join(sorted(names))}"
    raise OrderError(
        f"{told}, which rewrites the table",
        table=name,
        remedy="Nothing was applied; set on_type_change: rewrite to have the old values converted",
    )
