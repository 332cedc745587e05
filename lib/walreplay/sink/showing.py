"""The part of a decoded batch that its mirror table takes: the wanted columns, masked and renamed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import pyarrow as pa

from walreplay.decode.change_batch import METADATA_COLUMNS, ChangeBatch, field_names
from walreplay.decode.rescued import read_rescued, rescued_array
from walreplay.errors import CaptureError
from walreplay.protocol.messages import Relation
from walreplay.sink.masking import mask_batch
from walreplay.types.base import ColumnType


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
    """Give what the table takes of a batch.

    Raises:
        CaptureError: a value does not fit its column, and the table has no column for rescued texts.
    """
    batch = mask_batch(batch, shown.masked, salt)
    if batch.relation == shown.relation:
        result = batch
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


def _select(data: pa.RecordBatch, metadata: int, shown: Shown) -> pa.RecordBatch:
    columns = [*data.columns[:metadata], *(data.columns[metadata + number] for number in shown.columns)]
    names = [*data.schema.names[:metadata], *field_names(shown.relation)]
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
        name = next(name for row in read_rescued(rescued) for name in row)
        raise CaptureError(
            "a value does not fit its column, and the table has no column for such values",
            table=f"{batch.relation.qualified_name}.{name}",
            remedy="Give metadata_columns: rescued_data a name, or the column another type by type_overrides",
        )
