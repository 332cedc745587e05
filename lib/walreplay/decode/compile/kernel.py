"""Kernels: compiled functions of arrays and integers.

Kernels are compiled when the package is built, and loaded from a library (`walreplay.decode.compile.shared_library`).
If there is none, or the sources have changed since, numba compiles each kernel when it is first called.  Both take the
same functions, written in the subset of Python that numba supports.

Kernels do not check bounds.  The caller makes sure that a kernel stays inside its arrays.
"""

from __future__ import annotations

import ctypes
import os
from typing import TYPE_CHECKING, Any, Final, TypeVar, cast

import numpy as np

from walreplay.decode.compile import shared_library as kernel_library
from walreplay.decode.compile.parameters import Array, Parameter, flat_parameters
from walreplay.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Callable

    F = TypeVar("F", bound=Callable[..., Any])

LIBRARY: Final = kernel_library.load()  # The library of compiled kernels; None if there is none that fits

_IS_CHECKED: Final = os.environ.get(kernel_library.CHOICE) == "checked"

kernel_compiler: Any = None
_missing = ""
if LIBRARY is None:
    try:
        from walreplay.decode.compile import compiler as kernel_compiler
    except ModuleNotFoundError:
        _missing = "numba is not installed"
    except ImportError:
        _missing = "numba cannot be imported"  # it says that it is for other versions of numpy


def check_compiled() -> None:
    """Check that kernels can be run here.

    Raises:
        ConfigError: there is neither a library for this machine nor numba.
    """
    if LIBRARY is None and kernel_compiler is None:
        raise ConfigError(
            f"this copy of walreplay has no compiled kernels for this machine, and {_missing}",
            remedy="Install a wheel for this machine, or: pip install 'walreplay[numba]'",
        )


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
        self._run: Callable[..., int] = self._loaded_first  # numba takes seconds: only for what is called
        if Kernel.all.setdefault(self.symbol, self) is not self:  # a library has one namespace
            raise TypeError(f"two kernels are named {self.symbol}")

    @property
    def symbol(self) -> str:
        """The kernel's name in the library; a function that is declared for several signatures has several names."""
        module = self.function.__module__.partition(".")[2].replace(".", "_")
        kinds = "_".join(
            f"{p.dtype}_{p.ndim}" if isinstance(p, Array) else "i" for p in flat_parameters(self.signature)
        )
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
        parameters = [*flat_parameters(self.signature)]
        if len(arguments) != len(parameters):
            raise TypeError(f"{self.symbol} takes {len(parameters)} arguments, not {len(arguments)}")
        for number, (item, parameter) in enumerate(zip(arguments, parameters, strict=True)):
            if not parameter.takes(item):
                raise TypeError(f"{self.symbol}: argument {number} is no {parameter}")

    def _loaded_first(self, *arguments: Any) -> int:
        self._load()
        return self(*arguments)

    def _load(self) -> None:
        check_compiled()
        if LIBRARY is None:
            self._run = kernel_compiler.compile_kernel(self.function, self.signature)
        else:
            run = LIBRARY[self.symbol]
            run.restype = ctypes.c_int64
            run.argtypes = [
                ctypes.py_object if isinstance(parameter, Array) else ctypes.c_int64  # an array's object as it is
                for parameter in flat_parameters(self.signature)
            ]
            self._run = self._checking(run) if _IS_CHECKED else run

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
    return function if kernel_compiler is None else cast("F", kernel_compiler.helper(function))


def routine(function: F) -> F:
    """Declare a function that only kernels call, and that is compiled apart from them: a large or seldom needed one."""
    return function if kernel_compiler is None else cast("F", kernel_compiler.routine(function))


def instruction(function: Callable[..., Any]) -> Callable[..., Any]:
    """Declare a function that gives the LLVM instructions for its calls in kernels."""
    return function if kernel_compiler is None else cast("Callable[..., Any]", kernel_compiler.instruction(function))
