"""Names that a real server takes, and that paths, SQL, Spark or Delta could trip over."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from psycopg import sql

import walreplay
from support.postgres import Server, chosen_versions, running_server
from support.scenarios import Applied, Slot, apply_both, table_difference
from support.truth import SourceTable
from walreplay.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.live, pytest.mark.integration, pytest.mark.full]

_PLACES: Mapping[tuple[str, str], str] = {
    ('we"ird', "it's"): "we\"ird/it's",
    ("a.b", "c"): "a.b/c",
    ("a", "b.c"): "a/b.c",
    ("..", ".."): "%2E./%2E.",
    ("sl/ash", "back\\slash"): "sl%2Fash/back%5Cslash",
    ("back`tick", "ta``ble"): "back`tick/ta``ble",
    ("Case", "Name"): "Case/Name",
    ("Case", "name"): "Case/name",
    ("sp ace", " both ends "): "sp ace/ both ends ",
    ("_walreplay", "runs"): "%5Fwalreplay/runs",
    ("ünïcode 北京", "🚀" * 15): "ünïcode 北京/" + "🚀" * 15,
    ("%2F", "100%"): "%252F/100%25",
    ("select", "_delta_log"): "select/%5Fdelta_log",
    ("glob*[a]{b,c}?", "co:lon"): "glob*[a]{b,c}?/co:lon",
    ("x" * 63, "new\nline\ttab"): "x" * 63 + "/new%0Aline%09tab",
}
"""Schemas and tables, and the folders that hold their mirrors."""

_COLUMNS: Mapping[str, str] = {
    "the key": "the key",
    'quo"te': 'quo"te',
    "it's": "it's",
    "back`tick": "back`tick",
    "a.b": "a.b",
    "a": "a",
    " ,;{}()=\n\t": " ,;{}()=\n\t",
    "ünïcode 北京 🚀": "ünïcode 北京 🚀",
    "y" * 63: "y" * 63,
    "Id": "Id",
    "id": "id__2",
    "ID": "ID__3",
    "id__2": "id__2__2",
    "_rescued_data": "_rescued_data__2",
    "__commit_lsn": "__commit_lsn__2",
    "_change_type": "_change_type__2",
    "_metadata": "_metadata__2",
    "select": "select",
    # What the MERGE itself calls its columns and tables.
    **{name: name for name in ("c0", "k0", "old0", "b0", "deleted", "expected", "net", "needed", "copy", "s", "t")},
}
"""Columns, and what the mirror calls them."""


@dataclass(frozen=True)
class Recorded:
    files: Sequence[Path]
    sources: Mapping[tuple[str, str], SourceTable]


@pytest.fixture(scope="module", params=chosen_versions())
def recorded(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Recorded:
    """Tables of odd names and one of odd columns, with and without a key, recorded once."""
    with running_server(request.param) as server:
        _create(server)
        slot = Slot(server, tmp_path_factory.mktemp("recorded"), "everything")
        _fill(server)
        slot.take()
        _change(server)
        slot.take()
        names = [*_PLACES, ("columns", "keyed"), ("columns", "full")]
        return Recorded(slot.files, {name: server.source_table(*name) for name in names})


def _run(server: Server, *statements: sql.Composed) -> None:
    with server.connect() as connection:
        for statement in statements:
            connection.execute(statement)


def _create(server: Server) -> None:
    for schema in sorted({schema for schema, _ in _PLACES}):
        _run(server, sql.SQL("CREATE SCHEMA {}").format(sql.Identifier(schema)))
    for schema, table in _PLACES:
        create = sql.SQL('CREATE TABLE {} ("the key" int PRIMARY KEY, "a.b" text)')
        _run(server, create.format(sql.Identifier(schema, table)))
    key, *others = _COLUMNS
    parts = [sql.SQL("{} text").format(sql.Identifier(name)) for name in others]
    columns = sql.SQL(", ").join([sql.SQL("{} int").format(sql.Identifier(key)), *parts])
    server.execute("CREATE SCHEMA columns")
    _run(
        server,
        sql.SQL("CREATE TABLE columns.keyed ({}, PRIMARY KEY ({}, {}))").format(
            columns, sql.Identifier(key), sql.Identifier("back`tick")
        ),
        sql.SQL("CREATE TABLE columns.full ({})").format(columns),
    )
    server.execute("ALTER TABLE columns.full REPLICA IDENTITY FULL", "CREATE PUBLICATION everything FOR ALL TABLES")


def _fill(server: Server) -> None:
    values = sql.SQL(", ").join(sql.Literal(name) for name in list(_COLUMNS)[1:])
    for number in (1, 2, 3):
        for schema, table in _PLACES:
            insert = sql.SQL("INSERT INTO {} VALUES ({}, 'first')")
            _run(server, insert.format(sql.Identifier(schema, table), sql.Literal(number)))
        for table in ("keyed", "full"):
            insert = sql.SQL("INSERT INTO {} VALUES ({}, {})")
            _run(server, insert.format(sql.Identifier("columns", table), sql.Literal(number), values))


def _change(server: Server) -> None:
    for schema, table in _PLACES:
        name = sql.Identifier(schema, table)
        _run(
            server,
            sql.SQL('UPDATE {} SET "a.b" = \'changed\' WHERE "the key" = 1').format(name),
            sql.SQL('UPDATE {} SET "the key" = 20 WHERE "the key" = 2').format(name),
            sql.SQL('DELETE FROM {} WHERE "the key" = 3').format(name),
        )
    for table in ("keyed", "full"):
        name = sql.Identifier("columns", table)
        _run(
            server,
            sql.SQL("UPDATE {} SET id = 'changed', deleted = NULL WHERE \"the key\" = 1").format(name),
            sql.SQL('ALTER TABLE {} RENAME "a.b" TO "b`.`a"').format(name),
            sql.SQL('ALTER TABLE {} ADD "add`ed, int" int').format(name),
            sql.SQL('UPDATE {} SET "b`.`a" = \'renamed\', "add`ed, int" = 1 WHERE "the key" = 2').format(name),
            sql.SQL('DELETE FROM {} WHERE "the key" = 3').format(name),
        )


@pytest.fixture(scope="module")
def applied(spark: SparkSession, recorded: Recorded, tmp_path_factory: pytest.TempPathFactory) -> Applied:
    """The same, applied."""
    return apply_both(spark, recorded.files, tmp_path_factory.mktemp("applied"), recorded.sources.values())


@pytest.mark.parametrize("name", _PLACES, ids=ascii)
def test_a_table_lies_under_its_name_and_no_two_names_are_one(
    spark: SparkSession, recorded: Recorded, applied: Applied, name: tuple[str, str]
) -> None:
    for way, target in applied.targets.items():
        difference = table_difference(spark, target / _PLACES[name], recorded.sources[name])
        assert difference is None, f"{way}: {difference}"


def test_nothing_is_written_beside_the_tables_and_the_ledger(applied: Applied) -> None:
    expected = {place.split("/")[0] for place in _PLACES.values()} | {"columns", "_walreplay"}
    for target in applied.targets.values():
        assert {folder.name for folder in target.iterdir()} == expected


@pytest.mark.parametrize("table", ["keyed", "full"])
def test_columns_keep_their_names_but_where_two_would_be_one_or_delta_has_its_own(
    spark: SparkSession, recorded: Recorded, applied: Applied, table: str
) -> None:
    source = recorded.sources["columns", table]
    names = {**_COLUMNS, "b`.`a": "b`.`a", "add`ed, int": "add`ed, int"}
    shown = replace(
        source,
        columns=tuple(replace(column, name=names[column.name]) for column in source.columns),
        key=tuple(names[name] for name in source.key),
    )
    for way in applied.targets:
        difference = table_difference(spark, applied.location(way, f"columns.{table}"), shown)
        assert difference is None, f"{way}: {difference}"


@pytest.fixture
def catalog(spark: SparkSession) -> Iterator[str]:
    """The session's own catalog, which is empty again behind the test."""
    before = {row[0] for row in spark.sql("SHOW SCHEMAS").collect()}
    yield "spark_catalog"
    for row in spark.sql("SHOW SCHEMAS").collect():
        if row[0] not in before:
            spark.sql(f"DROP SCHEMA `{row[0]}` CASCADE")


_IN_CATALOG: Mapping[tuple[str, str], str] = {
    ('we"ird', "it's"): "we__x22__ird.it__x27__s",
    ("a.b", "c"): "a__x2e__b.c",
    ("a", "b.c"): "a.b__x2e__c",
    ("..", ".."): "__x2e_2e__.__x2e_2e__",
}


def test_in_a_catalog_odd_characters_are_code_points(spark: SparkSession, recorded: Recorded, catalog: str) -> None:
    captures = recorded.files[0].parent
    config = {"table_include_list": [r'we"ird\..*', r"a\.b\.c", r"\.{5}"]}
    walreplay.apply(spark, captures=captures, target=catalog, config=config)
    for name, place in _IN_CATALOG.items():
        found = sorted((row[0], row[1]) for row in spark.table(place).collect())
        assert found == sorted((int(row[0] or 0), row[1]) for row in recorded.sources[name].rows)


def test_names_that_only_case_tells_apart_are_refused_in_a_catalog(
    spark: SparkSession, recorded: Recorded, catalog: str
) -> None:
    captures = recorded.files[0].parent
    with pytest.raises(ConfigError, match="destination_table"):
        walreplay.apply(spark, captures=captures, target=catalog, config={"table_include_list": [r"case\.name"]})
    assert not spark.sql("SHOW SCHEMAS LIKE 'case'").collect()
