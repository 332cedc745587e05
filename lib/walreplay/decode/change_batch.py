"""Row changes of one relation version, as Arrow columns."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final

import numpy as np
import pyarrow as pa

from walreplay.decode.row_places import Places
from walreplay.names import free_names
from walreplay.protocol import messages as m
from walreplay.types import ColumnType, resolve
from walreplay.types.registry import DEFAULT_OPTIONS, TypeOptions

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
        """Give some of the rows; they are not copied."""
        if start == 0 and stop == self.data.num_rows:
            return self
        count = stop - start
        unchanged = {name: mask.slice(start, count) for name, mask in self.unchanged.items()}
        before = before_rescued = None
        if self.before is not None:
            rows = self.before_rows.to_numpy()
            first, last = np.searchsorted(rows, [start, stop]).tolist()
            if first < last:
                columns = self.before.slice(first, last - first).columns
                own = pa.array(rows[first:last] - start)
                before = pa.RecordBatch.from_arrays([own, *columns[1:]], names=self.before.schema.names)
                before_rescued = _if_any(self.before_rescued, first, last)
        return ChangeBatch(
            self.relation,
            self.data.slice(start, count),
            {name: mask for name, mask in unchanged.items() if mask.true_count},
            before,
            _if_any(self.rescued, start, stop),
            before_rescued,
            None if self.places is None else self.places.slice(start, count),
        )


def behind(batches: Iterable[ChangeBatch], known_rows: Callable[[ChangeBatch], int]) -> Iterator[ChangeBatch]:
    """Leave out the first rows of each batch, as many as are known."""
    for batch in batches:
        rows, known = batch.data.num_rows, known_rows(batch)
        if known < rows:
            yield batch.slice(known, rows)


def field_names(relation: m.Relation) -> list[str]:
    """Give the names that a relation's columns have in `ChangeBatch.data` and ``before``: their own.

    But one that is called like a column of ours gets a suffix, ``__2`` or the first number behind it that is free, as
    in a mirror table (`walreplay.names`).  Arrow tells upper from lower case.
    """
    return free_names((column.name for column in relation.columns), {*METADATA_NAMES, ROW})


def _if_any(values: pa.Array | None, start: int, stop: int) -> pa.Array | None:
    """Give some of the values, if one of them is not NULL."""
    found = None if values is None else values.slice(start, stop - start)
    return None if found is None or found.null_count == len(found) else found


def column_types(
    relation: m.Relation, types: Mapping[int, m.Type], options: TypeOptions = DEFAULT_OPTIONS
) -> list[ColumnType]:
    """Give the types of a relation's columns, its domains and enums told by the Type messages.

    Args:
        options: what the configuration says of the table.
    """
    return types_by_names(relation, type_names(types), options)


def types_by_names(
    relation: m.Relation, names: Mapping[int, tuple[str, str]], options: TypeOptions = DEFAULT_OPTIONS
) -> list[ColumnType]:
    """Give the types of a relation's columns, where the names of types are known by oid."""
    return [
        resolve(column.type_oid, column.typmod, names, options=options, override=options.override_of(column.name))
        for column in relation.columns
    ]


def type_names(types: Mapping[int, m.Type]) -> dict[int, tuple[str, str]]:
    """Give the (namespace, name) that Type messages announced, by oid."""
    return {oid: (type_.namespace, type_.name) for oid, type_ in types.items()}
