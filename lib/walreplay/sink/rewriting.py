"""Merge folded rows into a small table that is rewritten as a whole.

The result is the same as that of the MERGE in `walreplay.spark.writing.merge`, or `walreplay.spark.writing.multiset`
for rows without a key, in the plain case that most small tables are.  Everything else is left to that MERGE: then the
functions here return None.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from walreplay.sink.by_value import by_value
from walreplay.sink.data_files import FileColumn, as_named
from walreplay.sink.identity import contiguous, hash_rows
from walreplay.types.by_value import Form

if TYPE_CHECKING:
    from numpy.typing import NDArray

MOST_BYTES: Final = 64 << 20
"""The limit in memory for a table, and for the rows that are merged into it.  For a while there are three copies."""

_ROWS_READ: Final = 1 << 10
_OUTPUT_ROWS: Final = 1 << 16

_OTHER_TEXTS: Final = (pa.large_string(), pa.string_view())
_OTHER_BYTES: Final = (pa.large_binary(), pa.binary_view())

_OLD_CALENDAR: Final = (b"org.apache.spark.legacyDateTime", b"org.apache.spark.legacyINT96")
"""Keys in the metadata of a file whose dates follow another calendar."""


@dataclass(frozen=True, slots=True)
class Keys:
    """How folded rows with a key match the table's.

    Attributes:
        columns: the numbers of the key's columns.
        tracked: the numbers of the columns that some rows leave unchanged.
        marks_deleted: the number of the column that marks deleted rows; None if deletes are not soft.
        claims: a MERGE would refuse a new row whose key is already in the table.
        forms: the forms of key columns that are compared by value, by their positions in ``columns``.
        moved: rows have the key that they had before the run in ``b0`` …, and say by ``matches`` whether they had one.
        with_null: NULL equals NULL, as it does in a key that was configured.
    """

    columns: tuple[int, ...]
    tracked: tuple[int, ...] = ()
    marks_deleted: int | None = None
    claims: bool = False
    forms: tuple[tuple[int, Form], ...] = ()
    moved: bool = False
    with_null: bool = False


@dataclass(frozen=True, slots=True)
class Images:
    """How folded rows without a key match the table's.

    Attributes:
        columns: the numbers of the columns that tell rows apart.
        has_younger: the table has rows that are older than some of these columns.  A delete of such a row may find it
            by its other columns alone.
    """

    columns: tuple[int, ...]
    has_younger: bool = False


@dataclass(frozen=True, slots=True)
class Before:
    """A table before the merge, and how folded rows match it.

    Attributes:
        paths: the table's files.
        columns: the table's columns.
        sources: for each of them, the name of the folded rows' column with its values.
        rescued: the number of the column with rescued texts; None if the table has none.
        rows: what tells rows apart.
    """

    paths: tuple[Path, ...]
    columns: tuple[FileColumn, ...]
    sources: tuple[str, ...]
    rescued: int | None
    rows: Keys | Images


@dataclass(frozen=True, slots=True)
class Rewritten:
    """A table's rows after the merge, and the counts.

    Attributes:
        columns: for each column of the table, its old values followed by those of the folded rows.
        places: for each column, the positions of the final rows' values in it.
        counts: the numbers of rows ``updated``, ``deleted``, ``inserted`` and ``copied``.
        missing: the numbers of changes that should have found a row and did not: ``without_base`` (updates),
            ``deletes_without_row``.
    """

    columns: tuple[pa.Array, ...]
    places: tuple[NDArray[np.int64], ...]
    counts: Mapping[str, int]
    missing: Mapping[str, int]

    @property
    def changes(self) -> bool:
        """Whether any row differs from before."""
        return any(count for name, count in self.counts.items() if name != "copied")

    def batches(self) -> Iterator[pa.RecordBatch]:
        """Give the rows, some at a time."""
        names = [str(number) for number in range(len(self.columns))]
        for start in range(0, len(self.places[0]), _OUTPUT_ROWS):
            part = slice(start, start + _OUTPUT_ROWS)
            arrays = [column.take(pa.array(at[part])) for column, at in zip(self.columns, self.places, strict=True)]
            yield pa.RecordBatch.from_arrays(arrays, names=names)


def key_is_plain(kind: pa.DataType) -> bool:
    """Say whether values of a type are equal exactly if their bytes are."""
    tests = (pa.types.is_integer, pa.types.is_boolean, pa.types.is_string, pa.types.is_binary, pa.types.is_date)
    return any(test(kind) for test in (*tests, pa.types.is_timestamp, pa.types.is_decimal))


def rewrite(before: Before, folded: Sequence[pa.RecordBatch]) -> Rewritten | None:
    """Merge folded rows into the rows of a table; None if the table has to be merged by Spark.

    Args:
        folded: rows to merge (`walreplay.sink.merge.merge_schema`), each key or image once.
    """
    try:
        old = _read(before)
        if old is None:
            return None
        rows = pa.Table.from_batches(folded).combine_chunks()
        new = [
            as_named(contiguous(rows.column(source)), column.type)
            for source, column in zip(before.sources, before.columns, strict=True)
        ]
        how = before.rows
        return (
            _with_keys(before, how, old, new, rows)
            if isinstance(how, Keys)
            else _with_copies(before, how, old, new, rows)
        )
    except (OSError, pa.ArrowException):
        return None


def _with_keys(
    before: Before, keys: Keys, old: Sequence[pa.Array], new: Sequence[pa.Array], rows: pa.Table
) -> Rewritten | None:
    matches = _bases(keys, old, new, rows)
    if matches is None:
        return None
    deleted, matched = _flags(rows, "deleted"), matches >= 0
    updated = np.nonzero(matched & ~deleted)[0]
    if keys.claims and (_flags(rows, "claimed") & matched).any():
        return None
    gone = matches[matched & deleted]
    is_new = ~matched & ~deleted
    if keys.marks_deleted is not None:
        # A soft delete of a row that the table does not have inserts nothing.  NULL counts as true here, as in SQL.
        marked = _flags(rows, before.sources[keys.marks_deleted], unknown=True)
        is_new &= ~(marked & _flags(rows, "expected"))
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
        stays = _flags(rows, f"k{number}")[rows_of]
        if stays.any():
            places[number] = at.copy()
            places[number][of_update[stays]] = matches[rows_of[stays]]
    counts = {
        "updated": len(updated),
        "deleted": len(gone),
        "inserted": len(inserted),
        "copied": count - len(updated) - len(gone),
    }
    lost = _flags(rows, "expected") & ~matched
    missing = {
        "without_base": int(np.count_nonzero(lost & ~deleted)),
        "deletes_without_row": int(np.count_nonzero(lost & deleted)),
    }
    return Rewritten(_joined(old, new), tuple(places), counts, missing)


def _with_copies(
    before: Before, images: Images, old: Sequence[pa.Array], new: Sequence[pa.Array], rows: pa.Table
) -> Rewritten | None:
    """Apply the net count of each image: see `walreplay.spark.writing.multiset.merge_multiset`."""
    if before.rescued is not None and any(
        len(part) > part.null_count for part in (old[before.rescued], new[before.rescued])
    ):
        # Rescued texts are compared without those of dropped columns, in whatever order they are.
        return None
    count = len(old[0])
    net, needed = (contiguous(rows.column(name)).to_numpy() for name in ("net", "needed"))
    stored, wanted = ([part[number] for number in images.columns] for part in (old, new))
    looked_up = _runs_of(stored, wanted, (count, len(net)))
    if looked_up is None:
        return None
    order, first, there = looked_up
    there = np.where(needed > 0, there, 0)
    if len(np.unique(first[there > 0])) < np.count_nonzero(there):
        return None
    missing = np.maximum(needed - there, 0)
    if missing.any() and images.has_younger:
        return None
    stay = np.maximum(there, needed) + net
    removed, added = np.maximum(there - stay, 0), np.maximum(stay - there, 0)
    if int(added.sum()) * max(1, max((_longest(part) for part in new), default=1)) > MOST_BYTES:
        return None
    gone = order[_within(first, removed)]
    at = np.concatenate([np.delete(np.arange(count), gone), count + np.repeat(np.arange(len(net)), added)])
    counts = {"updated": 0, "deleted": len(gone), "inserted": int(added.sum()), "copied": count - len(gone)}
    lost = {"without_base": 0, "deletes_without_row": int(missing.sum())}
    return Rewritten(_joined(old, new), (at,) * len(old), counts, lost)


def _joined(old: Sequence[pa.Array], new: Sequence[pa.Array]) -> tuple[pa.Array, ...]:
    return tuple(pa.concat_arrays([one, other]) for one, other in zip(old, new, strict=True))


def _longest(column: pa.Array) -> int:
    """Give the bytes of a column's longest text; 0 for other types, whose values are short."""
    if not (pa.types.is_string(column.type) or pa.types.is_binary(column.type)):
        return 0
    return pc.max(pc.binary_length(column)).as_py() or 0


def _within(first: NDArray[np.int64], counts: NDArray[np.int64]) -> NDArray[np.int64]:
    """Give the positions of several ranges, which begin at ``first`` and have ``counts`` positions each."""
    ends = np.cumsum(counts)
    total = int(ends[-1]) if len(ends) else 0
    return np.repeat(first - (ends - counts), counts) + np.arange(total)


def _bases(keys: Keys, old: Sequence[pa.Array], new: Sequence[pa.Array], rows: pa.Table) -> NDArray[np.int64] | None:
    """Give for each folded row the number of the table's row that it changes, -1 for none; see `_matches`."""
    forms = dict(keys.forms)
    there = [by_value(old[number], forms.get(place)) for place, number in enumerate(keys.columns)]
    if not keys.moved:
        wanted = [by_value(new[number], forms.get(place)) for place, number in enumerate(keys.columns)]
        return _matches(there, wanted, with_null=keys.with_null)
    has_base = _flags(rows, "matches")
    bases = rows.filter(pa.array(has_base))
    wanted = [
        by_value(as_named(contiguous(bases.column(f"b{place}")), old[number].type), forms.get(place))
        for place, number in enumerate(keys.columns)
    ]
    found = _matches(there, wanted, with_null=keys.with_null)
    if found is None:
        return None
    matches = np.full(rows.num_rows, -1)
    matches[has_base] = found
    return matches


def _flags(rows: pa.Table, name: str, *, unknown: bool = False) -> NDArray[np.bool_]:
    column = contiguous(rows.column(name))
    return np.asarray(column.fill_null(unknown).to_numpy(zero_copy_only=False), np.bool_)


def _matches(old: Sequence[pa.Array], new: Sequence[pa.Array], *, with_null: bool = False) -> NDArray[np.int64] | None:
    """Give for each new key the number of the equal old one, -1 for none; None if Spark has to match them."""
    if not with_null and any(column.null_count for column in (*old, *new)):
        # In SQL, NULL does not equal NULL.
        return None
    looked_up = _runs_of(old, new, (len(old[0]), len(new[0])))
    if looked_up is None:
        return None
    order, first, there = looked_up
    if (there > 1).any():
        return None
    found = np.where(there > 0, order[np.minimum(first, len(order) - 1)], -1) if len(order) else np.full(len(first), -1)
    some = found[found >= 0]
    return None if len(np.unique(some)) < len(some) else found


_Runs = tuple["NDArray[np.int64]", "NDArray[np.int64]", "NDArray[np.int64]"]


def _runs_of(old: Sequence[pa.Array], new: Sequence[pa.Array], lengths: tuple[int, int]) -> _Runs | None:
    """Find for each new row the old ones that are equal.

    Rows are equal if both halves of their hashes are, as in the fold.  They are looked up by the first half; if that is
    the same for two different rows, None is returned.

    Returns:
        the old rows' numbers in an order in which equal ones follow each other; for each new row where its equals begin
        in it, and how many there are.
    """
    (first, second), (wanted, checked) = hash_rows(old, lengths[0]), hash_rows(new, lengths[1])
    order = np.argsort(first, kind="stable")
    first, second = first[order], second[order]
    if ((first[1:] == first[:-1]) & (second[1:] != second[:-1])).any():
        return None
    begin, end = (np.searchsorted(first, wanted, side) for side in ("left", "right"))
    some = np.nonzero(end > begin)[0]
    if (second[begin[some]] != checked[some]).any():
        return None
    return order, begin, end - begin


def _read(before: Before) -> list[pa.Array] | None:
    """Read a table's columns; None if a file is of an unknown kind, or the table is too large."""
    parts: list[list[pa.Array]] = [[] for _ in before.columns]
    size = 0
    for path in before.paths:
        file = pq.ParquetFile(path, coerce_int96_timestamp_unit="us")
        if any(name in (file.metadata.metadata or {}) for name in _OLD_CALENDAR):
            return None
        there = set(file.schema_arrow.names)
        wanted = [column.physical for column in before.columns if column.physical in there]
        if not wanted or len(there) < len(file.schema_arrow.names):
            return None
        # In batches, because a file tells its size only before texts are decompressed and their dictionaries resolved.
        for batch in file.iter_batches(_ROWS_READ, columns=wanted):
            size += batch.nbytes
            if size > MOST_BYTES:
                return None
            for part, column in zip(parts, before.columns, strict=True):
                if column.physical not in there:
                    # The column was added after the file was written.
                    part.append(pa.nulls(batch.num_rows, column.type))
                    continue
                array = _conformed(batch.column(column.physical), column.type)
                if array is None:
                    return None
                part.append(array)
    kinds = [column.type for column in before.columns]
    return [pa.concat_arrays(part) if part else pa.nulls(0, kind) for part, kind in zip(parts, kinds, strict=True)]


def _conformed(array: pa.Array, kind: pa.DataType) -> pa.Array | None:
    """Give a file's column as the table's type; None if that needs a conversion other than these."""
    own = array.type
    if own == kind:
        return array
    if pa.types.is_signed_integer(own) and pa.types.is_signed_integer(kind) and own.bit_width < kind.bit_width:
        return array.cast(kind)
    if (kind == pa.string() and own in _OTHER_TEXTS) or (kind == pa.binary() and own in _OTHER_BYTES):
        # Files that delta-rs has compacted have such types.
        return array.cast(kind)
    if own == pa.timestamp("us") and kind == pa.timestamp("us", "UTC"):
        # INT96 timestamps do not say that they are in UTC, and Arrow reads the earliest ones as 1970.
        return None if pc.any(pc.equal(array.cast(pa.int64()), 0)).as_py() else array.cast(kind)
    return None
