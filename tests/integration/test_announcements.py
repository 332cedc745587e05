"""A source announces its tables as docs/announcements.md says: what places do not show is right, in any runs."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

import pytest

from support.extent import further
from support.moments import outputs_at
from support.pages import block, with_places
from support.postgres import Server, running_server
from support.scenarios import (
    FILE_BY_FILE,
    ONE_RUN,
    Applied,
    Recorded,
    Slot,
    apply_both,
    apply_file_by_file,
    table_difference,
)
from support.truth import read_mirror

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
    "CREATE TABLE n.split (id int PRIMARY KEY, v text) PARTITION BY RANGE (id)",
    *(f"CREATE TABLE n.split_{k} PARTITION OF n.split FOR VALUES FROM ({k}0) TO ({k + 1}0)" for k in range(1, 4)),
    "CREATE TABLE n.loose (id int PRIMARY KEY, v text)",
    "CREATE TYPE n.mood AS ENUM ('sad', 'ok', 'so so', 'happy')",
    "CREATE TYPE n.felt AS ENUM ('a', 'b')",
    "CREATE TABLE n.moods (id int PRIMARY KEY, m n.mood, list n.mood[], f n.felt)",
    "CREATE TABLE n.by_mood (m n.mood, id int, PRIMARY KEY (m, id), note text)",
    "CREATE TABLE n.felt_rows (f n.felt, m n.mood, v int)",
    "ALTER TABLE n.felt_rows REPLICA IDENTITY FULL",
    "CREATE PUBLICATION everything FOR ALL TABLES WITH (publish_via_partition_root = true)",
)

_ENUMS = ("moods", "by_mood", "felt_rows")

_KEYED = ("last", "again", "swapped", "within", "streamed", "undone")

_BEFORE = (
    *(f"INSERT INTO n.{name} SELECT i, 'a' || i, 'b' || i FROM generate_series(1, 3) i" for name in _KEYED),
    "INSERT INTO n.rows SELECT i, 'v' || i FROM generate_series(1, 4) i",
    "INSERT INTO n.root SELECT i, 'v' || i FROM generate_series(1, 3) i",
    "INSERT INTO n.moods VALUES (1, 'sad', '{sad,NULL,so so}', 'a'), (2, 'ok', '{{sad,ok},{ok,ok}}', 'b')",
    "INSERT INTO n.moods VALUES (3, 'happy', '{}', 'a'), (4, NULL, NULL, NULL), (5, 'so so', '[0:1]={sad,ok}', 'b')",
    "INSERT INTO n.by_mood SELECT m, i, 'old' FROM unnest(enum_range(NULL::n.mood)) m, generate_series(1, 3) i",
    "INSERT INTO n.felt_rows SELECT f, m, 1 FROM unnest(enum_range(NULL::n.felt)) f, unnest('{sad,ok}'::n.mood[]) m",
    "INSERT INTO n.split VALUES (11, 'x'), (21, 'x'), (31, 'x')",
    "INSERT INTO n.loose VALUES (41, 'x')",
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
    # Of what becomes of partitions nothing is sent; what has no rows changes nothing.
    "ALTER TABLE n.split ATTACH PARTITION n.loose FOR VALUES FROM (40) TO (50)",
    "CREATE TABLE n.made PARTITION OF n.split FOR VALUES FROM (50) TO (60)",
    "CREATE TABLE n.empty (id int PRIMARY KEY, v text)",
    "ALTER TABLE n.split ATTACH PARTITION n.empty FOR VALUES FROM (60) TO (70)",
    "ALTER TABLE n.split DETACH PARTITION n.split_1",
    "DROP TABLE n.split_2",
    "BEGIN; ALTER TABLE n.split DETACH PARTITION n.split_3; ROLLBACK",
    "ALTER TABLE n.split ADD w int",
    "INSERT INTO n.split VALUES (32, 'y'), (42, 'y'), (52, 'y')",
    # Labels: rows that were written before, in this run or an earlier one, have the new ones from here on.
    "INSERT INTO n.moods VALUES (6, 'sad', '{sad,sad}', 'a'), (7, 'so so', '{so so}', 'b')",
    "UPDATE n.by_mood SET note = 'before' WHERE m = 'sad' AND id = 1",
    "INSERT INTO n.by_mood VALUES ('sad', 4, 'new')",
    "INSERT INTO n.felt_rows VALUES ('a', 'sad', 2)",
    "ALTER TYPE n.mood RENAME VALUE 'sad' TO 'quite, \"blue\"'",
    "ALTER TYPE n.mood RENAME VALUE 'so so' TO 'NULL'",
    "UPDATE n.by_mood SET note = 'after' WHERE m = 'quite, \"blue\"' AND id IN (1, 4)",
    "DELETE FROM n.by_mood WHERE m = 'quite, \"blue\"' AND id = 2",
    "UPDATE n.by_mood SET m = 'ok', id = 9 WHERE m = 'quite, \"blue\"' AND id = 3",
    "INSERT INTO n.moods VALUES (8, 'quite, \"blue\"', NULL, 'a')",
    "DELETE FROM n.felt_rows WHERE m = 'quite, \"blue\"' AND f = 'a'",
    # Two swap their texts, in the midst of a transaction's rows.
    "BEGIN; UPDATE n.moods SET f = 'b' WHERE id = 6; ALTER TYPE n.felt RENAME VALUE 'a' TO 't'; "
    "ALTER TYPE n.felt RENAME VALUE 'b' TO 'a'; ALTER TYPE n.felt RENAME VALUE 't' TO 'b'; "
    "INSERT INTO n.moods VALUES (9, 'ok', NULL, 'a'), (10, 'ok', NULL, 'b'); COMMIT",
    "DELETE FROM n.felt_rows WHERE f = 'a' AND m = 'ok'",
    "INSERT INTO n.felt_rows VALUES ('b', 'ok', 3)",
)

_STREAMED = (
    "BEGIN; INSERT INTO n.streamed VALUES (4, 'a4', 'b4'); ALTER TABLE n.streamed DROP b; "
    "ALTER TABLE n.streamed ADD b text DEFAULT 'new'; INSERT INTO n.streamed VALUES (5, 'a5', 'b5'); SAVEPOINT s; "
    "ALTER TABLE n.streamed DROP b; ALTER TABLE n.streamed ADD b text; INSERT INTO n.streamed VALUES (6, 'no', 'no'); "
    "COMMENT ON COLUMN n.streamed.a IS 'no'; "
    "ROLLBACK TO s; INSERT INTO n.streamed VALUES (7, 'a7', 'b7'); COMMIT",
    "BEGIN; ALTER TABLE n.undone DROP b; ALTER TABLE n.undone ADD b text; INSERT INTO n.undone VALUES (9); ROLLBACK",
    "INSERT INTO n.undone VALUES (5, 'a5', 'b5')",
    # A label has the text that another one had; one is renamed twice, and for a moment.
    "ALTER TYPE n.mood ADD VALUE 'sad' BEFORE 'ok'",
    "INSERT INTO n.moods VALUES (11, 'sad', '{sad}', 'a')",
    "ALTER TYPE n.mood RENAME VALUE 'ok' TO 'fine'",
    "ALTER TYPE n.mood RENAME VALUE 'fine' TO 'fair'",
    "BEGIN; INSERT INTO n.moods VALUES (12, 'happy', NULL, 'a'); SAVEPOINT s; "
    "ALTER TYPE n.mood RENAME VALUE 'happy' TO 'no'; INSERT INTO n.moods VALUES (13, 'no', NULL, 'a'); "
    "ROLLBACK TO s; INSERT INTO n.moods VALUES (14, 'happy', NULL, 'b'); COMMIT",
    "BEGIN; INSERT INTO n.by_mood VALUES ('fair', 5, 'x'); ALTER TYPE n.mood RENAME VALUE 'fair' TO 'good'; "
    "INSERT INTO n.by_mood VALUES ('good', 6, 'x'); UPDATE n.by_mood SET note = 'y' WHERE m = 'good' AND id < 6; "
    "COMMIT",
    "ALTER TABLE n.felt_rows ADD more n.mood DEFAULT 'good'",
    "ALTER TYPE n.mood RENAME VALUE 'good' TO 'very good'",
    "UPDATE n.felt_rows SET v = 7 WHERE m = 'very good'",
    "COMMENT ON COLUMN n.last.id IS 'the key'",
    "ALTER TABLE n.last RENAME z TO y",
    "INSERT INTO n.last VALUES (6, 'a6', 'y6')",
)

_CONFIG = {"announcements": "walreplay"}

_IMMEDIATELY = "SET debug_logical_replication_streaming = immediate"


def install(server: Server) -> None:
    """Run the page's commands."""
    text = with_places(block("docs/announcements.md", "walreplay --scripts").text, {"-d shop": f"-d {server.database}"})
    programs = os.pathsep.join([str(server.programs), str(Path(sys.executable).parent), os.environ["PATH"]])
    environment = {**os.environ, "PATH": programs, "PGHOST": str(server.home), "PGUSER": "postgres"}
    with TemporaryDirectory() as folder:  # in which the page's command writes its scripts
        done = subprocess.run(
            ["bash", "-euc", text], env=environment, cwd=folder, capture_output=True, text=True, timeout=60
        )
    assert done.returncode == 0, done.stderr
    assert "announce_all" in done.stdout


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with running_server() as running:
        yield running


@pytest.fixture(scope="module")
def recorded(server: Server, tmp_path_factory: pytest.TempPathFactory) -> Recorded:
    folder = tmp_path_factory.mktemp("announced")
    server.execute(*_TABLES)
    options = {"proto_version": "2", "streaming": "on", "messages": "on"}
    slot = Slot(server, folder, "everything", options=options)
    server.execute(*_BEFORE)
    install(server)
    slot.take()
    with server.connect() as late:
        # What is open while a label is renamed is sent behind that, with the old label.
        late.execute("BEGIN; INSERT INTO n.moods VALUES (20, 'sad', '{so so,sad}', NULL)")
        late.execute("INSERT INTO n.by_mood VALUES ('so so', 20, 'late')")
        server.execute(*_CHANGES)
        late.execute("COMMIT")
    slot.take()
    server.execute(*_STREAMED)
    slot.take(settings=[_IMMEDIATELY])
    return Recorded(slot.files, server.source_tables("n"))


@pytest.fixture(scope="module", params=further([ONE_RUN, FILE_BY_FILE], but=(ONE_RUN,)))
def applied(
    request: pytest.FixtureRequest, spark: SparkSession, recorded: Recorded, tmp_path_factory: pytest.TempPathFactory
) -> Applied:
    folder = tmp_path_factory.mktemp("applied")
    return apply_both(spark, recorded.files, folder, recorded.sources, _CONFIG, (request.param,))


def test_columns_are_what_the_source_says(spark: SparkSession, applied: Applied) -> None:
    applied.assert_mirrored(spark, "n.rows", "n.root", *(f"n.{name}" for name in _KEYED))
    for way in applied.targets:
        assert applied.total(way, "n.rows", "deletes_without_row") == 0
        # A rename keeps the values that older rows have.
        assert applied.rows(spark, way, "n.last", "id", "y")[:2] == [(1, "b1"), (2, "b2")]
        assert applied.rows(spark, way, "n.streamed", "id", "b") == [
            *((n, "new") for n in range(1, 5)),
            (5, "b5"),
            (7, "b7"),
        ]


def test_rows_have_todays_labels(spark: SparkSession, applied: Applied) -> None:
    applied.assert_mirrored(spark, *(f"n.{name}" for name in _ENUMS))
    for way in applied.targets:
        assert applied.total(way, "n.felt_rows", "deletes_without_row") == 0
        assert way == ONE_RUN or "labels of column m renamed: 2" in applied.notes(way, "n.by_mood")


@pytest.mark.full
def test_labels_in_histories_and_by_sparks_statements(
    spark: SparkSession, recorded: Recorded, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WALREPLAY_COMMITS", "spark")
    config = {**_CONFIG, "outputs": ["mirror", "history", "changelog"], "table_include_list": "n.moods,n.by_mood"}
    target, _ = apply_file_by_file(spark, recorded.files, tmp_path / "all", config)
    found = outputs_at(target)
    sources = {source.qualified_name: source for source in recorded.sources}
    for name in ("n.moods", "n.by_mood"):
        source = sources[name]
        assert table_difference(spark, found["mirror"][name], source) is None
        columns = [f"`{column.name}`" for column in source.columns]
        mirror = read_mirror(spark, found["mirror"][name]).select(*columns)
        versions = spark.read.format("delta").load(str(found["history"][name]))
        current = versions.where("__END_AT IS NULL").select(*columns)
        assert sorted(map(repr, current.collect())) == sorted(map(repr, mirror.collect()))
        # Versions that ended have today's labels; the log has what was sent.
        assert not versions.where("m IN ('ok', 'so so', 'fine', 'fair', 'good')").count()
        log = spark.read.format("delta").load(str(found["changelog"][name]))
        assert {"sad", "so so"} <= {row.m for row in log.select("m").distinct().collect()}


def test_what_becomes_of_partitions_is_told(applied: Applied) -> None:
    for way in applied.targets:
        told = [text for report in applied.reports[way] for text in report.warnings if "n.split" in text]
        said = [re.sub(r"[0-9A-F]+/[0-9A-F]+", "X/X", text) for text in told]
        stay, missing = "the rows that it had stay in the mirror", "the rows that it had before are not in the mirror"
        assert said == [
            f"n.split: a partition was {what}, {name} (LSN X/X): {rows}. Load the table's rows anew "
            "(docs/starting.md: walreplay load --replace --from COPY)"
            for what, name, rows in (
                ("attached", "n.loose", missing),
                ("detached", "n.split_1", stay),
                ("dropped", "n.split_2", stay),
            )
        ]


def test_comments_are_those_of_the_source(spark: SparkSession, applied: Applied) -> None:
    for way in applied.targets:
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


def test_whoever_has_no_rights_changes_tables_as_before_and_is_announced(server: Server, recorded: Recorded) -> None:
    assert recorded.files
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
