"""Progress names the tables that are at work, and none that is done."""

from __future__ import annotations

from typing import Any

import pytest

from walreplay.job.context import RunContext
from walreplay.progress import Progress


class _Shown(Progress):
    def __init__(self) -> None:
        self.texts: list[str] = []

    def doing(self, what: str) -> None:
        self.texts.append(what)


def test_tables_are_named_from_their_beginning_to_their_end_whoever_began_last() -> None:
    shown, nothing = _Shown(), object()
    unused: Any = nothing
    run = RunContext(unused, unused, unused, unused, unused, unused, shown)
    with run.doing("s.long"):
        with run.doing("s.short"):
            assert shown.texts[-1] == "s.long, s.short"
        assert shown.texts[-1] == "s.long"
        with run.doing("s.long"):
            assert shown.texts[-1] == "s.long"
        assert shown.texts[-1] == "s.long"
        with pytest.raises(ValueError, match="fails"), run.doing("s.bad"):
            raise ValueError("fails")
        assert shown.texts[-1] == "s.long"
