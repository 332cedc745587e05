"""What the package's modules import, and what of it goes against its floors."""

from __future__ import annotations

import ast
import re
import textwrap
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

Floors = Sequence[Sequence[str]]
"""Names of modules and packages from the bottom up; those of one floor know nothing of each other."""


def imports(path: Path) -> Iterator[str]:
    """Yield the dotted names that a module imports, each as far as it is written."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative import"
            assert node.module is not None
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def modules(package: Path) -> dict[str, Path]:
    """Return the modules of a package by their dotted names; a package in it goes by its own."""
    found = {}
    for path in package.rglob("*.py"):
        parts = path.relative_to(package.parent).with_suffix("").parts
        found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return found


def graph(package: Path) -> dict[str, set[str]]:
    """Return which of the package's modules each of them imports."""
    known = modules(package)
    found: dict[str, set[str]] = {}
    for name, path in known.items():
        found[name] = {module for imported in imports(path) if (module := _module(imported, known))} - {name}
    return found


def _module(imported: str, known: Mapping[str, Path]) -> str | None:
    """Return the module that a name stands for or is taken from."""
    return imported if imported in known else (owner if (owner := imported.rpartition(".")[0]) in known else None)


def climbs(package: Path, room: str, floors: Floors) -> list[str]:
    """Return the imports that go up, or stay on their floor, in one room of the package ("" is the package itself)."""
    rank = {name: number for number, floor in enumerate(floors) for name in floor}
    inside = f"{package.name}.{room}." if room else f"{package.name}."
    found = []
    for importer, imported in sorted(graph(package).items()):
        for other in sorted(imported):
            if importer.startswith(inside) and other.startswith(inside):
                here, there = (name.removeprefix(inside).partition(".")[0] for name in (importer, other))
                if here != there and rank[there] >= rank[here]:
                    found.append(f"{importer} -> {other}")
    return found


def circle(package: Path) -> list[str]:
    """Return modules that import each other in a circle; nothing where there is none."""
    try:
        TopologicalSorter(graph(package)).prepare()
    except CycleError as error:
        return list(error.args[1])
    return []


def long_modules(package: Path, most: int) -> dict[str, int]:
    """Return the modules that have more lines than that, and how many."""
    counts = {name: len(path.read_text(encoding="utf-8").splitlines()) for name, path in modules(package).items()}
    return {name: lines for name, lines in sorted(counts.items()) if lines > most}


@dataclass(frozen=True)
class Neighbours:
    """The rooms around a room, as seen from it.

    Attributes:
        uses: the rooms that it imports from.
        used_by: the rooms, and the single modules of the package, that import from it.
    """

    uses: tuple[str, ...]
    used_by: tuple[str, ...]

    def sentences(self) -> list[str]:
        """Return the two sentences of the room's docstring that name them."""
        named = {"Uses": self.uses, "Used by": self.used_by}
        return [f"{head}: {', '.join(names) or 'nothing'}." for head, names in named.items()]


_SENTENCE = re.compile(r"^(?:Uses|Used by): [^.]*\.$", re.MULTILINE)


def neighbours(package: Path) -> dict[str, Neighbours]:
    """Return the neighbours of each room (a package inside of the package), by its dotted name.

    A room counts with all that is in it.  It knows the rooms beside it, and of those elsewhere the outermost one.
    Single modules of the package, such as its errors, are not listed as used: everybody uses them.
    """
    rooms = {name for name, path in modules(package).items() if path.name == "__init__.py"} - {package.name}
    arrows = [(importer, other) for importer, imported in graph(package).items() for other in imported]
    found = {}
    for room in rooms:
        outer = room.rpartition(".")[0]
        uses = {
            _seen(there, outer, rooms) for here, there in arrows if _inside(here, room) and not _inside(there, room)
        }
        users = {
            _seen(here, outer, rooms) for here, there in arrows if _inside(there, room) and not _inside(here, room)
        }
        found[room] = Neighbours(_last_names(uses & rooms), _last_names(users))
    return found


def _inside(module: str, room: str) -> bool:
    return module == room or module.startswith(f"{room}.")


def _seen(module: str, outer: str, rooms: Collection[str]) -> str:
    """Return what a module belongs to, as seen from a room that lies in `outer`."""
    depth = len(outer.split(".")) if _inside(module, outer) else 1
    found = ".".join(module.split(".")[: depth + 1])
    return outer if outer in rooms and _inside(found, outer) and found not in rooms else found


def _last_names(names: Collection[str]) -> tuple[str, ...]:
    return tuple(sorted(name.rpartition(".")[2] for name in names))


def wrong_neighbours(package: Path) -> list[str]:
    """Return the rooms whose docstring does not name its neighbours, each with the lines that belong there."""
    found = []
    for room, around in sorted(neighbours(package).items()):
        text = ast.get_docstring(ast.parse(modules(package)[room].read_text(encoding="utf-8"))) or ""
        if [" ".join(sentence.split()) for sentence in _SENTENCE.findall(text)] != around.sentences():
            lines = [line for sentence in around.sentences() for line in textwrap.wrap(sentence, 118)]
            found.append("\n".join([f"in the docstring of {room} put:", *lines]))
    return found
