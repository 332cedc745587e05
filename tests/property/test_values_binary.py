"""The same values in text and in binary format give the same columns, however the formats are mixed."""

import struct
from unittest import mock

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
    tile,
    timestamp,
)
from support.extent import examples
from walreplay.decode.columns import UNCHANGED, base, make_builder, variable
from walreplay.errors import ValueFormatError
from walreplay.types import resolve
from walreplay.types.builtin import BUILTIN_TYPES
from walreplay.types.numbers import numeric_text

NAMES = {90_000 + number: ("public", name) for number, name in enumerate(("mood", "vector", "citext", "ltree"))}
MOOD, VECTOR, CITEXT, LTREE = NAMES

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

INTERVALS = st.tuples(st.integers(0, 30), st.integers(0, 11)).map(
    lambda own: Value(
        " ".join(f"{n} {word}{'s' if n > 1 else ''}" for n, word in zip(own[::-1], ("mon", "day"), strict=True) if n)
        or "00:00:00",
        struct.pack("!qii", 0, *own),
    )
)
VERSIONED = TEXT.map(lambda value: Value(value.text, b"\1" + value.binary))

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
    142: TEXT,
    700: floats("!f", 32),
    701: floats("!d", 64),
    1042: TEXT,
    1043: TEXT,
    1082: DATES | st.sampled_from([date(INT32_MAX), date(-INT32_MAX - 1)]),
    1114: TIMESTAMPS | st.sampled_from([timestamp(INT64_MAX), timestamp(-INT64_MAX - 1)]),
    1184: MOMENTS | st.sampled_from([timestamp(INT64_MAX), timestamp(-INT64_MAX - 1)]),
    1186: INTERVALS,
    1700: numerics(60, 12) | numerics(400, 200) | st.sampled_from(NOT_FINITE),
    2950: st.uuids().map(lambda number: Value(str(number), number.bytes)),
    3802: VERSIONED,
    4072: VERSIONED,
    MOOD: LABEL,
    CITEXT: TEXT,
    LTREE: VERSIONED,
}
ARRAYS = {builtin.element: oid for oid, builtin in BUILTIN_TYPES.items() if builtin.element in SCALARS}


SENT_AS = TEXT_CELL, BINARY_CELL, UNCHANGED_CELL, NO_TUPLE = range(4)


def courses(values):
    """Draw what may become of a column: rows come, each in a form of its own, some are taken back, it is finished."""
    rows = st.lists(st.tuples(st.none() | values, st.sampled_from((*SENT_AS[:2], *SENT_AS))), max_size=12)
    lead = st.sampled_from([b"", b"1", b"9" * 7, b"\xff" * 40])
    step = st.tuples(rows, lead) | st.integers(0, 20) | st.none()
    return st.lists(step, min_size=1, max_size=5)


@mock.patch.object(base, "MIN_ROWS", 2)
@mock.patch.object(variable, "_MIN_DATA", 8)
def check_course(column_type, steps, names=NAMES):
    """Compare columns, which have to grow, with those of text alone, each in one append."""
    builder, kept, finished = make_builder(column_type, names), [], []
    for step in [*steps, None]:
        if step is None:
            assert builder.rows == len(kept)
            assert builder.nbytes > 0 or len(kept) < 8
            finished.append((builder.finish(), kept))
            kept = []
        elif isinstance(step, int):
            builder.truncate(min(step, len(kept)))
            del kept[step:]
        else:
            rows, lead = step
            sent = [value and (Binary(value.binary) if form == BINARY_CELL else value.text) for value, form in rows]
            buf, offset, length, first, column = tile(sent, lead=lead)
            forms = np.array([form for _, form in rows], np.int64)
            length[forms == UNCHANGED_CELL], first[forms == NO_TUPLE] = UNCHANGED, -1
            texts = [None if value is None or form > BINARY_CELL else value.text for value, form in rows]
            rescued = builder.add_rows(buf, offset, length, first, column) or []
            assert rescued == convert(column_type, texts, names)[1]
            kept += texts
    # What is finished is not written to again.
    for column, texts in finished:
        column.validate(full=True)
        assert repr(column.to_pylist()) == repr(convert(column_type, texts, names)[0].to_pylist())
        assert column.null_count or column.buffers()[0] is None


@pytest.mark.parametrize("oid", SCALARS)
@settings(max_examples=examples(100), deadline=None)
@given(data=st.data())
def test_scalars_are_the_same_in_both_formats(oid, data):
    check_course(resolve(oid, -1, NAMES), data.draw(courses(SCALARS[oid])))


@settings(max_examples=examples(400), deadline=None)
@given(st.integers(1, 38).flatmap(lambda p: st.tuples(st.just(p), st.integers(0, p))), st.data())
def test_decimals_are_the_same_in_both_formats(modifiers, data):
    precision, scale = modifiers
    values = numerics(precision, scale) | numerics(60, scale) | st.sampled_from(NOT_FINITE)
    check_course(resolve(1700, (precision << 16 | scale) + 4, {}), data.draw(courses(values)))


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
@given(data=st.data())
def test_arrays_are_the_same_in_both_formats(element, data):
    check_course(resolve(ARRAYS[element], -1, {}), data.draw(courses(arrays(element, SCALARS[element]))))


@pytest.mark.parametrize("element", [17, 700, 701])
@settings(max_examples=examples(40), deadline=None)
@given(data=st.data())
def test_arrays_of_one_dimension_are_the_same_in_both_formats(element, data):
    one = st.lists(st.none() | SCALARS[element], max_size=8).map(lambda items: array(element, items))
    check_course(resolve(ARRAYS[element], -1, {}), data.draw(courses(one)))


@settings(max_examples=examples(60), deadline=None)
@given(courses(arrays(1700, numerics(12, 2) | st.sampled_from(NOT_FINITE))))
def test_arrays_of_decimals_are_the_same_in_both_formats(steps):
    check_course(resolve(ARRAYS[1700], (12 << 16 | 2) + 4, {}), steps)


VECTORS = st.lists(st.floats(width=32, allow_nan=False, allow_infinity=False), min_size=1, max_size=5).map(
    lambda numbers: Value(
        "[" + ",".join(str(np.float32(number)) for number in numbers) + "]",
        struct.pack(f"!hh{len(numbers)}f", len(numbers), 0, *numbers),
    )
)


@settings(max_examples=examples(60), deadline=None)
@given(courses(VECTORS))
def test_vectors_are_the_same_in_both_formats(steps):
    check_course(resolve(VECTOR, -1, NAMES), steps)


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
