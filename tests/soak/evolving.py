"""Tables whose DDL changes every few seconds, in the server and, first, in its subscriber, which gets no DDL."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Final

import psycopg

from soak.journal import Journal
from support.postgres import Server

SETUP: Final = ("CREATE SCHEMA evolving",)
SCHEMA: Final = "evolving"

_TABLES: Final = 3
_WIDER: Final = {"int": "bigint", "varchar(9)": "text"}
_VALUES: Final = {
    "int": "{}",
    "bigint": "{}",
    "text": "'text {}'",
    "numeric(12,3)": "{}.125",
    "date": "date '2024-01-01' + {}",
    "varchar(9)": "'v{}'",
    "float8": "{} / 8.0",
}
_DONE: Final = (
    *(psycopg.errors.DuplicateColumn, psycopg.errors.UndefinedColumn),
    *(psycopg.errors.DuplicateTable, psycopg.errors.UndefinedTable),
)
"""What a statement says that is run again because its answer never came."""


class Evolving:
    """Tables, by name with the types of their columns behind ``id``, which one thread alone changes.

    Args:
        is_even: returns whether the subscriber has come up to now.
    """

    def __init__(
        self, server: Server, subscriber: Server, seed: int, is_even: Callable[[float], bool], journal: Journal
    ) -> None:
        self._server, self._subscriber, self._is_even, self._journal = server, subscriber, is_even, journal
        self._seed, self._number, self._next_ddl = seed, 0, 0.0
        self.tables: dict[str, dict[str, str]] = {}

    def burst(self, number: int) -> None:
        """Change rows, and now and then a table."""
        chance = random.Random(f"{self._seed}/evolving/{number}")
        if len(self.tables) < _TABLES or time.monotonic() > self._next_ddl:
            self._next_ddl = time.monotonic() + chance.uniform(5, 15)
            if self._is_even(20):
                self._change_table(chance)
            else:
                self._journal.count("DDL left out, as the subscriber was behind")
        with suppress(psycopg.OperationalError):
            for _ in range(chance.randrange(1, 5)):
                self._server.execute(self._rows(chance))

    def touch(self) -> None:
        """Write a row into each table, by which its last DDL shows."""
        self._number += 1
        for name in self.tables:
            self._server.execute(f"INSERT INTO evolving.{name} (id) VALUES ({1_000_000 + self._number})")

    def _rows(self, chance: random.Random) -> str:
        name, key = chance.choice(list(self.tables)), chance.randrange(60)
        columns = self.tables[name]
        values = {column: _VALUES[kind].format(chance.randrange(90)) for column, kind in columns.items()}
        listed = "".join(f", {column}" for column in columns)
        given = "".join(f", {value}" for value in values.values())
        statements = [
            f"INSERT INTO evolving.{name} (id{listed}) SELECT g{given} FROM generate_series({key}, {key + 5}) g"
            " ON CONFLICT DO NOTHING",
            f"UPDATE evolving.{name} SET id = id + 60 WHERE id = {key}"
            f" AND NOT EXISTS (SELECT FROM evolving.{name} WHERE id = {key + 60})",
            f"DELETE FROM evolving.{name} WHERE id % 9 = {key % 9}",
        ]
        statements += [
            f"UPDATE evolving.{name} SET {column} = {value} WHERE id % 4 = {key % 4}"
            for column, value in values.items()
        ]
        return chance.choice(statements)

    def _fresh(self, prefix: str) -> str:
        self._number += 1
        return f"{prefix}{self._number}"

    def _change_table(self, chance: random.Random) -> None:
        if len(self.tables) < _TABLES:
            self._create(self._fresh("t"), chance)
            return
        name = chance.choice(list(self.tables))
        columns = self.tables[name]
        column = chance.choice(list(columns)) if columns else ""
        kinds = ["ADD", "ADD", "RENAME TABLE", "AGAIN"]
        if columns:
            kinds += ["DROP", "RENAME", "RENAME", *(["WIDEN"] * 3 if columns[column] in _WIDER else [])]
        match chance.choice(kinds):
            case "ADD":
                new, kind = self._fresh("c"), chance.choice(list(_VALUES))
                default = f" DEFAULT {_VALUES[kind].format(7)}" if chance.random() < 0.5 else ""
                self._both(f"ALTER TABLE evolving.{name} ADD {new} {kind}{default}")
                columns[new] = kind
            case "DROP":
                self._both(f"ALTER TABLE evolving.{name} DROP {column}")
                del columns[column]
            case "RENAME":
                new = self._fresh("r")
                self._both(f"ALTER TABLE evolving.{name} RENAME {column} TO {new}")
                self.tables[name] = {new if old == column else old: kind for old, kind in columns.items()}
            case "WIDEN":
                columns[column] = _WIDER[columns[column]]
                self._both(f"ALTER TABLE evolving.{name} ALTER {column} TYPE {columns[column]}")
            case "RENAME TABLE":
                new = self._fresh("t")
                self._both(f"ALTER TABLE evolving.{name} RENAME TO {new}")
                self.tables[new] = self.tables.pop(name)
            case "AGAIN":
                self._both(f"DROP TABLE evolving.{name}")
                del self.tables[name]
                self._create(name, chance)

    def _create(self, name: str, chance: random.Random) -> None:
        columns = {self._fresh("c"): chance.choice(list(_VALUES)) for _ in range(chance.randint(1, 3))}
        listed = ", ".join(f"{column} {kind}" for column, kind in columns.items())
        self._both(f"CREATE TABLE evolving.{name} (id int PRIMARY KEY, {listed})")
        if chance.random() < 0.3:
            self._both(f"ALTER TABLE evolving.{name} REPLICA IDENTITY FULL")
        _until_done(self._subscriber, "ALTER SUBSCRIPTION oracle REFRESH PUBLICATION WITH (copy_data = false)")
        self.tables[name] = columns

    def _both(self, statement: str) -> None:
        for server in (self._subscriber, self._server):
            _until_done(server, statement)
        self._journal.note("DDL", statement)


def _until_done(server: Server, statement: str) -> None:
    """Run a statement, again where the server went down meanwhile."""
    deadline = time.monotonic() + 240
    is_repeated = False
    while True:
        try:
            server.execute(statement)
            return
        except (psycopg.OperationalError, psycopg.errors.ConnectionException):
            assert time.monotonic() < deadline, statement
            is_repeated = True
            time.sleep(0.3)
        except _DONE:
            if not is_repeated:
                raise
            return
