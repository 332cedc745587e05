"""Conversions between types: where they are cut makes no difference, and what is exact can be taken back."""

from __future__ import annotations

import datetime
import math
import struct
from decimal import Decimal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from support.binary_cells import convert as built
from support.extent import examples
from walreplay.evolution.convert import convert, is_widening, read_texts
from walreplay.types import ColumnType, resolve
from walreplay.types.datetime import in_utc
from walreplay.types.families import output_of, text_of
from walreplay.types.numbers import double_text, single_text

few = settings(max_examples=examples(40), deadline=None)
many = settings(max_examples=examples(200), deadline=None)

UTC = datetime.timezone.utc


def numeric(precision: int, scale: int) -> ColumnType:
    return resolve(1700, (precision << 16 | scale) + 4, {})


def typed(oid: int) -> ColumnType:
    return resolve(oid, -1, {})


TEXT, INT2, INT4, INT8, FLOAT4, FLOAT8 = map(typed, (25, 21, 23, 20, 700, 701))
VECTOR = resolve(90000, -1, {90000: ("public", "vector")})

letters = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), max_size=8)
figures = (
    letters
    | st.sampled_from(
        ["5", " 7 ", "-3.00", "1e3", "1.5", "NaN", "infinity", "true", "2024-02-29", "2024-02-29 00:00:00"]
    )
    | st.sampled_from(
        ["2024-02-29 12:00:00.5", "2024-02-29 12:00:00+01", r"\x0a0b", "{1,2}", "{a,NULL}", "[1,2]", "9" * 20]
    )
)
doubles = st.floats(width=64) | st.decimals(-(10**6), 10**6, places=3).map(float) | st.integers(-999, 999).map(float)
singles = st.floats(width=32) | st.decimals(-1000, 1000, places=2).map(lambda value: float(np.float32(value)))

FAMILIES = {
    "boolean": (typed(16), st.booleans()),
    "smallint": (INT2, st.integers(-(2**15), 2**15 - 1)),
    "integer": (INT4, st.integers(-(2**31), 2**31 - 1) | st.integers(-2, 300)),
    "bigint": (INT8, st.integers(-(2**63), 2**63 - 1) | st.integers(-2, 300)),
    "oid": (typed(26), st.integers(0, 2**32 - 1)),
    "real": (FLOAT4, singles),
    "double": (FLOAT8, doubles),
    "numeric(12,2)": (numeric(12, 2), st.decimals(-(10**10) + 1, 10**10 - 1, places=2)),
    "numeric(38,20)": (numeric(38, 20), st.integers(-(10**38) + 1, 10**38 - 1).map(lambda n: Decimal(f"{n}E-20"))),
    "numeric": (typed(1700), st.decimals(-1000, 1000, places=3).map(lambda value: format(value, "f"))),
    "text": (TEXT, figures),
    "char(5)": (resolve(1042, 9, {}), st.text("ab ", max_size=5).map(lambda text: text.ljust(5))),
    "uuid": (typed(2950), st.uuids().map(str)),
    "bytea": (typed(17), st.binary(max_size=8)),
    "date": (typed(1082), st.dates()),
    "timestamp": (typed(1114), st.datetimes() | st.dates().map(lambda day: datetime.datetime(*day.timetuple()[:3]))),
    "timestamptz": (typed(1184), st.datetimes(timezones=st.just(UTC))),
    "timestamp(2)": (resolve(1114, 2, {}), st.datetimes().map(lambda moment: moment.replace(microsecond=120000))),
    "interval day": (resolve(1186, 8 << 16 | 0xFFFF, {}), st.sampled_from(["1 day", "-3 days", "2 years 3 mons"])),
    "name": (typed(19), letters),
    "json": (typed(114), st.sampled_from(['{"b": [1.0], "a": "x"}', " null ", '"a"'])),
    "jsonb": (typed(3802), st.sampled_from(['{"a": "x", "b": [1.0]}', "null", '"a"'])),
    "integer[]": (typed(1007), st.lists(st.none() | st.integers(-9, 70000), max_size=3)),
    "text[]": (typed(1009), st.lists(st.none() | letters | st.sampled_from(["NULL", "a b", '"', "\\"]), max_size=3)),
    "boolean[]": (typed(1000), st.lists(st.none() | st.booleans(), max_size=3)),
    "timestamp[]": (typed(1115), st.lists(st.none() | st.datetimes(), max_size=3)),
    "bytea[]": (typed(1001), st.lists(st.none() | st.binary(max_size=3), max_size=3)),
    "box[]": (typed(1020), st.lists(st.none() | st.just("(1,1),(0,0)"), max_size=3)),
    "double[]": (typed(1022), st.lists(st.none() | doubles, max_size=3)),
    "vector": (VECTOR, st.lists(singles.filter(math.isfinite), max_size=3)),
}


@st.composite
def columns(draw, kinds=tuple(FAMILIES)):
    """A column of any family, and for some of its NULLs a rescued text."""
    column_type, strategy = FAMILIES[draw(st.sampled_from(kinds))]
    values = draw(st.lists(st.none() | strategy, max_size=20))
    rescued = [draw(st.none() | figures) if value is None else None for value in values]
    texts = pa.array(rescued, pa.string()) if draw(st.booleans()) else None
    return column_type, pa.array(values, column_type.arrow), texts


TYPES = st.sampled_from([column_type for column_type, _ in FAMILIES.values()])


def same(one: pa.Array | None, other: pa.Array | None, size: int) -> bool:
    """Compare texts; None is no text at all."""
    nothing = pa.nulls(size, pa.string())
    return (nothing if one is None else one).equals(nothing if other is None else other)


def equal(one: pa.Array, other: pa.Array) -> bool:
    """Compare columns; NaN equals itself."""
    return repr(one.to_pylist()) == repr(other.to_pylist()) and one.type == other.type


@many
@given(columns(), TYPES, st.data())
def test_a_column_converted_in_slices_is_the_column_converted_as_a_whole(column, new, data):
    old, values, texts = column
    whole, left = convert(values, texts, [old, new])
    whole.validate(full=True)
    cuts = sorted(data.draw(st.lists(st.integers(0, len(values)), max_size=3)))
    parts, lefts = [], []
    for start, stop in zip([0, *cuts], [*cuts, len(values)], strict=True):
        part = None if texts is None else texts.slice(start, stop - start)
        converted, rest = convert(values.slice(start, stop - start), part, [old, new])
        parts.append(converted)
        lefts.append(pa.nulls(stop - start, pa.string()) if rest is None else rest)
    assert equal(pa.concat_arrays(parts), whole)
    assert same(pa.concat_arrays(lefts), left, len(values))


@many
@given(columns(), st.lists(TYPES, min_size=1, max_size=3))
def test_a_chain_is_its_changes_one_by_one(column, types):
    old, values, texts = column
    whole, left = convert(values, texts, [old, *types])
    for new in types:
        values, texts = convert(values, texts, [old, new])
        old = new
    assert equal(values, whole)
    assert same(texts, left, len(values))


@many
@given(columns(), TYPES)
def test_every_value_is_held_or_its_text_is_rescued(column, new):
    old, values, texts = column
    converted, left = convert(values, texts, [old, new])
    there = values.is_valid() if texts is None else pc.or_(values.is_valid(), texts.is_valid())
    held = converted.is_valid()
    rescued = pa.nulls(len(values), pa.string()) if left is None else left
    assert pc.xor(held, rescued.is_valid()).equals(there)


@few
@pytest.mark.parametrize("family", FAMILIES)
@given(data=st.data())
def test_what_is_written_is_read_as_the_same_column(family, data):
    column_type, strategy = FAMILIES[family]
    values = pa.array(data.draw(st.lists(st.none() | strategy, max_size=10)), column_type.arrow)
    if family != "vector":
        found, rescued = built(column_type, output_of(values, column_type).to_pylist())
        assert not rescued
        assert equal(found, values)
    if family.startswith("char"):
        return
    there, left = convert(values, None, [column_type, TEXT])
    assert left is None
    back, left = convert(there, None, [TEXT, column_type])
    if family == "text":
        assert there is values or there.equals(values)
    else:
        assert left is None
        assert equal(back, values)


@many
@given(st.lists(st.none() | st.datetimes(), max_size=20), st.integers(0, 5), st.booleans())
def test_timestamps_are_rounded_alike_as_values_and_as_texts(values, precision, with_zone):
    oid, zone = (1184, UTC) if with_zone else (1114, None)
    old, new = typed(oid), resolve(oid, precision, {})
    column = pa.array([value and value.replace(tzinfo=zone) for value in values], old.arrow)
    rounded, left = convert(column, None, [old, new])
    expected = [text and in_utc(text, precision) for text in output_of(column, old).to_pylist()]
    held = output_of(rounded, new)
    assert (held if left is None else pc.coalesce(held, left)).to_pylist() == expected
    assert convert(rounded, left, [old, new]) == (rounded, left)


@few
@given(st.lists(st.none() | st.integers(-(2**31), 2**31 - 1)))
def test_integers_come_back_from_text_and_wider_types(integers):
    values = pa.array(integers, pa.int32())
    for between in (TEXT, INT8, FLOAT8, numeric(12, 2), typed(1700)):
        assert convert(values, None, [INT4, between, INT4]) == (values, None)


@few
@given(st.lists(st.none() | st.integers(-(10**18) + 1, 10**18 - 1)), st.integers(0, 10), st.integers(0, 10))
def test_decimals_come_back_from_wider_ones(unscaled, digits, decimals):
    old, new = numeric(18, 4), numeric(18 + digits + decimals, 4 + decimals)
    values = pa.array([None if n is None else Decimal(f"{n}E-4") for n in unscaled], old.arrow)
    assert convert(values, None, [old, new, old]) == (values, None)


@few
@given(st.lists(singles.filter(lambda value: not math.isnan(value))))
def test_singles_come_back_from_doubles(floats):
    values = pa.array(floats, pa.float32())
    doubles, left = convert(values, None, [FLOAT4, FLOAT8])
    assert left is None
    back, left = convert(doubles, None, [FLOAT8, FLOAT4])
    assert left is None
    assert struct.pack(f"{len(floats)}f", *back.to_pylist()) == struct.pack(f"{len(floats)}f", *floats)


@many
@given(
    st.lists(singles | st.sampled_from([1e-4, 1e6, 2.0**23])), st.lists(doubles | st.sampled_from([1e-4, 1e10, 1e15]))
)
def test_floats_are_written_as_postgres_does(singles, doubles):
    expected = [single_text(value) for value in pa.array(singles, pa.float32()).to_pylist()]
    assert text_of(pa.array(singles, pa.float32()), FLOAT4).to_pylist() == expected
    assert text_of(pa.array(doubles, pa.float64()), FLOAT8).to_pylist() == [double_text(value) for value in doubles]


@many
@given(columns(kinds=("smallint", "integer", "bigint", "oid", "numeric(12,2)", "date")), TYPES)
def test_a_widening_gives_what_the_texts_give(column, new):
    old, values, _ = column
    if is_widening(old, new):
        assert equal(convert(values, None, [old, new])[0], read_texts(text_of(values, old), new))
