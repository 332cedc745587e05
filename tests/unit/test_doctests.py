"""The examples in docstrings give what they say, run in the project's folder."""

from __future__ import annotations

import doctest
import importlib
from pathlib import Path

import pytest

import walreplay
from support.architecture import modules
from support.pages import ROOT

PACKAGE = Path(walreplay.__file__).parent
EXAMPLES = sorted(name for name, path in modules(PACKAGE).items() if ">>> " in path.read_text(encoding="utf-8"))


@pytest.mark.parametrize("name", EXAMPLES)
def test_the_examples_of_a_module_give_what_they_say(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    result = doctest.testmod(importlib.import_module(name))
    assert result.attempted > 0
    assert result.failed == 0


@pytest.mark.parametrize("name", ["read_changes", "inspect_captures", "parse_lsn", "format_lsn"])
def test_what_a_reader_calls_first_has_an_example(name: str) -> None:
    homes = [
        importlib.import_module(home) for home in ("walreplay.changes", "walreplay.archive.messages", "walreplay.lsn")
    ]
    (found,) = {getattr(home, name) for home in homes if hasattr(home, name)}
    assert doctest.DocTestParser().get_examples(found.__doc__)
