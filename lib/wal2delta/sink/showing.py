"""What of a decoded batch its mirror table takes: the wanted columns, masked and renamed."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace

import pyarrow as pa

from wal2delta.decode.batches import METADATA_COLUMNS, ChangeBatch
from wal2delta.errors import CaptureError
from wal2delta.masking import mask_batch
from wal2delta.protocol.messages import Relation


@dataclass(frozen=True, slots=True)
class Shown:
    """How a relation version appears in its mirror table.

    Attributes:
        relation: the wanted columns alone, under the mirror's names.
        columns: their numbers in the version.
        masked: the numbers, in the version, of those that are replaced by hashes.
        rescues: the table has a column for what others cannot hold; else such values stop the run.
    """

    relation: Relation
    columns: tuple[int, ...]
    masked: tuple[int, ...] = ()
    rescues: bool = True


def show(batch: ChangeBatch, shown: Shown, salt: bytes) -> ChangeBatch:
    """Give what the table takes of a batch.

    Raises:
        CaptureError: a value does not fit its column, and the table has no column for such.
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
    names = [*data.schema.names[:metadata], *(column.name for column in shown.relation.columns)]
    return pa.RecordBatch.from_arrays(columns, names=names)


def _rename(rescued: pa.Array | None, names: Mapping[str, str]) -> pa.Array | None:
    if rescued is None:
        return None
    texts: list[str | None] = []
    for text in rescued.to_pylist():
        values = {} if text is None else json.loads(text)
        kept = {names[name]: value for name, value in values.items() if name in names}
        texts.append(json.dumps(kept, ensure_ascii=False) if kept else None)
    return pa.array(texts, pa.string())


def _refuse_rescued(batch: ChangeBatch) -> None:
    for rescued in (batch.rescued, batch.before_rescued):
        if rescued is None or rescued.null_count == len(rescued):
            continue
        name = next(iter(json.loads(next(text for text in rescued.to_pylist() if text is not None))))
        raise CaptureError(
            "a value does not fit its column, and the table has no column for such values",
            table=f"{batch.relation.qualified_name}.{name}",
            remedy="Give metadata_columns: rescued_data a name, or the column another type by type_overrides",
        )
