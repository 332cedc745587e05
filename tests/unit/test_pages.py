"""What README and the docs show is so: the blocks that need no Spark, and that some test takes each of them.

`tests/integration/test_pages.py` and `tests/integration/test_capturing.py` run those that need Spark or a server.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from importlib.metadata import metadata
from pathlib import Path
from xml.etree import ElementTree

import pytest
import typer

import walreplay
from support.architecture import climbs, modules
from support.pages import (
    ROOT,
    TAGS,
    Block,
    Claims,
    all_blocks,
    block,
    blocks,
    claimed,
    pages,
    tagged,
)
from walreplay.cli.commands import app
from walreplay.config import Configuration, load_configuration, make_settings
from walreplay.config.keys import COMMIT_LSN, COMMIT_TS, LOG_COLUMNS
from walreplay.errors import ConfigError

PACKAGE = Path(walreplay.__file__).parent
TESTS = ROOT / "tests"


# Blocks that are not run here.


def _is_what_pip_would_install(block: Block) -> None:
    names = re.findall(r"pip install '?([a-z0-9-]+)(?:\[([a-z,]+)\])?'?", block.text)
    assert names
    about = metadata("walreplay")
    assert {name for name, _ in names} == {about["Name"]}
    extras = {extra for _, listed in names for extra in listed.split(",") if extra}
    assert extras <= set(about.get_all("Provides-Extra") or ())


def _names_columns_of_a_change_log(block: Block) -> None:
    names = set(re.findall(r"(?<!\w)__\w+", block.text))
    assert names
    assert names <= {COMMIT_LSN, COMMIT_TS, *LOG_COLUMNS.values()}


def _are_sections_of_the_benchmark(block: Block) -> None:
    bench = (TESTS / "benchmark" / "bench.py").read_text(encoding="utf-8")
    sections = set(re.findall(r'^    "([a-z]+)": \(', bench, re.MULTILINE))
    asked = {name for names in re.findall(r'SECTIONS="([a-z ]+)"', block.text) for name in names.split()}
    assert asked
    assert asked <= sections
    listed = re.search(r"^Sections are (.*)\. ", (ROOT / block.page).read_text(encoding="utf-8"), re.MULTILINE)
    assert listed is not None
    assert set(re.findall(r"`([a-z]+)`", listed[1])) == sections


def _names_what_the_bundle_has(block: Block) -> None:
    bundle = ROOT / "conf" / "databricks"
    jobs = {path.name.removesuffix(".job.yml") for path in bundle.glob("resources/*.job.yml")}
    asked = set(re.findall(r"bundle run (?:-t \w+ )?(\w+)", block.text))
    assert asked
    assert asked <= jobs
    declared = (bundle / "databricks.yml").read_text(encoding="utf-8")
    for name in re.findall(r"--var (\w+)=", block.text):
        assert f"\n  {name}:\n" in declared
    backfill = (bundle / "resources" / "backfill.job.yml").read_text(encoding="utf-8")
    for name in re.findall(r"[ ,](\w+)=", block.text.partition("--params")[2]):
        assert f"- name: {name}\n" in backfill


@dataclass(frozen=True)
class NotRun:
    """A block that no test runs.

    Attributes:
        check: what can be held of it all the same.
    """

    page: str
    first_words: str
    why: str
    check: Callable[[Block], None]


_NOT_ON_PYPI = "it is not on PyPI yet; `make test-wheel` installs the wheel"

NOT_RUN = (
    NotRun("README.md", "pip install 'walreplay[record,spark]'", _NOT_ON_PYPI, _is_what_pip_would_install),
    NotRun("README.md", "pip install walreplay ", _NOT_ON_PYPI, _is_what_pip_would_install),
    NotRun("docs/change-log.md", "CREATE FLOW", "Databricks alone has AUTO CDC", _names_columns_of_a_change_log),
    NotRun("docs/databricks.md", "cd conf/databricks", "it needs a workspace", _names_what_the_bundle_has),
    NotRun("CONTRIBUTING.md", "make bench", "it takes an hour", _are_sections_of_the_benchmark),
)


def _of(entry: NotRun) -> Block:
    return block(entry.page, entry.first_words)


@pytest.mark.parametrize("entry", NOT_RUN, ids=lambda entry: f"{entry.page} {entry.first_words}")
def test_what_can_be_held_of_a_block_that_is_not_run_holds(entry: NotRun) -> None:
    entry.check(_of(entry))


# That each block is taken by some test.


def unclaimed(claims: Claims) -> list[str]:
    left = {_of(entry) for entry in NOT_RUN}
    return [str(block) for block in all_blocks() if not claims.cover(block) and block not in left]


def test_every_block_of_a_page_is_taken_by_a_test() -> None:
    assert unclaimed(claimed(TESTS)) == []


def test_every_block_says_its_language() -> None:
    assert [str(block) for block in all_blocks() if block.language not in TAGS] == []


def test_a_block_that_no_test_takes_is_found() -> None:
    claims = claimed(TESTS)
    some = min(claims.blocks)
    less = Claims(claims.blocks - {some}, claims.tags - {"yaml"})
    assert set(unclaimed(less)) == {str(block(*some)), *map(str, tagged("yaml"))}


def test_a_block_that_is_not_run_is_taken_by_no_test() -> None:
    claims = claimed(TESTS)
    assert [str(_of(entry)) for entry in NOT_RUN if claims.cover(_of(entry))] == []


def test_blocks_are_told_with_their_lines_and_languages() -> None:
    text = "# Title\n```sh\nls\n\n  cd\n```\nprose\n```text\n```\n"
    assert list(blocks("p", text)) == [Block("p", 2, "sh", "ls\n\n  cd\n"), Block("p", 8, "text", "")]
    for wrong in ("```sh\nls\n", "```sh\n```sh\n```\n"):
        with pytest.raises(AssertionError, match="block"):
            list(blocks("p", wrong))


# Configurations.

_UNDER_OBJECTS = "objects:\n  - table:\n      source_schema: public\n      source_table: orders\n"


def alternatives(text: str) -> Iterator[str]:
    """Yield the configurations of a block: a comment that ends with "or" puts what follows in the place of its line."""
    fragment = text if not text.startswith("      ") else _UNDER_OBJECTS + text
    lines = fragment.splitlines(keepends=True)
    places = [number for number, line in enumerate(lines) if re.search(r"#.*; or$", line.rstrip())]
    if not places:
        yield fragment
    for place in places:
        yield "".join(line for number, line in enumerate(lines) if number != place)
        yield "".join(line for number, line in enumerate(lines) if number != place + 1)


@pytest.mark.parametrize("block", tagged("yaml"), ids=str)
def test_every_configuration_is_one(block: Block, tmp_path: Path) -> None:
    for number, text in enumerate(alternatives(block.text)):
        file = tmp_path / f"{number}.yaml"
        file.write_text(text, encoding="utf-8")
        assert load_configuration(file) != Configuration()


def test_both_halves_of_an_alternative_are_tried(tmp_path: Path) -> None:
    text = 'table_include_list: ["a"]  # these; or\ntable_exclude_list: ["b"]\nsource: s\n'
    assert [part.split("_")[1] for part in alternatives(text)] == ["exclude", "include"]
    both = tmp_path / "both.yaml"
    both.write_text(text, encoding="utf-8")
    with pytest.raises(ConfigError):
        make_settings(both)


# The command line.


def shown_options(line: str) -> tuple[str, dict[str, tuple[str, bool]]]:
    """Return a synopsis' command, and each option with what it takes and whether it has to be given."""
    _, command, rest = re.split(" +", line, maxsplit=2)
    found = {}
    for word in re.findall(r"\[--[^\]]*\]|--\S+ \S+|\S+", rest.partition("   ")[0]):
        name, _, takes = word.strip("[]").partition(" ") if word.startswith("[") else word.partition(" ")
        found[name] = (takes, not word.startswith("["))
    return command, found


def options_of(command: str) -> dict[str, tuple[str, bool]]:
    """Return what a command of the program takes, in the same form."""
    found = {}
    for one in typer.main.get_command(app).commands[command].params:  # type: ignore[attr-defined]
        metavar = (one.metavar or "").replace("...", "…")
        if one.param_type_name == "argument":
            found[metavar] = ("", one.required)
        else:
            found[one.opts[0]] = (metavar, one.required)
    return found


def test_the_synopsis_has_the_programs_options_and_no_others() -> None:
    text = block("README.md", "walreplay record   --slot NAME").text
    shown = dict(map(shown_options, text.splitlines()))
    program = {name: options_of(name) for name in typer.main.get_command(app).commands}  # type: ignore[attr-defined]
    assert shown == program


_OF_OTHER_PROGRAMS = {
    "--format",
    "--fsync-interval",
    "--jars",
    "--load-via-partition-root",
    "--master",
    "--packages",
    "--py-files",
    "--randomly-seed",
    "--sdist",
    "--temporary",
}


def test_every_option_that_a_page_names_in_prose_is_there() -> None:
    program = typer.main.get_command(app)
    known = {name for command in program.commands for name in options_of(command)}  # type: ignore[attr-defined]
    known |= {one.opts[0] for one in program.params}
    text = "".join((ROOT / page).read_text(encoding="utf-8") for page in pages())
    named = {option for code in re.findall(r"`([^`\n]+)`", text) for option in re.findall(r"--[a-z-]+", code)}
    assert named >= {"--allow-gaps", "--as-of", "--scripts"}
    assert named - known == _OF_OTHER_PROGRAMS


# Commands and coordinates that are named.


def _targets() -> set[str]:
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    return set(re.findall(r"^([a-z-]+):", makefile, re.MULTILINE))


def make_commands(page: str, text: str) -> set[str]:
    shell = "".join(block.text for block in blocks(page, text) if block.tag == "sh")
    return {*re.findall(r"^make ([a-z-]+)", shell, re.MULTILINE), *re.findall(r"`make ([a-z-]+)[ `]", text)}


@pytest.mark.parametrize("page", pages())
def test_every_target_of_make_that_a_page_names_is_there(page: str) -> None:
    assert make_commands(page, (ROOT / page).read_text(encoding="utf-8")) <= _targets()


def test_targets_of_make_are_found_in_commands_and_in_prose() -> None:
    text = "say `make c` or `make d X=1`;\nmake sense\n```sh\nmake a-b X=1\n```\n"
    assert make_commands("p", text) == {"a-b", "c", "d"}


def test_deltas_coordinate_is_the_locked_one() -> None:
    locked = (ROOT / "conf" / "jars.lock").read_text(encoding="utf-8")
    texts = [block("README.md", "spark-submit").text, (ROOT / "conf" / "spark-defaults.conf").read_text("utf-8")]
    texts += [block("docs/running.md", words).text for words in ("python -c", "spark-submit --class")]
    for text in texts:
        (coordinate,) = re.findall(r"io\.delta:[\w.:-]+", text)
        group, artifact, version = coordinate.split(":")
        assert f"{group.replace('.', '/')}/{artifact}/{version}/{artifact}-{version}.jar" in locked


# Drawings.


def test_the_drawn_order_of_modules_is_that_of_their_imports() -> None:
    text = block("CONTRIBUTING.md", "errors <-").text
    layers = [tuple(name.strip() for name in layer.split(",")) for layer in text.replace("\n", " ").split("<-")]
    assert layers.pop() == ("jobs",)
    assert climbs(PACKAGE, "", [*layers, ("__main__",)]) == []


def test_the_steps_that_are_drawn_are_modules() -> None:
    (steps, *_) = block("docs/how-it-works.md", "capture files").text.splitlines()
    names = re.findall(r"> *(\w+)", steps)
    assert names == ["scan", "stitch", "decode", "fold", "apply", "ledger"]
    parts = {part for name in modules(PACKAGE) for part in re.split(r"[._]", name)}
    assert set(names) <= parts


def test_the_first_screen_has_the_picture_the_command_and_what_it_prints() -> None:
    head = (ROOT / "README.md").read_text(encoding="utf-8").splitlines()[:45]
    picture = next(number for number, line in enumerate(head, 1) if "(docs/way-of-the-data.svg)" in line)
    command, printed = block("README.md", "walreplay apply --captures"), block("README.md", "run 1: ")
    assert picture < command.line < printed.line < len(head) - printed.text.count("\n")


def _drawing() -> tuple[list[dict[str, float]], list[tuple[str, dict[str, str]]]]:
    """Return the picture's boxes and its texts."""
    svg = "{http://www.w3.org/2000/svg}"
    picture = ElementTree.parse(ROOT / "docs" / "way-of-the-data.svg").getroot()
    sides = ("x", "y", "width", "height")
    boxes = [{side: float(box.attrib[side]) for side in sides} for box in picture.iter(f"{svg}rect")]
    return boxes, [(text.text or "", text.attrib) for text in picture.iter(f"{svg}text")]


def test_the_picture_has_the_steps_that_how_it_works_draws() -> None:
    (steps, *_) = block("docs/how-it-works.md", "capture files").text.splitlines()
    drawn = [text for text, style in _drawing()[1] if "font-weight" in style]
    assert [name for name in drawn if name.islower() and " " not in name] == re.findall(r"> *(\w+)", steps)[:-1]
    assert "Ledger" in drawn


_EM = 0.6
"""So much of its size a letter is wide, at most, on the average of a text."""


def test_the_words_of_the_picture_stay_inside_of_their_boxes() -> None:
    boxes, texts = _drawing()
    for text, style in texts:
        x, y, size = (float(style[name]) for name in ("x", "y", "font-size"))
        around = [
            box for box in boxes if box["x"] < x < box["x"] + box["width"] and box["y"] < y < box["y"] + box["height"]
        ]
        box = min(around, key=lambda box: box["width"])
        half = {"middle": 0.5, "start": 1.0}[style.get("text-anchor", "start")] * len(text) * size * _EM
        assert x + half <= box["x"] + box["width"], text
        assert y + size / 3 <= box["y"] + box["height"], text


_NAMES = 32
"""So many characters of a line of the tree are names; what is said of them stands behind."""


def _rooms(tree: str) -> set[str]:
    """Return the folders of a drawn tree, by their paths."""
    found: set[str] = set()
    outer: list[str] = []
    for line in tree.splitlines():
        depth = (len(line) - len(line.lstrip())) // 2
        for name in re.findall(r"([a-z0-9_/]+)/", line[:_NAMES]):
            del outer[depth:]
            outer.append(name)
            found.add("/".join(outer))
    return found


def test_the_drawn_tree_has_the_projects_rooms() -> None:
    drawn = _rooms(block("CONTRIBUTING.md", "lib/walreplay/").text)
    there = {path.parent.relative_to(ROOT).as_posix() for path in PACKAGE.rglob("__init__.py")}
    assert [room for room in drawn if not (ROOT / room).is_dir()] == []
    assert sorted(there - drawn) == []
