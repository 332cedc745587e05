"""What the docs name is there."""

from __future__ import annotations

import re
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path

import pytest

import walreplay

ROOT = Path(__file__).parents[2]
PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")])

PACKAGES = {path.name for path in Path(walreplay.__file__).parent.iterdir() if (path / "__init__.py").exists()}

NAME = re.compile(r"`(?:walreplay\.)?([a-z_]+(?:\.[A-Za-z_]+)+)`")
SETTINGS = ("spark.python.", "spark.local.", "spark.sql.", "spark.buffer.")
"""Spark's own settings begin like one of our rooms."""

LINK = re.compile(r"\]\(([^)#\s]+)(?:#[^)]*)?\)")


def modules_in(text: str) -> list[str]:
    """Give the names that begin with one of the package's rooms."""
    return [name for name in NAME.findall(text) if name.split(".")[0] in PACKAGES]


def is_there(name: str) -> bool:
    """Say whether a module, or something in one, has a name."""
    outer, _, last = f"walreplay.{name}".rpartition(".")
    try:
        return hasattr(import_module(outer), last) or find_spec(f"{outer}.{last}") is not None
    except ModuleNotFoundError:
        return False


def test_a_name_that_is_not_there_is_found() -> None:
    assert modules_in("see `decode.walk` and `decode.nowhere`") == ["decode.walk", "decode.nowhere"]
    assert [is_there(name) for name in ("decode.walk", "decode.nowhere")] == [True, False]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_module_that_a_page_names_is_there(page: Path) -> None:
    names = [name for name in modules_in(page.read_text(encoding="utf-8")) if not name.startswith(SETTINGS)]
    assert [name for name in names if not is_there(name)] == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_file_that_a_page_links_to_is_there(page: Path) -> None:
    links = [link for link in LINK.findall(page.read_text(encoding="utf-8")) if "://" not in link]
    assert [link for link in links if not (page.parent / link).exists()] == []
