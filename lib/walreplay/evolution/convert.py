"""Convert a column's values when the source changes its type, or renames an enum's labels.

The source's own cast is unknown (ALTER TYPE … USING can be anything), and its result is not sent.  So a value is
converted through PostgreSQL's text.  If the new type would not hold the same value, without rounding, the column is
NULL and the text is rescued.  Staged changes of earlier relation versions and the rows of a rewritten table are
converted in the same way, so it makes no difference where a run ends.

Renamed enum labels come first.  ``ALTER TYPE … RENAME VALUE`` changes no row, and replication sends nothing of it, but
all rows show the new label from then on.  Announcements report it (`walreplay.decode.announcements`): a column's type
has the renamed labels, each with all the texts that it has had.  So the types of two moments say which text has become
which.  Transactions that are open while a label is renamed still send the old text behind the announcement, and so do
servers whose caches are stale.  So a text that is no label any more means the label that it was (`ColumnType.as_sent`).
A text that is another value's label by now means that other value.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from enum import Enum
from itertools import pairwise
from typing import TYPE_CHECKING, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from walreplay.errors import ValueFormatError
from walreplay.evolution.texts import (
    CHANGED_BY_CAST,
    CHARACTER,
    INET,
    element_of,
    filled,
    is_numeric,
    lengths_of,
    offsets_of,
    output_of,
    read_texts,
)
from walreplay.evolution.texts import (
    text_of as text_of,
)
from walreplay.types.base import ColumnType, DoesNotFit, Family, Label
from walreplay.types.builtin import BUILTIN_TYPES
from walreplay.types.canonical import canonical_of
from walreplay.types.composite import elements_from_text, with_elements

if TYPE_CHECKING:
    from numpy.typing import NDArray


_DELIMITER: Final = ","


def with_labels(column_type: ColumnType, labels: tuple[Label, ...], *, in_array: bool) -> ColumnType:
    """Return a type with its renamed labels, if its values are the labels' texts."""
    if not labels or column_type.family != Family.STRING or column_type.overridden:
        return column_type
    return replace(column_type, labels=labels, labels_in_array=in_array)


def labels_as_sent(column_type: ColumnType, labels: tuple[Label, ...]) -> ColumnType | None:
    """Return the type of values as they are sent at a place of the stream; None if it makes no difference.

    Args:
        column_type: as of the run's end.
        labels: as they were announced at that place.
    """
    sent = replace(column_type, labels=labels, as_sent=True)
    return sent if renamed_labels(sent, column_type) else None


def renamed_labels(old: ColumnType, new: ColumnType) -> dict[str, str]:
    """Return the new text by the old one, for the labels whose texts differ.

    Types with other oids are other enums; what `USING` has made of their values is not known.
    """
    if not new.labels or old.oid != new.oid or (old.labels == new.labels and not old.as_sent):
        return {}
    now = {oid: texts[-1] for oid, texts in new.labels}
    found = {texts[-1]: now[oid] for oid, texts in old.labels if oid in now}
    if old.as_sent:
        for was, oids in _former(old.labels).items():
            if len(oids) == 1 and oids[0] in now:
                found.setdefault(was, now[oids[0]])
    known = dict(old.labels)
    for oid, texts in new.labels:
        if oid not in known:
            # What was not renamed by then had its first text.  Of two with one text the first had it first.
            found.setdefault(texts[0], texts[-1])
    return {was: now for was, now in found.items() if was != now}


def _former(labels: tuple[Label, ...]) -> dict[str, list[int]]:
    """Return the texts that are labels no more, with those that had them."""
    present = {texts[-1] for _, texts in labels}
    former: dict[str, list[int]] = {}
    for oid, texts in labels:
        for text in dict.fromkeys(texts[:-1]):
            if text not in present:
                former.setdefault(text, []).append(oid)
    return former


def relabelled(values: pa.Array, labels: Mapping[str, str], *, in_array: bool) -> pa.Array:
    """Return strings with new labels, all at once, so that two may swap their texts.

    Args:
        in_array: the strings are arrays' texts, whose elements are the labels.
    """
    encoded = values.dictionary_encode()

    def now(text: str) -> str:
        return labels.get(text, text)

    texts = [with_elements(text, _DELIMITER, now) if in_array else now(text) for text in encoded.dictionary.to_pylist()]
    return pa.array(texts, values.type).take(encoded.indices)


def may_be_rescued(column_type: ColumnType) -> bool:
    """Return whether a value of the type may be in the rescued data instead of its column."""
    kind = column_type.arrow
    if column_type.overridden or column_type.family is Family.NUMERIC_AS_DOUBLE:
        return True
    if pa.types.is_string(kind):
        # A value of an unknown extension in binary format has no text.
        return column_type.oid not in BUILTIN_TYPES
    tests = (pa.types.is_decimal, pa.types.is_temporal, pa.types.is_list, pa.types.is_floating)
    return any(test(kind) for test in tests)


class _Kind(Enum):
    """The kinds of values that conversions distinguish."""

    BOOLEAN = "boolean"
    INTEGER = "integer"
    FLOAT = "float"
    NUMERIC = "numeric"
    """numeric, also where its column is a string."""
    BINARY = "binary"
    DATE = "date"
    TIMESTAMP = "timestamp"
    TIMESTAMPTZ = "timestamptz"
    LIST = "list"
    TEXT = "text"
    JSON = "json"
    CLOCK = "clock"
    CUSTOM = "user-defined"
    OTHER = "other"
    """Built-in types that stay text, each in a form of its own."""


_KINDS: Final = {
    Family.BOOLEAN: _Kind.BOOLEAN,
    Family.INT16: _Kind.INTEGER,
    Family.INT32: _Kind.INTEGER,
    Family.INT64: _Kind.INTEGER,
    Family.UNSIGNED: _Kind.INTEGER,
    Family.FLOAT32: _Kind.FLOAT,
    Family.FLOAT64: _Kind.FLOAT,
    Family.NUMERIC_AS_DOUBLE: _Kind.NUMERIC,
    Family.DECIMAL: _Kind.NUMERIC,
    Family.BINARY: _Kind.BINARY,
    Family.DATE: _Kind.DATE,
    Family.TIMESTAMP: _Kind.TIMESTAMP,
    Family.TIMESTAMPTZ: _Kind.TIMESTAMPTZ,
    Family.ARRAY: _Kind.LIST,
    Family.VECTOR: _Kind.LIST,
}

_STRING_KINDS: Final = {
    **{builtin.sql_name: _Kind.OTHER for builtin in BUILTIN_TYPES.values()},
    **dict.fromkeys(("text", "character varying", CHARACTER, "name"), _Kind.TEXT),
    **dict.fromkeys(("json", "jsonb"), _Kind.JSON),
    **dict.fromkeys(("time without time zone", "time with time zone"), _Kind.CLOCK),
}

_NUMBERS: Final = (_Kind.INTEGER, _Kind.FLOAT, _Kind.NUMERIC)
_STRINGS: Final = (_Kind.TEXT, _Kind.JSON, _Kind.CLOCK, _Kind.CUSTOM, _Kind.OTHER)

_SAME_TEXT: Final = frozenset(
    {(old, new) for old in (*_NUMBERS, _Kind.JSON, _Kind.CUSTOM) for new in _NUMBERS}
    | {(old, _Kind.BOOLEAN) for old in (_Kind.BOOLEAN, _Kind.INTEGER, _Kind.JSON, _Kind.CUSTOM)}
    | {(_Kind.BOOLEAN, _Kind.INTEGER)}
    | {(old, new) for old in (_Kind.DATE, _Kind.TIMESTAMP) for new in (_Kind.DATE, _Kind.TIMESTAMP)}
    | {(kind, kind) for kind in (_Kind.TIMESTAMPTZ, _Kind.BINARY, _Kind.LIST)}
    | {(_Kind.CUSTOM, _Kind.LIST)}  # arrays of user-defined types count as user-defined
    | {(old, new) for old in _STRINGS for new in _STRINGS}
)
"""Pairs (old, new) of kinds where a text of the old one means the same value in the new one.

All kinds can also become text, and text can become any.  A text would mean something else if a bit string became an
integer (``101``), or a number bytea or money.  If a day or a timestamp gets a time zone, the value depends on the
session.
"""

_INTEGER_RANKS: Final = {Family.INT16: 16, Family.INT32: 32, Family.INT64: 64}
_DELTA_DIGITS: Final = {Family.INT16: 10, Family.INT32: 10, Family.INT64: 20, Family.UNSIGNED: 20}
"""Delta widens an integer to a decimal that has so many digits in front of the point, or more."""

_UNREAD: Final = "\\x"
"""The beginning of the text of a binary value that could not be read; the text is not PostgreSQL's."""

_DAY: Final = re.compile(r"([0-9]{4,}-[0-9]{2}-[0-9]{2})( BC)?")
_MIDNIGHT: Final = re.compile(r"([0-9]{4,}-[0-9]{2}-[0-9]{2}) 00:00:00( BC)?")
_DAY_MICROS: Final = 86_400_000_000

Converted = tuple[pa.Array, pa.Array | None]
"""A column, and for each row the text that the column cannot hold or NULL; None if no row has one."""


def convert(values: pa.Array, rescued: pa.Array | None, chain: Sequence[ColumnType]) -> Converted:
    """Convert a column through all the types that it has had.

    Args:
        values: of the type ``chain[0].arrow``.
        rescued: one string a row: the text that the column cannot hold, or NULL; None if no row has one.
        chain: two types or more, the oldest first.  Values go through each change by itself, as in the source.

    Returns:
        The column in the type ``chain[-1].arrow``, and the texts that it cannot hold now, None if there are none.  A
        text that was rescued before becomes a value if the new type can hold it.

    Raises:
        ValueError: the chain has no change.
    """
    if len(chain) < 2:
        raise ValueError("a conversion needs an old and a new type")
    for old, new in pairwise(chain):
        values, rescued = _hop(values, _some(rescued), old, new)
    return values, rescued


def keeps_values(old: ColumnType, new: ColumnType) -> bool:
    """Return whether every value stays as it is and the Delta type stays the same, so that nothing is converted.

    A rescued text may still become a value: see `is_widening`.
    """
    if old.arrow != new.arrow or renamed_labels(old, new):
        return False
    if old.family == Family.ARRAY and new.family == Family.ARRAY:
        return keeps_values(element_of(old), element_of(new))
    if old.family != new.family:
        doubles = (Family.FLOAT64, Family.NUMERIC_AS_DOUBLE)
        return (old.family, new.family) in ((Family.UNSIGNED, Family.INT64), doubles, doubles[::-1])
    if old.family != Family.STRING:
        return True
    if canonical_of(new.oid) not in (None, canonical_of(old.oid)):
        return False
    if CHARACTER in (old.postgres_name, new.postgres_name):
        modifiers = (old.typmod, old.overridden), (new.typmod, new.overridden)
        return old.postgres_name == new.postgres_name and modifiers[0] == modifiers[1]
    if old.postgres_name in CHANGED_BY_CAST or new.postgres_name in (INET, "uuid") or is_numeric(new):
        return old.postgres_name == new.postgres_name or (is_numeric(old) and new.postgres_name == "numeric")
    return _means_the_same(old, new)


def is_widening(old: ColumnType, new: ColumnType) -> bool:
    """Return whether Delta 4.0's type widening changes the column in place, to exactly the values that `convert` gives.

    Type widening leaves rescued texts alone.  But a text that the old type could not hold may be a value of the new one
    (NaN, when numeric(p,s) becomes double precision).  So the caller asks whether the table has any rescued text of the
    column, and rewrites the table if it has.  Lists are always rewritten.
    """
    if old.arrow == new.arrow:
        return False
    if old.family in _DELTA_DIGITS:
        if new.family in _INTEGER_RANKS:
            return _INTEGER_RANKS.get(old.family, 64) < _INTEGER_RANKS[new.family]
        if new.family == Family.DECIMAL:
            return bool(new.arrow.precision - new.arrow.scale >= _DELTA_DIGITS[old.family])
        exact = old.family in (Family.INT16, Family.INT32)
        return exact and new.family in (Family.FLOAT64, Family.NUMERIC_AS_DOUBLE)
    if old.family == Family.DECIMAL and new.family == Family.DECIMAL:
        more_scale = new.arrow.scale - old.arrow.scale
        return bool(new.arrow.precision - old.arrow.precision >= more_scale >= 0)
    return (old.family, new.family) in (
        (Family.FLOAT32, Family.FLOAT64),
        (Family.DATE, Family.TIMESTAMP),
    )


def _hop(values: pa.Array, rescued: pa.Array | None, old: ColumnType, new: ColumnType) -> Converted:
    labels = renamed_labels(old, new)
    if labels:
        return relabelled(values, labels, in_array=new.labels_in_array), rescued
    if keeps_values(old, new) and keeps_values(new, old):
        return values.cast(new.arrow), rescued
    result, left = _convert_values(values, old, new)
    if rescued is None:
        return result, left
    rows = np.flatnonzero(rescued.is_valid().to_numpy(zero_copy_only=False))
    again, still = _convert_rescued(rescued.take(pa.array(rows)), old, new)
    left = pa.nulls(len(values), pa.string()) if left is None else left
    return filled(result, rows, again), _some(filled(left, rows, still))


def _convert_values(values: pa.Array, old: ColumnType, new: ColumnType) -> Converted:
    if keeps_values(old, new):
        return values.cast(new.arrow), None
    if is_widening(old, new):
        return pc.cast(values, new.arrow), None
    if old.family == Family.BOOLEAN and _kind(new) is _Kind.INTEGER:
        return pc.cast(values, new.arrow), None
    if _kind(old) is _Kind.LIST and _kind(new) is _Kind.LIST:
        result = _convert_lists(values, None, element_of(old), new)
    elif old.family == Family.TIMESTAMP and new.family == Family.DATE:
        result = _days(values, new)
    else:
        texts = text_of(values, old)
        result = _read(texts, old, new)
        return result, _left(texts, result)
    if result.null_count == values.null_count:
        return result, None
    return result, _left(text_of(values, old), result)


def _convert_rescued(texts: pa.Array, old: ColumnType, new: ColumnType) -> tuple[pa.Array, pa.Array]:
    """Read, as the new type, the texts that the old type could not hold."""
    written = pa.array([_restated(text, old, new) for text in texts.to_pylist()], pa.string())
    # Texts of values that could not be read stay as they are.
    readable = written
    if old.family != Family.BINARY:
        readable = pc.if_else(pc.starts_with(written, _UNREAD), None, written)
    if old.family == Family.VECTOR and _kind(new) is _Kind.LIST:
        result = pa.nulls(len(texts), new.arrow)  # only texts that are no vector were rescued
    elif old.family == Family.ARRAY and _kind(new) is _Kind.LIST:
        elements, parsed = _parsed(readable, old)
        nulls = pa.nulls(len(elements.values), element_of(old).arrow)
        lists = pa.ListArray.from_arrays(elements.offsets, nulls, mask=pa.array(~parsed))
        result = _convert_lists(lists, elements.values, element_of(old), new)
    else:
        result = _read(readable, old, new)
    return result, pc.if_else(result.is_null(), written, None)


def _read(texts: pa.Array, old: ColumnType, new: ColumnType) -> pa.Array:
    """Read the texts of one type as another."""
    if not _means_the_same(old, new):
        return pa.nulls(len(texts), new.arrow)
    if _kind(new) is not _Kind.LIST:
        return read_texts(texts, new)
    elements, _ = _parsed(texts, new)
    if new.family == Family.ARRAY:
        # PostgreSQL reads more forms than it writes (spaces, lower case null).  Only what it writes is certain.
        same = pc.equal(output_of(elements, _array_of(old, new)), texts)
        elements = pc.if_else(same, elements, None)
    return _convert_lists(elements, None, old, new)


def _convert_lists(lists: pa.Array, rescued: pa.Array | None, old: ColumnType, new: ColumnType) -> pa.Array:
    """Convert lists with elements of the type `old`; a list with an element that does not fit does not fit either.

    Args:
        lists: with NULL for an element that the old type could not hold.
        rescued: for each element of all lists, its text if the old type could not hold it, or NULL.
    """
    lengths = lengths_of(lists)
    elements, left = _hop(lists.flatten(), rescued, old, element_of(new))
    gone = np.zeros(len(elements), dtype=np.bool_)
    if left is not None:
        gone |= left.is_valid().to_numpy(zero_copy_only=False)
    if new.family == Family.VECTOR:
        gone |= ~pc.fill_null(pc.is_finite(elements), False).to_numpy(zero_copy_only=False)
    row_of = np.repeat(np.arange(len(lists)), lengths)
    bad = np.bincount(row_of[gone], minlength=len(lists)) > 0
    kept = elements.filter(pa.array(~bad[row_of])) if bad.any() else elements
    null = lists.is_null().to_numpy(zero_copy_only=False) | bad
    offsets = offsets_of(np.where(bad, 0, lengths))
    return pa.ListArray.from_arrays(offsets, kept, type=new.arrow, mask=pa.array(null))


def _parsed(texts: pa.Array, column_type: ColumnType) -> tuple[pa.Array, NDArray[np.bool_]]:
    """Parse the texts of arrays: give lists of strings, NULL if a text is none, and which texts were parsed."""
    lists: list[list[str | None] | None] = []
    for text in texts.to_pylist():
        try:
            lists.append(None if text is None else _elements(text, column_type))
        except (DoesNotFit, ValueFormatError):
            lists.append(None)
    parsed = np.array([elements is not None for elements in lists], dtype=np.bool_)
    return pa.array(lists, pa.list_(pa.string())), parsed


def _elements(text: str, column_type: ColumnType) -> list[str | None]:
    if column_type.family == Family.ARRAY:
        return elements_from_text(text, column_type.delimiter)
    if not text.startswith("[") or not text.endswith("]"):
        raise DoesNotFit
    return list(text[1:-1].split(",")) if text != "[]" else []


def _array_of(element: ColumnType, like: ColumnType) -> ColumnType:
    return ColumnType(pa.list_(pa.string()), Family.ARRAY, "text[]", element, like.delimiter)


def _days(values: pa.Array, new: ColumnType) -> pa.Array:
    micros = values.view(pa.int64())
    days = pa.array(np.floor_divide(pc.fill_null(micros, 0).to_numpy(), _DAY_MICROS).astype(np.int32))
    midnight = pc.equal(pc.multiply(days.cast(pa.int64()), _DAY_MICROS), micros)
    return pc.if_else(midnight, days, None).view(new.arrow)


def _restated(text: str, old: ColumnType, new: ColumnType) -> str:
    """Write a date as the timestamp that it becomes, or a timestamp as a date, in any year."""
    if (old.family, new.family) == (Family.DATE, Family.TIMESTAMP):
        match = _DAY.fullmatch(text)
        return text if match is None else f"{match[1]} 00:00:00{match[2] or ''}"
    if (old.family, new.family) == (Family.TIMESTAMP, Family.DATE):
        match = _MIDNIGHT.fullmatch(text)
        return text if match is None else f"{match[1]}{match[2] or ''}"
    return text


def _means_the_same(old: ColumnType, new: ColumnType) -> bool:
    before, after = _kind(old), _kind(new)
    if before is _Kind.CLOCK and after is _Kind.CLOCK:
        return old.postgres_name == new.postgres_name
    return before is _Kind.TEXT or after is _Kind.TEXT or (before, after) in _SAME_TEXT


def _kind(column_type: ColumnType) -> _Kind:
    if column_type.family != Family.STRING:
        return _KINDS[column_type.family]
    if is_numeric(column_type):
        return _Kind.NUMERIC
    name = column_type.postgres_name
    if name == "citext" or name.endswith(".citext"):
        return _Kind.TEXT
    return _STRING_KINDS.get(name, _Kind.CUSTOM)


def _left(texts: pa.Array, result: pa.Array) -> pa.Array | None:
    return _some(pc.if_else(result.is_null(), texts, None))


def _some(texts: pa.Array | None) -> pa.Array | None:
    return None if texts is None or texts.null_count == len(texts) else texts
