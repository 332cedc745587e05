"""The package only becomes lighter: lines and modules of each room, long functions, and names with two meanings.

A room that has grown, or shrunk by much, prints what to put into `ROOMS`.
"""

from __future__ import annotations

import ast
from collections import Counter, defaultdict
from pathlib import Path

import walreplay

PACKAGE = Path(walreplay.__file__).parent

ROOMS = {
    "(top)": (3345, 20),
    "cli": (1817, 11),
    "decode": (14636, 84),
    "delta": (701, 3),
    "loading": (1786, 10),
    "protocol": (2048, 10),
    "settings": (1573, 11),
    "sink": (7889, 37),
    "spark": (20, 1),
    "spark/captures": (1316, 8),
    "spark/checks": (1333, 9),
    "spark/delta": (1620, 12),
    "spark/index": (2176, 10),
    "spark/job": (4658, 20),
    "spark/ledger": (2475, 10),
    "spark/planning": (2470, 14),
    "spark/session": (1208, 11),
    "spark/staging": (966, 6),
    "spark/tables": (1752, 10),
    "spark/workers": (2096, 14),
    "spark/writing": (2956, 20),
    "transactions": (2959, 24),
    "types": (3733, 37),
}
"""The most lines and modules of each room; modules that lie in no room are ``(top)``."""

SLACK = 200
"""By so many lines a room may be below its limit before that has to follow."""

LONG_FUNCTIONS = {
    "cli/commands.py:backfill_command": 66,
    "cli/commands.py:load_command": 103,
    "selection.py:select": 83,
    "spark/checks/tables.py:check_table": 62,
    "spark/job/by_source.py:each_source": 61,
    "spark/job/load.py:load": 72,
    "spark/planning/placement.py:place": 62,
    "spark/planning/plan.py:_table": 79,
    "spark/tables/update.py:apply_table": 75,
    "transactions/stitch.py:plan": 73,
}
"""Functions of more than 60 lines, kernels aside."""

SEVERAL_MEANINGS = {
    "Ahead",
    "Announced",
    "Begun",
    "Column",
    "Commit",
    "Counts",
    "Cut",
    "Folded",
    "Followed",
    "Found",
    "Images",
    "Kernel",
    "Known",
    "Layout",
    "Moved",
    "OpenTransaction",
    "Output",
    "Part",
    "Piece",
    "Reading",
    "RelationRows",
    "Seen",
    "Segment",
    "Source",
    "Stretch",
    "Tile",
    "Versions",
    "Wanted",
}
"""Public names of classes that stand for several things."""

MOST_LINES_OF_A_FUNCTION = 60

_SOURCES = {path.relative_to(PACKAGE): path.read_text(encoding="utf-8") for path in sorted(PACKAGE.rglob("*.py"))}
_TREES = {path: ast.parse(text) for path, text in _SOURCES.items()}


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
    for path, tree in _TREES.items():
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
    for path, tree in _TREES.items():
        for node in ast.walk(tree):
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                places[node.name].add(path)
    assert {name for name, paths in places.items() if len(paths) > 1} == SEVERAL_MEANINGS
