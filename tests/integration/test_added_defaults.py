"""What older rows have in an added column, where the configuration says it: as the source's own rows have it."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from support.postgres import running_server
from support.readers import collect
from support.scenarios import FILE_BY_FILE, ONE_RUN, Applied, apply_file_by_file, apply_in_one_run, files_of_parts
from support.small_mirror import INT4, TEXT, SmallMirror, relation, row
from walreplay.protocol import messages as m

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.live, pytest.mark.integration, pytest.mark.full]

_DEFAULTS: dict[str, tuple[str, str, Any]] = {
    "n": ("int NOT NULL", "7", 7),
    "b": ("boolean NOT NULL", "true", True),
    "amount": ("numeric(10,2)", "1.5", "1.50"),
    "day": ("date", "'2024-02-29'", "2024-02-29"),
    "ever": ("date", "'infinity'", "infinity"),
    "at": ("timestamptz", "'2024-02-29 12:00:00.5+00'", "2024-02-29 12:00:00.5+00"),
    "code": ("char(5)", "'ab'", "ab   "),
    "data": ("bytea", r"'\xdeadbeef'", r"\xdeadbeef"),
    "list": ("int[]", "'{1,NULL,3}'", "{1,NULL,3}"),
    "doc": ("jsonb", """'{"a": [1, "zwei"]}'""", '{"a": [1, "zwei"]}'),
    "mood": ("d.mood", "'it''s fine'", "it's fine"),
    "ratio": ("double precision", "'NaN'", "NaN"),
    "later": ("text", "'old'", "old"),
}
"""Columns that are added, each with its type, its default, and how the configuration says it."""

_TABLES = (
    "CREATE SCHEMA d",
    "CREATE TYPE d.mood AS ENUM ('sad', 'it''s fine')",
    "CREATE TABLE d.keyed (id int PRIMARY KEY, v text)",
    "CREATE TABLE d.rows (id int, v text)",
    "ALTER TABLE d.rows REPLICA IDENTITY FULL",
    "CREATE TABLE d.hidden (id int PRIMARY KEY)",
    "CREATE PUBLICATION everything FOR ALL TABLES",
)

_ADDED = ", ".join(f"ADD {name} {kind} DEFAULT {value}" for name, (kind, value, _) in _DEFAULTS.items())

_BEFORE = (
    "INSERT INTO d.keyed SELECT i, 'v' || i FROM generate_series(1, 6) i",
    "INSERT INTO d.rows SELECT i, 'v' || i FROM generate_series(1, 6) i",
    "INSERT INTO d.hidden VALUES (1)",
)

_CHANGES = (
    # Rows of the same transaction from before the column and from behind it.
    f"BEGIN; INSERT INTO d.keyed VALUES (7, 'seven'); UPDATE d.keyed SET v = 'x' WHERE id = 1; ALTER TABLE d.keyed "
    f"{_ADDED}; INSERT INTO d.keyed (id, later) VALUES (8, NULL); UPDATE d.keyed SET n = 9 WHERE id = 2; COMMIT",
    f"ALTER TABLE d.rows {_ADDED}",
    "UPDATE d.rows SET v = 'updated' WHERE id = 1",
    "DELETE FROM d.rows WHERE id = 2",
    "ALTER TABLE d.hidden ADD secret text DEFAULT 'swordfish'",
    "INSERT INTO d.hidden VALUES (2, 'other')",
    # Of another type now, and dropped.
    "ALTER TABLE d.keyed ALTER n TYPE text USING n::text",
    "ALTER TABLE d.keyed DROP later",
    "INSERT INTO d.keyed (id) VALUES (9)",
)

_SAID: dict[str, Any] = {name: said for name, (_, _, said) in _DEFAULTS.items()}


def _table(name: str, **settings: Any) -> dict[str, Any]:
    return {"table": {"source_schema": "d", "source_table": name, **settings}}


_OBJECTS = [_table("keyed", added_defaults=_SAID), _table("rows", added_defaults=_SAID | {"none yet": "x"})]

_CONFIG: dict[str, Any] = {"table_exclude_list": ["d.hidden"], "objects": _OBJECTS}

_HIDDEN = _table("hidden", column_mask_hash=["secret"], added_defaults={"secret": "swordfish"})
_MASKED: dict[str, Any] = {"column_mask_salt": "pepper", "objects": [*_OBJECTS, _HIDDEN]}


@pytest.fixture(scope="module")
def applied(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Applied:
    folder = tmp_path_factory.mktemp("defaults")
    with running_server() as server:
        server.execute(*_TABLES)
        files = files_of_parts(server, folder, _BEFORE, _CHANGES)
        sources = {source.qualified_name: source for source in server.source_tables("d")}
    steps, step_reports = apply_file_by_file(spark, files, folder / "steps", _CONFIG)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("WALREPLAY_COMMITS", "spark")
        whole, whole_reports = apply_in_one_run(spark, files, folder / "whole", _MASKED)
    return Applied(sources, {ONE_RUN: whole, FILE_BY_FILE: steps}, {ONE_RUN: whole_reports, FILE_BY_FILE: step_reports})


def test_older_rows_have_the_default_as_the_sources_rows_have(spark: SparkSession, applied: Applied) -> None:
    applied.assert_mirrored(spark, "d.rows")
    applied.assert_mirrored(spark, "d.keyed", kept=["later"])
    for way in applied.targets:
        # The delete has found its row by all that it is.
        assert applied.total(way, "d.rows", "deletes_without_row") == 0
        assert {"later": "old"} in [{"later": later} for (later,) in applied.rows(spark, way, "d.keyed", "later")], (
            "what was kept of a dropped column"
        )


def test_what_a_default_is_told_by(spark: SparkSession, applied: Applied) -> None:
    hashed, other = (hashlib.sha256(text).hexdigest() for text in (b"pepperswordfish", b"pepperother"))
    assert applied.rows(spark, ONE_RUN, "d.hidden", "id", "secret") == [(1, hashed), (2, other)]
    for way in applied.targets:
        warnings = {text for report in applied.reports[way] for text in report.warnings if "d.rows" in text}
        assert any("'none yet', which is none of the table's columns, or not yet" in text for text in warnings)
    notes = applied.notes(FILE_BY_FILE, "d.rows")
    assert "column n: older rows have the default, as in the source" in notes
    assert "column ever: older rows have the default, which it cannot hold: it is rescued" in notes


@pytest.mark.parametrize("in_one_run", [True, False])
def test_a_row_that_only_an_update_has_brought_has_it_wherever_runs_end(
    spark: SparkSession, tmp_path: Path, in_one_run: bool
) -> None:
    config = {
        "objects": [{"table": {"source_schema": "s", "source_table": "items", "added_defaults": {"state": "new"}}}]
    }
    before, after = {"id": INT4, "note": TEXT}, {"id": INT4, "note": TEXT, "state": TEXT}
    mirror = SmallMirror(spark, tmp_path)
    mirror.write(relation(9, "items", before), m.Update(9, row(1, "older")), m.Insert(9, row(2, "a")))
    if not in_one_run:
        mirror.apply(**config)
    mirror.apply(relation(9, "items", after), m.Insert(9, row(3, "b", "sent")), **config)
    rows = collect(mirror.location("items"), "id", "note", "state")
    assert {tuple(one) for one in rows} == {(1, "older", "new"), (2, "a", "new"), (3, "b", "sent")}
