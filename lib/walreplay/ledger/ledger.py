"""The ledger of a target: what was read, what was applied, and where the next run starts.

It is a set of Delta tables beside the mirror.  ``state`` has one row, with what a target has applied, and which run has
the lock.  A run begins by reading this row alone, so it costs the same after ten thousand other runs.  The others are
history: appended to (`append_once`), but never read to begin a run.

A run is first ``planned`` (its plan is in ``state``, some tables may have its commit), then ``applied``.

Each change of the row is one commit with a condition (`walreplay.writing.by_statements.OneRow`): that of the lock, see
`walreplay.ledger.state`.  The write that ends a run releases the lock.
"""

from __future__ import annotations

import json
import threading
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

from walreplay.delta import statements as delta
from walreplay.delta.opened import FEW_COMMITS, OpenedTable
from walreplay.delta.statements import TableDefinition
from walreplay.delta.target import Target, ledger_errors
from walreplay.errors import TargetError
from walreplay.ledger import state as lock
from walreplay.ledger.runs import FILES, OF_APPENDED, OF_STATE, RUNS, Rows, metrics_of, run_row
from walreplay.ledger.state import APPLIED, FORMAT, NEW, SCHEMA, Load, State, at_work, now, state_of, values_of
from walreplay.lsn import format_lsn
from walreplay.progress import log
from walreplay.protocol.messages import Relation
from walreplay.report import RunReport
from walreplay.session import steps
from walreplay.session.isolation import has_own_sessions, own_session, session_with, settings
from walreplay.session.naming import jobs_named
from walreplay.table.certainty import Ending
from walreplay.table.registry import MirrorEntry
from walreplay.writing.by_statements import Append, TableWriter

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


_SETTINGS: Final = delta.FEW_ROWS_REWRITTEN
_ATTEMPTS: Final = 5  # times that the lock is tried for, if others change the row in between
_A_MOMENT: Final = 0.5  # seconds; another run's new table comes into the catalog meanwhile


@dataclass(frozen=True, slots=True)
class _Stored:
    """What is known of the table ``state``.

    Attributes:
        exists: it is there.
        row: None when it has no row; of the phase ``new`` while no run has written a plan.
    """

    exists: bool
    row: State | None = None
    holder: lock.Holder | None = None

    @property
    def state(self) -> State | None:
        """The newest state; None where nothing was ever applied."""
        return None if self.row is None or self.row.phase == NEW else self.row


@dataclass(frozen=True, slots=True)
class LedgerTable:
    """A table of the ledger that runs append to, and the properties that it is created with."""

    name: str
    schema: pa.Schema
    properties: Mapping[str, str] = field(default_factory=lambda: OF_APPENDED)


class Ledger:
    """The ledger of one target.

    Args:
        loads: whoever reads it finishes base loads; all others are refused while one is interrupted.

    Attributes:
        warnings: what `acquire` did that a person should know.
        taken_over: the id of the run that this one has taken the lock over from.
        recorded: the metrics of the run that was recorded last.
    """

    def __init__(self, spark: SparkSession, target: Target, writer: TableWriter, *, loads: bool = False) -> None:
        self._loads = loads
        self._spark = own_session(spark)
        self._target = target
        self._writer = writer
        self._table = target.ledger("state")
        self._row = writer.one_row(self._spark, TableDefinition(self._table, SCHEMA, OF_STATE))
        self._stored: _Stored | None = None
        # The lock, while this run has it; its beats and the run's own writes must not get in each other's way.
        self._mine: lock.Holder | None = None
        self._lost = False
        self._heartbeat: lock.Heartbeat | None = None
        self._writing = threading.RLock()
        self.taken_over: str | None = None
        self.warnings: list[str] = []
        self.recorded: Rows = ()

    @property
    def holder(self) -> lock.Holder | None:
        """Who held the lock when the state was read last."""
        return None if self._stored is None else self._stored.holder

    @property
    def id(self) -> str:
        """The ledger's own id, once the lock is held."""
        return "" if self._stored is None or self._stored.row is None else self._stored.row.ledger

    @property
    def holder_id(self) -> str:
        """The unique id of the run that has the lock."""
        assert self._mine is not None, "the lock comes first"
        return self._mine.id

    def read(self) -> State | None:
        """Return the newest state; None if nothing was ever applied.

        Raises:
            TargetError: when another walreplay wrote it, or a base load is interrupted.
        """
        with settings(self._spark, delta.FEW_ROWS):
            self._stored = stored = self._read()
        load = None if stored.state is None else stored.state.load
        at_work = stored.holder is not None and lock.why_dead(stored.holder, now()) is None
        if load is not None and not self._loads and not at_work:  # a load that is at work is not interrupted
            raise self.interrupted(load)
        return stored.state

    def interrupted(self, load: Load) -> TargetError:
        """Return the error for a base load that was interrupted."""
        # Once tables may have its commit, it can only be finished.
        given_up = "; or forget it: walreplay load --replace, without rows" if not load.writing else ""
        return TargetError(
            f"a base load of {load.names} as of LSN {format_lsn(load.at_lsn)} was interrupted, or has failed",
            path=self._target.text,
            remedy="Run walreplay load again for these tables and this LSN: it finishes them, and apply goes on"
            + given_up,
        )

    def _read(self) -> _Stored:
        with ledger_errors(self._table.text):
            if not self._row.exists():
                return _Stored(exists=False)
            values = self._row.read()
            if values is None:
                return _Stored(exists=True)
            if values["format"] != FORMAT:
                raise TargetError(
                    f"the ledger has the format {values['format']}, this walreplay knows {FORMAT}",
                    path=self._table.text,
                    remedy="Use the walreplay that wrote it; or apply the captures to a new target",
                )
            holder = lock.from_json(lock.Holder, values["holder"]) if values["holder"] else None
            return _Stored(True, state_of(values, self._target), holder)

    # The lock

    def acquire(self) -> State | None:
        """Take the lock, and return the state under it: the very one that was read, or what has come in between.

        Raises:
            TargetError: when another run has it, or a base load is interrupted.
        """
        if self._stored is None:
            with settings(self._spark, delta.FEW_ROWS):
                self._stored = self._read()
        if self._mine is None:
            self._mine = lock.Holder.here()
            # From here on: if this is interrupted, it is unknown whether the lock was taken.
            lock.HERE.add(self._mine.id)
            try:
                with settings(self._spark, _SETTINGS):
                    self._acquire(self._mine)
            except BaseException:
                self.release()
                raise
            self._lost = False
            self._heartbeat = lock.Heartbeat(self._beat)
        assert self._stored is not None
        state = self._stored.state
        if state is not None and state.load is not None and not self._loads:
            # It was at work when the ledger was read, and was killed since.
            self.release()
            raise self.interrupted(state.load)
        return state

    def _acquire(self, mine: lock.Holder) -> None:
        for attempt in range(_ATTEMPTS):
            before = self._stored
            assert before is not None
            if before.holder is not None and lock.why_dead(before.holder, now()) is None:
                # It may have ended since the state was read.
                before = self._read()
            warnings = self._take_over(before)
            self._mine = mine
            row = before.row or State(str(uuid.uuid4()), source="", run=0, started_at=now(), captures="")
            failure: Exception | None = None
            try:
                is_taken = self._take(before, row, mine)
            except Exception as error:
                # Delta refuses one of two writers with various errors; the row shows whether this was one.
                failure, is_taken = error, False
            self._stored = _Stored(True, row, mine) if is_taken else self._read()
            if self._stored.holder == mine:  # also where only the answer was lost
                self.warnings += warnings
                log("lock taken", table=self._table.text, holder=mine.id)
                self.taken_over = None if before.holder is None else before.holder.id
                return
            if failure is None or self._stored != before:  # the row has changed: try again
                continue
            # Another run may be creating the table: committed already, but not yet in the catalog.
            if before.row is not None or attempt == _ATTEMPTS - 1:
                raise failure
            time.sleep(_A_MOMENT)
        problem = "its lock could not be taken, as others change it all the time"
        raise TargetError(problem, path=self._target.text, remedy="Run again later")

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

    def _take(self, before: _Stored, row: State, mine: lock.Holder) -> bool:
        """Try to take the lock, and return whether the row was still unchanged.

        Args:
            row: the table's, or what is to be its first; if two runs try to make that, Delta lets one succeed.
        """
        if before.row is None:
            return self._row.create(values_of(row, mine, self._target), exists=before.exists)
        unchanged = _Held(before.holder, silent=True, of={"run": row.run, "phase": row.phase, "noted": row.noted})
        return self._row.change({"holder": lock.to_json(mine)}, unchanged)

    def release(self) -> None:
        """Release the lock if this run has it.  A failure here must not hide why the run has ended."""
        with self._writing:
            mine = self._mine
            if mine is not None and not self._lost:
                with suppress(Exception), settings(self._spark, _SETTINGS):
                    self._row.change({"holder": None}, _Held(mine))
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

    def has_lock(self) -> bool:
        """Return whether this run still has the lock, as far as is known."""
        with suppress(TargetError):
            self.check_lock()
            return True
        return False

    def why_lost(self) -> TargetError | None:
        """Return whether another run has taken over; None if the lock is held, or was never taken."""
        with suppress(Exception):
            self.check_lock(sure=True)
        return self._lost_error() if self._lost else None

    def write(self, state: State) -> State:
        """Write a state, and return it; the write that ends a run releases the lock.

        Raises:
            TargetError: when another run has taken over.
        """
        with self._writing, settings(self._spark, _SETTINGS):
            assert self._mine is not None, "the lock comes first"
            holder = None if state.phase == APPLIED else self._mine.alive_now()  # the last write frees the lock
            mine = self._mine
            values = values_of(state, holder, self._target)
            self._change_as_holder(lambda: self._row.change(values, _Held(mine)), holder)
            if self._lost:
                raise self._lost_error()
            self._stored = _Stored(True, state, holder)
            log("state written", table=self._table.text, run=state.run, phase=state.phase)
            if holder is None:
                self._let_go()
        return state

    def _beat(self) -> bool:
        """Write a sign of life, and return whether there should be more."""
        with self._writing:
            if self._mine is None or self._lost:
                return False
            alive = self._mine.alive_now()
            # A session that is shared stays as it is, since other statements run in it at this very time.
            with settings(self._spark, _SETTINGS if has_own_sessions(self._spark) else {}):
                self._change_as_holder(lambda: self._row.change({"holder": lock.to_json(alive)}, _Held(alive)), alive)
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
            holder = self._read().holder
            if holder is not None and holder.id == mine.id and holder != after:  # nothing was written, the lock is held
                raise
            self._lost = holder != after  # equal: it was written, and only the answer was lost
        if not self._lost and after is not None:
            self._mine = after

    def _let_go(self) -> None:
        if self._heartbeat is not None:
            self._heartbeat.stop()
        if self._mine is not None:
            lock.HERE.discard(self._mine.id)
        self._heartbeat = self._mine = None

    def _lost_error(self) -> TargetError:
        return TargetError(
            "this run gave no sign of life for too long, and another has taken over",
            path=self._target.text,
            remedy="Run again when that one has ended; whatever either has applied counts once",
        )

    # What a run writes

    def begin(self, before: State | None, run: int, places: Sequence[str] = (), **work: Any) -> State:
        """Write down what a run does, before any table has its commit, and without anything of an interrupted run.

        Args:
            run: its number.
            places: see `State`.
            work: fields of `State`: its plan, load or rebuild, and what else it changes.
        """
        state = before or State(self.id, source="", run=0, started_at=now(), captures="")
        begun = replace(state.ended(state.tables), run=run, started_at=now(), finished_at=None, files=0, bytes=0)
        return self.write(replace(begun, places=tuple(places), **work))

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
            if f.scanned  # others hold parts of transactions that were open before
        ]
        self._record(state, LedgerTable("files", FILES), files, resumed=resumed)

    def record(
        self,
        state: State,
        report: RunReport,
        tables: Sequence[MirrorEntry],
        relations: Sequence[Relation] = (),
        *,
        resumed: bool,
    ) -> State:
        """Record a run as ended: first its history, then the state that ends it.  Its files are recorded already.

        Args:
            tables: what is known of all mirror tables now.
            relations: of the tables that were loaded; a plan has those of its own.
            resumed: the run was begun before: some of it may be recorded already.
        """
        reached = state.reached
        if state.plan is not None:
            plan, relations = state.plan, state.plan.announced
            reached, state = (plan.upto_lsn, plan.upto_commit_time), replace(state, resume=plan.resume)
        since, load = reached[0] if state.plan is None else state.plan.after_lsn, state.load
        loaded = {} if load is None else dict.fromkeys(load.oids, load.at_lsn)
        ending = Ending(since, reached[0], report.tables, relations, loaded)
        ended = state.ended(ending.noted(state.tables, tables))
        waiting = ended.resume.open_transactions if ended.resume is not None else ()
        assert ended.finished_at is not None
        self.recorded = metrics_of(report, state, ended.finished_at, [item.lsn for item in waiting])
        row = run_row(state, ended, report, reached, self.recorded[0], relations)
        self._record(state, LedgerTable("runs", RUNS), [row], resumed=resumed)
        steps.reached("runs written")
        return self.write(ended)

    def _record(self, state: State, table: LedgerTable, rows: Sequence[tuple[Any, ...]], *, resumed: bool) -> None:
        ledger = self._spark, self._target, self._writer, state
        if rows:
            append_once(*ledger, table, lambda _, append: append.write_rows(rows), resumed=resumed)


def append_once(
    spark: SparkSession,
    target: Target,
    writer: TableWriter,
    state: State,
    table: LedgerTable,
    write: Callable[[SparkSession, Append], None],
    conf: Mapping[str, str] = delta.FEW_ROWS,
    *,
    resumed: bool,
) -> None:
    """Append to one of the ledger's tables, in one commit of the run that is made once.

    Args:
        write: writes the rows, in a session with the settings ``conf``.
        resumed: the run was begun before: the table may have the commit.

    Raises:
        TargetError: another run has made a commit of the same number.
    """
    commit = delta.CommitId(f"{state.ledger}/{table.name}", state.run, state.run_id)
    name = target.ledger(table.name)
    # What makes a commit the run's own is a setting of the session.
    with ledger_errors(name.text), jobs_named(spark, f"record {table.name}"), session_with(spark, conf) as session:
        create = not delta.exists(session, name)
        if resumed and not create and OpenedTable(session, name).find(commit, FEW_COMMITS) is not None:
            return
        append = writer.begin_append(session, TableDefinition(name, table.schema, table.properties), create=create)
        write(session, append)
        version = append.commit(commit)
        # A commit is skipped if it seems to be made already.
        if version is None and OpenedTable(session, name).find(commit) is None:
            raise TargetError(
                f"the ledger's table has what another run {commit.number} has recorded",
                path=name.text,
                remedy="The ledger was set back while this run was at work; run again",
            )
        log("commit", table=name.text, run=state.run, version=version)


@dataclass(frozen=True, slots=True)
class _Held:
    """The condition that a run holds the lock (None: that nobody does).

    Attributes:
        silent: it has been silent since.
        of: what else the row has, by its columns.
    """

    holder: lock.Holder | None
    silent: bool = False
    of: Mapping[str, int | str] = field(default_factory=dict)

    def is_in(self, row: Mapping[str, Any]) -> bool:
        """Return whether a known row meets the condition."""
        if any(row[name] != value for name, value in self.of.items()):
            return False
        row_holder = None if row["holder"] is None else lock.from_json(lock.Holder, row["holder"])
        if row_holder is None or self.holder is None:
            return row_holder is self.holder  # both None: nobody has the lock
        return row_holder.id == self.holder.id and (not self.silent or row_holder.beat == self.holder.beat)

    def sql(self, row: str = "") -> str:
        """Return the condition for a statement, in which the row has a name, with a dot behind it."""
        terms = [f"{row}{name} = {value!r}" for name, value in self.of.items()]
        if self.holder is None:
            return " AND ".join([*terms, f"{row}holder IS NULL"])
        # UUID() lets nothing else come into the SQL.
        terms.append(f"get_json_object({row}holder, '$.id') = '{uuid.UUID(self.holder.id)}'")
        if self.silent:
            beat = json.loads(lock.to_json(self.holder))["beat"]  # as the row has it
            terms.append(f"get_json_object({row}holder, '$.beat') = '{beat}'")
        return " AND ".join(terms)
