"""Where rows come from: the file and offset of each row's message, and its transaction's origin.

The walk gives each row a word: the number of the origin in the upper half, and the message's offset in the walked bytes
in the lower.  What these bytes are, a `Stretch` says.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np
import pyarrow as pa

from walreplay.decode.memory import empty

if TYPE_CHECKING:
    pass

_HALF: Final = 32
_OFFSET: Final = (1 << _HALF) - 1


@dataclass(frozen=True, slots=True)
class Stretch:
    """Bytes that are walked.

    Attributes:
        path: the file that they lie in, from ``base`` on.  What lies before its start, below zero, lies in another one:
            ``before`` names it, with the bytes' offset there.
        base: None where all bytes lie in the other one.

    A message whose frame begins in front of the file, and which itself begins in a file between that one and this, is
    said to begin in the first of the three, behind its end.
    """

    path: str
    base: int | None = 0
    before: tuple[str, int] = ("", 0)


@dataclass(frozen=True, slots=True)
class Places:
    """Where rows come from; three columns of one length.

    Attributes:
        origin: the replication origin of the row's transaction, NULL for one made on the server itself.
        path: the file that the row's message begins in, ``offset`` bytes (decompressed) from its start.
    """

    origin: pa.Array
    path: pa.Array
    offset: pa.Array

    def slice(self, start: int, count: int) -> Places:
        """Give some of the rows."""
        return Places(*(column.slice(start, count) for column in (self.origin, self.path, self.offset)))


class RowPlaces:
    """The places of rows that are gathered.

    Args:
        origins: what the numbers of origins mean; it may grow.
    """

    def __init__(self, origins: Sequence[str | None]) -> None:
        self._origins = origins
        self._words = empty(0, np.int64)
        self._stretches: list[tuple[int, Stretch]] = []

    @property
    def address(self) -> int:
        """Where the kernels write the words."""
        return self._words.ctypes.data

    def reserve(self, capacity: int, rows: int) -> None:
        """Make room for so many rows, and keep the first ones."""
        words, self._words = self._words, empty(capacity, np.int64)
        self._words[:rows] = words[:rows]

    def enter(self, row: int, stretch: Stretch) -> None:
        """Say what bytes the rows from one on are of."""
        if not self._stretches or self._stretches[-1][1] != stretch:
            self._stretches.append((row, stretch))

    def finish(self, rows: int) -> Places:
        """Give the places of the gathered rows, and begin anew."""
        words = self._words[:rows].copy()
        offsets, number = words & _OFFSET, np.zeros(rows, np.int32)
        paths: dict[str, int] = {}
        stops = [row for row, _ in self._stretches[1:]] + [rows]
        for (start, stretch), stop in zip(self._stretches, stops, strict=True):
            part = slice(start, stop)
            found, base = offsets[part], stretch.base
            in_front = np.full(len(found), True) if base is None else found + base < 0
            path, at = stretch.before
            number[part] = np.where(in_front, paths.setdefault(path, len(paths)), -1) if in_front.any() else -1
            here = ~in_front
            if here.any():
                number[part][here] = paths.setdefault(stretch.path, len(paths))
            offsets[part] = np.where(in_front, found + at, found + (base or 0))
        self._stretches = [(0, self._stretches[-1][1])] if self._stretches else []
        origin = (words >> _HALF).astype(np.int32)
        named = pa.DictionaryArray.from_arrays
        return Places(
            named(pa.array(origin, mask=origin == 0), pa.array(self._origins, pa.string())),
            named(pa.array(number), pa.array(list(paths), pa.string())),
            pa.array(offsets),
        )


__all__ = ["Places", "RowPlaces", "Stretch"]
