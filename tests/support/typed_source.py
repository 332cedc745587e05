"""Small tables of a server with columns of every type, collated keys and partitions."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from random import Random
from typing import Final

from support.postgres import Server
from support.random_values import PGVECTOR_SAMPLES, SAMPLES, USER_DEFINED, USER_DEFINED_SAMPLES, Sample, array_sample
from walreplay.types.builtin import BUILTIN_TYPES

SCHEMA: Final = "typed"

_DECLARED: Final = {"bit": "bit(13)", "_bit": "bit(13)[]", "bpchar": "character(40)", "_bpchar": "character(40)[]"}


def _samples(*, arrays: bool) -> Iterator[tuple[str, Sample]]:
    for builtin in BUILTIN_TYPES.values():
        element = BUILTIN_TYPES[builtin.element] if builtin.element else builtin
        if element.name in SAMPLES and bool(builtin.element) is arrays:
            sample = SAMPLES[element.name]
            yield (
                _DECLARED.get(builtin.name, builtin.sql_name),
                array_sample(sample, element.delimiter) if arrays else sample,
            )


_TABLES: Final[Mapping[str, Sequence[tuple[str, Sample]]]] = {
    "plain": list(_samples(arrays=False)),
    "arrays": list(_samples(arrays=True)),
    "named": [*USER_DEFINED_SAMPLES.items(), *PGVECTOR_SAMPLES.items()],
}

SETUP: Final = (
    # A server built without libxml takes no xml in, but sends and writes what is there.
    "UPDATE pg_cast SET castmethod = 'b', castfunc = 0"
    " WHERE castsource = 'text'::regtype AND casttarget = 'xml'::regtype",
    *USER_DEFINED,
    "CREATE EXTENSION vector",
    f"CREATE SCHEMA {SCHEMA}",
    *(
        f"CREATE TABLE typed.{name} (id int PRIMARY KEY, {', '.join(f'c{n} {kind}' for n, (kind, _) in enumerate(of))})"
        for name, of in _TABLES.items()
    ),
    'CREATE TABLE typed.collated (k text COLLATE "POSIX", l varchar COLLATE "C.utf8", v text, PRIMARY KEY (k, l))',
    "CREATE TABLE typed.parted (id int, part text, v float8, PRIMARY KEY (id, part)) PARTITION BY LIST (part)",
    "CREATE TABLE typed.leaf_a PARTITION OF typed.parted FOR VALUES IN ('a')",
    "CREATE TABLE typed.leaf_b PARTITION OF typed.parted DEFAULT",
    "CREATE TABLE typed.full_rows (id int PRIMARY KEY, v float8, w text)",
    "ALTER TABLE typed.full_rows REPLICA IDENTITY FULL",
)

_KEYS: Final = ("a", "A", "a ", "é", "e\u0301", "", "ß", "ss", "\u0130", "i")

_IDENTITIES: Final = """
SELECT nspname || '.' || relname, ARRAY(
    SELECT a.attname::text FROM pg_index i JOIN pg_attribute a ON a.attrelid = c.oid AND a.attnum = ANY(i.indkey)
    WHERE i.indrelid = c.oid AND CASE relreplident WHEN 'd' THEN indisprimary WHEN 'i' THEN indisreplident END)
FROM pg_class c JOIN pg_namespace n ON n.oid = relnamespace
WHERE relkind IN ('r', 'p') AND nspname NOT IN ('pg_catalog', 'information_schema')
"""


def change(server: Server, chance: Random, rows: int) -> None:
    """Write rows of each table, and change some, each statement a transaction."""
    with server.connect() as connection:
        for name, columns in _TABLES.items():
            table = f"typed.{name}"
            for _ in range(rows):
                key, values = chance.randrange(3 * rows), [_drawn(sample, chance) for _, sample in columns]
                casts = ", ".join(f"%s::{kind.replace('xml', 'text')}::{kind}" for kind, _ in columns)
                new = f"INSERT INTO {table} VALUES (%s, {casts}) ON CONFLICT DO NOTHING"
                connection.execute(new.encode(), [key, *values])
                n = chance.randrange(len(columns))
                taken = f"UPDATE {table} t SET c{n} = o.c{n} FROM {table} o WHERE t.id = %s AND o.id <> t.id"
                connection.execute(taken.encode(), [key])
            connection.execute(f"DELETE FROM {table} WHERE id %% 7 = %s".encode(), [chance.randrange(7)])
        for _ in range(3 * rows):
            k, other, number = chance.choice(_KEYS), chance.choice(_KEYS), chance.randrange(9)
            for statement, values in (
                ("INSERT INTO typed.collated VALUES (%s, %s, 'new') ON CONFLICT DO NOTHING", [k, other]),
                ("UPDATE typed.collated SET v = v || '.' WHERE k = %s", [other]),
                ("DELETE FROM typed.collated WHERE k = %s AND l = %s", [other, k]),
                ("INSERT INTO typed.parted VALUES (%s, %s, random()) ON CONFLICT DO NOTHING", [number, k]),
                ("UPDATE typed.parted SET part = 'a' WHERE id = %s AND part = 'A' AND random() < 0.5", [number]),
                ("DELETE FROM typed.parted WHERE id = %s AND part = 'ß'", [number]),
                (
                    "INSERT INTO typed.full_rows VALUES (%s, 'NaN', %s) ON CONFLICT (id) DO UPDATE SET v = 0",
                    [number, k],
                ),
            ):
                with connection.transaction(force_rollback=chance.random() < 0.05):
                    if statement.startswith("UPDATE typed.parted"):
                        connection.execute("DELETE FROM typed.parted WHERE id = %s AND part = 'a'", [number])
                    connection.execute(statement.encode(), values)


def _drawn(sample: Sample, chance: Random) -> str | None:
    if chance.random() < 0.15:
        return None
    return chance.choice(sample.edges) if sample.edges and chance.random() < 0.3 else sample.draw(chance)


def identities(server: Server) -> dict[str, list[str]]:
    """Return by table the columns that identify its rows; none under replica identity full or nothing."""
    return dict(server.rows(_IDENTITIES))
