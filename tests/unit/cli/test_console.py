import io
import json
import logging
import re
import sys
import time
from datetime import timedelta

import pytest

from walreplay.console import BarProgress, LineProgress, Rate, Screen, age, guarded, size


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
    Screen(stream).table(("name", "count"), [("x" * 200, 1), ("b", None), ("c", 1234567)])
    assert stream.getvalue().splitlines() == [
        f"{'name':200}      count",
        f"{'x' * 200}          1",
        "b",
        f"{'c':200}  1,234,567",
    ]


HOSTILE = "a\nb\x1b[2J\x9b31m\u202e\u2028\udc80\x7f[red]c[/red]:rocket:"
SHOWN = "a\\x0ab\\x1b[2J\\x9b31m\\u202e\\u2028\\udc80\\x7f[red]c[/red]:rocket:"

_STYLES = re.compile(r"\x1b\[[0-9;]*m")


def shown(stream):
    """Return what a stream was written, without the styles and moves that are rich's own."""
    return _STYLES.sub("", stream.getvalue())


@pytest.mark.parametrize("kind", [io.StringIO, Terminal])
@pytest.mark.parametrize(
    "write",
    [
        lambda output: output.line(HOSTILE),
        lambda output: output.line(HOSTILE, style="yellow"),
        lambda output: output.lines(HOSTILE.replace("\n", "\\x0a")),
        lambda output: output.table(("v",), [(HOSTILE,)]),
        lambda output: output.table((HOSTILE,), [("v",)]),
        lambda output: output.table(("v",), [("v",)], title=HOSTILE),
    ],
)
def test_no_text_breaks_a_line_or_steers_the_terminal_or_is_markup(monkeypatch, kind, write):
    monkeypatch.setenv("COLUMNS", "200")
    stream = kind()
    write(Screen(stream))
    assert SHOWN in shown(stream)
    assert all(line.isprintable() for line in shown(stream).split("\n"))


@pytest.mark.parametrize("kind", [io.StringIO, Terminal])
def test_json_has_what_it_is_given_and_steers_no_terminal(kind):
    stream = kind()
    Screen(stream).json({HOSTILE: [HOSTILE]}, indent=2)
    assert json.loads(stream.getvalue()) == {HOSTILE: [HOSTILE]}
    assert all(line.isprintable() for line in shown(stream).split("\n"))


@pytest.mark.parametrize("encoding", ["ascii", "latin-1", "cp1252"])
def test_what_the_terminal_has_no_characters_for_is_written_out(encoding):
    raw = io.BytesIO()
    stream = io.TextIOWrapper(raw, encoding, write_through=True)
    output = Screen(stream)
    output.line("Größe 北京 🚀")
    output.table(("北京",), [("ß",)], title="🚀")
    output.json(["北京 🚀 é"])
    text = raw.getvalue().decode(encoding)
    assert "\\u5317\\u4eac \\U0001f680" in text
    assert json.loads(text.splitlines()[-1]) == ["北京 🚀 é"]


def test_a_traceback_keeps_its_lines_and_nothing_steers_the_terminal(capsys):
    try:
        raise ValueError("\x1b[31m\u202e")
    except ValueError:
        Screen.of_errors().traceback()
    lines = capsys.readouterr().err.split("\n")
    assert lines[0] == "Traceback (most recent call last):"
    assert lines[-2] == "ValueError: \\x1b[31m\\u202e"


def test_what_others_write_to_standard_error_meanwhile_is_shown_so_too(capsys):
    before = sys.stderr
    with guarded():
        sys.stderr.write("one\x1b[31m\ntwo\u202e\n")
        sys.stderr.writelines(["\x9b"])
        logging.lastResort.handle(logging.makeLogRecord({"msg": "log\x1b", "levelno": logging.ERROR}))
        assert not sys.stderr.isatty()
    assert sys.stderr is before
    err = capsys.readouterr().err
    assert err.startswith("one\\x1b[31m\ntwo\\u202e\n\\x9blog\\x1b\n")
    assert all(line.isprintable() for line in err.split("\n"))


@pytest.mark.parametrize("kind", [BarProgress, LineProgress])
def test_a_stages_name_is_no_markup_and_steers_nothing(kind):
    stream = Terminal() if kind is BarProgress else io.StringIO()
    progress = kind(stream)
    progress.stage("[red]x[/red]\x9b\u202e", 1)
    progress.done()
    assert "[red]x[/red]\\x9b\\u202e" in shown(stream)


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
    Screen(stream).table(("a", "b"), [("北京", "x"), ("abcd", "y")])
    assert stream.getvalue().splitlines() == ["a     b", "北京  x", "abcd  y"]


def test_what_several_runs_have_read_is_told_with_its_rate_and_the_time_left(monkeypatch):
    now = iter([0.0, 100.0, 110.0, 130.0])
    monkeypatch.setattr("walreplay.console.time.monotonic", lambda: next(now))
    rate = Rate()
    assert rate.describe(0, 4 << 20) == ""
    assert rate.describe(1 << 20, 4 << 20) == "1.0 MiB of 4.0 MiB read, 102.4 KiB/s, 0:00:30 left"
    # More has come meanwhile.
    assert rate.describe(6 << 20, 5 << 20) == "6.0 MiB of 6.0 MiB read, 204.8 KiB/s, 0:00:00 left"


@pytest.mark.parametrize("kind", [BarProgress, LineProgress])
def test_the_display_has_what_is_read_so_far(kind):
    stream = Terminal() if kind is BarProgress else io.StringIO()
    progress = kind(stream)
    for done in (0, 1 << 20):
        progress.so_far(done, 4 << 20)
        progress.stage("scan", 3)
        time.sleep(0.01)
    progress.done()
    assert "1.0 MiB of 4.0 MiB read, " in shown(stream)


def test_a_stage_that_takes_long_says_what_it_is_at(monkeypatch):
    monkeypatch.setattr("walreplay.console._SILENCE", 0.01)
    stream = io.StringIO()
    progress = LineProgress(stream)
    progress.stage("apply", 4)
    progress.doing("s.first\x1b")
    progress.advance(3)
    deadline = time.monotonic() + 10
    while stream.getvalue().count("\n") < 2 and time.monotonic() < deadline:
        time.sleep(0.005)
    progress.done()
    lines = stream.getvalue().splitlines()
    assert lines[0].startswith("apply: 3 of 4 so far (")
    assert lines[0].endswith(" s), at s.first\\x1b")
    time.sleep(0.05)
    assert stream.getvalue().splitlines() == lines
    assert lines[-1].startswith("apply: 3 (")


def test_a_bar_says_what_the_stage_is_at():
    stream = Terminal()
    progress = BarProgress(stream)
    progress.doing("nothing yet")
    progress.stage("apply", 4)
    progress.doing("[red]s.t")
    progress.done()
    assert "apply: [red]s.t" in shown(stream)
    assert "nothing yet" not in shown(stream)
