"""What is written for a type: by oid, by name, or not at all; arrays, ranges and composite values around others."""

from struct import pack

import pytest

from walreplay.errors import ValueFormatError
from walreplay.types.builtin import BUILTIN_TYPES, EXTENSION_TEXTS, EXTENSION_TYPES
from walreplay.types.rendering import NotRendered, render

OIDS = {builtin.name: oid for oid, builtin in BUILTIN_TYPES.items()}
USER = 20_000
OTHER = 20_001


def sized(*values):
    return b"".join(b"\xff\xff\xff\xff" if value is None else pack("!i", len(value)) + value for value in values)


def array(element, *values, dimensions=None):
    dimensions = [(len(values), 1)] if dimensions is None else dimensions
    shape = b"".join(pack("!ii", size, first) for size, first in dimensions)
    return pack("!iiI", len(dimensions), int(None in values), element) + shape + sized(*values)


def composite(*fields):
    return pack("!i", len(fields)) + b"".join(pack("!I", oid) + sized(value) for oid, value in fields)


def int4(value):
    return pack("!i", value)


def builtin(name, data):
    return render(data, OIDS[name], -1, {})


def named(name, data, *, inside=None):
    names = {USER: ("public", name)} | ({OTHER: ("public", inside)} if inside else {})
    return render(data, USER, -1, names)


@pytest.mark.parametrize(
    ("values", "dimensions", "text"),
    [
        ((), [], "{}"),
        ((b"a", None, b"NULL", b""), None, '{a,NULL,"NULL",""}'),
        ((b'a"b', b"c\\d", b"e,f", b"g h", b"{i}", b"\n"), None, '{"a\\"b","c\\\\d","e,f","g h","{i}","\n"}'),
        ((b"null", b"x;y", "é\u00a0".encode()), None, '{"null",x;y,é\u00a0}'),
        ((b"a", b"b", b"c", b"d"), [(2, 1), (2, 1)], "{{a,b},{c,d}}"),
        ((b"a", b"b"), [(2, 0)], "[0:1]={a,b}"),
        ((b"a", b"b"), [(1, -3), (2, 1)], "[-3:-3][1:2]={{a,b}}"),
    ],
)
def test_an_array_has_quotes_and_bounds_where_it_needs_them(values, dimensions, text):
    assert builtin("_text", array(OIDS["text"], *values, dimensions=dimensions)) == text


def test_boxes_are_parted_by_semicolons():
    box = pack("!dddd", 3, 4, 1, 2)
    assert builtin("_box", array(OIDS["box"], box, box)) == "{(3,4),(1,2);(3,4),(1,2)}"


def test_hex_has_its_backslash_escaped_in_an_array():
    assert builtin("_bytea", array(OIDS["bytea"], b"\1")) == '{"\\\\x01"}'


def test_vectors_of_numbers_are_parted_by_spaces():
    numbers = array(OIDS["int2"], b"\0\1", b"\xff\xff", dimensions=[(2, 0)])
    assert builtin("int2vector", numbers) == "1 -1"
    assert builtin("_int2vector", array(OIDS["int2vector"], numbers)) == '{"1 -1"}'
    with pytest.raises(ValueFormatError):
        builtin("oidvector", array(OIDS["oid"], None))


@pytest.mark.parametrize(
    ("data", "text"),
    [
        (b"\x01", "empty"),
        (b"\x18", "(,)"),
        (b"\x02" + sized(int4(1), int4(5)), "[1,5)"),
        (b"\x04\0\0\0\4\0\0\0\1\0\0\0\4\0\0\0\5", "(1,5]"),
        (b"\x12" + sized(int4(-1)), "[-1,)"),
        (b"\x08" + sized(int4(7)), "(,7)"),
    ],
)
def test_a_range_has_its_bounds(data, text):
    assert builtin("int4range", data) == text
    assert builtin("int4multirange", pack("!i", 1) + sized(data)) == f"{{{text}}}"


def test_the_bounds_of_a_range_are_quoted():
    moment = sized(b"\0" * 8, b"\0" * 8)
    assert builtin("tsrange", b"\x06" + moment) == '["2000-01-01 00:00:00","2000-01-01 00:00:00"]'
    assert builtin("_int4range", array(OIDS["int4range"], b"\x18")) == '{"(,)"}'


@pytest.mark.parametrize("data", [b"", b"\x20", b"\x01\x00", b"\x06" + sized(int4(1)), b"\x06" + sized(int4(1), None)])
def test_a_malformed_range_is_refused(data):
    with pytest.raises(ValueFormatError):
        builtin("int4range", data)


def test_a_composite_value_has_its_fields():
    text, number = OIDS["text"], OIDS["int4"]
    assert named("address", composite((number, int4(1)), (text, None), (text, b""))) == '(1,,"")'
    quoted = composite((text, b'a"b'), (text, b"c\\d"), (text, b"(e, f)"))
    assert named("address", quoted) == '("a""b","c\\\\d","(e, f)")'


def test_a_composite_value_may_hold_another_that_is_announced():
    inner = composite((OIDS["text"], b"a b"))
    assert named("outer", composite((OTHER, inner)), inside="inner") == '("(""a b"")")'
    with pytest.raises(NotRendered):
        named("outer", composite((OTHER, inner)))


def test_an_array_of_a_user_defined_type_needs_its_announcement():
    assert named("_mood", array(OTHER, b"so so", None), inside="mood") == '{"so so",NULL}'
    with pytest.raises(NotRendered):
        named("_mood", array(OTHER, b"ok"))
    assert named("_mood", array(OTHER, dimensions=[])) == "{}"


def test_a_domain_is_its_base_type():
    assert render(int4(7), USER, -1, {USER: ("", "int4")}) == "7"
    assert render(array(OIDS["int4"], int4(7)), USER, -1, {USER: ("pg_catalog", "_int4")}) == "{7}"
    with pytest.raises(ValueFormatError):
        render(b"7", USER, -1, {USER: ("", "int4")})


@pytest.mark.parametrize("label", ["ok", "très bien", 'a"b', "two\nlines", ""])
def test_what_is_text_throughout_is_a_label(label):
    assert named("mood", label.encode()) == label


def test_the_texts_inside_a_value_may_be_in_another_encoding():
    names = {USER: ("public", "mood")}
    assert render(b"\xe9", USER, -1, names, codec="iso8859-1") == "é"
    assert render(array(OIDS["text"], b"\xe9"), OIDS["_text"], -1, {}, codec="iso8859-1") == "{é}"


@pytest.mark.parametrize(
    ("name", "data", "text"),
    [
        ("citext", "Straße".encode(), "Straße"),
        ("hstore", pack("!i", 2) + sized(b"a", None, b'b"', b"c\\"), '"a"=>NULL, "b\\""=>"c\\\\"'),
        ("hstore", pack("!i", 0), ""),
        ("ltree", b"\1Top.Science", "Top.Science"),
        ("lquery", b"\1*.a{1,2}|b", "*.a{1,2}|b"),
        ("cube", pack("!Idd", 0x8000_0002, 1, 2.5), "(1, 2.5)"),
        ("cube", pack("!Idddd", 2, 1, 2, 3, 4), "(1, 2),(3, 4)"),
        ("cube", pack("!Idd", 1, 1, 1), "(1)"),
        ("vector", pack("!hhff", 2, 0, 1.5, 1e-5), "[1.5,1e-05]"),
        ("halfvec", pack("!hhee", 2, 0, 0.1, -0.0), "[0.099975586,-0]"),
        ("sparsevec", pack("!iiiiiff", 9, 2, 0, 0, 8, 1.5, -2), "{1:1.5,9:-2}/9"),
        ("geometry", b"\1\1\0\0\0" + pack("<dd", 1, 2), "0101000000000000000000F03F0000000000000040"),
    ],
)
def test_the_types_of_known_extensions_are_known_by_name(name, data, text):
    assert named(name, data) == text


def geometry(kind, *rest, order="<"):
    return pack(f"{order}BI", order == "<", kind) + b"".join(rest)


POINTS = pack("<I6d", 3, *range(6))


@pytest.mark.parametrize(
    "data",
    [
        geometry(1, pack("<dd", 1, 2)),
        geometry(1, pack(">dd", 1, 2), order=">"),
        geometry(0xE000_0001, pack("<Idddd", 4326, 1, 2, 3, 4)),
        geometry(2, POINTS),
        geometry(2, pack("<I", 0)),
        geometry(8, POINTS),
        geometry(0x8000_0002, pack("<I6d", 2, *range(6))),
        geometry(3, pack("<I", 2), POINTS, POINTS),
        geometry(17, pack("<I", 1), POINTS),
        geometry(4, pack("<I", 2), geometry(1, pack("<dd", 1, 2)), geometry(1, pack("<dd", 3, 4))),
        geometry(0x2000_0007, pack("<II", 4326, 2), geometry(2, POINTS), geometry(7, pack("<I", 0))),
    ],
)
def test_a_geometry_of_any_kind_is_written_and_a_part_of_one_is_not(data):
    assert named("geometry", data) == named("geography", data) == data.hex().upper()
    for part in (data[:-1], data + b"\0"):
        with pytest.raises(NotRendered):
            named("geometry", part)


@pytest.mark.parametrize("name", [*EXTENSION_TYPES, *EXTENSION_TEXTS])
def test_another_type_may_have_an_extensions_name(name):
    int8, float8 = (OIDS["int8"], pack("!q", 7)), (OIDS["float8"], pack("!d", 1.5))
    assert named(name, composite((OIDS["int4"], int4(1)))) == "(1)"
    assert named(name, composite((OIDS["text"], b""), (OIDS["int4"], None))) == '("",)'
    # As long as a cube of so many dimensions.
    assert named(name, composite(int8)) == "(7)"
    assert named(name, composite(int8, float8, int8)) == "(7,1.5,7)"
    # As long as a sparse vector of 23 elements.
    assert named(name, composite((OIDS["int4"], int4(1)), (OIDS["text"], b"x" * 168))) == f"(1,{'x' * 168})"
    # A label, and ranges: of numbers, without their bounds; the flags are the first byte.
    assert named(name, b"a label") == "a label"
    for size in (4, 8, 16):
        with pytest.raises(NotRendered):
            named(name, b"\0" + sized(b"\0" * size, b"\1" * size))


@pytest.mark.parametrize(
    "data",
    [
        b"\0\0\0\0",
        b"\0\0\0\1",
        pack("!d", 1.5),
        b"\x08\x2a\x10\x72",
        b"\x01",
        b"\x02" + sized(int4(1), int4(5)),
        composite((OIDS["int4"], b"\1")),
        b"\xff\xfe",
    ],
)
def test_the_type_of_an_unknown_extension_is_not_rendered(data):
    with pytest.raises(NotRendered):
        named("thing", data)


def test_a_type_that_nothing_announces_is_not_rendered():
    with pytest.raises(NotRendered):
        render(b"ok", USER, -1, {})


@pytest.mark.parametrize("name", ["aclitem", "gtsvector", "pg_ndistinct", "pg_mcv_list", "pg_brin_bloom_summary"])
def test_a_type_without_a_stable_binary_form_is_not_rendered(name):
    with pytest.raises(NotRendered):
        builtin(name, b"\0")


def test_values_nested_beyond_any_schema_are_not_rendered():
    data = composite((OIDS["int4"], None))
    for _ in range(5000):
        data = composite((USER, data))
    with pytest.raises(NotRendered):
        named("deep", data)


@pytest.mark.parametrize(
    "data",
    [
        b"",
        array(OIDS["int4"], b"a"),
        pack("!iiI", 7, 0, OIDS["text"]),
        pack("!iiI", 1, 2, OIDS["text"]) + pack("!ii", 0, 1),
        pack("!iiIii", 1, 0, OIDS["text"], -1, 1),
        pack("!iiIii", 1, 0, OIDS["text"], 2**31 - 1, 1),
        array(OIDS["text"], b"a")[:-1],
        array(OIDS["text"], b"a") + b"\0",
        array(OIDS["text"], b"\0"),
        array(OIDS["text"], b"\xff"),
    ],
)
def test_a_malformed_array_is_refused(data):
    with pytest.raises(ValueFormatError):
        builtin("_text", data)


def test_an_error_does_not_hold_the_value():
    with pytest.raises(ValueFormatError) as caught:
        builtin("date", b"secret")
    assert "secret" not in str(caught.value)
