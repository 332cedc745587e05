"""Run kernels by Python, where there is neither a library of them nor numba: the same functions, from their source.

Kernels are written for numbers of 64 bits; Python's have any number.  What makes the two the same:

- ``np.int64(…)`` and ``np.uint64(…)`` cut a number to 64 bits, here as there.  So they stand in a kernel wherever a
  result may have more and the upper bits would be seen: behind a multiplication, in front of a comparison or ``>>``.
- An instruction of the machine has a form in Python (`walreplay.decode.compile.memory`), and so may a helper for which
  Python has something faster (`walreplay.decode.compile.kernel.python_form`).
- Arrays come as views of their memory, whose items are Python's numbers, and constants of numpy as Python's.

Calls of functions that are one expression are replaced by it, because in Python a call is what costs most.
"""

from __future__ import annotations

import ast
import inspect
import textwrap
from bisect import bisect_left
from typing import TYPE_CHECKING, Any, Final, cast

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    Function = Callable[..., Any]

_LEAST: Final = -(1 << 63)
_MOST: Final = (1 << 63) - 1

_NUMPY: Final = "np"

_SIGNED: Final = f"found if {_LEAST} <= (found := number) <= {_MOST} else _int64(found)"
_UNSIGNED: Final = f"number & {(1 << 64) - 1}"

_CHEAP: Final = (ast.Name, ast.Constant)
"""An argument that may be asked for more than once."""

declared: Final[dict[int, Function]] = {}
"""What kernels may call, by the identity of what its name stands for: the function whose source Python runs."""

_made: Final[dict[Function, Function]] = {}
_trees: Final[dict[Function, ast.FunctionDef]] = {}


def signed(number: int, bits: int = 64) -> int:
    """Take the lower bits of a number as one with a sign."""
    return ((number + (1 << bits - 1)) & ((1 << bits) - 1)) - (1 << bits - 1)


_scope: Final[dict[str, Any]] = {
    "_int64": signed,
    "_int32": lambda number: signed(number, 32),
    "_int16": lambda number: signed(number, 16),
    "_searchsorted": bisect_left,
}


def argument(item: Any) -> Any:
    """Give a kernel's argument as Python's: an array as a view of its memory, a number as an int."""
    return memoryview(cast("Any", item)) if isinstance(item, np.ndarray) else int(item)


def interpreted(function: Function) -> Function:
    """Give a kernel's function, or that of what kernels call, as Python runs it."""
    made = _made.get(function)
    if made is None:
        tree = ast.fix_missing_locations(_Numbers().visit(_copy(_resolved(function))))
        tree.name = _name_in_scope(function.__module__, function.__name__)
        code = compile(ast.Module([tree], type_ignores=[]), inspect.getsourcefile(function) or "<kernel>", "exec")
        exec(code, _scope)
        made = _made[function] = cast("Function", _scope[tree.name])
    return made


def _name_in_scope(module: str, name: str) -> str:
    return f"{module.replace('.', '_')}__{name}"


def _resolved(function: Function) -> ast.FunctionDef:
    """Parse a function, without what only numba or a reader needs; names of its module are those of the scope."""
    found = _trees.get(function)
    if found is None:
        lines, first = inspect.getsourcelines(function)
        parsed = ast.increment_lineno(ast.parse(textwrap.dedent("".join(lines))), first - 1)
        found = cast("ast.FunctionDef", parsed.body[0])
        found.decorator_list, found.returns = [], None
        for parameter in found.args.args:
            parameter.annotation = None
        if isinstance(found.body[0], ast.Expr) and isinstance(found.body[0].value, ast.Constant):
            del found.body[0]
        found.body = [_Names(function).visit(statement) for statement in found.body]
        _trees[function] = found
    return found


def _copy(tree: Any) -> Any:
    """Copy a tree, whose nodes transformers change in place."""
    if isinstance(tree, list):
        return [_copy(item) for item in tree]
    if not isinstance(tree, ast.AST):
        return tree
    copied = type(tree)(**{name: _copy(value) for name, value in ast.iter_fields(tree)})
    return ast.copy_location(copied, tree)


class _Names(ast.NodeTransformer):
    """Give the names of a function's module their values, and put expressions in place of calls."""

    def __init__(self, function: Function) -> None:
        self._module = function.__module__
        self._values = function.__globals__
        self._own = set(function.__code__.co_varnames)

    def visit_Call(self, node: ast.Call) -> ast.AST:
        """Replace a call of a function that is one expression."""
        node.args = [self.visit(item) for item in node.args]
        called = None
        if isinstance(node.func, ast.Name) and node.func.id not in self._own:
            called = declared.get(id(self._values.get(node.func.id)))
        if called is not None:
            tree = _resolved(called)
            (*_, last) = tree.body
            if len(tree.body) == 1 and isinstance(last, ast.Return) and last.value is not None:
                names = dict(zip((item.arg for item in tree.args.args), node.args, strict=True))
                uses = [item.id for item in ast.walk(last.value) if isinstance(item, ast.Name)]
                if all(isinstance(names[name], _CHEAP) or uses.count(name) <= 1 for name in names):
                    return cast("ast.AST", ast.copy_location(_Bound(names).visit(_copy(last.value)), node))
        node.func = self.visit(node.func)
        return node

    def visit_Name(self, node: ast.Name) -> ast.AST:
        """Replace a constant, or name what else the module has."""
        if node.id in self._own or node.id == _NUMPY or node.id not in self._values:
            return node
        value = self._values[node.id]
        if id(value) in declared:
            value = interpreted(declared[id(value)])
        elif isinstance(value, np.ndarray):
            value = tuple(value.tolist())
        elif isinstance(value, (int, np.integer)):
            return ast.copy_location(_number(int(value)), node)
        name = _name_in_scope(self._module, node.id)
        _scope[name] = value
        return ast.copy_location(ast.Name(name, node.ctx), node)


class _Bound(ast.NodeTransformer):
    """Put arguments in the place of parameters."""

    def __init__(self, arguments: Mapping[str, ast.expr]) -> None:
        self._arguments = arguments

    def visit_Name(self, node: ast.Name) -> ast.AST:
        """Replace a parameter."""
        return _copy(self._arguments[node.id]) if node.id in self._arguments else node


class _Numbers(ast.NodeTransformer):
    """Put Python's forms of what numpy's names are in a kernel."""

    def visit_Call(self, node: ast.Call) -> ast.AST:
        """Cut numbers to their bits."""
        node = cast("ast.Call", self.generic_visit(node))
        if not (isinstance(node.func, ast.Attribute) and _is_numpy(node.func.value)):
            return node
        name, (number, *more) = node.func.attr, node.args
        if name == "int64":
            found = number if _has_sign(number) else _parsed(_SIGNED, number)
        elif name == "uint64":
            found = number if isinstance(number, ast.Constant) else _parsed(_UNSIGNED, number)
        else:
            found = ast.Call(ast.Name(f"_{name}", ast.Load()), [number, *more], [])
        return ast.copy_location(found, node)

    def visit_Subscript(self, node: ast.Subscript) -> ast.AST:
        """Take indices as they are: no kernel has any below 0."""
        index = node.slice
        if isinstance(index, ast.Call) and isinstance(index.func, ast.Attribute) and _is_numpy(index.func.value):
            node.slice = index.args[0]
        return self.generic_visit(node)

    def visit_Attribute(self, node: ast.Attribute) -> ast.AST:
        """Ask a view for its length."""
        node = cast("ast.Attribute", self.generic_visit(node))
        if node.attr != "size":
            return node
        return ast.copy_location(ast.Call(ast.Name("len", ast.Load()), [node.value], []), node)


def _number(value: int) -> ast.expr:
    return ast.Constant(value) if value >= 0 else ast.UnaryOp(ast.USub(), ast.Constant(-value))


def _is_numpy(node: ast.expr) -> bool:
    return isinstance(node, ast.Name) and node.id == _NUMPY


def _has_sign(node: ast.expr) -> bool:
    """Say whether an expression is plainly a number that fits 64 bits with a sign."""
    if isinstance(node, ast.UnaryOp):
        node = node.operand
    return isinstance(node, (ast.Constant, ast.Compare))


def _parsed(form: str, number: ast.expr) -> ast.expr:
    """Give a form with a number in it."""
    return cast("ast.expr", _Bound({"number": number}).visit(ast.parse(form, mode="eval").body))
