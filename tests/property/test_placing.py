"""Whatever stands side by side in a tile, each row comes to its relation's columns as it was sent."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from unittest import mock

from hypothesis import given
from hypothesis import strategies as st

from walreplay.changes import read_changes
from walreplay.decode import gathered, placing
from walreplay.protocol import messages as m
from walreplay.protocol.framing import Framing
from walreplay.protocol.writer import frame

_WIDTHS = {21: 2, 23: 4, 20: 8}
_TEXT, _BOOL = 25, 16
_TEXTS = st.one_of(
    st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=40), st.just("größe" * 5), st.just("x" * 99)
)
_UNCHANGED = object()


def _values(oid: int) -> st.SearchStrategy[Any]:
    if oid in _WIDTHS:
        limit = 1 << (8 * _WIDTHS[oid] - 1)
        return st.one_of(st.integers(-limit, limit - 1), st.sampled_from([-limit, limit - 1, 0, -1]))
    return _TEXTS if oid == _TEXT else st.booleans()


def _cell(draw: st.DrawFn, oid: int, value: object) -> m.Cell:
    if value is None or value is _UNCHANGED:
        return m.Cell("n" if value is None else "u")
    binary = draw(st.booleans())
    if isinstance(value, bool):
        return m.Cell("b", bytes([value])) if binary else m.Cell("t", b"t" if value else b"f")
    if isinstance(value, int):
        width = _WIDTHS[oid]
        return m.Cell("b", value.to_bytes(width, "big", signed=True)) if binary else m.Cell("t", b"%d" % value)
    return m.Cell("b" if binary else "t", str(value).encode())


Row = list[Any]


@st.composite
def _captures(draw: st.DrawFn) -> tuple[list[m.AnyMessage], dict[str, list[tuple[str, Row, Row | None]]]]:
    """Return a capture's messages, and of each relation (operation, row, old row of an update)."""
    kinds = draw(st.lists(st.lists(st.sampled_from([*_WIDTHS, _TEXT, _BOOL]), max_size=4), min_size=1, max_size=4))
    relations = [
        m.Relation(100 + n, "s", f"t{n}", "f", tuple(m.Column(f"c{k}", oid, -1, True) for k, oid in enumerate(oids)))
        for n, oids in enumerate(kinds)
    ]
    messages: list[m.AnyMessage] = [m.Begin(100, 1, 7), *relations]
    expected: dict[str, list[tuple[str, Row, Row | None]]] = defaultdict(list)

    def row() -> Row:
        return [draw(st.one_of(st.none(), _values(oid), _values(oid))) for oid in kinds[number]]

    def sent(values: Row) -> m.TupleData:
        return m.TupleData(tuple(_cell(draw, oid, value) for oid, value in zip(kinds[number], values, strict=True)))

    for _ in range(draw(st.integers(1, 25))):
        number = draw(st.integers(0, len(kinds) - 1))
        oid, rows = 100 + number, expected[f"t{number}"]
        what = draw(st.sampled_from(["c", "u", "uf", "d"]))
        new = row()
        if what == "c":
            messages.append(m.Insert(oid, sent(new)))
            rows.append(("c", new, None))
        elif what == "d":
            messages.append(m.Delete(oid, old=sent(new)))
            rows.append(("d", new, None))
        else:
            shown = [_UNCHANGED if draw(st.integers(0, 5)) == 0 else value for value in new]
            old = row() if what == "uf" else None
            messages.append(m.Update(oid, sent(shown), old=None if old is None else sent(old)))
            if old is not None:
                # The old row tells what is unchanged, where it is there.
                shown = [
                    before if value is _UNCHANGED and before is not None else value
                    for value, before in zip(shown, old, strict=True)
                ]
            rows.append(("u", shown, old))
    messages.append(m.Commit(0, 100, 108, 1))
    return messages, expected


@contextmanager
def _little_room(rows: int, pending: int) -> Iterator[None]:
    with (
        mock.patch.object(gathered, "_MIN_ROWS", rows),
        mock.patch.object(gathered, "BATCH_ROWS", 4 * rows),
        mock.patch.object(placing, "LEAST_PENDING", pending),
        mock.patch.object(placing, "MOST_PENDING", 2 * pending),
    ):
        yield


@given(_captures(), st.integers(1, 8), st.integers(1, 8), st.sampled_from([64, 1 << 10, 1 << 20]))
def test_each_row_comes_to_its_columns(
    capture: tuple[list[m.AnyMessage], dict[str, list[tuple[str, Row, Row | None]]]],
    rows: int,
    pending: int,
    tile_bytes: int,
) -> None:
    messages, expected = capture
    found: dict[str, list[tuple[str, Row, Row | None]]] = defaultdict(list)
    with TemporaryDirectory() as folder, _little_room(rows, pending):
        path = Path(folder, "capture.bin")
        path.write_bytes(frame(messages, Framing.RAW))
        for batch in read_changes(path, tile_bytes=tile_bytes):
            names = [column.name for column in batch.relation.columns]
            olds: dict[int, Row] = {}
            if batch.before is not None:
                olds = {one["__row"]: [one[name] for name in names] for one in batch.before.to_pylist()}
            for number, one in enumerate(batch.data.to_pylist()):
                values = [
                    _UNCHANGED if name in batch.unchanged and batch.unchanged[name][number].as_py() else one[name]
                    for name in names
                ]
                found[batch.relation.name].append((one["__op"], values, olds.get(number)))
    assert found == {name: rows_ for name, rows_ in expected.items() if rows_}
