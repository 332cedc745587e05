"""What a target holds, by its ledger."""

from __future__ import annotations

import os
from dataclasses import dataclass
from datetime import datetime, timezone
from typing import TYPE_CHECKING, Final

from wal2delta.errors import TargetError
from wal2delta.lsn import to_datetime
from wal2delta.spark import delta
from wal2delta.spark.isolation import own_session, quiet_queries, settings
from wal2delta.spark.ledger import PLANNED, Ledger
from wal2delta.spark.target import Target

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_RUNS_SHOWN: Final = 20


@dataclass(frozen=True, slots=True)
class RunStatus:
    """One run: ``applied``, or ``planned`` while it goes on (or since it was interrupted)."""

    run: int
    state: str
    started_at: datetime
    finished_at: datetime | None
    applied_lsn: int | None
    files: int
    transactions: int | None
    changes: int | None
    tables: int | None


@dataclass(frozen=True, slots=True)
class OpenTransaction:
    """A transaction that began in the captures and has not ended there yet.

    Attributes:
        began_at_file, offset: where its Begin stands.
        bytes: from there to the captures' end.
    """

    xid: int
    final_lsn: int
    began_at_file: str
    offset: int
    bytes: int


@dataclass(frozen=True, slots=True)
class TargetStatus:
    """What a target holds: everything committed up to ``applied_lsn``; its newest runs come last."""

    target: str
    applied_lsn: int | None
    applied_commit_ts: datetime | None
    runs: tuple[RunStatus, ...]
    open_transactions: tuple[OpenTransaction, ...]


def status(spark: SparkSession, target: str | os.PathLike[str]) -> TargetStatus:
    """Read a target's ledger.

    Raises:
        TargetError: when there is none.
    """
    place = Target.parse(str(target))
    own = own_session(spark)
    with quiet_queries(), settings(own, delta.SMALL_STATE):
        state = Ledger(spark, place).read()
        if state is None:
            raise TargetError(
                "nothing was applied to this target yet",
                path=place.text,
                remedy="Check --target; begin with apply",
            )
        runs: list[RunStatus] = []
        table = place.ledger("runs")
        if delta.exists(own, table):
            newest = delta.read(own, table).orderBy("run", ascending=False).limit(_RUNS_SHOWN).collect()
            runs = [
                RunStatus(
                    run=row.run,
                    state="applied",
                    started_at=row.started_at.astimezone(timezone.utc),
                    finished_at=row.finished_at.astimezone(timezone.utc),
                    applied_lsn=row.applied_lsn,
                    files=row.files,
                    transactions=row.transactions,
                    changes=row.changes,
                    tables=len(row.tables),
                )
                for row in reversed(newest)
            ]
        resume = state.resume
        applied = runs[-1].applied_lsn if runs else None
        applied_ts = None
        if state.phase == PLANNED:
            runs = [run for run in runs if run.run != state.run]
            runs.append(RunStatus(state.run, PLANNED, state.started_at, None, None, state.files, None, None, None))
        open_: tuple[OpenTransaction, ...] = ()
        if resume is not None:
            applied = resume.place.last_lsn if resume.place.last_lsn >= 0 else None
            applied_ts = to_datetime(resume.place.last_commit_time) if applied is not None else None
            if resume.open_transaction is not None:
                xid, lsn = resume.open_transaction
                open_ = (OpenTransaction(xid, lsn, resume.path, resume.offset, resume.open_bytes),)
    return TargetStatus(place.text, applied, applied_ts, tuple(runs), open_)
