"""The families of types: one record for each, with all that the package knows of it.

A column's family says how texts become its values (`Family.read`), how a column is written as PostgreSQL's text
(`Family.write`), what conversions between types may make of it, and which values do not fit.  Other modules ask the
record and do not ask which family it is.  Only `walreplay.decode.columns`, which lies above, has a table of its own,
with a builder for each family.

Readers accept a text as another type's, too, as columns are read whose type the configuration chooses: numbers as any
of PostgreSQL's types writes them, and dates and times also as ISO 8601 does.  A text that is not exactly a value of the
type does not fit.  Only real and double precision round, as PostgreSQL itself does when it reads text.

Writers return the output of a type's output function, which is also the form inside arrays.  The result of a cast to
text differs for boolean (``t``, but ``true``), char(n), which loses its padding, and inet, which always shows the size
of its network.
"""

from __future__ import annotations

import re
from decimal import Decimal
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from walreplay.errors import ValueFormatError
from walreplay.types.base import ColumnType, DoesNotFit, Family, Meaning
from walreplay.types.builtin import BUILTIN_TYPES
from walreplay.types.composite import elements_from_text, floats_from_text
from walreplay.types.datetime import days_from_text, micros_from_text
from walreplay.types.numbers import double_text, finite, single_text, unscaled_from_text
from walreplay.types.strings import bytes_from_text

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray


def read_overridden(text: str, column_type: ColumnType) -> Any:
    """Read a value as the type that the configuration gives to its column.

    Returns:
        The value as its column holds it: an int for booleans, integers, decimals (times ``10 ** scale``), dates (days
        since 1970-01-01) and timestamps (microseconds since then); a float, str or bytes; for an array a list of these,
        with None for NULL.

    Raises:
        DoesNotFit: the text is not exactly a value of that type.
    """
    try:
        return column_type.family.read(text, column_type)
    except ValueFormatError:
        raise DoesNotFit from None


def keeps_values_apart(column_type: ColumnType) -> bool:
    """Return whether different values stay different when they are read as the other type; a key column requires it.

    For example, the texts 5, 05 and 5.0 become one bigint, and close numerics become one double.  A value that does not
    fit is identified by its text.
    """
    family = column_type.family
    if not column_type.overridden or family.keeps_apart is None:
        return family.inexact is None
    return column_type.oid in BUILTIN_TYPES and BUILTIN_TYPES[column_type.oid].name in family.keeps_apart


def may_be_rescued(column_type: ColumnType) -> bool:
    """Return whether a value of the type may be in the rescued data instead of its column."""
    if column_type.family is STRING and not column_type.overridden:
        # A value of an unknown extension in binary format has no text.
        return column_type.oid not in BUILTIN_TYPES
    return column_type.overridden or bool(column_type.family.misfits)


def element_of(column_type: ColumnType) -> ColumnType:
    """Return the type of a list column's elements."""
    element = column_type.family.elements or column_type.element
    assert element is not None
    return element


# Texts in any type's form, read

_NUMBER = re.compile(r"[+-]?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:e([+-]?[0-9]{1,9}))?", re.IGNORECASE)
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


def _boolean(text: str, _column_type: ColumnType) -> int:
    value = _TRUTHS.get(text.strip().lower())
    if value is None:
        raise DoesNotFit
    return value


def _integer(text: str, column_type: ColumnType) -> int:
    assert column_type.family.limits is not None
    low, high = column_type.family.limits
    value = unscaled_from_text(_plain(text), _MAX_DIGITS, 0)  # 5.0 is an integer, 5.5 does not fit
    if not low <= value <= high:
        raise DoesNotFit
    return value


def _decimal(text: str, column_type: ColumnType) -> int:
    return unscaled_from_text(_plain(text), column_type.arrow.precision, column_type.arrow.scale)


def _plain(text: str) -> str:
    """Write a number without an exponent or a plus sign, and with a digit in front of the point."""
    match = _NUMBER.fullmatch(text.strip())
    if match is None or abs(int(match[1] or 0)) > _LARGEST_EXPONENT:
        raise DoesNotFit
    return format(Decimal(match[0]), "f")


def _float(text: str, column_type: ColumnType) -> float:
    text = text.strip()
    if _NUMBER.fullmatch(text) is None and _NOT_FINITE.fullmatch(text) is None:
        raise DoesNotFit
    if column_type.arrow == pa.float64():
        return finite(float(text), text)
    # Rounded to a double first, some texts would become a neighbouring single.
    single: float = pa.array([text.lstrip("+")]).cast(pa.float32())[0].as_py()
    return finite(single, text)


def _date(text: str, _column_type: ColumnType) -> int:
    return days_from_text(_MIDNIGHT.sub("", text.strip()))


def _timestamp(text: str, column_type: ColumnType) -> int:
    match = _TIME.fullmatch(text.strip())
    with_zone = column_type.arrow.tz is not None
    if match is None or (match[5] is not None) != with_zone:  # a zone has to be there for timestamptz alone
        raise DoesNotFit
    fraction = (match[4] or "").rstrip("0")
    if match[4] is not None and match[3] is None:  # decimals without seconds
        raise DoesNotFit
    seconds = (match[3] or ":00") + (f".{fraction}" if fraction else "")
    zone = match[5] or ""
    if zone == "Z":
        zone = "+00"
    elif zone:
        figures = zone[1:].replace(":", "")
        zone = zone[0] + ":".join(figures[start : start + 2] for start in range(0, len(figures), 2))
    return micros_from_text(f"{match[1]} {match[2] or '00:00'}{seconds}{zone}{match[6] or ''}", with_zone=with_zone)


def _list(text: str, column_type: ColumnType) -> list[Any]:
    parts = elements_from_text(text, column_type.delimiter)
    return [None if part is None else read_overridden(part, element_of(column_type)) for part in parts]


# Columns, written

CHARACTER: Final = "character"  # Char(n)
INET: Final = "inet"

_HEX_DIGITS: Final = np.frombuffer(b"0123456789abcdef", dtype=np.uint8)
_NEEDS_QUOTES: Final = r'["\\{} \t\n\v\f\r'

_FIXED_FROM: Final = 1e-4
_FIXED_BELOW: Final = {pa.float32(): 1e6, pa.float64(): 1e10}
"""From `_FIXED_FROM` up to these, Arrow and PostgreSQL write floats without an exponent and with the same digits.

They differ only where a shortest decimal lies exactly midway between two floats; in this range there is none.
"""


def text_of(values: pa.Array, column_type: ColumnType) -> pa.Array:
    """Write a column's values as PostgreSQL's cast to text does.

    Args:
        values: of the type ``column_type.arrow``.
        column_type: how they were read.

    Returns:
        As many strings; NULL stays NULL.
    """
    return (column_type.family.cast or column_type.family.write)(values, column_type)


def output_of(values: pa.Array, column_type: ColumnType) -> pa.Array:
    """Write a column's values as PostgreSQL sends them, timestamptz in UTC; see `text_of`."""
    return column_type.family.write(values, column_type)


def lengths_of(lists: pa.Array) -> NDArray[np.int64]:
    """Count the elements of each list; a NULL list has 0."""
    counts: NDArray[np.int64] = pc.fill_null(pc.list_value_length(lists), 0).to_numpy().astype(np.int64)
    return counts


def offsets_of(lengths: NDArray[np.int64]) -> pa.Array:
    """Return Arrow's offsets for lists of these lengths."""
    return pa.array(np.concatenate([[0], np.cumsum(lengths)]).astype(np.int32))


def _cast(values: pa.Array, _column_type: ColumnType) -> pa.Array:
    return pc.cast(values, pa.string())


def _floats(values: pa.Array, column_type: ColumnType, double: Callable[[float], str] = double_text) -> pa.Array:
    magnitude = np.abs(pc.fill_null(values, 0).to_numpy(zero_copy_only=False))
    # Twice the limit, because 1e-4 itself is another number in single precision.
    usual = (magnitude > 2 * _FIXED_FROM) & (magnitude < _FIXED_BELOW[column_type.arrow])
    rare = np.flatnonzero(~((magnitude == 0) | usual))
    texts = pc.cast(values, pa.string())
    if not rare.size:
        return texts
    write = single_text if column_type.arrow == pa.float32() else double
    return filled(texts, rare, pa.array([write(value) for value in values.take(pa.array(rare)).to_pylist()]))


def _numeric_text(value: float) -> str:
    text = double_text(value)
    return format(Decimal(text), "f") if "e" in text else text


def _decimals(values: pa.Array, column_type: ColumnType) -> pa.Array:
    # Arrow writes small numbers with an exponent, except integers.
    scale = column_type.arrow.scale
    wide = pa.Array.from_buffers(pa.decimal128(38, 0), len(values), values.buffers(), offset=values.offset)
    digits = pc.cast(wide, pa.string())
    if not scale:
        return digits
    negative = pc.starts_with(digits, "-")
    digits = pc.utf8_lpad(pc.utf8_ltrim(digits, "-"), scale + 1, "0")
    whole = pc.utf8_slice_codeunits(digits, 0, -scale)
    fraction = pc.utf8_slice_codeunits(digits, -scale)
    return pc.binary_join_element_wise(pc.if_else(negative, "-", ""), whole, ".", fraction, "")


def _cast_strings(values: pa.Array, column_type: ColumnType) -> pa.Array:
    if column_type.postgres_name == CHARACTER:
        return pc.utf8_rtrim(values, " ")
    if column_type.postgres_name == INET:
        size = pc.if_else(pc.match_substring(values, ":"), "/128", "/32")
        size = pc.if_else(pc.match_substring(values, "/"), "", size)  # a network has its size already
        return pc.binary_join_element_wise(values, size, "")
    return values


def _hexadecimal(values: pa.Array, _column_type: ColumnType) -> pa.Array:
    rows = len(values)
    filled_up = pc.fill_null(values, b"")
    _, ends_before, content = filled_up.buffers()
    starts = np.frombuffer(ends_before, np.int32)[filled_up.offset :][: rows + 1] if rows else np.zeros(1, np.int32)
    sizes = np.diff(starts)
    data = np.frombuffer(content or b"", dtype=np.uint8)[starts[0] : starts[-1]]
    ends = np.concatenate([[0], np.cumsum(2 * sizes + 2)])
    written = np.empty(int(ends[-1]), dtype=np.uint8)
    written[ends[:-1]] = ord("\\")
    written[ends[:-1] + 1] = ord("x")
    positions = 2 * np.arange(data.size) + 2 * np.repeat(np.arange(1, rows + 1), sizes)
    written[positions] = _HEX_DIGITS[data >> 4]
    written[positions + 1] = _HEX_DIGITS[data & 15]
    buffers = [None, pa.py_buffer(ends.astype(np.int32)), pa.py_buffer(written)]
    return pc.if_else(values.is_valid(), pa.Array.from_buffers(pa.string(), rows, buffers), None)


def _timestamps(values: pa.Array, column_type: ColumnType) -> pa.Array:
    # Without their zone, which is UTC: with it Arrow would write another form.
    texts = pc.cast(values.view(pa.timestamp("us")), pa.string())
    texts = pc.utf8_rtrim(pc.utf8_rtrim(texts, "0"), ".")  # there are always six decimals
    return texts if column_type.arrow.tz is None else pc.binary_join_element_wise(texts, "+00", "")


def _arrays(values: pa.Array, column_type: ColumnType) -> pa.Array:
    elements = output_of(values.flatten(), element_of(column_type))
    special = pc.or_(
        pc.or_(pc.equal(elements, ""), pc.equal(pc.ascii_lower(elements), "null")),
        pc.match_substring_regex(elements, f"{_NEEDS_QUOTES}{column_type.delimiter}]"),
    )
    escaped = pc.replace_substring_regex(elements, r'(["\\])', r"\\\1")
    quoted = pc.binary_join_element_wise('"', escaped, '"', "")
    elements = pc.fill_null(pc.if_else(special, quoted, elements), "NULL")
    return _joined(values, elements, "{", column_type.delimiter, "}")


def _vectors(values: pa.Array, column_type: ColumnType) -> pa.Array:
    return _joined(values, output_of(values.flatten(), element_of(column_type)), "[", ",", "]")


def _joined(lists: pa.Array, elements: pa.Array, before: str, between: str, behind: str) -> pa.Array:
    texts = pa.ListArray.from_arrays(offsets_of(lengths_of(lists)), elements)
    joined = pc.binary_join_element_wise(before, pc.binary_join(texts, between), behind, "")
    return pc.if_else(lists.is_valid(), joined, None)


def filled(base: pa.Array, rows: NDArray[Any], filler: pa.Array) -> pa.Array:
    """Replace some rows of a column by others of the same type."""
    index = np.arange(len(base))
    index[rows] = len(base) + np.arange(len(rows))
    return pa.concat_arrays([base, filler]).take(pa.array(index))


# The records

_WHOLE: Final = frozenset({"int2", "int4", "int8", "oid", "xid", "numeric"})
"""PostgreSQL's own equality compares numbers of these types, and not their texts."""
_DAYS: Final = frozenset({"date", "timestamp"})

_TIMES: Final = "infinity, -infinity and years outside 1 to 9999 are rescued"
_FLOATS: Final = "NaN and the infinities are values; what a server before 12 rounds above the largest one is rescued"

BOOLEAN: Final = Family(
    "boolean",
    Meaning.BOOLEAN,
    pa.bool_(),
    read=_boolean,
    write=lambda values, _: pc.if_else(values, "t", "f"),
    cast=lambda values, _: pc.if_else(values, "true", "false"),
    types=("bool",),
    keeps_apart=frozenset({"bool"}),
)


def _integers(name: str, arrow: pa.DataType, limits: tuple[int, int], *types: str) -> Family:
    return Family(name, Meaning.INTEGER, arrow, _integer, _cast, limits=limits, types=types, keeps_apart=_WHOLE)


INT16: Final = _integers("int16", pa.int16(), (-(2**15), 2**15 - 1), "int2")
INT32: Final = _integers("int32", pa.int32(), (-(2**31), 2**31 - 1), "int4")
INT64: Final = _integers("int64", pa.int64(), (-(2**63), 2**63 - 1), "int8")
UNSIGNED: Final = _integers("unsigned", pa.int64(), (0, 2**32 - 1), "oid", "xid")


def _binary_floats(name: str, arrow: pa.DataType, type_: str, *narrower: str) -> Family:
    kept = frozenset({type_, *narrower})
    return Family(name, Meaning.FLOAT, arrow, _float, _floats, types=(type_,), misfits=_FLOATS, keeps_apart=kept)


FLOAT32: Final = _binary_floats("float32", pa.float32(), "float4")
FLOAT64: Final = _binary_floats("float64", pa.float64(), "float8", "int2", "int4")
DECIMAL: Final = Family(
    "decimal",
    Meaning.NUMERIC,
    None,
    _decimal,
    _decimals,
    misfits="NaN and the infinities are rescued, as is what has more digits than p and s allow",
    keeps_apart=_WHOLE,
)
NUMERIC_AS_DOUBLE: Final = Family(
    "numeric as double",
    Meaning.NUMERIC,
    pa.float64(),
    _float,
    partial(_floats, double=_numeric_text),
    misfits="what is beyond the largest double is rescued",
    inexact=(
        "a numeric that is read as a double",
        "Give {} a type of its own by type_overrides, such as numeric(38,10) or text; or set decimal_handling_mode to "
        "precise",
    ),
)
"""numeric as the nearest double; `decimal_handling_mode`."""
STRING: Final = Family(
    "string",
    None,
    pa.string(),
    read=lambda text, _: text,
    write=lambda values, _: values,
    cast=_cast_strings,
    keeps_apart=None,
    holds_text=True,
)
BINARY: Final = Family(
    "binary",
    Meaning.BINARY,
    pa.binary(),
    lambda text, _: bytes_from_text(text),
    _hexadecimal,
    types=("bytea",),
    keeps_apart=frozenset({"bytea"}),
)
DATE: Final = Family(
    "date", Meaning.DATE, pa.date32(), _date, _cast, types=("date",), misfits=_TIMES, keeps_apart=_DAYS
)
TIMESTAMP: Final = Family(
    "timestamp",
    Meaning.TIMESTAMP,
    pa.timestamp("us"),
    _timestamp,
    _timestamps,
    types=("timestamp",),
    misfits=_TIMES,
    keeps_apart=_DAYS,
)
TIMESTAMPTZ: Final = Family(
    "timestamptz",
    Meaning.TIMESTAMPTZ,
    pa.timestamp("us", "UTC"),
    _timestamp,
    _timestamps,
    types=("timestamptz",),
    misfits=f"{_TIMES}, judged in UTC",
    keeps_apart=frozenset({"timestamptz"}),
)
ARRAY: Final = Family(
    "array",
    Meaning.LIST,
    None,
    _list,
    _arrays,
    misfits="the whole array is rescued when it has several dimensions, bounds of its own (`[0:1]={1,2}`) or an "
    "element that does not fit",
)
VECTOR: Final = Family(
    "vector",
    Meaning.LIST,
    pa.list_(pa.field("element", pa.float32())),
    lambda text, _: floats_from_text(text),
    _vectors,
    misfits="what is not a list of finite numbers in brackets is rescued",
    holds_text=True,
    elements=ColumnType(pa.float32(), FLOAT32, "real"),
)
"""pgvector's vector and halfvec.  Their type is known by its name alone, so a value may be any text."""
