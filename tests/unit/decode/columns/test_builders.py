import datetime

import numpy as np
import pytest

from support.binary_cells import convert, tile
from walreplay.decode.columns import make_builder
from walreplay.errors import ValueFormatError
from walreplay.types import resolve
from walreplay.types.builtin import BUILTIN_TYPES

INT4, TEXT, FLOAT4, DATE, TIMESTAMPTZ = 23, 25, 700, 1082, 1184
TEXTS, BOXES, DATES = 1009, 1020, 1182


def values(oid, texts, typmod=-1):
    array, rescued = convert(resolve(oid, typmod, {}), texts)
    assert not rescued
    return array.to_pylist()


@pytest.mark.parametrize("oid", BUILTIN_TYPES)
def test_every_built_in_type_has_a_builder(oid):
    builder = make_builder(resolve(oid, -1, {}))
    assert builder.finish().type == builder.column_type.arrow


def test_the_column_is_counted_from_the_rows_first_cell():
    buf, offset, length, _, _ = tile(["1", "2", "3", "4", "5", "6"])
    builder = make_builder(resolve(INT4, -1, {}))
    builder.add_rows(buf, offset, length, np.array([3, -1, 0], dtype=np.int64), 2)
    assert builder.finish().to_pylist() == [6, None, 3]


@pytest.mark.parametrize(
    ("oid", "remedy"),
    [(DATE, "DateStyle"), (TIMESTAMPTZ, "DateStyle"), (TEXT, "client_encoding"), (DATES, "DateStyle")],
)
def test_an_error_of_the_senders_settings_names_the_setting(oid, remedy):
    bad = {DATE: "29.02.2024", TIMESTAMPTZ: "2024-01-01 00:00:00", TEXT: b"\xff", DATES: "{29.02.2024}"}[oid]
    with pytest.raises(ValueFormatError, match=remedy):
        convert(resolve(oid, -1, {}), [bad])


def test_a_failed_append_leaves_the_rows_before_it():
    builder = make_builder(resolve(TEXTS, -1, {}))
    builder.add_rows(*tile(["{a}"]))
    with pytest.raises(ValueFormatError):
        builder.add_rows(*tile(["{b}", "{"]))
    builder.add_rows(*tile(["{c}"]))
    assert builder.finish().to_pylist() == [["a"], ["c"]]


def test_every_day_of_the_gregorian_cycle_is_read():
    start = datetime.date(1999, 12, 31).toordinal()
    days = [datetime.date.fromordinal(start + i) for i in range(146_097 + 2)]
    assert values(DATE, [day.isoformat() for day in days]) == days


@pytest.mark.parametrize(
    "text", ["2023-02-29", "1900-02-29", "2024-04-31", "2024-00-01", "2024-01-00", "2024-99-01", "0000-01-01"]
)
def test_days_that_do_not_exist_are_refused(text):
    with pytest.raises(ValueFormatError):
        convert(resolve(DATE, -1, {}), [text])


def test_cells_that_are_utf8_only_together_are_refused():
    with pytest.raises(ValueFormatError, match="client_encoding") as caught:
        convert(resolve(TEXT, -1, {}), ["ok", b"caf\xc3", b"\xa9"])
    assert caught.value.offset == 2


@pytest.mark.parametrize("at", range(0, 40, 3))
def test_a_nul_byte_is_found_wherever_it_lies(at):
    text = bytearray(b"x" * 40)
    text[at] = 0
    with pytest.raises(ValueFormatError, match="NUL") as caught:
        convert(resolve(TEXT, -1, {}), ["before", bytes(text), "after"])
    assert caught.value.offset == len("before")


def test_elements_of_box_arrays_are_parted_by_semicolons():
    assert values(BOXES, ["{(1,1),(0,0);(2,2),(1,1)}"]) == [["(1,1),(0,0)", "(2,2),(1,1)"]]


def test_text_may_grow_far_beyond_the_first_guess():
    texts = ["é" * size for size in (0, 1, 40_000, 3, 200_000)]
    assert values(TEXT, texts) == texts


def test_a_float_that_cannot_be_read_is_told_behind_one_that_its_type_cannot_hold():
    with pytest.raises(ValueFormatError):
        values(FLOAT4, ["12e456", "abc"])
