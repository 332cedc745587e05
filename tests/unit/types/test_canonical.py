"""Texts of one value become the text that PostgreSQL writes under the settings of docs/capturing.md."""

from __future__ import annotations

import pyarrow as pa
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from walreplay.decode.columns import canonical_texts
from walreplay.types.canonical import canonical_text
from walreplay.types.numbers import double_text

INTERVAL, MOMENT, SPAN, SPANS, POINT, BYTES, REAL, DOUBLE = 1186, 1184, 3910, 4534, 600, 17, 700, 701

_SAME = {
    "a month": (INTERVAL, ["1 mon", "P1M", "@ 1 mon", "0-1"]),
    "nothing": (INTERVAL, ["00:00:00", "PT0S", "@ 0", "0"]),
    "all parts": (
        INTERVAL,
        [
            "1 year 2 mons 3 days 04:05:06.7",
            "P1Y2M3DT4H5M6.7S",
            "@ 1 year 2 mons 3 days 4 hours 5 mins 6.7 secs",
            "+1-2 +3 +4:05:06.7",
        ],
    ),
    "mixed signs": (
        INTERVAL,
        [
            "-1 years -2 mons +3 days -04:05:06",
            "P-1Y-2M3DT-4H-5M-6S",
            "@ 1 year 2 mons -3 days 4 hours 5 mins 6 secs ago",
            "-1-2 +3 -4:05:06",
        ],
    ),
    "days back": (
        INTERVAL,
        ["-3 days -04:05:06", "P-3DT-4H-5M-6S", "@ 3 days 4 hours 5 mins 6 secs ago", "-3 4:05:06"],
    ),
    "negative fraction": (INTERVAL, ["-00:00:00.5", "PT-0.5S", "@ 0.5 secs ago", "-0:00:00.5"]),
    "many hours": (INTERVAL, ["100:00:00", "PT100H", "@ 100 hours"]),
    "of PostgreSQL 11": (703, ["1 day", "P1D", "@ 1 day", "1 0:00:00"]),
    "a range": (SPAN, ['["2023-12-31 18:15:00+00",)', '["2024-01-01 00:00:00+05:45",)']),
    "ranges": (
        SPANS,
        [
            '{(,"2024-01-01 00:00:00+00"),["2024-07-01 00:00:00+00",infinity]}',
            '{(,"2024-01-01 01:00:00+01"),["2024-07-01 02:00:00+02",infinity]}',
        ],
    ),
    "before Christ": (MOMENT, ["0044-03-15 12:00:00+00 BC", "0044-03-15 12:53:28+00:53:28 BC"]),
    "half an hour": (MOMENT, ["2024-01-01 00:00:00+00", "2024-01-01 00:30:00+00:30", "2023-12-31 21:00:00-03"]),
    "an abstime": (704, ['["2001-01-01 00:00:00+00" "infinity"]', '["2001-01-01 01:00:00+01" "infinity"]']),
    "a point": (POINT, ["(0.1,-2)", "(0.10000000000000001,-2)", "(0.100000000000000006,-2)"]),
    "a large number": (POINT, ["(1e+15,-0)", "(1000000000000000,-0)"]),
    "a third": (DOUBLE, ["0.3333333333333333", "0.33333333333333331", "0.333333333333333315"]),
    "a small number": (DOUBLE, ["5e-324", "4.94065645841246544e-324"]),
    "a midway number": (DOUBLE, ["9.999999999999999e+22", "1e+23"]),
    "a single": (REAL, ["0.1", "0.100000001"]),
    "bytes": (BYTES, [r"\x615c00", r"a\\\000"]),
    "no bytes": (BYTES, [r"\x", ""]),
    "a list": (1187, ['[0:1]={"1 mon",NULL}', "[0:1]={P1M,NULL}", '[0:1]={"@ 1 mon",NULL}', "[0:1]={0-1,NULL}"]),
    "lists": (1187, ['{{"-3 days",00:00:00}}', "{{P-3D,PT0S}}", '{{"@ 3 days ago","@ 0"}}', '{{"-3 0:00:00",0}}']),
    "moments": (1185, ['{"0044-03-15 12:00:00+00 BC",NULL}', '{"0044-03-15 17:41:16+05:41:16 BC",NULL}']),
    "lists of bytes": (1001, [r'{{"\\x61","\\x5c"}}', r'{{a,"\\\\"}}']),
    "list of ranges": (
        3911,
        [r'{{"[\"2024-01-01 00:00:00+00\",)",empty}}', r'{{"[\"2024-01-01 01:00:00+01\",)",empty}}'],
    ),
    "boxes": (1020, ["{(1,1),(0.1,0);(2,2),(0,0)}", "{(1,1),(0.10000000000000001,0);(2,2),(0,0)}"]),
}


def _canonical(texts: list[str | None], oid: int) -> list[str | None]:
    return canonical_texts(pa.array(texts, pa.string()), oid).to_pylist()


@pytest.mark.parametrize(("oid", "texts"), _SAME.values(), ids=_SAME.keys())
def test_texts_of_one_value_become_the_first_of_them(oid: int, texts: list[str]) -> None:
    assert [canonical_text(text, oid) for text in texts] == [texts[0]] * len(texts)
    assert _canonical([None, *texts, None], oid) == [None, *[texts[0]] * len(texts), None]
    assert canonical_texts(pa.array(["", *texts, "x"]).slice(1, len(texts)), oid).to_pylist() == [texts[0]] * len(texts)


_AS_SENT = [
    (INTERVAL, ["30 days", "24:00:00", "infinity", "-infinity", "", "P", "@", "x", "1 day ago"]),
    (SPAN, ["empty", "(,)", '["01/02/2024 00:00:00 CET",)', '["2024-02-30 00:00:00+01",)']),
    (POINT, ["(1.79769313486232e+308,NaN)", "(Infinity,-Infinity)", "(1e+15,1e-05)", "(0.1,100000000000000)"]),
    (REAL, ["NaN", "3.40282e+39", "Infinity"]),
    (BYTES, [r"\x00", "é"]),
    (1187, ["{}", "{NULL}", r"\x00", '{"1 day","1 mon"}']),
    (25, ["P1M", "", "(0.10000000000000001,0)"]),
    (1009, ["{P1M}"]),
    (3908, ['["2024-01-01 00:00:00","2024-01-02 00:00:00"]']),
    (70_000, ["(P1M)", '("2024-01-01 00:00:00+01")', "P1M"]),
]
"""Texts that are canonical, that no server writes, or whose type does not say what they are."""


@pytest.mark.parametrize(("oid", "texts"), _AS_SENT, ids=lambda value: str(value) if isinstance(value, int) else "")
def test_other_texts_stay_as_they_were_sent(oid: int, texts: list[str]) -> None:
    assert [canonical_text(text, oid) for text in texts] == texts
    assert _canonical([*texts], oid) == texts


def test_texts_that_are_canonical_are_not_copied() -> None:
    texts = pa.array(["1 day", None, "00:00:01", "1 year 2 mons"] * 3)
    assert canonical_texts(texts, INTERVAL) is texts


@given(st.lists(st.floats(allow_nan=False)), st.integers(15, 18))
def test_a_double_has_its_shortest_text_whatever_digits_were_sent(numbers: list[float], digits: int) -> None:
    sent = [f"{number:.{digits}g}".replace("inf", "Infinity") for number in numbers]
    wanted = [double_text(float(text)) if abs(float(text)) < float("inf") else text for text in sent]
    assert _canonical([*sent], DOUBLE) == wanted
    assert _canonical([*wanted], DOUBLE) == wanted
    assert _canonical([f"({text},{text})" for text in sent], POINT) == [f"({text},{text})" for text in wanted]


_PIECES = st.sampled_from([*'0123456789-+:. PTYMDHS@"(,)[]{}\\', "00", "2024-01-01 00:00:00", " day", "1e+20", " BC"])


@given(st.lists(st.lists(_PIECES).map("".join)))
@example(['{"0 '])  # a quote that nothing closes
def test_any_text_becomes_one_that_stays(texts: list[str]) -> None:
    for oid in (INTERVAL, MOMENT, SPAN, POINT, DOUBLE, REAL, BYTES, 1187):
        once = _canonical([*texts], oid)
        assert _canonical(once, oid) == once
