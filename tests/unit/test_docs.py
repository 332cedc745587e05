"""What the docs name is there, their tables are whole, and each page says whom it is for."""

from __future__ import annotations

import ast
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
PROPERTY = re.compile(r"delta\.[a-z]+[A-Z]")
"""So do Delta's properties of tables."""

ROOMS = sorted(Path(walreplay.__file__).parent.glob("*/**/__init__.py"))

LINK = re.compile(r"\]\(([^)#\s]+)(?:#[^)]*)?\)")


def modules_in(text: str) -> list[str]:
    """Return the names that begin with one of the package's rooms."""
    found = [name for name in NAME.findall(text) if name.split(".")[0] in PACKAGES]
    return [name for name in found if PROPERTY.match(name) is None]


def is_there(name: str) -> bool:
    """Return whether a module, or something in one, has a name."""
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


SOURCES = sorted(Path(walreplay.__file__).parent.rglob("*.py"))


def is_something(name: str) -> bool:
    """Return whether a module, something in one, or something in a class of one, has a name."""
    outer, _, last = name.rpartition(".")
    module, _, owner = outer.rpartition(".")
    return is_there(name) or (is_there(outer) and hasattr(getattr(import_module(f"walreplay.{module}"), owner), last))


def test_something_in_a_class_is_found_and_what_is_not_there_is_not() -> None:
    names = ("decode.walk.WalkKernel", "delta.target.Target.table", "delta.target.Target.nothing", "nowhere.at")
    assert [is_something(name) for name in names] == [True, True, False, False]


def test_every_name_that_a_docstring_refers_to_is_there() -> None:
    found = {
        name for path in SOURCES for name in re.findall(r"`walreplay\.([\w.]+)`", path.read_text(encoding="utf-8"))
    }
    assert len(found) > 50
    assert sorted(name for name in found if not is_something(name)) == []


def entry_points(text: str) -> list[str]:
    """Return the names that a room's docstring gives as its entry points."""
    return [
        name
        for line in re.findall(r"^Entry points?: [^\n]*(?:\n[^\n]+)*", text, re.MULTILINE)
        for name in re.findall(r"`([\w.]+)`", line)
    ]


@pytest.mark.parametrize("room", ROOMS, ids=lambda room: room.parent.name)
def test_every_entry_point_that_a_room_names_is_there(room: Path) -> None:
    inside = ".".join(room.parent.relative_to(Path(walreplay.__file__).parent).parts)
    text = ast.get_docstring(ast.parse(room.read_text(encoding="utf-8"))) or ""
    found = [
        name.removeprefix("walreplay.") if "walreplay." in name else f"{inside}.{name}" for name in entry_points(text)
    ]
    assert [name for name in found if not is_there(name)] == []


def test_entry_points_are_found_over_several_lines() -> None:
    assert entry_points("A `room`.\n\nEntry points: `a.b`,\n`c`.\n\nUses: `d`.\n") == ["a.b", "c"]


def words_of(folder: Path) -> set[str]:
    """Return the names and texts that the code of a room has, and the names of its modules."""
    words = {path.stem for path in folder.glob("*.py")} | {"pyarrow.fs"}
    for path in folder.glob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            for field in ("id", "attr", "name", "module", "value"):
                word = getattr(node, field, None)
                words |= {word} if isinstance(word, str) else set()
    return words


@pytest.mark.parametrize("room", ROOMS, ids=lambda room: room.parent.name)
def test_every_word_that_a_room_names_is_in_its_code(room: Path) -> None:
    text = ast.get_docstring(ast.parse(room.read_text(encoding="utf-8"))) or ""
    words = words_of(room.parent)
    names = {
        name for name in re.findall(r"`(?:walreplay\.)?([\w.]+)`", text) if not words & {name, f"walreplay.{name}"}
    }
    inside = ".".join(room.parent.relative_to(Path(walreplay.__file__).parent).parts)
    assert [name for name in names if not is_there(f"{inside}.{name}") and not is_there(name)] == []


def test_pages_agree_how_long_the_tests_take() -> None:
    readme, contributing = ((ROOT / name).read_text(encoding="utf-8") for name in ("README.md", "CONTRIBUTING.md"))
    (short, whole) = re.findall(
        r"`make test` runs the tests, in about (\d+) minutes, and `.ci/run` takes (\d+)", readme
    )[0]
    times = dict(re.findall(r"^\| `make (test[a-z-]*)` \|.* \| (\d+) minutes \|$", contributing, re.MULTILINE))
    assert times["test"] == short
    assert int(times["test-all"]) == int(times["test"]) + int(times["test-rest"])
    assert re.findall(r"`make test-wheel`: (\d+) minutes", contributing) == [whole]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_file_that_a_page_links_to_is_there(page: Path) -> None:
    links = [link for link in LINK.findall(page.read_text(encoding="utf-8")) if "://" not in link]
    assert [link for link in links if not (page.parent / link).exists()] == []


def test_the_changelog_begins_with_this_version_or_what_comes_after_it() -> None:
    text = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    heads = re.findall(r"^## (.*)$", text, re.MULTILINE)
    releases = [head for head in heads if head != "Unreleased"]
    assert heads in (releases, ["Unreleased", *releases])
    assert re.fullmatch(rf"{re.escape(walreplay.__version__)} - \d{{4}}-\d\d-\d\d", releases[0])
    project = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    assert re.findall(r'^version = "(.*)"$', project, re.MULTILINE) == [walreplay.__version__]


def anchors(text: str) -> set[str]:
    """Return the anchors of a page's headings, as GitHub makes them."""
    heads = re.findall(r"^#+ (.*)$", text, re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", head.lower()).replace(" ", "-") for head in heads}


def lost_anchors(page: Path, text: str) -> list[str]:
    """Return the links whose page has no such heading."""
    found = re.findall(r"\]\(([^)#\s:]*)#([^)]*)\)", text)
    return [
        f"{file}#{anchor}"
        for file, anchor in found
        if anchor not in anchors((page.parent / file).read_text(encoding="utf-8") if file else text)
    ]


def uneven_lines(text: str) -> list[str]:
    """Return the lines of tables that have more or fewer cells than their head, and heads with an empty cell."""
    found = []
    for table in re.findall(r"(?:^\|.*\n)+", text, re.MULTILINE):
        head, *lines = (re.split(r"(?<!\\)\|", line)[1:-1] for line in table.splitlines())
        found += [] if all(cell.strip() for cell in head) else ["|".join(head)]
        found += ["|".join(line) for line in lines if len(line) != len(head)]
    return found


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_heading_that_a_page_links_to_is_there(page: Path) -> None:
    assert lost_anchors(page, page.read_text(encoding="utf-8")) == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_line_of_a_table_has_the_cells_of_its_head(page: Path) -> None:
    assert uneven_lines(page.read_text(encoding="utf-8")) == []


@pytest.mark.parametrize("page", [page for page in PAGES if page.parent != ROOT], ids=lambda page: page.name)
def test_every_page_says_first_whom_it_is_for(page: Path) -> None:
    _, first, *_ = page.read_text(encoding="utf-8").split("\n\n")
    assert first.startswith("This page is for ")


def test_a_heading_and_a_cell_that_are_missing_are_found() -> None:
    text = "# How `it` works, then\n[a](#how-it-works-then) [b](#elsewhere)\n"
    assert lost_anchors(PAGES[0], text) == ["#elsewhere"]
    assert uneven_lines("|a|b|\n|-|-|\n|1|2 \\| 3|\n") == []
    assert uneven_lines("|a||\n|-|-|\n|1|\n") == ["a|", "1"]
