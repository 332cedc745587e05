"""Columns as texts in PostgreSQL's form, and texts read as columns: conversions between types go through these.

`output_of` returns the output of a type's output function, which is also the form inside arrays.  `text_of` returns the
result of a cast to text.  They differ for boolean (``t``, but ``true``), char(n), which loses its padding, and inet,
which always shows the size of its network.

`read_texts` holds each text exactly, or not at all.  A number's text becomes a float only if the float is that number,
or is written as it; PostgreSQL would round.  The builders of `walreplay.decode.columns` read what is in the type's own
form, piece by piece.  A piece with anything else is read value by value, by the reader of overridden columns, which
accepts numbers and times in any type's form.
"""

from __future__ import annotations

import re
from dataclasses import replace
from decimal import Decimal
from typing import TYPE_CHECKING, Any, Final
from uuid import UUID

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from walreplay.decode.columns import NULL, canonical_texts, make_builder
from walreplay.errors import ValueFormatError
from walreplay.types.base import ColumnType, DoesNotFit, Family
from walreplay.types.numbers import double_text, single_text
from walreplay.types.registry import read_overridden

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
    """Return the type of a list column's elements."""
    if column_type.family == Family.VECTOR:
        return REAL
    assert column_type.element is not None
    return column_type.element


def lengths_of(lists: pa.Array) -> NDArray[np.int64]:
    """Count the elements of each list; a NULL list has 0."""
    counts: NDArray[np.int64] = pc.fill_null(pc.list_value_length(lists), 0).to_numpy().astype(np.int64)
    return counts


def offsets_of(lengths: NDArray[np.int64]) -> pa.Array:
    """Return Arrow's offsets for lists of these lengths."""
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


_SPACE: Final = " \t\n\v\f\r"
"""What PostgreSQL takes for white space."""

_TRUE: Final = ("t", "tr", "tru", "true", "y", "ye", "yes", "on", "1")
_FALSE: Final = ("f", "fa", "fal", "fals", "false", "n", "no", "of", "off", "0")

_NUMBER = re.compile(r"[+-]?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:e[+-]?[0-9]{1,9})?", re.IGNORECASE)
_PLAIN_NUMBER: Final = r"^(?:0(?:\.0+)?|-?0\.[0-9]*[1-9][0-9]*|-?[1-9][0-9]{0,100}(?:\.[0-9]{1,100})?|NaN|-?Infinity)$"
"""A numeric as PostgreSQL writes it."""
_NOT_FINITE: Final = {"nan": "NaN", "infinity": "Infinity", "+infinity": "Infinity", "-infinity": "-Infinity"}
_NUMERIC_EXPONENTS: Final = (-16_383, 131_071)
"""The power of ten of the last digit that a numeric can have, and of the first."""
_NUMERIC_NAME = re.compile(r"numeric(?:\((-?[0-9]+),(-?[0-9]+)\))?")

_UUID = re.compile(r"(\{)?(?:[0-9a-f]{4}-?){7}[0-9a-f]{4}(?(1)\})", re.IGNORECASE)
_PLAIN_UUID: Final = r"^[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}$"

_ONE_ADDRESS: Final = r"^(?:([0-9.]+)/32|([0-9A-Fa-f.:]*:[0-9A-Fa-f.:]*)/128)$"
"""An inet that is a single address; PostgreSQL writes the size of its network only in a cast to text."""

_HEADER_SIZE: Final = 4
"""PostgreSQL adds the size of a varlena header to the length of char(n)."""

_PIECES: Final = 8
"""A piece that its builder refuses is cut into so many, as long as it has more rows than that."""


def is_numeric(column_type: ColumnType) -> bool:
    """Return whether a string column holds numerics."""
    return column_type.family == Family.STRING and _NUMERIC_NAME.fullmatch(column_type.postgres_name) is not None


def read_texts(texts: pa.Array, column_type: ColumnType) -> pa.Array:
    """Read texts as a type other than an array.

    Args:
        texts: strings, in the form of any type with the same meaning.
        column_type: the type to read them as.

    Returns:
        A column of the type ``column_type.arrow``; NULL where the text is NULL, or where the type cannot hold its value
        exactly.
    """
    return _READERS.get(column_type.family, _pieces)(texts, column_type)


def _read_booleans(texts: pa.Array, _column_type: ColumnType) -> pa.Array:
    words = pc.ascii_lower(pc.ascii_trim(texts, _SPACE))
    found = pc.index_in(words, pa.array([*_TRUE, *_FALSE]))
    return pc.less(found, len(_TRUE))


def _read_strings(texts: pa.Array, column_type: ColumnType) -> pa.Array:
    modifiers = _NUMERIC_NAME.fullmatch(column_type.postgres_name)
    if modifiers is not None:
        if modifiers[1] is not None:
            precision, scale = int(modifiers[1]), int(modifiers[2])
            return _each(texts, lambda text: _numeric(text, precision, scale))
        return _each_unless(pc.match_substring_regex(texts, _PLAIN_NUMBER), texts, _numeric)
    if column_type.postgres_name == "uuid":
        return _each_unless(pc.match_substring_regex(texts, _PLAIN_UUID), texts, _uuid)
    if column_type.postgres_name == CHARACTER and not column_type.overridden and column_type.typmod > _HEADER_SIZE:
        size = column_type.typmod - _HEADER_SIZE
        stripped = pc.utf8_rtrim(texts, " ")
        padded = pc.utf8_rpad(stripped, size, " ")
        return pc.if_else(pc.less_equal(pc.utf8_length(stripped), size), padded, None)
    if column_type.postgres_name == INET:
        return pc.replace_substring_regex(texts, _ONE_ADDRESS, r"\1\2")
    return canonical_texts(texts, column_type.oid)


def _read_integers(texts: pa.Array, column_type: ColumnType) -> pa.Array:
    # Fractions are common when numeric or floats become integers, and can be refused without the exact reader.
    return _pieces(_with_decimals(_trimmed(texts), 0), column_type)


def _read_decimals(texts: pa.Array, column_type: ColumnType) -> pa.Array:
    scale = column_type.arrow.scale
    texts = _with_decimals(_trimmed(texts), scale)
    if scale:  # the kernels take only texts with all decimals of the scale
        texts = pc.replace_substring_regex(texts, r"^(-?[0-9]+)$", r"\1." + scale * "0")
    return _pieces(texts, column_type)


def _read_floats(texts: pa.Array, column_type: ColumnType) -> pa.Array:
    values = _pieces(texts, column_type)
    written = output_of(values, column_type)
    differ = pc.fill_null(pc.not_equal(_trimmed(written), _trimmed(texts)), False)
    rows = np.flatnonzero(differ.to_numpy(zero_copy_only=False))
    index = pa.array(rows)
    if column_type.family == Family.FLOAT32:
        # A number that is a single, or is written as one, is also exact as a double.
        double = replace(column_type, arrow=pa.float64(), family=Family.FLOAT64)
        numbers = _pieces(texts.take(index), double)
        near = pc.or_(
            pc.equal(numbers, values.take(index).cast(pa.float64())),
            pc.equal(numbers, pc.cast(written.take(index), pa.float64())),
        )
        sure = ~pc.fill_null(pc.or_(near, pc.is_nan(numbers)), False).to_numpy(zero_copy_only=False)
        values = _without(values, rows[sure])
        rows = rows[~sure]
        index = pa.array(rows)
    inexact = [
        row
        for row, *texts_and_value in zip(
            rows.tolist(),
            texts.take(index).to_pylist(),
            written.take(index).to_pylist(),
            values.take(index).to_pylist(),
            strict=True,
        )
        if not _is_exact(*texts_and_value)
    ]
    return _without(values, np.array(inexact, dtype=np.intp))


def _read_nearest(texts: pa.Array, column_type: ColumnType) -> pa.Array:
    """Read numerics as the nearest doubles, as ``decimal_handling_mode: double`` asks for."""
    values = _pieces(texts, replace(column_type, family=Family.FLOAT64))
    infinite = pc.and_(pc.is_inf(values), pc.invert(pc.match_substring(texts, "inf", ignore_case=True)))
    return pc.if_else(infinite, None, values)


_READERS: Final[dict[Family, Callable[[pa.Array, ColumnType], pa.Array]]] = {
    Family.BOOLEAN: _read_booleans,
    Family.INT16: _read_integers,
    Family.INT32: _read_integers,
    Family.INT64: _read_integers,
    Family.UNSIGNED: _read_integers,
    Family.FLOAT32: _read_floats,
    Family.FLOAT64: _read_floats,
    Family.NUMERIC_AS_DOUBLE: _read_nearest,
    Family.DECIMAL: _read_decimals,
    Family.STRING: _read_strings,
}


def _pieces(texts: pa.Array, column_type: ColumnType) -> pa.Array:
    """Read a column with the type's builder, and pieces that it refuses value by value."""
    rows = len(texts)
    if not rows:
        return pa.nulls(0, column_type.arrow)
    _, ends, data = texts.buffers()
    buf = np.frombuffer(data, dtype=np.uint8) if data is not None and data.size else np.zeros(1, dtype=np.uint8)
    offsets = np.frombuffer(ends, dtype=np.int32)[texts.offset : texts.offset + rows + 1]
    length = np.where(texts.is_valid().to_numpy(zero_copy_only=False), np.diff(offsets), NULL).astype(np.int32)
    builder = make_builder(column_type)
    refused: list[int] = []

    def read(start: int, stop: int) -> None:
        first = np.arange(start, stop, dtype=np.int32)
        try:
            builder.append(buf, offsets[:-1], length, first, 0)
        except (ValueFormatError, pa.ArrowInvalid):
            if stop - start <= _PIECES:
                builder.append(buf, offsets[:-1], length, np.full(stop - start, -1, dtype=np.int32), 0)
                refused.extend(range(start, stop))
                return
            bounds = np.linspace(start, stop, _PIECES + 1).astype(int).tolist()
            for place in range(_PIECES):
                read(bounds[place], bounds[place + 1])

    read(0, rows)
    values = builder.finish()
    if not refused:
        return values
    return filled(values, np.array(refused), _exactly(texts.take(pa.array(refused)), column_type))


def _exactly(texts: pa.Array, column_type: ColumnType) -> pa.Array:
    """Read texts one by one with the exact reader."""
    values: list[Any] = []
    for text in texts.to_pylist():
        try:
            values.append(None if text is None else read_overridden(_stripped(text), column_type))
        except DoesNotFit:
            values.append(None)
    if column_type.family == Family.DECIMAL:
        scale = column_type.arrow.scale
        values = [None if value is None else Decimal(f"{value}E-{scale}") for value in values]
        return pa.array(values, column_type.arrow)
    if column_type.family == Family.DATE:
        return pa.array(values, pa.int32()).view(column_type.arrow)
    if column_type.family in (Family.TIMESTAMP, Family.TIMESTAMPTZ):
        return pa.array(values, pa.int64()).view(column_type.arrow)
    return pa.array(values, column_type.arrow)


def _each(texts: pa.Array, read: Callable[[str], str]) -> pa.Array:
    """Read strings one by one."""
    values: list[str | None] = []
    for text in texts.to_pylist():
        try:
            values.append(None if text is None else read(text))
        except (DoesNotFit, ValueFormatError):
            values.append(None)
    return pa.array(values, pa.string())


def _each_unless(plain: pa.Array, texts: pa.Array, read: Callable[[str], str]) -> pa.Array:
    rows = np.flatnonzero(~pc.fill_null(plain, True).to_numpy(zero_copy_only=False))
    return filled(texts, rows, _each(texts.take(pa.array(rows)), read)) if rows.size else texts


def _without(values: pa.Array, rows: NDArray[np.intp]) -> pa.Array:
    if not rows.size:
        return values
    gone: NDArray[np.bool_] = np.zeros(len(values), dtype=np.bool_)
    gone[rows] = True
    return pc.if_else(pa.array(gone), None, values)


def _trimmed(texts: pa.Array) -> pa.Array:
    """Remove trailing zeros of decimals."""
    return pc.replace_substring_regex(texts, r"^(-?[0-9]+)(?:\.0*|(\.[0-9]*[1-9])0+)$", r"\1\2")


def _with_decimals(texts: pa.Array, most: int) -> pa.Array:
    """Replace numbers with more decimals by NULL."""
    return pc.if_else(pc.match_substring_regex(texts, rf"^-?[0-9]+\.[0-9]{{{most + 1},}}$"), None, texts)


def _stripped(text: str) -> str:
    stripped = text.strip(_SPACE)
    if stripped != stripped.strip():  # Python knows more white space than PostgreSQL
        raise DoesNotFit
    return stripped


def _is_exact(text: str, written: str, value: float) -> bool:
    stripped = text.strip(_SPACE)
    if _NUMBER.fullmatch(stripped) is None:
        return _NOT_FINITE.get(stripped.lower()) == written
    number = Decimal(stripped)
    # The last is for the text of a double whose value a single holds exactly.
    return number in (Decimal(value), Decimal(written), Decimal(repr(value)))


def _numeric(text: str, precision: int | None = None, scale: int = 0) -> str:
    """Write a number as PostgreSQL writes a numeric, with its own decimals, or with a precision and scale.

    Raises:
        DoesNotFit: the text is no number, or the number does not fit the precision and scale exactly.
    """
    stripped = text.strip(_SPACE)
    if stripped.lower() in _NOT_FINITE:
        return _NOT_FINITE[stripped.lower()]
    if _NUMBER.fullmatch(stripped) is None:
        raise DoesNotFit
    number = Decimal(stripped)
    sign, digits, exponent = number.as_tuple()
    assert isinstance(exponent, int)
    if exponent < _NUMERIC_EXPONENTS[0] or number.adjusted() > _NUMERIC_EXPONENTS[1]:
        raise DoesNotFit
    if not number:
        sign = 0
    if precision is not None:
        if not number:
            digits, exponent = (0,), -max(scale, 0)
        while digits[-1] == 0 and exponent < -scale:
            digits, exponent = digits[:-1], exponent + 1
        if exponent < -scale or (number and number.adjusted() >= precision - scale):
            raise DoesNotFit
        if scale > 0:
            digits, exponent = digits + (0,) * (exponent + scale), -scale
    return format(Decimal((sign, digits, exponent)), "f")


def _uuid(text: str) -> str:
    if _UUID.fullmatch(text) is None:
        raise DoesNotFit
    return str(UUID(text))
