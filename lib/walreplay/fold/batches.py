"""Arrow columns and batches of the fold: with the types of a schema, and as streams that travel between tasks."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

if TYPE_CHECKING:
    from numpy.typing import NDArray


_WIDE: Final = {pa.string(): pa.large_string(), pa.binary(): pa.large_binary()}
_NARROW: Final = {wide: kind for kind, wide in _WIDE.items()}

_LITTLE: Final = 8 << 10
"""Bytes that are written sooner than their compression has begun: LZ4 takes 20 µs a column for that."""

OUTPUT_ROWS: Final = 1 << 16  # in one batch
MOST_BYTES: Final = 2**31 - 1  # of a column of strings; a longer one has large offsets


def contiguous(array: Any) -> pa.Array:
    """Return a column, of Arrow or of numpy, as one array of Arrow."""
    if isinstance(array, np.ndarray):
        return pa.array(array)
    if isinstance(array, pa.ChunkedArray):
        return array.combine_chunks() if array.num_chunks != 1 else array.chunk(0)  # no copy of a single chunk
    return array


def narrow(kind: pa.DataType) -> pa.DataType:
    """Return a column's own type, whether it has large offsets or not."""
    return _NARROW.get(kind, kind)


def join_arrays(arrays: Sequence[Any]) -> pa.Array:
    """Put columns of one type, with large offsets or not, one behind the other."""
    arrays = [contiguous(array) for array in arrays]
    kind = narrow(arrays[0].type)
    if kind in _WIDE and (  # offsets of 32 bits hold 2 GiB; Arrow raises behind that
        any(array.type != kind for array in arrays) or sum(array.nbytes for array in arrays) > MOST_BYTES
    ):
        arrays = [array.cast(_WIDE[kind]) for array in arrays]
    return pa.concat_arrays(arrays)


def choose(mask: NDArray[np.bool_], yes: pa.Array, no: pa.Array) -> pa.Array:
    """Take each value from one of two columns."""
    return pc.if_else(pa.array(mask), contiguous(yes), contiguous(no))


def numbered(letter: str, columns: Iterable[Any]) -> dict[str, Any]:
    """Return columns by a letter and their numbers: names of the source's may be anything."""
    return {f"{letter}{number}": column for number, column in enumerate(columns)}


def is_value(name: str) -> bool:
    """Return whether a column has values of the table: ``c0`` …, or ``b0`` … of a base's key."""
    return name[0] in "bc" and name[1:].isdigit()


def fitted(arrays: Iterable[Any], fields: Iterable[pa.Field]) -> list[pa.Array]:
    """Return columns as single arrays of the fields' types; some have another width."""
    columns = [(contiguous(array), field.type) for array, field in zip(arrays, fields, strict=True)]
    return [array if array.type == kind else array.cast(kind) for array, kind in columns]


def batch_of(columns: Mapping[str, Any], schema: pa.Schema) -> pa.RecordBatch:
    """Make a batch of a schema's columns.  Of those that are not given, marks are false, and all others NULL."""
    rows = len(next(iter(columns.values())))
    arrays = []
    for name, kind in zip(schema.names, schema.types, strict=True):
        array = columns.get(name)
        if array is None and pa.types.is_boolean(kind) and not is_value(name):
            array = np.zeros(rows, np.bool_)
        arrays.append(pa.nulls(rows, kind) if array is None else array)
    return pa.RecordBatch.from_arrays(fitted(arrays, schema), schema=schema)


def output_parts(rows: NDArray[np.intp]) -> Iterator[NDArray[np.intp]]:
    """Divide the numbers of rows, so that not all rows are made at a time."""
    for start in range(0, len(rows), OUTPUT_ROWS):
        yield rows[start : start + OUTPUT_ROWS]


def named(columns: Mapping[str, Any]) -> pa.RecordBatch:
    """Make a batch of columns by their names."""
    return pa.RecordBatch.from_arrays([contiguous(column) for column in columns.values()], names=list(columns))


def batch_to_ipc(*batches: pa.RecordBatch) -> pa.Buffer:
    """Write each batch as an Arrow IPC stream, one behind the other; they are compressed unless they are small."""
    sink = pa.BufferOutputStream()
    for batch in batches:
        options = pa.ipc.IpcWriteOptions(compression="lz4" if batch.nbytes > _LITTLE else None)
        with pa.ipc.new_stream(sink, batch.schema, options=options) as writer:
            writer.write_batch(batch)
    return sink.getvalue()


def batches_from_ipc(data: pa.Buffer | bytes) -> list[pa.RecordBatch]:
    """Read what `batch_to_ipc` wrote."""
    source, batches = pa.BufferReader(data), []
    while source.tell() < source.size():
        with pa.ipc.open_stream(source) as reader:
            batches += list(reader)
    return batches


def batch_from_ipc(data: pa.Buffer | bytes) -> pa.RecordBatch:
    """Read the one batch that `batch_to_ipc` wrote."""
    with pa.ipc.open_stream(data) as reader:
        return reader.read_next_batch()
