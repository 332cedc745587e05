import pytest

from walreplay.delta.target import Target
from walreplay.ledger.status import _table_version, spans


@pytest.mark.parametrize(
    ("numbers", "text"),
    [([], ""), ([4], "4"), ([1, 2, 3], "1 to 3"), ([1, 3, 4, 9], "1, 3 to 4, 9")],
)
def test_runs_are_named_by_their_spans(numbers, text):
    assert spans(numbers) == text


@pytest.mark.parametrize(
    ("target", "location", "name"),
    [
        ("/mirror", "/mirror/shop/order items", "delta.`/mirror/shop/order items`"),
        ("s3a://b/m", "s3a://b/m/a.b/c`d", "delta.`s3a://b/m/a.b/c``d`"),
        ("main", "main.shop.orders", "`main`.`shop`.`orders`"),
        ("main.mirror", "main.mirror.orders", "`main`.`mirror`.`orders`"),
    ],
)
def test_a_tables_version_is_read_by_its_quoted_name(target, location, name):
    table = _table_version(Target.parse(target), "shop.orders", location, 3, None, "")
    assert table.sql == f"SELECT * FROM {name} VERSION AS OF 3"
