"""Names as PostgreSQL writes them in SQL: a relation's, and a column's type with its modifiers.

It is what ``quote_ident`` and ``format_type`` give, with the schema of every type that is not built in.  The modifier
of a type that is neither built in nor pgvector's is left out, as only the type's own function can write it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

from walreplay.types.builtin import BUILTIN_TYPES
from walreplay.types.names import VECTORS
from walreplay.types.numeric import precision_and_scale

_PLAIN: Final = re.compile(r"[a-z_][a-z0-9_]*")

_HEADER_SIZE: Final = 4
"""PostgreSQL adds it to a length to make a typmod (VARHDRSZ)."""

_WITH_HEADER: Final = ("bpchar", "varchar")
_PLAIN_MODIFIER: Final = ("bit", "varbit", "time", "timetz", "timestamp", "timestamptz")

_WITHOUT_LENGTH: Final = {"bpchar": "bpchar", "bit": '"bit"'}
"""These names mean types without a length; in SQL ``character`` and ``bit`` without a length have length 1."""

_ANY_PRECISION: Final = 0xFFFF
_INTERVAL_FIELDS: Final = {2: "year", 1: "month", 3: "day", 10: "hour", 11: "minute", 12: "second"}
"""The bits of an interval's typmod, above its precision's 16, in the order in which SQL names the fields."""

_ALL_FIELDS: Final = 0x7FFF

_WORDS: Final = """
    all analyse analyze and any array as asc asymmetric authorization between bigint binary bit boolean both case cast
    char character check coalesce collate collation column concurrently constraint create cross current_catalog
    current_date current_role current_schema current_time current_timestamp current_user dec decimal default deferrable
    desc distinct do else end except exists extract false fetch float for foreign freeze from full grant greatest group
    grouping having ilike in initially inner inout int integer intersect interval into is isnull join json json_array
    json_arrayagg json_exists json_object json_objectagg json_query json_scalar json_serialize json_table json_value
    lateral leading least left like limit localtime localtimestamp merge_action national natural nchar none normalize
    not notnull null nullif numeric offset on only or order out outer overlaps overlay placing position precision
    primary real references returning right row select session_user setof similar smallint some substring symmetric
    system_user table tablesample then time timestamp to trailing treat trim true union unique user using values varchar
    variadic verbose when where window with xmlattributes xmlconcat xmlelement xmlexists xmlforest xmlnamespaces
    xmlparse xmlpi xmlroot xmlserialize xmltable
    """

_KEYWORDS: Final = frozenset(_WORDS.split())
"""The words of PostgreSQL 18's grammar that have to be quoted as names (``pg_get_keywords``)."""

_OIDS: Final = {builtin.name: oid for oid, builtin in BUILTIN_TYPES.items()}


def quoted(name: str) -> str:
    """Write an identifier as ``quote_ident`` does.

    >>> [quoted(name) for name in ("orders", "order", "Orders")]
    ['orders', '"order"', '"Orders"']
    """
    if _PLAIN.fullmatch(name) and name not in _KEYWORDS:
        return name
    return '"' + name.replace('"', '""') + '"'


def relation_name(namespace: str, name: str) -> str:
    """Write a relation's name; an empty namespace is ``pg_catalog``, as on the wire."""
    return f"{quoted(namespace or 'pg_catalog')}.{quoted(name)}"


def type_written(type_oid: int, typmod: int, type_names: Mapping[int, tuple[str, str]]) -> str:
    """Write a column's type.

    Args:
        type_oid: the oid in the Relation message.
        typmod: the type modifier, -1 for none.
        type_names: (namespace, name) by oid, from Type messages.  For a domain these name its base type.

    Returns:
        ``type <oid>`` for a type that is not built in and that no message has named.
    """
    if type_oid in BUILTIN_TYPES:
        return _builtin(type_oid, typmod)
    if type_oid not in type_names:
        return f"type {type_oid}"
    namespace, name = type_names[type_oid]
    if namespace in ("", "pg_catalog"):
        # A domain over a built-in type; the stream does not tell its length.
        return BUILTIN_TYPES[_OIDS[name]].sql_name if name in _OIDS else quoted(name)
    modifier = f"({typmod})" if name in VECTORS and typmod >= 0 else ""
    return f"{quoted(namespace)}.{quoted(name)}{modifier}"


def _builtin(type_oid: int, typmod: int) -> str:
    builtin = BUILTIN_TYPES[type_oid]
    if builtin.element:
        return f"{_builtin(builtin.element, typmod)}[]"
    if typmod < 0:
        return _WITHOUT_LENGTH.get(builtin.name, builtin.sql_name)
    # A modifier stands behind the first word: time(3) without time zone.
    first, *rest = builtin.sql_name.split(" ")
    if builtin.name in ("varchar", "varbit"):
        first, rest = builtin.sql_name, []
    return " ".join([first + _modifier(builtin.name, typmod), *rest])


def _modifier(name: str, typmod: int) -> str:
    """Write a type's modifier; the empty string if the type has none."""
    if name == "interval":
        return _interval(typmod)
    if name == "numeric":
        found = precision_and_scale(typmod)
        return "" if found is None else f"({found[0]},{found[1]})"
    if name in _WITH_HEADER:
        return f"({typmod - _HEADER_SIZE})" if typmod > _HEADER_SIZE else ""
    return f"({typmod})" if name in _PLAIN_MODIFIER else ""


def _interval(typmod: int) -> str:
    mask, precision = typmod >> 16 & _ALL_FIELDS, typmod & 0xFFFF
    fields = [field for bit, field in _INTERVAL_FIELDS.items() if mask >> bit & 1] if mask != _ALL_FIELDS else []
    told = " " + " to ".join(dict.fromkeys([fields[0], fields[-1]])) if fields else ""
    return told + (f"({precision})" if precision != _ANY_PRECISION else "")
