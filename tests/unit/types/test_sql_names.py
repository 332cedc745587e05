"""Types with their modifiers, and names, are written as PostgreSQL writes them."""

from __future__ import annotations

import pytest

from walreplay.types.builtin import BUILTIN_TYPES
from walreplay.types.names import quoted, relation_name, type_written
from walreplay.types.registry import resolve

_NAMES = {
    50001: ("shop", "mood"),
    50002: ("Shop's", "user"),
    50003: ("", "varchar"),
    50004: ("public", "vector"),
    50005: ("pg_catalog", "_int4"),
    50006: ("public", "_mood"),
    50007: ("", "brand_new"),
}

WRITTEN = [
    # What format_type gave, with PostgreSQL 18.
    (1043, 24, "character varying(20)"),
    (1043, -1, "character varying"),
    (1042, 9, "character(5)"),
    (1042, 5, "character(1)"),
    (1042, -1, "bpchar"),
    (1560, 3, "bit(3)"),
    (1560, -1, '"bit"'),
    (1562, 4, "bit varying(4)"),
    (1562, -1, "bit varying"),
    (1083, 3, "time(3) without time zone"),
    (1083, -1, "time without time zone"),
    (1266, 0, "time(0) with time zone"),
    (1114, 6, "timestamp(6) without time zone"),
    (1184, 3, "timestamp(3) with time zone"),
    (1184, -1, "timestamp with time zone"),
    (1186, -1, "interval"),
    (1186, 2147418114, "interval(2)"),
    (1186, 458751, "interval year to month"),
    (1186, 470286339, "interval day to second(3)"),
    (1186, 268435457, "interval second(1)"),
    (1186, 402718719, "interval minute to second"),
    (1186, 196607, "interval month"),
    (1187, 201392127, "interval hour to minute[]"),
    (1700, 655366, "numeric(10,2)"),
    (1700, 329730, "numeric(5,-2)"),
    (1700, 65536004, "numeric(1000,0)"),
    (1700, -1, "numeric"),
    (1231, 655366, "numeric(10,2)[]"),
    (1015, 11, "character varying(7)[]"),
    (1014, 7, "character(3)[]"),
    (1014, -1, "bpchar[]"),
    (1561, 2, "bit(2)[]"),
    (1007, -1, "integer[]"),
    (1022, -1, "double precision[]"),
    (18, -1, '"char"'),
    (23, -1, "integer"),
    (3802, -1, "jsonb"),
    # What Type messages name: enums, composite types, domains by their base type, extensions, arrays of these.
    (50001, -1, "shop.mood"),
    (50002, -1, '"Shop\'s"."user"'),
    (50003, -1, "character varying"),
    (50004, 3, "public.vector(3)"),
    (50004, -1, "public.vector"),
    (50001, 7, "shop.mood"),
    (50005, -1, "integer[]"),
    (50006, -1, "public._mood"),
    (50007, -1, "brand_new"),
    # What nothing names.
    (60001, 12, "type 60001"),
    # Bytes that no server sends.
    (1043, 0, "character varying"),
    (1700, 0, "numeric"),
    (23, 5, "integer"),
]


@pytest.mark.parametrize(("oid", "typmod", "text"), WRITTEN)
def test_a_type_is_written_with_its_modifiers(oid: int, typmod: int, text: str) -> None:
    assert type_written(oid, typmod, _NAMES) == text


def test_every_type_is_named_as_it_is_elsewhere() -> None:
    for oid in BUILTIN_TYPES:
        if "bit" not in BUILTIN_TYPES[oid].name and "bpchar" not in BUILTIN_TYPES[oid].name:
            assert type_written(oid, -1, {}) == resolve(oid, -1, {}).postgres_name


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("orders", "orders"),
        ("_o1", "_o1"),
        ("order", '"order"'),
        ("user", '"user"'),
        ("name", "name"),
        ("Orders", '"Orders"'),
        ("1st", '"1st"'),
        ("a$b", '"a$b"'),
        ('say "hi"', '"say ""hi"""'),
        ("größe", '"größe"'),
        ("a\nb\\", '"a\nb\\"'),
        ("", '""'),
    ],
)
def test_an_identifier_is_quoted_where_sql_needs_it(name: str, text: str) -> None:
    assert quoted(name) == text
    assert relation_name("", name) == f"pg_catalog.{text}"
