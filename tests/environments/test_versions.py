"""The oldest and the newest pair of Spark and Delta, on the oldest and the newest Python."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from support.captures import case
from support.environments import SMALL, Environment, Halves, compare, installed, say
from support.pages import block, with_places


@pytest.mark.parametrize(
    ("python", "spark", "delta"),
    [("3.10", "4.0.0", "4.0.0"), ("3.12", "4.1.4", "4.4.0"), ("3.13", "4.2.0", "4.4.0")],
    ids=lambda version: version,
)
def test_a_pair_that_pip_installs_works(python: str, spark: str, delta: str, tmp_path: Path) -> None:
    command = block("docs/running.md", "pip install 'walreplay[spark]'").text
    packages = with_places(command, {"4.1.4": spark, "4.4.0": delta}).replace("'", "").split()[3:]
    assert packages == [f"pyspark=={spark}", f"delta-spark=={delta}"]
    submitted = {"PYSPARK_SUBMIT_ARGS": f"--master local[2] {SMALL} pyspark-shell"}
    environment = Environment(installed([*packages, "pandas<3"], python=python), tmp_path, submitted)
    halves = Halves(environment, str(tmp_path / "mirror"))
    command = block("README.md", "walreplay apply --captures").text
    halves.run(_quietly(command, halves.captures, f"{halves.target} --report {{report}}"))
    # Columns that are added, dropped, renamed and retyped: what Delta does otherwise from version to version.
    changed, target = case("o14"), tmp_path / "changed"
    environment.shell(_quietly(command, changed.folder, str(target)))
    compare(replace(environment), str(target), changed)
    halves.tell(environment.versions("pyspark", "delta-spark"))
    say("tables whose columns change are right, too")


def _quietly(command: str, captures: object, target: str) -> str:
    return with_places(command, {"/data/captures": captures, "/data/mirror": target})
