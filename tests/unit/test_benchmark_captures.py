"""What the benchmarks' captures hold is what their makers say, and what they measure is still there."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pytest

from benchmark.generate import Shape, write_capture
from benchmark.peers import by_struct
from benchmark.streamed import Expected, capture
from support.reference import ReplayedTable, replay
from support.spark import LIBRARY
from walreplay import read_changes
from walreplay.decode.change_batch import OP
from walreplay.protocol import messages as m
from walreplay.protocol.framing import Framing
from walreplay.protocol.reader import read_stream

_SIZE = 1_200_000
BENCHMARK = Path(__file__).parents[1] / "benchmark"


def _held(table: ReplayedTable) -> Expected:
    held = Expected()
    values = [row.values for row in table.rows]
    held.add([int(row[0] or "") for row in values], [int((row[1] or "").replace(".", "")) for row in values])
    return held


def test_a_huge_streamed_transaction_leaves_the_rows_that_its_maker_expects() -> None:
    expected: dict[str, Expected] = {}
    stream = b"".join(capture(_SIZE, expected, blocks=(100_000, 300_000)))
    assert _SIZE <= len(stream) < 1.1 * _SIZE
    replayed = replay([stream], Framing.RECVLOGICAL)
    assert {name: _held(table) for name, table in replayed.by_name().items()} == expected
    assert all(table.count > 0 for table in expected.values())

    messages = [message for _, message in read_stream(stream, framing=Framing.RECVLOGICAL)]
    blocks = sum(isinstance(message, m.StreamStart) for message in messages)
    assert blocks >= 4
    assert sum(isinstance(message, m.StreamAbort) for message in messages) >= 4
    # Each block is followed by an ordinary transaction, and so is the end.
    assert sum(isinstance(message, m.Commit) for message in messages) == blocks + 1


def _rows(path: Path) -> dict[str, pa.Table]:
    """Read a capture's rows, without what differs between ordinary and streamed transactions."""
    tables: dict[str, list[pa.Table]] = {}
    for batch in read_changes(path):
        assert batch.rescued is None
        own = [OP, *(column.name for column in batch.relation.columns)]
        tables.setdefault(batch.relation.name, []).append(pa.table(batch.data).select(own))
    return {name: pa.concat_tables(parts) for name, parts in tables.items()}


@pytest.mark.parametrize("kind", ["pgbench", "orders"])
def test_a_capture_holds_the_same_rows_in_every_form(tmp_path: Path, kind: str) -> None:
    plain = _rows(write_capture(tmp_path / "plain", Shape(kind), 300_000))
    forms = [
        *(Shape(kind, framing) for framing in Framing),
        Shape(kind, Framing.RAW, binary=True),
        Shape(kind, Framing.COPYDATA, streamed=True),
    ]
    for number, shape in enumerate(forms):
        rows = _rows(write_capture(tmp_path / str(number), shape, 100_000))
        assert rows.keys() == plain.keys()
        for name, table in rows.items():
            count = min(table.num_rows, plain[name].num_rows)
            assert count > 100
            assert table.slice(0, count).equals(plain[name].slice(0, count))


def test_the_parser_that_an_engineer_writes_in_an_afternoon_reads_whole_messages(tmp_path: Path) -> None:
    path = write_capture(tmp_path / "plain", Shape("orders", Framing.RAW), 300_000)
    relations: dict[int, by_struct.Relation] = {}
    rows = list(by_struct.parse(path.read_bytes(), relations))
    expected = _rows(path)["orders"]
    (relation,) = relations.values()
    assert (relation.schema, relation.name) == ("shop", "orders")
    assert relation.columns == expected.column_names[1:]
    assert [operation for _, operation, *_ in rows] == expected.column(OP).to_pylist()
    for name in ("id", "note", "address", "shipped_at"):
        found = [row[-1][relation.columns.index(name)] for row in rows]
        column = expected.column(name)
        assert [value is None for value in found] == column.is_null().to_pylist()
        if name != "shipped_at":
            assert [str(value, "utf-8") for value in found] == list(map(str, column.to_pylist()))


def test_each_benchmark_finds_what_it_measures() -> None:
    modules = sorted(path.stem for path in BENCHMARK.glob("*.py"))
    # In a process of its own: they set its environment, and their names are short.
    command = [sys.executable, "-c", f"import {', '.join(modules)}"]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(map(str, (BENCHMARK, LIBRARY, BENCHMARK.parent)))}
    ended = subprocess.run(command, env=environment, capture_output=True, text=True)
    assert (ended.returncode, ended.stderr) == (0, "")
