from typing import get_args

import pytest

from support.captures import case, cases
from support.framings import frame
from walreplay.archive.messages import inspect_captures, transcribe
from walreplay.errors import MalformedMessage
from walreplay.protocol import messages as m
from walreplay.protocol.framing import Framing

_NAMES = {kind.tag: kind.__name__ for kind in get_args(m.AnyMessage)}


@pytest.mark.parametrize(
    "recorded", [item for item in cases() if not item.name.startswith("o26")], ids=lambda item: item.name[:3]
)
def test_all_messages_of_a_capture_are_counted(recorded):
    found = inspect_captures([recorded.folder])
    expected = {_NAMES[tag]: count for tag, count in recorded.info["tags"].items() if tag in _NAMES}
    assert found.messages == expected
    assert found.transactions == recorded.info["transactions_committed"]
    assert {file.framing for file in found.files} == {recorded.framing.value}


def test_relations_have_their_keys_and_counts():
    found = inspect_captures([case("o01").folder])
    items = next(relation for relation in found.relations if relation.name == "shop.order items")
    assert items.key == ("order_id", "line_no")
    assert items.inserts + items.updates + items.deletes == 301


def test_the_lsn_and_time_range_is_that_of_the_commits():
    found = inspect_captures([case("o01").folder])
    assert found.first_lsn < found.last_lsn
    assert found.first_commit < found.last_commit
    assert found.first_commit.tzinfo is not None


def test_a_file_from_the_middle_is_inspected_alone():
    found = inspect_captures([case("o03").files[2]])
    assert found.transactions > 0
    assert "begins inside a message" in found.files[0].note


def test_files_that_are_cut_say_so():
    found = inspect_captures([case("o03").folder])
    assert "ends inside a message" in found.files[0].note
    assert found.transactions == 105


def test_names_are_read_in_the_encoding_that_is_named(tmp_path):
    relation = m.Relation(9, "shop", "str@sse", "d", (m.Column("h@hl", 23, -1, True),))
    row = m.Insert(9, m.TupleData((m.Cell("t", b"1"),)))
    data = frame([m.Begin(100, 5, 7), relation, row, m.Commit(0, 100, 108, 5)], Framing.RAW)
    (tmp_path / "a").write_bytes(data.replace(b"@", b"\xdf"))
    (found,) = inspect_captures(tmp_path / "a", source_encoding="LATIN1").relations
    assert (found.name, found.key) == ("shop.strßsse", ("hßhl",))
    lines = list(transcribe(tmp_path / "a", source_encoding="LATIN1"))
    assert "shop.strßsse oid 9 identity d (hßhl*)" in [line.details for line in lines]
    for read in (inspect_captures, lambda path: list(transcribe(path))):
        with pytest.raises(MalformedMessage, match="source_encoding"):
            read(tmp_path / "a")
