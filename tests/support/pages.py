"""The blocks of code in README and the docs, and which tests run them.

A test takes a block by `block`, with a page and the words that its first line begins with, both written out.  That
is how `claimed` finds it in the tests' sources, and how a block that no test takes is known.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[2]

TAGS = ("ini", "python", "sh", "sql", "text", "yaml")

_FENCE = re.compile(r"( *)```(.*)")


@dataclass(frozen=True)
class Block:
    """What stands between two fences.

    Attributes:
        page: its path below the project's folder.
        line: of the first fence.
        tag: the language, and behind it the program that a block is for, where a page has blocks for several.
    """

    page: str
    line: int
    tag: str
    text: str

    @property
    def language(self) -> str:
        return self.tag.partition(" ")[0]

    @property
    def first_line(self) -> str:
        return self.text.partition("\n")[0]

    def __str__(self) -> str:
        return f"{self.page}:{self.line}"


def pages() -> list[str]:
    """List the pages whose blocks are run."""
    found = [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")]
    return sorted(path.relative_to(ROOT).as_posix() for path in found)


def blocks(page: str, text: str) -> Iterator[Block]:
    """Yield a page's blocks; a fence that nothing closes is an error."""
    start, tag, lines = 0, "", list[str]()
    for number, line in enumerate(text.splitlines(), 1):
        fence = _FENCE.fullmatch(line)
        if fence is None:
            lines.append(line)
        elif start:
            assert not fence[2], f"{page}:{number}: a block inside of a block"
            yield Block(page, start, tag, "".join(f"{line}\n" for line in lines))
            start = 0
        else:
            start, tag, lines = number, fence[2], []
    assert not start, f"{page}:{start}: nothing closes this block"


@cache
def all_blocks() -> tuple[Block, ...]:
    """Return the blocks of all pages."""
    return tuple(block for page in pages() for block in blocks(page, (ROOT / page).read_text(encoding="utf-8")))


def block(page: str, first_words: str) -> Block:
    """Return the one block of a page whose first line begins so."""
    found = [block for block in all_blocks() if block.page == page and block.first_line.startswith(first_words)]
    assert len(found) == 1, f"{page} has {len(found)} blocks that begin with {first_words!r}"
    return found[0]


def block_behind(before: Block) -> Block:
    """Return the block that follows another one on its page."""
    on_page = [block for block in all_blocks() if block.page == before.page]
    return on_page[on_page.index(before) + 1]


def tagged(tag: str) -> list[Block]:
    """Return all blocks with a tag."""
    return [block for block in all_blocks() if block.tag == tag]


@dataclass(frozen=True)
class Claims:
    """What the tests' sources say that they take.

    Attributes:
        blocks: page and first words of each block.
        tags: those of which all blocks are taken.
    """

    blocks: frozenset[tuple[str, str]]
    tags: frozenset[str]

    def cover(self, block: Block) -> bool:
        """Return whether some test takes a block."""
        return block.tag in self.tags or any(
            page == block.page and block.first_line.startswith(words) for page, words in self.blocks
        )


def claimed(tests: Path) -> Claims:
    """Find what tests take: calls of `block` and `tagged` with what they take written out."""
    found: set[tuple[str, str]] = set()
    tags: set[str] = set()
    for path in tests.rglob("test_*.py"):
        source = path.read_text(encoding="utf-8")
        if "support.pages" not in source:
            continue
        for node in ast.walk(ast.parse(source)):
            if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Name):
                continue
            arguments = [one.value for one in node.args if isinstance(one, ast.Constant) and isinstance(one.value, str)]
            if node.func.id == "block" and len(arguments) == 2:
                found.add((arguments[0], arguments[1]))
            elif node.func.id == "tagged" and len(arguments) == 1:
                tags.add(arguments[0])
    return Claims(frozenset(found), frozenset(tags))


def with_places(text: str, places: Mapping[str, object]) -> str:
    """Put what a test has in the place of a page's paths and names; each of them has to be there."""
    for written, place in places.items():
        assert written in text, f"{written!r} is not in\n{text}"
        text = text.replace(written, str(place))
    return text


def without_comments(text: str, mark: str = "#") -> str:
    """Leave out comments, which stand behind a blank or alone."""
    comment = re.compile(rf"(^|\s+){mark}.*")
    return "".join(comment.sub("", line) + "\n" for line in text.splitlines())
