import struct
from fractions import Fraction

import pyarrow as pa
import pytest

from walreplay.types import DoesNotFit
from walreplay.types.composite import floats_from_text


def single(value: float) -> float:
    return struct.unpack("f", struct.pack("f", value))[0]


@pytest.mark.parametrize(
    ("text", "values"),
    [
        ("[1,2.5,-3e-05]", [1.0, 2.5, single(-3e-05)]),
        ("[0]", [0.0]),
        ("[0.1,3.4028235e+38,1e-45]", [single(0.1), single(3.4028234663852886e38), 2.0**-149]),
        ("[65504,6.1035156e-05,-5.9604645e-08]", [65504.0, 2.0**-14, -(2.0**-24)]),
        ("[]", []),
    ],
)
def test_vectors_are_read(text, values):
    assert floats_from_text(text) == values


def test_the_zeros_sign_is_kept():
    assert str(floats_from_text("[-0,0]")) == "[-0.0, 0.0]"


def test_an_element_is_rounded_once():
    # Just above the middle between 1 and its neighbour, by less than a double can tell.
    middle = Fraction(1) + Fraction(1, 2**24)
    text = f"{float(middle):.30f}"[:26] + "0" * 20 + "1"
    assert Fraction(text) > middle
    assert float(text) == float(middle)
    assert floats_from_text(f"[{text}]") == [1.0 + 2.0**-23]
    assert single(float(text)) == 1.0


@pytest.mark.parametrize(
    "text",
    [
        "",
        "1,2",
        "[1,2",
        "[1,]",
        "[,1]",
        "[1 ,2]",
        "[1, 2]",
        "{1:1}/3",
        "[NaN]",
        "[Infinity]",
        "[1e39]",
        "[-1e39]",
        "[1],[2]",
        "(1,2)",
        "[a]",
        "[1.]",
        "[.5]",
        "[0x1]",
        "[1\n]",
        "[١]",
    ],
)
def test_what_is_no_list_of_finite_numbers_does_not_fit(text):
    with pytest.raises(DoesNotFit):
        floats_from_text(text)


def test_the_values_are_what_a_column_of_single_precision_holds():
    values = floats_from_text("[0.1,0.2,16777217]")
    assert pa.array(values, pa.float32()).to_pylist() == values
