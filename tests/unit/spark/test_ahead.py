"""A task that scans and decodes: what it stages of a file, and what it says of it."""

from __future__ import annotations

import json
import pickle
from functools import partial
from typing import Any

import pyarrow as pa
import pytest

from support.captures import case
from walreplay.errors import from_dict
from walreplay.protocol import messages as m
from walreplay.protocol.framing import Framing
from walreplay.protocol.writer import frame
from walreplay.settings import Settings, make_settings
from walreplay.spark.job.ahead import foresight_at, foresight_of_first
from walreplay.spark.workers.ahead import AheadTask, Foresight, scan_ahead
from walreplay.spark.workers.rows import SCANS_TABLE, TRANSACTIONS_TABLE, USES_TABLE
from walreplay.spark.workers.scan import ScanTask
from walreplay.transactions.stitch import Stitch

ANY = make_settings({})


def ahead(
    contents: dict[str, bytes], foresight: Foresight | None, settings: Settings = ANY
) -> tuple[list[dict[str, Any]], dict[int, dict[str, Any]]]:
    """Give the rows that are staged, and what is told of each file by its number."""
    numbers = {path: number for number, path in enumerate(contents)}
    scans = {path: ScanTask(None, first=foresight is None) for path in contents}
    own = pickle.dumps(partial(foresight_of_first, settings=settings))
    task = AheadTask(scans, numbers, foresight, own, settings.of_tasks, buckets=2)
    batch = pa.RecordBatch.from_pylist([{"path": path, "content": data} for path, data in contents.items()])
    rows = [row for found in scan_ahead([batch], task=task) for row in found.to_pylist()]
    told = {row["ahead"]: row for row in rows if row["table"] == SCANS_TABLE}
    return [row for row in rows if row["table"] != SCANS_TABLE], told


def test_the_first_file_is_decoded_by_what_it_announces() -> None:
    (data,) = case("o01").streams()
    rows, told = ahead({"a": data}, None)
    found = pickle.loads(told[0]["data"])
    assert found.scan.ahead is not None
    assert found.is_whole
    assert {row["ahead"] for row in rows} == {0}
    tables = {row["table"] for row in rows}
    assert tables == {
        TRANSACTIONS_TABLE,
        USES_TABLE,
        *(one.mirror.table for one in found.own.assignments.values() if one.mirror is not None),
    }
    changes = [counts.changes for counts in found.scan.parts[0].summary.counts.values()]
    assert sum(row["rows"] for row in rows) == sum(changes) > 0


class _OfTheDriver:
    """What an executor cannot load, as it lacks a package."""

    def __reduce__(self) -> tuple[Any, ...]:
        return __import__, ("a package that only the driver has",)


def test_an_executor_without_the_drivers_packages_scans_the_first_file_and_decodes_nothing() -> None:
    (data,) = case("o01").streams()
    task = AheadTask({"a": ScanTask(None, first=True)}, {"a": 0}, None, pickle.dumps(_OfTheDriver()), ANY.of_tasks, 2)
    batch = pa.RecordBatch.from_pylist([{"path": "a", "content": data}])
    (row,) = [row for found in scan_ahead([batch], task=task) for row in found.to_pylist()]
    found = pickle.loads(row["data"])
    assert (row["info"], found.own, found.scan.ahead) == ("", None, None)
    assert found.scan.parts


def test_a_file_whose_bytes_cannot_be_scanned_has_its_error_told() -> None:
    rows, told = ahead({"a": b"no capture, but more than sixty-four bytes of English text, so that it shows"}, None)
    assert rows == []
    assert from_dict(json.loads(told[0]["info"])).path == "a"
    assert pickle.loads(told[0]["data"]) is None


TABLE = m.Relation(9, "s", "t", "d", (m.Column("id", 23, -1, True), m.Column("v", 700, -1, False)))


def transactions(lsn: int, *changes: m.AnyMessage) -> bytes:
    return frame([m.Begin(lsn, lsn, 7), *changes, m.Commit(0, lsn, lsn + 8, lsn)], Framing.RAW)


def insert(*values: bytes) -> m.Insert:
    return m.Insert(9, m.TupleData(tuple(m.Cell("t", value) for value in values)))


@pytest.mark.parametrize("values", [(b"one", b"1"), (b"2", b"abc"), (b"2", b"\xff")])
def test_rows_of_a_file_with_a_value_that_the_guess_cannot_read_do_not_count(values: tuple[bytes, bytes]) -> None:
    _, told = ahead({"a": transactions(100, TABLE, insert(b"1", b"1.5"))}, None)
    stitch = Stitch(None)
    stitch.add_exact(pickle.loads(told[0]["data"]).scan)
    foresight = foresight_at(stitch, ANY, ())
    assert foresight is not None
    # A number that its type cannot hold comes before, and is no error.
    _, told = ahead({"b": transactions(200, insert(b"2", b"12e456"), insert(*values))}, foresight)
    found = pickle.loads(told[0]["data"])
    assert found.scan.ahead is not None
    assert not found.is_whole
    # The driver has made it, and need not have it back from every file.
    assert found.own is None


def test_without_a_configuration_that_fits_nothing_is_decoded_ahead() -> None:
    (data,) = case("o01").streams()
    table = {"source_schema": "shop", "source_table": "orders", "keys": ["x"]}
    settings = make_settings({"objects": [{"table": table}]})
    rows, told = ahead({"a": data}, None, settings)
    assert rows == []
    found = pickle.loads(told[0]["data"])
    assert (found.scan.ahead, found.own) == (None, None)
