"""The ledger of a target: what was read, what was applied, and where the next run starts.

It is a set of Delta tables beside the mirror.  ``state`` (`walreplay.spark.ledger.state_table`) has one row,
overwritten by every run.  A run begins by reading this row alone, so it costs the same after ten thousand other runs.
``runs``, ``files`` and ``relations`` are history: appended to, but never read to begin a run.

A run is first ``planned`` (its plan is in ``state``, some tables may have its commit), then ``applied``.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

from walreplay.errors import TargetError
from walreplay.lsn import to_datetime
from walreplay.report import RunReport
from walreplay.sink.lineage import RunId
from walreplay.sink.merge import TIMESTAMP
from walreplay.spark.delta import statements as delta
from walreplay.spark.delta.sql_types import sql_type
from walreplay.spark.delta.storage import ledger_errors
from walreplay.spark.delta.target import TableName, Target, quote
from walreplay.spark.ledger import lock
from walreplay.spark.ledger.state import APPLIED, PLANNED, Seen, State, now
from walreplay.spark.ledger.state_table import StateTable
from walreplay.spark.planning.registry import MirrorEntry
from walreplay.spark.session import steps
from walreplay.spark.session.isolation import own_session, session_with
from walreplay.spark.writing.base import TableWriter
from walreplay.transactions.plan import Plan

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


_TABLE: Final = pa.struct(
    [
        ("name", pa.string()),
        ("location", pa.string()),
        ("action", pa.string()),
        ("changes", pa.int64()),
        ("inserted", pa.int64()),
        ("updated", pa.int64()),
        ("deleted", pa.int64()),
        ("truncated", pa.bool_()),
        ("version", pa.int64()),
        ("oid", pa.int64()),
        ("set_aside", pa.bool_()),
        ("without_base", pa.int64()),
        ("deletes_without_row", pa.int64()),
        ("unknown", pa.int64()),
        ("notes", pa.list_(pa.string())),
        ("writer", pa.string()),
        ("writer_reason", pa.string()),
    ]
)
_RUNS: Final = pa.schema(
    [
        ("run", pa.int64()),
        ("started_at", TIMESTAMP),
        ("finished_at", TIMESTAMP),
        ("captures", pa.string()),
        ("files", pa.int64()),
        ("bytes", pa.int64()),
        ("transactions", pa.int64()),
        ("changes", pa.int64()),
        ("applied_lsn", pa.int64()),
        ("applied_commit_ts", TIMESTAMP),
        ("tables", pa.list_(_TABLE)),
        ("warnings", pa.list_(pa.string())),
        ("writer", pa.string()),
    ]
)
_FILES: Final = pa.schema(
    [
        ("run", pa.int64()),
        ("path", pa.string()),
        ("length", pa.int64()),
        ("fingerprint", pa.int64()),
        ("framing", pa.string()),
        ("start", pa.int64()),
        ("stop", pa.int64()),
    ]
)
_COLUMN: Final = pa.struct(
    [("name", pa.string()), ("type_oid", pa.int64()), ("typmod", pa.int64()), ("key", pa.bool_())],
)
_RELATIONS: Final = pa.schema(
    [
        ("run", pa.int64()),
        ("oid", pa.int64()),
        ("namespace", pa.string()),
        ("name", pa.string()),
        ("replica_identity", pa.string()),
        ("columns", pa.list_(_COLUMN)),
        ("changes", pa.list_(pa.string())),
    ]
)


def commit_of(state: State, name: str) -> delta.CommitId:
    """Give the commit of a run in one of the ledger's tables."""
    assert state.plan is not None
    return delta.CommitId(f"{state.ledger}/{name}", state.run, run_id(state.plan))


def run_id(plan: Plan) -> RunId | None:
    """Give what a plan's commits say about their run; None for a plan of an earlier version."""
    return RunId(plan.id, plan.upto_lsn, plan.resume.applied) if plan.id else None


def check_recorded(spark: SparkSession, table: TableName, commit: delta.CommitId, version: int | None) -> None:
    """Make sure that a table has a commit that was skipped because it seemed to be made already.

    Args:
        version: the version that the commit made; None if it was skipped.
    """
    if version is None and delta.find_commit(spark, table, commit, depth=delta.WHOLE_HISTORY) is None:
        raise TargetError(
            f"the ledger's table has what another run {commit.number} has recorded",
            path=table.text,
            remedy="The ledger was set back while this run was at work; run again",
        )


class Ledger:
    """The ledger of one target."""

    def __init__(self, spark: SparkSession, target: Target, writer: TableWriter) -> None:
        self._spark = own_session(spark)
        self._target = target
        self._writer = writer
        self._state = StateTable(spark, target, writer)

    @property
    def id(self) -> str:
        """The ledger's own id, once the lock is held."""
        return self._state.ledger

    def read(self) -> State | None:
        """Give the newest state; None if nothing was ever applied.

        Raises:
            TargetError: when a newer walreplay wrote it.
        """
        return self._state.read()

    @property
    def holder(self) -> lock.Holder | None:
        """Who held the lock when the state was read last."""
        return self._state.holder

    @property
    def turn(self) -> int:
        """Which of several places for what is not guarded is this run's own."""
        return self._state.turn

    def has_lock(self) -> bool:
        """Say whether this run still has the lock, as far as is known."""
        try:
            self._state.check_lock()
        except TargetError:
            return False
        return True

    def acquire(self) -> State | None:
        """Take the lock, and give the state under it: the one that was read, or a newer one.

        Raises:
            TargetError: when another run has it.
        """
        return self._state.acquire()

    def release(self) -> None:
        """Give the lock back if this run still has it."""
        self._state.release()

    def check_lock(self, *, sure: bool = False) -> None:
        """Refuse to continue if another run may have taken over.

        Args:
            sure: read the lock in any case, even if the last sign of life is recent.

        Raises:
            TargetError: when one has.
        """
        self._state.check_lock(sure=sure)

    def why_lost(self) -> TargetError | None:
        """Say whether another run has taken over; None if the lock is held, or was never taken."""
        return self._state.why_lost()

    @property
    def run_id(self) -> str:
        """The unique id of the run that has the lock."""
        return self._state.run_id

    @property
    def taken_over(self) -> str | None:
        """The id of the run that this one has taken the lock over from."""
        return self._state.taken_over

    @property
    def warnings(self) -> list[str]:
        """What `acquire` did that a person should know."""
        return self._state.warnings

    def write_plan(
        self,
        before: State | None,
        plan: Plan,
        run: int,
        *,
        source: str,
        captures: str,
        files: int,
        size: int,
        seen: Seen,
    ) -> State:
        """Write a run's plan to ``state``, before any of it is applied.

        Args:
            run: its number.
        """
        state = State(
            ledger=self.id,
            source=source,
            run=run,
            phase=PLANNED,
            started_at=now(),
            captures=captures,
            files=files,
            bytes=size,
            plan=plan,
            seen=seen,
            tables=before.tables if before else (),
        )
        self._state.write(state)
        return state

    def note_vacated(self, state: State) -> State:
        """Write to ``state`` that the tables which give way to others have left their places."""
        vacated = replace(state, vacated=True)
        self._state.write(vacated)
        return vacated

    def record_files(self, state: State, *, resumed: bool) -> None:
        """Record the files that a run reads.

        Args:
            resumed: the run was begun before: it may have recorded them already.
        """
        plan = state.plan
        assert plan is not None
        files = [
            (state.run, f.path, f.length, f.fingerprint, plan.resume.place.framing.value, f.start, f.stop)
            for f in plan.files
            if f.scanned
        ]
        self._append(state, "files", _FILES, files, resumed=resumed)

    def record(self, state: State, report: RunReport, tables: Sequence[MirrorEntry], *, resumed: bool) -> State:
        """Record a run as applied: first its history, then the state that ends it.  Its files are recorded already.

        Args:
            tables: what is known of all mirror tables now.
            resumed: the run was begun before: some of it may be recorded already.
        """
        plan = state.plan
        assert plan is not None
        ended = replace(
            state,
            phase=APPLIED,
            finished_at=now(),
            plan=None,
            vacated=False,
            resume=plan.resume,
            tables=tuple(sorted(tables, key=lambda entry: entry.oid)),
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
                        t.oid,
                        t.set_aside,
                        t.without_base,
                        t.deletes_without_row,
                        t.unknown,
                        list(t.notes),
                        t.writer,
                        t.writer_reason or None,
                    )
                    for t in report.tables
                ],
                list(report.warnings),
                report.writer,
            )
        ]
        # What a table's relation has changed in the table, with the version that the run has used last.
        notes = {table.name: list(table.notes) for table in report.tables}
        last = {r.qualified_name: r for r in plan.announced}
        relations = [
            (
                state.run,
                r.oid,
                r.namespace,
                r.name,
                r.replica_identity,
                [(c.name, c.type_oid, c.typmod, c.key) for c in r.columns],
                notes.get(r.qualified_name, []) if last[r.qualified_name] is r else [],
            )
            for r in plan.announced
        ]
        history = [("runs", _RUNS, run), ("relations", _RELATIONS, relations)]
        with ThreadPoolExecutor(len(history)) as pool:
            list(pool.map(lambda item: self._append(state, *item, resumed=resumed), history))
        steps.reached("history recorded")
        self._state.write(ended)
        return ended

    def _append(
        self, state: State, name: str, schema: pa.Schema, rows: Sequence[tuple[Any, ...]], *, resumed: bool
    ) -> None:
        if not rows:
            return
        commit = commit_of(state, name)
        table = self._target.ledger(name)
        with ledger_errors(table.text), session_with(self._spark, delta.FEW_ROWS) as spark:
            there = delta.columns_of(spark, table)
            create = there is None
            # If the run was interrupted here, the commit is there already, and Delta skips a second one.
            if create or not resumed or delta.find_commit(spark, table, commit) is None:
                _add_columns(spark, table, schema, dict(there or ()))
                append = self._writer.append(spark, table, schema, create=create)
                append.write_rows(rows, schema)
                check_recorded(spark, table, commit, append.commit(commit))


def _add_columns(spark: SparkSession, table: TableName, schema: pa.Schema, there: Mapping[str, str]) -> None:
    """Add the columns that a ledger table of an earlier version lacks, also those within lists of records.

    Args:
        there: the SQL types of those that it has; none if it has yet to be created.
    """
    if not there:
        return
    new = [f"{quote(field.name)} {sql_type(field.type)}" for field in schema if field.name not in there]
    for field in schema:
        if field.name in there and pa.types.is_list(field.type) and pa.types.is_struct(field.type.value_type):
            known = re.findall(r"(\w+):", there[field.name])
            new += [
                f"{quote(field.name)}.element.{quote(part.name)} {sql_type(part.type)}"
                for part in field.type.value_type
                if part.name not in known
            ]
    if new:
        spark.sql(f"ALTER TABLE {table.sql} ADD COLUMNS ({', '.join(new)})")


__all__ = ["APPLIED", "PLANNED", "Ledger", "Seen", "State"]
