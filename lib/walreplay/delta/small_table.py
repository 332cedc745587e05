"""Small tables that are rewritten as a whole: what is known of one, its rows, and folded rows merged into them.

The functions return None for anything unusual, which is left to Spark's statements.  In the plain case, which most
small tables are, the results are those of the MERGE in `walreplay.writing`:

- `with_versions` ends versions of a small history and adds new ones, as `walreplay.writing.history` does.  Only files
  with versions that end are rewritten; what has ended stays as it is.
- `rewrite` merges folded rows, as `walreplay.writing.merge` does, or `walreplay.writing.multiset` for rows without a
  key.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from walreplay.decode.change_batch import rescued_of
from walreplay.delta.data_files import FileColumn, as_named
from walreplay.fold.batches import OUTPUT_ROWS, contiguous
from walreplay.fold.identity import hash_rows
from walreplay.session.folders import Folder

if TYPE_CHECKING:
    from numpy.typing import NDArray


MOST_BYTES: Final = 64 << 20
"""The limit in memory for a table, and for the rows that are merged into it.  For a while there are three copies."""

_ROWS_READ: Final = 1 << 10

_OTHER_TEXTS: Final = (pa.large_string(), pa.string_view())
_OTHER_BYTES: Final = (pa.large_binary(), pa.binary_view())

# Keys in the metadata of files whose dates follow the Julian calendar before 1582.
_OLD_CALENDAR: Final = (b"org.apache.spark.legacyDateTime", b"org.apache.spark.legacyINT96")


@dataclass(frozen=True, slots=True)
class Keys:
    """How folded rows with a key match the table's.

    Attributes:
        columns: the numbers of the key's columns.
        tracked: the numbers of the columns that some rows leave unchanged.
        marks_deleted: the number of the column that marks deleted rows; None if deletes are not soft.
        claims: a MERGE would refuse a new row whose key is already in the table.
        moved: rows have the key that they had before the run in ``b0`` …, and say by ``matches`` whether they had one.
        with_null: NULL equals NULL, as it does in a key that was configured.
        rescuable: names of the key's columns by their places in it, for those whose values may be rescued: two NULLs
            are equal if their texts in the rescued data are.
    """

    columns: tuple[int, ...]
    tracked: tuple[int, ...] = ()
    marks_deleted: int | None = None
    claims: bool = False
    moved: bool = False
    with_null: bool = False
    rescuable: tuple[tuple[int, str], ...] = ()

    def bases(self, rows: pa.Table, old: Sequence[pa.Array]) -> list[pa.Array]:
        """Return the keys that folded rows had before the run, in the types of the table's columns."""
        return [
            as_named(contiguous(rows.column(f"b{place}")), old[number].type)
            for place, number in enumerate(self.columns)
        ]


@dataclass(frozen=True, slots=True)
class Images:
    """How folded rows without a key match the table's.

    Attributes:
        columns: the numbers of the columns that tell rows apart.
        lsn: the number of the column with the commit LSN, which says which of equal rows is newer; None without one.
        has_younger: the table has rows that are older than some of these columns.  A delete of such a row may find it
            by its other columns alone.
    """

    columns: tuple[int, ...]
    lsn: int | None = None
    has_younger: bool = False


@dataclass(frozen=True, slots=True)
class Before:
    """A table before the merge, and how folded rows match it.

    Attributes:
        folder: the table's; ``files`` are the names of its files there.
        columns: the table's columns.
        sources: for each of them, the name of the folded rows' column with its values.
        rows: what tells the source's rows apart; None if nothing does.
        emptied: of a history: commit LSN and time (microseconds since 1970) of the first truncate, which ends all
            versions from before the run; None if there is none.
    """

    folder: Folder
    files: tuple[str, ...]
    columns: tuple[FileColumn, ...]
    sources: tuple[str, ...]
    rows: Keys | Images | None
    emptied: tuple[int, int] | None = None

    @property
    def rescued(self) -> int | None:
        """The number of the column with rescued texts; None if the table has none."""
        return self.sources.index("rescued") if "rescued" in self.sources else None


@dataclass(frozen=True, slots=True)
class Rewritten:
    """A table's rows after the merge, and the counts.

    Attributes:
        columns: for each column of the table, its old values followed by those of the folded rows.
        places: for each column, the positions of the final rows' values in it.
        counts: the numbers of rows ``updated``, ``deleted``, ``inserted`` and ``copied``.
        missing: the numbers of changes that should have found a row and did not: ``without_base`` (updates),
            ``deletes_without_row``.
        replaced: the numbers of the files that had rows of these; the table's other files stay.
    """

    columns: tuple[pa.Array, ...]
    places: tuple[NDArray[np.int64], ...]
    counts: Mapping[str, int]
    missing: Mapping[str, int]
    replaced: tuple[int, ...]

    @property
    def changes(self) -> bool:
        """Whether any row differs from before."""
        return any(count for name, count in self.counts.items() if name != "copied")

    def batches(self) -> Iterator[pa.RecordBatch]:
        """Yield the rows, some at a time."""
        names = [str(number) for number in range(len(self.columns))]
        for start in range(0, len(self.places[0]), OUTPUT_ROWS):
            part = slice(start, start + OUTPUT_ROWS)
            arrays = [column.take(pa.array(rows[part])) for column, rows in zip(self.columns, self.places, strict=True)]
            yield pa.RecordBatch.from_arrays(arrays, names=names)


def flags(rows: pa.Table, name: str, *, unknown: bool = False) -> NDArray[np.bool_]:
    """Return a folded rows' column of booleans, with a value for those that are NULL."""
    column = contiguous(rows.column(name))
    return np.asarray(column.fill_null(unknown).to_numpy(zero_copy_only=False), np.bool_)


def matches_of(
    keys: Keys, old: Sequence[pa.Array], new: Sequence[pa.Array], rescued: tuple[pa.Array | None, pa.Array | None]
) -> NDArray[np.int64] | None:
    """Return for each new key the number of the equal old one, -1 for none; None if Spark has to match them.

    Keys are equal exactly as in the fold: -0 is not 0, NaN is NaN, and in SQL's way no NULL is equal to another one.

    Args:
        rescued: the rescued texts of the old and the new rows; None if the table has no column for them.
    """
    old_keys, new_keys = list(old), list(new)
    names = dict(keys.rescuable)
    for place, (old_values, new_values) in enumerate(zip(old, new, strict=True)):
        if not (old_values.null_count or new_values.null_count):
            continue
        if place in names:
            old_keys.append(_texts_of(old_values, rescued[0], names[place]))
            new_keys.append(_texts_of(new_values, rescued[1], names[place]))
        elif not keys.with_null:  # in SQL no NULL equals another one
            return None
    runs = runs_of(old_keys, new_keys, (len(old[0]), len(new[0])))
    if runs is None:
        return None
    order, first, counts = runs
    if (counts > 1).any():  # a key is in the table twice: the MERGE has to decide
        return None
    return np.where(counts > 0, order[np.minimum(first, len(order) - 1)], -1) if len(order) else np.full(len(first), -1)


def _texts_of(values: pa.Array, rescued: pa.Array | None, name: str) -> pa.Array:
    """Return the rescued texts that stand for the NULLs of a column."""
    texts = None if rescued is None else rescued_of(rescued, [name])
    missing = pa.nulls(len(values), pa.string())
    return missing if texts is None else pc.if_else(values.is_null(), texts, missing)


def are_distinct(numbers: NDArray[np.int64]) -> bool:
    """Return whether no number of a row (not -1) is there twice."""
    some = numbers[numbers >= 0]
    return len(np.unique(some)) == len(some)


def joined(old: Sequence[pa.Array], new: Sequence[pa.Array]) -> tuple[pa.Array, ...]:
    """Put the values of two sets of rows behind each other, column by column."""
    return tuple(pa.concat_arrays([old_values, new_values]) for old_values, new_values in zip(old, new, strict=True))


def missing_of(lost: NDArray[np.bool_], deleted: NDArray[np.bool_]) -> dict[str, int]:
    """Count folded rows that the table should have had (`Rewritten.missing`), by whether they are deletes."""
    return {
        "without_base": int(np.count_nonzero(lost & ~deleted)),
        "deletes_without_row": int(np.count_nonzero(lost & deleted)),
    }


def in_ranges(first: NDArray[np.int64], counts: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the positions of several ranges, which begin at ``first`` and have ``counts`` positions each."""
    ends = np.cumsum(counts)
    total = int(ends[-1]) if len(ends) else 0
    return np.repeat(first - (ends - counts), counts) + np.arange(total)


def has_texts(column: pa.Array) -> bool:
    """Return whether any value is there."""
    return bool(len(column) > column.null_count)


Runs = tuple["NDArray[np.int64]", "NDArray[np.int64]", "NDArray[np.int64]"]


def runs_of(
    old: Sequence[pa.Array], new: Sequence[pa.Array], lengths: tuple[int, int], rank: NDArray[np.int64] | None = None
) -> Runs | None:
    """Find for each new row the old ones that are equal.

    Rows are equal if both halves of their hashes are, as in the fold.  They are looked up by the first half; if that is
    the same for two different rows, None is returned.

    Args:
        rank: the order of equal old rows; None for that in which they are there.

    Returns:
        the old rows' numbers in an order in which equal ones follow each other; for each new row where its equals begin
        in it, and how many there are.
    """
    (old_first, old_second), (new_first, new_second) = hash_rows(old, lengths[0]), hash_rows(new, lengths[1])
    order = np.argsort(old_first, kind="stable") if rank is None else np.lexsort((rank, old_first))
    old_first, old_second = old_first[order], old_second[order]
    if ((old_first[1:] == old_first[:-1]) & (old_second[1:] != old_second[:-1])).any():
        return None
    begin, end = (np.searchsorted(old_first, new_first, side) for side in ("left", "right"))
    some = np.nonzero(end > begin)[0]
    if (old_second[begin[some]] != new_second[some]).any():
        return None
    return order, begin, end - begin


def read_rows(before: Before) -> tuple[list[pa.Array], list[int]] | None:
    """Read a table's columns; None if a file is of an unknown kind, or the table is too large.

    Returns:
        the columns, and how many rows each file has.
    """
    lengths: list[int] = []
    parts: list[list[pa.Array]] = [[] for _ in before.columns]
    size = 0
    for name in before.files:
        file = pq.ParquetFile(before.folder.open(name), coerce_int96_timestamp_unit="us")
        if any(name in (file.metadata.metadata or {}) for name in _OLD_CALENDAR):
            return None
        lengths.append(file.metadata.num_rows)
        file_columns = set(file.schema_arrow.names)
        physical_names = [column.physical for column in before.columns if column.physical in file_columns]
        if not physical_names or len(file_columns) < len(file.schema_arrow.names):
            return None
        # In batches, because a file tells its size only before texts are decompressed and their dictionaries resolved.
        for batch in file.iter_batches(_ROWS_READ, columns=physical_names):
            size += batch.nbytes
            if size > MOST_BYTES:
                return None
            for part, column in zip(parts, before.columns, strict=True):
                if column.physical not in file_columns:
                    part.append(pa.nulls(batch.num_rows, column.type))  # the column is younger than the file
                    continue
                array = _conformed(batch.column(column.physical), column.type)
                if array is None:
                    return None
                part.append(array)
    kinds = [column.type for column in before.columns]
    columns = [pa.concat_arrays(part) if part else pa.nulls(0, kind) for part, kind in zip(parts, kinds, strict=True)]
    return columns, lengths


def _conformed(array: pa.Array, kind: pa.DataType) -> pa.Array | None:
    """Return a file's column as the table's type; None if that needs a conversion other than these."""
    stored = array.type
    if stored == kind:
        return array
    if pa.types.is_signed_integer(stored) and pa.types.is_signed_integer(kind) and stored.bit_width < kind.bit_width:
        return array.cast(kind)  # the file is older than the column's widened type
    if (kind == pa.string() and stored in _OTHER_TEXTS) or (kind == pa.binary() and stored in _OTHER_BYTES):
        return array.cast(kind)  # files that delta-rs has compacted have such types
    if stored == pa.timestamp("us") and kind == pa.timestamp("us", "UTC"):
        # INT96 timestamps do not say that they are in UTC, and Arrow reads the earliest ones as 1970.
        return None if pc.any(pc.equal(array.cast(pa.int64()), 0)).as_py() else array.cast(kind)
    return None


# Histories


@dataclass(frozen=True, slots=True)
class _Ends:
    """Which versions of the table end, and when.

    Attributes:
        rows: the numbers of the table's rows.
        lsn: the commit LSNs at which they end; ``time`` has the times.
        missing: see `Rewritten`.
        base: for each folded row whose version has values of the table's, the number of that row; -1 for none.
    """

    rows: NDArray[np.int64]
    lsn: NDArray[np.int64]
    time: NDArray[np.int64]
    missing: dict[str, int]
    base: NDArray[np.int64]


def with_versions(
    before: Before, columns: tuple[Sequence[pa.Array], Sequence[pa.Array]], rows: pa.Table, lengths: Sequence[int]
) -> Rewritten | None:
    """End versions of a history, and add those of the folded rows; None if it has to be merged by Spark.

    Args:
        columns: the table's columns, with its rows and with the folded ones'.
        rows: folded rows (`walreplay.fold.versions.version_schema`).
        lengths: how many rows each file has.
    """
    old, new = columns
    end_lsn, end_at = map(before.sources.index, ("end_lsn", "end_at"))
    is_open = np.nonzero(old[end_lsn].is_null().to_numpy(zero_copy_only=False))[0]
    match before.rows:
        case Keys() as keys:
            ends = _of_keys(before, keys, old, rows, is_open)
        case Images() as images:
            ends = _of_images(before, images, columns, rows, is_open)
        case None:
            nothing = np.zeros(0, np.int64)
            missing = missing_of(flags(rows, "expected"), flags(rows, "deleted"))
            ends = _Ends(nothing, nothing, nothing, missing, np.full(rows.num_rows, -1))
    if ends is None:
        return None
    gone, lsn, time = ends.rows, ends.lsn, ends.time
    if before.emptied is not None:
        # The first truncate ends those that are open, and that nothing has ended before.
        rest = np.setdiff1d(is_open, gone)
        gone = np.concatenate([gone, rest])
        lsn, time = (
            np.append(values, np.full(len(rest), end)) for values, end in zip((lsn, time), before.emptied, strict=True)
        )
    begun = (old[before.sources.index(name)].take(pa.array(gone)) for name in ("start_lsn", "start_at"))
    start, since = (column.cast(pa.int64()).to_numpy(zero_copy_only=False) for column in begun)
    if ((start > lsn) | (since > time)).any():
        return None  # a MERGE refuses a version that would end before it begins
    opened = np.nonzero(flags(rows, "opens"))[0]
    count = len(old[0])
    # Only the files in which versions end are rewritten.
    files = np.unique(np.searchsorted(np.cumsum(lengths), gone, side="right"))
    counted = np.array(lengths, np.int64)
    kept = in_ranges((np.cumsum(counted) - counted)[files], counted[files])
    places = [np.concatenate([kept, count + opened])] * len(old)
    if isinstance(before.rows, Keys):
        # An unchanged value was not sent: it comes from the version that ends.
        for number in before.rows.tracked:
            stays = flags(rows, f"k{number}")[opened]
            places[number] = np.concatenate([kept, np.where(stays, ends.base[opened], count + opened)])
    ended = list(old)
    ended[end_lsn] = _filled(old[end_lsn], gone, lsn)
    ended[end_at] = _filled(old[end_at], gone, time)
    counts = {"updated": len(gone), "deleted": 0, "inserted": len(opened), "copied": len(kept) - len(gone)}
    return Rewritten(joined(ended, new), tuple(places), counts, ends.missing, tuple(map(int, files)))


def _filled(column: pa.Array, places: NDArray[np.int64], values: NDArray[np.int64]) -> pa.Array:
    """Return a column of LSNs or times with other values (times in microseconds) at some places."""
    numbers = column.cast(pa.int64()).fill_null(0).to_numpy(zero_copy_only=False).copy()
    is_null = column.is_null().to_numpy(zero_copy_only=False).copy()
    numbers[places], is_null[places] = values, False
    return pa.array(numbers, pa.int64(), mask=is_null).cast(column.type)


def _ints(rows: pa.Table, name: str) -> NDArray[np.int64]:
    """Return a folded rows' column of LSNs, ordinals or times (microseconds) as numbers, 0 for NULL."""
    column = contiguous(rows.column(name)).cast(pa.int64()).fill_null(0)
    return np.asarray(column.to_numpy(zero_copy_only=False), np.int64)


def _of_keys(
    before: Before, keys: Keys, old: Sequence[pa.Array], rows: pa.Table, is_open: NDArray[np.int64]
) -> _Ends | None:
    """Find the open version of each key that has one."""
    closes, opens = flags(rows, "closes"), flags(rows, "opens")
    stays = np.zeros(rows.num_rows, np.bool_)
    for number in keys.tracked:
        stays |= opens & flags(rows, f"k{number}")
    lookups = np.nonzero(closes | stays)[0]
    open_keys = [old[number].take(pa.array(is_open)) for number in keys.columns]
    lookup_rows = rows.take(pa.array(lookups))
    old_texts = None if before.rescued is None else old[before.rescued].take(pa.array(is_open))
    texts = old_texts, contiguous(lookup_rows.column("base_rescued"))
    matches = matches_of(keys, open_keys, keys.bases(lookup_rows, old), texts)
    if matches is None:
        return None
    base = np.full(rows.num_rows, -1)
    base[lookups] = np.where(matches >= 0, is_open[matches] if len(is_open) else -1, -1)
    ended = np.where(closes, base, -1)
    if not are_distinct(ended) or (keys.claims and (flags(rows, "claimed") & (ended >= 0)).any()):
        return None
    if (stays & (base < 0)).any():
        return None  # an unchanged value, and no row that has it
    if before.rescued is not None and has_texts(old[before.rescued].take(pa.array(base[stays]))):
        return None  # rescued texts stay with their columns
    hit = ended >= 0
    missing = missing_of(flags(rows, "expected") & ~hit, flags(rows, "deleted"))
    return _Ends(ended[hit], _ints(rows, "closes_lsn")[hit], _ints(rows, "closes_at")[hit], missing, base)


def _of_images(
    before: Before,
    images: Images,
    columns: tuple[Sequence[pa.Array], Sequence[pa.Array]],
    rows: pa.Table,
    is_open: NDArray[np.int64],
) -> _Ends | None:
    """Find for the n-th closing of an image its n-th open copy, the newest first."""
    old, new = columns
    closing = np.nonzero(flags(rows, "closes"))[0]
    open_rows = [column.take(pa.array(is_open)) for column in old]
    closing_rows = [column.take(pa.array(closing)) for column in new]
    if before.rescued is not None and (has_texts(open_rows[before.rescued]) or has_texts(closing_rows[before.rescued])):
        return None  # rescued texts are compared without those of dropped columns, in whatever order they are
    hashes = [
        hash_rows([part[number] for number in images.columns], count)
        for part, count in ((open_rows, len(is_open)), (closing_rows, len(closing)))
    ]
    start, ordinal = (
        open_rows[before.sources.index(name)].cast(pa.int64()).to_numpy(zero_copy_only=False)
        for name in ("start_lsn", "ordinal")
    )
    lsn = _ints(rows, "closes_lsn")[closing]
    pairs = _paired(
        (*hashes[0], _numbered(*hashes[0], -start, -ordinal)),
        (*hashes[1], _numbered(*hashes[1], lsn, _ints(rows, "ordinal")[closing])),
    )
    hit = pairs >= 0
    lost = flags(rows, "expected").copy()
    lost[closing[hit]] = False
    end_times = _ints(rows, "closes_at")[closing][hit]
    # Without a key nothing is updated: all that is missing is deleted.
    missing = missing_of(lost, np.ones(len(lost), np.bool_))
    return _Ends(is_open[pairs[hit]], lsn[hit], end_times, missing, np.full(rows.num_rows, -1))


# Both halves of the images' hashes, and each row's number among those of its image.
_Places = tuple["NDArray[np.uint64]", "NDArray[np.uint64]", "NDArray[np.int64]"]


def _numbered(first: NDArray[np.uint64], second: NDArray[np.uint64], *order: NDArray[np.int64]) -> NDArray[np.int64]:
    """Number the rows of each image, from 0, in an order."""
    rows = np.lexsort((*reversed(order), second, first))
    is_first = np.ones(len(rows), np.bool_)
    is_first[1:] = (first[rows[1:]] != first[rows[:-1]]) | (second[rows[1:]] != second[rows[:-1]])
    group_start = np.maximum.accumulate(np.where(is_first, np.arange(len(rows)), 0))
    numbers = np.empty(len(rows), np.int64)
    numbers[rows] = np.arange(len(rows)) - group_start
    return numbers


def _paired(old: _Places, new: _Places) -> NDArray[np.int64]:
    """Return for each new row the old one of the same image and number; -1 for none."""
    first, second, number = (np.concatenate([old_part, new_part]) for old_part, new_part in zip(old, new, strict=True))
    is_new = np.arange(len(first)) >= len(old[0])
    rows = np.lexsort((is_new, number, second, first))
    before, behind = rows[:-1], rows[1:]
    same = ~is_new[before] & is_new[behind]  # an old row directly in front of its new one
    for part in (first, second, number):
        same &= part[before] == part[behind]
    old_of_new = np.full(len(new[0]), -1)
    old_of_new[behind[same] - len(old[0])] = before[same]
    return old_of_new


def rewrite(before: Before, folded: Sequence[pa.RecordBatch]) -> Rewritten | None:
    """Merge folded rows into the rows of a table; None if the table has to be merged by Spark.

    Args:
        folded: rows to merge (`walreplay.fold.net_changes.merge_schema`), each key or image once.
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
        if "end_lsn" in before.sources:
            return with_versions(before, (old, new), rows, lengths)
        if isinstance(before.rows, Keys):
            return _with_keys(before, before.rows, old, new, rows)
        assert before.rows is not None
        return _with_copies(before, before.rows, old, new, rows)
    except (OSError, pa.ArrowException):
        return None


def _with_keys(
    before: Before, keys: Keys, old: Sequence[pa.Array], new: Sequence[pa.Array], rows: pa.Table
) -> Rewritten | None:
    matches = _bases(before, keys, (old, new), rows)
    if matches is None:
        return None
    deleted, matched = flags(rows, "deleted"), matches >= 0
    updated = np.nonzero(matched & ~deleted)[0]
    if keys.claims and (flags(rows, "claimed") & matched).any():
        return None
    deleted_rows = matches[matched & deleted]
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
    positions = np.arange(count)
    positions[matches[updated]] = count + updated  # a row that is updated stays in its place
    positions = np.concatenate([np.delete(positions, deleted_rows), count + inserted])
    places = [positions] * len(old)
    of_update = np.nonzero(positions >= count)[0][: len(updated)]
    for number in keys.tracked:
        folded_rows = positions[of_update] - count
        stays = flags(rows, f"k{number}")[folded_rows]
        if stays.any():
            places[number] = positions.copy()
            places[number][of_update[stays]] = matches[folded_rows[stays]]
    kept = count - len(updated) - len(deleted_rows)
    counts = {"updated": len(updated), "deleted": len(deleted_rows), "inserted": len(inserted), "copied": kept}
    missing = missing_of(flags(rows, "expected") & ~matched, deleted)
    return Rewritten(joined(old, new), tuple(places), counts, missing, tuple(range(len(before.files))))


def _with_copies(
    before: Before, images: Images, old: Sequence[pa.Array], new: Sequence[pa.Array], rows: pa.Table
) -> Rewritten | None:
    """Apply the net count of each image: see `walreplay.writing.multiset.merge_multiset`."""
    if before.rescued is not None and (has_texts(old[before.rescued]) or has_texts(new[before.rescued])):
        return None  # rescued texts are compared without those of dropped columns, in whatever order they are
    count = len(old[0])
    net, needed = (contiguous(rows.column(name)).to_numpy() for name in ("net", "needed"))
    stored_images, folded_images = ([part[number] for number in images.columns] for part in (old, new))
    age = None if images.lsn is None else -pc.fill_null(old[images.lsn], 0).to_numpy()
    runs = runs_of(stored_images, folded_images, (count, len(net)), age)
    if runs is None:
        return None
    order, first, stored_counts = runs
    stored_counts = np.where(needed > 0, stored_counts, 0)
    if len(np.unique(first[stored_counts > 0])) < np.count_nonzero(stored_counts):
        return None
    missing = np.maximum(needed - stored_counts, 0)
    if missing.any() and images.has_younger:
        return None
    removed, added = np.minimum(stored_counts, needed), net + needed  # equal rows are removed, then added again
    if int(added.sum()) * max(1, max((_longest(part) for part in new), default=1)) > MOST_BYTES:
        return None
    old_rows = order[in_ranges(first, removed)]
    positions = np.concatenate([np.delete(np.arange(count), old_rows), count + np.repeat(np.arange(len(net)), added)])
    counts = {"updated": 0, "deleted": len(old_rows), "inserted": int(added.sum()), "copied": count - len(old_rows)}
    lost = {"without_base": 0, "deletes_without_row": int(missing.sum())}
    return Rewritten(joined(old, new), (positions,) * len(old), counts, lost, tuple(range(len(before.files))))


def _longest(column: pa.Array) -> int:
    """Return the bytes of a column's longest text; 0 for other types, whose values are short."""
    if not (pa.types.is_string(column.type) or pa.types.is_binary(column.type)):
        return 0
    return pc.max(pc.binary_length(column)).as_py() or 0


def _bases(
    before: Before, keys: Keys, columns: tuple[Sequence[pa.Array], Sequence[pa.Array]], rows: pa.Table
) -> NDArray[np.int64] | None:
    """Return for each folded row the number of the table's row that it changes, -1 for none; None as `matches_of`."""
    old, new = columns
    new_keys, has_base, texts = [new[number] for number in keys.columns], np.ones(rows.num_rows, np.bool_), "rescued"
    if keys.moved:
        has_base, texts = flags(rows, "matches"), "base_rescued"
        rows = rows.filter(pa.array(has_base))
        new_keys = keys.bases(rows, old)
    old_texts = None if before.rescued is None else old[before.rescued]
    old_keys = [old[number] for number in keys.columns]
    old_rows = matches_of(keys, old_keys, new_keys, (old_texts, contiguous(rows.column(texts))))
    if old_rows is None or not are_distinct(old_rows):
        return None
    matches = np.full(len(has_base), -1)
    matches[has_base] = old_rows
    return matches
