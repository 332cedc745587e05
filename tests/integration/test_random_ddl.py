"""DDL at random over many tables of a real server, while they are written to, also inside of transactions.

Tables are renamed, moved, swapped, dropped and made again; columns are added, dropped, renamed and get other types.
With announcements all tables are the source's.  Without them every row comes once more behind its table's DDL: then
they are, too.  A table's DDL shows with its next row.

``WALREPLAY_LONG=100`` tries so many seeds of each, and not 1; ``WALREPLAY_SEED=n`` the one of that seed alone.
"""

from __future__ import annotations

import os
import random
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pytest

import walreplay
from support.extent import further
from support.postgres import Server, running_server, server_versions
from support.readers import read
from support.scenarios import Slot, table_difference
from walreplay.scripts import script

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.live, pytest.mark.integration, pytest.mark.full]

_SEEDS: Final = (
    [int(os.environ["WALREPLAY_SEED"])]
    if "WALREPLAY_SEED" in os.environ
    else range(int(os.environ.get("WALREPLAY_LONG") or 1))
)
_TABLES: Final = 6
_RUNS: Final = 2
_TRANSACTIONS: Final = 20
_TYPES: Final = ("int", "bigint", "text", "numeric(12,3)", "date", "boolean", "timestamptz", "varchar(9)", "float8")
_WIDER: Final = {"int": "bigint", "bigint": "text", "date": "text", "boolean": "text", "varchar(9)": "text"}
_VALUES: Final = {
    "int": "{}",
    "bigint": "{}",
    "text": "'text {}'",
    "numeric(12,3)": "{}.125",
    "date": "date '2024-01-01' + {}",
    "boolean": "({} % 2 = 0)",
    "timestamptz": "timestamptz '2024-01-01 00:00+00' + {} * interval '1 h'",
    "varchar(9)": "'v{}'",
    "float8": "{} / 8.0",
}


@pytest.fixture(scope="module", params=further(server_versions()[-1:], long=server_versions()[:-1]))
def server(request: pytest.FixtureRequest) -> Iterator[Server]:
    with running_server(request.param) as running:
        yield running


class _Storm:
    """A database, and what its tables are: by name, the types of their columns behind ``id`` and ``seen``."""

    def __init__(self, server: Server, seed: int, *, announced: bool) -> None:
        self.server, self.chance, self.announced = server, random.Random(seed), announced
        self.tables: dict[str, dict[str, str]] = {}
        self.number = 0

    def begin(self, name: str) -> None:
        self.server.database = "postgres"
        self.server.execute(f"CREATE DATABASE {name}")
        self.server.database = name
        self.server.execute("CREATE SCHEMA a", "CREATE SCHEMA b", "CREATE PUBLICATION everything FOR ALL TABLES")

    def fresh(self, prefix: str) -> str:
        self.number += 1
        return f"{prefix}{self.number}"

    def work(self) -> None:
        while len(self.tables) < _TABLES:
            self.run(self.created(f"{self.chance.choice('ab')}.{self.fresh('t')}"))
        for _ in range(_TRANSACTIONS):
            # Several tables at once, some of them several times.
            self.run([one for _ in range(self.chance.randint(1, 4)) for one in self.step()])
        self.number += 1
        self.run([f"INSERT INTO {name} (id, seen) VALUES ({1000 + self.number}, 0)" for name in self.tables])

    def run(self, statements: list[str]) -> None:
        with self.server.connect() as connection, connection.transaction():
            for statement in statements:
                connection.execute(statement.encode())

    def step(self) -> list[str]:
        name = self.chance.choice(list(self.tables))
        if self.chance.random() < 0.5:
            return self.rows(name)
        kinds = [self.add, self.drop, self.rename, self.retype, self.rename_table, self.swap, self.make_again]
        return self.chance.choice(kinds)(name)

    def created(self, name: str) -> list[str]:
        columns = {self.fresh("c"): self.chance.choice(_TYPES) for _ in range(self.chance.randint(1, 3))}
        self.tables[name] = columns
        listed = ", ".join(f"{column} {kind}" for column, kind in columns.items())
        statements = [f"CREATE TABLE {name} (id int PRIMARY KEY, seen int, {listed})"]
        if self.chance.random() < 0.3 and self.announced:
            statements.append(f"ALTER TABLE {name} REPLICA IDENTITY FULL")
        return [*statements, *self.inserted(name)]

    def values(self, name: str) -> list[str]:
        return [
            "NULL" if self.chance.random() < 0.15 else _VALUES[kind].format(self.chance.randrange(900))
            for kind in self.tables[name].values()
        ]

    def inserted(self, name: str) -> list[str]:
        keys = self.chance.sample(range(30), 4)
        rows = ", ".join(f"({', '.join([str(key), '0', *self.values(name)])})" for key in keys)
        listed = ", ".join(["id", "seen", *self.tables[name]])
        return [f"INSERT INTO {name} ({listed}) VALUES {rows} ON CONFLICT DO NOTHING"]

    def rows(self, name: str) -> list[str]:
        key = self.chance.randrange(30)
        match self.chance.randrange(6):
            case 0:
                return [f"DELETE FROM {name} WHERE id % 7 = {key % 7}"]
            case 1:
                return [f"UPDATE {name} SET id = {100 + self.number + key} WHERE id = {key}", self.again(name)]
            case 2 if self.tables[name]:
                column = self.chance.choice(list(self.tables[name]))
                return [f"UPDATE {name} SET {column} = NULL WHERE id % 5 = {key % 5}"]
            case 3 if self.chance.random() < 0.2:
                return [f"TRUNCATE {name}", *self.inserted(name)]
        return self.inserted(name)

    def again(self, name: str) -> str:
        """Return what has every row of a table sent once more, where nothing is announced."""
        self.number += 1
        return "SELECT" if self.announced else f"UPDATE {name} SET seen = {self.number}"

    def add(self, name: str) -> list[str]:
        column, kind = self.fresh("c"), self.chance.choice(_TYPES)
        # A name that was free may be taken again.
        dropped = [one for one in ("x", "y") if one not in self.tables[name]]
        column = self.chance.choice([column, *dropped])
        default = "" if self.chance.random() < 0.5 else f" DEFAULT {_VALUES[kind].format(7)}"
        self.tables[name][column] = kind
        return [f"ALTER TABLE {name} ADD {column} {kind}{default}", self.again(name)]

    def drop(self, name: str) -> list[str]:
        if not self.tables[name]:
            return []
        column = self.chance.choice(list(self.tables[name]))
        del self.tables[name][column]
        return [f"ALTER TABLE {name} DROP {column}", self.again(name)]

    def rename(self, name: str) -> list[str]:
        if not self.tables[name]:
            return []
        column, new = self.chance.choice(list(self.tables[name])), self.fresh("r")
        self.tables[name] = {new if one == column else one: kind for one, kind in self.tables[name].items()}
        return [f"ALTER TABLE {name} RENAME {column} TO {new}", self.again(name)]

    def retype(self, name: str) -> list[str]:
        wider = [column for column, kind in self.tables[name].items() if kind in _WIDER]
        if not wider:
            return []
        column = self.chance.choice(wider)
        kind = self.tables[name][column] = _WIDER[self.tables[name][column]]
        return [f"ALTER TABLE {name} ALTER {column} TYPE {kind}", self.again(name)]

    def rename_table(self, name: str) -> list[str]:
        schema, _, table = name.partition(".")
        if self.chance.random() < 0.5:
            other = "b" if schema == "a" else "a"
            self.tables[f"{other}.{table}"] = self.tables.pop(name)
            return [f"ALTER TABLE {name} SET SCHEMA {other}", self.again(f"{other}.{table}")]
        new = self.fresh("t")
        self.tables[f"{schema}.{new}"] = self.tables.pop(name)
        return [f"ALTER TABLE {name} RENAME TO {new}", self.again(f"{schema}.{new}")]

    def swap(self, name: str) -> list[str]:
        schema = name.partition(".")[0]
        others = [one for one in self.tables if one != name and one.startswith(f"{schema}.")]
        if not others:
            return []
        other = self.chance.choice(others)
        own, theirs = name.partition(".")[2], other.partition(".")[2]
        self.tables[name], self.tables[other] = self.tables[other], self.tables[name]
        return [
            f"ALTER TABLE {name} RENAME TO between",
            f"ALTER TABLE {other} RENAME TO {own}",
            f"ALTER TABLE {schema}.between RENAME TO {theirs}",
            self.again(name),
            self.again(other),
        ]

    def make_again(self, name: str) -> list[str]:
        return [f"DROP TABLE {name}", *self.created(name)]

    def differences(self, spark: SparkSession, target: Path) -> list[str]:
        found = []
        for table in self.server.source_tables("a", "b"):
            place = target / table.schema / table.name
            if (text := table_difference(spark, place, table)) is not None:
                found.append(f"{table.qualified_name}: {text}")
            history = read(place.with_name(f"{place.name}__history"))
            if (opened := history["__end_lsn"].null_count) != len(table.rows):
                found.append(f"{table.qualified_name}: {opened} versions are open")
        return found


@pytest.mark.parametrize("announced", [True, False], ids=["announced", "not announced"])
def test_tables_are_the_sources_through_a_storm_of_ddl(
    spark: SparkSession, tmp_path: Path, server: Server, announced: bool
) -> None:
    for seed in _SEEDS:
        storm = _Storm(server, seed, announced=announced)
        name = f"storm_{seed}_{'told' if announced else 'silent'}"
        captures, target = tmp_path / name / "captures", tmp_path / name / "mirror"
        captures.mkdir(parents=True)
        storm.begin(name)
        options = {"proto_version": "2", "messages": "on"}
        slot = Slot(server, captures, "everything", name=f"{name}_archive", options=options)
        config: dict[str, Any] = {"on_drop_column": "drop", "outputs": ["mirror", "history"]}
        if announced:
            server.execute(script("announce.sql"), "SELECT walreplay.announce_all()")
            config["announcements"] = "walreplay"
        try:
            for number in range(_RUNS):
                storm.work()
                slot.take()
                walreplay.apply(spark, captures, target, config=config)
                assert not storm.differences(spark, target), f"seed {seed}, run {number}"
        finally:
            server.drop_slots(f"{name}_archive")
