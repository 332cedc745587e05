import math

import pytest

from walreplay.errors import ValueFormatError
from walreplay.types import DoesNotFit, Family
from walreplay.types.modes import double_from_numeric, encoded_from_bytea


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


@pytest.mark.parametrize(
    ("family", "text"),
    [
        (Family.BYTEA_AS_BASE64, "3q2+7/8="),
        (Family.BYTEA_AS_BASE64_URL, "3q2-7_8="),
        (Family.BYTEA_AS_HEX, "deadbeefff"),
    ],
)
def test_bytea_is_written_as_the_mode_says_in_whichever_form_it_came(family, text):
    assert encoded_from_bytea(r"\xDEADbeefff", family) == text
    assert encoded_from_bytea(r"\336\255\276\357\377", family) == text
    assert encoded_from_bytea(r"\x", family) == ""
    assert encoded_from_bytea("", family) == ""


def test_base64_has_no_line_breaks():
    assert encoded_from_bytea(r"\x" + "00" * 300, Family.BYTEA_AS_BASE64) == "A" * 400


def test_a_bytea_in_neither_form_is_refused():
    with pytest.raises(ValueFormatError, match="bytea"):
        encoded_from_bytea(r"\xz", Family.BYTEA_AS_HEX)
