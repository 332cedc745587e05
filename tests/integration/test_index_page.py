"""The commands of docs/index-and-audit.md do what the page says."""

from __future__ import annotations

import re
import shlex
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from support.captures import case
from support.pages import block, block_behind, with_places
from walreplay.cli import main

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.integration

PLACE = "/data/captures"


@pytest.fixture
def captures(tmp_path: Path) -> Path:
    shutil.copytree(case("o03").folder, tmp_path / "captures")
    return tmp_path / "captures"


def run(text: str, captures: Path) -> int:
    program, *arguments = shlex.split(with_places(text, {PLACE: captures}))
    assert program == "walreplay"
    return main([*arguments, "--quiet"])


def without_seconds(text: str) -> list[str]:
    return [re.sub(r"read in \d+\.\d s$", "read in …", line) for line in text.splitlines()]


def test_an_audit_prints_what_the_page_shows(
    spark: SparkSession, captures: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    command = block("docs/index-and-audit.md", "walreplay audit")
    shown = block_behind(command)
    assert shown == block("docs/index-and-audit.md", "/data/captures: ")

    assert run(command.text, captures) == 0

    printed = capsys.readouterr().out.replace(str(captures), PLACE)
    assert without_seconds(printed) == without_seconds(shown.text)


def test_the_index_is_read_as_the_page_says(
    spark: SparkSession, captures: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(block("docs/index-and-audit.md", "walreplay index").text, captures) == 0
    names: dict[str, Any] = {"spark": spark}
    capsys.readouterr()

    text = with_places(block("docs/index-and-audit.md", "import walreplay").text, {PLACE: captures})
    exec(compile(text, "docs/index-and-audit.md", "exec"), names)

    assert names["report"].files_read == 0
    shown = capsys.readouterr().out
    assert "part007.bin" in shown
    assert "part001.bin" not in shown
    page = Path(__file__).parents[2] / "docs" / "index-and-audit.md"
    columns = re.findall(
        r"`(\w+)`", "".join(re.findall(r"^\| (`.*?) \|", page.read_text(encoding="utf-8"), re.MULTILINE))
    )
    assert {name for name in names["files"].columns if name in columns} >= {"name", "open_at_end", "stream", "warnings"}
    kinds = {"gap", "damaged", "foreign", "twin", "copy"}
    own = {"indexed_at", "scanned_as", "gap", "resumes", "resume"}
    assert set(columns) - kinds == set(names["files"].columns) - own
