"""Faults that somebody has put into a Delta table, one at a time, and what a comparison has to say of each.

They are written by delta-rs, as by another program, and by Spark where that one cannot.  `told` counts the differences
by Python's own texts of values.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from decimal import Decimal
from random import Random
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np
import pyarrow as pa
from deltalake import DeltaTable, write_deltalake

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def _next(value: float, kind: pa.DataType) -> float:
    if math.isnan(value) or (value == 0 and math.copysign(1, value) < 0):
        return 0.0
    if value == 0:
        return -0.0
    return float(np.nextafter(np.float32(value), np.float32(0))) if kind.bit_width == 32 else math.nextafter(value, 0)


def other(value: Any, kind: pa.DataType, chance: Random) -> Any:
    """Return a value of a type that is as like another one as can be, and not the same."""
    match value:
        case None:
            return _zero(kind)
        case bool():
            return not value
        case int():
            return value ^ 1
        case float():
            return _next(value, kind)
        case Decimal():
            return value + (-1 if value > 0 else 1) * Decimal(1).scaleb(-kind.scale)
        case str():
            return value + chance.choice((" ", "x", "\0")) if chance.random() < 0.7 or not value else value[:-1]
        case bytes():
            return value + b"\0"
        case datetime():
            return value + timedelta(microseconds=-1 if value.year > 5000 else 1)
        case date():
            return value + timedelta(days=-1 if value.year > 5000 else 1)
        case list():
            place = chance.randrange(len(value) + 1)
            changed = [None] if place == len(value) else [other(value[place], kind.value_type, chance)]
            return [*value[:place], *changed, *value[place + 1 :]]
        case dict():
            field = chance.choice([field for field in kind if not pa.types.is_null(field.type)])
            return {**value, field.name: other(value[field.name], field.type, chance)}
    raise AssertionError(kind)


def _zero(kind: pa.DataType) -> Any:
    if pa.types.is_struct(kind):
        return {field.name: None for field in kind}
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        return []
    if pa.types.is_temporal(kind):
        return pa.scalar(0, pa.int32() if pa.types.is_date(kind) else pa.int64()).cast(kind).as_py()
    if pa.types.is_string(kind) or pa.types.is_large_string(kind):
        return ""
    if pa.types.is_binary(kind) or pa.types.is_large_binary(kind):
        return b""
    return pa.scalar(0, pa.int32()).cast(kind).as_py()


class Spot(NamedTuple):
    """Where a fault is put: the rows and the columns that may have it."""

    rows: Sequence[int]
    columns: Sequence[str]
    key: Sequence[str]
    chance: Random

    @property
    def rescued(self) -> Sequence[str]:
        """The column of values that their columns could not hold; none where it is not compared."""
        return [name for name in self.columns if name == "_rescued_data"]


def _with(table: pa.Table, name: str, values: Mapping[int, Any]) -> pa.Table:
    column = table.column(name).combine_chunks()
    kept = [column.slice(n, 1) if n not in values else pa.array([values[n]], column.type) for n in range(len(column))]
    return table.set_column(table.column_names.index(name), table.field(name), pa.chunked_array(kept, column.type))


def _changed(
    table: pa.Table, spot: Spot, columns: Sequence[str], wants: Callable[[Any], bool], new: Callable[..., Any]
) -> pa.Table | None:
    cells = [(row, name) for name in columns for row in spot.rows if wants(table[name][row].as_py())]
    if not cells:
        return None
    row, name = spot.chance.choice(cells)
    return _with(table, name, {row: new(table[name][row].as_py(), table.field(name).type, spot.chance)})


def _swapped(table: pa.Table, spot: Spot, columns: Sequence[str]) -> pa.Table | None:
    if len(spot.rows) < 2 or not columns:
        return None
    a, b = spot.chance.sample(list(spot.rows), 2)
    for name in columns:
        table = _with(table, name, {a: table[name][b].as_py(), b: table[name][a].as_py()})
    return table


def _without(table: pa.Table, rows: set[int]) -> pa.Table:
    return table.take(pa.array([row for row in range(table.num_rows) if row not in rows], pa.int64()))


FAULTS: Final[Mapping[str, Callable[[pa.Table, Spot], pa.Table | None]]] = {
    "a cell": lambda t, s: _changed(t, s, s.columns, lambda value: value is not None, other),
    "NULL for a value": lambda t, s: _changed(t, s, s.columns, lambda value: value is not None, lambda *_: None),
    "a value for NULL": lambda t, s: _changed(t, s, s.columns, lambda value: value is None, other),
    "a key": lambda t, s: _changed(t, s, s.key, lambda value: value is not None, other),
    "a rescued text": lambda t, s: _changed(t, s, s.rescued, lambda value: value is not None, other),
    "keys swapped": lambda t, s: _swapped(t, s, s.key),
    "cells swapped": lambda t, s: _swapped(t, s, [s.chance.choice(s.columns)]),
    "a row gone": lambda t, s: _without(t, {s.chance.choice(s.rows)}) if s.rows else None,
    "all rows gone": lambda t, s: _without(t, set(s.rows)) if s.rows else None,
    "a row doubled": lambda t, s: pa.concat_tables([t, t.slice(s.chance.choice(s.rows), 1)]) if s.rows else None,
}
"""What becomes of a table, or None if there is nothing in it that it can happen to."""


class Difference(NamedTuple):
    """What is to be told of a table; ``columns`` is None where keys of several rows leave open which are matched."""

    missing: int
    extra: int
    changed: int
    columns: Mapping[str, int] | None


def told(expected: pa.Table, present: pa.Table, key: Sequence[str]) -> Difference:
    """Return how two tables with the same columns differ."""
    names = expected.column_names
    places = [names.index(name) for name in key]
    sides = [Counter(zip(*map(_texts, side.columns), strict=True)) for side in (expected, present)]
    left = [list((one - two).elements()) for one, two in (sides, sides[::-1])]
    by_key: dict[tuple[str, ...], list[list[tuple[str, ...]]]] = defaultdict(lambda: [[], []])
    for number, rows in enumerate(left):
        for row in rows:
            by_key[tuple(row[place] for place in places) if key else row][number].append(row)
    matched = [pair for pair in by_key.values() if all(pair)]
    changed = sum(min(map(len, pair)) for pair in matched)
    columns = Counter(n for old, new in matched for n, a, b in zip(names, old[0], new[0], strict=True) if a != b)
    is_open = any(len(rows) > 1 for pair in matched for rows in pair)
    return Difference(len(left[0]) - changed, len(left[1]) - changed, changed, None if is_open else columns)


def _texts(column: pa.ChunkedArray) -> list[str]:
    return [repr(value) for value in column.to_pylist()]


@dataclass(frozen=True)
class PlantedTable:
    """A table of a target, by its place: a path, or its name in a catalog.

    Attributes:
        key: the columns by which its rows are matched.
        left_out: columns that are not compared.
        is_open: only rows of which this column is NULL are compared; None for all.
        spark: tables in a catalog, and those whose columns have other names in their files, need it.
        source: of a table that is shared, only rows of this source are compared.
        store: what delta-rs has to know of an object store.
    """

    spark: SparkSession | None
    path: str
    key: Sequence[str]
    left_out: Callable[[str], bool]
    is_open: str | None = None
    source: str | None = None
    store: dict[str, str] | None = None

    def plant(self, fault: str, chance: Random) -> tuple[Difference, Callable[[], object]] | None:
        """Put a fault into the table; return what is to be told, and what takes it back; None if it cannot be."""
        path = self.path
        if not path.startswith(("/", "s3a:")):  # in a catalog
            name = ".".join(f"`{part}`" for part in path.split("."))
            path = self.spark.sql(f"DESCRIBE DETAIL {name}").first()["location"].removeprefix("file:")
        delta = DeltaTable(path, storage_options=self.store)
        version, protocol = delta.version(), delta.protocol()
        by_spark = protocol.min_reader_version == 2 or "columnMapping" in (protocol.reader_features or ())
        whole = self.spark.read.format("delta").load(path).toArrow() if by_spark else delta.to_pyarrow_table()
        names = [name for name in whole.column_names if name != "__source" and not self.left_out(name)]
        spot = Spot(self._rows(whole), names, [name for name in self.key if name in names], chance)
        faulty = FAULTS[fault](whole, spot)
        if faulty is None:
            return None
        if by_spark:
            self.spark.createDataFrame(faulty).write.format("delta").mode("overwrite").save(path)
            restore = f"RESTORE TABLE delta.`{path}` TO VERSION AS OF {version}"
            undo: Callable[[], object] = lambda: self.spark.sql(restore)  # noqa: E731
        else:
            write_deltalake(path, faulty, mode="overwrite", storage_options=self.store)
            undo = lambda: DeltaTable(path, storage_options=self.store).restore(version)  # noqa: E731
        sides = [side.take(pa.array(self._rows(side), pa.int64())).select(names) for side in (whole, faulty)]
        return told(sides[0], sides[1], spot.key), undo

    def _rows(self, table: pa.Table) -> list[int]:
        compared = {self.is_open: (None, False), "__source": (self.source,)}
        filters = [(table[name], kept) for name, kept in compared.items() if name in table.column_names]
        return [row for row in range(table.num_rows) if all(of[row].as_py() in kept for of, kept in filters)]
