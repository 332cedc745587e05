"""numeric in binary format (digits to the base of 10,000), and as the nearest double."""

import math
from struct import pack

import pytest

from walreplay.errors import ValueFormatError
from walreplay.types import DoesNotFit
from walreplay.types.numbers import double_from_numeric, numeric_text


def numeric(*digits, weight=0, sign=0, scale=0):
    return pack(f"!HhHH{len(digits)}H", len(digits), weight, sign, scale, *digits)


@pytest.mark.parametrize(
    ("data", "text"),
    [
        (numeric(), "0"),
        (numeric(scale=3), "0.000"),
        (numeric(1), "1"),
        (numeric(1, weight=1), "10000"),
        (numeric(12, 3400, sign=0x4000, scale=2), "-12.34"),
        (numeric(12, 3400, scale=5), "12.34000"),
        (numeric(1, weight=-1, scale=4), "0.0001"),
        (numeric(1, weight=-2, scale=8), "0.00000001"),
        (numeric(5, weight=-3, scale=12), "0.000000000005"),
        (numeric(1, 0, 2, weight=2), "100000002"),
        (numeric(7, weight=2, scale=1), "700000000.0"),
        (numeric(sign=0xC000), "NaN"),
        (numeric(sign=0xD000), "Infinity"),
        (numeric(sign=0xF000), "-Infinity"),
    ],
)
def test_a_numeric_has_the_decimals_of_its_scale(data, text):
    assert numeric_text(data) == text


def test_the_largest_numeric_has_131072_digits():
    assert numeric_text(numeric(9999, weight=32767)) == "9999" + "0" * 131_068


@pytest.mark.parametrize(
    "data",
    [b"", numeric(1)[:-1], numeric(1) + b"\0", numeric(10_000), numeric(sign=0x8000), numeric(scale=0x4000)],
)
def test_a_malformed_numeric_is_refused(data):
    with pytest.raises(ValueFormatError, match="numeric"):
        numeric_text(data)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("0.1", 0.1),
        ("12345678901234567890.123", 12345678901234567000.0),
        ("-Infinity", -math.inf),
        ("Infinity", math.inf),
        ("0." + "0" * 400 + "1", 0.0),
        ("179769313486231570" + "0" * 291, 1.7976931348623157e308),
    ],
)
def test_a_numeric_becomes_the_nearest_double(text, value):
    assert double_from_numeric(text) == value


def test_a_numeric_that_is_no_number_is_none_as_a_double_either():
    assert math.isnan(double_from_numeric("NaN"))


def test_a_numeric_beyond_all_doubles_does_not_fit():
    with pytest.raises(DoesNotFit):
        double_from_numeric("-1" + "0" * 400)


@pytest.mark.parametrize("text", ["", "1e5", "inf", "1.", "+1", " 1"])
def test_a_numeric_in_another_form_is_refused(text):
    with pytest.raises(ValueFormatError):
        double_from_numeric(text)
