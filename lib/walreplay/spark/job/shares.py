"""How many parts a run's changes are split into, so that cores share the work."""

from __future__ import annotations

from typing import Final

_MAX_BUCKETS: Final = 2048
_FEW_BUCKETS: Final = 4
_FEW_BYTES: Final = 8 << 20
_TASK_BYTES: Final = 4 << 20
"""How much of a table's staged changes is worth a task of its own."""


def buckets_of(size: int, bucket_bytes: int) -> int:
    """Say into how many buckets each table's changes are split, by key; few for a small run.

    Args:
        size: bytes of the files that a run reads.
        bucket_bytes: bytes of input per bucket.
    """
    few = min(_FEW_BUCKETS, size // _FEW_BYTES)
    return max(1, few, min(_MAX_BUCKETS, -(-size // bucket_bytes)))


def tasks_of(buckets: int, size: int) -> int:
    """Say how many tasks fold a table, given the bytes that are staged for it."""
    return min(buckets, 1 + size // _TASK_BYTES)
