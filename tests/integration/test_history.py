"""A history has every version of each row, and the rows as of any LSN and any moment."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import walreplay
from support.captures import case
from support.extent import further
from support.history_model import Truth, assert_is_history, histories_of, history, versions
from support.postgres import cut

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.integration

ONLY = {"outputs": ["history"]}

CAPTURES = ["o01", "o02", "o03", "o05", "o06", "o07", "o08", "o11", "o12", "o13", "o17", "o18", "o19", "o21", "o22"]
"""Those that can be replayed row by row."""

_OF_EACH_KIND = ("o11", "o18")


@pytest.mark.parametrize("name", further(CAPTURES, but=_OF_EACH_KIND))
def test_a_history_holds_what_the_source_held_at_each_moment(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    recorded, captures, later = case(name), tmp_path / "captures", tmp_path / "later"
    truth = Truth.of(recorded, 25)
    monkeypatch.setenv("WALREPLAY_COMMITS", "spark")
    report = walreplay.apply(spark, captures=recorded.folder, target=tmp_path / "whole", config=ONLY)
    whole = {one: history(spark, location) for one, location in histories_of(report).items()}
    assert_is_history(whole, truth)
    # In several runs, by files of our own where that is possible.
    monkeypatch.setenv("WALREPLAY_COMMITS", "")
    captures.mkdir()
    later.mkdir()
    size = sum(path.stat().st_size for path in recorded.files)
    for part in cut(recorded.files, later, [size // 3 + 1]):
        part.rename(captures / part.name)
        walreplay.apply(spark, captures=captures, target=tmp_path / "parts", config=ONLY)
    for one, location in histories_of(report).items():
        found = history(spark, location.replace("/whole/", "/parts/"))
        assert versions(found) == versions(whole[one]), one
