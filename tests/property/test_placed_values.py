"""A value comes to its column the same, whether its row is placed by the walk or its column is read on its own."""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from property.test_values_binary import MOOD, SCALARS, numerics
from support.binary_cells import NOT_FINITE, Binary, Cell, Value, convert
from walreplay.changes import read_changes
from walreplay.decode.change_batch import read_rescued
from walreplay.protocol import messages as m
from walreplay.protocol.framing import Framing
from walreplay.protocol.writer import frame
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


def _sent(cells: list[Cell]) -> m.TupleData:
    return m.TupleData(
        tuple(
            m.Cell("n")
            if cell is None
            else m.Cell("b", bytes(cell))
            if isinstance(cell, Binary)
            else m.Cell("t", cell.encode() if isinstance(cell, str) else cell)
            for cell in cells
        )
    )


_Tables = list[tuple[list[str], list[list[Cell]]]]


@st.composite
def _captures(draw: st.DrawFn) -> tuple[list[m.AnyMessage], _Tables]:
    """Return a capture's messages, and of each table its columns' types and its rows' cells."""
    tables: _Tables = []
    messages: list[m.AnyMessage] = [m.Begin(100, 1, 7)]
    for number in range(draw(st.integers(1, 3))):
        kinds = draw(st.lists(st.sampled_from(list(_KINDS)), min_size=1, max_size=6))
        columns = tuple(
            m.Column(f"c{at}", _KINDS[kind].oid, _KINDS[kind].typmod, True) for at, kind in enumerate(kinds)
        )
        messages.append(m.Relation(100 + number, "s", f"t{number}", "f", columns))
        tables.append((kinds, []))
    for _ in range(draw(st.integers(1, 20))):
        number = draw(st.integers(0, len(tables) - 1))
        kinds, rows = tables[number]
        if draw(st.integers(0, 9)) == 0:
            messages.append(m.Truncate((100 + number,), 0))
            rows.append([None] * len(kinds))
            continue
        cells = [_cell(draw, kind) for kind in kinds]
        rows.append(cells)
        what = draw(st.sampled_from("IUDF"))
        if what == "I":
            messages.append(m.Insert(100 + number, _sent(cells)))
        elif what == "D":
            messages.append(m.Delete(100 + number, old=_sent(cells)))
        else:
            old = _sent([_cell(draw, kind) for kind in kinds]) if what == "F" else None
            messages.append(m.Update(100 + number, _sent(cells), old=old))
    messages.append(m.Commit(0, 100, 108, 1))
    return messages, tables


@given(_captures(), st.sampled_from(list(Framing)), st.sampled_from([64, 1 << 20]))
def test_a_placed_value_is_the_one_that_its_column_reads(
    capture: tuple[list[m.AnyMessage], _Tables], framing: Framing, tile_bytes: int
) -> None:
    messages, tables = capture
    batches = defaultdict(list)
    with TemporaryDirectory() as folder:
        path = Path(folder, "capture.bin")
        path.write_bytes(frame(messages, framing))
        for batch in read_changes(path, framing=framing, tile_bytes=tile_bytes):
            batches[batch.relation.name].append(batch)
    for number, (kinds, rows) in enumerate(tables):
        given_ = batches[f"t{number}"]
        assert sum(batch.data.num_rows for batch in given_) == len(rows)
        rescued = [
            row
            for batch in given_
            for row in (read_rescued(batch.rescued) if batch.rescued is not None else [{}] * batch.data.num_rows)
        ]
        for at, kind in enumerate(kinds if rows else ()):
            expected, misfits = convert(resolve(_KINDS[kind].oid, _KINDS[kind].typmod, {}), [row[at] for row in rows])
            found = pa.concat_arrays([batch.data.column(f"c{at}") for batch in given_])
            found.validate(full=True)
            assert repr(found.to_pylist()) == repr(expected.to_pylist())
            assert {row: one[f"c{at}"] for row, one in enumerate(rescued) if f"c{at}" in one} == {
                one.row: _ZONED.get(one.text, one.text) for one in misfits
            }
