"""Columns as texts, in PostgreSQL's form: conversions between types go through these.

`output_of` gives the output of a type's output function, which is also the form inside arrays.  `text_of` gives the
result of a cast to text.  They differ for boolean (``t``, but ``true``), char(n), which loses its padding, and inet,
which always shows the size of its network.
"""

from __future__ import annotations

from decimal import Decimal
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from walreplay.types.base import ColumnType, Family
from walreplay.types.floats import double_text, single_text

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

CHARACTER: Final = "character"
"""char(n)."""
INET: Final = "inet"
CHANGED_BY_CAST: Final = (CHARACTER, INET)
"""The string types whose cast to text changes the text."""

REAL: Final = ColumnType(pa.float32(), Family.FLOAT32, "real")
"""The type of a vector's elements."""

_HEX_DIGITS: Final = np.frombuffer(b"0123456789abcdef", dtype=np.uint8)
_NEEDS_QUOTES: Final = r'["\\{} \t\n\v\f\r'

_FIXED_FROM: Final = 1e-4
_FIXED_BELOW: Final = {Family.FLOAT32: 1e6, Family.FLOAT64: 1e10}
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
    if column_type.family == Family.BOOLEAN:
        return pc.if_else(values, "true", "false")
    if column_type.family == Family.STRING and column_type.postgres_name == CHARACTER:
        return pc.utf8_rtrim(values, " ")
    if column_type.family == Family.STRING and column_type.postgres_name == INET:
        size = pc.if_else(pc.match_substring(values, ":"), "/128", "/32")
        size = pc.if_else(pc.match_substring(values, "/"), "", size)
        return pc.binary_join_element_wise(values, size, "")
    return output_of(values, column_type)


def output_of(values: pa.Array, column_type: ColumnType) -> pa.Array:
    """Write a column's values as PostgreSQL sends them, timestamptz in UTC; see `text_of`."""
    return _WRITERS[column_type.family](values, column_type)


def element_of(column_type: ColumnType) -> ColumnType:
    """Give the type of a list column's elements."""
    if column_type.family == Family.VECTOR:
        return REAL
    assert column_type.element is not None
    return column_type.element


def lengths_of(lists: pa.Array) -> NDArray[np.int64]:
    """Count the elements of each list; a NULL list has 0."""
    counts: NDArray[np.int64] = pc.fill_null(pc.list_value_length(lists), 0).to_numpy().astype(np.int64)
    return counts


def offsets_of(lengths: NDArray[np.int64]) -> pa.Array:
    """Give Arrow's offsets for lists of these lengths."""
    return pa.array(np.concatenate([[0], np.cumsum(lengths)]).astype(np.int32))


def _booleans(values: pa.Array, _column_type: ColumnType) -> pa.Array:
    return pc.if_else(values, "t", "f")


def _arrows(values: pa.Array, _column_type: ColumnType) -> pa.Array:
    return pc.cast(values, pa.string())


def _floats(values: pa.Array, column_type: ColumnType) -> pa.Array:
    single = column_type.family == Family.FLOAT32
    below = _FIXED_BELOW[Family.FLOAT32 if single else Family.FLOAT64]
    magnitude = np.abs(pc.fill_null(values, 0).to_numpy(zero_copy_only=False))
    # Twice the limit, because 1e-4 itself is another number in single precision.
    rare = np.flatnonzero(~((magnitude == 0) | ((magnitude > 2 * _FIXED_FROM) & (magnitude < below))))
    texts = pc.cast(values, pa.string())
    if not rare.size:
        return texts
    write = single_text if single else double_text
    if column_type.family == Family.NUMERIC_AS_DOUBLE:
        write = _numeric_text
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


def _strings(values: pa.Array, _column_type: ColumnType) -> pa.Array:
    return values


def _hexadecimal(values: pa.Array, _column_type: ColumnType) -> pa.Array:
    rows = len(values)
    filled_up = pc.fill_null(values, b"")
    _, ends_before, content = filled_up.buffers()
    starts = (
        np.frombuffer(ends_before, dtype=np.int32)[filled_up.offset :][: rows + 1] if rows else np.zeros(1, np.int32)
    )
    sizes = np.diff(starts)
    data = np.frombuffer(content or b"", dtype=np.uint8)[starts[0] : starts[-1]]
    ends = np.concatenate([[0], np.cumsum(2 * sizes + 2)])
    written = np.empty(int(ends[-1]), dtype=np.uint8)
    written[ends[:-1]] = ord("\\")
    written[ends[:-1] + 1] = ord("x")
    at = 2 * np.arange(data.size) + 2 * np.repeat(np.arange(1, rows + 1), sizes)
    written[at] = _HEX_DIGITS[data >> 4]
    written[at + 1] = _HEX_DIGITS[data & 15]
    buffers = [None, pa.py_buffer(ends.astype(np.int32)), pa.py_buffer(written)]
    return pc.if_else(values.is_valid(), pa.Array.from_buffers(pa.string(), rows, buffers), None)


def _timestamps(values: pa.Array, column_type: ColumnType) -> pa.Array:
    # Without their zone, which is UTC: with it Arrow would write another form.
    texts = pc.cast(values.view(pa.timestamp("us")), pa.string())
    texts = pc.utf8_rtrim(pc.utf8_rtrim(texts, "0"), ".")  # there are always six decimals
    if column_type.family == Family.TIMESTAMP:
        return texts
    return pc.binary_join_element_wise(texts, "+00", "")


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


def _vectors(values: pa.Array, _column_type: ColumnType) -> pa.Array:
    return _joined(values, output_of(values.flatten(), REAL), "[", ",", "]")


def _joined(lists: pa.Array, elements: pa.Array, before: str, between: str, behind: str) -> pa.Array:
    texts = pa.ListArray.from_arrays(offsets_of(lengths_of(lists)), elements)
    joined = pc.binary_join_element_wise(before, pc.binary_join(texts, between), behind, "")
    return pc.if_else(lists.is_valid(), joined, None)


def filled(base: pa.Array, rows: NDArray[Any], filler: pa.Array) -> pa.Array:
    """Replace some rows of a column by others of the same type."""
    index = np.arange(len(base))
    index[rows] = len(base) + np.arange(len(rows))
    return pa.concat_arrays([base, filler]).take(pa.array(index))


_WRITERS: Final[dict[Family, Callable[[pa.Array, ColumnType], pa.Array]]] = {
    Family.BOOLEAN: _booleans,
    Family.INT16: _arrows,
    Family.INT32: _arrows,
    Family.INT64: _arrows,
    Family.UNSIGNED: _arrows,
    Family.FLOAT32: _floats,
    Family.FLOAT64: _floats,
    Family.NUMERIC_AS_DOUBLE: _floats,
    Family.DECIMAL: _decimals,
    Family.STRING: _strings,
    Family.BINARY: _hexadecimal,
    Family.DATE: _arrows,
    Family.TIMESTAMP: _timestamps,
    Family.TIMESTAMPTZ: _timestamps,
    Family.ARRAY: _arrays,
    Family.VECTOR: _vectors,
}
