import io
from datetime import timedelta

import pytest

from wal2delta.console import BarProgress, LineProgress, Output, age, size


class Terminal(io.StringIO):
    def isatty(self):
        return True


@pytest.mark.parametrize(
    ("count", "text"),
    [
        (0, "0 bytes"),
        (1023, "1,023 bytes"),
        (1536, "1.5 KiB"),
        (5 << 30, "5.0 GiB"),
        (1 << 60, "1,048,576.0 TiB"),
    ],
)
def test_sizes_are_written_for_people(count, text):
    assert size(count) == text


@pytest.mark.parametrize(
    ("span", "text"),
    [
        (timedelta(), "0 s"),
        (timedelta(seconds=59.9), "59 s"),
        (timedelta(seconds=61), "1 min 1 s"),
        (timedelta(hours=3), "3 h 0 min"),
        (timedelta(days=3, hours=4, minutes=59), "3 d 4 h"),
        (timedelta(days=400), "400 d 0 h"),
        (timedelta(seconds=-5), "0 s"),  # the server's clock is ahead
    ],
)
def test_ages_are_written_for_people(span, text):
    assert age(span) == text


def test_a_plain_table_is_aligned_and_cuts_nothing():
    stream = io.StringIO()
    Output(stream).table(("name", "count"), [("x" * 200, 1), ("b", None), ("c", 1234567)])
    assert stream.getvalue().splitlines() == [
        f"{'name':200}      count",
        f"{'x' * 200}          1",
        "b",
        f"{'c':200}  1,234,567",
    ]


def test_no_value_breaks_a_line_or_steers_the_terminal():
    for stream in (io.StringIO(), Terminal()):
        Output(stream).table(("v",), [("a\nb\x1b[2J",)])
        assert "\\x0a" in stream.getvalue()
        assert "\x1b[2J" not in stream.getvalue()


def test_brackets_in_values_are_no_markup():
    stream = Terminal()
    Output(stream).table(("v",), [("[red]text[/red]",)])
    assert "[red]text[/red]" in stream.getvalue()


def test_a_stage_ends_when_the_next_begins():
    stream = io.StringIO()
    progress = LineProgress(stream)
    progress.stage("scan", 7)
    progress.advance(3)
    progress.advance(4)
    progress.stage("apply", None)
    progress.done()
    progress.done()
    lines = stream.getvalue().splitlines()
    assert [line.split(" (")[0] for line in lines] == ["scan: 7", "apply:"]


def test_a_bar_leaves_nothing_behind_and_may_be_ended_twice():
    stream = Terminal()
    progress = BarProgress(stream)
    progress.advance()
    progress.stage("scan", 7)
    progress.advance(7)
    progress.stage("apply", None)
    progress.done()
    progress.done()
    assert "scan" in stream.getvalue() or "apply" in stream.getvalue()


def test_wide_characters_do_not_push_the_next_column():
    stream = io.StringIO()
    Output(stream).table(("a", "b"), [("北京", "x"), ("abcd", "y")])
    assert stream.getvalue().splitlines() == ["a     b", "北京  x", "abcd  y"]
