"""What docs/reading.md shows is done, as it stands there."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

import pytest

from support.pages import ROOT, Block, tagged, with_places
from support.readers import KNOWN, duckdb_session
from support.small_mirror import INT4, SmallMirror, relation, row
from walreplay.protocol import messages as m

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.integration

_SNIPPETS: Final = [
    snippet
    for snippet in (
        *tagged("python spark"),
        *tagged("sql spark"),
        *tagged("sql duckdb"),
        *tagged("python polars"),
        *tagged("python delta-rs"),
    )
    if snippet.page == "docs/reading.md"
]

_PLACE: Final = "/data/mirror"
_FEATURES: Final = ("timestampNtz", "columnMapping", "typeWidening", "deletionVectors")
_AMOUNTS: Final = {1: 50, 2: 150, 3: 250}


@pytest.fixture(scope="module")
def shop(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> SmallMirror:
    """A mirror with the page's table, in its second version."""
    mirror = SmallMirror(spark, tmp_path_factory.mktemp("reading"))
    orders = relation(1, "orders", {"id": INT4, "amount": INT4}, schema="shop")
    mirror.apply(orders, m.Insert(1, row(1, _AMOUNTS[1])))
    mirror.apply(orders, m.Insert(1, row(2, _AMOUNTS[2])))
    mirror.apply(orders, m.Insert(1, row(3, _AMOUNTS[3])))
    return mirror


def test_the_page_has_a_snippet_for_each_reader() -> None:
    assert {_reader_of(snippet) for snippet in _SNIPPETS} == {"spark", "duckdb", "polars", "delta-rs"}


@pytest.mark.parametrize("snippet", _SNIPPETS, ids=str)
def test_a_snippet_of_the_page_reads_the_table(spark: SparkSession, shop: SmallMirror, snippet: Block) -> None:
    text = with_places(snippet.text, {_PLACE: shop.target})
    found = _done(spark, snippet.language, _reader_of(snippet), text)
    is_older = re.search(r"version ?=|VERSION =>", text) is not None
    assert found == (2 if "100" in text or is_older else 3)


def _reader_of(snippet: Block) -> str:
    return snippet.tag.partition(" ")[2]


def _done(spark: SparkSession, language: str, reader: str, text: str) -> int:
    """Run a snippet and give how many rows it reads."""
    if language == "sql":
        run: Callable[[str], Any] = duckdb_session().execute if reader == "duckdb" else spark.sql
        found = [run(statement) for statement in text.split(";")][-1]
        ((count,),) = found.fetchall() if reader == "duckdb" else found.collect()
        return int(count)
    names: dict[str, Any] = {"spark": spark}
    exec(compile(text, "reading.md", "exec"), names)
    if "cut" in names:
        return int(spark.table("shop_orders").count())
    orders = names["orders"]
    if reader == "spark":
        return int(orders.where("amount > 100").count())
    return len(orders)


def test_the_page_says_who_knows_which_feature() -> None:
    page = (ROOT / "docs" / "reading.md").read_text(encoding="utf-8")
    (table,) = re.findall(r"^\| feature .*\n(?:\|.*\n)+", page, re.MULTILINE)
    rows = [[cell.strip(" `") for cell in line.strip("|").split("|")] for line in table.splitlines()]
    head, _, *features = rows
    for name, _, spark_reads, *others in features:
        assert spark_reads == "yes"
        wanted = dict(zip(head[3:], others, strict=True))
        known = {reader: name in found or name == "none" for reader, found in KNOWN.items()}
        assert {reader: answer == "yes" for reader, answer in wanted.items()} == known, name
    assert {name for name, *_ in features} == {"none", *_FEATURES}
