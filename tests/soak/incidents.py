"""What goes wrong in a leg; each of these ends with all at work again."""

from __future__ import annotations

import os
import random
import signal
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Final

import psycopg

from soak.stand import Stand
from support.recording import SLOT


def _kill_recorder(stand: Stand, _: random.Random) -> str:
    stand.recorder.kill()
    stand.recorder.start()
    return ""


def _end_recorder(stand: Stand, _: random.Random) -> str:
    code = stand.recorder.end(120)
    # One that is only starting has no answer to the signal yet.
    assert code in (0, 1, -signal.SIGTERM), stand.recorder.said()
    stand.recorder.start()
    return f"exit code {code}"


def _pause_recorder(stand: Stand, chance: random.Random) -> str:
    seconds = chance.choice((0.5, 7.0))  # also for longer than the server waits
    stand.recorder.signal(signal.SIGSTOP)
    time.sleep(seconds)
    stand.recorder.signal(signal.SIGCONT)
    return f"{seconds} s"


def _end_walsenders(stand: Stand, _: random.Random) -> str:
    stand.server.execute("SELECT pg_terminate_backend(active_pid) FROM pg_replication_slots WHERE active")
    return ""


def _pause_walsender(stand: Stand, chance: random.Random) -> str:
    seconds = chance.choice((0.5, 6.0))
    query = "SELECT active_pid FROM pg_replication_slots WHERE slot_name = %s AND active"
    processes = [process for (process,) in stand.server.rows(query, SLOT)]
    for number in (signal.SIGSTOP, signal.SIGCONT):
        for process in processes:
            with suppress(ProcessLookupError):
                os.kill(process, number)
        if number == signal.SIGSTOP:
            time.sleep(seconds)
    return f"{seconds} s"


def _crash_server(stand: Stand, chance: random.Random) -> str:
    stand.server.stop("immediate")
    time.sleep(chance.choice((0.0, 3.0)))
    stand.server.start()
    return ""


def _restart_server(stand: Stand, chance: random.Random) -> str:
    stand.server.stop("fast")  # it waits for what is stored
    stand.server.start()
    return ""


def _crash_subscriber(stand: Stand, _: random.Random) -> str:
    stand.subscriber.stop("immediate")
    stand.subscriber.start()
    return ""


def _cut(stand: Stand, chance: random.Random) -> str:
    name = chance.choice(("recorder", "subscriber"))
    link = stand.recorder_link if name == "recorder" else stand.oracle_link
    seconds = chance.choice((0.0, 2.0, 8.0))
    link.cut()
    time.sleep(seconds)
    link.restore()
    return f"{name}'s, {seconds} s"


def _silence(stand: Stand, chance: random.Random) -> str:
    name = chance.choice(("recorder", "recorder", "subscriber"))
    link = stand.recorder_link if name == "recorder" else stand.oracle_link
    seconds = chance.choice((1.0, 8.0))
    link.silence()
    time.sleep(seconds)
    link.restore()
    return f"{name}'s, {seconds} s"


def _store_away(stand: Stand, chance: random.Random) -> str:
    if stand.proxy is None:
        return "there is no store"
    seconds = chance.choice((1.0, 5.0, 12.0))
    stand.proxy.is_away = True
    time.sleep(seconds)
    stand.proxy.is_away = False
    return f"{seconds} s"


def _store_lies(stand: Stand, _: random.Random) -> str:
    if stand.proxy is None:
        return "there is no store"
    stand.proxy.lies = True
    time.sleep(3)
    stand.proxy.lies = False
    return ""


_KINDS: Final[Sequence[tuple[int, str, Callable[[Stand, random.Random], str]]]] = (
    (6, "recorder killed", _kill_recorder),
    (2, "recorder ended", _end_recorder),
    (2, "recorder paused", _pause_recorder),
    (2, "walsenders ended", _end_walsenders),
    (2, "walsender paused", _pause_walsender),
    (2, "server crashed", _crash_server),
    (1, "server restarted", _restart_server),
    (1, "subscriber crashed", _crash_subscriber),
    (3, "network cut", _cut),
    (3, "network silent", _silence),
    (2, "store away", _store_away),
    (1, "store lied", _store_lies),
)


def let_happen(stand: Stand, chance: random.Random) -> None:
    """Let something go wrong."""
    ((_, kind, happen),) = chance.choices(_KINDS, [weight for weight, _, _ in _KINDS])
    if "store" in kind and stand.proxy is None:
        return
    with suppress(psycopg.OperationalError):  # a server that is only starting: it is another incident then
        stand.journal.note(kind, happen(stand, chance))
