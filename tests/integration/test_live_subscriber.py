"""A mirror holds what an ordinary subscriber of PostgreSQL holds, whatever is published while it is subscribed.

Column lists, row filters, kinds of changes and replica identities change at random between and inside of transactions.
The subscriber is the oracle, in all but four things, which it does by its own rules: an insert of a key that it has
stops it (here a trigger lets it take the new row), it skips an update of a row that it lacks, which a mirror then has,
it does not look into whole old rows for what an update leaves out, and it follows a row by its own key where another
index is the identity that is sent.  So lists and identities change in one kind of round, filters and kinds of changes
in the other, where each row has a key that is sent.

``WALREPLAY_LONG=100`` tries a hundred rounds of each, ``WALREPLAY_SEED=n`` the round of that seed alone.
"""

from __future__ import annotations

import os
import random
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import psycopg
import pytest

import walreplay
from support.extent import further
from support.postgres import Server, running_server, server_versions
from support.readers import read
from support.scenarios import Slot
from support.waiting import wait_until
from walreplay.lsn import format_lsn
from walreplay.scripts import script

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.live, pytest.mark.integration]

_ROUNDS: Final = int(os.environ.get("WALREPLAY_LONG") or 0) or 1
_SEEDS: Final = [int(os.environ["WALREPLAY_SEED"])] if "WALREPLAY_SEED" in os.environ else range(_ROUNDS)
_STEPS: Final = 60
_RUNS: Final = 3

_NAMES: Final = ("t", "u", "v", "w")
_COLUMNS: Final = ("id", "n", "a", "b", "big", "c")
_TABLE: Final = (
    "CREATE TABLE {} (id int PRIMARY KEY, n int NOT NULL UNIQUE, a text, b text, big text, c int)",
    "ALTER TABLE {} ALTER big SET STORAGE EXTERNAL",
)
_UPSERT: Final = """
CREATE FUNCTION upsert() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF TG_OP = 'INSERT' OR NEW.id <> OLD.id THEN
        EXECUTE format('DELETE FROM %s WHERE id = $1.id', TG_RELID::regclass) USING NEW;
    END IF;
    RETURN NEW;
END $$
"""
_LISTS: Final = ("", "(id, n, a, b)", "(id, n, b, big, c)", "(n, id)", "(id, n, a, big, c)")
_FILTERS: Final = ("", "", "", "WHERE (id % 3 > 0)", "WHERE (id < 30)", "WHERE (id % 2 = 0 OR id < 9)")
_PUBLISHED: Final = ("insert, update, delete, truncate", "insert, update, delete", "insert, update, truncate")
# Whole old rows would not find those whose columns were not all sent.
_KEYED: Final = [{"table": {"source_schema": "public", "source_table": name, "keys": ["id"]}} for name in _NAMES]
_CONFIG: Final = {"announcements": "walreplay", "objects": _KEYED}
_IDENTITIES: Final = ("DEFAULT", "FULL", "USING INDEX {}_n_key")


@pytest.fixture(scope="module", params=further(server_versions(), but=server_versions()[-1:]))
def servers(request: pytest.FixtureRequest) -> Iterator[tuple[Server, Server]]:
    """A publisher, and a subscriber of the newest version."""
    with running_server(request.param) as publisher, running_server() as subscriber:
        yield publisher, subscriber


class _Round:
    """A database of each server, and random work in the publisher's."""

    def __init__(self, publisher: Server, subscriber: Server, seed: int, *, lists: bool) -> None:
        self.publisher, self.subscriber = publisher, subscriber
        self.chance, self.lists = random.Random(seed), lists
        self.number = 0
        self.name = f"round_{seed}_{'lists' if lists else 'plain'}"

    def begin(self) -> None:
        for server in (self.publisher, self.subscriber):
            server.database = "postgres"
            server.execute(f"CREATE DATABASE {self.name}")
            server.database = self.name
            server.execute(*(statement.format(name) for name in _NAMES for statement in _TABLE))
        self.publisher.execute(f"CREATE PUBLICATION everything FOR TABLE {', '.join(_NAMES)}")
        address = f"host={self.publisher.home} port={self.publisher.port} user=postgres dbname={self.name}"
        self.subscriber.execute(
            _UPSERT,
            *(
                f"CREATE TRIGGER upsert BEFORE INSERT OR UPDATE ON {name} FOR EACH ROW EXECUTE FUNCTION upsert()"
                for name in _NAMES
            ),
            *(f"ALTER TABLE {name} ENABLE ALWAYS TRIGGER upsert" for name in _NAMES),
            f"CREATE SUBSCRIPTION {self.name} CONNECTION '{address}' PUBLICATION everything WITH (copy_data = false)",
        )
        if not self.lists:
            # A row whose old place a filter hides comes as an insert of another key.
            self.subscriber.execute(*(f"ALTER TABLE {name} DROP CONSTRAINT {name}_n_key" for name in _NAMES))
        ready = "SELECT bool_and(srsubstate = 'r') FROM pg_subscription_rel"
        wait_until(lambda: self.subscriber.value(ready), "the subscription", self.subscriber.log.read_text)

    def end(self) -> None:
        self.subscriber.execute(f"DROP SUBSCRIPTION IF EXISTS {self.name}")
        self.publisher.drop_slots(f"{self.name}_archive")

    def catch_up(self) -> None:
        """Wait until the subscriber has all that was committed by now."""
        self.publisher.execute("SELECT pg_logical_emit_message(true, 'flush', '')")
        lsn = format_lsn(self.publisher.lsn())
        self.publisher.execute("SELECT pg_switch_wal()")
        query = "SELECT count(*) = 1 FROM pg_stat_replication WHERE application_name = %s AND replay_lsn >= %s::pg_lsn"
        arrived = lambda: self.publisher.value(query, self.name, lsn)  # noqa: E731
        wait_until(arrived, "all changes", lambda: self.subscriber.log.read_text()[-3000:])

    def work(self) -> None:
        for _ in range(_STEPS):
            if self.lists and self.chance.random() < 0.06:
                self._change_identity()
            else:
                self._transaction()

    def _change_identity(self) -> None:
        name = self.chance.choice(_NAMES)
        identity = self.chance.choice(_IDENTITIES).format(name)
        # A subscriber whose key is not the one that is sent stops.
        self.catch_up()
        with suppress(psycopg.Error):
            self.publisher.execute(f"ALTER TABLE {name} REPLICA IDENTITY {identity}")
            key = identity if identity.startswith("USING") else "DEFAULT"
            self.subscriber.execute(f"ALTER TABLE {name} REPLICA IDENTITY {key}")

    def _transaction(self) -> None:
        with self.publisher.connect() as connection, connection.transaction():
            for _ in range(self.chance.randint(1, 6)):
                # A statement that its identity, list or filter does not allow changes nothing.
                with suppress(psycopg.Error), connection.transaction(force_rollback=self.chance.random() < 0.08):
                    connection.execute(self._statement().encode())

    def _statement(self) -> str:
        chance = self.chance
        name, key, other = chance.choice(_NAMES), chance.randrange(40), chance.randrange(100)
        # No two rows ever have the same, so that an index of it is an identity that no missing delete disturbs.
        self.number += 10
        big = f"repeat('{chance.choice('xyz')}', {chance.choice((9, 3000))})"
        added = (
            f"SELECT g, {self.number} + g - {key}, 'a{other}', 'b', {big}, g FROM generate_series({key}, {key + 3}) g"
        )
        return chance.choice(
            (
                f"INSERT INTO {name} {added} ON CONFLICT DO NOTHING",
                f"UPDATE {name} SET a = 'u{other}' WHERE id = {key}",
                f"UPDATE {name} SET b = NULL, c = c + 1 WHERE id % 5 = {key % 5}",
                f"UPDATE {name} SET n = {self.number} WHERE id = {key}",
                f"UPDATE {name} SET id = {other} WHERE id = {key}",
                f"UPDATE {name} SET big = {big} WHERE id % 7 = {other % 7}",
                f"DELETE FROM {name} WHERE id % 9 = {key % 9}",
                f"TRUNCATE {name}" if chance.random() < 0.15 else f"DELETE FROM {name} WHERE id = {other}",
                self._publication() if chance.random() < 0.5 else f"UPDATE {name} SET c = {key} WHERE id = {key}",
            )
        )

    def _publication(self) -> str:
        chance = self.chance
        if not self.lists and chance.random() < 0.25:
            return f"ALTER PUBLICATION everything SET (publish = '{chance.choice(_PUBLISHED)}')"
        # Of a table that was left out for a while a mirror has rows that the subscriber lacks: those updated since.
        parts = _LISTS if self.lists else _FILTERS
        sent = [f"{name} {chance.choice(parts)}" for name in _NAMES if self.lists or chance.random() < 0.9]
        return f"ALTER PUBLICATION everything SET TABLE {', '.join(sent or _NAMES)}"

    def differences(self, target: Path) -> list[str]:
        """Compare all tables."""
        return [f"{name}: {text}" for name in _NAMES if (text := self._difference(target / "public" / name, name))]

    def _difference(self, location: Path, name: str) -> str:
        mirror = _mirrored(location)
        query = f"SELECT {', '.join(_COLUMNS)} FROM {name}"
        copy = {row[0]: row for row in self.subscriber.rows(query)}
        if lost := copy.keys() - mirror.keys():
            return f"rows {sorted(lost)} are not in the mirror"
        # What a filter has hidden may come by an update, of a row that the subscriber lacks.
        if self.lists and (added := mirror.keys() - copy.keys()):
            return f"rows {sorted(added)} are in the mirror alone"
        source = {row[0]: row for row in self.publisher.rows(query)}
        for key, expected in copy.items():
            # A whole old row has what an update leaves out, and a subscriber does not take it from there.
            more = source.get(key, expected)
            if any(value not in told for value, *told in zip(mirror[key], expected, more, strict=True)):
                return f"row {key} is {_short(mirror[key])}, not {_short(expected)}"
        return ""


def _mirrored(location: Path) -> dict[int, tuple[Any, ...]]:
    if not location.exists():
        return {}
    table = read(location)
    empty = [None] * table.num_rows
    columns = [table[name].to_pylist() if name in table.column_names else empty for name in _COLUMNS]
    rows = {row[0]: row for row in zip(*columns, strict=True)}
    assert len(rows) == table.num_rows, "a key is there twice"
    return rows


def _short(row: tuple[Any, ...]) -> tuple[Any, ...]:
    return tuple(f"{value[:1]}*{len(value)}" if isinstance(value, str) and len(value) > 20 else value for value in row)


@pytest.mark.full
@pytest.mark.parametrize("lists", [False, True], ids=["filters", "lists and filters"])
def test_a_mirror_holds_what_a_subscriber_holds(
    spark: SparkSession, tmp_path: Path, servers: tuple[Server, Server], lists: bool
) -> None:
    for seed in _SEEDS:
        played = _Round(*servers, seed, lists=lists)
        captures, target = tmp_path / f"{seed}" / "captures", tmp_path / f"{seed}" / "mirror"
        captures.mkdir(parents=True)
        played.begin()
        try:
            slot = Slot(
                played.publisher,
                captures,
                "everything",
                name=f"{played.name}_archive",
                options={"proto_version": "2", "messages": "on"},
            )
            if lists:
                played.publisher.execute(script("announce.sql"), "SELECT walreplay.announce_all()")
            for number in range(_RUNS):
                played.work()
                slot.take()
                played.catch_up()
                walreplay.apply(spark, captures, target, config=_CONFIG if lists else {})
                assert not played.differences(target), f"seed {seed}, run {number}"
        finally:
            played.end()
