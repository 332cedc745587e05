"""The types of kernels' parameters: arrays, integers, and records of these."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray


@dataclass(frozen=True, slots=True)
class Array:
    """A C-contiguous array of this dtype and number of dimensions."""

    dtype: str
    readonly: bool = False
    ndim: int = 1

    def takes(self, item: object) -> bool:
        """Return whether an argument has this type."""
        return (
            isinstance(item, np.ndarray)
            and (item.dtype, item.ndim) == (np.dtype(self.dtype), self.ndim)
            and item.flags.c_contiguous
            and (self.readonly or item.flags.writeable)
        )


@dataclass(frozen=True, slots=True)
class Integer:
    """An integer of 64 bits with a sign."""

    def takes(self, item: object) -> bool:
        """Return whether an argument has this type."""
        return isinstance(item, (int, np.integer, np.bool_))


@dataclass(frozen=True, slots=True)
class Record:
    """A NamedTuple of arrays and integers.  Callers and the library give its fields one by one, the kernel has one."""

    kind: type[tuple[Any, ...]]
    fields: tuple[Array | Integer, ...]


Parameter = Array | Integer | Record


def flat_parameters(signature: Iterable[Parameter]) -> Iterator[Array | Integer]:
    """Yield the parameters with each record's fields in its place."""
    for parameter in signature:
        yield from parameter.fields if isinstance(parameter, Record) else (parameter,)


INT64: Final = Integer()
BYTES: Final = Array("uint8", readonly=True)
CELLS: Final = Array("int32", readonly=True)
"""Offsets or lengths of a tile's cells."""


def given(dtype: str, ndim: int = 1) -> Array:
    """Declare an array that a kernel reads."""
    return Array(dtype, readonly=True, ndim=ndim)


def record(kind: type[tuple[Any, ...]], *fields: Array | Integer) -> Record:
    """Declare a NamedTuple of arrays and integers."""
    return Record(kind, fields)


def out(dtype: str, ndim: int = 1) -> Array:
    """Declare an array that a kernel writes."""
    return Array(dtype, ndim=ndim)


class ColumnCells(NamedTuple):
    """One column of a tile: its bytes, its cells' offsets and lengths, each row's first cell, and the column's number.

    A kernel unpacks it first: numba counts references to an array each time that it is read from a tuple.
    """

    buf: NDArray[np.uint8]
    offset: NDArray[np.int32]
    length: NDArray[np.int32]
    first: NDArray[np.int32]
    column: int


TILE: Final = record(ColumnCells, BYTES, CELLS, CELLS, CELLS, INT64)
