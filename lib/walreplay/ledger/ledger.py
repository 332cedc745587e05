"""The ledger of a target: what was read, what was applied, and where the next run starts.

It is a set of Delta tables beside the mirror.  ``state`` (`walreplay.ledger.ledger`) has one row, overwritten by
every run.  A run begins by reading this row alone, so it costs the same after ten thousand other runs.  ``runs`` and
``files`` are history: appended to, but never read to begin a run.

A run is first ``planned`` (its plan is in ``state``, some tables may have its commit), then ``applied``.

The ledger's ``state`` table: one row with what a target has applied, and which run has the lock.

The lock (`walreplay.ledger.state`) is in this row.  A run takes it by a conditional change, so that Delta's
optimistic concurrency decides between two runs.  The write that ends a run releases it.  No write of the row succeeds
for a run that does not hold it.  In a target's first run the row exists, ``new``, before there is a plan.

Each change is one commit with a condition (`walreplay.writing.writer.OneRow`).
"""

from __future__ import annotations

import threading
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
from pyspark.sql import Row

from walreplay.delta import statements as delta
from walreplay.delta.target import TableName, Target, ledger_errors
from walreplay.errors import TargetError
from walreplay.ledger import state as lock
from walreplay.ledger.runs import FILES, OF_HISTORY, OF_STATE, RUNS, Rows, metrics_of, run_row
from walreplay.ledger.state import APPLIED as APPLIED
from walreplay.ledger.state import FORMAT, NEW, SCHEMA, Rebuild, at_work, now, state_of, values_of
from walreplay.ledger.state import LOADING as LOADING
from walreplay.ledger.state import PLANNED as PLANNED
from walreplay.ledger.state import REBUILDING as REBUILDING
from walreplay.ledger.state import Load as Load
from walreplay.ledger.state import SeenFiles as SeenFiles
from walreplay.ledger.state import State as State
from walreplay.ledger.state import run_id as run_id
from walreplay.lsn import format_lsn
from walreplay.progress import log
from walreplay.protocol.messages import Relation
from walreplay.report import RunReport
from walreplay.session import steps
from walreplay.session.isolation import has_own_sessions, own_session, session_with, settings
from walreplay.session.naming import jobs_named
from walreplay.stream.plan import Plan
from walreplay.table.registry import MirrorEntry
from walreplay.writing.writer import TableWriter

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


_SETTINGS: Final = delta.FEW_ROWS_REWRITTEN
_ATTEMPTS: Final = 5
"""How often the lock is tried for, when others change the row in between."""
_A_MOMENT: Final = 0.5


@dataclass(frozen=True, slots=True)
class _Stored:
    """What is known of the table ``state``.

    Attributes:
        exists: it is there; the rest is its row's.
        phase: None when it has no row.
        state: None while no run has written a plan.
        locks: it has the column for the lock.
        ledger: the ledger's id.
    """

    exists: bool
    run: int = 0
    phase: str | None = None
    state: State | None = None
    holder: lock.Holder | None = None
    locks: bool = True
    ledger: str = ""


class StateTable:
    """The table ``state`` of a target's ledger.

    Attributes:
        warnings: what `acquire` did that a person should know.
    """

    def __init__(self, spark: SparkSession, target: Target, writer: TableWriter) -> None:
        self._spark = own_session(spark)
        self._target = target
        self._table = target.ledger("state")
        self._row = writer.one_row(self._spark, self._table, SCHEMA, properties=OF_STATE)
        self._stored: _Stored | None = None
        self._begun = ""
        self._taken_over: str | None = None
        # The lock, while this run has it; its beats and the run's own writes must not get in each other's way.
        self._mine: lock.Holder | None = None
        self._lost = False
        self._heartbeat: lock.Heartbeat | None = None
        self._writing = threading.RLock()
        self.warnings: list[str] = []

    @property
    def holder(self) -> lock.Holder | None:
        """Who held the lock when the state was read last."""
        return None if self._stored is None else self._stored.holder

    @property
    def ledger(self) -> str:
        """The ledger's own id, once there is a row."""
        return "" if self._stored is None else self._stored.ledger

    @property
    def turn(self) -> int:
        """Which of several places for what is not guarded is this run's own; see `lock.Holder`."""
        return 0 if self._mine is None else self._mine.turn

    @property
    def run_id(self) -> str:
        """The id of the run that has the lock, by which nothing else is called."""
        assert self._mine is not None, "the lock comes first"
        return self._mine.id

    @property
    def taken_over(self) -> str | None:
        """The id of the run that this one has taken the lock over from."""
        return self._taken_over

    def read(self) -> State | None:
        """Return the newest state; None where nothing was ever applied.

        Raises:
            TargetError: when a newer walreplay wrote it.
        """
        with settings(self._spark, delta.FEW_ROWS):
            self._stored = self._read()
        return self._stored.state

    def _read(self) -> _Stored:
        with ledger_errors(self._table.text):
            return self._read_row()

    def _read_row(self) -> _Stored:
        if not self._row.exists():
            return _Stored(exists=False)
        values = self._row.read()
        if values is None:
            return _Stored(exists=True)
        row = Row(**values)
        if row.format > FORMAT:
            raise TargetError(
                f"the ledger has the format {row.format}, this walreplay knows {FORMAT}",
                path=self._table.text,
                remedy="Install a newer walreplay",
            )
        if row.format < FORMAT:
            raise TargetError(
                f"the ledger has the format {row.format}, of a version that was never released",
                path=self._table.text,
                remedy="Apply the captures to a new target",
            )
        return _Stored(
            exists=True,
            run=row.run,
            phase=row.phase,
            state=None if row.phase == NEW else state_of(row, self._target),
            holder=lock.Holder.from_json(values["holder"]) if values.get("holder") else None,
            locks="holder" in values,
            ledger=row.ledger,
        )

    # The lock

    def acquire(self) -> State | None:
        """Take the lock, and return the state under it: the very one that was read, or what has come in between.

        Raises:
            TargetError: when another run has it.
        """
        if self._stored is None:
            self.read()
        if self._mine is None:
            self._mine = lock.Holder.here()
            # From here on: if this is interrupted, it is unknown whether the lock was taken.
            lock.hold(self._mine)
            try:
                with settings(self._spark, _SETTINGS):
                    self._acquire(self._mine)
            except BaseException:
                self.release()
                raise
            self._lost = False
            self._heartbeat = lock.Heartbeat(self._beat)
        assert self._stored is not None
        return self._stored.state

    def _acquire(self, mine: lock.Holder) -> None:
        for attempt in range(_ATTEMPTS):
            before = self._stored
            assert before is not None
            if before.holder is not None and lock.why_dead(before.holder, now()) is None:
                # It may have ended since the state was read.
                before = self._read()
            warnings = self._take_over(before)
            self._mine = mine = mine.behind(before.holder)
            failure: Exception | None = None
            try:
                taken = self._take(before, mine)
            except Exception as error:
                # Delta refuses one of two writers with various errors; the row shows whether this was one.
                failure, taken = error, False
            if taken:
                ledger = before.ledger or self._begun
                self._stored = _Stored(True, before.run, before.phase or NEW, before.state, mine, ledger=ledger)
            else:
                self._stored = self._read()
            if self._stored.holder == mine:
                self.warnings += warnings
                log("lock taken", table=self._table.text, holder=mine.id)
                self._taken_over = None if before.holder is None else before.holder.id
                return
            if failure is None or self._stored != before:
                continue
            # Another run may be creating the table: committed already, but not yet in the catalog.
            if before.phase is not None or attempt == _ATTEMPTS - 1:
                raise failure
            time.sleep(_A_MOMENT)
        raise TargetError(
            "its lock could not be taken, as others change it all the time",
            path=self._target.text,
            remedy="Run again later",
        )

    def _take_over(self, stored: _Stored) -> list[str]:
        """Return the warning that a dead holder was found.

        Raises:
            TargetError: when it is alive.
        """
        holder, moment = stored.holder, now()
        if holder is None:
            return []
        dead = lock.why_dead(holder, moment)
        if dead is not None:
            when = holder.beat.isoformat(sep=" ", timespec="seconds")
            return [f"took over from {holder}, {dead}; its last sign of life was at {when}"]
        silent = max(0.0, (moment - holder.beat).total_seconds())
        raise TargetError(
            f"run {at_work(stored.state)} is at work on it: {holder}, last sign of life {silent:.0f} s ago",
            path=self._target.text,
            remedy="Run again when it has ended; if that process is dead, a run takes over from it by itself "
            f"{lock.LEASE.total_seconds():.0f} s after its last sign of life",
        )

    def _take(self, before: _Stored, mine: lock.Holder) -> bool:
        """Try to take the lock, and return whether the row was still unchanged."""
        if before.phase is None:
            return self._begin(mine, exists=before.exists)
        if not before.locks:
            self._spark.sql(f"ALTER TABLE {self._table.sql} ADD COLUMNS (holder STRING)")
        unchanged = _Held(before.holder, silent=True, of=(before.run, before.phase))
        return self._row.change({"holder": mine.to_json()}, unchanged)

    def _begin(self, mine: lock.Holder, *, exists: bool) -> bool:
        """Create the first row, with the lock taken; if two runs try, Delta lets one succeed."""
        self._begun = str(uuid.uuid4())
        state = State(ledger=self._begun, source="", run=0, phase=NEW, started_at=now(), captures="")
        return self._row.create(values_of(state, mine, self._target), exists=exists)

    def release(self) -> None:
        """Release the lock if this run has it.  A failure here must not hide why the run has ended."""
        with self._writing:
            mine = self._mine
            if mine is not None and not self._lost:
                with suppress(Exception), settings(self._spark, _SETTINGS):
                    self._hand_to(None, mine)
            self._let_go()

    def check_lock(self, *, sure: bool = False) -> None:
        """Refuse to continue if another run may have taken over; costs nothing while the last beat is recent.

        Args:
            sure: write a beat now, which shows it in any case.

        Raises:
            TargetError: when one has.
        """
        with self._writing:
            # This process may have been paused.
            if self._mine is not None and (sure or now() - self._mine.beat > lock.LEASE / 2):
                self._beat()
            if self._lost:
                raise self._lost_error()

    def why_lost(self) -> TargetError | None:
        """Return whether another run has taken over; None if the lock is held, or was never taken."""
        with suppress(Exception):
            self.check_lock(sure=True)
        return self._lost_error() if self._lost else None

    def write(self, state: State) -> None:
        """Write the row; the write that ends a run releases the lock.

        Raises:
            TargetError: when another run has taken over.
        """
        with self._writing, settings(self._spark, _SETTINGS):
            assert self._mine is not None, "the lock comes first"
            holder = None if state.phase == APPLIED else self._mine.alive_now()
            mine = self._mine
            self._change_as_holder(lambda: self._write_all(state, holder, mine), holder)
            if self._lost:
                raise self._lost_error()
            self._stored = _Stored(True, state.run, state.phase, state, holder, ledger=state.ledger)
            log("state written", table=self._table.text, run=state.run, phase=state.phase)
            if holder is None:
                self._let_go()

    def _beat(self) -> bool:
        """Write a sign of life, and return whether there should be more."""
        with self._writing:
            if self._mine is None or self._lost:
                return False
            alive = self._mine.alive_now()
            # A session that is shared stays as it is, since other statements run in it at this very time.
            with settings(self._spark, _SETTINGS if has_own_sessions(self._spark) else {}):
                self._change_as_holder(lambda: self._hand_to(alive, alive), alive)
            return not self._lost

    def _change_as_holder(self, change: Callable[[], bool], after: lock.Holder | None) -> None:
        """Change the row on the condition that the lock is held; note if it is not.

        Args:
            after: the holder after the change.
        """
        mine = self._mine
        assert mine is not None
        try:
            self._lost = self._lost or not change()
        except Exception:
            found = self._read().holder
            if found is not None and found.id == mine.id and found != after:
                raise
            self._lost = found != after
        if not self._lost and after is not None:
            self._mine = after

    def _write_all(self, state: State, holder: lock.Holder | None, mine: lock.Holder) -> bool:
        """Write the whole row if this run holds the lock, and return whether it did."""
        return self._row.change(values_of(state, holder, self._target), _Held(mine))

    def _hand_to(self, holder: lock.Holder | None, mine: lock.Holder) -> bool:
        """Change only the holder if this run holds the lock, and return whether it did."""
        return self._row.change({"holder": None if holder is None else holder.to_json()}, _Held(mine))

    def _let_go(self) -> None:
        if self._heartbeat is not None:
            self._heartbeat.stop()
        if self._mine is not None:
            lock.let_go(self._mine)
        self._heartbeat = self._mine = None

    def _lost_error(self) -> TargetError:
        return TargetError(
            "this run gave no sign of life for too long, and another has taken over",
            path=self._target.text,
            remedy="Run again when that one has ended; whatever either has applied counts once",
        )


@dataclass(frozen=True, slots=True)
class _Held:
    """The condition that a run holds the lock (None: that nobody does).

    Attributes:
        silent: it has been silent since.
        of: the run and the phase that the row is of, where that matters.
    """

    holder: lock.Holder | None
    silent: bool = False
    of: tuple[int, str | None] | None = None

    def is_in(self, row: Mapping[str, Any]) -> bool:
        """Return whether a known row meets the condition."""
        if self.of is not None and (row["run"], row["phase"]) != self.of:
            return False
        found = None if row["holder"] is None else lock.Holder.from_json(row["holder"])
        if found is None or self.holder is None:
            return found is self.holder
        return found.id == self.holder.id and (not self.silent or found.beat == self.holder.beat)

    def sql(self, row: str = "") -> str:
        """Return the condition for a statement, in which the row has a name, with a dot behind it."""
        terms = [] if self.of is None else [f"{row}run = {self.of[0]}", f"{row}phase = '{self.of[1]}'"]
        if self.holder is None:
            return " AND ".join([*terms, f"{row}holder IS NULL"])
        terms.append(f"get_json_object({row}holder, '$.id') = '{uuid.UUID(self.holder.id)}'")
        if self.silent:
            terms.append(f"get_json_object({row}holder, '$.beat') = '{self.holder.beat.isoformat()}'")
        return " AND ".join(terms)


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
        given_up = "; or forget it: walreplay load --replace, without rows" if not load.writing else ""
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
