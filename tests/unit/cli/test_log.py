"""What is logged: one line each, quiet until somebody wants it."""

from __future__ import annotations

import logging
import subprocess
import sys

import pytest

from walreplay.cli import main
from walreplay.progress import LOGGER, log, with_ids


def test_nothing_is_written_by_default() -> None:
    program = "from walreplay.progress import log; log('phase', name='scan')"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert (done.stdout, done.stderr) == ("", "")


def test_a_line_has_the_event_and_its_ids(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "walreplay")
    log("table applied", table="s.%s\n", run=3, version=None, seconds=1.5)
    (record,) = caplog.records
    assert (record.name, record.levelname) == ("walreplay", "INFO")
    assert record.getMessage() == "table applied table=s.%s\\x0a run=3 seconds=1.500"


@pytest.mark.parametrize(
    ("value", "shown"),
    [("a b", '"a b"'), ('a"b', '"a\\"b"'), ("a=b", '"a=b"'), ("", '""'), ("a\\ b", '"a\\\\ b"'), (7, "7"), (None, "")],
)
def test_a_value_ends_where_it_ends(value: object, shown: str) -> None:
    assert with_ids("x", v=value) == (f"x v={shown}" if value is not None else "x")


def test_the_logger_is_found_by_the_packages_name() -> None:
    assert logging.getLogger("walreplay") is LOGGER
    assert any(isinstance(handler, logging.NullHandler) for handler in LOGGER.handlers)


@pytest.mark.parametrize(("level", "shown"), [("info", True), ("ERROR", False), ("", False)])
def test_a_variable_has_the_command_line_write_the_lines(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], level: str, shown: bool
) -> None:
    monkeypatch.setenv("WALREPLAY_LOG", level)
    monkeypatch.setattr("walreplay.cli.program.app", lambda *_, **__: log("phase", name="scan"))
    handlers = list(LOGGER.handlers)
    assert main([]) == 0
    captured = capsys.readouterr()
    assert captured.out == ""
    assert ("INFO phase name=scan\n" in captured.err) == shown
    assert (LOGGER.handlers, LOGGER.level) == (handlers, logging.NOTSET)


def test_a_level_that_is_none_is_refused(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setenv("WALREPLAY_LOG", "loud")
    assert main(["--version"]) == 2
    assert "error: WALREPLAY_LOG is 'loud'. It may be DEBUG, INFO" in capsys.readouterr().err
