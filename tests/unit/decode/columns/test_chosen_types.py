"""The builders of what the configuration chose: the mode and overrides; and of vectors."""

import math
import struct

import pyarrow as pa
import pytest

from support.binary_cells import Binary, convert, held, image, singles
from walreplay.errors import ValueFormatError
from walreplay.types import DoesNotFit, Rescued, TypeOptions, resolve
from walreplay.types.composite import floats_from_text
from walreplay.types.families import read_overridden

BYTEA, INT8, INT4, TEXT, FLOAT8, NUMERIC, TIMESTAMP = 17, 20, 23, 25, 701, 1700, 1114
INT4S, NUMERICS = 1007, 1231
VECTOR = resolve(70001, -1, {70001: ("public", "vector")})
DOUBLE = TypeOptions(decimal_handling_mode="double")


def test_numerics_as_doubles_come_in_binary_too():
    one_and_a_half = Binary(struct.pack("!hhHhhh", 2, 0, 0, 1, 1, 5000))
    nan = Binary(struct.pack("!hhHh", 0, 0, 0xC000, 0))
    found = convert(resolve(NUMERIC, -1, {}, options=DOUBLE), [one_and_a_half, "2.5", nan])
    assert image(found) == ("[1.5, 2.5, nan]", [])


def test_arrays_of_numerics_become_arrays_of_doubles():
    array, rescued = convert(resolve(NUMERICS, -1, {}, options=DOUBLE), ["{1.5,NULL,NaN}", "{1" + "0" * 400 + "}"])
    assert str(array.to_pylist()) == "[[1.5, None, nan], None]"
    assert [misfit.row for misfit in rescued] == [1]


def test_a_malformed_numeric_is_refused_as_a_double_too():
    for text in ("1e5x", "abc", "1,5"):
        with pytest.raises(ValueFormatError, match="numeric"):
            convert(resolve(NUMERIC, -1, {}, options=DOUBLE), ["1", text])


VECTOR_TEXTS = [
    "[1,2.5,-3e-05]",
    None,
    "[]",
    "[0.1]",
    "no vector",
    "[NaN]",
    "[1e39,1]",
    "[1,2",
    "[-0]",
    "[1.00000005960464477539062500001]",
]


def test_vectors_are_what_the_reader_says():
    array, rescued = convert(VECTOR, VECTOR_TEXTS)
    assert array.type == pa.list_(pa.field("element", pa.float32()))
    for text, value in zip(VECTOR_TEXTS, array.to_pylist(), strict=True):
        try:
            assert value == (None if text is None else floats_from_text(text))
        except DoesNotFit:
            assert value is None
    assert rescued == [Rescued(row, VECTOR_TEXTS[row]) for row in (4, 5, 6, 7)]


def test_vectors_come_in_binary_too():
    names = {70001: ("public", "vector")}
    sent = Binary(struct.pack("!hhff", 2, 0, 0.1, -2.5))
    array, rescued = convert(VECTOR, [sent, "[1]", sent], names)
    assert (array.to_pylist(), rescued) == ([singles(0.1, -2.5), [1.0], singles(0.1, -2.5)], [])


OVERRIDES = {
    "bigint": ["5", "5.00", "05", "abc", "9223372036854775808", " 7 ", "1e3", ""],
    "smallint": ["5", "40000"],
    "boolean": ["t", "true", "0", "maybe"],
    "real": ["0.1", "1e39", ".5", "NaN", "x", "+1", "16777217"],
    "double precision": ["0.1", "1e400", "1E5", "-infinity", "x", "12345678901234567890.5"],
    "numeric(20,4)": ["1.5", "1e-4", "0.00001", "NaN", "x", "+2"],
    "numeric(38,10)": ["9" * 28 + "." + "9" * 10, "1e-11"],
    "date": ["2024-02-29", "2024-02-29 00:00:00", "29.02.2024", "infinity"],
    "timestamp": ["2024-02-29 12:34:56.789", "2024-02-29T12:34", "2024-02-29", "yesterday"],
    "timestamptz": ["2024-02-29 12:34:56+01", "2024-02-29T12:34:56Z", "2024-02-29 12:34:56"],
    "bytea": [r"\x00ff", "abc", r"\xz", "é"],
    "vector": ["[1,2]", "{1,2}"],
}


@pytest.mark.parametrize("override", OVERRIDES)
def test_an_overridden_column_is_what_the_reader_says(override):
    texts = [*OVERRIDES[override], None]
    column_type = resolve(TEXT, -1, {}, override=override)
    array, rescued = convert(column_type, texts)
    good, bad = [], []
    for row, text in enumerate(texts):
        try:
            good.append(None if text is None else read_overridden(text, column_type))
        except DoesNotFit:
            good.append(None)
            bad.append(Rescued(row, text))
    assert rescued == bad
    assert array.is_valid().to_pylist() == [value is not None for value in good]
    assert repr(held(array)) == repr(good if array.type != pa.float32() else singles(*good))


def test_text_that_is_read_as_an_array_is_rescued_where_it_is_none():
    texts = ["{1,NULL,3.0}", "1,2", "{1,x}", "{{1},{2}}", None, "{}"]
    array, rescued = convert(resolve(TEXT, -1, {}, override="integer[]"), texts)
    assert array.to_pylist() == [[1, None, 3], None, None, None, None, []]
    assert rescued == [Rescued(row, texts[row]) for row in (1, 2, 3)]


@pytest.mark.parametrize(
    ("oid", "override", "cell", "value"),
    [
        (INT8, "text", struct.pack("!q", -5), "-5"),
        (INT4, "bigint", struct.pack("!i", 7), 7),
        (TIMESTAMP, "text", struct.pack("!q", 0), "2000-01-01 00:00:00"),
        (TIMESTAMP, "timestamptz", struct.pack("!q", 0), None),
        (NUMERIC, "text", struct.pack("!hhHhh", 1, 0, 0, 0, 3), "3"),
        (FLOAT8, "numeric(10,2)", struct.pack("!d", 1.5), 1.5),
        (TEXT, "bigint", b"12", 12),
        (INT4S, "text", struct.pack("!iiIiiii", 1, 0, INT4, 1, 1, 4, 9), "{9}"),
        (INT4S, "text[]", struct.pack("!iiIiiii", 1, 0, INT4, 1, 1, 4, 9), ["9"]),
        (TEXT, "bytea", rb"\x41", b"A"),
        (BYTEA, "text", b"A", r"\x41"),
    ],
)
def test_an_overridden_value_in_binary_is_read_by_its_text(oid, override, cell, value):
    array, rescued = convert(resolve(oid, -1, {}, override=override), [Binary(cell)])
    assert array.to_pylist() == [value]
    assert bool(rescued) == (value is None)


def test_an_override_does_not_make_up_for_another_encoding():
    for override in ("bigint", "double precision", "integer[]", "vector", "bytea"):
        with pytest.raises(ValueFormatError, match="UTF-8"):
            convert(resolve(TEXT, -1, {}, override=override), [b"caf\xe9"])


def test_infinity_is_infinity_as_a_double():
    array, _ = convert(resolve(TEXT, -1, {}, override="double precision"), ["Infinity"])
    assert array[0].as_py() == math.inf
