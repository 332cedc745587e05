"""A small table that is rewritten as a whole: what is known of it, its rows, and which of them are equal.

Everything unusual is left to Spark: then the functions here return None.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from walreplay.sink.by_value import by_value
from walreplay.sink.data_files import FileColumn, as_named
from walreplay.sink.folders import Folder
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

    def bases(self, rows: pa.Table, old: Sequence[pa.Array]) -> list[pa.Array]:
        """Give the keys that folded rows had before the run, in the types of the table's columns."""
        return [
            as_named(contiguous(rows.column(f"b{place}")), old[number].type)
            for place, number in enumerate(self.columns)
        ]

    def compared(self, columns: Sequence[pa.Array]) -> list[pa.Array]:
        """Give the key's columns as they are compared."""
        forms = dict(self.forms)
        return [by_value(column, forms.get(place)) for place, column in enumerate(columns)]


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
class Versions:
    """How folded rows of a history match the versions that the table has (see `walreplay.sink.versions`).

    Attributes:
        rows: what tells the source's rows apart; None if nothing does.
        start_lsn: the number of the column with the LSN at which a version begins; likewise ``ordinal``, ``end_lsn``
            and ``end_at``.
        emptied: commit LSN and time (microseconds since 1970) of the first truncate, which ends all versions from
            before the run; None if there is none.
    """

    rows: Keys | Images | None
    start_lsn: int
    ordinal: int
    end_lsn: int
    end_at: int
    emptied: tuple[int, int] | None = None


@dataclass(frozen=True, slots=True)
class Before:
    """A table before the merge, and how folded rows match it.

    Attributes:
        folder: the table's; ``files`` are the names of its files there.
        columns: the table's columns.
        sources: for each of them, the name of the folded rows' column with its values.
        rescued: the number of the column with rescued texts; None if the table has none.
        rows: what tells rows apart.
    """

    folder: Folder
    files: tuple[str, ...]
    columns: tuple[FileColumn, ...]
    sources: tuple[str, ...]
    rescued: int | None
    rows: Keys | Images | Versions


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


def flags(rows: pa.Table, name: str, *, unknown: bool = False) -> NDArray[np.bool_]:
    """Give a folded rows' column of booleans, with a value for those that are NULL."""
    column = contiguous(rows.column(name))
    return np.asarray(column.fill_null(unknown).to_numpy(zero_copy_only=False), np.bool_)


def matches_of(
    old: Sequence[pa.Array], new: Sequence[pa.Array], lengths: tuple[int, int], *, with_null: bool = False
) -> NDArray[np.int64] | None:
    """Give for each new key the number of the equal old one, -1 for none; None if Spark has to match them.

    Args:
        lengths: how many old and new keys there are.
        with_null: NULL equals NULL, which it does not in SQL.
    """
    if not with_null and any(column.null_count for column in (*old, *new)):
        return None
    looked_up = runs_of(old, new, lengths)
    if looked_up is None:
        return None
    order, first, there = looked_up
    if (there > 1).any():
        return None
    return np.where(there > 0, order[np.minimum(first, len(order) - 1)], -1) if len(order) else np.full(len(first), -1)


def are_distinct(numbers: NDArray[np.int64]) -> bool:
    """Say whether no number of a row (not -1) is there twice."""
    some = numbers[numbers >= 0]
    return len(np.unique(some)) == len(some)


def joined(old: Sequence[pa.Array], new: Sequence[pa.Array]) -> tuple[pa.Array, ...]:
    """Put the values of two sets of rows behind each other, column by column."""
    return tuple(pa.concat_arrays([one, other]) for one, other in zip(old, new, strict=True))


def missing_of(lost: NDArray[np.bool_], deleted: NDArray[np.bool_]) -> dict[str, int]:
    """Count folded rows that the table should have had (`Rewritten.missing`), by whether they are deletes."""
    return {
        "without_base": int(np.count_nonzero(lost & ~deleted)),
        "deletes_without_row": int(np.count_nonzero(lost & deleted)),
    }


def in_ranges(first: NDArray[np.int64], counts: NDArray[np.int64]) -> NDArray[np.int64]:
    """Give the positions of several ranges, which begin at ``first`` and have ``counts`` positions each."""
    ends = np.cumsum(counts)
    total = int(ends[-1]) if len(ends) else 0
    return np.repeat(first - (ends - counts), counts) + np.arange(total)


def has_texts(column: pa.Array) -> bool:
    """Say whether any value is there."""
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
    (first, second), (wanted, checked) = hash_rows(old, lengths[0]), hash_rows(new, lengths[1])
    order = np.argsort(first, kind="stable") if rank is None else np.lexsort((rank, first))
    first, second = first[order], second[order]
    if ((first[1:] == first[:-1]) & (second[1:] != second[:-1])).any():
        return None
    begin, end = (np.searchsorted(first, wanted, side) for side in ("left", "right"))
    some = np.nonzero(end > begin)[0]
    if (second[begin[some]] != checked[some]).any():
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
    columns = [pa.concat_arrays(part) if part else pa.nulls(0, kind) for part, kind in zip(parts, kinds, strict=True)]
    return columns, lengths


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
