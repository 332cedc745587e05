"""The package only becomes lighter: lines and modules of each room, long functions, and names with two meanings.

A room that has grown, or shrunk by much, prints what to put into `ROOMS`; it may grow for a new feature alone.
"""

from __future__ import annotations

import ast
from collections import Counter, defaultdict
from functools import cache
from pathlib import Path

import walreplay

PACKAGE = Path(walreplay.__file__).parent

ROOMS = {
    "(top)": (2242, 13),
    "archive": (2384, 6),
    "cli": (1508, 8),
    "config": (1993, 6),
    "decode": (13827, 43),
    "delta": (3733, 11),
    "evolution": (1617, 6),
    "fold": (3396, 7),
    "job": (5698, 15),
    "ledger": (2197, 6),
    "loading": (1806, 7),
    "protocol": (1810, 7),
    "session": (1984, 9),
    "spark": (1971, 6),
    "spark/workers": (2110, 8),
    "stream": (2682, 8),
    "table": (2879, 10),
    "types": (3522, 15),
    "writing": (3863, 13),
}
"""The most lines and modules of each room; modules that lie in no room are ``(top)``."""

SLACK = 200
"""By so many lines a room may be below its limit before that has to follow."""

LONG_FUNCTIONS: dict[str, int] = {}
"""Functions of more than 60 lines, kernels aside."""

MOST_LINES_OF_A_FUNCTION = 60

_SOURCES = {path.relative_to(PACKAGE): path.read_text(encoding="utf-8") for path in sorted(PACKAGE.rglob("*.py"))}


@cache
def _trees() -> dict[Path, ast.Module]:
    return {path: ast.parse(text) for path, text in _SOURCES.items()}


def _weights() -> dict[str, tuple[int, int]]:
    lines: Counter[str] = Counter()
    modules: Counter[str] = Counter()
    for path, text in _SOURCES.items():
        room = "/".join(path.parts[: 2 if path.parts[0] == "spark" else 1][: len(path.parts) - 1]) or "(top)"
        lines[room] += text.count("\n")
        modules[room] += 1
    return {room: (lines[room], modules[room]) for room in sorted(lines)}


def test_no_room_grows() -> None:
    found = _weights()
    table = "\n".join(f'    "{room}": {weight},' for room, weight in found.items())
    wrong = [
        room
        for room in found.keys() | ROOMS.keys()
        if any(new > most for new, most in zip(found.get(room, (0, 0)), ROOMS.get(room, (0, 0)), strict=True))
        or ROOMS[room][0] - found.get(room, (0, 0))[0] > SLACK
    ]
    assert not wrong, (
        f"{', '.join(sorted(wrong))}: make it smaller, or where it is, write down\nROOMS = {{\n{table}\n}}"
    )


def test_functions_are_short() -> None:
    found = {}
    for path, tree in _trees().items():
        for node in ast.walk(tree):
            is_kernel = "kernel" in str(path) or any(
                "kernel" in ast.dump(one) for one in getattr(node, "decorator_list", ())
            )
            if isinstance(node, ast.FunctionDef) and not is_kernel and node.end_lineno is not None:
                lines = node.end_lineno - node.lineno
                if lines > MOST_LINES_OF_A_FUNCTION:
                    found[f"{path}:{node.name}"] = lines
    assert found == LONG_FUNCTIONS


def test_a_name_has_one_meaning() -> None:
    places = defaultdict(set)
    for path, tree in _trees().items():
        for node in ast.walk(tree):
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                places[node.name].add(path)
    assert {name: sorted(map(str, paths)) for name, paths in places.items() if len(paths) > 1} == {}
