from __future__ import annotations

import pickle

import pytest

from walreplay.protocol import messages as m

ROW = m.TupleData((m.Cell("t", b"secret"),))


def test_a_relation_without_a_namespace_is_of_pg_catalog() -> None:
    assert m.Relation(1, "", "pg_class", "n", ()).qualified_name == "pg_catalog.pg_class"
    assert m.Relation(1, "shop", "orders", "d", ()).qualified_name == "shop.orders"
    assert m.Type(1, "", "int4").qualified_name == "pg_catalog.int4"


@pytest.mark.parametrize(
    "message",
    [m.Insert(1, ROW), m.Update(1, ROW, old=ROW), m.Delete(1, key=ROW), m.Message(True, 1, "p", b"secret")],
)
def test_no_value_shows_in_a_repr(message: m.AnyMessage) -> None:
    assert "secret" not in repr(message)


def test_messages_survive_pickling() -> None:
    message = m.Update(1, ROW, key=ROW, xid=7)
    assert pickle.loads(pickle.dumps(message)) == message


def test_what_the_wire_cannot_say_cannot_be_made() -> None:
    with pytest.raises(ValueError, match="not both"):
        m.Update(1, ROW, old=ROW, key=ROW)
    with pytest.raises(ValueError, match="either"):
        m.Delete(1)
    with pytest.raises(ValueError, match="either"):
        m.Delete(1, old=ROW, key=ROW)
    with pytest.raises(ValueError, match="neither"):
        m.StreamAbort(1, 2, abort_lsn=3)
    with pytest.raises(ValueError, match="kind n, u, t or b"):
        m.Cell("x")
    with pytest.raises(ValueError, match="has a value exactly"):
        m.Cell("n", b"")
    with pytest.raises(ValueError, match="has a value exactly"):
        m.Cell("t")
