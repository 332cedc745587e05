"""How much one run reads, and how many parts its changes are split into, so that cores share the work."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from walreplay.spark.session.session import local_cores

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_MAX_BUCKETS: Final = 2048
_FEW_BUCKETS: Final = 4
_BUCKETS_OF_UNKNOWN: Final = 64
_FEW_BYTES: Final = 8 << 20
_BUCKET_BYTES: Final = 64 << 20
"""Bytes of captures for each bucket of a large run."""
_TASK_BYTES: Final = 4 << 20
"""How much of a table's staged changes is worth a task of its own."""


_RUN_BYTES_A_CORE: Final = 8 << 30
_RUN_BYTES: Final = 256 << 30
"""How much one run reads at most: in local mode by the cores; a cluster's may come and go.  A run that dies is done
again from its plan, and what it stages takes about as much room as what it reads."""


def run_bytes_of(spark: SparkSession) -> int:
    """Say how many bytes of captures one run reads at most, if the configuration does not (``run_bytes``)."""
    cores = local_cores(spark)
    return _RUN_BYTES if cores is None else cores * _RUN_BYTES_A_CORE


def buckets_of(size: int | None) -> int:
    """Say into how many buckets each table's changes are split, by key; few for a small run.

    Args:
        size: bytes of the files that a run reads; None if nobody knows.
    """
    if size is None:
        return _BUCKETS_OF_UNKNOWN
    few = min(_FEW_BUCKETS, size // _FEW_BYTES)
    return max(1, few, min(_MAX_BUCKETS, -(-size // _BUCKET_BYTES)))


def tasks_of(buckets: int, size: int) -> int:
    """Say how many tasks fold a table, given the bytes that are staged for it."""
    return min(buckets, 1 + size // _TASK_BYTES)
