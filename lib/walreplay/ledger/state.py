"""The content of the ledger's one ``state`` row: what a target has applied, the plan of a run, and the lock.

One run at a time: the row names the holder of the lock.  Every write of the row is conditional on the holder, so that
Delta's own commit decides between two runs.  The holder gives a sign of life (a *beat*) every 30 s.  The next run takes
over from a holder that is dead:

- its process is gone (known only if it ran on this machine, since the last boot); or
- its last beat is older than the lease.

A holder that was only paused finds the lock lost when it wakes up: whatever it writes next is refused.

Plans are in the row as JSON.  `State` has all of it.
"""

from __future__ import annotations

import getpass
import os
import socket
import threading
import uuid
from collections.abc import Callable, Hashable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import datetime, timedelta, timezone
from functools import cache
from pathlib import Path
from typing import Any, Final, Generic, TypeVar

import pyarrow as pa
from pydantic import ConfigDict, RootModel

from walreplay.decode.change_batch import TIMESTAMP
from walreplay.delta.commits import RunId
from walreplay.delta.target import TableName, Target
from walreplay.errors import TargetError, listed
from walreplay.loading.formats import CopiedFiles
from walreplay.stream.plan import Plan, Resume
from walreplay.table.registry import MirrorEntry

LEASE: Final = timedelta(seconds=120)  # A holder that has been silent for longer is dead

BEAT_SECONDS: Final = 30.0  # How often a holder writes a sign of life; a shorter run writes none besides its states

HERE: Final[set[str]] = set()  # Ids of the holders that are runs of this process


@dataclass(frozen=True, slots=True)
class Holder:
    """A run that holds a target's lock, or held it.

    Attributes:
        process_start: in clock ticks since boot; None if the system does not know.
        boot_id, pid_namespace: a process id is unique within these; None if the system has none.
        beat: its last sign of life.
    """

    id: str
    host: str
    user: str
    pid: int
    process_start: int | None
    boot_id: str | None
    pid_namespace: str | None
    since: datetime
    beat: datetime

    @classmethod
    def here(cls) -> Holder:
        """Describe a run of this process that begins now."""
        now, pid = datetime.now(timezone.utc), os.getpid()
        process = _process(pid)
        return cls(
            id=str(uuid.uuid4()),
            host=socket.gethostname(),
            user=_user(),
            pid=pid,
            process_start=None if process is None else process[1],
            boot_id=_boot_id(),
            pid_namespace=_pid_namespace(),
            since=now,
            beat=now,
        )

    def alive_now(self) -> Holder:
        """Return the holder with a beat of this moment."""
        return replace(self, beat=datetime.now(timezone.utc))

    def __str__(self) -> str:
        since = self.since.isoformat(sep=" ", timespec="seconds")
        return f"{self.user} on {self.host} (process {self.pid}, since {since})"


def why_dead(holder: Holder, now: datetime) -> str | None:
    """Return why a holder counts as dead; None if it counts as alive."""
    # A run of this process is alive, whatever its beats say.
    if holder.id in HERE:
        return None
    if _is_gone(holder):
        return "which is gone"
    # A beat in the future comes from a wrong clock, and must not hold the lock until then.
    if abs(now - holder.beat) > LEASE:
        return f"which gave no sign of life for more than {LEASE.total_seconds():.0f} s"
    return None


class Heartbeat:
    """Writes signs of life in the background.

    Args:
        beat: writes one, and returns whether to continue.  After an error it is called again: the next may succeed.
    """

    def __init__(self, beat: Callable[[], bool]) -> None:
        self._beat = beat
        self._ended = threading.Event()
        threading.Thread(target=self._run, name="walreplay lock", daemon=True).start()

    def stop(self) -> None:
        """Stop; a beat that is being written may still arrive."""
        self._ended.set()

    def _run(self) -> None:
        continues = True
        while continues and not self._ended.wait(BEAT_SECONDS):
            with suppress(Exception):  # the next beat may succeed
                continues = self._beat()


# Processes, as Linux tells them


def _is_gone(holder: Holder) -> bool:
    """Return whether a holder's process is known to have ended."""
    here = (socket.gethostname(), _boot_id(), _pid_namespace())
    # A process id of another machine, or from before the last boot, means nothing here.
    if None in here or here != (holder.host, holder.boot_id, holder.pid_namespace):
        return False
    if holder.pid == os.getpid():
        return True  # were it this very process, it would know
    if not _is_there(holder.pid):
        return True
    process = _process(holder.pid)
    if process is None:  # of somebody else, and hidden
        return False
    state, start = process
    # A zombie, or dead; or a later process has got the same id.
    return state in "ZX" or (holder.process_start is not None and start != holder.process_start)


def _is_there(pid: int) -> bool:
    try:
        os.kill(pid, 0)  # signal 0 only asks whether there is such a process
    except OSError as error:  # any other one: it is there, and somebody else's
        return not isinstance(error, ProcessLookupError)
    return True


def _process(pid: int) -> tuple[str, int] | None:
    """Return a process's state and start time (clock ticks since boot); None if the system has neither."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return None
    # The program's name stands in brackets, and may hold some itself.
    fields = text.rpartition(")")[2].split()
    return fields[0], int(fields[19])  # fields 3 and 22 of proc(5)


def _boot_id() -> str | None:
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip() or None
    except OSError:
        return None


def _pid_namespace() -> str | None:
    try:
        return str(Path("/proc/self/ns/pid").readlink())
    except OSError:
        return None


def _user() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):  # a container's user may have no name
        return str(os.getuid()) if hasattr(os, "getuid") else "unknown"


_Record = TypeVar("_Record")


class _Json(RootModel[_Record], Generic[_Record]):
    """A record of the ledger; bytes are written in base64, because JSON has none."""

    model_config = ConfigDict(ser_json_bytes="base64", val_json_bytes="base64")


def to_json(record: object) -> str:
    """Write one of the ledger's records."""
    return str(_json(type(record))(record).model_dump_json())  # type: ignore[arg-type]


def from_json(kind: type[_Record], text: str) -> _Record:
    """Read what `to_json` wrote of a record of a kind."""
    record: _Record = _json(kind).model_validate_json(text).root  # type: ignore[arg-type]
    return record


@cache  # pydantic itself keeps a model only as long as somebody has it, and a plan's takes 30 ms to make
def _json(kind: Hashable) -> Any:
    return _Json.__class_getitem__(kind)  # type: ignore[arg-type]


# The row

NEW: Final = "new"
PLANNED: Final = "planned"
APPLIED: Final = "applied"
LOADING: Final = "loading"
REBUILDING: Final = "rebuilding"

WORK: Final[Mapping[str, str]] = {PLANNED: "plan", LOADING: "load", REBUILDING: "rebuild"}
"""The phases of a run that is at work, or was interrupted, each with the field of `State` that has what the run does.

It is written before any table has the run's commit, so that the next run can finish it.  All have one column, ``plan``.
"""

FORMAT: Final = 2  # Any other is refused

SCHEMA: Final = pa.schema(
    [
        ("format", pa.int32()),
        ("ledger", pa.string()),
        ("source", pa.string()),
        ("run", pa.int64()),
        ("phase", pa.string()),
        ("started_at", TIMESTAMP),
        ("finished_at", TIMESTAMP),
        ("captures", pa.string()),
        ("files", pa.int64()),
        ("bytes", pa.int64()),
        ("plan", pa.string()),
        ("resume", pa.string()),
        ("seen", pa.string()),
        ("tables", pa.list_(pa.string())),
        ("places", pa.list_(pa.string())),
        ("vacated", pa.bool_()),
        ("awaiting", pa.string()),
        ("noted", pa.int64()),
        ("holder", pa.string()),
    ]
)


@dataclass(frozen=True, slots=True)
class Load:
    """What a base load brings to tables.

    Attributes:
        id: unique, given when the load is written down; its commits carry it.
        at_lsn: the last commit LSN that is among the rows.
        tables: the oid and the name of each.
        origin: where the rows come from.
        after: the commit LSN up to which captures had been applied before it; -1 for none.
        top: when the rows' versions begin in a history, in microseconds since 1970-01-01 UTC.
        files: None where the rows are not in files, and cannot be read once more.
        writing: some tables may have its commit; before that, rows are only read.
        late: captures behind its LSN were applied, so the tables were made again, beginning with it.
    """

    id: str
    at_lsn: int
    tables: tuple[tuple[int, str], ...]
    origin: str
    after: int = -1
    top: int = 0
    files: CopiedFiles | None = None
    writing: bool = False
    late: bool = False

    def as_first(self) -> Load:
        """Return the load as if it came before all captures."""
        return replace(self, after=-1, top=0, late=True)

    @property
    def names(self) -> str:
        """The tables, for an error."""
        return listed([name for _, name in self.tables])

    @property
    def oids(self) -> frozenset[int]:
        """The tables' relations."""
        return frozenset(oid for oid, _ in self.tables)


@dataclass(frozen=True, slots=True)
class Replacement:
    """A table that gets other rows in place of its own.

    Attributes:
        source: the table that has them.
        entry: what the ledger is to know of it; its version and the run's id are not known yet.
        rows: how many.
    """

    source: TableName
    entry: MirrorEntry
    rows: int


@dataclass(frozen=True, slots=True)
class Rebuild:
    """What a rebuild brings to tables.

    Attributes:
        id: unique, given when it is written down; its commits carry it.
        side: the name of the side target that has the rows (`Target.side`).
        load: the base load that the rows begin with, if this is one.
    """

    id: str
    side: str
    tables: tuple[Replacement, ...]
    load: Load | None = None

    def placed(self, place: Callable[[TableName], TableName]) -> Rebuild:
        """Return it with other names of its tables: in the ledger they are relative to the target."""
        tables = (replace(table, source=place(table.source), entry=placed(table.entry, place)) for table in self.tables)
        return replace(self, tables=tuple(tables))


def placed(entry: MirrorEntry, place: Callable[[TableName], TableName]) -> MirrorEntry:
    """Return an entry with another name of its table."""
    return replace(entry, table=place(entry.table))


@dataclass(frozen=True, slots=True)
class State:
    """The one row of ``state``.

    Attributes:
        ledger: the ledger's own id.
        run: the newest run's number.
        plan, load, rebuild: what the run does, one of them by its phase (`WORK`).
        resume: where the next run starts, once it is `APPLIED`.
        seen: a hash of the names and lengths of all files that were read: who appears among them later is too late.
        tables: what is known of all mirror tables that were ever written to.
        places: the places, as the ledger has them, that the run at work takes for its tables, and that no other source
            of the same target may take.
        vacated: tables whose places others take have been moved away.
        awaiting: the side target with rows of the source that wait for captures to be compared; empty for none.
        noted: how often comparisons have changed the row, which have no run's number.
    """

    ledger: str
    source: str
    run: int
    started_at: datetime
    captures: str
    files: int = 0
    bytes: int = 0
    finished_at: datetime | None = None
    plan: Plan | None = None
    resume: Resume | None = None
    seen: str = ""
    tables: tuple[MirrorEntry, ...] = ()
    places: tuple[str, ...] = ()
    vacated: bool = False
    awaiting: str = ""
    noted: int = 0
    load: Load | None = None
    rebuild: Rebuild | None = None

    def is_of(self, source: str) -> bool:
        """Return whether the target is made from a source; one to which nothing has come yet may be of any."""
        is_empty = self.plan is None and self.resume is None and not self.tables
        is_same = self.source.removeprefix("file:") == source.removeprefix("file:")  # a path, or its URI
        return is_same or (is_empty and not (self.load is not None and self.load.writing))

    def check_source(self, source: str, path: str, remedy: str) -> None:
        """Refuse to work on the target with another source's captures.

        Raises:
            TargetError: it is made from another source; with the target's path, and the remedy.
        """
        if not self.is_of(source):
            problem = f"the target was made from the source {self.source!r}, not {source!r}"
            raise TargetError(problem, path=path, remedy=remedy)

    @property
    def phase(self) -> str:
        """How far the newest run has come."""
        works = (phase for phase, name in WORK.items() if getattr(self, name) is not None)
        return next(works, APPLIED if self.run else NEW)

    @property
    def reached(self) -> tuple[int, int]:
        """Commit LSN and time of the last transaction that is applied; an LSN of -1 for none."""
        place = None if self.resume is None else self.resume.place
        return (-1, 0) if place is None else (place.high_lsn, place.high_commit_time)

    @property
    def run_id(self) -> RunId:
        """What the commits of the run at work say of it."""
        beside = self.load or self.rebuild  # such a run has an id of its own, and no plan
        if beside is not None:
            return RunId(beside.id, self.reached[0], 0 if self.resume is None else self.resume.applied)
        assert self.plan is not None
        return run_id(self.plan)

    def ended(self, tables: Sequence[MirrorEntry]) -> State:
        """Return the state behind the run at work, which has left these tables."""
        return replace(
            self,
            finished_at=now(),
            plan=None,
            load=None,
            rebuild=None,
            places=(),
            vacated=False,
            tables=tuple(sorted(tables, key=lambda entry: entry.oid)),
        )


def run_id(plan: Plan) -> RunId:
    """Return what a plan's commits say about their run."""
    return RunId(plan.id, plan.upto_lsn, plan.resume.applied)


def now() -> datetime:
    """Return this moment."""
    return datetime.now(timezone.utc)


# Columns of the row that are fields of `State` as they are.
_AS_THEY_ARE: Final = ("ledger", "source", "run", "captures", "files", "bytes", "seen", "vacated", "awaiting", "noted")


def values_of(state: State, holder: Holder | None, target: Target) -> dict[str, Any]:
    """Return the row's values by their columns, in these columns' order."""
    rebuild = state.rebuild and state.rebuild.placed(target.relative)
    work = state.plan or state.load or rebuild  # there is one of them at the most
    values = {name: getattr(state, name) for name in (*_AS_THEY_ARE, "phase", "started_at", "finished_at")} | {
        "format": FORMAT,
        "plan": work and to_json(work),
        "resume": state.resume and to_json(state.resume),
        "tables": [to_json(placed(entry, target.relative)) for entry in state.tables],
        "places": list(state.places),
        "holder": holder and to_json(holder),
    }
    return {name: values[name] for name in SCHEMA.names}


def state_of(row: Mapping[str, Any], target: Target) -> State:
    """Read a row."""
    plan, resume, phase, ended = row["plan"], row["resume"], row["phase"], row["finished_at"]
    return State(
        **{name: row[name] for name in _AS_THEY_ARE},
        started_at=row["started_at"].astimezone(timezone.utc),
        finished_at=None if ended is None else ended.astimezone(timezone.utc),
        plan=from_json(Plan, plan) if phase == PLANNED else None,
        load=from_json(Load, plan) if phase == LOADING else None,
        rebuild=from_json(Rebuild, plan).placed(target.absolute) if phase == REBUILDING else None,
        resume=None if resume is None else from_json(Resume, resume),
        tables=tuple(placed(from_json(MirrorEntry, text), target.absolute) for text in row["tables"]),
        places=tuple(row["places"]),
    )


def at_work(state: State | None) -> int:
    """Return the number of the run that has the lock."""
    if state is None:
        return 1
    # A run gets its number when it writes its plan.
    return state.run if state.phase in WORK else state.run + 1
