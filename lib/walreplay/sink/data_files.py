"""Write Parquet files of a Delta table, as Spark would, and the entry of each for Delta's log.

Columns have their physical names and field ids.  The log gets the file's size, rows and statistics (Delta's protocol,
"Per-file Statistics").
"""

from __future__ import annotations

import json
import os
import uuid
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from types import TracebackType
from typing import Any, Final

import pyarrow as pa
import pyarrow.parquet as pq

_GROUP_ROWS: Final = 1 << 20
_GROUP_BYTES: Final = 32 << 20

_DICTIONARY_BYTES: Final = 1 << 16
"""What has more different values than fit is written as it is: that takes a third less time, and no more room."""

_MOST_DIGITS: Final = 18
"""Decimals of more digits are no integers in Parquet."""

_INDEXED: Final = 32
"""Of so many columns Delta keeps statistics, if a table does not say otherwise."""

_LONGEST: Final = 32
"""Delta keeps this many characters of a text."""
_HIGHEST: Final = "\U0010ffff"

_EPOCH: Final = datetime(1970, 1, 1)


@dataclass(frozen=True, slots=True)
class FileColumn:
    """A column of a table's files.

    Attributes:
        name: the table's name for it; ``physical`` and ``field_id`` are those in the files.
        type: as in the files, with their names inside structs.
        indexed: the log gets statistics of the column.
    """

    name: str
    physical: str
    type: pa.DataType
    field_id: int | None = None
    indexed: bool = True

    @property
    def field(self) -> pa.Field:
        """The column as Parquet has it."""
        more = None if self.field_id is None else {b"PARQUET:field_id": b"%d" % self.field_id}
        return pa.field(self.physical, self.type, metadata=more)


@dataclass(frozen=True, slots=True)
class DataFile:
    """A file that is written, and not yet committed.

    Attributes:
        name: in the table's folder.
        size: bytes.
        stats: JSON.
    """

    name: str
    size: int
    rows: int
    stats: str


class DataFileWriter:
    """Write one file of a table, with a unique name; used as a context, it discards a file that is not closed.

    Args:
        folder: the table's; it is created if it does not exist.
        written_by: the version of Spark whose calendar and time zone rules hold, which are Arrow's own since 3.0.
    """

    def __init__(self, folder: str | os.PathLike[str], columns: Sequence[FileColumn], *, written_by: str) -> None:
        self._path = Path(folder, f"part-{uuid.uuid4()}.snappy.parquet")
        self._columns = columns
        self._schema = pa.schema([column.field for column in columns])
        self._written_by = written_by
        self._found: list[pq.FileMetaData] = []
        self._writer: pq.ParquetWriter | None = None
        self._waiting: list[pa.RecordBatch] = []
        self._rows = self._bytes = 0

    def __enter__(self) -> DataFileWriter:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        if kind is not None:
            self.abandon()

    def write(self, batch: pa.RecordBatch) -> None:
        """Write rows, whose columns are the table's in their order."""
        if batch.num_rows == 0:
            return
        columns = [as_named(column, field.type) for column, field in zip(batch.columns, self._schema, strict=True)]
        self._waiting.append(pa.RecordBatch.from_arrays(columns, schema=self._schema))
        self._rows += batch.num_rows
        self._bytes += batch.nbytes
        if self._rows >= _GROUP_ROWS or self._bytes >= _GROUP_BYTES:
            self._flush()

    def close(self) -> DataFile | None:
        """Finish the file; None if it would have no rows."""
        self._flush()
        if self._writer is None:
            return None
        self._writer.add_key_value_metadata({"org.apache.spark.version": self._written_by})
        self._writer.close()
        (found,) = self._found
        return DataFile(self._path.name, self._path.stat().st_size, found.num_rows, _statistics(found, self._columns))

    def abandon(self) -> None:
        """Discard the file; an error of this must not hide the error that was the reason."""
        with suppress(Exception):
            if self._writer is not None:
                self._writer.close()
        with suppress(OSError):
            self._path.unlink(missing_ok=True)

    def _flush(self) -> None:
        if not self._waiting:
            return
        if self._writer is None:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            self._writer = pq.ParquetWriter(
                self._path,
                self._schema,
                store_schema=False,
                store_decimal_as_integer=True,
                dictionary_pagesize_limit=_DICTIONARY_BYTES,
                # Arrow leaves NaN out of a float's statistics, and Spark would then skip files that have one.
                write_statistics=[column.physical for column in self._columns if not _has_floats(column.type)],
                metadata_collector=self._found,
            )
        self._writer.write_table(pa.Table.from_batches(self._waiting), row_group_size=_GROUP_ROWS)
        self._waiting = []
        self._rows = self._bytes = 0


def as_named(array: pa.Array, kind: pa.DataType) -> pa.Array:
    """Give an array of another type, whose structs have other names."""
    if array.type == kind:
        return array
    if not pa.types.is_nested(kind):
        return array.cast(kind)
    if array.offset:
        # Of a slice Arrow makes no list again.
        array = pa.concat_arrays([array])
    nulls = array.is_null()
    if pa.types.is_list(kind):
        return pa.ListArray.from_arrays(array.offsets, as_named(array.values, kind.value_type), kind, mask=nulls)
    parts = [as_named(part, kind.field(number).type) for number, part in enumerate(array.flatten())]
    return pa.StructArray.from_arrays(parts, fields=list(kind), mask=nulls)


def indexed_count(properties: Mapping[str, str]) -> int:
    """Say of how many columns, the first ones, a table with some properties keeps statistics; below 0: of all."""
    return int(properties.get("delta.dataSkippingNumIndexedCols", _INDEXED))


def has_statistics(kind: pa.DataType) -> bool:
    """Say whether the log gets a column's least and greatest value, which clustering by it needs."""
    return not pa.types.is_floating(kind) and not (pa.types.is_decimal(kind) and kind.precision > _MOST_DIGITS)


def _leaves(kind: pa.DataType) -> int:
    """Count the Parquet columns of a column of some type."""
    if pa.types.is_list(kind):
        return _leaves(kind.value_type)
    return sum(_leaves(field.type) for field in kind) if pa.types.is_struct(kind) else 1


def _has_floats(kind: pa.DataType) -> bool:
    if pa.types.is_nested(kind):
        return any(_has_floats(kind.field(number).type) for number in range(kind.num_fields))
    return bool(pa.types.is_floating(kind))


def _statistics(found: pq.FileMetaData, columns: Sequence[FileColumn]) -> str:
    """Give a file's statistics for the log, as JSON: rows, and per column least, greatest and number of NULLs."""
    lows, highs, nulls = [], [], []
    leaf = 0
    for column in columns:
        at, leaf = leaf, leaf + _leaves(column.type)
        if not column.indexed or pa.types.is_nested(column.type):
            continue
        parts = [found.row_group(group).column(at).statistics for group in range(found.num_row_groups)]
        if any(part is None or not part.has_null_count for part in parts):
            continue
        name = json.dumps(column.physical)
        nulls.append(f"{name}:{sum(part.null_count for part in parts)}")
        written = _written(column.type)
        # A group that holds NULLs alone has no least value.
        filled = [part for part in parts if part.num_values]
        if written is None or not filled or not all(part.has_min_max for part in filled):
            continue
        try:
            low = written(min(part.min_raw for part in filled), False)
            high = written(max(part.max_raw for part in filled), True)
        except (OverflowError, UnicodeDecodeError):
            continue  # beyond what the log can say
        if low is not None and high is not None:
            lows.append(f"{name}:{low}")
            highs.append(f"{name}:{high}")
    parts_of = {"minValues": lows, "maxValues": highs, "nullCount": nulls}
    told = [f'"{name}":{{{",".join(values)}}}' for name, values in parts_of.items() if values]
    return "{" + ",".join([f'"numRecords":{found.num_rows}', *told, '"tightBounds":true']) + "}"


def _written(kind: pa.DataType) -> Callable[[Any, bool], str | None] | None:
    """Say how Delta's log writes a least or greatest (True) value of a type; None for types without statistics."""
    if pa.types.is_integer(kind):
        return lambda raw, _: str(raw)
    if pa.types.is_string(kind):
        return _text
    if pa.types.is_date(kind):
        return lambda raw, _: f'"{date(1970, 1, 1) + timedelta(days=raw)}"'
    if pa.types.is_timestamp(kind):
        zone = "" if kind.tz is None else "Z"
        # Truncated to milliseconds: readers add one to the greatest.
        return lambda raw, _: f'"{_moment(raw)}{zone}"'
    if pa.types.is_decimal(kind):
        return lambda raw, _: _decimal(raw, kind.scale)
    return None


def _moment(micros: int) -> str:
    return (_EPOCH + timedelta(milliseconds=micros // 1000)).isoformat(timespec="milliseconds")


def _decimal(raw: int | bytes, scale: int) -> str | None:
    if isinstance(raw, bytes):
        # Beyond 18 digits; Parquet orders these by their numbers only once they are read.
        return None
    return f"{Decimal(raw).scaleb(-scale):f}"


def _text(raw: bytes, greatest: bool) -> str | None:
    text = raw.decode()
    if len(text) > _LONGEST:
        if greatest and text[_LONGEST] == _HIGHEST:
            return None
        text = text[:_LONGEST] + (_HIGHEST if greatest else "")
    return json.dumps(text)
