"""A dry run prints the run's own plan: what it says of each table is what the run then reports."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import walreplay
from support.captures import case
from support.extent import further
from support.small_mirror import INT4, INT8, TEXT, SmallMirror, relation, row, runs_of
from walreplay.protocol import messages as m

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.integration

_COLUMNS = {"id": INT4, "v": TEXT}
_ALL = {"outputs": ["mirror", "changelog", "history"]}


def _table(oid: int, name: str, *ids: int, **columns: int) -> list[m.AnyMessage]:
    shape = relation(oid, name, {**_COLUMNS, **columns})
    return [shape, *(m.Insert(oid, row(id_, "v", *columns.values())) for id_ in ids)]


Files = Sequence[Sequence[m.AnyMessage]]

_CASES: dict[str, tuple[Files, Files]] = {
    "created again": ([_table(1, "t", 1, 2)], [_table(2, "t", 3)]),
    "created again in the first run": ([], [_table(1, "t", 1), _table(2, "t", 3)]),
    "renamed": ([_table(1, "t", 1)], [_table(1, "u", 2)]),
    "swapped": ([[*_table(1, "t", 1), *_table(2, "u", 1)]], [_table(1, "x", 2), _table(2, "t", 2), _table(1, "u", 3)]),
    "replaced by a rename": ([_table(1, "t", 1)], [_table(1, "t_old", 2), _table(2, "t", 1)]),
    "gives way": ([_table(1, "t", 1)], [_table(1, "t_old"), _table(2, "t", 1)]),
    "columns": ([_table(1, "t", 1)], [_table(1, "t", 2, more=INT8), [relation(1, "t", {"id": INT8, "v": TEXT})]]),
    "retyped": ([_table(1, "t", 1)], [[relation(1, "t", {"id": INT8, "v": TEXT}), m.Insert(1, row(5, "w"))]]),
    "dropped": ([_table(1, "t", 1)], [[relation(1, "t", {"id": INT4}), m.Insert(1, row(5))]]),
    "truncated": ([_table(1, "t", 1)], [[*_table(1, "t"), m.Truncate((1,), 0), m.Insert(1, row(3, "w"))]]),
    "another identity": (
        [_table(1, "t", 1)],
        [[relation(1, "t", _COLUMNS, "f"), m.Insert(1, row(3, "w"))], _table(1, "t", 4)],
    ),
    "only inserts": ([], [[relation(1, "t", _COLUMNS, "n"), m.Insert(1, row(3, "w"))]]),
}


def _planned(tables: Sequence[Any], notes: Callable[[Any], Sequence[str]]) -> list[tuple[Any, ...]]:
    fields = ("name", "location", "action", "changes", "truncated", "oid", "set_aside")
    return [(*(getattr(table, field) for field in fields), tuple(notes(table))) for table in tables]


def _assert_forecast(spark: SparkSession, captures: Path, target: str, config: dict[str, Any]) -> None:
    before = {path: path.stat().st_mtime_ns for path in Path(target).rglob("*")}
    forecast = walreplay.forecast(spark, captures, target, config)
    assert {path: path.stat().st_mtime_ns for path in Path(target).rglob("*")} == before
    report = walreplay.apply(spark, captures, target, config)
    told = {(table.oid, table.name): table.notes for table in forecast.tables}
    # What only the table's own rows tell comes to the notes behind the plan's.
    planned = _planned(report.tables, lambda table: [one for one in table.notes if one in told[table.oid, table.name]])
    assert planned == _planned(forecast.tables, lambda table: table.notes)
    assert (forecast.transactions, forecast.files, forecast.applied_lsn) == (
        report.transactions,
        report.files,
        report.applied_lsn,
    )


@pytest.mark.parametrize("name", further(list(_CASES), but=["replaced by a rename"]))
@pytest.mark.parametrize("size", further([1 << 30, 1], but=[1 << 30]), ids=["at once", "a run a file"])
def test_the_run_does_what_the_forecast_said(spark: SparkSession, tmp_path: Path, name: str, size: int) -> None:
    mirror = SmallMirror(spark, tmp_path)
    first, then = _CASES[name]
    for changes in first:
        mirror.write(*changes)
    if first:
        walreplay.apply(spark, mirror.captures, mirror.target, _ALL)
    for changes in then:
        mirror.write(*changes)
    with runs_of(size):
        _assert_forecast(spark, mirror.captures, mirror.target, _ALL)


@pytest.mark.full
@pytest.mark.parametrize("name", ["o14", "o15", "o13", "o19", "o18"])
def test_of_recorded_captures_too(spark: SparkSession, tmp_path: Path, name: str) -> None:
    _assert_forecast(spark, case(name).files[0].parent, str(tmp_path / "mirror"), {})
