"""The random work of a leg: big and small transactions, prepared ones, savepoints, origins, messages, all types.

It is in bursts, each of its own seed: between two of them it can be paused, and then no transaction is open.
"""

from __future__ import annotations

import random
import re
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress

import psycopg

from support import streamed_workload, typed_source, workload
from support.postgres import Server

ORIGINS = tuple(f"SELECT pg_replication_origin_create('{origin}')" for origin in streamed_workload.ORIGINS)
PARTED = (
    "CREATE SCHEMA parts",
    "CREATE TABLE parts.root (id int, part int, v text, PRIMARY KEY (id, part)) PARTITION BY RANGE (part)",
    "CREATE TABLE parts.low PARTITION OF parts.root FOR VALUES FROM (0) TO (5)",
    "CREATE TABLE parts.high PARTITION OF parts.root FOR VALUES FROM (5) TO (9) PARTITION BY LIST (part)",
    "CREATE TABLE parts.high_some PARTITION OF parts.high FOR VALUES IN (5, 7)",
    "CREATE TABLE parts.high_rest PARTITION OF parts.high DEFAULT",
)
KINDS = ("big", "typed", "parts")
SETUP = (*workload.SETUP, *streamed_workload.SETUP, *typed_source.SETUP, *PARTED)
SCHEMAS = (*workload.SCHEMAS, streamed_workload.SCHEMA, typed_source.SCHEMA, "parts")


def _columns(statement: str) -> list[str]:
    return [f"{name} text" for name in re.findall(r"\bc\d+(?= )", statement)]


_OF_TEXTS = re.compile(r"CREATE TABLE typed\.(?:plain|arrays|named) ")
"""The subscriber has the values as text: its own server has no libxml, and its worker crashes (by SIGSEGV, PostgreSQL
18.4) at an update of a row of all types."""

SUBSCRIBER_SETUP = tuple(
    re.sub(
        r"\(id int PRIMARY KEY, .*", f"(id int PRIMARY KEY, {', '.join(_columns(statement))})", statement, flags=re.S
    )
    if _OF_TEXTS.match(statement)
    else statement
    for statement in SETUP
    if "pg_cast" not in statement
)


class Traffic:
    """Threads at work, each in bursts.  `paused` is for a moment at which all of them are at rest.

    Args:
        kinds: of `KINDS`; tables of others stay as they are.
    """

    def __init__(self, server: Server, seed: int, kinds: Sequence[str]) -> None:
        self._server, self._seed = server, seed
        self._ends, self._failures = threading.Event(), list[BaseException]()
        self._kinds: list[tuple[Callable[[int], None], threading.Lock]] = []
        self._threads: list[threading.Thread] = []
        bursts = {"big": self._big, "typed": self._typed, "parts": self._parted}
        for kind in kinds:
            self.add(bursts[kind])

    def add(self, burst: Callable[[int], None]) -> None:
        """Do something more in bursts, which is given their numbers."""
        lock = threading.Lock()
        self._kinds.append((burst, lock))
        self._threads.append(threading.Thread(target=self._work, args=(burst, lock), daemon=True))

    @contextmanager
    def at_work(self) -> Iterator[None]:
        for thread in self._threads:
            thread.start()
        try:
            yield
        finally:
            self._ends.set()
            for thread in self._threads:
                thread.join(120)

    @contextmanager
    def paused(self, *bursts: Callable[[int], None]) -> Iterator[None]:
        """Wait until no burst runs (or none of these), and let none begin until the block ends."""
        locks = [lock for burst, lock in self._kinds if not bursts or burst in bursts]
        for lock in locks:
            lock.acquire()
        try:
            self.check()
            yield
        finally:
            for lock in locks:
                lock.release()

    def fill(self) -> None:
        """Do some bursts of each kind of work, before any of it has begun."""
        for number in (-3, -2, -1):
            for burst, _ in self._kinds:
                burst(number)

    def check(self) -> None:
        """Raise what has ended a thread."""
        if self._failures:
            raise self._failures[0]

    def settle(self) -> None:
        """Decide what is prepared, and write a last row."""
        streamed_workload.decide_all(self._server, random.Random(self._seed))
        self._server.execute("INSERT INTO live.insert_only VALUES (now(), 'last')")

    def _work(self, burst: Callable[[int], None], lock: threading.Lock) -> None:
        number = 0
        try:
            while not self._ends.is_set():
                with lock:
                    if not self._ends.is_set():
                        burst(number)
                number += 1
                time.sleep(random.Random(number).random() * 0.6)  # others may have the lock
        except BaseException as error:
            self._failures.append(error)

    def _big(self, number: int) -> None:
        mix = streamed_workload.Mix(
            self._seed * 100_003 + number, gates=0, prepares=True, origins=True, messages=True, transactions=1, rows=150
        )
        with streamed_workload.Workload(self._server, mix):
            pass

    def _typed(self, number: int) -> None:
        with suppress(psycopg.OperationalError):
            typed_source.change(self._server, random.Random(f"{self._seed}/{number}"), 2)

    def _parted(self, number: int) -> None:
        chance = random.Random(f"{self._seed}/parts/{number}")
        with suppress(psycopg.OperationalError), self._server.connect() as connection:
            for _ in range(chance.randrange(1, 6)):
                key, part, other = chance.randrange(50), chance.randrange(9), chance.randrange(9)
                statement = chance.choice(
                    (
                        f"INSERT INTO parts.root SELECT g, {part}, 'new' FROM generate_series({key}, {key + 20}) g"
                        " ON CONFLICT DO NOTHING",
                        f"UPDATE parts.root SET v = v || '.' WHERE id % 7 = {key % 7} AND part = {part}",
                        f"UPDATE parts.root SET part = {other}, id = id + 1000 WHERE part = {part} AND id < {key}",
                        f"DELETE FROM parts.root WHERE id % 1000 > {key} AND part = {part}",
                        "TRUNCATE parts.root" if key < 3 else f"DELETE FROM parts.root WHERE id = {key}",
                    )
                )
                with suppress(*workload.EXPECTED_FAILURES):
                    connection.execute(statement.encode())
