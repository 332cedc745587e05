"""The package stays readable: its lines, its modules, its functions and their arguments, and what its names say.

The list of long modules only shrinks.
"""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import walreplay

PACKAGE = Path(walreplay.__file__).parent

MOST_LINES = 61_800
"""Of the whole package."""

MOST_LINES_OF_A_MODULE = 600
MOST_LINES_OF_A_FUNCTION = 60
MOST_LINES_OF_A_KERNEL = 150

MOST_ARGUMENTS = 8
"""Of a function that only the package calls: what users call by keywords may have any number."""

VAGUE = {"at", "found", "known", "more", "one", "own", "said", "there", "told", "wanted", "way", "ways"}
"""Words that do not say what an argument, an attribute or a local is."""

_SOURCES = {path.relative_to(PACKAGE): path.read_text(encoding="utf-8") for path in sorted(PACKAGE.rglob("*.py"))}


@cache
def _trees() -> dict[Path, ast.Module]:
    return {path: ast.parse(text) for path, text in _SOURCES.items()}


def _functions() -> Iterator[tuple[Path, ast.FunctionDef]]:
    for path, tree in _trees().items():
        for node in ast.walk(tree):
            if isinstance(node, ast.FunctionDef):
                yield path, node


def _arguments(function: ast.FunctionDef) -> list[str]:
    listed = function.args
    names = [argument.arg for argument in (*listed.posonlyargs, *listed.args, *listed.kwonlyargs)]
    return [name for name in names if name not in ("self", "cls")]


def _assigned(function: ast.FunctionDef) -> set[str]:
    """Return the names that a function assigns itself, not those of functions inside it."""
    names, nodes = set[str](), list[ast.AST](function.body)
    while nodes:
        node = nodes.pop()
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            continue
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            names.add(node.id)
        nodes += ast.iter_child_nodes(node)
    return names


def _is_public(path: Path, name: str) -> bool:
    return name in walreplay.__all__ or path == Path("cli/commands.py")


def test_the_package_does_not_grow() -> None:
    assert sum(text.count("\n") for text in _SOURCES.values()) <= MOST_LINES


def test_modules_are_short() -> None:
    lines = {str(path): text.count("\n") for path, text in _SOURCES.items()}
    assert {path: count for path, count in lines.items() if count > MOST_LINES_OF_A_MODULE} == {}


def test_functions_are_short() -> None:
    found = {}
    for path, function in _functions():
        is_kernel = "kernels" in path.parts or any("kernel" in ast.dump(mark) for mark in function.decorator_list)
        lines = (function.end_lineno or 0) - function.lineno
        if lines > (MOST_LINES_OF_A_KERNEL if is_kernel else MOST_LINES_OF_A_FUNCTION):
            found[f"{path}:{function.name}"] = lines
    assert found == {}


def test_functions_have_few_arguments() -> None:
    many = {
        f"{path}:{function.name}": count
        for path, function in _functions()
        if (count := len(_arguments(function))) > MOST_ARGUMENTS and not _is_public(path, function.name)
    }
    assert many == {}


def test_names_say_what_they_are_for() -> None:
    vague = [
        f"{path}:{function.lineno} {function.name}: {', '.join(sorted(names))}"
        for path, function in _functions()
        if (names := VAGUE & {*_arguments(function), *_assigned(function)})
    ]
    for path, tree in _trees().items():
        for node in ast.walk(tree):
            for field in node.body if isinstance(node, ast.ClassDef) else ():
                if isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name) and field.target.id in VAGUE:
                    vague.append(f"{path}:{field.lineno} {node.name}.{field.target.id}")  # type: ignore[attr-defined]
    assert vague == []


def test_a_name_has_one_meaning() -> None:
    places = defaultdict(set)
    for path, tree in _trees().items():
        for node in ast.walk(tree):
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                places[node.name].add(path)
    assert {name: sorted(map(str, paths)) for name, paths in places.items() if len(paths) > 1} == {}
