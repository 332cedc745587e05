"""What a Begin may say: the walk's checks of its commit LSN and its commit time."""

from __future__ import annotations

from typing import Final

import numpy as np

from walreplay.decode.compile.kernel import helper
from walreplay.decode.kernels.base import load_big_64, load_int64, store_64
from walreplay.decode.kernels.outcomes import BEHIND, DONE, NO_TIME, NOT_AFTER_LAST
from walreplay.lsn import POSTGRES_EPOCH_UNIX_MICROS
from walreplay.types.datetime import FIRST_MICRO, LAST_MICRO

EARLIEST: Final = FIRST_MICRO - POSTGRES_EPOCH_UNIX_MICROS
LATEST: Final = LAST_MICRO - POSTGRES_EPOCH_UNIX_MICROS
"""The first and the last time of the years 1 to 9999, which a timestamp can hold: microseconds since 2000."""

_TOP_TIME: Final = 8 * 33
_STOP_LSN: Final = 8 * 34
_STOP_TIME: Final = 8 * 35
"""Where these words of the walk's state lie, see `walreplay.decode.walk`."""


@helper
def outcome_of_begin(at, last_lsn, state):  # type: ignore[no-untyped-def]
    """Say what a whole Begin leads to: `DONE`, or why the walk stops in front of it.

    Args:
        at: the address of its tag.
        last_lsn: the commit LSN of the session's last transaction.
        state: the address of the walk's state.
    """
    lsn, time = load_big_64(at + 1), load_big_64(at + 9)
    if lsn <= last_lsn:
        return np.int64(NOT_AFTER_LAST)
    if time < EARLIEST or time > LATEST:
        return np.int64(NO_TIME)
    if lsn > load_int64(state + _STOP_LSN) or time > load_int64(state + _STOP_TIME):
        return np.int64(BEHIND)
    if time > load_int64(state + _TOP_TIME):
        store_64(state + _TOP_TIME, time)
    return np.int64(DONE)


__all__ = ["EARLIEST", "LATEST", "outcome_of_begin"]
