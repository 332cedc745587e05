"""Find the Arrow type and the reader for a column's type oid and typmod.

PostgreSQL's built-in types are known by oid.  All others are known by the name that a Type message gives for their oid;
for a domain that is the name of its base type, without the domain's own typmod.  Options and overrides choose another
Arrow type, never another oid: the oid remains that of the values that are sent.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final, Literal

import pyarrow as pa

from walreplay.types import families
from walreplay.types.base import FAMILIES, ColumnType, Family
from walreplay.types.builtin import BUILTIN_TYPES, OIDS
from walreplay.types.names import VECTORS, type_named
from walreplay.types.numbers import MAX_PRECISION, precision_and_scale

if TYPE_CHECKING:
    from collections.abc import Mapping


DecimalMode = Literal["precise", "string", "double"]


@dataclass(frozen=True, slots=True)
class TypeOptions:
    """How the values of one table are read, as the configuration says.

    Args:
        decimal_handling_mode: the type for numeric, by Debezium's names: precise (decimal, or string if no decimal can
            hold the values), string, or double (the nearest one).
        overrides: (column, type name) for each column that is read as another type than its own.  They have priority
            over the mode.
    """

    decimal_handling_mode: DecimalMode = "precise"
    overrides: tuple[tuple[str, str], ...] = ()

    def override_of(self, column: str) -> str | None:
        """Return the name of the type as which a column is read; None if that is its own."""
        return dict(self.overrides).get(column)


DEFAULT_OPTIONS: Final = TypeOptions()

NO_TYPMOD: Final = -1

_BY_TYPE: Final = {name: family for family in FAMILIES.values() for name in family.types}


def resolve(
    type_oid: int,
    typmod: int,
    type_names: Mapping[int, tuple[str, str]],
    *,
    options: TypeOptions = DEFAULT_OPTIONS,
    override: str | None = None,
) -> ColumnType:
    """Return the column type for a type oid of a Relation message.

    Args:
        type_oid: the column's type.
        typmod: its type modifier, -1 for none.
        type_names: (namespace, name) by oid, from Type messages; "" is pg_catalog.
        options: the table's; their overrides are ignored.
        override: the name of the type as which the column is read, or None.  It has priority over the options' mode.

    Raises:
        ConfigError: the override is no type's name.
    """
    if override is not None:
        return _overridden(_sent(type_oid, typmod, type_names, DEFAULT_OPTIONS), override)
    return _sent(type_oid, typmod, type_names, options)


def _sent(type_oid: int, typmod: int, type_names: Mapping[int, tuple[str, str]], options: TypeOptions) -> ColumnType:
    if type_oid in BUILTIN_TYPES:
        return _builtin(type_oid, typmod, options)
    announced = type_names.get(type_oid)
    if announced is None:  # no Type message has named it: its values stay texts
        return _column(families.STRING, f"type {type_oid}", type_oid, typmod)
    namespace, name = announced
    is_builtin = namespace in ("", "pg_catalog")
    if is_builtin and name in OIDS:
        return _builtin(OIDS[name], NO_TYPMOD, options)  # a domain: the Type message names its base type
    postgres_name = name if is_builtin else f"{namespace}.{name}"
    return _column(families.VECTOR if name in VECTORS else families.STRING, postgres_name, type_oid, typmod)


def _overridden(sent: ColumnType, override: str) -> ColumnType:
    name, oid, typmod = type_named(override)
    read = _builtin(oid, typmod, DEFAULT_OPTIONS) if oid else _column(families.VECTOR, name, 0, NO_TYPMOD)
    if (read.family, read.arrow) == (sent.family, sent.arrow):  # it is read so anyway
        return sent
    # The sent type says nothing of the elements.
    element = read.element and replace(read.element, oid=0, typmod=NO_TYPMOD, overridden=True)
    return replace(read, element=element, oid=sent.oid, typmod=sent.typmod, overridden=True)


def _builtin(type_oid: int, typmod: int, options: TypeOptions) -> ColumnType:
    builtin = BUILTIN_TYPES[type_oid]
    if builtin.element:
        element = _builtin(builtin.element, typmod, options)
        arrow = pa.list_(pa.field("element", element.arrow))
        delimiter = BUILTIN_TYPES[builtin.element].delimiter
        return ColumnType(arrow, families.ARRAY, f"{element.postgres_name}[]", element, delimiter, type_oid, typmod)
    if builtin.name == "numeric":
        return _numeric(type_oid, typmod, options)
    return _column(_BY_TYPE.get(builtin.name, families.STRING), builtin.sql_name, type_oid, typmod)


def _numeric(type_oid: int, typmod: int, options: TypeOptions) -> ColumnType:
    modifiers = precision_and_scale(typmod)
    precision, scale = modifiers or (0, 0)
    name = f"numeric({precision},{scale})" if modifiers else "numeric"
    if options.decimal_handling_mode == "double":
        return _column(families.NUMERIC_AS_DOUBLE, name, type_oid, typmod)
    # Delta has no negative scale, and none above the precision.
    is_decimal = 1 <= precision <= MAX_PRECISION and 0 <= scale <= precision
    if is_decimal and options.decimal_handling_mode == "precise":
        return ColumnType(pa.decimal128(precision, scale), families.DECIMAL, name, oid=type_oid, typmod=typmod)
    return _column(families.STRING, name, type_oid, typmod)


def _column(family: Family, postgres_name: str, type_oid: int, typmod: int) -> ColumnType:
    return ColumnType(family.arrow, family, postgres_name, oid=type_oid, typmod=typmod)
