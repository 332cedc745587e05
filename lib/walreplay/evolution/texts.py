"""Read texts as a type, where a column gets another type.

A family's builder reads what is in the type's own form, piece by piece.  A piece with anything else is read value by
value, by the family's own reader, which accepts numbers and times in any type's form.
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
from walreplay.types import families
from walreplay.types.base import ColumnType, DoesNotFit, Meaning
from walreplay.types.families import CHARACTER, INET, filled, output_of, read_overridden
from walreplay.types.numbers import HEADER_SIZE, NOT_FINITE, NUMBER, SPACE, numeric_written

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

_TRUE: Final = ("t", "tr", "tru", "true", "y", "ye", "yes", "on", "1")
_FALSE: Final = ("f", "fa", "fal", "fals", "false", "n", "no", "of", "off", "0")

_PLAIN_NUMBER: Final = r"^(?:0(?:\.0+)?|-?0\.[0-9]*[1-9][0-9]*|-?[1-9][0-9]{0,100}(?:\.[0-9]{1,100})?|NaN|-?Infinity)$"
"""A numeric as PostgreSQL writes it."""
_NUMERIC_NAME = re.compile(r"numeric(?:\((-?[0-9]+),(-?[0-9]+)\))?")

_UUID = re.compile(r"(\{)?(?:[0-9a-f]{4}-?){7}[0-9a-f]{4}(?(1)\})", re.IGNORECASE)
_PLAIN_UUID: Final = r"^[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}$"

_ONE_ADDRESS: Final = r"^(?:([0-9.]+)/32|([0-9A-Fa-f.:]*:[0-9A-Fa-f.:]*)/128)$"
"""An inet that is a single address; PostgreSQL writes the size of its network only in a cast to text."""

_BYTEA: Final = 17

_PIECES: Final = 8  # A piece that its builder refuses is cut into so many, as long as it has more rows than that


def is_numeric(column_type: ColumnType) -> bool:
    """Return whether a string column holds numerics."""
    return column_type.family is families.STRING and _NUMERIC_NAME.fullmatch(column_type.postgres_name) is not None


def read_texts(texts: pa.Array, column_type: ColumnType) -> pa.Array:
    """Read texts as a type other than an array.

    Args:
        texts: strings, in the form of any type with the same meaning.

    Returns:
        A column of the type ``column_type.arrow``; NULL where the text is NULL, or where the type cannot hold its value
        exactly.
    """
    return _READERS.get(column_type.family.meaning, _pieces)(texts, column_type)


def _read_booleans(texts: pa.Array, _column_type: ColumnType) -> pa.Array:
    words = pc.ascii_lower(pc.ascii_trim(texts, SPACE))
    word_numbers = pc.index_in(words, pa.array([*_TRUE, *_FALSE]))
    return pc.less(word_numbers, len(_TRUE))  # the true words stand first; an unknown word is NULL


def _read_strings(texts: pa.Array, column_type: ColumnType) -> pa.Array:
    modifiers = _NUMERIC_NAME.fullmatch(column_type.postgres_name)
    if modifiers is not None:
        if modifiers[1] is not None:
            precision, scale = int(modifiers[1]), int(modifiers[2])
            return each(texts, lambda text: numeric_written(text, precision, scale))
        return _each_unless(pc.match_substring_regex(texts, _PLAIN_NUMBER), texts, numeric_written)
    if column_type.postgres_name == "uuid":
        return _each_unless(pc.match_substring_regex(texts, _PLAIN_UUID), texts, _uuid)
    if column_type.postgres_name == CHARACTER and not column_type.overridden and column_type.typmod > HEADER_SIZE:
        size = column_type.typmod - HEADER_SIZE
        stripped = pc.utf8_rtrim(texts, " ")
        padded = pc.utf8_rpad(stripped, size, " ")
        return pc.if_else(pc.less_equal(pc.utf8_length(stripped), size), padded, None)
    if column_type.postgres_name == INET:
        return pc.replace_substring_regex(texts, _ONE_ADDRESS, r"\1\2")
    # As bytea a text of another type would mean its bytes.
    return texts if column_type.oid == _BYTEA else canonical_texts(texts, column_type.oid)


def _read_integers(texts: pa.Array, column_type: ColumnType) -> pa.Array:
    # Fractions are common when numeric or floats become integers, and can be refused without the exact reader.
    return _pieces(_with_decimals(_trimmed(texts), 0), column_type)


def _read_numerics(texts: pa.Array, column_type: ColumnType) -> pa.Array:
    if not pa.types.is_decimal(column_type.arrow):
        return read_nearest(texts, column_type)
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
    if column_type.arrow == pa.float32():
        # A number that is a single, or is written as one, is also exact as a double.
        double = replace(column_type, arrow=pa.float64(), family=families.FLOAT64)
        numbers = _pieces(texts.take(index), double)
        near = pc.or_(
            pc.equal(numbers, values.take(index).cast(pa.float64())),
            pc.equal(numbers, pc.cast(written.take(index), pa.float64())),
        )
        sure = ~pc.fill_null(pc.or_(near, pc.is_nan(numbers)), False).to_numpy(zero_copy_only=False)
        values = _without(values, rows[sure])
        rows = rows[~sure]
        index = pa.array(rows)
    columns = (column.take(index).to_pylist() for column in (texts, written, values))
    in_rows = zip(rows.tolist(), *columns, strict=True)
    inexact = [row for row, *texts_and_value in in_rows if not _is_exact(*texts_and_value)]
    return _without(values, np.array(inexact, dtype=np.intp))


def read_nearest(texts: pa.Array, column_type: ColumnType) -> pa.Array:
    """Read numerics as the nearest floats, as the cast does, and as ``decimal_handling_mode: double`` asks for."""
    is_single = column_type.arrow == pa.float32()
    values = _pieces(texts, replace(column_type, family=families.FLOAT32 if is_single else families.FLOAT64))
    # PostgreSQL refuses a finite number that is too large.
    infinite = pc.and_(pc.is_inf(values), pc.invert(pc.match_substring(texts, "inf", ignore_case=True)))
    return pc.if_else(infinite, None, values)


_READERS: Final[dict[Meaning | None, Callable[[pa.Array, ColumnType], pa.Array]]] = {
    Meaning.BOOLEAN: _read_booleans,
    Meaning.INTEGER: _read_integers,
    Meaning.FLOAT: _read_floats,
    Meaning.NUMERIC: _read_numerics,
    None: _read_strings,
}
"""Where texts a family's builder and reader alone do not read as PostgreSQL's cast does, or not as fast."""


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
            builder.add_rows(buf, offsets[:-1], length, first, 0)
        except (ValueFormatError, pa.ArrowInvalid):
            if stop - start <= _PIECES:  # few enough to be read one by one
                builder.add_rows(buf, offsets[:-1], length, np.full(stop - start, -1, dtype=np.int32), 0)
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
    # Unscaled integers of decimals.
    values = read_each(texts, lambda text: read_overridden(_stripped(text), column_type))
    if pa.types.is_decimal(column_type.arrow):
        scale = column_type.arrow.scale
        values = [None if value is None else Decimal(f"{value}E-{scale}") for value in values]
    return pa.array(values, column_type.arrow)


def each(texts: pa.Array, write: Callable[[str], str]) -> pa.Array:
    """Write strings anew, one by one; NULL where that fails."""
    return pa.array(read_each(texts, write), pa.string())


def read_each(texts: pa.Array, read: Callable[[str], Any]) -> list[Any]:
    """Read strings one by one; None for NULL, and where that fails."""
    values = []
    for text in texts.to_pylist():
        try:
            values.append(None if text is None else read(text))
        except (DoesNotFit, ValueFormatError, ValueError, ArithmeticError):  # texts that are none of their type
            values.append(None)
    return values


def _each_unless(plain: pa.Array, texts: pa.Array, read: Callable[[str], str]) -> pa.Array:
    rows = np.flatnonzero(~pc.fill_null(plain, True).to_numpy(zero_copy_only=False))
    return filled(texts, rows, each(texts.take(pa.array(rows)), read)) if rows.size else texts


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
    stripped = text.strip(SPACE)
    if stripped != stripped.strip():  # Python knows more white space than PostgreSQL
        raise DoesNotFit
    return stripped


def _is_exact(text: str, written: str, value: float) -> bool:
    stripped = text.strip(SPACE)
    if NUMBER.fullmatch(stripped) is None:
        return NOT_FINITE.get(stripped.lower()) == written
    number = Decimal(stripped)
    # The last is for the text of a double whose value a single holds exactly.
    return number in (Decimal(value), Decimal(written), Decimal(repr(value)))


def _uuid(text: str) -> str:
    if _UUID.fullmatch(text) is None:
        raise DoesNotFit
    return str(UUID(text))
