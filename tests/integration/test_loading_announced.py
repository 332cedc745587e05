"""Rows that are loaded are as of the announcements before their LSN: only those behind it change them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import walreplay
from support.base_copies import snapshot
from support.extent import further
from support.postgres import Server, running_server
from support.readers import read
from support.scenarios import Slot
from support.truth import content_difference, mirror_tables
from walreplay.scripts import script

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.live, pytest.mark.integration]

_CONFIG = {"announcements": "walreplay", "outputs": ["mirror", "history"]}

_TABLES = (
    "CREATE TABLE filled (id int PRIMARY KEY, gone int)",
    "ALTER TABLE filled DROP gone",
    "CREATE TABLE again (id int PRIMARY KEY, a int, b int)",
    "CREATE TABLE swapped (id int PRIMARY KEY, a int, b int)",
    "CREATE TYPE mood AS ENUM ('sad', 'ok')",
    "CREATE TYPE used AS ENUM ('a', 'b')",
    "CREATE TABLE moods (id int PRIMARY KEY, m mood, ms mood[], u used)",
    "CREATE TABLE key (m mood PRIMARY KEY, u used)",
    "CREATE PUBLICATION everything FOR ALL TABLES",
)

_LABELS_SWAPPED = tuple(
    f"ALTER TYPE mood RENAME VALUE '{old}' TO '{new}'" for old, new in (("sad", "x"), ("ok", "sad"), ("x", "ok"))
)

_FIRST = (
    "INSERT INTO filled VALUES (1)",
    "INSERT INTO again VALUES (1, 1, 2)",
    "INSERT INTO swapped VALUES (1, 1, 2)",
    "INSERT INTO moods VALUES (1, 'sad', '{sad,ok}', 'a')",
    "INSERT INTO key VALUES ('sad', 'a')",
)

_BEFORE = (
    "ALTER TABLE filled ADD d int DEFAULT 7",
    "ALTER TABLE again DROP a, ADD a int",
    *(f"ALTER TABLE swapped RENAME {old} TO {new}" for old, new in (("a", "x"), ("b", "a"), ("x", "b"))),
    "UPDATE filled SET d = NULL",
    "UPDATE again SET a = 3",
    "UPDATE swapped SET a = 4",
    *_LABELS_SWAPPED,
    "ALTER TYPE used RENAME VALUE 'a' TO 'c'",
    "ALTER TYPE used ADD VALUE 'a'",
    "INSERT INTO moods VALUES (4, 'sad', '{ok}', 'a')",
)

_BEHIND = (
    "INSERT INTO filled VALUES (2, NULL)",
    "INSERT INTO again VALUES (2, 5, 6)",
    "INSERT INTO swapped VALUES (2, 5, 6)",
    "ALTER TABLE filled ADD e int DEFAULT 8",
    "ALTER TABLE again RENAME a TO c",
    *(f"ALTER TABLE swapped RENAME {old} TO {new}" for old, new in (("a", "x"), ("b", "a"), ("x", "b"))),
    "INSERT INTO moods VALUES (2, 'ok', '{sad,NULL}', 'a'), (5, 'sad', '{}', 'c')",
    "INSERT INTO key VALUES ('sad', 'a')",
    "ALTER TYPE used RENAME VALUE 'b' TO 'd'",
    *_LABELS_SWAPPED,
    "INSERT INTO moods VALUES (3, 'sad', '{ok}', 'd')",
    "UPDATE key SET u = 'd' WHERE m = 'sad'",
    "INSERT INTO filled VALUES (3, 1, 2)",
    "INSERT INTO again VALUES (3, 7, 8)",
    "INSERT INTO swapped VALUES (3, 7, 8)",
)


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with running_server() as one:
        yield one


@pytest.mark.parametrize("shown", further([0, 3], long=[1, 2]))
def test_loaded_rows_keep_what_was_announced_before_them(
    spark: SparkSession, server: Server, tmp_path: Path, shown: int
) -> None:
    server.database = "postgres"
    server.execute("DROP DATABASE IF EXISTS one WITH (FORCE)", "CREATE DATABASE one")
    server.database = "one"
    server.execute(*_TABLES)
    slot = Slot(server, tmp_path / "sent", "everything", options={"messages": "on"})
    server.execute(script("announce.sql"), "SELECT walreplay.announce_all()", *_FIRST)
    slot.take()
    server.execute(*_BEFORE)
    slot.take()
    with snapshot(server) as seen:
        described = seen.copy(tmp_path / "base", schemas=("public",))
        lsn = seen.lsn
    server.execute(*_BEHIND)
    slot.take()
    sources = server.source_tables("public")
    server.drop_slots()

    captures, target = tmp_path / "captures", tmp_path / "mirror"
    captures.mkdir()
    for number, file in enumerate((*slot.files, None)):
        if number == shown:
            walreplay.load(
                spark,
                tmp_path / "base",
                target,
                consistent_point=lsn,
                describe=described,
                captures=captures,
                replace=bool(shown),
                config=_CONFIG,
            )
        if file is not None:
            (captures / file.name).hardlink_to(file)
            report = walreplay.apply(spark, captures, target, _CONFIG)
            assert not [text for text in report.warnings if "column" in text]
    for source in sources:
        assert content_difference(source, read(mirror_tables(target)[source.qualified_name])) is None
