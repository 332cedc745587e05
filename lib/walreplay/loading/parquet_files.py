"""Files of Parquet: their columns are typed already, and have to be the table's, or to convert to them exactly."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pyarrow as pa
import pyarrow.parquet as pq

from walreplay.decode.change_batch import ChangeBatch
from walreplay.decode.copied import inserts_of
from walreplay.errors import CaptureError
from walreplay.protocol.messages import Relation
from walreplay.types.base import ColumnType

ENDING = ".parquet"

_ROWS = 1 << 16


def read_batches(
    content: bytes | memoryview | pa.Buffer,
    relation: Relation,
    types: Sequence[ColumnType],
    order: Sequence[int],
    lsn: int,
    path: str,
) -> Iterator[ChangeBatch]:
    """Give a file's rows as inserts, as of an LSN.

    Args:
        types: of the relation's columns.
        order: which of the file's columns each of them is.

    Raises:
        CaptureError: a column is of another type, and its values do not convert exactly.
    """
    try:
        file = pq.ParquetFile(pa.BufferReader(content))
        for batch in file.iter_batches(batch_size=_ROWS):
            columns = [
                _converted(batch.column(at), kind.arrow, f"{relation.qualified_name}.{column.name}", path)
                for at, kind, column in zip(order, types, relation.columns, strict=True)
            ]
            yield inserts_of(relation, columns, None, batch.num_rows, lsn)
    except (pa.ArrowInvalid, OSError):
        raise CaptureError("the file is damaged, or is no Parquet", path=path, remedy="Write it again") from None


def columns_of(content: bytes | memoryview | pa.Buffer, path: str) -> list[str]:
    """Give the names of a file's columns.

    Raises:
        CaptureError: it is no Parquet.
    """
    try:
        return list(pq.ParquetFile(pa.BufferReader(content)).schema_arrow.names)
    except (pa.ArrowInvalid, OSError):
        raise CaptureError("the file is damaged, or is no Parquet", path=path, remedy="Write it again") from None


def _converted(column: pa.Array, kind: pa.DataType, name: str, path: str) -> pa.Array:
    """Give a column as the table has it.

    Text stays text, and numbers numbers: what is written as text may be so in any form.
    """
    if column.type == kind:
        return column
    if pa.types.is_dictionary(column.type):
        return _converted(column.dictionary_decode(), kind, name, path)
    if _class_of(column.type) == _class_of(kind):
        try:
            return column.cast(kind, safe=True)
        except pa.ArrowInvalid:
            pass  # its message quotes a value
        except pa.ArrowNotImplementedError:
            pass
    raise CaptureError(
        f"the column is {column.type} in the file, which does not become {kind} exactly",
        path=path,
        table=name,
        remedy="Write it as that type, or copy the table by COPY",
    )


def _class_of(kind: pa.DataType) -> str:
    """Tell types apart between which no conversion is exact by itself."""
    if pa.types.is_integer(kind) or pa.types.is_decimal(kind):
        return "exact"
    if pa.types.is_floating(kind):
        return "floating"
    if pa.types.is_timestamp(kind):
        return "timestamp" if kind.tz is None else "timestamptz"
    if pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind):
        return "text"
    if pa.types.is_binary(kind) or pa.types.is_large_binary(kind) or pa.types.is_fixed_size_binary(kind):
        return "binary"
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        return f"list of {_class_of(kind.value_type)}"
    return str(kind)


__all__ = ["ENDING", "columns_of", "read_batches"]
