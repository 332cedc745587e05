"""A source announces its tables as docs/announcements.md says: what places do not show is right, in any runs."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from support.pages import ROOT, block, with_places
from support.postgres import Server, running_server
from support.scenarios import FILE_BY_FILE, ONE_RUN, Applied, Slot, apply_both

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.live, pytest.mark.integration]

_TABLES = (
    "CREATE SCHEMA n",
    *(
        f"CREATE TABLE n.{name} (id int PRIMARY KEY, a text, b text)"
        for name in ("last", "again", "swapped", "within", "streamed", "undone")
    ),
    "CREATE TABLE n.rows (id int, v text)",
    "ALTER TABLE n.rows REPLICA IDENTITY FULL",
    "CREATE TABLE n.root (id int PRIMARY KEY, v text) PARTITION BY RANGE (id)",
    "CREATE TABLE n.leaf PARTITION OF n.root FOR VALUES FROM (0) TO (100)",
    "CREATE PUBLICATION everything FOR ALL TABLES WITH (publish_via_partition_root = true)",
)

_KEYED = ("last", "again", "swapped", "within", "streamed", "undone")

_BEFORE = (
    *(f"INSERT INTO n.{name} SELECT i, 'a' || i, 'b' || i FROM generate_series(1, 3) i" for name in _KEYED),
    "INSERT INTO n.rows SELECT i, 'v' || i FROM generate_series(1, 4) i",
    "INSERT INTO n.root SELECT i, 'v' || i FROM generate_series(1, 3) i",
    # Not announced: a rename that its place shows.
    "ALTER TABLE n.last RENAME a TO first",
    "INSERT INTO n.last VALUES (4, 'a4', 'b4')",
)

_CHANGES = (
    "ALTER TABLE n.last RENAME b TO z",
    "COMMENT ON TABLE n.last IS 'It''s\n\\ours'",
    "COMMENT ON COLUMN n.last.z IS 'the last'",
    "INSERT INTO n.last VALUES (5, 'a5', 'z5')",
    "ALTER TABLE n.again DROP b",
    "ALTER TABLE n.again ADD b text DEFAULT 'new'",
    "INSERT INTO n.again VALUES (4, 'a4', 'b4')",
    "BEGIN; ALTER TABLE n.swapped RENAME a TO x; ALTER TABLE n.swapped RENAME b TO a; "
    "ALTER TABLE n.swapped RENAME x TO b; INSERT INTO n.swapped (id, a, b) VALUES (4, 'a', 'b'); COMMIT",
    # Rows and changes of columns of one transaction, in both orders; one change is undone.
    "BEGIN; INSERT INTO n.within VALUES (4, 'a4', 'b4'); ALTER TABLE n.within ADD c int NOT NULL DEFAULT 7; "
    "INSERT INTO n.within VALUES (5, 'a5', 'b5', 5); ALTER TABLE n.within RENAME c TO d; SAVEPOINT s; "
    "ALTER TABLE n.within DROP d; ALTER TABLE n.within ADD d int; INSERT INTO n.within VALUES (6, 'no', 'no', 6); "
    "ROLLBACK TO s; INSERT INTO n.within VALUES (7, 'a7', 'b7', 8); COMMIT",
    "BEGIN; ALTER TABLE n.undone DROP b; ALTER TABLE n.undone ADD b text; INSERT INTO n.undone VALUES (9); ROLLBACK",
    "INSERT INTO n.undone VALUES (4, 'a4', 'b4')",
    "ALTER TABLE n.rows ADD at timestamptz NOT NULL DEFAULT '2024-02-29 12:00:00.5+00', ADD list int[] DEFAULT '{1,2}'",
    "DELETE FROM n.rows WHERE id = 2",
    "UPDATE n.rows SET v = 'updated' WHERE id = 3",
    "ALTER TABLE n.root ADD q int NOT NULL DEFAULT 5",
    "INSERT INTO n.root VALUES (4, 'v4', 6)",
)

_STREAMED = (
    "BEGIN; INSERT INTO n.streamed VALUES (4, 'a4', 'b4'); ALTER TABLE n.streamed DROP b; "
    "ALTER TABLE n.streamed ADD b text DEFAULT 'new'; INSERT INTO n.streamed VALUES (5, 'a5', 'b5'); SAVEPOINT s; "
    "ALTER TABLE n.streamed DROP b; ALTER TABLE n.streamed ADD b text; INSERT INTO n.streamed VALUES (6, 'no', 'no'); "
    "COMMENT ON COLUMN n.streamed.a IS 'no'; "
    "ROLLBACK TO s; INSERT INTO n.streamed VALUES (7, 'a7', 'b7'); COMMIT",
    "BEGIN; ALTER TABLE n.undone DROP b; ALTER TABLE n.undone ADD b text; INSERT INTO n.undone VALUES (9); ROLLBACK",
    "INSERT INTO n.undone VALUES (5, 'a5', 'b5')",
    "COMMENT ON COLUMN n.last.id IS 'the key'",
    "ALTER TABLE n.last RENAME z TO y",
    "INSERT INTO n.last VALUES (6, 'a6', 'y6')",
)

_IMMEDIATELY = "SET debug_logical_replication_streaming = immediate"


def install(server: Server) -> None:
    """Run the page's commands."""
    text = with_places(
        block("docs/announcements.md", "walreplay sql announce.sql").text, {"-d shop": f"-d {server.database}"}
    )
    programs = os.pathsep.join([str(server.programs), str(Path(sys.executable).parent), os.environ["PATH"]])
    environment = {**os.environ, "PATH": programs, "PGHOST": str(server.home), "PGUSER": "postgres"}
    done = subprocess.run(["bash", "-euc", text], env=environment, cwd=ROOT, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    assert "announce_all" in done.stdout


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with running_server() as running:
        yield running


@pytest.fixture(scope="module")
def applied(spark: SparkSession, server: Server, tmp_path_factory: pytest.TempPathFactory) -> Applied:
    folder = tmp_path_factory.mktemp("announced")
    server.execute(*_TABLES)
    options = {"proto_version": "2", "streaming": "on", "messages": "on"}
    slot = Slot(server, folder, "everything", options=options)
    server.execute(*_BEFORE)
    install(server)
    slot.take()
    server.execute(*_CHANGES)
    slot.take()
    server.execute(*_STREAMED)
    slot.take(settings=[_IMMEDIATELY])
    config = {"announcements": "walreplay"}
    return apply_both(spark, slot.files, folder, server.source_tables("n"), config)


def test_columns_are_what_the_source_says(spark: SparkSession, applied: Applied) -> None:
    applied.assert_mirrored(spark, "n.rows", "n.root", *(f"n.{name}" for name in _KEYED))
    for way in (ONE_RUN, FILE_BY_FILE):
        assert applied.total(way, "n.rows", "deletes_without_row") == 0
        # A rename keeps the values that older rows have.
        assert applied.rows(spark, way, "n.last", "id", "y")[:2] == [(1, "b1"), (2, "b2")]
        assert applied.rows(spark, way, "n.streamed", "id", "b") == [
            *((n, "new") for n in range(1, 5)),
            (5, "b5"),
            (7, "b7"),
        ]


def test_comments_are_those_of_the_source(spark: SparkSession, applied: Applied) -> None:
    for way in (ONE_RUN, FILE_BY_FILE):
        (detail,) = spark.sql(f"DESCRIBE DETAIL delta.`{applied.location(way, 'n.last')}`").collect()
        assert detail.description == "PostgreSQL table n.last: It's\n\\ours"
        said = {
            (name, field.name): field.metadata.get("comment")
            for name in ("n.last", "n.streamed")
            for field in applied.frame(spark, way, name).schema.fields
        }
        # One that is renamed keeps its comment; what was rolled back says nothing.
        assert said["n.last", "id"] == "integer: the key"
        assert said["n.last", "y"] == "text: the last"
        assert said["n.streamed", "a"] == "text"


def test_whoever_has_no_rights_changes_tables_as_before_and_is_announced(server: Server, applied: Applied) -> None:
    assert applied
    server.execute("CREATE ROLE joe", "CREATE SCHEMA joes AUTHORIZATION joe")
    server.execute("SELECT pg_create_logical_replication_slot('joes', 'pgoutput')")
    with server.connect() as connection:
        connection.execute("SET ROLE joe")
        connection.execute("CREATE TABLE joes.t (id int PRIMARY KEY, \"Größe\" box DEFAULT '(1,2),(0,0)')")
        connection.execute("ALTER TABLE joes.t ADD list text[] DEFAULT '{\"a,b\",c}'")
        connection.execute("CREATE TEMP TABLE passing (id int)")
        connection.execute("DROP TABLE joes.t")
    rows = server.rows(
        "SELECT data FROM pg_logical_slot_get_binary_changes('joes', NULL, NULL, 'proto_version', '1', "
        "'publication_names', 'everything', 'messages', 'on')"
    )
    told = [bytes(data).partition(b'{"walreplay"')[2].decode() for (data,) in rows if data[:1] == b"M"]
    # An empty one is behind each.
    said = [text for text in told if text]
    assert len(said) == 3
    assert "Größe" in said[0]
    assert r'"missing" : "{\"a,b\",c}"' in said[1]
    assert '"dropped" : true' in said[2]
    for statement in block("docs/announcements.md", "DROP EVENT TRIGGER").text.split(";"):
        if statement.strip():
            server.execute(statement)
    assert server.value("SELECT count(*) FROM pg_event_trigger") == 0
