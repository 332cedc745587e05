"""Values of fixed width against Python's own."""

import datetime
import math
import struct
from decimal import Decimal

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from support.binary_cells import convert
from support.extent import examples
from walreplay.types import DoesNotFit, resolve
from walreplay.types.numbers import unscaled_from_text

BOOL, INT8, INT2, INT4, OID = 16, 20, 21, 23, 26
FLOAT4, FLOAT8, DATE, TIMESTAMP, TIMESTAMPTZ, NUMERIC = 700, 701, 1082, 1114, 1184, 1700

few = settings(max_examples=examples(60), deadline=None)


def some(strategy):
    return st.lists(st.none() | strategy, max_size=20)


def converted(oid, texts, typmod=-1):
    array, rescued = convert(resolve(oid, typmod, {}), texts)
    assert not rescued
    return array.to_pylist()


def texts_of(values, write=str):
    return [None if value is None else write(value) for value in values]


@few
@given(st.sampled_from([(INT2, 15), (INT4, 31), (INT8, 63)]), st.data())
def test_integers_are_pythons(kind, data):
    oid, bits = kind
    values = data.draw(some(st.integers(-(2**bits), 2**bits - 1)))
    assert converted(oid, texts_of(values)) == values


@few
@given(some(st.integers(0, 2**32 - 1)), some(st.booleans()))
def test_oids_and_booleans_are_pythons(oids, booleans):
    assert converted(OID, texts_of(oids)) == oids
    assert converted(BOOL, texts_of(booleans, lambda value: "t" if value else "f")) == booleans


def postgres_float(value: float, digits: str) -> str:
    return "Infinity" if value == math.inf else "-Infinity" if value == -math.inf else digits.replace("nan", "NaN")


@few
@given(some(st.floats(width=64, allow_nan=False) | st.decimals(-1000, 1000, places=3).map(float)))
def test_doubles_are_pythons_bit_by_bit(values):
    texts = texts_of(values, lambda value: postgres_float(value, repr(value).removesuffix(".0")))
    found = converted(FLOAT8, texts)
    assert [x is None for x in found] == [x is None for x in values]
    pairs = zip(found, values, strict=True)
    assert all(struct.pack("d", x) == struct.pack("d", y) for x, y in pairs if y is not None)


@few
@given(some(st.floats(width=32, allow_nan=False) | st.decimals(-1000, 1000, places=3).map(np.float32)))
def test_reals_are_rounded_once(values):
    texts = texts_of(values, lambda value: postgres_float(value, str(np.float32(value)).removesuffix(".0")))
    found = converted(FLOAT4, texts)
    pairs = zip(found, values, strict=True)
    assert all(struct.pack("f", x) == struct.pack("f", y) for x, y in pairs if y is not None)


@st.composite
def numeric_columns(draw):
    precision = draw(st.integers(1, 38))
    scale = draw(st.integers(0, precision))
    unscaled = draw(some(st.integers(-(10**precision) + 1, 10**precision - 1)))
    return precision, scale, unscaled


def write_numeric(unscaled: int, scale: int) -> str:
    digits = str(abs(unscaled)).rjust(scale + 1, "0")
    text = f"{digits[: len(digits) - scale]}.{digits[len(digits) - scale :]}" if scale else digits
    return f"-{text}" if unscaled < 0 else text


@settings(max_examples=examples(200), deadline=None)
@given(numeric_columns())
def test_numerics_keep_every_digit(column):
    precision, scale, unscaled = column
    texts = texts_of(unscaled, lambda value: write_numeric(value, scale))
    found = converted(NUMERIC, texts, (precision << 16 | scale) + 4)
    assert found == [None if text is None else Decimal(text) for text in texts]


@settings(max_examples=examples(200), deadline=None)
@given(numeric_columns(), st.lists(st.from_regex(r"\A-?[0-9]{1,25}(\.[0-9]{1,25})?\Z"), max_size=5))
def test_the_kernels_and_the_exact_reader_of_numerics_agree(column, texts):
    precision, scale, _ = column
    array, rescued = convert(resolve(NUMERIC, (precision << 16 | scale) + 4, {}), texts)
    misfits = {misfit.row: misfit.text for misfit in rescued}
    for row, (text, found) in enumerate(zip(texts, array.to_pylist(), strict=True)):
        try:
            exact = unscaled_from_text(text, precision, scale)
        except DoesNotFit:
            assert (found, misfits[row]) == (None, text)
        else:
            assert found == Decimal(f"{exact}E-{scale}") == Decimal(text)
            assert row not in misfits


@few
@given(some(st.dates()), some(st.datetimes()))
def test_dates_and_timestamps_are_pythons(dates, timestamps):
    assert converted(DATE, texts_of(dates, datetime.date.isoformat)) == dates
    assert converted(TIMESTAMP, texts_of(timestamps, write_timestamp)) == timestamps


def write_timestamp(value: datetime.datetime) -> str:
    text = value.replace(tzinfo=None).isoformat(" ")
    return text.rstrip("0") if "." in text else text


def write_offset(seconds: int) -> str:
    sign, seconds = ("-" if seconds < 0 else "+"), abs(seconds)
    text = f"{sign}{seconds // 3600:02}"
    if seconds % 3600:
        text += f":{seconds // 60 % 60:02}"
    return text + (f":{seconds % 60:02}" if seconds % 60 else "")


OFFSETS = st.integers(-57_599, 57_599) | st.integers(-63, 63).map(lambda quarters: quarters * 900)


@few
@given(st.lists(st.tuples(st.datetimes(), OFFSETS), max_size=20))
def test_timestamps_with_any_offset_are_pythons(drawn):
    texts = [write_timestamp(value) + write_offset(offset) for value, offset in drawn]
    array, rescued = convert(resolve(TIMESTAMPTZ, -1, {}), texts)
    misfits = {misfit.row: misfit.text for misfit in rescued}
    for row, (value, offset) in enumerate(drawn):
        try:
            utc = (value - datetime.timedelta(seconds=offset)).replace(tzinfo=datetime.timezone.utc)
        except OverflowError:
            assert misfits.pop(row) == texts[row]
            assert array[row].as_py() is None
        else:
            assert array[row].as_py() == utc
    assert not misfits
