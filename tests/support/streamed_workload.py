"""A concurrent workload of big transactions: streamed, with savepoints, prepared, of an origin, with messages.

It stops at gates, where every connection has a transaction open that is streamed already; so a recorder's session
can end there, and savepoints are rolled back and transactions end while nobody records.
"""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any, Final

import psycopg

from support.postgres import Server
from support.workload import EXPECTED_FAILURES, change_something

SCHEMA: Final = "big"

SETUP: Final = (
    f"CREATE SCHEMA {SCHEMA}",
    "CREATE TYPE big.kind AS ENUM ('low', 'high up')",
    "CREATE TABLE big.load (id bigint PRIMARY KEY, v text, k big.kind, n numeric(12,2), at timestamptz)",
    'CREATE TABLE big."Pair" (a int, "B" int, v text, PRIMARY KEY ("B", a))',
    "CREATE TABLE big.wide (id int PRIMARY KEY, body text, note text)",
    "ALTER TABLE big.wide ALTER body SET STORAGE EXTERNAL",
    "CREATE TABLE big.loose (n int, label text)",
    "ALTER TABLE big.loose REPLICA IDENTITY FULL",
    "CREATE TABLE big.emptied (id int PRIMARY KEY, v text)",
    "CREATE TABLE big.side (id serial PRIMARY KEY, v text)",
    "CREATE TABLE big.held (id int PRIMARY KEY, v text)",
)

ORIGINS: Final = ("upstream 1", "süd")

_GIDS: Final = ("first", "it's", "again and again", "x" * 199, "7", "Größe\n")
UNDECIDED: Final = "undecided"
_TRUNCATES: Final = " truncates"
"""What such a transaction's gid ends with; it is not rolled back: a server that lags behind could never decode it."""

_FAILURES: Final = (
    *EXPECTED_FAILURES,
    psycopg.errors.DuplicateObject,  # a gid that somebody else has taken
    psycopg.errors.UndefinedObject,  # or decided
    psycopg.errors.ObjectNotInPrerequisiteState,
    psycopg.errors.ObjectInUse,
)

Connection = psycopg.Connection[Any]


@dataclass(frozen=True)
class Mix:
    """What is in a workload.

    Attributes:
        gates: how often it stops.
        prepares: transactions are prepared, too.
        origins: transactions are replayed from elsewhere, with the times of there, too.
        messages: `pg_logical_emit_message` is called.
        transactions: of each connection before and behind each gate.
        rows: of a big change at most.
    """

    seed: int
    gates: int = 1
    prepares: bool = False
    origins: bool = False
    messages: bool = False
    connections: int = 4
    transactions: int = 3
    rows: int = 300


class Workload:
    """Connections that work until the next gate and wait there; `stopped` is for who records."""

    def __init__(self, server: Server, mix: Mix) -> None:
        self._gate = threading.Barrier(mix.connections + 1)
        self._failures: list[BaseException] = []
        self._workers = [_Worker(server, mix, number, self._wait) for number in range(mix.connections)]
        self._threads = [threading.Thread(target=self._work, args=(worker,)) for worker in self._workers]

    def __enter__(self) -> Workload:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *failure: object) -> None:
        if failure[0] is not None:
            self._gate.abort()
        for thread in self._threads:
            thread.join()
        if self._failures and failure[0] in (None, threading.BrokenBarrierError):
            raise self._failures[0]

    @contextmanager
    def stopped(self, lose: Callable[[], None]) -> Iterator[None]:
        """Wait for the gate and call a function there; inside the block transactions have gone on meanwhile."""
        self._wait()
        lose()
        self._wait()
        self._wait()
        yield
        self._wait()

    def _work(self, worker: _Worker) -> None:
        try:
            worker.run()
        except BaseException as error:
            self._failures.append(error)
            self._gate.abort()

    def _wait(self) -> None:
        self._gate.wait(90)


class _Worker:
    """One connection; it survives the server's crash."""

    def __init__(self, server: Server, mix: Mix, number: int, wait: Callable[[], None]) -> None:
        self._server = server
        self._mix = mix
        self._number = number
        self._wait = wait
        self._chance = random.Random(mix.seed * 1000 + number)
        self._next_id = (number + 1) * 1_000_000
        self._connection: Connection | None = None

    def run(self) -> None:
        """Work from the first to the last gate and on to the end, or until a recorder that failed breaks the gate."""
        try:
            for _ in range(self._mix.gates):
                for _ in range(self._mix.transactions):
                    self._try(self._transaction)
                self._through_gate()
            for _ in range(self._mix.transactions):
                self._try(self._transaction)
        finally:
            if self._connection is not None:
                self._connection.close()

    def _try(self, work: Callable[[], None]) -> bool:
        """Do something that may fail for good reasons; say whether it was done."""
        try:
            work()
        except (*_FAILURES, psycopg.OperationalError):
            if self._connection is None or self._connection.closed:
                self._connection = None
            else:
                with suppress(psycopg.OperationalError):
                    self._connection.execute("ROLLBACK" if self._in_transaction() else "SELECT 1")
            return False
        return True

    def _in_transaction(self) -> bool:
        assert self._connection is not None
        return self._connection.info.transaction_status != psycopg.pq.TransactionStatus.IDLE

    def _run(self, statement: str, parameters: Sequence[Any] | None = None) -> None:
        self._connect().execute(statement.encode(), parameters)

    def _connect(self) -> Connection:
        if self._connection is None:
            self._connection = self._server.connect()
            self._connection.execute("SET lock_timeout = '100ms'")
            # What it logs about failures that are meant to happen is of no use.
            self._connection.execute("SET log_min_messages = fatal")
            if self._origin is not None:
                self._connection.execute("SELECT pg_replication_origin_session_setup(%s)", [self._origin])
        return self._connection

    @property
    def _origin(self) -> str | None:
        """The origin that this connection replays; one connection at a time can have it."""
        return ORIGINS[self._number] if self._mix.origins and self._number < len(ORIGINS) else None

    # Transactions.

    def _transaction(self) -> None:
        chance = self._chance
        if self._mix.prepares and chance.random() < 0.5:
            self._decide()
        for _ in range(chance.randrange(5)):
            self._try(self._small_transaction)
        self._begin()
        self._body(0)
        self._end()

    def _small_transaction(self) -> None:
        self._begin()
        for _ in range(self._chance.randrange(1, 4)):
            change_something(self._connect(), self._chance)
        self._end()

    def _begin(self) -> None:
        self._run("BEGIN")
        if self._origin is not None and self._chance.random() < 0.6:
            lsn = f"{self._chance.randrange(1, 9)}/{self._chance.randrange(1 << 30):X}"
            self._run("SELECT pg_replication_origin_xact_setup(%s, %s)", [lsn, "2019-02-03 04:05:06.789+00"])

    def _body(self, depth: int) -> None:
        """Make changes, some below savepoints, some of which are rolled back or never released."""
        chance = self._chance
        for _ in range(chance.randrange(1, 5)):
            if depth < 4 and chance.random() < 0.5:
                self._below_savepoint(f"s{depth}", lambda: self._body(depth + 1), undo=0.35)
            else:
                # By itself, so that what cannot be had now does not end the transaction.
                self._below_savepoint("one", self._change, undo=0.1)
            if chance.random() < 0.1:
                time.sleep(0.005)  # so that others come in between

    def _below_savepoint(self, name: str, work: Callable[[], None], *, undo: float) -> None:
        chance = self._chance
        self._run(f"SAVEPOINT {name}")
        try:
            work()
        except _FAILURES:
            self._run(f"ROLLBACK TO {name}")
            return
        if chance.random() < undo:
            self._run(f"ROLLBACK TO {name}")
            if chance.random() < 0.3:  # the savepoint is there still, and begins another subtransaction
                self._change_own()
        if chance.random() < 0.8:
            self._run(f"RELEASE {name}")

    def _end(self) -> None:
        fate = self._chance.random()
        if fate < 0.15:
            self._run("ROLLBACK")
        elif fate < 0.5 and self._mix.prepares:
            self._prepare(self._chance.choice(_GIDS))
            if self._chance.random() < 0.3:
                self._decide()
        else:
            self._run("COMMIT")

    def _prepare(self, gid: str) -> None:
        query = "SELECT FROM pg_locks WHERE pid = pg_backend_pid() AND mode = 'AccessExclusiveLock'"
        if self._connect().execute(query.encode()).fetchone() is not None:
            gid = gid[:150] + _TRUNCATES
        self._run(f"PREPARE TRANSACTION {_quoted(gid)}")

    def _decide(self) -> None:
        """Commit or roll back one of the prepared transactions, no matter whose."""
        query = b"SELECT gid FROM pg_prepared_xacts WHERE gid <> %s ORDER BY random() LIMIT 1"
        row = self._connect().execute(query, [UNDECIDED]).fetchone()
        if row is not None:
            self._run(_decision(row[0], self._chance))

    # Gates.

    def _through_gate(self) -> None:
        chance = self._chance
        self._decided = False
        open_ = self._try(self._before_gate)
        self._wait()
        self._wait()
        open_ = open_ and self._try(self._meanwhile)
        for _ in range(chance.randrange(2)):
            # Where the transaction is over, others come into being, of which the lost session knew nothing.
            if not open_ or not self._in_transaction():
                self._try(self._transaction)
        self._wait()
        self._wait()
        if open_ and self._connection is not None and self._in_transaction():
            self._try(self._behind_gate)

    def _before_gate(self) -> None:
        """Open a transaction that no other waits for, with changes at every depth."""
        self._begin()
        self._change_own()
        self._run("SAVEPOINT a")
        self._change_own()
        self._run("SAVEPOINT b")
        self._change_own()
        if self._chance.random() < 0.5:
            self._run("RELEASE b")
        self._run("SAVEPOINT c")
        self._change_own()

    def _meanwhile(self) -> None:
        fate = self._chance.random()
        if fate < 0.25:
            self._run("ROLLBACK TO a")
        elif fate < 0.5:
            self._run("ROLLBACK TO c")
        elif fate < 0.6:
            self._run("RELEASE a")
        elif fate < 0.8:
            self._end()
        if self._in_transaction() and self._chance.random() < 0.4:
            self._change_own()

    def _behind_gate(self) -> None:
        if self._chance.random() < 0.3:
            self._run("ROLLBACK TO a")
        for _ in range(self._chance.randrange(3)):
            self._below_savepoint("d", self._change_own, undo=0.3)
        self._end()

    # Changes.

    def _change(self) -> None:
        kinds = [self._load, self._load, self._move, self._pair, self._wide, self._loose, self._empty, self._side]
        if self._mix.messages:
            kinds += [self._message] * 2
        if self._chance.random() < 0.3:
            change_something(self._connect(), self._chance)
        else:
            self._chance.choice(kinds)()

    def _rows(self) -> int:
        return self._chance.randrange(20, self._mix.rows)

    def _change_own(self) -> None:
        """Add rows to a range that nobody else has yet, and change some of them."""
        first, rows = self._next_id, self._rows()
        self._next_id += rows
        self._insert_load(first, rows)
        if self._chance.random() < 0.5:
            self._run(
                "UPDATE big.load SET n = n + 1, k = 'high up' WHERE id BETWEEN %s AND %s",
                [first, first + rows // 3],
            )
        if self._chance.random() < 0.3:
            self._run("DELETE FROM big.load WHERE id BETWEEN %s AND %s AND id %% 3 = 0", [first, first + rows])
        if self._mix.messages and self._chance.random() < 0.5:
            self._message()

    def _insert_load(self, first: int, rows: int) -> None:
        self._run(
            "INSERT INTO big.load SELECT %s + g, repeat(%s, g %% 7), 'low', g * 1.25, now()"
            " FROM generate_series(0, %s - 1) g ON CONFLICT (id) DO UPDATE SET v = 'again', n = NULL",
            [first, self._chance.choice(("alpha ", "é\n", "\nC", "\nB\nI", "北京", "n")), rows],
        )

    def _load(self) -> None:
        first, rows = self._chance.randrange(2000), self._rows()
        action = self._chance.randrange(4)
        if action < 2:
            self._insert_load(first, rows)
        elif action == 2:
            self._run("UPDATE big.load SET n = id / 8.0 WHERE id BETWEEN %s AND %s", [first, first + rows])
        else:
            self._run("DELETE FROM big.load WHERE id BETWEEN %s AND %s", [first, first + rows // 2])

    def _move(self) -> None:
        """Move keys, which fails where one is taken."""
        self._run(
            "UPDATE big.load SET id = id + %s WHERE id %% 11 = %s AND id < 3000",
            [self._chance.choice((1, 3000, -2000)), self._chance.randrange(11)],
        )

    def _pair(self) -> None:
        b, action = self._chance.randrange(8), self._chance.randrange(4)
        if action < 2:
            self._run(
                'INSERT INTO big."Pair" SELECT g, %s, g::text FROM generate_series(1, %s) g ON CONFLICT DO NOTHING',
                [b, self._rows()],
            )
        elif action == 2:
            self._run('UPDATE big."Pair" SET a = -a, v = NULL WHERE "B" = %s', [b])
        else:
            self._run('DELETE FROM big."Pair" WHERE "B" = %s AND a %% 2 = 0', [b])

    def _wide(self) -> None:
        first, action = self._chance.randrange(40), self._chance.randrange(4)
        if action < 2:
            text = "".join(self._chance.choices("abcdefgh\n", k=self._chance.randrange(2500, 9000)))
            self._run(
                "INSERT INTO big.wide SELECT %s + g, %s || g, 'new' FROM generate_series(0, 6) g"
                " ON CONFLICT (id) DO UPDATE SET body = excluded.body",
                [first, text],
            )
        elif action == 2:  # leaves what is out of line as it is, under a changed key, too
            self._run(
                "UPDATE big.wide SET note = note || '.', id = id + %s WHERE id BETWEEN %s AND %s",
                [self._chance.choice((0, 0, 100)), first, first + 10],
            )
        else:
            self._run("DELETE FROM big.wide WHERE id %% 5 = %s", [first % 5])

    def _loose(self) -> None:
        n, action = self._chance.randrange(5), self._chance.randrange(3)
        if action == 0:
            self._run("INSERT INTO big.loose SELECT %s, 'same' FROM generate_series(1, %s)", [n, self._rows() // 3])
        elif action == 1:
            self._run("UPDATE big.loose SET label = NULLIF(label, 'same') || '.', n = n + 1 WHERE n = %s", [n])
        else:
            self._run("DELETE FROM big.loose WHERE n = %s", [n])

    def _empty(self) -> None:
        self._run("TRUNCATE big.emptied" if self._chance.random() < 0.7 else "TRUNCATE big.emptied, big.loose")
        if self._chance.random() < 0.8:
            self._run("INSERT INTO big.emptied SELECT g, 'anew' FROM generate_series(1, %s) g", [self._rows()])

    def _side(self) -> None:
        self._run("INSERT INTO big.side (v) VALUES (%s)", [self._chance.choice((None, "", "x"))])

    def _message(self) -> None:
        content = "B\0C\n"[: self._chance.randrange(5)].encode() * self._chance.choice((1, 1, 500))
        self._run("SELECT pg_logical_emit_message(%s, 'chatter', %s::bytea)", [self._chance.random() < 0.6, content])


def hold(server: Server) -> None:
    """Prepare a transaction that nobody ever decides."""
    server.execute(
        "BEGIN; INSERT INTO big.held SELECT g, 'held' FROM generate_series(1, 700) g;"
        f" PREPARE TRANSACTION '{UNDECIDED}'"
    )


def decide_all(server: Server, chance: random.Random) -> None:
    """End what is prepared, except for that one: a prepared TRUNCATE would keep everybody from reading its table."""
    for (gid,) in server.rows("SELECT gid FROM pg_prepared_xacts ORDER BY prepared"):
        if gid != UNDECIDED:
            server.execute(_decision(gid, chance))


def prepare_nothing(server: Server) -> None:
    """Prepare and commit a transaction without changes."""
    server.execute("BEGIN; SELECT pg_current_xact_id(); PREPARE TRANSACTION 'empty'", "COMMIT PREPARED 'empty'")


def _decision(gid: str, chance: random.Random) -> str:
    commit = gid.endswith(_TRUNCATES) or chance.random() < 0.65
    return f"{'COMMIT' if commit else 'ROLLBACK'} PREPARED {_quoted(gid)}"


def _quoted(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"
