"""Texts that hang on the sender's settings have one form for each value."""

from __future__ import annotations

import pytest

from wal2delta.types.base import ColumnType
from wal2delta.types.by_value import Form, form_of, one_form
from wal2delta.types.registry import resolve

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
    ],
)
def test_texts_of_different_values_do_not(form: Form, one: str, other: str) -> None:
    assert one_form(one, form) != one_form(other, form)


@pytest.mark.parametrize("text", ["", "(", '("', "{", "[1,2", "{a},{b", "(a\\", "x", "P", "@", "infinity", "0x"])
@pytest.mark.parametrize("form", Form)
def test_what_is_no_text_of_the_type_stands_for_itself(form: Form, text: str) -> None:
    assert one_form(text, form) in (text, "{1:a,1:b}") or form is Form.NUMBERS


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
