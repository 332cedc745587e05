"""What the package's modules import, and what of it goes against its floors."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping, Sequence
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

Floors = Sequence[Sequence[str]]
"""Names of modules and packages from the bottom up; those of one floor know nothing of each other."""


def imports(path: Path) -> Iterator[str]:
    """Give the dotted names that a module imports, each as far as it is written."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative import"
            assert node.module is not None
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def modules(package: Path) -> dict[str, Path]:
    """Give the modules of a package by their dotted names; a package in it goes by its own."""
    found = {}
    for path in package.rglob("*.py"):
        parts = path.relative_to(package.parent).with_suffix("").parts
        found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return found


def graph(package: Path) -> dict[str, set[str]]:
    """Give which of the package's modules each of them imports."""
    known = modules(package)
    found: dict[str, set[str]] = {}
    for name, path in known.items():
        found[name] = {module for imported in imports(path) if (module := _module(imported, known))} - {name}
    return found


def _module(imported: str, known: Mapping[str, Path]) -> str | None:
    """Give the module that a name stands for or is taken from."""
    return imported if imported in known else (owner if (owner := imported.rpartition(".")[0]) in known else None)


def climbs(package: Path, room: str, floors: Floors) -> list[str]:
    """Give the imports that go up, or stay on their floor, in one room of the package ("" is the package itself)."""
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
    """Give modules that import each other in a circle; nothing where there is none."""
    try:
        TopologicalSorter(graph(package)).prepare()
    except CycleError as error:
        return list(error.args[1])
    return []


def long_modules(package: Path, most: int) -> dict[str, int]:
    """Give the modules that have more lines than that, and how many."""
    counts = {name: len(path.read_text(encoding="utf-8").splitlines()) for name, path in modules(package).items()}
    return {name: lines for name, lines in sorted(counts.items()) if lines > most}
