import datetime
import struct
from decimal import Decimal

import numpy as np
import pytest

from support.binary_cells import Binary, convert, tile
from walreplay.decode.columns import make_builder
from walreplay.errors import ValueFormatError
from walreplay.types import Rescued, resolve

BOOL, BYTEA, CHAR, INT8, INT2, INT4, TEXT, OID, XML = 16, 17, 18, 20, 21, 23, 25, 26, 142
FLOAT4, FLOAT8, DATE, TIMESTAMP, TIMESTAMPTZ, INTERVAL, NUMERIC = 700, 701, 1082, 1114, 1184, 1186, 1700
UUID, JSONB, JSONPATH = 2950, 3802, 4072
BYTEAS, INT4S, TEXTS, DATES, INTERVALS, NUMERICS = 1001, 1007, 1009, 1182, 1187, 1231
MOOD, CITEXT, LTREE, UNKNOWN = 90_001, 90_002, 90_003, 90_004
NUMERIC_12_2, NUMERIC_38_10 = (12 << 16 | 2) + 4, (38 << 16 | 10) + 4
NAMES = {MOOD: ("shop", "mood"), CITEXT: ("public", "citext"), LTREE: ("public", "ltree")}

SAMPLES = {
    (BOOL, -1): ("t", "01"),
    (INT2, -1): ("-32768", "8000"),
    (INT4, -1): ("2147483647", "7fffffff"),
    (INT8, -1): ("-9223372036854775808", "8000000000000000"),
    (OID, -1): ("4294967295", "ffffffff"),
    (FLOAT4, -1): ("0.1", "3dcccccd"),
    (FLOAT8, -1): ("1.7976931348623157e+308", "7fefffffffffffff"),
    (NUMERIC, NUMERIC_12_2): ("-1234567890.12", "0004 0002 4000 0002 000c 0d80 1ed2 04b0"),
    (NUMERIC, NUMERIC_38_10): (
        "1234567890123456789012345678.0123456789",
        "000a 0006 0000 000a 04d2 162e 2334 0d80 1ed2 04d2 162e 007b 11d7 22c4",
    ),
    (NUMERIC, -1): ("1.5", "0002 0000 0000 0001 0001 1388"),
    (TEXT, -1): ("a text of more than sixteen bytes", b"a text of more than sixteen bytes".hex()),
    (CHAR, -1): ("a", "61"),
    (XML, -1): ("<a/>", b"<a/>".hex()),
    (BYTEA, -1): (r"\x00ff10", "00ff10"),
    (DATE, -1): ("2024-02-29", "00002279"),
    (TIMESTAMP, -1): ("2024-02-29 12:34:56.789", "0002b58341728608"),
    (TIMESTAMPTZ, -1): ("2024-02-29 12:34:56.789+00", "0002b58341728608"),
    (INTERVAL, -1): ("1 mon 2 days", "0000000000000000 00000002 00000001"),
    (UUID, -1): ("a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11", "a0eebc999c0b4ef8bb6d6bb9bd380a11"),
    (JSONB, -1): ('{"a": 1}', "01" + b'{"a": 1}'.hex()),
    (JSONPATH, -1): ('$."a"', "01" + b'$."a"'.hex()),
    (MOOD, -1): ("very happy", b"very happy".hex()),
    (CITEXT, -1): ("Straße", "Straße".encode().hex()),
    (LTREE, -1): ("Top.Science", "01" + b"Top.Science".hex()),
    (INT4S, -1): (
        "{1,NULL,3}",
        "00000001 00000001 00000017 00000003 00000001 00000004 00000001 ffffffff 00000004 00000003",
    ),
    (TEXTS, -1): ('{a,"b c"}', "00000001 00000000 00000019 00000002 00000001 00000001 61 00000003 622063"),
}


def binary(cell):
    return Binary(bytes.fromhex(cell))


def values(oid, cells, typmod=-1):
    array, rescued = convert(resolve(oid, typmod, NAMES), cells, NAMES)
    assert not rescued
    return array.to_pylist()


def sample(oid, typmod):
    text, cell = SAMPLES[oid, typmod]
    return text, binary(cell)


@pytest.mark.parametrize(("oid", "typmod"), SAMPLES)
def test_a_value_is_the_same_in_text_and_in_binary(oid, typmod):
    text, cell = sample(oid, typmod)
    expected = values(oid, [text], typmod)
    assert values(oid, [cell], typmod) == expected
    assert expected != [None]


@pytest.mark.parametrize(
    ("oid", "typmod", "bad"),
    [
        (BOOL, -1, binary("0101")),
        (BOOL, -1, binary("")),
        (INT2, -1, binary("00000001")),
        (INT4, -1, binary("0001")),
        (INT8, -1, binary("00000001")),
        (OID, -1, binary("01")),
        (FLOAT4, -1, binary("0000000000000000")),
        (FLOAT8, -1, binary("00000000")),
        (NUMERIC, NUMERIC_12_2, binary("0001 0000 0000 0002")),
        (NUMERIC, NUMERIC_12_2, binary("0001 0000 0000 0002 2710")),
        (NUMERIC, NUMERIC_12_2, binary("0001 0000 1000 0002 0001")),
        (NUMERIC, NUMERIC_38_10, binary("0000 0000")),
        (NUMERIC, -1, binary("0001 0000 0000 0000 2710")),
        (DATE, -1, binary("0000000000002279")),
        (TIMESTAMP, -1, binary("00002279")),
        (TIMESTAMPTZ, -1, binary("")),
        (INTERVAL, -1, binary("00")),
        (CHAR, -1, binary("6161")),
        (UUID, -1, binary("a0eebc999c0b4ef8bb6d6bb9bd380a")),
        (JSONB, -1, binary("027b7d")),
        (JSONB, -1, binary("")),
        (TEXT, -1, binary("636166e9")),
        (TEXT, -1, binary("6100")),
        (INT4S, -1, binary("00000001 00000000 00000017 00000001 00000001 00000002 0001")),
        (INT4S, -1, binary("00000001 00000000 00000014 00000001 00000001 00000008 0000000000000001")),
        (INT4S, -1, binary("00000001 00000000 00000017 00000002 00000001 00000004 00000001")),
        (INT4S, -1, binary("00000001 00000000 00000017 7fffffff 00000001")),
        (INT4S, -1, binary("00000001 00000000 00000017")),
        (INT4S, -1, binary("00000000 00000000 00000017 00")),
        (TEXTS, -1, binary("00000001 00000000 00000019 00000001 00000001 00000001 ff")),
        (BOOL, -1, "x"),
        (BOOL, -1, ""),
        (INT2, -1, "40000"),
        (INT4, -1, ""),
        (INT4, -1, "-"),
        (INT4, -1, "12x4"),
        (INT8, -1, "9223372036854775999"),
        (OID, -1, "-1"),
        (FLOAT8, -1, "1.5.5"),
        (FLOAT8, -1, "abc"),
        (FLOAT4, -1, ""),
        (NUMERIC, NUMERIC_12_2, "1:50"),
        (NUMERIC, NUMERIC_38_10, "x.0123456789"),
        (BYTEA, -1, r"\x0g"),
        (BYTEA, -1, r"\x0"),
        (BYTEA, -1, r"\x00112233445566gg"),
        (DATE, -1, "02/29/2024"),
        (TIMESTAMP, -1, "2024-02-29 12:34:56+00"),
        (TIMESTAMPTZ, -1, "2024-02-29 12:34:56"),
        (TEXT, -1, b"caf\xe9"),
        (TEXT, -1, b"a\0"),
        (INT4S, -1, "{1,x}"),
        (INT4S, -1, "{1,2"),
        (TEXTS, -1, b"{a,caf\xe9}"),
        (DATES, -1, "{2024-01-01,01/02/2024}"),
    ],
)
def test_what_is_not_in_its_types_form_stops_at_its_place(oid, typmod, bad):
    text, cell = sample(oid, typmod) if (oid, typmod) in SAMPLES else ("{}", binary("00000000 00000000 00000017"))
    good = cell if isinstance(bad, Binary) else text
    cells = [good, None, bad, good]
    builder = make_builder(resolve(oid, typmod, NAMES), NAMES)
    for _ in range(2):
        with pytest.raises(ValueFormatError) as caught:
            builder.add_rows(*tile(cells, lead=b"head"))
        assert caught.value.offset == 4 + len(good)
        assert builder.add_rows(*tile(cells[:2])) is None
    sent = bad if isinstance(bad, str) else bad.decode("latin-1")
    assert len(sent) < 3 or sent not in str(caught.value)


@pytest.mark.parametrize("oid", [INT4, NUMERIC, DATE, UUID, JSONB, INTERVAL, INT4S, TEXTS])
def test_errors_never_contain_the_value(oid):
    secret = Binary(b"\0\0\0\1hunter2")
    with pytest.raises(ValueFormatError) as caught:
        convert(resolve(oid, -1, {}), [secret])
    assert "hunter" not in str(caught.value)
    assert secret.hex() not in str(caught.value)


@pytest.mark.parametrize(
    ("oid", "typmod", "cell", "text"),
    [
        (NUMERIC, NUMERIC_12_2, "0000 0000 c000 0000", "NaN"),
        (NUMERIC, NUMERIC_12_2, "0000 0000 d000 0020", "Infinity"),
        (NUMERIC, NUMERIC_38_10, "0000 0000 f000 0020", "-Infinity"),
        (NUMERIC, NUMERIC_12_2, "0002 0000 0000 0003 0001 0032", "1.005"),
        (NUMERIC, NUMERIC_12_2, "0001 0003 4000 0002 0001", "-1000000000000.00"),
        (DATE, -1, "7fffffff", "infinity"),
        (DATE, -1, "80000000", "-infinity"),
        (DATE, -1, "fff4dbf8", "0001-12-31 BC"),
        (DATE, -1, "002c95d4", "10000-01-01"),
        (TIMESTAMP, -1, "7fffffffffffffff", "infinity"),
        (TIMESTAMPTZ, -1, "8000000000000000", "-infinity"),
        (TIMESTAMP, -1, struct.pack("!q", -730_120 * 86_400_000_000).hex(), "0001-12-31 00:00:00 BC"),
        (TIMESTAMPTZ, -1, struct.pack("!q", 2_921_940 * 86_400_000_000 + 500_000).hex(), "10000-01-01 00:00:00.5+00"),
        (
            INT4S,
            -1,
            "00000002 00000000 00000017 00000001 00000001 00000001 00000001 00000004 00000007",
            "{{7}}",
        ),
        (INT4S, -1, "00000001 00000000 00000017 00000001 00000000 00000004 00000007", "[0:0]={7}"),
        (
            DATES,
            -1,
            "00000001 00000001 0000043a 00000003 00000001 00000004 00000000 ffffffff 00000004 7fffffff",
            "{2000-01-01,NULL,infinity}",
        ),
        (NUMERICS, NUMERIC_12_2, "00000001 00000000 000006a4 00000001 00000001 00000008 00000000c0000000", "{NaN}"),
    ],
)
def test_what_a_type_cannot_hold_is_null_and_rescued_as_in_text(oid, typmod, cell, text):
    column_type = resolve(oid, typmod, {})
    for one in (binary(cell), text):
        array, rescued = convert(column_type, [None, one, None])
        assert (array.to_pylist(), rescued) == ([None] * 3, [Rescued(1, text)])


def test_floats_keep_their_bits_but_every_nan_is_one():
    cells = ["8000000000000000", "0000000000000001", "7ff0000000000000", "fff8000000000000", "7ff0000000000001"]
    array, _ = convert(resolve(FLOAT8, -1, {}), ["NaN", *map(binary, cells)])
    expected = ["7ff8000000000000", *cells[:3], "7ff8000000000000", "7ff8000000000000"]
    assert [f"{word:016x}" for word in array.to_numpy().view(np.uint64)] == expected
    cells = ["80000000", "00000001", "ff800000", "ffc00000", "7f800001"]
    array, _ = convert(resolve(FLOAT4, -1, {}), ["NaN", *map(binary, cells)])
    expected = ["7fc00000", *cells[:3], "7fc00000", "7fc00000"]
    assert [f"{word:08x}" for word in array.to_numpy().view(np.uint32)] == expected


@pytest.mark.parametrize(
    ("cell", "text"),
    [
        ("0000 0000 0000 0000", "0"),
        ("0000 0000 0000 0003", "0.000"),
        ("0001 0000 0000 0000 270f", "9999"),
        ("0001 0001 0000 0000 0001", "10000"),
        ("0001 0002 4000 0002 0001", "-100000000.00"),
        ("0001 ffff 0000 0004 0001", "0.0001"),
        ("0001 fffe 0000 0008 0001", "0.00000001"),
        ("0003 0001 0000 0003 0001 0002 0bb8", "10002.300"),
        ("0001 001f 0000 0000 0007", "7" + "0000" * 31),
        ("0001 00ff 0000 0000 0007", "7" + "0000" * 255),
        ("0001 0000 0000 0bb8 0007", "7." + "0" * 3000),
        ("0000 0000 c000 0000", "NaN"),
        ("0000 0000 d000 0020", "Infinity"),
        ("0000 0000 f000 0020", "-Infinity"),
    ],
)
def test_numerics_without_precision_have_as_many_digits_as_their_scale_says(cell, text):
    assert values(NUMERIC, [binary(cell)]) == [text]


def test_decimals_keep_every_digit_at_every_scale():
    groups = "000a 0009 4000 0000 0063" + "270f" * 9
    assert values(NUMERIC, [binary(groups)], (38 << 16) + 4) == [Decimal("-" + "9" * 38)]
    groups = "000a ffff 0000 0026" + "270f" * 9 + "26ac"
    assert values(NUMERIC, [binary(groups)], (38 << 16 | 38) + 4) == [Decimal("0." + "9" * 38)]
    assert values(NUMERIC, [binary("0001 0004 0000 0012 0064")], (38 << 16 | 18) + 4) == [Decimal(10) ** 18]
    assert values(NUMERIC, [binary("0001 0000 0000 0000 0007")], NUMERIC_12_2) == [Decimal(7)]
    assert values(NUMERIC, [binary("0001 0000 0000 0025 0009")], (38 << 16 | 37) + 4) == [Decimal(9)]


def test_the_type_char_is_written_as_from_postgresql_16_on():
    cells = [Binary(bytes([byte])) for byte in (0, 65, 127, 128, 255)]
    assert values(CHAR, cells) == ["", "A", "\x7f", "\\200", "\\377"]


def test_an_xml_declaration_loses_the_encoding_that_only_binary_has():
    document = b'<?xml version="1.0" encoding="LATIN1"?>\n<a/>'
    assert values(XML, [Binary(document), Binary(b"<?pi?><a/>"), "<b/>"]) == ["<a/>", "<?pi?><a/>", "<b/>"]


def test_labels_are_text_and_other_bytes_of_a_user_defined_type_are_not():
    cells = [Binary(cell) for cell in (b"sad", "ünï".encode(), b"", b"two\nlines", b"\0\0\0\x01", b"\1", b"\xff\xfe")]
    array, rescued = convert(resolve(MOOD, -1, NAMES), ["ok", None, *cells], NAMES)
    assert array.to_pylist() == ["ok", None, "sad", "ünï", "", "two\nlines", None, None, None]
    assert rescued == [Rescued(6, r"\x00000001"), Rescued(7, r"\x01"), Rescued(8, r"\xfffe")]


def test_citext_may_have_control_characters():
    assert values(CITEXT, [Binary(b"a\x1bb"), Binary(b"c" * 40)]) == ["a\x1bb", "c" * 40]


def test_a_type_that_nothing_announces_is_rescued_as_hex():
    array, rescued = convert(resolve(UNKNOWN, -1, {}), [Binary(b"abc"), "text", None, Binary(b"")])
    assert array.to_pylist() == [None, "text", None, None]
    assert rescued == [Rescued(0, r"\x616263"), Rescued(3, r"\x")]


def test_a_composite_value_is_written_with_the_names_of_its_parts_types():
    row = struct.pack("!iIiiIi", 2, INT4, 4, 7, MOOD, 3) + b"sad"
    names = {**NAMES, 90_010: ("shop", "line")}
    array, rescued = convert(resolve(90_010, -1, names), [Binary(row)], names)
    assert (array.to_pylist(), rescued) == (["(7,sad)"], [])


def test_elements_are_taken_at_every_length():
    elements = [b"x" * size for size in (0, 1, 7, 8, 9, 15, 16, 17, 40)]
    data = struct.pack("!iiiii", 1, 0, BYTEA, len(elements), 1)
    data += b"".join(struct.pack("!i", len(element)) + element for element in elements)
    assert values(BYTEAS, [Binary(data), None, Binary(struct.pack("!iii", 0, 0, BYTEA))]) == [elements, None, []]


def test_arrays_of_types_that_stay_text_are_lists_of_text():
    data = struct.pack("!iiiiiiqii", 1, 0, INTERVAL, 1, 1, 16, 0, 1, 0)
    assert values(INTERVALS, [Binary(data), '{"2 days"}']) == [["1 day"], ["2 days"]]


def test_a_misfit_within_a_mixed_column_leaves_the_other_rows():
    good = binary(SAMPLES[INT4S, -1][1])
    square = binary("00000002 00000000 00000017 00000001 00000001 00000001 00000001 00000004 00000007")
    array, rescued = convert(resolve(INT4S, -1, {}), [good, square, "{5}", "{{6}}", good])
    assert array.to_pylist() == [[1, None, 3], None, [5], None, [1, None, 3]]
    assert rescued == [Rescued(1, "{{7}}"), Rescued(3, "{{6}}")]
    assert len(array.values) == 7


def test_data_may_grow_far_beyond_the_first_guess():
    cells = [Binary(b"x" * size) for size in (0, 1, 40_000, 3, 200_000)]
    assert values(BYTEA, cells) == list(cells)
    assert values(TEXT, cells) == [cell.decode() for cell in cells]
    uuids = [Binary(bytes([n % 256]) * 16) for n in range(5_000)]
    assert values(UUID, uuids)[4_999] == "87878787-8787-8787-8787-878787878787"


def test_every_day_of_the_gregorian_cycle_is_read():
    start = datetime.date(1999, 12, 31)
    cells = [Binary(struct.pack("!i", number - 1)) for number in range(146_097 + 2)]
    assert values(DATE, cells) == [start + datetime.timedelta(number) for number in range(146_097 + 2)]


def test_the_first_and_last_values_that_fit_are_held():
    first, last = datetime.date(1, 1, 1), datetime.date(9999, 12, 31)
    epoch = datetime.date(2000, 1, 1)
    cells = [Binary(struct.pack("!i", (day - epoch).days)) for day in (first, last)]
    assert values(DATE, cells) == [first, last]
    for oid, zone in ((TIMESTAMP, None), (TIMESTAMPTZ, datetime.timezone.utc)):
        ends = [datetime.datetime.min.replace(tzinfo=zone), datetime.datetime.max.replace(tzinfo=zone)]
        zero = datetime.datetime(2000, 1, 1, tzinfo=zone)
        cells = [Binary(struct.pack("!q", (end - zero) // datetime.timedelta(microseconds=1))) for end in ends]
        assert values(oid, cells) == ends


def test_an_override_does_not_change_the_type_that_binary_values_are_sent_in():
    column_type = resolve(TEXT, -1, {}, override="bigint")
    array, rescued = convert(column_type, [Binary(b"12345678"), "5"])
    assert (array.to_pylist(), rescued) == ([12345678, 5], [])
