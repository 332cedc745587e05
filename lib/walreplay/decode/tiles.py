"""Row changes and cells of a stretch of bytes, as arrays."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray


@dataclass(slots=True)
class Tile:
    """Row changes and cells of a stretch of bytes that fits the cache; the arrays are used again for the next.

    The changes are those that were not placed at once.

    All arrays of changes have the length `changes`; `new` and `old` are the number of the tuple's first cell, or -1;
    `place` is a word of `walreplay.decode.row_places`.
    """

    changes: int
    kind: NDArray[np.uint8]
    slot: NDArray[np.int32]
    lsn: NDArray[np.int64]
    commit_ts: NDArray[np.int64]
    xid: NDArray[np.int64]
    ordinal: NDArray[np.int64]
    place: NDArray[np.int64]
    new: NDArray[np.int32]
    old: NDArray[np.int32]
    offset: NDArray[np.int32]
    length: NDArray[np.int32]
    has_unchanged: bool
