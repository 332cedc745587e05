"""Values for which SQL's own equality or NULL would do the wrong thing in a MERGE."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import walreplay
from support.readers import read
from support.small_mirror import SmallMirror
from walreplay.protocol import messages as m

if TYPE_CHECKING:
    from py4j.java_gateway import JavaObject
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.integration

_INT4, _FLOAT8, _TEXT, _NUMERIC, _INT4_ARRAY = 23, 701, 25, 1700, 1007
_NUMERIC_10_2 = (10 << 16 | 2) + 4


def _relation(identity: str, *columns: tuple[str, int, int, bool]) -> m.Relation:
    return m.Relation(9, "s", "t", identity, tuple(m.Column(name, oid, mod, key) for name, oid, mod, key in columns))


def _tuple(*values: str | None) -> m.TupleData:
    """Make a tuple; ``...`` is unchanged TOAST."""
    cells = {None: m.NULL_CELL, "...": m.UNCHANGED_CELL}
    return m.TupleData(tuple(cells.get(value) or m.Cell("t", str(value).encode()) for value in values))


_LISTED = _relation("d", ("id", _INT4, -1, True), ("list", _INT4_ARRAY, -1, False), ("n", _INT4, -1, False))
_FLOATS = _relation("d", ("k", _FLOAT8, -1, True), ("v", _TEXT, -1, False))
_BARE = _relation("f", ("x", _FLOAT8, -1, True), ("n", _NUMERIC, _NUMERIC_10_2, True))
_NUMBERS = _relation("d", ("k", _NUMERIC, _NUMERIC_10_2, True), ("v", _TEXT, -1, False))
_DOCS = _relation("d", ("id", _INT4, -1, True), ("doc", _TEXT, -1, False))
_NAN = '{"n":"NaN"}'

_CASES: Mapping[str, tuple[m.Relation, list[m.TupleData], list[m.AnyMessage], list[tuple[Any, ...]]]] = {
    "an unchanged value stays rescued": (
        _LISTED,
        [_tuple("1", "{{1,2},{3,4}}", "1"), _tuple("2", "{5,NULL}", "1")],
        [m.Update(9, _tuple("1", "...", "2")), m.Update(9, _tuple("2", "...", "2"))],
        [(1, None, 2, '{"list":"{{1,2},{3,4}}"}'), (2, [5, None], 2, None)],
    ),
    "a key that changes from zero to minus zero is one row": (
        _FLOATS,
        [_tuple("0", "a"), _tuple("NaN", "b")],
        [m.Update(9, _tuple("-0", "c"), key=_tuple("0", None)), m.Delete(9, key=_tuple("NaN", None))],
        [(-0.0, "c", None)],
    ),
    "rows without a key are told apart by the sign of zero": (
        _BARE,
        [_tuple("0", "NaN"), _tuple("0", "NaN"), _tuple("-0", "NaN"), _tuple("-0", "NaN"), _tuple("0", None)],
        [m.Delete(9, old=_tuple("0", "NaN")), m.Delete(9, old=_tuple("-0", "NaN"))],
        [(-0.0, None, _NAN), (0.0, None, _NAN), (0.0, None, None)],
    ),
    "a key that its type cannot hold is found again": (
        _NUMBERS,
        [_tuple("NaN", "a"), _tuple("1.00", "b"), _tuple("Infinity", "c")],
        [m.Update(9, _tuple("NaN", "changed")), m.Delete(9, key=_tuple("Infinity", None))],
        [(Decimal("1.00"), "b", None), (None, "changed", '{"k":"NaN"}')],
    ),
    "an unchanged value goes along with a changed key": (
        _DOCS,
        [_tuple("1", "long one"), _tuple("2", "long two")],
        [
            m.Update(9, _tuple("3", "..."), key=_tuple("1", None)),
            m.Update(9, _tuple("1", "..."), key=_tuple("2", None)),
            m.Update(9, _tuple("2", "..."), key=_tuple("3", None)),
        ],
        [(1, "long two", None), (2, "long one", None)],
    ),
}


@pytest.mark.both_ways
@pytest.mark.parametrize("name", _CASES)
def test_rows_are_those_of_the_source(mirror: SmallMirror, name: str) -> None:
    table, before, changes, expected = _CASES[name]
    mirror.apply(table, *(m.Insert(9, values) for values in before))
    mirror.apply(*changes)
    frame = mirror.spark.read.format("delta").load(str(mirror.location("t"))).drop("__commit_lsn", "__commit_ts")
    assert sorted(map(repr, map(tuple, frame.collect()))) == sorted(map(repr, expected))


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


_KEYS: Mapping[str, tuple[int, tuple[str, ...]]] = {
    "bool": (16, ("t", "f")),
    "int8": (20, ("9223372036854775807", "-1", "0")),
    "float4": (700, ("0", "-0", "NaN", "1e-45")),
    "float8": (701, ("0", "-0", "NaN", "Infinity", "0.1")),
    "numeric": (_NUMERIC, ("NaN", "0.10", "99999999.99")),
    "text": (_TEXT, ("", "i", "I", "İ")),
    "bytea": (17, ("\\x", "\\x00", "\\x0000")),
    "date": (1082, ("infinity", "-infinity", "0001-01-01", "1582-10-04", "0044-03-15 BC")),
    "timestamp": (1114, ("infinity", "1582-10-04 00:00:00.000001", "1582-10-04 00:00:00")),
    "timestamptz": (1184, ("infinity", "2024-10-27 00:30:00+00", "2024-10-27 00:30:00.000001+00")),
    "uuid": (2950, ("00000000-0000-0000-0000-000000000000", "ffffffff-ffff-ffff-ffff-ffffffffffff")),
    "int4_array": (_INT4_ARRAY, ("{}", "{0}", "{{0}}", "{0,NULL}")),
}


def test_keys_of_every_type_go_by_files(spark: SparkSession, tmp_path: Path) -> None:
    mirror = SmallMirror(spark, tmp_path)
    relations = {
        name: m.Relation(
            oid,
            "s",
            name,
            "d",
            (m.Column("k", kind, _NUMERIC_10_2 if kind == _NUMERIC else -1, True), m.Column("v", _TEXT, -1, False)),
        )
        for oid, (name, (kind, _)) in enumerate(_KEYS.items(), 1)
    }
    changes: list[m.AnyMessage] = []
    for relation in relations.values():
        changes += [relation, *(m.Insert(relation.oid, _tuple(key, "old")) for key in _KEYS[relation.name][1])]
    mirror.apply(*changes)
    changes = []
    for relation in relations.values():
        first, second, *_ = _KEYS[relation.name][1]
        changes += [m.Update(relation.oid, _tuple(first, "new")), m.Delete(relation.oid, key=_tuple(second, None))]
    report = mirror.apply(*changes)
    assert {(table.name, table.writer, table.writer_reason) for table in report.tables} == {
        (f"s.{name}", "files", None) for name in _KEYS
    }
    assert not report.warnings
    # A key that changes, from and to a value that its type cannot hold.
    changes = []
    for relation in relations.values():
        first, second, *_ = _KEYS[relation.name][1]
        changes.append(m.Update(relation.oid, _tuple(second, "moved"), key=_tuple(first, None)))
    assert {table.writer for table in mirror.apply(*changes).tables} == {"files"}
    walreplay.apply(spark, captures=mirror.captures, target=tmp_path / "one run")
    assert _rows(Path(mirror.target)) == _rows(tmp_path / "one run")


def _rows(target: Path) -> Mapping[str, list[str]]:
    return {name: sorted(map(repr, read(target / "s" / name).to_pylist())) for name in _KEYS}
