import datetime
from decimal import Decimal

import numpy as np
import pyarrow as pa
import pytest

from support.cells import convert, tile
from walreplay.decode.columns import UNCHANGED, make_builder
from walreplay.errors import ValueFormatError
from walreplay.types import Rescued, resolve
from walreplay.types.builtin import BUILTIN_TYPES

BOOL, BYTEA, INT8, INT2, INT4, TEXT, OID = 16, 17, 20, 21, 23, 25, 26
FLOAT4, FLOAT8, DATE, TIMESTAMP, TIMESTAMPTZ, NUMERIC = 700, 701, 1082, 1114, 1184, 1700
INT4S, TEXTS, BOXES, DATES, NUMERICS = 1007, 1009, 1020, 1182, 1231
NUMERIC_12_2, NUMERIC_38_10 = (12 << 16 | 2) + 4, (38 << 16 | 10) + 4

SAMPLES = {
    (BOOL, -1): "t",
    (INT2, -1): "-32768",
    (INT4, -1): "2147483647",
    (INT8, -1): "-9223372036854775808",
    (OID, -1): "4294967295",
    (FLOAT4, -1): "0.1",
    (FLOAT8, -1): "1.7976931348623157e+308",
    (NUMERIC, NUMERIC_12_2): "-1234567890.12",
    (NUMERIC, NUMERIC_38_10): "1234567890123456789012345678.0123456789",
    (NUMERIC, -1): "1.5",
    (TEXT, -1): "a text of more than sixteen bytes",
    (BYTEA, -1): r"\x00ff10",
    (DATE, -1): "2024-02-29",
    (TIMESTAMP, -1): "2024-02-29 12:34:56.789",
    (TIMESTAMPTZ, -1): "2024-02-29 12:34:56.789+05:30",
    (INT4S, -1): "{1,NULL,3}",
    (TEXTS, -1): '{a,"b c"}',
}


def values(oid, texts, typmod=-1):
    array, rescued = convert(resolve(oid, typmod, {}), texts)
    assert not rescued
    return array.to_pylist()


@pytest.mark.parametrize(("oid", "typmod"), SAMPLES)
def test_null_unchanged_and_missing_tuples_are_null(oid, typmod):
    buf, offset, length, first, column = tile([SAMPLES[oid, typmod]] * 4)
    length[1], length[2], first[3] = -1, UNCHANGED, -1
    builder = make_builder(resolve(oid, typmod, {}))
    assert builder.append(buf, offset, length, first, column) is None
    array = builder.finish()
    array.validate(full=True)
    assert array.is_valid().to_pylist() == [True, False, False, False]


@pytest.mark.parametrize(("oid", "typmod"), SAMPLES)
def test_a_column_without_nulls_has_no_bitmap(oid, typmod):
    array, _ = convert(resolve(oid, typmod, {}), [SAMPLES[oid, typmod]] * 3)
    assert array.null_count == 0
    assert array.buffers()[0] is None


@pytest.mark.parametrize(("oid", "typmod"), SAMPLES)
def test_many_appends_equal_one(oid, typmod):
    column_type = resolve(oid, typmod, {})
    cells = [SAMPLES[oid, typmod], None] * 1200
    whole, _ = convert(column_type, cells)
    builder = make_builder(column_type)
    for start in range(0, len(cells), 700):
        builder.append(*tile(cells[start : start + 700]))
    assert builder.rows == len(cells)
    assert builder.nbytes > 0
    assert builder.finish().equals(whole)
    assert (builder.rows, len(builder.finish())) == (0, 0)


@pytest.mark.parametrize(("oid", "typmod"), SAMPLES)
def test_a_finished_column_is_not_written_to_again(oid, typmod):
    column_type = resolve(oid, typmod, {})
    builder = make_builder(column_type)
    builder.append(*tile([SAMPLES[oid, typmod]]))
    array = builder.finish()
    before = array.to_pylist()
    builder.append(*tile([None, None, SAMPLES[oid, typmod]]))
    builder.finish()
    assert array.to_pylist() == before


@pytest.mark.parametrize(("oid", "typmod"), SAMPLES)
def test_rows_taken_back_leave_nothing(oid, typmod):
    builder = make_builder(resolve(oid, typmod, {}))
    builder.append(*tile([SAMPLES[oid, typmod], None]))
    before = make_builder(resolve(oid, typmod, {}))
    before.append(*tile([SAMPLES[oid, typmod], SAMPLES[oid, typmod]]))
    builder.truncate(1)
    builder.append(*tile([SAMPLES[oid, typmod]]))
    assert builder.finish().equals(before.finish())


@pytest.mark.parametrize(("oid", "typmod"), SAMPLES)
def test_where_a_cell_lies_makes_no_difference(oid, typmod):
    column_type = resolve(oid, typmod, {})
    at_the_edges, _ = convert(column_type, [SAMPLES[oid, typmod]])
    for lead in (b"1", b"9" * 7, b"9" * 40):
        inside, _ = convert(column_type, [SAMPLES[oid, typmod]], lead=lead)
        assert inside.equals(at_the_edges)


@pytest.mark.parametrize("oid", BUILTIN_TYPES)
def test_every_built_in_type_has_a_builder(oid):
    builder = make_builder(resolve(oid, -1, {}))
    assert builder.finish().type == builder.column_type.arrow


def test_the_column_is_counted_from_the_rows_first_cell():
    buf, offset, length, _, _ = tile(["1", "2", "3", "4", "5", "6"])
    builder = make_builder(resolve(INT4, -1, {}))
    builder.append(buf, offset, length, np.array([3, -1, 0], dtype=np.int64), 2)
    assert builder.finish().to_pylist() == [6, None, 3]


def test_integers_are_read_at_every_length():
    texts = [str(sign * int("1234567890123456789"[:n])) for n in range(1, 20) for sign in (1, -1)]
    assert values(INT8, texts) == [int(text) for text in texts]
    assert values(INT2, ["-32768", "32767", "0"]) == [-32768, 32767, 0]


@pytest.mark.parametrize(
    ("oid", "typmod", "bad"),
    [
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
def test_what_is_not_in_its_types_form_stops_at_its_place_without_its_text(oid, typmod, bad):
    cells = [SAMPLES.get((oid, typmod)), None, bad, SAMPLES.get((oid, typmod))]
    with pytest.raises(ValueFormatError) as caught:
        make_builder(resolve(oid, typmod, {})).append(*tile(cells, lead=b"head"))
    assert caught.value.offset == 4 + len(cells[0] or "")
    text = bad if isinstance(bad, str) else bad.decode("latin-1")
    assert len(text) < 3 or text not in str(caught.value)


@pytest.mark.parametrize(
    ("oid", "remedy"),
    [(DATE, "DateStyle"), (TIMESTAMPTZ, "DateStyle"), (TEXT, "client_encoding"), (DATES, "DateStyle")],
)
def test_an_error_of_the_senders_settings_names_the_setting(oid, remedy):
    bad = {DATE: "29.02.2024", TIMESTAMPTZ: "2024-01-01 00:00:00", TEXT: b"\xff", DATES: "{29.02.2024}"}[oid]
    with pytest.raises(ValueFormatError, match=remedy):
        convert(resolve(oid, -1, {}), [bad])


def test_a_failed_append_leaves_the_rows_before_it():
    builder = make_builder(resolve(TEXTS, -1, {}))
    builder.append(*tile(["{a}"]))
    with pytest.raises(ValueFormatError):
        builder.append(*tile(["{b}", "{"]))
    builder.append(*tile(["{c}"]))
    assert builder.finish().to_pylist() == [["a"], ["c"]]


@pytest.mark.parametrize(
    ("oid", "typmod", "texts", "held"),
    [
        (NUMERIC, NUMERIC_12_2, ["1.50", "NaN", "Infinity", "1.005", "12345678901.00", "7"], [0, 5]),
        (NUMERIC, NUMERIC_38_10, ["1.5000000000", "-Infinity", "0.00000000001", "1" + "0" * 28], [0]),
        (DATE, -1, ["infinity", "0001-01-01", "0001-01-01 BC", "10000-01-01", "9999-12-31"], [1, 4]),
        (TIMESTAMP, -1, ["-infinity", "0001-01-01 00:00:00", "12345-01-01 00:00:00"], [1]),
        (TIMESTAMPTZ, -1, ["infinity", "9999-12-31 23:59:59-00:00:01", "10000-01-01 00:00:00+00:00:01"], [2]),
        (INT4S, -1, ["{1}", "{{1},{2}}", "[2:3]={1,2}", "{}", "{NULL}"], [0, 3, 4]),
        (DATES, -1, ["{2024-01-01}", "{2024-01-01,infinity,infinity}", "{NULL}", "{{infinity}}"], [0, 2]),
        (NUMERICS, NUMERIC_12_2, ["{1.50,NaN}", "{1.50,NULL}"], [1]),
    ],
)
def test_what_a_type_cannot_hold_is_null_and_rescued_as_sent(oid, typmod, texts, held):
    array, rescued = convert(resolve(oid, typmod, {}), texts)
    assert rescued == [Rescued(row, text) for row, text in enumerate(texts) if row not in held]
    assert [row for row, valid in enumerate(array.is_valid().to_pylist()) if valid] == held
    if pa.types.is_list(array.type):
        assert len(array.values) == sum(len(array[row].as_py()) for row in held)


def test_decimals_keep_every_digit():
    texts = ["99999999999999999999999999999999999999", "-99999999999999999999999999999999999999", "0", "-1"]
    assert values(NUMERIC, texts, (38 << 16) + 4) == [Decimal(text) for text in texts]
    texts = ["0." + "9" * 38, "-0." + "0" * 37 + "1", "0." + "0" * 38]
    assert values(NUMERIC, texts, (38 << 16 | 38) + 4) == [Decimal(text) for text in texts]
    assert values(NUMERIC, ["1", "-0.5", "123.4"], NUMERIC_12_2) == [
        Decimal(1),
        Decimal("-0.5"),
        Decimal("123.4"),
    ]


def test_floats_keep_the_sign_of_zero_and_single_precision():
    doubles, _ = convert(resolve(FLOAT8, -1, {}), ["-0", "0", "5e-324", "-Infinity", "0.30000000000000004"])
    expected = np.array([-0.0, 0.0, 5e-324, -np.inf, 0.1 + 0.2])
    assert doubles.to_numpy().tobytes() == expected.tobytes()
    singles, _ = convert(resolve(FLOAT4, -1, {}), ["-0", "0.1", "16777216", "3.4028235e+38", "1.17549435e-38"])
    expected_singles = np.array([-0.0, 0.1, 16777216, 3.4028235e38, 1.17549435e-38], dtype=np.float32)
    assert singles.to_numpy().tobytes() == expected_singles.tobytes()
    assert np.isnan(values(FLOAT8, ["NaN"])[0])


def test_timestamps_with_every_form_of_offset_are_exact():
    texts = [
        "2024-02-29 12:00:00+00",
        "2024-02-29 12:00:00.5-03",
        "2024-02-29 12:00:00+05:30",
        "2024-02-29 12:00:00+05:53:28",
    ]
    noon = datetime.datetime(2024, 2, 29, 12, tzinfo=datetime.timezone.utc)
    hours = [0, -3, 5.5, 5 + 53 / 60 + 28 / 3600]
    expected = [noon - datetime.timedelta(seconds=round(hour * 3600)) for hour in hours]
    expected[1] += datetime.timedelta(milliseconds=500)
    assert values(TIMESTAMPTZ, texts) == expected


def test_every_day_of_the_gregorian_cycle_is_read():
    start = datetime.date(1999, 12, 31).toordinal()
    days = [datetime.date.fromordinal(start + i) for i in range(146_097 + 2)]
    assert values(DATE, [day.isoformat() for day in days]) == days


@pytest.mark.parametrize(
    "text", ["2023-02-29", "1900-02-29", "2024-04-31", "2024-00-01", "2024-01-00", "2024-99-01", "0000-01-01"]
)
def test_days_that_do_not_exist_are_refused(text):
    with pytest.raises(ValueFormatError):
        convert(resolve(DATE, -1, {}), [text])


def test_cells_that_are_utf8_only_together_are_refused():
    with pytest.raises(ValueFormatError, match="client_encoding") as caught:
        convert(resolve(TEXT, -1, {}), ["ok", b"caf\xc3", b"\xa9"])
    assert caught.value.offset == 2


@pytest.mark.parametrize(
    "bad",
    [b"\xc0\xaf", b"\xe0\x80\xaf", b"\xed\xa0\x80", b"\xf4\x90\x80\x80", b"\xf8\x88\x80\x80\x80", b"\x80"],
)
def test_bytes_that_only_look_like_utf8_are_refused(bad):
    with pytest.raises(ValueFormatError, match="client_encoding"):
        convert(resolve(TEXT, -1, {}), ["é" * 20, b"12345678" + bad])


@pytest.mark.parametrize("at", range(0, 40, 3))
def test_a_nul_byte_is_found_wherever_it_lies(at):
    text = bytearray(b"x" * 40)
    text[at] = 0
    with pytest.raises(ValueFormatError, match="NUL") as caught:
        convert(resolve(TEXT, -1, {}), ["before", bytes(text), "after"])
    assert caught.value.offset == len("before")


def test_bytea_is_read_in_hex_and_in_escape_form_in_one_column():
    texts = [r"\x", r"a\\b\001", r"\x" + "0123456789abcdefABCDEF" * 30, None, "", r"\xff"]
    expected = [b"", b"a\\b\x01", bytes.fromhex("0123456789abcdefABCDEF" * 30), None, b"", b"\xff"]
    assert values(BYTEA, texts) == expected


def test_elements_of_box_arrays_are_parted_by_semicolons():
    assert values(BOXES, ["{(1,1),(0,0);(2,2),(1,1)}"]) == [["(1,1),(0,0)", "(2,2),(1,1)"]]


def test_text_may_grow_far_beyond_the_first_guess():
    texts = ["é" * size for size in (0, 1, 40_000, 3, 200_000)]
    assert values(TEXT, texts) == texts


def test_a_float_that_cannot_be_read_is_told_behind_one_that_its_type_cannot_hold():
    with pytest.raises(ValueFormatError):
        values(FLOAT4, ["12e456", "abc"])
