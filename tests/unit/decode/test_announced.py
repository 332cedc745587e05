"""A Relation message that comes again is what the reader would make of it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from support.wire import encode
from walreplay.decode.walk_state import RelationCache
from walreplay.errors import TruncatedMessage
from walreplay.protocol import messages as m
from walreplay.protocol.reader import names_in_utf8, read_message

RELATION = m.Relation(9, "s", "t", "d", (m.Column("id", 23, -1, True), m.Column("n", 1700, 327686, False)))
OTHERS = [
    replace(RELATION, name="tt"),
    replace(RELATION, columns=RELATION.columns[:1]),
    replace(RELATION, columns=(*RELATION.columns, m.Column("v", 25, -1, False))),
    replace(RELATION, oid=10),
    replace(RELATION, replica_identity="f"),
]


@pytest.mark.parametrize("streaming", [False, True])
@pytest.mark.parametrize("other", OTHERS)
def test_what_comes_again_is_read_as_the_first_time(other: m.Relation, streaming: bool) -> None:
    announced = RelationCache(names_in_utf8)
    told = [RELATION, other, RELATION, RELATION, other, m.Commit(0, 100, 108, 5)]
    for number, message in enumerate(told):
        if isinstance(message, m.Relation):
            message = replace(message, xid=700 + number if streaming else None)
        data = memoryview(b"before" + encode(message) + b"R behind")
        in_block = streaming and isinstance(message, m.Relation)
        found = announced.read_message(data, 6, streaming=in_block)
        assert found == read_message(data, 6, streaming=in_block) == (message, len(data) - len(b"R behind"))


def test_a_transaction_that_is_not_streamed_gets_no_xid_of_one_that_was() -> None:
    announced = RelationCache(names_in_utf8)
    announced.read_message(memoryview(encode(replace(RELATION, xid=7))), 0, streaming=True)
    assert announced.read_message(memoryview(encode(RELATION)), 0, streaming=False)[0] == RELATION


def test_a_part_of_what_came_before_is_no_message() -> None:
    announced = RelationCache(names_in_utf8)
    data = memoryview(encode(RELATION))
    announced.read_message(data, 0, streaming=False)
    for size in range(1, len(data)):
        with pytest.raises(TruncatedMessage):
            announced.read_message(data[:size], 0, streaming=False)
