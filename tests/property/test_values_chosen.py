"""What the configuration chose (the mode and overrides), and vectors: the builders agree with the exact readers."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from support.binary_cells import convert, held, singles
from walreplay.types import DoesNotFit, TypeOptions, resolve
from walreplay.types.families import read_overridden
from walreplay.types.numbers import double_from_numeric

NUMERIC = 1700
VECTOR = resolve(70001, -1, {70001: ("public", "vector")})
DOUBLE = TypeOptions(decimal_handling_mode="double")


numerics = st.one_of(
    st.decimals(allow_nan=False, allow_infinity=False).map(lambda number: f"{number:f}").filter(lambda s: len(s) < 500),
    st.sampled_from(["NaN", "Infinity", "-Infinity", "1" + "0" * 400, "0." + "0" * 400 + "1", "-0", "0.000"]),
)


@given(st.lists(st.none() | numerics, max_size=30))
def test_numerics_as_doubles_are_what_the_reader_says(texts):
    array, rescued = convert(resolve(NUMERIC, -1, {}, options=DOUBLE), texts)
    beyond = {misfit.row: misfit.text for misfit in rescued}
    for row, (text, value) in enumerate(zip(texts, array.to_pylist(), strict=True)):
        if text is None:
            assert value is None
            continue
        try:
            assert repr(value) == repr(double_from_numeric(text))
        except DoesNotFit:
            assert (value, beyond.pop(row)) == (None, text)
    assert not beyond


numbers = st.one_of(
    numerics,
    st.integers().map(str),
    st.from_regex(r"[+-]?[0-9]{0,6}(\.[0-9]{0,6})?(e[+-]?[0-9]{1,2})?", fullmatch=True),
)


@given(
    st.lists(st.none() | st.lists(st.floats(width=32, allow_nan=False, allow_infinity=False), max_size=5), max_size=20)
)
def test_vectors_come_back_as_they_were(rows):
    texts = [None if row is None else "[" + ",".join(str(np.float32(value)) for value in row) + "]" for row in rows]
    array, rescued = convert(VECTOR, texts)
    assert array.to_pylist() == rows
    assert not rescued


@pytest.mark.parametrize(
    "override",
    ["smallint", "int", "bigint", "oid", "numeric(38,10)", "numeric(5,5)", "numeric(6)", "real", "double precision"],
)
@given(texts=st.lists(numbers, max_size=20))
def test_numbers_are_read_as_the_reader_reads_them(override, texts):
    column_type = resolve(NUMERIC, -1, {}, override=override)
    array, rescued = convert(column_type, texts)
    beyond = {misfit.row: misfit.text for misfit in rescued}
    for row, (text, value) in enumerate(zip(texts, held(array), strict=True)):
        try:
            expected = read_overridden(text, column_type)
        except DoesNotFit:
            assert (value, beyond.pop(row)) == (None, text)
        else:
            assert repr(value) == repr(singles(expected)[0] if override == "real" else expected)
    assert not beyond
