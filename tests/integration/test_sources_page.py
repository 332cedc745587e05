"""The commands and snippets of docs/sources.md do what the page says."""

from __future__ import annotations

import re
import shlex
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from support.captures import case
from support.pages import block, block_behind, with_places, without_comments
from walreplay.cli import main

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.integration

PAGE = "docs/sources.md"


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with the page's configuration."""
    folder = tmp_path_factory.mktemp("sources")
    text = block(PAGE, "sources:").text  # as a configuration, all of these are taken elsewhere
    captures = {"/data/captures/eu": folder / "eu", "/data/captures/us": folder / "us"}
    for place, name in zip(captures.values(), ("o03", "o13"), strict=True):
        shutil.copytree(case(name).folder, place)  # commands leave an index there
    (folder / "lake.yaml").write_text(with_places(text, captures), encoding="utf-8")
    return folder


def commands(text: str, lake: Path) -> list[list[str]]:
    """Return the arguments of a block's commands."""
    found = []
    for line in without_comments(text).splitlines():
        program, *arguments = shlex.split(line)
        assert program == "walreplay"
        found.append([placed(argument, lake) for argument in arguments])
    return found


def placed(text: str, lake: Path) -> str:
    return re.sub(r"/data/(lake|then)", rf"{lake}/\1", text.replace("lake.yaml", str(lake / "lake.yaml")))


def without_seconds(text: str) -> list[str]:
    """Return the lines with all that hangs on the clock left out."""
    return [re.sub(r" +\d+\.\d( s)?(?=$|, written)", " …", line) for line in text.splitlines()]


@pytest.mark.full
def test_the_commands_and_the_snippet_do_what_the_page_says(
    spark: SparkSession, lake: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    command = block("docs/sources.md", "walreplay apply --config lake.yaml --target /data/lake")
    shown = block_behind(command)
    assert shown == block("docs/sources.md", "source  state")
    (arguments,) = commands(command.text, lake)

    assert main([*arguments, "--quiet"]) == 0

    out = capsys.readouterr().out.replace(f"{lake}/lake", "/data/lake")
    ending = without_seconds(shown.text)
    assert without_seconds(out)[-len(ending) :] == ending
    assert "\nrun 1: 83 transactions, 14 row changes from 1 file" in out

    shown_status, cut = commands(block("docs/sources.md", "walreplay status --config").text, lake)
    assert main(shown_status) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[:4] for line in lines[-2:]] == [
        ["eu", "applied", "1", "0/1959EA0"],
        ["us", "applied", "1", "0/1741350"],
    ]
    assert main(cut) == 0
    assert f"{lake}/lake/eu_shop/orders" in capsys.readouterr().out

    union = block("docs/sources.md", "SELECT 'eu'").text
    orders = f"{lake}/lake/eu_shop/orders"
    rows = spark.sql(with_places(union, {"/data/lake/eu_shop/orders": orders, "/data/lake/us_shop/orders": orders}))
    assert {row["source"]: row["count"] for row in rows.groupBy("source").count().collect()} == {"eu": 70, "us": 70}

    # All else on the page, on the same target.
    text = block("docs/sources.md", "walreplay apply --source us").text
    one, backfill, audit = commands(text, lake)
    for arguments in (one, backfill):
        assert main([*arguments, "--quiet"]) == 0, arguments
    assert "source us" in capsys.readouterr().out
    assert main([*audit, "--quiet"]) == 0
    told = capsys.readouterr().out
    assert told.count("nothing is damaged or missing") == 2
    assert (lake / "then" / "us_stage" / "child" / "_delta_log").is_dir()

    snippet = placed(block("docs/sources.md", "import walreplay").text, lake)
    names: dict[str, Any] = {"spark": spark}
    exec(compile(snippet, PAGE, "exec"), names)
    assert {one.source: one.result.status for one in names["report"].sources} == dict.fromkeys(
        ("eu", "us"), "nothing new"
    )
