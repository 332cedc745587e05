"""What tables are, by the query on the source and by dumps."""

from __future__ import annotations

import json
import time
from contextlib import suppress
from dataclasses import replace

import pytest

from walreplay.errors import CaptureError, ConfigError, NotSupported
from walreplay.loading.description import Description, read_description, write_description
from walreplay.loading.pg_dump import Section, read_copy, read_toc, sections_of
from walreplay.protocol.messages import Column, Relation, Type


def line(**values: object) -> str:
    known = {
        "schema": "shop",
        "table": "orders",
        "oid": 7,
        "replica_identity": "d",
        "attnum": 1,
        "column": "id",
        "type_oid": 23,
        "typmod": -1,
        "key": True,
        "type_schema": "pg_catalog",
        "type_name": "int4",
    }
    return json.dumps({**known, **values}) + "\n"


def test_a_description_gives_the_relations_that_the_stream_announces():
    text = line(attnum=2, column="mood", type_oid=90_001, key=False, type_schema="shop", type_name="mood") + line()
    text += line(table="amounts", oid=8, column="n", type_oid=90_002, type_name="numeric")
    text += line(table="bare", oid=9, attnum=None, column=None, type_oid=None, typmod=None, key=None)
    found = read_description(text, "f")
    orders = Relation(7, "shop", "orders", "d", (Column("id", 23, -1, True), Column("mood", 90_001, -1, False)))
    assert found.relation("shop.orders") == orders
    assert found.relation("shop.bare").columns == ()
    assert set(found.types) == {Type(90_001, "shop", "mood"), Type(90_002, "", "numeric")}


def test_the_catalog_s_numbers_of_columns_are_known_and_those_that_a_ledger_counted_are_not():
    text = line(kind="r", attnum=3) + line(kind="r", attnum=5, column="note")
    found = read_description(text, "f").relation("shop.orders")
    assert [column.described_number for column in found.columns] == [3, 5]
    again = read_description(write_description([found], Description.of([found], ())), "f")
    assert again.relation("shop.orders") == found
    announced = Relation(7, "shop", "orders", "d", (Column("id", 23, -1, True, number=4), Column("b", 23, -1, False)))
    again = read_description(write_description([announced], Description.of((), ())), "f")
    assert [column.described_number for column in again.relation("shop.orders").columns] == [4, 0]
    assert [column.described_number for column in read_description(line(), "f").relation("shop.orders").columns] == [0]


def test_the_labels_of_enums_are_known_and_a_ledger_keeps_them():
    described = line(labels=[[3, "sad"], [1, "ok"]]) + line(attnum=2, column="note", labels=None)
    found = read_description(described, "f").relation("shop.orders")
    assert [column.described_labels for column in found.columns] == [((3, "sad"), (1, "ok")), ()]
    again = read_description(write_description([found], Description.of([found], ())), "f").relation("shop.orders")
    assert [column.described_labels for column in again.columns] == [((3, "sad"), (1, "ok")), ()]
    announced = replace(found, columns=(Column("id", 90_001, -1, True, labels=((1, ("a", "b")),)),))
    again = read_description(write_description([announced], Description.of((), ())), "f").relation("shop.orders")
    assert [column.described_labels for column in again.columns] == [()]


@pytest.mark.parametrize(
    "text",
    [
        "oid,name\n",
        line(replica_identity="x"),
        line(key="t"),
        line(oid="a"),
        "[1]\n",
        line()[:-4],
        line(column=None),
        line(labels=[1]),
        line(oid=float("inf")),
        line(labels=[[1e999, "a"]]),
        line(type_oid=90_001).replace("type_name", "type_nam"),
        line(type_oid=90_001).replace("type_schema", "type_schem"),
        "[" * 100_000 + "\n",
    ],
)
def test_what_is_no_description_is_refused_by_its_line(text):
    with pytest.raises(ConfigError, match=r"line 2 is not what describe\.sql writes"):
        read_description(line() + text, "f")


@pytest.mark.parametrize("again", [line(replica_identity="f"), line()])
def test_a_table_that_is_described_twice_is_refused(again):
    with pytest.raises(ConfigError, match="described twice"):
        read_description(line() + again, "f")


def test_a_name_that_may_mean_two_tables_is_refused():
    relations = [Relation(1, "a", "b.c", "d", ()), Relation(2, "a.b", "c", "d", ())]
    found = Description.of(relations, ())
    with pytest.raises(ConfigError, match="may mean two tables"):
        found.relation("a.b.c")
    with pytest.raises(ConfigError, match="nothing says"):
        found.relation("a.b")


@pytest.mark.parametrize(
    ("statement", "found"),
    [
        ("COPY shop.orders (id, note) FROM stdin;\n", ("shop.orders", ("id", "note"))),
        ('COPY "A b"."c""d" ("x, y)", "z") FROM stdin;', ('A b.c"d', ("x, y)", "z"))),
        ("COPY shop.bare  FROM stdin;", ("shop.bare", ())),
        ("COPY orders (id) FROM stdin;", None),
        ("COPY shop.orders (id id) FROM stdin;", None),
        ("COPY shop.orders (id) TO stdout;", None),
    ],
)
def test_the_statements_of_dumps_are_read(statement, found):
    assert read_copy(statement) == found


DUMP = b"""-- COPY a.b (c) FROM stdin;
SET x = 'COPY a.b (c) FROM stdin;';
COPY a.b (c) FROM stdin;
COPY x.y (z) FROM stdin;
one
\\.

COPY a.empty (c) FROM stdin;
\\.


"""


def test_the_sections_of_a_plain_dump_are_found():
    found = list(sections_of(DUMP, "f"))
    assert [section.table for section in found] == ["a.b", "a.empty"]
    assert [DUMP[section.start : section.stop] for section in found] == [b"COPY x.y (z) FROM stdin;\none\n", b""]


def test_names_in_a_dump_may_have_newlines_and_what_ends_a_statement():
    rows = b"1\tCOPY a.b (c) FROM stdin;\n"
    dump = b'COPY s.t (id) TO \'x\';\nCOPY s."new\nline" (id, "z\n FROM stdin;") FROM stdin;\n' + rows + b"\\.\n"
    (section,) = sections_of(dump, "f")
    assert (section.table, section.columns) == ("s.new\nline", ("id", "z\n FROM stdin;"))
    assert dump[section.start : section.stop] == rows
    assert read_copy('COPY s."new\nline" ("z\n") FROM stdin;\n') == ("s.new\nline", ("z\n",))


def test_a_dump_may_begin_with_a_section():
    dump = DUMP[DUMP.index(b"COPY a.empty") :]
    assert [(section.table, section.start) for section in sections_of(dump, "f")] == [("a.empty", dump.index(b"\\."))]


@pytest.mark.parametrize(
    "dump",
    [
        b"COPY a.b" + b" " * 200_000 + b"x FROM stdin;\n",
        b'COPY "' + b" FROM stdin;" * 80_000 + b"\n",
        b"COPY x\n" * 100_000,
        b"\nx" + b"COPY " * 200_000,
        b"COPY x\n" * 2_000 + b'"' + b" FROM stdin;" * 2_000,
    ],
    ids=["spaces", "a name without an end", "no rows", "one line", "names in names"],
)
def test_a_dump_that_was_made_to_keep_a_reader_busy_is_read_soon(dump):
    began = time.process_time()
    with suppress(CaptureError):
        assert list(sections_of(dump, "f")) == []
    assert time.process_time() - began < 5


def test_a_section_without_an_end_is_refused():
    with pytest.raises(CaptureError, match="no end"):
        list(sections_of(DUMP[: DUMP.index(b"\\.")], "f"))


def toc(version: tuple[int, int] = (1, 16), copy: str = "COPY a.b (c) FROM stdin;\n") -> bytes:
    """Write a table of contents of one table with rows, as `_WriteToc` does."""

    def number(value: int) -> bytes:
        return bytes([value < 0]) + abs(value).to_bytes(4, "little")

    def text(value: str | None) -> bytes:
        return number(-1) if value is None else number(len(value)) + value.encode()

    entry = [number(1), number(1), text("0"), text("7"), text("b"), text("TABLE DATA"), number(3), text(""), text("")]
    entry += [text(copy), text("a"), text(None)]
    entry += [text("heap")] * (version >= (1, 14)) + [number(114)] * (version >= (1, 16))
    entry += [text("me"), text("false"), text("12"), text(None), text("7.dat")]
    head = [b"PGDMP", bytes([*version, 0, 4, 8, 3]), b"\0" if version >= (1, 15) else number(-1)]
    return b"".join([*head, *[number(0)] * 7, text("shop"), text("16.1"), text("16.1"), number(1), *entry])


@pytest.mark.parametrize("version", [(1, 12), (1, 13), (1, 14), (1, 15), (1, 16)])
def test_a_folders_table_of_contents_names_the_files(version):
    assert read_toc(toc(version), "f") == [Section("a.b", ("c",), "7.dat")]


def test_a_table_of_contents_that_is_cut_off_is_refused():
    whole = toc()
    for size in range(5, len(whole)):
        with pytest.raises(CaptureError):
            read_toc(whole[:size], "f")


@pytest.mark.parametrize("data", [toc((1, 17)), toc((1, 11)), toc(copy=""), toc()[:10] + b"\1" + toc()[11:]])
def test_dumps_that_are_not_known_are_refused(data):
    with pytest.raises(NotSupported):
        read_toc(data, "f")
