"""Values in another encoding than UTF-8: text cells, and the texts inside of binary ones."""

import struct

import pytest

from support.binary_cells import Binary, Value, array, convert, tile
from walreplay.decode.columns import UNCHANGED, make_builder
from walreplay.errors import ValueFormatError
from walreplay.types import Rescued, resolve
from walreplay.types.text import codec_of

TEXT, INT4, NUMERIC, UUID, JSONB, XML, BYTEA, MONEY = 25, 23, 1700, 2950, 3802, 142, 17, 790
TEXTS, INT4S, UUIDS = 1009, 1007, 2951
MOOD, MOODS, VECTOR, PAIR = 90_001, 90_002, 90_003, 90_004
NAMES = {
    MOOD: ("shop", "mood"),
    MOODS: ("shop", "_mood"),
    VECTOR: ("public", "vector"),
    PAIR: ("shop", "pair"),
}
LATIN1, SJIS, BIG5, GBK = map(codec_of, ("LATIN1", "SJIS", "BIG5", "GBK"))


def values(oid, cells, codec, **options):
    column, rescued = convert(resolve(oid, -1, NAMES, **options), cells, NAMES, codec=codec)
    assert not rescued
    return column.to_pylist()


def pair(first: bytes, second: int) -> Binary:
    """Write a composite value of a text and an integer."""
    fields = struct.pack("!iI", 2, TEXT) + struct.pack("!i", len(first)) + first
    return Binary(fields + struct.pack("!Iii", INT4, 4, second))


@pytest.mark.parametrize(("codec", "text"), [(LATIN1, "Straße"), (SJIS, "ソース表"), (BIG5, "功許蓋"), (GBK, "誠")])
@pytest.mark.parametrize("oid", [TEXT, MOOD, MOODS, PAIR, 90_009])
def test_text_comes_out_as_utf8(codec, text, oid):
    cells = [text.encode(codec), None, b"plain", b""]
    assert values(oid, cells, codec) == [text, None, "plain", ""]


@pytest.mark.parametrize(("codec", "elements"), [(LATIN1, ["é", "ü,{"]), (SJIS, ["ソ", "表}"]), (GBK, ["誠", "乗"])])
def test_an_array_is_split_where_its_text_is_and_not_within_a_character(codec, elements):
    quoted = "{" + ",".join(f'"{element}"' for element in elements) + ",NULL}"
    assert values(TEXTS, [quoted.encode(codec), b"{a}", None], codec) == [[*elements, None], ["a"], None]
    # Unquoted, as a server in another encoding writes what has no need of quotes.
    bare = "{" + elements[0] + "}"
    assert values(TEXTS, [bare.encode(codec)], codec) == [elements[:1]]


@pytest.mark.parametrize("codec", [LATIN1, SJIS])
def test_binary_values_hold_text_of_that_encoding(codec):
    text = "é ß" if codec == LATIN1 else "ソ 表"
    data = text.encode(codec)
    assert values(TEXT, [Binary(data), data, None, Binary(b"x")], codec) == [text, text, None, "x"]
    assert values(JSONB, [Binary(b'\x01{"a": "' + data + b'"}')], codec) == [f'{{"a": "{text}"}}']
    assert values(MOOD, [Binary(data), data], codec) == [text, text]
    assert values(PAIR, [pair(data, -7)], codec) == [f'("{text}",-7)']
    cell = array(TEXT, [Value("", data), None, Value("", b"x")]).binary
    assert values(TEXTS, [Binary(cell), b"{y}"], codec) == [[text, None, "x"], ["y"]]


def test_types_without_text_are_read_as_ever():
    number = struct.pack("!hhHhhh", 2, 0, 0x4000, 1, 1, 5000)
    assert values(NUMERIC, [Binary(number), b"2.5"], LATIN1) == ["-1.5", "2.5"]
    uuid = "a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11"
    data = Binary(bytes.fromhex(uuid.replace("-", "")))
    assert values(UUID, [data, uuid.encode()], LATIN1) == [uuid, uuid]
    assert values(UUIDS, [Binary(array(UUID, [Value("", data)]).binary)], LATIN1) == [[uuid]]
    assert values(INT4S, [Binary(array(INT4, [Value("", struct.pack("!i", -1))]).binary)], LATIN1) == [[-1]]
    assert values(BYTEA, [Binary(b"\xe9\x80"), rb"\xe980"], LATIN1) == [b"\xe9\x80"] * 2


def test_a_currency_sign_is_text_too():
    assert values(MONEY, [b"\xa35.00"], LATIN1) == ["£5.00"]


@pytest.mark.parametrize(("override", "cells"), [("bigint", [b"5", b"f\xfcnf"]), ("bigint[]", [b"{5}", b"f\xfcnf"])])
def test_what_does_not_fit_an_override_is_rescued_in_utf8(override, cells):
    column, rescued = convert(resolve(TEXT, -1, {}, override=override), cells, codec=LATIN1)
    assert column.to_pylist() == [[5] if "[" in override else 5, None]
    assert rescued == [Rescued(1, "fünf")]


def test_text_that_is_read_as_text_keeps_its_encoding():
    assert values(TEXT, [b"f\xfcnf", Binary(b"f\xfcnf")], LATIN1, override="text") == ["fünf"] * 2
    assert values(BYTEA, [Binary(b"\xfc")], LATIN1, override="text") == [r"\xfc"]


def test_what_is_no_vector_is_rescued_in_utf8():
    column, rescued = convert(resolve(VECTOR, -1, NAMES), [b"[1,2]", b"f\xfcnf", None], NAMES, codec=LATIN1)
    assert column.to_pylist() == [[1.0, 2.0], None, None]
    assert rescued == [Rescued(1, "fünf")]


def test_bytes_of_an_unknown_type_are_no_text_in_any_encoding():
    column, rescued = convert(resolve(90_009, -1, {}), [Binary(b"f\xfcnf"), b"f\xfcnf"], codec=LATIN1)
    assert column.to_pylist() == [None, "fünf"]
    assert rescued == [Rescued(0, r"\x66fc6e66")]


@pytest.mark.parametrize("cell", [b"\x85", Binary(b"\x85"), b"\x81\xad"])
def test_what_is_not_in_the_encoding_stops_at_its_place_and_names_the_setting(cell):
    with pytest.raises(ValueFormatError, match="source_encoding") as caught:
        convert(resolve(TEXT, -1, {}), [b"\x95\x5c", None, cell], lead=b"head", codec=SJIS)
    assert caught.value.offset == 6


@pytest.mark.parametrize("codec", [LATIN1, SJIS])
def test_a_nul_byte_is_found_at_its_place(codec):
    with pytest.raises(ValueFormatError, match="NUL") as caught:
        convert(resolve(TEXT, -1, {}), [b"\xb1", b"a\0b", b"c"], codec=codec)
    assert caught.value.offset == 1


def test_a_torn_character_does_not_make_up_for_a_nul_byte():
    with pytest.raises(ValueFormatError):
        convert(resolve(TEXT, -1, {}), [b"\x95", b"a\0b"], codec=SJIS)


def test_null_unchanged_and_missing_tuples_are_null():
    buf, offset, length, first, column = tile([b"\xe9"] * 4)
    length[1], length[2], first[3] = -1, UNCHANGED, -1
    builder = make_builder(resolve(TEXT, -1, {}), codec=LATIN1)
    for _ in range(2):
        assert builder.add_rows(buf, offset, length, first, column) is None
    assert builder.finish().to_pylist() == ["é", None, None, None] * 2
