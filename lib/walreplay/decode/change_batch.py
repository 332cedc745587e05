"""Row changes of one relation version, as Arrow columns, and where their rows come from.

A row's place is one word from the walk: the number of its origin in the upper half, the message's offset in the walked
bytes in the lower.  `WalkedBytes` says which bytes these are, `RowPlaces` has a batch's places.  Values that their
columns' types cannot hold are *rescued*: for each row a JSON object of column names and PostgreSQL's texts.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from walreplay.decode.placing import empty
from walreplay.names import free_names
from walreplay.protocol import messages as m
from walreplay.types import ColumnType, resolve
from walreplay.types.registry import DEFAULT_OPTIONS, TypeOptions

if TYPE_CHECKING:
    from numpy.typing import NDArray


_HALF: Final = 32
_OFFSET: Final = (1 << _HALF) - 1


@dataclass(frozen=True, slots=True)
class WalkedBytes:
    """Bytes that are walked.

    Attributes:
        path: the file that they lie in, from ``base`` on.  What lies before its start, below zero, lies in another one:
            ``before`` names it, with the bytes' offset there.
        base: None where all bytes lie in the other one.

    A message whose frame begins in front of the file, and which itself begins in a file between that one and this, is
    said to begin in the first of the three, behind its end.
    """

    path: str
    base: int | None = 0
    before: tuple[str, int] = ("", 0)


@dataclass(frozen=True, slots=True)
class Places:
    """Where rows come from; three columns of one length.

    Attributes:
        origin: the replication origin of the row's transaction, NULL for one made on the server itself.
        path: the file that the row's message begins in, ``offset`` bytes (decompressed) from its start.
    """

    origin: pa.Array
    path: pa.Array
    offset: pa.Array

    def slice(self, start: int, count: int) -> Places:
        """Return some of the rows."""
        return Places(*(column.slice(start, count) for column in (self.origin, self.path, self.offset)))


class RowPlaces:
    """The places of rows that are gathered.

    Args:
        origins: what the numbers of origins mean; it may grow.
    """

    def __init__(self, origins: Sequence[str | None]) -> None:
        self._origins = origins
        self._words = empty(0, np.int64)
        self._stretches: list[tuple[int, WalkedBytes]] = []

    @property
    def address(self) -> int:
        """Where the kernels write the words."""
        return self._words.ctypes.data

    def reserve(self, capacity: int, rows: int) -> None:
        """Make room for so many rows, and keep the first ones."""
        words, self._words = self._words, empty(capacity, np.int64)
        self._words[:rows] = words[:rows]

    def enter(self, row: int, stretch: WalkedBytes) -> None:
        """Note which bytes the rows from one on come from."""
        if not self._stretches or self._stretches[-1][1] != stretch:
            self._stretches.append((row, stretch))

    def finish(self, rows: int) -> Places:
        """Return the places of the gathered rows, and begin anew."""
        words = self._words[:rows].copy()  # the kernels go on writing to the array
        offsets, path_numbers = words & _OFFSET, np.zeros(rows, np.int32)
        paths: dict[str, int] = {}
        stops = [row for row, _ in self._stretches[1:]] + [rows]
        for (start, stretch), stop in zip(self._stretches, stops, strict=True):
            span = slice(start, stop)
            walked_offsets, base = offsets[span], stretch.base
            # Without a base, all messages begin in the earlier file.
            in_front = np.full(len(walked_offsets), True) if base is None else walked_offsets + base < 0
            path, earlier_offset = stretch.before
            path_numbers[span] = np.where(in_front, paths.setdefault(path, len(paths)), -1) if in_front.any() else -1
            in_file = ~in_front
            if in_file.any():
                path_numbers[span][in_file] = paths.setdefault(stretch.path, len(paths))
            offsets[span] = np.where(in_front, walked_offsets + earlier_offset, walked_offsets + (base or 0))
        self._stretches = [(0, self._stretches[-1][1])] if self._stretches else []  # the next batch may go on in it
        origin = (words >> _HALF).astype(np.int32)
        named = pa.DictionaryArray.from_arrays
        return Places(
            # Number 0 is no origin: the row was made on the server itself.
            named(pa.array(origin, mask=origin == 0), pa.array(self._origins, pa.string())),
            named(pa.array(path_numbers), pa.array(list(paths), pa.string())),
            pa.array(offsets),
        )


OP: Final = "__op"
COMMIT_LSN: Final = "__commit_lsn"
COMMIT_TS: Final = "__commit_ts"
XID: Final = "__xid"
ORDINAL: Final = "__ordinal"
ROW: Final = "__row"

METADATA_NAMES: Final = (OP, COMMIT_LSN, COMMIT_TS, XID, ORDINAL)

METADATA_COLUMNS: Final = len(METADATA_NAMES)
"""`ChangeBatch.data` begins with so many: operation, commit LSN and time, xid and ordinal."""

TIMESTAMP: Final = pa.timestamp("us", "UTC")


@dataclass(frozen=True, slots=True)
class ChangeBatch:
    """Row changes of one relation version, in stream order.

    Attributes:
        relation: the version; ``relation.columns`` are the typed columns of ``data``, in their order.
        data: ``__op`` (c, u, d, t: insert, update, delete, truncate), ``__commit_lsn`` (int64), ``__commit_ts``
            (timestamp[us, UTC]), ``__xid``, ``__ordinal`` (int64; the change's number in its transaction), then
            the relation's columns, under the names that `field_names` gives.  A delete has what was sent of the old
            row (its key, or all of it), a truncate only NULLs.
        unchanged: for each column that has any (by the name that it has in the relation), which rows hold unchanged
            TOAST: NULL in ``data``, but not NULL in the table.
        before: old tuples of updates, where they were sent: ``__row`` (the row in ``data``), then the relation's
            columns; under replica identity full the whole old row, else its key.  None when there are none.
        rescued: for each row, a JSON object of the values that their columns' types cannot hold, as PostgreSQL's
            text, or NULL; names are the relation's.  None when there are none; likewise ``before_rescued``.
        places: where each row comes from, if somebody wants to know.
    """

    relation: m.Relation
    data: pa.RecordBatch
    unchanged: Mapping[str, pa.Array] = field(default_factory=dict)
    before: pa.RecordBatch | None = None
    rescued: pa.Array | None = None
    before_rescued: pa.Array | None = None
    places: Places | None = None

    # By place: the relation may have columns of any names.

    @property
    def ops(self) -> pa.Array:
        """The operations, ``__op``."""
        return self.data.column(0)

    @property
    def commit_lsns(self) -> pa.Array:
        """The commit LSNs, ``__commit_lsn``."""
        return self.data.column(1)

    @property
    def commit_times(self) -> pa.Array:
        """The commit times, ``__commit_ts``."""
        return self.data.column(2)

    @property
    def ordinals(self) -> pa.Array:
        """The changes' numbers in their transactions, ``__ordinal``."""
        return self.data.column(METADATA_COLUMNS - 1)

    @property
    def columns(self) -> list[pa.Array]:
        """The relation's columns, in their order."""
        return list(self.data.columns[METADATA_COLUMNS:])

    @property
    def before_rows(self) -> pa.Array:
        """The rows that have old tuples, ``__row``; to be asked where there is ``before``."""
        assert self.before is not None
        return self.before.column(0)

    @property
    def before_columns(self) -> list[pa.Array]:
        """The relation's columns of the old tuples, in their order; to be asked where there is ``before``."""
        assert self.before is not None
        return list(self.before.columns[1:])

    def slice(self, start: int, stop: int) -> ChangeBatch:
        """Return some of the rows; they are not copied."""
        if start == 0 and stop == self.data.num_rows:
            return self
        count = stop - start
        unchanged = {name: mask.slice(start, count) for name, mask in self.unchanged.items()}
        before = before_rescued = None
        if self.before is not None:
            rows = self.before_rows.to_numpy()
            first_tuple, stop_tuple = np.searchsorted(rows, [start, stop]).tolist()
            if first_tuple < stop_tuple:
                columns = self.before.slice(first_tuple, stop_tuple - first_tuple).columns
                row_numbers = pa.array(rows[first_tuple:stop_tuple] - start)  # `__row` counts from the slice's start
                before = pa.RecordBatch.from_arrays([row_numbers, *columns[1:]], names=self.before.schema.names)
                before_rescued = _if_any(self.before_rescued, first_tuple, stop_tuple)
        return ChangeBatch(
            self.relation,
            self.data.slice(start, count),
            {name: mask for name, mask in unchanged.items() if mask.true_count},
            before,
            _if_any(self.rescued, start, stop),
            before_rescued,
            None if self.places is None else self.places.slice(start, count),
        )

    def truncates(self) -> list[tuple[int, int]]:
        """Return commit LSN and ordinal of each truncate."""
        rows = self._truncates
        return list(zip(self.commit_lsns.take(rows).to_pylist(), self.ordinals.take(rows).to_pylist(), strict=True))

    def between_truncates(self) -> Iterator[ChangeBatch]:
        """Yield the changes in front of, between and behind the truncates."""
        for start, stop in pairwise([-1, *self._truncates.tolist(), self.data.num_rows]):  # with an end on either side
            if start + 1 < stop:
                yield self.slice(start + 1, stop)

    @property
    def _truncates(self) -> NDArray[np.int64]:
        return np.nonzero(pc.equal(self.ops, "t").to_numpy(zero_copy_only=False))[0]


def behind(batches: Iterable[ChangeBatch], rows_to_skip: Callable[[ChangeBatch], int]) -> Iterator[ChangeBatch]:
    """Leave out the first rows of each batch, as many as `rows_to_skip` says."""
    for batch in batches:
        rows, skipped = batch.data.num_rows, rows_to_skip(batch)
        if skipped < rows:
            yield batch.slice(skipped, rows)


def field_names(relation: m.Relation) -> list[str]:
    """Return the names that a relation's columns have in `ChangeBatch.data` and ``before``: their own.

    But one that is called like a column of ours gets a suffix, ``__2`` or the first number behind it that is free, as
    in a mirror table (`walreplay.names`).  Arrow tells upper from lower case.
    """
    return free_names((column.name for column in relation.columns), {*METADATA_NAMES, ROW})


def _if_any(values: pa.Array | None, start: int, stop: int) -> pa.Array | None:
    """Return some of the values, if one of them is not NULL."""
    part = None if values is None else values.slice(start, stop - start)
    return None if part is None or part.null_count == len(part) else part  # as if no row had one


def column_types(
    relation: m.Relation, types: Mapping[int, m.Type], options: TypeOptions = DEFAULT_OPTIONS
) -> list[ColumnType]:
    """Return the types of a relation's columns, its domains and enums told by the Type messages.

    Args:
        options: what the configuration says of the table.
    """
    return types_by_names(relation, type_names(types), options)


def types_by_names(
    relation: m.Relation, names: Mapping[int, tuple[str, str]], options: TypeOptions = DEFAULT_OPTIONS
) -> list[ColumnType]:
    """Return the types of a relation's columns, where the names of types are known by oid."""
    return [
        resolve(column.type_oid, column.typmod, names, options=options, override=options.override_of(column.name))
        for column in relation.columns
    ]


def type_names(types: Mapping[int, m.Type]) -> dict[int, tuple[str, str]]:
    """Return the (namespace, name) that Type messages announced, by oid."""
    return {oid: (type_.namespace, type_.name) for oid, type_ in types.items()}


# Rescued values

# It matches other escapes, too, so that an escaped backslash in front of a u does not count as one.
_ESCAPE: Final = re.compile(r"\\(?:u([0-9a-f]{4})|.)")


def read_rescued(rescued: pa.Array) -> list[dict[str, str]]:
    """Parse the objects of all rows; a row without one gets an empty dictionary."""
    return [{} if text is None else json.loads(text) for text in rescued.to_pylist()]


def rescued_json(values: Mapping[str, Any]) -> str:
    """Write an object as Spark's `to_json` writes one with sorted names: equal objects have to be equal texts."""
    text = json.dumps(values, ensure_ascii=False, sort_keys=True, separators=(",", ":"))
    return _ESCAPE.sub(_in_capitals, text) if "\\u" in text else text


def _in_capitals(escape: re.Match[str]) -> str:
    return escape[0] if escape[1] is None else f"\\u{escape[1].upper()}"  # as Jackson, Spark's writer, does


def rescued_array(rows: Iterable[Mapping[str, str]]) -> pa.Array:
    """Write an object for each row, NULL for an empty one."""
    return pa.array([rescued_json(values) if values else None for values in rows], pa.string())


def rescued_of(rescued: pa.Array, names: Sequence[str]) -> pa.Array | None:
    """Return only the rescued texts of some columns, in the order of ``names``; None if there are none."""
    if rescued.null_count == len(rescued):
        return None
    rows_with_text = np.nonzero(rescued.is_valid().to_numpy(zero_copy_only=False))[0]
    rows = read_rescued(rescued.take(pa.array(rows_with_text)))
    chosen = rescued_array({name: values[name] for name in names if name in values} for values in rows)
    return spread(chosen, rows_with_text, len(rescued))


def spread(values: pa.Array, positions: Sequence[int] | NDArray[np.int64], rows: int) -> pa.Array:
    """Return a column of `rows` rows with `values` at the rows `positions`, and NULL elsewhere."""
    index = np.full(rows, -1, np.int64)  # -1: NULL
    index[positions] = np.arange(len(values))
    return values.take(pa.array(index, mask=index < 0))
