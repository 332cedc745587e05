r"""Values with parts: arrays, composite types, ranges and multiranges, and pgvector's vectors.

- Arrays of built-in types: ``{a,"b\"c",NULL}``.  A list column has one dimension whose first element has the subscript
  1.  So an array with several dimensions, or with other bounds (``[0:1]={1,2}``), does not fit.
- Composite types: ``(1,"a, b",)``, where an empty field is NULL.
- Ranges and multiranges: ``[1,5)``, ``empty``, ``{[1,5),[7,)}``.
- pgvector's vector and halfvec: ``[1,2.5,-3e-05]``.  The server writes the shortest digits that identify a
  single-precision float.  So each element is rounded to single precision directly from its text: rounded to a double
  first, some would become a neighbouring float.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from math import prod
from struct import Struct
from typing import Final, NamedTuple

import pyarrow as pa

from walreplay.errors import ValueFormatError
from walreplay.types.base import Cursor, DoesNotFit, malformed

_BOUNDS = re.compile(r"(?:\[-?[0-9]+:-?[0-9]+\])+=\{")
_ELEMENT = re.compile(r'"((?:[^"\\]|\\.)*)"', re.DOTALL)
_NEEDS_QUOTES = re.compile(r'[ \t\n\r\v\f"\\{}]')
_ESCAPED = re.compile(r'["\\]')

_HEADER: Final = Struct("!iiI")  # Number of dimensions, 1 if there are NULLs, the elements' type
_DIMENSION: Final = Struct("!ii")  # Number of elements, the first one's subscript
_MAX_DIMENSIONS: Final = 6  # PostgreSQL's MAXDIM


def elements_from_text(text: str, delimiter: str) -> list[str | None]:
    """Divide an array's text into its elements; None is a NULL element.

    Raises:
        DoesNotFit: it has several dimensions, or bounds that do not begin at 1.
        ValueFormatError: it is no array.
    """
    if _BOUNDS.match(text) or (text.startswith("{{") and text.endswith("}}")):
        raise DoesNotFit
    if len(text) < 2 or text[0] != "{" or text[-1] != "}":
        raise _malformed()
    elements: list[str | None] = []
    position, end = 1, len(text) - 1
    if position == end:
        return elements
    while True:
        quoted = _ELEMENT.match(text, position, end)
        if quoted is not None:
            elements.append(re.sub(r"\\(.)", r"\1", quoted[1], flags=re.DOTALL))
            position = quoted.end()
        else:
            start = position
            while position < end and text[position] != delimiter:
                if text[position] in '"\\{}':
                    raise _malformed()
                position += 1
            if position == start:  # PostgreSQL writes an empty text with quotes
                raise _malformed()
            word = text[start:position]
            elements.append(None if word == "NULL" else word)  # quoted, it is a text
        if position == end:
            return elements
        if text[position] != delimiter:
            raise _malformed()
        position += 1


def with_elements(text: str, delimiter: str, write: Callable[[str], str]) -> str:
    """Apply a function to each element of an array's text, of any dimensions; NULLs, and texts of other forms, stay."""

    def element(match: re.Match[str]) -> str:
        if match[1] is None:
            return match[0] if match[0] == "NULL" else _quoted(write(match[0]), delimiter)
        return _quoted(write(re.sub(r"\\(.)", r"\1", match[1], flags=re.DOTALL)), delimiter)

    bounds = _BOUNDS.match(text)
    start = 0 if bounds is None else bounds.end() - 1
    if text[start : start + 1] != "{":
        return text
    parts = re.compile(rf'"((?:[^"\\]|\\.)*)"|[^"{{}}{re.escape(delimiter)}]+', re.DOTALL)
    if '"' in text and '"' in parts.sub("", text[start:]):  # one that nothing closes: no server writes this
        return text
    return text[:start] + parts.sub(element, text[start:])


class BinaryArray(NamedTuple):
    """The parts of an array in binary format.

    Args:
        dimensions: (number of elements, first subscript) of each dimension; empty for an empty array.
        elements: the elements' bytes, the last dimension varying fastest; None is a NULL element.
    """

    element_oid: int
    dimensions: tuple[tuple[int, int], ...]
    elements: list[bytes | None]


def array_from_binary(data: bytes) -> BinaryArray:
    """Divide an array's bytes into its parts.

    Raises:
        ValueFormatError: they are no array.
    """
    cursor = Cursor(data, "array")
    count, has_nulls, element_oid = cursor.unpack(_HEADER)
    if not 0 <= count <= _MAX_DIMENSIONS or has_nulls not in (0, 1):
        raise malformed("array", "has a number of dimensions, or a mark of NULLs, that there is none of")
    dimensions = [cursor.unpack(_DIMENSION) for _ in range(count)]
    sizes = [size for size, _ in dimensions]
    if any(size < 0 for size in sizes):
        raise malformed("array", "has a dimension below zero")
    total = prod(sizes) if sizes else 0
    if 4 * total > cursor.left:  # each element has a length
        raise malformed("array", "counts more elements than it has bytes")
    elements = [cursor.sized() for _ in range(total)]
    cursor.finish()
    return BinaryArray(element_oid, tuple((size, first) for size, first in dimensions), elements)


def array_text(array: BinaryArray, element_text: Callable[[bytes], str], delimiter: str) -> str:
    """Write an array as PostgreSQL does."""
    if not array.elements:
        return "{}"
    pieces = ["NULL" if element is None else _quoted(element_text(element), delimiter) for element in array.elements]
    for size, _ in reversed(array.dimensions):
        pieces = [f"{{{delimiter.join(pieces[start : start + size])}}}" for start in range(0, len(pieces), size)]
    if all(first == 1 for _, first in array.dimensions):  # PostgreSQL writes bounds only where one differs from 1
        return pieces[0]
    bounds = "".join(f"[{first}:{first + size - 1}]" for size, first in array.dimensions)
    return f"{bounds}={pieces[0]}"


def number_list_text(data: bytes, element_text: Callable[[bytes], str]) -> str:
    """Write the bytes of an int2vector or oidvector, which are an array's, with spaces between the numbers."""
    array = array_from_binary(data)
    elements = [element for element in array.elements if element is not None]
    if len(array.dimensions) > 1 or len(elements) < len(array.elements):
        raise malformed("vector of numbers", "has several dimensions or NULLs")
    return " ".join(map(element_text, elements))


def _quoted(text: str, delimiter: str) -> str:
    if text and text.upper() != "NULL" and delimiter not in text and _NEEDS_QUOTES.search(text) is None:
        return text
    escaped = _ESCAPED.sub(r"\\\g<0>", text)
    return f'"{escaped}"'


def _doubled(text: str, needs_quotes: re.Pattern[str]) -> str:
    """Quote a field or a bound, if it has to be: there quotes and backslashes are doubled."""
    if text and needs_quotes.search(text) is None:
        return text
    escaped = _ESCAPED.sub(r"\g<0>\g<0>", text)
    return f'"{escaped}"'


def _malformed() -> ValueFormatError:
    return ValueFormatError("an array is not in PostgreSQL's form")


# Composite types

_TYPE: Final = Struct("!I")

_FIELD_NEEDS_QUOTES = re.compile(r'[ \t\n\r\v\f"\\(),]')


def fields_from_binary(data: bytes) -> list[tuple[int, bytes | None]]:
    """Divide a composite value's bytes into its fields: each one's type oid and its bytes, None for NULL."""
    cursor = Cursor(data, "composite")
    fields = [(cursor.unpack(_TYPE)[0], cursor.sized()) for _ in range(cursor.count(8))]  # an oid and a length each
    cursor.finish()
    return fields


def composite_text(fields: list[str | None]) -> str:
    """Write a composite value's fields as PostgreSQL does."""
    return f"({','.join('' if field is None else _doubled(field, _FIELD_NEEDS_QUOTES) for field in fields)})"


# Ranges

_FLAGS: Final = Struct("!B")
_EMPTY: Final = 0x01
_LOWER_INCLUSIVE: Final = 0x02
_UPPER_INCLUSIVE: Final = 0x04
_LOWER_INFINITE: Final = 0x08
_UPPER_INFINITE: Final = 0x10
_KNOWN_FLAGS: Final = 0x1F

_BOUND_NEEDS_QUOTES = re.compile(r'[ \t\n\r\v\f"\\()\[\],]')


def range_text(data: bytes, bound_text: Callable[[bytes], str]) -> str:
    """Write a range's bytes as PostgreSQL does.

    Args:
        data: flags, then the length and the bytes of each finite bound.
        bound_text: writes a bound's bytes; it has to be given because a range's bytes do not name its bounds' type.
    """
    cursor = Cursor(data, "range")
    (flags,) = cursor.unpack(_FLAGS)
    if flags & ~_KNOWN_FLAGS:
        raise malformed("range", "has flags that there are none of")
    if flags & _EMPTY:
        cursor.finish()
        return "empty"
    lower = "" if flags & _LOWER_INFINITE else _doubled(bound_text(cursor.present()), _BOUND_NEEDS_QUOTES)
    upper = "" if flags & _UPPER_INFINITE else _doubled(bound_text(cursor.present()), _BOUND_NEEDS_QUOTES)
    cursor.finish()
    opening = "[" if flags & _LOWER_INCLUSIVE else "("
    closing = "]" if flags & _UPPER_INCLUSIVE else ")"
    return f"{opening}{lower},{upper}{closing}"


def multirange_text(data: bytes, bound_text: Callable[[bytes], str]) -> str:
    """Write a multirange's bytes as PostgreSQL does; see `range_text`."""
    cursor = Cursor(data, "multirange")
    ranges = [range_text(cursor.present(), bound_text) for _ in range(cursor.count(5))]  # a length and the flags each
    cursor.finish()
    return f"{{{','.join(ranges)}}}"


_NUMBER = r"-?[0-9]+(?:\.[0-9]+)?(?:e[+-]?[0-9]+)?"
VECTOR_FORM: Final = rf"^\[(?:{_NUMBER}(?:,{_NUMBER})*)?\]$"
"""A regular expression, which the vectorized reader uses, too."""

_VECTOR = re.compile(VECTOR_FORM)


def floats_from_text(text: str) -> list[float]:
    """Read a vector's elements, each of which is a single-precision float.

    Raises:
        DoesNotFit: the text is no vector, or has elements beyond single precision, NaN or infinities.  It is no format
            error, because the type is known only by its name, which a type of another extension, or a table, may have.
    """
    if _VECTOR.fullmatch(text) is None:
        raise DoesNotFit
    if text == "[]":
        return []
    try:
        elements: list[float] = pa.array(text[1:-1].split(",")).cast(pa.float32()).to_pylist()
    except pa.ArrowInvalid:
        raise DoesNotFit from None
    if not all(map(math.isfinite, elements)):
        raise DoesNotFit
    return elements
