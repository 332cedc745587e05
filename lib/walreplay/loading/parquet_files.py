"""Files of Parquet: their columns go by name, and their rows are `walreplay.loading.typed_rows`."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa
import pyarrow.parquet as pq

from walreplay.decode.change_batch import ChangeBatch
from walreplay.errors import CaptureError
from walreplay.loading.typed_rows import TypedRows

ENDING = ".parquet"

_ROWS = 1 << 16


def read_batches(content: bytes | memoryview | pa.Buffer, rows: TypedRows) -> Iterator[ChangeBatch]:
    """Give a file's rows as inserts.

    Raises:
        CaptureError: it is no Parquet, or a column does not fit (see `TypedRows.inserts`).
    """
    try:
        file = pq.ParquetFile(pa.BufferReader(content))
        for batch in file.iter_batches(batch_size=_ROWS):
            yield from rows.inserts(batch)
    except (pa.ArrowInvalid, OSError):
        raise CaptureError("the file is damaged, or is no Parquet", path=rows.path, remedy="Write it again") from None


def columns_of(content: bytes | memoryview | pa.Buffer, path: str) -> list[str]:
    """Give the names of a file's columns.

    Raises:
        CaptureError: it is no Parquet.
    """
    try:
        return list(pq.ParquetFile(pa.BufferReader(content)).schema_arrow.names)
    except (pa.ArrowInvalid, OSError):
        raise CaptureError("the file is damaged, or is no Parquet", path=path, remedy="Write it again") from None


__all__ = ["ENDING", "columns_of", "read_batches"]
