"""The same values in text and in binary format give the same columns, however the formats are mixed."""

import struct

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from support.binary_cells import (
    DAY,
    INT32_MAX,
    INT64_MAX,
    NOT_FINITE,
    Binary,
    Value,
    array,
    convert,
    date,
    image,
    numeric,
    timestamp,
)
from support.extent import examples
from walreplay.errors import ValueFormatError
from walreplay.types import resolve
from walreplay.types.builtin import BUILTIN_TYPES
from walreplay.types.numbers import numeric_text

MOOD = 90_000
NAMES = {MOOD: ("public", "mood")}

PLAIN = st.characters(exclude_characters="\0", codec="utf-8")
TEXT = (st.text(PLAIN, max_size=24) | st.sampled_from(["x" * 16, "y" * 17, "größe" * 9, "z" * 32, "w" * 300])).map(
    lambda text: Value(text, text.encode())
)
LABEL = st.text(st.characters(exclude_categories=["C"]), max_size=24).map(lambda text: Value(text, text.encode()))


def integers(layout, low, high):
    return st.integers(low, high).map(lambda number: Value(str(number), struct.pack(layout, number)))


def floats(layout, width):
    def both(number):
        number = np.float32(number) if width == 32 else np.float64(number)
        text = str(number).removesuffix(".0").replace("nan", "NaN").replace("inf", "Infinity")
        return Value(text, struct.pack(layout, number))

    return st.floats(width=width).map(both) | st.decimals(-1000, 1000, places=3).map(float).map(both)


def one_byte(byte):
    text = "" if byte == 0 else chr(byte) if byte < 128 else f"\\{byte:03o}"
    return Value(text, bytes([byte]))


@st.composite
def numerics(draw, precision, scale):
    digits = draw(st.integers(0, precision).flatmap(lambda size: st.integers(0, 10**size)))
    # What ends in zeros has fewer groups of digits than its scale asks for.
    digits *= 10 ** draw(st.integers(0, max(0, precision - len(str(digits)))))
    sent_scale = scale if draw(st.integers(0, 9)) else draw(st.integers(0, precision))
    return numeric(draw(st.sampled_from([1, -1])), digits, sent_scale)


DATES = (st.integers(-2_451_545, 2_145_031_948) | st.integers(-730_500, 2_922_500)).map(date)
AROUND = st.integers(-800_000, 3_000_000).map(lambda days: days * DAY + 1_500)
MICROS = AROUND | st.integers(-211_813_488_000_000_000, 9_223_371_331_200_000_000 - 1)
TIMESTAMPS = MICROS.map(timestamp)
MOMENTS = MICROS.map(lambda micros: timestamp(micros, "+00"))

SCALARS = {
    16: st.booleans().map(lambda truth: Value("t" if truth else "f", bytes([truth]))),
    17: st.binary(max_size=40).map(lambda data: Value("\\x" + data.hex(), data)),
    18: st.integers(0, 255).map(one_byte),
    19: TEXT,
    20: integers("!q", -(2**63), 2**63 - 1),
    21: integers("!h", -(2**15), 2**15 - 1),
    23: integers("!i", -(2**31), 2**31 - 1),
    25: TEXT,
    26: integers("!I", 0, 2**32 - 1),
    28: integers("!I", 0, 2**32 - 1),
    114: TEXT,
    700: floats("!f", 32),
    701: floats("!d", 64),
    1042: TEXT,
    1043: TEXT,
    1082: DATES | st.sampled_from([date(INT32_MAX), date(-INT32_MAX - 1)]),
    1114: TIMESTAMPS | st.sampled_from([timestamp(INT64_MAX), timestamp(-INT64_MAX - 1)]),
    1184: MOMENTS | st.sampled_from([timestamp(INT64_MAX), timestamp(-INT64_MAX - 1)]),
    1700: numerics(60, 12) | numerics(400, 200) | st.sampled_from(NOT_FINITE),
    2950: st.uuids().map(lambda number: Value(str(number), number.bytes)),
    3802: TEXT.map(lambda value: Value(value.text, b"\1" + value.binary)),
    MOOD: LABEL,
}
ARRAYS = {builtin.element: oid for oid, builtin in BUILTIN_TYPES.items() if builtin.element in SCALARS}


def same_in_both_formats(column_type, values, forms, names=NAMES):
    """Compare the columns of text alone, of binary alone, and of both mixed."""
    texts = [None if value is None else value.text for value in values]
    binaries = [None if value is None else Binary(value.binary) for value in values]
    mixed = [binaries[at] if forms[at % len(forms)] else texts[at] for at in range(len(values))]
    expected = image(convert(column_type, texts, names))
    assert image(convert(column_type, binaries, names)) == expected
    assert image(convert(column_type, mixed, names)) == expected


def some(values):
    return st.lists(st.none() | values, max_size=12)


FORMS = st.lists(st.booleans(), min_size=1, max_size=12)


@pytest.mark.parametrize("oid", SCALARS)
@settings(max_examples=examples(60), deadline=None)
@given(data=st.data(), forms=FORMS)
def test_scalars_are_the_same_in_both_formats(oid, data, forms):
    same_in_both_formats(resolve(oid, -1, NAMES), data.draw(some(SCALARS[oid])), forms)


@settings(max_examples=examples(400), deadline=None)
@given(st.integers(1, 38).flatmap(lambda p: st.tuples(st.just(p), st.integers(0, p))), st.data(), FORMS)
def test_decimals_are_the_same_in_both_formats(modifiers, data, forms):
    precision, scale = modifiers
    column_type = resolve(1700, (precision << 16 | scale) + 4, {})
    values = some(numerics(precision, scale) | numerics(60, scale) | st.sampled_from(NOT_FINITE))
    same_in_both_formats(column_type, data.draw(values), forms)


@st.composite
def arrays(draw, oid, elements):
    """Draw arrays of which some have bounds of their own or two dimensions."""
    shape = draw(st.integers(0, 7))
    items = draw(st.lists(st.none() | elements, max_size=8))
    if items and shape == 0:
        return array(oid, items, lower=draw(st.integers(-3, 3)))
    if items and shape == 1:
        return array(oid, [*items, *items], lengths=[2, len(items)])
    return array(oid, items)


# A float's text within an array of two dimensions is the server's, whose exponents are not Python's.
@pytest.mark.parametrize("element", sorted(set(ARRAYS) - {17, 700, 701}))
@settings(max_examples=examples(40), deadline=None)
@given(data=st.data(), forms=FORMS)
def test_arrays_are_the_same_in_both_formats(element, data, forms):
    values = data.draw(some(arrays(element, SCALARS[element])))
    same_in_both_formats(resolve(ARRAYS[element], -1, {}), values, forms)


@pytest.mark.parametrize("element", [17, 700, 701])
@settings(max_examples=examples(40), deadline=None)
@given(data=st.data(), forms=FORMS)
def test_arrays_of_one_dimension_are_the_same_in_both_formats(element, data, forms):
    one = st.lists(st.none() | SCALARS[element], max_size=8).map(lambda items: array(element, items))
    same_in_both_formats(resolve(ARRAYS[element], -1, {}), data.draw(some(one)), forms)


@settings(max_examples=examples(60), deadline=None)
@given(some(arrays(1700, numerics(12, 2) | st.sampled_from(NOT_FINITE))), FORMS)
def test_arrays_of_decimals_are_the_same_in_both_formats(values, forms):
    same_in_both_formats(resolve(ARRAYS[1700], (12 << 16 | 2) + 4, {}), values, forms)


@settings(max_examples=examples(1000), deadline=None)
@given(
    oid=st.sampled_from([*BUILTIN_TYPES, MOOD, MOOD + 1]) | st.sampled_from([*SCALARS, *ARRAYS.values()]),
    typmod=st.sampled_from([-1, (5 << 16 | 2) + 4]),
    binaries=st.lists(
        st.binary(max_size=40)
        | st.binary(max_size=24).map(lambda data: b"\0\0\0\1\0\0\0\0\0\0\0\x17\0\0\0\1\0\0\0\1" + data)
        | st.lists(st.integers(0, 3) | st.just(0xFFFF), max_size=9).map(lambda n: struct.pack(f"!{len(n)}H", *n)),
        max_size=4,
    ),
    texts=st.lists(st.binary(max_size=40) | st.text('0123456789-:.+ {}",\\xtfNaInBC', max_size=30), max_size=4),
)
def test_any_bytes_give_a_value_or_a_rescued_text_or_a_format_error(oid, typmod, binaries, texts):
    cells = [*map(Binary, binaries), *texts] if len(binaries) % 2 else [*texts, *map(Binary, binaries)]
    try:
        column, rescued = convert(resolve(oid, typmod, NAMES), cells, NAMES)
    except ValueFormatError as error:
        refused_at = error.offset
    else:
        refused_at = 0
        nulls = [row for row, valid in enumerate(column.is_valid().to_pylist()) if not valid]
        assert nulls == [misfit.row for misfit in rescued]
    assert refused_at in range(sum(map(len, cells)) + 1)


@pytest.mark.parametrize("typmod", [(12 << 16 | 2) + 4, (38 << 16 | 10) + 4, (38 << 16 | 38) + 4, -1])
@settings(max_examples=examples(200), deadline=None)
@given(
    cell=st.tuples(
        st.integers(0, 6),
        st.integers(-8, 8),
        st.sampled_from([0, 0, 0x4000, 0x8000, 0xC000]),
        st.integers(0, 12) | st.integers(0, 0xFFFF),
        st.lists(st.integers(0, 9999) | st.sampled_from([0, 0, 100, 5000, 10_000, 0xFFFF]), max_size=6),
    )
)
def test_the_kernels_and_the_exact_writer_of_numerics_agree(typmod, cell):
    """Cells that no server sends: the kernels may leave them, but not read them as something else."""
    count, weight, sign, scale, groups = cell
    count = len(groups) if count else count
    data = Binary(struct.pack(f"!HhHH{len(groups)}H", count, weight, sign, scale, *groups))
    column_type = resolve(1700, typmod, {})
    try:
        found = image(convert(column_type, [data]))
    except ValueFormatError:
        found = None
    try:
        expected = image(convert(column_type, [numeric_text(data)]))
    except ValueFormatError:
        expected = None
    assert found == expected
