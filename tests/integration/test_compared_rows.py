"""Rows of two tables are compared value for value, and each row that differs is shown once."""

from __future__ import annotations

import json
import random
from collections import Counter
from collections.abc import Sequence
from datetime import datetime, timezone
from decimal import Decimal
from typing import TYPE_CHECKING, Any, Final

import pytest

from walreplay.job.compare import RowComparison

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.integration

NAN = float("nan")

VALUES: Final[dict[str, Sequence[Any]]] = {
    "int": [None, 0, 1, -1],
    "string": [None, "", "a", "A", "null", "a\x00b"],
    "binary": [None, b"", b"\x00", b"\x00\x00"],
    "boolean": [None, True, False],
    "double": [None, 0.0, -0.0, 1.5, NAN, float("inf")],
    "float": [None, 0.0, -0.0, NAN],
    "decimal(38,6)": [None, Decimal("0.000001"), Decimal("0.000002")],
    "timestamp": [
        None,
        datetime(2026, 1, 1, tzinfo=timezone.utc),
        datetime(2026, 1, 1, microsecond=1, tzinfo=timezone.utc),
    ],
    "array<double>": [None, [], [None], [0.0], [-0.0], [NAN], [None, 1.0], [1.0, None]],
    "array<string>": [None, [], [""], [None], ["a, b"], ["a", "b"], ["null"]],
    "array<array<int>>": [None, [], [[]], [[1], [2]], [[1, 2]], [[1, 2], []], [None]],
    "array<timestamp>": [[datetime(2026, 1, 1, microsecond=n, tzinfo=timezone.utc)] for n in range(3)],
    "struct<a: int, `b.c`: double>": [None, (None, None), (1, 0.0), (1, -0.0), (None, 0.0)],
    "array<struct<a: string>>": [None, [], [None], [(None,)], [("",)]],
}
"""Values of which no two are the same, by their type."""


def frame(spark: SparkSession, kinds: Sequence[str], rows: Sequence[Sequence[Any]]) -> DataFrame:
    columns = ", ".join(f"`v.{number} ``x` {kind}" for number, kind in enumerate(kinds))
    return spark.createDataFrame([(number, *row) for number, *row in rows], f"id int, {columns}")


def shown(comparison: RowComparison) -> Counter[tuple[str, str, tuple[str, ...]]]:
    return Counter((row.kind, row.key, tuple(row.columns)) for row in comparison.differences().collect())


@pytest.mark.parametrize("kind", VALUES)
def test_no_two_values_are_taken_for_one(spark: SparkSession, kind: str) -> None:
    values, name = VALUES[kind], "v.0 `x"
    everything = frame(spark, [kind], [(number, value) for number, value in enumerate(values)])
    assert RowComparison(everything, everything, ("id",)).is_equal
    turned = frame(spark, [kind], [(number, values[number - 1]) for number in range(len(values))])
    comparison = RowComparison(everything, turned, ("id",))
    assert not comparison.is_equal
    assert comparison.rows == len(values)
    wanted = Counter(
        {("changed", json.dumps({"id": n}, separators=(",", ":")), (name,)): 1 for n in range(len(values))}
    )
    assert shown(comparison) == wanted
    for number in range(len(values)):  # each pair alone: sums of many differences might hide one
        other = frame(spark, [kind], [(0, values[number - 1])])
        assert not RowComparison(frame(spark, [kind], [(0, values[number])]), other, ("id",)).is_equal


@pytest.mark.parametrize("key", [("id",), (), ("id", "v.1 `x")], ids=["key", "no key", "two columns"])
@pytest.mark.parametrize("seed", range(3))
def test_each_row_that_differs_is_shown_once(spark: SparkSession, seed: int, key: tuple[str, ...]) -> None:
    choose = random.Random(seed)
    kinds = ["string", "int", "array<double>"]

    def row(number: int) -> tuple[Any, ...]:
        return (number, *(choose.choice(VALUES[kind]) for kind in kinds))

    rows = [row(choose.randrange(40)) for _ in range(60)]  # keys come several times, as after a fault
    others = list(rows)
    for _ in range(choose.randrange(1, 6)):
        others[choose.randrange(len(others))] = row(choose.randrange(40))
    others += choose.choices(others, k=2)
    choose.shuffle(others)
    comparison = RowComparison(frame(spark, kinds, rows), frame(spark, kinds, others), key)

    expected, found = (Counter(map(repr, sorted_rows)) for sorted_rows in (rows, others))
    differences = comparison.differences().collect()
    assert comparison.is_equal == (expected == found)
    missing = sum(row.expected is not None for row in differences)
    extra = sum(row.found is not None for row in differences)
    assert (missing, extra) == ((expected - found).total(), (found - expected).total())
    changed = [row for row in differences if row.kind == "changed"]
    assert bool(changed) <= bool(key)
    for row in changed:
        before, after = json.loads(row.expected), json.loads(row.found)
        assert row.columns == [name for name in before if before[name] != after[name]] != []
        assert not set(row.columns) & set(key)
    if key == ("id",):  # whatever has a counterpart has it by its key
        missed, added = (
            Counter(text.partition(",")[0] for text in rows.elements()) for rows in (expected - found, found - expected)
        )
        assert len(changed) == (missed & added).total()


def test_values_are_shown_to_the_last_digit(spark: SparkSession) -> None:
    at = VALUES["timestamp"]
    sides = (frame(spark, ["timestamp"], [(1, moment)]) for moment in at[1:])
    comparison = RowComparison(*sides, ("id",))
    (row,) = comparison.differences().collect()
    assert (row.expected, row.found) == (
        '{"id":1,"v.0 `x":"2026-01-01T00:00:00.000000Z"}',
        '{"id":1,"v.0 `x":"2026-01-01T00:00:00.000001Z"}',
    )


def test_one_row_more_of_many_that_are_equal_is_told(spark: SparkSession) -> None:
    many = spark.range(0, 10000, 1, 3).selectExpr("1 AS a", "CAST(NULL AS STRING) AS b")
    assert RowComparison(many, many.repartition(5)).is_equal
    comparison = RowComparison(many, many.union(many.limit(2)))
    assert shown(comparison) == Counter({("extra", '{"a":1,"b":null}', ()): 2})


def test_columns_of_no_rows_and_no_columns_at_all(spark: SparkSession) -> None:
    nothing = spark.createDataFrame([], "a int")
    assert RowComparison(nothing, nothing).is_equal
    assert RowComparison(nothing, nothing).rows == 0
    without = spark.range(3).select()
    assert RowComparison(without, without).is_equal
    assert not RowComparison(without, spark.range(2).select()).is_equal
