"""Names of types and relations as SQL writes them.

`type_named` reads a type's name as people write it: ``numeric(20,4)``, ``timestamp with time zone``, ``int[]``.
`relation_name` and `type_written` write what ``quote_ident`` and ``format_type`` return, with the schema of every type
that is not built in.  The modifier of a type that is neither built in nor pgvector's is left out, as only the type's
own function can write it.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Mapping
from typing import Final, NamedTuple

from walreplay.errors import ConfigError
from walreplay.types.builtin import BUILTIN_TYPES, OIDS
from walreplay.types.numbers import HEADER_SIZE, MAX_PRECISION, precision_and_scale

VECTORS: Final = ("vector", "halfvec")  # Pgvector's types that become lists; sparsevec has no such form, and stays text

_PARTS = re.compile(r'("char"|[a-z0-9_ ]*?) ?(?:\(([^()]*)\))?( with time zone| without time zone)? ?((?:\[ ?\] ?)*)')
_PRECISION_AND_SCALE = re.compile(r" ?([0-9]{1,4}) ?(?:, ?([0-9]{1,4}) ?)?")

_SYNONYMS: Final = {
    "int": "int4",
    "decimal": "numeric",
    "dec": "numeric",
    "float": "float8",
    "char": "bpchar",  # pg_type's own "char" is another type, which SQL writes with its quotes
    "varchar": "varchar",
    "time": "time",
    "timestamp": "timestamp",
}


class NamedType(NamedTuple):
    """The type that a name means.

    Args:
        name: its name in pg_type.
        oid: its oid; 0 for the types of `VECTORS`, which are not built in.
        typmod: -1 for none.
    """

    name: str
    oid: int
    typmod: int


_NO_ARRAYS: Final = {oid: builtin for oid, builtin in BUILTIN_TYPES.items() if not builtin.element}
_KNOWN: Final = (
    {builtin.name: oid for oid, builtin in _NO_ARRAYS.items()}
    | {builtin.sql_name: oid for oid, builtin in _NO_ARRAYS.items()}
    | {synonym: OIDS[name] for synonym, name in _SYNONYMS.items()}
)
_ARRAYS: Final = {builtin.element: oid for oid, builtin in BUILTIN_TYPES.items() if builtin.element}
_ARRAY_NAMES: Final = {BUILTIN_TYPES[oid].name: oid for oid in _ARRAYS.values()}


def type_named(text: str) -> NamedType:
    """Return the type that a name means; case and spaces make no difference.

    Raises:
        ConfigError: there is no such type, or a type other than numeric has modifiers, or no decimal column can hold
            such a numeric.
    """
    written = " ".join(text.lower().split())
    if written in VECTORS:
        return NamedType(written, 0, -1)
    if written in _ARRAY_NAMES:
        return NamedType(written, _ARRAY_NAMES[written], -1)
    parts = _PARTS.fullmatch(written)
    if parts is None:
        raise _unknown(text)
    name, modifiers, brackets = parts[1].strip() + (parts[3] or ""), parts[2], parts[4]
    oid = _KNOWN.get(name)
    if oid is None:
        raise _unknown(text)
    typmod = -1 if modifiers is None else _numeric_typmod(text, BUILTIN_TYPES[oid].name, modifiers)
    if brackets:  # the number of dimensions is no part of an array's type
        if oid not in _ARRAYS:
            raise ConfigError(f"there are no arrays of {name}")
        oid = _ARRAYS[oid]
    return NamedType(BUILTIN_TYPES[oid].name, oid, typmod)


def _numeric_typmod(text: str, name: str, modifiers: str) -> int:
    if name != "numeric":
        raise ConfigError(
            f"{text!r} has a modifier that changes nothing here", remedy="Leave it out: numeric alone has modifiers"
        )
    numbers = _PRECISION_AND_SCALE.fullmatch(modifiers)
    if numbers is None:
        raise ConfigError(f"{text!r} has no precision and scale", remedy="Write them as in numeric(20,4)")
    precision, scale = int(numbers[1]), int(numbers[2] or 0)
    if not 1 <= precision <= MAX_PRECISION or scale > precision:
        raise ConfigError(
            f"{text!r} is not what a decimal holds: up to {MAX_PRECISION} digits, the scale among them",
            remedy="The type text keeps any number of digits",
        )
    return (precision << 16 | scale) + HEADER_SIZE  # the inverse of walreplay.types.numbers.precision_and_scale


def _unknown(text: str) -> ConfigError:
    written = text.lower().split("(")[0].split("[")[0].strip()
    close = difflib.get_close_matches(written, [*_KNOWN, *VECTORS], n=1, cutoff=0.5)
    remedy = f"The nearest name is {close[0]!r}" if close else "Write a built-in type, such as numeric(20,4) or text"
    return ConfigError(f"{text!r} is no type that PostgreSQL has built in", remedy=remedy)


_PLAIN: Final = re.compile(r"[a-z_][a-z0-9_]*")

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
        return BUILTIN_TYPES[OIDS[name]].sql_name if name in OIDS else quoted(name)
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
        modifiers = precision_and_scale(typmod)
        return "" if modifiers is None else f"({modifiers[0]},{modifiers[1]})"
    if name in _WITH_HEADER:
        return f"({typmod - HEADER_SIZE})" if typmod > HEADER_SIZE else ""
    return f"({typmod})" if name in _PLAIN_MODIFIER else ""


def _interval(typmod: int) -> str:
    mask, precision = typmod >> 16 & _ALL_FIELDS, typmod & 0xFFFF  # all bits are set where SQL names no fields
    fields = [field for bit, field in _INTERVAL_FIELDS.items() if mask >> bit & 1] if mask != _ALL_FIELDS else []
    text = " " + " to ".join(dict.fromkeys([fields[0], fields[-1]])) if fields else ""
    return text + (f"({precision})" if precision != _ANY_PRECISION else "")
