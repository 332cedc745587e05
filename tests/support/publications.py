"""Publications of many kinds on one server, and a subscriber of each: what PostgreSQL makes of them is right.

Each `Published` has a slot that is recorded, and a database of its own on the subscriber, whose tables have the
columns that are published.  `CREATE SUBSCRIPTION` copies them and keeps them up to date.
"""

from __future__ import annotations

import random
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any, Final

import psycopg
from psycopg import sql

from support.hostile_names import NAMES, SUFFIXED
from support.postgres import Server
from support.truth import SourceTable
from support.waiting import wait_until
from support.workload import SETUP, meanwhile, run_workload
from walreplay.lsn import format_lsn
from walreplay.names import fold

_PATIENCE: Final = 180.0

PUBLISHER: Final = {"logical_decoding_work_mem": "64kB", "max_replication_slots": "40", "max_wal_senders": "40"}
SUBSCRIBER: Final = {
    "max_logical_replication_workers": "12",
    "max_worker_processes": "20",
    "max_sync_workers_per_subscription": "2",
    "wal_retrieve_retry_interval": "20ms",
    "max_replication_slots": "40",
}


@dataclass(frozen=True)
class Published:
    """What one slot sends.

    Attributes:
        made_by: the statements that make its publications.
        options: of pgoutput.
        since: the first version that has it.
    """

    name: str
    publications: tuple[str, ...]
    made_by: tuple[str, ...]
    options: Mapping[str, str]
    since: int = 16

    @property
    def said(self) -> str:
        """Its publications as one word of a command line."""
        return self.publications[0] if len(self.publications) == 1 else ",".join(self.publications)

    @property
    def option(self) -> str:
        """Its publications as pgoutput's option has them."""
        return ",".join(_quoted(name) for name in self.publications)


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


_PLACES: Final = (
    *(("_an", "ev"), (".hid", "_x"), ("a.b", "c.d"), ("tab\tin", "new\nline"), ("per%cent", "sla/sh"), ("..", ".")),
    *(("é", "e\u0301"), ("x" * 63, "é" * 31), ('q"uo', "it's `$1 ?"), ("C:\\x", "${x}"), ("%2F", "trail ")),
    *(("_an", "EV"), ("_an", "v1.0001"), ("%" * 63, "o\td\n\\%/_d'\"é"), ("%" * 63, "%" * 62)),
)
"""Schemas and tables that are paths, hidden files or escapes to somebody."""


def _columns(number: int) -> list[str]:
    """Return a table's names of columns, none that Spark takes for another or the mirror for its own."""
    found: list[str] = []
    for name in (*NAMES[number * 17 :], *NAMES):
        if len(found) < 12 and fold(name) not in map(fold, (*found, *SUFFIXED)):
            found.append(name)
    return found


def _named() -> Iterator[str]:
    for number, (schema, table) in enumerate(_PLACES):
        key, *others = map(_quoted, _columns(number))
        columns = ", ".join([f"{key} int PRIMARY KEY", *(f"{other} text" for other in others)])
        yield f"CREATE SCHEMA IF NOT EXISTS {_quoted(schema)}"
        yield f"CREATE TABLE {_quoted(schema)}.{_quoted(table)} ({columns})"


_SETUP: Final = (
    *SETUP,
    # A subscriber finds rows by what is equal to PostgreSQL, and takes -0 for 0.
    "CREATE FUNCTION live.without_sign() RETURNS trigger LANGUAGE plpgsql AS"
    " 'BEGIN NEW.x := NEW.x + 0; RETURN NEW; END'",
    "CREATE TRIGGER without_sign BEFORE INSERT OR UPDATE ON live.full_without_key"
    " FOR EACH ROW EXECUTE FUNCTION live.without_sign()",
    "CREATE SCHEMA kinds",
    "CREATE TYPE kinds.pair AS (a int, b text)",
    "CREATE TABLE kinds.parent (id int PRIMARY KEY, note text)",
    "CREATE TABLE kinds.child (more text, PRIMARY KEY (id)) INHERITS (kinds.parent)",
    "CREATE TABLE kinds.divided (id int PRIMARY KEY, note text, dropped int) PARTITION BY RANGE (id)",
    "CREATE TABLE kinds.low PARTITION OF kinds.divided FOR VALUES FROM (0) TO (100) PARTITION BY RANGE (id)",
    "CREATE TABLE kinds.lowest PARTITION OF kinds.low FOR VALUES FROM (0) TO (50)",
    "CREATE TABLE kinds.lower PARTITION OF kinds.low FOR VALUES FROM (50) TO (100)",
    # Its columns stand in another order.
    "CREATE TABLE kinds.high (note text, dropped int, id int NOT NULL)",
    "ALTER TABLE kinds.divided ATTACH PARTITION kinds.high FOR VALUES FROM (100) TO (9000)",
    "ALTER TABLE kinds.divided DROP COLUMN dropped",
    "CREATE TABLE kinds.bare ()",
    "CREATE TABLE kinds.empty (id int PRIMARY KEY, note text)",
    "CREATE TABLE kinds.values (id int PRIMARY KEY, p kinds.pair, pairs kinds.pair[], moods live.mood[],"
    " amounts live.amount[], big text, bytes bytea, span interval, x real, during tstzrange)",
    "ALTER TABLE kinds.values ALTER big SET STORAGE EXTERNAL",
    "CREATE UNLOGGED TABLE kinds.unlogged (id int PRIMARY KEY)",
    "INSERT INTO kinds.unlogged VALUES (1)",
    "CREATE VIEW kinds.seen AS SELECT 1 AS one",
    "CREATE MATERIALIZED VIEW kinds.kept AS SELECT 1 AS one",
    "CREATE SEQUENCE kinds.counted",
    "CREATE FOREIGN DATA WRAPPER nowhere",
    "CREATE SERVER nowhere FOREIGN DATA WRAPPER nowhere",
    "CREATE FOREIGN TABLE kinds.distant (id int) SERVER nowhere",
    *_named(),
    "CREATE SCHEMA chosen",
    "CREATE TABLE chosen.listed (secret text, id int PRIMARY KEY, a int, z text)",
    "CREATE TABLE chosen.filtered (id int PRIMARY KEY, kind text, n int, big text)",
    "ALTER TABLE chosen.filtered REPLICA IDENTITY FULL",
    "ALTER TABLE chosen.filtered ALTER big SET STORAGE EXTERNAL",
    "CREATE TABLE chosen.by_key (id int PRIMARY KEY, note text)",
    'CREATE TABLE chosen."li.st/ed, fil%ter" (secret text, "wh?ere" int, "a b" text, "z\n" text,'
    ' PRIMARY KEY ("a b", "wh?ere"))',
    "CREATE TABLE chosen.either (id int PRIMARY KEY, n int)",
    "ALTER TABLE chosen.either REPLICA IDENTITY FULL",
    "CREATE TABLE chosen.whole (id int PRIMARY KEY, note text)",
    "CREATE TABLE chosen.divided (id int PRIMARY KEY, secret text, note text) PARTITION BY HASH (id)",
    "CREATE TABLE chosen.part0 PARTITION OF chosen.divided FOR VALUES WITH (MODULUS 2, REMAINDER 0)",
    "CREATE TABLE chosen.part1 PARTITION OF chosen.divided FOR VALUES WITH (MODULUS 2, REMAINDER 1)",
    "CREATE TABLE chosen.kept (id int PRIMARY KEY, note text)",
    "CREATE TABLE chosen.inserted (n int PRIMARY KEY, note text)",
    "CREATE SEQUENCE chosen.numbers",
    "CREATE SCHEMA made",
    "CREATE TABLE made.g (id int PRIMARY KEY, x int, y int GENERATED ALWAYS AS (x * 2) STORED, z text)",
    "CREATE TABLE made.listed (y int GENERATED ALWAYS AS (id + 1) STORED, id int PRIMARY KEY, x int,"
    " t text GENERATED ALWAYS AS ('x' || id) STORED)",
    "CREATE TABLE made.whole (x int, y int GENERATED ALWAYS AS (x * 2) STORED)",
)

_SINCE_18: Final = ("ALTER TABLE made.g ADD v int GENERATED ALWAYS AS (x + 1) VIRTUAL",)

_TYPES: Final = ("CREATE SCHEMA", "CREATE TYPE", "CREATE DOMAIN")

_SCHEMAS: Final = ", ".join(['"Live One"', "live", "kinds", *dict.fromkeys(_quoted(schema) for schema, _ in _PLACES)])

EVERYTHING: Final = Published("everything", ("everything",), ("CREATE PUBLICATION everything FOR ALL TABLES",), {})
SCHEMAS: Final = Published(
    "schemas",
    ('Odd "pub, name',),
    (f'CREATE PUBLICATION "Odd ""pub, name" FOR TABLES IN SCHEMA {_SCHEMAS} WITH (publish_via_partition_root = true)',),
    {"proto_version": "2", "streaming": "on"},
)
CHOSEN: Final = Published(
    "chosen",
    ("first", "second", "kept", "inserted"),
    (
        "CREATE PUBLICATION first FOR TABLE chosen.listed (id, z), chosen.filtered WHERE (kind = 'keep' OR n IS NULL),"
        " chosen.by_key WHERE (id % 3 = 0),"
        """ chosen."li.st/ed, fil%ter" ("a b", "wh?ere", "z\n") WHERE ("wh?ere" > 2 AND "a b" <> E'\\\\\n\t'),"""
        " chosen.either WHERE (n < 10), chosen.whole WHERE (id < 5), chosen.divided (note, id) WHERE (id % 4 <> 1),"
        " ONLY kinds.parent WITH (publish_via_partition_root = true)",
        "CREATE PUBLICATION second FOR TABLE chosen.either WHERE (n > 20), chosen.whole, chosen.part0 (note, id)",
        "CREATE PUBLICATION kept FOR TABLE chosen.kept WITH (publish = 'insert, update')",
        "CREATE PUBLICATION inserted FOR TABLE chosen.inserted WHERE (note <> 'no') WITH (publish = 'insert')",
    ),
    {"proto_version": "4", "streaming": "parallel"},
)
MADE: Final = Published(
    "made",
    ("made", "made_listed"),
    (
        "CREATE PUBLICATION made FOR TABLE made.g, made.whole WITH (publish_generated_columns = stored)",
        # A list names them whatever else is said.
        "CREATE PUBLICATION made_listed FOR TABLE made.listed (y, id)",
    ),
    {"proto_version": "3", "streaming": "on"},
    since=18,
)


def published(version: int) -> list[Published]:
    """List what a version publishes."""
    return [one for one in (EVERYTHING, SCHEMAS, CHOSEN, MADE) if version >= one.since]


def set_up(server: Server, version: int) -> None:
    """Make all tables and publications."""
    server.execute(*_SETUP, *(_SINCE_18 if version >= 18 else ()))
    for one in published(version):
        server.execute(*one.made_by)


_TABLES: Final = """
SELECT format('CREATE TABLE %%I.%%I (%%s)', n.nspname, c.relname, concat_ws(', ', (
        SELECT string_agg(format('%%I %%s', a.attname, format_type(a.atttypid, a.atttypmod)), ', ' ORDER BY a.attnum)
        FROM pg_attribute a WHERE a.attrelid = c.oid AND a.attnum = ANY (p.attrs)
    ), (
        SELECT format('PRIMARY KEY (%%s)', string_agg(format('%%I', a.attname), ', ' ORDER BY k.place))
        FROM pg_index i, unnest(i.indkey) WITH ORDINALITY AS k (attnum, place), pg_attribute a
        WHERE i.indrelid = c.oid AND a.attrelid = c.oid AND a.attnum = k.attnum
            AND (c.relreplident IN ('d', 'f') AND i.indisprimary OR c.relreplident = 'i' AND i.indisreplident)
        HAVING count(*) > 0
    ))),
    format('ALTER TABLE %%I.%%I REPLICA IDENTITY %%s', n.nspname, c.relname,
        CASE c.relreplident WHEN 'f' THEN 'FULL' ELSE 'DEFAULT' END)
FROM (
    SELECT DISTINCT relid, string_to_array(attrs::text, ' ')::int[] AS attrs
    FROM pg_get_publication_tables(VARIADIC %s::text[])
) p
JOIN pg_class c ON c.oid = p.relid
JOIN pg_namespace n ON n.oid = c.relnamespace
"""


def subscribe(publisher: Server, subscriber: Server, one: Published) -> None:
    """Make a database with the tables that are published, and a subscription that copies them."""
    made = [statement for row in publisher.rows(_TABLES, list(one.publications)) for statement in row]
    subscriber.database = "postgres"
    subscriber.execute(f"CREATE DATABASE {one.name}")
    subscriber.database = one.name
    subscriber.execute(*(statement for statement in _SETUP if statement.startswith(_TYPES)), *made)
    address = f"host={publisher.home} port={publisher.port} user=postgres dbname={publisher.database}"
    subscriber.execute(f"CREATE SUBSCRIPTION {one.name} CONNECTION '{address}' PUBLICATION {one.option}")


def wait_until_copied(subscriber: Server, one: Published) -> None:
    """Wait until all tables of a subscription are as far as it is."""
    subscriber.database = one.name
    query = "SELECT bool_and(srsubstate = 'r') FROM pg_subscription_rel"
    wait_until(lambda: subscriber.value(query), "the tables", subscriber.log.read_text, patience=_PATIENCE)


def wait_until_replayed(publisher: Server, subscriber: Server, sets: Sequence[Published]) -> None:
    """Wait until all that was committed by now is there."""
    lsn = format_lsn(publisher.lsn())
    publisher.execute("SELECT pg_logical_emit_message(true, 'flush', '')")
    names = ", ".join(f"'{one.name}'" for one in sets)
    query = f"SELECT count(*) = {len(sets)} FROM pg_stat_replication"
    query += f" WHERE application_name IN ({names}) AND replay_lsn >= '{lsn}'"
    wait_until(lambda: publisher.value(query), "all changes", subscriber.log.read_text, patience=_PATIENCE)


def tables_of(subscriber: Server, one: Published) -> list[SourceTable]:
    """Read all tables of a subscriber."""
    subscriber.database = one.name
    query = "SELECT nspname FROM pg_namespace WHERE nspname NOT LIKE 'pg\\_%%' AND nspname <> 'information_schema'"
    return subscriber.source_tables(*(name for (name,) in subscriber.rows(query)))


def sent_tables(server: Server, one: Published) -> list[SourceTable]:
    """Return the tables that are published with the columns that are, and no rows."""
    query = "SELECT DISTINCT n.nspname, c.relname, string_to_array(p.attrs::text, ' ')::int[]"
    query += " FROM pg_get_publication_tables(VARIADIC %s::text[]) p JOIN pg_class c ON c.oid = p.relid"
    query += " JOIN pg_namespace n ON n.oid = c.relnamespace"
    named = "SELECT attname FROM pg_attribute WHERE attnum = ANY (%s)"
    named += " AND attrelid = format('%%I.%%I', %s::text, %s::text)::regclass"
    found = []
    for schema, name, numbers in server.rows(query, list(one.publications)):
        sent = {column for (column,) in server.rows(named, numbers, schema, name)}
        table = server.source_table(schema, name)
        columns = tuple(column for column in table.columns if column.name in sent)
        found.append(replace(table, columns=columns, rows=[]))
    return found


_FAILURES: Final = (psycopg.errors.UniqueViolation, psycopg.errors.DeadlockDetected)


def change(server: Server, chance: random.Random, *, unsent: bool = False) -> None:
    """Change rows of each table, in transactions of some statements.

    Args:
        unsent: also what a publication does not send.  A copy shows it, so copies of two moments differ by it.
    """
    statements = list(_changes(chance, unsent=unsent))
    chance.shuffle(statements)
    with server.connect() as connection:
        while statements:
            with connection.transaction():
                for _ in range(chance.randrange(1, 12)):
                    if statements:
                        try:
                            statement, values = statements.pop()
                            with connection.transaction(force_rollback=chance.random() < 0.05):
                                connection.execute(statement.encode(), values or None)
                        except _FAILURES:
                            continue


def _changes(chance: random.Random, *, unsent: bool) -> Iterator[tuple[str, Sequence[Any]]]:
    key = lambda most=90: chance.randrange(most)  # noqa: E731
    keep = lambda: chance.choice(("keep", "hide", "", None))  # noqa: E731
    for table in ("parent", "child", "divided"):
        yield f"INSERT INTO kinds.{table} (id, note) VALUES ({key()}, 'n'), ({key()}, 'o') ON CONFLICT DO NOTHING", ()
        yield f"INSERT INTO kinds.{table} (id, note) VALUES ({key() + 100}, 'm') ON CONFLICT DO NOTHING", ()
        yield f"UPDATE ONLY kinds.{table} SET note = 'changed {key()}' WHERE id % 7 = {key(7)}", ()
        yield f"UPDATE kinds.{table} SET id = {key(180)} WHERE id = {key()}", ()
        yield f"DELETE FROM kinds.{table} WHERE id IN ({key(180)}, {key()})", ()
    yield "INSERT INTO kinds.bare DEFAULT VALUES", ()
    pair, moods = '(1,"a ""b, \\\\")', '{sad,NULL,"very happy"}'
    values = [key(20), pair, f'{{"{chance.choice(("(,)", "(2,)"))}",NULL}}', moods, "{1.50,NULL}"]
    more = ["y" * chance.choice((9, 5000)), b"\0\\x", "-1 mon 2 days", chance.choice(("NaN", "1e-40", "-Infinity"))]
    yield (
        "INSERT INTO kinds.values VALUES (%s, %s, %s, %s, %s, %s, %s, %s, %s, '[2024-01-01 02:00+02,)')"
        " ON CONFLICT (id) DO UPDATE SET x = excluded.x, p = NULL",
        (*values, *more),
    )
    yield f"UPDATE kinds.values SET id = id + 50 WHERE id = {key(20)}", ()
    for number, (schema, name) in enumerate(_PLACES):
        table, (first, second, *_) = f"{_quoted(schema)}.{_quoted(name)}".replace("%", "%%"), _columns(number)
        first, second = (_quoted(column).replace("%", "%%") for column in (first, second))
        yield f"INSERT INTO {table} ({first}, {second}) VALUES (%s, %s) ON CONFLICT DO NOTHING", (key(9), name)
        yield f"UPDATE {table} SET {second} = %s WHERE {first} = %s", (schema, key(9))
        yield f"DELETE FROM {table} WHERE {first} = %s", (key(30),)
    yield (
        "INSERT INTO chosen.listed VALUES ('secret', %s, 1, 'z') ON CONFLICT (id) DO UPDATE SET secret = 'more'",
        (key(),),
    )
    yield f"UPDATE chosen.listed SET z = 'zz', a = a + 1 WHERE id = {key()}", ()
    yield f"UPDATE chosen.listed SET id = {key()} WHERE id = {key()}", ()
    yield f"DELETE FROM chosen.listed WHERE id = {key()}", ()
    for _ in range(3):
        yield (
            "INSERT INTO chosen.filtered VALUES (%s, %s, 1, %s) ON CONFLICT (id) DO UPDATE SET kind = excluded.kind",
            (key(30), keep(), "b" * 4000),
        )
        # Rows come and go.
        yield "UPDATE chosen.filtered SET kind = %s, n = %s WHERE id = %s", (keep(), chance.choice((1, None)), key(30))
        yield f"INSERT INTO chosen.by_key VALUES ({key(60)}, 'k') ON CONFLICT DO NOTHING", ()
        yield f"UPDATE chosen.by_key SET id = {key(60)} WHERE id = {key(60)}", ()
        yield f"INSERT INTO chosen.either VALUES ({key(40)}, {key(30)}) ON CONFLICT DO NOTHING", ()
        yield f"UPDATE chosen.either SET n = {key(30)} WHERE id = {key(40)}", ()
        yield (
            "INSERT INTO chosen.\"li.st/ed, fil%%ter\" VALUES ('s', %s, %s, %s) ON CONFLICT DO NOTHING",
            (key(6), chance.choice(("a", "\\\n\t", "")), "z"),
        )
    table = 'chosen."li.st/ed, fil%%ter"'
    yield f'UPDATE {table} SET secret = %s, "wh?ere" = "wh?ere" + 1 WHERE "a b" = %s', ("t", "a")
    yield f'DELETE FROM {table} WHERE "wh?ere" = %s', (key(9),)
    yield f"DELETE FROM chosen.filtered WHERE id = {key(30)}", ()
    yield f"DELETE FROM chosen.by_key WHERE id % 20 = {key(20)}", ()
    yield f"DELETE FROM chosen.either WHERE id = {key(40)}", ()
    yield f"INSERT INTO chosen.whole VALUES ({key(30)}, 'w') ON CONFLICT (id) DO UPDATE SET note = 'again'", ()
    yield f"DELETE FROM chosen.whole WHERE id = {key(30)}", ()
    yield f"INSERT INTO chosen.divided VALUES ({key()}, 's', 'd') ON CONFLICT (id) DO UPDATE SET note = 'again'", ()
    yield f"UPDATE chosen.divided SET id = {key()} WHERE id = {key()}", ()
    yield f"DELETE FROM chosen.divided WHERE id = {key()}", ()
    yield "INSERT INTO chosen.kept SELECT nextval('chosen.numbers'), 'k' FROM generate_series(1, 3)", ()
    yield f"UPDATE chosen.kept SET note = 'changed' WHERE id % 5 = {key(5)}", ()
    note = chance.choice(("no", "yes", None))
    yield "INSERT INTO chosen.inserted VALUES (nextval('chosen.numbers'), %s)", (note,)
    if unsent:
        yield "DELETE FROM chosen.kept WHERE id % 3 = 0", ()
        yield "DELETE FROM chosen.inserted WHERE n % 3 = 0", ()
        yield "UPDATE chosen.inserted SET note = 'changed' WHERE n % 3 = 1", ()
    yield f"INSERT INTO made.g (id, x, z) VALUES ({key()}, {key()}, 'z') ON CONFLICT (id) DO UPDATE SET x = 1", ()
    yield f"UPDATE made.g SET z = 'zz' WHERE id % 4 = {key(4)}", ()
    yield f"DELETE FROM made.g WHERE id = {key()}", ()
    yield f"INSERT INTO made.listed (id, x) VALUES ({key()}, 1) ON CONFLICT DO NOTHING", ()
    yield f"UPDATE made.listed SET id = {key()} WHERE id = {key()}", ()
    yield f"INSERT INTO made.whole (x) VALUES ({key()}), (NULL)", ()
    # Large enough to be streamed.
    yield f"INSERT INTO kinds.divided SELECT g, repeat('s', 300) FROM generate_series(2000, {2300 + key()}) g", ()
    yield "DELETE FROM kinds.divided WHERE id >= 2000", ()


def work(server: Server, seed: int, *, unsent: bool = False) -> None:
    """Change rows of all tables for a moment, by several connections."""
    run_workload(server, transactions=60, connections=2, seed=seed, pause=lambda: None)
    change(server, random.Random(seed), unsent=unsent)


@contextmanager
def working(server: Server, seed: int) -> Iterator[None]:
    """Have the tables changed while the block runs."""
    chance = random.Random(seed)

    def keep_on(ending: threading.Event) -> None:
        while not ending.is_set():
            change(server, chance)
            run_workload(server, transactions=20, connections=2, seed=chance.randrange(99), pause=lambda: None)

    with meanwhile(keep_on):
        yield


@contextmanager
def in_snapshot(server: Server, snapshot: str) -> Iterator[psycopg.Connection[Any]]:
    """Open a transaction that sees what an exported snapshot does, and writes values as the stream has them."""
    with server.connect() as connection, connection.transaction():
        connection.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ READ ONLY")
        connection.execute(f"SET TRANSACTION SNAPSHOT '{snapshot}'".encode())
        connection.execute("SET TimeZone = 'UTC'")
        connection.execute("SET extra_float_digits = 3")
        yield connection


def copied_rows(server: Server, snapshot: str, table: SourceTable, one: Published) -> str:
    """Copy a table's published rows as CSV, by the columns of a subscriber's table."""
    query = "SELECT qual IS NULL, pg_get_expr(qual, relid) FROM pg_get_publication_tables(VARIADIC %s::text[])"
    query += " WHERE relid = format('%%I.%%I', %s::text, %s::text)::regclass"
    with in_snapshot(server, snapshot) as connection:
        filters = connection.execute(query.encode(), (list(one.publications), table.schema, table.name)).fetchall()
        kind = connection.execute(
            "SELECT relkind FROM pg_class WHERE oid = format('%%I.%%I', %s::text, %s::text)::regclass",
            (table.schema, table.name),
        ).fetchone()
        only = sql.SQL("" if kind == ("p",) else "ONLY ")
        where = "true" if any(whole for whole, _ in filters) else " OR ".join(f"({text})" for _, text in filters)
        rows = sql.SQL("SELECT {} FROM {}{} WHERE {}").format(
            sql.SQL(", ").join(sql.Identifier(column.name) for column in table.columns),
            only,
            sql.Identifier(table.schema, table.name),
            sql.SQL(where),  # type: ignore[arg-type]
        )
        form = r"COPY ({}) TO STDOUT (FORMAT csv, HEADER, NULL '\N', FORCE_QUOTE *)"
        with connection.cursor() as cursor, cursor.copy(sql.SQL(form).format(rows)) as copy:
            return b"".join(bytes(part) for part in copy).decode()
