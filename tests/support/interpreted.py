"""Have Python run the kernels that are compiled otherwise, or both, one beside the other."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

from walreplay.decode.compile import interpreter
from walreplay.decode.compile.kernel import Kernel
from walreplay.decode.compile.parameters import Array

SLOW = (
    "Python itself decodes the bytes, which takes about fifty times as long: this copy of walreplay has no compiled "
    "kernels for this machine, and numba is not installed. Install a wheel for this machine, or: "
    "pip install 'walreplay[numba]'"
)
"""What is told where Python runs them because it has to."""

BY_ADDRESS = ("walk_messages", "place_rows", "settle")
"""What these write lies behind addresses in their arrays, so that a copy of the arrays does not keep it apart."""


@contextmanager
def by_python() -> Iterator[None]:
    """Let Python run all kernels for a while."""
    with _each_run(lambda kernel: _in_python(kernel)):
        yield


@contextmanager
def both_ways() -> Iterator[set[str]]:
    """Let both run kernels, which have to give and write the same; give the names of those that have run."""
    seen: set[str] = set()

    def compared(kernel: Kernel) -> Callable[..., int]:
        compiled, python = kernel._run, _in_python(kernel)
        if kernel.function.__name__ in BY_ADDRESS:
            return compiled
        written = [
            number for number, item in enumerate(kernel.signature) if isinstance(item, Array) and not item.readonly
        ]

        def run(*arguments: Any) -> int:
            copies = [item.copy() if number in written else item for number, item in enumerate(arguments)]
            given, expected = python(*copies), compiled(*arguments)
            assert given == expected, kernel.symbol
            for number in written:
                assert np.array_equal(_bytes(copies[number]), _bytes(arguments[number])), kernel.symbol
            seen.add(kernel.symbol)
            return given

        return run

    with _each_run(compared):
        yield seen


def _bytes(array: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    return array.reshape(-1).view(np.uint8)


def _in_python(kernel: Kernel) -> Callable[..., int]:
    run = interpreter.interpreted(kernel.function)
    return lambda *arguments: int(run(*map(interpreter.argument, arguments)))


@contextmanager
def _each_run(change: Callable[[Kernel], Callable[..., int]]) -> Iterator[None]:
    kept = {}
    for kernel in Kernel.all.values():
        if kernel._run == kernel._loaded_first:
            kernel._load()
        kept[kernel] = kernel._run
    try:
        for kernel in kept:
            kernel._run = change(kernel)
        yield
    finally:
        for kernel, run in kept.items():
            kernel._run = run
