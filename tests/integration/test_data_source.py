"""Captures looked at through Spark's data source: what it gives is what `read_changes` gives."""

from __future__ import annotations

import json
from collections import Counter
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.errors import PySparkException

import walreplay
from support.captures import case
from support.framings import frame
from support.pages import block, with_places
from support.small_mirror import INT4, TEXT, relation, row
from walreplay.lsn import parse_lsn
from walreplay.protocol import messages as m
from walreplay.protocol.framing import Framing

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.integration


@pytest.fixture
def read(spark: SparkSession) -> Any:
    """Return the registered source's reader."""
    spark.dataSource.register(walreplay.PgoutputDataSource)

    def frame_of(path: Path | str, **options: str) -> DataFrame:
        return spark.read.format("pgoutput").options(**options).load(str(path))

    return frame_of


def test_all_changes_are_there_in_one_fixed_schema(read: Any) -> None:
    folder = case("o03").folder
    frame_ = read(folder)
    expected = Counter[tuple[str, str]]()
    for batch in walreplay.read_changes(folder):
        expected.update((batch.relation.qualified_name, op) for op in batch.ops.to_pylist())

    found = Counter(
        {(r["__table"], r["__op"]): r["count"] for r in frame_.groupBy("__table", "__op").count().collect()}
    )
    assert found == expected
    # A DataFrame that is used again, and filtered, gives the same.
    updates = frame_.where("__op = 'u'")
    assert [updates.count(), frame_.count(), updates.count()] == [
        sum(count for (_, op), count in expected.items() if op == "u"),
        expected.total(),
        sum(count for (_, op), count in expected.items() if op == "u"),
    ]
    first = frame_.where("__table = 'shop.orders' AND __op = 'c'").orderBy("__commit_lsn", "__ordinal").first()
    assert json.loads(first["__row"])["id"] == 1


def test_a_tables_changes_are_typed(read: Any) -> None:
    folder = case("o03").folder
    frame_ = read(folder, table="shop.orders").orderBy("__commit_lsn", "__ordinal")
    (batch, *_) = (one for one in walreplay.read_changes(folder) if one.relation.qualified_name == "shop.orders")
    assert frame_.columns == [*batch.data.schema.names, "__unchanged"]
    rows = frame_.select("id", "total").limit(2).collect()
    assert [tuple(one) for one in rows] == [(1, Decimal("0.00")), (1, Decimal("1.00"))]


def test_what_was_not_sent_and_what_was_before_is_told(read: Any, tmp_path: Path) -> None:
    kind = relation(1, "t", {"id": INT4, "v": TEXT, "__unchanged": TEXT})
    wider = relation(1, "t", {"id": INT4, "more": TEXT})
    unchanged = m.TupleData((m.Cell("t", b"2"), m.Cell("u"), m.NULL_CELL))
    changes = [
        kind,
        m.Insert(1, row(1, "a", "ä")),
        m.Update(1, unchanged, key=row(1, None, None)),
        wider,
        m.Insert(1, row(3, "new")),
        m.Truncate((1,), 0),
    ]
    path = tmp_path / "one.bin"
    path.write_bytes(frame([m.Begin(8, 8, 7), *changes, m.Commit(0, 8, 9, 8)], Framing.RAW))

    rows = read(f"file:{path}").orderBy("__ordinal").collect()
    assert [one["__op"] for one in rows] == ["c", "u", "c", "t"]
    assert [one["__row"] and json.loads(one["__row"]) for one in rows] == [
        {"id": 1, "v": "a", "__unchanged": "ä"},
        {"id": 2, "__unchanged": None},
        {"id": 3, "more": "new"},
        None,
    ]
    assert [one["__before"] and json.loads(one["__before"])["id"] for one in rows] == [None, 1, None, None]
    assert [one["__unchanged"] for one in rows] == [None, ["v"], None, None]
    assert {(one["__xid"], one["__commit_lsn"], one["__table"]) for one in rows} == {(7, parse_lsn("0/8"), "s.t")}

    typed = read(path, table="s.t").orderBy("__ordinal")
    assert typed.columns[-4:] == ["id", "v", "__unchanged", "__unchanged__2"]
    assert [tuple(one) for one in typed.select("id", "v", "__unchanged", "__unchanged__2").collect()] == [
        (1, "a", "ä", None),
        (2, None, None, ["v"]),
        (3, None, None, None),
        (None, None, None, None),
    ]


@pytest.mark.parametrize(
    ("path", "options", "problem"),
    [
        ("s3a://bucket/captures", {}, "mounted folders alone"),
        ("/nothing/there", {}, "no such file or folder"),
        (str(case("o03").folder), {"table": "shop.none"}, "no changes of a table shop.none"),
        (str(case("o03").folder), {"framing": "letters"}, "no framing is called 'letters'"),
    ],
)
def test_what_cannot_be_read_is_said_before_a_task_starts(
    read: Any, path: str, options: dict[str, str], problem: str
) -> None:
    with pytest.raises(PySparkException, match=problem):
        read(path, **options).collect()


def test_the_page_shows_changes(spark: SparkSession, capsys: pytest.CaptureFixture[str]) -> None:
    code = with_places(block("docs/reading.md", "spark.dataSource").text, {"/data/captures": case("o03").folder})
    exec(code, {"spark": spark, "walreplay": walreplay})
    shown = capsys.readouterr().out
    assert "shop.orders" in shown
    assert "total" in shown
