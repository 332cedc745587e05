"""A number that is left out of a series is found, and nothing else is taken for one."""

from __future__ import annotations

import random
from collections.abc import Callable
from datetime import datetime, timedelta, timezone
from typing import Final

from hypothesis import given
from hypothesis import strategies as st

from walreplay.listing import missing_numbers

Name = Callable[[int], str]


def segment(number: int) -> str:
    return f"{1:08X}{number // 256:08X}{number % 256:08X}"


def random_lsn(number: int) -> str:
    return f"{number:X}-{random.Random(number).getrandbits(32):X}"


SERIES: Final[tuple[Name, ...]] = (
    "cap.{:04d}".format,
    "part-{}".format,
    "p{:05d}.bin.gz".format,
    "{}.bin".format,
    "s3://bucket/2026/cap/{:08d}".format,
    "2026/01/30/part-{}.bin".format,
    "x-{:06x}".format,
    "x/{:08X}.bin".format,
    segment,
    lambda number: f"/a/{segment(number)}.partial.zst",
    lambda number: f"{number:05d}-{random_lsn(number)}.bin",
    lambda number: f"2026-01-{1 + number // 1000:02d}/part-{number}",
    lambda number: f"{datetime.fromtimestamp(number * 977 + 1e9, timezone.utc):%Y%m%dT%H%M%SZ}-{number:07d}.bin",
    lambda number: f"node-2-{number}.bin" + (".gz" if number % 2 else ""),
)


@st.composite
def series(draw: st.DrawFn) -> list[str]:
    name = draw(st.sampled_from(SERIES))
    # 16,384 and on have other hexadecimal digits than decimal ones.
    first = draw(st.integers(0, 1_500) | st.integers(20_000, 25_000))
    return [name(number) for number in range(first, first + draw(st.integers(8, 300)))]


@given(series(), st.randoms())
def test_a_full_series_has_no_hole(names: list[str], shuffled: random.Random) -> None:
    shuffled.shuffle(names)
    assert missing_numbers(names) == []


@given(st.data(), series())
def test_what_is_taken_out_of_a_series_is_found_and_nothing_else(data: st.DataObject, names: list[str]) -> None:
    inner = st.sampled_from(range(1, len(names) - 1))
    gone = data.draw(st.sets(inner, max_size=len(names) // 4))
    expected = set()
    for place in gone:
        before = max(there for there in range(place) if there not in gone)
        after = min(there for there in range(place, len(names)) if there not in gone)
        expected.add((names[before], names[after], after - before - 1))
    left = [name for place, name in enumerate(names) if place not in gone]
    holes = missing_numbers(left)
    assert sorted((hole.before, hole.after, hole.missing) for hole in holes) == sorted(expected)
    exact = {names[place].removesuffix(".gz") for place in gone}
    assert all(hole.example.removesuffix(".gz") in exact for hole in holes if "…" not in hole.example)


TIMES: Final = (
    *("%Y%m%d", "%Y-%m-%d", "%Y/%m/%d", "%y%m%d", "%d-%m-%Y", "%m-%d-%Y", "%d%m%Y", "%Y/%j", "%Y-%j", "%G-W%V-%u"),
    *("%Y%m%dT%H%M%SZ", "%Y%m%d_%H%M%S", "%Y%m%d%H%M%S", "%Y-%m-%dT%H-%M-%S", "%Y-%m-%dT%H:%M:%SZ", "%Y/%m/%d/%H%M%S"),
    *("%Y/%m/%d/%H", "%Y-%m-%d-%H", "%Y%m%d%H", "%Y-%m-%d/%H%M", "%Y%m%dT%H%M", "%Y%m%d%H%M", "%Y%m%dT%H"),
    *("year=%Y/month=%m/day=%d/hour=%H/a", "dt=%Y-%m-%d/hour=%H/a", "y%Y/m%m/d%d/h%H", "%d%b%Y", "%Y-%b-%d", "%Y-%m"),
)

STEPS: Final = (
    timedelta(seconds=1),
    timedelta(seconds=10),
    timedelta(minutes=1),
    timedelta(minutes=15),
    timedelta(hours=1),
    timedelta(days=1),
    timedelta(days=7),
)


@given(
    form=st.sampled_from(TIMES),
    around=st.sampled_from(["{}", "cap-{}.bin", "a.b/{}", "s3://bucket/wal/shop_{}.gz"]),
    began=st.datetimes(datetime(2020, 1, 1), datetime(2049, 1, 1)),
    step=st.sampled_from(STEPS),
    places=st.sets(st.integers(0, 60), min_size=3),
)
def test_dates_and_times_are_no_running_numbers(
    form: str, around: str, began: datetime, step: timedelta, places: set[int]
) -> None:
    names = {around.format((began + step * place).strftime(form)) for place in places}
    assert missing_numbers(sorted(names)) == []


@given(st.integers(1_000_000_000, 2_000_000_000), st.sets(st.integers(0, 60), min_size=3), st.sampled_from([1, 1000]))
def test_seconds_since_1970_are_no_running_numbers(began: int, places: set[int], unit: int) -> None:
    assert missing_numbers([f"cap-{(began + place) * unit}.bin" for place in places]) == []


@given(
    form=st.sampled_from(["{:X}-{:X}", "{:x}_{:x}", "{:X}/{:X}", "{:08X}-{:08X}", "{:08X}{:08X}", "{:X}-{:08X}"]),
    around=st.sampled_from(["{}", "cap-{}.bin", "shop/{}.gz"]),
    seed=st.integers(0, 10_000),
    count=st.integers(3, 40),
    bits=st.integers(12, 34),
)
def test_lsns_are_no_running_numbers(form: str, around: str, seed: int, count: int, bits: int) -> None:
    source = random.Random(seed)
    lsn = source.getrandbits(40)
    names = []
    for _ in range(count):
        lsn += 100 + source.getrandbits(bits)
        names.append(around.format(form.format(lsn >> 32, lsn & 0xFFFFFFFF)))
    assert missing_numbers(names) == []
