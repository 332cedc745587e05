"""A concurrent workload on a real server, over tables of every replica identity.

Several connections change random rows at once, so that transactions overlap, commit in another order than
they began in, wait for each other and roll back.  Not two runs are alike; the source's own tables say what
the result must be.
"""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import psycopg

from support.postgres import Server

SCHEMAS = ("Live One", "live")
PUBLICATION = "everything"

SETUP = (
    'CREATE SCHEMA "Live One"',
    "CREATE SCHEMA live",
    "CREATE TYPE live.mood AS ENUM ('sad', 'fine', 'very happy')",
    "CREATE DOMAIN live.amount AS numeric(10,2) CHECK (value < 1000000)",
    """CREATE TABLE "Live One"."by default, the key" (
        id bigint PRIMARY KEY, note text, "big text" text, doc jsonb, "At Time" timestamptz)""",
    'ALTER TABLE "Live One"."by default, the key" ALTER "big text" SET STORAGE EXTERNAL',
    "CREATE TABLE live.by_index (a text NOT NULL, b int NOT NULL, v text, w text, UNIQUE (b, a))",
    "ALTER TABLE live.by_index REPLICA IDENTITY USING INDEX by_index_b_a_key",
    "ALTER TABLE live.by_index ALTER w SET STORAGE EXTERNAL",
    "CREATE TABLE live.full_without_key (n int, label text, x double precision)",
    "ALTER TABLE live.full_without_key REPLICA IDENTITY FULL",
    "CREATE TABLE live.full_with_key (id int PRIMARY KEY, body text, n int)",
    "ALTER TABLE live.full_with_key REPLICA IDENTITY FULL",
    "ALTER TABLE live.full_with_key ALTER body SET STORAGE EXTERNAL",
    "CREATE TABLE live.insert_only (at timestamp, line text)",
    "ALTER TABLE live.insert_only REPLICA IDENTITY NOTHING",
    """CREATE TABLE live."composite key" (
        z int, "Key Two" text, a int, v numeric, PRIMARY KEY ("Key Two", a, z))""",
    "CREATE TABLE live.emptied (id serial PRIMARY KEY, v text)",
    """CREATE TABLE live.many_types (id int PRIMARY KEY,
        c_bool boolean, c_int2 smallint, c_int8 bigint, c_real real, c_double double precision,
        c_decimal numeric(12,2), c_numeric numeric, c_varchar varchar(20), c_char char(8),
        c_date date, c_timestamp timestamp, c_timestamptz timestamptz, c_bytea bytea, c_json json,
        c_texts text[], c_ints int[], c_uuid uuid, c_mood live.mood, c_amount live.amount)""",
)

# Updates and deletes cannot be published for a table without a replica identity: the server refuses them.
PUBLISH = f"CREATE PUBLICATION {PUBLICATION} FOR ALL TABLES"

_NUMBERS = ("0", "1", "-1", "32767", "-32768")
_FLOATS = ("0", "-0", "0.1", "1e-30", "3.4e+38", "NaN", "Infinity", "-Infinity", "16777217")
_DAYS = ("2024-02-29", "0001-01-01", "9999-12-31", "1970-01-01", "1582-10-10")
_RESCUED_DAYS = ("infinity", "-infinity", "0044-03-15 BC", "10000-01-01")
_VALUES: dict[str, Sequence[str]] = {
    "c_bool": ("t", "f"),
    "c_int2": _NUMBERS,
    "c_int8": (*_NUMBERS, "9223372036854775807", "-9223372036854775808"),
    "c_real": _FLOATS,
    "c_double": (*_FLOATS, "0.30000000000000004", "5e-324", "1.7976931348623157e308"),
    "c_decimal": ("0", "-0.01", "9999999999.99", "NaN"),
    "c_numeric": ("0", "1.50", "-12345678901234567890123456789012345678901234567890.1", "NaN", "Infinity"),
    "c_varchar": ("", "\\N", 'a "quoted", text', "line\nbreak", "北京 🚀"),
    "c_char": ("", "ab", "12345678"),
    "c_date": (*_DAYS, *_RESCUED_DAYS),
    "c_timestamp": (*(f"{day} 23:59:59.999999" for day in _DAYS), *_RESCUED_DAYS),
    "c_timestamptz": (*(f"{day} 12:00:00.5+00" for day in _DAYS), *_RESCUED_DAYS),
    "c_bytea": ("\\x", "\\x00ff", "\\x5c78"),
    "c_json": ("{}", '{"b": [1, null], "a":  "\\u00e9"}', "null"),
    "c_texts": ("{}", '{NULL,"NULL","","a,b","\\"","\\\\"}', "{{a,b},{c,d}}", "[2:3]={x,y}"),
    "c_ints": ("{}", "{1,NULL,-3}"),
    "c_uuid": ("00000000-0000-0000-0000-000000000000", "a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11"),
    "c_mood": ("sad", "very happy"),
    "c_amount": ("0.10", "999999.99"),
}

EXPECTED_FAILURES: tuple[type[psycopg.Error], ...] = (
    psycopg.errors.DeadlockDetected,
    psycopg.errors.UniqueViolation,
    psycopg.errors.LockNotAvailable,
)

Change = Callable[[psycopg.Connection[Any], random.Random], None]


def _text(chance: random.Random, *, long: bool = False) -> str:
    """Make a text; a long one is stored out of line."""
    words = " ".join(chance.choice(("alpha", "écho", "北京", "🚀", "it's", '"', "\\", "")) for _ in range(4))
    return words + "".join(chance.choices("abcdefghij ", k=chance.randrange(2500, 9000))) if long else words


def _keyed(connection: psycopg.Connection[Any], chance: random.Random) -> None:
    run, table = connection.execute, '"Live One"."by default, the key"'
    key = chance.randrange(60)
    action = chance.randrange(8)
    if action < 3:
        run(
            f"INSERT INTO {table} VALUES (%s, %s, %s, %s, now()) ON CONFLICT (id) DO UPDATE SET note = 'again'",
            [key, _text(chance), _text(chance, long=True), '{"k": "v\\u0041"}'],
        )
    elif action < 5:  # leaves what is out of line as it is
        run(f"UPDATE {table} SET note = %s WHERE id = %s", [_text(chance), key])
    elif action == 5:  # under a changed key, too
        run(f"UPDATE {table} SET id = %s WHERE id = %s", [chance.randrange(60, 90), key])
    elif action == 6:
        run(
            f"UPDATE {table} SET \"big text\" = NULLIF(%s, ''), doc = NULL WHERE id = %s",
            [_text(chance), key],
        )
    else:
        run(f"DELETE FROM {table} WHERE id IN (%s, %s)", [key, key + 60])


def _shifted(connection: psycopg.Connection[Any], chance: random.Random) -> None:
    """Move many keys at once, one onto the place that another has just left."""
    by = chance.choice((1, -1))
    connection.execute(
        f'UPDATE "Live One"."by default, the key" t SET id = moved.id + {1000 * by}'
        f' FROM (SELECT id FROM "Live One"."by default, the key" WHERE id * {by} < {500 * by} LIMIT 10) moved'
        " WHERE t.id = moved.id"
    )


def _by_index(connection: psycopg.Connection[Any], chance: random.Random) -> None:
    run = connection.execute
    a, b = f"a{chance.randrange(6)}", chance.randrange(6)
    action = chance.randrange(6)
    if action < 2:
        run(
            "INSERT INTO live.by_index VALUES (%s, %s, %s, %s) ON CONFLICT DO NOTHING",
            [a, b, _text(chance), _text(chance, long=chance.random() < 0.5)],
        )
    elif action < 4:
        run("UPDATE live.by_index SET v = %s WHERE a = %s AND b = %s", [_text(chance), a, b])
    elif action == 4:
        run("UPDATE live.by_index SET b = b + 10, a = a || '''' WHERE a = %s AND b = %s", [a, b])
    else:
        run("DELETE FROM live.by_index WHERE a = %s AND b %% 10 = %s", [a, b])


def _full_without_key(connection: psycopg.Connection[Any], chance: random.Random) -> None:
    run, table = connection.execute, "live.full_without_key"
    n = chance.randrange(4)
    one = f"ctid IN (SELECT ctid FROM {table} WHERE n = %s LIMIT 1 FOR UPDATE)"
    action = chance.randrange(5)
    if action < 2:
        label, x = chance.choice(("same", "", None)), chance.choice(("0", "-0", "NaN", None))
        for _ in range(chance.randrange(1, 4)):
            run(f"INSERT INTO {table} VALUES (%s, %s, %s)", [n, label, x])
    elif action == 2:
        run(f"UPDATE {table} SET label = 'same', n = n + 1 WHERE {one}", [n])
    elif action == 3:
        run(f"UPDATE {table} SET x = -x WHERE n = %s", [n])
    else:
        run(f"DELETE FROM {table} WHERE {one}", [n])


def _full_with_key(connection: psycopg.Connection[Any], chance: random.Random) -> None:
    run = connection.execute
    key = chance.randrange(20)
    action = chance.randrange(5)
    if action < 2:
        run(
            "INSERT INTO live.full_with_key VALUES (%s, %s, 0) ON CONFLICT (id) DO UPDATE SET n = -1",
            [key, _text(chance, long=True)],
        )
    elif action < 4:
        run("UPDATE live.full_with_key SET n = n + 1, id = id + %s WHERE id = %s", [20 * (action - 2), key])
    else:
        run("DELETE FROM live.full_with_key WHERE id %% 20 = %s", [key])


def _insert_only(connection: psycopg.Connection[Any], chance: random.Random) -> None:
    connection.execute("INSERT INTO live.insert_only VALUES (clock_timestamp(), %s)", [_text(chance)])


def _composite(connection: psycopg.Connection[Any], chance: random.Random) -> None:
    run, table = connection.execute, 'live."composite key"'
    z, two, a = chance.randrange(3), chance.choice(("x", "", "x ")), chance.randrange(4)
    this = 'z = %s AND "Key Two" = %s AND a = %s'
    action = chance.randrange(6)
    if action < 3:
        run(f"INSERT INTO {table} VALUES (%s, %s, %s, 1.0) ON CONFLICT DO NOTHING", [z, two, a])
    elif action == 3:
        run(f"UPDATE {table} SET v = v * 1.10 WHERE {this}", [z, two, a])
    elif action == 4:  # the values of two key columns change places
        run(f"UPDATE {table} SET z = a, a = z WHERE {this}", [z, two, a])
    else:
        run(f"DELETE FROM {table} WHERE {this}", [z, two, a])


def _many_types(connection: psycopg.Connection[Any], chance: random.Random) -> None:
    key = chance.randrange(40)
    values = {name: chance.choice(pool) if chance.random() < 0.8 else None for name, pool in _VALUES.items()}
    if values["c_numeric"] == "Infinity" and connection.info.server_version < 140_000:  # it has none yet
        values["c_numeric"] = "0"
    if chance.random() < 0.6:
        changed = ", ".join(f"{name} = excluded.{name}" for name in chance.sample(list(values), 4))
        connection.execute(
            f"INSERT INTO live.many_types (id, {', '.join(values)}) VALUES (%s{', %s' * len(values)})"
            f" ON CONFLICT (id) DO UPDATE SET {changed}",
            [key, *values.values()],
        )
    elif chance.random() < 0.7:
        name = chance.choice(list(values))
        connection.execute(f"UPDATE live.many_types SET {name} = %s WHERE id = %s", [values[name], key])
    else:
        connection.execute("DELETE FROM live.many_types WHERE id = %s", [key])


def _emptied(connection: psycopg.Connection[Any], chance: random.Random) -> None:
    if chance.random() < 0.85 or connection.info.server_version < 110_000:  # which sends no TRUNCATE
        connection.execute("INSERT INTO live.emptied (v) VALUES (%s), ('and')", [_text(chance)])
    elif chance.random() < 0.7:
        connection.execute("TRUNCATE live.emptied RESTART IDENTITY")
    else:
        connection.execute("TRUNCATE live.emptied, live.full_without_key")


_CHANGES: Sequence[Change] = (
    *(_keyed, _keyed, _shifted, _by_index, _full_without_key, _full_with_key),
    *(_insert_only, _composite, _many_types, _many_types, _emptied),
)


def change_something(connection: psycopg.Connection[Any], chance: random.Random) -> None:
    """Change a few random rows of a random table."""
    chance.choice(_CHANGES)(connection, chance)


def run_workload(
    server: Server, *, transactions: int, connections: int = 4, seed: int = 0, pause: Callable[[], None]
) -> None:
    """Run the workload in two halves and call ``pause`` between them, while transactions are open."""
    half_way = threading.Barrier(connections + 1)
    failures: list[BaseException] = []

    def work(number: int) -> None:
        chance = random.Random(seed * 100 + number)
        try:
            with server.connect() as connection:
                connection.execute("SET lock_timeout = '2s'")
                for count in range(transactions // connections):
                    middle = count == transactions // connections // 2
                    _transaction(connection, chance, (lambda: _wait(half_way)) if middle else None)
        except BaseException as error:
            failures.append(error)
            half_way.abort()

    threads = [threading.Thread(target=work, args=(number,)) for number in range(connections)]
    for thread in threads:
        thread.start()
    try:
        half_way.wait(60)
        pause()
    finally:
        for thread in threads:
            thread.join()
    if failures:
        raise failures[0]


@contextmanager
def meanwhile(work: Callable[[threading.Event], None]) -> Iterator[None]:
    """Have something done while the block runs, and until it ends: it is told by an event that it may."""
    ending, failures = threading.Event(), list[BaseException]()

    def keep_on() -> None:
        try:
            work(ending)
        except BaseException as error:
            failures.append(error)

    thread = threading.Thread(target=keep_on)
    thread.start()
    try:
        yield
    finally:
        ending.set()
        thread.join()
    assert not failures, failures


@contextmanager
def at_work(server: Server, seed: int) -> Iterator[None]:
    """Have connections change the tables while the block runs, and for a while behind it."""
    with meanwhile(lambda _: run_workload(server, transactions=800, seed=seed, pause=lambda: None)):
        time.sleep(0.3)
        yield


def _wait(barrier: threading.Barrier) -> None:
    barrier.wait(60)


def _transaction(connection: psycopg.Connection[Any], chance: random.Random, inside: Callable[[], None] | None) -> None:
    """Make some changes and commit; sometimes take back a part, or all."""
    try:
        with connection.transaction():
            if inside is not None:
                # Only what nobody else waits for: the others have to come to this point, too.
                _insert_only(connection, chance)
                inside()
            for _ in range(chance.randrange(1, 5)):
                if chance.random() < 0.1:
                    time.sleep(0.005)  # so that others come in between
                fate = chance.random()
                with connection.transaction(force_rollback=fate < 0.15):
                    change_something(connection, chance)
            if chance.random() < 0.08:
                raise psycopg.Rollback
    except EXPECTED_FAILURES:
        return
