"""What tables and columns are to say, and what they go on to say where somebody else has had a hand in it."""

import pyarrow as pa
import pytest

from walreplay.evolution.comments import (
    column_comments,
    comment_in,
    followed,
    followed_columns,
    table_comment,
    with_comments,
)
from walreplay.evolution.shapes import Evolution, Policy, SourceColumn
from walreplay.protocol.messages import Column, Relation
from walreplay.types.registry import resolve

TYPES = {"int": 23, "bigint": 20, "text": 25}
OTHERS = {"__lsn": "an LSN"}


def relation(*columns):
    return Relation(1, "Shop", "order", "d", tuple(Column(name, *kind, False) for name, *kind in columns))


def shape(text, before=None, policy=Policy(keep_dropped=False)):  # noqa: B008
    evolution = Evolution(before, policy)
    pairs = [item.split(":") for item in text.split()]
    evolution.take([SourceColumn(name, name, resolve(TYPES[kind], -1, {}), kind) for name, kind in pairs])
    return evolution.shape


def test_a_table_names_its_source_and_a_column_its_type():
    found = relation(("id", 23, -1), ("a", 1043, 24), ("b", 70000, -1), ("c", 25, -1))
    assert table_comment(found) == 'PostgreSQL table "Shop"."order"'
    assert table_comment(Relation(1, "", "pg_class", "d", ())) == "PostgreSQL table pg_catalog.pg_class"
    told = column_comments(found, {70000: ("shop", "mood")}, masked=(1, 3))
    assert told == ["integer", "character varying(20), masked", "shop.mood", "text, masked"]


def test_what_the_source_says_itself_stands_behind_that():
    found = relation(("id", 23, -1), ("a", 25, -1))
    assert table_comment(found, announced="It's: ours") == 'PostgreSQL table "Shop"."order": It\'s: ours'
    assert column_comments(found, {}, (1,), ["", "Their name"]) == ["integer", "text, masked: Their name"]


@pytest.mark.parametrize(
    ("there", "before", "wanted", "found"),
    [
        ("integer", "integer", "bigint", "bigint"),
        ("mine", "integer", "bigint", "mine"),
        ("", "integer", "bigint", ""),
        ("", "", "integer", "integer"),
        ("mine", "", "integer", "mine"),
        # It was done already.
        ("bigint", "integer", "bigint", "bigint"),
        ("integer", "integer", "integer", "integer"),
    ],
)
def test_what_is_not_what_was_written_last_stays(there, before, wanted, found):
    assert followed(there, before, wanted) == found
    assert followed(found, before, wanted) == found


def test_a_new_table_says_all_and_one_that_is_declared_anew_what_it_said():
    before = shape("id:int a:int b:text")
    assert followed_columns({}, None, before, OTHERS) == {"id": "int", "a": "int", "b": "text", **OTHERS}
    after = shape("id:bigint b:text c:int", before)
    there = {"id": "int", "a": "mine", "b": "mine, too", "__lsn": "somebody's"}
    assert followed_columns(there, before, after, OTHERS) == {
        "id": "bigint",
        "b": "mine, too",
        "c": "int",
        "__lsn": "somebody's",
    }
    # A column of the same name is another one once it was dropped and added again.
    again = shape("id:int b:text a:int", before)
    assert followed_columns({"id": "int", "a": "mine", "b": "", "__lsn": ""}, before, again, OTHERS) == {
        "id": "int",
        "b": "",
        "a": "int",
        "__lsn": "",
    }


def test_a_table_that_the_ledger_does_not_know_keeps_what_it_says():
    found = followed_columns({"id": "?", "x": "gone"}, None, shape("id:int a:int"), OTHERS)
    assert found == {"id": "?", "a": "int", **OTHERS}


def test_a_renamed_column_takes_along_what_it_says():
    before = shape("id:int a:int b:text")
    after = shape("id:int x:bigint b:text", before, Policy(renames=(("a", "x"),)))
    for said, wanted in (("int", "bigint"), ("mine", "mine")):
        assert followed_columns({"id": "int", "a": said, "b": "text"}, before, after, {})["x"] == wanted


def test_a_schema_carries_what_is_said():
    found = with_comments(pa.schema([("a", pa.int64()), ("b", pa.int64())]), "größe 😀", {"a": "it's"})
    assert (comment_in(found), [comment_in(field) for field in found]) == ("größe 😀", ["it's", ""])
    assert comment_in(pa.field("a", pa.int64())) == ""
