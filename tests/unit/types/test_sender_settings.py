"""What becomes of text that was recorded with other settings than docs/capturing.md asks for."""

import datetime

import pytest

from support.binary_cells import convert
from walreplay.errors import ValueFormatError
from walreplay.types import resolve

BYTEA, FLOAT8, DATE, TIMESTAMP, TIMESTAMPTZ, INTERVAL, MONEY, TSRANGE = 17, 701, 1082, 1114, 1184, 1186, 790, 3908
ARRAYS = {BYTEA: 1001, FLOAT8: 1022, DATE: 1182, TIMESTAMP: 1115, TIMESTAMPTZ: 1185, INTERVAL: 1187}
UTC = datetime.timezone.utc

DATE_STYLES = {
    "SQL, MDY": ("02/29/2024", "02/29/2024 12:34:56.789", "02/29/2024 12:34:56.789 UTC"),
    "SQL, DMY": ("29/02/2024", "29/02/2024 12:34:56.789", "29/02/2024 12:34:56.789 CET"),
    "Postgres, MDY": ("02-29-2024", "Thu Feb 29 12:34:56.789 2024", "Thu Feb 29 12:34:56.789 2024 UTC"),
    "Postgres, DMY": ("29-02-2024", "Thu 29 Feb 12:34:56.789 2024", "Thu 29 Feb 12:34:56.789 2024 CET"),
    "German": ("29.02.2024", "29.02.2024 12:34:56.789", "29.02.2024 12:34:56.789 UTC"),
    "SQL, before Christ": ("03/15/0044 BC", "03/15/0044 12:00:00 BC", "03/15/0044 12:00:00 UTC BC"),
    "Postgres, far away": ("02-29-12024", "Thu Feb 29 12:34:56 12024", "Thu Feb 29 12:34:56 12024 UTC"),
}

STYLED = [
    (oid, text)
    for texts in DATE_STYLES.values()
    for oid, text in zip((DATE, TIMESTAMP, TIMESTAMPTZ), texts, strict=True)
]


def values(oid, text):
    array, rescued = convert(resolve(oid, -1, {}), [text])
    assert not rescued
    return array[0].as_py()


@pytest.mark.parametrize(("oid", "text"), STYLED)
def test_a_time_in_another_style_stops_the_run_and_names_the_setting(oid, text):
    for column, cell in ((oid, text), (ARRAYS[oid], f'{{NULL,"{text}"}}'), (ARRAYS[oid], f'{{infinity,"{text}"}}')):
        with pytest.raises(ValueFormatError, match="DateStyle") as caught:
            convert(resolve(column, -1, {}), [None, cell])
        assert text not in str(caught.value)
        assert caught.value.offset == 0


def test_bare_dates_in_another_style_stop_the_run_in_arrays_too():
    with pytest.raises(ValueFormatError, match="DateStyle"):
        convert(resolve(ARRAYS[DATE], -1, {}), ["{29.02.2024,01.03.2024}"])


@pytest.mark.parametrize("text", ["infinity", "-infinity"])
@pytest.mark.parametrize("oid", [DATE, TIMESTAMP, TIMESTAMPTZ])
def test_infinities_are_the_same_in_all_styles(oid, text):
    array, rescued = convert(resolve(oid, -1, {}), [text])
    assert array.null_count == 1
    assert rescued[0].text == text


@pytest.mark.parametrize(
    "text",
    [
        "2024-02-29 12:34:56+00",
        "2024-02-29 13:34:56+01",
        "2024-02-29 18:04:56+05:30",
        "2024-02-29 12:00:28-00:34:28",  # a zone of before there were zones
    ],
)
def test_the_senders_time_zone_makes_no_difference(text):
    moment = datetime.datetime(2024, 2, 29, 12, 34, 56, tzinfo=UTC)
    assert values(TIMESTAMPTZ, text) == moment
    assert values(ARRAYS[TIMESTAMPTZ], f'{{"{text}"}}') == [moment]


@pytest.mark.parametrize("text", ["1 day 02:03:04", "P1DT2H3M4S", "@ 1 day 2 hours 3 mins 4 secs", "1 2:03:04"])
def test_intervals_have_the_style_postgres(text):
    assert values(INTERVAL, text) == "1 day 02:03:04"
    assert values(ARRAYS[INTERVAL], f'{{"{text}"}}') == ["1 day 02:03:04"]


@pytest.mark.parametrize(("oid", "text"), [(MONEY, "1.234,50 €"), (TSRANGE, '["29.02.2024 00:00:00",infinity)')])
def test_text_that_is_kept_as_text_stays_as_sent(oid, text):
    assert values(oid, text) == text


@pytest.mark.parametrize(
    ("hexadecimal", "escaped", "data"),
    [
        (r"\x00ff5c41", r"\000\377\\A", b"\x00\xff\\A"),
        (r"\x5c783431", r"\\x41", rb"\x41"),
        (r"\x", "", b""),
        (r"\x2c7b22", ',{"', b',{"'),
    ],
)
def test_bytea_comes_in_two_forms_in_arrays_too(hexadecimal, escaped, data):
    for text in (hexadecimal, escaped):
        assert values(BYTEA, text) == data
        quoted = text.replace("\\", "\\\\").replace('"', '\\"')
        assert values(ARRAYS[BYTEA], f'{{"{quoted}"}}') == [data]


def test_a_float_with_digits_left_out_is_what_its_text_says():
    assert values(FLOAT8, "0.3") == 0.3
    assert values(FLOAT8, "0.30000000000000004") == 0.1 + 0.2
