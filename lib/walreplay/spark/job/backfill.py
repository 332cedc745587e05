"""Backfill: make a target that holds what the source held at an LSN or at a time.

It is an ordinary run, or several, that end in front of the first transaction which commits too late: so the target's
ledger, its tables and its next nightly run are those of a target whose archive had ended there.  Of a target that is
there, a part of the tables is made by a rebuild (`walreplay.spark.job.rebuild`): all its tables stay at one LSN.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any

from walreplay.decode.until import Until
from walreplay.errors import ConfigError, TargetError
from walreplay.lsn import format_lsn
from walreplay.outputs import Output, output_of
from walreplay.progress import Progress
from walreplay.report import Forecast, RunReport
from walreplay.settings import Settings, make_settings
from walreplay.settings.narrowed import Narrowed, outputs_named, tables_named
from walreplay.spark.checks.places import check_places
from walreplay.spark.delta.storage import catalog_errors
from walreplay.spark.delta.target import Target
from walreplay.spark.job.apply import run_job
from walreplay.spark.job.context import RunContext
from walreplay.spark.job.forecasting import ForecastJob
from walreplay.spark.job.moments import first_lsn_of, until_of
from walreplay.spark.job.rebuild import rebuild
from walreplay.spark.ledger.ledger import Ledger
from walreplay.spark.ledger.state import State
from walreplay.spark.planning.registry import MirrorEntry
from walreplay.spark.session.failures import spark_errors
from walreplay.spark.writing.choice import choose_writer
from walreplay.transactions.plan import Resume

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
    table: str | None = None,
    outputs: Iterable[str | Output] | None = None,
    from_lsn: str | int | None = None,
    progress: Progress | None = None,
    metrics: str | os.PathLike[str] | None = None,
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
        table: a regular expression over the whole of ``schema.table``: the only tables that are wanted.  Of a target
            that has others, too, they are made as by `walreplay.rebuild`, at the LSN that it is at.
        outputs: what is made of each table, in place of the configuration's ``outputs``.
        from_lsn: changes of transactions with a lower commit LSN are left out; only of change logs.
        progress: told how far it is.
        metrics: see `apply`; of tables that are made again as by `walreplay.rebuild`, the ledger alone has them.

    Raises:
        ConfigError: both an LSN and a time are given, or one cannot be read; or mirrors are to begin at an LSN.
        TargetError: the target is behind that end already.
        WalReplayError: as `apply` does.
    """
    call = _call(spark, str(target), config, until_lsn, until_time, table, outputs, from_lsn)
    if call.rebuilds:
        named = call.narrowed.outputs
        return rebuild(spark, captures, target, table or ".*", outputs=named, config=call.settings, progress=progress)
    settings = call.settings.narrowed(call.narrowed)
    if call.until is not None and call.until.lsn is not None:
        _check_loaded(spark, call.until.lsn, Target.parse(str(target)).of_source(settings.ledger_name))
    return run_job(spark, captures, target, settings, progress, call.until, metrics=metrics)


def forecast(
    spark: SparkSession,
    captures: str | os.PathLike[str],
    target: str | os.PathLike[str],
    config: str | os.PathLike[str] | Mapping[str, Any] | Settings | None = None,
    *,
    until_lsn: str | int | None = None,
    until_time: str | datetime | None = None,
    table: str | None = None,
    outputs: Iterable[str | Output] | None = None,
    from_lsn: str | int | None = None,
    progress: Progress | None = None,
) -> Forecast:
    """Say what `backfill` (without an end: `apply`) would do, and write nothing.

    All files that it would read are scanned for that.

    Args:
        captures, target, config, until_lsn, until_time, table, outputs, from_lsn, progress: as `backfill` takes
            them.

    Raises:
        WalReplayError: what would stop it, as far as a scan shows it.
    """
    call = _call(spark, str(target), config, until_lsn, until_time, table, outputs, from_lsn)
    place, until = Target.parse(str(target)).of_source(call.settings.ledger_name), call.until
    if call.rebuilds and call.resume is not None:
        until = Until(lsn=call.resume.place.high_lsn)
    with spark_errors(path=place.text):
        check_places(str(captures), place)
        run = RunContext.of(spark, place, call.settings.narrowed(call.narrowed), progress)
        return ForecastJob(run, str(captures), until, anew=call.rebuilds).forecast()


@dataclass(frozen=True, slots=True)
class _Call:
    """What a call asks for.

    Attributes:
        rebuilds: the target has other tables: these are made again, as of where it is.
        resume: where that is.
    """

    settings: Settings
    narrowed: Narrowed
    until: Until | None
    rebuilds: bool = False
    resume: Resume | None = None


def _call(
    spark: SparkSession,
    target: str,
    config: str | os.PathLike[str] | Mapping[str, Any] | Settings | None,
    until_lsn: str | int | None,
    until_time: str | datetime | None,
    table: str | None,
    outputs: Iterable[str | Output] | None,
    from_lsn: str | int | None,
) -> _Call:
    """Read what is asked for, and look at what is there."""
    settings, until, first = make_settings(config), until_of(until_lsn, until_time), first_lsn_of(from_lsn)
    named = outputs_named(outputs)
    if named is not None:
        settings = settings.with_outputs(named)
    narrowed = Narrowed(None if table is None else tables_named(table), outputs=named, from_lsn=first)
    if first is not None:
        _check_first(first, until, settings)
    if table is None and named is None and first is None:
        return _Call(settings, narrowed, until)
    state = _state_of(spark, Target.parse(target).of_source(settings.ledger_name))
    others = _others(state, narrowed)
    if others and (until is not None or first is not None):
        raise TargetError(
            f"the target has other tables, too, such as {others[0].name}: a part of its tables is made at the LSN "
            "that it is at, as a whole",
            path=target,
            remedy="Leave out --until-lsn, --until-time and --from-lsn; or backfill a target of its own",
        )
    if first is not None:
        _check_begun(first, state, target)
    return _Call(settings, narrowed, until, bool(others), None if state is None else state.resume)


def _check_first(first: int, until: Until | None, settings: Settings) -> None:
    """Refuse to begin where nothing can be whole, or nothing is left."""
    if until is not None and until.lsn is not None and until.lsn < first:
        raise ConfigError(
            f"--from-lsn {format_lsn(first)} is behind --until-lsn {format_lsn(until.lsn)}",
            remedy="Exchange them",
        )
    if settings.makes_mirrors:
        raise ConfigError(
            "a mirror cannot begin in the middle: it would lack the rows from before",
            remedy="Give --output changelog; or begin a mirror with a base load (walreplay load, docs/starting.md)",
        )


def _state_of(spark: SparkSession, place: Target) -> State | None:
    with spark_errors(path=place.text), catalog_errors(place):
        return Ledger(spark, place, choose_writer(spark, place)).read()


def _check_loaded(spark: SparkSession, until: int, place: Target) -> None:
    """Refuse an end below the LSN that a table's loaded rows are as of."""
    state = _state_of(spark, place)
    entries = () if state is None else state.tables
    later = max(entries, key=lambda entry: entry.rows_at, default=None)
    if later is not None and later.rows_at > until:
        raise TargetError(
            f"the table was loaded with rows as of LSN {format_lsn(later.rows_at)}, which is behind the end that "
            f"is asked for, {format_lsn(until)}: the tables would be of two moments",
            table=later.name,
            path=place.text,
            remedy="Ask for that LSN or a later one; or backfill a target into which nothing was loaded",
        )


def _others(state: State | None, wanted: Narrowed) -> list[MirrorEntry]:
    """Give a target's tables that are not wanted: runs that leave them out would spoil them."""
    return [
        entry
        for entry in (() if state is None else state.tables)
        if not (wanted.wants(entry.source_name) and wanted.wants_output(output_of(entry.oid)))
    ]


def _check_begun(first: int, state: State | None, target: str) -> None:
    """Refuse to leave a hole in change logs that are there."""
    resume = None if state is None else state.resume
    if state is None or resume is None or not state.tables or resume.place.high_lsn >= first:
        return
    raise TargetError(
        f"the target's change logs go up to {format_lsn(resume.place.high_lsn)}: what commits between that and "
        f"{format_lsn(first)} would be missing in them",
        path=target,
        remedy="Leave out --from-lsn, or backfill a target of its own",
    )


__all__ = ["backfill", "forecast"]
