"""numeric in binary format: digits to the base of 10,000."""

from struct import pack

import pytest

from walreplay.errors import ValueFormatError
from walreplay.types.numeric import numeric_text


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
