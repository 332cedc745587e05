from __future__ import annotations

import datetime
import math
from decimal import Decimal
from itertools import product

import numpy as np
import pyarrow as pa
import pytest

from walreplay.evolution.convert import convert, is_widening, keeps_values
from walreplay.types import ColumnType, families, resolve
from walreplay.types.builtin import BUILTIN_TYPES
from walreplay.types.families import text_of
from walreplay.types.registry import DEFAULT_OPTIONS, TypeOptions

OIDS = {builtin.sql_name: oid for oid, builtin in BUILTIN_TYPES.items()}
EXTENSIONS = {90000: ("public", "vector"), 90001: ("public", "mood"), 90002: ("public", "citext")}
UTC = datetime.timezone.utc
DAY = datetime.date(2024, 2, 29)
NOON = datetime.datetime(2024, 2, 29, 12)
MIDNIGHT = datetime.datetime(2024, 2, 29)


def column_type(name: str, options: TypeOptions = DEFAULT_OPTIONS) -> ColumnType:
    """Take a type by its SQL name; numeric and char with modifiers."""
    extension = {f"{schema}.{known}": oid for oid, (schema, known) in EXTENSIONS.items()}
    base, _, modifiers = name.removesuffix("[]").removesuffix(")").partition("(")
    typmod = -1
    if base == "numeric" and modifiers:
        precision, scale = map(int, modifiers.split(","))
        typmod = (precision << 16 | scale & 0x7FF) + 4
    elif modifiers:
        typmod = int(modifiers) + 4
    oid = extension.get(base) or OIDS[base + ("[]" if name.endswith("[]") else "")]
    return resolve(oid, typmod, EXTENSIONS, options=options)


def converted(values, *names, rescued=None):
    chain = [column_type(name) for name in names]
    texts = None if rescued is None else pa.array(rescued, pa.string())
    column, left = convert(pa.array(values, chain[0].arrow), texts, chain)
    column.validate(full=True)
    assert (column.type, len(column)) == (chain[-1].arrow, len(values))
    assert left is None or (left.type, len(left)) == (pa.string(), len(values))
    assert left is None or left.null_count < len(left)
    return column.to_pylist(), None if left is None else left.to_pylist()


def one(value, *names):
    """Convert one value; give it, or in a tuple the text that is rescued."""
    (held,), left = converted([value], *names)
    assert held is None or left is None
    return held if left is None else tuple(left)


EXACT = [
    # boolean
    (True, "boolean", "integer", 1),
    (False, "boolean", "bigint", 0),
    (True, "boolean", "text", "true"),
    (0, "integer", "boolean", False),
    (1, "smallint", "boolean", True),
    (" TrUe\n", "text", "boolean", True),
    ("of", "text", "boolean", False),
    ("YES", "character varying", "boolean", True),
    ("0", "text", "boolean", False),
    ("true", "jsonb", "boolean", True),
    # integers
    (-32768, "smallint", "bigint", -32768),
    (70000, "bigint", "integer", 70000),
    (4294967295, "oid", "bigint", 4294967295),
    (5, "bigint", "oid", 5),
    (-5, "integer", "text", "-5"),
    (5, "integer", "numeric(12,2)", Decimal("5.00")),
    (5, "integer", "numeric", "5"),
    (5, "integer", "numeric(40,2)", "5.00"),
    (2**24 + 2, "integer", "real", 2.0**24 + 2),
    (2**60, "bigint", "double precision", 2.0**60),
    (" +5 ", "text", "integer", 5),
    ("-2147483648", "text", "integer", -(2**31)),
    ("5", "json", "smallint", 5),
    # numbers with a fraction of zero
    (Decimal("5.00"), "numeric(12,2)", "integer", 5),
    (Decimal("-0.00"), "numeric(12,2)", "integer", 0),
    (5.0, "double precision", "bigint", 5),
    (-0.0, "double precision", "bigint", 0),
    (1e18, "double precision", "bigint", 10**18),
    ("5.000", "numeric", "integer", 5),
    # floats
    (np.float32(0.1), "real", "double precision", 0.10000000149011612),
    (0.10000000149011612, "double precision", "real", 0.10000000149011612),
    (0.1, "double precision", "real", 0.10000000149011612),
    (np.float32(0.1), "real", "numeric(3,2)", Decimal("0.10")),
    (0.1, "double precision", "numeric", "0.1"),
    (1e20, "double precision", "numeric", "100000000000000000000"),
    (1e-7, "double precision", "numeric(10,7)", Decimal("0.0000001")),
    (math.inf, "double precision", "numeric", "Infinity"),
    (1e20, "double precision", "text", "1e+20"),
    (1e15, "double precision", "text", "1e+15"),
    (123456789012345.0, "double precision", "text", "123456789012345"),
    (np.float32(1e6), "real", "text", "1e+06"),
    (0.0001, "double precision", "text", "0.0001"),
    (0.00001, "double precision", "text", "1e-05"),
    (-0.0, "real", "text", "-0"),
    ("1e400", "text", "numeric", "1" + "0" * 400),
    ("0.10", "text", "double precision", 0.1),
    ("-Infinity", "text", "real", -math.inf),
    ("-infinity", "text", "real", -math.inf),
    ("1e10", "text", "real", 1e10),
    ("1e23", "text", "double precision", 1e23),
    # numeric
    (Decimal("1.50"), "numeric(12,2)", "numeric", "1.50"),
    (Decimal("1.50"), "numeric(12,2)", "text", "1.50"),
    (Decimal("1.50"), "numeric(12,2)", "numeric(5,1)", Decimal("1.5")),
    (Decimal("1.50"), "numeric(12,2)", "numeric(20,10)", Decimal("1.5")),
    (Decimal("1E-11"), "numeric(38,11)", "text", "0.00000000001"),
    (Decimal("0.10"), "numeric(12,2)", "double precision", 0.1),
    ("1.50", "numeric", "numeric(12,2)", Decimal("1.50")),
    (" 1e3 ", "text", "numeric(12,2)", Decimal("1000.00")),
    ("1.5e1", "text", "numeric", "15"),
    (".5", "text", "numeric", "0.5"),
    ("-0.0", "text", "numeric", "0.0"),
    ("nan", "text", "numeric", "NaN"),
    ("12300", "text", "numeric(5,-2)", "12300"),
    ("0.0", "text", "numeric(5,-2)", "0"),
    (0, "integer", "numeric(5,-2)", "0"),
    # strings
    ("ab  ", "character(4)", "text", "ab"),
    ("ab", "text", "character(4)", "ab  "),
    ("ab  ", "character(4)", "character(6)", "ab    "),
    ("abcd   ", "text", "character(4)", "abcd"),
    ("x", "character varying", "text", "x"),
    ("{A0EEBC99-9C0B4EF8-BB6D6BB9BD380A11}", "text", "uuid", "a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11"),
    ("a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11", "uuid", "text", "a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11"),
    ("sad", "public.mood", "text", "sad"),
    ("sad", "text", "public.mood", "sad"),
    (5, "integer", "public.citext", "5"),
    ('{"a": 1}', "text", "jsonb", '{"a": 1}'),
    ("10.0.0.1", "inet", "text", "10.0.0.1/32"),
    ("::1", "inet", "text", "::1/128"),
    ("10.0.0.1/8", "inet", "text", "10.0.0.1/8"),
    ("10.0.0.1/32", "text", "inet", "10.0.0.1"),
    ("::1/128", "cidr", "inet", "::1"),
    # texts that depend on settings
    ("P1M", "text", "interval", "1 mon"),
    ("1 mon", "interval", "text", "1 mon"),
    (["P1M", None], "text[]", "interval[]", ["1 mon", None]),
    ('["2024-01-01 01:00:00+01",)', "text", "tstzrange", '["2024-01-01 00:00:00+00",)'),
    # bytes
    (b"\x00\xff", "bytea", "text", r"\x00ff"),
    (b"", "bytea", "text", r"\x"),
    (r"\x00FF", "text", "bytea", b"\x00\xff"),
    (r"a\\b\001", "text", "bytea", b"a\\b\x01"),
    # days and times
    (DAY, "date", "text", "2024-02-29"),
    (DAY, "date", "timestamp without time zone", MIDNIGHT),
    (MIDNIGHT, "timestamp without time zone", "date", DAY),
    (datetime.datetime(1, 1, 1), "timestamp without time zone", "date", datetime.date(1, 1, 1)),
    (NOON, "timestamp without time zone", "text", "2024-02-29 12:00:00"),
    (NOON.replace(microsecond=120000), "timestamp without time zone", "text", "2024-02-29 12:00:00.12"),
    (NOON.replace(tzinfo=UTC), "timestamp with time zone", "text", "2024-02-29 12:00:00+00"),
    (" 2024-02-29 ", "text", "date", DAY),
    ("2024-02-29 00:00:00", "text", "date", DAY),
    ("2024-02-29", "text", "timestamp without time zone", MIDNIGHT),
    ("2024-02-29T12:00", "text", "timestamp without time zone", NOON),
    ("2024-02-29 17:30:00+05:30", "text", "timestamp with time zone", NOON.replace(tzinfo=UTC)),
    # lists
    ([1, None], "integer[]", "bigint[]", [1, None]),
    ([1, None], "integer[]", "text[]", ["1", None]),
    ([True], "boolean[]", "text[]", ["true"]),
    ([True, None], "boolean[]", "text", "{t,NULL}"),
    (["a", "", None, "null", 'q"\\', "x y", "c,d", "é"], "text[]", "text", r'{a,"",NULL,"null","q\"\\","x y","c,d",é}'),
    ([], "text[]", "text", "{}"),
    ([NOON], "timestamp without time zone[]", "text", '{"2024-02-29 12:00:00"}'),
    (["(1,1),(0,0)", "(2,2),(0,0)"], "box[]", "text", "{(1,1),(0,0);(2,2),(0,0)}"),
    ([b"a"], "bytea[]", "text", r'{"\\x61"}'),
    ([DAY], "date[]", "timestamp without time zone[]", [MIDNIGHT]),
    ([np.float32(0.1)], "real[]", "double precision[]", [0.10000000149011612]),
    ("{1,NULL,3}", "text", "integer[]", [1, None, 3]),
    (r'{"a b","q\"",NULL}', "text", "text[]", ["a b", 'q"', None]),
    ("{sad,happy}", "public.mood", "text[]", ["sad", "happy"]),
    ([1.0, 2.5], "public.vector", "text", "[1,2.5]"),
    ("[1.0, 2.5,-3e-05]", "text", "public.vector", [1.0, 2.5, np.float32(-3e-05)]),
    ([0.5], "public.vector", "double precision[]", [0.5]),
    ([1, 2], "integer[]", "public.vector", [1.0, 2.0]),
]

CAST = [
    (-1, "integer", "oid", 4294967295),
    (4294967295, "oid", "integer", -1),
    (2**53 + 1, "bigint", "double precision", 2.0**53),
    (2**24 + 1, "integer", "real", 2.0**24),
    (12350, "integer", "numeric(5,-2)", "12400"),
    (Decimal("5.70"), "numeric(12,2)", "integer", 6),
    (Decimal("-2.50"), "numeric(12,2)", "bigint", -3),
    (Decimal("1.55"), "numeric(12,2)", "numeric(5,1)", Decimal("1.6")),
    (Decimal("-0.04"), "numeric(12,2)", "numeric(50,1)", "0.0"),
    (Decimal("0.1234567890123456789"), "numeric(20,19)", "double precision", 0.12345678901234568),
    (2.5, "double precision", "bigint", 2),
    (1.2345678901234568e18, "double precision", "bigint", 1234567890123456768),
    (np.float32(123456789), "real", "integer", 123456792),
    (1 / 3, "double precision", "real", np.float32(1 / 3)),
    (123456789.12345679, "double precision", "numeric", "123456789.123457"),
    (np.float32(16777216), "real", "numeric(12,2)", Decimal("16777200.00")),
    ([123456789.12345679], "double precision[]", "numeric[]", ["123456789.123457"]),
    (NOON, "timestamp without time zone", "date", DAY),
    (NOON, "timestamp without time zone", "time without time zone", "12:00:00"),
    ("24:00:00+05:30", "time with time zone", "time without time zone", "24:00:00"),
    ("-1 days -02:00:00", "interval", "time without time zone", "22:00:00"),
    ("10.1.2.3/8", "inet", "cidr", "10.0.0.0/8"),
    ("::ffff:1.2.3.4/120", "inet", "cidr", "::ffff:1.2.3.0/120"),
    ("08:00:2b:01:02:03", "macaddr", "macaddr8", "08:00:2b:ff:fe:01:02:03"),
    ("(1,2)", "point", "box", "(1,2),(1,2)"),
    ("(3,4),(1,2)", "box", "polygon", "((1,2),(1,4),(3,4),(3,2))"),
    (True, "boolean", "name", "t"),
    ("10.0.0.1", "inet", "name", "10.0.0.1"),
    ("é" * 40, "text", "name", "é" * 31),
    ("x" * 60 + "   y", "character(70)", "name", "x" * 60),
    ("é", "text", '"char"', r"\303"),
    ("ab   ", "text", "character varying(3)", "ab "),
    (
        ' {"b" : 1e2, "aa":[-0.0], "é":"\\u00e9\\n", "b":1.50} ',
        "json",
        "jsonb",
        '{"b": 1.50, "aa": [0.0], "é": "é\\n"}',
    ),
]
"""What PostgreSQL's own cast makes another value of."""

RESCUED = [
    ("abcd", "text", "character varying(3)", "abcd"),
    (r'"\u0000"', "json", "jsonb", r'"\u0000"'),
    ("08:00:2b:01:02:03:04:05", "macaddr8", "macaddr", "08:00:2b:01:02:03:04:05"),
    (math.inf, "double precision", "bigint", "Infinity"),
    (1e-300, "double precision", "real", "1e-300"),
    (2, "integer", "boolean", "2"),
    (True, "boolean", "numeric(3,0)", "true"),
    (True, "boolean", "date", "true"),
    (Decimal("1"), "numeric(1,0)", "boolean", "1"),
    ("o", "text", "boolean", "o"),
    (70000, "bigint", "smallint", "70000"),
    (1000, "integer", "numeric(5,2)", "1000"),
    (20240229, "integer", "date", "20240229"),
    (5, "integer", "interval", "5"),
    (5, "integer", "money", "5"),
    (5, "integer", "bytea", "5"),
    (5, "integer", "public.mood", "5"),
    ("101", "bit", "integer", "101"),
    ("5", '"char"', "integer", "5"),
    ("2147483648", "text", "integer", "2147483648"),
    ("five", "text", "integer", "five"),
    ("\u00a05", "text", "integer", "\u00a05"),
    (1e20, "double precision", "bigint", "1e+20"),
    (math.nan, "double precision", "bigint", "NaN"),
    (math.nan, "double precision", "numeric(5,2)", "NaN"),
    (1e300, "double precision", "real", "1e+300"),
    ("1e400", "text", "double precision", "1e400"),
    ("1e-400", "text", "double precision", "1e-400"),
    ("0.1000000000000000055", "text", "double precision", "0.1000000000000000055"),
    (Decimal("12345.00"), "numeric(12,2)", "numeric(4,0)", "12345.00"),
    ("1.005", "text", "numeric(40,2)", "1.005"),
    ("12345", "text", "numeric(5,-2)", "12345"),
    ("1e999999999", "text", "numeric", "1e999999999"),
    ("x", "text", "numeric", "x"),
    ("abcde", "text", "character(4)", "abcde"),
    ("x", "text", "uuid", "x"),
    ("12:00:00", "time without time zone", "time with time zone", "12:00:00"),
    (NOON, "timestamp without time zone", "timestamp with time zone", "2024-02-29 12:00:00"),
    (NOON.replace(tzinfo=UTC), "timestamp with time zone", "timestamp without time zone", "2024-02-29 12:00:00+00"),
    (NOON.replace(tzinfo=UTC), "timestamp with time zone", "date", "2024-02-29 12:00:00+00"),
    (DAY, "date", "timestamp with time zone", "2024-02-29"),
    ("02/29/2024", "text", "date", "02/29/2024"),
    ("2024-02-30", "text", "date", "2024-02-30"),
    ("infinity", "text", "timestamp without time zone", "infinity"),
    ("2024-02-29 12:00:00", "text", "timestamp with time zone", "2024-02-29 12:00:00"),
    ("2024-02-29 12:00:00+00", "text", "timestamp without time zone", "2024-02-29 12:00:00+00"),
    ("é", "text", "bytea", "é"),
    (b"a", "bytea", "uuid", r"\x61"),
    ([1, 70000, None], "integer[]", "smallint[]", "{1,70000,NULL}"),
    ([1], "integer[]", "integer", "{1}"),
    ([None], "integer[]", "public.vector", "{NULL}"),
    ([1], "integer[]", "int4range", "{1}"),
    ("{1, 2}", "text", "integer[]", "{1, 2}"),
    ("{null}", "text", "text[]", "{null}"),
    ("{{1}}", "text", "integer[]", "{{1}}"),
    ("1", "text", "integer[]", "1"),
    ("{1,x}", "text", "integer[]", "{1,x}"),
    ("[1,x]", "text", "public.vector", "[1,x]"),
    ("[1,NaN]", "text", "public.vector", "[1,NaN]"),
    ("1", "text", "public.vector", "1"),
]


@pytest.mark.parametrize(("value", "old", "new", "expected"), CAST)
def test_what_a_cast_changes_is_what_the_source_has(value, old, new, expected):
    found = one(value, old, new)
    assert found == expected
    assert not keeps_values(column_type(old), column_type(new))


@pytest.mark.parametrize(("value", "old", "new", "expected"), EXACT)
def test_what_the_new_type_can_hold_is_held_exactly(value, old, new, expected):
    found = one(value, old, new)
    assert found == expected
    assert type(found) is type(expected) or isinstance(expected, np.floating)


@pytest.mark.parametrize(("value", "old", "new", "text"), RESCUED)
def test_what_the_new_type_cannot_hold_is_null_and_its_text_rescued(value, old, new, text):
    assert one(value, old, new) == (text,)


def test_null_is_converted_to_null_and_nothing_is_rescued():
    names = ["boolean", "integer", "real", "numeric(12,2)", "numeric", "text", "bytea", "date", "integer[]", "uuid"]
    for old, new in product([*names, "timestamp with time zone", "public.vector"], repeat=2):
        if old != new:
            assert converted([None, None], old, new) == ([None, None], None)
            assert converted([], old, new) == ([], None)


def test_one_refused_value_leaves_the_others_as_they_are():
    texts = [str(number) for number in range(1000)]
    texts[7], texts[500], texts[999] = "x", " 500 ", "99999999999"
    values, left = converted(texts, "text", "integer")
    expected = [*range(7), None, *range(8, 999), None]
    assert values == expected
    assert {row: text for row, text in enumerate(left) if text is not None} == {7: "x", 999: "99999999999"}


@pytest.mark.parametrize(
    ("text", "old", "new", "value", "left"),
    [
        ("infinity", "timestamp without time zone", "text", "infinity", None),
        ("NaN", "numeric(5,2)", "numeric", "NaN", None),
        ("-1", "oid", "bigint", -1, None),
        ("{{1,2},{3,4}}", "integer[]", "text", "{{1,2},{3,4}}", None),
        ("{1.50,-Infinity,NULL}", "numeric(5,2)[]", "double precision[]", [1.5, -math.inf, None], None),
        ("x", "uuid", "text", "x", None),
        ("x", "public.vector", "integer[]", None, "x"),
        ("x", "text", "character varying", None, "x"),
        ("{{1,2}}", "integer[]", "bigint[]", None, "{{1,2}}"),
        ("NaN", "numeric(5,2)", "numeric(6,2)", None, "NaN"),
        ("infinity", "timestamp without time zone", "date", None, "infinity"),
        # The text is what PostgreSQL has for the value in its new type.
        ("12024-01-01", "date", "timestamp without time zone", None, "12024-01-01 00:00:00"),
        ("0044-03-15 BC", "date", "timestamp without time zone", None, "0044-03-15 00:00:00 BC"),
        ("0044-03-15 00:00:00 BC", "timestamp without time zone", "date", None, "0044-03-15 BC"),
        ("0044-03-15 12:00:00 BC", "timestamp without time zone", "date", None, "0044-03-15 BC"),
        ("12024-01-01", "date", "timestamp with time zone", None, "12024-01-01"),
        # Bytes that nobody could read are no text of PostgreSQL's.
        (r"\x0102", "public.mood", "text", None, r"\x0102"),
    ],
)
def test_a_rescued_text_is_tried_under_the_new_type(text, old, new, value, left):
    assert converted([None, None], old, new, rescued=[None, text]) == (
        [None, value],
        None if left is None else [None, left],
    )


def test_a_rescued_nan_becomes_a_double():
    ((before, after), left) = converted(
        [Decimal("1.5"), None], "numeric(5,2)", "double precision", rescued=[None, "NaN"]
    )
    assert before == 1.5
    assert math.isnan(after)
    assert left is None


@pytest.mark.parametrize("new", ["real", "double precision"])
def test_not_a_number_is_read_in_any_case(new):
    (found,), left = converted([" nan"], "text", new)
    assert math.isnan(found)
    assert left is None


def test_each_change_of_a_chain_is_made_on_its_own():
    assert converted([70000, 5], "integer", "smallint", "text") == (["70000", "5"], None)
    assert converted([np.float32(0.1)], "real", "double precision", "text") == (["0.10000000149011612"], None)
    assert converted([np.float32(0.1)], "real", "text", "double precision") == ([0.1], None)
    assert converted([MIDNIGHT], "timestamp without time zone", "date", "text") == (["2024-02-29"], None)
    with pytest.raises(ValueError, match="old and a new"):
        convert(pa.array([1]), None, [column_type("bigint")])


def test_the_decimal_handling_mode_holds_for_conversions():
    double = column_type("numeric(30,20)", TypeOptions(decimal_handling_mode="double"))
    assert double.family == families.NUMERIC_AS_DOUBLE
    texts = pa.array(["0.12345678901234567891", "1e20", "NaN", "x"])
    values, left = convert(texts, None, [column_type("text"), double])
    assert values.to_pylist()[:2] == [0.12345678901234568, 1e20]
    assert math.isnan(values[2].as_py())
    assert left.to_pylist() == [None, None, None, "x"]
    assert text_of(values, double).to_pylist() == ["0.12345678901234568", "1" + "0" * 20, "NaN", None]


WIDENINGS = [
    ("smallint", "integer"),
    ("smallint", "bigint"),
    ("integer", "bigint"),
    ("smallint", "double precision"),
    ("integer", "double precision"),
    ("smallint", "numeric(10,0)"),
    ("integer", "numeric(12,2)"),
    ("bigint", "numeric(20,0)"),
    ("oid", "numeric(22,2)"),
    ("real", "double precision"),
    ("numeric(5,2)", "numeric(6,3)"),
    ("numeric(5,2)", "numeric(9,2)"),
    ("date", "timestamp without time zone"),
]


@pytest.mark.parametrize(("old", "new"), WIDENINGS)
def test_what_delta_widens_in_place_is_told(old, new):
    assert is_widening(column_type(old), column_type(new))
    assert not is_widening(column_type(new), column_type(old))
    assert not keeps_values(column_type(old), column_type(new))


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("bigint", "double precision"),
        ("integer", "real"),
        ("integer", "numeric(9,0)"),
        ("integer", "numeric(12,3)"),
        ("bigint", "numeric(19,0)"),
        ("numeric(5,2)", "numeric(6,4)"),
        ("numeric(5,2)", "double precision"),
        ("date", "timestamp with time zone"),
        ("integer", "text"),
        ("integer", "integer"),
        ("integer[]", "bigint[]"),
        ("oid", "bigint"),
    ],
)
def test_what_delta_does_not_widen_is_told(old, new):
    assert not is_widening(column_type(old), column_type(new))


@pytest.mark.parametrize(
    ("old", "new", "keeps"),
    [
        ("character varying", "text", True),
        ("uuid", "text", True),
        ("text", "public.mood", True),
        ("numeric(40,2)", "numeric", True),
        ("numeric", "text", True),
        ("oid", "bigint", True),
        ("oid[]", "bigint[]", True),
        ("text", "uuid", False),
        ("text", "interval", False),
        ("text[]", "interval[]", False),
        ("interval", "interval", True),
        ("interval", "text", True),
        ("inet", "text", False),
        ("text", "inet", False),
        ("inet", "inet", True),
        ("text", "numeric", False),
        ("numeric", "numeric(40,2)", False),
        ("character(4)", "text", False),
        ("character(4)", "character(6)", False),
        ("bigint", "oid", False),
        ("time with time zone", "time without time zone", False),
        ("integer", "bigint", False),
        ("integer[]", "bigint[]", False),
    ],
)
def test_a_change_that_leaves_every_value_as_it_is_is_told(old, new, keeps):
    assert keeps_values(column_type(old), column_type(new)) is keeps
