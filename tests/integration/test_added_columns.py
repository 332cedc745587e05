"""A column that is added with a default: the rows that were there have it at once, and no message says so.

Old rows are sent with the default then.  They still have to find the mirror's rows, which have NULL.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

import pytest

from support.extent import further
from support.postgres import running_server
from support.scenarios import FILE_BY_FILE, ONE_RUN, Applied, apply_both, files_of_parts

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.live, pytest.mark.integration, pytest.mark.full]

_TABLES = (
    "CREATE SCHEMA a",
    "CREATE TABLE a.rows (n int, v text)",
    "ALTER TABLE a.rows REPLICA IDENTITY FULL",
    "CREATE TABLE a.differing (n int, v text)",
    "ALTER TABLE a.differing REPLICA IDENTITY FULL",
    "CREATE TABLE a.keyed (id int PRIMARY KEY, v text)",
    "ALTER TABLE a.keyed REPLICA IDENTITY FULL",
    "CREATE TABLE a.by_hand (id int, v text)",
    "ALTER TABLE a.by_hand REPLICA IDENTITY FULL",
    "CREATE PUBLICATION everything FOR ALL TABLES",
)

_ROWS = (
    "INSERT INTO a.rows SELECT i % 4, 'v' || i % 4 FROM generate_series(0, 11) i",
    "INSERT INTO a.differing SELECT i, 'same' FROM generate_series(1, 2) i, generate_series(1, 3)",
    "INSERT INTO a.keyed SELECT i, 'v' || i FROM generate_series(1, 4) i",
    "INSERT INTO a.by_hand SELECT i, 'v' || i FROM generate_series(1, 4) i",
)

_CHANGES = (
    "ALTER TABLE a.rows ADD five int DEFAULT 5",
    "UPDATE a.rows SET v = 'updated' WHERE n = 1",
    "DELETE FROM a.rows WHERE n = 2",
    # Equal to what the mirror has of the rows that are gone.
    "INSERT INTO a.rows VALUES (2, 'v2', NULL)",
    "ALTER TABLE a.rows ADD day date DEFAULT 'infinity'",
    "DELETE FROM a.rows WHERE ctid IN (SELECT ctid FROM a.rows WHERE n = 1 LIMIT 1)",
    "DELETE FROM a.rows WHERE ctid IN (SELECT ctid FROM a.rows WHERE n = 0 LIMIT 2)",
    # Each row has another number.
    "ALTER TABLE a.differing ADD number serial",
    "DELETE FROM a.differing WHERE n = 1 AND number <> (SELECT min(number) FROM a.differing WHERE n = 1)",
    "ALTER TABLE a.keyed ADD five int DEFAULT 5",
    "UPDATE a.keyed SET v = 'updated' WHERE id = 1",
    "UPDATE a.keyed SET id = 20 WHERE id = 2",
    "DELETE FROM a.keyed WHERE id = 3",
    "ALTER TABLE a.by_hand ADD five int DEFAULT 5",
    "UPDATE a.by_hand SET v = 'updated' WHERE id = 1",
    "UPDATE a.by_hand SET id = id + 1",
    "DELETE FROM a.by_hand WHERE id = 3",
)

_CONFIG: dict[str, Any] = {
    "objects": [{"table": {"source_schema": "a", "source_table": "by_hand", "keys": ["id"]}}],
}


@pytest.fixture(scope="module")
def applied(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Applied:
    folder = tmp_path_factory.mktemp("added")
    with running_server() as server:
        server.execute(*_TABLES)
        files = files_of_parts(server, folder, _ROWS, _CHANGES)
        return apply_both(spark, files, folder, server.source_tables("a"), _CONFIG)


_WAYS = [ONE_RUN, FILE_BY_FILE]


def _rows(spark: SparkSession, applied: Applied, way: str, table: str, *columns: str) -> Counter[tuple[Any, ...]]:
    return Counter(applied.rows(spark, way, table, *columns))


@pytest.mark.parametrize("way", _WAYS)
def test_deleted_rows_of_a_table_without_a_key_are_found_by_what_they_had_before(
    spark: SparkSession, applied: Applied, way: str
) -> None:
    assert _rows(spark, applied, way, "a.rows", "n", "v", "five", "_rescued_data") == {
        (0, "v0", None, None): 1,
        (1, "updated", 5, None): 2,
        (2, "v2", None, None): 1,
        (3, "v3", None, None): 3,
    }
    assert applied.total(way, "a.rows", "deletes_without_row") == 0


@pytest.mark.parametrize("way", _WAYS)
def test_rows_that_were_equal_before_are_found_by_deletes_that_differ(
    spark: SparkSession, applied: Applied, way: str
) -> None:
    assert _rows(spark, applied, way, "a.differing", "n", "v", "number") == {(1, "same", None): 1, (2, "same", None): 3}
    assert applied.total(way, "a.differing", "deletes_without_row") == 0


@pytest.mark.parametrize("way", further([ONE_RUN], but=(ONE_RUN,), long=[FILE_BY_FILE]))
def test_rows_with_a_key_are_found_by_it_whatever_their_old_rows_have_in_an_added_column(
    spark: SparkSession, applied: Applied, way: str
) -> None:
    assert set(_rows(spark, applied, way, "a.keyed", "id", "v", "five")) == {
        (1, "updated", 5),
        (20, "v2", 5),
        (4, "v4", None),
    }
    assert set(_rows(spark, applied, way, "a.by_hand", "id", "v", "five")) == {
        (2, "updated", 5),
        (4, "v3", 5),
        (5, "v4", 5),
    }
    for table in ("a.keyed", "a.by_hand"):
        assert applied.total(way, table, "deletes_without_row") == 0
        assert applied.total(way, table, "without_base") == 0
