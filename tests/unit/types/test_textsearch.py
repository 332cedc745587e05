"""tsvector and tsquery in binary format."""

from struct import pack

import pytest

from walreplay.errors import ValueFormatError
from walreplay.types import special_forms


def tsvector_text(data):
    return special_forms.tsvector_text(data, "utf-8")


def tsquery_text(data):
    return special_forms.tsquery_text(data, "utf-8")


NOT, AND, OR = b"\2\1", b"\2\2", b"\2\3"


def lexeme(text, weights=0, prefix=0):
    return bytes([1, weights, prefix]) + text.encode() + b"\0"


def phrase(distance=1):
    return b"\2\4" + pack("!H", distance)


def query(*items):
    return pack("!i", len(items)) + b"".join(items)


A, B, C = lexeme("a"), lexeme("b"), lexeme("c")


def test_a_vector_has_quoted_lexemes_with_positions_and_weights():
    data = pack("!i", 3) + b"a\0" + pack("!HHH", 2, 0xC001, 2) + b"it's\0\0\0" + b"x\\\0" + pack("!HH", 1, 0x7FFF)
    assert tsvector_text(data) == r"'a':1A,2 'it''s' 'x\\':16383C"
    assert tsvector_text(b"\0\0\0\0") == ""


@pytest.mark.parametrize(
    ("items", "text"),
    [
        ((), ""),
        ((lexeme("it's", 0b1010, 1),), "'it''s':*AC"),
        ((AND, B, A), "'a' & 'b'"),
        ((NOT, NOT, A), "!!'a'"),
        ((NOT, OR, B, A), "!( 'a' | 'b' )"),
        ((OR, C, AND, B, A), "'a' & 'b' | 'c'"),
        ((AND, C, OR, B, A), "( 'a' | 'b' ) & 'c'"),
        ((phrase(), C, phrase(2), B, A), "'a' <2> 'b' <-> 'c'"),
        ((phrase(0), phrase(), C, B, A), "'a' <0> ( 'b' <-> 'c' )"),
        ((AND, phrase(), C, B, NOT, A), "!'a' & 'b' <-> 'c'"),
    ],
)
def test_a_query_has_parentheses_where_priorities_ask_for_them(items, text):
    assert tsquery_text(query(*items)) == text


def test_a_query_may_be_deep():
    assert tsquery_text(query(*[NOT] * 5000, A)) == "!" * 5000 + "'a'"


@pytest.mark.parametrize(
    "data",
    [query(AND, A), query(A, B), query(NOT), query(b"\2\5", A), query(b"\3\0"), query(A)[:-1], query(A) + b"\0", b"\0"],
)
def test_a_malformed_query_is_refused(data):
    with pytest.raises(ValueFormatError, match="tsquery"):
        tsquery_text(data)


@pytest.mark.parametrize("data", [b"\0\0\0\1a\0\0\1", b"\0\0\0\1abc", b"\0\0\0\0x", b"\xff\xff\xff\xff"])
def test_a_malformed_vector_is_refused(data):
    with pytest.raises(ValueFormatError, match="tsvector"):
        tsvector_text(data)
