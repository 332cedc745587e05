"""Values in binary format, as real servers send them, against the text that the same servers write.

``WALREPLAY_LONG=1`` draws 10,000 values of each type (another number: as many).
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from random import Random
from typing import Any

import psycopg
import pyarrow as pa
import pytest

from support.binary_cells import tile
from support.extent import further
from support.postgres import TEXT_SETTINGS, running_server, server_versions
from support.random_values import (
    PGVECTOR_SAMPLES,
    SAMPLES,
    USER_DEFINED,
    USER_DEFINED_SAMPLES,
    Sample,
    array_sample,
    numeric_sample,
)
from walreplay.decode.columns import BINARY, make_builder
from walreplay.protocol.messages import AnyMessage, Insert, Relation, Type
from walreplay.protocol.reader import read_message
from walreplay.types import ColumnType, Rescued, resolve
from walreplay.types.builtin import BUILTIN_TYPES, EXTENSION_TEXTS, EXTENSION_TYPES, BuiltinType
from walreplay.types.rendering import NotRendered, render

pytestmark = pytest.mark.live

_LONG = int(os.environ.get("WALREPLAY_LONG") or 0)
_VALUES = {0: 500, 1: 10_000}.get(_LONG, _LONG)

_WITHOUT_VALUES = {
    "abstime": "ended with PostgreSQL 11",
    "reltime": "ended with PostgreSQL 11",
    "tinterval": "ended with PostgreSQL 11",
    "aclitem": "has no send function, so its values always come as text",
    "gtsvector": "has no send function, so its values always come as text",
    "pg_brin_bloom_summary": "lives in indexes alone, takes no input",
    "pg_brin_minmax_multi_summary": "lives in indexes alone, takes no input",
    "pg_node_tree": "takes no input; read from the catalog below",
    "pg_ndistinct": "takes no input; read from the catalog below",
    "pg_dependencies": "takes no input; read from the catalog below",
    "pg_mcv_list": "takes no input; read from the catalog below",
}
"""The types that no values are drawn of, nor of their arrays, and why."""

_SETTINGS = (*TEXT_SETTINGS, "SET lc_monetary = 'C'")

_PREPARED = (
    # A server built without libxml takes no xml in, but sends and writes what is there.
    "UPDATE pg_cast SET castmethod = 'b', castfunc = 0"
    " WHERE castsource = 'text'::regtype AND casttarget = 'xml'::regtype",
    "CREATE TABLE measured AS SELECT i % 7 AS a, i % 7 / 2 AS b FROM generate_series(1, 500) i",
    "CREATE STATISTICS s (ndistinct, dependencies, mcv) ON a, b FROM measured",
    "ANALYZE measured",
)

_ANNOUNCED = """
WITH RECURSIVE bases AS (
    SELECT oid, oid AS base FROM pg_type WHERE oid >= 16384
    UNION ALL
    SELECT bases.oid, typbasetype FROM bases JOIN pg_type t ON t.oid = base WHERE typtype = 'd'
)
SELECT bases.oid, CASE nspname WHEN 'pg_catalog' THEN '' ELSE nspname END, typname
FROM bases JOIN pg_type t ON t.oid = base JOIN pg_namespace n ON n.oid = typnamespace
WHERE typtype <> 'd'
"""


_COLUMN_TYPE = "SELECT atttypid, atttypmod FROM pg_attribute WHERE attrelid = 'drawn'::regclass AND attnum = 1"


@dataclass(frozen=True)
class Stored:
    """The values of a column, and its type as a Relation message gives it."""

    oid: int
    typmod: int
    forms: list[tuple[bytes, str]]


@dataclass(frozen=True)
class Oracle:
    """A server that gives both forms of a value."""

    connection: psycopg.Connection[Any]
    version: int

    @cached_property
    def names(self) -> Mapping[int, tuple[str, str]]:
        """What Type messages would say of all user-defined types: of a domain, its base type."""
        rows = self.connection.execute(_ANNOUNCED).fetchall()
        return {oid: (namespace, name) for oid, namespace, name in rows}

    def oid(self, sql_name: str) -> int:
        return self.connection.execute("SELECT %s::regtype::oid", [sql_name]).fetchone()[0]

    def both_forms(self, query: str) -> list[tuple[bytes, str]]:
        """Return the values of a query's column v in both forms.

        Not by a cast to text: some casts write another text than the output function does.
        """
        copy_statement = f"COPY (SELECT v, format('%s', v) FROM ({query}) q) TO STDOUT (FORMAT binary)"
        with self.connection.cursor() as cursor, cursor.copy(copy_statement.encode()) as copy:
            return [(bytes(binary), bytes(text).decode()) for binary, text in copy.rows()]

    def stored(self, sql_name: str, texts: list[str]) -> Stored:
        """Store values of a type, given as text, and give them back in both forms."""
        taken_as = sql_name.replace("xml", "text")
        self.connection.execute(f"CREATE TEMP TABLE taken (v {taken_as})".encode())
        self.connection.execute(f"CREATE TEMP TABLE drawn (v {sql_name})".encode())
        try:
            with self.connection.cursor() as cursor, cursor.copy("COPY taken FROM STDIN") as copy:
                for text in texts:
                    copy.write_row([text])
            self.connection.execute(f"INSERT INTO drawn SELECT v::{sql_name} FROM taken".encode())
            ((oid, typmod),) = self.connection.execute(_COLUMN_TYPE).fetchall()
            return Stored(oid, typmod, self.both_forms("SELECT v FROM drawn"))
        finally:
            self.connection.execute("DROP TABLE taken, drawn")


@pytest.fixture(scope="module", params=further(server_versions(), but=server_versions()[-1:]))
def oracle(request: pytest.FixtureRequest) -> Iterator[Oracle]:
    with running_server(request.param) as server, server.connect() as connection:
        for statement in (*_SETTINGS, *_PREPARED, *USER_DEFINED, "CREATE EXTENSION vector"):
            connection.execute(statement.encode())
        yield Oracle(connection, request.param)


_DECLARED = {
    "bit": "bit(13)",
    "_bit": "bit(13)[]",
    "bpchar": "character(40)",
    "_bpchar": "character(40)[]",
}
"""Types that without a modifier are of length 1."""


def _sample_of(builtin: BuiltinType) -> Sample | None:
    if not builtin.element:
        return SAMPLES.get(builtin.name)
    element = BUILTIN_TYPES[builtin.element]
    return array_sample(SAMPLES[element.name], element.delimiter) if element.name in SAMPLES else None


_DRAWN = [builtin for builtin in BUILTIN_TYPES.values() if _sample_of(builtin)]


def _assert_written_alike(oracle: Oracle, oid: int, forms: list[tuple[bytes, str]]) -> None:
    written = ((render(binary, oid, -1, oracle.names), text) for binary, text in forms)
    assert [(mine, text) for mine, text in written if mine != text] == []


def _assert_same_columns(oracle: Oracle, stored: Stored) -> None:
    """Make sure that text, binary format and both by turns give equal columns and rescue the same."""
    column_type = resolve(stored.oid, stored.typmod, oracle.names)
    by_turns = [form[row % 2] for row, form in enumerate(stored.forms)]
    text, rescued = _column(column_type, [text for _, text in stored.forms], oracle.names)
    for cells in ([binary for binary, _ in stored.forms], by_turns):
        other, other_rescued = _column(column_type, cells, oracle.names)
        assert other.type == text.type
        # As they are written, NaN equals NaN and 0 is not -0.
        different = [
            row
            for row, (mine, theirs) in enumerate(zip(other.to_pylist(), text.to_pylist(), strict=True))
            if repr(mine) != repr(theirs)
        ]
        assert [(stored.forms[row], other[row]) for row in different] == []
        assert other_rescued == rescued


def _column(
    column_type: ColumnType, cells: list[str | bytes], names: Mapping[int, tuple[str, str]]
) -> tuple[pa.Array, list[Rescued] | None]:
    buf, offset, length, first, column = tile(cells)
    for row, cell in enumerate(cells):
        if isinstance(cell, bytes):
            length[row] = BINARY - length[row]
    builder = make_builder(column_type, names)
    rescued = builder.add_rows(buf, offset, length, first, column)
    array = builder.finish()
    array.validate(full=True)
    return array, rescued


def test_every_builtin_type_is_drawn_or_has_a_reason():
    names = {builtin.name for builtin in BUILTIN_TYPES.values() if not builtin.element}
    assert set(SAMPLES) | set(_WITHOUT_VALUES) == names
    assert not set(SAMPLES) & set(_WITHOUT_VALUES)


@pytest.mark.parametrize("builtin", _DRAWN, ids=lambda builtin: builtin.name)
def test_a_builtin_type_is_written_as_the_server_writes_it(oracle, builtin):
    texts = _sample_of(builtin).texts(Random(builtin.name), _VALUES, oracle.version)
    stored = oracle.stored(_DECLARED.get(builtin.name, builtin.sql_name), texts)
    assert len(stored.forms) >= _VALUES
    assert stored.oid == oracle.oid(builtin.sql_name)
    _assert_written_alike(oracle, stored.oid, stored.forms)
    _assert_same_columns(oracle, stored)


_NAMED = {**USER_DEFINED_SAMPLES, **PGVECTOR_SAMPLES}


@pytest.mark.parametrize("name", _NAMED)
def test_a_user_defined_type_is_written_as_the_server_writes_it(oracle, name):
    stored = oracle.stored(name, _NAMED[name].texts(Random(name), _VALUES, oracle.version))
    _assert_written_alike(oracle, stored.oid, stored.forms)


@pytest.mark.parametrize("name", _NAMED)
def test_a_user_defined_type_is_the_same_column_in_both_forms(oracle, name):
    _assert_same_columns(oracle, oracle.stored(name, _NAMED[name].texts(Random(name), _VALUES, oracle.version)))


_FORMS = {
    "mixed": ("AS (a bigint, b double precision, c text)", ["(1,2.5,x)", '(7,,"")', "(,,)", '(-1,1e300,"a b")']),
    # As long as a cube.
    "numbers": ("AS (a bigint, b bigint)", ["(1,2)", "(3,4)"]),
    "labels": ("AS ENUM ('a', 'point', '{1}')", ["a", "point", "{1}"]),
}


@pytest.mark.parametrize("schema", _FORMS)
def test_a_type_that_is_called_like_an_extensions_is_the_same_in_both_forms(oracle, schema):
    definition, texts = _FORMS[schema]
    names = sorted({*EXTENSION_TYPES, *EXTENSION_TEXTS})
    oracle.connection.execute(f"CREATE SCHEMA {schema}".encode())
    for name in names:
        oracle.connection.execute(f"CREATE TYPE {schema}.{name} {definition}".encode())
    # These types are younger than the names that it knows.
    oracle = Oracle(oracle.connection, oracle.version)
    for name in names:
        stored = oracle.stored(f"{schema}.{name}", texts)
        _assert_written_alike(oracle, stored.oid, stored.forms)
        _assert_same_columns(oracle, stored)


@pytest.mark.parametrize("array", [False, True], ids=["values", "arrays"])
@pytest.mark.parametrize(
    "modifiers", [(10, 2), (18, 18), (19, 0), (38, 0), (38, 10), (38, 38), (50, 3), (3, -2), (3, 5)]
)
def test_a_numeric_with_a_precision_is_the_same_column_in_both_forms(oracle, modifiers, array):
    sample = numeric_sample(*modifiers)
    if array:
        sample = array_sample(sample, ",")
    name = f"numeric({modifiers[0]},{modifiers[1]})"
    texts = sample.texts(Random(name), _VALUES, oracle.version)
    stored = oracle.stored(f"{name}[]" if array else name, texts)
    assert stored.typmod != -1
    _assert_written_alike(oracle, stored.oid, stored.forms)
    _assert_same_columns(oracle, stored)


def test_the_parse_trees_of_the_catalog_are_text(oracle):
    forms = oracle.both_forms("SELECT ev_action AS v FROM pg_rewrite LIMIT 50")
    _assert_written_alike(oracle, oracle.oid("pg_node_tree"), forms)


@pytest.mark.parametrize(
    ("type_name", "column"),
    [("pg_ndistinct", "stxdndistinct"), ("pg_dependencies", "stxddependencies"), ("pg_mcv_list", "stxdmcv")],
)
def test_statistics_are_not_rendered(oracle, type_name, column):
    forms = oracle.both_forms(f"SELECT {column} AS v FROM pg_statistic_ext_data")
    assert forms
    for binary, _ in forms:
        with pytest.raises(NotRendered):
            render(binary, oracle.oid(type_name), -1, oracle.names)


@pytest.mark.parametrize("type_name", ["regclass", "regtype", "regproc"])
def test_the_name_of_something_is_given_as_its_oid(oracle, type_name):
    catalog = {"regclass": "pg_class", "regtype": "pg_type", "regproc": "pg_proc"}[type_name]
    query = f"SELECT oid::{type_name} AS v FROM {catalog} LIMIT 50"
    oids = [str(oid) for (oid,) in oracle.connection.execute(f"SELECT v::oid FROM ({query}) q".encode())]
    assert [render(binary, oracle.oid(type_name), -1, {}) for binary, _ in oracle.both_forms(query)] == oids


@pytest.mark.parametrize("name", ["mood[]", "price[]", "inner_row[]", "outer_row"])
def test_what_nothing_announces_inside_a_value_is_not_rendered(oracle, name):
    oid = oracle.oid(name)
    texts = (
        ['(ok,"(a,1)",,,,,,,)']
        if name == "outer_row"
        else [{"mood[]": "{ok}", "price[]": "{1}"}.get(name, '{"(a,1)"}')]
    )
    for binary, _ in oracle.stored(name, texts).forms:
        with pytest.raises(NotRendered):
            render(binary, oid, -1, {oid: oracle.names[oid]})


@pytest.mark.parametrize("text", ["empty", "(,)", "[1,2)", "[1,)", "(,2]", "[-Infinity,NaN]"])
def test_a_user_defined_range_is_not_rendered(oracle, text):
    for name, value in (("floatrange", text), ("floatmultirange", f"{{{text}}}"), ("floatrange[]", f'{{"{text}"}}')):
        for binary, _ in oracle.stored(name, [value]).forms:
            with pytest.raises(NotRendered):
                render(binary, oracle.oid(name), -1, oracle.names)


def test_a_composite_type_without_fields_is_not_rendered(oracle):
    for binary, _ in oracle.stored("no_field", ["()"]).forms:
        with pytest.raises(NotRendered):
            render(binary, oracle.oid("no_field"), -1, oracle.names)


def _changes(oracle: Oracle, slot: str) -> list[AnyMessage]:
    query = "SELECT data FROM pg_logical_slot_get_binary_changes(%s, NULL, NULL, VARIADIC %s::text[])"
    options = ["proto_version", "1", "publication_names", "announced"]
    if slot == "in_binary":
        options += ["binary", "true"]
    return [read_message(data, 0)[0] for (data,) in oracle.connection.execute(query, [slot, options])]


def test_a_publication_announces_the_types_and_sends_the_values_that_are_tested_here(oracle):
    """What the other tests take from the catalog and from COPY is what logical replication sends."""
    drawn = {name: sample for name, sample in {**_NAMED, **SAMPLES}.items() if name != "xml"}
    declared = [_DECLARED.get(name, f'"{name}"' if name == "char" else name) for name in drawn]
    columns = ", ".join(f"c{number} {name}" for number, name in enumerate(declared))
    slots = ("in_text", "in_binary")
    for statement in (
        f"CREATE TABLE announced ({columns})",
        "CREATE PUBLICATION announced FOR TABLE announced",
        *(f"SELECT pg_create_logical_replication_slot('{slot}', 'pgoutput')" for slot in slots),
    ):
        oracle.connection.execute(statement.encode())
    random = Random(0)
    with oracle.connection.cursor() as cursor, cursor.copy("COPY announced FROM STDIN") as copy:
        for _ in range(20):
            copy.write_row([sample.draw(random) for sample in drawn.values()])
    in_text, in_binary = (_changes(oracle, slot) for slot in slots)
    oracle.connection.execute("DROP TABLE announced CASCADE")

    announced = {message.oid: (message.namespace, message.name) for message in in_binary if isinstance(message, Type)}
    assert announced == {oid: oracle.names[oid] for oid in announced}
    assert len(announced) == len(_NAMED)
    (relation,) = (message for message in in_binary if isinstance(message, Relation))
    rows = [
        zip(text.new.cells, binary.new.cells, strict=True)
        for text, binary in zip(in_text, in_binary, strict=True)
        if isinstance(text, Insert) and isinstance(binary, Insert)
    ]
    assert len(rows) == 20
    for row in rows:
        for column, (text, binary) in zip(relation.columns, row, strict=True):
            assert binary.kind == "b"
            assert render(binary.value, column.type_oid, column.typmod, announced) == text.value.decode()
