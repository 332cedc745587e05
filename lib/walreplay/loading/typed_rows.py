"""Rows whose columns are Arrow's, from files of Parquet or from Spark: text is PostgreSQL's, other types the table's.

A column of strings holds what PostgreSQL writes of its type, and is read as a file of COPY is: what the table's column
cannot hold is rescued.  A column of another type has to be the table's, or to convert to it exactly.  Columns of
Parquet go by name.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from walreplay.decode.change_batch import ChangeBatch
from walreplay.decode.columns import canonical_texts
from walreplay.decode.gathered import Cells, CopiedRows, inserts_of
from walreplay.errors import CaptureError, NotSupported, ValueFormatError
from walreplay.loading.copy_files import MAX_ROW_BYTES, SLACK
from walreplay.loading.description import HOW_TO_DESCRIBE
from walreplay.protocol.messages import Relation
from walreplay.types.base import ColumnType
from walreplay.types.text import UTF8

if TYPE_CHECKING:
    from numpy.typing import NDArray


_MAX_BATCH_BYTES: Final = 1 << 30  # The cells of a batch lie in one array, in which places have 31 bits

_RESCUED: Final = "_rescued_data"  # as `rescued_data_column` is, where nobody has set it


@dataclass(frozen=True, slots=True)
class TypedRows:
    """How Arrow's rows become inserts of a relation version.

    Attributes:
        types: of the relation's columns.
        names: of types by oid, from Type messages.
        order: which of the batches' columns each of the relation's is.
        lsn: the commit LSN that all rows get.
        path: where the rows are from, for errors.
    """

    relation: Relation
    types: Sequence[ColumnType]
    names: Mapping[int, tuple[str, str]]
    order: Sequence[int]
    lsn: int
    path: str

    def inserts(self, batch: pa.RecordBatch) -> Iterator[ChangeBatch]:
        """Yield a batch's rows.

        Raises:
            CaptureError: a column is of another type, and its values do not convert exactly.
            NotSupported: a row is too large.
            ValueFormatError: a string is not in its type's form.
        """
        columns = [_plain(batch.column(number)) for number in self.order]
        size = sum(column.nbytes for column in columns)  # not the batch's, as a dictionary has once what many rows have
        if batch.num_rows > 1 and size > _MAX_BATCH_BYTES:
            half = batch.num_rows // 2
            yield from self.inserts(batch.slice(0, half))
            yield from self.inserts(batch.slice(half))
            return
        if size > MAX_ROW_BYTES:
            raise NotSupported("a row has more than 2 GiB", path=self.path)
        texts = {number: column for number, column in enumerate(columns) if pa.types.is_string(column.type)}
        text_columns = self._read(texts, batch.num_rows) if texts else None
        read, rescued = (columns, None) if text_columns is None else (text_columns.columns, text_columns.rescued)
        values = [
            read[number] if number in texts else _with_canonical(self._converted(column, number), self.types[number])
            for number, column in enumerate(columns)
        ]
        yield inserts_of(self.relation, values, rescued, batch.num_rows, self.lsn)

    def _read(self, texts: Mapping[int, pa.Array], rows: int) -> ChangeBatch:
        """Read columns of PostgreSQL's text; the others are NULL."""
        copied = CopiedRows(self.relation, self.types, self.names, UTF8, None, self.lsn)
        try:
            copied.take(_cells(texts, len(self.order), rows))
        except ValueFormatError as error:
            error.offset = None  # a place in an array of ours
            raise
        return copied.finish()

    def _converted(self, column: pa.Array, number: int) -> pa.Array:
        """Return a column as the table has it."""
        kind = self.types[number].arrow
        if column.type == kind:
            return column
        if _class_of(column.type) == _class_of(kind):
            try:
                converted = column.cast(kind, safe=True)
            except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
                pass  # its message quotes a value
            else:
                if not pa.types.is_floating(kind) or _is_same(column, converted):
                    return converted
        raise CaptureError(
            f"the column is {column.type} there, which does not become {kind} exactly",
            path=self.path,
            table=f"{self.relation.qualified_name}.{self.relation.columns[number].name}",
            remedy="Give it as that type, or as strings that hold PostgreSQL's text of the values",
        )


def order_of(relation: Relation, names: Sequence[str], path: str, *, by_captures: bool) -> list[int]:
    """Return which of some named columns each of the relation's columns is.

    Args:
        by_captures: the relation is as the captures know it; see `Description`.

    Raises:
        CaptureError: one is missing, or named twice; or there is one that the captures do not know; or the rows are
            those of a table that walreplay has made.
    """
    column_names = [column.name for column in relation.columns]
    if _RESCUED in names and _RESCUED not in column_names:
        # Its rescued values are NULL in their own columns, and a load would keep the NULLs.
        raise CaptureError(
            f"the rows have the column {_RESCUED}: a mirror's values that are rescued would be lost",
            path=path,
            table=relation.qualified_name,
            remedy=f"Copy the rows from the source; or, where {_RESCUED} is NULL in all rows, leave the column out",
        )
    unknown = [name for name in names if name not in column_names] if by_captures else []
    if unknown:
        # It may have been added behind the captures: its values would be lost.
        raise CaptureError(
            f"the column {unknown[0]} is not among the table's, as the captures know it",
            path=path,
            table=relation.qualified_name,
            remedy=f"If it is not published, leave it out of the rows; otherwise: {HOW_TO_DESCRIBE}",
        )
    missing = [name for name in column_names if name not in names]
    if missing or len(set(names)) != len(names):
        problem = f"the column {missing[0]} is missing" if missing else "a column is named twice"
        raise CaptureError(
            problem,
            path=path,
            table=relation.qualified_name,
            remedy="Give all columns of the table by their own names, as a file's header has them; if it is a "
            "generated column that is published, which pg_dump leaves out, copy the table by base.sh",
        )
    return [names.index(name) for name in column_names]


def _plain(column: pa.Array) -> pa.Array:
    """Return a column without a dictionary, and text in one form."""
    if pa.types.is_dictionary(column.type):
        column = column.dictionary_decode()
    if pa.types.is_large_string(column.type) or pa.types.is_string_view(column.type):
        column = column.cast(pa.string())
    return column


def _cells(texts: Mapping[int, pa.Array], width: int, rows: int) -> Cells:
    """Lay the cells of some columns out row by row; those of the others are NULL."""
    offset = np.zeros((rows, width), np.int32)
    length = np.full((rows, width), -1, np.int32)  # -1: NULL
    pieces: list[NDArray[np.uint8]] = []
    size = 0
    for number, column in texts.items():
        _, ends, data = column.buffers()
        if rows == 0 or ends is None:
            continue
        places = np.frombuffer(ends, np.int32)[column.offset : column.offset + rows + 1]
        first, last = int(places[0]), int(places[-1])  # a slice's texts begin within its buffer
        offset[:, number] = places[:-1] - first + size
        length[:, number] = np.diff(places)
        if column.null_count:
            length[column.is_null().to_numpy(zero_copy_only=False), number] = -1
        if last > first:
            pieces.append(np.frombuffer(data, np.uint8)[first:last])
            size += last - first
    buf = np.concatenate([*pieces, np.zeros(SLACK, np.uint8)])
    return Cells(buf, offset.reshape(-1), length.reshape(-1), rows, 0)


def _is_same(column: pa.Array, converted: pa.Array) -> bool:
    """Return whether floats of fewer bits are the same numbers; Arrow rounds them without a word."""
    back = converted.cast(column.type)
    differs = pc.and_(pc.not_equal(column, back), pc.invert(pc.and_(pc.is_nan(column), pc.is_nan(back))))
    return not pc.any(differs).as_py()


def _with_canonical(column: pa.Array, column_type: ColumnType) -> pa.Array:
    """Write the texts in lists as the builders do; see `walreplay.types.canonical`."""
    element, kind = column_type.element, column.type
    if element is None or not pa.types.is_list(kind) or not pa.types.is_string(kind.value_type):
        return column
    children = [canonical_texts(column.values, element.oid)]
    return pa.Array.from_buffers(kind, len(column), column.buffers()[:2], offset=column.offset, children=children)


def _class_of(kind: pa.DataType) -> str:
    """Return a type's class; between classes no conversion is exact by itself."""
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


ENDING = ".parquet"

_ROWS = 1 << 16
_UNREADABLE: Final = (pa.ArrowInvalid, pa.ArrowNotImplementedError, OSError, UnicodeDecodeError)


def read_batches(content: bytes | memoryview | pa.Buffer, rows: TypedRows) -> Iterator[ChangeBatch]:
    """Yield a file's rows as inserts.

    Raises:
        CaptureError: it is no Parquet, or a column does not fit (see `TypedRows.inserts`).
    """
    try:
        file = pq.ParquetFile(pa.BufferReader(content))
        for batch in file.iter_batches(batch_size=_ROWS):
            yield from rows.inserts(batch)
    except _UNREADABLE:
        raise CaptureError("the file is damaged, or is no Parquet", path=rows.path, remedy="Write it again") from None


def columns_of(content: bytes | memoryview | pa.Buffer, path: str) -> list[str]:
    """Return the names of a file's columns.

    Raises:
        CaptureError: it is no Parquet.
    """
    try:
        return list(pq.ParquetFile(pa.BufferReader(content)).schema_arrow.names)
    except _UNREADABLE:
        raise CaptureError("the file is damaged, or is no Parquet", path=path, remedy="Write it again") from None
