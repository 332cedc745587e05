"""Masked columns, and the part of a decoded batch that its mirror table has: the wanted columns, masked and renamed.

A masked value is a salted hash, as with Debezium's ``column.mask.hash.v2`` and SHA-256: over the salt and the value's
text, both UTF-8, in 64 hexadecimal digits; NULL stays NULL.  The text is PostgreSQL's, made from the typed value.  So a
value has the same hash in text and in binary, and whatever the sender's settings were (`walreplay.types.canonical`).  A
value that its column cannot hold is hashed from its rescued text, which is then removed from the rescued data, where
everybody could read it.

Equal values have equal hashes, so that masked keys still identify rows and masked columns still join.  It also means
that whoever knows the salt can try values out, quickly if there are few possible values.  A hash costs a Python call
for each distinct value of a batch: some hundred thousand per second and core.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from walreplay.decode.change_batch import METADATA_COLUMNS, ChangeBatch, field_names, read_rescued, rescued_array
from walreplay.errors import CaptureError
from walreplay.protocol.messages import Relation
from walreplay.types.base import ColumnType
from walreplay.types.families import STRING, output_of

MASKED: Final = "masked "  # The beginning of a masked type's name; no PostgreSQL type's name begins so


def masked_type(type_: ColumnType) -> ColumnType:
    """Return the type that a masked column has in the mirror table."""
    return ColumnType(pa.string(), STRING, f"{MASKED}{type_.postgres_name}", typmod=type_.typmod)


def is_masked(type_: ColumnType) -> bool:
    """Return whether a type is a masked column's."""
    return type_.postgres_name.startswith(MASKED)


def mask(values: pa.Array, column_type: ColumnType, rescued: pa.Array | None, salt: bytes) -> pa.Array:
    """Hash a column's values.

    Args:
        values: of the type ``column_type.arrow``.
        column_type: how they were read.
        rescued: PostgreSQL's text of those values that the column cannot hold (and that are NULL in it), or None.

    Returns:
        strings, NULL where there is no value.
    """
    text = output_of(values, column_type)
    # What the column cannot hold is NULL in it; the rescued text stands for it.
    if rescued is not None and rescued.null_count < len(rescued):
        text = pc.coalesce(text, rescued)
    if len(text) == text.null_count:
        return pa.nulls(len(text), pa.string())
    distinct = text.dictionary_encode()  # each distinct value is hashed once
    hashes = [hashlib.sha256(salt + text).hexdigest() for text in distinct.dictionary.cast(pa.binary()).to_pylist()]
    return pa.array(hashes, pa.string()).take(distinct.indices)


def mask_batch(batch: ChangeBatch, masked: Sequence[tuple[int, ColumnType]], salt: bytes) -> ChangeBatch:
    """Mask columns of decoded changes: in new rows, in old tuples, and in the rescued values."""
    if not masked:
        return batch
    names = [column.name for column in batch.relation.columns]
    data, rescued = _mask_columns(batch.data, METADATA_COLUMNS, names, masked, batch.rescued, salt)
    before, before_rescued = batch.before, batch.before_rescued
    if before is not None:
        before, before_rescued = _mask_columns(before, 1, names, masked, before_rescued, salt)  # behind `__row`
    return replace(batch, data=data, rescued=rescued, before=before, before_rescued=before_rescued)


def _mask_columns(
    rows: pa.RecordBatch,
    first_column: int,
    names: Sequence[str],
    masked: Sequence[tuple[int, ColumnType]],
    rescued: pa.Array | None,
    salt: bytes,
) -> tuple[pa.RecordBatch, pa.Array | None]:
    columns, fields = list(rows.columns), list(rows.schema)
    texts, rescued = _take_rescued(rescued, [names[number] for number, _ in masked])
    for number, column_type in masked:
        index = first_column + number
        columns[index] = mask(columns[index], column_type, texts.get(names[number]), salt)
        fields[index] = pa.field(fields[index].name, pa.string())  # a hash
    return pa.RecordBatch.from_arrays(columns, schema=pa.schema(fields)), rescued


def _take_rescued(rescued: pa.Array | None, names: Sequence[str]) -> tuple[dict[str, pa.Array], pa.Array | None]:
    """Divide the rescued values: the texts of the given columns, and the others."""
    if rescued is None:
        return {}, None
    rows = read_rescued(rescued)
    # The text is removed: it could be read beside its hash.
    texts = {name: pa.array([values.pop(name, None) for values in rows], pa.string()) for name in names}
    return texts, rescued_array(rows) if any(rows) else None


@dataclass(frozen=True, slots=True)
class Shown:
    """How a relation version appears in its mirror table.

    Attributes:
        relation: the version with only the wanted columns, under the mirror's names.
        columns: the numbers of these columns in the version.
        masked: the numbers (in the version) of columns that are replaced by hashes, and their own types.
        rescues: the table has a column for rescued texts; otherwise values that do not fit stop the run.
    """

    relation: Relation
    columns: tuple[int, ...]
    masked: tuple[tuple[int, ColumnType], ...] = ()
    rescues: bool = True


def show(batch: ChangeBatch, shown: Shown, salt: bytes) -> ChangeBatch:
    """Return what the table takes of a batch.

    Raises:
        CaptureError: a value does not fit its column, and the table has no column for rescued texts.
    """
    batch = mask_batch(batch, shown.masked, salt)
    if batch.relation == shown.relation:
        result = batch  # no column is left out or renamed
    else:
        old = [column.name for column in batch.relation.columns]
        names = {old[number]: column.name for number, column in zip(shown.columns, shown.relation.columns, strict=True)}
        result = replace(
            batch,
            relation=shown.relation,
            data=_select(batch.data, METADATA_COLUMNS, shown),
            unchanged={names[name]: mask for name, mask in batch.unchanged.items() if name in names},
            before=None if batch.before is None else _select(batch.before, 1, shown),
            rescued=_rename(batch.rescued, names),
            before_rescued=_rename(batch.before_rescued, names),
        )
    if not shown.rescues:
        _refuse_rescued(result)
    return result


def _select(data: pa.RecordBatch, leading: int, shown: Shown) -> pa.RecordBatch:
    columns = [*data.columns[:leading], *(data.columns[leading + number] for number in shown.columns)]
    names = [*data.schema.names[:leading], *field_names(shown.relation)]
    return pa.RecordBatch.from_arrays(columns, names=names)


def _rename(rescued: pa.Array | None, names: Mapping[str, str]) -> pa.Array | None:
    if rescued is None:
        return None
    rows = read_rescued(rescued)
    return rescued_array({names[name]: value for name, value in row.items() if name in names} for row in rows)


def _refuse_rescued(batch: ChangeBatch) -> None:
    for rescued in (batch.rescued, batch.before_rescued):
        if rescued is None or rescued.null_count == len(rescued):
            continue
        name = next(name for row in read_rescued(rescued) for name in row)  # the first one; its value is not shown
        raise CaptureError(
            "a value does not fit its column, and the table has no column for such values",
            table=f"{batch.relation.qualified_name}.{name}",
            remedy="Give rescued_data_column a name, or the column another type by type_overrides",
        )
