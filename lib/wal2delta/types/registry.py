"""From a column's type oid and typmod to the Arrow type and the reader of its values.

PostgreSQL's built-in types are known by oid.  All others are known by the name that a Type message gives for
their oid: for a domain that is its base type's name, without the domain's own typmod.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

import pyarrow as pa

from wal2delta.types.base import ColumnType, Family
from wal2delta.types.builtin import BUILTIN_TYPES
from wal2delta.types.numeric import MAX_PRECISION, precision_and_scale

if TYPE_CHECKING:
    from collections.abc import Mapping

NO_TYPMOD: Final = -1

_BY_NAME: Final = {builtin.name: oid for oid, builtin in BUILTIN_TYPES.items()}

_FAMILIES: Final[dict[str, tuple[Family, pa.DataType]]] = {
    "bool": (Family.BOOLEAN, pa.bool_()),
    "int2": (Family.INT16, pa.int16()),
    "int4": (Family.INT32, pa.int32()),
    "int8": (Family.INT64, pa.int64()),
    "oid": (Family.UNSIGNED, pa.int64()),
    "xid": (Family.UNSIGNED, pa.int64()),
    "float4": (Family.FLOAT32, pa.float32()),
    "float8": (Family.FLOAT64, pa.float64()),
    "bytea": (Family.BINARY, pa.binary()),
    "date": (Family.DATE, pa.date32()),
    "timestamp": (Family.TIMESTAMP, pa.timestamp("us")),
    "timestamptz": (Family.TIMESTAMPTZ, pa.timestamp("us", "UTC")),
}
"""The types that do not stay text; numeric depends on its typmod."""


def resolve(type_oid: int, typmod: int, type_names: Mapping[int, tuple[str, str]]) -> ColumnType:
    """Give the column type for a type oid of a Relation message.

    Args:
        type_oid: the column's type.
        typmod: its type modifier, -1 for none.
        type_names: (namespace, name) by oid, from Type messages; "" is pg_catalog.
    """
    if type_oid in BUILTIN_TYPES:
        return _builtin(type_oid, typmod)
    announced = type_names.get(type_oid)
    if announced is None:
        return _text(f"type {type_oid}")
    namespace, name = announced
    if namespace not in ("", "pg_catalog"):
        return _text(f"{namespace}.{name}")
    if name not in _BY_NAME:
        return _text(name)
    return _builtin(_BY_NAME[name], NO_TYPMOD)


def _builtin(type_oid: int, typmod: int) -> ColumnType:
    builtin = BUILTIN_TYPES[type_oid]
    if builtin.element:
        element = _builtin(builtin.element, typmod)
        arrow = pa.list_(pa.field("element", element.arrow))
        delimiter = BUILTIN_TYPES[builtin.element].delimiter
        return ColumnType(arrow, Family.ARRAY, f"{element.postgres_name}[]", element, delimiter)
    if builtin.name == "numeric":
        return _numeric(typmod)
    if builtin.name in _FAMILIES:
        family, arrow = _FAMILIES[builtin.name]
        return ColumnType(arrow, family, builtin.sql_name)
    return _text(builtin.sql_name)


def _numeric(typmod: int) -> ColumnType:
    modifiers = precision_and_scale(typmod)
    if modifiers is None:
        return _text("numeric")
    precision, scale = modifiers
    name = f"numeric({precision},{scale})"
    if 1 <= precision <= MAX_PRECISION and 0 <= scale <= precision:
        return ColumnType(pa.decimal128(precision, scale), Family.DECIMAL, name)
    return _text(name)


def _text(postgres_name: str) -> ColumnType:
    return ColumnType(pa.string(), Family.STRING, postgres_name)


class TypeDescription(NamedTuple):
    """One row of the documentation's table of types."""

    postgres: str
    arrow: str
    misfits: str


_NONE: Final = "none"
_TIME_MISFITS: Final = "infinity, -infinity and years outside 1 to 9999 are rescued"

_DESCRIPTIONS: Final[tuple[tuple[tuple[str, ...], str], ...]] = (
    (("bool",), _NONE),
    (("int2",), _NONE),
    (("int4",), _NONE),
    (("int8",), _NONE),
    (("oid", "xid"), _NONE),
    (("float4",), _NONE + "; NaN and the infinities are values"),
    (("float8",), _NONE + "; NaN and the infinities are values"),
    (("bytea",), _NONE),
    (("date",), _TIME_MISFITS),
    (("timestamp",), _TIME_MISFITS),
    (("timestamptz",), _TIME_MISFITS + ", judged in UTC"),
)


def describe() -> list[TypeDescription]:
    """List what becomes of every type, and of the values that do not fit."""
    rows = [
        TypeDescription(
            ", ".join(BUILTIN_TYPES[_BY_NAME[name]].sql_name for name in names),
            str(_FAMILIES[names[0]][1]),
            misfits,
        )
        for names, misfits in _DESCRIPTIONS
    ]
    decimal = "NaN, the infinities and values with more digits than p or s allow are rescued"
    rows.insert(7, TypeDescription("numeric(p,s), p up to 38, s from 0 to p", "decimal128(p, s)", decimal))
    rows += [
        TypeDescription(
            "arrays of built-in types",
            "list<element>",
            "with several dimensions, own bounds or an element that does not fit, the whole array is rescued",
        ),
        TypeDescription("numeric without precision, or any other numeric(p,s)", "string", _NONE),
        TypeDescription("every other type, arrays of user-defined types", "string", "none; PostgreSQL's text as sent"),
    ]
    return rows
