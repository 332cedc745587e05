"""The inputs that the fuzzer has kept: each target reads all of them, as it reads any other bytes."""

from __future__ import annotations

import time
from importlib import import_module

import pytest

from fuzz import target as limits
from fuzz.target import CORPUS, Target

NAMES = ("messages", "framings", "copies", "dumps", "records")
MOST_BYTES = 300 << 10


@pytest.mark.parametrize("name", NAMES)
def test_every_kept_input_is_read(name: str) -> None:
    target: Target = import_module(f"fuzz.{name}").TARGET
    inputs = target.inputs()
    assert len(inputs) > 30
    for data in inputs:
        try:
            target.run(data)
        except Exception as error:
            raise AssertionError(repr(data)) from error


def test_the_kept_inputs_are_those_of_the_targets_and_small() -> None:
    kept = [path for path in CORPUS.rglob("*") if path.is_file()]
    assert {path.parent.name for path in kept} == set(NAMES)
    assert sum(path.stat().st_size for path in kept) < MOST_BYTES


def test_an_input_that_takes_long_each_time_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "SECONDS", 0.01)
    begun: list[float] = []

    def wait(_: bytes) -> None:
        begun.append(time.process_time())
        while len(begun) <= slow and time.process_time() < begun[-1] + 0.02:
            pass

    slow = 1
    Target("late", wait, tuple).run(b"")  # what is loaded late takes long once
    slow = 9
    with pytest.raises(AssertionError, match="of CPU"):
        Target("slow", wait, tuple).run(b"")
