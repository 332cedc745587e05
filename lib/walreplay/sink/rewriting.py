"""Merge folded rows into a small table that is rewritten as a whole.

The result is the same as that of the MERGE in `walreplay.spark.writing.merge`, or `walreplay.spark.writing.multiset`
for rows without a key, in the plain case that most small tables are.  Everything else is left to that MERGE: then the
functions here return None.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from walreplay.sink.closing import with_versions
from walreplay.sink.data_files import as_named
from walreplay.sink.identity import contiguous
from walreplay.sink.small_table import (
    MOST_BYTES,
    Before,
    Images,
    Keys,
    Rewritten,
    are_distinct,
    flags,
    has_texts,
    in_ranges,
    joined,
    matches_of,
    missing_of,
    read_rows,
    runs_of,
)

if TYPE_CHECKING:
    from numpy.typing import NDArray


def rewrite(before: Before, folded: Sequence[pa.RecordBatch]) -> Rewritten | None:
    """Merge folded rows into the rows of a table; None if the table has to be merged by Spark.

    Args:
        folded: rows to merge (`walreplay.sink.merge.merge_schema`), each key or image once.
    """
    try:
        read = read_rows(before)
        if read is None:
            return None
        old, lengths = read
        rows = pa.Table.from_batches(folded).combine_chunks()
        new = [
            as_named(contiguous(rows.column(source)), column.type)
            for source, column in zip(before.sources, before.columns, strict=True)
        ]
        match before.rows:
            case Keys() as keys:
                return _with_keys(before, keys, old, new, rows)
            case Images() as images:
                return _with_copies(before, images, old, new, rows)
            case versions:
                return with_versions(before, versions, (old, new), rows, lengths)
    except (OSError, pa.ArrowException):
        return None


def _with_keys(
    before: Before, keys: Keys, old: Sequence[pa.Array], new: Sequence[pa.Array], rows: pa.Table
) -> Rewritten | None:
    matches = _bases(keys, old, new, rows)
    if matches is None:
        return None
    deleted, matched = flags(rows, "deleted"), matches >= 0
    updated = np.nonzero(matched & ~deleted)[0]
    if keys.claims and (flags(rows, "claimed") & matched).any():
        return None
    gone = matches[matched & deleted]
    is_new = ~matched & ~deleted
    if keys.marks_deleted is not None:
        # A soft delete of a row that the table does not have inserts nothing.  NULL counts as true here, as in SQL.
        marked = flags(rows, before.sources[keys.marks_deleted], unknown=True)
        is_new &= ~(marked & flags(rows, "expected"))
    inserted = np.nonzero(is_new)[0]
    if keys.tracked and before.rescued is not None:
        # Rescued texts stay with their columns.
        texts = old[before.rescued].take(pa.array(matches[updated]))
        if texts.null_count < len(updated):
            return None
    count = len(old[0])
    # The source of each row: its position among the table's rows followed by the folded ones.
    at = np.arange(count)
    at[matches[updated]] = count + updated
    at = np.concatenate([np.delete(at, gone), count + inserted])
    places = [at] * len(old)
    of_update = np.nonzero(at >= count)[0][: len(updated)]
    for number in keys.tracked:
        rows_of = at[of_update] - count
        stays = flags(rows, f"k{number}")[rows_of]
        if stays.any():
            places[number] = at.copy()
            places[number][of_update[stays]] = matches[rows_of[stays]]
    counts = {
        "updated": len(updated),
        "deleted": len(gone),
        "inserted": len(inserted),
        "copied": count - len(updated) - len(gone),
    }
    missing = missing_of(flags(rows, "expected") & ~matched, deleted)
    return Rewritten(joined(old, new), tuple(places), counts, missing, tuple(range(len(before.files))))


def _with_copies(
    before: Before, images: Images, old: Sequence[pa.Array], new: Sequence[pa.Array], rows: pa.Table
) -> Rewritten | None:
    """Apply the net count of each image: see `walreplay.spark.writing.multiset.merge_multiset`."""
    if before.rescued is not None and (has_texts(old[before.rescued]) or has_texts(new[before.rescued])):
        # Rescued texts are compared without those of dropped columns, in whatever order they are.
        return None
    count = len(old[0])
    net, needed = (contiguous(rows.column(name)).to_numpy() for name in ("net", "needed"))
    stored, wanted = ([part[number] for number in images.columns] for part in (old, new))
    age = None if images.lsn is None else -pc.fill_null(old[images.lsn], 0).to_numpy()
    looked_up = runs_of(stored, wanted, (count, len(net)), age)
    if looked_up is None:
        return None
    order, first, there = looked_up
    there = np.where(needed > 0, there, 0)
    if len(np.unique(first[there > 0])) < np.count_nonzero(there):
        return None
    missing = np.maximum(needed - there, 0)
    if missing.any() and images.has_younger:
        return None
    removed, added = np.minimum(there, needed), net + needed
    if int(added.sum()) * max(1, max((_longest(part) for part in new), default=1)) > MOST_BYTES:
        return None
    gone = order[in_ranges(first, removed)]
    at = np.concatenate([np.delete(np.arange(count), gone), count + np.repeat(np.arange(len(net)), added)])
    counts = {"updated": 0, "deleted": len(gone), "inserted": int(added.sum()), "copied": count - len(gone)}
    lost = {"without_base": 0, "deletes_without_row": int(missing.sum())}
    return Rewritten(joined(old, new), (at,) * len(old), counts, lost, tuple(range(len(before.files))))


def _longest(column: pa.Array) -> int:
    """Give the bytes of a column's longest text; 0 for other types, whose values are short."""
    if not (pa.types.is_string(column.type) or pa.types.is_binary(column.type)):
        return 0
    return pc.max(pc.binary_length(column)).as_py() or 0


def _bases(keys: Keys, old: Sequence[pa.Array], new: Sequence[pa.Array], rows: pa.Table) -> NDArray[np.int64] | None:
    """Give for each folded row the number of the table's row that it changes, -1 for none; None as `matches_of`."""
    wanted, has_base = [new[number] for number in keys.columns], np.ones(rows.num_rows, np.bool_)
    if keys.moved:
        has_base = flags(rows, "matches")
        wanted = keys.bases(rows.filter(pa.array(has_base)), old)
    count = int(np.count_nonzero(has_base))
    there = [old[number] for number in keys.columns]
    found = matches_of(keys.compared(there), keys.compared(wanted), (len(old[0]), count), with_null=keys.with_null)
    if found is None or not are_distinct(found):
        return None
    matches = np.full(rows.num_rows, -1)
    matches[has_base] = found
    return matches
