"""Turn rows of a relation version, or of the table before the run, into rows with the table's new columns.

Columns are taken, converted, or filled with NULL, as `walreplay.sink.evolution` says.  Rescued texts move with their
columns, and are tried again if the column's type has changed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from walreplay.decode.rescued import read_rescued, rescued_array
from walreplay.errors import CaptureError
from walreplay.sink.convert import convert
from walreplay.sink.evolution import TEXT, Source, conversions, converts
from walreplay.sink.identity import contiguous
from walreplay.sink.masking import mask

if TYPE_CHECKING:
    from walreplay.sink.events import Events
    from walreplay.types.base import ColumnType


@dataclass(frozen=True, slots=True)
class Projection:
    """How rows get the columns of the table.

    Attributes:
        numbers: for each new column, the number of the old column with its values; None for NULL.
        chains: for each new column, the types that its values go through (`walreplay.sink.evolution.conversions`).
        before: the old columns' names, under which `_rescued_data` has their texts.
        after: the new columns' names.
        rescues: the table has a column for rescued texts.
        fills: for each new column, the text that all rows have in it (`walreplay.sink.evolution.Source.fill`); empty
            if there is none for any.
    """

    numbers: tuple[int | None, ...]
    chains: tuple[tuple[ColumnType, ...], ...]
    before: tuple[str, ...]
    after: tuple[str, ...]
    rescues: bool = True
    fills: tuple[str | None, ...] = ()

    @classmethod
    def of(
        cls, sources: Sequence[Source], before: Sequence[str], after: Sequence[str], *, rescues: bool = True
    ) -> Projection:
        """Make a projection from sources that name the old columns by number, or by name in ``before``."""
        places = {name: number for number, name in enumerate(before)}
        numbers = tuple(places[one.column] if isinstance(one.column, str) else one.column for one in sources)
        chains, fills = tuple(one.chain for one in sources), tuple(one.fill for one in sources)
        return cls(numbers, chains, tuple(before), tuple(after), rescues, fills if any(map(_is_given, fills)) else ())

    @property
    def given(self) -> tuple[str | None, ...]:
        """What older rows are given in each column, as text; None for nothing."""
        return self.fills or (None,) * len(self.numbers)

    @property
    def is_identity(self) -> bool:
        """Whether nothing changes."""
        return (
            self.numbers == tuple(range(len(self.before)))
            and self.before == self.after
            and not any(map(converts, self.chains))
        )


def project_columns(
    columns: Sequence[pa.Array], rescued: pa.Array, rows: int, projection: Projection
) -> tuple[list[pa.Array], pa.Array]:
    """Give the new columns, and the rescued texts that belong to them (JSON, or NULL).

    Raises:
        CaptureError: a column's new type cannot hold a value, and the table has no column for rescued texts.
    """
    texts = _texts(rescued)
    result, found = [], dict[str, pa.Array]()
    each = zip(projection.numbers, projection.chains, projection.after, projection.given, strict=True)
    for number, chain, name, fill in each:
        if number is None and fill is None:
            result.append(pa.nulls(rows, chain[-1].arrow))
            continue
        if number is None:
            column, old = filled_column(str(fill), chain, rows)
        else:
            old = _of_column(texts, projection.before[number])
            column = contiguous(columns[number])
            for change in conversions(chain):
                column, old = convert(column, old, change)
        result.append(column)
        if old is not None and old.null_count < rows:
            if not projection.rescues:
                raise CaptureError(
                    f"the column {name!r} has another type now, which does not hold all of its values, and the table "
                    "has no column for such",
                    remedy="Give metadata_columns: rescued_data a name, and apply to a new target; or keep the "
                    "column's type by type_overrides",
                )
            found[name] = old
    return result, _joined(found, rows)


def filled_column(text: str, chain: Sequence[ColumnType], rows: int) -> tuple[pa.Array, pa.Array | None]:
    """Give a column that has one value in all rows, and the text in each if the column cannot hold it.

    Args:
        text: the value.
        chain: the types that it goes through, text first.
    """
    column, left = convert(pa.array([text], pa.string()), None, chain)
    every = pa.array(np.zeros(rows, np.int64))
    return column.take(every), None if left is None else left.take(every)


def hashed(text: str, column_type: ColumnType, salt: bytes) -> str:
    """Give what a masked column has for a value, from its text."""
    column, left = filled_column(text, (TEXT, column_type), 1)
    return str(mask(column, column_type, left, salt)[0].as_py())


def _is_given(fill: str | None) -> bool:
    return fill is not None


def project(events: Events, key: Sequence[int], projection: Projection, *, keyed: bool) -> Events:
    """Give events the table's columns.

    Args:
        key: the numbers of the key's columns among the events' own, in the order of ``old_key``.
        keyed: the table has a key.  Then a change leaves columns that its version does not have unchanged; otherwise
            they are NULL.  A column that is added behind the change has in its row what all older rows are given.
    """
    if projection.is_identity:
        return events
    columns, rescued = project_columns(events.columns, events.rescued, events.rows, projection)
    untouched = np.zeros(0, np.uint8)
    if keyed and None in projection.numbers:
        untouched = events.leaves_alone()
    unchanged = {}
    for number, (before, fill) in enumerate(zip(projection.numbers, projection.given, strict=True)):
        if before is None and fill is None and untouched.any():
            unchanged[number] = untouched
        elif before is not None and before in events.unchanged:
            unchanged[number] = events.unchanged[before]
    result = replace(events, columns=columns, rescued=rescued, unchanged=unchanged)
    if events.old_key is not None:
        chains = dict(zip(projection.numbers, projection.chains, strict=True))
        old_names = tuple(projection.before[number] for number in key)
        names = dict(zip(projection.numbers, projection.after, strict=True))
        old = Projection(
            tuple(range(len(key))),
            tuple(chains[number] for number in key),
            old_names,
            tuple(names[number] for number in key),
            projection.rescues,
        )
        assert events.old_rescued is not None
        result.old_key, result.old_rescued = project_columns(events.old_key, events.old_rescued, events.rows, old)
    return result


def _texts(rescued: pa.Array) -> list[dict[str, str]] | None:
    """Parse the rescued texts of each row; None if no row has any."""
    return None if rescued.null_count == len(rescued) else read_rescued(rescued)


def _of_column(texts: list[dict[str, str]] | None, name: str) -> pa.Array | None:
    if texts is None:
        return None
    found = pa.array([values.get(name) for values in texts], pa.string())
    return None if found.null_count == len(found) else found


def _joined(texts: dict[str, pa.Array], rows: int) -> pa.Array:
    if not texts:
        return pa.nulls(rows, pa.string())
    lists = {name: column.to_pylist() for name, column in texts.items()}
    return rescued_array(
        {name: column[row] for name, column in lists.items() if column[row] is not None} for row in range(rows)
    )
