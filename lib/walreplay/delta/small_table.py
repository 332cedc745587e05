"""Small tables that are read as a whole: their rows, folded rows merged into them, and whether two are equal.

`rewrite` returns None for anything unusual, which is left to Spark's statements.  In the plain case, which most small
tables are, the result is that of the MERGE in `walreplay.writing`: of `merge`, of `multiset` for rows without a key, or
of `history`.  Of a history only the files are rewritten in which versions end; what has ended stays as it is.

delta-rs has a MERGE of its own, which is not used.  Executors, which alone have the rows, would need delta-rs.  Its
MERGE reads the timestamps of Spark's files (INT96) as nanoseconds, so that those before 1678 and after 2262 become
others, in rows that nothing has changed.  By its bounds in the log Spark skips rows with NaN and long decimals.  To it
-0 and 0 are one key.  And where no row changes it makes no commit, so that the run's number is not noted.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from walreplay.decode.change_batch import rescued_of
from walreplay.delta.data_files import FileColumn, as_named
from walreplay.fold.batches import contiguous, output_parts
from walreplay.fold.identity import Hashes, hash_rows
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
        with_null: NULL equals NULL, as it does in a key that was configured.
        rescuable: names of the key's columns by their places in it, for those whose values may be rescued: two NULLs
            are equal if their texts in the rescued data are.
    """

    columns: tuple[int, ...]
    tracked: tuple[int, ...] = ()
    marks_deleted: int | None = None
    claims: bool = False
    with_null: bool = False
    rescuable: tuple[tuple[int, str], ...] = ()


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
class TableFiles:
    """The files of a table, none of whose rows are marked as deleted.

    Attributes:
        folder: the table's; ``files`` are the names of its files there.
        columns: those of the table's columns that are read.
    """

    folder: Folder
    files: tuple[str, ...]
    columns: tuple[FileColumn, ...]


@dataclass(frozen=True, slots=True)
class Before(TableFiles):
    """A table before the merge, with all its columns, and how folded rows match it.

    Attributes:
        sources: for each of them, the name of the folded rows' column with its values.
        rows: what tells the source's rows apart; None if nothing does.
        emptied: of a history: commit LSN and time (microseconds since 1970) of the first truncate, which ends all
            versions from before the run; None if there is none.
    """

    sources: tuple[str, ...]
    rows: Keys | Images | None
    emptied: tuple[int, int] | None = None


@dataclass(frozen=True, slots=True)
class Rewritten:
    """A table's rows after the merge, and the counts.

    Attributes:
        columns: for each column of the table, its old values followed by those of the folded rows.
        places: for each column, the positions of the final rows' values in it.
        counts: the numbers of rows ``updated``, ``deleted``, ``inserted`` and ``copied``; and of changes that should
            have found a row and did not: ``without_base`` (updates), ``deletes_without_row``.
        replaced: the numbers of the files that had rows of these; the table's other files stay.
    """

    columns: tuple[pa.Array, ...]
    places: tuple[NDArray[np.int64], ...]
    counts: Mapping[str, int]
    replaced: tuple[int, ...]

    @property
    def changes(self) -> bool:
        """Whether any row differs from before."""
        return any(self.counts[name] for name in ("updated", "deleted", "inserted"))

    def batches(self) -> Iterator[pa.RecordBatch]:
        """Yield the rows, some at a time."""
        names = [str(number) for number in range(len(self.columns))]
        for places in zip(*map(output_parts, self.places), strict=True):
            arrays = [column.take(pa.array(rows)) for column, rows in zip(self.columns, places, strict=True)]
            yield pa.RecordBatch.from_arrays(arrays, names=names)


@dataclass(frozen=True, slots=True)
class _Merge:
    """A table and the rows that are merged into it.

    Attributes:
        old: the table's columns, with its rows; ``new`` has them with the folded rows' values.
        rows: the folded rows, with all their columns.
        lengths: how many rows each file of the table has.
    """

    before: Before
    old: Sequence[pa.Array]
    new: Sequence[pa.Array]
    rows: pa.Table
    lengths: Sequence[int]

    def flags(self, name: str, *, unknown: bool = False) -> NDArray[np.bool_]:
        """Return a folded rows' column of booleans, with a value for those that are NULL."""
        column = contiguous(self.rows.column(name)).fill_null(unknown)
        return np.asarray(column.to_numpy(zero_copy_only=False), np.bool_)

    def numbers(self, name: str) -> NDArray[np.int64]:
        """Return a folded rows' column of LSNs, ordinals or times (microseconds) as numbers, 0 for NULL."""
        return _numbers(contiguous(self.rows.column(name)))

    def place(self, source: str) -> int | None:
        """Return the number of the table's column that is filled from a column of the folded rows; None for none."""
        return self.before.sources.index(source) if source in self.before.sources else None

    def have_texts(self, columns: Sequence[pa.Array], rows: NDArray[np.int64] | None = None) -> bool:
        """Return whether any of some rows (None: of all) has a rescued text."""
        number = self.place("rescued")
        if number is None:
            return False
        texts = columns[number] if rows is None else columns[number].take(pa.array(rows))
        return bool(len(texts) > texts.null_count)

    def missing(self, is_there: NDArray[np.bool_], deleted: NDArray[np.bool_]) -> dict[str, int]:
        """Count the folded rows that the table should have had and did not, by whether they are deletes."""
        lost = self.flags("expected") & ~is_there
        return {
            "without_base": int(np.count_nonzero(lost & ~deleted)),
            "deletes_without_row": int(np.count_nonzero(lost & deleted)),
        }

    def rewritten(
        self,
        kept: NDArray[np.int64],
        added: NDArray[np.int64],
        counts: Mapping[str, int],
        bases: NDArray[np.int64] | None = None,
        replaced: Sequence[int] | None = None,
    ) -> Rewritten:
        """Return the result: rows that the table has, and folded ones behind them.

        Args:
            kept: the numbers of the table's rows; ``added`` are those of the folded ones.
            bases: for each folded row the table's row that has the values which it leaves unchanged; -1 for none.
            replaced: see `Rewritten`; None for all files.
        """
        count = len(self.old[0])
        places = [np.concatenate([kept, count + added])] * len(self.old)
        if bases is not None and isinstance(self.before.rows, Keys):
            base = bases[added]
            for number in self.before.rows.tracked:
                stays = self.flags(f"k{number}")[added] & (base >= 0)
                places[number] = np.concatenate([kept, np.where(stays, base, count + added)])
        columns = (pa.concat_arrays([old, new]) for old, new in zip(self.old, self.new, strict=True))
        files = range(len(self.lengths)) if replaced is None else replaced
        return Rewritten(tuple(columns), tuple(places), counts, tuple(files))


def rewrite(before: Before, folded: Sequence[pa.RecordBatch]) -> Rewritten | None:
    """Merge folded rows into the rows of a table; None if the table has to be merged by Spark.

    Args:
        folded: rows to merge, each key or image once (`walreplay.fold.net_changes.merge_schema`); of a history, what
            opens and closes its versions (`walreplay.fold.versions.version_schema`).
    """
    try:
        read = read_rows(before)
        if read is None:
            return None
        rows = pa.Table.from_batches(folded).combine_chunks()
        new = [
            as_named(contiguous(rows.column(source)), column.type)
            for source, column in zip(before.sources, before.columns, strict=True)
        ]
        old, lengths = read
        merge = _Merge(before, old, new, rows, lengths)
        if "end_lsn" in before.sources:
            return _with_versions(merge)
        if isinstance(before.rows, Keys):
            return _with_keys(merge, before.rows)
        assert before.rows is not None
        return _with_copies(merge, before.rows)
    except (OSError, pa.ArrowException):
        return None


def equal_rows(tables: tuple[TableFiles, TableFiles]) -> int | None:
    """Return how many rows two tables have, if they have the same ones, each as often; None where Spark has to look.

    Args:
        tables: with the same columns, in the same order.
    """
    sides = []
    for table in tables:
        try:
            read = read_rows(table)
        except (OSError, pa.ArrowException):
            return None
        if read is None:
            return None
        columns, lengths = read
        parts = [part for column in columns for part in _parts(column)]
        if any(map(_has_structs, parts)):
            return None
        hashes = hash_rows(parts, sum(lengths))
        order = np.lexsort(hashes)
        sides.append([half[order] for half in hashes])
    is_equal = all(map(np.array_equal, *sides))
    return len(sides[0][0]) if is_equal else None


def _parts(column: pa.Array) -> Iterator[pa.Array]:
    """Yield a column's values; of structs whether they are NULL, and the values inside."""
    if not pa.types.is_struct(column.type):
        yield column
        return
    yield column.is_valid()
    for field in column.flatten():  # NULL where the struct is
        yield from _parts(field)


def _has_structs(column: pa.Array) -> bool:
    return pa.types.is_struct(column.type) or (pa.types.is_list(column.type) and _has_structs(column.values))


def read_rows(table: TableFiles) -> tuple[list[pa.Array], list[int]] | None:
    """Read a table's columns, and each file's number of rows; None if a file is of unknown kind, or all too large."""
    lengths: list[int] = []
    parts: list[list[pa.Array]] = [[] for _ in table.columns]
    size = 0
    for name in table.files:
        file = pq.ParquetFile(table.folder.open(name), coerce_int96_timestamp_unit="us")
        if any(name in (file.metadata.metadata or {}) for name in _OLD_CALENDAR):
            return None
        lengths.append(file.metadata.num_rows)
        file_columns = set(file.schema_arrow.names)
        physical_names = [column.physical for column in table.columns if column.physical in file_columns]
        if not physical_names or len(file_columns) < len(file.schema_arrow.names):
            return None
        # In batches, because a file tells its size only before texts are decompressed and their dictionaries resolved.
        for batch in file.iter_batches(_ROWS_READ, columns=physical_names):
            size += batch.nbytes
            if size > MOST_BYTES:
                return None
            for part, column in zip(parts, table.columns, strict=True):
                if column.physical not in file_columns:
                    part.append(pa.nulls(batch.num_rows, column.type))  # the column is younger than the file
                    continue
                array = _conformed(batch.column(column.physical), column.type)
                if array is None:
                    return None
                part.append(array)
    kinds = [column.type for column in table.columns]
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


def _numbers(column: pa.Array) -> NDArray[np.int64]:
    return np.asarray(column.cast(pa.int64()).fill_null(0).to_numpy(zero_copy_only=False), np.int64)


# Equal rows

_Runs = tuple["NDArray[np.int64]", "NDArray[np.int64]", "NDArray[np.int64]"]


def _runs_of(old: Hashes, new: Hashes, *rank: NDArray[np.int64]) -> _Runs | None:
    """Find for each new row the old ones that are equal.

    Rows are equal if both halves of their hashes are, as in the fold.  They are looked up by the first half; if that is
    the same for two different rows, None is returned.

    Args:
        rank: the order of equal old rows; nothing for that in which they are there.

    Returns:
        the old rows' numbers in an order in which equal ones follow each other; for each new row where its equals begin
        in it, and how many there are.
    """
    order = np.lexsort((*reversed(rank), old[0])) if rank else np.argsort(old[0], kind="stable")
    first, second = (half[order] for half in old)
    if ((first[1:] == first[:-1]) & (second[1:] != second[:-1])).any():
        return None
    begin, end = (np.searchsorted(first, new[0], side) for side in ("left", "right"))
    some = np.nonzero(end > begin)[0]
    if (second[begin[some]] != new[1][some]).any():
        return None
    return order, begin, end - begin


def _bases(
    merge: _Merge, keys: Keys, has_base: NDArray[np.bool_], among: NDArray[np.int64] | None = None
) -> NDArray[np.int64] | None:
    """Return for each folded row the number of the table's row that it changes, -1 for none; None if Spark has to.

    Keys are equal exactly as in the fold: -0 is not 0, NaN is NaN, and in SQL's way no NULL is equal to another one.

    Args:
        has_base: the folded rows that may change one.
        among: the numbers of the table's rows that they may change; None for all.
    """
    rows, texts = merge.rows, merge.place("rescued")
    old = [merge.old[number] for number in keys.columns]
    old.append(pa.nulls(len(old[0]), pa.string()) if texts is None else merge.old[texts])
    if "base_rescued" in rows.schema.names:  # a row may have another key now than before the run
        columns = (contiguous(rows.column(f"b{place}")) for place in range(len(keys.columns)))
        new = [as_named(column, key.type) for column, key in zip(columns, old, strict=False)]
        new.append(contiguous(rows.column("base_rescued")))
    else:
        new = [*(merge.new[number] for number in keys.columns), contiguous(rows.column("rescued"))]
    new = [column.take(pa.array(np.nonzero(has_base)[0])) for column in new]
    if among is not None:
        old = [column.take(pa.array(among)) for column in old]
    rescuable, names = dict(keys.rescuable), []
    for place in range(len(keys.columns)):
        if old[place].null_count or new[place].null_count:
            if place in rescuable:  # NULLs are told apart by the texts that stand for them
                names.append(rescuable[place])
            elif not keys.with_null:
                return None
    sides = ((old, len(old[-1])), (new, len(new[-1])))
    old_hashes, new_hashes = (
        hash_rows(columns[:-1], count, rescued_of(columns[-1], names) if names else None) for columns, count in sides
    )
    runs = _runs_of(old_hashes, new_hashes)
    # Of a key that the table has twice, the MERGE has to decide.
    if runs is None or (runs[2] > 1).any():
        return None
    order, first, counts = runs
    matches = np.where(counts > 0, np.append(order, -1)[first], -1)
    bases = np.full(rows.num_rows, -1)
    bases[has_base] = matches if among is None else np.append(among, -1)[matches]
    return bases


def _are_distinct(numbers: NDArray[np.int64]) -> bool:
    """Return whether no number of a row (not -1) is there twice."""
    some = numbers[numbers >= 0]
    return len(np.unique(some)) == len(some)


def _in_ranges(first: NDArray[np.int64], counts: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the positions of several ranges, which begin at ``first`` and have ``counts`` positions each."""
    ends = np.cumsum(counts)
    total = int(ends[-1]) if len(ends) else 0
    return np.repeat(first - (ends - counts), counts) + np.arange(total)


# Tables with a row for each key, and tables without a key


def _with_keys(merge: _Merge, keys: Keys) -> Rewritten | None:
    rows = merge.rows
    has_base = merge.flags("matches") if "matches" in rows.schema.names else np.ones(rows.num_rows, np.bool_)
    bases = _bases(merge, keys, has_base)
    if bases is None or not _are_distinct(bases):
        return None
    deleted, matched = merge.flags("deleted"), bases >= 0
    if keys.claims and (merge.flags("claimed") & matched).any():
        return None
    updated, is_new = matched & ~deleted, ~matched & ~deleted
    # Rescued texts stay with their columns.
    if keys.tracked and merge.have_texts(merge.old, bases[updated]):
        return None
    if keys.marks_deleted is not None:
        # A soft delete of a row that the table does not have inserts nothing.  NULL counts as true here, as in SQL.
        marked = merge.flags(merge.before.sources[keys.marks_deleted], unknown=True)
        is_new &= ~(marked & merge.flags("expected"))
    kept = np.delete(np.arange(len(merge.old[0])), bases[matched])
    numbers = {"updated": updated, "deleted": matched & deleted, "inserted": is_new}
    counts = {name: int(np.count_nonzero(are)) for name, are in numbers.items()}
    counts |= {"copied": len(kept), **merge.missing(matched, deleted)}
    return merge.rewritten(kept, np.nonzero(updated | is_new)[0], counts, bases)


def _with_copies(merge: _Merge, images: Images) -> Rewritten | None:
    """Apply the net count of each image: see `walreplay.writing.multiset`."""
    old, new = merge.old, merge.new
    if merge.have_texts(old) or merge.have_texts(new):
        return None  # rescued texts are compared without those of dropped columns, in whatever order they are
    count = len(old[0])
    net, needed = merge.numbers("net"), merge.numbers("needed")
    old_hashes, new_hashes = (hash_rows([part[n] for n in images.columns], len(part[0])) for part in (old, new))
    age = [] if images.lsn is None else [-_numbers(old[images.lsn])]
    runs = _runs_of(old_hashes, new_hashes, *age)  # the newest of equal rows is removed first
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
    if int(added.sum()) * max(1, max(map(longest_text, new), default=1)) > MOST_BYTES:
        return None
    kept = np.delete(np.arange(count), order[_in_ranges(first, removed)])
    counts = {"updated": 0, "deleted": count - len(kept), "inserted": int(added.sum()), "copied": len(kept)}
    counts |= {"without_base": 0, "deletes_without_row": int(missing.sum())}
    return merge.rewritten(kept, np.repeat(np.arange(len(net)), added), counts)


def longest_text(column: pa.Array) -> int:
    """Return the bytes of a column's longest text; 0 for other types, whose values are short."""
    if not (pa.types.is_string(column.type) or pa.types.is_binary(column.type)):
        return 0
    return pc.max(pc.binary_length(column)).as_py() or 0


# Histories


def _with_versions(merge: _Merge) -> Rewritten | None:
    """End versions of a history, and add those of the folded rows."""
    before, old = merge.before, merge.old
    end_lsn, end_at = map(before.sources.index, ("end_lsn", "end_at"))
    is_open = np.nonzero(old[end_lsn].is_null().to_numpy(zero_copy_only=False))[0]
    bases = None
    # For each folded row the number of the version that it ends; -1 for none.
    ended: NDArray[np.int64] | None = np.full(merge.rows.num_rows, -1)
    if isinstance(before.rows, Keys):
        ended, bases = _ended_by_key(merge, before.rows, is_open)
    elif before.rows is not None:
        ended = _ended_by_image(merge, before.rows, is_open)
    if ended is None:
        return None
    hit = ended >= 0
    gone, lsn, time = ended[hit], merge.numbers("closes_lsn")[hit], merge.numbers("closes_at")[hit]
    if before.emptied is not None:
        # The first truncate ends those that are open, and that nothing has ended before.
        rest = np.setdiff1d(is_open, gone)
        gone = np.concatenate([gone, rest])
        lsn, time = (
            np.append(values, np.full(len(rest), end)) for values, end in zip((lsn, time), before.emptied, strict=True)
        )
    start, since = (_numbers(old[before.sources.index(name)])[gone] for name in ("start_lsn", "start_at"))
    if ((start > lsn) | (since > time)).any():
        return None  # a MERGE refuses a version that would end before it begins
    opened = np.nonzero(merge.flags("opens"))[0]
    # Only the files in which versions end are rewritten.
    counted = np.array(merge.lengths, np.int64)
    ends = np.cumsum(counted)
    files = np.unique(np.searchsorted(ends, gone, side="right"))
    kept = _in_ranges((ends - counted)[files], counted[files])
    columns = list(old)
    columns[end_lsn] = _filled(old[end_lsn], gone, lsn)
    columns[end_at] = _filled(old[end_at], gone, time)
    counts = {"updated": len(gone), "deleted": 0, "inserted": len(opened), "copied": len(kept) - len(gone)}
    counts |= merge.missing(hit, merge.flags("deleted"))
    return replace(merge, old=columns).rewritten(kept, opened, counts, bases, list(map(int, files)))


def _filled(column: pa.Array, places: NDArray[np.int64], values: NDArray[np.int64]) -> pa.Array:
    """Return a column of LSNs or times with other values (times in microseconds) at some places."""
    numbers, is_null = _numbers(column).copy(), column.is_null().to_numpy(zero_copy_only=False).copy()
    numbers[places], is_null[places] = values, False
    return pa.array(numbers, pa.int64(), mask=is_null).cast(column.type)


def _ended_by_key(
    merge: _Merge, keys: Keys, is_open: NDArray[np.int64]
) -> tuple[NDArray[np.int64] | None, NDArray[np.int64] | None]:
    """Find the open version of each key that has one: which are ended, and which have values that were not sent again.

    Args:
        is_open: the numbers of the open versions.
    """
    closes, opens = merge.flags("closes"), merge.flags("opens")
    stays = np.zeros_like(opens)
    for number in keys.tracked:
        stays |= opens & merge.flags(f"k{number}")
    bases = _bases(merge, keys, closes | stays, is_open)
    if bases is None:
        return None, None
    ended = np.where(closes, bases, -1)
    if not _are_distinct(ended) or (keys.claims and (merge.flags("claimed") & (ended >= 0)).any()):
        return None, None
    # An unchanged value and no row that has it; or a row with rescued texts, which stay with their columns.
    if (bases[stays] < 0).any() or merge.have_texts(merge.old, bases[stays]):
        return None, None
    return ended, bases


def _ended_by_image(merge: _Merge, images: Images, is_open: NDArray[np.int64]) -> NDArray[np.int64] | None:
    """Find for the n-th closing of an image its n-th open copy, the newest first."""
    closing = np.nonzero(merge.flags("closes"))[0]
    if merge.have_texts(merge.old, is_open) or merge.have_texts(merge.new, closing):
        return None  # rescued texts are compared without those of dropped columns, in whatever order they are
    old_hashes, new_hashes = (
        hash_rows([columns[number].take(pa.array(rows)) for number in images.columns], len(rows))
        for columns, rows in ((merge.old, is_open), (merge.new, closing))
    )
    age = (-_numbers(merge.old[merge.before.sources.index(name)])[is_open] for name in ("start_lsn", "ordinal"))
    runs = _runs_of(old_hashes, new_hashes, *age)
    if runs is None:
        return None
    order, first, counts = runs
    some = np.nonzero(counts)[0]
    lsn, ordinal = merge.numbers("closes_lsn")[closing], merge.numbers("ordinal")[closing]
    some = some[np.lexsort((ordinal[some], lsn[some], first[some]))]
    nth = np.arange(len(some)) - np.searchsorted(first[some], first[some])  # equal images begin at the same place
    some, nth = some[nth < counts[some]], nth[nth < counts[some]]
    ended = np.full(merge.rows.num_rows, -1)
    ended[closing[some]] = is_open[order[first[some] + nth]]
    return ended
