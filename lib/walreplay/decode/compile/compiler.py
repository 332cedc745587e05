"""Compile kernels with numba: at run time if there is no library of them, and to build that library.

numba keeps compiled functions by the path of their source.  Spark gives every application a copy of the package's zip
(``--py-files``) at a path of its own, so each worker of each application would compile again, for a quarter of a
minute.  Therefore `ZipContentLocator` keeps what is compiled from a zip by the zip's content.
"""
# numba has no types.
# mypy: disable-error-code="no-untyped-call, attr-defined, comparison-overlap, arg-type"

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, cast
from zipimport import zipimporter

import numba
from llvmlite import ir as ir
from numba import types as types
from numba.core import caching
from numba.extending import intrinsic

from walreplay.decode.compile.parameters import Array, Parameter, Record
from walreplay.decode.compile.shared_library import cache_folders, digest_of_sources

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence


_PACKAGE = __name__.partition(".")[0]


class ZipContentLocator(caching._SourceFileBackedLocatorMixin, caching._CacheLocator):
    """Keeps the kernels of one version of the package in one folder, whatever the path of its zip."""

    def __init__(self, py_func: Callable[..., Any], py_file: str, archive: str, folder: Path) -> None:
        self._py_file = py_file
        self._lineno = py_func.__code__.co_firstlineno
        self._digest = digest_of_sources()
        module = Path(py_file).relative_to(archive).with_suffix("")
        self._cache_path = str(folder / self._digest / ".".join(module.parts))

    def get_cache_path(self) -> str:
        """Return the folder."""
        return self._cache_path

    def get_source_stamp(self) -> str:
        """Return a stamp that changes when the source does."""
        return self._digest

    @classmethod
    def from_function(cls, py_func: Callable[..., Any], py_file: str) -> ZipContentLocator | None:
        """Return the locator for a function of this package in a zip; None for others, or if no folder is writable."""
        archive = _archive()
        if archive is None or not py_file.startswith(archive):
            return None
        for folder in cache_folders():
            locator = cls(py_func, py_file, archive, folder)
            try:
                locator.ensure_cache_path()
            except OSError:
                continue
            return locator
        return None


def _archive() -> str | None:
    """Return the path of the zip from which the package was imported; None if it was not."""
    loader = getattr(sys.modules[_PACKAGE], "__loader__", None)
    return loader.archive if isinstance(loader, zipimporter) else None


def install() -> None:
    """Make numba ask this locator before its own ones."""
    locators = caching.CacheImpl._locator_classes
    if ZipContentLocator not in locators:
        locators.insert(0, ZipContentLocator)  # numba's own know code by the path of its zip


install()


def type_of(parameter: Parameter) -> Any:
    """Return numba's type of a parameter."""
    if isinstance(parameter, Record):
        return types.BaseTuple.from_types([type_of(field) for field in parameter.fields], parameter.kind)
    if not isinstance(parameter, Array):
        return types.int64
    dtype = types.boolean if parameter.dtype == "bool" else getattr(types, parameter.dtype)
    return types.Array(dtype, parameter.ndim, "C", readonly=parameter.readonly)


def compile_kernel(function: Callable[..., Any], signature: Sequence[Parameter]) -> Callable[..., int]:
    """Compile a kernel, or load it from numba's cache."""
    try:
        run = compiled(function, signature, cache=True)
    except RuntimeError:  # numba has found no writable directory for its cache
        run = compiled(function, signature, cache=False)
    if not any(isinstance(parameter, Record) for parameter in signature):
        return run
    return lambda *arguments: run(*_as_declared(signature, arguments))


def _as_declared(signature: Sequence[Parameter], arguments: Sequence[Any]) -> Iterator[Any]:
    """Yield the arguments as declared, those of a record in one."""
    items = iter(arguments)
    for parameter in signature:
        if isinstance(parameter, Record):
            yield parameter.kind._make(_viewed(field, next(items)) for field in parameter.fields)
        else:
            yield next(items)


def _viewed(field: Parameter, item: Any) -> Any:
    """Return an array as read-only as declared: numba converts arrays to that, but not those in a tuple."""
    if isinstance(field, Array):
        item = item.view()
        item.flags.writeable = not field.readonly
    return item


def compiled(function: Callable[..., Any], signature: Sequence[Parameter], *, cache: bool) -> Callable[..., int]:
    """Return the function that numba has compiled for a kernel."""
    made = numba.njit(types.int64(*map(type_of, signature)), cache=cache, nogil=True, error_model="numpy")(function)
    return cast("Callable[..., int]", made)


helper: Final = numba.njit(nogil=True, error_model="numpy", forceinline=True)  # compiles a function into its callers
routine: Final = numba.njit(nogil=True, error_model="numpy")  # compiles a function once, apart from its callers
instruction: Final = intrinsic  # replaces each call by the LLVM instructions that the function gives
