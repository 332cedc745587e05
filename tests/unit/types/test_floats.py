"""PostgreSQL's shortest exact digits."""

from struct import pack

import pytest

from walreplay.errors import ValueFormatError
from walreplay.types.numbers import float4_text, float8_text


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0.0, "0"),
        (-0.0, "-0"),
        (1.0, "1"),
        (-1.5, "-1.5"),
        (0.1, "0.1"),
        (0.0001, "0.0001"),
        (0.00001, "1e-05"),
        (999999999999999.0, "999999999999999"),
        (1e15, "1e+15"),
        (1.25e20, "1.25e+20"),
        (1e100, "1e+100"),
        (5e-324, "5e-324"),
        (1.7976931348623157e308, "1.7976931348623157e+308"),
        (float("inf"), "Infinity"),
        (float("-inf"), "-Infinity"),
        (float("nan"), "NaN"),
        # As short as can be, as other numbers of that size are.
        (9.5367431640625e21, "9.5367431640625e+21"),
        (2.0**60, "1.152921504606847e+18"),
    ],
)
def test_a_double_is_written_with_an_exponent_from_1e15_on(value, text):
    assert float8_text(pack("!d", value)) == text


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0.1, "0.1"),
        (999999.0, "999999"),
        (1e6, "1e+06"),
        (1234567.0, "1.234567e+06"),
        (0.00001, "1e-05"),
        (1e-45, "1e-45"),
        (3.4028235e38, "3.4028235e+38"),
        (-0.0, "-0"),
        (float("-inf"), "-Infinity"),
        (float("nan"), "NaN"),
    ],
)
def test_a_real_is_written_with_an_exponent_from_1e6_on(value, text):
    assert float4_text(pack("!f", value)) == text


def test_a_decimal_midway_between_two_floats_is_not_taken():
    # Python takes it: it is read back as the even one of the two, which this one is.
    assert repr(5e22) == "5e+22"
    assert float8_text(pack("!d", 5e22)) == "4.9999999999999996e+22"
    assert float4_text(pack("!f", 33554436.0)) == "3.3554436e+07"


def test_a_float_has_its_size():
    with pytest.raises(ValueFormatError):
        float8_text(b"\0" * 4)
    with pytest.raises(ValueFormatError):
        float4_text(b"\0" * 8)
