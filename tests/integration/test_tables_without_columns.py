"""Tables without columns: none from the start, none but generated ones, or none for a while."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import walreplay
from support.extent import further
from support.fault_cases import fault_case, sources_of
from support.postgres import chosen_versions, running_server
from support.readers import read
from support.scenarios import apply_file_by_file, apply_in_one_run, files_of_parts
from support.truth import (
    ADDED_COLUMNS,
    content_difference,
    mirror_tables,
    read_mirror,
)

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.integration

_WHOLE = ("bare", "bare_full", "made", "emptied", "other")
"""Tables of which the mirror has just what the source has."""


@dataclass(frozen=True)
class Recorded:
    """Captures, and each table's rows at their end."""

    files: Sequence[Path]
    rows: Mapping[str, list[tuple[Any, ...]]]


def _into(table: str, count: int = 1) -> list[str]:
    return [f"INSERT INTO s.{table} DEFAULT VALUES"] * count


def _one_of(table: str) -> str:
    return f"DELETE FROM s.{table} WHERE ctid = (SELECT min(ctid) FROM s.{table})"


_BEGINNING = [
    "CREATE SCHEMA s",
    "CREATE TABLE s.bare ()",
    "CREATE TABLE s.bare_full ()",
    "CREATE TABLE s.made (a int GENERATED ALWAYS AS (1) STORED)",
    "CREATE TABLE s.emptied ()",
    "CREATE TABLE s.moment (id int PRIMARY KEY, v text)",
    "CREATE TABLE s.exchanged (a int, b text)",
    "CREATE TABLE s.later ()",
    "CREATE TABLE s.other (id int PRIMARY KEY)",
    "ALTER TABLE s.bare_full REPLICA IDENTITY FULL",
    "ALTER TABLE s.later REPLICA IDENTITY FULL",
    "CREATE PUBLICATION everything FOR ALL TABLES",
]
_PARTS = [
    [
        *_into("bare", 2),
        *_into("bare_full", 4),
        _one_of("bare_full"),
        *_into("made", 2),
        *_into("emptied", 2),
        "INSERT INTO s.moment VALUES (1, 'a'), (2, 'b')",
        "INSERT INTO s.exchanged VALUES (1, 'x')",
        *_into("later", 3),
        "INSERT INTO s.other VALUES (1)",
    ],
    [
        *_into("bare"),
        _one_of("bare_full"),
        _one_of("bare_full"),
        *_into("bare_full"),
        *_into("made"),
        "TRUNCATE s.emptied",
        *_into("emptied"),
        "ALTER TABLE s.moment DROP id, DROP v",
        *_into("moment", 2),
        "ALTER TABLE s.exchanged DROP a, DROP b",
        *_into("exchanged"),
        "ALTER TABLE s.exchanged ADD c int",
        "INSERT INTO s.exchanged VALUES (5)",
        _one_of("later"),
        "ALTER TABLE s.later ADD n int",
        _one_of("later"),
        "INSERT INTO s.later VALUES (7)",
        "INSERT INTO s.other VALUES (2)",
    ],
    [
        "TRUNCATE s.bare",
        *_into("bare", 2),
        "ALTER TABLE s.moment ADD id int",
        *_into("moment"),
        "INSERT INTO s.moment VALUES (9)",
        "UPDATE s.later SET n = 8 WHERE n = 7",
    ],
]


@pytest.fixture(scope="module", params=chosen_versions())
def recorded(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Recorded:
    """Such tables, recorded in three files."""
    with running_server(request.param) as server:
        server.execute(*_BEGINNING)
        files = files_of_parts(server, tmp_path_factory.mktemp("recorded"), *_PARTS)
        tables = ("moment", "exchanged", "later", *_WHOLE)
        return Recorded(files, {table: server.rows(f"SELECT * FROM s.{table}") for table in tables})


def _rows(spark: SparkSession, target: Path, table: str) -> tuple[list[str], list[tuple[Any, ...]]]:
    frame = read_mirror(spark, target / "s" / table).drop(*ADDED_COLUMNS)
    count = read(target / "s" / table).num_rows
    return frame.columns, sorted(map(tuple, frame.collect()), key=repr) if frame.columns else [()] * count


@pytest.mark.full
@pytest.mark.live
@pytest.mark.parametrize("way", further(["in one run", "file by file"], long=["file by file, by Spark"]))
def test_they_have_their_rows_and_all_else_goes_on(
    spark: SparkSession, tmp_path: Path, recorded: Recorded, monkeypatch: pytest.MonkeyPatch, way: str
) -> None:
    if way.endswith("Spark"):
        monkeypatch.setenv("WALREPLAY_COMMITS", "spark")
    apply = apply_in_one_run if way == "in one run" else apply_file_by_file
    target, reports = apply(spark, recorded.files, tmp_path)
    # One that is dropped and added again cannot be told from one that was not published for a while.
    (warning,) = (warning for report in reports for warning in report.warnings)
    assert warning.startswith("s.moment: column id: gone for a while, and back")
    assert not sum(table.deletes_without_row for report in reports for table in report.tables)
    for table in _WHOLE:
        columns, rows = _rows(spark, target, table)
        expected = [() if table == "made" else row for row in recorded.rows[table]]
        assert columns == (["id"] if table == "other" else []), table
        assert rows == sorted(expected, key=repr), table
    # What was dropped is kept, where rows had it.
    assert _rows(spark, target, "moment") == (
        ["v", "id"],
        [("a", None), ("b", None), (None, 9), (None, None), (None, None), (None, None)],
    )
    assert _rows(spark, target, "exchanged") == (
        ["a", "b", "c"],
        [(1, "x", None), (None, None, 5), (None, None, None)],
    )
    assert _rows(spark, target, "later") == (["n"], sorted(recorded.rows["later"], key=repr))


@pytest.mark.live
def test_their_changes_can_be_read_and_counted_without_spark(recorded: Recorded) -> None:
    folder = recorded.files[0].parent
    operations = [
        operation
        for batch in walreplay.read_changes(folder)
        if batch.relation.name == "bare_full"
        for operation in batch.data.column(0).to_pylist()
    ]
    assert sorted(operations) == ["c"] * 5 + ["d"] * 3


def test_the_capture_that_was_refused_is_applied(spark: SparkSession, tmp_path: Path) -> None:
    case = fault_case("table_without_columns")
    target = tmp_path / "mirror"
    walreplay.apply(spark, captures=str(case.folder), target=str(target))
    assert sorted(mirror_tables(target)) == ["public.nocols", "public.other"]
    assert read(target / "public" / "nocols").column_names == list(ADDED_COLUMNS)
    assert read(target / "public" / "nocols").num_rows == 1
    (other,) = sources_of("table_without_columns")
    found = read(target / "public" / "other")
    assert content_difference(other, found) is None
