"""The ledger of a target: what was read, what was applied, and where the next run starts.

It is a set of Delta tables beside the mirror.  ``state`` (`walreplay.ledger.state_table`) has one row, overwritten by
every run.  A run begins by reading this row alone, so it costs the same after ten thousand other runs.  ``runs`` and
``files`` are history: appended to, but never read to begin a run.

A run is first ``planned`` (its plan is in ``state``, some tables may have its commit), then ``applied``.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from walreplay.delta import statements as delta
from walreplay.delta.target import TableName, Target, ledger_errors
from walreplay.errors import TargetError
from walreplay.ledger import state as lock
from walreplay.ledger.runs import FILES, OF_HISTORY, RUNS, Rows, metrics_of, run_row
from walreplay.ledger.state import APPLIED as APPLIED
from walreplay.ledger.state import LOADING as LOADING
from walreplay.ledger.state import PLANNED as PLANNED
from walreplay.ledger.state import REBUILDING as REBUILDING
from walreplay.ledger.state import Load as Load
from walreplay.ledger.state import Rebuild, now
from walreplay.ledger.state import SeenFiles as SeenFiles
from walreplay.ledger.state import State as State
from walreplay.ledger.state import run_id as run_id
from walreplay.ledger.state_table import StateTable
from walreplay.lsn import format_lsn
from walreplay.progress import log
from walreplay.protocol.messages import Relation
from walreplay.report import RunReport
from walreplay.session import steps
from walreplay.session.isolation import own_session, session_with
from walreplay.session.naming import jobs_named
from walreplay.stream.plan import Plan
from walreplay.table.registry import MirrorEntry
from walreplay.writing.writer import TableWriter

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def commit_of(state: State, name: str) -> delta.CommitId:
    """Return the commit of a run in one of the ledger's tables."""
    return delta.CommitId(f"{state.ledger}/{name}", state.run, state.run_id)


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
    """The ledger of one target.

    Args:
        loads: whoever reads it finishes base loads; all others are refused while one is interrupted.

    Attributes:
        recorded: the metrics of the run that was recorded last.
    """

    def __init__(self, spark: SparkSession, target: Target, writer: TableWriter, *, loads: bool = False) -> None:
        self._loads = loads
        self._spark = own_session(spark)
        self._target = target
        self._writer = writer
        self._state = StateTable(spark, target, writer)
        self.recorded: Rows = ()

    @property
    def id(self) -> str:
        """The ledger's own id, once the lock is held."""
        return self._state.ledger

    def read(self) -> State | None:
        """Return the newest state; None if nothing was ever applied.

        Raises:
            TargetError: when a newer walreplay wrote it, or a base load is interrupted.
        """
        return self._unless_loading(self._state.read())

    def _unless_loading(self, state: State | None) -> State | None:
        """Refuse a state that a base load has left in the middle of its work, or has at this moment."""
        holder = self._state.holder
        at_work = holder is not None and lock.why_dead(holder, now()) is None
        if state is not None and state.load is not None and not self._loads and not at_work:
            raise self.interrupted(state.load)
        return state

    def interrupted(self, load: Load) -> TargetError:
        """Return the error for a base load that was interrupted."""
        given_up = "; or forget it: walreplay load --give-up" if not load.writing else ""
        return TargetError(
            f"a base load of {load.names} as of LSN {format_lsn(load.at_lsn)} was interrupted, or has failed",
            path=self._target.text,
            remedy="Run walreplay load again for these tables and this LSN: it finishes them, and apply goes on"
            + given_up,
        )

    @property
    def holder(self) -> lock.Holder | None:
        """Who held the lock when the state was read last."""
        return self._state.holder

    @property
    def turn(self) -> int:
        """Which of several places for what is not guarded is this run's own."""
        return self._state.turn

    def has_lock(self) -> bool:
        """Return whether this run still has the lock, as far as is known."""
        try:
            self._state.check_lock()
        except TargetError:
            return False
        return True

    def acquire(self) -> State | None:
        """Take the lock, and return the state under it: the one that was read, or a newer one.

        Raises:
            TargetError: when another run has it, or a base load is interrupted.
        """
        state = self._state.acquire()
        if state is not None and state.load is not None and not self._loads:
            # It was at work when the ledger was read, and was killed since.
            self._state.release()
            raise self.interrupted(state.load)
        return state

    def release(self) -> None:
        """Release the lock if this run still has it."""
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
        """Return whether another run has taken over; None if the lock is held, or was never taken."""
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
        seen: SeenFiles,
        places: Sequence[str] = (),
    ) -> State:
        """Write a run's plan to ``state``, before any of it is applied.

        Args:
            run: its number.
            places: see `State`.
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
            places=tuple(places),
        )
        self._state.write(state)
        return state

    def write_load(
        self,
        before: State | None,
        load: Load,
        run: int,
        *,
        source: str,
        files: int,
        size: int,
        places: Sequence[str] = (),
    ) -> State:
        """Write a base load to ``state``: before any of its rows is read, and again before any reaches a table.

        Where the next run starts stays as it is.

        Args:
            run: its number.
            places: see `State`.
        """
        state = State(
            ledger=self.id,
            source=source,
            run=run,
            phase=LOADING,
            started_at=now(),
            captures=before.captures if before else "",
            files=files,
            bytes=size,
            resume=before.resume if before else None,
            seen=before.seen if before else SeenFiles(),
            tables=before.tables if before else (),
            places=tuple(places),
            load=load,
        )
        self._state.write(state)
        return state

    def note_writing(self, state: State) -> State:
        """Write to ``state`` that from now on tables may have the base load's commit."""
        assert state.load is not None
        writing = replace(state, load=replace(state.load, writing=True))
        self._state.write(writing)
        return writing

    def give_up_load(self, state: State) -> State:
        """Forget a base load of which no table has anything, and release the lock."""
        assert state.load is not None
        assert not state.load.writing
        ended = state.ended(state.tables)
        self._state.write(ended)
        return ended

    def write_rebuild(self, before: State, rebuild: Rebuild, run: int, *, places: Sequence[str] = ()) -> State:
        """Write what tables are made again of to ``state``, before any of them has it.

        Args:
            run: its number.
            places: see `State`.
        """
        state = replace(before, run=run, phase=REBUILDING, started_at=now(), finished_at=None, files=0, bytes=0)
        state = replace(state, rebuild=rebuild, load=None, places=tuple(places))
        self._state.write(state)
        return state

    def take_places(self, state: State, places: Sequence[str]) -> State:
        """Write to ``state`` that an interrupted run takes other places than it has begun with."""
        taken = replace(state, places=tuple(places))
        self._state.write(taken)
        return taken

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
        self._append(state, "files", FILES, files, resumed=resumed)

    def record(self, state: State, report: RunReport, tables: Sequence[MirrorEntry], *, resumed: bool) -> State:
        """Record a run as applied: first its history, then the state that ends it.  Its files are recorded already.

        Args:
            tables: what is known of all mirror tables now.
            resumed: the run was begun before: some of it may be recorded already.
        """
        plan = state.plan
        assert plan is not None
        reached = (plan.upto_lsn, plan.upto_commit_time)
        ended = replace(state, resume=plan.resume)
        return self._record(ended, report, tables, plan.announced, reached, resumed=resumed)

    def record_load(
        self,
        state: State,
        report: RunReport,
        tables: Sequence[MirrorEntry],
        relations: Sequence[Relation],
        *,
        resumed: bool,
    ) -> State:
        """Record a base load, or a rebuild, as ended; see `record`.

        Args:
            relations: of the tables that were loaded.
        """
        place = None if state.resume is None else state.resume.place
        reached = (-1, 0) if place is None else (place.high_lsn, place.high_commit_time)
        return self._record(state, report, tables, relations, reached, resumed=resumed)

    def _record(
        self,
        state: State,
        report: RunReport,
        tables: Sequence[MirrorEntry],
        announced: Sequence[Relation],
        reached: tuple[int, int],
        *,
        resumed: bool,
    ) -> State:
        ended = state.ended(tables)
        waiting = ended.resume.open_transactions if ended.resume is not None else ()
        assert ended.finished_at is not None
        self.recorded = metrics_of(report, state, ended.finished_at, [item.lsn for item in waiting])
        row = run_row(state, ended, report, reached, self.recorded[0], announced)
        self._append(state, "runs", RUNS, [row], resumed=resumed)
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
        with (
            ledger_errors(table.text),
            jobs_named(self._spark, f"record {name}"),
            session_with(self._spark, delta.FEW_ROWS) as spark,
        ):
            create = not delta.exists(spark, table)
            # If the run was interrupted here, the commit is there already, and Delta skips a second one.
            if create or not resumed or delta.find_commit(spark, table, commit) is None:
                append = self._writer.append(spark, table, schema, create=create, properties=OF_HISTORY)
                append.write_rows(rows, schema)
                version = append.commit(commit)
                check_recorded(spark, table, commit, version)
                log("commit", table=table.text, run=state.run, version=version, rows=len(rows))
