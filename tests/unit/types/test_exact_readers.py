"""The scalar readers, which decide about whatever the kernels leave."""

import pytest

from walreplay.errors import ValueFormatError
from walreplay.types import DoesNotFit, families
from walreplay.types.composite import elements_from_text
from walreplay.types.datetime import days_from_text, micros_from_text
from walreplay.types.numbers import boolean_from_text, float_from_text, integer_from_text, unscaled_from_text
from walreplay.types.strings import bytes_from_text
from walreplay.types.text import decode_text


def test_booleans_are_one_letter():
    assert [boolean_from_text("t"), boolean_from_text("f")] == [1, 0]
    with pytest.raises(ValueFormatError):
        boolean_from_text("true")


@pytest.mark.parametrize(
    ("family", "low", "high"),
    [
        (families.INT16, -(2**15), 2**15 - 1),
        (families.INT64, -(2**63), 2**63 - 1),
        (families.UNSIGNED, 0, 2**32 - 1),
    ],
)
def test_integers_end_at_the_limits_of_their_type(family, low, high):
    assert integer_from_text(str(low), family.limits) == low
    assert integer_from_text(str(high), family.limits) == high
    for outside in (low - 1, high + 1):
        with pytest.raises(ValueFormatError, match="limits of its type"):
            integer_from_text(str(outside), family.limits)


@pytest.mark.parametrize("text", ["", "-", "+1", " 1", "1.0", "1e3", "٣", "--1"])
def test_an_integer_is_decimal_digits_only(text):
    with pytest.raises(ValueFormatError):
        integer_from_text(text, families.INT32.limits)


@pytest.mark.parametrize(
    ("text", "value"),
    [("1.5", 150), ("1.50", 150), ("1.5000", 150), ("-0.01", -1), ("0", 0), ("999.99", 99999), ("007", 700)],
)
def test_a_numeric_is_padded_to_its_scale(text, value):
    assert unscaled_from_text(text, 5, 2) == value


@pytest.mark.parametrize(
    "text", ["NaN", "Infinity", "-Infinity", "1.005", "1000.00", "1" * 5000, "0." + "0" * 5000 + "1"]
)
def test_a_numeric_is_never_rounded_or_cut(text):
    with pytest.raises(DoesNotFit):
        unscaled_from_text(text, 5, 2)


@pytest.mark.parametrize("text", ["", ".5", "1.", "1e5", "+1", "nan", "1,5"])
def test_other_writings_of_a_number_are_refused(text):
    with pytest.raises(ValueFormatError):
        unscaled_from_text(text, 5, 2)


@pytest.mark.parametrize("text", ["", "1.5x", "inf", "0x10", "1_000", "-NaN", " 1"])
def test_a_float_is_in_the_form_that_the_server_writes(text):
    with pytest.raises(ValueFormatError):
        float_from_text(text)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        (r"\x", b""),
        (r"\x00Ff", b"\x00\xff"),
        ("", b""),
        ("abc", b"abc"),
        (r"a\\b\000\377", b"a\\b\x00\xff"),
        (r"\\x41", rb"\x41"),
    ],
)
def test_bytea_is_read_in_both_forms(text, value):
    assert bytes_from_text(text) == value


@pytest.mark.parametrize("text", [r"\x0", r"\xzz", r"\477", r"\8", "\\", "é", "a\nb"])
def test_bytea_in_neither_form_is_refused(text):
    with pytest.raises(ValueFormatError, match="bytea"):
        bytes_from_text(text)


@pytest.mark.parametrize(
    ("text", "days"),
    [("1970-01-01", 0), ("2000-02-29", 11016), ("0001-01-01", -719162), ("9999-12-31", 2932896)],
)
def test_dates_count_from_1970(text, days):
    assert days_from_text(text) == days


@pytest.mark.parametrize(
    "text",
    [
        "infinity",
        "-infinity",
        "10000-01-01",
        "5874897-12-31",
        "0001-12-31 BC",
        "4713-01-01 BC",
        "0005-02-29 BC",
    ],
)
def test_dates_outside_the_years_1_to_9999_do_not_fit(text):
    with pytest.raises(DoesNotFit):
        days_from_text(text)


@pytest.mark.parametrize(
    "text",
    ["02/29/2024", "29.02.2024", "02-29-2024", "2024-02-30", "2024-13-01", "2023-02-29", "0000-01-01x", ""],
)
def test_a_date_that_is_not_iso_names_the_setting(text):
    with pytest.raises(ValueFormatError) as caught:
        days_from_text(text)
    assert "DateStyle" in str(caught.value)
    assert text == "" or text not in str(caught.value)


@pytest.mark.parametrize(
    ("text", "micros"),
    [
        ("1970-01-01 00:00:00+00", 0),
        ("1970-01-01 00:00:00-03", 10_800_000_000),
        ("1970-01-01 05:30:00+05:30", 0),
        ("1970-01-01 05:53:28.5+05:53:28", 500_000),
        ("1969-12-31 23:59:59.999999-00:00:01", 999_999),
        ("10000-01-01 00:00:00+01", 253402297200000000),
        ("0001-12-31 23:00:00-05 BC", -62135582400000000),
    ],
)
def test_a_timestamptz_is_its_utc_time(text, micros):
    assert micros_from_text(text, with_zone=True) == micros


@pytest.mark.parametrize(
    "text",
    ["infinity", "0001-01-01 00:00:00+00:00:01", "9999-12-31 23:59:59-01", "0001-12-31 23:00:00+00 BC"],
)
def test_a_timestamptz_outside_the_years_1_to_9999_of_utc_does_not_fit(text):
    with pytest.raises(DoesNotFit):
        micros_from_text(text, with_zone=True)


@pytest.mark.parametrize(
    ("text", "with_zone"),
    [
        ("2024-01-01 00:00:00", True),
        ("2024-01-01 00:00:00+00", False),
        ("2024-01-01 24:00:00", False),
        ("2024-01-01 00:60:00", False),
        ("2024-01-01 00:00:60", False),
        ("2024-01-01T00:00:00", False),
        ("2024-01-01 00:00:00.", False),
        ("2024-01-01 00:00:00.1234567", False),
        ("2024-01-01 00:00:00+16", True),
        ("2024-01-01 00:00:00+0530", True),
        ("Mon Jan 01 00:00:00 2024 UTC", True),
        ("01/01/2024 00:00:00 UTC", True),
    ],
)
def test_a_timestamp_that_is_not_iso_names_the_setting(text, with_zone):
    with pytest.raises(ValueFormatError) as caught:
        micros_from_text(text, with_zone=with_zone)
    assert "DateStyle" in str(caught.value)
    assert text not in str(caught.value)


@pytest.mark.parametrize(
    ("text", "elements"),
    [
        ("{}", []),
        ("{1,NULL,3}", ["1", None, "3"]),
        (r'{"a\"b","c\\d","NULL","","x,y"}', ['a"b', "c\\d", "NULL", "", "x,y"]),
        ("{a b,null}", ["a b", "null"]),
        ('{"{1,2}","}"}', ["{1,2}", "}"]),
    ],
)
def test_arrays_are_taken_apart(text, elements):
    assert elements_from_text(text, ",") == elements


@pytest.mark.parametrize("text", ["{{1,2},{3,4}}", "[0:1]={1,2}", "[-1:0][2:3]={{1,2},{3,4}}"])
def test_arrays_of_several_dimensions_or_with_bounds_do_not_fit(text):
    with pytest.raises(DoesNotFit):
        elements_from_text(text, ",")


@pytest.mark.parametrize(
    "text", ["", "{", "}", "1,2", "{1,}", "{,1}", '{"a}', '{"a"b}', '{a"b}', "{a{b}", '{"a\\"}', "{1}}"]
)
def test_arrays_in_another_form_are_refused(text):
    with pytest.raises(ValueFormatError):
        elements_from_text(text, ",")


def test_text_is_utf8_without_nul():
    assert decode_text("é€🐘".encode()) == "é€🐘"
    with pytest.raises(ValueFormatError, match="client_encoding"):
        decode_text(b"\xe9t\xe9")
    with pytest.raises(ValueFormatError, match="NUL"):
        decode_text(b"a\0b")
