"""The ledger: what was read, what was applied, and where the next run goes on.

Delta tables of its own beside the mirror.  ``state`` has one row, overwritten by every run; it alone is read to
begin one, so that a run costs the same after ten thousand others.  ``runs``, ``files`` and ``relations`` are
history: appended to, never read by a run.

A run's states: ``planned`` (its plan stands in ``state``, some tables may have its commit) and ``applied``.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, replace
from datetime import datetime, timezone
from typing import TYPE_CHECKING, Any, Final

from wal2delta.errors import TargetError
from wal2delta.lsn import format_lsn, to_datetime
from wal2delta.report import RunReport
from wal2delta.spark import delta
from wal2delta.spark.isolation import own_session, settings
from wal2delta.spark.target import Target
from wal2delta.transactions.plan import Plan, Resume
from wal2delta.transactions.stored import plan_from_json, plan_to_json, resume_from_json, resume_to_json

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PLANNED: Final = "planned"
APPLIED: Final = "applied"

FORMAT: Final = 1

_STATE: Final = (
    "format INT, ledger STRING, source STRING, run BIGINT, phase STRING, started_at TIMESTAMP, finished_at TIMESTAMP, "
    "captures STRING, files BIGINT, bytes BIGINT, plan STRING, resume STRING, seen STRING, tables ARRAY<STRING>"
)
_RUNS: Final = (
    "run BIGINT, started_at TIMESTAMP, finished_at TIMESTAMP, captures STRING, files BIGINT, bytes BIGINT, "
    "transactions BIGINT, changes BIGINT, applied_lsn BIGINT, applied_commit_ts TIMESTAMP, "
    "tables ARRAY<STRUCT<name: STRING, location: STRING, action: STRING, changes: BIGINT, inserted: BIGINT, "
    "updated: BIGINT, deleted: BIGINT, truncated: BOOLEAN, version: BIGINT>>, warnings ARRAY<STRING>"
)
_FILES: Final = "run BIGINT, path STRING, length BIGINT, fingerprint BIGINT, framing STRING, start BIGINT, stop BIGINT"
_RELATIONS: Final = (
    "run BIGINT, oid BIGINT, namespace STRING, name STRING, replica_identity STRING, "
    "columns ARRAY<STRUCT<name: STRING, type_oid: BIGINT, typmod: BIGINT, key: BOOLEAN>>"
)


@dataclass(frozen=True, slots=True)
class Seen:
    """The files up to a place in the listing's order, as a count and a sum over their paths.

    A file that appears among them later has come too late; it shows without their paths being kept.
    """

    count: int = 0
    total: int = 0


@dataclass(frozen=True, slots=True)
class State:
    """The one row of ``state``.

    Attributes:
        ledger: the ledger's own id.
        run: the newest run's number.
        plan: what it applies, while it is `PLANNED`.
        resume: where the run after it goes on, once it is `APPLIED`.
        tables: the mirror tables that were ever written to.
    """

    ledger: str
    source: str
    run: int
    phase: str
    started_at: datetime
    captures: str
    files: int = 0
    bytes: int = 0
    finished_at: datetime | None = None
    plan: Plan | None = None
    resume: Resume | None = None
    seen: Seen = Seen()
    tables: tuple[str, ...] = ()


def _now() -> datetime:
    return datetime.now(timezone.utc)


class Ledger:
    """The ledger of one target."""

    def __init__(self, spark: SparkSession, target: Target) -> None:
        self._spark = own_session(spark)
        self._target = target

    def read(self) -> State | None:
        """Give the newest state; None where nothing was ever applied.

        Raises:
            TargetError: when a newer wal2delta wrote it.
        """
        table = self._target.ledger("state")
        with settings(self._spark, delta.SMALL_STATE):
            if not delta.exists(self._spark, table):
                return None
            rows = delta.read(self._spark, table).collect()
        if not rows:
            return None
        row = rows[0]
        if row.format > FORMAT:
            raise TargetError(
                f"the ledger has the format {row.format}, this wal2delta knows {FORMAT}",
                path=table.text,
                remedy="Install a newer wal2delta",
            )
        return State(
            ledger=row.ledger,
            source=row.source,
            run=row.run,
            phase=row.phase,
            started_at=row.started_at.astimezone(timezone.utc),
            finished_at=None if row.finished_at is None else row.finished_at.astimezone(timezone.utc),
            captures=row.captures,
            files=row.files,
            bytes=row.bytes,
            plan=None if row.plan is None else plan_from_json(row.plan),
            resume=None if row.resume is None else resume_from_json(row.resume),
            seen=Seen(**json.loads(row.seen)),
            tables=tuple(row.tables),
        )

    def write_plan(
        self,
        before: State | None,
        plan: Plan,
        *,
        source: str,
        captures: str,
        files: int,
        size: int,
        seen: Seen,
    ) -> State:
        """Write a run's plan down, before anything of it is applied."""
        state = State(
            ledger=before.ledger if before else str(uuid.uuid4()),
            source=source,
            run=before.run + 1 if before else 1,
            phase=PLANNED,
            started_at=_now(),
            captures=captures,
            files=files,
            bytes=size,
            plan=plan,
            seen=seen,
            tables=before.tables if before else (),
        )
        self._write_state(state)
        return state

    def record(self, state: State, report: RunReport) -> State:
        """Record a run as applied: its history first, then the state that ends it."""
        plan = state.plan
        assert plan is not None
        ended = replace(
            state,
            phase=APPLIED,
            finished_at=_now(),
            plan=None,
            resume=plan.resume,
            tables=tuple(sorted({*state.tables, *(table.location for table in report.tables)})),
        )
        run = [
            (
                state.run,
                state.started_at,
                ended.finished_at,
                state.captures,
                state.files,
                state.bytes,
                report.transactions,
                report.changes,
                None if plan.upto_lsn < 0 else plan.upto_lsn,
                None if plan.upto_lsn < 0 else to_datetime(plan.upto_commit_time),
                [
                    (
                        t.name,
                        t.location,
                        t.action,
                        t.changes,
                        t.inserted,
                        t.updated,
                        t.deleted,
                        t.truncated,
                        t.version,
                    )
                    for t in report.tables
                ],
                list(report.warnings),
            )
        ]
        files = [
            (state.run, f.path, f.length, f.fingerprint, f.place.framing.value, f.start, f.stop) for f in plan.files
        ]
        relations = [
            (
                state.run,
                r.oid,
                r.namespace,
                r.name,
                r.replica_identity,
                [(c.name, c.type_oid, c.typmod, c.key) for c in r.columns],
            )
            for r in plan.announced
        ]
        history = [("runs", _RUNS, run), ("files", _FILES, files), ("relations", _RELATIONS, relations)]
        with ThreadPoolExecutor(len(history)) as pool:
            list(pool.map(lambda item: self._append(state, *item), history))
        self._write_state(ended)
        return ended

    def _append(self, state: State, name: str, schema: str, rows: Sequence[tuple[Any, ...]]) -> None:
        if not rows:
            return
        commit = delta.CommitId(f"{state.ledger}/{name}", state.run)
        spark, table = own_session(self._spark), self._target.ledger(name)
        with settings(spark, delta.SMALL_STATE):
            create = not delta.exists(spark, table)
            # A run that was interrupted here finds its own commit, and leaves it alone.
            if create or delta.find_commit(spark, table, commit) is None:
                frame = spark.createDataFrame(list(rows), schema).coalesce(1)
                delta.write(frame, table, "append", commit, create=create)

    def _write_state(self, state: State) -> None:
        row = (
            FORMAT,
            state.ledger,
            state.source,
            state.run,
            state.phase,
            state.started_at,
            state.finished_at,
            state.captures,
            state.files,
            state.bytes,
            None if state.plan is None else plan_to_json(state.plan),
            None if state.resume is None else resume_to_json(state.resume),
            json.dumps(asdict(state.seen)),
            list(state.tables),
        )
        with settings(self._spark, delta.SMALL_STATE):
            table = self._target.ledger("state")
            frame = self._spark.createDataFrame([row], _STATE).coalesce(1)
            delta.write(
                frame, table, "overwrite", create=state.phase == PLANNED and not delta.exists(self._spark, table)
            )


def describe(state: State) -> str:
    """Name a run for people."""
    lsn = f", up to {format_lsn(state.resume.place.last_lsn)}" if state.resume is not None else ""
    return f"run {state.run} ({state.phase}{lsn})"
