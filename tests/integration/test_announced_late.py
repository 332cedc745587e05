"""The first announcement of a table or an enum comes behind rows: what follows is right, or a warning says so."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import walreplay
from support.postgres import running_server
from support.readers import collect
from support.scenarios import apply_both, apply_in_one_run, files_of_parts
from support.truth import mirror_tables

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.integration

FAULT = Path(__file__).parents[1] / "faults" / "announced_before_slot"

_CONFIG = {"announcements": "walreplay"}

_SCRIPT = Path(__file__).parents[2] / "lib/walreplay/postgresql/announce.sql"


def _told(reports: tuple[walreplay.RunReport, ...], name: str) -> list[str]:
    return [text for report in reports for text in report.warnings if text.startswith(f"{name}: ")]


def test_what_is_announced_before_the_slot(spark: SparkSession, tmp_path: Path) -> None:
    target, reports = apply_in_one_run(spark, list((FAULT / "capture").iterdir()), tmp_path, _CONFIG)
    rows = collect(mirror_tables(target)["shop.g"], "id", "b", "a")
    assert sorted(map(tuple, rows)) == [(1, 1, 2), (2, 3, 4), (3, 5, 6)]
    (told,) = _told(reports, "shop.g")
    assert "an enum was changed before it was announced, shop.mood" in told
    assert "SELECT walreplay.announce_all()" in told
    assert "walreplay load --replace" in told


def test_an_audit_reads_announcements_as_the_configuration_says(spark: SparkSession) -> None:
    told = [walreplay.audit(spark, FAULT / "capture", config=config).warnings for config in ({}, _CONFIG)]
    assert [any("announce tables, and are not read" in text for text in warnings) for warnings in told] == [True, False]


_TABLES = (
    "CREATE TYPE mood AS ENUM ('sad', 'glad')",
    "CREATE TABLE whole (id int PRIMARY KEY, a int, b int)",
    # Of one that has lost a column, the numbers do not say what was where.
    "CREATE TABLE fewer (id int PRIMARY KEY, gone int, a int, b int)",
    "ALTER TABLE fewer DROP gone",
    "CREATE TABLE again (id int PRIMARY KEY, gone int, a int)",
    "ALTER TABLE again DROP gone",
    "CREATE TABLE more (id int PRIMARY KEY, m mood)",
    "CREATE TABLE still (id int PRIMARY KEY, m mood)",
    "CREATE PUBLICATION everything FOR ALL TABLES",
)

_BEFORE = (
    "INSERT INTO whole VALUES (1, 1, 2)",
    "INSERT INTO fewer VALUES (1, 1, 2)",
    "INSERT INTO again VALUES (1, 1)",
    "INSERT INTO more VALUES (1, 'sad')",
    "INSERT INTO still VALUES (1, 'sad')",
)

_CHANGES = (
    "ALTER TABLE whole DROP b, ADD b int",
    *(
        f"ALTER TABLE {name} RENAME {old} TO {new}"
        for name in ("whole", "fewer")
        for old, new in (("a", "x"), ("b", "a"), ("x", "b"))
    ),
    "ALTER TABLE again DROP a, ADD a int",
    "ALTER TABLE more ADD n int DEFAULT 7",
    "INSERT INTO whole (id) VALUES (2)",
    "INSERT INTO fewer (id) VALUES (2)",
    "INSERT INTO again (id) VALUES (2)",
    "INSERT INTO more (id) VALUES (2)",
    "INSERT INTO still VALUES (2, 'glad')",
)


@pytest.mark.live
@pytest.mark.full
def test_the_first_announcement_comes_with_a_change(spark: SparkSession, tmp_path: Path) -> None:
    with running_server() as server:
        server.execute(*_TABLES, _SCRIPT.read_text(), "SELECT walreplay.announce_all()")
        files = files_of_parts(server, tmp_path, _BEFORE, _CHANGES, messages="on")
        applied = apply_both(spark, files, tmp_path, server.source_tables("public"), _CONFIG)
    for reports in applied.reports.values():
        for name in ("whole", "fewer", "again"):
            told = _told(reports, f"public.{name}")
            assert any(re.search(r": columns? ([^:]*, )?a(, [^:]*)?: ", text) for text in told), told
            assert all("walreplay load --replace" in text for text in told)
        assert not _told(reports, "public.more")
        assert not _told(reports, "public.still")
    applied.assert_mirrored(spark, "public.more", "public.still")
