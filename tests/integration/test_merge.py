"""Values for which SQL's own equality or NULL would do the wrong thing in a MERGE."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import walreplay
from walreplay.protocol import messages as m
from walreplay.protocol.framing import Framing
from walreplay.protocol.writer import frame

if TYPE_CHECKING:
    from py4j.java_gateway import JavaObject
    from pyspark.sql import SparkSession
    from pyspark.sql.types import Row

pytestmark = pytest.mark.integration

_INT4, _FLOAT8, _TEXT, _NUMERIC, _INT4_ARRAY = 23, 701, 25, 1700, 1007
_NUMERIC_10_2 = (10 << 16 | 2) + 4


def _relation(identity: str, *columns: tuple[str, int, int, bool]) -> m.Relation:
    return m.Relation(9, "s", "t", identity, tuple(m.Column(name, oid, mod, key) for name, oid, mod, key in columns))


def _tuple(*values: str | None) -> m.TupleData:
    """Make a tuple; ``...`` is unchanged TOAST."""
    cells = {None: m.NULL_CELL, "...": m.UNCHANGED_CELL}
    return m.TupleData(tuple(cells.get(value) or m.Cell("t", str(value).encode()) for value in values))


def _apply(spark: SparkSession, folder: Path, *runs: Sequence[m.AnyMessage]) -> list[Row]:
    captures, target = folder / "captures", folder / "mirror"
    captures.mkdir()
    for number, changes in enumerate(runs, 1):
        lsn = 100 * number
        messages = [m.Begin(lsn, lsn, number), *changes, m.Commit(0, lsn, lsn + 8, lsn)]
        (captures / f"{number}.bin").write_bytes(frame(messages, Framing.RAW))
        walreplay.apply(spark, captures=captures, target=target)
    return spark.read.format("delta").load(str(target / "s" / "t")).collect()


def test_an_unchanged_value_stays_rescued(spark: SparkSession, tmp_path: Path) -> None:
    table = _relation("d", ("id", _INT4, -1, True), ("list", _INT4_ARRAY, -1, False), ("n", _INT4, -1, False))
    rows = _apply(
        spark,
        tmp_path,
        [table, m.Insert(9, _tuple("1", "{{1,2},{3,4}}", "1")), m.Insert(9, _tuple("2", "{5,NULL}", "1"))],
        [m.Update(9, _tuple("1", "...", "2")), m.Update(9, _tuple("2", "...", "2"))],
    )
    found = {row.id: (row.list, row.n, row._rescued_data and json.loads(row._rescued_data)) for row in rows}
    assert found == {1: (None, 2, {"list": "{{1,2},{3,4}}"}), 2: ([5, None], 2, None)}


def test_a_key_that_changes_from_zero_to_minus_zero_is_one_row(spark: SparkSession, tmp_path: Path) -> None:
    table = _relation("d", ("k", _FLOAT8, -1, True), ("v", _TEXT, -1, False))
    rows = _apply(
        spark,
        tmp_path,
        [table, m.Insert(9, _tuple("0", "a")), m.Insert(9, _tuple("NaN", "b"))],
        [m.Update(9, _tuple("-0", "c"), key=_tuple("0", None)), m.Delete(9, key=_tuple("NaN", None))],
    )
    assert [(math.copysign(1, row.k), row.k, row.v) for row in rows] == [(-1, 0, "c")]


def test_rows_without_a_key_are_told_apart_by_the_sign_of_zero(spark: SparkSession, tmp_path: Path) -> None:
    table = _relation("f", ("x", _FLOAT8, -1, True), ("n", _NUMERIC, _NUMERIC_10_2, True))
    values = [("0", "NaN"), ("0", "NaN"), ("-0", "NaN"), ("-0", "NaN"), ("0", None)]
    rows = _apply(
        spark,
        tmp_path,
        [table, *[m.Insert(9, _tuple(*value)) for value in values]],
        [m.Delete(9, old=_tuple("0", "NaN")), m.Delete(9, old=_tuple("-0", "NaN"))],
    )
    found = sorted((math.copysign(1, row.x), row._rescued_data) for row in rows if row._rescued_data)
    assert found == [(-1, '{"n":"NaN"}'), (1, '{"n":"NaN"}')]
    assert [row.x for row in rows if row._rescued_data is None] == [0]


def test_a_key_that_its_type_cannot_hold_is_found_again(spark: SparkSession, tmp_path: Path) -> None:
    table = _relation("d", ("k", _NUMERIC, _NUMERIC_10_2, True), ("v", _TEXT, -1, False))
    rows = _apply(
        spark,
        tmp_path,
        [
            table,
            m.Insert(9, _tuple("NaN", "a")),
            m.Insert(9, _tuple("1.00", "b")),
            m.Insert(9, _tuple("Infinity", "c")),
        ],
        [m.Update(9, _tuple("NaN", "changed")), m.Delete(9, key=_tuple("Infinity", None))],
    )
    found = {(None if row.k is None else str(row.k), row.v, row._rescued_data) for row in rows}
    assert found == {(None, "changed", '{"k":"NaN"}'), ("1.00", "b", None)}


def test_an_unchanged_value_goes_along_with_a_changed_key(spark: SparkSession, tmp_path: Path) -> None:
    table = _relation("d", ("id", _INT4, -1, True), ("doc", _TEXT, -1, False))
    rows = _apply(
        spark,
        tmp_path,
        [table, m.Insert(9, _tuple("1", "long one")), m.Insert(9, _tuple("2", "long two"))],
        [
            m.Update(9, _tuple("3", "..."), key=_tuple("1", None)),
            m.Update(9, _tuple("1", "..."), key=_tuple("2", None)),
            m.Update(9, _tuple("2", "..."), key=_tuple("3", None)),
        ],
    )
    assert {(row.id, row.doc) for row in rows} == {(2, "long one"), (1, "long two")}


def test_a_few_rows_joined_by_an_integer_take_little_of_the_drivers_memory(spark: SparkSession) -> None:
    joined = spark.range(1000).join(spark.range(3).hint("broadcast"), "id")
    assert len(joined.collect()) == 3
    (exchange,) = _nodes(joined._jdf.queryExecution().executedPlan(), "BroadcastExchangeExec")  # type: ignore[attr-defined]
    assert 0 < exchange.metrics().apply("dataSize").value() < 4 << 20


def _nodes(plan: JavaObject, name: str) -> Iterator[JavaObject]:
    """Find the nodes of a plan that has run, in what was decided while it ran too."""
    kind = plan.getClass().getSimpleName()
    if kind == name:
        yield plan
    if kind == "AdaptiveSparkPlanExec":
        below = [plan.executedPlan()]
    elif kind.endswith("QueryStageExec"):
        below = [plan.plan()]
    else:
        below = [plan.children().apply(child) for child in range(plan.children().size())]
    for child in below:
        yield from _nodes(child, name)
