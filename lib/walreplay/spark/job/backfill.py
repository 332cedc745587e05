"""Backfill: make a target that holds what the source held at an LSN or at a time.

It is an ordinary run, or several, that end in front of the first transaction which commits too late: so the target's
ledger, its tables and its next nightly run are those of a target whose archive had ended there.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from datetime import datetime
from typing import TYPE_CHECKING, Any

from walreplay.progress import Progress
from walreplay.report import RunReport
from walreplay.settings import Settings, make_settings
from walreplay.spark.job.apply import run_job
from walreplay.spark.job.moments import until_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def backfill(
    spark: SparkSession,
    captures: str | os.PathLike[str],
    target: str | os.PathLike[str],
    config: str | os.PathLike[str] | Mapping[str, Any] | Settings | None = None,
    *,
    until_lsn: str | int | None = None,
    until_time: str | datetime | None = None,
    run_bytes: int | None = None,
    progress: Progress | None = None,
) -> RunReport:
    """Bring the target's tables to what the source held at an LSN or at a time; without either, as far as `apply`.

    Whole transactions are applied, in commit order: all that commit in front of the first one that is too late.  Times
    need not rise with the commits, so a later transaction with an earlier time is not applied either.  Killed, the same
    call goes on where it was.  An `apply` goes on from there to the captures' end.

    Args:
        captures: the folder (or file, or glob) of the capture files.
        target: the folder of the Delta tables, a catalog, or ``catalog.schema``.
        config: a YAML file, the same as a mapping, or `Settings`.
        until_lsn: the last commit LSN that is wanted, such as ``16/B374D848``.
        until_time: the last commit time that is wanted; without a time zone it is UTC.
        run_bytes: bytes of captures that one run reads, in place of the configuration's.
        progress: told how far it is.

    Raises:
        ConfigError: both an LSN and a time are given, or one cannot be read.
        TargetError: the target is behind that end already.
        WalReplayError: as `apply` does.
    """
    settings = make_settings(config)
    if run_bytes is not None:
        settings = settings.with_run_bytes(run_bytes)
    return run_job(spark, captures, target, settings, progress, until_of(until_lsn, until_time))


__all__ = ["backfill"]
