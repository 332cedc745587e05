"""A platform that refuses settings, as serverless compute does: reading and writing one is an error but for a few."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from typing import Any, Final
from unittest.mock import patch

ALLOWED: Final = frozenset(
    {
        # Says nothing of what a commit is; else each of the small tables is read in 50 tasks, which takes minutes.
        "spark.databricks.delta.snapshotPartitions",
        "spark.sql.ansi.enabled",
        "spark.sql.legacy.timeParserPolicy",
        "spark.sql.session.timeZone",
        "spark.sql.shuffle.partitions",
        # VACUUM would list each of the small tables in 10,000 tasks.
        "spark.sql.sources.parallelPartitionDiscovery.parallelism",
    }
)


class RefusedError(Exception):
    """What such a platform says."""

    def __init__(self, key: str) -> None:
        super().__init__(f"[CONFIG_NOT_AVAILABLE] Configuration {key} is not available. SQLSTATE: 42K0I")


@contextmanager
def refusing() -> Iterator[list[str]]:
    """Have all sessions of this process refuse settings; gives the keys that were refused."""
    refused: list[str] = []

    def only_allowed(real: Any) -> Any:
        def called(conf: Any, key: str, *values: Any) -> Any:
            # pyspark reads settings for its own purposes, and its own sessions let it.
            of_pyspark = sys._getframe(1).f_globals["__name__"].startswith("pyspark.")
            if key not in ALLOWED and not of_pyspark:
                refused.append(key)
                raise RefusedError(key)
            return real(conf, key, *values)

        return called

    from pyspark.sql.conf import RuntimeConfig

    kinds: list[Any] = [RuntimeConfig]
    if find_spec("grpc") is not None:  # without it, pyspark's modules for Connect end the program
        from pyspark.sql.connect.conf import RuntimeConf

        kinds.append(RuntimeConf)
    patches = [patch.object(kind, name, only_allowed(getattr(kind, name))) for kind in kinds for name in _METHODS]
    for one in patches:
        one.start()
    try:
        yield refused
    finally:
        for one in patches:
            one.stop()


_METHODS: Final = ("get", "set", "unset")
