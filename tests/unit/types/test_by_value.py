"""Texts that hang on the sender's settings have one form for each value."""

from __future__ import annotations

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from walreplay.types.base import ColumnType
from walreplay.types.by_value import Form, form_of, one_form, rescued_text
from walreplay.types.datetime import interval_from_text, interval_texts
from walreplay.types.registry import resolve

SAME = {
    "a month": (Form.INTERVAL, ["1 mon", "P1M", "@ 1 mon", "0-1"]),
    "nothing": (Form.INTERVAL, ["00:00:00", "PT0S", "@ 0", "0"]),
    "all parts": (
        Form.INTERVAL,
        [
            "1 year 2 mons -3 days +04:05:06.7",
            "P1Y2M-3DT4H5M6.7S",
            "@ 1 year 2 mons -3 days 4 hours 5 mins 6.7 secs",
            "+1-2 -3 +4:05:06.7",
        ],
    ),
    "negative": (
        Form.INTERVAL,
        ["-1 years -2 mons", "P-1Y-2M", "@ 1 year 2 mons ago", "-1-2"],
    ),
    "negative days and time": (
        Form.INTERVAL,
        ["-3 days -04:05:06", "P-3DT-4H-5M-6S", "@ 3 days 4 hours 5 mins 6 secs ago", "-3 4:05:06"],
    ),
    "negative fraction": (Form.INTERVAL, ["-00:00:00.5", "PT-0.5S", "@ 0.5 secs ago", "-0:00:00.5"]),
    "many hours": (Form.INTERVAL, ["100:00:00", "PT100H", "@ 100 hours", "100:00:00"]),
    "a moment": (
        Form.MOMENTS,
        ["2024-01-01 00:00:00+00", "2024-01-01 05:45:00+05:45", "2023-12-31 19:00:00-05"],
    ),
    "before Christ": (Form.MOMENTS, ["0044-03-15 12:00:00+00 BC", "0044-03-15 12:53:28+00:53:28 BC"]),
    "a range": (
        Form.MOMENTS,
        ['["2024-01-01 00:00:00+00",)', '["2024-01-01 01:00:00+01",)'],
    ),
    "a point": (Form.NUMBERS, ["(0.1,-2)", "(0.10000000000000001,-2)", "(1e-01,-2)"]),
    "a composite value": (
        Form.SHAPE,
        [
            r'("2024-01-01 00:00:00+00","1 mon","a ""b""","\\x00ff",7)',
            r'("2024-01-01 01:00:00+01",P1M,"a ""b""","\\000\\377",7)',
            r'("2023-12-31 19:00:00-05","@ 1 mon","a ""b""","\\x00ff",7)',
        ],
    ),
    "one in another in an array": (
        Form.SHAPE,
        [r'{"(1,\"(\"\"1 mon\"\",x)\")",NULL}', r'{"(1,\"(P1M,x)\")",NULL}'],
    ),
    "a multirange": (Form.SHAPE, ['{["1 mon","2 mons"),["3 mons",)}', "{[P1M,P2M),[P3M,)}"]),
    "an array with bounds": (Form.SHAPE, ['[0:1]={"1 mon",NULL}', "[0:1]={P1M,NULL}"]),
    "bytes that look like something else": (Form.SHAPE, [r'("\\x2850314d29")', '("(P1M)")', '("(1 mon)")']),
    "several dimensions": (Form.SHAPE, ['{{"1 mon"},{"2 mons"}}', "{{P1M},{P2M}}"]),
}


@pytest.mark.parametrize(("form", "texts"), SAME.values(), ids=SAME.keys())
def test_texts_of_one_value_have_one_form(form: Form, texts: list[str]) -> None:
    assert len({one_form(text, form) for text in texts}) == 1


@pytest.mark.parametrize(
    ("form", "one", "other"),
    [
        (Form.INTERVAL, "30 days", "1 mon"),
        (Form.INTERVAL, "24:00:00", "1 day"),
        (Form.INTERVAL, "infinity", "-infinity"),
        (Form.MOMENTS, '["2024-01-01 00:00:00+00",)', '("2024-01-01 00:00:00+00",)'),
        (Form.SHAPE, '("",)', "(,)"),
        (Form.SHAPE, '{"NULL"}', "{NULL}"),
        (Form.SHAPE, "(1,23)", "(12,3)"),
        (Form.SHAPE, "(5)", "{5}"),
        (Form.SHAPE, "1 mon", "P1M"),
        (Form.SHAPE, "(0)", "(00:00:00.1)"),
        # What PostgreSQL does not write of an interval, a moment or bytes is none.
        (Form.SHAPE, "{555-1234}", "{554-1246}"),
        (Form.SHAPE, "(1-2)", "(1-02)"),
        (Form.SHAPE, '("1 years")', '("1 year")'),
        (Form.SHAPE, "(P1Y12M)", "(P2Y)"),
        (Form.SHAPE, '("@ 12 mons")', '("@ 1 year")'),
        (Form.SHAPE, '("1 2:03:04")', '("1 02:03:04")'),
        (Form.SHAPE, "(+1-2)", "(1-2)"),
        (Form.SHAPE, '("2024-01-01 00:00:00.10+00")', '("2024-01-01 00:00:00.1+00")'),
        (Form.SHAPE, r'("\\\\server")', r'("\\server")'),
        (Form.SHAPE, "[0:1]={a,b}", "[1:2]={a,b}"),
    ],
)
def test_texts_of_different_values_do_not(form: Form, one: str, other: str) -> None:
    assert one_form(one, form) != one_form(other, form)


@pytest.mark.parametrize("text", ["", "(", '("', "{", "[1,2", "{a},{b", "(a\\", "x", "P", "@", "infinity", "0x"])
@pytest.mark.parametrize("form", Form)
def test_what_is_no_text_of_the_type_stands_for_itself(form: Form, text: str) -> None:
    assert one_form(text, form) in (text, "{1:a,1:b}") or form is Form.NUMBERS


_PARTS = st.integers(-14, 14) | st.integers(-(2**31), 2**31 - 1)


@given(_PARTS, _PARTS, _PARTS | st.integers(-(2**63), 2**63 - 1))
@example(0, 0, 0)
@example(-12, 0, 0)
@example(0, 1, -1_000_000)
def test_an_interval_is_read_from_each_of_the_texts_that_it_is_written_as(months: int, days: int, micros: int) -> None:
    texts = interval_texts((months, days, micros))
    assert [interval_from_text(text) for text in texts] == [(months, days, micros)] * 4
    assert len({one_form(f'("{text}")', Form.SHAPE) for text in texts}) == 1


@pytest.mark.parametrize(
    ("oid", "texts"),
    [
        (1184, ["0044-03-15 12:00:00+00 BC", "0044-03-15 17:41:16+05:41:16 BC"]),
        (1184, ["12024-01-01 00:00:00+00", "12023-12-31 19:00:00-05"]),
        (1185, ['{"0044-03-15 12:00:00+00 BC",NULL}', '{"0044-03-15 17:41:16+05:41:16 BC",NULL}']),
        (1185, ['{{"2024-01-01 00:00:00+00"},{infinity}}', '{{"2024-01-01 05:45:00+05:45"},{infinity}}']),
        (1187, ['[0:1]={"1 mon",NULL}', "[0:1]={P1M,NULL}", '[0:1]={"@ 1 mon",NULL}', "[0:1]={0-1,NULL}"]),
        (1187, ['{{"-3 days",00:00:00}}', "{{P-3D,PT0S}}", '{{"@ 3 days ago","@ 0"}}', '{{"-3 0:00:00",0}}']),
        (1001, [r'{{"\\x61","\\x5c"}}', r'{{a,"\\\\"}}']),
        (
            3911,
            [
                r'{{"[\"2024-01-01 00:00:00+00\",)",empty}}',
                r'{{"[\"2024-01-01 01:00:00+01\",)",empty}}',
            ],
        ),
    ],
)
def test_what_is_rescued_of_a_value_hangs_on_no_setting(oid: int, texts: list[str]) -> None:
    assert [rescued_text(text, resolve(oid, -1, {})) for text in texts] == [texts[0]] * len(texts)


@pytest.mark.parametrize(
    ("column_type", "text"),
    [
        (resolve(1184, -1, {}), "infinity"),
        (resolve(1184, -1, {}, override="text"), "0044-03-15 17:41:16+05:41:16 BC"),
        (resolve(25, -1, {}, override="timestamptz"), "0044-03-15 17:41:16+05:41:16 BC"),
        (resolve(1009, -1, {}), '{{"1 mon","a\\\\b"}}'),
        (resolve(1187, -1, {}), r"\x00"),
        (resolve(1700, 655_366, {}), "NaN"),
    ],
)
def test_what_hangs_on_none_is_rescued_as_it_was_sent(column_type: ColumnType, text: str) -> None:
    assert rescued_text(text, column_type) == text


def kind(oid: int, name: str = "") -> ColumnType:
    return resolve(oid, -1, {oid: ("public", name)} if name else {})


@pytest.mark.parametrize(
    ("column_type", "form"),
    [
        (kind(1186), Form.INTERVAL),
        (kind(1187), Form.INTERVAL),
        (kind(3910), Form.MOMENTS),
        (kind(4534), Form.MOMENTS),
        (kind(3911), Form.MOMENTS),
        (kind(600), Form.NUMBERS),
        (kind(70_000, "mood"), Form.SHAPE),
        (kind(70_000, "citext"), None),
        (kind(70_000, "hstore"), None),
        (kind(25), None),
        (kind(1184), None),
        (kind(701), None),
        (kind(1009), None),
        (resolve(1184, -1, {}, override="text"), Form.MOMENTS),
        (resolve(1187, -1, {}, override="text"), Form.SHAPE),
        (resolve(1009, -1, {}, override="text"), None),
    ],
)
def test_the_type_that_values_are_sent_in_says_what_form_they_have(column_type: ColumnType, form: Form | None) -> None:
    assert form_of(column_type) is form
