"""Row changes come in commit order, whatever their relations go through."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from support.framings import frame
from support.runs import plan_runs
from walreplay.changes import decode_plan, read_changes
from walreplay.decode import gathered
from walreplay.decode.change_batch import ChangeBatch
from walreplay.decode.decoder import Decoder, RowFilter
from walreplay.decode.walk import Place
from walreplay.errors import ConfigError, MalformedMessage, ValueFormatError
from walreplay.protocol import messages as m
from walreplay.protocol.framing import Framing


def relation(oid: int, identity: str = "d", columns: int = 1) -> m.Relation:
    return m.Relation(oid, "s", f"t{oid}", identity, tuple(m.Column(f"c{n}", 23, -1, n == 0) for n in range(columns)))


def insert(oid: int, columns: int = 1) -> m.Insert:
    return m.Insert(oid, m.TupleData((m.Cell("t", b"1"),) * columns))


def decode(messages: list[m.AnyMessage], tile_bytes: int | None = None) -> list[ChangeBatch]:
    data = frame([m.Begin(100, 1, 7), *messages, m.Commit(0, 100, 108, 1)], Framing.RAW)
    ((_, planned),) = plan_runs([{"file": data}])
    return list(decode_plan(planned.plan, lambda path: data, tile_bytes=tile_bytes))


@pytest.mark.parametrize("tile_bytes", [16, 64, None])
def test_rows_of_a_relations_versions_come_in_their_order(
    monkeypatch: pytest.MonkeyPatch, tile_bytes: int | None
) -> None:
    monkeypatch.setattr(gathered, "BATCH_ROWS", 3)
    messages: list[m.AnyMessage] = []
    for identity, rows in [("d", 1), ("i", 2), ("d", 7), ("i", 1)]:
        messages += [relation(1, identity), *[insert(1)] * rows]
    found = decode(messages, tile_bytes)
    assert [n for batch in found for n in batch.data.column("__ordinal").to_pylist()] == list(range(11))


@pytest.mark.parametrize("tile_bytes", [16, 1024, None])
def test_one_truncate_may_name_any_number_of_relations(tile_bytes: int | None) -> None:
    oids = range(1, 201)
    found = decode([*map(relation, oids), insert(3), m.Truncate(tuple(oids), 0), insert(4)], tile_bytes)
    ops = [op for batch in found for op in batch.data.column("__op").to_pylist()]
    assert (ops.count("t"), ops.count("c")) == (200, 2)


@pytest.mark.parametrize("tile_bytes", [16, 1024])
@pytest.mark.parametrize(
    ("skipped", "expected"), [((), [2, 3, 1]), (("c",), [1])], ids=["all are wanted", "inserts are skipped"]
)
def test_the_versions_that_came_before_a_truncate_are_told_though_their_rows_are_left_out(
    tile_bytes: int, skipped: tuple[str, ...], expected: list[int]
) -> None:
    messages: list[m.AnyMessage] = [m.Begin(100, 1, 7)]
    for columns in (1, 2, 3, 1):
        messages += [relation(1, columns=columns), insert(1, columns)]
    messages += [m.Truncate((1,), 0), relation(1, columns=4), insert(1, 4), m.Commit(0, 100, 108, 1)]
    data = frame(messages, Framing.RAW)
    decoder = Decoder(
        Framing.RAW,
        row_filter=RowFilter(last_truncates={1: (100, 4)}, skipped_ops=skipped),
        tile_bytes=tile_bytes,
    )
    place = Place(Framing.RAW)
    found = [*decoder.decode(data, 0, len(data), place=place), *decoder.rest()]
    assert [len(version.columns) for version in decoder.take_truncated()] == expected
    assert [len(batch.relation.columns) for batch in found] == ([4] if not skipped else [])


@pytest.mark.parametrize("tile_bytes", [16, 1024])
@pytest.mark.parametrize("high", [-1, 99, 100, 200])
def test_rows_below_the_floor_of_their_relation_alone_are_left_out(tile_bytes: int, high: int) -> None:
    messages: list[m.AnyMessage] = []
    for lsn in (100, 200, 300):
        messages += [m.Begin(lsn, 1, lsn), relation(1), relation(2), insert(1), insert(2), m.Commit(0, lsn, lsn + 8, 1)]
    data = frame(messages, Framing.RAW)
    decoder = Decoder(Framing.RAW, row_filter=RowFilter(last_truncates={}, load_lsns={1: 200}), tile_bytes=tile_bytes)
    place = Place(Framing.RAW, high_lsn=high)
    found = [*decoder.decode(data, 0, len(data), place=place), *decoder.rest()]
    rows = [(batch.relation.oid, lsn) for batch in found for lsn in batch.commit_lsns.to_pylist()]
    expected = [(oid, lsn) for lsn in (100, 200, 300) for oid in (1, 2) if lsn > high and (oid == 2 or lsn >= 200)]
    assert sorted(rows) == sorted(expected)
    assert decoder.take_truncated() == []


@pytest.mark.parametrize("cut", [False, True], ids=["in one file", "begun in another file"])
def test_what_a_streamed_transaction_has_announced_holds_outside_once_it_has_committed(cut: bool) -> None:
    altered, changed = replace(relation(1, columns=2), xid=5), replace(insert(1, columns=2), xid=5)
    ordinary: list[m.AnyMessage] = [m.Begin(100, 1, 7), relation(1), insert(1), m.Commit(0, 100, 108, 1)]
    other: list[m.AnyMessage] = [replace(relation(2, columns=3), xid=5), replace(insert(2, columns=3), xid=5)]
    begun: list[m.AnyMessage] = [m.StreamStart(5, True), *other, m.StreamStop()]
    ended: list[m.AnyMessage] = [
        m.StreamStart(5, False),
        altered,
        changed,
        m.StreamStop(),
        m.StreamCommit(5, 0, 200, 208, 2),
    ]
    behind: list[m.AnyMessage] = [m.Begin(300, 3, 8), insert(1, columns=2), m.Commit(0, 300, 308, 3)]
    parts = [begun, [*ordinary, *ended, *behind]] if cut else [[*ordinary, *begun, *ended, *behind]]
    files = {str(number): frame(part, Framing.RAW) for number, part in enumerate(parts)}
    ((_, planned),) = plan_runs([files], framing=Framing.RAW)
    found = list(decode_plan(planned.plan, lambda path: files[path]))
    assert sorted(len(batch.relation.columns) for batch in found for _ in range(batch.data.num_rows)) == [1, 2, 2, 3]


def test_a_relation_with_more_columns_than_can_be_is_refused() -> None:
    decode([relation(1, columns=1664), insert(1, columns=1664)])
    with pytest.raises(MalformedMessage, match="1,665 columns"):
        decode([relation(1, columns=1665), insert(1, columns=1665)])


def test_an_lsn_beyond_any_that_there_can_be_is_refused() -> None:
    data = frame([m.BeginPrepare(2**63, 1, 1, 7, "g")], Framing.RAW)
    with pytest.raises(MalformedMessage, match="LSN") as caught:
        list(plan_runs([{"file": data}], framing=Framing.RAW))
    assert caught.value.offset == 0


@pytest.mark.parametrize("tile_bytes", [0, -1])
def test_tiles_of_no_bytes_are_refused(tile_bytes: int) -> None:
    # A decoder without arrays would walk for ever, or let kernels write records behind them.
    with pytest.raises(ConfigError):
        Decoder(Framing.RAW, tile_bytes=tile_bytes, recording=True)


@pytest.mark.parametrize("tile_bytes", [1 << 12, 1 << 16, 1 << 20])
def test_rows_of_many_relations_that_share_tiles(tmp_path: Path, tile_bytes: int) -> None:
    relations = [m.Relation(100 + n, "s", f"t{n}", "d", (m.Column("id", 23, -1, True),)) for n in range(40)]
    inserts = [m.Insert(100 + n % 40, m.TupleData((m.Cell("t", b"%d" % n),))) for n in range(20_000)]
    path = tmp_path / "many.bin"
    path.write_bytes(frame([m.Begin(100, 1, 7), *relations, *inserts, m.Commit(0, 100, 108, 1)], Framing.RAW))
    found: dict[str, list[int]] = {}
    for batch in read_changes(path, tile_bytes=tile_bytes):
        found.setdefault(batch.relation.name, []).extend(batch.data.column("id").to_pylist())
    assert found == {f"t{n}": list(range(n, 20_000, 40)) for n in range(40)}


@pytest.mark.parametrize(
    ("oid", "formats", "good", "bad"),
    [
        (25, "b", b"good", b"a\0b"),
        (25, "tb", b"good", b"\xff"),
        (21, "tb", b"7", b"32768"),
        (23, "tb", b"7", b"-2147483649"),
        (20, "tb", b"7", b"9223372036854775808"),
    ],
)
def test_a_value_that_its_type_cannot_have_is_told_with_its_place(
    tmp_path: Path, oid: int, formats: str, good: bytes, bad: bytes
) -> None:
    relation = m.Relation(100, "s", "t", "d", (m.Column("id", 23, -1, True), m.Column("value", oid, -1, False)))
    for format_ in formats:
        cells = [m.Cell("t", good), m.Cell("t", good), m.Cell(format_, bad), m.Cell("t", good)]
        rows = [m.Insert(100, m.TupleData((m.Cell("t", b"1"), cell))) for cell in cells]
        data = frame([m.Begin(100, 1, 7), relation, *rows, m.Commit(0, 100, 108, 1)], Framing.RAW)
        path = tmp_path / f"{format_}.bin"
        path.write_bytes(data)
        with pytest.raises(ValueFormatError) as caught:
            list(read_changes(path))
        assert (caught.value.offset, caught.value.table) == (data.rindex(bad), "s.t.value")
