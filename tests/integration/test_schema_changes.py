"""A real server's tables change their columns, names, keys and places, and the mirror follows.

One course of events, recorded in three files, is applied in one run and in a run for each file: where runs end must
make no difference.  What the source's tables hold at the end is the measure.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from support.postgres import chosen_versions, running_server
from support.readers import collect
from support.scenarios import (
    FILE_BY_FILE,
    ONE_RUN,
    Applied,
    Recorded,
    apply_both,
    apply_file_by_file,
    apply_in_one_run,
    files_of_parts,
)
from support.truth import mirror_tables, table_versions
from walreplay.errors import OrderError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.live, pytest.mark.integration, pytest.mark.full]

_WAYS = [ONE_RUN, FILE_BY_FILE]

_TABLES = (
    "CREATE SCHEMA e",
    "CREATE SCHEMA e2",
    "CREATE TABLE e.added (id int PRIMARY KEY, v text)",
    "CREATE TABLE e.dropped (id int PRIMARY KEY, a text, b int, c text)",
    "CREATE TABLE e.kept (id int PRIMARY KEY, a text, b int, c text)",
    "CREATE TABLE e.renamed (id int PRIMARY KEY, a text, b text)",
    "CREATE TABLE e.unnamed (id int PRIMARY KEY, a text, z text)",
    """CREATE TABLE e.widened (id int PRIMARY KEY,
        i2 smallint, i4 int, f real, n numeric(6,2), d date, vc varchar(5))""",
    "CREATE TABLE e.retyped (id int PRIMARY KEY, i int, t text, s text, n numeric)",
    "CREATE TABLE e.rescued (id int PRIMARY KEY, t text)",
    "CREATE TABLE e.rescued_then_dropped (id int PRIMARY KEY, t text, n int)",
    "CREATE TABLE e.key_retyped (id int PRIMARY KEY, v text)",
    "CREATE TABLE e.twice (id int PRIMARY KEY, v int)",
    "CREATE TABLE e.readded (id int PRIMARY KEY, a text, b int)",
    "CREATE TABLE e.rolled_back (id int PRIMARY KEY, a text)",
    "CREATE TABLE e.in_transaction (id int PRIMARY KEY, a text)",
    "CREATE TABLE e.toasted (id int PRIMARY KEY, doc text, n int)",
    "ALTER TABLE e.toasted ALTER doc SET STORAGE EXTERNAL",
    "CREATE TABLE e.multiset (a int, b text)",
    "ALTER TABLE e.multiset REPLICA IDENTITY FULL",
    "CREATE TABLE e.rescued_multiset (a int, d date, x date)",
    "ALTER TABLE e.rescued_multiset REPLICA IDENTITY FULL",
    "CREATE TABLE e.truncated (id int PRIMARY KEY, i int)",
    "CREATE TABLE e.dropped_and_truncated (id int PRIMARY KEY, a text, b int)",
    "CREATE TABLE e.old_name (id int PRIMARY KEY, v text)",
    "CREATE TABLE e.wanders (id int PRIMARY KEY, v text)",
    "CREATE TABLE e.swap (id int PRIMARY KEY, v text)",
    "CREATE TABLE e.swap_new (id int PRIMARY KEY, v text, w int)",
    "CREATE TABLE e.passed (id int PRIMARY KEY, v text)",
    "CREATE TABLE e.passing (id int PRIMARY KEY, v text)",
    "CREATE TABLE e.silent (id int PRIMARY KEY, v text)",
    "CREATE TABLE e.silent_new (id int PRIMARY KEY, v text)",
    "CREATE TABLE e.again (id int PRIMARY KEY, v text)",
    "CREATE TABLE e.again_kept (id int PRIMARY KEY, v text)",
    "CREATE TABLE e.identity (id int PRIMARY KEY, other int NOT NULL UNIQUE, v text)",
    "CREATE TABLE e.by_hand (id int PRIMARY KEY DEFERRABLE INITIALLY DEFERRED, v text)",
    "ALTER TABLE e.by_hand REPLICA IDENTITY FULL",
    "CREATE TABLE e.soft (id int PRIMARY KEY, v text)",
    "CREATE PUBLICATION everything FOR ALL TABLES",
)

_ROWS = (
    "INSERT INTO e.added SELECT i, 'v' || i FROM generate_series(1, 5) i",
    "INSERT INTO e.dropped SELECT i, 'a' || i, i, 'c' || i FROM generate_series(1, 5) i",
    "INSERT INTO e.kept SELECT i, 'a' || i, i, 'c' || i FROM generate_series(1, 5) i",
    "INSERT INTO e.renamed SELECT i, 'a' || i, 'b' || i FROM generate_series(1, 5) i",
    "INSERT INTO e.unnamed SELECT i, 'a' || i, 'z' || i FROM generate_series(1, 3) i",
    """INSERT INTO e.widened VALUES (1, 32767, 2147483647, 0.1, 9999.99, '2024-02-29', 'abcde'),
        (2, -1, -1, '-0', 'NaN', 'infinity', ''), (3, NULL, NULL, 'NaN', NULL, '0044-03-15 BC', NULL)""",
    """INSERT INTO e.retyped VALUES (1, 7, '0', '2024-02-29', 1.50), (2, -7, '-2147483648', NULL, 10),
        (3, NULL, NULL, '1999-12-31', NULL)""",
    "INSERT INTO e.rescued VALUES (1, '12'), (2, 'x'), (3, NULL)",
    "INSERT INTO e.rescued_then_dropped VALUES (1, 'x', 1), (2, '2', 2)",
    "INSERT INTO e.key_retyped SELECT i, 'v' || i FROM generate_series(1, 6) i",
    "INSERT INTO e.twice SELECT i, i * 100 FROM generate_series(1, 4) i",
    "INSERT INTO e.readded SELECT i, 'old' || i, i FROM generate_series(1, 4) i",
    "INSERT INTO e.rolled_back VALUES (1, 'a')",
    "INSERT INTO e.in_transaction VALUES (1, 'a'), (2, 'b')",
    "INSERT INTO e.toasted SELECT i, repeat('long ' || i, 1500), i FROM generate_series(1, 4) i",
    "INSERT INTO e.multiset SELECT i % 2, 'same' FROM generate_series(1, 6) i",
    """INSERT INTO e.rescued_multiset SELECT a, d::date, 'infinity'
        FROM generate_series(1, 5) a, unnest('{infinity, 2024-02-29}'::text[]) d""",
    "INSERT INTO e.truncated VALUES (1, 1), (2, 2)",
    "INSERT INTO e.dropped_and_truncated VALUES (1, 'a', 1), (2, 'b', 2)",
    "INSERT INTO e.old_name VALUES (1, 'untouched'), (2, 'old')",
    "INSERT INTO e.wanders VALUES (1, 'untouched'), (2, 'old')",
    "INSERT INTO e.swap VALUES (1, 'of the old table'), (2, 'of the old table')",
    "INSERT INTO e.swap_new VALUES (1, 'of the new table', 1)",
    "INSERT INTO e.silent VALUES (1, 'of the old table'), (2, 'of the old table')",
    "INSERT INTO e.silent_new VALUES (1, 'of the new table')",
    "INSERT INTO e.passed VALUES (1, 'displaced'), (2, 'displaced')",
    "INSERT INTO e.passing VALUES (1, 'untouched')",
    "INSERT INTO e.again VALUES (1, 'of the first'), (2, 'of the first')",
    "INSERT INTO e.again_kept VALUES (1, 'of the first'), (2, 'of the first')",
    "INSERT INTO e.identity SELECT i, i * 10, 'v' || i FROM generate_series(1, 6) i",
    "INSERT INTO e.by_hand SELECT i, 'v' || i FROM generate_series(1, 6) i",
    "INSERT INTO e.soft SELECT i, 'v' || i FROM generate_series(1, 4) i",
)

_FIRST_CHANGES = (
    "UPDATE e.added SET v = 'before' WHERE id = 1",
    'ALTER TABLE e.added ADD n int, ADD "At" timestamptz',
    "INSERT INTO e.added VALUES (6, 'v6', 6, '2024-01-01 00:00:00+00')",
    "UPDATE e.added SET n = id * 10 WHERE id IN (1, 2)",
    "ALTER TABLE e.dropped DROP b",
    "UPDATE e.dropped SET c = 'changed' WHERE id = 1",
    "ALTER TABLE e.kept DROP b",
    "INSERT INTO e.kept VALUES (6, 'a6', 'c6')",
    "ALTER TABLE e.renamed RENAME a TO alpha",
    "UPDATE e.renamed SET alpha = 'changed' WHERE id = 1",
    "ALTER TABLE e.renamed RENAME b TO beta",
    "UPDATE e.renamed SET beta = 'changed' WHERE id = 2",
    "ALTER TABLE e.unnamed RENAME z TO zz",
    "UPDATE e.unnamed SET a = 'changed' WHERE id = 1",
    """ALTER TABLE e.widened ALTER i2 TYPE int, ALTER i4 TYPE bigint, ALTER f TYPE double precision,
        ALTER n TYPE numeric(12,4), ALTER d TYPE timestamp, ALTER vc TYPE text""",
    """INSERT INTO e.widened VALUES (4, 2147483647, 9223372036854775807, 5e-324, 12345678.1234,
        '2024-02-29 12:00:00.000001', 'longer than five')""",
    "UPDATE e.widened SET i2 = 40000 WHERE id = 1",
    """ALTER TABLE e.retyped ALTER i TYPE text, ALTER t TYPE int USING t::int, ALTER s TYPE date USING s::date,
        ALTER n TYPE numeric(10,2)""",
    "UPDATE e.retyped SET i = 'seven' WHERE id = 1",
    "INSERT INTO e.retyped VALUES (4, 'four', 4, '2024-04-04', 4)",
    r"ALTER TABLE e.rescued ALTER t TYPE int USING CASE WHEN t ~ '^\d+$' THEN t::int END",
    "INSERT INTO e.rescued VALUES (4, 4)",
    "ALTER TABLE e.rescued_then_dropped ALTER t TYPE int USING NULL",
    "INSERT INTO e.rescued_then_dropped VALUES (3, 3, 3)",
    "UPDATE e.key_retyped SET v = 'as int' WHERE id = 1",
    "ALTER TABLE e.key_retyped ALTER id TYPE text",
    "UPDATE e.key_retyped SET v = 'as text' WHERE id = '2'",
    "DELETE FROM e.key_retyped WHERE id = '3'",
    "UPDATE e.key_retyped SET id = 'four' WHERE id = '4'",
    "UPDATE e.twice SET v = 1 WHERE id = 1",
    "ALTER TABLE e.twice ALTER v TYPE bigint",
    "UPDATE e.twice SET v = 5000000000 WHERE id = 2",
    "ALTER TABLE e.twice ALTER v TYPE text",
    "UPDATE e.twice SET v = 'three' WHERE id = 3",
    "ALTER TABLE e.readded DROP a, ADD a text",
    "UPDATE e.readded SET a = 'new' WHERE id = 1",
    "BEGIN; ALTER TABLE e.rolled_back ADD n int; INSERT INTO e.rolled_back VALUES (9, 'never', 9); ROLLBACK",
    "INSERT INTO e.rolled_back VALUES (2, 'b')",
    """BEGIN; INSERT INTO e.in_transaction VALUES (3, 'c'); ALTER TABLE e.in_transaction ADD n int;
        UPDATE e.in_transaction SET n = 1 WHERE id = 1; SAVEPOINT s; ALTER TABLE e.in_transaction ADD lost int;
        UPDATE e.in_transaction SET lost = 1; ROLLBACK TO s; ALTER TABLE e.in_transaction RENAME a TO alpha;
        UPDATE e.in_transaction SET alpha = 'z', n = 2 WHERE id = 2; COMMIT""",
    "ALTER TABLE e.toasted ADD m text",
    "UPDATE e.toasted SET n = 100 WHERE id = 1",
    "ALTER TABLE e.toasted RENAME doc TO document",
    "UPDATE e.toasted SET n = 200 WHERE id = 2",
    "ALTER TABLE e.toasted ALTER n TYPE bigint",
    "UPDATE e.toasted SET n = 5000000000, m = 'm' WHERE id = 3",
    "DELETE FROM e.multiset WHERE ctid IN (SELECT ctid FROM e.multiset WHERE a = 0 LIMIT 1)",
    "ALTER TABLE e.multiset ADD c text",
    "INSERT INTO e.multiset VALUES (1, 'same', NULL), (1, 'same', 'c')",
    "DELETE FROM e.multiset WHERE ctid IN (SELECT ctid FROM e.multiset WHERE a = 1 AND c IS NULL LIMIT 2)",
    "ALTER TABLE e.multiset ALTER a TYPE bigint",
    "UPDATE e.multiset SET a = 5000000000 WHERE ctid IN (SELECT ctid FROM e.multiset WHERE a = 0 LIMIT 1)",
    "ALTER TABLE e.rescued_multiset DROP x",
    "DELETE FROM e.rescued_multiset WHERE a = 1",
    "TRUNCATE e.truncated",
    "ALTER TABLE e.truncated ALTER i TYPE text",
    "INSERT INTO e.truncated VALUES (1, 'one')",
    "ALTER TABLE e.dropped_and_truncated DROP b",
    "INSERT INTO e.dropped_and_truncated VALUES (3, 'c')",
    "TRUNCATE e.dropped_and_truncated",
    "INSERT INTO e.dropped_and_truncated VALUES (4, 'd')",
    "ALTER TABLE e.old_name RENAME TO new_name",
    "UPDATE e.new_name SET v = 'new' WHERE id = 2",
    "ALTER TABLE e.wanders SET SCHEMA e2",
    "INSERT INTO e2.wanders VALUES (3, 'elsewhere')",
    "BEGIN; ALTER TABLE e.swap RENAME TO swap_old; ALTER TABLE e.swap_new RENAME TO swap; COMMIT",
    "INSERT INTO e.swap VALUES (2, 'behind the swap', 2)",
    "BEGIN; ALTER TABLE e.silent RENAME TO silent_old; ALTER TABLE e.silent_new RENAME TO silent; COMMIT",
    "INSERT INTO e.silent VALUES (2, 'behind the swap')",
    "BEGIN; ALTER TABLE e.passed RENAME TO passed_on; ALTER TABLE e.passing RENAME TO passed; COMMIT",
    "INSERT INTO e.passed VALUES (2, 'under the other name')",
    "DROP TABLE e.again",
    "CREATE TABLE e.again (v text, id bigint PRIMARY KEY, w int)",
    "INSERT INTO e.again VALUES ('of the second', 2, 2), ('of the second', 3, 3)",
    "DROP TABLE e.again_kept",
    "CREATE TABLE e.again_kept (id int PRIMARY KEY, v text)",
    "INSERT INTO e.again_kept VALUES (2, 'of the second'), (3, 'of the second')",
    "UPDATE e.identity SET id = 11 WHERE id = 1",
    "ALTER TABLE e.identity REPLICA IDENTITY FULL",
    "UPDATE e.identity SET id = 12, v = 'full' WHERE id = 2",
    "DELETE FROM e.identity WHERE id = 3",
    "ALTER TABLE e.identity REPLICA IDENTITY USING INDEX identity_other_key",
    "UPDATE e.identity SET other = 99, v = 'by index' WHERE other = 40",
    "UPDATE e.identity SET id = 15 WHERE other = 50",
    "UPDATE e.by_hand SET id = 3 - id WHERE id < 3",
    "ALTER TABLE e.by_hand ADD w text",
    "UPDATE e.by_hand SET id = 7 - id, w = 'swapped' WHERE id IN (3, 4)",
    "DELETE FROM e.soft WHERE id = 1",
    "ALTER TABLE e.soft ADD w int",
    "UPDATE e.soft SET w = 2 WHERE id = 2",
    "DELETE FROM e.soft WHERE id = 3",
)

_SECOND_CHANGES = (
    "ALTER TABLE e.added ADD z boolean",
    "INSERT INTO e.added VALUES (7, 'v7', 7, NULL, true)",
    "DELETE FROM e.added WHERE id = 3",
    "ALTER TABLE e.dropped DROP a",
    "UPDATE e.dropped SET c = 'again' WHERE id = 2",
    "ALTER TABLE e.kept DROP c",
    "UPDATE e.kept SET a = 'changed' WHERE id = 2",
    "DELETE FROM e.kept WHERE id = 3",
    "ALTER TABLE e.renamed RENAME id TO key",
    "UPDATE e.renamed SET key = 33 WHERE key = 3",
    "DELETE FROM e.renamed WHERE key = 4",
    "UPDATE e.twice SET v = 'four' WHERE id = 4",
    "ALTER TABLE e.readded DROP b, ADD b text",
    "UPDATE e.readded SET b = 'two' WHERE id = 2",
    "UPDATE e.toasted SET document = 'short' WHERE id = 4",
    "UPDATE e.toasted SET m = 'only this' WHERE id = 1",
    "UPDATE e.swap_old SET v = 'changed behind the swap' WHERE id = 1",
    "UPDATE e.swap SET v = 'changed behind the swap' WHERE id = 1",
    "ALTER TABLE e.passed RENAME TO passing",
    "INSERT INTO e.passing VALUES (3, 'back')",
    "ALTER TABLE e.identity DROP CONSTRAINT identity_pkey, ADD PRIMARY KEY (other)",
    "ALTER TABLE e.identity REPLICA IDENTITY DEFAULT",
    "UPDATE e.identity SET v = 'by the other key' WHERE other = 60",
    "UPDATE e.identity SET other = 100 WHERE other = 99",
    "UPDATE e.by_hand SET id = 11 - id WHERE id IN (5, 6)",
    "DELETE FROM e.by_hand WHERE id = 1",
    "ALTER TABLE e.multiset RENAME b TO bb",
    "DELETE FROM e.multiset WHERE ctid IN (SELECT ctid FROM e.multiset WHERE a = 1 AND c IS NULL LIMIT 1)",
    "ALTER TABLE e.rescued_multiset ADD c int DEFAULT 5",
    "DELETE FROM e.rescued_multiset WHERE a = 2",
    "UPDATE e.rescued_multiset SET c = a",
    "ALTER TABLE e.rescued_then_dropped DROP t",
    "UPDATE e.rescued_then_dropped SET n = 10 WHERE id = 1",
    "INSERT INTO e.key_retyped VALUES ('seven', 'v7')",
    "DELETE FROM e.key_retyped WHERE id = '5'",
    "DELETE FROM e.retyped WHERE id = 3",
    "INSERT INTO e.rescued VALUES (5, 5)",
    "UPDATE e.new_name SET v = 'newer' WHERE id = 2",
    "DELETE FROM e2.wanders WHERE id = 2",
    "UPDATE e.toasted SET id = 20 WHERE id = 2",
    "INSERT INTO e.again VALUES ('of the second', 4, 4)",
    "UPDATE e.in_transaction SET n = 3 WHERE id = 3",
)

_OBJECTS: Mapping[str, Mapping[str, Any]] = {
    "dropped": {"on_drop_column": "drop"},
    "renamed": {"rename_columns": {"b": "beta"}},
    "readded": {"on_drop_column": "drop"},
    "again_kept": {"on_recreate": "keep"},
    "by_hand": {"keys": ["id"]},
    "soft": {"soft_deletes": True},
}

_CONFIG: Mapping[str, Any] = {
    "objects": [{"table": {"source_schema": "e", "source_table": name, **it}} for name, it in _OBJECTS.items()]
}


@pytest.fixture(scope="module", params=chosen_versions())
def recorded(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Recorded:
    """The course of events, recorded once."""
    with running_server(request.param) as server:
        server.execute(*_TABLES)
        files = files_of_parts(server, tmp_path_factory.mktemp("recorded"), _ROWS, _FIRST_CHANGES, _SECOND_CHANGES)
        return Recorded(files, server.source_tables("e", "e2"))


@pytest.fixture(scope="module")
def applied(spark: SparkSession, recorded: Recorded, tmp_path_factory: pytest.TempPathFactory) -> Applied:
    """The same, applied."""
    return apply_both(spark, recorded.files, tmp_path_factory.mktemp("applied"), recorded.sources, _CONFIG)


_MIRRORED = {
    "a dropped column is dropped where that is configured": ("e.dropped",),
    "widened columns keep their values": ("e.widened",),
    "a changed type converts the old values and never turns them into null": ("e.retyped",),
    "rows are found again when their key changes its type": ("e.key_retyped",),
    "a column that changes its type twice in a run goes through both": ("e.twice",),
    "a column dropped and added again has none of its old values": ("e.readded",),
    "a column of a transaction that rolled back never comes": ("e.rolled_back",),
    "columns change within a transaction and its savepoints": ("e.in_transaction",),
    "unchanged toast values outlive changes of their table": ("e.toasted",),
    "a truncated table may change its types": ("e.truncated",),
    "swapped names bring each table its own rows": ("e.swap", "e.swap_old"),
    "the replica identity may change inside a run": ("e.identity",),
    "a key given by hand follows swaps under identity full": ("e.by_hand",),
}
"""What holds where some tables are, at the end, what the source has."""


@pytest.mark.parametrize("tables", _MIRRORED.values(), ids=_MIRRORED)
def test_rows_are_the_sources(spark: SparkSession, applied: Applied, tables: tuple[str, ...]) -> None:
    applied.assert_mirrored(spark, *tables)


# Columns.


def test_an_added_column_is_added(spark: SparkSession, applied: Applied) -> None:
    applied.assert_mirrored(spark, "e.added")
    for way in _WAYS:
        assert "column n added (integer)" in applied.notes(way, "e.added")


def test_a_dropped_column_is_kept(spark: SparkSession, applied: Applied) -> None:
    applied.assert_mirrored(spark, "e.kept", kept=["b", "c"])
    applied.assert_mirrored(spark, "e.dropped_and_truncated", kept=["b"])
    for way in _WAYS:
        assert "column b dropped; its values are kept" in applied.notes(way, "e.kept")


def test_a_renamed_column_keeps_its_values_by_its_place_or_by_rename_columns(
    spark: SparkSession, applied: Applied
) -> None:
    applied.assert_mirrored(spark, "e.renamed")
    for way in _WAYS:
        notes = applied.notes(way, "e.renamed")
        assert {"column a renamed to alpha", "column b renamed to beta", "column id renamed to key"} <= set(notes)


_HELD: Mapping[str, tuple[str, Sequence[str], Sequence[tuple[Any, ...]]]] = {
    "a dropped column keeps its values": (
        "e.kept",
        ("id", "b", "c"),
        [(1, 1, "c1"), (2, 2, "c2"), (4, 4, "c4"), (5, 5, "c5"), (6, None, "c6")],
    ),
    "a last column with another name is a drop and an add unless configured": (
        "e.unnamed",
        ("id", "a", "z", "zz"),
        [(1, "changed", "z1", "z1"), (2, "a2", "z2", None), (3, "a3", "z3", None)],
    ),
    "softly deleted rows stay when columns are added": (
        "e.soft",
        ("id", "v", "w", "__deleted"),
        [(1, "v1", None, True), (2, "v2", 2, False), (3, "v3", None, True), (4, "v4", None, False)],
    ),
    "an old value that the new type cannot hold is rescued": (
        "e.rescued",
        ("id", "t", "_rescued_data"),
        [(1, 12, None), (2, None, '{"t":"x"}'), (3, None, None), (4, 4, None), (5, 5, None)],
    ),
    "what was rescued of a column outlives the column's end": (
        "e.rescued_then_dropped",
        ("id", "t", "n", "_rescued_data"),
        [(1, None, 10, '{"t":"x"}'), (2, 2, 2, None), (3, 3, 3, None)],
    ),
}
"""What holds where a table has some rows at the end."""


@pytest.mark.parametrize(("name", "columns", "rows"), _HELD.values(), ids=_HELD)
def test_rows_are_held(
    spark: SparkSession, applied: Applied, name: str, columns: Sequence[str], rows: Sequence[tuple[Any, ...]]
) -> None:
    for way in _WAYS:
        assert applied.rows(spark, way, name, *columns) == rows


@pytest.mark.parametrize(("name", "kept"), [("e.multiset", []), ("e.rescued_multiset", ["x"])])
def test_a_multiset_keeps_its_duplicates_while_its_columns_change_and_values_are_rescued(
    spark: SparkSession, applied: Applied, name: str, kept: list[str]
) -> None:
    applied.assert_mirrored(spark, name, kept=kept)
    for way in _WAYS:
        assert applied.total(way, name, "deletes_without_row") == 0


# Names.


@pytest.mark.parametrize(("old", "new"), [("e.old_name", "e.new_name"), ("e.wanders", "e2.wanders")])
def test_the_rows_of_a_renamed_or_moved_table_go_along(
    spark: SparkSession, applied: Applied, old: str, new: str
) -> None:
    applied.assert_mirrored(spark, new)
    for way in _WAYS:
        assert old not in mirror_tables(applied.targets[way])


@pytest.mark.parametrize(
    ("name", "gone", "value"),
    [
        ("e.silent", {"e.silent_old"}, "of the old table"),
        ("e.passing", {"e.passed", "e.passed_on"}, "displaced"),
        ("e.again", set(), "of the first"),
    ],
    ids=["its new name never comes", "another has passed through its name", "it was dropped and created again"],
)
def test_the_rows_of_a_table_are_set_aside(
    spark: SparkSession, applied: Applied, name: str, gone: set[str], value: str
) -> None:
    applied.assert_mirrored(spark, name)
    for way in _WAYS:
        assert not gone & mirror_tables(applied.targets[way]).keys()
        assert {(1, value), (2, value)} in _set_aside(spark, applied, way)


def test_a_table_dropped_and_created_again_starts_anew(applied: Applied) -> None:
    for way in _WAYS:
        assert "dropped and created again; its old rows are set aside" in applied.notes(way, "e.again")


def test_a_table_dropped_and_created_again_keeps_its_rows_where_that_is_configured(
    spark: SparkSession, applied: Applied
) -> None:
    # Where both tables have changed in one run, the old rows are set aside all the same, and a note says so.
    assert applied.rows(spark, FILE_BY_FILE, "e.again_kept", "id", "v") == [
        (1, "of the first"),
        (2, "of the second"),
        (3, "of the second"),
    ]


def test_exactly_the_tables_of_the_source_are_there(applied: Applied) -> None:
    for way in _WAYS:
        assert sorted(mirror_tables(applied.targets[way])) == sorted(
            set(applied.sources) - {"e.silent_old", "e.passed_on"}
        )


def _set_aside(spark: SparkSession, applied: Applied, way: str) -> list[set[tuple[int, str]]]:
    """Read the tables that were set aside."""
    return [
        {(row.id, row.v) for row in collect(folder, "id", "v")}
        for folder in sorted((applied.targets[way] / "_walreplay").glob("set_aside_*"))
    ]


# Where the configuration wants a person to look first.


def _only(name: str, **values: Any) -> Mapping[str, Any]:
    return {"table_include_list": [rf"e\.{name}"], **values}


def test_a_changed_type_stops_the_run_where_that_is_configured(
    spark: SparkSession, recorded: Recorded, tmp_path: Path
) -> None:
    with pytest.raises(OrderError, match=r"e\.retyped: column i retyped from integer to text") as stopped:
        apply_file_by_file(spark, recorded.files, tmp_path, _only("retyped", on_type_change="stop"))
    assert "on_type_change: rewrite" in (stopped.value.remedy or "")
    assert table_versions(tmp_path / "mirror") == {"e.retyped": 0}


def test_a_recreated_table_stops_the_run_where_that_is_configured(
    spark: SparkSession, recorded: Recorded, tmp_path: Path
) -> None:
    with pytest.raises(OrderError, match=r"e\.again: the table was dropped and created again"):
        apply_in_one_run(spark, recorded.files, tmp_path, _only("again", on_recreate="stop"))
    assert mirror_tables(tmp_path / "mirror") == {}
