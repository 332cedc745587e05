"""Find the Arrow type and the reader for a column's type oid and typmod.

PostgreSQL's built-in types are known by oid.  All others are known by the name that a Type message gives for their oid;
for a domain that is the name of its base type, without the domain's own typmod.  Options and overrides choose another
Arrow type, never another oid: the oid remains that of the values that are sent.

Read a column as another type than the one that its values are sent in, as the user has configured.

Numbers are accepted as any of PostgreSQL's types writes them, and dates and times also as ISO 8601 does.  A text that
is not exactly a value of the other type does not fit.  Only real and double precision round, as PostgreSQL itself does
when it reads text.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final, Literal

import pyarrow as pa

from walreplay.errors import ValueFormatError
from walreplay.types.base import ColumnType, DoesNotFit, Family
from walreplay.types.builtin import BUILTIN_TYPES
from walreplay.types.composite import elements_from_text, floats_from_text
from walreplay.types.datetime import days_from_text, micros_from_text
from walreplay.types.names import VECTORS, type_named
from walreplay.types.numbers import LIMITS, MAX_PRECISION, finite, precision_and_scale, unscaled_from_text
from walreplay.types.strings import bytes_from_text

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping


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
"""The types that do not become strings, except numeric, which depends on its typmod."""


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
    if announced is None:
        return _text(f"type {type_oid}", type_oid, typmod)
    namespace, name = announced
    is_builtin = namespace in ("", "pg_catalog")
    if is_builtin and name in _BY_NAME:
        return _builtin(_BY_NAME[name], NO_TYPMOD, options)
    postgres_name = name if is_builtin else f"{namespace}.{name}"
    if name in VECTORS:
        return _vector(postgres_name, type_oid, typmod)
    return _text(postgres_name, type_oid, typmod)


def _overridden(sent: ColumnType, override: str) -> ColumnType:
    name, oid, typmod = type_named(override)
    read = _builtin(oid, typmod, DEFAULT_OPTIONS) if oid else _vector(name, 0, NO_TYPMOD)
    if (read.family, read.arrow) == (sent.family, sent.arrow):
        return sent
    element = read.element and replace(read.element, oid=0, typmod=NO_TYPMOD, overridden=True)
    return replace(read, element=element, oid=sent.oid, typmod=sent.typmod, overridden=True)


def _builtin(type_oid: int, typmod: int, options: TypeOptions) -> ColumnType:
    builtin = BUILTIN_TYPES[type_oid]
    if builtin.element:
        element = _builtin(builtin.element, typmod, options)
        arrow = pa.list_(pa.field("element", element.arrow))
        delimiter = BUILTIN_TYPES[builtin.element].delimiter
        return ColumnType(arrow, Family.ARRAY, f"{element.postgres_name}[]", element, delimiter, type_oid, typmod)
    if builtin.name == "numeric":
        return _numeric(type_oid, typmod, options)
    if builtin.name in _FAMILIES:
        family, arrow = _FAMILIES[builtin.name]
        return ColumnType(arrow, family, builtin.sql_name, oid=type_oid, typmod=typmod)
    return _text(builtin.sql_name, type_oid, typmod)


def _numeric(type_oid: int, typmod: int, options: TypeOptions) -> ColumnType:
    modifiers = precision_and_scale(typmod)
    precision, scale = modifiers or (0, 0)
    name = f"numeric({precision},{scale})" if modifiers else "numeric"
    if options.decimal_handling_mode == "double":
        return ColumnType(pa.float64(), Family.NUMERIC_AS_DOUBLE, name, oid=type_oid, typmod=typmod)
    is_decimal = 1 <= precision <= MAX_PRECISION and 0 <= scale <= precision
    if is_decimal and options.decimal_handling_mode == "precise":
        return ColumnType(pa.decimal128(precision, scale), Family.DECIMAL, name, oid=type_oid, typmod=typmod)
    return _text(name, type_oid, typmod)


def _vector(postgres_name: str, type_oid: int, typmod: int) -> ColumnType:
    arrow = pa.list_(pa.field("element", pa.float32()))
    return ColumnType(arrow, Family.VECTOR, postgres_name, oid=type_oid, typmod=typmod)


def _text(postgres_name: str, type_oid: int, typmod: int) -> ColumnType:
    return ColumnType(pa.string(), Family.STRING, postgres_name, oid=type_oid, typmod=typmod)


_NUMBER = re.compile(r"([+-]?)(?:([0-9]+)(?:\.([0-9]*))?|\.([0-9]+))(?:e([+-]?[0-9]{1,9}))?", re.IGNORECASE)
_NOT_FINITE = re.compile(r"NaN|[+-]?Infinity", re.IGNORECASE)
_LARGEST_EXPONENT: Final = 500
"""No number that a decimal can hold needs a larger one, and a larger one would be written out as so many digits."""
_MAX_DIGITS: Final = 40

_TRUTHS: Final = {
    **dict.fromkeys(("t", "true", "y", "yes", "on", "1"), 1),
    **dict.fromkeys(("f", "false", "n", "no", "off", "0"), 0),
}

_TIME = re.compile(
    r"([0-9]{4,7}-[0-9]{2}-[0-9]{2})(?:[ T]([0-9]{2}:[0-9]{2})(:[0-9]{2})?(?:\.([0-9]+))?"
    r"(Z|[+-][0-9]{2}(?::?[0-9]{2}(?::?[0-9]{2})?)?)?)?( BC)?"
)
_MIDNIGHT = re.compile(r"[ T]00:00(?::00(?:\.0+)?)?(?=$| BC$)")


def read_overridden(text: str, column_type: ColumnType) -> Any:
    """Read a value as the type that the configuration gives to its column.

    Returns:
        The value as its column holds it: an int for booleans, integers, decimals (times ``10 ** scale``), dates (days
        since 1970-01-01) and timestamps (microseconds since then); a float, str or bytes; for an array a list of these,
        with None for NULL.

    Raises:
        DoesNotFit: the text is not exactly a value of that type.
    """
    if column_type.family == Family.ARRAY and column_type.element is not None:
        element = column_type.element
        try:
            parts = elements_from_text(text, column_type.delimiter)
        except ValueFormatError:
            raise DoesNotFit from None
        return [None if part is None else read_overridden(part, element) for part in parts]
    try:
        return _READERS[column_type.family](text, column_type)
    except ValueFormatError:
        raise DoesNotFit from None


def keeps_values_apart(column_type: ColumnType) -> bool:
    """Return whether different values stay different when they are read as the other type; a key column requires it.

    For example, the texts 5, 05 and 5.0 become one bigint, and close numerics become one double.  A value that does not
    fit is identified by its text.
    """
    if not column_type.overridden:
        return column_type.family != Family.NUMERIC_AS_DOUBLE
    if column_type.family == Family.STRING:
        return True
    sent = BUILTIN_TYPES[column_type.oid].name if column_type.oid in BUILTIN_TYPES else ""
    return any(sent in sources and column_type.family in targets for sources, targets in _ONE_TO_ONE)


_WHOLE: Final = frozenset({Family.INT16, Family.INT32, Family.INT64, Family.UNSIGNED, Family.DECIMAL})
_ONE_TO_ONE: Final = (
    # For these source types PostgreSQL's own equality compares numbers, days or moments, not texts.
    (frozenset({"int2", "int4", "int8", "oid", "xid", "numeric"}), _WHOLE),
    (frozenset({"int2", "int4"}), frozenset({Family.FLOAT64})),
    (frozenset({"float4"}), frozenset({Family.FLOAT32})),
    (frozenset({"float8"}), frozenset({Family.FLOAT64})),
    (frozenset({"bool"}), frozenset({Family.BOOLEAN})),
    (frozenset({"bytea"}), frozenset({Family.BINARY})),
    (frozenset({"date"}), frozenset({Family.DATE, Family.TIMESTAMP})),
    (frozenset({"timestamp"}), frozenset({Family.DATE, Family.TIMESTAMP})),
    (frozenset({"timestamptz"}), frozenset({Family.TIMESTAMPTZ})),
)


def _boolean(text: str, _column_type: ColumnType) -> int:
    value = _TRUTHS.get(text.strip().lower())
    if value is None:
        raise DoesNotFit
    return value


def _integer(text: str, column_type: ColumnType) -> int:
    low, high = LIMITS[column_type.family]
    value = unscaled_from_text(_plain(text), _MAX_DIGITS, 0)
    if not low <= value <= high:
        raise DoesNotFit
    return value


def _decimal(text: str, column_type: ColumnType) -> int:
    return unscaled_from_text(_plain(text), column_type.arrow.precision, column_type.arrow.scale)


def _plain(text: str) -> str:
    """Write a number without an exponent or a plus sign, and with a digit in front of the point."""
    match = _NUMBER.fullmatch(text.strip())
    if match is None:
        raise DoesNotFit
    sign, exponent = match[1].replace("+", ""), int(match[5] or 0)
    if abs(exponent) > _LARGEST_EXPONENT:
        raise DoesNotFit
    whole, fraction = match[2] or "", match[3] or match[4] or ""
    digits = whole + fraction
    point = len(whole) + exponent
    whole = digits[: max(point, 0)].ljust(point, "0") or "0"
    fraction = digits[max(point, 0) :].rjust(len(digits) - point, "0") if point < len(digits) else ""
    return f"{sign}{whole}.{fraction}" if fraction else sign + whole


def _float(text: str, column_type: ColumnType) -> float:
    text = text.strip()
    if _NUMBER.fullmatch(text) is None and _NOT_FINITE.fullmatch(text) is None:
        raise DoesNotFit
    if column_type.family == Family.FLOAT64:
        return finite(float(text), text)
    # Rounded to a double first, some texts would become a neighbouring single.
    single: float = pa.array([text.lstrip("+")]).cast(pa.float32())[0].as_py()
    return finite(single, text)


def _string(text: str, _column_type: ColumnType) -> str:
    return text


def _binary(text: str, _column_type: ColumnType) -> bytes:
    return bytes_from_text(text)


def _date(text: str, _column_type: ColumnType) -> int:
    return days_from_text(_MIDNIGHT.sub("", text.strip()))


def _timestamp(text: str, column_type: ColumnType) -> int:
    match = _TIME.fullmatch(text.strip())
    with_zone = column_type.family == Family.TIMESTAMPTZ
    if match is None or (match[5] is not None) != with_zone:
        raise DoesNotFit
    fraction = (match[4] or "").rstrip("0")
    if match[4] is not None and match[3] is None:
        raise DoesNotFit
    seconds = (match[3] or ":00") + (f".{fraction}" if fraction else "")
    zone = match[5] or ""
    if zone == "Z":
        zone = "+00"
    elif zone:
        figures = zone[1:].replace(":", "")
        zone = zone[0] + ":".join(figures[at : at + 2] for at in range(0, len(figures), 2))
    return micros_from_text(f"{match[1]} {match[2] or '00:00'}{seconds}{zone}{match[6] or ''}", with_zone=with_zone)


def _as_vector(text: str, _column_type: ColumnType) -> list[float]:
    return floats_from_text(text)


_READERS: Final[dict[Family, Callable[[str, ColumnType], Any]]] = {
    Family.BOOLEAN: _boolean,
    Family.INT16: _integer,
    Family.INT32: _integer,
    Family.INT64: _integer,
    Family.UNSIGNED: _integer,
    Family.FLOAT32: _float,
    Family.FLOAT64: _float,
    Family.DECIMAL: _decimal,
    Family.STRING: _string,
    Family.BINARY: _binary,
    Family.DATE: _date,
    Family.TIMESTAMP: _timestamp,
    Family.TIMESTAMPTZ: _timestamp,
    Family.VECTOR: _as_vector,
}
