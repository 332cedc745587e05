"""What docs/history.md shows is done, as it stands there."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

import pytest
import yaml

from support.pages import tagged
from support.small_mirror import INT4, TEXT, SmallMirror, relation, row
from walreplay.config import Settings
from walreplay.config.selection import select
from walreplay.names import Output
from walreplay.protocol import messages as m

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.integration

_SNIPPETS: Final = [snippet.text for snippet in tagged("sql spark") if snippet.page == "docs/history.md"]
_PLACE: Final = "/data/mirror"


@pytest.fixture(scope="module")
def shop(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> SmallMirror:
    """A target with the page's history, in which a row is changed and one is deleted."""
    mirror = SmallMirror(spark, tmp_path_factory.mktemp("versions"))
    orders = relation(1, "orders", {"id": INT4, "status": TEXT}, schema="shop")
    mirror.apply(orders, m.Insert(1, row(1, "new")), m.Insert(1, row(2, "new")), outputs=["history"])
    mirror.apply(m.Update(1, row(1, "sent")), m.Delete(1, key=row(2, None)), outputs=["history"])
    return mirror


def test_the_configuration_is_right() -> None:
    found, lists = [one for one in tagged("yaml") if one.page == "docs/history.md"]
    settings = Settings.from_mapping(yaml.safe_load(found.text))
    assert [one.value for one in settings.outputs_of("shop", "customers")] == ["history"]
    assert [one.value for one in settings.outputs_of("shop", "other")] == ["mirror", "history"]
    assert settings.options_of("shop", "customers").name_of(Output.HISTORY) == "customers"
    listing = Settings.from_mapping(yaml.safe_load(lists.text) | {"outputs": ["history"]})
    orders = relation(1, "orders", {"id": INT4, "status": TEXT, "seen_at": TEXT}, schema="shop")
    for name, names in (("orders", ("status",)), ("others", ("seen_at",))):
        selection = select(listing, replace(orders, name=name), output=Output.HISTORY)
        assert selection is not None
        assert selection.tracked is not None
        assert selection.tracked.names == names


def test_its_queries_give_the_rows_of_their_moments(spark: SparkSession, shop: SmallMirror) -> None:
    now, moment, lsn, one_row = (
        {tuple(one) for one in spark.sql(text.replace(_PLACE, shop.target)).collect()} for text in _SNIPPETS
    )
    assert now == {(1, "sent")}
    assert moment == lsn == {(1, "new"), (2, "new")}
    assert {(op, status) for _, _, op, status in one_row} == {("c", "new"), ("u", "sent")}
