"""What docs/change-log.md shows is done, as it stands there."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pytest
import yaml

from support.pages import tagged
from support.small_mirror import INT4, TEXT, SmallMirror, relation, row
from walreplay.config import Settings
from walreplay.protocol import messages as m

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.integration

_SNIPPETS: Final = [
    snippet.text for snippet in (*tagged("sql spark"), *tagged("python spark")) if snippet.page == "docs/change-log.md"
]
_PLACE: Final = "/data/mirror"


@pytest.fixture(scope="module")
def shop(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> SmallMirror:
    return made(spark, tmp_path_factory.mktemp("changes"))


def made(spark: SparkSession, folder: Path) -> SmallMirror:
    """Make a target with the page's change log, in which a row is changed and one is deleted."""
    mirror = SmallMirror(spark, folder)
    orders = relation(1, "orders", {"id": INT4, "status": TEXT, "note": TEXT}, schema="shop")
    note_kept = m.TupleData((m.Cell("t", b"1"), m.Cell("t", b"sent"), m.UNCHANGED_CELL))
    both: Any = {"outputs": ["mirror", "changelog"]}
    mirror.apply(orders, m.Insert(1, row(1, "new", "long")), m.Insert(1, row(2, "new", None)), **both)
    mirror.apply(
        m.Update(1, note_kept), m.Insert(1, row(3, "new", "short")), m.Delete(1, key=row(2, None, None)), **both
    )
    return mirror


def _text(shop: SmallMirror, start: str) -> str:
    (found,) = [text for text in _SNIPPETS if start in text]
    return found.replace(_PLACE, shop.target)


def test_the_configuration_is_right() -> None:
    (found,) = [one for one in tagged("yaml") if one.page == "docs/change-log.md"]
    settings = Settings.from_mapping(yaml.safe_load(found.text))
    assert [one.value for one in settings.outputs_of("shop", "orders")] == ["changelog"]
    assert [one.value for one in settings.outputs_of("shop", "other")] == ["mirror", "changelog"]


def test_the_rows_as_they_are_now(spark: SparkSession, shop: SmallMirror) -> None:
    found = {tuple(one) for one in spark.sql(_text(shop, "SELECT id, status FROM (\n  SELECT *,")).collect()}
    assert found == {(1, "sent"), (3, "new")}


def test_what_became_of_a_row(spark: SparkSession, shop: SmallMirror) -> None:
    found = spark.sql(_text(shop, "AS was")).collect()
    assert [(one["__op"], one["status"], one["was"]) for one in found] == [("c", "new", None), ("d", None, None)]


def test_what_was_not_sent_is_what_was_sent_last(spark: SparkSession, shop: SmallMirror) -> None:
    found = spark.sql(_text(shop, "last_value")).collect()
    assert sorted((one["id"], one["__op"], one["note"]) for one in found if one["id"] == 1) == [
        (1, "c", "long"),
        (1, "u", "long"),
    ]


def test_a_stream_has_each_change_once(spark: SparkSession, shop: SmallMirror) -> None:
    exec(compile(_text(shop, "readStream"), "change-log.md", "exec"), {"spark": spark})
    assert spark.table("seen").count() == 5


@pytest.mark.full
def test_keys_that_change_and_truncates_are_followed(spark: SparkSession, tmp_path: Path) -> None:
    shop = made(spark, tmp_path)
    both: Any = {"outputs": ["mirror", "changelog"]}
    shop.apply(m.Update(1, row(9, "moved", "short"), key=row(3, None, None)), **both)
    text = _text(shop, "emptied")
    assert {tuple(one) for one in spark.sql(text).collect()} == {(1, "sent"), (9, "moved")}
    shop.apply(m.Truncate((1,), 0), m.Insert(1, row(5, "again", None)), **both)
    assert [tuple(one) for one in spark.sql(text).collect()] == [(5, "again")]
