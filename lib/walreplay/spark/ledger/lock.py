"""The lock of a target: one run at a time.

The ledger's ``state`` row names the holder of the lock.  Every write of the row is conditional on the holder, so that
Delta's own commit decides between two runs.  The holder gives a sign of life (a *beat*) every 30 s.  The next run takes
over from a holder that is dead:

- its process is gone (known only if it ran on this machine, since the last boot); or
- its last beat is older than the lease.

A holder that was only paused finds the lock lost when it wakes up: whatever it writes next is refused.
"""

from __future__ import annotations

import getpass
import json
import os
import socket
import threading
import uuid
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Final

LEASE: Final = timedelta(seconds=120)
"""A holder that has been silent for longer is dead."""

_TURNS: Final = 8

BEAT_SECONDS: Final = 30.0
"""How often a holder gives a sign of life; a run that is shorter gives none but its own writes."""

_held: set[str] = set()
"""The locks that runs of this process hold."""


@dataclass(frozen=True, slots=True)
class Holder:
    """A run that holds a target's lock, or held it.

    Attributes:
        process_start: in clock ticks since boot; None if the system does not tell.
        boot_id, pid_namespace: a process id is unique within these; None if the system has none.
        beat: its last sign of life.
        turn: which of several folders it uses for work that Delta does not guard; see `behind`.
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
    turn: int = 0

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

    def behind(self, before: Holder | None) -> Holder:
        """Give the holder that takes over from another one.

        The other one may only be paused, and continue.  Work that Delta does not guard must not be in the hands of
        both, so the new holder uses another `turn`.
        """
        return replace(self, turn=0 if before is None else (before.turn + 1) % _TURNS)

    def alive_now(self) -> Holder:
        """Give the holder with a beat of this moment."""
        return replace(self, beat=datetime.now(timezone.utc))

    def to_json(self) -> str:
        """Write it for the ledger."""
        return json.dumps(asdict(self) | {"since": self.since.isoformat(), "beat": self.beat.isoformat()})

    @classmethod
    def from_json(cls, text: str) -> Holder:
        """Read what `to_json` wrote."""
        values = json.loads(text)
        return cls(**values | {name: datetime.fromisoformat(values[name]) for name in ("since", "beat")})

    def __str__(self) -> str:
        since = self.since.isoformat(sep=" ", timespec="seconds")
        return f"{self.user} on {self.host} (process {self.pid}, since {since})"


def why_dead(holder: Holder, now: datetime) -> str | None:
    """Say why a holder counts as dead; None if it counts as alive."""
    if holder.id in _held:
        return None
    if _is_gone(holder):
        return "which is gone"
    # A beat in the future comes from a wrong clock, and must not hold the lock until then.
    if abs(now - holder.beat) > LEASE:
        return f"which gave no sign of life for more than {LEASE.total_seconds():.0f} s"
    return None


class Heartbeat:
    """Give signs of life in the background.

    Args:
        beat: gives one, and returns whether to continue.  After an error it is called again: the next may succeed.
    """

    def __init__(self, beat: Callable[[], bool]) -> None:
        self._beat = beat
        self._ended = threading.Event()
        threading.Thread(target=self._run, name="walreplay lock", daemon=True).start()

    def stop(self) -> None:
        """Stop; a beat that is being written may still arrive."""
        self._ended.set()

    def _run(self) -> None:
        more = True
        while more and not self._ended.wait(BEAT_SECONDS):
            with suppress(Exception):
                more = self._beat()


def hold(holder: Holder) -> None:
    """Note that a run of this process holds a lock."""
    _held.add(holder.id)


def let_go(holder: Holder) -> None:
    """Note that it does no longer."""
    _held.discard(holder.id)


# Processes, as Linux tells them


def _is_gone(holder: Holder) -> bool:
    """Say whether a holder's process is known to have ended."""
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
    return state in "ZX" or (holder.process_start is not None and start != holder.process_start)


def _is_there(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except OSError:  # it is there, and somebody else's
        return True
    return True


def _process(pid: int) -> tuple[str, int] | None:
    """Give a process's state and when it was started; None where the system does not tell."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return None
    # The program's name stands in brackets, and may hold some itself.
    fields = text.rpartition(")")[2].split()
    return fields[0], int(fields[19])


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
