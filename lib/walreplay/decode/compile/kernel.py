"""Kernels: compiled functions of arrays and integers.

Kernels are compiled when the package is built, and loaded from a library (`walreplay.decode.compile.shared_library`).
If there is none, or the sources have changed since, numba compiles each kernel when it is first called.  Where numba is
not installed either, Python runs them, which takes far longer (`walreplay.decode.compile.interpreter`).  All ways take
the same functions, written in the subset of Python that numba supports.

Kernels do not check bounds.  The caller makes sure that a kernel stays inside its arrays.
"""

from __future__ import annotations

import ctypes
import os
import warnings
from typing import TYPE_CHECKING, Any, Final, TypeVar, cast

import numpy as np

from walreplay.decode.compile import interpreter
from walreplay.decode.compile import shared_library as kernel_library
from walreplay.decode.compile.parameters import Array, Parameter

if TYPE_CHECKING:
    from collections.abc import Callable

    F = TypeVar("F", bound=Callable[..., Any])

LIBRARY: Final = kernel_library.load()
"""The library of compiled kernels; None if there is none that fits."""

_CHOSEN: Final = os.environ.get(kernel_library.CHOICE)
_IS_CHECKED: Final = _CHOSEN in ("checked", "python")

kernel_compiler: Any = None
_missing = ""
if LIBRARY is None and _CHOSEN != "python":
    try:
        from walreplay.decode.compile import compiler as kernel_compiler
    except ModuleNotFoundError:
        _missing = "numba is not installed"
    except ImportError:
        _missing = "numba cannot be imported"  # it says that it is for other versions of numpy

IS_COMPILED: Final = LIBRARY is not None or kernel_compiler is not None
"""False where Python runs the kernels."""

SLOW: Final = _missing and (
    "Python itself decodes the bytes, which takes about fifty times as long: this copy of walreplay has no compiled"
    f" kernels for this machine, and {_missing}. Install a wheel for this machine, or: pip install 'walreplay[numba]'"
)
"""What to tell where Python runs the kernels and nobody has asked for that; empty elsewhere."""

_told: Final[list[str]] = []


class SlowKernels(RuntimeWarning):
    """Python itself runs the kernels."""


def slowness() -> list[str]:
    """Give `SLOW` for a report, if there is anything to tell; whoever asks for it tells it, and nobody else does."""
    _told.append(SLOW)
    return [SLOW] if SLOW else []


ir: Any = kernel_compiler and kernel_compiler.ir
"""LLVM's language, for `instruction`."""
types: Any = kernel_compiler and kernel_compiler.types
"""numba's types, for `instruction`."""


class Kernel:
    """A compiled function with one fixed signature, which returns an int64."""

    __slots__ = ("_run", "function", "signature")

    all: Final[dict[str, Kernel]] = {}
    """Every kernel by its name in the library."""

    def __init__(self, function: Callable[..., Any], signature: tuple[Parameter, ...]) -> None:
        self.function = function
        self.signature = signature
        self._run: Callable[..., int] = self._loaded_first
        if Kernel.all.setdefault(self.symbol, self) is not self:
            raise TypeError(f"two kernels are named {self.symbol}")

    @property
    def symbol(self) -> str:
        """The kernel's name in the library; a function that is declared for several signatures has several names."""
        module = self.function.__module__.partition(".")[2].replace(".", "_")
        kinds = "_".join(f"{p.dtype}_{p.ndim}" if isinstance(p, Array) else "i" for p in self.signature)
        return f"walreplay_{module}_{self.function.__name__}__{kinds}"

    def __call__(self, *arguments: Any) -> int:
        """Run the kernel, without Python's global lock."""
        try:
            return self._run(*arguments)
        except ctypes.ArgumentError:
            # The library takes Python's integers, not numpy's.
            return self._run(*(item if isinstance(item, np.ndarray) else int(item) for item in arguments))

    def check(self, arguments: tuple[Any, ...]) -> None:
        """Check the arguments' types, which a kernel from the library does not do itself.

        Raises:
            TypeError: the number of arguments, or one's type, is not as declared.
        """
        if len(arguments) != len(self.signature):
            raise TypeError(f"{self.symbol} takes {len(self.signature)} arguments, not {len(arguments)}")
        for number, (item, parameter) in enumerate(zip(arguments, self.signature, strict=True)):
            if not parameter.takes(item):
                raise TypeError(f"{self.symbol}: argument {number} is no {parameter}")

    def _loaded_first(self, *arguments: Any) -> int:
        self._load()
        return self(*arguments)

    def _load(self) -> None:
        if not IS_COMPILED:
            self._run = self._interpreted()
        elif LIBRARY is None:
            self._run = kernel_compiler.compile_kernel(self.function, self.signature)
        else:
            run = LIBRARY[self.symbol]
            run.restype = ctypes.c_int64
            run.argtypes = [
                ctypes.py_object if isinstance(parameter, Array) else ctypes.c_int64 for parameter in self.signature
            ]
            self._run = self._checking(run) if _IS_CHECKED else run

    def _interpreted(self) -> Callable[..., int]:
        if SLOW and not _told:
            _told.append(SLOW)
            warnings.warn(SLOW, SlowKernels, stacklevel=2)
        run = interpreter.interpreted(self.function)

        def with_views(*arguments: Any) -> int:
            return int(run(*map(interpreter.argument, arguments)))

        return self._checking(with_views) if _IS_CHECKED else with_views

    def _checking(self, run: Callable[..., int]) -> Callable[..., int]:
        def checked(*arguments: Any) -> int:
            self.check(arguments)
            return run(*arguments)

        return checked


def kernel(*signature: Parameter) -> Callable[[Callable[..., Any]], Kernel]:
    """Declare a kernel that takes these parameters and gives an int64."""
    return lambda function: Kernel(function, signature)


def helper(function: F) -> F:
    """Declare a function that only kernels call; it is compiled into them."""
    return cast("F", _declared(function if kernel_compiler is None else kernel_compiler.helper(function), function))


def routine(function: F) -> F:
    """Declare a function that only kernels call, and that is compiled apart from them: a large or seldom needed one."""
    return cast("F", _declared(function if kernel_compiler is None else kernel_compiler.routine(function), function))


def instruction(python: Callable[..., Any]) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Declare a function that gives the LLVM instructions for its calls in kernels, and what Python does for them."""

    def declare(function: Callable[..., Any]) -> Any:
        return _declared(function if kernel_compiler is None else kernel_compiler.instruction(function), python)

    return declare


def python_form(python: Callable[..., Any]) -> Callable[[F], F]:
    """Say that Python has something faster for a helper, which gives the same."""
    return lambda function: _declared(function, python)


def _declared(made: Any, python: Callable[..., Any]) -> Any:
    interpreter.declared[id(made)] = python
    return made


__all__ = [
    "IS_COMPILED",
    "LIBRARY",
    "SLOW",
    "Kernel",
    "SlowKernels",
    "helper",
    "instruction",
    "ir",
    "kernel",
    "python_form",
    "routine",
    "slowness",
    "types",
]
