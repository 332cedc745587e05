"""Compile kernels with numba: at run time if there is no library of them, and to build that library."""

# numba has no types.
# mypy: disable-error-code="no-untyped-call"

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

import numba
from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from walreplay.decode.compile import cache as kernel_cache
from walreplay.decode.compile.parameters import Array, Parameter

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

kernel_cache.install()


def type_of(parameter: Parameter) -> Any:
    """Give numba's type of a parameter."""
    if not isinstance(parameter, Array):
        return types.int64
    dtype = types.boolean if parameter.dtype == "bool" else getattr(types, parameter.dtype)
    return types.Array(dtype, parameter.ndim, "C", readonly=parameter.readonly)


def signature_of(signature: Sequence[Parameter]) -> Any:
    """Give numba's signature of a kernel that takes these parameters."""
    return types.int64(*map(type_of, signature))


def compile_kernel(function: Callable[..., Any], signature: Sequence[Parameter]) -> Callable[..., int]:
    """Compile a kernel, or load it from numba's cache."""
    try:
        return compiled(function, signature, cache=True)
    except RuntimeError:  # numba has found no writable directory for its cache
        return compiled(function, signature, cache=False)


def compiled(function: Callable[..., Any], signature: Sequence[Parameter], *, cache: bool) -> Callable[..., int]:
    """Give the function that numba has compiled for a kernel."""
    made = numba.njit(signature_of(signature), cache=cache, nogil=True, error_model="numpy")(function)
    return cast("Callable[..., int]", made)


def helper(function: Callable[..., Any]) -> Any:
    """Compile a function into its callers (inline)."""
    return numba.njit(nogil=True, error_model="numpy", forceinline=True)(function)


def routine(function: Callable[..., Any]) -> Any:
    """Compile a function once, apart from its callers."""
    return numba.njit(nogil=True, error_model="numpy")(function)


def instruction(function: Callable[..., Any]) -> Any:
    """Replace each call by the LLVM instructions that the function gives."""
    return intrinsic(function)


__all__ = ["compile_kernel", "compiled", "helper", "instruction", "ir", "routine", "signature_of", "type_of", "types"]
