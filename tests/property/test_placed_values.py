"""Each row comes to its relation's columns as it was sent, whatever stands beside it in a tile.

A value comes to its column the same, whether its row is placed by the walk or its column is read on its own.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple
from unittest import mock

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from property.test_values_binary import MOOD, SCALARS, numerics
from support.binary_cells import NOT_FINITE, Binary, Cell, Value, convert
from support.framings import frame
from walreplay.changes import read_changes
from walreplay.decode import gathered, placing
from walreplay.decode.change_batch import ChangeBatch, read_rescued
from walreplay.protocol import messages as m
from walreplay.protocol.framing import Framing
from walreplay.types import resolve


class _Kind(NamedTuple):
    """A column's type, and what it may hold."""

    oid: int
    typmod: int
    values: st.SearchStrategy[Value]


_KINDS = {
    **{resolve(oid, -1, {}).postgres_name: _Kind(oid, -1, SCALARS[oid]) for oid in SCALARS if oid < MOOD},
    **{
        f"numeric({precision},{scale})": _Kind(
            1700,
            (precision << 16 | scale) + 4,
            st.one_of(numerics(precision, scale), numerics(precision, scale), st.sampled_from(NOT_FINITE)),
        )
        for precision, scale in ((9, 2), (18, 0), (30, 9))
    },
}

_ZONED = {
    "2026-05-01 00:00:00+02": "2026-04-30 22:00:00+00",
    "1900-01-01 00:00:00.5-03:30": "1900-01-01 03:30:00.5+00",
    "1850-06-01 12:00:00+00:53:28": "1850-06-01 11:06:32+00",
    "0001-01-01 00:00:00+15:59": "0001-12-31 08:01:00+00 BC",
    "9999-12-31 23:59:59.000001-00:30": "10000-01-01 00:29:59.000001+00",
    "0044-03-15 01:00:00+02 BC": "0044-03-14 23:00:00+00 BC",
}
"""Moments as a session with another time zone writes them, and in UTC: what is rescued hangs on no settings."""


def _cell(draw: st.DrawFn, name: str) -> Cell:
    if draw(st.integers(0, 7)) == 0:
        return None
    if _KINDS[name].oid == 1184 and draw(st.integers(0, 3)) == 0:
        return draw(st.sampled_from(list(_ZONED)))
    value = draw(_KINDS[name].values)
    return Binary(value.binary) if draw(st.integers(0, 2)) == 0 else value.text


class _Row(NamedTuple):
    """A change.

    Attributes:
        cells: the row's; of an update what is unchanged has the old row's value, where there is one.
        unchanged: the places of the columns whose values nothing tells.
        old: the cells of the old row that an update brings.
    """

    op: str
    cells: list[Cell]
    unchanged: frozenset[int] = frozenset()
    old: list[Cell] | None = None


_Tables = list[tuple[list[str], list[_Row]]]
"""Each table's columns' types, and its rows."""


def _sent(cells: list[Cell], unchanged: frozenset[int] = frozenset()) -> m.TupleData:
    def cell(at: int, value: Cell) -> m.Cell:
        if at in unchanged:
            return m.UNCHANGED_CELL
        if value is None:
            return m.NULL_CELL
        if isinstance(value, Binary):
            return m.Cell("b", bytes(value))
        return m.Cell("t", value.encode() if isinstance(value, str) else value)

    return m.TupleData(tuple(cell(at, value) for at, value in enumerate(cells)))


@st.composite
def _captures(draw: st.DrawFn) -> tuple[list[m.AnyMessage], _Tables]:
    """Return a capture's messages, and its tables."""
    tables: _Tables = []
    messages: list[m.AnyMessage] = [m.Begin(100, 1, 7)]
    for number in range(draw(st.integers(1, 4))):
        kinds = draw(st.lists(st.sampled_from(list(_KINDS)), max_size=6))
        columns = tuple(
            m.Column(f"c{at}", _KINDS[kind].oid, _KINDS[kind].typmod, True) for at, kind in enumerate(kinds)
        )
        messages.append(m.Relation(100 + number, "s", f"t{number}", "f", columns))
        tables.append((kinds, []))
    for _ in range(draw(st.integers(1, 25))):
        number = draw(st.integers(0, len(tables) - 1))
        oid, (kinds, rows) = 100 + number, tables[number]
        what = draw(st.sampled_from("cccuuuuuuddt"))
        cells = [None if what == "t" else _cell(draw, kind) for kind in kinds]
        if what == "u":
            gone = frozenset(at for at in range(len(kinds)) if draw(st.integers(0, 5)) == 0)
            old = [_cell(draw, kind) for kind in kinds] if draw(st.booleans()) else None
            messages.append(m.Update(oid, _sent(cells, gone), old=None if old is None else _sent(old)))
            cells = [(old[at] if old else None) if at in gone else cell for at, cell in enumerate(cells)]
            rows.append(_Row("u", cells, frozenset(at for at in gone if cells[at] is None), old))
            continue
        rows.append(_Row(what, cells))
        sent = {"c": m.Insert(oid, _sent(cells)), "d": m.Delete(oid, old=_sent(cells)), "t": m.Truncate((oid,), 0)}
        messages.append(sent[what])
    messages.append(m.Commit(0, 100, 108, 1))
    return messages, tables


@contextmanager
def _little_room(rows: int, pending: int) -> Iterator[None]:
    with (
        mock.patch.object(gathered, "_MIN_ROWS", rows),
        mock.patch.object(gathered, "BATCH_ROWS", 4 * rows),
        mock.patch.object(placing, "LEAST_PENDING", pending),
        mock.patch.object(placing, "MOST_PENDING", 2 * pending),
    ):
        yield


_room = st.tuples(st.integers(1, 8) | st.just(1 << 17), st.integers(1, 8) | st.just(1 << 12))


@given(_captures(), st.sampled_from(list(Framing)), st.sampled_from([64, 1 << 10, 1 << 20]), _room)
def test_a_placed_value_is_the_one_that_its_column_reads(
    capture: tuple[list[m.AnyMessage], _Tables], framing: Framing, tile_bytes: int, room: tuple[int, int]
) -> None:
    messages, tables = capture
    batches = defaultdict[str, list[ChangeBatch]](list)
    with TemporaryDirectory() as folder, _little_room(*room):
        path = Path(folder, "capture.bin")
        path.write_bytes(frame(messages, framing))
        for batch in read_changes(path, framing=framing, tile_bytes=tile_bytes):
            batches[batch.relation.name].append(batch)
    assert batches.keys() == {f"t{number}" for number, (_, rows) in enumerate(tables) if rows}
    for number, (kinds, rows) in enumerate(tables):
        if rows:
            _check(batches[f"t{number}"], kinds, rows)


def _check(batches: list[ChangeBatch], kinds: list[str], rows: list[_Row]) -> None:
    names = [f"c{at}" for at in range(len(kinds))]
    assert [op for batch in batches for op in batch.data.column("__op").to_pylist()] == [row.op for row in rows]
    rescued, unchanged, olds = list[dict[str, str]](), list[frozenset[int]](), dict[int, int]()
    for batch in batches:
        if batch.before is not None:
            of_batch = batch.before.column("__row").to_pylist()
            olds |= {len(unchanged) + row: len(olds) + at for at, row in enumerate(of_batch)}
        masks = {at: batch.unchanged[name].to_pylist() for at, name in enumerate(names) if name in batch.unchanged}
        size = batch.data.num_rows
        unchanged += [frozenset(at for at, mask in masks.items() if mask[row]) for row in range(size)]
        rescued += read_rescued(batch.rescued) if batch.rescued is not None else [{}] * size
    assert unchanged == [row.unchanged for row in rows]
    assert list(olds) == [at for at, row in enumerate(rows) if row.old is not None]
    befores = [batch.before for batch in batches if batch.before is not None]
    texts = [
        text
        for batch in batches
        if batch.before is not None
        for text in (
            [{}] * batch.before.num_rows if batch.before_rescued is None else read_rescued(batch.before_rescued)
        )
    ]
    for at, name in enumerate(names):
        found = pa.concat_arrays([batch.data.column(name) for batch in batches])
        _assert_reads(found, rescued, kinds[at], name, [row.cells[at] for row in rows])
        if befores:
            found = pa.concat_arrays([before.column(name) for before in befores])
            _assert_reads(found, texts, kinds[at], name, [row.old[at] for row in rows if row.old is not None])


def _assert_reads(found: pa.Array, rescued: list[dict[str, str]], kind: str, name: str, cells: list[Cell]) -> None:
    """Compare a column with the one that is read of its cells alone."""
    expected, misfits = convert(resolve(_KINDS[kind].oid, _KINDS[kind].typmod, {}), cells)
    found.validate(full=True)
    assert repr(found.to_pylist()) == repr(expected.to_pylist())
    assert {row: one[name] for row, one in enumerate(rescued) if name in one} == {
        one.row: _ZONED.get(one.text, one.text) for one in misfits
    }
