"""The ledger's ``state`` table: one row with what a target has applied, and which run has the lock.

The lock (`walreplay.ledger.state`) is in this row.  A run takes it by a conditional change, so that Delta's
optimistic concurrency decides between two runs.  The write that ends a run releases it.  No write of the row succeeds
for a run that does not hold it.  In a target's first run the row exists, ``new``, before there is a plan.

Each change is one commit with a condition (`walreplay.writing.writer.OneRow`).
"""

from __future__ import annotations

import threading
import time
import uuid
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from pyspark.sql import Row

from walreplay.delta import statements as delta
from walreplay.delta.target import Target, ledger_errors
from walreplay.errors import TargetError
from walreplay.ledger import state as lock
from walreplay.ledger.runs import OF_STATE
from walreplay.ledger.state import APPLIED, FORMAT, NEW, SCHEMA, State, at_work, now, state_of, values_of
from walreplay.progress import log
from walreplay.session.isolation import has_own_sessions, own_session, settings
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
