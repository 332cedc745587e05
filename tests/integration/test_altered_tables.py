"""Forms of ALTER TABLE on a source that announces: columns are as in the source, or a warning names them."""

from __future__ import annotations

import random
import re
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import psycopg
import pytest

from support.extent import further
from support.pages import ROOT
from support.postgres import Server, chosen_versions, running_server
from support.scenarios import FILE_BY_FILE, ONE_RUN, Applied, Slot, apply_both
from support.truth import SourceTable, arrow_table, expected_fields, row_images

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.live, pytest.mark.integration]

_CONFIG = {"announcements": "walreplay", "on_drop_column": "drop"}

_OPTIONS = {"proto_version": "2", "messages": "on"}

_TYPES = (
    "CREATE SCHEMA f",
    "CREATE TYPE f.mood AS ENUM ('sad', 'glad')",
    "CREATE DOMAIN f.plain AS int DEFAULT 5",
    "CREATE DOMAIN f.positive AS int CHECK (value > 0)",
)

_FORMS: dict[str, tuple[str, ...]] = {
    # A column with a default, beside what rewrites the table.
    "beside": ("ADD beside int DEFAULT 7, ALTER wide TYPE bigint",),
    "made": ("ADD made int DEFAULT 7", "ALTER made TYPE text USING md5(made::text)"),
    "later": ("ADD later int DEFAULT 7", "ALTER later TYPE bigint"),
    "two": ("ADD two int DEFAULT 2, ADD two_random float DEFAULT random()",),
    "reset": ("ADD reset int DEFAULT 1, ALTER reset SET DEFAULT 2, ADD reset_random float DEFAULT random()",),
    "not_null": ("ADD not_null text NOT NULL DEFAULT 'x', ALTER code TYPE text USING upper(code)",),
    "now": ("ADD now timestamptz DEFAULT now()",),
    "clock": ("ADD clock timestamptz DEFAULT clock_timestamp()",),
    "serial": ("ADD serial serial",),
    "identity": ("ADD identity int GENERATED ALWAYS AS IDENTITY",),
    "plain": ("ADD plain f.plain",),
    "positive": ("ADD positive f.positive",),
    "checked": ("ADD checked f.positive DEFAULT 3",),
    "generated": ("ADD generated int GENERATED ALWAYS AS (id * 2) STORED",),
    "expression": (
        "ADD expression int GENERATED ALWAYS AS (id * 2) STORED",
        "ALTER expression DROP EXPRESSION",
    ),
    "long": ("ADD long text DEFAULT repeat('x', 70000)",),
    "enum": ("ADD enum f.mood DEFAULT 'glad', ALTER wide TYPE int",),
    # Other types.
    "same": ("ALTER same TYPE int USING same + 1",),
    "rounded": ("ALTER rounded TYPE numeric(10,1)",),
    "scaled": ("ALTER scaled TYPE numeric(14,4)",),
    "free": ("ALTER free TYPE numeric",),
    "whole": ("ALTER whole TYPE int USING whole::int",),
    "short": ("ALTER short TYPE varchar(2) USING left(short, 2)",),
    "longer": ("ALTER longer TYPE varchar(20)",),
    "moment": ("ALTER moment TYPE timestamptz",),
    "second": ("ALTER second TYPE timestamp(0)",),
    "day": ("ALTER day TYPE timestamp",),
    "single": ("ALTER single TYPE double precision",),
    "text": ("ALTER text TYPE text",),
    "padded": ("ALTER padded TYPE text",),
    "network": ("ALTER network TYPE inet",),
    "list": ("ALTER list TYPE bigint[]",),
    "renamed": ("RENAME renamed TO named", "ALTER named TYPE int USING named * 2"),
    "collated": ('ALTER collated TYPE text COLLATE "C"',),
    "again": ("DROP again, ADD again text DEFAULT 'new'",),
    "dropped": ("DROP dropped, ADD instead text DEFAULT 'new', ALTER wide TYPE bigint",),
}
"""By the column that each is about."""

_OF_ROOTS = ("beside", "later", "two", "clock", "checked", "generated", "same", "scaled", "long")
"""What a quick run does to a partitioned table, too."""

_SET_EXPRESSION = (
    "ADD calculated int GENERATED ALWAYS AS (id * 2) STORED",
    "ALTER calculated SET EXPRESSION AS (id * 3)",
)

_COLUMNS: dict[str, tuple[str, str]] = {
    "wide": ("int", "i"),
    "code": ("text", "'a' || i"),
    "same": ("int", "i"),
    "rounded": ("numeric(10,2)", "i + 0.25"),
    "scaled": ("numeric(10,2)", "i + 0.25"),
    "free": ("numeric(10,2)", "i + 0.20"),
    "whole": ("numeric(10,2)", "i + 0.75"),
    "short": ("varchar(10)", "'abc' || i"),
    "longer": ("varchar(10)", "'abc' || i"),
    "moment": ("timestamp", "'2024-02-29 12:00:00.7'"),
    "second": ("timestamp", "'2024-02-29 12:00:00.7'"),
    "day": ("date", "'2024-02-29'"),
    "single": ("real", "0.1"),
    "text": ("int", "i"),
    "padded": ("char(5)", "'ab'"),
    "network": ("cidr", "'10.0.0.1/32'"),
    "list": ("int[]", "ARRAY[i]"),
    "renamed": ("int", "i"),
    "collated": ("text", "'a' || i"),
    "again": ("text", "'a' || i"),
    "dropped": ("text", "'a' || i"),
}


def _made(name: str, *, partitions: int = 0) -> list[str]:
    """Make a table with rows."""
    columns = ", ".join(f'"{column}" {kind}' for column, (kind, _) in _COLUMNS.items())
    values = ", ".join(value for _, value in _COLUMNS.values())
    root = " PARTITION BY RANGE (id)" if partitions else ""
    return [
        f"CREATE TABLE {name} (id int PRIMARY KEY, {columns}){root}",
        *(
            f"CREATE TABLE {name}_{n} PARTITION OF {name} FOR VALUES FROM ({n * 100}) TO ({n * 100 + 100})"
            for n in range(partitions)
        ),
        f"INSERT INTO {name} SELECT i, {values} FROM generate_series(1, 3) i",
        *([f"INSERT INTO {name} SELECT i, {values} FROM generate_series(101, 103) i"] if partitions > 1 else []),
    ]


def _begun(server: Server, folder: Path, version: int) -> Slot:
    server.execute(*_TYPES)
    generated = ", publish_generated_columns = stored" if version >= 18 else ""
    server.execute(f"CREATE PUBLICATION everything FOR ALL TABLES WITH (publish_via_partition_root = true{generated})")
    slot = Slot(server, folder, "everything", options=_OPTIONS)
    server.execute((ROOT / "lib/walreplay/postgresql/announce.sql").read_text())
    return slot


def _warned(warnings: Iterable[str], table: str) -> set[str]:
    """Return the columns that warnings name, of a table; each has to have a remedy."""
    found: set[str] = set()
    for text in warnings:
        match = re.match(rf"{re.escape(table)}: columns? ([^:]*): ", text)
        if match:
            assert "walreplay load --replace" in text
            found.update(match[1].split(", "))
    return found


def _unequal(spark: SparkSession, applied: Applied, way: str, source: SourceTable) -> set[str]:
    """Return the columns in which a mirror's rows are others than the source's."""
    frame = applied.frame(spark, way, source.qualified_name)
    assert [(field.name, field.dataType.simpleString()) for field in frame.schema.fields] == expected_fields(source)
    names = [column.name for column in source.columns]
    at = names.index("id")
    rows, right = (
        {image[at]: image for image in row_images(source, table)} for table in (frame.toArrow(), arrow_table(source))
    )
    assert rows.keys() == right.keys()
    return {
        name
        for key, image in rows.items()
        for name, one, other in zip(names, image, right[key], strict=False)
        if one != other
    }


def _published(server: Server, source: SourceTable) -> SourceTable:
    """Return a table without columns that no stream has."""
    rows = server.rows(
        "SELECT unnest(attnames)::text FROM pg_publication_tables WHERE schemaname = %s AND tablename = %s",
        source.schema,
        source.name,
    )
    places = [n for n, column in enumerate(source.columns) if (column.name,) in rows]
    return replace(
        source,
        columns=tuple(source.columns[n] for n in places),
        rows=[tuple(row[n] for n in places) for row in source.rows],
    )


def _applied(spark: SparkSession, server: Server, slot: Slot, folder: Path, *, both: bool) -> Applied:
    leaves = {name for (name,) in server.rows("SELECT relname::text FROM pg_class WHERE relispartition")}
    sources = [_published(server, one) for one in server.source_tables("f") if one.name not in leaves]
    ways = (ONE_RUN, FILE_BY_FILE) if both else (FILE_BY_FILE,)
    return apply_both(spark, slot.files, folder, sources, _CONFIG, ways)


_WAYS = [(16, True), (18, True), (18, False)]

_NOW = """
SELECT attname::text, format_type(atttypid, NULL) FROM pg_attribute
WHERE attrelid = %s::regclass AND attnum > 1 AND NOT attisdropped ORDER BY attnum
"""

_NEEDED = """
SELECT attname::text FROM pg_attribute
WHERE attrelid = %s::regclass AND attnum > 1 AND attnotnull AND NOT atthasdef AND attidentity = '' AND NOT attisdropped
"""

_EXACT = {
    *("beside", "later", "two", "reset", "not_null", "now", "plain", "enum", "scaled", "free", "longer", "day"),
    *("single", "text", "collated", "again", "instead", "wide", "id"),
    "positive",
}
"""Columns of which nothing has to be said."""


def _altered(spark: SparkSession, folder: Path, version: int, *, each: bool) -> Applied:
    """Alter a table and a partitioned one in all forms, with rows before and behind all of them.

    Args:
        each: rows also come behind each of the changes, and files are applied in one run as well.
    """
    with running_server(version) as server:
        slot = _begun(server, folder, version)
        server.execute(*_made("f.table"), *_made("f.root", partitions=3))
        slot.take()
        forms = [*_FORMS.items(), *([("calculated", _SET_EXPRESSION)] if version >= 17 else [])]
        changes = [(about, statement) for about, statements in forms for statement in statements]
        for number, (about, statement) in enumerate(changes):
            # Partitioned tables have identity columns from PostgreSQL 17 on.
            takes_root = about != "identity" or version >= 17
            for table in ("f.table", "f.root") if takes_root and (each or about in _OF_ROOTS) else ("f.table",):
                server.execute(f"ALTER TABLE {table} {statement}")
                if each:
                    server.execute(f"INSERT INTO {table} (id) VALUES ({number + 4})")
        server.execute("INSERT INTO f.table (id) VALUES (99)", "INSERT INTO f.root (id) VALUES (99), (199)")
        slot.take()
        return _applied(spark, server, slot, folder, both=each)


@pytest.mark.parametrize(("version", "each"), further([_WAYS[-1]], but=[_WAYS[-1]], long=_WAYS[:-1]))
def test_columns_are_as_in_the_source_or_a_warning_names_them(
    spark: SparkSession, tmp_path: Path, version: int, each: bool
) -> None:
    applied = _altered(spark, tmp_path, version, each=each)
    for table, source in applied.sources.items():
        for way, reports in applied.reports.items():
            unequal = _unequal(spark, applied, way, source)
            warned = _warned((text for report in reports for text in report.warnings), table)
            assert unequal <= warned, way
            assert not unequal & _EXACT
            assert not warned & _EXACT, way
            # What is said is worth it.
            assert len(unequal) > len(warned) / 2


class _Statements:
    """Random ALTER TABLE statements for one table, by the columns that it has."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)
        self._added = 0

    def next(self, columns: Sequence[tuple[str, str]], *, generates: bool) -> str:
        """Return the subcommands of a statement, of which PostgreSQL may refuse some."""
        if self._random.random() < 0.2 and columns:
            return f"RENAME {self._random.choice(columns)[0]} TO {self._name()}"
        chosen = self._random.sample(columns, min(len(columns), self._random.randint(1, 3)))
        changes = [self._changed(*column, generates=generates) for column in chosen]
        changes += [self._new() for _ in range(self._random.randint(0, 2))]
        self._random.shuffle(changes)
        return ", ".join(changes)

    def _name(self) -> str:
        self._added += 1
        return f"c{self._added}"

    def _new(self, name: str = "") -> str:
        default = self._random.choice(
            [
                *(
                    "int",
                    "int DEFAULT 7",
                    "text NOT NULL DEFAULT 'x'",
                    "float DEFAULT random()",
                    "f.plain",
                    "f.positive",
                ),
                *("f.positive DEFAULT 3", "serial", "int GENERATED ALWAYS AS (id * 2) STORED", "int[] DEFAULT '{1,2}'"),
                *(
                    "f.mood DEFAULT 'glad'",
                    "timestamptz DEFAULT now()",
                    "numeric(6,2) DEFAULT 1.5",
                    "bytea DEFAULT 'a'",
                ),
                *("varchar(8) DEFAULT 'ab'", "int GENERATED BY DEFAULT AS IDENTITY", "uuid DEFAULT gen_random_uuid()"),
            ]
        )
        return f"ADD {name or self._name()} {default}"

    def _changed(self, name: str, kind: str, *, generates: bool) -> str:
        to = {
            "integer": ["bigint", "text", "numeric(12,2)", "float"],
            "bigint": ["int", "text", "numeric"],
            "numeric": ["numeric(10,1)", "numeric(14,4)", "numeric", "int"],
            "text": ['text COLLATE "C"', "varchar(40)", "varchar"],
            "character varying": ["varchar(40)", "text"],
            "timestamp without time zone": ["timestamptz", "date", "timestamp(0)"],
            "date": ["timestamp"],
            "real": ["float"],
        }.get(kind, ["text"])
        options = [f"ALTER {name} TYPE {target}" for target in to]
        options += [
            *(f"DROP {name}", f"DROP {name}, {self._new(name)}", f"ALTER {name} DROP DEFAULT"),
            *(f"ALTER {name} SET STATISTICS 10", f"ALTER {name} TYPE text USING md5({name}::text)"),
            *("SET (fillfactor = 90)", f"ALTER {name} DROP EXPRESSION IF EXISTS"),
            *([f"ALTER {name} SET EXPRESSION AS (id * 5)"] if generates else []),
            *(f"ALTER {name} TYPE int USING length({name}::text)", f"ALTER {name} SET DEFAULT NULL"),
        ]
        return self._random.choice(options)


_RANDOM = 40
"""So many tables for a seed, each with up to 4 statements."""


@pytest.mark.long
@pytest.mark.parametrize("version", chosen_versions())
@pytest.mark.parametrize("seed", range(4))
def test_combinations(spark: SparkSession, tmp_path: Path, version: int, seed: int) -> None:
    counts = Counter[str]()
    said: dict[str, list[str]] = {}
    with running_server(version) as server:
        slot = _begun(server, tmp_path, version)
        tables = [f"f.t{n}" for n in range(_RANDOM)]
        for table in tables:
            server.execute(*_made(table, partitions=2 * (seed % 2)))
        slot.take()
        for number, table in enumerate(tables):
            statements = _Statements(seed * _RANDOM + number)
            for _ in range(random.Random(number).randint(1, 4)):
                columns = server.rows(_NOW, table)
                statement = f"ALTER TABLE {table} {statements.next(columns, generates=version >= 17)}"
                try:
                    server.execute(statement)
                except psycopg.Error:
                    counts["refused"] += 1
                    continue
                said.setdefault(table, []).append(statement)
                counts["statements"] += 1
            needed = server.rows(_NEEDED, table)
            names = ", ".join(["id", *(name for (name,) in needed)])
            values = ", ".join(["99", *("'x'" for _ in needed)])
            server.execute(f"INSERT INTO {table} ({names}) VALUES ({values})")
        slot.take()
        applied = _applied(spark, server, slot, tmp_path, both=False)
    wrong = []
    for table, source in applied.sources.items():
        for way, reports in applied.reports.items():
            unequal = _unequal(spark, applied, way, source)
            warned = _warned((text for report in reports for text in report.warnings), table)
            counts["unequal and warned" if unequal else "equal, warned" if warned else "equal"] += 1
            wrong += [(way, table, sorted(unequal - warned), said.get(table))] if unequal - warned else []
    print(version, seed, dict(counts), *wrong, sep="\n")
    assert not wrong, "\n".join(map(str, wrong))
