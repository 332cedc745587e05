"""Sessions with other settings on a real server: rows are found by what no column can hold, but not by composites."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pytest

from support.extent import further
from support.postgres import Server, chosen_versions, running_server
from support.scenarios import Slot, apply_file_by_file, apply_in_one_run, table_difference
from support.truth import SourceTable

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.integration, pytest.mark.live, pytest.mark.full]

_SETTINGS: Final = (
    ("SET TimeZone = 'UTC'",),
    ("SET TimeZone = 'Asia/Kathmandu'", "SET IntervalStyle = iso_8601", "SET bytea_output = escape"),
    ("SET TimeZone = 'America/New_York'", "SET IntervalStyle = sql_standard"),
    ("SET TimeZone = 'Europe/Amsterdam'", "SET IntervalStyle = postgres_verbose", "SET bytea_output = escape"),
)

_SETUP: Final = (
    "CREATE SCHEMA s",
    "CREATE DOMAIN s.phone AS text",
    "CREATE TYPE s.call AS (at timestamptz, spans interval[], who text)",
    # Of years that no column holds, too.
    "CREATE TABLE s.moments (at timestamptz PRIMARY KEY, v text)",
    "CREATE TABLE s.grids (spans interval[], days timestamptz[], data bytea[], v int)",
    "ALTER TABLE s.grids REPLICA IDENTITY FULL",
    # Of users' types nothing is known: 1-2 is a number here, and no interval.
    "CREATE TABLE s.phones (numbers s.phone[] PRIMARY KEY, v int)",
    "CREATE TABLE s.calls (what s.call, v int)",
    "ALTER TABLE s.calls REPLICA IDENTITY FULL",
    "CREATE PUBLICATION settings FOR ALL TABLES",
)

_MOMENTS: Final = ("0044-03-15 12:00+00 BC", "12024-01-01 00:00+00", "2024-01-01 00:00+00", "infinity")
_NUMBERS: Final = ("555-1234", "554-1246", "1-2", "1-02")
_GRIDS: Final = (
    """'{{1 mon,2 mons},{-3 days,NULL}}', '{{2024-01-01 00:00+00},{infinity}}', '{{a,b}}'""",
    """'[0:0]={1 year}', '{0044-03-15 12:00+00 BC}', '[2:2]={\\\\x00}'""",
)
_CALL: Final = "ROW('2024-01-01 00:00+00', '[0:1]={1 mon,4 days}', '555-1234')::s.call"

_COURSE: Final = (
    (
        *(f"INSERT INTO s.moments VALUES ('{at}', 'a')" for at in _MOMENTS),
        *(f"INSERT INTO s.phones VALUES (ARRAY['{number}'], {n})" for n, number in enumerate(_NUMBERS)),
        *(f"INSERT INTO s.grids VALUES ({grid}, 1)" for grid in (*_GRIDS, *_GRIDS, *_GRIDS)),
        *(f"INSERT INTO s.calls VALUES ({_CALL}, {v})" for v in (1, 1, 2)),
    ),
    (
        "UPDATE s.moments SET v = v || 'b'",
        "UPDATE s.phones SET v = v + 10 WHERE numbers <> ARRAY['1-2']::s.phone[]",
        "DELETE FROM s.grids WHERE ctid IN (SELECT min(ctid) FROM s.grids GROUP BY spans)",
        "DELETE FROM s.calls WHERE ctid = (SELECT min(ctid) FROM s.calls)",
    ),
    (
        "UPDATE s.moments SET at = at + interval '1 day', v = 'c' WHERE isfinite(at)",
        "DELETE FROM s.phones WHERE numbers IN (ARRAY['554-1246']::s.phone[], ARRAY['1-02']::s.phone[])",
        "UPDATE s.grids SET v = v + 1 WHERE ctid IN (SELECT min(ctid) FROM s.grids GROUP BY spans)",
        "UPDATE s.calls SET v = 3 WHERE v = 2",
    ),
    (
        "DELETE FROM s.moments WHERE at < '0001-01-01 00:00+00' OR at = 'infinity'",
        "UPDATE s.phones SET numbers = ARRAY['554-1246'] WHERE numbers = ARRAY['555-1234']::s.phone[]",
        "DELETE FROM s.grids WHERE v = 2",
        "DELETE FROM s.calls WHERE v = 3",
    ),
)

_DELETED_CALLS: Final = 3
_MISSED: Final = "rows are not in their tables though changed"


@pytest.fixture(scope="module", params=chosen_versions())
def recorded(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[list[Path], list[SourceTable]]]:
    """Sessions, each with settings of its own, and the tables behind them."""
    with running_server(request.param) as server:
        yield _record(server, tmp_path_factory.mktemp("settings"))


def _record(server: Server, folder: Path) -> tuple[list[Path], list[SourceTable]]:
    server.execute(*_SETUP)
    slot = Slot(server, folder, "settings")
    for statements, settings in zip(_COURSE, _SETTINGS, strict=True):
        server.execute(*statements)
        slot.take(settings=settings)
    tables = [table for table in server.source_tables("s") if table.name != "calls"]
    return slot.files, tables


_AGAIN: Final = (
    # Numbers that no setting rounds; a name, which only text has as a name, and a type that nothing is known of.
    "CREATE TABLE s.kinds (id int PRIMARY KEY, flag bool, name text, at timestamptz, day date, span interval, "
    "data bytea, number float8, spans tstzrange, places point[], of regclass, phone s.phone, doc jsonb)",
    "INSERT INTO s.kinds SELECT n, n % 2 = 0, 'name ' || n, '2024-01-01'::timestamptz + n * interval '1 day 1 s', "
    "'2024-01-01'::date + n, n * interval '1 day 1 s', decode(to_hex(n + 16), 'hex'), 1 / n::float8, "
    "tstzrange('2024-01-01', '2024-01-02'), ARRAY[point(n, .5)], 's.kinds', n::text, jsonb_build_object('n', n) "
    "FROM generate_series(1, 9) n",
    "ALTER TABLE s.kinds REPLICA IDENTITY FULL",
    "UPDATE s.kinds SET name = NULL, at = at + interval '1 h' WHERE id % 3 = 0",
    "DELETE FROM s.kinds WHERE id % 4 = 0",
)


@pytest.mark.parametrize("way", further(["in one run", "session by session"]))
@pytest.mark.parametrize("version", chosen_versions())
def test_what_is_sent_again_under_other_settings_or_in_binary_is_known(
    spark: SparkSession, tmp_path: Path, version: int, way: str
) -> None:
    with running_server(version) as server:
        server.execute(*_SETUP, _AGAIN[0])
        slot = Slot(server, tmp_path / "slot", "settings")
        for statement, settings in zip(_AGAIN[1:], _SETTINGS, strict=True):
            server.execute(statement)
            slot.take(how="peek", settings=settings)
            slot.take(how="peek", options={"binary": "true"})
        server.execute("UPDATE s.kinds SET of = NULL, day = day + 1")
        slot.take(how="peek", settings=("SET extra_float_digits = 3",))
        slot.take(options={"proto_version": "4", "streaming": "parallel"} if version >= _PARALLEL else {})
        (kinds,) = (table for table in server.source_tables("s") if table.name == "kinds")
    apply = apply_in_one_run if way == "in one run" else apply_file_by_file
    target, reports = apply(spark, slot.files, tmp_path)
    assert [warning for report in reports for warning in report.warnings] == []
    assert table_difference(spark, target / "s" / "kinds", kinds) is None


_PARALLEL: Final = 16


@pytest.mark.parametrize(
    "way", further(["in one run", "session by session"], long=["session by session, by Spark alone"])
)
def test_every_row_without_composites_is_found_whatever_the_settings_and_others_are_counted(
    spark: SparkSession,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    recorded: tuple[list[Path], list[SourceTable]],
    way: str,
) -> None:
    files, tables = recorded
    if way.endswith("alone"):
        monkeypatch.setenv("WALREPLAY_COMMITS", "spark")
    apply = apply_in_one_run if way == "in one run" else apply_file_by_file
    target, reports = apply(spark, files, tmp_path)
    warnings = [warning for report in reports for warning in report.warnings]
    assert [warning for warning in warnings if not warning.startswith(f"{_MISSED}: s.calls (")] == []
    calls = [table for report in reports for table in report.tables if table.name == "s.calls"]
    assert warnings
    assert sum(table.deletes_without_row for table in calls) == _DELETED_CALLS
    for table in tables:
        assert table_difference(spark, target / "s" / table.name, table) is None
