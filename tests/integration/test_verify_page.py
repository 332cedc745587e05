"""The commands of docs/verify.md do what the page says."""

from __future__ import annotations

import re
import shlex
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import walreplay
from support.captures import case
from support.pages import block, block_behind, with_places
from walreplay.cli import main

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.integration


def without_seconds(text: str) -> str:
    return re.sub(r"in \d+\.\d s$", "in …", text, flags=re.MULTILINE)


def test_verify_prints_what_the_page_shows(
    spark: SparkSession, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    captures = case("o03").folder
    walreplay.apply(spark, captures, tmp_path / "mirror")
    spark.sql(f"UPDATE delta.`{tmp_path}/mirror/shop/orders` SET note = 'x', status = 'lost' WHERE id = 1")
    places = {"/data/captures": captures, "/data/": f"{tmp_path}/"}
    command, by_name = (
        block("docs/verify.md", "walreplay verify --captures /data/captures --target /data/mirror --diff"),
        block("docs/verify.md", "walreplay verify --captures /data/captures --target /data/mirror --table"),
    )

    shown = block("docs/verify.md", "3 of 4 tables of /data/mirror")
    assert shown == block_behind(command)

    assert main([*shlex.split(with_places(command.text, places))[1:], "--quiet"]) == 3

    printed = capsys.readouterr().out.replace(str(captures), "/data/captures").replace(str(tmp_path), "/data")
    assert without_seconds(printed) == without_seconds(shown.text)
    assert spark.read.format("delta").load(f"{tmp_path}/differences").count() == 1
    assert main([*shlex.split(with_places(by_name.text, places))[1:], "--quiet"]) == 0
    assert "2 of 2 tables" in capsys.readouterr().out
