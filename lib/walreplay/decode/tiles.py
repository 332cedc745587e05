"""Row changes and cells of a stretch of bytes, as arrays."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray


@dataclass(slots=True)
class Tile:
    """Row changes and cells of a stretch of bytes that fits the cache; the arrays are reused for the next tile.

    It has only the changes that the walk has not placed itself.

    Attributes:
        changes: the number of changes, which is the length of the next eight arrays.
        new, old: the number of the new and the old tuple's first cell, or -1 if there is no such tuple.
        offset, length: of each cell; see `walreplay.decode.walk`.
        has_unchanged: some cell is unchanged TOAST.
        place: where each change comes from, a word of `walreplay.decode.row_places`.
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
