import pytest

from walreplay.delta.target import Target
from walreplay.ledger.status import spans, table_at


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
def test_a_table_of_a_run_is_read_by_its_quoted_name(target, location, name):
    assert table_at(Target.parse(target), location).sql == name
