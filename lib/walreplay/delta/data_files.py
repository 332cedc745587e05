"""Write Parquet files of a Delta table, as Spark would, and the entry of each for Delta's log.

Columns have their physical names and field ids.  The log gets the file's size, rows and statistics (Delta's protocol,
"Per-file Statistics").
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from decimal import Decimal
from types import TracebackType
from typing import Any, Final

import pyarrow as pa
import pyarrow.parquet as pq
import pyspark

from walreplay.session.folders import Folder

_GROUP_ROWS: Final = 1 << 20
_GROUP_BYTES: Final = 32 << 20

_DICTIONARY_BYTES: Final = 1 << 16
"""A column with more distinct values than fit in a dictionary page of this size is written without one.

That takes a third less time, and no more space.
"""

_MOST_DIGITS: Final = 18  # a decimal with more digits is not stored as an integer in Parquet
_INDEXED: Final = 32  # columns, from the first on, that have statistics unless a table's property says otherwise
_LONGEST: Final = 32  # characters of a text that Delta's statistics keep
_HIGHEST: Final = "\U0010ffff"

_EPOCH: Final = datetime(1970, 1, 1)


@dataclass(frozen=True, slots=True)
class FileColumn:
    """A column of a table's files.

    Attributes:
        name: the column's name in the table.
        physical: its name in the files.
        type: its type in the files, with the files' names inside structs.
        field_id: its id in the files; None without column mapping.
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
        metadata = None if self.field_id is None else {b"PARQUET:field_id": b"%d" % self.field_id}
        return pa.field(self.physical, self.type, metadata=metadata)


@dataclass(frozen=True, slots=True)
class DataFile:
    """A file that was written and is not yet committed.

    Attributes:
        name: in the table's folder.
        size: in bytes.
        stats: its statistics for Delta's log, as JSON.
    """

    name: str
    size: int
    rows: int
    stats: str


class DataFileWriter:
    """Write one file of a table, with a unique name.

    As a context manager it discards the file if an error leaves the context.

    Args:
        folder: the table's; it is made if it does not exist.
        columns: all of the table's, in their order.
    """

    def __init__(self, folder: Folder, columns: Sequence[FileColumn]) -> None:
        self._folder = folder
        self._name = f"part-{uuid.uuid4()}.snappy.parquet"
        self._file: pa.NativeFile | None = None
        self._columns = columns
        self._schema = pa.schema([column.field for column in columns])
        self._metadata: list[pq.FileMetaData] = []
        self._writer: pq.ParquetWriter | None = None
        self._waiting: list[pa.RecordBatch] = []
        self._rows = self._bytes = 0

    def __enter__(self) -> DataFileWriter:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        if kind is None:
            return
        # Other errors are ignored, because they would hide the one that is the reason.
        with suppress(Exception):
            if self._writer is not None:
                self._writer.close()
        with suppress(Exception):
            if self._file is not None:
                self._file.close()
                self._folder.delete(self._name)

    def write(self, batch: pa.RecordBatch) -> None:
        """Write rows that have the table's columns, in their order."""
        if batch.num_rows == 0:
            return
        columns = [as_named(column, field.type) for column, field in zip(batch.columns, self._schema, strict=True)]
        self._waiting.append(pa.RecordBatch.from_arrays(columns, schema=self._schema))
        self._rows += batch.num_rows
        self._bytes += batch.nbytes
        if self._rows >= _GROUP_ROWS or self._bytes >= _GROUP_BYTES:
            self._flush()

    def close(self) -> DataFile | None:
        """Finish the file; None, and no file, if there were no rows."""
        self._flush()
        if self._writer is None or self._file is None:
            return None
        # It tells readers which calendar and time zone rules hold; since Spark 3.0 these are Arrow's own.
        self._writer.add_key_value_metadata({"org.apache.spark.version": pyspark.__version__})
        self._writer.close()
        size = self._file.tell()
        self._file.close()
        (metadata,) = self._metadata
        return DataFile(self._name, size, metadata.num_rows, _statistics(metadata, self._columns))

    def _flush(self) -> None:
        if not self._waiting:
            return
        if self._writer is None:
            self._folder.make()
            self._file = self._folder.create(self._name)
            self._writer = pq.ParquetWriter(
                self._file,
                self._schema,
                store_schema=False,
                store_decimal_as_integer=True,
                dictionary_pagesize_limit=_DICTIONARY_BYTES,
                # Arrow leaves NaN out of a float's statistics, and Spark would then skip files that have one.
                write_statistics=[column.physical for column in self._columns if not _has_floats(column.type)],
                metadata_collector=self._metadata,
            )
        self._writer.write_table(pa.Table.from_batches(self._waiting), row_group_size=_GROUP_ROWS)
        self._waiting = []
        self._rows = self._bytes = 0


def as_named(array: pa.Array, kind: pa.DataType) -> pa.Array:
    """Return an array as a type that differs from its own only in the names inside structs."""
    if array.type == kind:
        return array
    if not pa.types.is_nested(kind):
        return array.cast(kind)
    if array.offset:
        # Arrow cannot rebuild a list from a slice.
        array = pa.concat_arrays([array])
    nulls = array.is_null()
    if pa.types.is_list(kind):
        return pa.ListArray.from_arrays(array.offsets, as_named(array.values, kind.value_type), kind, mask=nulls)
    parts = [as_named(part, kind.field(number).type) for number, part in enumerate(array.flatten())]
    return pa.StructArray.from_arrays(parts, fields=list(kind), mask=nulls)


def indexed_count(properties: Mapping[str, str]) -> int:
    """Return the number of first columns of which a table with these properties keeps statistics; below 0: all."""
    return int(properties.get("delta.dataSkippingNumIndexedCols", _INDEXED))


def has_statistics(kind: pa.DataType) -> bool:
    """Return whether the log gets the least and greatest value of such a column; clustering by it needs them."""
    return not pa.types.is_floating(kind) and not (pa.types.is_decimal(kind) and kind.precision > _MOST_DIGITS)


def _leaves(kind: pa.DataType) -> int:
    """Count the Parquet columns that a column of this type has."""
    if pa.types.is_list(kind):
        return _leaves(kind.value_type)
    return sum(_leaves(field.type) for field in kind) if pa.types.is_struct(kind) else 1


def _has_floats(kind: pa.DataType) -> bool:
    if pa.types.is_nested(kind):
        return any(_has_floats(kind.field(number).type) for number in range(kind.num_fields))
    return bool(pa.types.is_floating(kind))


def _statistics(metadata: pq.FileMetaData, columns: Sequence[FileColumn]) -> str:
    """Return a file's statistics for the log, as JSON: rows, and per column least, greatest and number of NULLs."""
    lows, highs, nulls = [], [], []
    leaf = 0
    for column in columns:
        first_leaf, leaf = leaf, leaf + _leaves(column.type)  # Parquet numbers leaves, not columns
        if not column.indexed or pa.types.is_nested(column.type):
            continue
        parts = [metadata.row_group(group).column(first_leaf).statistics for group in range(metadata.num_row_groups)]
        if any(part is None or not part.has_null_count for part in parts):
            continue
        name = json.dumps(column.physical)
        nulls.append(f"{name}:{sum(part.null_count for part in parts)}")
        write_bound = _written(column.type)
        # A row group with nothing but NULLs has no least value.
        filled = [part for part in parts if part.num_values]
        if write_bound is None or not filled or not all(part.has_min_max for part in filled):
            continue
        try:
            low = write_bound(min(part.min_raw for part in filled), False)
            high = write_bound(max(part.max_raw for part in filled), True)
        except (OverflowError, UnicodeDecodeError):
            continue  # the log cannot express the greatest value
        if low is not None and high is not None:
            lows.append(f"{name}:{low}")
            highs.append(f"{name}:{high}")
    parts_of = {"minValues": lows, "maxValues": highs, "nullCount": nulls}
    sections = [f'"{name}":{{{",".join(values)}}}' for name, values in parts_of.items() if values]
    return "{" + ",".join([f'"numRecords":{metadata.num_rows}', *sections, '"tightBounds":true']) + "}"


def _written(kind: pa.DataType) -> Callable[[Any, bool], str | None] | None:
    """Return what writes a least (False) or greatest (True) value for the log; None if the type has none."""
    if pa.types.is_integer(kind):
        return lambda raw, _: str(raw)
    if pa.types.is_string(kind):
        return _text
    if pa.types.is_date(kind):
        return lambda raw, _: f'"{date(1970, 1, 1) + timedelta(days=raw)}"'
    if pa.types.is_timestamp(kind):
        zone = "" if kind.tz is None else "Z"
        # Truncated to milliseconds, because readers add one millisecond to the greatest value.
        return lambda raw, _: f'"{_moment(raw)}{zone}"'
    if pa.types.is_decimal(kind):
        return lambda raw, _: _decimal(raw, kind.scale)
    return None


def _moment(micros: int) -> str:
    return (_EPOCH + timedelta(milliseconds=micros // 1000)).isoformat(timespec="milliseconds")


def _decimal(raw: int | bytes, scale: int) -> str | None:
    if isinstance(raw, bytes):
        # Beyond 18 digits, Parquet's order of the bytes is not that of the numbers.
        return None
    return f"{Decimal(raw).scaleb(-scale):f}"


def _text(raw: bytes, greatest: bool) -> str | None:
    text = raw.decode()
    if len(text) > _LONGEST:
        if greatest and text[_LONGEST] == _HIGHEST:  # no character is above the next one
            return None
        text = text[:_LONGEST] + (_HIGHEST if greatest else "")  # a bound that is above all texts that begin so
    return json.dumps(text)
