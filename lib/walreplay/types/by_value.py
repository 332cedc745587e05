"""Bring texts that depend on the sender's settings into one form for each value, only to compare them.

IntervalStyle, TimeZone, extra_float_digits and bytea_output change how a value is written, but not the value.  Columns
keep the text that was sent; rows are identified by comparing these forms.  Intervals are equal if their months, days
and microseconds are.  (PostgreSQL's ``=`` also takes 30 days for a month.  But no key can have both, and an old row is
sent as it is stored.)

Of a user-defined type only the form of its values is known.  So the parts of composite values, arrays and ranges are
judged by their own form: if PostgreSQL writes one value as two texts under two settings, these texts are one value,
whatever the type.  Only texts that PostgreSQL itself would write count as intervals or timestamps: 555-1234 is neither.

A value that its column cannot hold is rescued as text.  If that text depends on a setting, it is rescued as it would be
written under the settings of docs/capturing.md.  So rescued texts are compared by value, too.
"""

from __future__ import annotations

import re
from enum import Enum
from typing import TYPE_CHECKING, Final

from walreplay.errors import ValueFormatError
from walreplay.types import families
from walreplay.types.base import ColumnType
from walreplay.types.builtin import BUILTIN_TYPES, EXTENSION_TEXTS, EXTENSION_TYPES
from walreplay.types.composite import with_elements
from walreplay.types.datetime import in_utc, interval_from_text, interval_texts, parts_text
from walreplay.types.strings import bytea_text, bytes_from_text, escaped_text

if TYPE_CHECKING:
    from collections.abc import Callable


class Form(str, Enum):
    """How texts of a type are brought into one form per value."""

    INTERVAL = "interval"
    MOMENTS = "moments"
    """timestamptz, and ranges of it."""
    NUMBERS = "numbers"
    """Floats, and the geometric types made of them."""
    SHAPE = "shape"
    """A type of the user's own: composite values, arrays and ranges of whatever."""


_BUILTIN: Final = {
    "interval": Form.INTERVAL,
    **dict.fromkeys(("timestamptz", "abstime", "tstzrange", "tstzmultirange"), Form.MOMENTS),
    **dict.fromkeys(("float4", "float8", "point", "line", "lseg", "box", "path", "polygon", "circle"), Form.NUMBERS),
}

_OPENING: Final = ("(", "[", "{")
STRUCTURED: Final = r"^[(\[{]"
"""A regular expression: a text that does not match has no structure, and stands for itself."""

_MOMENT = re.compile(
    r"[0-9]{4,7}-[0-9]{2}-[0-9]{2} [0-9]{2}:[0-9]{2}:[0-9]{2}(?:\.[0-9]{0,5}[1-9])?"
    r"[+-][0-9]{2}(?::[0-9]{2}(?::[0-9]{2})?)?(?: BC)?"
)
_NUMBER = re.compile(r"-?[0-9]+(?:\.[0-9]+)?(?:e[+-]?[0-9]+)?")
_NO_TIME: Final = "00:00:00"
_BARE = re.compile(r"-?[0-9]*")
_HEX = re.compile(r"\\x(?:[0-9a-f]{2})*")
_BOUNDS = re.compile(r"((?:\[-?[0-9]+:-?[0-9]+\])+=)\{")


def form_of(column_type: ColumnType) -> Form | None:
    """Return the form for a column's texts, or for the texts in its lists; None if no setting changes them."""
    if column_type.element is not None:
        return form_of(column_type.element)
    if column_type.family is not families.STRING:
        return None
    builtin = BUILTIN_TYPES.get(column_type.oid)
    if builtin is None:
        known = column_type.oid == 0 or column_type.postgres_name.rpartition(".")[2] in _EXTENSIONS
        return None if known else Form.SHAPE
    if builtin.element:
        # An array that is read as text.
        return Form.SHAPE if BUILTIN_TYPES[builtin.element].name in _BUILTIN else None
    return _BUILTIN.get(builtin.name)


def one_form(text: str, form: Form) -> str:
    """Return the one text that represents a value; a text that is not in the form of its type is returned unchanged."""
    return _FORMS[form](text)


def _interval(text: str) -> str:
    found = interval_from_text(text)
    if found is None:
        return text
    months, days, micros = found
    years = abs(months) // 12 * (-1 if months < 0 else 1)
    return parts_text(years, months - 12 * years, days, micros)


def _moments(text: str) -> str:
    return _MOMENT.sub(lambda match: in_utc(match[0]) or match[0], text)


def _numbers(text: str) -> str:
    return _NUMBER.sub(lambda match: repr(float(match[0])), text)


def _shape(text: str) -> str:
    if text[:1] not in _OPENING:
        return text
    try:
        return _structure(text)
    except (ValueError, RecursionError):
        return text


def _structure(text: str) -> str:
    """Write a composite value, an array or a range, with each part in its one form.

    Raises:
        ValueError: the text is none of these.
    """
    if text[-1] not in (")", "]", "}") or len(text) < 2:
        raise ValueError
    bounds = _BOUNDS.match(text)
    if bounds is not None:
        return f"{bounds[1]}{_structure(text[bounds.end(1) :])}"
    parts = _braced(text) if text[0] == "{" else _fields(text[1:-1], null="")
    return f"{text[0]}{','.join(_part(part) for part in parts)}{text[-1]}"


def _part(part: str | None) -> str:
    # Quotes depend on a part's text, which may change here.  So a part is written with its length instead.
    if part is None:
        return "-"
    found = _leaf(part)
    return f"{len(found)}:{found}"


def _leaf(text: str) -> str:
    """Return the one form of a part, by the type that it looks like."""
    if _HEX.fullmatch(text):
        # In bytea's escape form the same bytes may look like any other text.
        text = escaped_text(bytes_from_text(text))
    if text[:1] in _OPENING:
        return _shape(text)
    if _BARE.fullmatch(text):
        return text
    if _MOMENT.fullmatch(text):
        return _moments(text)
    interval = interval_from_text(text)
    if interval is None or text not in interval_texts(interval):
        return text
    found = _interval(text)
    # One IntervalStyle writes an interval of zero as the number 0.
    return "0" if found == _NO_TIME else found


def _fields(text: str, *, null: str) -> list[str | None]:
    """Divide the inside of a composite value, a range or an array at its commas; None is a NULL part.

    Args:
        null: the text that means NULL if it is not quoted.

    Raises:
        ValueError: quotes or brackets are not closed.
    """
    fields: list[str | None] = []
    at, end = 0, len(text)
    while True:
        written: list[str] = []
        quoted = was_quoted = False
        while at < end and (quoted or text[at] != ","):
            char = text[at]
            at += 1
            if char == "\\":
                if at == end:
                    raise ValueError
                written.append(text[at])
                at += 1
            elif char == '"':
                if quoted and text[at : at + 1] == '"':
                    written.append('"')
                    at += 1
                else:
                    quoted, was_quoted = not quoted, True
            else:
                written.append(char)
        if quoted:
            raise ValueError
        field = "".join(written)
        fields.append(field if field != null or was_quoted else None)
        if at == end:
            return fields
        at += 1


def _braced(text: str) -> list[str | None]:
    """Divide an array or a multirange, whose parts may be arrays or ranges."""
    inside = text[1:-1]
    if not inside:
        return []
    if inside[0] not in _OPENING:
        return _fields(inside, null="NULL")
    parts: list[str | None] = []
    depth, start, quoted, at = 0, 0, False, 0
    while at < len(inside):
        char = inside[at]
        if char == "\\":
            at += 1
        elif char == '"':
            quoted = not quoted
        elif not quoted:
            depth += (char in "{[(") - (char in "}])")
            if char == "," and depth == 0:
                parts.append(inside[start:at])
                start = at + 1
        at += 1
    if depth or quoted:
        raise ValueError
    return [*parts, inside[start:]]


def rescued_text(text: str, column_type: ColumnType) -> str:
    """Return the text under which a value is rescued that its column's type cannot hold."""
    if column_type.overridden:
        return text
    if column_type.family is families.TIMESTAMPTZ:
        return in_utc(text) or text
    element = column_type.element
    if element is None:
        return text
    write = _element_writer(element)
    return text if write is None else with_elements(text, column_type.delimiter, write)


def _element_writer(element: ColumnType) -> Callable[[str], str] | None:
    form = form_of(element)
    if element.family is families.TIMESTAMPTZ or form is Form.MOMENTS:
        return _moments
    if form is Form.INTERVAL:
        return _interval
    return _bytea if element.family is families.BINARY else None


def _bytea(text: str) -> str:
    try:
        return bytea_text(bytes_from_text(text))
    except ValueFormatError:
        return text


_EXTENSIONS: Final = frozenset({*EXTENSION_TEXTS, *EXTENSION_TYPES})

_FORMS: Final[dict[Form, Callable[[str], str]]] = {
    Form.INTERVAL: _interval,
    Form.MOMENTS: _moments,
    Form.NUMBERS: _numbers,
    Form.SHAPE: _shape,
}
