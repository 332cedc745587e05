"""Put rows together from events: each from its own, and the values that it leaves unchanged from others."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from walreplay.decode.rescued import read_rescued, rescued_array
from walreplay.sink.events import Events, Identity
from walreplay.sink.identity import contiguous, rescued_of
from walreplay.sink.rendering import filled

if TYPE_CHECKING:
    from numpy.typing import NDArray


def assembled(
    events: Events,
    content: NDArray[np.int32],
    source: NDArray[np.int32],
    live: NDArray[np.bool_],
    tracked: Sequence[int],
    names: Sequence[str],
) -> Events:
    """Take each row from its event, and its tracked columns from theirs.

    Args:
        content: the event that each row is taken from.
        source: rows x tracked columns: the event that the value is taken from; below 0: NULL.
        live: the rows whose values matter.
        tracked: the columns' numbers.
    """
    rows = events.take(content)
    for t, number in enumerate(tracked):
        at = source[:, t]
        if (at[live] != content[live]).any():
            rows.columns[number] = events.columns[number].take(pa.array(at, mask=at < 0))
    if tracked and events.rescued.null_count < events.rows:
        rows.rescued = _rescued(events, content, source, live, tracked, names)
    return rows


def _rescued(
    events: Events,
    content: NDArray[np.int32],
    source: NDArray[np.int32],
    live: NDArray[np.bool_],
    tracked: Sequence[int],
    names: Sequence[str],
) -> pa.Array:
    """Move rescued values along with the columns that they belong to."""
    valid = events.rescued.is_valid().to_numpy(zero_copy_only=False)
    # Rows that have no rescued values, and get none, are skipped.
    concerned = valid[content]
    for t in range(len(tracked)):
        concerned |= (source[:, t] >= 0) & valid[np.maximum(source[:, t], 0)]
    concerned &= live
    result = contiguous(events.rescued).take(pa.array(content))
    if not concerned.any():
        return result
    at = np.nonzero(concerned)[0]
    rows = read_rescued(result.take(pa.array(at)))
    for i, values in zip(at.tolist(), rows, strict=True):
        for t, number in enumerate(tracked):
            at_event, name = int(source[i, t]), names[number]
            if at_event == int(content[i]):
                continue
            values.pop(name, None)
            (other,) = read_rescued(events.rescued[at_event : at_event + 1]) if at_event >= 0 else ({},)
            if name in other:
                values[name] = other[name]
    return filled(result, at, rescued_array(rows))


def bases_of(
    events: Events,
    identity: Identity,
    names: Sequence[str],
    base: NDArray[np.int32],
    is_old: NDArray[np.bool_],
) -> list[pa.Array]:
    """Give the keys of bases, column by column, and their rescued texts.

    Args:
        base: the event that each key is taken from; below 0: NULL.
        is_old: the key is that event's old key.
    """
    index = pa.array(base, mask=base < 0)
    result = []
    for k, number in enumerate(identity.key):
        column = events.columns[number].take(index)
        if events.old_key is not None:
            column = choose(is_old, events.old_key[k].take(index), column)
        result.append(column)
    rescued = rescued_of(events.rescued.take(index), [names[number] for number in identity.key])
    if rescued is None:
        rescued = pa.nulls(len(index), pa.string())
    if events.old_rescued is not None:
        rescued = choose(is_old, events.old_rescued.take(index), rescued)
    return [*result, rescued]


def choose(mask: NDArray[np.bool_], yes: pa.Array, no: pa.Array) -> pa.Array:
    """Take each value from one of two columns."""
    return pc.if_else(pa.array(mask), contiguous(yes), contiguous(no))


def batch_of(arrays: Sequence[Any], schema: pa.Schema) -> pa.RecordBatch:
    """Make a batch of a schema's columns; types that the schema has in another width are cast."""
    columns = [contiguous(array) for array in arrays]
    columns = [
        array if array.type == field.type else array.cast(field.type)
        for array, field in zip(columns, schema, strict=True)
    ]
    return pa.RecordBatch.from_arrays(columns, schema=schema)
