"""Backfill: make a target that holds what the source held at an LSN or at a time.

It is an ordinary run, or several, that end in front of the first transaction which commits too late: so the target's
ledger, its tables and its next nightly run are those of a target whose archive had ended there.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from datetime import datetime, timedelta, timezone
from typing import TYPE_CHECKING, Any

from walreplay.decode.until import Until
from walreplay.errors import ConfigError
from walreplay.lsn import POSTGRES_EPOCH, parse_lsn
from walreplay.progress import Progress
from walreplay.report import RunReport
from walreplay.settings import Settings, make_settings
from walreplay.spark.job.apply import run_job

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


def until_of(lsn: str | int | None, time: str | datetime | None) -> Until | None:
    """Read the end that is asked for; None if there is none.

    Raises:
        ConfigError: there are two, or it cannot be read.
    """
    if lsn is not None and time is not None:
        raise ConfigError(
            "an LSN and a time are given as the end", remedy="Give one of them: --until-lsn or --until-time"
        )
    if lsn is not None:
        try:
            return Until(lsn=parse_lsn(lsn) if isinstance(lsn, str) else lsn)
        except ValueError as error:
            raise ConfigError(f"--until-lsn: {error}") from None
    return None if time is None else Until(time=_micros(time))


def _micros(time: str | datetime) -> int:
    """Give a time in microseconds since 2000-01-01 UTC."""
    try:
        moment = datetime.fromisoformat(time.strip().replace("Z", "+00:00")) if isinstance(time, str) else time
        zoned = moment if moment.tzinfo is not None else moment.replace(tzinfo=timezone.utc)
        return (zoned - POSTGRES_EPOCH) // timedelta(microseconds=1)
    except (ValueError, OverflowError):
        raise ConfigError(
            f"--until-time: not a time: {time!s}", remedy="Write it like 2026-03-01T00:00:00+00:00"
        ) from None


__all__ = ["backfill", "until_of"]
